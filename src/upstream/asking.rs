//! What the service beside us waits for at one endpoint: connections whose last word was ours, in atomics.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::registry::Shared;
use crate::clock;
use crate::stamp::Stamp;

/// Of all connections to one endpoint.
#[derive(Debug, Default)]
pub struct Questions {
    open: AtomicUsize,
    /// CLOCK_MONOTONIC ns; 0: never.
    let_down: AtomicU64,
}

impl Questions {
    /// Whether any waits for an answer.
    pub fn waiting(&self) -> bool {
        self.open.load(Relaxed) > 0
    }

    /// When one last ended without its answer; zero: never.
    pub fn let_down(&self) -> Stamp {
        Stamp::from_nanos(self.let_down.load(Relaxed))
    }

    /// One ended without its answer.
    pub fn unanswered(&self, now: Stamp) {
        self.let_down.store(now.as_nanos(), Relaxed);
    }
}

/// One connection of the local service, from its first attempt on that endpoint to its end. It begins as a question.
pub struct Asking {
    shared: Arc<Shared>,
    waits: Cell<bool>,
}

impl Asking {
    /// The endpoint is tried.
    pub fn new(shared: &Arc<Shared>) -> Asking {
        shared.questions.open.fetch_add(1, Relaxed);
        Asking { shared: shared.clone(), waits: Cell::new(true) }
    }

    /// The service said something (`waits`), or got something, or has an open way and said nothing yet.
    pub fn set(&self, waits: bool) {
        if self.waits.replace(waits) == waits {
            return;
        }
        let open = &self.shared.questions.open;
        if waits {
            open.fetch_add(1, Relaxed)
        } else {
            open.fetch_sub(1, Relaxed)
        };
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.waits.get() {
            self.shared.questions.unanswered(clock::now());
            self.set(false);
        }
    }
}
