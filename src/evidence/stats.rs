//! Evidence E1: what the proxy saw of a service. Shared by all threads; a few relaxed atomic stores per batch.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::answers::AnswerTimes;
use super::notes::Notes;
use super::prober::Activity;
use crate::stamp::Stamp;
use crate::verdict::Vouch;

/// Facts of one service, written by the proxy, read by beats and by its [`super::ServiceWatch`].
#[derive(Debug)]
pub struct ServiceStats {
    service: SocketAddr,
    /// Wakes the loop that samples: a FIN, RST or refusal of the service, or a first question after silence.
    pub kick: Arc<Notify>,
    /// What its probe and its own announcements say.
    pub notes: Notes,
    pub(super) times: AnswerTimes,
    vouch: AtomicU8,
    vouched_at: AtomicU64,
    last_progress: AtomicU64,
    last_asked: AtomicU64,
    utility: AtomicU32,
    in_flight: AtomicU32,
    oldest_since: AtomicU64,
    processing_us: AtomicU32,
    opened: AtomicU64,
    refused_at: AtomicU64,
    fins: AtomicU64,
    resets: AtomicU64,
    ended: AtomicBool,
    asleep: AtomicBool,
    conns: Mutex<Vec<Arc<Conn>>>,
}

#[derive(Debug)]
struct Conn {
    key: u64,
    local: SocketAddr,
    slot: AtomicUsize,
    /// Nanoseconds; 0: nothing is unanswered.
    unanswered_since: AtomicU64,
    last_sent: AtomicU64,
    /// Turn-arounds, wraps.
    answers: AtomicU32,
    ended: AtomicBool,
}

/// A connection with something unanswered.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) conn: Question,
    pub(super) since: Stamp,
}

/// A connection, to be followed from sample to sample.
#[derive(Clone, Debug)]
pub(super) struct Question {
    conn: Arc<Conn>,
    answers: u32,
}

impl Question {
    pub(super) fn key(&self) -> u64 {
        self.conn.key
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.conn.local
    }

    /// An answer came since the walk that found it.
    pub(super) fn answered(&self) -> bool {
        self.conn.answers.load(Relaxed) != self.answers
    }

    /// It still waits for that answer.
    pub(super) fn open(&self) -> bool {
        !self.answered() && self.conn.unanswered_since.load(Relaxed) != 0
    }
}

/// Result of a walk over the connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    /// The oldest questions first, then others in turn.
    pub(super) asked: Vec<Asked>,
    pub(super) unanswered: usize,
    pub(super) conns: usize,
    /// Questions whose last byte was taken before this were overtaken (E6); set by the caller.
    pub(super) fresh_from: Stamp,
    /// When the last byte of the oldest other question was taken.
    pub(super) fresh: Option<Stamp>,
    /// How many other questions there are.
    pub(super) fresh_count: usize,
}

/// Handle of one connection to the service; dropping it says that the connection is closed.
#[derive(Debug)]
pub struct ConnStats {
    stats: Arc<ServiceStats>,
    conn: Arc<Conn>,
}

// === impl ServiceStats ===

impl ServiceStats {
    /// For a service at this address, with a wake-up of its own.
    pub fn new(service: SocketAddr) -> Arc<ServiceStats> {
        Self::with_kick(service, Arc::new(Notify::new()))
    }

    /// As [`ServiceStats::new`], with a wake-up that several services share: one loop samples them all.
    pub fn with_kick(service: SocketAddr, kick: Arc<Notify>) -> Arc<ServiceStats> {
        Arc::new(ServiceStats {
            service,
            kick,
            notes: Notes::default(),
            times: AnswerTimes::default(),
            vouch: AtomicU8::new(Vouch::Unknown.code()),
            vouched_at: AtomicU64::new(0),
            last_progress: AtomicU64::new(0),
            last_asked: AtomicU64::new(0),
            utility: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            oldest_since: AtomicU64::new(0),
            processing_us: AtomicU32::new(0),
            opened: AtomicU64::new(0),
            refused_at: AtomicU64::new(0),
            fins: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            conns: Mutex::new(Vec::new()),
        })
    }

