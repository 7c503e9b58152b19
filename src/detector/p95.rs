//! Pure: no IO, no clock. A time-out that follows the traffic (T3): the 95th percentile of the last gaps times a factor.
//!
//! The source states it for response times; a link has arrivals, so it takes the gaps between them.

use std::time::Duration;

use super::gaps::{FIRST_WAIT, MIN_GAPS, Rule, Waits, of_ns, signed_ns};
use super::ranked::Ranked;
use crate::stamp::nanos;

/// A burst does not shrink the percentile to nothing, as in H7.
const GAP_FLOOR: Duration = Duration::from_millis(1);

/// Parameters of `p95`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct P95Params {
    /// The percentile times this is the time-out; default 1.8 (T3).
    pub factor: f64,
    /// Gaps that are looked at; default 30 (T3), at least 5.
    pub window: u32,
}

impl Default for P95Params {
    fn default() -> Self {
        P95Params { factor: 1.8, window: 30 }
    }
}

/// The rule of `p95`. SUSPECT and FAILED come together.
#[derive(Clone, Debug)]
pub(super) struct P95 {
    factor: f64,
    gaps: Ranked,
}

impl P95 {
    pub(super) fn new(params: &P95Params) -> P95 {
        P95 { factor: params.factor, gaps: Ranked::new(params.window) }
    }
}

impl Rule for P95 {
    fn learn(&mut self, gap: Duration, _promise: Duration) {
        self.gaps.push(signed_ns(gap));
    }

    fn unlearn(&mut self) {
        self.gaps.undo();
    }

    fn waits(&self, promise: Duration) -> Waits {
        match self.gaps.percentile(95).filter(|_| self.gaps.len() >= MIN_GAPS) {
            Some(p95) => {
                let p95 = p95.max(GAP_FLOOR);
                let fail = nanos(p95) as f64 * self.factor.max(1.0);
                Waits::single(p95, of_ns(fail))
            }
            None => Waits::timeout(FIRST_WAIT, promise),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::detector::{Detector, Kind, P95Params, Params};
    use crate::stamp::Stamp;
    use std::time::Duration;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    fn after(gaps: impl IntoIterator<Item = u64>, p95: P95Params) -> (Box<dyn Detector>, u64) {
        let mut law = Params { p95, ..Params::of(Kind::P95) }.build(ms(1000));
        let mut t = 1000;
        for gap in gaps {
            t += gap;
            law.heard(ms(t), Some(Duration::from_millis(20)));
        }
        (law, t)
    }

    #[test]
    fn the_29th_of_30_times_1_8() {
        // 10, 20, ... 300 ms in an odd order: rank ceil(0.95 x 30) = 29 is 290 ms, times 1.8 is 522 ms.
        let gaps = (0..30).map(|i| (i * 7 % 30 + 1) * 10);
        let (law, t) = after(gaps, P95Params::default());
        assert_eq!(law.deadline(), ms(t + 290));
        assert_eq!((law.suspect_at(), law.fail_at()), (ms(t + 522), ms(t + 522)));
    }

    #[test]
    fn the_oldest_gap_leaves() {
        // Five gaps: rank ceil(4.75) = 5, the largest. The 500 is the first of six and gone.
        let (law, t) = after([500, 10, 20, 30, 40, 50], P95Params { factor: 2.0, window: 5 });
        assert_eq!(law.fail_at(), ms(t + 100));
    }

    #[test]
    fn a_second_until_there_are_five_gaps() {
        let (law, t) = after([10, 10, 10, 10], P95Params::default());
        assert_eq!((law.suspect_at(), law.fail_at()), (ms(t + 1000), ms(t + 1000)));
        let (law, t) = after([10, 10, 10, 10, 10], P95Params::default());
        assert_eq!(law.fail_at(), ms(t + 18));
    }

    #[test]
    fn a_burst_leaves_a_millisecond() {
        let mut law = Params::of(Kind::P95).build(ms(1000));
        for i in 1..=40 {
            law.heard(ms(1000) + Duration::from_micros(i), None);
        }
        assert_eq!(law.fail_at(), law.last() + Duration::from_micros(1800));
    }
}
