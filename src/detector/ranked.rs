//! Pure: no IO, no clock. The latest values of a window in order of size: their percentiles.

use std::time::Duration;

use super::gaps::Window;

/// A window that knows its percentiles.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    window: Window,
    /// The same values in order of size.
    sorted: Vec<i64>,
}

impl Ranked {
    /// An empty window; memory comes as it fills.
    pub(super) fn new(size: u32) -> Ranked {
        Ranked { window: Window::new(size), sorted: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.window.len()
    }

    /// Adds a value, ns; the oldest one leaves a full window.
    pub(super) fn push(&mut self, ns: i64) {
        let out = self.window.push(ns);
        self.exchange(out, Some(ns));
    }

    /// Takes the latest one back, once.
    pub(super) fn undo(&mut self) {
        if let Some((undone, back)) = self.window.undo() {
            self.exchange(Some(undone), back);
        }
    }

    fn exchange(&mut self, out: Option<i64>, into: Option<i64>) {
        if let Some(out) = out
            && let Ok(index) = self.sorted.binary_search(&out)
        {
            self.sorted.remove(index);
        }
        if let Some(ns) = into {
            let index = self.sorted.partition_point(|kept| *kept < ns);
            self.sorted.insert(index, ns);
        }
    }

    /// The least value that `percent` of them do not exceed.
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.sorted.len() * percent).div_ceil(100);
        let ns = self.sorted.get(rank.checked_sub(1)?)?;
        Some(Duration::from_nanos(u64::try_from(*ns).unwrap_or(0)))
    }
}
