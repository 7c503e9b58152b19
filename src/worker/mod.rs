//! One thread of the data path: a current-thread runtime, its buffers, its one timer and its counters.

pub mod pipes;
pub mod pool;
pub mod wheel;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock;
use crate::stamp::Stamp;
use pipes::Pipes;
use pool::Pool;
use wheel::{Ticket, Wheel};

/// A map by ids that this process chose itself; nobody else can make them collide.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// One multiplication per number: the usual hash costs more than the look-up it serves.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// Bytes read from a link in one call.
pub const SCRATCH: usize = 256 * 1024;
/// Lateness of the loop that counts as a stall of our own: beyond timer rounding and a busy core's usual wake-up.
const STALL: Duration = Duration::from_millis(10);
/// How often local counters are added to the shared ones.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Something with deadlines: a link or an endpoint's owner.
pub trait Timed {
    /// What it waited for is due. It schedules its next deadline.
    fn on_timer(self: Rc<Self>, now: Stamp);
    /// The worker's loop was late: silence between `from` and `to` may be our own.
    fn own_stall(&self, from: Stamp, to: Stamp);
}

/// Index of a direction in counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    /// Received.
    In = 0,
    /// Sent.
    Out = 1,
}

/// Counters of one worker, plain cells: flushed to the shared metrics a few times a second.
#[derive(Default)]
pub struct Counters {
    /// Frames by direction and metric kind.
    pub frames: [[Cell<u64>; 12]; 2],
    /// Bytes, headers included.
    pub bytes: [[Cell<u64>; 12]; 2],
    /// Payload bytes.
    pub payload: [Cell<u64>; 2],
    /// Bytes in blocks, as last told.
    pub buffered: Cell<usize>,
    /// Idle beats that traffic made unnecessary.
    pub saved: Cell<u64>,
    /// Frames for ended streams.
    pub discarded: Cell<u64>,
}

impl Counters {
    /// Counts a frame.
    pub fn frame(&self, dir: Dir, kind: usize, frames: u64, bytes: u64) {
        let (d, k) = (dir as usize, kind.min(11));
        self.frames[d][k].set(self.frames[d][k].get() + frames);
        self.bytes[d][k].set(self.bytes[d][k].get() + bytes);
    }
}

/// Takes the counters of a worker now and then.
pub trait Sink {
    /// Adds what was counted since the last call and zeroes the cells.
    fn flush(&self, counters: &Counters, buffered: usize);
    /// The loop was this late.
    fn lateness(&self, late: Duration);
}

/// See the module.
pub struct Worker {
    /// Number of this worker, from 0.
    pub index: usize,
    /// Buffers.
    pub pool: Rc<Pool>,
    /// Pipes for splice.
    pub pipes: Rc<Pipes>,
    /// Bytes held for applications that do not read.
    pub held: Cell<usize>,
    /// Most of them, and of the buffers.
    pub memory_max: Cell<usize>,
    /// Where link bytes are read and decoded; never held across an await.
    pub scratch: RefCell<Vec<u8>>,
    /// Counters.
    pub counters: Counters,
    wheel: RefCell<Wheel>,
    /// By [`Ticket::index`].
    timed: RefCell<Vec<Option<Weak<dyn Timed>>>>,
    next_id: Cell<u64>,
    /// When the timer loop wakes up.
    armed: Cell<Stamp>,
    sooner: Notify,
    rng: Cell<u64>,
    /// The last time this worker's loop was late, and by how much.
    pub last_stall: Cell<(Stamp, Duration)>,
}

impl Worker {
    /// A worker; `seed` is any random number.
    pub fn new(index: usize, seed: u64) -> Rc<Worker> {
        Rc::new(Worker {
            index,
            pool: Pool::new(),
            pipes: Pipes::new(),
            held: Cell::new(0),
            memory_max: Cell::new(usize::MAX),
            scratch: RefCell::new(vec![0; SCRATCH]),
            counters: Counters::default(),
            wheel: RefCell::default(),
            timed: RefCell::default(),
            next_id: Cell::new(((index as u64) << 48) + 1),
            armed: Cell::new(Stamp::NEVER),
            sooner: Notify::new(),
            rng: Cell::new(seed | 1),
            last_stall: Cell::new((Stamp::ZERO, Duration::ZERO)),
        })
    }

    /// True while more than half of the memory is used: what can wait does.
    pub fn memory_is_short(&self) -> bool {
        self.held.get() + self.pool.in_use() > self.memory_max.get() / 2
    }

    /// An id that no other link or endpoint of this process has.
    pub fn fresh_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// A pseudo-random number for jitter and nonces (xorshift64*).
    pub fn random(&self) -> u64 {
        let mut x = self.rng.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.rng.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Makes `who` known to the timer.
    pub fn register(&self, who: Weak<dyn Timed>) -> Ticket {
        let ticket = self.wheel.borrow_mut().add();
        let mut timed = self.timed.borrow_mut();
        if timed.len() <= ticket.index() {
            timed.resize(ticket.index() + 1, None);
        }
        timed[ticket.index()] = Some(who);
        ticket
    }

    /// Forgets the one with this ticket.
    pub fn forget(&self, ticket: Ticket) {
        self.wheel.borrow_mut().remove(ticket);
        self.timed.borrow_mut()[ticket.index()] = None;
    }

    /// Wakes it at `at`, be that earlier or later than what was scheduled.
    pub fn schedule(&self, ticket: Ticket, at: Stamp) {
        self.wheel.borrow_mut().set(ticket, at);
        if at < self.armed.get() {
            self.armed.set(at);
            self.sooner.notify_one();
        }
    }

    /// The one timer loop of the worker.
    pub async fn tick(self: Rc<Self>, sink: Rc<dyn Sink>) {
        let mut flushed = clock::now();
        loop {
            let next = self.wheel.borrow_mut().earliest().unwrap_or(Stamp::NEVER).min(flushed + FLUSH_EVERY);
            self.armed.set(next);
            let slept_until = tokio::select! {
                biased;
                () = self.sooner.notified() => None,
                () = tokio::time::sleep_until(clock::instant(next)) => Some(next),
            };
            let now = clock::now();
            if let Some(due) = slept_until {
                self.note_lateness(due, now, &*sink);
            }
            self.run_due(now);
            if now.since(flushed) >= FLUSH_EVERY {
                sink.flush(&self.counters, self.pool.in_use() + self.pipes.held());
                self.pipes.rest();
                flushed = now;
            }
        }
    }

    fn note_lateness(&self, due: Stamp, now: Stamp, sink: &dyn Sink) {
        let late = now.since(due);
        sink.lateness(late);
        if late < STALL {
            return;
        }
        self.last_stall.set((now, late));
        let all: Vec<_> = self.timed.borrow().iter().flatten().filter_map(Weak::upgrade).collect();
        for t in all {
            t.own_stall(due, now);
        }
    }

    fn run_due(&self, now: Stamp) {
        loop {
            let due = self.wheel.borrow_mut().pop_due(now);
            let Some(ticket) = due else { return };
            let who = self.timed.borrow()[ticket.index()].as_ref().and_then(Weak::upgrade);
            if let Some(who) = who {
                who.on_timer(now);
            }
        }
    }
}
