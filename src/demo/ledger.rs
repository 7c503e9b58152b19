//! Pure: no IO, no clock. What became of the requests: totals, latency, and what each fault did to them.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use crate::stamp::Stamp;

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shot {
    /// When the open loop meant to send it: latency counts from here.
    pub intended: Stamp,
    /// When its first byte was written or its first connection was dialled.
    pub sent: Stamp,
    /// When its answer was complete, or it was given up.
    pub done: Stamp,
    /// Index of the service that answered; None if it failed.
    pub by: Option<usize>,
    /// Went over a connection of its own.
    pub fresh: bool,
    /// Was tried a second time.
    pub retried: bool,
}

/// What a fault did to the requests, from its beginning on.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    target: Option<usize>,
    at: Stamp,
    /// Requests that ended before the fault's instant was known.
    early: Option<Vec<Shot>>,
    elsewhere: Option<Stamp>,
    asked: Option<Stamp>,
    last_caught: Option<Stamp>,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that needed their second try.
    pub retried: u64,
    /// Longest latency from the intended instant, ms.
    pub worst_ms: f64,
}

/// A request on a fresh connection that took this long was caught by the fault, ms.
const CAUGHT_MS: f64 = 100.0;

impl Watch {
    fn record(&mut self, shot: &Shot) {
        if let Some(early) = &mut self.early {
            early.push(*shot);
            return;
        }
        if shot.done < self.at {
            return;
        }
        self.failed += u64::from(shot.by.is_none());
        self.retried += u64::from(shot.retried);
        self.worst_ms = self.worst_ms.max(shot.done.millis_since(shot.intended));
        if shot.sent < self.at {
            return;
        }
        if self.target.is_some() && shot.by == self.target {
            self.asked = Some(self.asked.map_or(shot.sent, |t| t.min(shot.sent)));
        }
        if self.target.is_some() && shot.by.is_some() && shot.by != self.target {
            self.elsewhere = Some(self.elsewhere.map_or(shot.done, |t| t.min(shot.done)));
        }
        let slow = shot.done.millis_since(shot.sent) > CAUGHT_MS;
        if shot.fresh && (shot.by.is_none() || shot.retried || slow) {
            self.last_caught = self.last_caught.max(Some(shot.sent));
        }
    }

    /// Fault to the first answer, from another endpoint, of a request sent after it, ms.
    pub fn served_elsewhere_ms(&self) -> Option<f64> {
        self.elsewhere.map(|t| t.millis_since(self.at))
    }

    /// When the first request left, since the fault, that its target answered (later, if need be).
    pub fn asked(&self) -> Option<Stamp> {
        self.asked
    }

    /// Fault to the last request on a fresh connection that it still caught (needed a second try, failed or took
    /// over 100 ms): from then on all new work went elsewhere, ms.
    pub fn last_caught_ms(&self) -> Option<f64> {
        self.last_caught.map(|t| t.millis_since(self.at))
    }
}

/// Totals, latencies in microseconds, and the watches of the faults under way.
#[derive(Debug)]
pub struct Ledger {
    /// Requests that ended.
    pub total: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Of these, tried twice.
    pub retried: u64,
    /// Answers per service.
    pub served: Vec<u64>,
    all: Histogram<u64>,
    recent: Histogram<u64>,
    watches: HashMap<u64, Watch>,
    next_watch: u64,
}

const LATENCY_MAX_US: u64 = 60_000_000;

/// For microseconds up to a minute; larger values count as a minute.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).unwrap_or_else(|e| unreachable!("constant bounds: {e}"))
}

/// Median, 99th percentile and maximum of latencies, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Of a histogram of microseconds.
pub(super) fn latency(h: &Histogram<u64>) -> Latency {
    let ms = |us: u64| us as f64 / 1e3;
    Latency { p50: ms(h.value_at_quantile(0.5)), p99: ms(h.value_at_quantile(0.99)), max: ms(h.max()) }
}

