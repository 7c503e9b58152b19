//! Counters, histograms and gauges of the program, in one registry that is passed around; there is no global one.
//!
//! A leaf: it knows prometheus and the words of `verdict`, no stage. Stages take handles when they are built; no hot
//! path looks up a label. What is a state and not an event (scores, states, vouches) is not stored here at all:
//! [`Metrics::render`] gets a [`Scrape`] of the moment, so a scraped score is exact and costs the data path nothing.
//! Names and meanings: docs/metrics.md.

mod connections;
mod frames;
mod labels;
mod probe;
mod scrape;
mod trace;
mod upstream;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

pub use connections::{Active, ConnectionMetrics, OpenConnection};
pub use frames::FrameCounters;
pub use labels::{
    CloseReason, Direction, FrameKind, Gate, Handshake, LinkError, OddBeat, ProbeResult, RejectReason,
};
pub use probe::ProbeMetrics;
pub use scrape::{EndpointSample, MAX_ENDPOINTS, Mode, OVERFLOW, Scrape, VouchSample};
pub use trace::TraceMetrics;
pub use upstream::{InboundMetrics, UpstreamMetrics};

/// Content type of [`Metrics::render`]: Prometheus text format 0.0.4.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Lateness of a loop, seconds: from a timer's normal rounding (half a millisecond) to a suspended machine.
const OWN_STALL_BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

/// What this program was built from; becomes `sidebeat_build_info`.
#[derive(Clone, Debug)]
pub struct BuildInfo {
    /// Version of the package.
    pub version: String,
    /// Commit, or `unknown`.
    pub commit: String,
}

impl BuildInfo {
    /// Of this very build. The commit comes from `SIDEBEAT_COMMIT` at compile time.
    pub fn current() -> BuildInfo {
        BuildInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("SIDEBEAT_COMMIT").unwrap_or("unknown").to_owned(),
        }
    }
}

/// All handles. One per process, in an `Arc`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Frames and their bytes, header included.
    pub frames: FrameCounters,
    /// Idle beats that business traffic made unnecessary.
    pub beats_saved: IntCounter,
    /// Lateness of our own loops, seconds; see [`Metrics::own_stalled`].
    pub own_stall: Histogram,
    /// Frames of streams that had ended.
    pub discarded_frames: IntCounter,
    /// What beats said that no honest peer says, by [`OddBeat`].
    pub odd_beats: Vec<IntCounter>,
    /// Payload bytes the sidecar holds now, all links and directions.
    pub buffered_bytes: IntGauge,
    /// Of the recorder of traces.
    pub trace: TraceMetrics,
    bytes: Vec<IntCounter>,
    streams: Vec<IntGauge>,
    links: Vec<IntGauge>,
    link_errors: Vec<IntCounter>,
    handshakes: Vec<Vec<IntCounter>>,
    gates: Vec<IntCounter>,
    reload: IntGauge,
    families: upstream::Families,
    probes: probe::Families,
    upstreams: Mutex<BTreeMap<String, Arc<UpstreamMetrics>>>,
    inbounds: Mutex<BTreeMap<String, Arc<InboundMetrics>>>,
    slots: Mutex<scrape::Slots>,
}

impl Metrics {
    /// A fresh registry with every process-wide series at zero.
    pub fn new(build: BuildInfo) -> Arc<Metrics> {
        let r = Registry::new();
        build_info(&r, &build);
        process(&r);
        Arc::new(Metrics {
            frames: FrameCounters::new(&r),
            beats_saved: counter(
                &r,
                "sidebeat_beats_saved_total",
                "Idle beats that business traffic made unnecessary.",
            ),
            own_stall: histogram(
                &r,
                "sidebeat_own_stall_seconds",
                "Lateness of our own loops.",
                OWN_STALL_BUCKETS,
            ),
            discarded_frames: counter(
                &r,
                "sidebeat_discarded_frames_total",
                "Frames that came for streams that had ended.",
            ),
            odd_beats: odd_beats(&r),
            buffered_bytes: register(
                &r,
                IntGauge::new("sidebeat_buffered_bytes", "Payload bytes held by the sidecar now."),
            ),
            trace: TraceMetrics::new(&r),
            bytes: by_direction(counters(
                &r,
                "sidebeat_bytes_total",
                "Payload bytes of application connections, without framing.",
                &["direction"],
            )),
            streams: directed_gauges(&r, "sidebeat_streams_active", "Streams open on links now."),
            links: directed_gauges(&r, "sidebeat_links_active", "Links up now."),
            link_errors: link_errors(&r),
            handshakes: handshakes(&r),
            gates: gates(&r),
            reload: register(
                &r,
                IntGauge::new(
                    "sidebeat_config_last_reload_successful",
                    "1 if the configuration at work is the one last asked for, else 0.",
                ),
            ),
            families: upstream::Families::new(&r),
            probes: probe::Families::new(&r),
            upstreams: Mutex::default(),
            inbounds: Mutex::default(),
            slots: Mutex::default(),
            registry: r,
        })
    }

