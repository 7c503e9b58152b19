//! Pure: no IO, no clock. Intervals in which something stands still: a path that is blocked, a process that sleeps.

use std::collections::VecDeque;

use super::rng::{Rng, ms};
use crate::stamp::Stamp;

/// How often the intervals come and how long they last, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// From the end of one to the begin of the next: at random with this mean, or always this.
    pub every: Every,
    /// Shortest.
    pub min: f64,
    /// Longest.
    pub max: f64,
}

/// See [`Spec::every`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// Exponential with this mean, ms.
    Mean(f64),
    /// Always this, ms.
    Fixed(f64),
}

/// So many intervals that are over are still known: nothing looks back further than a second.
const KEEP: usize = 512;

/// The intervals of one run, made up as time goes on and forgotten behind it.
#[derive(Clone, Debug)]
pub struct Gaps {
    spec: Option<Spec>,
    rng: Rng,
    known: VecDeque<(Stamp, Stamp)>,
    until: Stamp,
}

impl Gaps {
    /// Intervals after `start`; none without a spec.
    pub fn new(spec: Option<Spec>, start: Stamp, rng: Rng) -> Gaps {
        Gaps { spec, rng, known: VecDeque::new(), until: start }
    }

    /// The interval that `t` lies in: from its begin up to, but without, its end.
    pub fn at(&mut self, t: Stamp) -> Option<(Stamp, Stamp)> {
        let spec = self.spec?;
        if t == Stamp::NEVER {
            return None;
        }
        while self.known.back().is_none_or(|g| g.0 <= t) {
            self.extend(spec);
        }
        let after = self.known.partition_point(|g| g.0 <= t);
        let gap = *self.known.get(after.checked_sub(1)?)?;
        (t < gap.1).then_some(gap)
    }

    /// `t`, or the end of the interval that it lies in.
    pub fn delay(&mut self, t: Stamp) -> Stamp {
        self.at(t).map_or(t, |gap| gap.1)
    }

    /// The first interval that ends after `t`; None without a spec.
    pub fn next(&mut self, t: Stamp) -> Option<(Stamp, Stamp)> {
        let spec = self.spec?;
        while self.known.back().is_none_or(|g| g.1 <= t) {
            self.extend(spec);
        }
        let index = self.known.partition_point(|g| g.1 <= t);
        self.known.get(index).copied()
    }

    fn extend(&mut self, spec: Spec) {
        let pause = match spec.every {
            Every::Mean(mean) => self.rng.exp(mean),
            Every::Fixed(time) => time,
        };
        let from = self.until + ms(pause);
        self.until = from + ms(self.rng.uniform(spec.min, spec.max));
        self.known.push_back((from, self.until));
        if self.known.len() > KEEP {
            self.known.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Stamp {
        Stamp::from_millis(ms)
    }

    #[test]
    fn fixed_intervals_lie_where_they_must() {
        let spec = Spec { every: Every::Fixed(100.0), min: 50.0, max: 50.0 };
        let mut gaps = Gaps::new(Some(spec), at(1000), Rng::new(1));
        for (t, want) in [(1099, 1099), (1100, 1150), (1149, 1150), (1150, 1150), (1250, 1300)] {
            assert_eq!(gaps.delay(at(t)), at(want), "{t}");
        }
        assert_eq!(gaps.at(at(1260)), Some((at(1250), at(1300))));
        assert_eq!(gaps.delay(Stamp::NEVER), Stamp::NEVER);
        assert_eq!(gaps.next(at(1150)), Some((at(1250), at(1300))));
        assert_eq!(gaps.next(at(1299)), Some((at(1250), at(1300))));
        assert_eq!(gaps.next(at(1300)), Some((at(1400), at(1450))));
    }

    #[test]
    fn the_same_seed_gives_the_same_intervals_whoever_asks_how() {
        let spec = Spec { every: Every::Mean(20_000.0), min: 300.0, max: 350.0 };
        let (mut a, mut b) =
            (Gaps::new(Some(spec), at(0), Rng::new(9)), Gaps::new(Some(spec), at(0), Rng::new(9)));
        let fine: Vec<_> = (0..600_000).step_by(50).filter_map(|t| a.at(at(t))).collect();
        assert!(fine.len() > 50, "{}", fine.len());
        assert_eq!(b.at(fine[0].0), Some(fine[0]));
        let last = fine[fine.len() - 1];
        assert_eq!(b.at(last.0), Some(last));
    }

    #[test]
    fn no_spec_no_interval_and_memory_is_bounded() {
        assert_eq!(Gaps::new(None, at(0), Rng::new(1)).at(at(5)), None);
        assert_eq!(Gaps::new(None, at(0), Rng::new(1)).next(at(5)), None);
        let spec = Spec { every: Every::Fixed(1.0), min: 0.1, max: 0.2 };
        let mut gaps = Gaps::new(Some(spec), at(0), Rng::new(1));
        gaps.at(at(3_600_000));
        assert!(gaps.known.len() <= KEEP);
    }
}
