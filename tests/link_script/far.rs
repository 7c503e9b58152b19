//! A scripted acceptor, and an outbound sidecar that dials it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sidebeat::stamp::Stamp;
use sidebeat::verdict::{Cause, State};
use sidebeat::wire::{Decoder, Event, Frame, Limits, RefuseCode, VERSION, Welcome, greeting};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::peer::{Auto, Peer, Pilot, What, encoded, runtime};
use crate::support::pair::{NAME, Sidecar};
use crate::support::service::HANG;
use crate::support::{Port, TempDir, eventually};

/// How a scripted sidecar answers a dial.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) greeting: Vec<u8>,
    /// Before the greeting.
    pub(crate) delay: Duration,
    pub(crate) welcomes: bool,
    /// Behind the hello, before the welcome.
    pub(crate) early: Vec<u8>,
    /// In one write with the welcome.
    pub(crate) behind: Vec<u8>,
    pub(crate) refuses: Option<RefuseCode>,
    pub(crate) incarnation: u64,
    pub(crate) initial_credit: u32,
}

impl Default for Manner {
    fn default() -> Manner {
        Manner {
            greeting: greeting().to_vec(),
            delay: Duration::ZERO,
            welcomes: true,
            early: Vec::new(),
            behind: Vec::new(),
            refuses: None,
            incarnation: 77,
            initial_credit: 256 * 1024,
        }
    }
}

struct Inner {
    manner: Mutex<Manner>,
    links: Mutex<Vec<Peer>>,
    /// Bytes of dialers that got no welcome.
    unwelcome: AtomicU64,
    dials: AtomicUsize,
    /// Connections that are open now.
    open: AtomicUsize,
}

/// A scripted sidecar that is dialled.
pub(crate) struct Far {
    pub(crate) addr: SocketAddr,
    pub(crate) pilot: Pilot,
    inner: Arc<Inner>,
    listener: Mutex<Option<JoinHandle<()>>>,
    /// Streams handed to the test already: link, stream.
    seen: Mutex<Vec<(usize, u32)>>,
}

impl Far {
    pub(crate) fn start(auto: Auto) -> Far {
        Far::with(auto, Manner::default())
    }

    pub(crate) fn with(auto: Auto, manner: Manner) -> Far {
        Far::at(Ipv4Addr::LOCALHOST, auto, manner)
    }

