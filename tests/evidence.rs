//! The evidence against real processes on loopback: a service that does not read, is stopped, goes on, dies, comes back,
//! burns CPU, and is merely slow.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sidebeat::clock;
use sidebeat::evidence::{ConnStats, Params, ServiceStats, ServiceWatch};
use sidebeat::stamp::Stamp;
use sidebeat::sys::child::kill_with_parent;
use sidebeat::sys::sock_diag::SockDiag;
use sidebeat::verdict::Vouch;

/// Accepts and echoes; "!" makes it stop reading and accepting, "*" compute for ever, "z" sleep 30 ms before the answer,
/// "~" hold the interpreter for a while, "%" dead-lock all that answer.
const SERVICE: &str = r#"
import socket, sys, threading, time
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", int(sys.argv[1])))
l.listen(64)
print(l.getsockname()[1], flush=True)
stuck = threading.Event()
turn = threading.Lock()
def serve(c):
    while True:
        b = c.recv(4096)
        if not b: return
        if b"!" in b: stuck.set()
        if b"*" in b:
            while True: pass
        if b"z" in b: time.sleep(0.03)
        if b"~" in b: sum(range(15_000_000))
        if stuck.is_set(): threading.Event().wait()
        if b"%" in b: turn.acquire()
        with turn: c.sendall(b)
while True:
    c, _ = l.accept()
    if stuck.is_set(): threading.Event().wait()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
"#;

struct Service {
    child: Child,
    addr: SocketAddr,
}

