//! How late this machine wakes its threads: a 1 ms ticker per processor beside the load. No number of the demo can be better.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::ClockId;

use super::ledger::{self, Latency};
use super::threads::Threads;
use crate::clock;
use crate::stamp::Stamp;
use crate::sys::sched;

/// Blocks this thread until `at`.
pub fn sleep_until(at: Stamp) {
    let until = clock::timespec(at);
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
}

/// A thread that wakes up this late was not merely waiting for its turn.
const STOP: Duration = Duration::from_millis(15);
/// As many are remembered.
const STOPS: usize = 1000;

/// A processor ran nothing of ours for a while: its host had taken it away, or something more important used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Its number; `None` where threads cannot be bound to one.
    pub cpu: Option<usize>,
    /// When its ticker should have woken up.
    pub from: Stamp,
    /// When it did.
    pub to: Stamp,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cpu {
            Some(cpu) => write!(f, "processor {cpu}")?,
            None => write!(f, "a processor")?,
        }
        write!(f, " stood still for {:.1} ms", self.to.millis_since(self.from))
    }
}

#[derive(Debug)]
struct Heard {
    late_us: Histogram<u64>,
    stops: VecDeque<Stop>,
    /// Of all, those forgotten too.
    count: u64,
}

impl Heard {
    fn new() -> Arc<Mutex<Heard>> {
        Arc::new(Mutex::new(Heard { late_us: ledger::histogram(), stops: VecDeque::new(), count: 0 }))
    }

    fn record(&mut self, cpu: Option<usize>, due: Stamp, woke: Stamp) {
        let late = woke.since(due);
        self.late_us.saturating_record((late.as_micros() as u64).max(1));
        if late < STOP {
            return;
        }
        self.count += 1;
        if self.stops.len() == STOPS {
            self.stops.pop_front();
        }
        self.stops.push_back(Stop { cpu, from: due, to: woke });
    }
}

/// Running tickers, one per processor; they end when dropped.
#[derive(Debug)]
pub struct Noise {
    heard: Arc<Mutex<Heard>>,
    _tickers: Threads,
}

impl Noise {
    /// Starts the tickers, each bound to its processor: a thread that may move would not see one of them stop.
    pub fn start() -> io::Result<Noise> {
        let heard = Heard::new();
        let mut tickers = Threads::default();
        for cpu in processors() {
            let heard = heard.clone();
            tickers.spawn("demo-noise", move |stop| tick(cpu, &heard, stop))?;
        }
        Ok(Noise { heard, _tickers: tickers })
    }

    /// Lateness so far, ms, of all processors.
    pub fn lateness(&self) -> Latency {
        ledger::latency(&self.lock().late_us)
    }

    /// How often a processor stood still.
    pub fn stops(&self) -> u64 {
        self.lock().count
    }

    /// The longest time within `from..=to`, as far as remembered, that one of the processors stood still.
    pub fn stop_within(&self, from: Stamp, to: Stamp) -> Option<Stop> {
        let meets = |s: &&Stop| s.from <= to && s.to >= from;
        self.lock().stops.iter().filter(meets).max_by_key(|s| s.to.since(s.from)).copied()
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those that this process may use; one unknown where the system does not tell.
fn processors() -> Vec<Option<usize>> {
    let all = sched::processors();
    if all.is_empty() { vec![None] } else { all.into_iter().map(Some).collect() }
}

fn tick(cpu: Option<usize>, heard: &Mutex<Heard>, stop: &AtomicBool) {
    let cpu = cpu.filter(|cpu| sched::bind(*cpu).is_ok());
    while !stop.load(Ordering::Relaxed) {
        let due = clock::now() + Duration::from_millis(1);
        sleep_until(due);
        heard.lock().unwrap_or_else(PoisonError::into_inner).record(cpu, due, clock::now());
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

    #[test]
    fn a_stop_is_told_where_it_meets_a_silence_and_the_longest_of_several() {
        let at = |ms| Stamp::ZERO + Duration::from_millis(ms);
        let noise = Noise { heard: Heard::new(), _tickers: Threads::default() };
        for (cpu, from, to) in [(0, 100, 114), (0, 200, 220), (1, 205, 243)] {
            noise.lock().record(Some(cpu), at(from), at(to));
        }
        assert_eq!((noise.stops(), noise.stop_within(at(90), at(150))), (2, None), "too short");
        let stop = noise.stop_within(at(215), at(245)).unwrap();
        assert_eq!(stop.to_string(), "processor 1 stood still for 38.0 ms");
        assert_eq!(noise.stop_within(at(244), at(300)), None);
        for n in 0..STOPS as u64 {
            noise.lock().record(None, at(1000 * n), at(1000 * n + 15));
        }
        assert_eq!(noise.lock().stops.len(), STOPS, "bounded");
        assert_eq!(noise.stop_within(at(215), at(245)), None, "forgotten");
    }
}
