//! What others say of a service, beside what the proxy sees: its probe (E5) and its own announcements (E7). Written by the
//! control thread, read by the watch; cold, so a lock will do.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fuse::ProbeOpinion;
use crate::stamp::Stamp;

/// Longest text of a probe's result that is kept, bytes.
pub const MAX_SAID: usize = 200;

/// The last probe and what the probes come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeNote {
    /// `http /health`, `tcp`, `exec pg_isready`.
    pub what: String,
    /// What the probes of this quiet time come to.
    pub opinion: ProbeOpinion,
    /// Successes and failures in a row.
    pub streak: (u32, u32),
    /// When the last one ended; zero: none yet.
    pub at: Stamp,
    /// How long it took, ms.
    pub took_ms: f64,
    /// What it saw, at most [`MAX_SAID`] bytes.
    pub said: String,
}

/// An announced pause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseNote {
    /// When it was announced; zero: never.
    pub at: Stamp,
    /// When it ends.
    pub until: Stamp,
    /// Why, as the caller said.
    pub reason: String,
}

/// Both. Nothing is known at first.
#[derive(Debug, Default)]
pub struct Notes {
    probe: Mutex<ProbeNote>,
    pause: Mutex<PauseNote>,
}

impl Notes {
    /// A probe is configured, or ended.
    pub fn probed(&self, mut note: ProbeNote) {
        let end = (0..=MAX_SAID.min(note.said.len())).rev().find(|i| note.said.is_char_boundary(*i));
        note.said.truncate(end.unwrap_or(0));
        *lock(&self.probe) = note;
    }

    /// A pause was announced; one that ends now ends the one before.
    pub fn announced(&self, at: Stamp, until: Stamp, reason: &str) {
        *lock(&self.pause) = PauseNote { at, until, reason: reason.to_owned() };
    }

    /// The last probe.
    pub fn probe(&self) -> ProbeNote {
        lock(&self.probe).clone()
    }

    /// The last announced pause.
    pub fn pause(&self) -> PauseNote {
        lock(&self.pause).clone()
    }

    /// What the probes say that were made since the last progress.
    pub fn opinion(&self, last_progress: Stamp) -> ProbeOpinion {
        let note = lock(&self.probe);
        if note.at > last_progress { note.opinion } else { ProbeOpinion::Unknown }
    }

    /// End of the last announced pause.
    pub fn paused_until(&self) -> Stamp {
        lock(&self.pause).until
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opinion_lasts_until_progress() {
        let n = Notes::default();
        let at = Stamp::from_millis;
        assert_eq!(n.opinion(Stamp::ZERO), ProbeOpinion::Unknown);
        n.probed(ProbeNote { opinion: ProbeOpinion::Failing, at: at(50), ..ProbeNote::default() });
        assert_eq!(n.opinion(at(49)), ProbeOpinion::Failing);
        assert_eq!(n.opinion(at(50)), ProbeOpinion::Unknown);
    }

    #[test]
    fn long_results_are_cut_between_characters() {
        let n = Notes::default();
        n.probed(ProbeNote { said: "ä".repeat(MAX_SAID), ..ProbeNote::default() });
        assert_eq!(n.probe().said, "ä".repeat(MAX_SAID / 2));
    }
}
