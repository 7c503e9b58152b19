//! What a message costs on its way: `cargo bench --bench copy`. One thread, real sockets on loopback, one message under
//! way at a time, so that every wake-up counts. Each row is the median of several repeats.
//!
//! `send queue` is one way: the queue of a link to a socket, and from there through the decoder, without any task. The
//! others are round trips to a service that sends back what comes: over one connection without us (what the kernel and
//! the runtime cost alone), through the plain relay, and through a link with a stream at both of its ends.

use std::hint::black_box;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use sidebeat::clock;
use sidebeat::detector::{self, LinkJudge, Params};
use sidebeat::link::driver::Peer;
use sidebeat::link::outq::{MAX_SLICES, OutQueue};
use sidebeat::link::pace::PaceParams;
use sidebeat::link::tune::{tune_link, tune_listener, tune_loopback};
use sidebeat::link::{BeatFacts, Link, LinkConf, Lost, Meter, Side, Stream, credit};
use sidebeat::proxy::plain;
use sidebeat::stamp::{Stamp, nanos};
use sidebeat::wire::{Beat, Decoder, Event, Limits};
use sidebeat::worker::pool::Pool;
use sidebeat::worker::{Counters, SCRATCH, SharedNoise, Sink, Worker};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::spawn_local;

const SIZES: [usize; 3] = [64, 4096, 65_536];
const REPEATS: usize = 15;
/// A test run only shows that the bench still works.
const QUICK: Duration = Duration::from_millis(1);
const FULL: Duration = Duration::from_millis(60);
/// Between two looks at the clock.
const ROUNDS: usize = 16;
/// As the defaults of `[limits]` and `[backpressure]`.
const WINDOW: u32 = 4 << 20;
const QUEUE: usize = 1 << 20;
const THRESHOLD: f64 = 0.75;
/// Most bytes of one batch, as a link begins.
const BATCH: usize = 64 * 1024;

fn report(name: &str, size: usize, mut repeats: Vec<f64>) {
    repeats.sort_by(f64::total_cmp);
    let us = |i: usize| repeats[i] / 1e3;
    let (best, median, worst) = (us(0), us(REPEATS / 2), us(REPEATS - 1));
    println!("{name:<24} {size:>6} B {median:>9.2} us/message  ({best:.2} - {worst:.2})");
}

// === one way, without tasks ===

struct Queue {
    size: usize,
    out: OutQueue,
    to: std::net::TcpStream,
    from: std::net::TcpStream,
    scratch: Vec<u8>,
    decoder: Decoder,
    seq: u32,
}

impl Queue {
    fn new(size: usize) -> Queue {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        tune_listener(&SockRef::from(&listener), addr);
        let to = std::net::TcpStream::connect(addr).expect("connect");
        let (from, _) = listener.accept().expect("accept");
        for io in [&to, &from] {
            io.set_nodelay(true).expect("nodelay");
            io.set_nonblocking(true).expect("nonblocking");
        }
        let (out, decoder) = (OutQueue::new(Pool::new()), Decoder::new(Limits::default()));
        Queue { size, out, to, from, scratch: vec![0; SCRATCH], decoder, seq: 0 }
    }

    /// One message and its beat. The room is taken as it is: a link reads the application's bytes right into it.
    fn pass(&mut self) {
        let mut left = self.size;
        while left > 0 {
            let n = self.out.room(left).len().min(left);
            self.out.commit_data(1, n);
            left -= n;
        }
        let mut arrived = 0;
        while arrived < self.size {
            self.write();
            arrived += self.read();
        }
    }

    fn write(&mut self) {
        while self.out.in_batch() || self.out.has_new() {
            if !self.out.in_batch() {
                self.seq += 1;
                self.out
                    .start_batch(BATCH, &Beat { seq: self.seq, promise_ms: 20, ..Beat::default() }.encode());
            }
            let mut iov = [IoSlice::new(&[]); MAX_SLICES];
            let n = self.out.slices(&mut iov);
            match self.to.write_vectored(&iov[..n]) {
                Ok(n) => _ = self.out.advance(n),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => panic!("write: {e}"),
            }
        }
    }

