//! Pure: no IO, no clock. The default law: silence is a broken promise (detection.md section 2).

use std::f64::consts::LN_2;
use std::time::Duration;

use super::credit::Credit;
use super::{Detector, EPSILON, Params};
use crate::stamp::{Stamp, faded, nanos};

/// ln 5: the score 0.2 in time constants.
pub(super) const LN_5: f64 = 1.609_437_912_434_100_3;
/// FAILED waits for the learned lateness times this.
const PEAK_MARGIN: f64 = 1.2;
/// Share of a promise that is left when its beat is due (detection.md section 2, idea 1).
const BEAT_EARLY: f64 = 0.2;
/// The least promise a peer can make.
pub(super) const PROMISE_MIN: Duration = Duration::from_millis(1);

/// The longest lateness seen, fading.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    late: Duration,
    at: Stamp,
}

impl Peak {
    fn faded(&self, now: Stamp, half_life: Duration) -> Duration {
        faded(self.late, self.at, now, half_life)
    }
}

/// The `promise` detector: doubt starts at `last + promise + slack`; SUSPECT comes fast, FAILED waits for the
/// lateness this path has shown before.
#[derive(Clone, Debug)]
pub struct Promise {
    tau_min: Duration,
    learn_max: Duration,
    half_life: Duration,
    slack: Duration,
    tau: Duration,
    /// Lateness at which doubt becomes SUSPECT, and the least that makes FAILED: both follow from tau.
    suspect_after: Duration,
    fail_fast: Duration,
    last: Stamp,
    promise: Duration,
    deadline: Stamp,
    hold: Stamp,
    credit: Credit,
    peak: Peak,
    before_peak: Peak,
    noise: Duration,
}

impl Promise {
    /// A detector that has just heard the peer and assumes `params.first_promise`.
    pub fn new(params: &Params, now: Stamp) -> Self {
        Promise {
            tau_min: params.tau_min,
            learn_max: params.learn_max,
            half_life: params.half_life,
            slack: params.slack,
            tau: params.tau_min,
            suspect_after: params.tau_min.mul_f64(LN_2),
            fail_fast: params.tau_min.mul_f64(LN_5),
            last: now,
            promise: params.first_promise,
            deadline: now + params.first_promise + params.slack,
            hold: Stamp::ZERO,
            credit: Credit::new(),
            peak: Peak::default(),
            before_peak: Peak::default(),
            noise: Duration::ZERO,
        }
    }

    /// Doubt starts at `deadline`, whatever was promised.
    pub fn arm(&mut self, deadline: Stamp) {
        self.deadline = deadline;
    }

    /// Nothing is expected until the next [`Promise::arm`] or sign of life.
    pub fn disarm(&mut self) {
        self.deadline = Stamp::NEVER;
    }

    /// The least silence past a deadline that makes FAILED.
    pub fn fail_fast(&self) -> Duration {
        self.fail_fast
    }

    /// Silence past the deadline that makes FAILED: max(1.61 tau0, min(1.2 peak, learn_max)), and what both loops are
    /// known to be late by.
    fn fail_after(&self) -> Duration {
        let fast = self.fail_fast.max(self.noise_after());
        if self.peak.late.mul_f64(PEAK_MARGIN) <= fast {
            return fast;
        }
        let peak = self.peak.faded(self.deadline, self.half_life).mul_f64(PEAK_MARGIN);
        fast.max(peak.min(self.learn_max))
    }

    /// A beat leaves at 0.8 of its promise: that much lateness breaks no promise.
    fn noise_after(&self) -> Duration {
        if self.noise.is_zero() {
            return Duration::ZERO;
        }
        self.noise.saturating_sub(self.promise.mul_f64(BEAT_EARLY) + self.slack).min(self.learn_max)
    }

