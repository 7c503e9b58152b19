//! How the kernel's scheduler treats a thread of ours.
#![expect(unsafe_code, reason = "sched_getscheduler and sched_setscheduler have no safe wrapper")]

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What the scheduler does when a thread of the fair class has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// SCHED_OTHER: it may interrupt who runs.
    Normal,
    /// SCHED_BATCH: it waits until who runs pauses or has had its share, a few milliseconds.
    Batch,
}

/// The policy of the calling thread; `None` for any that an administrator chose, real-time or idle: those are not ours to
/// change.
#[must_use]
pub fn policy() -> Option<Policy> {
    // SAFETY: reads a number of the calling thread.
    match unsafe { libc::sched_getscheduler(0) } {
        libc::SCHED_OTHER => Some(Policy::Normal),
        libc::SCHED_BATCH => Some(Policy::Batch),
        _ => None,
    }
}

/// Sets the policy of the calling thread; its niceness stays. Needs no privileges.
///
/// # Errors
/// A sandbox forbids the call.
pub fn set_policy(policy: Policy) -> io::Result<()> {
    let number = match policy {
        Policy::Normal => libc::SCHED_OTHER,
        Policy::Batch => libc::SCHED_BATCH,
    };
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives until the call returns; nothing else is read or written.
    if unsafe { libc::sched_setscheduler(0, number, &no_priority) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Processors that the calling thread may use; none where the system does not tell.
#[must_use]
pub fn processors() -> Vec<usize> {
    let allowed = |set: CpuSet| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    sched_getaffinity(None).map(allowed).unwrap_or_default()
}

/// Binds the calling thread to that processor.
///
/// # Errors
/// There is none of that number, it is not allowed here, or a sandbox forbids the call.
pub fn bind(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_changes_its_own_policy_and_nobody_elses() {
        let Some(Policy::Normal) = policy() else {
            eprintln!("SKIPPED: the tests do not run under SCHED_OTHER");
            return;
        };
        std::thread::spawn(|| {
            set_policy(Policy::Batch).unwrap();
            assert_eq!(policy(), Some(Policy::Batch));
            set_policy(Policy::Normal).unwrap();
            assert_eq!(policy(), Some(Policy::Normal));
            set_policy(Policy::Batch).unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(policy(), Some(Policy::Normal));
    }

    #[test]
    fn a_thread_is_bound_to_one_of_its_processors() {
        let all = processors();
        let last = *all.last().unwrap();
        std::thread::spawn(move || {
            bind(last).unwrap();
            assert_eq!(processors(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(processors(), all);
        assert!(bind(usize::MAX).is_err());
    }
}
