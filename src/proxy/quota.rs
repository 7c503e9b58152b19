//! Pure: no IO, no clock. Hard caps on how many of something there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A cap shared by all workers.
#[derive(Debug)]
pub struct Quota {
    used: AtomicUsize,
    max: usize,
}

/// One unit; given back when dropped.
#[derive(Debug)]
pub struct Permit(Arc<Quota>);

impl Quota {
    /// At most `max` permits at once.
    pub fn new(max: usize) -> Arc<Quota> {
        Arc::new(Quota { used: AtomicUsize::new(0), max })
    }

    /// A permit, or None when the cap is reached.
    pub fn take(self: &Arc<Quota>) -> Option<Permit> {
        let got = self.used.fetch_update(Relaxed, Relaxed, |n| (n < self.max).then_some(n + 1));
        got.ok().map(|_| Permit(self.clone()))
    }

    /// Permits in use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_cap() {
        let q = Quota::new(2);
        let a = q.take();
        let b = q.take();
        assert!(a.is_some() && b.is_some() && q.take().is_none());
        drop(a);
        assert_eq!(q.used(), 1);
        assert!(q.take().is_some());
    }
}
