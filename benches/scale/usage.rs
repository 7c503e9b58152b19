//! What a process costs, as the kernel counts it.

use std::time::Duration;

use sidebeat::clock;
use sidebeat::stamp::Stamp;

/// Memory of a process, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Resident, pages shared with other processes included.
    pub(crate) rss: u64,
    /// Resident, shared pages divided among those who share them.
    pub(crate) pss: u64,
    /// Heap and stacks: what no file backs.
    pub(crate) anonymous: u64,
}

impl std::ops::Add for Memory {
    type Output = Memory;
    fn add(self, o: Memory) -> Memory {
        Memory { rss: self.rss + o.rss, pss: self.pss + o.pss, anonymous: self.anonymous + o.anonymous }
    }
}

/// Memory of a process now.
pub(crate) fn memory(pid: u32) -> Memory {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("smaps_rollup");
    let field = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    Memory { rss: field("Rss:"), pss: field("Pss:"), anonymous: field("Anonymous:") }
}

/// Time on a processor and sleeps of all threads of a process, from some instant on.
pub(crate) struct Clocked {
    pid: u32,
    at: Stamp,
    busy: Duration,
    sleeps: u64,
}

/// What [`Clocked`] saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Per cent of one core.
    pub(crate) core: f64,
    /// Times a second that a thread went to sleep.
    pub(crate) sleeps: f64,
}

impl Clocked {
    /// From now on.
    pub(crate) fn start(pid: u32) -> Clocked {
        let (busy, sleeps) = so_far(pid);
        Clocked { pid, at: clock::now(), busy, sleeps }
    }

    /// Until now.
    pub(crate) fn stop(&self) -> Load {
        let (busy, sleeps) = so_far(self.pid);
        let took = clock::now().since(self.at).as_secs_f64();
        Load {
            core: (busy - self.busy).as_secs_f64() / took * 100.0,
            sleeps: (sleeps - self.sleeps) as f64 / took,
        }
    }
}

fn so_far(pid: u32) -> (Duration, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let (mut ns, mut sleeps) = (0, 0);
    for task in tasks.flatten().map(|t| t.path()) {
        let first = |file: &str, skip: &str| -> u64 {
            let text = std::fs::read_to_string(task.join(file)).unwrap_or_default();
            let line = text.lines().find_map(|l| l.strip_prefix(skip)).unwrap_or_default();
            line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        ns += first("schedstat", "");
        sleeps += first("status", "voluntary_ctxt_switches:");
    }
    (Duration::from_nanos(ns), sleeps)
}
