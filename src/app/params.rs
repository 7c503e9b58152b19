//! Configuration to the parameters of the stages, and what all workers share.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use crate::admin::events::EventLog;
use crate::config::{
    Config, Decay, DetectorKind, Enforce, LinkMode, LinkPolicy, Outbound, Protocol, ShadowLaw,
};
use crate::detector;
use crate::evidence::{self, ServiceStats};
use crate::link::{credit, pace::PaceParams};
use crate::metrics::{Metrics, UpstreamMetrics};
use crate::proxy::accept::Loads;
use crate::proxy::groups::Groups;
use crate::proxy::inbound::{Common, Inbound, InboundParams};
use crate::proxy::quota::Quota;
use crate::upstream::dial::Dialer;
use crate::upstream::registry::{self, Upstream, UpstreamParams, Upstreams};
use crate::upstream::{balance, facts};
use crate::worker::SharedNoise;

/// What all workers share.
pub(super) struct Shared {
    pub(super) ups: Arc<Upstreams>,
    pub(super) up_metrics: Vec<Arc<UpstreamMetrics>>,
    pub(super) inbounds: Vec<Arc<Inbound>>,
    pub(super) common: Arc<Common>,
    pub(super) dialer: Dialer,
    pub(super) watch: evidence::Params,
    /// Connections of applications per worker.
    pub(super) loads: Arc<Loads>,
    /// Links of peers per worker.
    pub(super) links: Arc<Loads>,
    pub(super) noise: SharedNoise,
    pub(super) connections: Arc<Quota>,
    /// Buffered bytes in all.
    pub(super) memory: usize,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Arc<EventLog>,
    /// Workers stay each on a processor of its own.
    pub(super) pin: bool,
    /// Workers that are ready.
    pub(super) started: AtomicUsize,
    /// Tasks alive on each worker when it was last asked.
    pub(super) tasks: Vec<AtomicUsize>,
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
            up_metrics: up_metrics(c, metrics),
            inbounds: inbounds(c, metrics),
            dialer: dialer(c, seed),
            watch: evidence::Params {
                stall_patience: c.service.stall_patience,
                busy_patience: c.service.busy_patience,
            },
            // A hand-over costs as much as a small request. The links of a node are few, and live long: they belong on
            // different threads, so that one that hangs does not silence all of them.
            loads: Loads::new(c.node.workers, 2),
            links: Loads::new(c.node.workers, 1),
            noise: SharedNoise::default(),
            connections: Quota::new(c.limits.connections),
            memory: c.limits.memory,
            metrics: metrics.clone(),
            events: events.clone(),
            pin: c.node.pin,
            started: AtomicUsize::new(0),
            tasks: (0..c.node.workers).map(|_| AtomicUsize::new(0)).collect(),
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

fn up_metrics(c: &Config, metrics: &Metrics) -> Vec<Arc<UpstreamMetrics>> {
    let shadows: Vec<_> = c.detector.shadows.iter().map(|s| label(&s.name)).collect();
    c.outbound.iter().map(|o| metrics.upstream_with(&o.name, &shadows)).collect()
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
        Arc::new(registry::Shared::new(
            i,
            e.address,
            e.link,
            e.weight,
            (index + i) % workers,
            workers,
            c.beat.duty,
        ))
    };
    let params = UpstreamParams {
        name: o.name.clone(),
        remote: o.remote.clone(),
        policy,
        per_connection: o.link_mode == LinkMode::PerConnection,
        cut_after: o.cut_after,
        max_failed: o.max_failed,
        connect_timeout: o.connect_timeout,
        detector: detector_params(c, c.detector.kind),
        shadows: c.detector.shadows.iter().map(|s| (label(&s.name), shadow_params(c, s.law))).collect(),
    };
    Upstream::new(params, enforce, o.endpoints.iter().enumerate().map(endpoint).collect())
}

/// A label that outlives every link and reload. Each name that was ever configured is kept once.
fn label(name: &str) -> &'static str {
    static ALL: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    all.insert(kept);
    kept
}

fn shadow_params(c: &Config, law: ShadowLaw) -> detector::Params {
    match law {
        ShadowLaw::Configured(kind) => detector_params(c, kind),
        ShadowLaw::Huddm(decay) => {
            detector::Params { kind: huddm(decay), ..detector_params(c, DetectorKind::Huddm) }
        }
        ShadowLaw::Timeout(timeout) => detector::Params {
            timeout,
            steps: detector::StepParams::default(),
            ..detector_params(c, DetectorKind::Timeout)
        },
    }
}

fn huddm(decay: Decay) -> detector::Kind {
    match decay {
        Decay::Tick => detector::Kind::HuddmTick,
        Decay::Miss => detector::Kind::HuddmMiss,
    }
}

