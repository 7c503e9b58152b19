//! Evidence E3: /proc of the processes that own the listener, and a pidfd of each as a second sign of exit. A process that
//! cannot be seen is unknown, never guessed.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::fuse::ProcessOpinion;
pub use super::owners::Owner;
use super::owners::Scan;
use crate::stamp::Stamp;

/// CPU time is counted in ticks of 10 ms, so its rate needs a window. Ticks within a window that count as burning: a third
/// of a core seen soon, a seventh seen later (a machine short of CPU gives no more).
const CPU_WINDOWS: [(Duration, u64); 2] = [(Duration::from_millis(60), 2), (Duration::from_millis(200), 3)];
/// A walk over /proc for the same listener at most this often.
const RESCAN: Duration = Duration::from_secs(1);
/// For another listener.
const RESCAN_CHANGED: Duration = Duration::from_millis(100);
/// Forked workers that inherit the listener are found after this.
const REFRESH: Duration = Duration::from_secs(30);

/// What sidebeat needs of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// State letter.
    pub state: char,
    /// User and system time of all threads, in clock ticks.
    pub cpu_ticks: u64,
    /// Threads; more than one for a leader that exited before its threads.
    pub threads: u32,
}

impl ProcStat {
    /// Parses the file; the command name in parentheses may hold anything, also parentheses and line ends.
    pub fn parse(text: &[u8]) -> Option<ProcStat> {
        let end = text.iter().rposition(|b| *b == b')')?;
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let user: u64 = fields.nth(10)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let threads = fields.nth(4)?.parse().ok()?;
        Some(ProcStat { state, cpu_ticks: user.saturating_add(system), threads })
    }

    /// A signal stopped it, or it is a zombie. A zombie leader whose threads live on still works.
    pub fn stopped(&self) -> bool {
        self.state == 'T' || (matches!(self.state, 'Z' | 'X') && self.threads <= 1)
    }

    /// Halted by a tracer. strace halts a process for microseconds at each system call, so one look proves nothing.
    pub fn traced(&self) -> bool {
        self.state == 't'
    }
}

#[derive(Debug)]
struct Watched {
    pid: u32,
    stat: File,
    /// `None` where the kernel has none or forbids it.
    pidfd: Option<OwnedFd>,
    last: Option<ProcStat>,
}

impl Watched {
    fn open(pid: u32) -> Option<Watched> {
        let stat = File::open(format!("/proc/{pid}/stat")).ok()?;
        // Opened after `stat`: if the pid is used again in between, one of the two says so at the first look.
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pidfd = raw.and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        Some(Watched { pid, stat, pidfd, last: None })
    }

    /// All its threads have ended; true also for a zombie that nobody reaps.
    fn exited(&self) -> bool {
        let Some(fd) = &self.pidfd else { return false };
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
    }

    /// The open file belongs to this process for ever: after its exit the read fails, also when the pid is used again.
    fn read(&self) -> Option<ProcStat> {
        let mut buf = [0u8; 1024];
        let n = self.stat.read_at(&mut buf, 0).ok()?;
        ProcStat::parse(buf.get(..n)?)
    }
}

/// Watches the owners of one listener.
#[derive(Debug, Default)]
pub struct ProcessWatch {
    owner: Option<Owner>,
    watched: Vec<Watched>,
    scan: Option<Scan>,
    scanned_at: Option<Stamp>,
    rescan: bool,
    had_some: bool,
    cpu: VecDeque<(Stamp, u64)>,
    opinion: ProcessOpinion,
}

impl ProcessWatch {
    /// Nothing known.
    pub fn new() -> ProcessWatch {
        ProcessWatch::default()
    }

    /// A walk over /proc is under way: call [`ProcessWatch::sample`] again soon.
    pub fn searching(&self) -> bool {
        self.scan.is_some()
    }

    /// Processes that are watched.
    pub fn pids(&self) -> Vec<u32> {
        self.watched.iter().map(|w| w.pid).collect()
    }

    /// The watched processes proved to be the wrong ones, or may no longer be all.
    pub fn distrust(&mut self) {
        self.rescan = true;
    }

    /// Reads the state of the owners; `owner` as the listener look-up tells it, `None` while nothing listens. A few us per
    /// process.
    pub fn sample(&mut self, now: Stamp, owner: Option<&Owner>) -> ProcessOpinion {
        self.search(now, owner);
        self.opinion = self.read(now);
        self.opinion
    }

    fn search(&mut self, now: Stamp, owner: Option<&Owner>) {
        if let Some(scan) = &self.scan {
            if let Some(found) = scan.found() {
                self.scan = None;
                self.adopt(found.pids());
            }
            return;
        }
        let Some(owner) = owner.filter(|o| !o.inodes.is_empty()) else { return };
        let changed = self.owner.as_ref() != Some(owner);
        let age = self.scanned_at.map_or(Duration::MAX, |at| now.since(at));
        let due = match (changed, self.rescan) {
            (true, _) => age >= RESCAN_CHANGED,
            (false, true) => age >= RESCAN,
            (false, false) => age >= REFRESH,
        };
        if !due {
            return;
        }
        self.owner = Some(owner.clone());
        self.scanned_at = Some(now);
        self.rescan = false;
        self.scan = Scan::begin(owner.clone()).ok();
        // Without a thread nothing is known; it is tried again.
        self.rescan = self.scan.is_none();
    }

    fn adopt(&mut self, pids: &[u32]) {
        self.watched.retain(|w| pids.contains(&w.pid));
        for pid in pids {
            if !self.watched.iter().any(|w| w.pid == *pid) {
                self.watched.extend(Watched::open(*pid));
            }
        }
        self.cpu.clear();
        self.had_some = !self.watched.is_empty();
    }

