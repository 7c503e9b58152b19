//! Gauges that are built from the states of the moment, when they are asked for. Keeps the number of series bounded.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, Opts};

use crate::verdict::{State, Vouch};

/// Endpoints of one upstream that get series of their own; the others share [`OVERFLOW`].
pub const MAX_ENDPOINTS: usize = 200;

/// The label `endpoint` of all beyond [`MAX_ENDPOINTS`]: shows the worst of them.
pub const OVERFLOW: &str = "other";

/// How an endpoint is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Over a link: judged by silence.
    Framed,
    /// Without a sidecar at the far end: passive detection only.
    Plain,
}

/// One endpoint at the moment of the scrape. `None` where nothing is known: no series.
#[derive(Clone, Debug)]
pub struct EndpointSample {
    /// Configured name of the set.
    pub upstream: String,
    /// Address of the service.
    pub endpoint: String,
    /// min(link, service), 0-1.
    pub health: Option<f64>,
    /// 0-1.
    pub link: Option<f64>,
    /// 0-1.
    pub service: Option<f64>,
    /// The verdict.
    pub state: State,
    /// `None` while there is neither.
    pub mode: Option<Mode>,
    /// When the next frame is due, Unix seconds.
    pub expected_arrival: Option<f64>,
    /// When the last frame came, Unix seconds.
    pub last_frame: Option<f64>,
    /// Whether the endpoint says that it is full.
    pub backpressure: Option<bool>,
    /// Our send queue towards it, share of its cap, 0-1.
    pub send_queue: Option<f64>,
}

impl EndpointSample {
    /// Makes `self` the worse of both, fact by fact: an alert on either fires on the merged one.
    fn worst(&mut self, o: &EndpointSample) {
        let least = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::min);
        self.health = least(self.health, o.health);
        self.link = least(self.link, o.link);
        self.service = least(self.service, o.service);
        self.state = self.state.max(o.state);
        self.mode = match (self.mode, o.mode) {
            (Some(Mode::Plain), _) | (_, Some(Mode::Plain)) => Some(Mode::Plain),
            (a, b) => a.or(b),
        };
        self.expected_arrival = least(self.expected_arrival, o.expected_arrival);
        self.last_frame = least(self.last_frame, o.last_frame);
        self.backpressure = self.backpressure.max(o.backpressure);
        self.send_queue = self.send_queue.into_iter().chain(o.send_queue).reduce(f64::max);
    }
}

/// What the local sidecar says of a service beside it.
#[derive(Clone, Debug)]
pub struct VouchSample {
    /// Name of the inbound.
    pub service: String,
    /// What the next beat will say.
    pub vouch: Vouch,
}

/// The states of the moment.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// All endpoints of all upstreams, in a stable order.
    pub endpoints: Vec<EndpointSample>,
    /// All inbounds.
    pub vouches: Vec<VouchSample>,
    /// Whether this sidecar is draining.
    pub draining: bool,
    /// Whether it takes work.
    pub ready: bool,
}

/// Which endpoints own a series. Remembered from scrape to scrape, so that a series does not change its meaning when
/// the set grows; given back when the endpoint goes.
#[derive(Debug, Default)]
pub(super) struct Slots(BTreeMap<String, BTreeSet<String>>);

impl Slots {
    /// All gauges of `now`; families without a series are left out.
    pub(super) fn families(&mut self, now: &Scrape) -> Vec<MetricFamily> {
        let gauges = Gauges::new();
        for ((upstream, endpoint), sample) in self.merge(now) {
            gauges.endpoint(&upstream, &endpoint, &sample);
        }
        for v in &now.vouches {
            for state in Vouch::ALL {
                let set = if state == v.vouch { 1.0 } else { 0.0 };
                gauges.vouch.with_label_values(&[&v.service, state.name()]).set(set);
            }
        }
        gauges.draining.with_label_values::<&str>(&[]).set(f64::from(u8::from(now.draining)));
        gauges.ready.with_label_values::<&str>(&[]).set(f64::from(u8::from(now.ready)));
        gauges.collect()
    }

    /// Samples by upstream and label; several nodes behind one address count as the worst of them.
    fn merge(&mut self, now: &Scrape) -> BTreeMap<(String, String), EndpointSample> {
        self.give_back(now);
        let mut merged: BTreeMap<(String, String), EndpointSample> = BTreeMap::new();
        for s in &now.endpoints {
            let label = if self.take(&s.upstream, &s.endpoint) { s.endpoint.as_str() } else { OVERFLOW };
            merged
                .entry((s.upstream.clone(), label.to_owned()))
                .and_modify(|known| known.worst(s))
                .or_insert_with(|| s.clone());
        }
        merged
    }

