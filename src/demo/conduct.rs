//! Conducts one fault: injects it, holds it, undoes it, waits until it is healed, and says what was seen.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::child::Running;
use super::events::{self, Log};
use super::faults::{self, Expected, Kind, Span};
use super::load::{Answer, Load};
use super::net::{self, Net, Side};
use super::report::{Fault, Transition};
use super::scene::{Pod, Scene};
use super::threads::Threads;
use super::{config, http};
use crate::clock;
use crate::stamp::Stamp;
use crate::verdict::State;

const PULSE: Duration = Duration::from_millis(500);
/// What is announced before a pulse: whoever announces a pause rounds up.
const NOTICE: &str = "600ms";
/// Below the `stall_patience` of the sidecars: what lies unread on two connections for so long is FAILED, and rightly.
const DEADLOCK_MOST: Duration = Duration::from_millis(800);
const OBSERVER_STOP: Duration = Duration::from_secs(2);
const HEAL_LIMIT: Duration = Duration::from_secs(10);
/// ACTIVE must last this long to count as the end of a fault.
const SETTLE: Duration = Duration::from_millis(300);
/// A sidecar that came back is not tried again at once ("no" is remembered for up to 30 s and jitter).
const LINK_LIMIT: Duration = Duration::from_secs(45);
/// How much longer the path takes in a `delay`.
const DELAY: Duration = Duration::from_millis(50);
/// Size of the answer that a slow reader asks for, MiB: more than all buffers on the way.
const LARGE_MIB: u32 = 256;

/// Everything a fault needs.
#[derive(Debug)]
pub struct Stage {
    /// The processes.
    pub scene: Scene,
    /// What the client's sidecar reported.
    pub log: Rc<Log>,
    /// The load.
    pub load: Load,
    /// How long a fault is held.
    pub hold: Duration,
    /// Beginning of the run.
    pub begin: Stamp,
    /// Faults that are over, for telling mistakes from detections.
    pub spans: RefCell<Vec<(Expected, Span)>>,
    /// Pods under a fault now.
    pub busy: RefCell<HashSet<usize>>,
    /// Threads that burn CPU time as long as the stage stands.
    pub(super) _burn: Threads,
}

/// What must be undone.
struct Injected {
    at: Stamp,
    target: Option<usize>,
    /// The fault undid itself at this instant.
    over: Option<Stamp>,
    held: Held,
}

/// What a fault holds on to until it is undone.
#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    /// A client that does not read.
    Reader(TcpStream),
    /// The client's port of the connection that is cut.
    Port(u16),
}

impl Injected {
    fn new(at: Stamp, target: usize) -> Injected {
        Injected { at, target: Some(target), over: None, held: Held::Nothing }
    }
}

impl Stage {
    /// Runs one fault from injection to healing.
    pub async fn fault(&self, kind: Kind, target: usize) -> Fault {
        let expected = kind.expected(self.scene.pid_seen);
        let name = &self.scene.pods[target].name;
        if kind.needs_net() && self.scene.net.borrow().is_none() {
            return Fault::skipped(kind, name, expected, "no network that can be cut".to_owned());
        }
        self.busy.borrow_mut().insert(target);
        // Asked for when all is over it would be what the fault has taught.
        let before = events::status(self.scene.admin, config::UPSTREAM).await.unwrap_or_default();
        let witness = match kind {
            Kind::Kill => end_of(self.scene.pods[target].endpoint).await,
            _ => None,
        };
        let row_of = |pod: usize| {
            let address = self.scene.pods[pod].endpoint.to_string();
            before.iter().find(|row| row.address == address)
        };
        let connected = row_of(target).and_then(|row| row.streams).is_some_and(|n| n > 0);
        let watch = self.load.ledger().watch();
        let conducted = self.conduct(kind, target, watch).await;
        self.busy.borrow_mut().remove(&target);
        let watched = self.load.ledger().unwatch(watch);
        let (span, target) = match conducted {
            Ok(done) => done,
            Err(e) => return Fault::skipped(kind, name, expected, e.to_string()),
        };
        let events = self.log.since(span.at);
        let seen = faults::seen(&events, &span);
        let (lost, asked) = watched.as_ref().map_or((0, None), |w| (w.failed, w.asked()));
        if lost == 0
            && let Some(why) = faults::unnoticeable(kind, &span, &seen, asked, connected)
        {
            return Fault::skipped(kind, name, expected, why.to_owned());
        }
        let mut out = Fault::new(kind, expected, &seen);
        out.transitions = faults::during(&events, &span).map(|e| Transition::new(e, span.at)).collect();
        out.target = target.map_or("client", |i| self.scene.pods[i].name.as_str()).to_owned();
        out.at_s = span.at.since(self.begin).as_secs_f64();
        out.kernel_ms = witness.and_then(|mut w| w.try_recv().ok()).map(|end| end.millis_since(span.at));
        out.held_ms = span.end.millis_since(span.at);
        out.waited(faults::during(&events, &span), target.and_then(row_of));
        if let Some(w) = watched {
            out.watched(&w);
        }
        out.met = Some(faults::met(kind, expected, &seen, lost));
        self.spans.borrow_mut().push((expected, span));
        out
    }

