//! Child processes that never outlive their test.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use super::{clock, eventually, pause};

/// Where a program is: on the path, in /usr/sbin, or in PostgreSQL's own folder.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let postgres = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let own = postgres.map(|e| e.path().join("bin"));
    let fixed = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let dirs = path.split(':').map(PathBuf::from).chain(fixed).chain(own);
    dirs.map(|d| d.join(name)).find(|p| p.is_file())
}

/// A command that dies with the thread that started it, optionally as another user (only root can change it).
pub(crate) fn command(program: &str, user: Option<&str>) -> Command {
    let found = find(program).unwrap_or_else(|| PathBuf::from(program));
    let Some(setpriv) = find("setpriv") else { return Command::new(found) };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]);
    if let (Some(user), true) = (user, root()) {
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    }
    command.arg("--").arg(found);
    command
}

/// True if this process runs as root.
pub(crate) fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A running program; killed and reaped on drop.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, with everything it says in `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Process {
        let out = File::create(log).expect("log file");
        let err = out.try_clone().expect("log file");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        Process { child, log: log.to_owned() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until it accepts connections at `addr`.
    pub(crate) fn wait_port(&mut self, addr: SocketAddr) {
        eventually(Duration::from_secs(30), &format!("{addr} accepts"), || {
            if let Some(status) = self.ended() {
                panic!("ended with {status}: {}", self.log());
            }
            TcpStream::connect(addr).map(drop).map_err(|e| e.to_string())
        });
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).expect("pid");
        let _ = rustix::process::kill_process(pid, signal);
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Open descriptors, or 0 if it is gone.
    pub(crate) fn fds(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// Resident bytes, or 0 if it is gone.
    pub(crate) fn rss(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a program to its end and gives what it wrote to stdout; fails with everything it said if it does not succeed
/// within a minute.
pub(crate) fn run(command: &mut Command) -> String {
    let output = finish(command, Duration::from_secs(60));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out
}

/// As [`run`], whatever the exit code; 124 means that it hung and was killed.
pub(crate) fn finish(command: &mut Command, within: Duration) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let out = std::thread::spawn(move || read_all(&mut out));
    let err = std::thread::spawn(move || read_all(&mut err));
    let end = clock::now() + within;
    let status = loop {
        match child.try_wait().expect("wait") {
            Some(status) => break status,
            None if clock::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                break ExitStatus::from_raw(124 << 8);
            }
            None => pause(),
        }
    };
    Output { status, stdout: out.join().expect("reader"), stderr: err.join().expect("reader") }
}

fn read_all(from: &mut impl std::io::Read) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = from.read_to_end(&mut all);
    all
}
