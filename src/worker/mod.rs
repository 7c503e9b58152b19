//! One thread of the data path: a current-thread runtime, its buffers, its one timer and its counters.

mod counters;
mod crowd;
mod ids;
pub mod noise;
pub mod pipes;
pub mod pool;
pub mod processors;
pub mod wheel;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::clock;
use crate::stamp::Stamp;
use crate::sys::alarm::{self, Alarm};
pub use counters::{Counters, Dir, Odd};
pub use ids::{IdHasher, IdMap};
use noise::Noise;
use pipes::Pipes;
use pool::Pool;
use processors::Manners;
use wheel::{Ticket, Wheel};

/// Bytes read from a link in one call.
pub const SCRATCH: usize = 256 * 1024;
/// Lateness of the loop that counts as a stall of our own: beyond timer rounding and a busy core's usual wake-up.
pub(crate) const STALL: Duration = Duration::from_millis(10);
/// How often local counters are added to the shared ones.
const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// With more than this many deadlines they are met together, each millisecond; fewer are met exactly.
const FEW: usize = 64;

/// How often the sockets are looked at again before what is queued leaves, as long as each look brings more.
const LOOKS: usize = 2;

/// Something that many write to, and that is sent in one piece.
pub trait Outlet {
    /// What was queued leaves now.
    fn flush(self: Rc<Self>);
}

/// Something with deadlines: a link or an endpoint's owner.
pub trait Timed {
    /// What it waited for is due. It schedules its next deadline.
    fn on_timer(self: Rc<Self>, now: Stamp);
    /// The worker's loop was late: silence between `from` and `to` may be our own.
    fn own_stall(&self, from: Stamp, to: Stamp);
}

/// The time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

impl From<Late> for io::Error {
    fn from(_: Late) -> io::Error {
        io::ErrorKind::TimedOut.into()
    }
}

/// One that sleeps.
#[derive(Default)]
struct Nap {
    over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Timed for Nap {
    fn on_timer(self: Rc<Self>, _now: Stamp) {
        self.over.set(true);
        if let Some(w) = self.waker.take() {
            w.wake();
        }
    }

    fn own_stall(&self, _from: Stamp, _to: Stamp) {}
}

struct Forget<'a>(&'a Worker, Ticket);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
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
    /// The worker ends: what is dropped from now on was cut.
    pub ending: Cell<bool>,
    wheel: RefCell<Wheel>,
    /// By [`Ticket::index`].
    timed: RefCell<Vec<Option<Weak<dyn Timed>>>>,
    next_id: Cell<u64>,
    alarm: Alarm,
    /// Those with something queued, how often anything was queued at all, and how often all of it left.
    unsent: RefCell<Vec<Rc<dyn Outlet>>>,
    queued: Cell<u64>,
    rounds: Cell<u64>,
    sender: Notify,
    rng: Cell<u64>,
    /// The last time this worker's loop was late, and by how much.
    pub last_stall: Cell<(Stamp, Duration)>,
    noise: Cell<Noise>,
    machine: SharedNoise,
}

/// How late any loop of the process was: what keeps one thread from running keeps others from it another time.
pub type SharedNoise = Arc<Mutex<Noise>>;

impl Worker {
    /// A worker; `seed` is any random number. Those of one process share `machine`.
    ///
    /// # Errors
    /// No timer to be had from the kernel, or called outside of a runtime.
    pub fn new(index: usize, seed: u64, machine: SharedNoise) -> io::Result<Rc<Worker>> {
        Ok(Rc::new(Worker {
            index,
            pool: Pool::new(),
            pipes: Pipes::new(),
            held: Cell::new(0),
            memory_max: Cell::new(usize::MAX),
            scratch: RefCell::new(vec![0; SCRATCH]),
            counters: Counters::default(),
            ending: Cell::new(false),
            wheel: RefCell::default(),
            timed: RefCell::default(),
            next_id: Cell::new(((index as u64) << 48) + 1),
            alarm: Alarm::new()?,
            unsent: RefCell::default(),
            queued: Cell::new(0),
            rounds: Cell::new(0),
            sender: Notify::new(),
            rng: Cell::new(seed | 1),
            last_stall: Cell::new((Stamp::ZERO, Duration::ZERO)),
            noise: Cell::default(),
            machine,
        }))
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
        if at < self.alarm.at() {
            // What is due already is due now: that it was asked for late is no lateness of the loop.
            let at = self.met_at(at.max(clock::now()));
            if at < self.alarm.at() {
                self.alarm.set(at);
            }
        }
    }

    fn met_at(&self, at: Stamp) -> Stamp {
        if self.wheel.borrow().len() > FEW { alarm::on_grid(at) } else { at }
    }

