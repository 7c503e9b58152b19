//! What is counted per configured upstream and per configured inbound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
};

use super::connections::ConnectionMetrics;
use super::labels::{CloseReason, Direction, RejectReason};
use super::{counters, register};
use crate::verdict::{Cause, State};

/// Last sign of life to FAILED, seconds. Dense between 10 and 200 ms, where the promise detector is meant to be (tens
/// of ms under traffic, a tenth of a second idle); 1 and 2 ms are for proof (RST, vouch `gone`), 0.5 s is `learn_max`,
/// beyond lie held back verdicts.
const DETECTION_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.3, 0.5,
    1.0, 2.0, 5.0, 10.0,
];

/// Silence past the deadline that ended in life, seconds. 1 ms is the slack, 4 to 10 ms the range of `tau_min` and of
/// its SUSPECT and FAILED points, 0.2 s TCP's retransmission step, 0.5 s `learn_max`.
const LATENESS_BUCKETS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5,
    1.0,
];

/// The families behind the handles; used when an upstream or inbound is built, never later.
#[derive(Debug)]
pub(super) struct Families {
    transitions: IntCounterVec,
    mistakes: IntCounterVec,
    healed: IntCounterVec,
    detection: HistogramVec,
    lateness: HistogramVec,
    active: IntGaugeVec,
    total: IntCounterVec,
    closed: IntCounterVec,
    rejected: IntCounterVec,
    shadows: IntCounterVec,
}

impl Families {
    pub(super) fn new(r: &Registry) -> Families {
        Families {
            transitions: counters(
                r,
                "sidebeat_upstream_transitions_total",
                "Changes of state of endpoints, by new state and cause.",
                &["upstream", "to", "cause"],
            ),
            mistakes: counters(
                r,
                "sidebeat_upstream_mistakes_total",
                "FAILED by silence that life disproved within learn_max.",
                &["upstream"],
            ),
            healed: counters(
                r,
                "sidebeat_upstream_outages_healed_total",
                "Silences longer than learn_max that ended in life: FAILED was right.",
                &["upstream"],
            ),
            detection: histograms(
                r,
                "sidebeat_upstream_detection_seconds",
                "Last sign of life to FAILED.",
                DETECTION_BUCKETS,
            ),
            lateness: histograms(
                r,
                "sidebeat_upstream_lateness_seconds",
                "Silence past the deadline that ended in life.",
                LATENESS_BUCKETS,
            ),
            active: register(
                r,
                IntGaugeVec::new(
                    Opts::new("sidebeat_connections_active", "Application connections open now."),
                    &["direction", "upstream"],
                ),
            ),
            total: counters(
                r,
                "sidebeat_connections_total",
                "Application connections accepted.",
                &["direction", "upstream"],
            ),
            closed: counters(
                r,
                "sidebeat_connections_closed_total",
                "Application connections ended, by reason.",
                &["direction", "upstream", "reason"],
            ),
            rejected: counters(
                r,
                "sidebeat_rejected_total",
                "Work turned away before it had an endpoint, by reason.",
                &["upstream", "reason"],
            ),
            shadows: counters(
                r,
                "sidebeat_detector_shadow_transitions_total",
                "Changes of state that a shadow detector would have made.",
                &["upstream", "detector", "to"],
            ),
        }
    }

    fn shadow(&self, upstream: &str, detector: &str) -> [IntCounter; 3] {
        State::ALL.map(|to| self.shadows.with_label_values(&[upstream, detector, to.name()]))
    }

    fn connections(&self, direction: Direction, name: &str) -> Arc<ConnectionMetrics> {
        let dir = direction.name();
        Arc::new(ConnectionMetrics {
            active: self.active.with_label_values(&[dir, name]),
            total: self.total.with_label_values(&[dir, name]),
            closed: CloseReason::ALL
                .iter()
                .map(|r| self.closed.with_label_values(&[dir, name, r.name()]))
                .collect(),
            rejected: RejectReason::ALL
                .iter()
                .map(|r| self.rejected.with_label_values(&[name, r.name()]))
                .collect(),
        })
    }
}

/// Handles of one upstream.
#[derive(Debug)]
pub struct UpstreamMetrics {
    transitions: Vec<IntCounter>,
    /// FAILED by silence that life disproved within `learn_max`.
    pub mistakes: IntCounter,
    /// Silences beyond `learn_max` that healed.
    pub outages_healed: IntCounter,
    /// Last sign of life to FAILED, seconds; see [`UpstreamMetrics::detected`].
    pub detection_seconds: Histogram,
    /// Silence past the deadline that ended in life, seconds; see [`UpstreamMetrics::late`].
    pub lateness_seconds: Histogram,
    /// Application connections to it.
    pub connections: Arc<ConnectionMetrics>,
    /// By shadow detector and state; they change their mind seldom enough for a lock.
    shadows: Mutex<BTreeMap<&'static str, [IntCounter; 3]>>,
}

impl UpstreamMetrics {
    pub(super) fn new(f: &Families, name: &str) -> UpstreamMetrics {
        let transition =
            |(to, cause): (State, &Cause)| f.transitions.with_label_values(&[name, to.name(), cause.name()]);
        let pairs = State::ALL.into_iter().flat_map(|to| Cause::ALL.iter().map(move |cause| (to, cause)));
        UpstreamMetrics {
            transitions: pairs.map(transition).collect(),
            mistakes: f.mistakes.with_label_values(&[name]),
            outages_healed: f.healed.with_label_values(&[name]),
            detection_seconds: f.detection.with_label_values(&[name]),
            lateness_seconds: f.lateness.with_label_values(&[name]),
            connections: f.connections(Direction::Out, name),
            shadows: Mutex::default(),
        }
    }

