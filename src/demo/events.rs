//! What the client's sidecar says: its stream of transitions (`GET /events`) and its `GET /status`.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;

use super::http;
use crate::clock;
use crate::stamp::Stamp;
use crate::verdict::State;

/// A transition as reported by `GET /events`. Absent numbers are None: an older sidecar is still understood.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub struct Event {
    /// Number of the transition, from 1 per sidecar start.
    pub seq: u64,
    /// CLOCK_MONOTONIC, ns.
    pub mono_ns: u64,
    /// Name of the upstream.
    pub upstream: String,
    /// "ip:port" of the service.
    pub endpoint: String,
    /// State before.
    pub from: State,
    /// State after.
    pub to: State,
    /// Name of the cause.
    pub cause: String,
    /// Score 0-1.
    pub score: Option<f64>,
    /// Silence of the endpoint when it happened, ms.
    pub silence_ms: Option<f64>,
    /// The learned lateness, ms.
    pub peak_ms: Option<f64>,
    /// Lateness of its loop that the peer told, ms.
    pub noise_ms: Option<f64>,
    /// FIN, RST or a vouch, not silence.
    pub by_proof: bool,
    /// The observer calls it a mistake of its own.
    pub mistake: bool,
    /// Name of the shadow detector that said so; None: the one that acts.
    pub detector: Option<String>,
}

impl Default for Event {
    fn default() -> Self {
        Event {
            seq: 0,
            mono_ns: 0,
            upstream: String::new(),
            endpoint: String::new(),
            from: State::Active,
            to: State::Active,
            cause: String::new(),
            score: None,
            silence_ms: None,
            peak_ms: None,
            noise_ms: None,
            by_proof: false,
            mistake: false,
            detector: None,
        }
    }
}

impl Event {
    /// When it happened.
    pub fn at(&self) -> Stamp {
        Stamp::from_nanos(self.mono_ns)
    }
}

/// Cuts a byte stream into lines and reads the events in it. Takes plain JSON lines and `data:` lines.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
}

const LINE_MAX: usize = 64 * 1024;

impl Lines {
    /// Adds bytes; gives the events that are complete now. What is no event is skipped.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut out = Vec::new();
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            self.partial.extend_from_slice(part);
            if part.last() == Some(&b'\n') {
                out.extend(parse(&self.partial));
                self.partial.clear();
            } else if self.partial.len() > LINE_MAX {
                self.partial.clear();
            }
        }
        out
    }
}

fn parse(line: &[u8]) -> Option<Event> {
    let line = line.strip_prefix(b"data:").unwrap_or(line);
    let event: Event = serde_json::from_slice(line).ok()?;
    (event.mono_ns > 0 && !event.endpoint.is_empty()).then_some(event)
}

/// All transitions seen so far, and a way to wait for more.
#[derive(Debug, Default)]
pub struct Log {
    events: RefCell<Vec<Event>>,
    shadows: RefCell<Vec<Event>>,
    changed: Notify,
    connected: Cell<bool>,
}

impl Log {
    /// Adds events, without the ones already known.
    pub fn add(&self, fresh: Vec<Event>) {
        let mut events = self.events.borrow_mut();
        fresh.into_iter().for_each(|e| push_new(&mut events, e));
        drop(events);
        self.changed.notify_waiters();
    }

    /// Adds what a shadow detector said.
    pub fn add_shadow(&self, event: Event) {
        push_new(&mut self.shadows.borrow_mut(), event);
        self.changed.notify_waiters();
    }

    /// A copy of all that shadow detectors said.
    pub fn shadows(&self) -> Vec<Event> {
        self.shadows.borrow().clone()
    }

    /// A copy of all events with a time of at least `since`.
    pub fn since(&self, since: Stamp) -> Vec<Event> {
        self.events.borrow().iter().filter(|e| e.at() >= since).cloned().collect()
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.borrow().len()
    }

    /// No event yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last `n` events.
    pub fn tail(&self, n: usize) -> Vec<Event> {
        let events = self.events.borrow();
        events[events.len().saturating_sub(n)..].to_vec()
    }

    /// Whether the stream is open.
    pub fn connected(&self) -> bool {
        self.connected.get()
    }

    /// State of an endpoint by its last event; ACTIVE without one.
    pub fn state(&self, endpoint: &str) -> State {
        self.events.borrow().iter().rev().find(|e| e.endpoint == endpoint).map_or(State::Active, |e| e.to)
    }

    /// Waits until `done` holds, at most until `deadline`; false if it did not.
    pub async fn wait(&self, deadline: Stamp, done: impl Fn(&Log) -> bool) -> bool {
        loop {
            let changed = self.changed.notified();
            if done(self) {
                return true;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(clock::instant(deadline)) => return done(self),
            }
        }
    }
}

fn push_new(events: &mut Vec<Event>, e: Event) {
    let same = |old: &Event| (old.seq, old.mono_ns, &old.detector) == (e.seq, e.mono_ns, &e.detector);
    if !events.iter().rev().take(256).any(same) {
        events.push(e);
    }
}

