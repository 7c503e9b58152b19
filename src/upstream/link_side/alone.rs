//! Pure: no IO, no clock. Is it the peer that is silent, or is it us that hear nobody? (detection.md section 5, last row)

use super::*;
use crate::upstream::isolation::ISOLATION_HOLD;

impl LinkSide {
    /// Whether so much is silent that we are the ones cut off: FAILED by silence waits then, at most
    /// [`ISOLATION_HOLD`] after the doubt began, and says so.
    pub fn isolation(&mut self, now: Stamp, isolated: bool) {
        self.isolated = isolated;
        let silent = self.state != State::Active && !self.proof;
        match (isolated, self.waits_until) {
            (true, _) if silent => self.cause = Cause::SelfIsolated,
            // Others are heard again, and this one is not: what was held back is true.
            (false, Some(_)) => {
                self.waits_until = None;
                self.set(now, State::Failed, Cause::Silent, false);
            }
            (false, None) if silent && self.cause == Cause::SelfIsolated => self.cause = Cause::Silent,
            _ => {}
        }
    }

    /// Whether FAILED is held back because everything is silent.
    pub fn is_held(&self) -> bool {
        self.waits_until.is_some()
    }

    /// Whether it matters now if everything else is silent too: FAILED is held back for that, or the silence is so
    /// young that the others' deadlines may not be over yet.
    pub fn asks_isolation(&self, now: Stamp) -> bool {
        self.is_held() || (self.silent_since().is_some() && now.since(self.since) <= REFINE_FOR)
    }

    /// Since when all links are silent past their deadlines, if they are.
    pub fn silent_since(&self) -> Option<Stamp> {
        (self.state != State::Active && !self.proof).then_some(self.doubt_from)
    }

    /// FAILED, unless everything is silent: then it waits (detection.md section 5, last row).
    pub(super) fn fail_by_silence(&mut self, now: Stamp, cause: Cause) {
        let until = self.waits_until.unwrap_or(self.doubt_from + ISOLATION_HOLD);
        if self.isolated && now < until {
            self.set(now, State::Suspect, Cause::SelfIsolated, false);
            self.waits_until = Some(until);
            return;
        }
        let cause = if self.isolated { Cause::SelfIsolated } else { cause };
        self.set(now, State::Failed, cause, false);
    }
}
