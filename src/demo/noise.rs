//! How late this machine wakes its threads: a 1 ms ticker beside the load. No number of the demo can be better.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};

use super::ledger::{self, Latency};
use crate::clock;
use crate::stamp::Stamp;

/// Blocks this thread until `at`.
pub fn sleep_until(at: Stamp) {
    let ns = at.as_nanos();
    let until = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
}

/// A running ticker; ends when dropped.
#[derive(Debug)]
pub struct Noise {
    late_us: Arc<Mutex<Histogram<u64>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Noise {
    /// Starts the ticker thread.
    pub fn start() -> io::Result<Noise> {
        let late_us = Arc::new(Mutex::new(ledger::histogram()));
        let stop = Arc::new(AtomicBool::new(false));
        let (l, s) = (late_us.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("demo-noise".into()).spawn(move || tick(&l, &s))?;
        Ok(Noise { late_us, stop, thread: Some(thread) })
    }

    /// Lateness so far, ms.
    pub fn lateness(&self) -> Latency {
        ledger::latency(&self.late_us.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
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

/// Threads that do nothing but use the processor; they end when dropped.
#[derive(Debug)]
pub struct Burn {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Burn {
    /// Starts `n` of them.
    pub fn start(n: u16) -> io::Result<Burn> {
        let stop = Arc::new(AtomicBool::new(false));
        let burn = |stop: Arc<AtomicBool>| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let one = |_| {
            let stop = stop.clone();
            std::thread::Builder::new().name("demo-burn".into()).spawn(move || burn(stop))
        };
        let threads = (0..n).map(one).collect::<io::Result<_>>()?;
        Ok(Burn { stop, threads })
    }
}

impl Drop for Burn {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
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
