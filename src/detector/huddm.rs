//! Pure: no IO, no clock. The published law, kept faithfully (rows H7 to H10): silence against an average of gaps.

use std::time::Duration;

use super::gaps::rests;
use super::promise::{PROMISE_MIN, millis};
use super::{Detector, FAILED_BELOW, FRAME_WORTH, Params, SATURATED_FLOOR, SUSPECT_BELOW};
use crate::stamp::Stamp;

/// Share of the score that one tick leaves (H8).
const TICK: f64 = 0.9;
/// Expected arrival: this many estimated intervals after the last frame (H7).
const MARGIN: f64 = 1.2;
/// First estimate, ms (H7).
const FIRST_ESTIMATE_MS: f64 = 10.0;
/// Gaps count as at least this, so that a burst does not shrink the estimate to nothing, ms (H7).
const GAP_FLOOR_MS: f64 = 1.0;
/// Doubt comes after the expected arrival, not with it.
const AFTER: Duration = Duration::from_nanos(1);

/// When the decay starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// At the expected arrival (H8).
    Tick,
    /// A whole estimated interval after it (H10).
    Miss,
}

/// The `huddm` detector.
#[derive(Clone, Debug)]
pub struct Huddm {
    decay: Decay,
    slack: Duration,
    estimate_ms: f64,
    /// The estimate before the latest gap.
    before_ms: f64,
    /// The peer's, in force. Only one of a link off duty means something to this law.
    promise: Duration,
    base: f64,
    /// Where the next gap is measured from: the latest arrival, moved by excused silence.
    counted_from: Stamp,
    last: Stamp,
    expected: Stamp,
    hold: Stamp,
    credits: u64,
    uncredited: f64,
}

impl Huddm {
    /// A detector that has just heard the peer.
    pub fn new(decay: Decay, params: &Params, now: Stamp) -> Self {
        let mut law = Huddm {
            decay,
            slack: params.slack,
            estimate_ms: FIRST_ESTIMATE_MS,
            before_ms: FIRST_ESTIMATE_MS,
            promise: params.first_promise,
            base: 1.0,
            counted_from: now,
            last: now,
            expected: now,
            hold: Stamp::ZERO,
            credits: 0,
            uncredited: 1.0,
        };
        law.expected = law.expected_after(now);
        law
    }

    fn estimate(&self) -> Duration {
        Duration::from_secs_f64(self.estimate_ms / 1e3)
    }

    fn expected_after(&self, at: Stamp) -> Stamp {
        self.unheld_after(at).max(self.hold)
    }

    fn unheld_after(&self, at: Stamp) -> Stamp {
        let expected = at + self.estimate().mul_f64(MARGIN);
        if rests(self.promise) { expected.max(at + self.promise + self.slack) } else { expected }
    }

    fn promised(&mut self, promise: Option<Duration>) {
        let promise = promise.map_or(self.promise, |p| p.max(PROMISE_MIN));
        if promise != self.promise {
            self.promise = promise;
            self.expected = self.expected_after(self.counted_from);
        }
    }

    fn decays_from(&self) -> Stamp {
        match self.decay {
            Decay::Tick => self.expected,
            Decay::Miss => self.expected + self.estimate(),
        }
    }

    /// First whole tick at which the score is at or below `limit`.
    fn crosses(&self, limit: f64) -> Stamp {
        let soonest = self.expected + AFTER;
        if self.base < limit {
            return soonest;
        }
        let ticks = ((limit / self.base).ln() / TICK.ln()).ceil().max(0.0);
        soonest.max(self.decays_from() + Duration::from_millis(ticks as u64))
    }
}

impl Detector for Huddm {
    fn heard(&mut self, at: Stamp, promise: Option<Duration>) {
        if at <= self.last && self.credits > 0 {
            return self.promised(promise);
        }
        self.last = at;
        let at = at.max(self.counted_from);
        self.uncredited = self.score(at);
        self.base = (self.uncredited + FRAME_WORTH).min(1.0);
        self.before_ms = self.estimate_ms;
        if !rests(self.promise) {
            let gap = millis(at.since(self.counted_from)).max(GAP_FLOOR_MS);
            self.estimate_ms = 0.9 * self.estimate_ms + 0.1 * gap;
        }
        self.counted_from = at;
        self.credits += 1;
        self.expected = self.expected_after(at);
        self.promised(promise);
        debug_assert!((0.0..=1.0).contains(&self.base), "score out of range: {self:?}");
    }

    fn set_rtt(&mut self, _rtt: Duration) {}

    fn deadline(&self) -> Stamp {
        self.expected
    }

