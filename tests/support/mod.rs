//! What the tests of the real program share: a pair of sidecars, their admin ports, child processes that end with
//! their test, temporary folders, free ports and waiting for a condition.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod admin;
pub(crate) mod child;
pub(crate) mod pair;
pub(crate) mod relay;
pub(crate) mod rng;
pub(crate) mod service;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sidebeat::clock;

/// True where the long variants were asked for: `SIDEBEAT_BIG=1`.
pub(crate) fn big() -> bool {
    std::env::var("SIDEBEAT_BIG").is_ok_and(|v| v == "1")
}

/// `small` by default, `large` under `SIDEBEAT_BIG=1`.
pub(crate) fn sized<T>(small: T, large: T) -> T {
    if big() { large } else { small }
}

/// Waits until `cond` gives a value; fails with the last thing it said was wrong.
pub(crate) fn eventually<T>(
    deadline: Duration,
    what: &str,
    mut cond: impl FnMut() -> Result<T, String>,
) -> T {
    let end = clock::now() + deadline;
    loop {
        match cond() {
            Ok(value) => return value,
            Err(seen) if clock::now() > end => panic!("not within {deadline:?}: {what}; last seen: {seen}"),
            Err(_) => pause(),
        }
    }
}

/// The one pause between two looks at a condition.
#[expect(clippy::disallowed_methods, reason = "between two looks at a condition, not instead of one")]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Tells that a test cannot run here. With `CI=true` that is a failure: everything is installed there.
pub(crate) fn skip(reason: &str) {
    assert!(!std::env::var("CI").is_ok_and(|v| v == "true"), "SKIPPED, and CI=true: {reason}");
    shout(&format!("SKIPPED: {reason}"));
}

/// Says something that is seen although the test passes: `eprintln!` would be captured and thrown away.
pub(crate) fn shout(what: &str) {
    let line = format!("\n{what}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

/// False, and a notice, unless all `tools` are found on the path.
pub(crate) fn have(tools: &[&str]) -> bool {
    let missing: Vec<_> = tools.iter().filter(|t| child::find(t).is_none()).copied().collect();
    if !missing.is_empty() {
        skip(&format!("missing: {}", missing.join(" ")));
    }
    missing.is_empty()
}

/// A folder that goes with its value.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sidebeat-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("temporary folder");
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::env::var_os("SIDEBEAT_KEEP").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A port that stays ours while the value lives. Ports come from below the ephemeral range, so that no outgoing
/// connection takes one between the choice and its use, and are locked against tests in other processes.
pub(crate) struct Port {
    pub(crate) number: u16,
    _lock: File,
}

impl Port {
    pub(crate) fn pick() -> Port {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let dir = std::env::temp_dir().join("sidebeat-test-ports");
        std::fs::create_dir_all(&dir).expect("folder of port locks");
        let start = std::process::id().wrapping_mul(61);
        for _ in 0..20_000 {
            let n = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let number = 10_000 + (n % 22_000) as u16;
            let lock = File::create(dir.join(number.to_string())).expect("port lock");
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Port { number, _lock: lock };
            }
        }
        panic!("no free port");
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}
