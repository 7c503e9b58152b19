//! Two sidecars: near the client and far beside the service.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use super::child::{Process, command};
use super::{Port, TempDir, admin, eventually};

/// Name of the upstream and of the far inbound.
pub(crate) const NAME: &str = "svc";

/// How a connection travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    PerConnection,
    Plain,
}

/// What a pair is to look like.
pub(crate) struct Setup {
    service: SocketAddr,
    link: &'static str,
    link_mode: &'static str,
    far: bool,
    relay: Option<(Duration, f64)>,
    near_extra: String,
    far_extra: String,
}

impl Setup {
    /// A pair with `link = "auto"`, as by default.
    pub(crate) fn new(service: SocketAddr) -> Setup {
        Setup {
            service,
            link: "auto",
            link_mode: "auto",
            far: true,
            relay: None,
            near_extra: String::new(),
            far_extra: String::new(),
        }
    }

    /// A pair that must use `mode`.
    pub(crate) fn mode(service: SocketAddr, mode: Mode) -> Setup {
        let (link, link_mode) = match mode {
            Mode::Shared => ("required", "shared"),
            Mode::PerConnection => ("required", "per-connection"),
            Mode::Plain => ("off", "auto"),
        };
        Setup { link, link_mode, far: mode != Mode::Plain, ..Setup::new(service) }
    }

    /// A link of its own for each connection.
    pub(crate) fn per_connection(self) -> Setup {
        Setup { link_mode: "per-connection", ..self }
    }

    /// No sidecar beside the service.
    pub(crate) fn without_far(self) -> Setup {
        Setup { far: false, ..self }
    }

    /// Both ways to the link and to the service take `delay` and carry at most `bytes_per_s`.
    pub(crate) fn path(self, delay: Duration, bytes_per_s: f64) -> Setup {
        Setup { relay: Some((delay, bytes_per_s)), ..self }
    }

    /// More TOML tables for the far sidecar.
    pub(crate) fn far_extra(self, toml: &str) -> Setup {
        Setup { far_extra: toml.to_owned(), ..self }
    }

    /// More TOML tables for the near sidecar.
    pub(crate) fn near_extra(self, toml: &str) -> Setup {
        Setup { near_extra: toml.to_owned(), ..self }
    }

    /// Starts it and waits until both are ready and, where a link is wanted, until it is up.
    pub(crate) fn start(self) -> Pair {
        let (dir, link_port, listen) = (TempDir::new(), Port::pick(), Port::pick());
        let link = link_port.addr();
        let far = self.far.then(|| {
            let mut toml = String::new();
            write!(
                toml,
                "[[inbound]]\nname = \"{NAME}\"\nlink_listen = \"{link}\"\nservice = \"{}\"\n{}",
                self.service, self.far_extra
            )
            .expect("string");
            Sidecar::start(&dir, "far", &toml)
        });
        let through = |to| match self.relay {
            Some((delay, rate)) => super::relay::start(to, delay, rate),
            None => to,
        };
        let toml = format!(
            "[[outbound]]\nname = \"{NAME}\"\nlisten = \"{}\"\nlink = \"{}\"\nlink_mode = \"{}\"\n\
             endpoints = [{{ address = \"{}\", link_port = {} }}]\n{}",
            listen.addr(),
            self.link,
            self.link_mode,
            through(self.service),
            through(link).port(),
            self.near_extra
        );
        let near = Sidecar::start(&dir, "near", &toml);
        let pair = Pair { near, far, addr: listen.addr(), link, _ports: [link_port, listen], _dir: dir };
        if self.far && self.link != "off" {
            pair.wait_framed();
        }
        pair
    }
}

/// A running pair.
pub(crate) struct Pair {
    pub(crate) near: Sidecar,
    pub(crate) far: Option<Sidecar>,
    /// Where clients connect.
    pub(crate) addr: SocketAddr,
    /// The far sidecar's link port.
    pub(crate) link: SocketAddr,
    _ports: [Port; 2],
    _dir: TempDir,
}

impl Pair {
    /// The far sidecar of a pair that has one.
    pub(crate) fn far(&self) -> &Sidecar {
        self.far.as_ref().expect("this pair has a far sidecar")
    }

    /// Both, or the one.
    pub(crate) fn sidecars(&self) -> impl Iterator<Item = &Sidecar> {
        std::iter::once(&self.near).chain(&self.far)
    }

