//! Hostile and broken peers, against the real program: each costs a counter and a closed socket, never the process, its
//! memory, or the traffic of others, which goes on meanwhile.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::BytesMut;
use sidebeat::clock;
use sidebeat::wire::{
    Decoder, Event, Frame, GREETING_LEN, Header, Hello, Kind, Limits, RefuseCode, VERSION, greeting,
};
use support::pair::{Mode, NAME, Pair, Setup, Sidecar};
use support::rng::Rng;
use support::service::{HANG, Service, connect, connect_from, reset, round_trip};
use support::usage::{Usage, all_given_back, at_rest, memory_given_back};
use support::{Port, TempDir, eventually, pause, sized};

/// Initial credit that the acceptor promises; read from its WELCOME.
type Credit = u32;

/// Memory that abuse may cost a sidecar; measured were 9 MiB, for 600 strangers at once.
const MEMORY: u64 = 16 << 20;

/// Traffic of honest clients while something bad goes on: one connection that stays and new ones all the time.
struct Healthy {
    stop: Arc<AtomicBool>,
    trips: Arc<AtomicU64>,
    worker: Option<JoinHandle<()>>,
    before: Vec<Usage>,
}

impl Healthy {
    fn start(pair: &Pair) -> Healthy {
        // So many at once that each worker has its link.
        let mut first: Vec<_> = (0..8).map(|_| connect(pair.addr)).collect();
        first.iter_mut().for_each(|c| round_trip(c, &mut Rng::new(19)).expect("an answer"));
        drop(first);
        let before = at_rest(pair);
        let (stop, trips, addr) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), pair.addr);
        let (stopped, counted) = (stop.clone(), trips.clone());
        let worker = std::thread::spawn(move || {
            let (mut long, mut rng) = (connect(addr), Rng::new(20));
            while !stopped.load(Ordering::Acquire) {
                round_trip(&mut long, &mut rng).expect("the connection that stays");
                round_trip(&mut connect(addr), &mut rng).expect("a new connection");
                counted.fetch_add(1, Ordering::Release);
                pause();
            }
        });
        let healthy = Healthy { stop, trips, worker: Some(worker), before };
        healthy.goes_on();
        healthy
    }

    /// Waits until a few more round trips were made.
    fn goes_on(&self) {
        let before = self.trips.load(Ordering::Acquire);
        eventually(HANG, "honest traffic goes on", || match self.trips.load(Ordering::Acquire) - before {
            0..3 => Err("no round trips".to_owned()),
            _ => Ok(()),
        });
    }

    /// Honest traffic went on to the end, all that the bad one took is given back, memory stayed bounded, the log short.
    fn finish(mut self, pair: Pair) {
        self.end();
        for (now, before) in all_given_back(&pair, &self.before).iter().zip(&self.before) {
            let (now, before) = (now.resident(), before.resident());
            println!("resident {} KiB, before {} KiB", now >> 10, before >> 10);
            assert!(now < before + MEMORY, "grew from {before} to {now} bytes");
        }
        Healthy::bounds(pair);
    }

    /// The same after `count` bad connections, the first ones of which had come before the honest traffic.
    fn finish_flood(mut self, pair: Pair, count: usize) {
        let trips = self.end();
        memory_given_back(&pair, &self.before, count + trips);
        Healthy::bounds(pair);
    }

    /// Ends the honest traffic and gives how many connections it made.
    fn end(&mut self) -> usize {
        self.goes_on();
        self.stop.store(true, Ordering::Release);
        self.worker.take().unwrap().join().expect("honest traffic failed");
        self.trips.load(Ordering::Acquire) as usize
    }

    fn bounds(pair: Pair) {
        for sidecar in pair.sidecars() {
            let log = sidecar.log();
            assert!(log.len() < 1 << 20, "{} logged {} bytes", sidecar.name, log.len());
        }
        let failed = pair.near.events().iter().filter(|e| e.contains("\"to\":\"failed\"")).count();
        println!("{failed} times FAILED meanwhile: 0 unless the machine has too few cores");
        pair.finish();
    }
}

fn resident(pair: &Pair) -> Vec<u64> {
    pair.sidecars().map(|s| s.process().rss()).collect()
}

/// A pair over an echo, whose far sidecar wants a hello within a second.
fn pair(service: &Service) -> Pair {
    Setup::mode(service.addr, Mode::Shared).far_extra("[limits]\nhello_timeout = \"1s\"\n").start()
}

