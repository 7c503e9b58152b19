//! Services that are alive and do not answer, judged from the other end: a dead-lock behind a living accept loop, a
//! pause that burns CPU, a health page that hangs, fails and recovers.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sidebeat::clock;
use sidebeat::demo::noise::Noise;
use sidebeat::stamp::Stamp;
use support::pair::{Pair, Setup};
use support::rng::Rng;
use support::service::{Service, connect, round_trip};
use support::{big, eventually, have, pause, sized};

const PATIENCE: Duration = Duration::from_secs(20);

/// One event of the near sidecar.
#[derive(Debug)]
struct Seen {
    to: String,
    cause: String,
    at: Stamp,
}

fn events(pair: &Pair) -> Vec<Seen> {
    let one = |line: String| {
        let v: serde_json::Value = serde_json::from_str(&line).unwrap();
        let text = |key: &str| v[key].as_str().unwrap().to_owned();
        Seen { to: text("to"), cause: text("cause"), at: Stamp::from_nanos(v["mono_ns"].as_u64().unwrap()) }
    };
    pair.near.events().into_iter().map(one).collect()
}

/// The first event to `state` at or after `from`.
fn wait_event(pair: &Pair, state: &str, from: Stamp) -> Seen {
    eventually(PATIENCE, &format!("{state} after the fault"), || {
        let all = events(pair);
        let found = all.iter().position(|e| e.to == state && e.at >= from);
        let mut all = all;
        found.map(|i| all.swap_remove(i)).ok_or_else(|| format!("{all:?}\n{}", pair.far().status()))
    })
}

/// FAILED for its silence a *link* may be on a machine that is short of CPU; that is not judged here.
fn assert_never_failed(pair: &Pair) {
    let all = events(pair);
    let silent = ["silent", "blackhole", "hang_peer", "one_way"];
    assert!(all.iter().all(|e| e.to != "failed" || silent.contains(&e.cause.as_str())), "{all:#?}");
}

fn endpoint(pair: &Pair) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&pair.near.status()).unwrap();
    status["upstreams"][0]["endpoints"][0].clone()
}

/// What the far sidecar says of its service, all evidence in one text.
fn evidence(pair: &Pair) -> String {
    let status: serde_json::Value = serde_json::from_str(&pair.far().status()).unwrap();
    let said = status["inbounds"][0]["evidence"].as_array().unwrap().clone();
    said.iter().map(|s| s.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Asks again and again on a connection of its own each, until told to stop; who is not answered stays.
fn knocking(addr: SocketAddr, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut open = Vec::new();
        while !stop.load(SeqCst) && open.len() < 500 {
            if let Ok(mut s) = TcpStream::connect(addr) {
                let _ = s.write_all(&[b'k'; 32]);
                open.push(s);
            }
            pause();
        }
    })
}

/// What the far sidecar takes for the usual answer time of its service, ms. It knows some time after the answers.
fn usual_ms(pair: &Pair) -> f64 {
    eventually(PATIENCE, "the usual answer time is known", || {
        let said = evidence(pair);
        let usual = said.split("E6 answer time: usually ").nth(1).and_then(|rest| rest.split(' ').next());
        usual.and_then(|ms| ms.parse().ok()).ok_or(said)
    })
}

/// From the dead-lock to SUSPECT.
#[derive(Debug)]
struct Found {
    ms: f64,
    /// Promised: max(50 ms, 5 times the usual answer time).
    limit_ms: f64,
    /// How late this machine woke a thread so far, ms: silences that come of it are learned.
    noise_ms: f64,
}

/// A machine that wakes its threads late finds things late: no defect of ours, and no figure.
fn assert_found_in_time(mut found: Vec<Found>) {
    found.sort_by(|a, b| a.ms.total_cmp(&b.ms));
    println!("dead-lock to SUSPECT: {found:#?}");
    if !big() {
        return;
    }
    let quiet: Vec<&Found> = found.iter().filter(|f| f.noise_ms < 10.0).collect();
    if quiet.len() < found.len() {
        eprintln!("SKIPPED: this machine was quiet in {} of {} dead-locks only", quiet.len(), found.len());
    }
    for f in quiet {
        assert!(f.ms <= f.limit_ms, "{f:?} of {found:#?}");
    }
}

