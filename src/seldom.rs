//! Pure: no IO, no clock. Lines of the log that somebody else may cause as often as they like.

use std::time::Duration;

use crate::stamp::Stamp;

/// Says which lines are written, and counts the others.
#[derive(Clone, Copy, Debug)]
pub struct Seldom {
    /// How long before the whole burst may be written again a line is still written.
    room: Duration,
    each: Duration,
    /// When all of the burst may be written again.
    full_at: Stamp,
    suppressed: u64,
}

impl Seldom {
    /// `burst` lines at once after a rest, then one for `each`.
    pub const fn new(burst: u32, each: Duration) -> Seldom {
        let room = each.saturating_mul(burst.saturating_sub(1));
        Seldom { room, each, full_at: Stamp::ZERO, suppressed: 0 }
    }

    /// Whether a line may be written at `now`; if so, how many were not since the last one.
    pub fn line(&mut self, now: Stamp) -> Option<u64> {
        let owed = self.full_at.since(now);
        if owed > self.room {
            self.suppressed += 1;
            return None;
        }
        self.full_at = now + owed + self.each;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// How many lines were not written and may now be told of; `None` if there are none. Called now and then, so that the
    /// last ones of a flood are told too.
    pub fn rest(&mut self, now: Stamp) -> Option<u64> {
        if self.suppressed == 0 { None } else { self.line(now).map(|n| n.max(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_flood_is_one_line_a_second_and_counted() {
        let mut seldom = Seldom::new(10, SECOND);
        let (mut written, mut told) = (0, 0);
        for ms in 0..20_000 {
            if let Some(suppressed) = seldom.line(Stamp::from_millis(1000 + ms)) {
                written += 1;
                told += suppressed;
            }
        }
        assert!((10..=30).contains(&written), "{written}");
        let at = Stamp::from_millis(22_000);
        told += seldom.rest(at).unwrap();
        assert_eq!(written + told, 20_000, "each is written or counted");
        assert_eq!(seldom.rest(at), None);
    }

    #[test]
    fn what_comes_seldom_is_written_always() {
        let mut seldom = Seldom::new(10, SECOND);
        for second in 0..100 {
            assert_eq!(seldom.line(Stamp::from_millis(1000 * second)), Some(0));
        }
    }
}