    /// Waits until the near sidecar has a link.
    pub(crate) fn wait_framed(&self) {
        eventually(Duration::from_secs(10), "the link is up", || {
            let framed = self.near.metric("sidebeat_upstream_link_mode", &[("mode", "framed")]);
            if framed == Some(1.0) {
                Ok(())
            } else {
                Err(format!("framed: {framed:?}\n{}", self.near.status()))
            }
        });
    }

    /// Stops both with SIGTERM; both must end with 0, and neither may have logged an error.
    pub(crate) fn finish(mut self) {
        for sidecar in std::iter::once(&mut self.near).chain(&mut self.far) {
            let status = sidecar.stop();
            assert!(status.success(), "{} ended with {status}: {}", sidecar.name, sidecar.log());
        }
    }
}

/// A running sidecar. Dropping it kills it and fails the test if it logged an error or a panic.
pub(crate) struct Sidecar {
    pub(crate) name: &'static str,
    pub(crate) admin: SocketAddr,
    process: Process,
    file: PathBuf,
    head: String,
    _port: Port,
}

impl Sidecar {
    /// Starts `sidebeat run` with `toml` behind a `[node]` and `[admin]` of its own.
    pub(crate) fn start(dir: &TempDir, name: &'static str, toml: &str) -> Sidecar {
        let port = Port::pick();
        let file = dir.join(&format!("{name}.toml"));
        let head = format!("[node]\nid = \"{name}\"\n[admin]\nlisten = \"{}\"\n", port.addr());
        std::fs::write(&file, format!("{head}{toml}")).expect("configuration file");
        let program = std::env::var("SIDEBEAT").unwrap_or_else(|_| env!("CARGO_BIN_EXE_sidebeat").to_owned());
        let mut run = command(&program, None);
        run.arg("run").arg("-c").arg(&file);
        let mut process = Process::start(&mut run, &dir.join(&format!("{name}.log")));
        eventually(Duration::from_secs(20), &format!("{name} is ready"), || {
            if let Some(status) = process.ended() {
                panic!("{name} ended with {status}: {}", process.log());
            }
            match admin::get(port.addr(), "/ready") {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        Sidecar { name, admin: port.addr(), process, file, head, _port: port }
    }

    /// Gives it another configuration behind its `[node]` and `[admin]`, and SIGHUP.
    pub(crate) fn reload(&self, toml: &str) {
        self.reload_whole(&format!("{}{toml}", self.head));
    }

    /// As [`Sidecar::reload`], the whole file.
    pub(crate) fn reload_whole(&self, text: &str) {
        std::fs::write(&self.file, text).expect("configuration file");
        self.process.signal(rustix::process::Signal::HUP);
    }

    /// The process, for its descriptors, memory and signals.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// Body of a path of the admin port; fails unless it is 200.
    pub(crate) fn get(&self, path: &str) -> String {
        match admin::get(self.admin, path) {
            Ok((200, body)) => body,
            other => panic!("{} {path}: {other:?}\n{}", self.name, self.log()),
        }
    }

    /// Status and body of a call of the admin port that changes something.
    pub(crate) fn post(&self, path: &str) -> (u16, String) {
        admin::post(self.admin, path).unwrap_or_else(|e| panic!("{}: {e}\n{}", self.name, self.log()))
    }

    pub(crate) fn status(&self) -> String {
        self.get("/status")
    }

    /// Changes of state so far, one JSON object per line.
    pub(crate) fn events(&self) -> Vec<String> {
        self.get("/events?follow=0").lines().filter(|l| l.contains("\"to\"")).map(str::to_owned).collect()
    }

    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        admin::metric(&self.get("/metrics"), name, labels)
    }

    /// Ends it without a word, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends it with SIGTERM and gives how it ended.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.process.signal(rustix::process::Signal::TERM);
        self.ends()
    }

    /// Waits until it ended by itself and gives how.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let name = self.name;
        eventually(Duration::from_secs(20), &format!("{name} stops"), || {
            self.process.ended().ok_or_else(|| "it runs".to_owned())
        })
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.process.kill();
        let log = self.process.log();
        if std::thread::panicking() {
            eprintln!("--- log of {}, last lines\n{}", self.name, last_lines(&log, 40));
            return;
        }
        let bad: Vec<_> =
            log.lines().filter(|l| l.contains(" ERROR ") || l.contains("panicked at")).collect();
        assert!(bad.is_empty(), "{} logged errors:\n{}", self.name, bad.join("\n"));
    }
}

fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}
