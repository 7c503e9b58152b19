//! Pure: no IO, no clock. The one timer of a worker: a heap of (when, who), lazily corrected.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::stamp::Stamp;

/// Deadlines of every link and endpoint of a worker. A deadline that moves later needs no change here: its owner is
/// asked again when the old one comes.
#[derive(Default, Debug)]
pub struct Wheel {
    heap: BinaryHeap<Reverse<(Stamp, u64)>>,
}

impl Wheel {
    /// Asks for `id` at `at`. True if it is now the earliest.
    pub fn push(&mut self, at: Stamp, id: u64) -> bool {
        let first = self.next().is_none_or(|n| at < n);
        self.heap.push(Reverse((at, id)));
        first
    }

    /// When the earliest is due.
    pub fn next(&self) -> Option<Stamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The earliest that is due at `now`.
    pub fn pop_due(&mut self, now: Stamp) -> Option<(Stamp, u64)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(e)| e)
    }

    /// Entries, live or stale.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if nothing is waited for.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_in_order_and_reports_the_earliest() {
        let mut w = Wheel::default();
        assert!(w.push(Stamp::from_millis(20), 1));
        assert!(!w.push(Stamp::from_millis(30), 2));
        assert!(w.push(Stamp::from_millis(10), 3));
        assert_eq!(w.pop_due(Stamp::from_millis(9)), None);
        assert_eq!(w.pop_due(Stamp::from_millis(25)), Some((Stamp::from_millis(10), 3)));
        assert_eq!(w.pop_due(Stamp::from_millis(25)), Some((Stamp::from_millis(20), 1)));
        assert_eq!(w.pop_due(Stamp::from_millis(25)), None);
        assert_eq!(w.len(), 1);
    }
}
