//! Who owns a listening socket: a walk over /proc, on a thread of its own. It takes milliseconds of CPU time, and tens of
//! them where processors are busy: beats would be late by as much.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

/// Stack of the thread, bytes.
const STACK: usize = 256 * 1024;
/// More candidates than this by user and cgroup say nothing about one of them.
const MAX_CANDIDATES: usize = 16;

/// What sock_diag says of a listener's owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Inodes of the listener, several for a SO_REUSEPORT group, sorted.
    pub inodes: Vec<u32>,
    /// User who made it.
    pub uid: u32,
    /// cgroup (v2) it was made in.
    pub cgroup_id: Option<u64>,
}

/// Result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Processes that hold the socket, for sure.
    pub(super) exact: Vec<u32>,
    /// Processes that may hold it: same user and cgroup, descriptors not readable.
    pub(super) candidates: Vec<u32>,
}

impl Found {
    /// The processes to watch: the candidates only where nothing is known for sure.
    pub(super) fn pids(&self) -> &[u32] {
        match (self.exact.is_empty(), self.candidates.len() <= MAX_CANDIDATES) {
            (false, _) => &self.exact,
            (true, true) => &self.candidates,
            (true, false) => &[],
        }
    }
}

/// A walk over all processes, under way.
#[derive(Debug)]
pub(super) struct Scan(Receiver<Found>);

impl Scan {
    /// Begins a walk over the processes that exist now, the youngest first.
    ///
    /// # Errors
    /// No thread to be had.
    pub(super) fn begin(owner: Owner) -> io::Result<Scan> {
        let (tell, found) = sync_channel(1);
        std::thread::Builder::new().name("sb-owners".to_owned()).stack_size(STACK).spawn(move || {
            // Nobody may wait any more.
            let _ = tell.send(Walk::new(owner).all());
        })?;
        Ok(Scan(found))
    }

    /// What it found, once, at its end.
    pub(super) fn found(&self) -> Option<Found> {
        match self.0.try_recv() {
            Ok(found) => Some(found),
            Err(TryRecvError::Empty) => None,
            // The thread died: nothing is known.
            Err(TryRecvError::Disconnected) => Some(Found::default()),
        }
    }
}

struct Walk {
    owner: Owner,
    links: HashSet<PathBuf>,
    found: Found,
}

impl Walk {
    fn new(owner: Owner) -> Walk {
        let links = owner.inodes.iter().map(|i| PathBuf::from(format!("socket:[{i}]"))).collect();
        Walk { owner, links, found: Found::default() }
    }

    fn all(mut self) -> Found {
        let own = std::process::id();
        let mut pids: Vec<u32> = fs::read_dir("/proc")
            .map(|dir| dir.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
            .unwrap_or_default();
        pids.sort_unstable();
        pids.iter().rev().filter(|pid| **pid != own).for_each(|pid| self.look(*pid));
        self.found
    }

    fn look(&mut self, pid: u32) {
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            if self.may_own(pid) {
                self.found.candidates.push(pid);
            }
            return;
        };
        let holds = |fd: fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|l| self.links.contains(&l));
        if fds.flatten().any(holds) {
            self.found.exact.push(pid);
        }
    }

    /// A process whose descriptors we may not read, of the listener's user and not provably of another cgroup.
    fn may_own(&self, pid: u32) -> bool {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
        if holds_nothing(&status) || !uids(&status).contains(&self.owner.uid) {
            return false;
        }
        match (self.owner.cgroup_id, cgroup_id(pid)) {
            (Some(wanted), Some(got)) => wanted == got,
            _ => true,
        }
    }
}

/// Real, effective, saved and file system user of `/proc/PID/status`.
fn uids(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

/// Kernel threads and zombies have no sockets.
fn holds_nothing(status: &str) -> bool {
    let field =
        |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim_start();
    field("Kthread:").starts_with('1') || field("State:").starts_with(['Z', 'X'])
}

/// Id of a process's cgroup (v2): the inode of its directory. `None` where no such hierarchy is mounted.
fn cgroup_id(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .map(Path::new)
        .find(|p| p.join("cgroup.controllers").exists())?;
    Some(fs::metadata(root.join(path)).ok()?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_status_file() {
        assert_eq!(uids("Name:\tUid: 7\nUid:\t1000\t1001\t0\t5\nGid:\t1\n"), [1000, 1001, 0, 5]);
        assert_eq!(uids("nothing"), [0u32; 0]);
    }

    #[test]
    fn kernel_threads_and_zombies_hold_nothing() {
        assert!(holds_nothing("Name:\ta\nState:\tZ (zombie)\n"));
        assert!(holds_nothing("Name:\tkworker\nState:\tI (idle)\nKthread:\t1\n"));
        assert!(!holds_nothing("Name:\tState: Z\nState:\tT (stopped)\nKthread:\t0\n"));
        assert!(!holds_nothing(""));
    }

    #[test]
    fn sure_owners_win_over_candidates_and_crowds_say_nothing() {
        let f = Found { exact: vec![1], candidates: vec![2] };
        assert_eq!(f.pids(), [1]);
        let f = Found { exact: vec![], candidates: vec![2, 3] };
        assert_eq!(f.pids(), [2, 3]);
        let f = Found { exact: vec![], candidates: (0..17).collect() };
        assert_eq!(f.pids(), [0u32; 0]);
    }
}