    /// The service's address as configured.
    pub fn service(&self) -> SocketAddr {
        self.service
    }

    /// A connection to the service was made; `local` is our own address of it. Takes a lock: once per connection.
    pub fn conn_opened(self: &Arc<Self>, local: SocketAddr) -> ConnStats {
        let key = self.opened.fetch_add(1, Relaxed);
        let mut conns = self.conns();
        let conn = Arc::new(Conn {
            key,
            local,
            slot: AtomicUsize::new(conns.len()),
            unanswered_since: AtomicU64::new(0),
            last_sent: AtomicU64::new(0),
            answers: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        });
        conns.push(Arc::clone(&conn));
        drop(conns);
        self.refused_at.store(0, Relaxed);
        ConnStats { stats: Arc::clone(self), conn }
    }

    /// The service refused a connection at `now`.
    pub fn refused(&self, now: Stamp) {
        self.refused_at.store(now.as_nanos().max(1), Relaxed);
        self.wake_for_end();
    }

    /// The vouch of the last sample, or `working` where progress was made since; proof (`stopped`, `gone`) stays until
    /// the next sample.
    pub fn vouch(&self) -> Vouch {
        let vouch = Vouch::from_code(self.vouch.load(Relaxed));
        let newer = self.last_progress.load(Relaxed) > self.vouched_at.load(Relaxed);
        match vouch {
            Vouch::Stopped | Vouch::Gone => vouch,
            _ if newer => Vouch::Working,
            _ => vouch,
        }
    }

    /// Completed turn-arounds, wraps.
    pub fn utility(&self) -> u32 {
        self.utility.load(Relaxed)
    }

    /// Connections with something unanswered, saturating.
    pub fn in_flight(&self) -> u16 {
        u16::try_from(self.in_flight.load(Relaxed)).unwrap_or(u16::MAX)
    }