    /// Handles of a configured upstream; the same ones for the same name. `name` must come from the configuration,
    /// never from a peer. Cold: takes a lock.
    pub fn upstream(&self, name: &str) -> Arc<UpstreamMetrics> {
        self.upstream_with(name, &[])
    }

    /// The same, with counters for these shadow detectors.
    pub fn upstream_with(&self, name: &str, shadows: &[&'static str]) -> Arc<UpstreamMetrics> {
        let mut all = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(name.to_owned());
        let upstream = known.or_insert_with(|| Arc::new(UpstreamMetrics::new(&self.families, name))).clone();
        drop(all);
        upstream.with_shadows(&self.families, name, shadows);
        upstream
    }

    /// Handles of a configured inbound; the same ones for the same name. Cold: takes a lock.
    pub fn inbound(&self, name: &str) -> Arc<InboundMetrics> {
        let mut all = self.inbounds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(name) {
            return known.clone();
        }
        let fresh = Arc::new(InboundMetrics::new(&self.families, name));
        all.insert(name.to_owned(), fresh.clone());
        fresh
    }

    /// Handles of the probe of a configured inbound. Cold: takes a lock.
    pub fn probes(&self, name: &str) -> ProbeMetrics {
        ProbeMetrics::new(&self.probes, name)
    }

    /// The configuration was read: at the start, or again.
    pub fn reloaded(&self, successful: bool) {
        self.reload.set(i64::from(successful));
    }

    /// Counts a FAILED that a gate held back.
    pub fn gate_hold(&self, gate: Gate) {
        self.gates[gate.index()].inc();
    }

    /// Records how late a loop came back, past the time it had asked for.
    pub fn own_stalled(&self, late: Duration) {
        self.own_stall.observe(late.as_secs_f64());
    }

    /// Counts payload bytes of application connections.
    pub fn payload(&self, direction: Direction, bytes: u64) {
        self.bytes[direction.index()].inc_by(bytes);
    }

    /// Counts a link as up until the guard is dropped.
    pub fn link_up(&self, direction: Direction) -> Active {
        Active::new(self.links[direction.index()].clone())
    }

    /// Counts a stream as open until the guard is dropped.
    pub fn stream_open(&self, direction: Direction) -> Active {
        Active::new(self.streams[direction.index()].clone())
    }

    /// Counts a link that ended unplanned.
    pub fn link_error(&self, reason: LinkError) {
        self.link_errors[reason.index()].inc();
    }

    /// Counts the end of a handshake.
    pub fn handshake(&self, direction: Direction, result: Handshake) {
        self.handshakes[direction.index()][result.index()].inc();
    }

    /// Everything in text format: what was counted, and `now`, the states of this moment. Gives content type and
    /// body. Costs some microseconds per series: with hundreds of endpoints call it off the event loop.
    pub fn render(&self, now: &Scrape) -> (&'static str, Vec<u8>) {
        let mut families = self.registry.gather();
        families.extend(self.slots.lock().unwrap_or_else(PoisonError::into_inner).families(now));
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let mut body = Vec::with_capacity(64 * 1024);
        if let Err(e) = TextEncoder::new().encode(&families, &mut body) {
            tracing::error!(error = %e, "metrics could not be encoded");
            body.clear();
        }
        (CONTENT_TYPE, body)
    }
}

// Names, help texts and labels are constants of this module: an error here is a bug that every test meets.
fn register<C: Collector + Clone + 'static>(r: &Registry, made: prometheus::Result<C>) -> C {
    let c = made.expect("metric names and labels are valid constants");
    r.register(Box::new(c.clone())).expect("each metric is registered once");
    c
}

fn counter(r: &Registry, name: &str, help: &str) -> IntCounter {
    register(r, IntCounter::new(name, help))
}

fn counters(r: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(r, IntCounterVec::new(Opts::new(name, help), labels))
}