    fn suspect_at(&self) -> Stamp {
        self.crosses(SUSPECT_BELOW)
    }

    fn fail_at(&self) -> Stamp {
        self.crosses(FAILED_BELOW)
    }

    fn score(&self, now: Stamp) -> f64 {
        let ticks = millis(now.since(self.decays_from())).floor();
        if ticks <= 0.0 { self.base } else { self.base * TICK.powf(ticks) }
    }

    fn forgive(&mut self, now: Stamp) {
        self.counted_from = self.counted_from.max(now);
        self.expected = self.expected.max(self.expected_after(now));
    }

    fn excuse(&mut self, from: Stamp, to: Stamp) {
        let slept = to.since(from.max(self.expected));
        self.expected = self.expected + slept;
        self.counted_from = self.counted_from + slept;
    }

    fn unlearn(&mut self) {}

    fn hold(&mut self, at: Stamp, until: Stamp) {
        let at = at.max(self.counted_from);
        if self.credits > 0 && self.last == at {
            self.base = self.uncredited;
            self.credits -= 1;
        }
        self.last = at;
        self.base = self.score(at).max(SATURATED_FLOOR);
        self.counted_from = at;
        self.hold = until;
        self.expected = self.expected_after(at);
    }

    fn held(&self, now: Stamp) -> bool {
        let ahead = self.expected.since(self.unheld_after(self.counted_from));
        now < self.hold && now + ahead >= self.fail_at()
    }

    fn answered(&mut self) {
        self.estimate_ms = self.before_ms;
        self.expected = self.expected_after(self.counted_from);
    }

    fn peak(&self, _now: Stamp) -> Duration {
        Duration::ZERO
    }

    fn challenges(&self) -> bool {
        false
    }

    fn promise(&self) -> Duration {
        self.estimate()
    }

    fn last(&self) -> Stamp {
        self.last
    }

    fn credits(&self) -> u64 {
        self.credits
    }

    fn credited_at(&self) -> Stamp {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    fn new(decay: Decay, now: Stamp) -> Huddm {
        Huddm::new(decay, &Params::default(), now)
    }

    fn steady(decay: Decay) -> (Huddm, u64) {
        let mut law = new(decay, ms(1000));
        let mut t = 1000;
        for _ in 0..200 {
            t += 10;
            law.heard(ms(t), None);
        }
        (law, t)
    }

    #[test]
    fn first_estimate_is_ten_and_expects_at_twelve() {
        let law = new(Decay::Tick, ms(1000));
        assert_eq!(law.deadline(), ms(1012));
        assert!((law.score(ms(1012)) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn sixteen_ticks_to_failed() {
        let (law, t) = steady(Decay::Tick);
        assert!((law.estimate_ms - 10.0).abs() < 1e-6);
        assert!((millis(law.fail_at().since(ms(t))) - 28.0).abs() < 0.01);
        assert!((millis(law.suspect_at().since(ms(t))) - 19.0).abs() < 0.01);
        assert!(law.score(law.fail_at() + Duration::from_micros(10)) <= 0.2);
    }

    #[test]
    fn per_miss_waits_one_more_interval() {
        let (law, t) = steady(Decay::Miss);
        assert!((millis(law.fail_at().since(ms(t))) - 38.0).abs() < 0.01);
    }

    #[test]
    fn a_burst_does_not_shrink_the_estimate_below_the_floor() {
        let mut law = new(Decay::Tick, ms(0));
        for i in 0..1000u64 {
            law.heard(Stamp::from_nanos(i * 1000), None);
        }
        assert!(law.estimate_ms > 0.99, "{}", law.estimate_ms);
    }

    #[test]
    fn one_late_frame_does_not_undo_failed() {
        let (mut law, t) = steady(Decay::Tick);
        law.heard(ms(t + 60), None);
        assert!(law.score(ms(t + 60)) < SUSPECT_BELOW);
    }

    #[test]
    fn one_arrival_counts_once_and_time_backwards_is_ignored() {
        let (mut law, t) = steady(Decay::Tick);
        let before = law.clone();
        law.heard(ms(t), None);
        law.heard(ms(t - 500), None);
        assert_eq!(law.credits(), before.credits());
        assert_eq!(law.deadline(), before.deadline());
    }

    #[test]
    fn backpressure_holds_and_then_decay_resumes() {
        let (mut law, t) = steady(Decay::Tick);
        law.hold(ms(t + 20), ms(t + 120));
        assert!(law.score(ms(t + 119)) >= SATURATED_FLOOR);
        assert!(law.held(ms(t + 80)));
        assert!(law.score(ms(t + 160)) < FAILED_BELOW);
    }
}
