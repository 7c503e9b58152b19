//! The link itself: one socket, one task, one send queue.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::TcpStream;

use super::outq::{MAX_SLICES, OutQueue};
use super::pace::{Pace, PaceParams};
use super::pressure::Pressure;
use super::splice::Splicing;
use super::stream::{Ended, Stream};
use super::{Lost, Side};
use crate::clock;
use crate::detector::LinkJudge;
use crate::stamp::Stamp;
use crate::wire::{Decoder, Frame, Limits, ResetReason};
use crate::worker::{Dir, Worker};

/// What a link needs to know; all of it agreed in the handshake or configured.
#[derive(Clone, Debug)]
pub struct LinkConf {
    /// Promises of this direction.
    pub pace: PaceParams,
    /// Credit we give each new stream.
    pub initial_credit: u32,
    /// Credit the peer gives each new stream.
    pub peer_credit: u32,
    /// Most credit of one stream.
    pub window_max: u32,
    /// Cap of the send queue, bytes.
    pub queue_max: usize,
    /// Share of the cap that means backpressure.
    pub threshold: f64,
    /// Most streams at once.
    pub streams_max: usize,
    /// True on the side that dials and judges.
    pub dialer: bool,
    /// The link carries one stream, so that bulk data may pass by splice.
    pub one_stream: bool,
}

/// See the module.
pub struct Link {
    /// Unique in this process.
    pub id: u64,
    /// Node id of the peer.
    pub peer_node: String,
    /// Incarnation of the peer.
    pub peer_incarnation: u64,
    pub(super) conf: LinkConf,
    pub(super) w: Rc<Worker>,
    pub(super) io: TcpStream,
    pub(super) side: Rc<dyn Side>,
    pub(super) out: RefCell<OutQueue>,
    pub(super) splice: RefCell<Splicing>,
    pub(super) decoder: RefCell<Decoder>,
    pub(super) streams: RefCell<HashMap<u32, Rc<Stream>>>,
    pub(super) last_stream: Cell<u32>,
    pub(super) judge: RefCell<Option<LinkJudge>>,
    pub(super) pace: RefCell<Pace>,
    pub(super) pressure: RefCell<Pressure>,
    pub(super) beats: RefCell<Beats>,
    pub(super) control_budget: Cell<(Stamp, u32)>,
    waiting: RefCell<VecDeque<Rc<Stream>>>,
    pub(super) scheduled: Cell<Stamp>,
    quantum: Cell<usize>,
    stuck_since: Cell<Option<Stamp>>,
    pub(super) want_beat: Cell<bool>,
    new_data: Cell<bool>,
    pub(super) goaway: Cell<bool>,
    closing: Cell<bool>,
    /// The open question: nonce and when it was asked.
    pub(super) asked: Cell<(u64, Stamp)>,
    pub(super) segments_at_doubt: Cell<u64>,
    pub(super) pressure_told: Cell<bool>,
    lost: RefCell<Option<Lost>>,
    waker: RefCell<Option<Waker>>,
    buffered: Cell<usize>,
}

/// Sequence numbers of both directions, for the echo in beats.
pub(super) struct Beats {
    pub(super) seq: u32,
    sent: [Stamp; 64],
    pub(super) heard_seq: u32,
    pub(super) heard_at: Stamp,
    pub(super) rtt: Duration,
}

impl Beats {
    fn next(&mut self, now: Stamp) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.sent[self.seq as usize % 64] = now;
        self.seq
    }

    /// When beat `seq` was written, if that is still known.
    pub(super) fn sent_at(&self, seq: u32) -> Option<Stamp> {
        let known = self.seq.wrapping_sub(seq) < 64 && seq != 0;
        known.then(|| self.sent[seq as usize % 64]).filter(|t| *t != Stamp::ZERO)
    }
}

/// The peer as its handshake described it.
pub struct Peer {
    /// Node id.
    pub node: String,
    /// Incarnation.
    pub incarnation: u64,
}

/// Smallest and largest share of the path one stream may take at a time (link.md rule 4).
const QUANTUM: std::ops::RangeInclusive<usize> = 16 * 1024..=256 * 1024;
/// A batch that takes longer than this to leave is too large for the path.
const BATCH_TIME: Duration = Duration::from_millis(5);

