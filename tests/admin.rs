//! The admin port over real sockets, with a program that is made up.
#![allow(clippy::unwrap_used, reason = "a test may end that way")]

mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sidebeat::admin::client;
use sidebeat::admin::events::{Event, EventLog, MAX_FOLLOWERS, RETAINED};
use sidebeat::admin::report::{Endpoint, Inbound, LinkKind, Status, Upstream};
use sidebeat::admin::{Control, Readiness, serve};
use sidebeat::clock;
use sidebeat::metrics::{
    BuildInfo, CloseReason, FrameKind, Gate, Handshake, LinkError, MAX_ENDPOINTS, Metrics, RejectReason,
};
use sidebeat::verdict::{Cause, State, Vouch};
use sidebeat::wire::frame::Kind;
use sidebeat::wire::{METRIC_KINDS, METRIC_OTHER};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// For anything that must happen; far beyond what it takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Fake {
    status: Mutex<Status>,
    readiness: Mutex<Readiness>,
    calls: Mutex<Vec<String>>,
}

impl Fake {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

impl Control for Fake {
    fn status(&self) -> Status {
        self.status.lock().unwrap().clone()
    }
    fn config(&self) -> serde_json::Value {
        serde_json::json!({"node": {"id": "orders-1"}})
    }
    fn readiness(&self) -> Readiness {
        self.readiness.lock().unwrap().clone()
    }
    fn live(&self) -> bool {
        true
    }
    fn drain(&self) {
        self.note("drain".into());
    }
    fn maintenance(&self, pause: Duration, reason: &str) -> Result<(), String> {
        self.note(format!("maintenance {pause:?} {reason}"));
        Ok(())
    }
    fn resume(&self) -> Result<(), String> {
        self.note("resume".into());
        Ok(())
    }
    fn set_log_level(&self, filter: &str) -> Result<(), String> {
        self.note(format!("log {filter}"));
        if filter == "loud" { Err("`loud` is no log filter".into()) } else { Ok(()) }
    }
    fn set_enforce(&self, upstream: &str, mode: &str) -> Result<(), String> {
        self.note(format!("enforce {upstream} {mode}"));
        Ok(())
    }
}

struct Rig {
    admin: SocketAddr,
    public: SocketAddr,
    control: Arc<Fake>,
    metrics: Arc<Metrics>,
    events: Arc<EventLog>,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

async fn rig() -> Rig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let public_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (admin, public) = (listener.local_addr().unwrap(), public_listener.local_addr().unwrap());
    let control = Arc::new(Fake::default());
    *control.readiness.lock().unwrap() = Readiness { started: true, ready: true, reasons: vec![] };
    let metrics = Metrics::new(BuildInfo::current());
    let events = EventLog::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(serve(
        listener,
        Some(public_listener),
        control.clone(),
        metrics.clone(),
        events.clone(),
        async move {
            let _ = stopped.await;
        },
    ));
    Rig { admin, public, control, metrics, events, stop, served }
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    within(what, async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Status code, head and body of one raw exchange.
#[derive(Debug)]
struct Raw {
    code: u16,
    head: String,
    body: String,
}

impl Raw {
    fn of(bytes: &[u8]) -> Raw {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let code = head.split(' ').nth(1).and_then(|c| c.parse().ok()).unwrap_or(0);
        Raw { code, head: head.to_lowercase(), body: body.to_owned() }
    }
}

async fn raw(to: SocketAddr, request: &str) -> Raw {
    within(request, async {
        let mut s = TcpStream::connect(to).await.unwrap();
        s.write_all(request.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        // A refused body may end in a reset after the answer.
        let _ = s.read_to_end(&mut all).await;
        Raw::of(&all)
    })
    .await
}

async fn call(to: SocketAddr, method: &str, path: &str) -> Raw {
    raw(to, &format!("{method} {path} HTTP/1.1\r\nhost: {to}\r\n\r\n")).await
}

fn sample_status() -> Status {
    let mut e = Endpoint::unknown("10.1.0.4:8080");
    e.node = Some("inventory-1".into());
    e.state = State::Suspect;
    e.cause = Cause::Silent;
    e.vouch = Vouch::Working;
    e.link = LinkKind::Framed;
    e.score = Some(0.45);
    e.link_score = Some(0.45);
    e.service_score = Some(1.0);
    e.silence_ms = Some(31.0);
    e.promise_ms = Some(20.0);
    e.queue_ratio = Some(0.1);
    e.backpressure = Some(false);
    Status {
        node: "orders-1".into(),
        incarnation: "00000000000000ff".into(),
        uptime_s: 12.0,
        upstreams: vec![Upstream {
            name: "inventory".into(),
            enforce: "failed".into(),
            endpoints: vec![e],
            ..Upstream::default()
        }],
        inbounds: vec![Inbound { name: "orders".into(), vouch: Vouch::Idle, ..Inbound::default() }],
        ..Status::default()
    }
}

fn change(to: State) -> Event {
    Event::new(clock::now(), "inventory", "10.1.0.4:8080", State::Active, to, Cause::Crash)
}

#[tokio::test]
async fn what_shadows_say_is_asked_for_and_never_among_the_verdicts() {
    let r = rig().await;
    r.events.push(change(State::Failed));
    let shadow = Event { detector: Some("phi".into()), link: Some(3), ..change(State::Suspect) };
    r.events.shadows().push(shadow);
    let verdicts = call(r.admin, "GET", "/events?follow=0").await.body;
    assert!(verdicts.contains("\"failed\"") && !verdicts.contains("detector"), "{verdicts}");
    let shadows = call(r.admin, "GET", "/events?follow=0&shadows=1").await.body;
    assert!(
        shadows.contains("\"detector\":\"phi\",\"link\":3") && !shadows.contains("\"failed\""),
        "{shadows}"
    );
    assert_eq!(call(r.admin, "GET", "/events?shadows=maybe").await.code, 400);
}

#[tokio::test]
async fn every_read_answers_and_nothing_is_cached() {
    let r = rig().await;
    *r.control.status.lock().unwrap() = sample_status();
    for (path, kind, has) in [
        ("/", "text/plain", "/maintenance"),
        ("/metrics", "text/plain; version=0.0.4", "sidebeat_build_info"),
        ("/startup", "text/plain", "ok"),
        ("/ready", "text/plain", "ok"),
        ("/live", "text/plain", "ok"),
        ("/status", "application/json", "\"inventory\""),
        ("/config", "application/json", "orders-1"),
        ("/events?follow=0", "application/x-ndjson", ""),
    ] {
        let get = call(r.admin, "GET", path).await;
        assert_eq!(get.code, 200, "{path}: {get:?}");
        assert!(get.head.contains(&format!("content-type: {kind}")), "{path}: {}", get.head);
        assert!(get.head.contains("cache-control: no-store") && get.head.contains("nosniff"), "{}", get.head);
        assert!(get.head.contains("connection: close"), "{}", get.head);
        assert!(get.body.contains(has), "{path}: {}", get.body);

        let head = call(r.admin, "HEAD", path).await;
        assert_eq!((head.code, head.body.as_str()), (200, ""), "{path}");
        assert!(head.head.contains(&format!("content-type: {kind}")), "{path}: {}", head.head);
    }
    // HEAD never becomes a follower.
    assert_eq!(call(r.admin, "HEAD", "/events").await.code, 200);
    assert_eq!(r.events.followers(), 0);
}

#[tokio::test]
async fn status_has_the_fields_of_the_contract() {
    let r = rig().await;
    *r.control.status.lock().unwrap() = sample_status();
    let json: serde_json::Value = serde_json::from_str(&call(r.admin, "GET", "/status").await.body).unwrap();
    for key in ["node", "incarnation", "uptime_s", "draining", "upstreams", "inbounds"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    let e = &json["upstreams"][0]["endpoints"][0];
    let keys = [
        "address",
        "node",
        "state",
        "score",
        "link_score",
        "service_score",
        "cause",
        "vouch",
        "facets",
        "link",
        "silence_ms",
        "promise_ms",
        "rtt_ms",
        "peak_ms",
        "noise_ms",
        "last_seq",
        "mistakes",
        "outages_healed",
        "streams",
        "queue_ratio",
        "backpressure",
    ];
    for key in keys {
        assert!(e.get(key).is_some(), "{key} in {e}");
    }
    for facet in ["alive", "ready", "degraded", "saturated", "business"] {
        assert_eq!(e["facets"][facet], "unknown");
    }
    assert_eq!((&e["state"], &e["link"], &e["rtt_ms"]), (&"suspect".into(), &"framed".into(), &().into()));
    let back = client::fetch_status(r.admin).await.unwrap();
    assert_eq!(back, sample_status());
}

#[tokio::test]
async fn probes_say_why_not() {
    let r = rig().await;
    *r.control.readiness.lock().unwrap() = Readiness {
        started: false,
        ready: false,
        reasons: vec!["link port not bound".into(), "draining".into()],
    };
    for path in ["/startup", "/ready"] {
        for to in [r.admin, r.public] {
            let got = call(to, "GET", path).await;
            assert_eq!((got.code, got.body.as_str()), (503, "link port not bound\ndraining\n"));
        }
    }
    assert_eq!(call(r.public, "GET", "/live").await.code, 200);
}

#[tokio::test]
async fn the_public_port_only_shows_probes_and_metrics() {
    let r = rig().await;
    for path in ["/metrics", "/startup", "/ready", "/live"] {
        assert_eq!(call(r.public, "GET", path).await.code, 200, "{path}");
        assert_eq!(call(r.public, "POST", path).await.code, 405, "{path}");
    }
    for path in ["/", "/status", "/config", "/events"] {
        assert_eq!(call(r.public, "GET", path).await.code, 404, "{path}");
    }
    for path in ["/drain", "/maintenance?for=1s", "/log?level=debug", "/enforce?upstream=a&mode=off"] {
        assert_eq!(call(r.public, "POST", path).await.code, 404, "{path}");
    }
    assert!(r.control.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn unknown_paths_list_the_known_and_wrong_methods_name_the_right() {
    let r = rig().await;
    let lost = call(r.admin, "GET", "/nowhere").await;
    assert_eq!(lost.code, 404);
    for path in ["/metrics", "/status", "/events", "/drain", "/maintenance", "/log", "/enforce"] {
        assert!(lost.body.contains(path), "{path} in {}", lost.body);
    }
    let public = call(r.public, "GET", "/nowhere").await;
    assert!(public.body.contains("/metrics") && !public.body.contains("/drain"), "{}", public.body);

    for path in ["/drain", "/maintenance?for=1s", "/log?level=debug", "/enforce?upstream=a&mode=off"] {
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let got = call(r.admin, method, path).await;
            assert_eq!(got.code, 405, "{method} {path}");
            assert!(got.head.contains("allow: post"), "{}", got.head);
        }
    }
    for path in ["/", "/metrics", "/status", "/events", "/ready"] {
        let got = call(r.admin, "POST", path).await;
        assert_eq!(got.code, 405, "{path}");
        assert!(got.head.contains("allow: get, head"), "{}", got.head);
    }
    assert!(r.control.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn calls_reach_the_program() {
    let r = rig().await;
    for path in [
        "/drain",
        "/maintenance?for=500ms&reason=full%20GC",
        "/maintenance?for=0s",
        "/log?level=sidebeat::link%3Ddebug",
        "/enforce?upstream=inventory&mode=suspect",
    ] {
        let got = call(r.admin, "POST", path).await;
        assert_eq!(got.code, 200, "{path}: {got:?}");
    }
    let want = [
        "drain",
        "maintenance 500ms full GC",
        "resume",
        "log sidebeat::link=debug",
        "enforce inventory suspect",
    ];
    assert_eq!(*r.control.calls.lock().unwrap(), want);
}

#[tokio::test]
async fn wrong_calls_are_explained_and_reach_nothing() {
    let r = rig().await;
    for (path, says) in [
        ("/drain?now=1", "unknown parameter `now`"),
        ("/maintenance", "`for` is missing"),
        ("/maintenance?for=500", "duration"),
        ("/maintenance?for=31s", "at most 30s"),
        ("/maintenance?for=1s&for=2s", "twice"),
        ("/maintenance?for=1s&reason=a%0Ab", "control"),
        ("/maintenance?for=%zz", "escape"),
        ("/log", "`level` is missing"),
        ("/enforce?upstream=a", "`mode` is missing"),
        ("/enforce?upstream=a&mode=kill", "off, suspect or failed"),
    ] {
        let got = call(r.admin, "POST", path).await;
        assert_eq!(got.code, 400, "{path}: {got:?}");
        assert!(got.body.contains(says), "{path}: {}", got.body);
    }
    assert!(r.control.calls.lock().unwrap().is_empty());
    let got = call(r.admin, "POST", "/log?level=loud").await;
    assert_eq!((got.code, got.body.as_str()), (400, "`loud` is no log filter\n"));
}

#[tokio::test]
async fn a_web_page_cannot_change_anything() {
    let r = rig().await;
    let port = r.admin.port();
    let post = |headers: String| format!("POST /drain HTTP/1.1\r\n{headers}\r\n");
    for headers in [
        "host: evil.example\r\n".to_owned(),
        format!("host: evil.example:{port}\r\n"),
        "host: 10.9.9.9\r\n".to_owned(),
        format!("host: localhost:{port}\r\norigin: http://evil.example\r\n"),
        format!("host: localhost:{port}\r\norigin: null\r\n"),
        format!("host: localhost:{port}\r\norigin: http://localhost:1\r\n"),
    ] {
        assert_eq!(raw(r.admin, &post(headers.clone())).await.code, 403, "{headers}");
    }
    for headers in [
        "".to_owned(),
        "host: localhost\r\nhost: localhost\r\n".to_owned(),
        "host: localhost\r\nhost: evil.example\r\n".to_owned(),
    ] {
        assert_eq!(raw(r.admin, &post(headers.clone())).await.code, 400, "{headers}");
        let get = format!("GET /status HTTP/1.1\r\n{headers}\r\n");
        assert_eq!(raw(r.admin, &get).await.code, 400, "{headers}");
    }
    let absolute = "POST http://evil.example/drain HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(raw(r.admin, absolute).await.code, 400);
    assert!(r.control.calls.lock().unwrap().is_empty());
    for headers in [
        format!("host: localhost:{port}\r\norigin: http://localhost:{port}\r\n"),
        "host: 127.0.0.1\r\n".to_owned(),
        format!("host: [::1]:{port}\r\n"),
    ] {
        assert_eq!(raw(r.admin, &post(headers.clone())).await.code, 200, "{headers}");
    }
}

#[tokio::test]
async fn bodies_are_capped_and_one_request_is_served_per_connection() {
    let r = rig().await;
    let small = "POST /drain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(raw(r.admin, small).await.code, 200);
    let large = format!(
        "POST /drain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000\r\n\r\n{}",
        "x".repeat(5000)
    );
    assert_eq!(raw(r.admin, &large).await.code, 413);
    let two = "GET /live HTTP/1.1\r\nhost: a\r\n\r\nGET /live HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!(raw(r.admin, two).await.body, "ok\n");
    let long = format!("GET /live HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(40_000));
    assert_eq!(raw(r.admin, &long).await.code, 431);
    assert_eq!(raw(r.admin, "\x16\x03\x01 nonsense\r\n\r\n").await.code, 400);
    assert_eq!(r.control.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn slow_heads_are_cut_and_a_flood_stays_on_its_own_port() {
    let r = rig().await;
    let mut slow = Vec::new();
    for _ in 0..64 {
        let mut s = TcpStream::connect(r.public).await.unwrap();
        s.write_all(b"GET /live HTT").await.unwrap();
        slow.push(s);
    }
    // All seats of the public port are taken now or will be in a moment; the other one does not care.
    within("the flood is told", async {
        loop {
            let got = call(r.public, "GET", "/live").await;
            if got.code == 503 && got.body == "too many connections\n" {
                break;
            }
        }
    })
    .await;
    assert_eq!(call(r.admin, "GET", "/live").await.code, 200);
    for mut s in slow {
        let mut rest = Vec::new();
        let _ = within("a slow head is cut", s.read_to_end(&mut rest)).await;
        assert_ne!(Raw::of(&rest).code, 200);
    }
    within("seats are free again", async { while call(r.public, "GET", "/live").await.code != 200 {} }).await;
}

/// Reads lines of a chunked answer until `enough`.
async fn lines(s: &mut TcpStream, enough: impl Fn(&str) -> bool) -> String {
    within("events", async {
        let (mut all, mut chunk) = (Vec::new(), [0; 65536]);
        loop {
            let n = s.read(&mut chunk).await.unwrap();
            all.extend_from_slice(&chunk[..n]);
            let text = String::from_utf8_lossy(&all).into_owned();
            if n == 0 || enough(&text) {
                return text;
            }
        }
    })
    .await
}

async fn follow(to: SocketAddr, path: &str, headers: &str) -> TcpStream {
    let mut s = TcpStream::connect(to).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {to}\r\n{headers}\r\n");
    s.write_all(request.as_bytes()).await.unwrap();
    s
}

#[tokio::test]
async fn events_come_kept_first_then_live() {
    let r = rig().await;
    r.events.push(change(State::Suspect));
    r.events.push(change(State::Failed));
    let mut s = follow(r.admin, "/events?since=1", "").await;
    let first = lines(&mut s, |t| t.contains("\"seq\":2")).await;
    assert!(!first.contains("\"seq\":1,"), "{first}");
    assert!(first.to_lowercase().contains("content-type: application/x-ndjson"), "{first}");
    r.events.push(change(State::Active));
    let live = lines(&mut s, |t| t.contains("\"seq\":3")).await;
    let json = live.lines().find(|l| l.starts_with('{')).unwrap();
    let event: Event = serde_json::from_str(json).unwrap();
    assert_eq!((event.seq, event.to, event.cause), (3, State::Active, Cause::Crash));
    assert!(event.mono_ns > 0 && event.wall.0 > Duration::from_secs(1_700_000_000));

    drop(s);
    until("the follower that left is forgotten", || r.events.followers() == 0).await;
}

#[tokio::test]
async fn kept_events_alone_and_as_server_sent_events() {
    let r = rig().await;
    for _ in 0..RETAINED + 5 {
        r.events.push(change(State::Failed));
    }
    let all = call(r.admin, "GET", "/events?follow=0").await.body;
    assert_eq!(all.lines().next(), Some("{\"missed\":5}"));
    assert_eq!(all.lines().count(), RETAINED + 1);
    let last = call(r.admin, "GET", &format!("/events?follow=0&since={}", RETAINED + 4)).await.body;
    assert_eq!(last.lines().count(), 1);
    assert_eq!(call(r.admin, "GET", "/events?since=x").await.code, 400);
    assert_eq!(call(r.admin, "GET", "/events?follow=maybe").await.code, 400);

    let resumed = format!("accept: text/event-stream\r\nlast-event-id: {}\r\n", RETAINED + 4);
    let mut s = follow(r.admin, "/events", &resumed).await;
    let id = format!("id: {}\ndata: {{\"seq\":{},", RETAINED + 5, RETAINED + 5);
    let text = lines(&mut s, |t| t.contains(&id)).await;
    assert!(text.to_lowercase().contains("content-type: text/event-stream"), "{text}");
}

#[tokio::test]
async fn a_slow_follower_is_dropped_and_told_and_nobody_waits_for_it() {
    let r = rig().await;
    let mut s = follow(r.admin, "/events", "").await;
    until("it follows", || r.events.followers() == 1).await;
    let mut pushed = 0;
    // The kernel's buffers take some MB first.
    within("it is dropped", async {
        while r.events.followers() == 1 {
            for _ in 0..500 {
                r.events.push(change(State::Failed));
                pushed += 1;
            }
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let text = lines(&mut s, |t| t.contains("\"closed\"")).await;
    assert!(text.contains("{\"closed\":\"slow_reader\",\"last_seq\":"), "after {pushed} events");
    assert!(text.matches("\"seq\":").count() < pushed + 1);
}

#[tokio::test]
async fn followers_are_few() {
    let r = rig().await;
    let mut all = Vec::new();
    for n in 1..=MAX_FOLLOWERS {
        all.push(follow(r.admin, "/events", "").await);
        until("it follows", || r.events.followers() == n).await;
    }
    assert_eq!(call(r.admin, "GET", "/events").await.code, 503);
    assert_eq!(call(r.admin, "GET", "/events?follow=0").await.code, 200);
    all.pop();
    until("a seat is free", || r.events.followers() < MAX_FOLLOWERS).await;
    let mut late = follow(r.admin, "/events", "").await;
    until("it follows", || r.events.followers() == MAX_FOLLOWERS).await;

    // The end of the program is said, and does not hang on followers.
    r.stop.send(()).unwrap();
    within("the server ends", r.served).await.unwrap();
    let text = lines(&mut late, |_| false).await;
    assert!(text.contains("{\"closed\":\"shutdown\",\"last_seq\":0}"), "{text}");
    assert!(TcpStream::connect(r.admin).await.is_err());
}

// === metrics ===

/// contract.md, Metrics, without what needs HTTP mode or reload.
const CONTRACT: &[(&str, &str)] = &[
    ("sidebeat_upstream_health_score", "gauge"),
    ("sidebeat_upstream_link_score", "gauge"),
    ("sidebeat_upstream_service_score", "gauge"),
    ("sidebeat_upstream_state", "gauge"),
    ("sidebeat_upstream_transitions_total", "counter"),
    ("sidebeat_upstream_mistakes_total", "counter"),
    ("sidebeat_upstream_outages_healed_total", "counter"),
    ("sidebeat_upstream_detection_seconds", "histogram"),
    ("sidebeat_upstream_lateness_seconds", "histogram"),
    ("sidebeat_upstream_link_mode", "gauge"),
    ("sidebeat_upstream_expected_arrival_timestamp_seconds", "gauge"),
    ("sidebeat_upstream_last_frame_timestamp_seconds", "gauge"),
    ("sidebeat_detector_shadow_transitions_total", "counter"),
    ("sidebeat_frames_total", "counter"),
    ("sidebeat_frame_bytes_total", "counter"),
    ("sidebeat_beats_saved_total", "counter"),
    ("sidebeat_connections_active", "gauge"),
    ("sidebeat_connections_total", "counter"),
    ("sidebeat_connections_closed_total", "counter"),
    ("sidebeat_rejected_total", "counter"),
    ("sidebeat_backpressure_active", "gauge"),
    ("sidebeat_send_queue_ratio", "gauge"),
    ("sidebeat_own_stall_seconds", "histogram"),
    ("sidebeat_gate_holds_total", "counter"),
    ("sidebeat_build_info", "gauge"),
    ("process_start_time_seconds", "gauge"),
    ("process_resident_memory_bytes", "gauge"),
    ("process_cpu_seconds_total", "counter"),
];

async fn full_scrape() -> String {
    let r = rig().await;
    *r.control.status.lock().unwrap() = sample_status();
    let up = r.metrics.upstream_with("inventory", &["huddm"]);
    up.detected(Duration::from_millis(31));
    up.connections.open().close(CloseReason::Fin);
    r.metrics.inbound("orders");
    r.metrics.probes("orders");
    call(r.admin, "GET", "/metrics").await.body
}

fn families(text: &str) -> BTreeSet<(String, String)> {
    let types = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
    types.filter_map(|l| l.split_once(' ')).map(|(n, t)| (n.to_owned(), t.to_owned())).collect()
}

#[tokio::test]
async fn every_metric_of_the_contract_is_there() {
    let text = full_scrape().await;
    let there = families(&text);
    assert!(CONTRACT.len() > 20);
    for (name, kind) in CONTRACT {
        assert!(there.contains(&((*name).to_owned(), (*kind).to_owned())), "{name} ({kind}) in\n{text}");
    }
    for line in [
        r#"sidebeat_upstream_state{endpoint="10.1.0.4:8080",state="suspect",upstream="inventory"} 1"#,
        r#"sidebeat_upstream_link_mode{endpoint="10.1.0.4:8080",mode="framed",upstream="inventory"} 1"#,
        r#"sidebeat_upstream_health_score{endpoint="10.1.0.4:8080",upstream="inventory"} 0.45"#,
        r#"sidebeat_connections_closed_total{direction="out",reason="fin",upstream="inventory"} 1"#,
        r#"sidebeat_connections_active{direction="in",upstream="orders"} 0"#,
        r#"sidebeat_vouch{service="orders",state="idle"} 1"#,
        "sidebeat_ready 1",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line} in\n{text}");
    }
    let of_endpoint =
        text.lines().filter(|l| !l.starts_with('#') && l.contains("endpoint=\"10.1.0.4:8080\"")).count();
    assert!((10..=12).contains(&of_endpoint), "about 10 series per endpoint, not {of_endpoint}");
}

#[tokio::test]
async fn series_stay_bounded_when_endpoints_do_not() {
    let r = rig().await;
    let mut s = sample_status();
    let one = s.upstreams[0].endpoints[0].clone();
    let at = |n: usize| Endpoint { address: format!("10.7.{}.{}:80", n / 256, n % 256), ..one.clone() };
    s.upstreams[0].endpoints = (0..3 * MAX_ENDPOINTS).map(at).collect();
    *r.control.status.lock().unwrap() = s;
    let text = call(r.admin, "GET", "/metrics").await.body;
    let scores = text.lines().filter(|l| l.starts_with("sidebeat_upstream_health_score{")).count();
    assert_eq!(scores, MAX_ENDPOINTS + 1);
    assert!(text.contains("endpoint=\"other\""));

    r.control.status.lock().unwrap().upstreams[0].endpoints.truncate(1);
    let text = call(r.admin, "GET", "/metrics").await.body;
    assert_eq!(text.lines().filter(|l| l.starts_with("sidebeat_upstream_health_score{")).count(), 1);
}

/// Frames are counted by the wire's own index: its table and the labels are the same list.
#[test]
fn frame_kinds_of_the_wire_have_their_label() {
    let labels: Vec<_> = FrameKind::ALL.iter().map(|k| k.name()).collect();
    assert_eq!(labels, METRIC_KINDS);
    assert_eq!(METRIC_KINDS[METRIC_OTHER], "other", "kinds of later versions");
    for kind in Kind::ALL {
        let label = match kind {
            Kind::Hello | Kind::Welcome | Kind::Refuse => "other",
            Kind::Open | Kind::Opened | Kind::OpenFailed => "open",
            Kind::Data => "data",
            Kind::Beat => "beat",
            Kind::Backpressure => "backpressure",
            Kind::Maintenance => "maintenance",
            Kind::Challenge => "challenge",
            Kind::Answer => "answer",
            Kind::Credit => "credit",
            Kind::Fin => "fin",
            Kind::Reset => "reset",
            Kind::Goaway => "goaway",
        };
        assert_eq!(labels[kind.metric_index()], label, "{kind:?}");
    }
}

/// The closed sets of docs/metrics.md are those of the program.
#[test]
fn docs_and_program_name_the_same_label_values() {
    let names = |all: Vec<&str>| all.join(", ");
    let docs = docs();
    for (metric, values) in [
        ("sidebeat_frames_total", names(FrameKind::ALL.iter().map(|v| v.name()).collect())),
        ("sidebeat_link_errors_total", names(LinkError::ALL.iter().map(|v| v.name()).collect())),
        ("sidebeat_handshakes_total", names(Handshake::ALL.iter().map(|v| v.name()).collect())),
        ("sidebeat_connections_closed_total", names(CloseReason::ALL.iter().map(|v| v.name()).collect())),
        ("sidebeat_rejected_total", names(RejectReason::ALL.iter().map(|v| v.name()).collect())),
        ("sidebeat_gate_holds_total", names(Gate::ALL.iter().map(|v| v.name()).collect())),
    ] {
        let row = docs.lines().find(|l| l.starts_with(&format!("| `{metric}`"))).unwrap();
        assert!(row.contains(&values), "{metric} has {values}: {row}");
    }
}

fn docs() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).unwrap()
}

#[tokio::test]
async fn docs_and_program_name_the_same_metrics() {
    let docs = docs();
    let there = families(&full_scrape().await);
    assert!(there.len() > 30, "{there:?}");
    for (name, kind) in &there {
        let row = docs.lines().find(|l| l.starts_with(&format!("| `{name}`")));
        let row = row.unwrap_or_else(|| panic!("docs/metrics.md has no row for {name}"));
        assert!(row.contains(&format!("| {kind}")), "{name} is a {kind}: {row}");
    }
    let words = docs.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|w| w.starts_with("sidebeat_")) {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| word.strip_suffix(s)).unwrap_or(word);
        let known = |n: &str| there.iter().any(|(name, _)| name == n);
        assert!(known(word) || known(base), "docs/metrics.md names {word}, which does not exist");
    }
}

/// Runs promtool of Debian's `prometheus`, if it is there.
fn promtool(args: &[&str], input: &str) {
    if !support::have(&["promtool"]) {
        return;
    }
    let child = Command::new("promtool")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("promtool starts");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "promtool {args:?}:\n{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn promtool_likes_the_metrics() {
    promtool(&["check", "metrics"], &full_scrape().await);
}

#[test]
fn promtool_likes_the_alerts_of_the_docs() {
    let docs = docs();
    let rules = docs.split("```yaml\n").nth(1).and_then(|r| r.split("```").next()).unwrap();
    assert!(rules.matches("- alert:").count() >= 6);
    let path = std::env::temp_dir().join(format!("sidebeat-alerts-{}.yml", std::process::id()));
    std::fs::write(&path, rules).unwrap();
    promtool(&["check", "rules", path.to_str().unwrap()], "");
    std::fs::remove_file(path).unwrap();
}

// === commands ===

async fn exit_code(command: impl FnOnce() -> std::process::ExitCode + Send + 'static) -> String {
    within("a command", tokio::task::spawn_blocking(move || format!("{:?}", command()))).await.unwrap()
}

fn code(n: u8) -> String {
    format!("{:?}", std::process::ExitCode::from(n))
}

#[tokio::test]
async fn commands_end_with_their_exit_codes() {
    let r = rig().await;
    let admin = r.admin;
    *r.control.status.lock().unwrap() = sample_status();
    assert_eq!(exit_code(move || client::status(admin, false, false)).await, code(0));
    assert_eq!(exit_code(move || client::status(admin, false, true)).await, code(0));
    r.control.status.lock().unwrap().upstreams[0].endpoints[0].state = State::Failed;
    assert_eq!(exit_code(move || client::status(admin, false, false)).await, code(3));

    assert_eq!(exit_code(move || client::healthcheck(admin)).await, code(0));
    r.control.readiness.lock().unwrap().ready = false;
    assert_eq!(exit_code(move || client::healthcheck(admin)).await, code(1));

    let pause =
        |ms, why: &'static str| move || client::maintenance(admin, Some(Duration::from_millis(ms)), why);
    assert_eq!(exit_code(pause(1500, "GC & more")).await, code(0));
    assert_eq!(*r.control.calls.lock().unwrap(), ["maintenance 1.5s GC & more"]);
    assert_eq!(exit_code(pause(60_000, "")).await, code(1));

    r.stop.send(()).unwrap();
    within("the server ends", r.served).await.unwrap();
    assert_eq!(exit_code(move || client::status(admin, false, false)).await, code(1));
    assert_eq!(exit_code(move || client::healthcheck(admin)).await, code(1));
}

#[tokio::test]
async fn a_stopped_process_does_not_hang_the_healthcheck() {
    // Listens, so the kernel accepts, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admin = silent.local_addr().unwrap();
    assert_eq!(exit_code(move || client::healthcheck(admin)).await, code(1));
}