    async fn conduct(&self, kind: Kind, target: usize, watch: u64) -> io::Result<(Span, Option<usize>)> {
        let injected = match self.inject(kind, target).await {
            Ok(injected) => injected,
            Err(e) => {
                // Half of it may have happened.
                let _ = self.undo(kind, target, Held::Nothing).await;
                return Err(e);
            }
        };
        self.load.ledger().arm(watch, injected.target, injected.at);
        let hold = match kind {
            Kind::Pause | Kind::Notice | Kind::Spin => PULSE,
            Kind::HangObserver => OBSERVER_STOP,
            Kind::Deadlock => self.deadlock(),
            _ => self.hold,
        };
        let end = match injected.over {
            Some(over) => over,
            None => {
                tokio::time::sleep_until(clock::instant(injected.at + hold)).await;
                self.undo(kind, target, injected.held).await?
            }
        };
        self.healed(injected.target, end + HEAL_LIMIT).await;
        let endpoint = injected.target.map(|i| self.scene.pods[i].endpoint.to_string());
        Ok((Span { endpoint, at: injected.at, end, settled: clock::now() }, injected.target))
    }

    async fn inject(&self, kind: Kind, i: usize) -> io::Result<Injected> {
        let pod = &self.scene.pods[i];
        match kind {
            Kind::Kill => kill(&pod.service).await.map(|at| Injected::new(at, i)),
            Kind::KillSidecar => kill(&pod.sidecar).await.map(|at| Injected::new(at, i)),
            Kind::Hang | Kind::Pause => signal(&pod.service, Signal::STOP).map(|at| Injected::new(at, i)),
            Kind::HangSidecar => signal(&pod.sidecar, Signal::STOP).map(|at| Injected::new(at, i)),
            Kind::HangObserver => {
                let at = signal(&self.scene.client, Signal::STOP)?;
                Ok(Injected { target: None, ..Injected::new(at, i) })
            }
            Kind::Cut | Kind::CutIn | Kind::CutOut => {
                self.switch(kind, i, false).map(|at| Injected::new(at, i))
            }
            Kind::CutLink => {
                let port = net::connection_in_use(SocketAddr::new(pod.ip(), pod.link_port))?;
                let cut = self.network(|net| net.switch_connection(i, port, false));
                match cut {
                    Ok((at, _)) => Ok(Injected { held: Held::Port(port), ..Injected::new(at, i) }),
                    Err(e) => {
                        // One of its two rules may be there.
                        let _ = self.network(|net| net.switch_connection(i, port, true));
                        Err(e)
                    }
                }
            }
            Kind::Delay => self.network(|net| net.delay(i, Some(DELAY))).map(|(at, _)| Injected::new(at, i)),
            Kind::Notice => {
                announce(pod).await?;
                signal(&pod.service, Signal::STOP).map(|at| Injected::new(at, i))
            }
            Kind::Saturate => self.saturate(i).await,
            Kind::Restart => self.restart(i).await,
            Kind::Deadlock => {
                let at = clock::now();
                tell(pod, &format!("/deadlock?ms={}", self.deadlock().as_millis())).await?;
                Ok(Injected::new(at, i))
            }
            Kind::Spin => {
                let (at, path) = (clock::now(), format!("/spin?ms={}", PULSE.as_millis()));
                tokio::task::spawn_local(ask(pod.netns.clone(), pod.endpoint, path));
                Ok(Injected::new(at, i))
            }
        }
    }