/// Follows `GET /events` for ever; reconnects when it breaks off.
pub async fn follow(admin: SocketAddr, log: Rc<Log>) {
    loop {
        each(admin, "/events", |events| {
            log.connected.set(true);
            log.add(events);
        })
        .await;
        log.connected.set(false);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As [`follow`], what the shadow detectors say.
pub async fn follow_shadows(admin: SocketAddr, log: Rc<Log>) {
    loop {
        each(admin, "/events?shadows=true", |events| events.into_iter().for_each(|e| log.add_shadow(e)))
            .await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Hands over the events of one stream until it breaks off; first an empty list, when it is open.
async fn each(admin: SocketAddr, path: &str, mut take: impl FnMut(Vec<Event>)) {
    let Ok(mut body) = http::stream(admin, path).await else { return };
    take(Vec::new());
    let mut lines = Lines::default();
    while let Some(bytes) = body.next().await {
        take(lines.push(&bytes));
    }
}

/// What `/status` says about one endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointStatus {
    /// "ip:port" of the service.
    pub address: String,
    /// "active", "suspect", "failed".
    pub state: String,
    /// 0-1.
    pub score: Option<f64>,
    /// Name of the cause.
    pub cause: String,
    /// "framed" or "plain".
    pub link: String,
    /// Silence, ms.
    pub silence_ms: Option<f64>,
    /// Learned lateness, ms.
    pub peak_ms: Option<f64>,
    /// Lateness of its loop that the peer told, ms.
    pub noise_ms: Option<f64>,
    /// Round trip, ms.
    pub rtt_ms: Option<f64>,
    /// Connections to it.
    pub streams: Option<u64>,
}

/// Reads the endpoints of `upstream` from a `/status` document. Missing or odd fields stay empty.
pub fn endpoints(status: &Value, upstream: &str) -> Vec<EndpointStatus> {
    let list = status["upstreams"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(up) = list.iter().find(|u| u["name"] == upstream) else { return Vec::new() };
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let rows = up["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter()
        .map(|e| EndpointStatus {
            address: text(&e["address"]),
            state: text(&e["state"]),
            score: e["score"].as_f64(),
            cause: text(&e["cause"]),
            link: link_word(&e["link"]),
            silence_ms: e["silence_ms"].as_f64(),
            peak_ms: e["peak_ms"].as_f64(),
            noise_ms: e["noise_ms"].as_f64(),
            rtt_ms: e["rtt_ms"].as_f64(),
            streams: e["streams"].as_u64(),
        })
        .collect()
}

/// `link` is a word, or an object with a `mode`.
fn link_word(link: &Value) -> String {
    link.as_str().or_else(|| link["mode"].as_str()).unwrap_or_default().to_owned()
}

/// `GET /status`, read.
pub async fn status(admin: SocketAddr, upstream: &str) -> Result<Vec<EndpointStatus>, String> {
    let body = http::ask(None, admin, "GET", "/status", Duration::from_secs(2)).await?;
    let value: Value = serde_json::from_slice(&body.1).map_err(|e| format!("/status: {e}"))?;
    Ok(endpoints(&value, upstream))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"seq":7,"mono_ns":123456789,"upstream":"orders","endpoint":"127.0.0.1:8080","from":"suspect","to":"failed","cause":"silent","score":0.19,"silence_ms":31.5,"promise_ms":20,"peak_ms":6.0,"rtt_ms":0.2,"by_proof":false,"mistake":false,"new_field":1}"#;

    #[test]
    fn events_survive_any_cut_of_the_stream() {
        let text = format!("{LINE}\n: comment\n\ndata: {LINE}\nevent: x\n{{\"broken\n");
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut got = lines.push(&text.as_bytes()[..cut]);
            got.extend(lines.push(&text.as_bytes()[cut..]));
            assert_eq!(got.len(), 2, "cut at {cut}");
            assert_eq!(got[0], got[1]);
            assert_eq!((got[0].seq, got[0].to, got[0].silence_ms), (7, State::Failed, Some(31.5)));
        }
    }

    #[test]
    fn an_endless_line_costs_no_memory() {
        let mut lines = Lines::default();
        for _ in 0..1000 {
            assert!(lines.push(&[b'x'; 4096]).is_empty());
        }
        assert!(lines.partial.len() <= LINE_MAX + 4096);
    }

    #[test]
    fn known_events_are_not_added_twice() {
        let log = Log::default();
        let e: Event = serde_json::from_str(LINE).unwrap();
        log.add(vec![e.clone()]);
        log.add(vec![e.clone(), Event { seq: 8, to: State::Active, ..e }]);
        assert_eq!(log.len(), 2);
        assert_eq!(log.state("127.0.0.1:8080"), State::Active);
        assert_eq!(log.state("nobody"), State::Active);
    }

    #[test]
    fn status_is_read_with_and_without_its_optional_parts() {
        let v: Value = serde_json::from_str(
            r#"{"node":"client","uptime_s":1,"upstreams":[{"name":"orders","endpoints":[
            {"address":"127.0.0.1:1","state":"active","score":0.97,"cause":"none","link":"framed","peak_ms":3.5,"noise_ms":19},
            {"address":"127.0.0.1:2","state":"failed","score":null,"link":{"mode":"plain"}}]}]}"#,
        )
        .unwrap();
        let rows = endpoints(&v, "orders");
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].link.as_str(), rows[0].peak_ms), ("framed", Some(3.5)));
        assert_eq!((rows[0].noise_ms, rows[1].noise_ms), (Some(19.0), None));
        assert_eq!((rows[1].link.as_str(), rows[1].score), ("plain", None));
        assert!(endpoints(&v, "other").is_empty());
        assert!(endpoints(&Value::Null, "orders").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_the_event_or_the_deadline() {
        let log = Rc::new(Log::default());
        let deadline = clock::now() + Duration::from_millis(50);
        assert!(!log.wait(deadline, |l| !l.is_empty()).await);
        log.add(vec![serde_json::from_str(LINE).unwrap()]);
        assert!(log.wait(deadline, |l| !l.is_empty()).await);
    }
}
