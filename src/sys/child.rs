//! What must happen in a child process between fork and exec.
#![expect(unsafe_code, reason = "pre_exec and unshare are unsafe")]

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getgid, getpid, getppid, getuid, set_parent_process_death_signal};

/// In the child: SIGKILL when the thread that started it ends.
fn die_with_parent(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

/// The child is killed when the *thread* that starts it ends: start it from a thread that lives as long as the
/// process. The setting survives exec, not a set-user-id program.
pub fn kill_with_parent(cmd: &mut Command) {
    let parent = getpid();
    // SAFETY: the closure makes two system calls (prctl, getppid), allocates nothing and takes no lock.
    unsafe { cmd.pre_exec(move || die_with_parent(parent)) };
}

/// The child gets a network namespace of its own, with `lo` down. Needs CAP_SYS_ADMIN; spawning fails without.
pub fn in_new_netns(cmd: &mut Command) {
    // SAFETY: the closure makes one system call, allocates nothing and takes no lock.
    unsafe { cmd.pre_exec(|| unshare(libc::CLONE_NEWNET)) };
}

/// The child gets a user, a network and a mount namespace of its own and is root in them. Needs no privileges where
/// the kernel allows user namespaces; spawning fails elsewhere.
pub fn in_new_user_netns(cmd: &mut Command) {
    let uid = format!("0 {} 1", getuid().as_raw());
    let gid = format!("0 {} 1", getgid().as_raw());
    // SAFETY: the strings are made before the fork; the closure opens, writes and closes files by constant paths
    // short enough for std's stack buffer, so it allocates nothing and takes no lock.
    unsafe {
        cmd.pre_exec(move || {
            unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS)?;
            write_file("/proc/self/setgroups", "deny")?;
            write_file("/proc/self/uid_map", &uid)?;
            write_file("/proc/self/gid_map", &gid)
        })
    };
}

fn write_file(path: &str, text: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all(text.as_bytes())
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: called in a forked child with one thread and before exec: no other thread shares what is left behind.
    if unsafe { libc::unshare(flags) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_namespace_makes_root_with_only_loopback() {
        let mut cmd = Command::new("sh");
        cmd.args(["-c", "id -u; grep -c : /proc/net/dev"]);
        in_new_user_netns(&mut cmd);
        match cmd.output() {
            Ok(out) => assert_eq!(String::from_utf8_lossy(&out.stdout), "0\n1\n"),
            Err(e) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED, and CI=true: {e}");
                eprintln!("SKIPPED: no user namespaces here: {e}");
            }
        }
    }

    #[test]
    fn the_child_asks_to_die_with_its_parent() {
        let mut cmd = Command::new("sh");
        cmd.args(["-c", "exit 7"]);
        kill_with_parent(&mut cmd);
        assert_eq!(cmd.status().unwrap().code(), Some(7));
    }
}