    async fn undo(&self, kind: Kind, i: usize, held: Held) -> io::Result<Stamp> {
        let pod = &self.scene.pods[i];
        let now = clock::now();
        match held {
            Held::Port(port) => {
                return self.network(|net| net.switch_connection(i, port, true)).map(|(at, _)| at);
            }
            Held::Reader(reader) => drop(reader),
            Held::Nothing => {}
        }
        match kind {
            Kind::Kill | Kind::Restart if pod.service.borrow().is_none() => self.scene.start_service(i)?,
            Kind::KillSidecar if pod.sidecar.borrow().is_none() => self.scene.start_sidecar(i).await?,
            Kind::Hang | Kind::Pause | Kind::Notice => return signal(&pod.service, Signal::CONT),
            Kind::HangSidecar => return signal(&pod.sidecar, Signal::CONT),
            Kind::HangObserver => return signal(&self.scene.client, Signal::CONT),
            Kind::Cut | Kind::CutIn | Kind::CutOut => return self.switch(kind, i, true),
            Kind::Delay => return self.network(|net| net.delay(i, None)).map(|(at, _)| at),
            // Those end by themselves.
            Kind::Deadlock | Kind::Spin | Kind::CutLink => {}
            Kind::Kill | Kind::Restart | Kind::KillSidecar | Kind::Saturate => {}
        }
        Ok(now)
    }

    fn switch(&self, kind: Kind, i: usize, join: bool) -> io::Result<Stamp> {
        let side = match kind {
            Kind::CutIn => Side::In,
            Kind::CutOut => Side::Out,
            _ => Side::Both,
        };
        self.network(|net| net.switch(i, side, join)).map(|(before, _)| before)
    }

    fn network<T>(&self, change: impl FnOnce(&mut Net) -> io::Result<T>) -> io::Result<T> {
        let mut net = self.scene.net.borrow_mut();
        change(net.as_mut().ok_or_else(|| io::Error::other("no network that can be cut"))?)
    }

    fn deadlock(&self) -> Duration {
        self.hold.min(DEADLOCK_MOST)
    }

    async fn restart(&self, i: usize) -> io::Result<Injected> {
        let pod = &self.scene.pods[i];
        let at = signal(&pod.service, Signal::TERM)?;
        let old = pod.service.take();
        if let Some(mut old) = old {
            old.ended(Duration::from_secs(2)).await;
        }
        let over = clock::now();
        self.scene.start_service(i)?;
        Ok(Injected { over: Some(over), ..Injected::new(at, i) })
    }

    /// A slow reader of `wanted`, or of any service if the balancer gives us another each time.
    async fn saturate(&self, wanted: usize) -> io::Result<Injected> {
        const TRIES: usize = 16;
        for n in 1..=TRIES {
            let at = clock::now();
            let asked = tokio::time::timeout(Duration::from_secs(2), slow_reader(self.scene.listen)).await;
            let (reader, target) = asked.map_err(io::Error::from)??;
            if target == wanted || n == TRIES {
                return Ok(Injected { held: Held::Reader(reader), ..Injected::new(at, target) });
            }
        }
        Err(io::Error::other("no service took the request for a large answer"))
    }

    /// Waits until the target, or each endpoint, is ACTIVE for a while.
    async fn healed(&self, target: Option<usize>, deadline: Stamp) {
        loop {
            let back = self.log.wait(deadline, |log| self.all_active(log, target)).await;
            tokio::time::sleep(SETTLE).await;
            if !back || self.all_active(&self.log, target) {
                return;
            }
        }
    }

