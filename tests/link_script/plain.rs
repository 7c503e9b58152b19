//! Connections without a sidecar on the far side: what their ends, and their silence, tell of the service.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use serde_json::Value;
use sidebeat::verdict::{Cause, State};

use crate::counted::turned_away;
use crate::far::{At, Outbound};
use crate::near::{Hand, read_all};
use crate::support::child::{Process, command};
use crate::support::rng::Rng;
use crate::support::service::{HANG, Service, connect, reset, round_trip};
use crate::support::{Port, TempDir, eventually, have, pause};

fn plain(service: SocketAddr, more: &str) -> Outbound {
    Outbound::raw(&[At(service, service)], &format!("link = \"off\"\n{more}"), "")
}

/// The next connection of the sidecar on which something is asked; its looks at the port say nothing.
fn asked(hand: &Hand) -> TcpStream {
    loop {
        let mut io = hand.next();
        if matches!(io.read(&mut [0; 64]), Ok(1..)) {
            return io;
        }
    }
}

/// A client that was answered, and the service's end.
fn talking(outbound: &Outbound, hand: &Hand) -> (TcpStream, TcpStream) {
    let mut client = connect(outbound.addr);
    client.write_all(b"question").unwrap();
    let mut service = asked(hand);
    service.write_all(b"answer").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    (client, service)
}

fn told(outbound: &Outbound, what: &str) {
    eventually(HANG, what, || {
        let e = outbound.endpoint(0);
        if e["last_evidence"]["what"] == what { Ok(()) } else { Err(e.to_string()) }
    });
}

fn refused(addr: SocketAddr) {
    eventually(HANG, "nobody listens any more", || match TcpStream::connect(addr) {
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_connection_that_is_reset_is_told_and_its_port_looked_at() {
    let hand = Hand::new();
    let addr = hand.service.addr;
    let outbound = plain(addr, "");
    let (mut client, service) = talking(&outbound, &hand);
    told(&outbound, "connection answered");
    reset(service);
    assert_eq!(read_all(&mut client).1, Some(std::io::ErrorKind::ConnectionReset));
    told(&outbound, "connection broken off");
    let (mut client, service) = talking(&outbound, &hand);
    assert_eq!(outbound.events(), [], "one connection is not the service");
    drop(hand);
    refused(addr);
    reset(service);
    // Nobody connects: the look alone finds it out.
    let failed = outbound.change(0, State::Failed, &[Cause::Crash]);
    assert_eq!(failed.from, State::Active);
    assert_eq!(read_all(&mut client).1, Some(std::io::ErrorKind::ConnectionReset));
}

/// The kernel of a killed process ends its connections by FIN where nothing was unread.
#[test]
fn an_end_over_an_unanswered_question_has_the_port_looked_at() {
    let hand = Hand::new();
    let addr = hand.service.addr;
    let outbound = plain(addr, "");
    let (mut client, mut service) = talking(&outbound, &hand);
    drop(hand);
    refused(addr);
    client.write_all(b"anyone?").unwrap();
    service.read_exact(&mut [0; 7]).unwrap();
    service.shutdown(Shutdown::Both).unwrap();
    outbound.change(0, State::Failed, &[Cause::Crash]);
}

/// A dead service ends its connections itself; of those that say nothing more nobody knows, and they do not stay for ever.
#[test]
fn an_endpoint_that_failed_ends_connections_on_which_nothing_comes() {
    let hand = Hand::new();
    let addr = hand.service.addr;
    let outbound = plain(addr, "cut_after = \"2s\"");
    let (mut quiet, _kept) = talking(&outbound, &hand);
    let (mut busy, mut service) = talking(&outbound, &hand);
    drop(hand);
    refused(addr);
    let ticks = std::thread::spawn(move || {
        while service.write_all(b"t").is_ok() {
            pause();
        }
    });
    turned_away(outbound.addr);
    outbound.change(0, State::Failed, &[Cause::Crash]);
    assert_eq!(read_all(&mut quiet), (Vec::new(), Some(std::io::ErrorKind::ConnectionReset)));
    let mut lot = [0; 64];
    (0..4).for_each(|_| busy.read_exact(&mut lot).expect("who lives goes on"));
    let failed = [("direction", "out"), ("reason", "failed")];
    assert_eq!(outbound.sidecar.metric("sidebeat_connections_closed_total", &failed), Some(1.0));
    drop(busy);
    ticks.join().unwrap();
}

/// Accepts, and says nothing but RST.
#[test]
fn a_service_that_resets_everybody_is_doubted() {
    let resets = Service::start(reset);
    let outbound = plain(resets.addr, "");
    eventually(HANG, "SUSPECT", || {
        turned_away(outbound.addr);
        let events = outbound.events();
        if events.iter().any(|c| c.to == State::Suspect) { Ok(()) } else { Err(format!("{events:?}")) }
    });
    assert!(!outbound.ever_failed());
}

const ECHO: &str = r#"
import socket, sys, threading
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", int(sys.argv[1])))
l.listen(64)
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        b = c.recv(4096)
        if not b: return
        c.sendall(b)
while True:
    c, _ = l.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
"#;

/// A signal takes its time, and each thread works until it has seen it.
fn stopped(pid: u32) {
    eventually(HANG, "each thread is stopped", || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let stats: Vec<_> =
            threads.map(|t| std::fs::read_to_string(t.path().join("stat")).unwrap_or_default()).collect();
        let all = stats.iter().all(|s| s.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T")));
        if all { Ok(()) } else { Err(format!("{stats:?}")) }
    });
}

/// Its kernel takes connections and acknowledges bytes: only answers tell.
#[test]
fn a_stopped_service_is_suspect_for_stall_until_it_answers() {
    if !have(&["python3"]) {
        return;
    }
    let (dir, port) = (TempDir::new(), Port::pick());
    let mut run = command("python3", None);
    run.args(["-c", ECHO, &port.number.to_string()]);
    let mut service = Process::start(&mut run, &dir.join("service.log"));
    service.wait_port(port.addr());
    let outbound = plain(port.addr(), "");
    let (mut client, mut rng) = (connect(outbound.addr), Rng::new(3));
    for _ in 0..300 {
        round_trip(&mut client, &mut rng).unwrap();
    }
    service.signal(rustix::process::Signal::STOP);
    stopped(service.pid());
    client.write_all(&[b'q'; 32]).unwrap();
    outbound.change(0, State::Suspect, &[Cause::Stall]);
    // Whom its kernel accepts says nothing for it.
    let mut others: Vec<_> = (0..3).map(|_| connect(outbound.addr)).collect();
    others.iter_mut().for_each(|o| o.write_all(&[b'o'; 32]).unwrap());
    told(&outbound, "answer late");
    let state = |e: &Value| e["state"].as_str().unwrap_or_default().to_owned();
    assert_eq!(state(&outbound.endpoint(0)), "suspect");
    service.signal(rustix::process::Signal::CONT);
    client.read_exact(&mut [0; 32]).unwrap();
    outbound.wait_state(0, State::Active);
    assert!(!outbound.ever_failed());
    round_trip(&mut client, &mut rng).unwrap();
}
