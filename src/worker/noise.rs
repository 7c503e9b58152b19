//! Pure: no IO, no clock. How late a loop is now and then: what its peers should expect of its beats.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::stamp::{Stamp, faded};

/// Half of it is forgotten after this: as long as a detector remembers.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// Less is every machine's; more is a stop, not noise.
const RANGE: RangeInclusive<Duration> = Duration::from_millis(2)..=Duration::from_millis(250);
/// What a lateness counts for that came once. One hiccup of a machine must not slow down detection for ten minutes.
const ONCE: Duration = Duration::from_millis(16);
/// Lateness closer together than this is one.
const APART: Duration = Duration::from_secs(1);

/// The two longest latenesses of a loop, fading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noise {
    first: Late,
    second: Late,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Late {
    length: Duration,
    at: Stamp,
}

impl Late {
    fn faded(self, now: Stamp) -> Duration {
        faded(self.length, self.at, now, HALF_LIFE)
    }
}

impl Noise {
    /// What may be expected again: the second longest in full, the longest up to 16 ms.
    pub fn told(self, now: Stamp) -> Duration {
        self.second.faded(now).max(self.first.faded(now).min(ONCE))
    }

    /// The loop woke up late by `length`.
    pub fn with(self, length: Duration, now: Stamp) -> Noise {
        let late = Late { length, at: now };
        let Noise { first, second } = self;
        if !RANGE.contains(&length) || length <= second.faded(now) {
            return self;
        }
        let longest = length > first.faded(now);
        let same = |known: Late| known.at != Stamp::ZERO && now.since(known.at) < APART;
        match (longest, same(first), same(second)) {
            (true, true, _) => Noise { first: late, second },
            (true, false, _) => Noise { first: late, second: first },
            (false, true, _) => self,
            (false, false, _) => Noise { first, second: late },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn at(s: u64) -> Stamp {
        Stamp::from_millis(s * 1000)
    }

    #[test]
    fn what_came_twice_counts_in_full_and_fades() {
        let n = Noise::default()
            .with(ms(40), at(10))
            .with(ms(30), at(20))
            .with(ms(8), at(21))
            .with(ms(1), at(22));
        assert_eq!(n.told(at(20)), ms(30), "less is no news");
        assert_eq!(n.told(at(620)), ONCE, "what is left of the 40 is little more");
        assert!((n.told(at(1220)).as_secs_f64() - 0.01).abs() < 1e-3, "{:?}", n.told(at(1220)));
        let more = n.with(ms(50), at(620));
        assert!(more.told(at(620)) > ms(19) && more.told(at(620)) <= ms(20), "the 40 of before: {more:?}");
    }

    #[test]
    fn one_hiccup_counts_little() {
        let n = Noise::default().with(ms(95), at(10));
        assert_eq!(n.told(at(10)), ONCE);
        assert_eq!(Noise::default().with(ms(12), at(10)).told(at(10)), ms(12));
        let same = n.with(ms(90), at(10) + ms(300)).with(ms(99), at(10) + ms(600));
        assert_eq!(same.told(at(11)), ONCE, "within a second: the same one");
        assert!(n.with(ms(90), at(12)).told(at(12)) > ms(80));
    }

    #[test]
    fn a_stop_is_no_noise_and_nor_is_a_millisecond() {
        let n = Noise::default().with(Duration::from_secs(2), at(20)).with(ms(1), at(30));
        assert_eq!(n.told(at(30)), Duration::ZERO);
    }
}
