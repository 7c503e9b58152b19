//! Configuration to the parameters of the stages, and what all workers share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use crate::admin::events::EventLog;
use crate::config::{Config, Decay, DetectorKind, Enforce, LinkMode, LinkPolicy, Outbound, Protocol};
use crate::detector;
use crate::evidence::{self, ServiceStats};
use crate::link::{credit, pace::PaceParams};
use crate::metrics::{Metrics, UpstreamMetrics};
use crate::proxy::accept::Loads;
use crate::proxy::inbound::{Common, Groups, Inbound, InboundParams};
use crate::proxy::quota::Quota;
use crate::upstream::dial::Dialer;
use crate::upstream::registry::{self, Upstream, UpstreamParams, Upstreams};
use crate::upstream::{balance, facts};

/// What all workers share.
pub(super) struct Shared {
    pub(super) ups: Arc<Upstreams>,
    pub(super) up_metrics: Vec<Arc<UpstreamMetrics>>,
    pub(super) inbounds: Vec<Arc<Inbound>>,
    pub(super) common: Arc<Common>,
    pub(super) dialer: Dialer,
    pub(super) watch: evidence::Params,
    pub(super) loads: Arc<Loads>,
    pub(super) connections: Arc<Quota>,
    /// Buffered bytes in all.
    pub(super) memory: usize,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Arc<EventLog>,
    /// Workers that are ready.
    pub(super) started: AtomicUsize,
    addresses: Mutex<Vec<(String, SocketAddr)>>,
}

impl Shared {
    pub(super) fn build(
        c: &Config,
        seed: u64,
        metrics: &Arc<Metrics>,
        events: &Arc<EventLog>,
    ) -> Arc<Shared> {
        warn_http(c);
        let ups = Upstreams::new(c.outbound.iter().enumerate().map(|(i, o)| upstream(c, i, o)).collect());
        Arc::new(Shared {
            common: common(c, seed, metrics, ups.clone()),
            ups,
            up_metrics: c.outbound.iter().map(|o| metrics.upstream(&o.name)).collect(),
            inbounds: inbounds(c, metrics),
            dialer: dialer(c, seed),
            watch: evidence::Params {
                stall_patience: c.service.stall_patience,
                busy_patience: c.service.busy_patience,
            },
            loads: Loads::new(c.node.workers),
            connections: Quota::new(c.limits.connections),
            memory: c.limits.memory,
            metrics: metrics.clone(),
            events: events.clone(),
            started: AtomicUsize::new(0),
            addresses: Mutex::default(),
        })
    }

    /// Where this process listens, by name.
    pub(super) fn addresses(&self) -> Vec<(String, SocketAddr)> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note_addresses(&self, all: Vec<(String, SocketAddr)>) {
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Link ports and the inbounds each serves.
pub(super) fn link_ports(c: &Config) -> BTreeMap<SocketAddr, Vec<usize>> {
    let mut ports: BTreeMap<SocketAddr, Vec<usize>> = BTreeMap::new();
    for (i, inbound) in c.inbound.iter().enumerate() {
        ports.entry(inbound.link_listen).or_default().push(i);
    }
    ports
}

fn warn_http(c: &Config) {
    let names = c.inbound.iter().map(|i| (&i.name, i.protocol));
    for (name, protocol) in names.chain(c.outbound.iter().map(|o| (&o.name, o.protocol))) {
        if protocol == Protocol::Http {
            tracing::warn!(name, "protocol = \"http\" acts as \"tcp\" in this version");
        }
    }
}

fn upstream(c: &Config, index: usize, o: &Outbound) -> Upstream {
    let policy = match o.link {
        LinkPolicy::Auto => facts::LinkPolicy::Auto,
        LinkPolicy::Required => facts::LinkPolicy::Required,
        LinkPolicy::Off => facts::LinkPolicy::Off,
    };
    let enforce = match o.enforce {
        Enforce::Off => balance::Enforce::Off,
        Enforce::Suspect => balance::Enforce::Suspect,
        Enforce::Failed => balance::Enforce::Failed,
    };
    let workers = c.node.workers;
    let endpoint = |(i, e): (usize, &crate::config::EndpointConf)| {
        Arc::new(registry::Shared::new(i, e.address, e.link, e.weight, (index + i) % workers, workers))
    };
    let params = UpstreamParams {
        name: o.name.clone(),
        remote: o.remote.clone(),
        policy,
        per_connection: o.link_mode == LinkMode::PerConnection,
        cut_after: o.cut_after,
        max_failed: o.max_failed,
        connect_timeout: o.connect_timeout,
        detector: detector_params(c),
    };
    Upstream::new(params, enforce, o.endpoints.iter().enumerate().map(endpoint).collect())
}

fn detector_params(c: &Config) -> detector::Params {
    let d = &c.detector;
    detector::Params {
        kind: match (d.kind, d.decay) {
            (DetectorKind::Promise, _) => detector::Kind::Promise,
            (DetectorKind::Huddm, Decay::Tick) => detector::Kind::HuddmTick,
            (DetectorKind::Huddm, Decay::Miss) => detector::Kind::HuddmMiss,
        },
        tau_min: d.tau_min,
        learn_max: d.learn_max,
        half_life: d.half_life,
        first_promise: c.beat.idle,
        ..detector::Params::default()
    }
}

fn inbounds(c: &Config, metrics: &Arc<Metrics>) -> Vec<Arc<Inbound>> {
    let one = |i: &crate::config::Inbound| {
        Arc::new(Inbound {
            params: InboundParams {
                name: i.name.clone(),
                service: i.service,
                allow: i.allow.iter().map(|n| (n.addr, n.prefix)).collect(),
            },
            stats: ServiceStats::new(i.service),
            metrics: metrics.inbound(&i.name),
            links: AtomicUsize::new(0),
            explain: Mutex::default(),
        })
    };
    c.inbound.iter().map(one).collect()
}

fn common(c: &Config, incarnation: u64, metrics: &Arc<Metrics>, ups: Arc<Upstreams>) -> Arc<Common> {
    Arc::new(Common {
        node: c.node.id.clone(),
        incarnation,
        pace: PaceParams { active: c.beat.active, idle: c.beat.idle },
        initial_credit: credit::INITIAL.min(c.limits.stream_window),
        window_max: c.limits.stream_window,
        queue_max: c.limits.link_queue,
        threshold: c.backpressure_threshold,
        streams_max: c.limits.streams_per_link,
        hello_timeout: c.limits.hello_timeout,
        link_quota: Quota::new(c.limits.links),
        link_count: AtomicUsize::new(0),
        frozen_until: AtomicU64::new(0),
        draining: AtomicBool::new(false),
        metrics: metrics.clone(),
        groups: Groups::default(),
        ups,
    })
}

fn dialer(c: &Config, incarnation: u64) -> Dialer {
    Dialer {
        node: c.node.id.clone(),
        incarnation,
        active: c.beat.active,
        idle: c.beat.idle,
        window_max: c.limits.stream_window,
        queue_max: c.limits.link_queue,
        threshold: c.backpressure_threshold,
        streams_max: c.limits.streams_per_link,
    }
}