fn detector_params(c: &Config, kind: DetectorKind) -> detector::Params {
    let d = &c.detector;
    detector::Params {
        kind: match kind {
            DetectorKind::Promise => detector::Kind::Promise,
            DetectorKind::Huddm => huddm(d.decay),
            DetectorKind::Phi => detector::Kind::Phi,
            DetectorKind::Chen => detector::Kind::Chen,
            DetectorKind::Timeout => detector::Kind::Timeout,
            DetectorKind::P95 => detector::Kind::P95,
        },
        tau_min: d.tau_min,
        learn_max: d.learn_max,
        half_life: d.half_life,
        first_promise: c.beat.idle,
        timeout: d.timeout_after,
        steps: detector::StepParams {
            interval: d.steps.interval,
            misses: d.steps.misses,
            buffer: d.steps.buffer,
        },
        phi: detector::PhiParams {
            threshold: d.phi.threshold,
            window: d.phi.window,
            min_std: d.phi.min_std,
            pause: d.phi.pause,
        },
        chen: detector::ChenParams { alpha: d.chen.alpha, window: d.chen.window },
        p95: detector::P95Params { factor: d.p95.factor, window: d.p95.window },
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
        duty: c.beat.duty,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{parse, schema};
    use crate::detector::{Params, catalog};

    const OUTBOUND: &str =
        "[[outbound]]\nname = \"x\"\nlisten = \"127.0.0.1:0\"\nendpoints = [\"10.1.0.4:8080\"]\n";

    fn config(more: &str) -> Config {
        parse(&format!("{OUTBOUND}{more}"), "test", std::iter::empty()).unwrap_or_else(|e| panic!("{e}")).0
    }

    #[test]
    fn the_defaults_of_file_and_code_are_the_same() {
        for kind in DetectorKind::ALL {
            let found = detector_params(&config(""), kind);
            assert_eq!(found, Params { kind: found.kind, ..Params::default() });
        }
    }

    #[test]
    fn every_kind_of_the_file_is_a_law_and_a_shadow() {
        let names: Vec<_> = DetectorKind::ALL.iter().map(|k| format!("\"{}\"", k.name())).collect();
        let c = config(&format!(
            "[detector]\nshadows = [{}]\n[detector.huddm]\ndecay = \"tick\"\n",
            names.join(",")
        ));
        let shadows = upstream(&c, 0, &c.outbound[0]).params.shadows;
        assert_eq!(shadows.len(), DetectorKind::ALL.len());
        for ((name, params), kind) in shadows.into_iter().zip(DetectorKind::ALL) {
            assert_eq!(name, kind.name());
            let wanted = catalog::by_name(if name == "huddm" { "huddm-tick" } else { name }).expect(name);
            assert_eq!(params, wanted);
        }
    }

    #[test]
    fn a_shadow_may_bring_its_own_parameters() {
        let c = config(
            "[detector]\nshadows = [\"huddm\", \"huddm-tick\", \"huddm-miss\", \"timeout\", \"timeout-27ms\"]\n\
             [detector.huddm]\ndecay = \"tick\"\n[detector.timeout]\nafter = \"2s\"\ninterval = \"500ms\"\n",
        );
        let shadows = upstream(&c, 0, &c.outbound[0]).params.shadows;
        let names: Vec<_> = shadows.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["huddm", "huddm-tick", "huddm-miss", "timeout", "timeout-27ms"]);
        let kinds: Vec<_> = shadows.iter().map(|(_, p)| p.kind).collect();
        use crate::detector::Kind;
        assert_eq!(kinds[..3], [Kind::HuddmTick, Kind::HuddmTick, Kind::HuddmMiss]);
        let ms = std::time::Duration::from_millis;
        let times: Vec<_> = shadows[3..].iter().map(|(_, p)| (p.timeout, p.steps.interval)).collect();
        assert_eq!(times, [(ms(2000), Some(ms(500))), (ms(27), None)]);
        assert!(std::ptr::eq(label("timeout-27ms"), shadows[4].0), "a name is kept once");
    }

    /// Key of the catalog, table and key of the file.
    const SAME: &[(&str, &str, &str)] = &[
        ("tau_min", "detector.promise", "tau_min"),
        ("learn_max", "detector.promise", "learn_max"),
        ("half_life", "detector.promise", "half_life"),
        ("timeout", "detector.timeout", "after"),
        ("timeout.interval", "detector.timeout", "interval"),
        ("timeout.misses", "detector.timeout", "misses"),
        ("timeout.buffer", "detector.timeout", "buffer"),
        ("phi.threshold", "detector.phi", "threshold"),
        ("phi.window", "detector.phi", "window"),
        ("phi.min_std", "detector.phi", "min_std"),
        ("phi.pause", "detector.phi", "pause"),
        ("chen.alpha", "detector.chen", "alpha"),
        ("chen.window", "detector.chen", "window"),
        ("p95.factor", "detector.p95", "factor"),
        ("p95.window", "detector.p95", "window"),
    ];

    #[test]
    fn catalog_and_file_allow_the_same() {
        assert_eq!(SAME.len() + 1, catalog::KEYS.len(), "all but slack, which is not in the file");
        for (key, table, name) in SAME {
            let kind = schema::section(table).and_then(|s| s.key(name)).expect(key).kind;
            let (inside, outside) = match kind {
                schema::Kind::Duration { min, max, .. } => {
                    let ns = |d: std::time::Duration| format!("{}ns", d.as_nanos());
                    let tick = std::time::Duration::from_nanos(1);
                    ([ns(min), ns(max)], [ns(min.saturating_sub(tick)), ns(max + tick)])
                }
                schema::Kind::Int { min, max } => {
                    ([min.to_string(), max.to_string()], [(min - 1).to_string(), (max + 1).to_string()])
                }
                schema::Kind::Real { min, max } => {
                    let number = |x: f64| x.to_string();
                    ([number(min), number(max)], [number(min - 0.01), number(max + 0.01)])
                }
                other => panic!("{key}: {other:?}"),
            };
            for value in &inside {
                catalog::set(&mut Params::default(), key, value).unwrap_or_else(|e| panic!("{e}"));
            }
            for value in outside.iter().filter(|v| !inside.contains(v)) {
                assert!(catalog::set(&mut Params::default(), key, value).is_err(), "{key} = {value}");
            }
        }
    }
}
