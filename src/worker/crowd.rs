//! Pure: no IO, no clock. Whether many streams have something to say at a time. Then it pays to let who runs go on, the
//! service or its client on the same processors: what they say meanwhile leaves in one write. A worker with little to do
//! interrupts at once: each wait would be somebody's latency, and a beat's.

/// Fewer writes than this between two looks are no crowd, however much each carries: 500 per second.
const ROUNDS: u64 = 100;
/// Frames queued per round of writes from which on a crowd begins, and below which it ends.
const BEGINS: u64 = 3;
const ENDS: u64 = 2;

/// What a worker did up to its last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crowd {
    queued: u64,
    rounds: u64,
    crowded: bool,
}

impl Crowd {
    /// Looks at both counters, which only grow: how often something was queued, and how often all of it left. True while
    /// it is crowded.
    pub(super) fn look(&mut self, queued: u64, rounds: u64) -> bool {
        let (more, writes) = (queued.wrapping_sub(self.queued), rounds.wrapping_sub(self.rounds));
        let per_round = if self.crowded { ENDS } else { BEGINS };
        *self = Crowd { queued, rounds, crowded: writes >= ROUNDS && more / writes >= per_round };
        self.crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_frames_per_write_are_a_crowd_until_there_are_few() {
        let mut crowd = Crowd::default();
        let mut at = (0, 0);
        let mut looks = |queued, rounds| {
            at = (at.0 + queued, at.1 + rounds);
            crowd.look(at.0, at.1)
        };
        assert!(!looks(0, 0), "nothing at all");
        assert!(!looks(4000, 2000), "two streams");
        assert!(looks(6000, 2000), "three streams");
        assert!(looks(4000, 2000), "two are enough to stay");
        assert!(!looks(3999, 2000));
        assert!(!looks(9000, 99), "bulk data in few writes");
        assert!(looks(9000, 100));
        assert!(!looks(0, 0), "it ends with its traffic");
    }
}
