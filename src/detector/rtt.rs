//! Pure: no IO, no clock. The least round trip time of the last ten seconds.
//!
//! Samples are our own challenge and beat echoes; the kernel's estimate is never used, because delayed ACKs make it
//! read 1-38 ms on a 0.02 ms path (detection.md section 2).

use std::time::Duration;

use crate::stamp::Stamp;

const SLOTS: usize = 10;
const SLOT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    least: Duration,
}

/// Windowed minimum of round trip times, in fixed memory. Without samples for ten seconds the last minimum stays.
#[derive(Clone, Debug, Default)]
pub struct MinRtt {
    slots: [Option<Slot>; SLOTS],
    least: Option<Duration>,
}

impl MinRtt {
    /// No sample yet.
    pub fn new() -> Self {
        MinRtt::default()
    }

    /// Adds a sample taken at `at` and returns the minimum.
    pub fn sample(&mut self, at: Stamp, rtt: Duration) -> Duration {
        let number = at.as_nanos() / SLOT.as_nanos() as u64;
        let slot = &mut self.slots[(number % SLOTS as u64) as usize];
        match slot {
            Some(s) if s.number == number => s.least = s.least.min(rtt),
            _ => *slot = Some(Slot { number, least: rtt }),
        }
        let least = self
            .slots
            .iter()
            .flatten()
            .filter(|s| s.number + SLOTS as u64 > number && s.number <= number)
            .map(|s| s.least)
            .min()
            .unwrap_or(rtt);
        self.least = Some(least);
        least
    }

    /// The minimum as of the last sample.
    pub fn get(&self) -> Option<Duration> {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_ten_seconds() {
        let us = Duration::from_micros;
        let mut rtt = MinRtt::new();
        assert_eq!(rtt.get(), None);
        assert_eq!(rtt.sample(Stamp::from_millis(100), us(200)), us(200));
        assert_eq!(rtt.sample(Stamp::from_millis(4000), us(900)), us(200));
        assert_eq!(rtt.sample(Stamp::from_millis(9900), us(950)), us(200));
        assert_eq!(rtt.sample(Stamp::from_millis(10_200), us(950)), us(900));
        assert_eq!(rtt.sample(Stamp::from_millis(60_000), us(5000)), us(5000));
        assert_eq!(rtt.get(), Some(us(5000)));
    }
}
