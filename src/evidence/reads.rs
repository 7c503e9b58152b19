//! Pure: no IO, no clock. Evidence E2: does the service read its side of a connection?

use std::time::Duration;

use crate::stamp::Stamp;

/// Follows the unread bytes of one connection from sample to sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTracker {
    consumed: Option<u64>,
    accepted: bool,
    unread: u32,
    since: Option<Stamp>,
}

/// What one sample of the service's side showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSample {
    /// Bytes received and not read.
    pub unread: u32,
    /// Bytes ever received, where the kernel tells.
    pub received: Option<u64>,
    /// A process owns the socket: it was accepted.
    pub accepted: bool,
}

/// What changed since the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadChange {
    /// The service read something or accepted the connection.
    pub progress: bool,
    /// How long the bytes lay unread that were read now.
    pub finished: Option<Duration>,
}

impl ReadTracker {
    /// Takes a sample. The first one only sets the base; bytes unread then count from `now`.
    pub fn update(&mut self, now: Stamp, s: ReadSample) -> ReadChange {
        let consumed = s.received.map(|r| r.saturating_sub(u64::from(s.unread)));
        let known = self.consumed.is_some() || self.since.is_some();
        let read = match (self.consumed, consumed) {
            (Some(before), Some(after)) => after > before,
            _ => s.unread < self.unread,
        };
        let progress = known && (read || (s.accepted && !self.accepted));
        let finished = if read { self.since.map(|since| now.since(since)) } else { None };
        if s.unread == 0 {
            self.since = None;
        } else if read || self.since.is_none() {
            self.since = Some(now);
        }
        *self = ReadTracker { consumed, accepted: s.accepted, unread: s.unread, since: self.since };
        ReadChange { progress, finished }
    }

    /// Our own pause of `late` is not the service's.
    pub fn forgive(&mut self, late: Duration, now: Stamp) {
        self.since = self.since.map(|s| (s + late).min(now));
    }

    /// Bytes unread at the last sample, and since when nothing was read.
    pub fn unread(&self) -> Option<(u32, Stamp)> {
        self.since.map(|since| (self.unread, since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Stamp {
        Stamp::from_millis(ms)
    }

    fn s(unread: u32, received: u64) -> ReadSample {
        ReadSample { unread, received: Some(received), accepted: true }
    }

    #[test]
    fn bytes_that_stay_have_an_age() {
        let mut t = ReadTracker::default();
        assert_eq!(t.update(at(1), s(5, 5)), ReadChange::default());
        assert_eq!(t.update(at(9), s(7, 7)), ReadChange::default(), "more arrived, nothing was read");
        assert_eq!(t.unread(), Some((7, at(1))));
        assert_eq!(
            t.update(at(21), s(0, 7)),
            ReadChange { progress: true, finished: Some(Duration::from_millis(20)) }
        );
        assert_eq!(t.unread(), None);
    }

    #[test]
    fn a_slow_reader_makes_progress_though_its_queue_grows() {
        let mut t = ReadTracker::default();
        t.update(at(0), s(100, 100));
        assert!(t.update(at(5), s(150, 200)).progress);
        assert_eq!(t.unread(), Some((150, at(5))));
    }

    #[test]
    fn without_tcp_info_a_smaller_queue_is_progress() {
        let plain = |unread| ReadSample { unread, received: None, accepted: true };
        let mut t = ReadTracker::default();
        t.update(at(0), plain(9));
        assert!(!t.update(at(1), plain(9)).progress);
        assert!(t.update(at(2), plain(3)).progress);
    }

    #[test]
    fn an_accept_is_progress_but_the_first_sight_is_not() {
        let mut t = ReadTracker::default();
        assert!(!t.update(at(0), ReadSample { accepted: false, ..s(5, 5) }).progress);
        assert!(t.update(at(1), s(5, 5)).progress);
        assert!(!ReadTracker::default().update(at(0), s(5, 5)).progress);
    }

    #[test]
    fn our_own_pause_is_forgiven() {
        let mut t = ReadTracker::default();
        t.update(at(0), s(5, 5));
        t.forgive(Duration::from_millis(500), at(510));
        assert_eq!(t.unread(), Some((5, at(500))));
    }
}
