//! One link with the test at its end: a log of what was heard, a hand to say anything, and an autopilot for what a
//! healthy sidecar does without thinking.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use sidebeat::clock;
use sidebeat::stamp::Stamp;
use sidebeat::verdict::Vouch;
use sidebeat::wire::{
    Beat, BeatFlags, Decoder, Event, Frame, Header, Hello, Kind, Limits, ResetReason, VERSION,
};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::support::service::HANG;

/// Scripted peers live on threads of their own: a test that looks at the admin port does not stop their beats.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime")
    })
}

/// What a peer heard.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    Frame(Frame),
    /// A piece of a DATA frame; `true` for the last one of its frame.
    Data(u32, Vec<u8>, bool),
    /// The link ended: by RST if `true`.
    Closed(bool),
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) at: Stamp,
    pub(crate) what: What,
}

/// What a peer does by itself, until the test changes it.
#[derive(Clone, Debug)]
pub(crate) struct Auto {
    /// Beats this often, and answers; with `None` it is silent.
    pub(crate) every: Option<Duration>,
    pub(crate) promise_ms: u16,
    pub(crate) vouch: Vouch,
    pub(crate) flags: BeatFlags,
    pub(crate) answers: bool,
    /// False: the echo in beats stays as it was, and its age grows.
    pub(crate) acknowledges: bool,
    /// False: reads nothing.
    pub(crate) reads: bool,
    /// OPEN is answered: with OPENED, with OPEN_FAILED and this errno, or not at all.
    pub(crate) opens: Opens,
    /// Sends back what comes, and its FIN.
    pub(crate) echo: bool,
    /// Gives back the credit of what comes.
    pub(crate) grants: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Opens {
    Accept,
    Fail(u16),
    Ignore,
}

impl Default for Auto {
    fn default() -> Auto {
        Auto {
            every: Some(Duration::from_millis(20)),
            // Far above what a busy machine delays: only silence on purpose is silence.
            promise_ms: 1500,
            vouch: Vouch::Idle,
            flags: BeatFlags::default(),
            answers: true,
            acknowledges: true,
            reads: true,
            opens: Opens::Accept,
            echo: false,
            grants: true,
        }
    }
}

impl Auto {
    /// Says nothing by itself.
    pub(crate) fn none() -> Auto {
        Auto { every: None, answers: false, opens: Opens::Ignore, grants: false, ..Auto::default() }
    }
}

/// Shared by the links of one scripted sidecar.
#[derive(Clone, Default)]
pub(crate) struct Pilot(Arc<Mutex<Auto>>);

impl Pilot {
    pub(crate) fn new(auto: Auto) -> Pilot {
        Pilot(Arc::new(Mutex::new(auto)))
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Auto)) {
        change(&mut self.0.lock().unwrap());
    }

    pub(crate) fn get(&self) -> Auto {
        self.0.lock().unwrap().clone()
    }
}

enum Out {
    Bytes(Vec<u8>),
    Fin,
    Rst,
}

#[derive(Default)]
struct Log {
    heard: Vec<Heard>,
    /// Everything before was waited for.
    cursor: usize,
    /// Next sequence number of our beats, and the highest one heard, and when.
    seq: u32,
    heard_seq: u32,
    heard_at: Option<Stamp>,
}

struct Inner {
    log: Mutex<Log>,
    changed: Condvar,
    out: UnboundedSender<Out>,
    pilot: Pilot,
    stop: tokio::sync::Notify,
    /// Nothing more is said on this link, whatever the autopilot of all links does.
    mute: AtomicBool,
}

/// One end of a link.
#[derive(Clone)]
pub(crate) struct Peer(Arc<Inner>);

pub(crate) fn encoded(frame: &Frame) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out.to_vec()
}

pub(crate) fn data_frame(stream: u32, bytes: &[u8]) -> Vec<u8> {
    let header = Header { kind: Kind::Data as u8, flags: 0, len: bytes.len() as u32, stream };
    [&header.encode()[..], bytes].concat()
}

