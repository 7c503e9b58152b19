//! Pure: no IO, no clock. The expected-arrival detector of Chen, Toueg and Aguilera (2002), as far as a link allows it.
//!
//! NFD-E expects heartbeat k at the mean of (arrival - sending time) over a window, plus the sending time of k, and
//! waits `alpha` longer. Its sending times are `k x interval`. Frames of a link come at no fixed interval, and no clock
//! is shared; what is known of the next sending time is the promise: at the latest one promise after this frame. So
//! the window holds how early or late each arrival was against the promise before it, and
//!
//! ```text
//! expected = last + promise + mean(gap - promise before it)         FAILED at expected + alpha
//! ```
//!
//! With a fixed promise, which is NFD-E's case, this is the last arrival plus the mean gap.

use std::time::Duration;

use super::gaps::{Rule, Waits, Window, of_ns, signed_ns};

/// Parameters of `chen`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChenParams {
    /// Waits so much longer than the expected arrival; default 50 ms.
    pub alpha: Duration,
    /// Arrivals that the mean is taken over; default 1000, at least 5.
    pub window: u32,
}

impl Default for ChenParams {
    fn default() -> Self {
        ChenParams { alpha: Duration::from_millis(50), window: 1000 }
    }
}

/// The rule of `chen`. SUSPECT and FAILED come together: the law knows trust and distrust.
#[derive(Clone, Debug)]
pub(super) struct Chen {
    alpha: Duration,
    /// Gap less promise, ns: negative where the peer spoke early.
    late: Window,
    sum: i128,
}

impl Chen {
    pub(super) fn new(params: &ChenParams) -> Chen {
        Chen { alpha: params.alpha, late: Window::new(params.window), sum: 0 }
    }
}

impl Rule for Chen {
    fn learn(&mut self, gap: Duration, promise: Duration) {
        let late = signed_ns(gap) - signed_ns(promise);
        self.sum += i128::from(late) - i128::from(self.late.push(late).unwrap_or(0));
    }

    fn unlearn(&mut self) {
        if let Some((late, back)) = self.late.undo() {
            self.sum -= i128::from(late) - i128::from(back.unwrap_or(0));
        }
    }

    fn waits(&self, promise: Duration) -> Waits {
        let mean = self.sum as f64 / self.late.len().max(1) as f64;
        let expected = of_ns(signed_ns(promise) as f64 + mean);
        Waits::single(expected, expected.saturating_add(self.alpha))
    }
}

#[cfg(test)]
mod tests {
    use crate::detector::{ChenParams, Detector, Kind, Params};
    use crate::stamp::Stamp;
    use std::time::Duration;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    fn dur(x: u64) -> Duration {
        Duration::from_millis(x)
    }

    fn law(window: u32) -> Box<dyn Detector> {
        let chen = ChenParams { window, ..ChenParams::default() };
        Params { chen, ..Params::of(Kind::Chen) }.build(ms(1000))
    }

    #[test]
    fn with_a_fixed_promise_it_is_the_mean_gap() {
        let mut law = law(1000);
        law.heard(ms(1000), Some(dur(100)));
        for t in [1080, 1150, 1260, 1320] {
            law.heard(ms(t), Some(dur(100)));
        }
        // Gaps 80, 70, 110, 60: mean 80.
        assert_eq!(law.deadline(), ms(1400));
        assert_eq!((law.suspect_at(), law.fail_at()), (ms(1450), ms(1450)));
    }

    #[test]
    fn a_new_promise_moves_the_expected_arrival() {
        let mut law = law(1000);
        law.heard(ms(1000), Some(dur(20)));
        for i in 1..=10 {
            law.heard(ms(1000 + 16 * i), Some(dur(if i == 10 { 100 } else { 20 })));
        }
        // Each came 4 ms before its promise; the next is promised within 100.
        assert_eq!(law.deadline(), ms(1160 + 96));
        assert_eq!(law.fail_at(), ms(1160 + 146));
    }

    #[test]
    fn the_window_forgets() {
        let mut law = law(5);
        law.heard(ms(1000), Some(dur(20)));
        let mut t = 1000;
        for gap in [900, 16, 16, 16, 16, 16] {
            t += gap;
            law.heard(ms(t), Some(dur(20)));
        }
        assert_eq!(law.fail_at(), ms(t + 66));
    }

    #[test]
    fn nothing_is_expected_before_the_last_arrival() {
        let mut law = law(1000);
        law.heard(ms(1000), Some(dur(1000)));
        for i in 1..=9 {
            law.heard(ms(1000 + i), Some(dur(1000)));
        }
        law.heard(ms(1010), Some(dur(20)));
        assert_eq!((law.deadline(), law.fail_at()), (ms(1010), ms(1060)));
    }
}
