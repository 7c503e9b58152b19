//! How a worker's thread uses the processors: on which it runs, and whom it interrupts.

use super::crowd::Crowd;
use crate::sys::sched::{self, Policy};

/// Binds the calling thread, worker `index`, to a processor of its own; workers beyond their number share them.
pub fn pin(index: usize) {
    let all = sched::processors();
    let bound = all.get(index % all.len().max(1)).map(|cpu| sched::bind(*cpu));
    if !matches!(bound, Some(Ok(()))) {
        tracing::warn!(worker = index, "it is bound to no processor: node.pin has no effect here");
    }
}

/// How a worker's thread treats others of its processors: a crowd waits for them (SCHED_BATCH), see [`super::crowd`].
pub(super) struct Manners {
    crowd: Crowd,
    /// As last set; `None` where it is not ours to set.
    policy: Option<Policy>,
}

impl Manners {
    pub(super) fn new() -> Manners {
        // Who starts the whole sidecar under SCHED_BATCH wants that.
        let policy = sched::policy().filter(|p| *p == Policy::Normal);
        Manners { crowd: Crowd::default(), policy }
    }

    pub(super) fn look(&mut self, queued: u64, rounds: u64) {
        let wanted = if self.crowd.look(queued, rounds) { Policy::Batch } else { Policy::Normal };
        let Some(policy) = self.policy.filter(|p| *p != wanted) else { return };
        match sched::set_policy(wanted) {
            Ok(()) => self.policy = Some(wanted),
            Err(e) => {
                tracing::debug!(error = %e, from = ?policy, to = ?wanted, "the scheduling policy stays");
                self.policy = None;
            }
        }
    }
}