/// A hello that any sidecar takes.
pub(crate) fn hello() -> Hello {
    Hello {
        version: VERSION,
        features: 0,
        incarnation: 0x0123_4567_89ab_cdef,
        node: "script".to_owned(),
        service: crate::support::pair::NAME.to_owned(),
        active_ms: 20,
        idle_ms: 1000,
        accept_min_ms: 5,
        want_active_ms: 20,
        want_idle_ms: 100,
        hops: 1,
        trace: [3; 16],
    }
}

// === impl Peer ===

impl Peer {
    /// Takes over a connection; `rest` was read from it already.
    pub(crate) fn run(io: TcpStream, rest: Vec<u8>, pilot: Pilot) -> Peer {
        let _ = io.set_nodelay(true);
        let (out, orders) = unbounded_channel();
        let inner = Inner {
            log: Mutex::default(),
            changed: Condvar::new(),
            out,
            pilot,
            stop: tokio::sync::Notify::new(),
            mute: AtomicBool::new(false),
        };
        let peer = Peer(Arc::new(inner));
        let (read, write) = io.into_split();
        let (reader, writer, beater) = (peer.clone(), peer.clone(), peer.clone());
        runtime().spawn(async move { reader.read(read, rest).await });
        runtime().spawn(async move { writer.write(write, orders).await });
        runtime().spawn(async move { beater.beat().await });
        peer
    }

