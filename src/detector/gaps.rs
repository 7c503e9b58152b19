//! Pure: no IO, no clock. What the baselines share. A [`Rule`] turns past arrivals into three waits; [`Waiting`] makes
//! a [`Detector`] of it, with the recovery, the backpressure and the excuses that every link needs.

use std::collections::VecDeque;
use std::f64::consts::LN_2;
use std::fmt;
use std::time::Duration;

use super::credit::Credit;
use super::promise::{LN_5, PROMISE_MIN};
use super::{Detector, OFF_DUTY, Params};
use crate::stamp::{Stamp, nanos};

/// Laws that learn from gaps know nothing with fewer than this.
pub(super) const MIN_GAPS: usize = 5;
/// Until then they wait so long.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest gap that statistics tell apart: it keeps every sum of squares exact.
const GAP_MAX: Duration = Duration::from_secs(3600);
/// Most gaps that are kept, whatever a caller asks for: 800 KB.
const WINDOW_MAX: usize = 100_000;
/// No wait is longer: stamps stay far from their end.
const WAIT_MAX: Duration = Duration::from_secs(86_400);
const TICK: Duration = Duration::from_nanos(1);

/// How long silence may last after an arrival: `due < suspect <= fail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    /// The next arrival is expected by then; doubt begins here.
    pub(super) due: Duration,
    /// SUSPECT.
    pub(super) suspect: Duration,
    /// FAILED.
    pub(super) fail: Duration,
}

impl Waits {
    /// Of a law with two levels. What is not in order gives way to the later wait.
    pub(super) fn new(due: Duration, suspect: Duration, fail: Duration) -> Waits {
        let fail = fail.clamp(TICK, WAIT_MAX);
        let suspect = suspect.clamp(TICK, fail);
        Waits { due: due.min(suspect - TICK), suspect, fail }
    }

    /// Of a law that only knows alive and dead: SUSPECT and FAILED come together.
    pub(super) fn single(due: Duration, fail: Duration) -> Waits {
        Waits::new(due, fail, fail)
    }

    /// Of a fixed time-out: doubt begins when the peer should have spoken, at half time at the latest.
    pub(super) fn timeout(timeout: Duration, promise: Duration) -> Waits {
        Waits::single(promise.min(timeout / 2), timeout)
    }

    /// What silence of `late` past `due` leaves of the score: 0.5 at SUSPECT, 0.2 at FAILED, straight in the logarithm
    /// between.
    fn decayed(&self, late: Duration) -> f64 {
        let past_due = |wait: Duration| wait.saturating_sub(self.due).as_secs_f64();
        let (late, suspect, fail) = (late.as_secs_f64(), past_due(self.suspect), past_due(self.fail));
        let log = if late < suspect {
            LN_2 * late / suspect
        } else if fail > suspect {
            LN_2 + (LN_5 - LN_2) * (late - suspect) / (fail - suspect)
        } else {
            LN_5 * late / fail.max(1e-9)
        };
        (-log).exp()
    }
}

/// A law over gaps between arrivals.
pub(super) trait Rule: Clone + fmt::Debug + Send + 'static {
    /// A gap ended that the peer had promised to end within `promise`.
    fn learn(&mut self, gap: Duration, promise: Duration);
    /// Takes back what was learned last, once.
    fn unlearn(&mut self);
    /// What the law waits for now.
    fn waits(&self, promise: Duration) -> Waits;
}

/// The latest gaps or lateness, ns, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Window {
    size: usize,
    kept: VecDeque<i64>,
    /// What the latest one pushed out.
    out: Option<i64>,
}

impl Window {
    /// An empty window; memory comes as it fills.
    pub(super) fn new(size: u32) -> Window {
        let size = usize::try_from(size).unwrap_or(WINDOW_MAX).clamp(MIN_GAPS, WINDOW_MAX);
        Window { size, kept: VecDeque::new(), out: None }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Adds one and returns the one that had to leave.
    pub(super) fn push(&mut self, ns: i64) -> Option<i64> {
        self.out = if self.kept.len() >= self.size { self.kept.pop_front() } else { None };
        self.kept.push_back(ns);
        self.out
    }

    /// Takes the latest one back, once, and returns it with the one that comes back for it.
    pub(super) fn undo(&mut self) -> Option<(i64, Option<i64>)> {
        let undone = self.kept.pop_back()?;
        let back = self.out.take();
        if let Some(ns) = back {
            self.kept.push_front(ns);
        }
        Some((undone, back))
    }
}

/// Nanoseconds for statistics: at most an hour.
pub(super) fn signed_ns(d: Duration) -> i64 {
    i64::try_from(nanos(d.min(GAP_MAX))).unwrap_or(i64::MAX)
}

/// A duration of computed nanoseconds; what is negative or no number is zero.
pub(super) fn of_ns(ns: f64) -> Duration {
    Duration::from_nanos(ns as u64)
}

/// A link off duty promises ten seconds and means it: between two such beats there is nothing to learn and nothing to
/// doubt, or every idle link beside the one on duty would fail.
pub(super) fn rests(promise: Duration) -> bool {
    promise >= OFF_DUTY
}

/// A [`Detector`] by a [`Rule`].
#[derive(Clone, Debug)]
pub(super) struct Waiting<R> {
    rule: R,
    waits: Waits,
    slack: Duration,
    last: Stamp,
    /// Silence counts from here: the latest arrival, moved by what is excused.
    from: Stamp,
    /// The waits count from here: `from`, or later because of backpressure or rest.
    origin: Stamp,
    /// The gap that is running is explained in part: it teaches nothing.
    explained: bool,
    /// The arrival whose gap was learned last.
    taught_at: Option<Stamp>,
    promise: Duration,
    hold: Stamp,
    credit: Credit,
}

impl<R: Rule> Waiting<R> {
    /// A detector that has just heard the peer.
    pub(super) fn new(rule: R, params: &Params, now: Stamp) -> Self {
        let promise = params.first_promise.max(PROMISE_MIN);
        let mut law = Waiting {
            waits: rule.waits(promise),
            rule,
            slack: params.slack,
            last: now,
            from: now,
            origin: now,
            explained: false,
            taught_at: None,
            promise,
            hold: Stamp::ZERO,
            credit: Credit::new(),
        };
        law.origin = law.start();
        law
    }