impl Link {
    /// A link over a socket whose handshake is done.
    pub fn new(
        w: Rc<Worker>,
        io: TcpStream,
        peer: Peer,
        conf: LinkConf,
        judge: Option<LinkJudge>,
        side: Rc<dyn Side>,
    ) -> Rc<Link> {
        let now = clock::now();
        let link = Rc::new(Link {
            id: w.fresh_id(),
            peer_node: peer.node,
            peer_incarnation: peer.incarnation,
            out: RefCell::new(OutQueue::new(w.pool.clone())),
            splice: RefCell::default(),
            decoder: RefCell::new(Decoder::new(Limits::default())),
            streams: RefCell::default(),
            last_stream: Cell::new(0),
            judge: RefCell::new(judge),
            pace: RefCell::new(Pace::new(conf.pace, now)),
            pressure: RefCell::default(),
            beats: RefCell::new(Beats {
                seq: 0,
                sent: [Stamp::ZERO; 64],
                heard_seq: 0,
                heard_at: now,
                rtt: Duration::ZERO,
            }),
            control_budget: Cell::new((now, 0)),
            waiting: RefCell::default(),
            scheduled: Cell::new(Stamp::NEVER),
            quantum: Cell::new(64 * 1024),
            stuck_since: Cell::new(None),
            want_beat: Cell::new(true),
            new_data: Cell::new(false),
            goaway: Cell::new(false),
            closing: Cell::new(false),
            asked: Cell::new((0, Stamp::ZERO)),
            segments_at_doubt: Cell::new(u64::MAX),
            pressure_told: Cell::new(false),
            lost: RefCell::default(),
            waker: RefCell::default(),
            buffered: Cell::new(0),
            w,
            io,
            side,
            conf,
        });
        let timed: Rc<dyn crate::worker::Timed> = link.clone();
        link.w.register(link.id, Rc::downgrade(&timed));
        link
    }

    /// Drives the link until it ends. `first`: bytes read behind the handshake.
    pub async fn run(self: Rc<Self>, first: Vec<u8>) {
        let now = clock::now();
        if let Err(how) = self.take_bytes(&first, now) {
            self.close(how);
        }
        self.reschedule();
        let how = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.w.forget(self.id);
        self.end_streams(Ended::LinkLost);
        self.out.borrow_mut().clear();
        self.splice.borrow_mut().clear();
        if how != Lost::Fin && how != Lost::Goaway {
            // Nothing we still owe may linger in the kernel of a link that is known to be broken.
            let _ = socket2::SockRef::from(&self.io).set_linger(Some(Duration::ZERO));
        }
        let side = self.side.clone();
        side.lost(&self, clock::now(), &how);
    }

    fn poll(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<Lost> {
        {
            let mut w = self.waker.borrow_mut();
            if !w.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *w = Some(cx.waker().clone());
            }
        }
        self.poll_read(cx);
        if self.lost.borrow().is_none() {
            self.poll_write(cx);
        }
        match self.lost.borrow().clone() {
            Some(how) => Poll::Ready(how),
            None => Poll::Pending,
        }
    }

    // === reading ===