    fn all_active(&self, log: &Log, target: Option<usize>) -> bool {
        let mut pods = self.scene.pods.iter().enumerate().filter(|(i, _)| target.is_none_or(|t| t == *i));
        pods.all(|(_, pod)| log.state(&pod.endpoint.to_string()) == State::Active)
    }

    /// Waits until all endpoints are ACTIVE; gives the first pod from `next` on (in turn) that has a link. If none
    /// has one, waits for it, and in the end takes `next` as it is.
    pub async fn calm(&self, next: usize) -> usize {
        let n = self.scene.pods.len();
        self.healed(None, clock::now() + HEAL_LIMIT).await;
        let deadline = clock::now() + LINK_LIMIT;
        loop {
            let rows = events::status(self.scene.admin, config::UPSTREAM).await.unwrap_or_default();
            let linked = |i: &usize| {
                let address = self.scene.pods[*i].endpoint.to_string();
                rows.iter().any(|r| r.address == address && r.link == "framed" && r.state == "active")
            };
            if let Some(i) = (0..n).map(|k| (next + k) % n).find(linked) {
                return i;
            }
            if clock::now() >= deadline {
                return next % n;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// When a connection of our own to the service ends.
async fn end_of(service: SocketAddr) -> Option<oneshot::Receiver<Stamp>> {
    let mut socket = TcpStream::connect(service).await.ok()?;
    let (tell, end) = oneshot::channel();
    tokio::task::spawn_local(async move {
        // An end or a reset.
        let _ = socket.read(&mut [0]).await;
        let _ = tell.send(clock::now());
    });
    Some(end)
}

fn signal(process: &RefCell<Option<Running>>, signal: Signal) -> io::Result<Stamp> {
    match &*process.borrow() {
        Some(p) => p.signal(signal),
        None => Err(io::Error::other("the process is down")),
    }
}

async fn kill(process: &RefCell<Option<Running>>) -> io::Result<Stamp> {
    let at = signal(process, Signal::KILL)?;
    // Taken out and reaped: a zombie would look like a process that is still there.
    let old = process.take();
    if let Some(mut old) = old {
        old.ended(Duration::from_secs(2)).await;
    }
    Ok(at)
}

async fn announce(pod: &Pod) -> io::Result<()> {
    let path = format!("/maintenance?for={NOTICE}");
    let asked = http::ask(pod.netns.as_deref(), pod.admin, "POST", &path, Duration::from_secs(1)).await;
    match asked.map_err(io::Error::other)? {
        (200..=299, _) => Ok(()),
        (code, body) => {
            Err(io::Error::other(format!("{path}: {code} {}", String::from_utf8_lossy(&body).trim())))
        }
    }
}

/// Asks a service itself for a fault, past all sidecars.
async fn ask(netns: Option<PathBuf>, service: SocketAddr, path: String) -> Result<(), String> {
    let limit = Duration::from_secs(5);
    match http::ask(netns.as_deref(), service, "POST", &path, limit).await? {
        (200, _) => Ok(()),
        (code, _) => Err(format!("{path}: {code}")),
    }
}

async fn tell(pod: &Pod, path: &str) -> io::Result<()> {
    ask(pod.netns.clone(), pod.endpoint, path.to_owned()).await.map_err(io::Error::other)
}

async fn slow_reader(to: SocketAddr) -> io::Result<(TcpStream, usize)> {
    let mut socket = TcpStream::connect(to).await?;
    let ask = format!("GET /large?mib={LARGE_MIB} HTTP/1.1\r\nhost: orders\r\n\r\n");
    socket.write_all(ask.as_bytes()).await?;
    let mut buf = Vec::with_capacity(1024);
    loop {
        if let Some((answer, _, _)) = Answer::parse_head(&buf)? {
            return Ok((socket, answer.service));
        }
        if socket.read_buf(&mut buf).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
