//! A chain of three: A's sidecar watches B, whose service asks C for each answer. Whatever happens to C, B is never FAILED
//! for A: it is `starved` (row H4), also where it waits for C for longer than an excuse lasts by itself. `SIDEBEAT_BIG=1`
//! injects each of the five faults ten times, by default once.

mod support;

#[path = "chain/valve.rs"]
mod valve;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use sidebeat::clock;
use support::child::{Process, command};
use support::pair::Sidecar;
use support::rng::Rng;
use support::{Port, TempDir, eventually, sized};
use valve::Valve;

/// Longer than an upstream that nobody waits for excuses anything.
const LONG: Duration = Duration::from_secs(13);
const _: () = assert!(LONG.as_secs() > sidebeat::upstream::starved::FAILED_FOR.as_secs() + 1);
/// From B's verdict on. Longer than `stall_patience`: without the excuse B would be FAILED.
const HOLD: Duration = Duration::from_millis(1600);

const PATIENCE: Duration = Duration::from_secs(20);

/// A loop that is late by this much breaks promises: the least silence that fails is as long.
const NOISY_MS: f64 = 10.0;

/// What happens to C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    StoppedService,
    StoppedSidecar,
    KilledService,
    KilledSidecar,
    BlackHole,
}

impl Fault {
    const ALL: [Fault; 5] = [
        Fault::StoppedService,
        Fault::StoppedSidecar,
        Fault::KilledService,
        Fault::KilledSidecar,
        Fault::BlackHole,
    ];
}

struct Chain {
    a: Sidecar,
    b: Sidecar,
    c: Sidecar,
    service_b: Process,
    service_c: Process,
    at_c: SocketAddr,
    /// The configuration of C's sidecar.
    toml_c: String,
    /// The path from B's sidecar to C's.
    path: Valve,
    entry: SocketAddr,
    dir: TempDir,
    _ports: Vec<Port>,
}

fn service(dir: &TempDir, name: &str, at: SocketAddr, through: Option<SocketAddr>) -> Process {
    let mut run = command(env!("CARGO_BIN_EXE_sidebeat"), None);
    run.args(["demo-service", "--name", name, "--listen", &at.to_string()]);
    if let Some(to) = through {
        run.args(["--through", &to.to_string()]);
    }
    let mut process = Process::start(&mut run, &dir.join(&format!("{name}-service.log")));
    process.wait_port(at);
    process
}

impl Chain {
    /// `cut_after`: of the streams from B to C.
    fn start(cut_after: &str) -> Chain {
        let dir = TempDir::new();
        let ports: Vec<Port> = (0..6).map(|_| Port::pick()).collect();
        let at: Vec<SocketAddr> = ports.iter().map(Port::addr).collect();
        let [service_b, service_c, link_b, link_c, b_to_c, entry] = at[..] else { panic!("six ports") };
        let inbound = |name: &str, link: SocketAddr, service: SocketAddr| {
            format!("[[inbound]]\nname = \"{name}\"\nlink_listen = \"{link}\"\nservice = \"{service}\"\n")
        };
        let outbound = |name: &str, listen: SocketAddr, service: SocketAddr, link: SocketAddr| {
            format!(
                "[[outbound]]\nname = \"{name}\"\nlisten = \"{listen}\"\nlink = \"required\"\n\
                 cut_after = \"{cut_after}\"\nendpoints = [{{ address = \"{service}\", link_port = {} }}]\n",
                link.port()
            )
        };
        let process_c = self::service(&dir, "c", service_c, None);
        let toml_c = inbound("c", link_c, service_c);
        let c = Sidecar::start(&dir, "c", &toml_c);
        let path = Valve::start(link_c);
        let toml = inbound("b", link_b, service_b) + &outbound("c", b_to_c, service_c, path.addr);
        let b = Sidecar::start(&dir, "b", &toml);
        let process_b = self::service(&dir, "b", service_b, Some(b_to_c));
        let a = Sidecar::start(&dir, "a", &outbound("b", entry, service_b, link_b));
        let chain = Chain {
            a,
            b,
            c,
            service_b: process_b,
            service_c: process_c,
            at_c: service_c,
            toml_c,
            path,
            entry,
            dir,
            _ports: ports,
        };
        chain.wait_active(&chain.a);
        chain.wait_active(&chain.b);
        chain
    }