    fn start(&self) -> Stamp {
        let due = self.waits.due;
        let start = self.from.max(self.hold - due);
        if !rests(self.promise) {
            return start;
        }
        start.max(self.from + self.promise + self.slack - due)
    }

    fn arrive(&mut self, at: Stamp) {
        self.credit.fell_to(self.score(at));
        if !self.explained && !rests(self.promise) {
            self.rule.learn(at.since(self.from), self.promise);
            self.taught_at = Some(at);
        }
        self.explained = false;
        self.last = at;
        self.from = self.from.max(at);
    }

    fn check_invariants(&self) {
        let w = self.waits;
        debug_assert!((0.0..=1.0).contains(&self.credit.score()), "score out of range: {self:?}");
        debug_assert!(w.due < w.suspect && w.suspect <= w.fail, "waits out of order: {self:?}");
        debug_assert!(
            self.last <= self.from && self.from <= self.origin,
            "doubt before the arrival: {self:?}"
        );
    }
}

impl<R: Rule> Detector for Waiting<R> {
    fn heard(&mut self, at: Stamp, promise: Option<Duration>) {
        let at = at.max(self.last);
        let fresh = at > self.last;
        if fresh {
            self.arrive(at);
        }
        self.credit.earn(at);
        let promised = promise.map_or(self.promise, |p| p.max(PROMISE_MIN));
        if fresh || promised != self.promise {
            self.promise = promised;
            self.waits = self.rule.waits(promised);
        }
        self.origin = self.start();
        self.check_invariants();
    }

    fn set_rtt(&mut self, _rtt: Duration) {}

    fn deadline(&self) -> Stamp {
        self.origin + self.waits.due
    }

    fn suspect_at(&self) -> Stamp {
        self.origin + self.waits.suspect
    }

    fn fail_at(&self) -> Stamp {
        self.origin + self.waits.fail
    }

    fn score(&self, now: Stamp) -> f64 {
        let late = now.since(self.deadline());
        let stored = self.credit.score();
        if late.is_zero() { stored } else { stored.min(self.waits.decayed(late)) }
    }

    fn forgive(&mut self, now: Stamp) {
        if now > self.from {
            self.from = now;
            self.explained = true;
            self.origin = self.origin.max(self.start());
        }
    }

    fn excuse(&mut self, from: Stamp, to: Stamp) {
        let slept = to.since(from.max(self.deadline()));
        self.from = self.from + slept;
        self.origin = self.origin + slept;
    }

    fn unlearn(&mut self) {}

    fn hold(&mut self, at: Stamp, until: Stamp) {
        let at = at.max(self.last);
        self.credit.withdraw(at);
        self.credit.saturate(self.score(at));
        self.explained |= at > self.last;
        self.last = at;
        self.from = self.from.max(at);
        self.hold = until;
        self.origin = self.start();
        self.check_invariants();
    }

    fn held(&self, now: Stamp) -> bool {
        now < self.hold && now >= self.from + self.waits.fail
    }

    fn answered(&mut self) {
        if self.taught_at == Some(self.last) {
            self.taught_at = None;
            self.rule.unlearn();
            self.waits = self.rule.waits(self.promise);
            self.origin = self.start();
        }
    }

    fn peak(&self, _now: Stamp) -> Duration {
        Duration::ZERO
    }

    fn challenges(&self) -> bool {
        false
    }

    fn promise(&self) -> Duration {
        self.promise
    }

    fn last(&self) -> Stamp {
        self.last
    }

    fn credits(&self) -> u64 {
        self.credit.count()
    }

    fn credited_at(&self) -> Stamp {
        self.credit.at()
    }
}

#[cfg(test)]
#[path = "gaps_tests.rs"]
mod tests;