    fn read(&mut self) -> usize {
        match self.from.read(&mut self.scratch) {
            Ok(n) => payload(&mut self.decoder, &self.scratch[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(e) => panic!("read: {e}"),
        }
    }
}

fn payload(decoder: &mut Decoder, mut input: &[u8]) -> usize {
    let mut sum = 0;
    loop {
        match decoder.next(&mut input).expect("our own frames") {
            Some(Event::Data { bytes, .. }) => sum += black_box(bytes).len(),
            Some(other) => _ = black_box(other),
            None => return sum,
        }
    }
}

fn one_way(size: usize, time: Duration) -> Vec<f64> {
    let mut queue = Queue::new(size);
    queue.pass();
    let mut repeat = || {
        let (start, mut rounds, mut spent) = (clock::now(), 0, Duration::ZERO);
        while spent < time {
            (0..ROUNDS).for_each(|_| queue.pass());
            rounds += ROUNDS;
            spent = clock::now().since(start);
        }
        nanos(spent) as f64 / rounds as f64
    };
    (0..REPEATS).map(|_| repeat()).collect()
}

// === there and back ===

#[derive(Clone, Copy)]
enum Way {
    Direct,
    Plain,
    Framed,
}

impl Way {
    const ALL: [(Way, &str); 3] = [
        (Way::Direct, "echo, nothing between"),
        (Way::Plain, "echo, plain relay"),
        (Way::Framed, "echo, link"),
    ];

    /// A connection to the service that goes this way.
    async fn open(self, service: SocketAddr) -> TcpStream {
        if let Way::Direct = self {
            return connect(service).await;
        }
        let (client, app) = pair().await;
        match self {
            Way::Plain => {
                let onward = connect(service).await;
                spawn_local(async move {
                    plain::relay(Pool::new(), app, &onward, &[], &Unmetered, std::future::pending()).await
                });
            }
            _ => framed(app, service).await,
        }
        client
    }
}

/// Whoever counts is not measured here.
struct Unmetered;

impl Meter for Unmetered {
    fn taken(&self, _now: Stamp, _n: usize) {}
    fn sent(&self, _now: Stamp, _n: usize) {}
    fn ended(&self, _now: Stamp, _rst: bool) {}
}

async fn connect(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("socket");
    tune_loopback(&SockRef::from(&socket), to);
    let io = socket.connect(to).await.expect("connect");
    io.set_nodelay(true).expect("nodelay");
    io
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("bound");
    tune_listener(&SockRef::from(&listener), addr);
    (listener, addr)
}

async fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen().await;
    let (near, far) = tokio::join!(connect(addr), listener.accept());
    (near, far.expect("accept").0)
}

/// Sends back whatever comes, on every connection.
async fn service() -> SocketAddr {
    let (listener, addr) = listen().await;
    spawn_local(async move {
        while let Ok((mut io, _)) = listener.accept().await {
            spawn_local(async move {
                let mut buf = vec![0; 64 * 1024];
                while let Ok(n @ 1..) = io.read(&mut buf).await {
                    io.write_all(&buf[..n]).await.expect("the client reads");
                }
            });
        }
    });
    addr
}

/// A link between two workers, as between two processes, and `app` as a stream on it.
async fn framed(app: TcpStream, service: SocketAddr) {
    let (near, far) = pair().await;
    let far = link(1, far, service, false);
    let near = link(2, near, service, true);
    spawn_local(far.run(Vec::new()));
    spawn_local(near.clone().run(Vec::new()));
    let stream = near.open("echo", app, &[], Duration::from_secs(5)).expect("room for a stream");
    spawn_local(stream.run());
}

fn link(number: usize, io: TcpStream, service: SocketAddr, dialer: bool) -> Rc<Link> {
    tune_link(&io);
    let w = Worker::new(number, number as u64, SharedNoise::default()).expect("a timer");
    spawn_local(w.clone().send());
    spawn_local(w.clone().tick(Rc::new(Unheard)));
    let conf = LinkConf {
        pace: PaceParams { active: Duration::from_millis(20), idle: Duration::from_millis(100) },
        initial_credit: credit::INITIAL,
        peer_credit: credit::INITIAL,
        window_max: WINDOW,
        queue_max: QUEUE,
        threshold: THRESHOLD,
        streams_max: 16,
        dialer,
        one_stream: false,
    };
    let peer = Peer { node: "peer".to_owned(), incarnation: 1 };
    let judge = dialer.then(|| LinkJudge::new(&Params::default(), clock::now()));
    Link::new(w, io, peer, conf, judge, Rc::new(End(service)))
}

/// Nobody asks for metrics.
struct Unheard;

impl Sink for Unheard {
    fn flush(&self, _counters: &Counters, _buffered: usize) {}
    fn lateness(&self, _late: Duration) {}
}

/// What is around a link: nothing, but for the service that streams lead to.
struct End(SocketAddr);

impl Side for End {
    fn open(&self, _link: &Rc<Link>, stream: &Rc<Stream>, _service: &str) -> bool {
        let (stream, service) = (stream.clone(), self.0);
        spawn_local(async move {
            stream.attach(connect(service).await);
            stream.run().await
        });
        true
    }