    /// Waits until `at`, on the worker's own timer.
    pub async fn sleep_until(self: &Rc<Self>, at: Stamp) {
        let nap = Rc::new(Nap::default());
        let asleep: Weak<Nap> = Rc::downgrade(&nap);
        let ticket = self.register(asleep);
        self.schedule(ticket, at);
        let _forget = Forget(self, ticket);
        std::future::poll_fn(|cx| {
            if nap.over.get() {
                return Poll::Ready(());
            }
            *nap.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// What `work` comes to, if it does `within` that time. The runtime has no timers of its own here: it would look at
    /// its clock at every wait for sockets, whether or not anything has a limit.
    ///
    /// # Errors
    /// [`Late`] if it does not; `work` is dropped.
    pub async fn timeout<T>(
        self: &Rc<Self>,
        within: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Late> {
        self.timeout_at(clock::now() + within, work).await
    }

    /// As [`Worker::timeout`], until an instant.
    pub async fn timeout_at<T>(
        self: &Rc<Self>,
        until: Stamp,
        work: impl Future<Output = T>,
    ) -> Result<T, Late> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.sleep_until(until) => Err(Late),
        }
    }

    /// Something was queued; what may still come before it leaves counts too.
    pub fn note_queued(&self) {
        self.queued.set(self.queued.get().wrapping_add(1));
    }

    /// `who` is flushed when the sockets that are ready have been read.
    pub fn flush_later(&self, who: Rc<dyn Outlet>) {
        let mut unsent = self.unsent.borrow_mut();
        if unsent.is_empty() {
            self.sender.notify_one();
        }
        unsent.push(who);
    }

    /// The one loop that flushes. It lets the runtime look at the sockets before: a write costs more than a look, and
    /// what many streams say at the same time fits into one.
    pub async fn send(self: Rc<Self>) {
        loop {
            self.sender.notified().await;
            for _ in 0..LOOKS {
                let before = self.queued.get();
                yield_now().await;
                if self.queued.get() == before {
                    break;
                }
            }
            for outlet in self.unsent.take() {
                outlet.flush();
            }
            self.rounds.set(self.rounds.get().wrapping_add(1));
        }
    }

    /// The one timer loop of the worker.
    pub async fn tick(self: Rc<Self>, sink: Rc<dyn Sink>) {
        let mut now = clock::now();
        let mut flushed = now;
        let mut manners = Manners::new();
        loop {
            let next = self.wheel.borrow_mut().earliest().unwrap_or(Stamp::NEVER).min(flushed + FLUSH_EVERY);
            self.alarm.set(self.met_at(next.max(now)));
            self.alarm.rings().await;
            let due = self.alarm.at();
            now = clock::now();
            if now < due {
                // Something became due earlier, and not yet.
                continue;
            }
            self.note_lateness(due, now, &*sink);
            self.run_due(now);
            if now.since(flushed) >= FLUSH_EVERY {
                sink.flush(&self.counters, self.held.get() + self.pool.in_use() + self.pipes.held());
                self.pipes.rest();
                manners.look(self.queued.get(), self.rounds.get());
                self.noise.set(*self.machine.lock().unwrap_or_else(PoisonError::into_inner));
                flushed = now;
            }
        }
    }

    /// How late the loops of this process were lately, more than once: what others should expect of its beats.
    pub fn noise(&self, now: Stamp) -> Duration {
        self.noise.get().told(now)
    }

    fn note_lateness(&self, due: Stamp, now: Stamp, sink: &dyn Sink) {
        let late = now.since(due);
        sink.lateness(late);
        let before = self.noise.get();
        if before.with(late, now) != before {
            let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
            *machine = machine.with(late, now);
            self.noise.set(*machine);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Sink for Nothing {
        fn flush(&self, _counters: &Counters, _buffered: usize) {}
        fn lateness(&self, late: Duration) {
            assert!(late < Duration::from_secs(4), "a deadline's age is no lateness: {late:?}");
        }
    }

    #[derive(Default)]
    struct Counts {
        timers: Cell<u32>,
    }

    impl Timed for Counts {
        fn on_timer(self: Rc<Self>, _now: Stamp) {
            self.timers.set(self.timers.get() + 1);
        }
        fn own_stall(&self, from: Stamp, to: Stamp) {
            assert!(from > Stamp::ZERO && to.since(from) < Duration::from_secs(4), "{from:?} to {to:?}");
        }
    }

    #[test]
    fn the_lateness_of_another_loop_is_told_too() {
        on_a_worker(|w| async move {
            let now = clock::now();
            *w.machine.lock().unwrap() = Noise::default().with(Duration::from_millis(12), now);
            w.sleep_until(now + FLUSH_EVERY * 2).await;
            assert!(w.noise(clock::now()) > Duration::from_millis(11), "{:?}", w.noise(clock::now()));
        });
    }

    fn on_a_worker<F: Future<Output = ()>>(test: impl FnOnce(Rc<Worker>) -> F) {
        let local = tokio::runtime::LocalOptions::default();
        let rt = tokio::runtime::Builder::new_current_thread().enable_io().build_local(local).unwrap();
        rt.block_on(async {
            let w = Worker::new(0, 1, SharedNoise::default()).unwrap();
            tokio::task::spawn_local(w.clone().tick(Rc::new(Nothing)));
            test(w).await;
        });
    }

    /// A bug of an earlier version: a deadline in the past was the loop's own stall since the machine's start, and every
    /// link of the worker was excused for it.
    #[test]
    fn a_deadline_that_is_over_when_it_is_set_is_no_stall() {
        on_a_worker(|w| async move {
            let who = Rc::new(Counts::default());
            let weak: Weak<Counts> = Rc::downgrade(&who);
            let ticket = w.register(weak);
            for past in [Stamp::ZERO, clock::now() - Duration::from_secs(5)] {
                w.schedule(ticket, past);
                w.sleep_until(clock::now() + Duration::from_millis(3)).await;
            }
            assert_eq!(who.timers.get(), 2);
        });
    }

    #[test]
    fn a_limit_ends_what_is_late_and_nothing_else() {
        on_a_worker(|w| async move {
            let soon = Duration::from_millis(2);
            assert_eq!(w.timeout(soon, std::future::pending::<()>()).await, Err(Late));
            assert_eq!(w.timeout(soon, std::future::ready(7)).await, Ok(7));
            let begin = clock::now();
            w.sleep_until(begin + soon).await;
            assert!(clock::now() >= begin + soon);
        });
    }
}