    fn give_back(&mut self, now: &Scrape) {
        let mut present: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for s in &now.endpoints {
            present.entry(&s.upstream).or_default().insert(&s.endpoint);
        }
        self.0.retain(|upstream, held| {
            let Some(there) = present.get(upstream.as_str()) else { return false };
            held.retain(|e| there.contains(e.as_str()));
            true
        });
    }

    fn take(&mut self, upstream: &str, endpoint: &str) -> bool {
        let held = self.0.entry(upstream.to_owned()).or_default();
        if held.contains(endpoint) {
            return true;
        }
        held.len() < MAX_ENDPOINTS && held.insert(endpoint.to_owned())
    }
}

struct Gauges {
    health: GaugeVec,
    link: GaugeVec,
    service: GaugeVec,
    state: GaugeVec,
    mode: GaugeVec,
    expected: GaugeVec,
    last: GaugeVec,
    backpressure: GaugeVec,
    queue: GaugeVec,
    vouch: GaugeVec,
    draining: GaugeVec,
    ready: GaugeVec,
}

impl Gauges {
    fn new() -> Gauges {
        let of = &["upstream", "endpoint"];
        Gauges {
            health: gauge("sidebeat_upstream_health_score", "min(link score, service score), 0-1.", of),
            link: gauge("sidebeat_upstream_link_score", "min(hearing, being heard), 0-1.", of),
            service: gauge("sidebeat_upstream_service_score", "What the far sidecar vouches for, 0-1.", of),
            state: gauge(
                "sidebeat_upstream_state",
                "1 for the state the endpoint is in.",
                &["upstream", "endpoint", "state"],
            ),
            mode: gauge(
                "sidebeat_upstream_link_mode",
                "1 for the way the endpoint is reached.",
                &["upstream", "endpoint", "mode"],
            ),
            expected: gauge(
                "sidebeat_upstream_expected_arrival_timestamp_seconds",
                "When the next frame is due by the last promise.",
                of,
            ),
            last: gauge("sidebeat_upstream_last_frame_timestamp_seconds", "When the last frame came.", of),
            backpressure: gauge(
                "sidebeat_backpressure_active",
                "1 while the endpoint says that it is full.",
                of,
            ),
            queue: gauge(
                "sidebeat_send_queue_ratio",
                "Our send queue towards the endpoint, share of its cap.",
                of,
            ),
            vouch: gauge(
                "sidebeat_vouch",
                "1 for what this sidecar says of the service beside it.",
                &["service", "state"],
            ),
            draining: gauge("sidebeat_draining", "1 while this sidecar drains.", &[]),
            ready: gauge("sidebeat_ready", "1 while /ready answers 200.", &[]),
        }
    }

    fn endpoint(&self, upstream: &str, endpoint: &str, s: &EndpointSample) {
        let at = [upstream, endpoint];
        ratio(&self.health, at, s.health);
        ratio(&self.link, at, s.link);
        ratio(&self.service, at, s.service);
        ratio(&self.queue, at, s.send_queue);
        set(&self.expected, at, s.expected_arrival);
        set(&self.last, at, s.last_frame);
        set(&self.backpressure, at, s.backpressure.map(|b| f64::from(u8::from(b))));
        for state in State::ALL {
            let on = if state == s.state { 1.0 } else { 0.0 };
            self.state.with_label_values(&[upstream, endpoint, state.name()]).set(on);
        }
        for (mode, name) in [(Mode::Framed, "framed"), (Mode::Plain, "plain")] {
            let on = if s.mode == Some(mode) { 1.0 } else { 0.0 };
            self.mode.with_label_values(&[upstream, endpoint, name]).set(on);
        }
    }

    fn collect(self) -> Vec<MetricFamily> {
        let all = [
            self.health,
            self.link,
            self.service,
            self.state,
            self.mode,
            self.expected,
            self.last,
            self.backpressure,
            self.queue,
            self.vouch,
            self.draining,
            self.ready,
        ];
        all.iter().flat_map(Collector::collect).filter(|f| !f.get_metric().is_empty()).collect()
    }
}

fn gauge(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    GaugeVec::new(Opts::new(name, help), labels).expect("metric names and labels are valid constants")
}