    /// Makes counters for these shadow detectors; those that are there stay.
    pub(super) fn with_shadows(&self, f: &Families, name: &str, shadows: &[&'static str]) {
        let mut all = self.shadows.lock().unwrap_or_else(PoisonError::into_inner);
        for detector in shadows {
            all.entry(detector).or_insert_with(|| f.shadow(name, detector));
        }
    }

    /// Counts that a shadow detector changed its mind; one that is not configured is not counted.
    pub fn shadowed(&self, detector: &str, to: State) {
        let all = self.shadows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = all.get(detector) {
            counters[usize::from(to.code())].inc();
        }
    }

    /// The counter of changes to a state for a cause; made in advance for all pairs.
    pub fn transitions(&self, to: State, cause: Cause) -> &IntCounter {
        &self.transitions[usize::from(to.code()) * Cause::ALL.len() + cause as usize]
    }

    /// Records the silence at which FAILED was declared.
    pub fn detected(&self, silence: Duration) {
        self.detection_seconds.observe(silence.as_secs_f64());
    }

    /// Records a silence past its deadline that ended in life.
    pub fn late(&self, past_deadline: Duration) {
        self.lateness_seconds.observe(past_deadline.as_secs_f64());
    }
}

/// Handles of one inbound.
#[derive(Debug)]
pub struct InboundMetrics {
    /// Connections to the local service.
    pub connections: Arc<ConnectionMetrics>,
}

impl InboundMetrics {
    pub(super) fn new(f: &Families, name: &str) -> InboundMetrics {
        InboundMetrics { connections: f.connections(Direction::In, name) }
    }
}

fn histograms(r: &Registry, name: &str, help: &str, buckets: &[f64]) -> HistogramVec {
    register(r, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), &["upstream"]))
}

#[cfg(test)]
mod tests {
    use super::super::{BuildInfo, Metrics, Scrape};
    use super::*;

    #[test]
    fn transitions_exist_before_they_happen_and_are_told_apart() {
        let m = Metrics::new(BuildInfo::current());
        let up = m.upstream("orders");
        up.transitions(State::Failed, Cause::SelfIsolated).inc();
        up.transitions(State::Active, Cause::None).inc_by(2);
        let text = String::from_utf8(m.render(&Scrape::default()).1).unwrap();
        let all: Vec<&str> =
            text.lines().filter(|l| l.starts_with("sidebeat_upstream_transitions_total{")).collect();
        assert_eq!(all.len(), State::ALL.len() * Cause::ALL.len());
        let want =
            r#"sidebeat_upstream_transitions_total{cause="self_isolated",to="failed",upstream="orders"} 1"#;
        assert!(all.contains(&want));
        let want = r#"sidebeat_upstream_transitions_total{cause="none",to="active",upstream="orders"} 2"#;
        assert!(all.contains(&want));
        assert_eq!(all.iter().filter(|l| l.ends_with(" 0")).count(), all.len() - 2);
    }

    #[test]
    fn configured_shadows_exist_before_they_change_their_mind() {
        let m = Metrics::new(BuildInfo::current());
        let up = m.upstream_with("orders", &["huddm", "timeout"]);
        up.shadowed("timeout", State::Failed);
        up.shadowed("phi", State::Failed);
        let text = String::from_utf8(m.render(&Scrape::default()).1).unwrap();
        let all: Vec<&str> =
            text.lines().filter(|l| l.starts_with("sidebeat_detector_shadow_transitions_total{")).collect();
        assert_eq!(all.len(), 6, "{all:?}");
        let counted: Vec<_> = all.iter().filter(|l| !l.ends_with(" 0")).collect();
        let want = r#"sidebeat_detector_shadow_transitions_total{detector="timeout",to="failed",upstream="orders"} 1"#;
        assert_eq!(counted, [&want]);
        assert!(Arc::ptr_eq(&up, &m.upstream_with("orders", &["chen", "timeout"])));
        let text = String::from_utf8(m.render(&Scrape::default()).1).unwrap();
        let chen =
            r#"sidebeat_detector_shadow_transitions_total{detector="chen",to="active",upstream="orders"} 0"#;
        assert!(text.contains(chen) && text.contains(want), "a reload adds counters and keeps the others");
    }

    #[test]
    fn a_connection_is_closed_on_every_path() {
        let m = Metrics::new(BuildInfo::current());
        let up = m.upstream("orders").connections.clone();
        let (a, b, c) = (up.open(), up.open(), up.open());
        assert_eq!(up.active(), 3);
        a.close(CloseReason::Fin);
        b.close(CloseReason::Failed);
        drop(c);
        assert_eq!(up.active(), 0);
        let closed = |r: CloseReason| up.closed[r.index()].get();
        assert_eq!(
            [closed(CloseReason::Fin), closed(CloseReason::Failed), closed(CloseReason::Error)],
            [1, 1, 1]
        );
        assert_eq!(up.total.get(), 3);
    }

    #[test]
    fn buckets_rise() {
        for buckets in [DETECTION_BUCKETS, LATENESS_BUCKETS, super::super::OWN_STALL_BUCKETS] {
            assert!(buckets.len() > 10 && buckets.windows(2).all(|w| w[0] < w[1]));
        }
    }
}
