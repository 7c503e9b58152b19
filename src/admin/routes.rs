//! From a request to its answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::http::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, header};

use super::body::{Answer, Format, Live};
use super::events::EventLog;
use super::guard::{self, Refusal};
use super::query::Query;
use super::{Control, pause, scrape};
use crate::clock;
use crate::metrics::Metrics;

/// No call needs a body; some clients send one all the same.
const MAX_BODY: usize = 4096;
/// A small body must be here within this.
const BODY_TIMEOUT: Duration = Duration::from_secs(3);
/// More endpoints than this are encoded on another thread: 12 series each, some microseconds per series.
const ENCODE_INLINE: usize = 100;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// One path of the port.
struct Route {
    path: &'static str,
    /// Changes something: POST, and checked. Else GET and HEAD.
    changes: bool,
    /// Served to the network.
    public: bool,
    help: &'static str,
}

const fn read(path: &'static str, public: bool, help: &'static str) -> Route {
    Route { path, changes: false, public, help }
}

const fn change(path: &'static str, help: &'static str) -> Route {
    Route { path, changes: true, public: false, help }
}

const ROUTES: &[Route] = &[
    read("/", false, "this list"),
    read("/metrics", true, "Prometheus text format"),
    read("/startup", true, "200 once started, else 503"),
    read("/ready", true, "200 while new work is welcome, else 503 and why"),
    read("/live", true, "200 unless a restart is needed"),
    read("/status", false, "JSON: upstreams, endpoints, scores, causes; inbounds"),
    read("/config", false, "JSON: the effective configuration, redacted"),
    read(
        "/events",
        false,
        "changes of state as JSON lines, or SSE by Accept; ?since=SEQ ?follow=0 ?shadows=1",
    ),
    change("/drain", "serve what is open, then end; peers and clients of the service go elsewhere"),
    change(
        "/maintenance",
        "?for=500ms[&reason=TEXT] announce a pause of the service, at most 30s; for=0s ends it",
    ),
    change("/log", "?level=FILTER such as info or info,sidebeat::link=debug"),
    change("/enforce", "?upstream=NAME&mode=off|suspect|failed what verdicts may do"),
];

/// What all requests share.
pub(super) struct Shared {
    pub(super) control: Arc<dyn Control>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Arc<EventLog>,
}

/// Where a request came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Door {
    /// The listener's address.
    pub(super) listen: SocketAddr,
    /// The address the client connected to.
    pub(super) local: SocketAddr,
    /// Read-only.
    pub(super) public: bool,
}

type Reply = Response<Answer>;

/// Answers one request. Whatever it is, there is an answer.
pub(super) async fn answer(shared: &Shared, door: Door, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let mut reply = match serve(shared, door, &head, body).await {
        Ok(reply) => reply,
        Err(Refusal(status, why)) => text(status, format!("{why}\n")),
    };
    let headers = reply.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

async fn serve(shared: &Shared, door: Door, head: &Parts, body: Incoming) -> Result<Reply, Refusal> {
    guard::well_formed(head)?;
    let Some(route) = visible(door).find(|r| r.path == head.uri.path()) else {
        return Ok(text(StatusCode::NOT_FOUND, format!("no such path; there are:\n{}", index(door))));
    };
    let allowed = if route.changes { "POST" } else { "GET, HEAD" };
    if !allowed.split(", ").any(|m| m == head.method.as_str()) {
        let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, format!("{} takes {allowed}\n", route.path));
        reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        return Ok(reply);
    }
    let query = Query::parse(head.uri.query()).map_err(bad)?;
    if route.changes {
        guard::may_change(head, door.local, door.listen)?;
        swallow(body).await?;
        return act(shared.control.as_ref(), route.path, &query);
    }
    match route.path {
        "/metrics" => Ok(metrics(shared).await),
        "/events" => events(shared, head, &query),
        path => Ok(look(shared.control.as_ref(), door, path)),
    }
}

/// Reads: everything that is one look at the program.
fn look(control: &dyn Control, door: Door, path: &str) -> Reply {
    match path {
        "/live" => probe(control.live(), &["not alive".to_owned()]),
        "/startup" => {
            let r = control.readiness();
            probe(r.started, &r.reasons)
        }
        "/ready" => {
            let r = control.readiness();
            probe(r.ready, &r.reasons)
        }
        "/status" => json(&control.status()),
        "/config" => json(&control.config()),
        _ => text(StatusCode::OK, format!("sidebeat {}\n\n{}", env!("CARGO_PKG_VERSION"), index(door))),
    }
}

fn probe(good: bool, reasons: &[String]) -> Reply {
    match (good, reasons) {
        (true, _) => text(StatusCode::OK, "ok\n"),
        (false, []) => text(StatusCode::SERVICE_UNAVAILABLE, "not yet\n"),
        (false, reasons) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))),
    }
}

async fn metrics(shared: &Shared) -> Reply {
    let now = scrape::of(&shared.control.status(), &shared.control.readiness(), clock::wall());
    let metrics = shared.metrics.clone();
    let rendered = if now.endpoints.len() <= ENCODE_INLINE {
        Ok(metrics.render(&now))
    } else {
        tokio::task::spawn_blocking(move || metrics.render(&now)).await
    };
    match rendered {
        Ok((kind, bytes)) => reply(StatusCode::OK, kind, Answer::block(bytes)),
        Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics could not be encoded: {e}\n")),
    }
}

