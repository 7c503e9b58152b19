//! Pure: no IO, no clock. The stored score of a law and what raises it: life, one step at a time (H9).

use super::{FRAME_SPACING, FRAME_WORTH, SATURATED_FLOOR};
use crate::stamp::Stamp;

/// What arrivals have earned. Silence lowers it only when it ends: until then the law's own decay is a view over it.
#[derive(Clone, Debug)]
pub(super) struct Credit {
    score: f64,
    count: u64,
    at: Stamp,
    /// Score and time before the last credited arrival, for backpressure frames, which recover nothing.
    before: (f64, Stamp),
}

impl Credit {
    /// Full trust, nothing counted.
    pub(super) fn new() -> Self {
        Credit { score: 1.0, count: 0, at: Stamp::ZERO, before: (1.0, Stamp::ZERO) }
    }

    /// The stored score, 0 to 1.
    pub(super) fn score(&self) -> f64 {
        self.score
    }

    /// Arrivals that counted.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// When the last of them came.
    pub(super) fn at(&self) -> Stamp {
        self.at
    }

    /// A silence ended at this score.
    pub(super) fn fell_to(&mut self, score: f64) {
        self.score = score;
    }

    /// An arrival. Those closer together than 5 ms count once: a burst of queued frames after a stall is one sign.
    pub(super) fn earn(&mut self, at: Stamp) {
        if self.count > 0 && at < self.at + FRAME_SPACING {
            return;
        }
        self.before = (self.score, self.at);
        self.score = (self.score + FRAME_WORTH).min(1.0);
        self.at = at;
        self.count += 1;
    }

    /// The arrival at `at` was a backpressure frame: it is worth nothing.
    pub(super) fn withdraw(&mut self, at: Stamp) {
        if self.count > 0 && self.at == at {
            (self.score, self.at) = self.before;
            self.count -= 1;
        }
    }

    /// Fresh backpressure: the score is at least 0.7 (H11).
    pub(super) fn saturate(&mut self, score: f64) {
        self.score = score.max(SATURATED_FLOOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    #[test]
    fn a_fifth_per_arrival_and_a_burst_counts_once() {
        let mut credit = Credit::new();
        credit.fell_to(0.1);
        for t in [100, 101, 104, 105, 109, 110] {
            credit.earn(ms(t));
        }
        assert_eq!((credit.count(), credit.at()), (3, ms(110)));
        assert!((credit.score() - 0.7).abs() < 1e-12);
    }

    #[test]
    fn a_withdrawn_arrival_leaves_no_trace() {
        let mut credit = Credit::new();
        credit.fell_to(0.3);
        credit.earn(ms(10));
        credit.earn(ms(20));
        credit.withdraw(ms(20));
        assert_eq!((credit.count(), credit.at(), credit.score()), (1, ms(10), 0.5));
        credit.withdraw(ms(20));
        assert_eq!(credit.count(), 1, "it is taken back once");
        credit.saturate(credit.score());
        assert_eq!(credit.score(), SATURATED_FLOOR);
    }
}