    fn decayed(&self, late: Duration) -> f64 {
        let tau = self.tau.as_secs_f64().max(1e-9);
        let x = late.as_secs_f64() / tau;
        if x <= LN_2 {
            return (-x).exp();
        }
        let fail = (self.fail_after().as_secs_f64() / tau).max(LN_5);
        let slope = (LN_5 - LN_2) / (fail - LN_2);
        (-LN_2 - (x - LN_2) * slope).exp()
    }

    fn learn(&mut self, late: Duration, at: Stamp) {
        if late <= self.learn_max && late > self.peak.faded(at, self.half_life) {
            self.before_peak = self.peak;
            self.peak = Peak { late, at };
        }
    }

    fn check_invariants(&self) {
        debug_assert!((0.0..=1.0).contains(&self.credit.score()), "score out of range: {self:?}");
        debug_assert!(self.peak.late <= self.learn_max, "an outage was learned: {self:?}");
        debug_assert!(self.suspect_at() <= self.fail_at(), "FAILED before SUSPECT: {self:?}");
        debug_assert!(self.credit.at() <= self.last, "credit without an arrival: {self:?}");
    }
}

impl Detector for Promise {
    fn heard(&mut self, at: Stamp, promise: Option<Duration>) {
        let at = at.max(self.last);
        let late = at.since(self.deadline);
        if !late.is_zero() {
            self.credit.fell_to(self.score(at));
            self.learn(late, at);
        }
        self.credit.earn(at);
        self.last = at;
        if let Some(promise) = promise {
            self.promise = promise.max(PROMISE_MIN);
        }
        self.deadline = (at + self.promise).max(self.hold) + self.slack;
        self.check_invariants();
    }

    fn set_rtt(&mut self, rtt: Duration) {
        let tau = self.tau_min.max(rtt.saturating_mul(3));
        if tau != self.tau {
            self.tau = tau;
            (self.suspect_after, self.fail_fast) = (tau.mul_f64(LN_2), tau.mul_f64(LN_5));
        }
    }

    fn deadline(&self) -> Stamp {
        self.deadline
    }

    fn suspect_at(&self) -> Stamp {
        self.deadline + self.suspect_after
    }

    fn fail_at(&self) -> Stamp {
        self.deadline + self.fail_after()
    }

    fn score(&self, now: Stamp) -> f64 {
        let late = now.since(self.deadline);
        let stored = self.credit.score();
        if late.is_zero() { stored } else { stored.min(self.decayed(late)) }
    }

    fn forgive(&mut self, now: Stamp) {
        self.deadline = self.deadline.max(now + self.promise + self.slack);
    }

    fn excuse(&mut self, from: Stamp, to: Stamp) {
        self.deadline = self.deadline + to.since(from.max(self.deadline));
    }

    fn inherit(&mut self, now: Stamp, peak: Duration) {
        self.learn(peak.min(self.learn_max), now);
    }

    fn set_noise(&mut self, noise: Duration) {
        self.noise = noise;
    }

    fn unlearn(&mut self) {
        self.peak = self.before_peak;
    }

    fn hold(&mut self, at: Stamp, until: Stamp) {
        let at = at.max(self.last);
        self.credit.withdraw(at);
        self.credit.saturate(self.score(at));
        self.last = at;
        self.hold = until;
        self.deadline = (at + self.promise).max(until) + self.slack;
        self.check_invariants();
    }

    fn held(&self, now: Stamp) -> bool {
        now < self.hold && now >= self.last + self.promise + self.slack + self.fail_after()
    }

    fn peak(&self, now: Stamp) -> Duration {
        self.peak.faded(now, self.half_life)
    }

    fn challenges(&self) -> bool {
        true
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

/// Whether `score` has reached `limit`, forgiving the rounding of sums of 0.2.
pub(crate) fn reached(score: f64, limit: f64) -> bool {
    score + EPSILON >= limit
}

/// Milliseconds as a float, for laws stated in milliseconds.
pub(crate) fn millis(d: Duration) -> f64 {
    nanos(d) as f64 / 1e6
}

#[cfg(test)]
#[path = "promise_tests.rs"]
mod tests;