impl Service {
    /// None where it cannot run.
    fn start(port: u16) -> Option<Service> {
        if !support::have(&["python3"]) {
            return None;
        }
        let mut cmd = Command::new("python3");
        cmd.args(["-c", SERVICE, &port.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        kill_with_parent(&mut cmd);
        let mut child = cmd.spawn().expect("python3 starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().expect("the service tells its port");
        Some(Service { child, addr: ([127, 0, 0, 1], port).into() })
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The proxy's part of one connection.
struct Client {
    socket: TcpStream,
    stats: ConnStats,
}

impl Client {
    fn connect(stats: &Arc<ServiceStats>) -> Client {
        let socket = TcpStream::connect(stats.service()).unwrap();
        let local = socket.local_addr().unwrap();
        socket.set_nonblocking(true).unwrap();
        Client { socket, stats: stats.conn_opened(local) }
    }

    fn ask(&mut self, text: &[u8]) {
        self.socket.write_all(text).unwrap();
        self.stats.sent(clock::now());
    }

    /// Reports what came; true after the service ended the connection.
    fn poll(&mut self) -> bool {
        let mut buf = [0; 4096];
        match self.socket.read(&mut buf) {
            Ok(0) => self.stats.ended_by_service(clock::now(), false),
            Ok(_) => {
                self.stats.received(clock::now());
                return false;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return false,
            Err(_) => self.stats.ended_by_service(clock::now(), true),
        }
        true
    }
}

struct Scene {
    stats: Arc<ServiceStats>,
    watch: ServiceWatch,
    clients: Vec<Client>,
}

impl Scene {
    fn new(service: SocketAddr) -> Scene {
        let stats = ServiceStats::new(service);
        let params =
            Params { stall_patience: Duration::from_millis(300), busy_patience: Duration::from_secs(10) };
        Scene { watch: ServiceWatch::new(Arc::clone(&stats), params), stats, clients: Vec::new() }
    }

    /// What the sampling loop and the proxy do, until `done` or a generous deadline; returns the ms it took.
    fn run(&mut self, what: &str, mut done: impl FnMut(&mut Scene) -> bool) -> f64 {
        let rt = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let begin = clock::now();
        loop {
            self.clients.retain_mut(|c| !c.poll());
            if self.watch.next_due(clock::now()) <= clock::now() {
                self.watch.sample(clock::now());
            }
            if done(self) {
                return clock::now().millis_since(begin);
            }
            let waited = clock::now().since(begin);
            assert!(waited < Duration::from_secs(20), "{what}: {:#?}", self.watch.explain(clock::now()));
            rt.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        }
    }

    fn until(&mut self, wanted: Vouch) -> f64 {
        let ms = self.run(wanted.name(), |s| s.stats.vouch() == wanted);
        eprintln!("{} after {ms:.1} ms", wanted.name());
        ms
    }

    fn connect(&mut self) -> usize {
        self.clients.push(Client::connect(&self.stats));
        self.clients.len() - 1
    }

    fn ask(&mut self, client: usize, text: &[u8]) {
        self.clients[client].ask(text);
    }

    fn until_owner_found(&mut self) {
        self.run("owner", |s| s.watch.explain(clock::now()).process.known);
    }
}

#[test]
fn a_stopped_service_is_stopped_and_runs_again() {
    let Some(service) = Service::start(0) else { return };
    let mut s = Scene::new(service.addr);
    let c = s.connect();
    s.ask(c, b"hello");
    s.until(Vouch::Working);
    s.until_owner_found();
    assert_eq!(s.watch.explain(clock::now()).pids, [service.child.id()]);
    s.until(Vouch::Idle);

    service.signal(Signal::STOP);
    s.ask(c, b"are you there");
    s.until(Vouch::Stopped);
    // The first question may have been read on the way to the stop.
    s.ask(c, b"still there");
    s.run("unread", |s| s.watch.explain(clock::now()).unread_bytes >= 11);

    service.signal(Signal::CONT);
    s.run("running", |s| matches!(s.stats.vouch(), Vouch::Running | Vouch::Working));
    s.until(Vouch::Working);
    s.run("answered", |s| s.stats.utility() >= 2);
}

#[test]
fn a_killed_service_is_gone_and_comes_back() {
    let Some(mut service) = Service::start(0) else { return };
    let mut s = Scene::new(service.addr);
    let c = s.connect();
    s.ask(c, b"hello");
    s.until(Vouch::Working);
    service.kill();
    s.until(Vouch::Gone);
    s.run("the connection ends", |s| s.clients.is_empty());
    drop(service);
    assert!(TcpStream::connect(s.stats.service()).is_err());
    s.stats.refused(clock::now());
    s.until(Vouch::Gone);

    let Some(_again) = Service::start(s.stats.service().port()) else { return };
    s.until(Vouch::Running);
    let c = s.connect();
    s.ask(c, b"hello");
    s.until(Vouch::Working);
}

#[test]
fn a_service_that_accepts_no_more_and_reads_no_more_stalls_then_is_stuck() {
    let Some(service) = Service::start(0) else { return };
    let mut s = Scene::new(service.addr);
    let c = s.connect();
    s.ask(c, b"hello");
    s.run("answered", |s| s.stats.utility() == 1);
    s.ask(c, b"!");
    s.run("read", |s| s.watch.explain(clock::now()).oldest_unanswered_ms > 20);
    for _ in 0..3 {
        let d = s.connect();
        s.ask(d, b"nobody reads this");
    }
    s.until(Vouch::Stalled);
    let seen = s.watch.explain(clock::now());
    assert!(seen.unread_bytes > 0 && !seen.process.stopped, "{seen:#?}");
    s.run("accept queue", |s| s.watch.explain(clock::now()).listener.unwrap().queue > 0);
    s.until(Vouch::Stuck);
}

#[test]
fn a_computing_service_is_busy() {
    let Some(service) = Service::start(0) else { return };
    let mut s = Scene::new(service.addr);
    let c = s.connect();
    s.ask(c, b"hello");
    s.run("answered", |s| s.stats.utility() == 1);
    s.until_owner_found();
    s.ask(c, b"*");
    s.until(Vouch::Busy);
}

#[test]
fn a_dead_lock_of_all_workers_is_a_stall_while_the_accept_loop_lives_and_never_more() {
    let Some(service) = Service::start(0) else { return };
    let mut s = Scene::new(service.addr);
    let c = s.connect();
    let mut turn = 0;
    while s.watch.explain(clock::now()).answers.usual_ms.is_none() {
        s.ask(c, b"hello");
        s.run("answered", |s| s.stats.utility() > turn);
        turn += 1;
        assert!(turn < 1000, "{:#?}", s.watch.explain(clock::now()));
    }
    eprintln!("after {turn} answers: {:?}", s.watch.explain(clock::now()).answers);
    s.ask(c, b"%");
    let mut looks = 0;
    let mut knock = move |s: &mut Scene| {
        looks += 1;
        if looks % 10 == 1 && s.clients.len() < 60 {
            let d = s.connect();
            s.ask(d, b"anybody");
        }
    };
    let ms = s.run("stalled", |s| {
        knock(s);
        s.stats.vouch() == Vouch::Stalled
    });
    eprintln!("stalled after {ms:.1} ms");
    assert!(s.watch.explain(clock::now()).answers.slow, "{:#?}", s.watch.explain(clock::now()));
    let begin = clock::now();
    s.run("longer than the patience", |s| {
        knock(s);
        let v = s.stats.vouch();
        assert!(!matches!(v, Vouch::Stuck | Vouch::Stopped | Vouch::Gone), "{v:?}");
        clock::now().since(begin) > Duration::from_millis(600)
    });
    assert_eq!(s.watch.explain(clock::now()).listener.unwrap().queue, 0, "it accepts");
}

#[test]
fn a_pause_that_burns_cpu_is_doubted_at_most_and_then_works_again() {
    let Some(service) = Service::start(0) else { return };
    let mut s = Scene::new(service.addr);
    let (c, d) = (s.connect(), s.connect());
    for turn in 0..150 {
        s.ask(c, b"hello");
        s.run("answered", |s| s.stats.utility() > turn);
    }
    s.until_owner_found();
    let answered = s.stats.utility();
    s.ask(d, b"~");
    s.ask(c, b"hello");
    let mut heard = Vec::new();
    let ms = s.run("both answered", |s| {
        let v = s.stats.vouch();
        assert!(!matches!(v, Vouch::Stuck | Vouch::Stopped | Vouch::Gone), "{v:?}");
        if heard.last() != Some(&v) {
            heard.push(v);
        }
        s.stats.utility() == answered + 2
    });
    eprintln!("{ms:.0} ms: {heard:?}");
    s.until(Vouch::Working);
}

#[test]
fn a_slow_service_that_reads_is_never_blamed() {
    let Some(service) = Service::start(0) else { return };
    let mut s = Scene::new(service.addr);
    let c = s.connect();
    for turn in 0..10 {
        s.ask(c, b"z");
        s.run("answered", |s| {
            let v = s.stats.vouch();
            assert!(!matches!(v, Vouch::Stuck | Vouch::Stopped | Vouch::Gone), "{v:?}");
            s.stats.utility() == turn + 1
        });
    }
    assert!(s.stats.processing_us() >= 30_000);
}

#[test]
fn nothing_listens_is_gone_and_the_process_is_unknown() {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = l.local_addr().unwrap();
    drop(l);
    let mut s = Scene::new(at);
    s.until(Vouch::Gone);
    let explain = s.watch.explain(clock::now());
    assert_eq!((explain.process.known, explain.listener.unwrap().listening), (false, false));
    assert_eq!(serde_json::to_value(&explain).unwrap()["vouch"], "gone");
}

#[test]
fn looks_follow_the_schedule_and_their_cost_is_printed() {
    let l = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut s = Scene::new(l.local_addr().unwrap());
    let c = s.connect();
    s.ask(c, b"never read");
    let mut now = clock::now() + Duration::from_secs(1);
    let (begin, rounds) = (clock::now(), 1000);
    for _ in 0..rounds {
        now = now + Duration::from_millis(5);
        s.watch.sample(now);
    }
    eprintln!("a look at an unread connection: {:.1} us", clock::now().millis_since(begin));
    assert_eq!(s.watch.next_due(now), now + Duration::from_millis(5));
    s.clients.clear();
    let begin = clock::now();
    for _ in 0..rounds {
        now = now + Duration::from_millis(100);
        s.watch.sample(now);
    }
    eprintln!("a look at an idle service: {:.1} us", clock::now().millis_since(begin));
    let end = clock::now() + Duration::from_secs(30);
    while s.watch.next_due(Stamp::ZERO) != now + Duration::from_millis(100) {
        assert!(clock::now() < end, "the walk over /proc never ends");
        s.watch.sample(now);
    }
    let mut diag = SockDiag::open().unwrap();
    let begin = clock::now();
    for _ in 0..rounds {
        diag.listener(s.stats.service()).unwrap();
    }
    eprintln!("a listener look-up: {:.1} us", clock::now().millis_since(begin));
}