    fn read(&mut self, now: Stamp) -> ProcessOpinion {
        let (mut all_stopped, mut blocked, mut ticks) = (true, false, 0u64);
        let before = self.watched.len();
        self.watched.retain_mut(|w| {
            let Some(stat) = w.read().filter(|_| !w.exited()) else { return false };
            let halted = stat.traced() && w.last == Some(stat);
            all_stopped &= stat.stopped() || halted;
            blocked |= stat.state == 'D';
            ticks += stat.cpu_ticks;
            w.last = Some(stat);
            true
        });
        if self.watched.len() < before {
            self.rescan = true;
            self.cpu.clear();
        }
        let known = !self.watched.is_empty();
        let stopped = known && all_stopped;
        if stopped && !self.opinion.stopped {
            // A worker forked since the last walk may be running.
            self.rescan = true;
        }
        let cpu_advancing = self.burning(now, ticks);
        ProcessOpinion { known, stopped, gone: self.had_some && !known, cpu_advancing, blocked }
    }

    fn burning(&mut self, now: Stamp, ticks: u64) -> bool {
        self.cpu.push_back((now, ticks));
        let longest = CPU_WINDOWS.iter().map(|(w, _)| *w).max().unwrap_or_default();
        // The newest sample at least a window old stays as the base.
        while self.cpu.get(1).is_some_and(|(at, _)| now.since(*at) >= longest) {
            self.cpu.pop_front();
        }
        CPU_WINDOWS.iter().any(|(window, needed)| {
            let base = self.cpu.iter().rev().find(|(at, _)| now.since(*at) >= *window).or(self.cpu.front());
            base.is_some_and(|(at, before)| {
                let windows = (now.since(*at).as_secs_f64() / window.as_secs_f64()).max(1.0);
                ticks.saturating_sub(*before) as f64 >= *needed as f64 * windows
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(comm: &str, state: &str, user: u64, system: u64, threads: u32) -> Vec<u8> {
        format!(
            "42 ({comm}) {state} 1 42 42 0 -1 4194304 122 0 0 0 {user} {system} 0 0 20 0 {threads} 0 99 1 2\n"
        )
        .into()
    }

    #[test]
    fn the_command_name_may_hold_anything() {
        for comm in ["cat", "a b", "(sd-pam)", "x) S 1 1 (y", ") ) )", "line\nend", ""] {
            let s = ProcStat::parse(&stat(comm, "R", 3, 4, 2)).unwrap();
            assert_eq!(s, ProcStat { state: 'R', cpu_ticks: 7, threads: 2 }, "{comm}");
        }
        let mut raw = stat("x", "S", 1, 1, 1);
        raw[4] = 0xff;
        assert!(ProcStat::parse(&raw).is_some(), "not UTF-8");
    }

    #[test]
    fn cut_files_are_refused() {
        let whole = stat("cat", "R", 3, 4, 2);
        let needed = whole.windows(4).position(|w| w == b" 2 0").unwrap();
        for n in 0..needed {
            assert_eq!(ProcStat::parse(&whole[..n]), None, "{n}");
        }
        assert_eq!(ProcStat::parse(b"1 (x) R a b c d e f g h i j k l m n o p q"), None);
    }

    #[test]
    fn states_that_stop() {
        let s = |state: &str, threads| ProcStat::parse(&stat("x", state, 0, 0, threads)).unwrap();
        assert!(s("T", 1).stopped() && s("T", 9).stopped() && s("Z", 1).stopped());
        assert!(!s("Z", 2).stopped(), "the leader exited, its threads work");
        for running in ["R", "S", "D", "I", "t"] {
            assert!(!s(running, 1).stopped(), "{running}");
        }
        assert!(s("t", 1).traced());
    }

    #[test]
    fn our_own_process_is_read_again_and_again() {
        let w = Watched::open(std::process::id()).unwrap();
        let a = w.read().unwrap();
        assert!(a.threads >= 1);
        let mut b = a;
        while b.cpu_ticks < a.cpu_ticks + 2 {
            b = w.read().unwrap();
        }
    }

    #[test]
    fn an_exit_is_seen_by_the_pidfd_while_the_zombie_is_still_there() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut p = ProcessWatch::new();
        p.adopt(&[child.id()]);
        let now = Stamp::from_millis(1);
        let seen = p.read(now);
        assert!(seen.known && !seen.gone && !seen.stopped);
        child.kill().unwrap();
        // Not reaped: /proc goes on to show it.
        while !p.watched.iter().all(Watched::exited) {
            std::thread::yield_now();
        }
        assert!(ProcStat::parse(&std::fs::read(format!("/proc/{}/stat", child.id())).unwrap()).is_some());
        let seen = p.read(now);
        assert_eq!((seen.known, seen.gone, seen.stopped), (false, true, false));
        child.wait().unwrap();
    }

    #[test]
    fn cpu_must_burn_for_a_window_and_a_background_tick_is_not_enough() {
        let mut p = ProcessWatch::new();
        let at = |ms| Stamp::from_millis(ms);
        for i in 0..40 {
            assert!(!p.burning(at(1000 + i * 5), 100 + i / 20), "one tick per 100 ms");
        }
        p.cpu.clear();
        let burning = (0..40).filter(|i| p.burning(at(5000 + i * 5), 100 + i / 2)).count();
        assert!(burning > 30, "{burning}");
        p.cpu.clear();
        assert!(!p.burning(at(9000), 100));
        assert!(!p.burning(at(9100), 102), "two ticks in 100 ms");
        assert!(p.burning(at(9200), 112));
        p.cpu.clear();
        let starved = (0..100).filter(|i| p.burning(at(20_000 + i * 5), 100 + i / 10)).count();
        assert!(starved > 50, "a fifth of a core: {starved}");
    }
}
