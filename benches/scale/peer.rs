//! Peers played in one thread: they greet, beat as often as they promise, and answer challenges; nothing more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::BytesMut;
use sidebeat::clock;
use sidebeat::stamp::Stamp;
use sidebeat::wire::{Beat, Decoder, Event, Frame, GREETING_LEN, Hello, Limits, VERSION, Welcome, greeting};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A beat leaves at this share of its promise, as sidebeat's own do.
const BEAT_AT: f64 = 0.8;
/// Dials under way at once.
const DIALS: usize = 64;

/// What all peers of a case saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Links that are up.
    pub(crate) up: AtomicUsize,
    /// Beats received.
    pub(crate) beats: AtomicU64,
    /// Challenges answered.
    pub(crate) challenges: AtomicU64,
    /// Links that ended.
    pub(crate) lost: AtomicUsize,
}

/// A thread that plays peers until it is dropped.
pub(crate) struct Players {
    pub(crate) seen: Arc<Seen>,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Players {
    fn start<F: Future<Output = ()>>(play: impl FnOnce(Arc<Seen>) -> F + Send + 'static) -> Players {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let seen = Arc::new(Seen::default());
        let shared = seen.clone();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                tokio::select! {
                    () = play(shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Players { seen, _stop: stop }
    }

    /// `n` sidecars of clients, each a node of its own, with one link to `to` each.
    pub(crate) fn dialers(to: SocketAddr, service: &str, n: usize, promise: Duration) -> Players {
        let service = service.to_owned();
        Players::start(move |seen| async move {
            let permits = Arc::new(tokio::sync::Semaphore::new(DIALS));
            for i in 0..n {
                let (seen, service) = (seen.clone(), service.clone());
                let permit = permits.clone().acquire_owned().await.expect("open");
                tokio::task::spawn_local(async move {
                    let peer = dial(to, &service, i, promise).await.expect("a link");
                    drop(permit);
                    peer.live(seen, promise, promise.mul_f64(i as f64 / n as f64)).await;
                });
            }
            std::future::pending().await
        })
    }

    /// Sidecars of services behind one listener; `n` of them are expected, and beat at phases of their own.
    pub(crate) fn acceptors(listener: std::net::TcpListener, n: usize, promise: Duration) -> Players {
        Players::start(move |seen| async move {
            listener.set_nonblocking(true).expect("non-blocking");
            let listener = TcpListener::from_std(listener).expect("listener");
            for i in 0.. {
                let (io, _) = listener.accept().await.expect("accept");
                let seen = seen.clone();
                tokio::task::spawn_local(async move {
                    // One that went away before its hello was a dial given up: it comes again.
                    let Some(peer) = welcome(io, i, promise).await else { return };
                    peer.live(seen, promise, promise.mul_f64((i % n) as f64 / n as f64)).await;
                });
            }
        })
    }
}

fn millis(d: Duration) -> u16 {
    d.as_millis() as u16
}

async fn dial(to: SocketAddr, service: &str, i: usize, promise: Duration) -> Option<Peer> {
    let socket = TcpSocket::new_v4().ok()?;
    let mut io = socket.connect(to).await.ok()?;
    io.set_nodelay(true).ok()?;
    let mut first = [0; GREETING_LEN];
    io.read_exact(&mut first).await.ok()?;
    let hello = Frame::Hello(Hello {
        version: VERSION,
        features: 0,
        incarnation: i as u64 + 1,
        node: format!("client-{i}"),
        service: service.to_owned(),
        active_ms: 20,
        idle_ms: millis(promise),
        accept_min_ms: 5,
        want_active_ms: 20,
        want_idle_ms: 100,
        hops: 1,
        trace: [0; 16],
    });
    let mut peer = Peer::new(io);
    peer.send(&hello).await?;
    matches!(peer.frame().await?, Frame::Welcome(_)).then_some(peer)
}

async fn welcome(mut io: TcpStream, i: usize, promise: Duration) -> Option<Peer> {
    io.set_nodelay(true).ok()?;
    io.write_all(&greeting()).await.ok()?;
    let mut peer = Peer::new(io);
    let Frame::Hello(_) = peer.frame().await? else { return None };
    let welcome = Frame::Welcome(Welcome {
        version: VERSION,
        features: 0,
        incarnation: i as u64 + 1,
        node: format!("service-{i}"),
        active_ms: 20,
        idle_ms: millis(promise),
        accept_min_ms: 5,
        initial_credit: 256 * 1024,
    });
    peer.send(&welcome).await?;
    Some(peer)
}

struct Peer {
    io: TcpStream,
    decoder: Decoder,
    out: BytesMut,
    seq: u32,
    heard_seq: u32,
    heard_at: Stamp,
}

impl Peer {
    fn new(io: TcpStream) -> Peer {
        let decoder = Decoder::new(Limits::default());
        Peer { io, decoder, out: BytesMut::new(), seq: 0, heard_seq: 0, heard_at: clock::now() }
    }

    async fn send(&mut self, frame: &Frame) -> Option<()> {
        self.out.clear();
        frame.encode(&mut self.out);
        self.io.write_all(&self.out).await.ok()
    }

    /// The next frame; what came behind it is a beat that the next one repeats.
    async fn frame(&mut self) -> Option<Frame> {
        let mut buf = [0; 1024];
        loop {
            let n = self.io.read(&mut buf).await.ok().filter(|n| *n > 0)?;
            if let Some(Event::Frame(f)) = self.decoder.next(&mut &buf[..n]).ok()? {
                return Some(f);
            }
        }
    }

    fn beat(&mut self, promise: Duration) -> Beat {
        self.seq += 1;
        let age = clock::now().since(self.heard_at).as_micros() as u32;
        Beat {
            seq: self.seq,
            promise_ms: millis(promise),
            heard_seq: self.heard_seq,
            heard_age_us: age,
            ..Beat::default()
        }
    }

    async fn live(mut self, seen: Arc<Seen>, promise: Duration, phase: Duration) {
        seen.up.fetch_add(1, Relaxed);
        let every = promise.mul_f64(BEAT_AT);
        let first = Frame::Beat(self.beat(promise));
        let mut alive = self.send(&first).await.is_some();
        // The phase stays its own however the links came up.
        let period = every.as_nanos() as u64;
        let now = clock::now().as_nanos();
        let mut due = Stamp::from_nanos(now - now % period) + phase.mul_f64(BEAT_AT);
        let mut buf = [0; 1024];
        while alive {
            while due <= clock::now() {
                due = due + every;
            }
            tokio::select! {
                () = tokio::time::sleep_until(clock::instant(due)) => {
                    let beat = Frame::Beat(self.beat(promise));
                    alive = self.send(&beat).await.is_some();
                }
                n = self.io.read(&mut buf) => {
                    let n = n.unwrap_or(0);
                    alive = n > 0 && self.take(&buf[..n], &seen, promise).await.is_some();
                }
            }
        }
        seen.lost.fetch_add(1, Relaxed);
    }

    async fn take(&mut self, mut input: &[u8], seen: &Seen, promise: Duration) -> Option<()> {
        while let Some(event) = self.decoder.next(&mut input).ok()? {
            match event {
                Event::Frame(Frame::Beat(b)) => {
                    (self.heard_seq, self.heard_at) = (b.seq, clock::now());
                    seen.beats.fetch_add(1, Relaxed);
                }
                Event::Frame(Frame::Challenge { nonce }) => {
                    let beat = self.beat(promise);
                    self.send(&Frame::Answer { nonce, beat }).await?;
                    seen.challenges.fetch_add(1, Relaxed);
                }
                Event::Frame(Frame::Answer { beat, .. }) => {
                    (self.heard_seq, self.heard_at) = (beat.seq, clock::now());
                }
                _ => {}
            }
        }
        Some(())
    }
}
