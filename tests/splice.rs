//! Bulk data on links of one stream, against the real program: payloads pass through kernel pipes, and nothing about
//! the connection changes by that.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use support::pair::{Mode, Pair, Setup};
use support::rng::{Rng, Sum};
use support::service::{
    HANG, Service, both_ways, connect, receive, receive_all, reset, round_trip, send_random, telling,
};
use support::{eventually, pause, sized};

const MIB: u64 = 1 << 20;

fn start(service: &Service) -> Pair {
    Setup::mode(service.addr, Mode::PerConnection).start()
}

/// Pipe ends that each sidecar has open, those included that it got from its parent.
fn pipe_ends(pids: &[u32]) -> Vec<usize> {
    let is_pipe = |e: std::io::Result<std::fs::DirEntry>| {
        let to = e.and_then(|e| std::fs::read_link(e.path()));
        to.is_ok_and(|to| to.to_string_lossy().starts_with("pipe:"))
    };
    let count = |pid| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd"));
        fds.map_or(0, |fds| fds.map(is_pipe).filter(|p| *p).count())
    };
    pids.iter().map(count).collect()
}

fn pids(pair: &Pair) -> Vec<u32> {
    pair.sidecars().map(|s| s.process().pid()).collect()
}

/// Pipe ends that a child of this process gets.
fn inherited() -> usize {
    let mut child = support::child::Process::start(
        support::child::command("sleep", None).arg("60"),
        &support::TempDir::new().join("sleep.log"),
    );
    eventually(HANG, "the child runs", || match std::fs::read_link(format!("/proc/{}/exe", child.pid())) {
        Ok(exe) if exe.to_string_lossy().ends_with("sleep") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let n = pipe_ends(&[child.pid()])[0];
    child.kill();
    n
}

/// Watches the pipes of both sidecars while `f` runs, and gives the most that each had open.
fn most_pipes<T>(pair: &Pair, f: impl FnOnce() -> T) -> (T, Vec<usize>) {
    let (pids, stop) = (pids(pair), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let watch = std::thread::spawn(move || {
        let mut most = vec![0; pids.len()];
        while !stopped.load(Ordering::Acquire) {
            for (most, now) in most.iter_mut().zip(pipe_ends(&pids)) {
                *most = now.max(*most);
            }
            pause();
        }
        most
    });
    let out = f();
    stop.store(true, Ordering::Release);
    let inherited = inherited();
    (out, watch.join().unwrap().iter().map(|n| n - inherited).collect())
}

fn pipes_are_closed(pair: &Pair) {
    let inherited = inherited();
    eventually(Duration::from_secs(20), "idle pipes are closed", || match pipe_ends(&pids(pair)) {
        open if open.iter().all(|n| *n == inherited) => Ok(()),
        open => Err(format!("{open:?}, {inherited} of them inherited")),
    });
}

fn carry_both_ways(mode: Mode, len: u64) -> Vec<usize> {
    let (service, told) = telling(move |stream| both_ways(stream, 1, len));
    let pair = Setup::mode(service.addr, mode).start();
    let ((said, heard), most) = most_pipes(&pair, || both_ways(connect(pair.addr), 2, len));
    assert_eq!(heard.len, len);
    assert_eq!(told.recv_timeout(HANG * 10).unwrap(), (heard, said));
    pipes_are_closed(&pair);
    pair.finish();
    most
}

#[test]
fn bulk_both_ways_at_once_passes_through_pipes_unchanged() {
    let most = carry_both_ways(Mode::PerConnection, sized(64 * MIB, 2048 * MIB));
    println!("most pipe ends: {most:?}");
    assert!(most.len() == 2 && most.iter().all(|n| *n > 0), "no pipe was used: {most:?}");
}

#[test]
fn links_of_many_streams_use_no_pipes() {
    assert_eq!(carry_both_ways(Mode::Shared, 16 * MIB), [0, 0]);
}

#[test]
fn an_end_in_bulk_comes_behind_the_last_byte_and_the_other_way_goes_on() {
    let (service, told) = telling(|mut stream| {
        let heard = receive_all(&mut stream).unwrap();
        let said = send_random(&mut stream, 3, 24 * MIB + 5).unwrap();
        (heard, said)
    });
    let pair = start(&service);
    for n in 0..5 {
        let mut client = connect(pair.addr);
        let (said, most) = most_pipes(&pair, || send_random(&mut client, n, 24 * MIB + n).unwrap());
        client.shutdown(Shutdown::Write).unwrap();
        let heard = receive_all(&mut client).unwrap();
        assert_eq!(told.recv_timeout(HANG).unwrap(), (said, heard), "connection {n}");
        assert!(most[0] > 0, "no pipe was used: {most:?}");
    }
    pipes_are_closed(&pair);
    pair.finish();
}

#[test]
fn write_and_close_loses_nothing_at_any_size() {
    let (service, told) = telling(|mut stream| receive_all(&mut stream).unwrap());
    let pair = start(&service);
    let mut rng = Rng::new(4);
    for n in 0..sized(60, 600) {
        let mut client = connect(pair.addr);
        // Around the sizes at which a direction becomes bulk and a pipe is full.
        let len = 200_000 + rng.below(3_000_000) as u64;
        let said = send_random(&mut client, n, len).unwrap();
        drop(client);
        assert_eq!(told.recv_timeout(HANG).unwrap(), said, "connection {n}");
    }
    pair.finish();
}

#[test]
fn a_reset_by_the_client_in_bulk_is_a_reset_at_the_service() {
    let (service, told) = telling(|mut stream| {
        let first = receive(&mut stream, 8 * MIB).map_err(|e| e.kind());
        first.and_then(|_| receive_all(&mut stream).map_err(|e| e.kind()))
    });
    let pair = start(&service);
    for n in 0..10 {
        let mut client = connect(pair.addr);
        send_random(&mut client, n, 12 * MIB).unwrap();
        reset(client);
        assert_eq!(told.recv_timeout(HANG).unwrap(), Err(ErrorKind::ConnectionReset), "connection {n}");
    }
    pipes_are_closed(&pair);
    pair.finish();
}

#[test]
fn a_reset_by_the_service_in_bulk_is_a_reset_at_the_client() {
    let service = Service::start(|mut stream| {
        let _ = receive(&mut stream, 8 * MIB);
        reset(stream);
    });
    let pair = start(&service);
    for n in 0..10 {
        let mut client = connect(pair.addr);
        let failed = send_random(&mut client, n, 1024 * MIB).unwrap_err();
        let kind = failed.kind();
        assert!(
            matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            "connection {n}: {failed}"
        );
    }
    pipes_are_closed(&pair);
    pair.finish();
}

#[test]
fn small_messages_between_bulk() {
    let service = Service::echo();
    let pair = start(&service);
    let mut client = connect(pair.addr);
    let mut rng = Rng::new(5);
    for n in 0..sized(5, 50) {
        let (sums, most) = most_pipes(&pair, || both_ways(client.try_clone().unwrap(), n, 8 * MIB));
        assert_eq!(sums.0, sums.1, "bulk {n}");
        println!("most pipe ends: {most:?}");
        for trip in 0..300 {
            round_trip(&mut client, &mut rng).unwrap_or_else(|e| panic!("bulk {n}, trip {trip}: {e}"));
        }
        pipes_are_closed(&pair);
    }
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    pair.finish();
}

#[test]
fn a_reader_that_stops_in_bulk_holds_up_nothing_but_its_own_bytes() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let (service, told) = telling(move |mut stream| {
        let mut kind = [0];
        stream.read_exact(&mut kind).unwrap();
        if kind == *b"s" {
            stream.write_all(&kind).unwrap();
            return Sum::default();
        }
        stream.set_read_timeout(None).unwrap();
        let _ = receive(&mut stream, 8 * MIB).unwrap();
        wait.lock().unwrap().recv_timeout(HANG).unwrap();
        receive_all(&mut stream).unwrap()
    });
    let pair = start(&service);
    let events = pair.near.events().len();
    let mut client = connect(pair.addr);
    client.set_write_timeout(None).unwrap();
    client.write_all(b"b").unwrap();
    let sender = std::thread::spawn(move || {
        send_random(&mut client, 6, 8 * MIB).unwrap();
        send_random(&mut client, 7, 64 * MIB).unwrap()
    });
    let told_full =
        || pair.near.metric("sidebeat_frames_total", &[("kind", "backpressure"), ("direction", "out")]);
    eventually(HANG, "the near sidecar says that it is full", || match told_full() {
        Some(n) if n > 5.0 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for _ in 0..50 {
        let mut other = connect(pair.addr);
        other.write_all(b"s").unwrap();
        other.read_exact(&mut [0]).unwrap();
        assert_eq!(told.recv_timeout(HANG).unwrap(), Sum::default());
    }
    let news = pair.near.events().split_off(events);
    assert!(news.iter().all(|e| !e.contains("\"to\":\"failed\"")), "full is not dead: {news:?}");
    go.send(()).unwrap();
    let said = sender.join().unwrap();
    assert_eq!(told.recv_timeout(HANG).unwrap(), said);
    pipes_are_closed(&pair);
    pair.finish();
}

#[test]
fn a_sidecar_that_stops_is_found_in_the_middle_of_bulk() {
    let service = Service::start(|mut stream| drop(receive_all(&mut stream)));
    let pair = start(&service);
    let mut client = connect(pair.addr);
    let (_, most) = most_pipes(&pair, || send_random(&mut client, 8, 16 * MIB).unwrap());
    assert!(most.iter().all(|n| *n > 0), "no pipe was used: {most:?}");
    let sender = std::thread::spawn(move || send_random(&mut client, 9, u64::MAX).unwrap_err());
    let events = pair.near.events().len();
    let far = pair.far().process();
    far.signal(rustix::process::Signal::STOP);
    eventually(HANG, "the near sidecar takes it for failed", || {
        let news = pair.near.events().split_off(events);
        let failed = news.iter().any(|e| e.contains("\"to\":\"failed\""));
        if failed { Ok(()) } else { Err(format!("{news:?}")) }
    });
    assert_eq!(sender.join().unwrap().kind(), ErrorKind::ConnectionReset, "its streams are cut");
    far.signal(rustix::process::Signal::CONT);
    eventually(HANG, "it is taken for alive again", || {
        let state = pair.near.events().pop().unwrap_or_default();
        if state.contains("\"to\":\"active\"") { Ok(()) } else { Err(state) }
    });
    pair.finish();
}

/// Links off duty beat each eight seconds: no law may take that for death.
#[test]
fn an_idle_connection_outlives_every_law() {
    let service = Service::echo();
    std::thread::scope(|scope| {
        for kind in ["huddm", "phi", "chen", "timeout", "p95"] {
            let addr = service.addr;
            scope.spawn(move || {
                let tables =
                    format!("[detector]\nkind = \"{kind}\"\n[detector.timeout]\nafter = \"500ms\"\n");
                let pair = Setup::mode(addr, Mode::PerConnection).near_extra(&tables).start();
                let mut idle = connect(pair.addr);
                round_trip(&mut idle, &mut Rng::new(1)).unwrap();
                // The duty goes to the link that carried something last.
                let mut other = connect(pair.addr);
                round_trip(&mut other, &mut Rng::new(3)).unwrap();
                let started = uptime(&pair);
                // cut_after is one second.
                eventually(HANG, "four seconds without a byte", || match uptime(&pair) - started {
                    passed if passed >= 4.0 => Ok(()),
                    passed => Err(format!("{passed} s")),
                });
                round_trip(&mut idle, &mut Rng::new(2)).unwrap_or_else(|e| panic!("{kind}: {e}"));
                drop((idle, other));
                pair.finish();
            });
        }
    });
}

fn uptime(pair: &Pair) -> f64 {
    let status: serde_json::Value = serde_json::from_str(&pair.near.status()).unwrap();
    status["uptime_s"].as_f64().unwrap()
}
