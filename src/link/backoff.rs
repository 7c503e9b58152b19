//! Pure: no IO, no clock. When to dial again.

use std::time::Duration;

/// Doubling delays with jitter.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    tries: u32,
}

impl Backoff {
    /// First delay about `base`, never more than `max`.
    pub fn new(base: Duration, max: Duration) -> Backoff {
        Backoff { base, max, tries: 0 }
    }

    /// The next delay: between half and all of the doubled base. `seed` is any random number.
    pub fn next(&mut self, seed: u64) -> Duration {
        let full = self.base.saturating_mul(1 << self.tries.min(16)).min(self.max);
        self.tries = self.tries.saturating_add(1);
        let share = 0.5 + 0.5 * (seed % 1024) as f64 / 1024.0;
        full.mul_f64(share)
    }

    /// Success: start small again.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_within_bounds_and_resets() {
        let mut b = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let d: Vec<_> = (0..6).map(|_| b.next(1023)).collect();
        assert!(d[0] <= Duration::from_millis(100) && d[1] > d[0] && d[5] <= Duration::from_secs(1), "{d:?}");
        b.reset();
        assert!(b.next(0) >= Duration::from_millis(50));
    }
}