    /// Reads until the socket is empty, at most a few times: other tasks have their turn too.
    fn poll_read(self: &Rc<Self>, cx: &mut Context<'_>) {
        for _ in 0..4 {
            match self.io.poll_read_ready(cx) {
                Poll::Pending => return,
                Poll::Ready(Err(e)) => return self.close(io_lost(&e)),
                Poll::Ready(Ok(())) => {}
            }
            if !self.read_once() {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }

    /// One read, decoded and passed on. False if the socket was empty or the link ended.
    fn read_once(self: &Rc<Self>) -> bool {
        let got = self.move_in().unwrap_or_else(|| self.copy_in());
        match &got {
            Ok(0) => self.close(if self.goaway.get() { Lost::Goaway } else { Lost::Fin }),
            Ok(_) => self.reschedule(),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => self.close(io_lost(e)),
        }
        matches!(got, Ok(1..)) && !self.is_lost()
    }

    fn copy_in(self: &Rc<Self>) -> io::Result<usize> {
        let w = self.w.clone();
        let mut scratch = w.scratch.borrow_mut();
        let most = self.read_most(scratch.len());
        let n = self.io.try_read(&mut scratch[..most])?;
        match self.take_bytes(&scratch[..n], clock::now()) {
            Ok(()) => self.note_read(n),
            Err(how) => self.close(how),
        }
        Ok(n)
    }

    /// Reads whatever the kernel holds, whether or not the runtime knows of it yet: judging needs the time *before*
    /// the last empty poll (detection.md gate 2).
    pub(super) fn drain_now(self: &Rc<Self>) {
        let w = self.w.clone();
        for _ in 0..16 {
            let Ok(mut scratch) = w.scratch.try_borrow_mut() else { return };
            let got = rustix::net::recv(&self.io, &mut scratch[..], rustix::net::RecvFlags::DONTWAIT);
            let Ok((n, _)) = got else { return };
            if n == 0 {
                // The task sees the end itself; its readiness is still set.
                drop(scratch);
                return self.wake();
            }
            if let Err(how) = self.take_bytes(&scratch[..n], clock::now()) {
                return self.close(how);
            }
        }
    }

    // === writing ===

    fn poll_write(self: &Rc<Self>, cx: &mut Context<'_>) {
        loop {
            if !self.is_writing() && !self.next_batch() {
                if self.closing.get() {
                    self.close(Lost::Goaway);
                }
                return;
            }
            match self.write_once() {
                Ok(true) => self.batch_left(),
                Ok(false) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.note_stuck();
                    match self.io.poll_write_ready(cx) {
                        Poll::Pending => return,
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(e)) => return self.close(io_lost(&e)),
                    }
                }
                Err(e) => return self.close(io_lost(&e)),
            }
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        self.out.borrow().in_batch() || self.splice.borrow().is_moving()
    }

    fn write_once(&self) -> io::Result<bool> {
        let mut out = self.out.borrow_mut();
        if !out.in_batch() {
            return self.move_out();
        }
        let mut iov = [IoSlice::new(&[]); MAX_SLICES];
        let n = out.slices(&mut iov);
        let wrote = self.write_slices(&iov[..n])?;
        Ok(out.advance(wrote) && !self.splice.borrow_mut().head_written())
    }

    /// Everything that is ready, and the beat. False if there is nothing to write.
    fn next_batch(self: &Rc<Self>) -> bool {
        let has_new = self.out.borrow().has_new() || self.splice.borrow().is_filled();
        if !has_new && !self.want_beat.get() {
            return false;
        }
        let now = clock::now();
        let mut trailer = BytesMut::with_capacity(64);
        let beat = self.make_beat(now, self.new_data.replace(false));
        Frame::Beat(beat).encode(&mut trailer);
        self.count(Dir::Out, crate::wire::Kind::Beat, trailer.len());
        self.want_beat.set(false);
        // A payload in a pipe was there before what is queued now.
        let most = if self.splice.borrow_mut().head(&mut trailer) { 0 } else { self.quantum.get() };
        self.out.borrow_mut().start_batch(most, trailer);
        self.reschedule();
        true
    }

    /// The promise is made when the frame is handed to the kernel.
    pub(super) fn make_beat(&self, now: Stamp, with_data: bool) -> crate::wire::Beat {
        let facts = self.side.facts(now);
        let mut pace = self.pace.borrow_mut();
        pace.set_idle(self.side.idle_promise());
        let promise = pace.next_promise(now, self.side.on_duty(self.id));
        let saved = pace.wrote(now, promise, with_data);
        self.w.counters.saved.set(self.w.counters.saved.get() + saved);
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.we_promised(now, promise);
        }
        let mut flags = facts.flags;
        let (stalled_at, _) = self.w.last_stall.get();
        flags.own_stall = stalled_at != Stamp::ZERO && now.since(stalled_at) < Duration::from_millis(50);
        flags.draining |= self.goaway.get();
        let mut b = self.beats.borrow_mut();
        crate::wire::Beat {
            seq: b.next(now),
            promise_ms: millis16(promise),
            flags,
            vouch: facts.vouch,
            processing_us: facts.processing_us,
            utility: facts.utility,
            in_flight: facts.in_flight,
            oldest_ms: facts.oldest_ms,
            load: facts.load,
            heard_seq: b.heard_seq,
            heard_age_us: u32::try_from(now.since(b.heard_at).as_micros()).unwrap_or(u32::MAX),
        }
    }

