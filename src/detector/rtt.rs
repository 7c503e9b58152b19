//! Pure: no IO, no clock. The least round trip time of the last ten seconds.
//!
//! Samples are our own challenge and beat echoes; the kernel's estimate is never used, because delayed ACKs make it
//! read 1-38 ms on a 0.02 ms path (detection.md section 2).

use std::time::Duration;

use crate::stamp::Stamp;

const SLOTS: usize = 10;
const SLOT: Duration = Duration::from_secs(1);

/// Round trips beyond 4.2 s count as that: 8 bytes a slot, because every beat of every link comes here.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Second since the epoch of stamps, from 1; 0 is an empty slot.
    number: u32,
    least_ns: u32,
}

/// Windowed minimum of round trip times, in fixed memory. Without samples for ten seconds the last minimum stays.
#[derive(Clone, Debug)]
pub struct MinRtt {
    slots: [Slot; SLOTS],
    /// The slot of the latest sample.
    latest: Slot,
    least: Option<Duration>,
}

impl Default for MinRtt {
    fn default() -> Self {
        let empty = Slot { number: 0, least_ns: u32::MAX };
        MinRtt { slots: [empty; SLOTS], latest: empty, least: None }
    }
}

impl MinRtt {
    /// No sample yet.
    pub fn new() -> Self {
        MinRtt::default()
    }

    /// Adds a sample taken at `at` and returns the minimum.
    pub fn sample(&mut self, at: Stamp, rtt: Duration) -> Duration {
        let number = u32::try_from(at.as_nanos() / SLOT.as_nanos() as u64 + 1).unwrap_or(u32::MAX);
        let ns = u32::try_from(rtt.as_nanos()).unwrap_or(u32::MAX);
        if let Some(least) = self.least
            && self.latest.number == number
            && self.latest.least_ns <= ns
        {
            return least;
        }
        self.add(number, ns)
    }

    fn add(&mut self, number: u32, ns: u32) -> Duration {
        let slot = &mut self.slots[number as usize % SLOTS];
        let before = if slot.number == number { slot.least_ns } else { u32::MAX };
        *slot = Slot { number, least_ns: before.min(ns) };
        self.latest = *slot;
        let lately = |s: &&Slot| s.number != 0 && s.number <= number && number - s.number < SLOTS as u32;
        let least = self.slots.iter().filter(lately).map(|s| s.least_ns).min().unwrap_or(ns);
        let least = Duration::from_nanos(u64::from(least));
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
