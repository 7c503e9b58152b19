//! Pure: no IO, no clock. Flow control of one stream (link.md rule 4).

use std::time::Duration;

use crate::stamp::Stamp;

/// Credit of a new stream, each direction, bytes.
pub const INITIAL: u32 = 256 * 1024;

/// The receiver's half: grants as its own writer drains, and widens the window while the path is what limits.
#[derive(Debug)]
pub struct RecvWindow {
    window: u32,
    /// Bytes the sender may still send.
    left: u32,
    /// Drained but not granted yet.
    drained: u32,
    last_grant: Stamp,
}

impl RecvWindow {
    /// A window of `initial` bytes, already known to the sender.
    pub fn new(initial: u32, now: Stamp) -> RecvWindow {
        RecvWindow { window: initial, left: initial, drained: 0, last_grant: now }
    }

    /// Bytes arrived. False: the sender broke the rule.
    #[must_use]
    pub fn arrived(&mut self, n: usize) -> bool {
        match u32::try_from(n).ok().and_then(|n| self.left.checked_sub(n)) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// The application took bytes; `keeps_up`: none wait for it. Gives the credit to grant now, if any. The window
    /// doubles up to `max` where it is what limits: a half of it is used up within two round trips, or the sender has
    /// nearly used all of it although the application keeps up (on busy processors a turn may take much longer than a
    /// round trip).
    pub fn drained(&mut self, n: usize, now: Stamp, rtt: Duration, max: u32, keeps_up: bool) -> Option<u32> {
        self.drained = self.drained.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
        if self.drained < self.window / 2 {
            return None;
        }
        let fast = now.since(self.last_grant) < rtt * 2 + Duration::from_millis(1);
        let limited = fast || (keeps_up && self.left < self.window / 4);
        let wider =
            if limited { self.window.saturating_mul(2).min(max.max(self.window)) } else { self.window };
        let grant = self.drained.saturating_add(wider - self.window);
        self.window = wider;
        self.left = self.left.saturating_add(grant);
        self.drained = 0;
        self.last_grant = now;
        Some(grant)
    }

    /// Current window, bytes.
    pub fn window(&self) -> u32 {
        self.window
    }
}

/// The sender's half.
#[derive(Debug)]
pub struct SendCredit {
    left: u64,
    blocked_since: Option<Stamp>,
}

/// Most credit a sender believes: more is an attempt to make it overflow.
const ABSURD: u64 = 1 << 32;

impl SendCredit {
    /// Credit before any grant.
    pub fn new(initial: u32) -> SendCredit {
        SendCredit { left: u64::from(initial), blocked_since: None }
    }

    /// Bytes that may be sent now.
    pub fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// Bytes were sent; never more than [`SendCredit::left`].
    pub fn spend(&mut self, n: usize) {
        debug_assert!(n as u64 <= self.left);
        self.left = self.left.saturating_sub(n as u64);
    }

    /// More was granted. False: absurd.
    #[must_use]
    pub fn grant(&mut self, n: u32) -> bool {
        self.left += u64::from(n);
        self.blocked_since = None;
        self.left <= ABSURD
    }

    /// There is data but no credit. Gives since when.
    pub fn block(&mut self, now: Stamp) -> Stamp {
        *self.blocked_since.get_or_insert(now)
    }

    /// Since when the stream waits for credit.
    pub fn blocked_since(&self) -> Option<Stamp> {
        self.blocked_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    #[test]
    fn grants_half_a_window_at_a_time_and_widens_when_it_limits() {
        let t = Stamp::from_millis(100);
        let mut w = RecvWindow::new(INITIAL, t);
        assert!(w.arrived(INITIAL as usize));
        assert!(!w.arrived(1), "beyond the credit");
        assert_eq!(w.drained(1000, t, RTT, 4 << 20, false), None);
        let g = w.drained(INITIAL as usize - 1000, t + RTT, RTT, 4 << 20, false).unwrap();
        assert_eq!(g, 2 * INITIAL, "drained plus the widening");
        assert_eq!(w.window(), 2 * INITIAL);
        // Slow use later: no further widening.
        let late = t + Duration::from_secs(5);
        assert!(w.arrived(INITIAL as usize));
        assert_eq!(w.drained(INITIAL as usize, late, RTT, 4 << 20, false), Some(INITIAL));
    }

    #[test]
    fn the_window_never_passes_the_cap() {
        let mut w = RecvWindow::new(INITIAL, Stamp::ZERO);
        for _ in 0..20 {
            let n = w.window() as usize;
            assert!(w.arrived(n));
            w.drained(n, Stamp::ZERO, RTT, 1 << 20, false);
        }
        assert_eq!(w.window(), 1 << 20);
    }

    #[test]
    fn absurd_credit_is_refused() {
        let mut c = SendCredit::new(INITIAL);
        assert!(c.grant(1 << 31));
        assert!(!c.grant(u32::MAX));
    }

    #[test]
    fn a_used_up_window_widens_if_the_application_keeps_up() {
        let late = |ms| Stamp::from_millis(ms);
        let mut w = RecvWindow::new(INITIAL, late(0));
        assert!(w.arrived(INITIAL as usize));
        assert_eq!(w.drained(INITIAL as usize / 2, late(1000), RTT, 4 << 20, false), Some(INITIAL / 2));
        assert!(w.arrived(INITIAL as usize / 2));
        assert_eq!(w.drained(INITIAL as usize / 2, late(2000), RTT, 4 << 20, true), Some(INITIAL * 3 / 2));
        // The sender has credit left: it is the one that is slow.
        assert!(w.arrived(INITIAL as usize / 2));
        assert_eq!(w.drained(INITIAL as usize, late(3000), RTT, 4 << 20, true), Some(INITIAL));
        assert_eq!(w.window(), 2 * INITIAL);
    }
}
