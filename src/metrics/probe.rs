//! What the probes of a service came to (row D15: latency and failures of probes).

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::labels::ProbeResult;
use super::{counters, register};

/// A probe, seconds: from a connect on loopback to the longest time-out that anybody would configure.
const BUCKETS: &[f64] = &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// The families behind the handles.
#[derive(Debug)]
pub(super) struct Families {
    seconds: HistogramVec,
    total: IntCounterVec,
}

impl Families {
    pub(super) fn new(r: &Registry) -> Families {
        let opts = HistogramOpts::new("sidebeat_probe_seconds", "How long probes of the local service took.");
        Families {
            seconds: register(r, HistogramVec::new(opts.buckets(BUCKETS.to_vec()), &["service"])),
            total: counters(
                r,
                "sidebeat_probes_total",
                "Probes of the local service, by result.",
                &["service", "result"],
            ),
        }
    }
}

/// Handles of the probe of one service.
#[derive(Clone, Debug)]
pub struct ProbeMetrics {
    seconds: Histogram,
    total: Vec<IntCounter>,
}

impl ProbeMetrics {
    pub(super) fn new(f: &Families, service: &str) -> ProbeMetrics {
        let counter = |r: &ProbeResult| f.total.with_label_values(&[service, r.name()]);
        ProbeMetrics {
            seconds: f.seconds.with_label_values(&[service]),
            total: ProbeResult::ALL.iter().map(counter).collect(),
        }
    }

    /// A probe ended.
    pub fn ended(&self, took: Duration, result: ProbeResult) {
        self.seconds.observe(took.as_secs_f64());
        self.total[result.index()].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BuildInfo, Metrics, Scrape};
    use super::*;

    #[test]
    fn a_probe_is_counted_and_timed_and_exists_before_it_is_made() {
        let m = Metrics::new(BuildInfo::current());
        let text = || String::from_utf8(m.render(&Scrape::default()).1).unwrap();
        assert!(!text().contains("sidebeat_probe"), "a service without a probe has no series");
        let probes = m.probes("orders");
        let zero = r#"sidebeat_probes_total{result="timeout",service="orders"} 0"#;
        assert!(text().contains(zero), "{}", text());
        probes.ended(Duration::from_millis(3), ProbeResult::Ok);
        m.probes("orders").ended(Duration::from_secs(1), ProbeResult::Timeout);
        for line in [
            r#"sidebeat_probes_total{result="ok",service="orders"} 1"#,
            r#"sidebeat_probes_total{result="failed",service="orders"} 0"#,
            r#"sidebeat_probes_total{result="timeout",service="orders"} 1"#,
            r#"sidebeat_probe_seconds_bucket{service="orders",le="0.005"} 1"#,
            r#"sidebeat_probe_seconds_count{service="orders"} 2"#,
        ] {
            assert!(text().contains(&format!("{line}\n")), "{line} in\n{}", text());
        }
    }
}
