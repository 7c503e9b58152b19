//! Pure: no IO, no clock. The one timer of a worker: a heap of (when, who), lazily corrected.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::stamp::Stamp;

/// One that waits. Numbers are used again, so a ticket also says whose turn with the number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    index: u32,
    turn: u32,
}

impl Ticket {
    /// Place in a table of those that wait: small, and free again after [`Wheel::remove`].
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// What is known of a ticket. All of them lie side by side: a deadline that moved later is found out, and its entry
/// corrected, without touching the link it belongs to.
#[derive(Clone, Copy, Debug)]
struct Slot {
    due: Stamp,
    /// Its earliest entry in the heap; others are stale.
    queued: Stamp,
    turn: u32,
}

/// Deadlines of every link and endpoint of a worker. A deadline that moves later costs one store; its heap entry is
/// corrected when it comes up.
#[derive(Default, Debug)]
pub struct Wheel {
    heap: BinaryHeap<Reverse<(Stamp, Ticket)>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// About how many entries belong to nobody any more.
    stale: usize,
}

/// So many stale entries are not worth a look.
const STALE_FEW: usize = 1024;

impl Wheel {
    /// One more that waits, for nothing yet.
    pub fn add(&mut self) -> Ticket {
        if let Some(index) = self.free.pop() {
            return Ticket { index, turn: self.slots[index as usize].turn };
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { due: Stamp::NEVER, queued: Stamp::NEVER, turn: 0 });
        Ticket { index, turn: 0 }
    }

    /// How many there are, waiting or not.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// It waits no more.
    pub fn remove(&mut self, ticket: Ticket) {
        let Some(slot) = self.slot(ticket) else { return };
        let queued = slot.queued != Stamp::NEVER;
        *slot = Slot { due: Stamp::NEVER, queued: Stamp::NEVER, turn: ticket.turn.wrapping_add(1) };
        self.free.push(ticket.index);
        self.stale += usize::from(queued);
        if self.stale > STALE_FEW && self.stale * 2 > self.heap.len() {
            self.sweep();
        }
    }

    /// Time limits are set and hardly ever reached: their entries must not wait for their time.
    fn sweep(&mut self) {
        let slots = &self.slots;
        let live =
            |at: Stamp, t: Ticket| slots.get(t.index()).is_some_and(|s| s.turn == t.turn && s.queued == at);
        self.heap.retain(|Reverse((at, ticket))| live(*at, *ticket));
        self.stale = 0;
    }

    fn slot(&mut self, ticket: Ticket) -> Option<&mut Slot> {
        self.slots.get_mut(ticket.index()).filter(|s| s.turn == ticket.turn)
    }

    /// It waits for `due` from now on, be that earlier or later than before.
    pub fn set(&mut self, ticket: Ticket, due: Stamp) {
        let Some(slot) = self.slot(ticket) else { return };
        slot.due = due;
        if due < slot.queued {
            slot.queued = due;
            self.heap.push(Reverse((due, ticket)));
        }
    }

    /// When the earliest is due.
    pub fn earliest(&mut self) -> Option<Stamp> {
        while let Some(&Reverse((at, ticket))) = self.heap.peek() {
            if self.holds(at, ticket) {
                return Some(at);
            }
        }
        None
    }

    /// One that is due at `now`; it waits for nothing until it is set again.
    pub fn pop_due(&mut self, now: Stamp) -> Option<Ticket> {
        while let Some(&Reverse((at, ticket))) = self.heap.peek() {
            if at > now {
                return None;
            }
            if self.holds(at, ticket) {
                self.heap.pop();
                let slot = self.slot(ticket)?;
                (slot.due, slot.queued) = (Stamp::NEVER, Stamp::NEVER);
                return Some(ticket);
            }
        }
        None
    }

    /// Whether the first entry of the heap is true; if not, it is taken out, and put back where it belongs by now.
    fn holds(&mut self, at: Stamp, ticket: Ticket) -> bool {
        let live = self.slot(ticket).filter(|s| s.queued == at);
        let Some(slot) = live else {
            self.heap.pop();
            self.stale = self.stale.saturating_sub(1);
            return false;
        };
        if slot.due <= at {
            return true;
        }
        let due = slot.due;
        slot.queued = due;
        self.heap.pop();
        if due != Stamp::NEVER {
            self.heap.push(Reverse((due, ticket)));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Stamp {
        Stamp::from_millis(n)
    }

    #[test]
    fn due_in_order_and_reports_the_earliest() {
        let mut w = Wheel::default();
        let [a, b, c] = [(); 3].map(|()| w.add());
        for (who, at, next) in [(a, 20, 20), (b, 30, 20), (c, 10, 10)] {
            w.set(who, ms(at));
            assert_eq!(w.earliest(), Some(ms(next)));
        }
        assert_eq!(w.pop_due(ms(9)), None);
        assert_eq!(w.pop_due(ms(25)), Some(c));
        assert_eq!(w.pop_due(ms(25)), Some(a));
        assert_eq!(w.pop_due(ms(25)), None);
        assert_eq!(w.earliest(), Some(ms(30)));
    }

    #[test]
    fn a_deadline_that_moved_is_due_once_at_its_last_place() {
        let mut w = Wheel::default();
        let a = w.add();
        for set in [50, 80, 40, 60] {
            w.set(a, ms(set));
        }
        assert_eq!(w.earliest(), Some(ms(60)));
        assert_eq!(w.pop_due(ms(59)), None);
        assert_eq!(w.pop_due(ms(60)), Some(a));
        assert_eq!(w.pop_due(ms(1000)), None);
        w.set(a, ms(70));
        w.set(a, Stamp::NEVER);
        assert_eq!(w.pop_due(ms(1000)), None);
        assert_eq!(w.earliest(), None, "nothing is left behind");
    }

    #[test]
    fn what_was_removed_is_never_due_and_its_number_is_used_again() {
        let mut w = Wheel::default();
        let old = w.add();
        w.set(old, ms(10));
        w.remove(old);
        w.remove(old);
        let new = w.add();
        assert_eq!((old.index(), w.add().index()), (new.index(), 1), "removed once only");
        w.set(old, ms(5));
        assert_eq!(w.earliest(), None);
        w.set(new, ms(30));
        assert_eq!(w.pop_due(ms(20)), None);
        assert_eq!(w.pop_due(ms(30)), Some(new));
    }

    #[test]
    fn limits_that_were_not_reached_do_not_pile_up() {
        let mut w = Wheel::default();
        let stays = w.add();
        w.set(stays, Stamp::from_millis(7000));
        for ms in 0..50_000 {
            let t = w.add();
            w.set(t, Stamp::from_millis(5000 + ms));
            w.remove(t);
        }
        assert!(w.heap.len() <= 2 * STALE_FEW + 2, "{}", w.heap.len());
        assert_eq!(w.pop_due(Stamp::from_millis(6999)), None);
        assert_eq!(w.pop_due(Stamp::from_millis(7000)), Some(stays));
    }
}