fn set(gauge: &GaugeVec, at: [&str; 2], value: Option<f64>) {
    if let Some(v) = value.filter(|v| v.is_finite()) {
        gauge.with_label_values(&at).set(v);
    }
}

fn ratio(gauge: &GaugeVec, at: [&str; 2], value: Option<f64>) {
    set(gauge, at, value.map(|v| v.clamp(0.0, 1.0)));
}

#[cfg(test)]
mod tests {
    use super::super::{BuildInfo, Metrics};
    use super::*;

    fn sample(upstream: &str, endpoint: &str, health: f64, state: State) -> EndpointSample {
        EndpointSample {
            upstream: upstream.into(),
            endpoint: endpoint.into(),
            health: Some(health),
            link: None,
            service: None,
            state,
            mode: Some(Mode::Framed),
            expected_arrival: None,
            last_frame: Some(f64::NAN),
            backpressure: None,
            send_queue: Some(7.0),
        }
    }

    fn text(m: &Metrics, endpoints: Vec<EndpointSample>) -> String {
        String::from_utf8(m.render(&Scrape { endpoints, ..Scrape::default() }).1).unwrap()
    }

    #[test]
    fn the_unknown_has_no_series_and_numbers_stay_in_range() {
        let m = Metrics::new(BuildInfo::current());
        let t = text(&m, vec![sample("a", "1.1.1.1:1", 0.25, State::Suspect)]);
        assert!(t.contains(r#"sidebeat_upstream_health_score{endpoint="1.1.1.1:1",upstream="a"} 0.25"#));
        assert!(
            t.contains(r#"sidebeat_upstream_state{endpoint="1.1.1.1:1",state="suspect",upstream="a"} 1"#)
        );
        assert!(t.contains(r#"sidebeat_upstream_state{endpoint="1.1.1.1:1",state="failed",upstream="a"} 0"#));
        assert!(t.contains(r#"sidebeat_send_queue_ratio{endpoint="1.1.1.1:1",upstream="a"} 1"#));
        assert!(!t.contains("sidebeat_upstream_link_score"));
        assert!(!t.contains("sidebeat_upstream_last_frame_timestamp_seconds"));
    }

    #[test]
    fn beyond_the_cap_the_worst_of_the_others_is_shown() {
        let m = Metrics::new(BuildInfo::current());
        let name = |i: usize| format!("10.0.{}.{}:80", i / 250, i % 250);
        let mut all: Vec<_> =
            (0..MAX_ENDPOINTS + 50).map(|i| sample("a", &name(i), 1.0, State::Active)).collect();
        all[MAX_ENDPOINTS + 7].state = State::Failed;
        all[MAX_ENDPOINTS + 7].health = Some(0.1);
        let t = text(&m, all.clone());
        let series = t.lines().filter(|l| l.starts_with("sidebeat_upstream_health_score{")).count();
        assert_eq!(series, MAX_ENDPOINTS + 1);
        assert!(t.contains(r#"sidebeat_upstream_health_score{endpoint="other",upstream="a"} 0.1"#));
        assert!(t.contains(r#"sidebeat_upstream_state{endpoint="other",state="failed",upstream="a"} 1"#));

        // Who has a series keeps it when the order changes, and gives it back when it goes.
        all.reverse();
        let t = text(&m, all.clone());
        assert!(t.contains(&format!(
            r#"sidebeat_upstream_health_score{{endpoint="{}",upstream="a"}} 1"#,
            name(0)
        )));
        all.retain(|s| s.endpoint != name(0));
        let t = text(&m, all);
        assert!(!t.contains(&format!("endpoint=\"{}\"", name(0))));
        assert_eq!(
            t.lines().filter(|l| l.starts_with("sidebeat_upstream_health_score{")).count(),
            MAX_ENDPOINTS + 1
        );
    }

    #[test]
    fn two_nodes_behind_one_address_are_one_series() {
        let m = Metrics::new(BuildInfo::current());
        let t = text(
            &m,
            vec![sample("a", "vip:1", 0.9, State::Active), sample("a", "vip:1", 0.3, State::Suspect)],
        );
        let scores: Vec<_> = t.lines().filter(|l| l.starts_with("sidebeat_upstream_health_score{")).collect();
        assert_eq!(scores, [r#"sidebeat_upstream_health_score{endpoint="vip:1",upstream="a"} 0.3"#]);
    }
}
