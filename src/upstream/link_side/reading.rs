//! Pure: no IO, no clock. What the link's half says of itself.

use super::*;

impl LinkSide {
    /// State of the link's half.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Framed or plain.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// FAILED by proof, not by silence.
    pub fn by_proof(&self) -> bool {
        self.state == State::Failed && self.proof
    }

    /// GOAWAY was read, and no new link since.
    pub fn draining(&self) -> bool {
        self.draining
    }

    /// Links up.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Incarnation of the node, once known.
    pub fn incarnation(&self) -> Option<u64> {
        self.incarnation
    }

    /// Latest arrival on any link.
    pub fn last_heard(&self) -> Stamp {
        self.heard
    }

    /// How the last recovery went; once.
    pub fn take_healed(&mut self) -> Healed {
        std::mem::take(&mut self.healed)
    }

    /// Silence past the deadline at the last doubt or verdict.
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// From the last sign of life to the last doubt or verdict.
    pub fn since_last(&self) -> Option<Duration> {
        self.since_last
    }

    /// Whether a link should exist but none is trusted: dials are wanted.
    pub fn wants_dial(&self) -> bool {
        self.framed_wanted() && (self.state != State::Active || self.links.is_empty())
    }

    /// Whether the dials are a background question to a node never linked.
    pub fn never_linked(&self) -> bool {
        self.incarnation.is_none()
    }

    /// Whether the last link ended by FIN or RST, within its patience: a dying process may still accept.
    pub fn dying(&self, now: Stamp) -> bool {
        self.lost.is_some_and(|(since, by_end)| by_end && now.since(since) < PATIENCE)
    }

    /// Score: the best link's while ACTIVE, else how far the recovery is.
    pub fn score(&self) -> f64 {
        let best = self.links.iter().filter(|l| l.state == State::Active).map(|l| l.score).reduce(f64::max);
        match self.state {
            State::Active => best.unwrap_or(1.0).max(SUSPECT_BELOW),
            State::Suspect => self.base.clamp(FAILED_BELOW, SUSPECT_BELOW - 0.01),
            State::Failed => self.base.min(HEALED_FROM),
        }
    }

    /// Panics in debug builds if the state contradicts itself.
    pub fn check_invariants(&self) {
        debug_assert!(!self.proof || self.state == State::Failed, "proof without FAILED: {self:?}");
        debug_assert!(
            self.state == State::Active || self.cause != Cause::None,
            "doubt without a cause: {self:?}"
        );
        debug_assert!(self.links.len() <= LINKS_MAX, "too many links: {self:?}");
        debug_assert!(
            self.policy != LinkPolicy::Off || self.mode == Mode::Plain,
            "link though off: {self:?}"
        );
    }
}
