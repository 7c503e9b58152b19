//! How late this machine wakes its threads: a 1 ms ticker beside the load. No number of the demo can be better.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::ClockId;

use super::ledger::{self, Latency};
use super::threads::Threads;
use crate::clock;
use crate::stamp::Stamp;

/// Blocks this thread until `at`.
pub fn sleep_until(at: Stamp) {
    let until = clock::timespec(at);
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
}

/// A running ticker; ends when dropped.
#[derive(Debug)]
pub struct Noise {
    late_us: Arc<Mutex<Histogram<u64>>>,
    _ticker: Threads,
}

impl Noise {
    /// Starts the ticker thread.
    pub fn start() -> io::Result<Noise> {
        let late_us = Arc::new(Mutex::new(ledger::histogram()));
        let (mut ticker, l) = (Threads::default(), late_us.clone());
        ticker.spawn("demo-noise", move |stop| tick(&l, stop))?;
        Ok(Noise { late_us, _ticker: ticker })
    }

    /// Lateness so far, ms.
    pub fn lateness(&self) -> Latency {
        ledger::latency(&self.late_us.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn tick(late_us: &Mutex<Histogram<u64>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let due = clock::now() + Duration::from_millis(1);
        sleep_until(due);
        let late = clock::now().since(due).as_micros() as u64;
        late_us.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(late.max(1));
    }
}

/// Threads that do nothing but use the processor, `n` of them.
pub fn burn(n: u16) -> io::Result<Threads> {
    let mut threads = Threads::default();
    for _ in 0..n {
        threads.spawn("demo-burn", |stop| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })?;
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_ends_after_the_instant() {
        let at = clock::now() + Duration::from_millis(2);
        sleep_until(at);
        assert!(clock::now() >= at);
        sleep_until(Stamp::ZERO);
    }

    #[test]
    fn the_ticker_measures() {
        let noise = Noise::start().unwrap();
        let limit = clock::now() + Duration::from_secs(10);
        while noise.lateness().max == 0.0 && clock::now() < limit {
            sleep_until(clock::now() + Duration::from_millis(2));
        }
        assert!(noise.lateness().max > 0.0);
    }
}
