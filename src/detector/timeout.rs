//! Pure: no IO, no clock. The oldest law (D4): silence for a fixed time after the last arrival is death. In steps (T1, T4):
//! SUSPECT at the first missed interval, FAILED after N of them, and a buffer from what was measured.

use std::time::Duration;

use super::gaps::{MIN_GAPS, Rule, Waits, signed_ns};
use super::ranked::Ranked;

/// Gaps that the buffer is measured from.
const MEASURED: u32 = 1000;
/// The 99th percentile of the lateness times this is the buffer (T1).
const BUFFER_FACTOR: u32 = 2;

/// Parameters of `timeout` in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepParams {
    /// Expected time between two arrivals; None, the default: one fixed time-out instead.
    pub interval: Option<Duration>,
    /// Intervals in silence that are death; default 3 (T4: 1 s and 3 s), at least 1.
    pub misses: u32,
    /// Added to the intervals; None, the default: twice the 99th percentile of how far gaps went beyond the interval.
    pub buffer: Option<Duration>,
}

impl Default for StepParams {
    fn default() -> Self {
        StepParams { interval: None, misses: 3, buffer: None }
    }
}

/// The rule of `timeout`. With a fixed time SUSPECT and FAILED come together, and it learns nothing.
#[derive(Clone, Debug)]
pub(super) struct Timeout {
    after: Duration,
    steps: Option<Steps>,
}

#[derive(Clone, Debug)]
struct Steps {
    interval: Duration,
    misses: u32,
    buffer: Buffer,
}

#[derive(Clone, Debug)]
enum Buffer {
    Fixed(Duration),
    Measured(Ranked),
}

impl Timeout {
    pub(super) fn new(after: Duration, params: &StepParams) -> Timeout {
        let steps = params.interval.map(|interval| Steps {
            interval,
            misses: params.misses.max(1),
            buffer: params.buffer.map_or_else(|| Buffer::Measured(Ranked::new(MEASURED)), Buffer::Fixed),
        });
        Timeout { after, steps }
    }

    fn late(&mut self) -> Option<(Duration, &mut Ranked)> {
        match &mut self.steps {
            Some(Steps { interval, buffer: Buffer::Measured(late), .. }) => Some((*interval, late)),
            _ => None,
        }
    }
}

impl Steps {
    fn buffer(&self) -> Duration {
        match &self.buffer {
            Buffer::Fixed(buffer) => *buffer,
            // As unsure as a whole interval until something is known.
            Buffer::Measured(late) if late.len() < MIN_GAPS => self.interval,
            Buffer::Measured(late) => late.percentile(99).unwrap_or_default().saturating_mul(BUFFER_FACTOR),
        }
    }

    fn waits(&self) -> Waits {
        let buffer = self.buffer();
        let after = |misses: u32| self.interval.saturating_mul(misses).saturating_add(buffer);
        Waits::new(self.interval, after(1), after(self.misses))
    }
}

impl Rule for Timeout {
    fn learn(&mut self, gap: Duration, _promise: Duration) {
        if let Some((interval, late)) = self.late() {
            late.push(signed_ns(gap.saturating_sub(interval)));
        }
    }

    fn unlearn(&mut self) {
        if let Some((_, late)) = self.late() {
            late.undo();
        }
    }