    fn wait_active(&self, sidecar: &Sidecar) {
        eventually(PATIENCE, &format!("{}'s upstream is ACTIVE over a link", sidecar.name), || {
            let framed = sidecar.metric("sidebeat_upstream_link_mode", &[("mode", "framed")]) == Some(1.0);
            let active = sidecar.metric("sidebeat_upstream_state", &[("state", "active")]) == Some(1.0);
            if framed && active { Ok(()) } else { Err(sidecar.status()) }
        });
    }

    /// How often that sidecar has called its upstream FAILED.
    fn failed(sidecar: &Sidecar) -> usize {
        let to = [("to", "failed")];
        sidecar.metric("sidebeat_upstream_transitions_total", &to).expect("there from the start") as usize
    }

    /// A has never called B FAILED. What B's sidecar itself says to be late is the machine's doing, not C's: then its
    /// silence is excused, and nothing else.
    fn assert_not_blamed(&self, fault: Fault) {
        let events = self.a.events();
        let parsed: Vec<serde_json::Value> =
            events.iter().map(|e| serde_json::from_str(e).expect("JSON")).collect();
        let noise = parsed.iter().filter_map(|e| e["noise_ms"].as_f64()).fold(0.0, f64::max);
        let excused = |e: &serde_json::Value| {
            let cause = e["cause"].as_str().unwrap_or_default();
            noise >= NOISY_MS && ["silent", "blackhole", "hang_peer", "one_way"].contains(&cause)
        };
        let blames = |e: &&serde_json::Value| e["to"] == "failed" && e["from"] != "failed" && !excused(e);
        assert!(parsed.iter().find(blames).is_none(), "A blames B for {fault:?}: {events:#?}");
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::StoppedService => self.service_c.signal(Signal::STOP),
            Fault::StoppedSidecar => self.c.process().signal(Signal::STOP),
            Fault::KilledService => self.service_c.kill(),
            Fault::KilledSidecar => self.c.kill(),
            Fault::BlackHole => self.path.cut(),
        }
    }

    fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::StoppedService => self.service_c.signal(Signal::CONT),
            Fault::StoppedSidecar => self.c.process().signal(Signal::CONT),
            Fault::KilledService => self.service_c = service(&self.dir, "c", self.at_c, None),
            Fault::KilledSidecar => self.c = Sidecar::start(&self.dir, "c", &self.toml_c),
            Fault::BlackHole => self.path.join(),
        }
    }

    /// From the fault to the end of its hold; fails unless B noticed it.
    fn fault(&mut self, fault: Fault) {
        let before = Chain::failed(&self.b);
        self.strike(fault);
        eventually(PATIENCE, &format!("B calls C FAILED: {fault:?}"), || {
            if Chain::failed(&self.b) > before { Ok(()) } else { Err(self.b.status()) }
        });
        wait(HOLD);
        self.mend(fault);
    }
}