fn hello() -> Hello {
    Hello {
        version: VERSION,
        features: 0,
        incarnation: 0x1234_5678_9abc_def0,
        node: "stranger".to_owned(),
        service: NAME.to_owned(),
        active_ms: 20,
        idle_ms: 100,
        accept_min_ms: 1,
        want_active_ms: 20,
        want_idle_ms: 1000,
        hops: 0,
        trace: [7; 16],
    }
}

fn encoded(frame: &Frame) -> BytesMut {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out
}

fn raw(kind: u8, stream: u32, len: u32) -> [u8; 8] {
    Header { kind, flags: 0, len, stream }.encode()
}

/// A peer that speaks the wire itself.
struct Peer {
    socket: TcpStream,
    decoder: Decoder,
    /// Bytes that were read and not decoded yet.
    rest: Vec<u8>,
}

/// What a peer hears.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Frame(Frame),
    Data(u32, usize),
    /// FIN or RST.
    Closed,
}

impl Peer {
    /// Connects and reads the greeting, which comes first.
    fn greeted(addr: SocketAddr) -> Peer {
        let mut socket = connect(addr);
        let mut first = [0; GREETING_LEN];
        socket.read_exact(&mut first).unwrap();
        assert_eq!(first, greeting());
        Peer { socket, decoder: Decoder::new(Limits::default()), rest: Vec::new() }
    }

    /// A peer that said hello, and what it heard.
    fn answered(addr: SocketAddr) -> (Peer, Heard) {
        let mut peer = Peer::greeted(addr);
        peer.say(&Frame::Hello(hello()));
        let heard = peer.hear();
        (peer, heard)
    }

    /// A peer with a link.
    fn linked(addr: SocketAddr) -> (Peer, Credit) {
        match Peer::answered(addr) {
            (peer, Heard::Frame(Frame::Welcome(w))) => (peer, w.initial_credit),
            (_, other) => panic!("no welcome but {other:?}"),
        }
    }

    fn say(&mut self, frame: &Frame) {
        self.write(&encoded(frame));
    }