    fn facts(&self, _now: Stamp) -> BeatFacts {
        BeatFacts::default()
    }

    fn idle_promise(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn on_duty(&self, _link: u64) -> bool {
        true
    }

    fn others_heard(&self, _link: &Link) -> Stamp {
        Stamp::ZERO
    }

    fn others_hear(&self, _link: &Link) -> Stamp {
        Stamp::ZERO
    }

    fn lost(&self, _link: &Rc<Link>, _now: Stamp, how: &Lost) {
        panic!("a link ended: {how:?}");
    }

    fn heard(&self, _now: Stamp) {}
    fn judged(&self, _link: &Rc<Link>, _now: Stamp, _output: &detector::Output) {}
    fn beat(&self, _link: &Link, _now: Stamp, _beat: &Beat) {}
    fn late(&self, _late: Duration) {}
    fn backpressure(&self, _now: Stamp, _active: bool) {}
    fn maintenance(&self, _now: Stamp, _duration: Duration) {}
    fn goaway(&self, _link: &Rc<Link>, _now: Stamp, _deadline: Duration) {}
    fn used(&self, _link: u64, _now: Stamp) {}
}

async fn echoes(way: Way, size: usize, time: Duration) -> Vec<f64> {
    let mut io = way.open(service().await).await;
    let (message, mut back) = (vec![7; size], vec![0; size]);
    let mut repeats = Vec::new();
    // The first one is not counted: it opens the stream.
    for repeat in 0..=REPEATS {
        let (start, mut rounds, mut spent) = (clock::now(), 0, Duration::ZERO);
        while spent < time {
            for _ in 0..ROUNDS {
                io.write_all(&message).await.expect("write");
                io.read_exact(&mut back).await.expect("read");
            }
            rounds += ROUNDS;
            spent = clock::now().since(start);
        }
        if repeat > 0 {
            repeats.push(nanos(spent) as f64 / rounds as f64);
        }
    }
    assert!(back == message, "what comes back is what was sent");
    repeats
}

fn on_a_worker<T>(work: impl Future<Output = T>) -> T {
    let local = tokio::runtime::LocalOptions::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build_local(local);
    runtime.expect("a runtime").block_on(work)
}

fn main() {
    let time = if std::env::args().any(|arg| arg == "--bench") { FULL } else { QUICK };
    for size in SIZES {
        report("send queue to decoder", size, one_way(size, time));
        for (way, name) in Way::ALL {
            report(name, size, on_a_worker(echoes(way, size, time)));
        }
    }
}
