//! From values that are right alone to a [`Config`].

use std::net::SocketAddr;

use super::checked::*;
use super::problem::{At, Report};
use super::raw::{Document, Table};

/// Most threads of the data path; the schema allows no more either.
const MAX_WORKERS: usize = 64;

/// What stands for an address that is missing: an error was reported, the value is never used.
pub(super) const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

pub(super) fn build(document: &Document, report: &mut Report<'_>) -> Config {
    Config {
        node: node(document.table("node"), report),
        admin: admin(document.table("admin")),
        inbound: document.list("inbound").iter().map(inbound).collect(),
        outbound: document.list("outbound").iter().map(outbound).collect(),
        beat: beat(document.table("beat")),
        detector: detector(document),
        backpressure_threshold: document.table("backpressure").real("threshold"),
        drain_deadline: document.table("drain").duration("deadline"),
        service: service(document.table("service")),
        probe: probe(document.table("probe")),
        maintenance: maintenance(document.table("maintenance")),
        limits: limits(document.table("limits")),
        trace: trace(document.table("trace")),
        log: log(document.table("log")),
    }
}

fn node(table: &Table, report: &mut Report<'_>) -> Node {
    let id = match table.text("id") {
        Some(id) => id.to_owned(),
        None if table.entry("id").broken => String::new(),
        None => host_name(report),
    };
    let workers = match table.count("workers") {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()).min(MAX_WORKERS),
        n => n,
    };
    Node { id, workers, pin: table.flag("pin") }
}

fn host_name(report: &mut Report<'_>) -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() || name.chars().any(char::is_control) {
        report
            .error(&At::File, "node.id", "is missing, and this host has no name")
            .hint("write [node] id = \"...\"");
    }
    name
}

fn admin(table: &Table) -> Admin {
    Admin { listen: table.address("listen").unwrap_or(NOWHERE), public: table.address("public") }
}

fn protocol(table: &Table) -> Protocol {
    if table.text("protocol") == Some("http") { Protocol::Http } else { Protocol::Tcp }
}

fn inbound(table: &Table) -> Inbound {
    Inbound {
        name: table.text("name").unwrap_or_default().to_owned(),
        link_listen: table.address("link_listen").unwrap_or(NOWHERE),
        allow: table.networks("allow").to_vec(),
        service: table.address("service").unwrap_or(NOWHERE),
        protocol: protocol(table),
    }
}

fn outbound(table: &Table) -> Outbound {
    let name = table.text("name").unwrap_or_default().to_owned();
    let link_port = u16::try_from(table.int("link_port")).unwrap_or_default();
    let endpoints = table.endpoints("endpoints").iter().map(|e| EndpointConf {
        address: e.address,
        link: SocketAddr::new(e.address.ip(), e.link_port.unwrap_or(link_port)),
        weight: e.weight,
    });
    Outbound {
        remote: table.text("remote").unwrap_or(&name).to_owned(),
        name,
        listen: table.address("listen").unwrap_or(NOWHERE),
        protocol: protocol(table),
        endpoints: endpoints.collect(),
        link: match table.text("link") {
            Some("required") => LinkPolicy::Required,
            Some("off") => LinkPolicy::Off,
            _ => LinkPolicy::Auto,
        },
        link_mode: match table.text("link_mode") {
            Some("shared") => LinkMode::Shared,
            Some("per-connection") => LinkMode::PerConnection,
            _ => LinkMode::Auto,
        },
        enforce: match table.text("enforce") {
            Some("off") => Enforce::Off,
            Some("suspect") => Enforce::Suspect,
            _ => Enforce::Failed,
        },
        cut_after: table.duration_or_off("cut_after"),
        max_failed: table.real("max_failed"),
        connect_timeout: table.duration("connect_timeout"),
    }
}

fn beat(table: &Table) -> Beat {
    Beat { idle: table.duration("idle"), active: table.duration("active"), duty: table.count("duty") }
}

fn detector(document: &Document) -> Detector {
    let table = document.table("detector");
    let [promise, huddm, phi, chen, timeout, p95] =
        DetectorKind::ALL.map(|kind| document.table(&format!("detector.{}", kind.name())));
    let window = |table: &Table| u32::try_from(table.int("window")).unwrap_or(u32::MAX);
    Detector {
        kind: table.text("kind").and_then(DetectorKind::from_name).unwrap_or(DetectorKind::Promise),
        tau_min: promise.duration("tau_min"),
        learn_max: promise.duration("learn_max"),
        half_life: promise.duration("half_life"),
        decay: if huddm.text("decay") == Some("tick") { Decay::Tick } else { Decay::Miss },
        shadows: table.words("shadows").iter().filter_map(|w| Shadow::from_name(w)).collect(),
        phi: Phi {
            threshold: phi.real("threshold"),
            window: window(phi),
            min_std: phi.duration("min_std"),
            pause: phi.duration("pause"),
        },
        chen: Chen { alpha: chen.duration("alpha"), window: window(chen) },
        timeout_after: timeout.duration("after"),
        steps: Steps {
            interval: timeout.duration_or_off("interval"),
            misses: u32::try_from(timeout.int("misses")).unwrap_or(u32::MAX),
            buffer: timeout.duration_or_off("buffer"),
        },
        p95: P95 { factor: p95.real("factor"), window: window(p95) },
    }
}

fn service(table: &Table) -> Service {
    let (stall_patience, busy_patience) = (table.duration("stall_patience"), table.duration("busy_patience"));
    Service { stall_patience, busy_patience }
}

fn probe(table: &Table) -> Probe {
    let times = |key| u32::try_from(table.int(key)).unwrap_or(u32::MAX);
    Probe {
        kind: match table.text("kind") {
            Some("http") => ProbeKind::Http,
            Some("tcp") => ProbeKind::Tcp,
            Some("exec") => ProbeKind::Exec,
            _ => ProbeKind::Off,
        },
        inbounds: table.words("inbounds").to_vec(),
        path: table.text("path").unwrap_or_default().to_owned(),
        status: table.statuses("status").to_vec(),
        command: table.words("command").to_vec(),
        idle: table.duration("idle"),
        interval: table.duration("interval"),
        timeout: table.duration("timeout"),
        healthy: times("healthy"),
        unhealthy: times("unhealthy"),
    }
}

fn maintenance(table: &Table) -> Maintenance {
    let mode = u32::try_from(table.int("mode")).unwrap_or_default();
    Maintenance { socket: table.text("socket").map(Into::into), mode }
}

fn limits(table: &Table) -> Limits {
    Limits {
        connections: table.count("connections"),
        links: table.count("links"),
        streams_per_link: table.count("streams_per_link"),
        stream_window: u32::try_from(table.int("stream_window")).unwrap_or(u32::MAX),
        link_queue: table.count("link_queue"),
        memory: table.count("memory"),
        hello_timeout: table.duration("hello_timeout"),
    }
}

fn trace(table: &Table) -> Trace {
    let (max_size, files, links) = (table.int("max_size"), table.count("files"), table.count("links"));
    Trace { path: table.text("path").map(Into::into), max_size, files, links }
}

fn log(table: &Table) -> Log {
    let format = if table.text("format") == Some("json") { LogFormat::Json } else { LogFormat::Text };
    Log { format, level: table.text("level").unwrap_or_default().to_owned() }
}
