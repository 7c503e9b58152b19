//! Which links of a node hold its short promise: the ones that were used last (detection.md section 6, `beat.duty`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::stamp::Stamp;

#[derive(Default)]
struct Slot {
    /// 0: free.
    link: AtomicU64,
    used: AtomicU64,
}

/// The links on duty, over all workers. Each link belongs to one worker, so two uses at the same instant can only take the
/// same slot: one of them is off duty until it is used again.
pub struct Duty {
    slots: Box<[Slot]>,
}

impl Duty {
    /// For at most `most` links, at least one.
    pub fn new(most: usize) -> Duty {
        Duty { slots: (0..most.max(1)).map(|_| Slot::default()).collect() }
    }

    /// Link `id` carries business now. It takes the place of the one that was used longest ago.
    pub fn used(&self, id: u64, now: Stamp) {
        let own = self.slots.iter().find(|s| s.link.load(Relaxed) == id);
        let oldest = || self.slots.iter().min_by_key(|s| s.last_used());
        let Some(slot) = own.or_else(oldest) else { return };
        slot.used.store(now.as_nanos(), Relaxed);
        if own.is_none() {
            slot.link.store(id, Relaxed);
        }
    }

    /// True if link `id` holds the short promise. Until any link was used, each does.
    pub fn holds(&self, id: u64) -> bool {
        self.slots.iter().any(|s| s.link.load(Relaxed) == id) || self.is_free()
    }

    /// True until any link was used.
    pub fn is_free(&self) -> bool {
        self.slots.iter().all(|s| s.link.load(Relaxed) == 0)
    }

    /// True if link `id` is the one that was used last.
    pub fn is_last(&self, id: u64) -> bool {
        let taken = self.slots.iter().filter(|s| s.link.load(Relaxed) != 0);
        taken.max_by_key(|s| s.last_used()).is_some_and(|s| s.link.load(Relaxed) == id)
    }

    /// Link `from` is gone; `to` takes its place, if it was on duty and `to` is not 0.
    pub fn hand_over(&self, from: u64, to: u64) {
        let to = if self.slots.iter().any(|s| s.link.load(Relaxed) == to) { 0 } else { to };
        for slot in &self.slots {
            let _ = slot.link.compare_exchange(from, to, Relaxed, Relaxed);
        }
    }
}

impl Slot {
    /// 0: free.
    fn last_used(&self) -> u64 {
        if self.link.load(Relaxed) == 0 { 0 } else { self.used.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(duty: &Duty, ids: &[u64]) {
        for (i, id) in ids.iter().enumerate() {
            duty.used(*id, Stamp::from_millis(1 + i as u64));
        }
    }

    fn holders(duty: &Duty) -> Vec<u64> {
        (1..10).filter(|id| duty.holds(*id)).collect()
    }

    #[test]
    fn the_links_used_last_are_on_duty() {
        for (most, want) in
            [(0, vec![4]), (1, vec![4]), (2, vec![3, 4]), (3, vec![1, 3, 4]), (16, vec![1, 2, 3, 4])]
        {
            let duty = Duty::new(most);
            assert_eq!(holders(&duty).len(), 9, "nothing is known");
            used(&duty, &[2, 1, 3, 3, 4]);
            assert_eq!(holders(&duty), want, "{most}");
            assert!(duty.is_last(4) && !duty.is_last(3));
        }
    }

    #[test]
    fn who_leaves_hands_over_once() {
        let duty = Duty::new(2);
        used(&duty, &[1, 2]);
        duty.hand_over(7, 5);
        assert_eq!(holders(&duty), [1, 2], "7 was not on duty");
        duty.hand_over(2, 5);
        assert_eq!(holders(&duty), [1, 5]);
        duty.hand_over(1, 5);
        assert_eq!(holders(&duty), [5], "5 is there already");
        duty.hand_over(5, 0);
        assert_eq!(holders(&duty).len(), 9, "nobody is left");
    }
}