impl Ledger {
    /// Empty, for `services` services.
    pub fn new(services: usize) -> Ledger {
        Ledger {
            total: 0,
            failed: 0,
            retried: 0,
            served: vec![0; services],
            all: histogram(),
            recent: histogram(),
            watches: HashMap::new(),
            next_watch: 0,
        }
    }

    /// Adds a request that ended.
    pub fn record(&mut self, shot: &Shot) {
        self.total += 1;
        self.failed += u64::from(shot.by.is_none());
        self.retried += u64::from(shot.retried);
        if let Some(count) = shot.by.and_then(|i| self.served.get_mut(i)) {
            *count += 1;
        }
        let us = shot.done.since(shot.intended).as_micros() as u64;
        self.all.saturating_record(us);
        self.recent.saturating_record(us);
        for watch in self.watches.values_mut() {
            watch.record(shot);
        }
    }

    /// Begins to watch a fault that is about to be injected; the number ends it.
    pub fn watch(&mut self) -> u64 {
        self.next_watch += 1;
        let watch = Watch {
            target: None,
            at: Stamp::ZERO,
            early: Some(Vec::new()),
            elsewhere: None,
            asked: None,
            last_caught: None,
            failed: 0,
            retried: 0,
            worst_ms: 0.0,
        };
        self.watches.insert(self.next_watch, watch);
        self.next_watch
    }

    /// Tells a watch when the fault began, and which service it hit, if one.
    pub fn arm(&mut self, id: u64, target: Option<usize>, at: Stamp) {
        let Some(w) = self.watches.get_mut(&id) else { return };
        (w.target, w.at) = (target, at);
        for shot in w.early.take().unwrap_or_default() {
            w.record(&shot);
        }
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, id: u64) -> Option<Watch> {
        self.watches.remove(&id)
    }

    /// Latency of all requests.
    pub fn latency(&self) -> Latency {
        latency(&self.all)
    }

    /// Latency since the last call.
    pub fn take_recent(&mut self) -> Latency {
        let out = latency(&self.recent);
        self.recent.reset();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shot(sent: u64, done: u64, by: Option<usize>) -> Shot {
        let ms = Stamp::from_millis;
        Shot { intended: ms(sent), sent: ms(sent), done: ms(done), by, fresh: true, retried: false }
    }

    #[test]
    fn a_fault_sees_only_what_it_could_have_hit() {
        let mut l = Ledger::new(3);
        let id = l.watch();
        l.record(&shot(95, 99, None)); // over before
        l.record(&shot(98, 101, Some(0))); // sent before: no answer of a request after the fault
        l.record(&shot(101, 102, Some(1))); // the target still answers
        l.record(&shot(103, 109, Some(2)));
        l.arm(id, Some(1), Stamp::from_millis(100));
        l.record(&shot(102, 107, Some(0))); // ended earlier, recorded later
        l.record(&Shot { retried: true, ..shot(120, 1200, Some(0)) });
        l.record(&shot(130, 2130, None));
        let w = l.unwatch(id).unwrap();
        assert_eq!(w.served_elsewhere_ms(), Some(7.0));
        assert_eq!(w.asked(), Some(Stamp::from_millis(101)));
        assert_eq!(w.last_caught_ms(), Some(30.0));
        assert_eq!((w.failed, w.retried, w.worst_ms), (1, 1, 2000.0));
        assert_eq!((l.total, l.failed, l.retried), (7, 2, 1));
        assert_eq!(l.served, [3, 1, 1]);
        assert!(l.unwatch(id).is_none());
    }

    #[test]
    fn latency_counts_from_the_intended_instant() {
        let mut l = Ledger::new(1);
        let mut s = shot(50, 52, Some(0));
        s.intended = Stamp::from_millis(10);
        l.record(&s);
        let got = l.take_recent();
        assert!((got.max - 42.0).abs() < 0.2, "{got:?}");
        assert_eq!(l.take_recent().max, 0.0);
        assert!(l.latency().p50 > 41.0);
    }
}
