//! Pure: no IO, no clock. The core's only notion of time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time: nanoseconds of CLOCK_MONOTONIC. It can be written to a trace and read back, cannot
/// underflow and can be compared with stamps of other processes on the same machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(u64);

impl Stamp {
    /// The earliest stamp.
    pub const ZERO: Stamp = Stamp(0);
    /// A stamp that never comes.
    pub const NEVER: Stamp = Stamp(u64::MAX);

    /// From nanoseconds of CLOCK_MONOTONIC.
    pub const fn from_nanos(ns: u64) -> Self {
        Stamp(ns)
    }

    /// From milliseconds, for tests and simulations.
    pub const fn from_millis(ms: u64) -> Self {
        Stamp(ms * 1_000_000)
    }

    /// Nanoseconds of CLOCK_MONOTONIC.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Stamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Milliseconds since `earlier` as a float, negative if `earlier` is later.
    pub fn millis_since(self, earlier: Stamp) -> f64 {
        (self.0 as f64 - earlier.0 as f64) / 1e6
    }
}

/// What is left at `now` of a length that was measured at `at`, of which half is forgotten after each `half_life`.
pub fn faded(length: Duration, at: Stamp, now: Stamp, half_life: Duration) -> Duration {
    if length.is_zero() {
        return Duration::ZERO;
    }
    let halves = now.since(at).as_secs_f64() / half_life.as_secs_f64().max(1e-9);
    length.mul_f64((-halves).exp2())
}

/// Whole nanoseconds of a duration, saturating after 584 years.
pub fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Stamp {
    type Output = Stamp;
    fn add(self, d: Duration) -> Stamp {
        Stamp(self.0.saturating_add(nanos(d)))
    }
}

impl Sub<Duration> for Stamp {
    type Output = Stamp;
    fn sub(self, d: Duration) -> Stamp {
        Stamp(self.0.saturating_sub(nanos(d)))
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.0 as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_panicking() {
        let a = Stamp::from_millis(5);
        assert_eq!(a.since(Stamp::from_millis(9)), Duration::ZERO);
        assert_eq!(a - Duration::from_secs(1), Stamp::ZERO);
        assert_eq!(Stamp::NEVER + Duration::from_secs(1), Stamp::NEVER);
        assert_eq!(format!("{:?}", a), "0.005000s");
    }
}
