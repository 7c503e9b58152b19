//! The effective configuration as JSON, for `GET /config`. What is or may hold a secret is printed as "***".
//!
//! Pure: no IO, no clock.

use serde_json::{Value, json};

use super::checked::*;
use super::words::{duration_text as text, size_text};

impl Config {
    /// The effective values by the names of the file; durations and sizes as strings.
    pub fn to_json(&self) -> Value {
        let limits = &self.limits;
        json!({
            "node": { "id": self.node.id, "workers": self.node.workers, "pin": self.node.pin },
            "admin": {
                "listen": self.admin.listen.to_string(),
                "public": self.admin.public.map(|a| a.to_string()),
            },
            "inbound": self.inbound.iter().map(inbound).collect::<Vec<_>>(),
            "outbound": self.outbound.iter().map(outbound).collect::<Vec<_>>(),
            "beat": { "idle": text(self.beat.idle), "active": text(self.beat.active), "duty": self.beat.duty },
            "detector": detector(&self.detector),
            "backpressure": { "threshold": self.backpressure_threshold },
            "drain": { "deadline": text(self.drain_deadline) },
            "service": {
                "stall_patience": text(self.service.stall_patience),
                "busy_patience": text(self.service.busy_patience),
            },
            "probe": probe(&self.probe),
            "maintenance": {
                "socket": self.maintenance.socket.as_ref().map(|p| p.display().to_string()),
                "mode": format!("{:04o}", self.maintenance.mode),
            },
            "limits": {
                "connections": limits.connections,
                "links": limits.links,
                "streams_per_link": limits.streams_per_link,
                "stream_window": size_text(u64::from(limits.stream_window)),
                "link_queue": size_text(limits.link_queue as u64),
                "memory": size_text(limits.memory as u64),
                "hello_timeout": text(limits.hello_timeout),
            },
            "trace": {
                "path": self.trace.path,
                "max_size": size_text(self.trace.max_size),
                "files": self.trace.files,
                "links": self.trace.links,
            },
            "log": {
                "format": match self.log.format { LogFormat::Text => "text", LogFormat::Json => "json" },
                "level": self.log.level,
            },
        })
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Http => "http",
    }
}

fn inbound(inbound: &Inbound) -> Value {
    let outside = !inbound.link_listen.ip().to_canonical().is_loopback();
    json!({
        "name": inbound.name,
        "link_listen": inbound.link_listen.to_string(),
        "allow": inbound.allow.iter().map(|c| format!("{}/{}", c.addr, c.prefix)).collect::<Vec<_>>(),
        "insecure": outside && inbound.allow.is_empty(),
        "service": inbound.service.to_string(),
        "protocol": protocol(inbound.protocol),
    })
}

fn probe(probe: &Probe) -> Value {
    let range = |(from, to): &(u16, u16)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    json!({
        "kind": match probe.kind {
            ProbeKind::Off => "off",
            ProbeKind::Http => "http",
            ProbeKind::Tcp => "tcp",
            ProbeKind::Exec => "exec",
        },
        "inbounds": probe.inbounds,
        "path": probe.path,
        "status": probe.status.iter().map(range).collect::<Vec<_>>().join(","),
        // Its arguments may hold a password.
        "command": probe.command.iter().enumerate().map(|(i, w)| if i == 0 { w.as_str() } else { "***" }).collect::<Vec<_>>(),
        "idle": text(probe.idle),
        "interval": text(probe.interval),
        "timeout": text(probe.timeout),
        "healthy": probe.healthy,
        "unhealthy": probe.unhealthy,
    })
}

fn outbound(outbound: &Outbound) -> Value {
    let endpoints = outbound
        .endpoints
        .iter()
        .map(|e| json!({ "address": e.address.to_string(), "link_port": e.link.port(), "weight": e.weight }));
    json!({
        "name": outbound.name,
        "remote": outbound.remote,
        "listen": outbound.listen.to_string(),
        "protocol": protocol(outbound.protocol),
        "endpoints": endpoints.collect::<Vec<_>>(),
        "link": match outbound.link {
            LinkPolicy::Auto => "auto",
            LinkPolicy::Required => "required",
            LinkPolicy::Off => "off",
        },
        "link_mode": match outbound.link_mode {
            LinkMode::Auto => "auto",
            LinkMode::Shared => "shared",
            LinkMode::PerConnection => "per-connection",
        },
        "enforce": match outbound.enforce {
            Enforce::Off => "off",
            Enforce::Suspect => "suspect",
            Enforce::Failed => "failed",
        },
        "cut_after": outbound.cut_after.map_or("off".to_owned(), text),
        "max_failed": outbound.max_failed,
        "connect_timeout": text(outbound.connect_timeout),
    })
}

fn detector(detector: &Detector) -> Value {
    let (phi, chen, p95, steps) = (&detector.phi, &detector.chen, &detector.p95, &detector.steps);
    json!({
        "kind": detector.kind.name(),
        "shadows": detector.shadows.iter().map(|s| &s.name).collect::<Vec<_>>(),
        "promise": {
            "tau_min": text(detector.tau_min),
            "learn_max": text(detector.learn_max),
            "half_life": text(detector.half_life),
        },
        "huddm": { "decay": match detector.decay { Decay::Tick => "tick", Decay::Miss => "miss" } },
        "phi": {
            "threshold": phi.threshold,
            "window": phi.window,
            "min_std": text(phi.min_std),
            "pause": text(phi.pause),
        },
        "chen": { "alpha": text(chen.alpha), "window": chen.window },
        "timeout": {
            "after": text(detector.timeout_after),
            "interval": steps.interval.map(text),
            "misses": steps.misses,
            "buffer": steps.buffer.map(text),
        },
        "p95": { "factor": p95.factor, "window": p95.window },
    })
}
