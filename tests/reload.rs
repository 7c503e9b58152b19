//! SIGHUP: another configuration while traffic flows. What is open goes on as it was, what is new goes the new way, nobody
//! is turned away, and a wrong file changes nothing.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use support::pair::Sidecar;
use support::{Port, TempDir, eventually};

const SOON: Duration = Duration::from_secs(20);

/// A service that says its one-byte name once, and then sends back what it gets.
fn named(name: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let addr = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut io in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buf = [0; 1024];
                let _ = io.write_all(&[name]);
                while let Ok(n @ 1..) = io.read(&mut buf) {
                    if io.write_all(&buf[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

/// A connection, and the name of the service it came to.
fn connect(to: SocketAddr) -> std::io::Result<(TcpStream, u8)> {
    let mut io = TcpStream::connect(to)?;
    io.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut name = [0];
    io.read_exact(&mut name)?;
    Ok((io, name[0]))
}

fn echoes(io: &mut TcpStream) {
    io.write_all(b"still here").expect("write");
    let mut buf = [0; 10];
    io.read_exact(&mut buf).expect("an answer");
    assert_eq!(&buf, b"still here");
}

/// Waits until new connections come to that service; none may fail meanwhile.
fn comes_to(to: SocketAddr, name: u8) {
    eventually(SOON, "new connections go the new way", || {
        let (mut io, came) = connect(to).expect("nobody is turned away");
        echoes(&mut io);
        if came == name { Ok(()) } else { Err(format!("{} as before", char::from(came))) }
    });
}

fn outbound(listen: SocketAddr, service: SocketAddr, link: SocketAddr, policy: &str) -> String {
    format!(
        "[[outbound]]\nname = \"svc\"\nlisten = \"{listen}\"\nlink = \"{policy}\"\n\
         endpoints = [{{ address = \"{service}\", link_port = {} }}]\n",
        link.port()
    )
}

fn inbound(link: SocketAddr, service: SocketAddr) -> String {
    format!("[[inbound]]\nname = \"svc\"\nlink_listen = \"{link}\"\nservice = \"{service}\"\n")
}

fn ended_workers(sidecar: &Sidecar) {
    eventually(SOON, "the workers of the old configuration end", || {
        let log = sidecar.log();
        if log.contains("the workers of an earlier configuration have ended") { Ok(()) } else { Err(log) }
    });
}

#[test]
fn an_upstream_moves_and_its_open_connections_stay() {
    let (a, b) = (named(b'a'), named(b'b'));
    let (dir, listen) = (TempDir::new(), Port::pick());
    let near = Sidecar::start(&dir, "near", &outbound(listen.addr(), a, a, "off"));
    let (mut old, came) = connect(listen.addr()).expect("connect");
    assert_eq!(came, b'a');
    near.reload(&outbound(listen.addr(), b, b, "off"));
    comes_to(listen.addr(), b'b');
    echoes(&mut old);
    assert_eq!(near.metric("sidebeat_config_last_reload_successful", &[]), Some(1.0));
    assert!(near.status().contains(&b.to_string()) && !near.status().contains(&a.to_string()));
    drop(old);
    ended_workers(&near);
    comes_to(listen.addr(), b'b');
}

/// What an earlier configuration still serves is cut at its drain deadline, and counted as that.
#[test]
fn what_is_cut_at_the_drain_deadline_is_counted() {
    let a = named(b'a');
    let (dir, listen) = (TempDir::new(), Port::pick());
    let toml = outbound(listen.addr(), a, a, "off") + "[drain]\ndeadline = \"1s\"\n";
    let near = Sidecar::start(&dir, "near", &toml);
    let (mut old, _) = connect(listen.addr()).expect("connect");
    near.reload(&toml);
    ended_workers(&near);
    let drained = [("direction", "out"), ("reason", "drain")];
    assert_eq!(near.metric("sidebeat_connections_closed_total", &drained), Some(1.0));
    assert!(!matches!(old.read(&mut [0]), Ok(1..)), "it was cut");
    comes_to(listen.addr(), b'a');
    assert_eq!(near.metric("sidebeat_connections_closed_total", &drained), Some(1.0), "and nothing else");
}

/// One writer at a time holds the directory of the traces: a reload hands it over.
#[test]
fn a_sidecar_that_records_reloads_too() {
    let (a, b) = (named(b'a'), named(b'b'));
    let (dir, traces, listen) = (TempDir::new(), TempDir::new(), Port::pick());
    let record = format!("[trace]\npath = \"{}\"\n", traces.path().display());
    let near = Sidecar::start(&dir, "near", &(outbound(listen.addr(), a, a, "off") + &record));
    let (mut old, _) = connect(listen.addr()).expect("connect");
    for service in [b, a, b] {
        near.reload(&(outbound(listen.addr(), service, service, "off") + &record));
        comes_to(listen.addr(), if service == b { b'b' } else { b'a' });
        assert_eq!(near.metric("sidebeat_config_last_reload_successful", &[]), Some(1.0), "{}", near.log());
    }
    echoes(&mut old);
}

/// The recorder of the configuration that stays had been ended before the next one was known to work.
#[test]
fn a_reload_that_fails_ends_no_recording() {
    let (service, far_service) = (named(b'a'), named(b'b'));
    let (dir, traces, foreign) = (TempDir::new(), TempDir::new(), TempDir::new());
    let (listen, link) = (Port::pick(), Port::pick());
    let _far = Sidecar::start(&dir, "far", &inbound(link.addr(), far_service));
    let toml = |path: &std::path::Path| {
        let record = format!("[trace]\npath = \"{}\"\n", path.display());
        outbound(listen.addr(), service, link.addr(), "required") + &record
    };
    let near = Sidecar::start(&dir, "near", &toml(traces.path()));
    let bytes = || near.metric("sidebeat_trace_bytes_total", &[]).unwrap_or(0.0);
    let grows = || {
        let before = bytes();
        eventually(SOON, "the recording goes on", || {
            if bytes() > before + 500.0 { Ok(()) } else { Err(format!("{before}, {}", bytes())) }
        });
    };
    grows();
    // Somebody else records there under this node's name.
    let lock = std::fs::File::create(foreign.join("sidebeat-near.lock")).expect("lock file");
    lock.lock().expect("lock");
    let missing = traces.join("missing");
    for (n, path) in [foreign.path(), missing.as_path()].into_iter().enumerate() {
        near.reload(&toml(path));
        eventually(SOON, "the refusal is told", || {
            let told = near.log().matches("the old configuration stays").count();
            if told == n + 1 { Ok(()) } else { Err(near.log()) }
        });
        grows();
    }
    near.reload(&toml(traces.path()));
    eventually(SOON, "the same directory is taken over", || {
        match near.metric("sidebeat_config_last_reload_successful", &[]) {
            Some(1.0) => Ok(()),
            _ => Err(near.log()),
        }
    });
    grows();
    drop(near);
    let mut replay = std::process::Command::new(env!("CARGO_BIN_EXE_sidebeat"));
    let report = support::child::run(replay.args(["replay", "--json"]).arg(traces.path()));
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let trace = &report["trace"];
    // Links of the second recording are not taken for those of the first, which have the same numbers.
    assert_eq!(
        (&trace["files"], &trace["holes"], &trace["unknown"]),
        (&2.into(), &0.into(), &0.into()),
        "{trace}"
    );
}

#[test]
fn a_wrong_file_changes_nothing_and_says_where_it_is_wrong() {
    let (a, b) = (named(b'a'), named(b'b'));
    let (dir, listen) = (TempDir::new(), Port::pick());
    let near = Sidecar::start(&dir, "near", &outbound(listen.addr(), a, a, "off"));
    assert_eq!(near.metric("sidebeat_config_last_reload_successful", &[]), Some(1.0));
    let taken = TcpListener::bind("127.0.0.1:0").expect("listener");
    let used = taken.local_addr().expect("address");
    let elsewhere = Port::pick();
    let moved = format!("[node]\nid = \"near\"\n[admin]\nlisten = \"{}\"\n", elsewhere.addr());
    let wrong = [
        ("lissten = 1".to_owned(), "lissten"),
        (outbound(used, b, b, "off"), "cannot listen"),
        (moved + &outbound(listen.addr(), b, b, "off"), "admin.listen"),
    ];
    for (n, (toml, word)) in wrong.iter().enumerate() {
        if toml.starts_with("[node]") {
            near.reload_whole(toml)
        } else {
            near.reload(toml)
        }
        eventually(SOON, "the refusal is told", || {
            let told = near.log().matches("the old configuration stays").count();
            if told == n + 1 { Ok(()) } else { Err(near.log()) }
        });
        let log = near.log();
        let line = log.rsplit("the old configuration stays").next().unwrap_or_default();
        assert!(line.contains(word), "{word}: {line}");
        assert_eq!(near.metric("sidebeat_config_last_reload_successful", &[]), Some(0.0));
        comes_to(listen.addr(), b'a');
    }
    near.reload(&outbound(listen.addr(), b, b, "off"));
    comes_to(listen.addr(), b'b');
    assert_eq!(near.metric("sidebeat_config_last_reload_successful", &[]), Some(1.0));
}

/// The level was set before the rest was known to work, and hid the refusal too.
#[test]
fn a_refused_reload_leaves_the_log_level() {
    let a = named(b'a');
    let (dir, listen) = (TempDir::new(), Port::pick());
    let near = Sidecar::start(&dir, "near", &outbound(listen.addr(), a, a, "off"));
    let taken = TcpListener::bind("127.0.0.1:0").expect("listener");
    let used = taken.local_addr().expect("address");
    near.reload(&(outbound(used, a, a, "off") + "[log]\nlevel = \"error\"\n"));
    eventually(SOON, "the refusal is told", || {
        let log = near.log();
        if log.contains("the old configuration stays") { Ok(()) } else { Err(log) }
    });
    near.reload(&outbound(listen.addr(), a, a, "off"));
    eventually(SOON, "what follows is told at the level as before", || {
        let log = near.log();
        if log.contains("the new configuration is at work") { Ok(()) } else { Err(log) }
    });
}

/// Each signal put off the end of old generations by another second: their workers piled up.
#[test]
fn reloads_that_come_often_leave_no_workers_behind() {
    let a = named(b'a');
    let (dir, listen) = (TempDir::new(), Port::pick());
    let near = Sidecar::start(&dir, "near", &(outbound(listen.addr(), a, a, "off")));
    let threads =
        || std::fs::read_dir(format!("/proc/{}/task", near.process().pid())).map_or(0, Iterator::count);
    let before = threads();
    let (mut most, mut reloads) = (before, 0);
    // Well within a second of each other, for longer than it takes to end one.
    while reloads < 30 {
        near.reload(&outbound(listen.addr(), a, a, "off"));
        reloads += 1;
        eventually(SOON, "it is done", || {
            let done = near.log().matches("the new configuration is at work").count();
            if done >= reloads { Ok(()) } else { Err(near.log()) }
        });
        most = most.max(threads());
    }
    // At most five generations at once, each with no more threads than the first.
    assert!(most <= before * 6, "{most} threads, {before} before");
    eventually(SOON, "only the last one is left", || {
        let now = threads();
        if now <= before + 1 { Ok(()) } else { Err(format!("{now} threads")) }
    });
}

/// To open a pipe waits for its writer: admin port, signals and probes waited too.
#[test]
fn a_pipe_in_place_of_the_file_is_refused_and_holds_nothing_up() {
    let a = named(b'a');
    let (dir, listen) = (TempDir::new(), Port::pick());
    let mut near = Sidecar::start(&dir, "near", &outbound(listen.addr(), a, a, "off"));
    let file = dir.join("near.toml");
    for (what, told) in [("mkfifo", "is a pipe"), ("mkdir", "is a directory"), ("ln", "is no regular file")] {
        std::fs::remove_file(&file).expect("remove");
        let mut make = std::process::Command::new(what);
        if what == "ln" {
            make.args(["-s", "/dev/zero"]);
        }
        support::child::run(make.arg(&file));
        near.process().signal(rustix::process::Signal::HUP);
        eventually(SOON, "the refusal is told", || {
            let log = near.log();
            if log.contains(told) { Ok(()) } else { Err(log) }
        });
        if what == "mkdir" {
            std::fs::remove_dir(&file).expect("remove");
            std::fs::write(&file, "").expect("write");
        }
    }
    comes_to(listen.addr(), b'a');
    assert!(near.stop().success());
}

#[test]
fn a_far_sidecar_reloads_and_no_observer_calls_it_dead() {
    let (a, b) = (named(b'a'), named(b'b'));
    let (dir, listen, link) = (TempDir::new(), Port::pick(), Port::pick());
    let far = Sidecar::start(&dir, "far", &inbound(link.addr(), a));
    let near = Sidecar::start(&dir, "near", &outbound(listen.addr(), a, link.addr(), "required"));
    let (mut old, _) = eventually(SOON, "a link", || connect(listen.addr()).map_err(|e| e.to_string()));
    far.reload(&inbound(link.addr(), b));
    comes_to(listen.addr(), b'b');
    echoes(&mut old);
    let events = near.events();
    assert!(!events.iter().any(|e| e.contains("\"to\":\"failed\"")), "{events:#?}");
    drop(old);
    ended_workers(&far);
    comes_to(listen.addr(), b'b');
    let events = near.events();
    assert!(!events.iter().any(|e| e.contains("\"to\":\"failed\"")), "{events:#?}");
}
