//! Pure: no IO, no clock. The phi accrual detector (D6): `phi(t) = -log10(1 - F(t))`, F the normal distribution of the
//! gaps seen.
//!
//! Instead of phi at each instant it computes when phi reaches 1 (SUSPECT) and the threshold (FAILED): the gap's mean,
//! plus the acceptable pause, plus a quantile of the normal distribution times the deviation.

use std::time::Duration;

use super::gaps::{FIRST_WAIT, MIN_GAPS, Rule, Waits, Window, of_ns, signed_ns};
use super::normal::tail_quantile;
use crate::stamp::nanos;

/// phi that makes SUSPECT: one gap in ten is so long.
const SUSPECT_PHI: f64 = 1.0;

/// Parameters of `phi`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhiParams {
    /// phi that makes FAILED; default 8, at least 1.
    pub threshold: f64,
    /// Gaps that the distribution is taken over; default 1000, at least 5.
    pub window: u32,
    /// The deviation is taken to be at least this; default 10 ms.
    pub min_std: Duration,
    /// Added to the mean; default 0.
    pub pause: Duration,
}

impl Default for PhiParams {
    fn default() -> Self {
        PhiParams { threshold: 8.0, window: 1000, min_std: Duration::from_millis(10), pause: Duration::ZERO }
    }
}

/// The rule of `phi`.
#[derive(Clone, Debug)]
pub(super) struct Phi {
    min_std_ns: f64,
    pause: Duration,
    /// Deviations past the mean at which phi is 1, and the threshold.
    z: (f64, f64),
    gaps: Window,
    /// Sums of whole nanoseconds: exact however long the link lives.
    sum: i128,
    squares: i128,
}

impl Phi {
    pub(super) fn new(params: &PhiParams) -> Phi {
        Phi {
            min_std_ns: nanos(params.min_std) as f64,
            pause: params.pause,
            z: (tail_quantile(SUSPECT_PHI), tail_quantile(params.threshold)),
            gaps: Window::new(params.window),
            sum: 0,
            squares: 0,
        }
    }

    /// One gap leaves the sums, another enters; 0 stands for none.
    fn exchange(&mut self, out: i64, gap: i64) {
        let (out, gap) = (i128::from(out), i128::from(gap));
        self.sum += gap - out;
        self.squares += gap * gap - out * out;
    }

    /// Mean and deviation of the gaps, ns.
    fn spread(&self) -> (f64, f64) {
        let n = self.gaps.len() as i128;
        let variance = (n * self.squares - self.sum * self.sum) as f64 / (n * n) as f64;
        (self.sum as f64 / n as f64, variance.sqrt())
    }
}

impl Rule for Phi {
    fn learn(&mut self, gap: Duration, _promise: Duration) {
        let gap = signed_ns(gap);
        let out = self.gaps.push(gap);
        self.exchange(out.unwrap_or(0), gap);
    }

    fn unlearn(&mut self) {
        if let Some((gap, back)) = self.gaps.undo() {
            self.exchange(gap, back.unwrap_or(0));
        }
    }

    fn waits(&self, promise: Duration) -> Waits {
        if self.gaps.len() < MIN_GAPS {
            return Waits::timeout(FIRST_WAIT, promise);
        }
        let (mean, deviation) = self.spread();
        let deviation = deviation.max(self.min_std_ns);
        let at = |z: f64| self.pause.saturating_add(of_ns(mean + z * deviation));
        Waits::new(at(0.0), at(self.z.0), at(self.z.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detector::{Detector, Kind, Params};
    use crate::stamp::Stamp;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    fn after(gaps: &[u64], phi: PhiParams) -> (Box<dyn Detector>, Stamp) {
        let mut law = Params { phi, ..Params::of(Kind::Phi) }.build(ms(1000));
        let mut t = 1000;
        for gap in gaps {
            t += gap;
            law.heard(ms(t), Some(Duration::from_millis(20)));
        }
        (law, ms(t))
    }

    fn near(at: Stamp, from: Stamp, wanted_ms: f64) {
        assert!((at.millis_since(from) - wanted_ms).abs() < 0.002, "{} ms", at.millis_since(from));
    }

    #[test]
    fn mean_and_deviation_by_hand() {
        // Gaps 10, 20, 30, 40, 100: mean 40, mean square 2600, deviation sqrt(1000) = 31.6228.
        let (law, t) = after(&[10, 20, 30, 40, 100], PhiParams::default());
        near(law.deadline(), t, 40.0);
        near(law.suspect_at(), t, 40.0 + 1.281_551_6 * 31.622_777);
        near(law.fail_at(), t, 40.0 + 5.612_001_2 * 31.622_777);
    }

    #[test]
    fn the_deviation_has_a_floor_and_the_mean_a_pause() {
        let pause = Duration::from_millis(7);
        let (law, t) = after(&[16; 20], PhiParams { threshold: 3.0, pause, ..PhiParams::default() });
        near(law.deadline(), t, 23.0);
        near(law.suspect_at(), t, 23.0 + 12.815_516);
        near(law.fail_at(), t, 23.0 + 30.902_323);
    }

    #[test]
    fn a_second_until_there_are_five_gaps() {
        let (law, t) = after(&[10; 4], PhiParams::default());
        assert_eq!((law.suspect_at(), law.fail_at()), (t + FIRST_WAIT, t + FIRST_WAIT));
        let (law, t) = after(&[10; 5], PhiParams::default());
        near(law.fail_at(), t, 10.0 + 56.120_012);
    }

    #[test]
    fn the_window_forgets_exactly() {
        let mut gaps = vec![20_000, 3, 900];
        gaps.extend([16; 50]);
        let phi = PhiParams { window: 50, min_std: Duration::ZERO, ..PhiParams::default() };
        let (law, t) = after(&gaps, phi);
        near(law.fail_at(), t, 16.0);
        assert!(law.deadline() < law.suspect_at() && law.suspect_at() <= law.fail_at());
    }

    #[test]
    fn one_arrival_told_twice_is_one_gap() {
        let mut law = Params::of(Kind::Phi).build(ms(1000));
        for i in 1..=5 {
            law.heard(ms(1000 + 20 * i), None);
            law.heard(ms(1000 + 20 * i), Some(Duration::from_millis(20)));
        }
        near(law.deadline(), ms(1100), 20.0);
        assert_eq!(law.credits(), 5);
    }
}
