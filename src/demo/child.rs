//! Child processes that end with the demo, and the hidden commands they run.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{net, noise, service};
use crate::stamp::Stamp;
use crate::{clock, sys};

/// Commands the demo runs itself with. They belong to no contract.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Inner {
    /// The demo's service.
    #[command(hide = true)]
    DemoService(service::ServiceArgs),
    /// Becomes another program in a given network namespace.
    #[command(hide = true)]
    DemoExec(ExecArgs),
    /// Keeps a network namespace.
    #[command(hide = true)]
    DemoHold,
    /// Forwards, or not, between the network namespaces.
    #[command(hide = true)]
    DemoRouter,
}

/// Arguments of the hidden `demo-exec`.
#[derive(clap::Args, Clone, Debug)]
pub struct ExecArgs {
    /// Network namespace.
    #[arg(long)]
    pub net: PathBuf,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    pub argv: Vec<std::ffi::OsString>,
}

/// Runs a hidden command.
pub fn run(inner: &Inner) -> ExitCode {
    let (name, done) = match inner {
        Inner::DemoService(args) => return service::run(args),
        Inner::DemoExec(args) => ("demo-exec", exec(args)),
        Inner::DemoHold => ("demo-hold", net::hold()),
        Inner::DemoRouter => ("demo-router", net::router()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        }
    }
}

fn exec(args: &ExecArgs) -> io::Result<()> {
    net::enter(&File::open(&args.net)?)?;
    let Some((program, rest)) = args.argv.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let e = Command::new(program).args(rest).exec();
    Err(io::Error::new(e.kind(), format!("{}: {e}", program.display())))
}

/// This program, to be run again as a child. Children must be started by one thread that lives as long as the
/// demo: the kernel's parent-death signal follows the thread.
#[derive(Clone, Debug)]
pub struct Program {
    exe: PathBuf,
}

impl Program {
    /// The running program.
    pub fn this() -> io::Result<Program> {
        Ok(Program { exe: std::env::current_exe()? })
    }

    /// The program at `exe`.
    pub fn at(exe: PathBuf) -> Program {
        Program { exe }
    }

    /// `argv` as a child tied to this process, in network namespace `netns`. A first word of "" is this program.
    pub fn command(&self, netns: Option<&Path>, argv: &[&str]) -> Command {
        let mut words = argv.iter().map(|w| if w.is_empty() { self.exe.as_os_str() } else { OsStr::new(*w) });
        let mut command = match netns {
            Some(path) => {
                let mut command = Command::new(&self.exe);
                command.arg("demo-exec").arg("--net").arg(path).arg("--");
                command
            }
            None => Command::new(words.next().unwrap_or(self.exe.as_os_str())),
        };
        command.args(words);
        tie(&mut command);
        command
    }

    /// This program with `args` in a new network namespace, with pipes as input and output.
    pub fn in_new_netns(&self, args: &[&str]) -> io::Result<Running> {
        let mut command = Command::new(&self.exe);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        sys::child::in_new_netns(&mut command);
        tie(&mut command);
        Running::start(command)
    }
}

/// It ends when the demo does, and Ctrl-C is for the demo alone.
fn tie(command: &mut Command) {
    sys::child::kill_with_parent(command);
    command.process_group(0);
}

/// A child process with its own process group; killed and reaped when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Who gets the signals: the child, or the process it forked into a PID namespace.
    pid: Pid,
}

impl Running {
    /// Starts it.
    pub fn start(mut command: Command) -> io::Result<Running> {
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Running { child, pid })
    }

    /// Process id of the child itself.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Process id of the one who gets the signals.
    pub fn target(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Directs the signals to the only child of the child, as soon as it exists.
    pub async fn follow_fork(&mut self, limit: Duration) -> io::Result<()> {
        let list = format!("/proc/{0}/task/{0}/children", self.child.id());
        let deadline = clock::now() + limit;
        loop {
            let text = std::fs::read_to_string(&list)?;
            if let Some(pid) =
                text.split_whitespace().next().and_then(|t| t.parse().ok()).and_then(Pid::from_raw)
            {
                self.pid = pid;
                return Ok(());
            }
            if clock::now() >= deadline || !self.alive() {
                return Err(io::Error::other("no process in the PID namespace"));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Sends a signal; gives the instant right before it.
    pub fn signal(&self, signal: Signal) -> io::Result<Stamp> {
        let before = clock::now();
        kill_process(self.pid, signal)?;
        Ok(before)
    }

    /// Still runs (or is stopped).
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended, at most for `limit`; then kills it.
    pub async fn ended(&mut self, limit: Duration) {
        let deadline = clock::now() + limit;
        while self.alive() && clock::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.end();
    }

    fn end(&mut self) {
        if !self.alive() {
            return;
        }
        if self.pid != Pid::from_child(&self.child) {
            // Its parent reaps it and then ends by itself.
            let _ = kill_process(self.pid, Signal::KILL);
            let deadline = clock::now() + Duration::from_millis(200);
            while self.alive() && clock::now() < deadline {
                noise::sleep_until(clock::now() + Duration::from_millis(1));
            }
        }
        if self.alive() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }

    pub(super) fn take_stdin(&mut self) -> io::Result<ChildStdin> {
        self.child.stdin.take().ok_or_else(|| io::Error::other("no stdin pipe"))
    }

    pub(super) fn take_stdout(&mut self) -> io::Result<ChildStdout> {
        self.child.stdout.take().ok_or_else(|| io::Error::other("no stdout pipe"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Running {
        let mut command = Command::new("sleep");
        command.arg("600").process_group(0);
        Running::start(command).unwrap()
    }

    #[test]
    fn dropping_kills_even_a_stopped_child() {
        let child = sleeper();
        let pid = Pid::from_raw(child.pid() as i32).unwrap();
        let before = clock::now();
        assert!(child.signal(Signal::STOP).unwrap() >= before);
        drop(child);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[tokio::test]
    async fn a_child_that_ends_is_reaped() {
        let mut child = sleeper();
        assert!(child.alive());
        child.signal(Signal::TERM).unwrap();
        child.ended(Duration::from_secs(10)).await;
        assert!(!child.alive());
    }

    #[test]
    fn an_empty_word_is_this_program() {
        let program = Program::this().unwrap();
        let here = program.command(None, &["", "run"]);
        assert_eq!(here.get_program(), program.exe);
        assert_eq!(here.get_args().collect::<Vec<_>>(), ["run"]);
        let there = program.command(Some(Path::new("/proc/1/ns/net")), &["ip", "link"]);
        assert_eq!(there.get_program(), program.exe);
        let args: Vec<_> = there.get_args().collect();
        assert_eq!(args, ["demo-exec", "--net", "/proc/1/ns/net", "--", "ip", "link"]);
    }
}
