//! Pure: no IO, no clock. Lines of the log that somebody else may cause as often as they like.

use std::time::Duration;

use crate::stamp::Stamp;

/// Lines at once, after a rest.
const BURST: u64 = 10;
/// Then one line each.
const EACH: Duration = Duration::from_secs(1);

/// Says which lines are written, and counts the others.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    /// When all of the burst may be written again.
    full_at: Stamp,
    suppressed: u64,
}

impl Seldom {
    /// Whether a line may be written at `now`; if so, how many were not since the last one.
    pub(super) fn line(&mut self, now: Stamp) -> Option<u64> {
        let owed = self.full_at.since(now);
        if owed > EACH * (BURST as u32 - 1) {
            self.suppressed += 1;
            return None;
        }
        self.full_at = now + owed + EACH;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// How many lines were not written and may now be told of; `None` if there are none. Called now and then, so that the
    /// last ones of a flood are told too.
    pub(super) fn rest(&mut self, now: Stamp) -> Option<u64> {
        if self.suppressed == 0 { None } else { self.line(now).map(|n| n.max(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_and_counted() {
        let mut seldom = Seldom::default();
        let (mut written, mut told) = (0, 0);
        for ms in 0..20_000 {
            if let Some(suppressed) = seldom.line(Stamp::from_millis(1000 + ms)) {
                written += 1;
                told += suppressed;
            }
        }
        assert!((BURST..=BURST + 20).contains(&written), "{written}");
        let at = Stamp::from_millis(22_000);
        told += seldom.rest(at).unwrap();
        assert_eq!(written + told, 20_000, "each is written or counted");
        assert_eq!(seldom.rest(at), None);
    }

    #[test]
    fn what_comes_seldom_is_written_always() {
        let mut seldom = Seldom::default();
        for second in 0..100 {
            assert_eq!(seldom.line(Stamp::from_millis(1000 * second)), Some(0));
        }
    }
}
