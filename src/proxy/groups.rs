//! Links of one peer process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::link::duty::Duty;

/// Links of the same peer process, over all workers: which of them were used last. They hold the short promise.
#[derive(Default)]
pub struct Groups(Mutex<HashMap<(String, u64), Group>>);

struct Group {
    duty: Arc<Duty>,
    links: usize,
}

impl Groups {
    /// One more link of that process; `duty` of them hold the short promise.
    pub(super) fn join(&self, node: &str, incarnation: u64, duty: usize) -> Arc<Duty> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = || Group { duty: Arc::new(Duty::new(duty)), links: 0 };
        let group = all.entry((node.to_owned(), incarnation)).or_insert_with(first);
        group.links += 1;
        group.duty.clone()
    }

    /// Whether that process has a link.
    pub(super) fn linked(&self, node: &str, incarnation: u64) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.contains_key(&(node.to_owned(), incarnation))
    }

    /// One link less.
    pub(super) fn leave(&self, node: &str, incarnation: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (node.to_owned(), incarnation);
        if let Some(group) = all.get_mut(&key) {
            group.links -= 1;
            if group.links == 0 {
                all.remove(&key);
            }
        }
    }
}