    /// On an address of its own: any of 127.0.0.0/8.
    pub(crate) fn at(ip: Ipv4Addr, auto: Auto, manner: Manner) -> Far {
        let pilot = Pilot::new(auto);
        let inner = Arc::new(Inner {
            manner: Mutex::new(manner),
            links: Mutex::default(),
            unwelcome: AtomicU64::new(0),
            dials: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let (addr, task) = listen(SocketAddr::from((ip, 0)), inner.clone(), pilot.clone());
        Far { addr, pilot, inner, listener: Mutex::new(Some(task)), seen: Mutex::default() }
    }

    pub(crate) fn manner(&self, change: impl FnOnce(&mut Manner)) {
        change(&mut self.inner.manner.lock().unwrap());
    }

    /// Nobody listens any more.
    pub(crate) fn stop_listening(&self) {
        if let Some(task) = self.listener.lock().unwrap().take() {
            task.abort();
            let _ = runtime().block_on(task);
        }
    }

    /// Listens on the same port again.
    pub(crate) fn listen_again(&self) {
        let (_, task) = listen(self.addr, self.inner.clone(), self.pilot.clone());
        *self.listener.lock().unwrap() = Some(task);
    }

    pub(crate) fn links(&self) -> Vec<Peer> {
        self.inner.links.lock().unwrap().clone()
    }

    pub(crate) fn live_links(&self) -> Vec<Peer> {
        self.links().into_iter().filter(|l| !l.closed_now()).collect()
    }

    pub(crate) fn dials(&self) -> usize {
        self.inner.dials.load(Ordering::SeqCst)
    }

    pub(crate) fn unwelcome_bytes(&self) -> u64 {
        self.inner.unwelcome.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.inner.open.load(Ordering::SeqCst)
    }

    /// The next stream that was opened on any link.
    pub(crate) fn opened(&self) -> (Peer, u32) {
        eventually(HANG, "OPEN", || self.try_opened().ok_or_else(|| format!("{} links", self.links().len())))
    }

    pub(crate) fn try_opened(&self) -> Option<(Peer, u32)> {
        let mut seen = self.seen.lock().unwrap();
        for (i, link) in self.links().into_iter().enumerate() {
            for heard in link.log() {
                let What::Frame(Frame::Open { stream, service }) = heard.what else { continue };
                if !seen.contains(&(i, stream)) {
                    assert_eq!(service, NAME);
                    seen.push((i, stream));
                    return Some((link, stream));
                }
            }
        }
        None
    }

    /// Waits until any link heard a frame that fits.
    pub(crate) fn hears(&self, what: &str, fits: impl Fn(&Frame) -> bool) {
        eventually(HANG, what, || {
            let n: usize = self.links().iter().map(|l| l.count(&fits)).sum();
            if n > 0 { Ok(()) } else { Err(format!("not on {} links", self.links().len())) }
        });
    }

    /// Says it on every live link.
    pub(crate) fn say(&self, frame: &Frame) {
        self.live_links().iter().for_each(|l| l.say(frame));
    }
}

fn listen(at: SocketAddr, inner: Arc<Inner>, pilot: Pilot) -> (SocketAddr, JoinHandle<()>) {
    let _in = runtime().enter();
    let socket = tokio::net::TcpSocket::new_v4().expect("socket");
    socket.set_reuseaddr(true).expect("reuse");
    socket.bind(at).expect("bind");
    let listener: TcpListener = socket.listen(256).expect("listen");
    let addr = listener.local_addr().expect("address");
    let task = runtime().spawn(async move {
        loop {
            let Ok((io, _)) = listener.accept().await else { continue };
            inner.dials.fetch_add(1, Ordering::SeqCst);
            runtime().spawn(answer(io, inner.clone(), pilot.clone()));
        }
    });
    (addr, task)
}

/// Counts a connection while it is open.
struct Open(Arc<Inner>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(mut io: TcpStream, inner: Arc<Inner>, pilot: Pilot) {
    inner.open.fetch_add(1, Ordering::SeqCst);
    let open = Open(inner.clone());
    let manner = inner.manner.lock().unwrap().clone();
    tokio::time::sleep(manner.delay).await;
    if io.write_all(&manner.greeting).await.is_err() {
        return;
    }
    let rest = if manner.welcomes { hello(&mut io).await } else { None };
    let Some(rest) = rest else { return swallow(io, &inner).await };
    if let Some(code) = manner.refuses {
        let _ = io.write_all(&encoded(&Frame::Refuse { code, text: "scripted".to_owned() })).await;
        return swallow(io, &inner).await;
    }
    let welcome = Frame::Welcome(Welcome {
        version: VERSION,
        features: 0,
        incarnation: manner.incarnation,
        node: "far".to_owned(),
        active_ms: 20,
        idle_ms: 100,
        accept_min_ms: 5,
        initial_credit: manner.initial_credit,
    });
    let all = [&manner.early[..], &encoded(&welcome), &manner.behind].concat();
    if io.write_all(&all).await.is_err() {
        return;
    }
    let peer = Peer::run(io, rest, pilot);
    inner.links.lock().unwrap().push(peer.clone());
    while !peer.closed_now() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(open);
}

async fn hello(io: &mut TcpStream) -> Option<Vec<u8>> {
    let mut decoder = Decoder::new(Limits::default());
    let mut buf = [0; 4096];
    loop {
        let n = io.read(&mut buf).await.ok().filter(|n| *n > 0)?;
        let mut input = &buf[..n];
        if let Some(event) = decoder.next(&mut input).expect("a hello") {
            assert!(matches!(event, Event::Frame(Frame::Hello(_))), "not a hello: {event:?}");
            return Some(input.to_vec());
        }
    }
}

async fn swallow(mut io: TcpStream, inner: &Inner) {
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = io.read(&mut buf).await {
        inner.unwelcome.fetch_add(n as u64, Ordering::SeqCst);
    }
}

/// An outbound sidecar.
pub(crate) struct Outbound {
    pub(crate) sidecar: Sidecar,
    /// Where clients connect.
    pub(crate) addr: SocketAddr,
    _listen: Port,
    _dir: TempDir,
}

/// One endpoint: the service's own address, and its sidecar's.
pub(crate) struct At(pub(crate) SocketAddr, pub(crate) SocketAddr);

impl Outbound {
    /// With `link = "required"`, to scripted sidecars whose service has no address of its own; waits for their links.
    pub(crate) fn to(fars: &[&Far]) -> Outbound {
        Outbound::with(fars, "", "")
    }

    pub(crate) fn with(fars: &[&Far], more: &str, tables: &str) -> Outbound {
        let endpoints: Vec<At> = fars.iter().map(|f| At(f.addr, f.addr)).collect();
        let outbound = Outbound::raw(&endpoints, &format!("link = \"required\"\n{more}"), tables);
        for far in fars {
            eventually(HANG, "a link to each endpoint", || {
                if far.live_links().is_empty() { Err(format!("{} dials", far.dials())) } else { Ok(()) }
            });
        }
        outbound
    }

    pub(crate) fn raw(endpoints: &[At], more: &str, tables: &str) -> Outbound {
        let (dir, listen) = (TempDir::new(), Port::pick());
        let mut list = String::new();
        for At(service, link) in endpoints {
            write!(list, "{{ address = \"{service}\", link_port = {} }}, ", link.port()).expect("string");
        }
        let toml = format!(
            "[[outbound]]\nname = \"{NAME}\"\nlisten = \"{}\"\nendpoints = [{list}]\n{more}\n{tables}",
            listen.addr()
        );
        let sidecar = Sidecar::start(&dir, "outbound", &toml);
        Outbound { sidecar, addr: listen.addr(), _listen: listen, _dir: dir }
    }

    /// Changes of state of that endpoint, or of all.
    pub(crate) fn events(&self) -> Vec<Change> {
        self.sidecar.events().iter().map(|line| Change::parse(line)).collect()
    }

    /// Waits for a change to `to` for one of `causes` (any if empty), after the first `skip` changes.
    pub(crate) fn change(&self, skip: usize, to: State, causes: &[Cause]) -> Change {
        eventually(HANG, &format!("{to:?} for {causes:?}"), || {
            let events = self.events();
            let found = events
                .iter()
                .skip(skip)
                .find(|c| c.to == to && (causes.is_empty() || causes.contains(&c.cause)));
            found.cloned().ok_or_else(|| format!("{events:#?}\n{}", self.sidecar.status()))
        })
    }

    /// True if any change led to FAILED.
    pub(crate) fn ever_failed(&self) -> bool {
        self.events().iter().any(|c| c.to == State::Failed)
    }

    pub(crate) fn endpoint(&self, index: usize) -> Value {
        let status: Value = serde_json::from_str(&self.sidecar.status()).expect("JSON");
        status["upstreams"][0]["endpoints"][index].clone()
    }

    pub(crate) fn wait_state(&self, index: usize, state: State) {
        eventually(HANG, &format!("endpoint {index} is {state:?}"), || {
            let e = self.endpoint(index);
            if e["state"] == state.name() { Ok(()) } else { Err(format!("{e}\n{:#?}", self.events())) }
        });
    }
}

/// A change of state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) from: State,
    pub(crate) to: State,
    pub(crate) cause: Cause,
    pub(crate) endpoint: String,
    pub(crate) at: Stamp,
    /// Since the last sign of life, ms.
    pub(crate) silence_ms: Option<f64>,
}

impl Change {
    fn parse(line: &str) -> Change {
        let v: Value = serde_json::from_str(line).expect("JSON");
        let word = |key: &str| v[key].clone();
        Change {
            from: serde_json::from_value(word("from")).expect("state"),
            to: serde_json::from_value(word("to")).expect("state"),
            cause: serde_json::from_value(word("cause")).expect("cause"),
            endpoint: v["endpoint"].as_str().unwrap_or_default().to_owned(),
            at: Stamp::from_nanos(v["mono_ns"].as_u64().expect("mono_ns")),
            silence_ms: v["silence_ms"].as_f64(),
        }
    }
}