/// The length of a fault.
#[expect(clippy::disallowed_methods, reason = "a fault lasts as long as it lasts")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// Clients with keep-alive, each with 5 to 20 ms between two requests; errors are the chain's, not the test's.
struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(to: SocketAddr, clients: u64) -> Load {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |seed: u64| {
            let (stop, answers) = (stop.clone(), answers.clone());
            std::thread::spawn(move || {
                let mut rng = Rng::new(seed + 1);
                while !stop.load(Relaxed) {
                    let _ = ask_until_it_fails(to, &stop, &answers, &mut rng);
                    wait(Duration::from_millis(5));
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Load { stop, answers, clients }
    }

    /// Waits for more answers than there were.
    fn flows(&self, before: u64) {
        eventually(PATIENCE, "answers come through the whole chain", || {
            let now = self.answers.load(Relaxed);
            if now > before + 20 { Ok(()) } else { Err(format!("{now} answers, {before} before")) }
        });
    }

    fn finish(self) {
        self.stop.store(true, Relaxed);
        self.clients.into_iter().for_each(|c| c.join().expect("a client"));
    }
}

fn ask_until_it_fails(
    to: SocketAddr,
    stop: &AtomicBool,
    answers: &AtomicU64,
    rng: &mut Rng,
) -> std::io::Result<()> {
    let mut io = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    io.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut buf = [0; 1024];
    while !stop.load(Relaxed) {
        io.write_all(b"GET / HTTP/1.1\r\nhost: b\r\n\r\n")?;
        if io.read(&mut buf)? == 0 {
            return Ok(());
        }
        answers.fetch_add(1, Relaxed);
        wait(Duration::from_micros(5_000 + rng.below(15_000) as u64));
    }
    Ok(())
}

#[test]
fn a_fault_of_c_never_makes_b_failed_for_a() {
    let mut chain = Chain::start("1s");
    let load = Load::start(chain.entry, 4);
    load.flows(0);
    let (rounds, begin) = (sized(1, 10), clock::now());
    for fault in std::iter::repeat_n(Fault::ALL, rounds).flatten() {
        let before = load.answers.load(Relaxed);
        chain.fault(fault);
        chain.wait_active(&chain.b);
        load.flows(before);
        chain.wait_active(&chain.a);
        chain.assert_not_blamed(fault);
    }
    let seen_by_a = chain.a.events();
    let starved = seen_by_a.iter().filter(|e| e.contains("\"cause\":\"starved\"")).count();
    println!(
        "{} faults of C in {:.0} s: B saw C FAILED {} times, A saw B starved {starved} times, FAILED {} times",
        rounds * Fault::ALL.len(),
        clock::now().since(begin).as_secs_f64(),
        Chain::failed(&chain.b),
        Chain::failed(&chain.a),
    );
    assert!(starved > 0, "A never said why B was slow: {seen_by_a:#?}");
    load.finish();
    assert!(chain.service_b.ended().is_none());
}

/// C is stopped and FAILED, and B's question to it stays open: B does nothing at all for as long as that takes.
#[test]
fn b_that_waits_for_c_is_excused_for_as_long_as_it_waits() {
    let chain = Chain::start("off");
    let load = Load::start(chain.entry, 4);
    load.flows(0);
    let before = load.answers.load(Relaxed);
    chain.service_c.signal(Signal::STOP);
    wait(LONG);
    let (at_a, at_b) = (chain.a.status(), chain.b.status());
    chain.service_c.signal(Signal::CONT);
    load.flows(before);
    chain.wait_active(&chain.a);
    let endpoint = |status: &str| {
        let v: serde_json::Value = serde_json::from_str(status).expect("JSON");
        v["upstreams"][0]["endpoints"][0].clone()
    };
    assert_eq!(endpoint(&at_b)["state"], "failed", "{at_b}");
    let b = endpoint(&at_a);
    assert_eq!((&b["state"], &b["cause"]), (&"suspect".into(), &"starved".into()), "{at_a}");
    assert_eq!((&b["facets"]["degraded"], &b["facets"]["business"]), (&"yes".into(), &"no".into()), "{at_a}");
    let events = chain.a.events();
    assert!(!events.iter().any(|e| e.contains("\"to\":\"failed\"")), "A blames B: {events:#?}");
    let held = chain.a.metric("sidebeat_gate_holds_total", &[("gate", "starved")]);
    assert!(held >= Some(1.0), "the excuse is counted: {held:?}");
    load.finish();
}