/// The handlers of an echo service share a lock: whoever holds it stops them all, and not the accept loop.
#[test]
fn a_dead_lock_of_all_workers_is_suspect_for_stall_and_never_failed() {
    let lock = Arc::new(Mutex::new(()));
    let (inner, accepted) = (lock.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = accepted.clone();
    let service = Service::start(move |mut s| {
        counted.fetch_add(1, SeqCst);
        let mut buf = [0; 32];
        while s.read_exact(&mut buf).is_ok() {
            let _turn = inner.lock().unwrap_or_else(PoisonError::into_inner);
            if s.write_all(&buf).is_err() {
                return;
            }
        }
    });
    let noise = Noise::start().unwrap();
    let pair = Setup::new(service.addr).start();
    let (mut client, mut rng) = (connect(pair.addr), Rng::new(1));
    let (mut found, rounds, mut other) = (Vec::new(), sized(3, 30), 0);
    while found.len() < rounds {
        for _ in 0..200 {
            round_trip(&mut client, &mut rng).unwrap();
        }
        eventually(PATIENCE, "it is well", || {
            let e = endpoint(&pair);
            if e["state"] == "active" { Ok(()) } else { Err(e.to_string()) }
        });
        let (stop, before) = (Arc::new(AtomicBool::new(false)), accepted.load(SeqCst));
        let limit_ms = (5.0 * usual_ms(&pair)).max(50.0);
        let dead = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let from = clock::now();
        client.write_all(&[b'd'; 32]).unwrap();
        let knocks = knocking(pair.addr, stop.clone());
        let seen = wait_event(&pair, "suspect", from);
        match seen.cause.as_str() {
            "stall" => {
                let (ms, noise_ms) = (seen.at.millis_since(from), noise.lateness().max);
                found.push(Found { ms, limit_ms, noise_ms });
            }
            // A busy machine kept a sidecar from running right now, and that was told first.
            "silent" if other < rounds => other += 1,
            cause => panic!("{cause} after {other} others"),
        }
        // It goes on for longer than the stall patience, with more and more that wait: still no proof of anything.
        eventually(PATIENCE, "the accept loop lives", || {
            let n = accepted.load(SeqCst) - before;
            let long = clock::now().since(from) > Duration::from_millis(1500);
            if n >= 5 && long { Ok(()) } else { Err(format!("{n} accepted")) }
        });
        eventually(PATIENCE, "the answers are late", || {
            let said = evidence(&pair);
            if said.contains("late now") { Ok(()) } else { Err(said) }
        });
        stop.store(true, SeqCst);
        drop(dead);
        knocks.join().unwrap();
        let mut echo = [0; 32];
        client.read_exact(&mut echo).unwrap();
    }
    assert_found_in_time(found);
    assert_never_failed(&pair);
    drop(client);
    pair.finish();
}

/// Holds the interpreter for half a second or so on "~": nothing else of it runs, and the processor burns.
const PAUSING: &str = r#"
import socket, sys, threading
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", int(sys.argv[1])))
l.listen(512)
def serve(c):
    with c:
        while True:
            b = c.recv(4096)
            if not b: return
            if b"~" in b: sum(range(25_000_000))
            c.sendall(b)
while True:
    c, _ = l.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
"#;

/// True if the near sidecar says `busy` before `pausing` is answered.
fn called_busy(pair: &Pair, pausing: &TcpStream) -> bool {
    pausing.set_nonblocking(true).unwrap();
    let mut busy = false;
    while !busy && pausing.peek(&mut [0]).is_err() {
        let e = endpoint(pair);
        busy = e["cause"] == "busy" && e["vouch"] == "busy";
        pause();
    }
    pausing.set_nonblocking(false).unwrap();
    busy
}

#[test]
fn a_pause_that_burns_cpu_without_notice_is_busy_and_never_failed() {
    if !have(&["python3"]) {
        return;
    }
    let (dir, port) = (support::TempDir::new(), support::Port::pick());
    let mut start = support::child::command("python3", None);
    start.args(["-c", PAUSING, &port.number.to_string()]);
    let mut process = support::child::Process::start(&mut start, &dir.join("service.log"));
    process.wait_port(port.addr());
    let pair = Setup::new(port.addr()).start();
    let (mut client, mut pausing) = (connect(pair.addr), connect(pair.addr));
    let ask = |client: &mut TcpStream| {
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    };
    (0..200).for_each(|_| ask(&mut client));
    eventually(PATIENCE, "the owner of the listener is found", || {
        let said = evidence(&pair);
        if said.contains(&format!("E3 process {}", process.pid())) { Ok(()) } else { Err(said) }
    });
    let (mut busy, rounds) = (0, sized(3, 20));
    for _ in 0..rounds {
        let from = clock::now();
        pausing.write_all(b"~").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let knocks = knocking(pair.addr, stop.clone());
        busy += usize::from(called_busy(&pair, &pausing));
        pausing.read_exact(&mut [0]).unwrap();
        println!("paused for {:.0} ms", clock::now().millis_since(from));
        ask(&mut client);
        stop.store(true, SeqCst);
        knocks.join().unwrap();
    }
    println!("busy in {busy} of {rounds} pauses: {:#?}", events(&pair));
    // A machine that is short of CPU keeps the service from burning any.
    assert!(busy > 0, "it burnt CPU without progress, and nobody said so: {}", evidence(&pair));
    assert_never_failed(&pair);
    drop((client, pausing));
    pair.finish();
}

const WELL: u8 = 0;
const HANGS: u8 = 1;
const FAILS: u8 = 2;

/// A web service whose health page can go wrong while its work goes on.
struct Web {
    service: Service,
    mode: Arc<AtomicU8>,
    probes: Arc<AtomicUsize>,
}

impl Web {
    fn start() -> Web {
        let (mode, probes) = (Arc::new(AtomicU8::new(WELL)), Arc::new(AtomicUsize::new(0)));
        let (of, count) = (mode.clone(), probes.clone());
        let service = Service::start(move |mut s| {
            let mut head = Vec::new();
            let mut byte = [0];
            while matches!(s.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
                if !head.ends_with(b"\r\n\r\n") {
                    continue;
                }
                let health = head.starts_with(b"GET /health ");
                head.clear();
                if health {
                    count.fetch_add(1, SeqCst);
                }
                while health && of.load(SeqCst) == HANGS {
                    pause();
                }
                let bad = health && of.load(SeqCst) == FAILS;
                let status = if bad { "503 Sick" } else { "200 OK" };
                if write!(s, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
        });
        Web { service, mode, probes }
    }
}

fn work(client: &mut TcpStream) {
    client.write_all(b"GET /work HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = vec![0; b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".len()];
    client.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&answer));
}

fn wait_state(pair: &Pair, state: &str, said: &str) {
    eventually(PATIENCE, &format!("{state}, and {said:?} is said"), || {
        let (e, words) = (endpoint(pair), evidence(pair));
        let cause = if state == "suspect" { "stall" } else { "none" };
        let so = e["state"] == state && e["cause"] == cause && words.contains(said);
        if so { Ok(()) } else { Err(format!("{e}\n{words}")) }
    });
}

/// Probes of the far sidecar with that result.
fn probed(pair: &Pair, result: &str) -> f64 {
    let labels = [("service", support::pair::NAME), ("result", result)];
    pair.far().metric("sidebeat_probes_total", &labels).unwrap()
}

#[test]
fn a_health_page_that_hangs_and_fails_and_recovers() {
    let web = Web::start();
    let probe = "[probe]\nkind = \"http\"\npath = \"/health\"\nidle = \"200ms\"\ninterval = \"200ms\"\n\
                 timeout = \"150ms\"\nunhealthy = 2\n";
    let pair = Setup::new(web.service.addr).far_extra(probe).start();
    // Idle and well: alive for sure.
    wait_state(&pair, "active", "E5 probe (http /health): alive");
    eventually(PATIENCE, "the other end knows that it lives", || {
        let e = endpoint(&pair);
        if e["facets"]["alive"] == "yes" && e["vouch"] == "running" { Ok(()) } else { Err(e.to_string()) }
    });
    web.mode.store(HANGS, SeqCst);
    wait_state(&pair, "suspect", "no answer within 150ms");
    web.mode.store(FAILS, SeqCst);
    wait_state(&pair, "suspect", "status 503, not 200-399");
    // Work that is answered says more, and while it is answered nobody probes.
    let mut client = connect(pair.addr);
    work(&mut client);
    wait_state(&pair, "active", "the service said something");
    let (begin, before) = (clock::now(), web.probes.load(SeqCst));
    while clock::now().since(begin) < Duration::from_secs(1) {
        work(&mut client);
    }
    let probes = web.probes.load(SeqCst) - before;
    assert!(probes <= 1, "{probes} probes while the service worked");
    // Silence, and it is asked again.
    wait_state(&pair, "suspect", "E5 probe (http /health): failing");
    web.mode.store(WELL, SeqCst);
    wait_state(&pair, "active", "E5 probe (http /health): alive");
    let results = ["ok", "failed", "timeout"].map(|result| probed(&pair, result));
    assert!(results.iter().all(|n| *n > 0.0), "it was well, said 503 and hung: {results:?}");
    let timed = pair.far().metric("sidebeat_probe_seconds_count", &[("service", support::pair::NAME)]);
    assert!(timed >= Some(results.iter().sum()), "{timed:?} of {results:?}");
    let took = pair.far().metric("sidebeat_probe_seconds_sum", &[("service", support::pair::NAME)]);
    assert!(took >= Some(0.15 * results[2]), "a time-out takes 150 ms: {took:?} of {results:?}");
    assert_never_failed(&pair);
    drop(client);
    pair.finish();
}

#[test]
fn probes_by_program_and_by_connect() {
    let service = Service::echo();
    let well = support::TempDir::new();
    let flag = well.join("well");
    std::fs::write(&flag, "").unwrap();
    let probe = format!(
        "[probe]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"echo asked $SIDEBEAT_INBOUND at $SIDEBEAT_SERVICE; test -e {}\"]\n\
         idle = \"100ms\"\ninterval = \"500ms\"\ntimeout = \"500ms\"\nunhealthy = 2\n",
        flag.display()
    );
    let pair = Setup::new(service.addr).far_extra(&probe).start();
    let said = format!("exit 0: asked {} at {}", support::pair::NAME, service.addr);
    wait_state(&pair, "active", &said);
    std::fs::remove_file(&flag).unwrap();
    wait_state(&pair, "suspect", "exit 1: asked");
    std::fs::write(&flag, "").unwrap();
    wait_state(&pair, "active", "alive");
    pair.finish();

    let probe = "[probe]\nkind = \"tcp\"\nidle = \"100ms\"\ninterval = \"200ms\"\ntimeout = \"200ms\"\n";
    let pair = Setup::new(service.addr).far_extra(probe).start();
    wait_state(&pair, "active", "E5 probe (tcp): alive");
    pair.finish();
}