    /// Age of the oldest unanswered request: exact as of the last sample, may be too small since (never too large).
    pub fn oldest_unanswered(&self, now: Stamp) -> Duration {
        self.oldest_since().map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Last request byte to first answer byte of the last turn-around, us, saturating.
    pub fn processing_us(&self) -> u32 {
        self.processing_us.load(Relaxed)
    }

    /// Connections that the service ended first: by FIN, by RST.
    pub fn ended_by_service(&self) -> (u64, u64) {
        (self.fins.load(Relaxed), self.resets.load(Relaxed))
    }

    /// Connections to the service that are open.
    pub fn open_conns(&self) -> usize {
        self.conns().len()
    }

    /// When anything was asked or answered last, and until when a pause is announced.
    pub fn activity(&self) -> Activity {
        let last_progress = self.last_progress();
        Activity {
            last_sign: last_progress.max(Stamp::from_nanos(self.last_asked.load(Relaxed))),
            last_progress,
            paused_until: self.notes.paused_until(),
        }
    }

    pub(super) fn oldest_since(&self) -> Option<Stamp> {
        let since = self.oldest_since.load(Relaxed);
        (since != 0 && self.in_flight.load(Relaxed) > 0).then(|| Stamp::from_nanos(since))
    }

    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    /// The last connect was refused and none succeeded since.
    pub(super) fn is_refused(&self) -> bool {
        self.refused_at.load(Relaxed) != 0
    }

    pub(super) fn clear_refusal(&self) {
        self.refused_at.store(0, Relaxed);
    }

    pub(super) fn last_progress(&self) -> Stamp {
        Stamp::from_nanos(self.last_progress.load(Relaxed))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    pub(super) fn take_ended(&self) -> bool {
        self.ended.swap(false, SeqCst)
    }

    pub(super) fn publish(&self, vouch: Vouch, now: Stamp) {
        self.vouched_at.store(now.as_nanos(), Relaxed);
        self.vouch.store(vouch.code(), Relaxed);
    }

    /// The sampling loop will not come back soon unless kicked. False: something is unanswered already.
    pub(super) fn sleep(&self) -> bool {
        self.asleep.store(true, SeqCst);
        if self.in_flight.load(SeqCst) == 0 {
            return true;
        }
        self.asleep.store(false, SeqCst);
        false
    }

    /// Collects the `oldest` oldest questions, and `others` more beginning at `turn`, into `out`; corrects the age of the
    /// oldest.
    pub(super) fn walk(&self, oldest: usize, others: usize, turn: usize, out: &mut Walk) {
        out.asked.clear();
        (out.unanswered, out.fresh, out.fresh_count) = (0, None, 0);
        let conns = self.conns();
        out.conns = conns.len();
        if self.in_flight.load(Relaxed) == 0 {
            return;
        }
        for conn in conns.iter() {
            let Some(since) = conn.since() else { continue };
            out.unanswered += 1;
            let sent = Stamp::from_nanos(conn.last_sent.load(Relaxed));
            if sent >= out.fresh_from {
                out.fresh = Some(out.fresh.map_or(sent, |f| f.min(sent)));
                out.fresh_count += 1;
            }
            let at = out.asked.partition_point(|a| a.since <= since);
            if at < oldest {
                out.asked.truncate(oldest - 1);
                out.asked.insert(at, Asked::new(conn, since));
            }
        }
        // A hint only: a question answered in between leaves the next oldest here until the next walk.
        self.oldest_since.store(out.asked.first().map_or(0, |a| a.since.as_nanos()), Relaxed);
        let len = conns.len().max(1);
        let found = out.asked.len();
        for conn in (0..conns.len()).filter_map(|i| conns.get((turn + i) % len)) {
            if out.asked.len() >= found + others {
                break;
            }
            let Some(since) = conn.since() else { continue };
            if !out.asked.iter().take(found).any(|a| a.conn.key() == conn.key) {
                out.asked.push(Asked::new(conn, since));
            }
        }
    }

    fn conns(&self) -> MutexGuard<'_, Vec<Arc<Conn>>> {
        self.conns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_for_end(&self) {
        if !self.ended.swap(true, SeqCst) {
            self.kick.notify_one();
        }
    }

    fn asked_at(&self, ns: u64) {
        self.last_asked.store(ns, Relaxed);
        if self.in_flight.fetch_add(1, SeqCst) == 0 {
            self.oldest_since.store(ns, Relaxed);
        }
        if self.asleep.load(SeqCst) && self.asleep.swap(false, SeqCst) {
            self.kick.notify_one();
        }
    }
}

// === impl ConnStats ===

impl Conn {
    fn since(&self) -> Option<Stamp> {
        let since = self.unanswered_since.load(Relaxed);
        (since != 0).then(|| Stamp::from_nanos(since))
    }
}

impl Asked {
    fn new(conn: &Arc<Conn>, since: Stamp) -> Asked {
        let answers = conn.answers.load(Relaxed);
        Asked { conn: Question { conn: Arc::clone(conn), answers }, since }
    }
}

impl ConnStats {
    /// Request bytes were taken by the service's socket at `now`.
    pub fn sent(&self, now: Stamp) {
        let ns = now.as_nanos().max(1);
        self.conn.last_sent.store(ns, Relaxed);
        let unanswered = &self.conn.unanswered_since;
        if unanswered.load(Relaxed) == 0
            && !self.conn.ended.load(Relaxed)
            && unanswered.compare_exchange(0, ns, Relaxed, Relaxed).is_ok()
        {
            self.stats.asked_at(ns);
        }
    }

    /// Bytes were read from the service at `now`.
    pub fn received(&self, now: Stamp) {
        let ns = now.as_nanos();
        self.stats.last_progress.store(ns, Relaxed);
        if self.settle(ns) {
            self.conn.answers.fetch_add(1, Relaxed);
            self.stats.utility.fetch_add(1, Relaxed);
            let processing = now.since(Stamp::from_nanos(self.conn.last_sent.load(Relaxed)));
            self.stats.times.add(processing);
            self.stats
                .processing_us
                .store(u32::try_from(processing.as_micros()).unwrap_or(u32::MAX), Relaxed);
        }
    }

    /// The service ended the connection before we did, by FIN or, with `rst`, by RST. Wakes the sampling loop: it may be
    /// the first sign of a crash.
    pub fn ended_by_service(&self, now: Stamp, rst: bool) {
        let count = if rst { &self.stats.resets } else { &self.stats.fins };
        count.fetch_add(1, Relaxed);
        self.conn.ended.store(true, Relaxed);
        self.settle(now.as_nanos());
        self.stats.wake_for_end();
    }

    /// What was unanswered is no longer; false if nothing was.
    fn settle(&self, now: u64) -> bool {
        let unanswered = &self.conn.unanswered_since;
        // A load costs less than a swap where the service streams.
        let since = if unanswered.load(Relaxed) == 0 { 0 } else { unanswered.swap(0, Relaxed) };
        if since == 0 {
            return false;
        }
        self.stats.in_flight.fetch_sub(1, SeqCst);
        // The next oldest is found by the next walk; until then the age starts anew rather than lie.
        let _ = self.stats.oldest_since.compare_exchange(since, now.max(1), Relaxed, Relaxed);
        true
    }
}

impl Drop for ConnStats {
    fn drop(&mut self) {
        let last = self.conn.last_sent.load(Relaxed);
        self.settle(last);
        let mut conns = self.stats.conns();
        let slot = self.conn.slot.load(Relaxed);
        if slot < conns.len() {
            conns.swap_remove(slot);
            if let Some(moved) = conns.get(slot) {
                moved.slot.store(slot, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Stamp {
        Stamp::from_millis(n)
    }

    fn stats() -> Arc<ServiceStats> {
        ServiceStats::new("127.0.0.1:80".parse().unwrap())
    }

    fn local(port: u16) -> SocketAddr {
        ([127, 0, 0, 6], port).into()
    }

    #[test]
    fn a_turn_around_is_counted_and_timed() {
        let s = stats();
        let c = s.conn_opened(local(1));
        c.sent(ms(10));
        c.sent(ms(12));
        assert_eq!((s.in_flight(), s.oldest_unanswered(ms(15))), (1, Duration::from_millis(5)));
        c.received(ms(20));
        c.received(ms(21));
        assert_eq!((s.in_flight(), s.utility(), s.processing_us()), (0, 1, 8000));
        assert_eq!(s.oldest_unanswered(ms(25)), Duration::ZERO);
    }

    #[test]
    fn the_vouch_is_working_from_the_first_answer_byte_but_proof_stays() {
        let s = stats();
        let c = s.conn_opened(local(1));
        assert_eq!(s.vouch(), Vouch::Unknown);
        c.received(ms(5));
        assert_eq!(s.vouch(), Vouch::Working);
        s.publish(Vouch::Stalled, ms(6));
        assert_eq!(s.vouch(), Vouch::Stalled);
        c.received(ms(7));
        assert_eq!(s.vouch(), Vouch::Working);
        s.publish(Vouch::Gone, ms(6));
        assert_eq!(s.vouch(), Vouch::Gone);
    }

    #[test]
    fn a_walk_finds_the_oldest_and_then_others_in_turn() {
        let s = stats();
        let conns: Vec<_> = (0..20).map(|i| s.conn_opened(local(i))).collect();
        for (i, c) in conns.iter().enumerate() {
            c.sent(ms(100 - i as u64));
        }
        conns[19].received(ms(200));
        let mut w = Walk::default();
        s.walk(4, 3, 0, &mut w);
        let ports: Vec<u16> = w.asked.iter().map(|a| a.conn.local().port()).collect();
        assert_eq!((ports, w.unanswered, w.conns), (vec![18, 17, 16, 15, 0, 1, 2], 19, 20));
        assert_eq!(w.fresh, Some(ms(82)), "the oldest of all");
        w.fresh_from = ms(90);
        s.walk(4, 0, 0, &mut w);
        assert_eq!(w.fresh, Some(ms(90)), "the oldest that was not overtaken");
        w.fresh_from = ms(101);
        s.walk(4, 0, 0, &mut w);
        assert_eq!(w.fresh, None);
        s.walk(1, 2, 18, &mut w);
        let ports: Vec<u16> = w.asked.iter().map(|a| a.conn.local().port()).collect();
        assert_eq!(ports, [18, 0, 1]);
        assert_eq!(s.oldest_unanswered(ms(100)), Duration::from_millis(18));
    }

    #[test]
    fn dropping_and_ending_leave_nothing_behind() {
        let s = stats();
        let conns: Vec<_> = (0..5).map(|i| s.conn_opened(local(i))).collect();
        conns.iter().for_each(|c| c.sent(ms(1)));
        conns[2].ended_by_service(ms(2), true);
        conns[2].sent(ms(3));
        assert_eq!(s.in_flight(), 4);
        for c in conns.into_iter().rev() {
            drop(c);
        }
        assert_eq!((s.in_flight(), s.open_conns()), (0, 0));
        assert!(s.take_ended() && !s.take_ended());
    }

    #[test]
    fn handles_dropped_in_any_order_keep_their_slots() {
        let s = stats();
        let mut conns: Vec<_> = (0..10).map(|i| s.conn_opened(local(i))).collect();
        for at in [0, 3, 3, 6, 0] {
            conns.remove(at);
        }
        let mut left: Vec<u16> = s.conns().iter().map(|c| c.local.port()).collect();
        left.sort_unstable();
        let mut want: Vec<u16> = conns.iter().map(|c| c.conn.local.port()).collect();
        want.sort_unstable();
        assert_eq!(left, want);
    }

    #[test]
    fn activity_is_the_last_question_or_answer() {
        let s = stats();
        let c = s.conn_opened(local(1));
        assert_eq!(s.activity(), Activity::default());
        c.sent(ms(10));
        c.sent(ms(11));
        assert_eq!((s.activity().last_sign, s.activity().last_progress), (ms(10), Stamp::ZERO));
        c.received(ms(20));
        s.notes.announced(ms(21), ms(500), "gc");
        assert_eq!(
            s.activity(),
            Activity { last_sign: ms(20), last_progress: ms(20), paused_until: ms(500) }
        );
    }

    #[tokio::test]
    async fn only_the_first_question_after_sleep_kicks() {
        let s = stats();
        let c = s.conn_opened(local(1));
        let kicked = |s: &Arc<ServiceStats>| {
            let s = Arc::clone(s);
            async move { tokio::time::timeout(Duration::ZERO, s.kick.notified()).await.is_ok() }
        };
        assert!(s.sleep());
        c.sent(ms(1));
        assert!(kicked(&s).await);
        assert!(!s.sleep(), "something is unanswered");
        c.received(ms(2));
        c.sent(ms(3));
        assert!(!kicked(&s).await);
        c.ended_by_service(ms(4), false);
        c.ended_by_service(ms(4), false);
        assert!(kicked(&s).await);
        assert!(!kicked(&s).await);
        s.refused(ms(5));
        assert!(!kicked(&s).await, "the loop has not yet looked at the end before");
        assert!(s.is_refused());
        let _c2 = s.conn_opened(local(2));
        assert!(!s.is_refused());
    }
}
