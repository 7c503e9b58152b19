//! Links of one peer process.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

/// Links of the same peer process, over all workers: which of them was used last. It alone holds the short promise.
#[derive(Default)]
pub struct Groups(Mutex<HashMap<(String, u64), Group>>);

#[derive(Default)]
struct Group {
    mru: Arc<AtomicU64>,
    links: usize,
}

impl Groups {
    /// One more link of that process: its group's link that was used last.
    pub(super) fn join(&self, node: &str, incarnation: u64) -> Arc<AtomicU64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let group = all.entry((node.to_owned(), incarnation)).or_default();
        group.links += 1;
        group.mru.clone()
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