    /// Writes as long as the other side takes it.
    fn write(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    fn open(&mut self, stream: u32, service: &str) {
        self.say(&Frame::Open { stream, service: service.to_owned() });
    }

    fn data(&mut self, stream: u32, bytes: &[u8]) {
        self.write(&[&raw(Kind::Data as u8, stream, bytes.len() as u32)[..], bytes].concat());
    }

    fn hear(&mut self) -> Heard {
        loop {
            let mut input = &self.rest[..];
            let heard = match self.decoder.next(&mut input).expect("the sidecar keeps its own protocol") {
                Some(Event::Frame(frame)) => Some(Heard::Frame(frame)),
                Some(Event::Data { stream, bytes, .. }) => Some(Heard::Data(stream, bytes.len())),
                Some(Event::Skipped { .. }) => continue,
                None => None,
            };
            self.rest = input.to_vec();
            if let Some(heard) = heard {
                return heard;
            }
            let mut buf = vec![0; 64 * 1024];
            match self.socket.read(&mut buf) {
                Ok(0) => return Heard::Closed,
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return Heard::Closed,
                Ok(n) => self.rest.extend_from_slice(&buf[..n]),
                Err(e) => panic!("neither a frame nor an end within {HANG:?}: {e}"),
            }
        }
    }

    /// Hears until `wanted`; fails if the link ends before. Beats keep coming, so this always moves on.
    fn until(&mut self, what: &str, wanted: impl Fn(&Heard) -> bool) -> Heard {
        let end = clock::now() + HANG;
        while clock::now() < end {
            match self.hear() {
                heard if wanted(&heard) => return heard,
                Heard::Closed => panic!("the link ended instead of: {what}"),
                _ => {}
            }
        }
        panic!("never heard: {what}");
    }

    fn lives(&mut self) {
        self.say(&Frame::Challenge { nonce: 77 });
        self.until("the answer", |h| matches!(h, Heard::Frame(Frame::Answer { nonce: 77, .. })));
    }

    fn closed(&mut self) {
        let end = clock::now() + HANG;
        while self.hear() != Heard::Closed {
            assert!(clock::now() < end, "the link is still open");
        }
    }
}

#[test]
fn garbage_on_the_link_port() {
    let seed = std::env::var("SIDEBEAT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(30);
    println!("SIDEBEAT_SEED={seed}");
    let service = Service::echo();
    let pair = pair(&service);
    let mut rng = Rng::new(seed);
    // The first ones fill what is kept for the next ones.
    flood_with_garbage(&pair, &mut rng, 2_000);
    let healthy = Healthy::start(&pair);
    let count = sized(5_000, 100_000);
    flood_with_garbage(&pair, &mut rng, count);
    healthy.finish_flood(pair, count);
}

fn flood_with_garbage(pair: &Pair, rng: &mut Rng, count: usize) {
    let mut open: Vec<TcpStream> = Vec::new();
    for n in 0..count {
        let mut socket = connect_from(pair.link, n);
        let _ = socket.write_all(&rubbish(rng));
        match rng.below(4) {
            0 => reset(socket),
            1 => drop(socket),
            2 => {
                let _ = socket.shutdown(Shutdown::Write);
                open.push(socket);
            }
            _ => open.push(socket),
        }
        if open.len() >= 50 {
            open.drain(..).for_each(until_closed);
        }
    }
    open.drain(..).for_each(until_closed);
}

/// A sidecar closes what does not become a link; nothing may hang.
fn until_closed(mut socket: TcpStream) {
    let mut sink = vec![0; 4096];
    let end = clock::now() + HANG;
    while let Ok(1..) = socket.read(&mut sink) {
        // A hello that happened to be whole has become a link, which beats until it ends.
        if clock::now() > end {
            panic!("still open");
        }
        let _ = socket.shutdown(Shutdown::Both);
    }
}

fn rubbish(rng: &mut Rng) -> Vec<u8> {
    let good = encoded(&Frame::Hello(hello()));
    let len = rng.below(2_000);
    match rng.below(8) {
        0 => rng.bytes(len),
        1 => vec![0; len],
        2 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        3 => [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &rng.bytes(len)].concat(),
        // A good hello with one wrong byte, or cut short, or with rubbish behind it.
        4 => {
            let (mut bad, at) = (good.to_vec(), rng.below(good.len()));
            bad[at] ^= 1 << rng.below(8);
            bad
        }
        5 => good[..rng.below(good.len())].to_vec(),
        6 => [&good[..], &rng.bytes(len)].concat(),
        // Good headers, random kinds, streams and lengths.
        _ => {
            let mut all = good.to_vec();
            for _ in 0..rng.below(20) {
                let (kind, stream, size) = (rng.below(20) as u8, rng.below(5) as u32, rng.below(64));
                all.extend_from_slice(&raw(kind, stream, size as u32));
                all.extend_from_slice(&rng.bytes(size));
            }
            all
        }
    }
}

/// To an outbound port every byte is legal; what is not is how the connection is treated.
#[test]
fn rude_clients_on_the_plain_port() {
    for mode in [Mode::Shared, Mode::Plain] {
        let service = Service::echo();
        let pair = Setup::mode(service.addr, mode).start();
        let mut rng = Rng::new(31);
        flood_with_rudeness(&pair, &mut rng, 1_000);
        let healthy = Healthy::start(&pair);
        let count = sized(2_000, 100_000);
        flood_with_rudeness(&pair, &mut rng, count);
        healthy.finish_flood(pair, count);
    }
}

fn flood_with_rudeness(pair: &Pair, rng: &mut Rng, count: usize) {
    for n in 0..count {
        let mut client = connect_from(pair.addr, n);
        let len = rng.below(20_000);
        let _ = client.write_all(&rng.bytes(len));
        match rng.below(4) {
            0 => reset(client),
            1 => drop(client),
            2 => {
                let _ = client.shutdown(Shutdown::Read);
            }
            _ => {
                let _ = client.shutdown(Shutdown::Write);
                let mut back = Vec::new();
                client.read_to_end(&mut back).unwrap();
                assert_eq!(back.len(), len, "the echo of a client that ended first");
            }
        }
    }
}

#[test]
fn a_truncated_hello_is_closed() {
    let service = Service::echo();
    let pair = pair(&service);
    let healthy = Healthy::start(&pair);
    let good = encoded(&Frame::Hello(hello()));
    for cut in (0..good.len()).step_by(5) {
        let mut peer = Peer::greeted(pair.link);
        peer.write(&good[..cut]);
        peer.socket.shutdown(Shutdown::Write).unwrap();
        peer.closed();
    }
    healthy.finish(pair);
}

#[test]
fn a_slow_hello_is_closed_in_time() {
    let service = Service::echo();
    let pair = pair(&service);
    let healthy = Healthy::start(&pair);
    let mut silent = Peer::greeted(pair.link);
    // A byte now and then: the time is for the whole hello and does not begin anew.
    let mut slow = Peer::greeted(pair.link);
    slow.socket.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    let good = encoded(&Frame::Hello(hello()));
    let ended = good.iter().any(|byte| {
        let gone = slow.socket.write_all(&[*byte]).is_err();
        gone || !matches!(slow.socket.read(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(ended, "a hello of {} bytes at 7 bytes a second was let in", good.len());
    silent.closed();
    healthy.finish(pair);
}

#[test]
fn lengths_over_the_cap_are_refused_before_they_are_read() {
    let service = Service::echo();
    let pair = pair(&service);
    let healthy = Healthy::start(&pair);
    let most = (1 << 20) - 1;
    for kind in 0..=20 {
        let mut early = Peer::greeted(pair.link);
        early.write(&raw(kind, 0, most));
        early.closed();
        let (mut late, _) = Peer::linked(pair.link);
        late.write(&raw(kind, u32::from(kind) % 2, most));
        late.closed();
    }
    healthy.finish(pair);
}

#[test]
fn unknown_kinds_are_skipped() {
    let service = Service::echo();
    let pair = pair(&service);
    let healthy = Healthy::start(&pair);
    let (mut peer, _) = Peer::linked(pair.link);
    for kind in [0, 17, 99, 200, 255] {
        for len in [0u32, 1, 4096, 64 * 1024] {
            peer.write(&[&raw(kind, len % 3, len)[..], &vec![kind; len as usize]].concat());
        }
    }
    peer.lives();
    drop(peer);
    healthy.finish(pair);
}

#[test]
fn a_version_nobody_speaks_is_refused_with_a_reason() {
    let service = Service::echo();
    let pair = pair(&service);
    let mut peer = Peer::greeted(pair.link);
    peer.say(&Frame::Hello(Hello { version: VERSION + 1, ..hello() }));
    let heard = peer.hear();
    assert!(
        matches!(&heard, Heard::Frame(Frame::Refuse { code: RefuseCode::Version, text }) if !text.is_empty()),
        "{heard:?}"
    );
    peer.closed();
    let mut peer = Peer::greeted(pair.link);
    peer.say(&Frame::Hello(Hello { service: "nobody".to_owned(), ..hello() }));
    let heard = peer.hear();
    assert!(
        matches!(heard, Heard::Frame(Frame::Refuse { code: RefuseCode::NoSuchService, .. })),
        "{heard:?}"
    );
    peer.closed();
    pair.finish();
}

/// Every number of a hello at its ends, alone and in pairs: a link or a refusal, and beats that keep what was promised.
#[test]
fn a_hello_of_extremes_is_answered() {
    let service = Service::echo();
    let pair = pair(&service);
    let healthy = Healthy::start(&pair);
    let set: [fn(&mut Hello, u16); 7] = [
        |h, v| h.active_ms = v,
        |h, v| h.idle_ms = v,
        |h, v| h.accept_min_ms = v,
        |h, v| h.want_active_ms = v,
        |h, v| h.want_idle_ms = v,
        |h, v| h.features = u32::from(v) << 16 | u32::from(v),
        |h, v| h.node = "x".repeat(usize::from(v).min(255)),
    ];
    let ends = [0, 1, 10_001, u16::MAX];
    let mut answered = 0;
    for first in 0..set.len() {
        for second in first..set.len() {
            for (a, b) in ends.iter().flat_map(|a| ends.iter().map(move |b| (*a, *b))) {
                let mut extreme = hello();
                set[first](&mut extreme, a);
                set[second](&mut extreme, b);
                let mut peer = Peer::greeted(pair.link);
                peer.say(&Frame::Hello(extreme.clone()));
                match peer.hear() {
                    Heard::Frame(Frame::Welcome(_)) => peer.lives(),
                    Heard::Frame(Frame::Refuse { .. }) => {}
                    other => panic!("{extreme:?} was answered by {other:?}"),
                }
                answered += 1;
            }
        }
    }
    assert_eq!(answered, 28 * 16);
    healthy.finish(pair);
}

#[test]
fn a_service_that_is_not_configured_cannot_be_opened() {
    let service = Service::echo();
    let pair = pair(&service);
    let healthy = Healthy::start(&pair);
    let (mut peer, _) = Peer::linked(pair.link);
    for (n, name) in ["127.0.0.1:22", "", "svc2", "../svc", "SVC"].into_iter().enumerate() {
        let stream = 1 + n as u32;
        peer.open(stream, name);
        peer.until(
            "OPEN_FAILED",
            |h| matches!(h, Heard::Frame(Frame::OpenFailed { stream: s, .. }) if *s == stream),
        );
    }
    peer.lives();
    drop(peer);
    healthy.finish(pair);
}

#[test]
fn a_stream_id_is_never_used_twice() {
    let service = Service::echo();
    let pair = pair(&service);
    let healthy = Healthy::start(&pair);
    let abuses: [&dyn Fn(&mut Peer); 5] = [
        &|p| p.open(3, NAME),               // open already
        &|p| p.open(2, NAME),               // lower than the highest
        &|p| p.open(0, NAME),               // the link itself
        &|p| p.data(9, b"never opened"),    // unknown
        &|p| p.say(&Frame::Hello(hello())), // twice
    ];
    for abuse in abuses {
        let (mut peer, _) = Peer::linked(pair.link);
        peer.open(3, NAME);
        peer.until("OPENED", |h| matches!(h, Heard::Frame(Frame::Opened { stream: 3 })));
        abuse(&mut peer);
        peer.closed();
    }
    // What arrives for a stream that has ended is discarded: it may have been under way.
    let (mut peer, _) = Peer::linked(pair.link);
    peer.open(3, NAME);
    peer.until("OPENED", |h| matches!(h, Heard::Frame(Frame::Opened { stream: 3 })));
    peer.say(&Frame::Reset { stream: 3, reason: sidebeat::wire::ResetReason::Rst });
    peer.data(3, b"late");
    peer.lives();
    drop(peer);
    healthy.finish(pair);
}

#[test]
fn sending_beyond_the_credit_ends_the_stream_or_the_link() {
    // Keeps its connections and reads nothing.
    let kept = Mutex::new(Vec::new());
    let service = Service::start(move |stream| kept.lock().unwrap().push(stream));
    let echo = Service::echo();
    let pair = pair(&echo);
    let greedy = Setup::mode(service.addr, Mode::Shared).start();
    let healthy = Healthy::start(&pair);
    let (mut peer, credit) = Peer::linked(greedy.link);
    peer.open(1, NAME);
    peer.until("OPENED", |h| matches!(h, Heard::Frame(Frame::Opened { stream: 1 })));
    let before = resident(&greedy);
    // The kernels' buffers on the way to the service take some megabytes; 64 MiB are far beyond any credit.
    let block = vec![1; 64 * 1024];
    for _ in 0..1024 {
        peer.data(1, &block);
    }
    println!("initial credit {credit}");
    let end = clock::now() + HANG;
    loop {
        match peer.hear() {
            Heard::Closed | Heard::Frame(Frame::Reset { stream: 1, .. }) => break,
            _ => assert!(clock::now() < end, "64 MiB were taken beyond a credit of {credit}"),
        }
    }
    for (now, before) in resident(&greedy).iter().zip(&before) {
        assert!(*now < before + MEMORY, "memory grew from {before} to {now}");
    }
    drop(peer);
    greedy.finish();
    healthy.finish(pair);
}

#[test]
fn absurd_credit_ends_the_link() {
    let service = Service::echo();
    let pair = pair(&service);
    let healthy = Healthy::start(&pair);
    let (mut peer, _) = Peer::linked(pair.link);
    peer.open(1, NAME);
    for _ in 0..8 {
        peer.say(&Frame::Credit { stream: 1, bytes: u32::MAX });
    }
    peer.closed();
    healthy.finish(pair);
}

/// A peer that gives no credit and reads nothing: what it asked for is not held in memory.
#[test]
fn a_peer_that_reads_nothing_costs_little() {
    let source = Service::start(|mut stream| {
        let block = vec![2; 64 * 1024];
        while stream.write_all(&block).is_ok() {}
    });
    let pair = Setup::mode(source.addr, Mode::Shared).start();
    let (held, before) = (at_rest(&pair), resident(&pair));
    let (mut peer, _) = Peer::linked(pair.link);
    for stream in 1..=200 {
        peer.open(stream, NAME);
    }
    // Questions whose answers nobody reads, until the other side takes no more or ends the link.
    peer.socket.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let questions = encoded(&Frame::Challenge { nonce: 1 }).repeat(10_000);
    let mut sent = 0;
    while sent < 400 << 20 && peer.socket.write_all(&questions).is_ok() {
        sent += questions.len();
    }
    println!("took {} KiB of questions", sent >> 10);
    for (sidecar, before) in pair.sidecars().zip(&before) {
        let now = sidecar.process().rss();
        println!("{}: resident {} KiB, before {} KiB", sidecar.name, now >> 10, before >> 10);
        assert!(now < before + 2 * MEMORY, "{} grew from {before} to {now} bytes", sidecar.name);
    }
    drop(peer);
    all_given_back(&pair, &held);
    let mut client = connect(pair.addr);
    client.read_exact(&mut [0; 1024]).unwrap();
    drop(client);
    pair.finish();
}

/// One byte per frame within the credit, to a service that does not read: what is kept must not be many times what came.
#[test]
fn tiny_frames_cost_no_more_memory_than_large_ones() {
    const STREAMS: u32 = 16;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let service = Service::start(move |stream| {
        // The kernel's buffer is small, so that the bytes stay in the sidecar.
        let _ = socket2::SockRef::from(&stream).set_recv_buffer_size(4096);
        keep.lock().unwrap().push(stream);
    });
    let pair = Setup::mode(service.addr, Mode::Shared).start();
    let held = at_rest(&pair);
    let (mut peer, credit) = Peer::linked(pair.link);
    for stream in 1..=STREAMS {
        peer.open(stream, NAME);
        peer.until("OPENED", |h| matches!(h, Heard::Frame(Frame::Opened { stream: s }) if *s == stream));
    }
    let before = resident(&pair);
    let big = credit / 2;
    for stream in 1..=STREAMS {
        // First what the kernels take, then single bytes.
        peer.data(stream, &vec![0; big as usize]);
        let tiny = [&raw(Kind::Data as u8, stream, 1)[..], b"x"].concat().repeat((credit - big) as usize);
        peer.write(&tiny);
    }
    peer.lives();
    for (sidecar, before) in pair.sidecars().zip(&before) {
        let now = sidecar.process().rss();
        println!("{}: resident {} KiB, before {} KiB", sidecar.name, now >> 10, before >> 10);
        assert!(now < before + (48 << 20), "{} grew from {before} to {now} bytes", sidecar.name);
    }
    drop(peer);
    kept.lock().unwrap().clear();
    all_given_back(&pair, &held);
    pair.finish();
}

#[test]
fn more_streams_than_allowed_are_refused_one_by_one() {
    let service = Service::echo();
    let limits = "[limits]\nstreams_per_link = 100\n";
    let pair = Setup::mode(service.addr, Mode::Shared).far_extra(limits).start();
    let healthy = Healthy::start(&pair);
    let (mut peer, _) = Peer::linked(pair.link);
    for stream in 1..=300 {
        peer.open(stream, NAME);
    }
    let (mut opened, mut failed) = (0, 0);
    while opened + failed < 300 {
        match peer.hear() {
            Heard::Frame(Frame::Opened { .. }) => opened += 1,
            Heard::Frame(Frame::OpenFailed { .. }) => failed += 1,
            Heard::Closed => panic!("the link ended after {opened} opened, {failed} failed"),
            _ => {}
        }
    }
    assert_eq!((opened, failed), (100, 200));
    drop(peer);
    healthy.finish(pair);
}

/// What a foreign server on the link port does.
const FOREIGN: [&[u8]; 4] = [
    b"220 mail.example.org ESMTP\r\n",
    b"",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\xb3beat\r\x1a\n\0\x63\0\x62",
];

#[test]
fn a_foreign_server_on_the_link_port_never_receives_a_byte() {
    for banner in FOREIGN {
        let service = Service::echo();
        let foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link_port = foreign.local_addr().unwrap().port();
        let (received, dialled) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, calls) = (received.clone(), dialled.clone());
        std::thread::spawn(move || {
            for mut socket in foreign.incoming().flatten() {
                calls.fetch_add(1, Ordering::AcqRel);
                let _ = socket.write_all(banner);
                let count = count.clone();
                std::thread::spawn(move || {
                    let mut buf = [0; 4096];
                    while let Ok(n @ 1..) = socket.read(&mut buf) {
                        count.fetch_add(n as u64, Ordering::AcqRel);
                    }
                });
            }
        });
        let (dir, listen) = (TempDir::new(), Port::pick());
        let toml = format!(
            "[[outbound]]\nname = \"{NAME}\"\nlisten = \"{}\"\nendpoints = [{{ address = \"{}\", link_port = {link_port} }}]\n",
            listen.addr(),
            service.addr
        );
        let near = Sidecar::start(&dir, "near", &toml);
        let mut rng = Rng::new(32);
        eventually(HANG, "the sidecar tries the link port", || {
            round_trip(&mut connect(listen.addr()), &mut rng).map_err(|e| format!("plain: {e}"))?;
            if dialled.load(Ordering::Acquire) > 0 { Ok(()) } else { Err("not dialled".into()) }
        });
        for _ in 0..20 {
            round_trip(&mut connect(listen.addr()), &mut rng).expect("plain traffic goes on");
        }
        assert_eq!(
            received.load(Ordering::Acquire),
            0,
            "bytes sent to a foreign server that said {banner:?}"
        );
        drop(near);
    }
}

/// A ring of more sidecars than one is not noticed: `hops` is reserved (docs/protocol.md).
#[test]
fn a_dial_to_oneself_and_absurd_hops_are_refused() {
    let service = Service::echo();
    let (dir, link, listen) = (TempDir::new(), Port::pick(), Port::pick());
    let toml = format!(
        "[[inbound]]\nname = \"{NAME}\"\nlink_listen = \"{}\"\nservice = \"{}\"\n\
         [[outbound]]\nname = \"{NAME}\"\nlisten = \"{}\"\nendpoints = [{{ address = \"{}\", link_port = {} }}]\n",
        link.addr(),
        service.addr,
        listen.addr(),
        service.addr,
        link.number
    );
    let alone = Sidecar::start(&dir, "alone", &toml);
    let mut rng = Rng::new(33);
    let refused = [("direction", "in"), ("result", "refused")];
    eventually(HANG, "it dials itself and refuses that", || {
        round_trip(&mut connect(listen.addr()), &mut rng).expect("the service itself is reached");
        match alone.metric("sidebeat_handshakes_total", &refused) {
            Some(1.0..) => Ok(()),
            n => Err(format!("{n:?} refused")),
        }
    });
    let framed = alone.metric("sidebeat_upstream_link_mode", &[("mode", "framed")]);
    assert_ne!(framed, Some(1.0), "linked to itself: {}", alone.status());
    let hops = Frame::Hello(Hello { hops: 255, ..hello() });
    let mut peer = Peer::greeted(link.addr());
    peer.say(&hops);
    let heard = peer.hear();
    assert!(matches!(heard, Heard::Frame(Frame::Refuse { code: RefuseCode::Loop, .. })), "{heard:?}");
    drop(alone);
}

#[test]
fn more_links_than_allowed_are_turned_away_with_a_reason() {
    let service = Service::echo();
    let pair = Setup::mode(service.addr, Mode::Shared).far_extra("[limits]\nlinks = 20\n").start();
    let healthy = Healthy::start(&pair);
    let mut linked = Vec::new();
    let refused = loop {
        assert!(linked.len() < 20, "the cap is 20, and the pair has a link too");
        match Peer::answered(pair.link) {
            (peer, Heard::Frame(Frame::Welcome(_))) => linked.push(peer),
            (_, other) => break other,
        }
    };
    assert!(linked.len() > 10, "{} links", linked.len());
    assert!(
        matches!(&refused, Heard::Frame(Frame::Refuse { code: RefuseCode::TooMany, text }) if text.contains("limits.links")),
        "{refused:?}"
    );
    healthy.goes_on();
    drop(linked);
    eventually(HANG, "links are accepted again", || match Peer::answered(pair.link).1 {
        Heard::Frame(Frame::Welcome(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    healthy.finish(pair);
}

#[test]
fn strangers_that_say_nothing_keep_nobody_out() {
    let service = Service::echo();
    let patient = "[limits]\nlinks = 20\nhello_timeout = \"60s\"\n";
    let pair = Setup::mode(service.addr, Mode::Shared).far_extra(patient).start();
    let healthy = Healthy::start(&pair);
    let strangers: Vec<TcpStream> = (0..600).map(|n| connect_from(pair.link, n)).collect();
    let (mut peer, _) = Peer::linked(pair.link);
    peer.lives();
    healthy.goes_on();
    drop((strangers, peer));
    healthy.finish(pair);
}
