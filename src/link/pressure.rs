//! Pure: no IO, no clock. When to say "I am full, not dead" (H11; link.md, BACKPRESSURE).

use std::collections::HashMap;
use std::time::Duration;

use crate::stamp::Stamp;

/// A stream without credit, or a queue over its threshold, for this long is backpressure.
const AFTER: Duration = Duration::from_millis(5);

/// What to tell the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// It lasts, since then.
    Full(Stamp),
    /// It ended, had begun then.
    Over(Stamp),
}

/// The state of one direction.
#[derive(Debug, Default)]
pub struct Pressure {
    blocked: HashMap<u32, Stamp>,
    over_since: Option<Stamp>,
    active: Option<Stamp>,
    /// When it is to be told again.
    again: Stamp,
}

impl Pressure {
    /// A stream has data but no credit since `since`.
    pub fn block(&mut self, stream: u32, since: Stamp) {
        self.blocked.entry(stream).or_insert(since);
    }

    /// The stream has credit again, or is over.
    pub fn unblock(&mut self, stream: u32) {
        if !self.blocked.is_empty() {
            self.blocked.remove(&stream);
        }
    }

    /// No stream is left.
    pub fn clear(&mut self) {
        self.blocked.clear();
    }

    /// The queue takes no more.
    pub fn full(&mut self, now: Stamp) {
        self.over_since.get_or_insert(now);
    }

    /// Streams without credit.
    pub fn blocked(&self) -> Vec<u32> {
        self.blocked.keys().copied().collect()
    }

    /// It was told, with this promise.
    pub fn told(&mut self, now: Stamp, promise: Duration) {
        self.again = now + promise.mul_f64(0.8);
    }

    /// True while the peer believes it.
    pub fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Judges at `now`; `occupancy` of the send queue 0-1. Call at each beat and at [`Pressure::next_due`]; while it
    /// lasts each call repeats it.
    pub fn evaluate(&mut self, now: Stamp, occupancy: f64, threshold: f64) -> Option<Tell> {
        if occupancy >= threshold {
            self.over_since.get_or_insert(now);
        } else if occupancy < threshold / 2.0 {
            self.over_since = None;
        }
        let since = self.since();
        let lasts = since.is_some_and(|s| now.since(s) >= AFTER);
        if lasts {
            let since = *self.active.get_or_insert(since.unwrap_or(now));
            return Some(Tell::Full(since));
        }
        self.active.take().map(Tell::Over)
    }

    fn since(&self) -> Option<Stamp> {
        self.blocked.values().copied().chain(self.over_since).min()
    }

    /// When to judge again although no beat is due: beats that ride on traffic never fall due.
    pub fn next_due(&self) -> Stamp {
        match (self.active, self.since()) {
            (None, None) => Stamp::NEVER,
            (None, Some(s)) => s + AFTER,
            (Some(_), Some(_)) => self.again,
            // It is over: that is told at once.
            (Some(_), None) => Stamp::ZERO,
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
    fn a_blocked_stream_counts_after_5_ms_and_ends_once() {
        let mut p = Pressure::default();
        p.block(7, at(100));
        assert_eq!(p.next_due(), at(105));
        assert_eq!(p.evaluate(at(104), 0.0, 0.75), None);
        assert_eq!(p.evaluate(at(105), 0.0, 0.75), Some(Tell::Full(at(100))));
        assert_eq!(p.evaluate(at(120), 0.0, 0.75), Some(Tell::Full(at(100))), "repeated while it lasts");
        p.unblock(7);
        assert_eq!(p.evaluate(at(121), 0.0, 0.75), Some(Tell::Over(at(100))));
        assert_eq!(p.evaluate(at(122), 0.0, 0.75), None);
    }

    #[test]
    fn it_is_repeated_within_its_promise_and_its_end_is_told_at_once() {
        let mut p = Pressure::default();
        assert_eq!(p.next_due(), Stamp::NEVER);
        p.block(7, at(100));
        p.block(8, at(101));
        p.evaluate(at(105), 0.0, 0.75);
        p.told(at(105), Duration::from_millis(20));
        assert_eq!(p.next_due(), at(121));
        p.unblock(7);
        assert_eq!(p.next_due(), at(121));
        p.unblock(8);
        assert_eq!(p.next_due(), Stamp::ZERO);
        assert_eq!(p.evaluate(at(110), 0.0, 0.75), Some(Tell::Over(at(100))));
        assert_eq!(p.next_due(), Stamp::NEVER);
    }

    #[test]
    fn a_full_queue_has_hysteresis() {
        let mut p = Pressure::default();
        assert_eq!(p.evaluate(at(0), 0.8, 0.75), None);
        assert_eq!(p.evaluate(at(6), 0.5, 0.75), Some(Tell::Full(at(0))), "not below half of the threshold");
        assert_eq!(p.evaluate(at(7), 0.3, 0.75), Some(Tell::Over(at(0))));
    }
}
