//! Who owns a listening socket: a walk over /proc in bounded steps.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Descriptors looked at in one step: 1-2 ms.
const STEP: usize = 1500;
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

/// A walk over all processes, continued by [`Scan::step`].
#[derive(Debug)]
pub(super) struct Scan {
    owner: Owner,
    links: HashSet<PathBuf>,
    todo: Vec<u32>,
    found: Found,
}

impl Scan {
    /// Begins a walk over the processes that exist now, the youngest last in the list and first looked at.
    pub(super) fn begin(owner: Owner) -> Scan {
        let own = std::process::id();
        let mut todo: Vec<u32> = fs::read_dir("/proc")
            .map(|dir| dir.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
            .unwrap_or_default();
        todo.retain(|pid| *pid != own);
        todo.sort_unstable();
        let links = owner.inodes.iter().map(|i| PathBuf::from(format!("socket:[{i}]"))).collect();
        Scan { owner, links, todo, found: Found::default() }
    }

    /// Looks at some more processes; `Some` at the end of the walk.
    pub(super) fn step(&mut self) -> Option<Found> {
        let mut budget = STEP;
        while budget > 0 {
            let Some(pid) = self.todo.pop() else {
                return Some(std::mem::take(&mut self.found));
            };
            budget = budget.saturating_sub(self.look(pid).max(10));
        }
        None
    }

    /// Returns how many descriptors it looked at.
    fn look(&mut self, pid: u32) -> usize {
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            if self.may_own(pid) {
                self.found.candidates.push(pid);
            }
            return 1;
        };
        let mut looked = 0;
        for fd in fds.flatten() {
            looked += 1;
            if fs::read_link(fd.path()).is_ok_and(|l| self.links.contains(&l)) {
                self.found.exact.push(pid);
                break;
            }
        }
        looked
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
