//! Does a program end with 0? On a thread of its own, which keeps the time, kills what is late and reaps it always.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::clock;
use crate::stamp::Stamp;

/// Stack of the thread, bytes.
const STACK: usize = 128 * 1024;
/// Output that is kept, for the reason of a failure; the rest is read and forgotten.
const KEPT: usize = 200;
/// A program that says more than this is not one that asks and ends: to read on would cost a core for as long as it runs.
const HEARD: usize = 1 << 20;
/// Without pidfd the end is looked for this often.
const LOOK: Duration = Duration::from_millis(20);

pub(super) async fn ask(
    command: Vec<String>,
    env: Vec<(String, String)>,
    within: Duration,
) -> Result<String, String> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let job = move || {
        // Nobody may wait any more: the program was run to its end or killed all the same.
        let _ = tell.send(run(&command, env, within));
    };
    let thread = std::thread::Builder::new().name("sb-probe".to_owned()).stack_size(STACK).spawn(job);
    thread.map_err(|e| format!("no thread for the probe: {e}"))?;
    told.await.unwrap_or_else(|_| Err("the probe's thread died".to_owned()))
}

/// Runs it in a process group of its own, so that what it starts does not outlive it either. No `pre_exec`: that would
/// fork, and copy the page tables of the whole sidecar.
fn run(command: &[String], env: Vec<(String, String)>, within: Duration) -> Result<String, String> {
    let (program, args) = command.split_first().ok_or("no command")?;
    let until = clock::now() + within;
    let broken = |e: std::io::Error| format!("cannot start {program}: {e}");
    let (out, writer) = std::io::pipe().map_err(broken)?;
    let mut starting = Command::new(program);
    starting.args(args).envs(env).stdin(Stdio::null()).process_group(0);
    starting.stdout(writer.try_clone().map_err(broken)?).stderr(writer);
    let child = starting.spawn().map_err(broken)?;
    // Our ends of the pipe's writer.
    drop(starting);
    let mut running = Running { child, out: Some(out), said: Vec::new(), heard: 0 };
    let status = match running.wait(until) {
        Ok(status) => status,
        Err(Unended::Late) => {
            let late = format!("no end within {}: killed", humantime::format_duration(within));
            return Err(with(late, &running.said));
        }
        Err(Unended::Loud) => {
            return Err(with(format!("more than {} KiB of output: killed", HEARD >> 10), &running.said));
        }
    };
    match status.success() {
        true => Ok(with("exit 0".to_owned(), &running.said)),
        false => Err(with(ending(status), &running.said)),
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an end without a code".to_owned(),
    }
}

/// What happened, and the first line the program said, made printable.
fn with(what: String, said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.is_empty() { what } else { format!("{what}: {line}") }
}

struct Running {
    child: Child,
    out: Option<PipeReader>,
    said: Vec<u8>,
    /// Bytes of output so far.
    heard: usize,
}

/// Why it will be killed.
enum Unended {
    Late,
    Loud,
}

impl Running {
    /// How it ended, by then.
    fn wait(&mut self, until: Stamp) -> Result<ExitStatus, Unended> {
        let pidfd = pid(&self.child).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.last_words();
                return Ok(status);
            }
            let left = until.since(clock::now());
            if left.is_zero() {
                return Err(Unended::Late);
            }
            if self.heard > HEARD {
                return Err(Unended::Loud);
            }
            let wait = if pidfd.is_some() { left } else { left.min(LOOK) };
            let Ok(wait) = Timespec::try_from(wait) else { return Err(Unended::Late) };
            let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(2);
            fds.extend(self.out.as_ref().map(|o| PollFd::new(o, PollFlags::IN)));
            fds.extend(pidfd.as_ref().map(|p| PollFd::from_borrowed_fd(p.as_fd(), PollFlags::IN)));
            // An interrupted wait is looked at like any other.
            let _ = poll(&mut fds, Some(&wait));
            let readable = self.out.is_some() && fds.first().is_some_and(|f| !f.revents().is_empty());
            drop(fds);
            if readable {
                self.read();
            }
        }
    }

    /// Reads once, what is there; at the end the pipe is let go.
    fn read(&mut self) {
        let Some(out) = &mut self.out else { return };
        let mut buf = [0; 4096];
        match out.read(&mut buf) {
            Ok(n) if n > 0 => {
                let room = KEPT.saturating_sub(self.said.len()).min(n);
                self.said.extend_from_slice(&buf[..room]);
                self.heard += n;
            }
            Ok(_) | Err(_) => self.out = None,
        }
    }

    /// What it said just before its end. Something that it started may hold the pipe open: one look, no wait.
    fn last_words(&mut self) {
        let Some(out) = &self.out else { return };
        let mut fds = [PollFd::new(out, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0) {
            self.read();
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

impl Drop for Running {
    /// Late, or given up: the group while its leader is not reaped (its number is still its own), then the leader.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(pid) = pid(&self.child) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