    fn waits(&self, promise: Duration) -> Waits {
        match &self.steps {
            Some(steps) => steps.waits(),
            None => Waits::timeout(self.after, promise),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::detector::{Detector, Kind, Params, StepParams};
    use crate::stamp::Stamp;
    use std::time::Duration;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    fn law(timeout: u64) -> Box<dyn Detector> {
        let params = Params { timeout: Duration::from_millis(timeout), ..Params::of(Kind::Timeout) };
        params.build(ms(1000))
    }

    #[test]
    fn three_seconds_after_the_last_arrival_and_not_earlier() {
        let mut law = law(3000);
        for t in [1016, 1032, 1400] {
            law.heard(ms(t), Some(Duration::from_millis(20)));
        }
        assert_eq!(law.deadline(), ms(1420), "the promise says when the next frame is due");
        assert_eq!((law.suspect_at(), law.fail_at()), (ms(4400), ms(4400)));
        assert_eq!(law.score(ms(1420)), 1.0);
        assert!(law.score(ms(4399)) > 0.5 && law.score(ms(4400)) <= 0.2 + 1e-9);
    }

    #[test]
    fn a_timeout_below_the_promise_still_doubts_before_it_judges() {
        let mut law = law(27);
        law.heard(ms(1100), Some(Duration::from_millis(100)));
        assert_eq!(law.fail_at(), ms(1127));
        assert!(law.deadline() < law.suspect_at());
    }
    fn steps(misses: u32, buffer: Option<u64>) -> Box<dyn Detector> {
        let dur = Duration::from_millis;
        let steps = StepParams { interval: Some(dur(100)), misses, buffer: buffer.map(dur) };
        Params { steps, ..Params::of(Kind::Timeout) }.build(ms(1000))
    }

    #[test]
    fn the_first_miss_is_doubted_and_the_last_one_is_death() {
        let mut law = steps(3, Some(20));
        law.heard(ms(1100), Some(Duration::from_millis(20)));
        assert_eq!((law.deadline(), law.suspect_at(), law.fail_at()), (ms(1200), ms(1220), ms(1420)));
        assert!(law.score(ms(1219)) > 0.5 && law.score(ms(1221)) < 0.5);
        assert!(law.score(ms(1419)) > 0.2 && law.score(ms(1420)) <= 0.2 + 1e-9);
        assert_eq!(steps(3, Some(0)).suspect_at(), ms(1100), "nothing is added where nothing is asked for");
        let one = steps(1, Some(20));
        assert_eq!((one.suspect_at(), one.fail_at()), (ms(1120), ms(1120)), "one miss is both");
    }

    #[test]
    fn the_buffer_is_twice_what_99_of_100_arrivals_were_late() {
        let mut law = steps(3, None);
        assert_eq!((law.suspect_at(), law.fail_at()), (ms(1200), ms(1400)), "an interval until it is known");
        let mut t = 1000;
        // 10 ms late each fifth time, and once 70 ms: of 100 gaps that one does not count, of 50 it would.
        for i in 0..100 {
            t += match i {
                40 => 170,
                _ if i % 5 == 0 => 110,
                _ => 100,
            };
            law.heard(ms(t), None);
        }
        assert_eq!((law.suspect_at(), law.fail_at()), (ms(t + 120), ms(t + 320)));
        law.heard(ms(t + 200), None);
        assert_eq!(law.suspect_at(), ms(t + 200 + 240), "twice 70 ms: two of 101 were later than 10 ms");
        law.answered();
        assert_eq!(law.suspect_at(), ms(t + 200 + 120), "an answer to a question is no sample of its rhythm");
    }

    #[test]
    fn dense_traffic_needs_no_buffer() {
        let mut law = steps(3, None);
        for i in 1..=20 {
            law.heard(ms(1000 + 5 * i), None);
        }
        assert_eq!((law.suspect_at(), law.fail_at()), (ms(1200), ms(1400)));
    }

    #[test]
    fn absurd_steps_keep_their_order() {
        let steps =
            StepParams { interval: Some(Duration::MAX), misses: u32::MAX, buffer: Some(Duration::MAX) };
        for steps in
            [steps, StepParams { misses: 0, interval: Some(Duration::ZERO), ..StepParams::default() }]
        {
            let mut law = Params { steps, ..Params::of(Kind::Timeout) }.build(ms(1000));
            law.heard(ms(2000), None);
            assert!(law.deadline() < law.suspect_at() && law.suspect_at() <= law.fail_at(), "{law:?}");
        }
    }
}
