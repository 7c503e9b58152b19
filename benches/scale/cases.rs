//! The cases. Each starts real sidecars with their default configuration, lets them settle, and measures a window.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sidebeat::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Line;
use super::peer::Players;
use super::support::pair::{NAME, Pair, Setup, Sidecar};
use super::support::{Port, TempDir, eventually, pause};
use super::usage::{Clocked, Load, Memory, memory};

const MIB: f64 = 1024.0 * 1024.0;
const ENDPOINTS: usize = 1000;
const CLIENTS: usize = 5000;
const CONNECTIONS: usize = 5000;
const WARM_UP: usize = 50;
/// For what the start itself left behind to be over.
const SETTLE: Duration = Duration::from_secs(4);
const WINDOW: Duration = Duration::from_secs(10);
const START: Duration = Duration::from_secs(60);

fn wait(d: Duration) {
    let end = clock::now() + d;
    while clock::now() < end {
        pause();
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

fn line(case: &'static str, what: &str, value: f64, unit: &'static str, goal: Option<f64>) -> Line {
    Line { case, what: what.to_owned(), value, unit, goal }
}

/// Address of the `i`-th endpoint: all of 127.0.0.0/8 is this machine.
fn endpoint(i: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, (1 + i / 250) as u8, (1 + i % 250) as u8)
}

/// An outbound sidecar with `ENDPOINTS` endpoints, the `i`-th with the link port `port(i)`.
fn watcher(dir: &TempDir, listen: &Port, port: impl Fn(usize) -> u16) -> Sidecar {
    let mut toml = format!(
        "[[outbound]]\nname = \"{NAME}\"\nlisten = \"{}\"\nlink = \"required\"\nendpoints = [\n",
        listen.addr()
    );
    for i in 0..ENDPOINTS {
        let _ = writeln!(toml, "{{ address = \"{}:9\", link_port = {} }},", endpoint(i), port(i));
    }
    toml.push_str("]\n");
    Sidecar::start(dir, "watcher", &toml)
}

fn settle_watch(links: impl Fn() -> usize) {
    eventually(START, "all endpoints are linked", || {
        let up = links();
        if up >= ENDPOINTS { Ok(()) } else { Err(format!("{up} links")) }
    });
    wait(SETTLE);
}

fn measure(sidecar: &Sidecar) -> (Load, Memory) {
    let clocked = Clocked::start(sidecar.process().pid());
    wait(WINDOW);
    (clocked.stop(), memory(sidecar.process().pid()))
}

fn watch_lines(case: &'static str, watcher: &Sidecar) -> Vec<Line> {
    let events = watcher.events().len();
    let (load, memory) = measure(watcher);
    let doubts = watcher.events().len() - events;
    vec![
        line(case, "1 000 idle endpoints watched: CPU", load.core, "% core", Some(15.0)),
        line(case, "1 000 idle endpoints watched: RSS", mib(memory.rss), "MiB", Some(64.0)),
        line(case, "  of it heap and stacks", mib(memory.anonymous), "MiB", None),
        line(case, "  sleeps of its threads", load.sleeps, "/s", None),
        line(case, "  changes of state meanwhile", doubts as f64, "", None),
    ]
}

/// Each endpoint beats at a phase of its own, as on a thousand machines: no two beats share a wake-up but by chance.
pub(crate) fn watch_spread() -> Vec<Line> {
    let (dir, listen) = (TempDir::new(), Port::pick());
    let listener = listener((Ipv4Addr::UNSPECIFIED, 0).into());
    let port = listener.local_addr().expect("address").port();
    let peers = Players::acceptors(listener, ENDPOINTS, Duration::from_millis(100));
    let watcher = watcher(&dir, &listen, |_| port);
    settle_watch(|| peers.seen.up.load(Relaxed));
    let (heard, asked) = (peers.seen.beats.load(Relaxed), peers.seen.challenges.load(Relaxed));
    let mut lines = watch_lines("watch", &watcher);
    let per_s = |n: u64| n as f64 / WINDOW.as_secs_f64();
    lines.push(line("watch", "  beats it sent", per_s(peers.seen.beats.load(Relaxed) - heard), "/s", None));
    lines.push(line("watch", "  challenges", per_s(peers.seen.challenges.load(Relaxed) - asked), "/s", None));
    lines
}

/// Real sidecars on the other side. Two, so that the idle promise of each stays 100 ms; their beats are aligned.
pub(crate) fn watch_aligned() -> Vec<Line> {
    let (dir, listen, ports) = (TempDir::new(), Port::pick(), [Port::pick(), Port::pick()]);
    let service = super::support::service::Service::echo();
    let far = |port: &Port, name| {
        let toml = format!(
            "[[inbound]]\nname = \"{NAME}\"\nlink_listen = \"0.0.0.0:{}\"\ninsecure = true\nservice = \"{}\"\n",
            port.number, service.addr
        );
        Sidecar::start(&dir, name, &toml)
    };
    let far = [far(&ports[0], "far-0"), far(&ports[1], "far-1")];
    let watcher = watcher(&dir, &listen, |i| ports[i % 2].number);
    let links = |s: &Sidecar| s.metric("sidebeat_links_active", &[("direction", "in")]).unwrap_or(0.0);
    settle_watch(|| far.iter().map(links).sum::<f64>() as usize);
    watch_lines("watch-aligned", &watcher)
}

/// `CLIENTS` sidecars of clients linked to one service.
pub(crate) fn clients() -> Vec<Line> {
    let (dir, port) = (TempDir::new(), Port::pick());
    let service = super::support::service::Service::echo();
    let toml = format!(
        "[[inbound]]\nname = \"{NAME}\"\nlink_listen = \"{}\"\nservice = \"{}\"\n",
        port.addr(),
        service.addr
    );
    let far = Sidecar::start(&dir, "far", &toml);
    let before = memory(far.process().pid());
    let peers = Players::dialers(port.addr(), NAME, CLIENTS, Duration::from_secs(1));
    eventually(START, "all clients are linked", || {
        let up = peers.seen.up.load(Relaxed);
        if up == CLIENTS { Ok(()) } else { Err(format!("{up} links")) }
    });
    wait(SETTLE);
    let beats = peers.seen.beats.load(Relaxed);
    let (load, memory) = measure(&far);
    let beats = (peers.seen.beats.load(Relaxed) - beats) as f64 / WINDOW.as_secs_f64();
    let each = memory.rss.saturating_sub(before.rss) as f64 / 1024.0 / CLIENTS as f64;
    vec![
        line("clients", "5 000 client sidecars on one service: CPU", load.core, "% core", Some(50.0)),
        line("clients", "  RSS", mib(memory.rss), "MiB", None),
        line("clients", "  RSS per link", each, "KiB", None),
        line("clients", "  beats it sent", beats, "/s", None),
        line("clients", "  sleeps of its threads", load.sleeps, "/s", None),
        line("clients", "  links lost", peers.seen.lost.load(Relaxed) as f64, "", None),
    ]
}

fn of_pair(pair: &Pair) -> (Memory, Memory) {
    (memory(pair.near.process().pid()), memory(pair.far().process().pid()))
}

/// Memory of a pair: at rest, and per idle connection.
pub(crate) fn connections() -> Vec<Line> {
    let service = echo();
    let pair = Setup::new(service).start();
    for _ in 0..WARM_UP {
        let mut client = TcpStream::connect(pair.addr).expect("connect");
        client.write_all(b"x").expect("write");
        client.read_exact(&mut [0]).expect("echo");
    }
    wait(SETTLE);
    let (near, far) = of_pair(&pair);
    let base = near + far;
    let held = open_connections(pair.addr);
    wait(SETTLE);
    let (near_full, far_full) = of_pair(&pair);
    let load = [&pair.near, pair.far()].map(|s| Clocked::start(s.process().pid()));
    wait(WINDOW / 2);
    let cpu: f64 = load.iter().map(|l| l.stop().core).sum();
    drop(held);
    wait(SETTLE);
    let (near_after, far_after) = of_pair(&pair);
    let each = |full: u64, before: u64| full.saturating_sub(before) as f64 / 1024.0 / CONNECTIONS as f64;
    let total = each((near_full + far_full).rss, base.rss);
    vec![
        line("connections", "base memory of the pair: RSS", mib(base.rss), "MiB", Some(16.0)),
        line("connections", "  PSS", mib(base.pss), "MiB", None),
        line("connections", "  heap and stacks", mib(base.anonymous), "MiB", None),
        line("connections", "5 000 idle connections: RSS each, over the pair", total, "KiB", Some(4.0)),
        line("connections", "  near the client", each(near_full.rss, near.rss), "KiB", None),
        line("connections", "  beside the service", each(far_full.rss, far.rss), "KiB", None),
        line("connections", "  CPU of the pair meanwhile", cpu, "% core", None),
        line(
            "connections",
            "  RSS of the pair after they closed",
            mib((near_after + far_after).rss),
            "MiB",
            None,
        ),
    ]
}

/// An echo service that holds thousands of connections in one thread.
fn echo() -> SocketAddr {
    let listener = listener((Ipv4Addr::LOCALHOST, 0).into());
    let addr = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        on_one_thread(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("listener");
            loop {
                let (mut io, _) = listener.accept().await.expect("accept");
                tokio::task::spawn_local(async move {
                    let mut buf = [0; 64];
                    while let Ok(n @ 1..) = io.read(&mut buf).await {
                        if io.write_all(&buf[..n]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
    });
    addr
}

fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// Opens them through the pair; each has carried a byte and its echo.
fn open_connections(to: SocketAddr) -> Vec<std::net::TcpStream> {
    const AT_ONCE: usize = 50;
    on_one_thread(async move {
        let permits = std::sync::Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        let mut tasks = Vec::new();
        for _ in 0..CONNECTIONS {
            let permit = permits.clone().acquire_owned().await.expect("open");
            tasks.push(tokio::task::spawn_local(async move {
                let mut io = tokio::net::TcpStream::connect(to).await.expect("connect");
                io.write_all(b"x").await.expect("write");
                io.read_exact(&mut [0]).await.expect("echo");
                drop(permit);
                io.into_std().expect("socket")
            }));
        }
        let mut held = Vec::new();
        for t in tasks {
            held.push(t.await.expect("no panic"));
        }
        held
    })
}

/// A non-blocking listener with a long queue.
fn listener(at: SocketAddr) -> std::net::TcpListener {
    sidebeat::proxy::accept::listen(at).expect("listen")
}