fn histogram(r: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    register(r, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
}

fn by_direction(vec: IntCounterVec) -> Vec<IntCounter> {
    Direction::ALL.iter().map(|d| vec.with_label_values(&[d.name()])).collect()
}

fn directed_gauges(r: &Registry, name: &str, help: &str) -> Vec<IntGauge> {
    let vec = register(r, IntGaugeVec::new(Opts::new(name, help), &["direction"]));
    Direction::ALL.iter().map(|d| vec.with_label_values(&[d.name()])).collect()
}

fn link_errors(r: &Registry) -> Vec<IntCounter> {
    let vec = counters(
        r,
        "sidebeat_link_errors_total",
        "Links that ended unplanned, by what was seen.",
        &["reason"],
    );
    LinkError::ALL.iter().map(|e| vec.with_label_values(&[e.name()])).collect()
}

fn handshakes(r: &Registry) -> Vec<Vec<IntCounter>> {
    let vec = counters(
        r,
        "sidebeat_handshakes_total",
        "Attempts to bring a link up, by result.",
        &["direction", "result"],
    );
    let results = |d: &Direction| {
        Handshake::ALL.iter().map(|h| vec.with_label_values(&[d.name(), h.name()])).collect::<Vec<_>>()
    };
    Direction::ALL.iter().map(results).collect()
}

fn odd_beats(r: &Registry) -> Vec<IntCounter> {
    let text = "What beats said that no honest peer says; its effect is bounded.";
    let vec = counters(r, "sidebeat_odd_beats_total", text, &["kind"]);
    OddBeat::ALL.iter().map(|k| vec.with_label_values(&[k.name()])).collect()
}

fn gates(r: &Registry) -> Vec<IntCounter> {
    let vec =
        counters(r, "sidebeat_gate_holds_total", "Verdicts of FAILED that a gate held back.", &["gate"]);
    Gate::ALL.iter().map(|g| vec.with_label_values(&[g.name()])).collect()
}

fn build_info(r: &Registry, build: &BuildInfo) {
    let opts = Opts::new("sidebeat_build_info", "Always 1; the labels say what runs.");
    let vec = register(r, IntGaugeVec::new(opts, &["version", "commit"]));
    vec.with_label_values(&[&build.version, &build.commit]).set(1);
}

fn process(r: &Registry) {
    let own = prometheus::process_collector::ProcessCollector::for_self();
    r.register(Box::new(own)).expect("the process collector is registered once");
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn text(m: &Metrics, now: &Scrape) -> String {
        String::from_utf8(m.render(now).1).unwrap()
    }

    #[test]
    fn handles_count_without_labels_at_the_call() {
        let m = Metrics::new(BuildInfo { version: "1.2.3".into(), commit: "abc".into() });
        m.frames.add(Direction::Out, FrameKind::Beat, 2, 96);
        m.payload(Direction::In, 7);
        m.gate_hold(Gate::OwnStall);
        m.handshake(Direction::In, Handshake::Refused);
        m.link_error(LinkError::Protocol);
        m.own_stalled(Duration::from_millis(3));
        let link = m.link_up(Direction::Out);
        let t = text(&m, &Scrape::default());
        for line in [
            "sidebeat_frames_total{direction=\"out\",kind=\"beat\"} 2",
            "sidebeat_frame_bytes_total{direction=\"out\",kind=\"beat\"} 96",
            "sidebeat_bytes_total{direction=\"in\"} 7",
            "sidebeat_gate_holds_total{gate=\"own_stall\"} 1",
            "sidebeat_handshakes_total{direction=\"in\",result=\"refused\"} 1",
            "sidebeat_link_errors_total{reason=\"protocol\"} 1",
            "sidebeat_links_active{direction=\"out\"} 1",
            "sidebeat_own_stall_seconds_bucket{le=\"0.005\"} 1",
            "sidebeat_build_info{commit=\"abc\",version=\"1.2.3\"} 1",
        ] {
            assert!(t.contains(&format!("{line}\n")), "missing {line} in\n{t}");
        }
        drop(link);
        assert!(text(&m, &Scrape::default()).contains("sidebeat_links_active{direction=\"out\"} 0\n"));
    }

    #[test]
    fn the_same_name_gives_the_same_handles() {
        let m = Metrics::new(BuildInfo::current());
        m.upstream("a").mistakes.inc();
        m.upstream("a").mistakes.inc();
        assert_eq!(m.upstream("a").mistakes.get(), 2);
        assert!(Arc::ptr_eq(&m.inbound("x"), &m.inbound("x")));
    }
}