    fn note_stuck(&self) {
        let now = clock::now();
        match self.stuck_since.get() {
            None => self.stuck_since.set(Some(now)),
            Some(t) if now.since(t) > BATCH_TIME => {
                self.quantum.set((self.quantum.get() / 2).max(*QUANTUM.start()));
                self.stuck_since.set(Some(now));
            }
            Some(_) => {}
        }
    }

    fn batch_left(&self) {
        if self.stuck_since.take().is_none_or(|t| clock::now().since(t) < BATCH_TIME) {
            self.quantum.set((self.quantum.get() * 2).min(*QUANTUM.end()));
        }
        self.wake_waiting();
    }

    // === what streams ask ===

    /// How much one stream may take before the others have their turn.
    pub(super) fn quantum(&self) -> usize {
        self.quantum.get()
    }

    /// True if the stream may queue data now; else it is woken when there is room.
    pub(super) fn has_room(&self, stream: &Rc<Stream>) -> bool {
        let room = self.out.borrow().pending() < self.conf.queue_max / 2;
        if !room {
            self.wait(stream);
        }
        room
    }

    /// Wakes the stream when a batch has left.
    pub(super) fn wait(&self, stream: &Rc<Stream>) {
        if !stream.waiting.replace(true) {
            self.waiting.borrow_mut().push_back(stream.clone());
        }
    }

    fn wake_waiting(&self) {
        let low = self.conf.queue_max / 4;
        let mut pending = self.out.borrow().pending();
        while pending < low {
            let Some(s) = self.waiting.borrow_mut().pop_front() else { return };
            s.has_room_now();
            pending += self.quantum.get();
        }
    }

    /// A stream has data but no credit since `since`.
    pub(super) fn blocked(&self, stream: u32, since: Stamp) {
        self.pressure.borrow_mut().block(stream, since);
        self.reschedule();
    }

    /// Data was queued.
    pub(super) fn sent_data(&self, now: Stamp, n: usize) {
        self.count(Dir::Out, crate::wire::Kind::Data, n + crate::wire::HEADER_LEN);
        let sent = &self.w.counters.payload[Dir::Out as usize];
        sent.set(sent.get() + n as u64);
        self.pace.borrow_mut().bytes(now, self.conf.dialer);
        self.side.used(self.id, now);
        self.new_data.set(true);
        self.wake();
    }

    /// A control frame: leaves before data.
    pub(super) fn send_control(&self, frame: &Frame) {
        let mut out = self.out.borrow_mut();
        let before = out.control().len();
        frame.encode(out.control());
        let n = out.control().len() - before;
        drop(out);
        self.count(Dir::Out, frame.kind(), n);
        self.wake();
    }

    /// A frame that keeps its order with the stream's data.
    pub(super) fn send_ordered(&self, frame: &Frame) {
        let mut buf = BytesMut::with_capacity(64);
        frame.encode(&mut buf);
        self.count(Dir::Out, frame.kind(), buf.len());
        self.out.borrow_mut().append(&buf);
        self.wake();
    }

    /// Tells the peer that the stream is over.
    pub(super) fn reset_stream(&self, stream: &Stream, reason: ResetReason) {
        if self.streams.borrow().contains_key(&stream.id) {
            self.send_ordered(&Frame::Reset { stream: stream.id, reason });
        }
        self.forget_stream(stream.id);
    }

    /// The stream is over; what still arrives for it is discarded.
    pub(super) fn forget_stream(&self, id: u32) {
        let gone = self.streams.borrow_mut().remove(&id);
        self.pressure.borrow_mut().unblock(id);
        if self.splice.borrow_mut().abandon(id) {
            self.wake_waiting();
        }
        if gone.is_some() && self.streams.borrow().is_empty() {
            self.pace.borrow_mut().no_streams();
        }
    }

    pub(super) fn window_max(&self) -> u32 {
        self.conf.window_max
    }

    pub(super) fn buffer(&self, n: usize) {
        self.buffered.set(self.buffered.get() + n);
    }

    pub(super) fn unbuffer(&self, n: usize) {
        self.buffered.set(self.buffered.get().saturating_sub(n));
    }