fn events(shared: &Shared, head: &Parts, query: &Query) -> Result<Reply, Refusal> {
    query.only(&["since", "follow", "shadows"]).map_err(bad)?;
    let follow = flag(query, "follow")?.unwrap_or(true);
    let log = match flag(query, "shadows")? {
        Some(true) => shared.events.shadows(),
        _ => &shared.events,
    };
    // A browser that reconnects says where it was.
    let resumed = head.headers.get("last-event-id").and_then(|v| v.to_str().ok());
    let since = match query.get("since").or(resumed) {
        None => 0,
        Some(n) => n.parse().map_err(|_| bad(format!("`since` is the number of an event, not `{n}`")))?,
    };
    let wants_sse = |v: &HeaderValue| v.to_str().is_ok_and(|v| v.contains("text/event-stream"));
    let format = match head.headers.get_all(header::ACCEPT).iter().any(wants_sse) {
        true => Format::Sse,
        false => Format::Lines,
    };
    if !follow || head.method == Method::HEAD {
        let (kept, missed) = log.retained(since);
        return Ok(reply(StatusCode::OK, format.content_type(), Answer::kept(&kept, missed, format)));
    }
    let Some(follower) = log.follow(since) else {
        return Err(Refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many follow already; try ?follow=0".into(),
        ));
    };
    let live = Answer::Live(Box::new(Live::new(follower, format)));
    Ok(reply(StatusCode::OK, format.content_type(), live))
}

fn flag(query: &Query, name: &str) -> Result<Option<bool>, Refusal> {
    match query.get(name) {
        None => Ok(None),
        Some("1" | "true") => Ok(Some(true)),
        Some("0" | "false") => Ok(Some(false)),
        Some(other) => Err(bad(format!("`{name}` is 0 or 1, not `{other}`"))),
    }
}

/// Calls that change something.
fn act(control: &dyn Control, path: &str, query: &Query) -> Result<Reply, Refusal> {
    let done = match path {
        "/drain" => {
            query.only(&[]).map_err(bad)?;
            control.drain();
            "draining\n".to_owned()
        }
        "/maintenance" => maintenance(control, query)?,
        "/log" => {
            query.only(&["level"]).map_err(bad)?;
            let level = query.need("level", "/log?level=debug").map_err(bad)?;
            control.set_log_level(level).map_err(bad)?;
            format!("log level is {level}\n")
        }
        _ => enforce(control, query)?,
    };
    Ok(text(StatusCode::OK, done))
}

fn maintenance(control: &dyn Control, query: &Query) -> Result<String, Refusal> {
    query.only(&["for", "reason"]).map_err(bad)?;
    let wanted = query.need("for", "/maintenance?for=500ms").map_err(bad)?;
    if humantime::parse_duration(wanted).is_ok_and(|d| d.is_zero()) {
        control.resume().map_err(bad)?;
        return Ok("the pause is over\n".to_owned());
    }
    let pause = pause::duration(wanted).map_err(|e| bad(format!("`for` {e}")))?;
    let reason = query.get("reason").unwrap_or_default();
    pause::reason(reason).map_err(|e| bad(format!("`reason` {e}")))?;
    control.maintenance(pause, reason).map_err(bad)?;
    Ok(format!("announced a pause of {}\n", humantime::format_duration(pause)))
}

fn enforce(control: &dyn Control, query: &Query) -> Result<String, Refusal> {
    const EXAMPLE: &str = "/enforce?upstream=orders&mode=suspect";
    query.only(&["upstream", "mode"]).map_err(bad)?;
    let upstream = query.need("upstream", EXAMPLE).map_err(bad)?;
    let mode = query.need("mode", EXAMPLE).map_err(bad)?;
    if !["off", "suspect", "failed"].contains(&mode) {
        return Err(bad(format!("`mode` is off, suspect or failed, not `{mode}`")));
    }
    control.set_enforce(upstream, mode).map_err(bad)?;
    Ok(format!("{upstream}: enforce is {mode}\n"))
}

/// Reads and forgets a small body, so that the answer is not lost in a reset.
async fn swallow(body: Incoming) -> Result<(), Refusal> {
    let all = Limited::new(body, MAX_BODY).collect();
    match tokio::time::timeout(BODY_TIMEOUT, all).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("bodies end at {MAX_BODY} bytes"))),
        Err(_) => Err(Refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come".into())),
    }
}

fn visible(door: Door) -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(move |r| r.public || !door.public)
}

fn index(door: Door) -> String {
    visible(door)
        .map(|r| format!("{:<4} {:<13} {}\n", if r.changes { "POST" } else { "GET" }, r.path, r.help))
        .collect()
}

fn bad(why: impl Into<String>) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, why.into())
}

fn text(status: StatusCode, body: impl Into<String>) -> Reply {
    reply(status, TEXT, Answer::block(body.into()))
}

fn json(value: &impl serde::Serialize) -> Reply {
    match serde_json::to_string(value) {
        Ok(body) => reply(StatusCode::OK, JSON, Answer::block(body + "\n")),
        Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("could not be written as JSON: {e}\n")),
    }
}

fn reply(status: StatusCode, kind: &'static str, body: Answer) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}
