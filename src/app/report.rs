//! `/status`: what the shared parts know, in the words of the contract.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::control::App;
use super::generation::Generation;
use crate::admin::report::{Ago, Endpoint, Facet, Facets, Inbound, LinkKind, Status, Upstream};
use crate::clock;
use crate::evidence::explain::HookView;
use crate::upstream::facts;
use crate::upstream::registry::{self, Report, Shared, enforce_name};

pub(super) fn status(app: &App, uptime: Duration) -> Status {
    let g = &*app.current();
    Status {
        node: g.config.node.id.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        incarnation: hex(g.shared.common.incarnation),
        uptime_s: uptime.as_secs_f64(),
        draining: app.draining(),
        upstreams: g.shared.ups.iter().enumerate().map(|(i, u)| upstream(g, i, u)).collect(),
        inbounds: (0..g.config.inbound.len()).map(|i| inbound(g, i)).collect(),
    }
}

fn hex(incarnation: u64) -> String {
    format!("{incarnation:016x}")
}

fn upstream(g: &Generation, index: usize, u: &registry::Upstream) -> Upstream {
    Upstream {
        name: u.params.name.clone(),
        enforce: enforce_name(u.enforce()).to_owned(),
        listen: address(g, &format!("outbound {}", u.params.name)),
        connections: Some(g.shared.up_metrics[index].connections.active()),
        endpoints: u.endpoints.iter().map(|e| endpoint(u, e)).collect(),
    }
}

fn address(g: &Generation, what: &str) -> Option<String> {
    g.shared.addresses().into_iter().find(|(w, _)| w == what).map(|(_, a)| a.to_string())
}

fn endpoint(u: &registry::Upstream, e: &Arc<Shared>) -> Endpoint {
    let r = e.report();
    Endpoint {
        node: r.node.clone(),
        incarnation: r.incarnation.map(hex),
        state: r.state,
        score: r.score,
        link_score: r.link_score,
        service_score: r.service_score,
        cause: r.cause,
        vouch: r.vouch,
        facets: facets(&r),
        link: kind(u, e, &r),
        silence_ms: r.silence_ms,
        promise_ms: r.promise_ms,
        rtt_ms: r.rtt_ms,
        peak_ms: r.peak_ms,
        noise_ms: r.noise_ms,
        last_seq: r.last_seq,
        mistakes: r.mistakes,
        outages_healed: r.outages_healed,
        streams: Some(e.connections.load(Relaxed) as u64),
        links: Some(r.links as u64),
        queue_ratio: r.queue_ratio,
        backpressure: r.promise_ms.map(|_| r.backpressure),
        weight: Some(e.weight),
        since_ms: Some(r.since_ms),
        deadline_ms: r.deadline_ms,
        last_evidence: r.last_evidence.map(|(what, ms_ago)| Ago { what, ms_ago }),
        own_stall: r.own_stall.map(|(ms, ms_ago)| Ago { what: format!("{ms:.1} ms late"), ms_ago }),
        nodes: (r.nodes > 0).then_some(r.nodes as u64),
        ..Endpoint::unknown(e.address.to_string())
    }
}

fn kind(u: &registry::Upstream, e: &Shared, r: &Report) -> LinkKind {
    match (u.params.policy, e.mode()) {
        (facts::LinkPolicy::Off, _) | (facts::LinkPolicy::Auto, facts::Mode::Plain) => LinkKind::Plain,
        _ if r.links == 0 => LinkKind::Down,
        _ => LinkKind::Framed,
    }
}

fn facets(r: &Report) -> Facets {
    let f = |known: Option<bool>| match known {
        Some(true) => Facet::Yes,
        Some(false) => Facet::No,
        None => Facet::Unknown,
    };
    Facets {
        alive: f(r.facets.alive),
        ready: f(r.facets.ready),
        degraded: f(r.facets.degraded),
        saturated: f(r.facets.saturated),
        business: f(r.facets.business),
    }
}

fn inbound(g: &Generation, index: usize) -> Inbound {
    let i = &g.shared.inbounds[index];
    let mut explain = i.explain.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(e) = &mut explain {
        // A pause may be shorter than the time between two explanations.
        e.hook = HookView::new(i.stats.notes.pause(), clock::now());
    }
    Inbound {
        name: i.params.name.clone(),
        service: Some(i.params.service.to_string()),
        link_listen: Some(g.config.inbound[index].link_listen.to_string()),
        vouch: i.stats.vouch(),
        explain: explain.as_ref().and_then(|e| serde_json::to_string(e).ok()).unwrap_or_default(),
        evidence: explain.map(|e| e.words()).unwrap_or_default(),
        connections: i.metrics.connections.active(),
        links: i.links.load(Relaxed) as u64,
    }
}
