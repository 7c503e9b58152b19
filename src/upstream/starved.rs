//! Pure: no IO, no clock. How long the slowness of the service beside us is put down to an upstream of its own (row H4).
//!
//! An excuse without an end would make a dead-locked service immune for as long as anything that is configured is down. So it
//! lasts while the service can be seen to wait for that upstream, and else for a bounded time.

use std::time::Duration;

use crate::stamp::Stamp;

/// All its endpoints are FAILED, but nothing shows that the service waits for it: what waits inside the service (a pool, a
/// pause between two attempts) is over after this.
pub const FAILED_FOR: Duration = Duration::from_secs(10);
/// Some are only SUSPECT: they are FAILED soon, or well again.
pub const SUSPECT_FOR: Duration = Duration::from_secs(3);
/// A service that got no answer pauses for at most this before it asks again.
pub const PAUSE_FOR: Duration = Duration::from_secs(5);

/// An upstream without any ACTIVE endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// All its endpoints are FAILED.
    pub failed: bool,
    /// Since when they all are; if not all are FAILED, since when none is ACTIVE.
    pub since: Stamp,
    /// A connection of the service through this sidecar waits for an answer of it.
    pub waits: bool,
    /// When such a connection last ended without the answer; zero: never.
    pub let_down: Stamp,
}

impl Lack {
    /// Whether it explains at `now` that the service makes no progress.
    pub fn excuses(&self, now: Stamp) -> bool {
        let least = if self.failed { FAILED_FOR } else { SUSPECT_FOR };
        let asks = self.let_down != Stamp::ZERO && now.since(self.let_down) <= PAUSE_FOR;
        self.waits || asks || now.since(self.since) <= least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Stamp {
        Stamp::from_millis(s * 1000)
    }

    const LACK: Lack =
        Lack { failed: true, since: Stamp::from_millis(100_000), waits: false, let_down: Stamp::ZERO };

    /// One dead upstream that the service did not even ask made its dead-lock SUSPECT for ever.
    #[test]
    fn a_failed_upstream_that_nobody_asks_excuses_for_ten_seconds() {
        assert!(LACK.excuses(at(100)) && LACK.excuses(at(110)));
        assert!(!LACK.excuses(at(111)) && !LACK.excuses(at(5000)));
    }

    #[test]
    fn a_doubted_upstream_excuses_for_three_seconds() {
        let doubted = Lack { failed: false, ..LACK };
        assert!(doubted.excuses(at(103)) && !doubted.excuses(at(104)));
        assert!(LACK.excuses(at(104)), "FAILED is the better excuse");
    }

    #[test]
    fn who_waits_for_it_is_excused_as_long_as_that_takes() {
        for failed in [true, false] {
            let waits = Lack { failed, waits: true, ..LACK };
            assert!(waits.excuses(at(100)) && waits.excuses(at(100_000)));
        }
    }

    #[test]
    fn who_asks_again_and_again_is_excused_between_the_attempts() {
        for failed in [true, false] {
            let asks = Lack { failed, let_down: at(500), ..LACK };
            assert!(asks.excuses(at(501)) && asks.excuses(at(505)));
            assert!(!asks.excuses(at(506)), "it gave up, or waits for something else");
        }
    }
}
