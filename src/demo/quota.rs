//! A limit of processor time for a process, as Kubernetes sets it: a control group of its own, where this machine lets us
//! make one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Kubernetes' period.
const PERIOD_US: u64 = 100_000;

/// A control group with a quota; gone when dropped, which needs its processes to be gone.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

/// What a quota did to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Throttled {
    /// Periods in which it ran.
    pub periods: u64,
    /// Of these, with its quota used up.
    pub throttled: u64,
    /// How long it was kept from running, ms.
    pub ms: u64,
}

impl Group {
    /// A group whose processes get `percent` of one processor together.
    ///
    /// # Errors
    /// No control group with a processor controller can be made here; says which were tried.
    pub fn new(name: &str, percent: u32) -> io::Result<Group> {
        let quota = (PERIOD_US * u64::from(percent) / 100).max(1000);
        let mut tried = Vec::new();
        for (base, file, value) in [
            ("/sys/fs/cgroup", "cpu.max", format!("{quota} {PERIOD_US}")),
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota.to_string()),
            ("/sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us", quota.to_string()),
        ] {
            match Group::at(&Path::new(base).join(name), file, &value) {
                Ok(group) => return Ok(group),
                Err(e) => tried.push(format!("{base}: {e}")),
            }
        }
        Err(io::Error::other(tried.join("; ")))
    }

    fn at(path: &Path, file: &str, value: &str) -> io::Result<Group> {
        fs::create_dir(path)?;
        let group = Group { path: path.to_owned() };
        // Where the controller is not there the file is not either: `write` would make one on a plain file system.
        let mut limit = fs::OpenOptions::new().write(true).open(path.join(file))?;
        io::Write::write_all(&mut limit, value.as_bytes())?;
        Ok(group)
    }

    /// Puts a process in.
    ///
    /// # Errors
    /// It is gone, or may not be moved.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }

    /// What the quota did so far.
    pub fn throttled(&self) -> Throttled {
        fs::read_to_string(self.path.join("cpu.stat")).map_or_else(|_| Throttled::default(), |t| parse(&t))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

fn parse(stat: &str) -> Throttled {
    let value = |key: &str| {
        let line = stat.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|n| n.trim().parse::<u64>().ok())
    };
    let ms = value("throttled_usec").map(|us| us / 1000).or(value("throttled_time").map(|ns| ns / 1_000_000));
    Throttled {
        periods: value("nr_periods").unwrap_or(0),
        throttled: value("nr_throttled").unwrap_or(0),
        ms: ms.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_statistics_are_read() {
        let want = Throttled { periods: 40, throttled: 7, ms: 350 };
        assert_eq!(parse("nr_periods 40\nnr_throttled 7\nthrottled_time 350000000\n"), want);
        assert_eq!(parse("usage_usec 9\nnr_periods 40\nnr_throttled 7\nthrottled_usec 350999\n"), want);
        assert_eq!(parse("nr_periods x\n\n"), Throttled::default());
    }

    #[test]
    fn where_no_group_can_be_made_the_error_says_what_was_tried() {
        match Group::new("no/such/folder", 10) {
            Ok(_) => panic!("made a folder three levels deep"),
            Err(e) => assert!(e.to_string().contains("/sys/fs/cgroup/cpu: "), "{e}"),
        }
    }
}