    pub(super) fn count(&self, dir: Dir, kind: crate::wire::Kind, bytes: usize) {
        self.w.counters.frame(dir, kind.metric_index(), 1, bytes as u64);
    }

    // === what owners ask ===

    /// Opens a stream for an application connection. `first`: bytes already read from it. Gives the socket back if
    /// the link takes no more streams.
    pub fn open(
        self: &Rc<Self>,
        service: &str,
        io: TcpStream,
        first: &[u8],
    ) -> Result<Rc<Stream>, TcpStream> {
        let full = self.streams.borrow().len() >= self.conf.streams_max || self.last_stream.get() == u32::MAX;
        if full || self.lost.borrow().is_some() {
            return Err(io);
        }
        let id = self.last_stream.get() + 1;
        self.last_stream.set(id);
        let now = clock::now();
        let stream = Stream::new(id, self.clone(), Some(io), true, now);
        self.streams.borrow_mut().insert(id, stream.clone());
        self.send_ordered(&Frame::Open { stream: id, service: service.to_owned() });
        if !first.is_empty() {
            stream.send_first(first, now);
        }
        Ok(stream)
    }

    /// A beat leaves now (a vouch changed, healing is watched).
    pub fn beat_now(&self) {
        self.want_beat.set(true);
        self.wake();
    }

    /// Announces a pause to the peer.
    pub fn announce(&self, frame: &Frame) {
        self.send_control(frame);
    }

    /// Planned end: the peer opens no more, what is open goes on.
    pub fn go_away(&self, deadline: Duration) {
        self.goaway.set(true);
        let ms = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        self.send_control(&Frame::Goaway { deadline_ms: ms });
    }

    /// Ends all streams with RST towards the applications; the link stays as a witness.
    pub fn end_streams(&self, why: Ended) {
        let all: Vec<_> = self.streams.borrow_mut().drain().map(|(_, s)| s).collect();
        for s in all {
            s.end(why);
        }
        self.waiting.borrow_mut().clear();
        self.pressure.borrow_mut().clear();
    }

    /// Ends the link.
    pub fn close(&self, how: Lost) {
        let mut lost = self.lost.borrow_mut();
        if lost.is_none() {
            *lost = Some(how);
        }
        drop(lost);
        self.wake();
    }

    /// Ends the link once what it holds is written: it had one stream, and that is over.
    pub fn close_when_written(&self) {
        self.closing.set(true);
        self.wake();
    }

    /// True once the link ended.
    pub fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }

    /// True after GOAWAY, from either side.
    pub fn is_draining(&self) -> bool {
        self.goaway.get()
    }

    /// Open streams.
    pub fn stream_count(&self) -> usize {
        self.streams.borrow().len()
    }

    /// Share of the send queue's cap that is in use, 0 to about 1.
    pub fn queue_ratio(&self) -> f64 {
        self.queued() as f64 / self.conf.queue_max as f64
    }

    /// Bytes waiting to be written.
    pub(super) fn queued(&self) -> usize {
        self.out.borrow().pending() + self.splice.borrow().pending()
    }

    /// Bytes held for slow applications.
    pub fn buffered(&self) -> usize {
        self.buffered.get()
    }

    /// Sequence number of the last beat heard.
    pub fn last_seq(&self) -> u32 {
        self.beats.borrow().heard_seq
    }

    /// Round trip as measured by own frames; a guess of 1 ms before the first measurement.
    pub fn rtt(&self) -> Duration {
        let rtt = self.beats.borrow().rtt;
        if rtt.is_zero() { Duration::from_millis(1) } else { rtt }
    }

    /// Looks at the judge.
    pub fn with_judge<T>(&self, f: impl FnOnce(&LinkJudge) -> T) -> Option<T> {
        self.judge.borrow().as_ref().map(f)
    }

    pub(super) fn wake(&self) {
        if let Some(w) = &*self.waker.borrow() {
            w.wake_by_ref();
        }
    }
}

fn io_lost(e: &io::Error) -> Lost {
    match e.kind() {
        io::ErrorKind::TimedOut => Lost::TimedOut,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Lost::Rst,
        _ => Lost::Cut,
    }
}

/// Whole milliseconds, saturating.
pub(crate) fn millis16(d: Duration) -> u16 {
    u16::try_from(d.as_millis()).unwrap_or(u16::MAX)
}