    async fn read(&self, mut io: OwnedReadHalf, mut rest: Vec<u8>) {
        let mut decoder = Decoder::new(Limits::default());
        let mut buf = vec![0; 32 * 1024];
        loop {
            self.decode(&mut decoder, &rest);
            while !self.0.pilot.get().reads {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let got = tokio::select! {
                got = io.read(&mut buf) => got,
                () = self.0.stop.notified() => return self.note(What::Closed(true)),
            };
            match got {
                Ok(0) => return self.note(What::Closed(false)),
                Err(_) => return self.note(What::Closed(true)),
                Ok(n) => rest = buf[..n].to_vec(),
            }
        }
    }

    fn decode(&self, decoder: &mut Decoder, bytes: &[u8]) {
        let mut input = bytes;
        while let Some(event) = decoder.next(&mut input).expect("the sidecar keeps its own protocol") {
            let what = match event {
                Event::Frame(frame) => What::Frame(frame),
                Event::Data { stream, bytes, last, .. } => What::Data(stream, bytes.to_vec(), last),
                Event::Skipped { kind, .. } => panic!("a sidecar of this version sent kind {kind}"),
            };
            self.note(what.clone());
            self.react(&what);
        }
    }

    fn note(&self, what: What) {
        let now = clock::now();
        let mut log = self.lock();
        if let What::Frame(Frame::Beat(beat) | Frame::Answer { beat, .. }) = &what
            && self.0.pilot.get().acknowledges
        {
            (log.heard_seq, log.heard_at) = (beat.seq, Some(now));
        }
        log.heard.push(Heard { at: now, what });
        self.0.changed.notify_all();
    }

    fn react(&self, what: &What) {
        let auto = self.0.pilot.get();
        match what {
            What::Frame(Frame::Challenge { nonce }) if auto.answers => {
                self.say(&Frame::Answer { nonce: *nonce, beat: self.next_beat() });
            }
            What::Frame(Frame::Open { stream, .. }) => match auto.opens {
                Opens::Accept => self.say(&Frame::Opened { stream: *stream }),
                Opens::Fail(errno) => {
                    self.say(&Frame::OpenFailed { stream: *stream, errno, text: "scripted".to_owned() });
                }
                Opens::Ignore => {}
            },
            What::Frame(Frame::Fin { stream }) if auto.echo => self.say(&Frame::Fin { stream: *stream }),
            What::Data(stream, bytes, _) => {
                if auto.grants {
                    self.say(&Frame::Credit { stream: *stream, bytes: bytes.len() as u32 });
                }
                if auto.echo {
                    self.data(*stream, bytes);
                }
            }
            _ => {}
        }
    }

    async fn write(&self, mut io: OwnedWriteHalf, mut orders: UnboundedReceiver<Out>) {
        while let Some(order) = orders.recv().await {
            match order {
                Out::Bytes(bytes) => {
                    if io.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Out::Fin => {
                    let _ = io.shutdown().await;
                }
                Out::Rst => {
                    let _ = SockRef::from(io.as_ref()).set_linger(Some(Duration::ZERO));
                    // A half that is dropped says FIN.
                    io.forget();
                    self.0.stop.notify_one();
                    return;
                }
            }
        }
    }

    async fn beat(&self) {
        loop {
            let every = self.0.pilot.get().every;
            tokio::time::sleep(every.unwrap_or(Duration::from_millis(5))).await;
            if self.closed_now() || self.0.out.is_closed() {
                return;
            }
            if self.0.pilot.get().every.is_some() {
                self.say(&Frame::Beat(self.next_beat()));
            }
        }
    }

    fn next_beat(&self) -> Beat {
        let auto = self.0.pilot.get();
        let now = clock::now();
        let mut log = self.lock();
        log.seq = log.seq.wrapping_add(1);
        let age = log.heard_at.map_or(Duration::ZERO, |at| now.since(at));
        Beat {
            seq: log.seq,
            promise_ms: auto.promise_ms,
            flags: auto.flags,
            vouch: auto.vouch,
            heard_seq: log.heard_seq,
            heard_age_us: u32::try_from(age.as_micros()).unwrap_or(u32::MAX),
            ..Beat::default()
        }
    }

    /// One beat now, with the next number, whatever the autopilot does.
    pub(crate) fn beat_now(&self) {
        self.say(&Frame::Beat(self.next_beat()));
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock().unwrap()
    }

    // === saying ===

    pub(crate) fn say(&self, frame: &Frame) {
        self.raw(encoded(frame));
    }

    pub(crate) fn raw(&self, bytes: Vec<u8>) {
        if self.0.mute.load(Ordering::SeqCst) {
            return;
        }
        // A link that ended takes no more; what the other side did is in the log.
        let _ = self.0.out.send(Out::Bytes(bytes));
    }

    pub(crate) fn open(&self, stream: u32) {
        self.say(&Frame::Open { stream, service: crate::support::pair::NAME.to_owned() });
    }

    pub(crate) fn data(&self, stream: u32, bytes: &[u8]) {
        for piece in bytes.chunks(64 * 1024) {
            self.raw(data_frame(stream, piece));
        }
    }

    pub(crate) fn end(&self, stream: u32) {
        self.say(&Frame::Fin { stream });
    }

    pub(crate) fn reset(&self, stream: u32) {
        self.say(&Frame::Reset { stream, reason: ResetReason::Rst });
    }

    pub(crate) fn credit(&self, stream: u32, bytes: u32) {
        self.say(&Frame::Credit { stream, bytes });
    }

    /// Ends our direction of the link.
    pub(crate) fn fin(&self) {
        let _ = self.0.out.send(Out::Fin);
    }

    /// Ends the link with RST.
    pub(crate) fn rst(&self) {
        let _ = self.0.out.send(Out::Rst);
    }

    /// Says nothing from here on.
    pub(crate) fn mute(&self) {
        self.0.mute.store(true, Ordering::SeqCst);
    }

    pub(crate) fn pilot(&self) -> &Pilot {
        &self.0.pilot
    }

    // === hearing ===

    /// Waits for the next entry of the log that fits; what comes before it counts as read. Fails if the link ends
    /// before, or after a long time.
    pub(crate) fn wait(&self, what: &str, fits: impl Fn(&What) -> bool) -> Heard {
        let end = clock::now() + HANG;
        let mut log = self.lock();
        loop {
            while let Some(heard) = log.heard.get(log.cursor).cloned() {
                log.cursor += 1;
                if fits(&heard.what) {
                    return heard;
                }
                assert!(!matches!(heard.what, What::Closed(_)), "the link ended instead of: {what}");
            }
            let left = end.since(clock::now());
            assert!(!left.is_zero(), "not within {HANG:?}: {what}");
            log = self.0.changed.wait_timeout(log, left).unwrap().0;
        }
    }

    /// Waits for a frame and gives what `pick` takes of it.
    pub(crate) fn frame<T>(&self, what: &str, pick: impl Fn(&Frame) -> Option<T>) -> T {
        let heard = self.wait(what, |w| matches!(w, What::Frame(f) if pick(f).is_some()));
        let What::Frame(frame) = heard.what else { unreachable!("a frame fits") };
        pick(&frame).expect("it fits")
    }

    pub(crate) fn beat_after(&self, what: &str, fits: impl Fn(&Beat) -> bool) -> Beat {
        self.frame(what, |f| match f {
            Frame::Beat(b) if fits(b) => Some(*b),
            _ => None,
        })
    }

    /// Everything heard so far, however often it is asked.
    pub(crate) fn log(&self) -> Vec<Heard> {
        self.lock().heard.clone()
    }

    /// Payload of one stream so far.
    pub(crate) fn bytes(&self, stream: u32) -> Vec<u8> {
        let log = self.lock();
        let pieces = log.heard.iter().filter_map(|h| match &h.what {
            What::Data(s, bytes, _) if *s == stream => Some(&bytes[..]),
            _ => None,
        });
        pieces.collect::<Vec<_>>().concat()
    }

    /// Waits until the stream has brought `len` bytes, and gives all.
    pub(crate) fn bytes_of(&self, stream: u32, len: usize) -> Vec<u8> {
        crate::support::eventually(HANG, &format!("{len} bytes of stream {stream}"), || {
            let got = self.bytes(stream);
            if got.len() >= len { Ok(got) } else { Err(format!("{} bytes", got.len())) }
        })
    }

    /// Credit granted for one stream so far.
    pub(crate) fn granted(&self, stream: u32) -> u64 {
        let log = self.lock();
        let grants = log.heard.iter().map(|h| match h.what {
            What::Frame(Frame::Credit { stream: s, bytes }) if s == stream => u64::from(bytes),
            _ => 0,
        });
        grants.sum()
    }

    /// Frames so far that fit.
    pub(crate) fn count(&self, fits: impl Fn(&Frame) -> bool) -> usize {
        self.lock().heard.iter().filter(|h| matches!(&h.what, What::Frame(f) if fits(f))).count()
    }

    /// Asks and waits for the answer: what was said before has been acted on by then.
    pub(crate) fn sync(&self) {
        let nonce = clock::now().as_nanos() ^ 0x5c5c;
        self.say(&Frame::Challenge { nonce });
        self.wait("the answer", |w| matches!(w, What::Frame(Frame::Answer { nonce: n, .. }) if *n == nonce));
    }

    pub(crate) fn wait_opened(&self, stream: u32) {
        self.wait("OPENED", |w| matches!(w, What::Frame(Frame::Opened { stream: s }) if *s == stream));
    }

    pub(crate) fn wait_fin(&self, stream: u32) {
        self.wait("FIN", |w| matches!(w, What::Frame(Frame::Fin { stream: s }) if *s == stream));
    }

    pub(crate) fn wait_reset(&self, stream: u32) -> ResetReason {
        self.frame("RESET", |f| match f {
            Frame::Reset { stream: s, reason } if *s == stream => Some(*reason),
            _ => None,
        })
    }

    pub(crate) fn closed_now(&self) -> bool {
        self.lock().heard.iter().any(|h| matches!(h.what, What::Closed(_)))
    }

    /// Waits until the other side ended the link.
    pub(crate) fn wait_closed(&self) {
        self.wait("the end of the link", |w| matches!(w, What::Closed(_)));
    }
}

/// A connection to a link port, with a small receive buffer where `small`.
pub(crate) fn dial(addr: SocketAddr, small: bool) -> TcpStream {
    runtime().block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("socket");
        if small {
            socket.set_recv_buffer_size(32 * 1024).expect("receive buffer");
        }
        tokio::time::timeout(HANG, socket.connect(addr)).await.expect("in time").expect("connect")
    })
}
