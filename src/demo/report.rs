//! Pure: no IO, no clock. The report: what `--json` prints, and the same as a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::events::{EndpointStatus, Event};
use super::faults::{Expected, Kind, Seen, met};
use super::ledger::{Latency, Ledger, Watch};
use super::quota::Throttled;
use crate::stamp::Stamp;
use crate::verdict::State;

/// A transition of the target, relative to the fault.
#[derive(Clone, Debug, Serialize)]
pub struct Transition {
    /// Fault to transition, ms.
    pub ms: f64,
    /// State after.
    pub to: &'static str,
    /// Why.
    pub cause: String,
}

impl Transition {
    /// From an event.
    pub fn new(e: &Event, fault: Stamp) -> Transition {
        Transition { ms: e.at().millis_since(fault), to: e.to.name(), cause: e.cause.clone() }
    }
}

/// One fault. Times in ms; null where it never happened.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// Kind.
    pub kind: &'static str,
    /// Name of the service hit, or "client".
    pub target: String,
    /// What had to follow.
    pub expected: &'static str,
    /// Whether it did; null if skipped.
    pub met: Option<bool>,
    /// What it came to: "failed", "suspect", "plain" (goes on without its sidecar), "active".
    pub verdict: &'static str,
    /// Most refined cause.
    pub cause: Option<String>,
    /// Cause at the first verdict.
    pub first_cause: Option<String>,
    /// Fault to leaving ACTIVE.
    pub suspected_ms: Option<f64>,
    /// Fault to FAILED.
    pub detected_ms: Option<f64>,
    /// Last sign of life to FAILED, as the observer says.
    pub from_silence_ms: Option<f64>,
    /// SIGKILL to the end of a connection of the demo's own to the service: what the kernel takes to tear a process down. No
    /// detector is faster.
    pub kernel_ms: Option<f64>,
    /// Fault to the first answer, from another endpoint, of a request sent after the fault.
    pub served_elsewhere_ms: Option<f64>,
    /// Fault to the last request on a new connection that it still caught.
    pub last_caught_ms: Option<f64>,
    /// Requests that failed.
    pub failed_requests: u64,
    /// Requests that needed their second try.
    pub retried_requests: u64,
    /// Longest latency meanwhile.
    pub worst_ms: f64,
    /// End of the fault to ACTIVE.
    pub healed_ms: Option<f64>,
    /// Beginning to end of the fault.
    pub held_ms: f64,
    /// Lateness that the observer had learned for this endpoint when the fault came.
    pub peak_ms: Option<f64>,
    /// Lateness of its own loop that the endpoint's sidecar told then: FAILED by silence waits for it too.
    pub noise_ms: Option<f64>,
    /// Beginning of the run to the fault, s.
    pub at_s: f64,
    /// All transitions meanwhile.
    pub transitions: Vec<Transition>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Fault {
    /// What was seen of a fault; target, times of its own and requests are to be filled in.
    pub fn new(kind: Kind, expected: Expected, seen: &Seen) -> Fault {
        let verdict = match seen {
            Seen { detected_ms: Some(_), .. } => "failed",
            Seen { plain: true, .. } => "plain",
            Seen { suspected_ms: Some(_), .. } => "suspect",
            _ => "active",
        };
        Fault {
            kind: kind.name(),
            target: String::new(),
            expected: expected.name(),
            met: Some(met(kind, expected, seen, 0)),
            verdict,
            cause: seen.cause.clone(),
            first_cause: seen.first_cause.clone(),
            suspected_ms: seen.suspected_ms,
            detected_ms: seen.detected_ms,
            from_silence_ms: seen.from_silence_ms,
            kernel_ms: None,
            served_elsewhere_ms: None,
            last_caught_ms: None,
            failed_requests: 0,
            retried_requests: 0,
            worst_ms: 0.0,
            healed_ms: seen.healed_ms,
            held_ms: 0.0,
            peak_ms: None,
            noise_ms: None,
            at_s: 0.0,
            transitions: Vec::new(),
            skipped: None,
        }
    }

    /// A fault that could not be injected.
    pub fn skipped(kind: Kind, target: &str, expected: Expected, why: String) -> Fault {
        let fault = Fault::new(kind, expected, &Seen::default());
        Fault { target: target.to_owned(), met: None, skipped: Some(why), ..fault }
    }

    /// Fills in what became of the requests.
    pub fn watched(&mut self, w: &Watch) {
        self.served_elsewhere_ms = w.served_elsewhere_ms();
        self.last_caught_ms = w.last_caught_ms();
        (self.failed_requests, self.retried_requests, self.worst_ms) = (w.failed, w.retried, w.worst_ms);
    }

    /// Fills in what FAILED by silence had to wait for: from the first FAILED of the fault, or the first SUSPECT, whose
    /// silence has taught nothing yet; if there was neither, as it was before.
    pub fn waited<'e>(&mut self, during: impl Iterator<Item = &'e Event>, before: Option<&EndpointStatus>) {
        let (mut failed, mut doubted) = (None, None);
        for e in during {
            match e.to {
                State::Failed => failed = failed.or(Some(e)),
                State::Suspect => doubted = doubted.or(Some(e)),
                State::Active => {}
            }
        }
        let said = failed.or(doubted);
        self.peak_ms = said.and_then(|e| e.peak_ms).or_else(|| before?.peak_ms);
        self.noise_ms = said.and_then(|e| e.noise_ms).or_else(|| before?.noise_ms);
    }

    /// One line for people.
    pub fn line(&self) -> String {
        if let Some(why) = &self.skipped {
            return format!("{:<14} skipped: {}", self.kind, why.lines().next().unwrap_or_default());
        }
        let mark = if self.met == Some(true) { "ok " } else { "NOT MET" };
        let mut out = format!("{:<14} {:<9} {mark} {}", self.kind, self.target, self.verdict);
        let _ = write!(out, " ({})", self.cause.as_deref().unwrap_or("no cause"));
        for (label, ms) in [
            ("suspect after", self.suspected_ms),
            ("kernel's end after", self.kernel_ms),
            ("failed after", self.detected_ms),
            ("served elsewhere after", self.served_elsewhere_ms),
            ("healed after", self.healed_ms),
        ] {
            if let Some(ms) = ms {
                let _ = write!(out, ", {label} {ms:.1} ms");
            }
        }
        let _ = write!(out, ", {} requests failed, {} retried", self.failed_requests, self.retried_requests);
        out
    }
}

/// Median, 99th percentile, maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// Nearest-rank percentiles; None without values.
pub fn spread(values: impl Iterator<Item = Option<f64>>) -> Option<Spread> {
    let rank = ranks(values)?;
    Some(Spread { p50: rank(0.5), p99: rank(0.99), max: rank(1.0) })
}

/// The nearest-rank percentile, from 0 to 1, of these values; None without values.
pub(crate) fn ranks(values: impl Iterator<Item = Option<f64>>) -> Option<impl Fn(f64) -> f64> {
    let mut all: Vec<f64> = values.flatten().collect();
    all.sort_by(f64::total_cmp);
    let some = !all.is_empty();
    some.then_some(move |q: f64| all[((q * all.len() as f64).ceil() as usize).clamp(1, all.len()) - 1])
}

/// All faults of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct OfKind {
    /// How many were done.
    pub n: usize,
    /// Of these, met.
    pub met: usize,
    /// See [`Fault`].
    pub suspected_ms: Option<Spread>,
    /// See [`Fault`].
    pub detected_ms: Option<Spread>,
    /// See [`Fault`].
    pub from_silence_ms: Option<Spread>,
    /// See [`Fault`].
    pub kernel_ms: Option<Spread>,
    /// See [`Fault`].
    pub served_elsewhere_ms: Option<Spread>,
    /// See [`Fault`].
    pub last_caught_ms: Option<Spread>,
    /// See [`Fault`].
    pub healed_ms: Option<Spread>,
}

/// Groups the faults that were done by kind.
pub fn percentiles(faults: &[Fault]) -> BTreeMap<&'static str, OfKind> {
    let mut groups: BTreeMap<&'static str, Vec<&Fault>> = BTreeMap::new();
    for f in faults.iter().filter(|f| f.skipped.is_none()) {
        groups.entry(f.kind).or_default().push(f);
    }
    let of = |list: &[&Fault], field: fn(&Fault) -> Option<f64>| spread(list.iter().map(|f| field(f)));
    let row = |list: Vec<&Fault>| OfKind {
        n: list.len(),
        met: list.iter().filter(|f| f.met == Some(true)).count(),
        suspected_ms: of(&list, |f| f.suspected_ms),
        detected_ms: of(&list, |f| f.detected_ms),
        from_silence_ms: of(&list, |f| f.from_silence_ms),
        kernel_ms: of(&list, |f| f.kernel_ms),
        served_elsewhere_ms: of(&list, |f| f.served_elsewhere_ms),
        last_caught_ms: of(&list, |f| f.last_caught_ms),
        healed_ms: of(&list, |f| f.healed_ms),
    };
    groups.into_iter().map(|(kind, list)| (kind, row(list))).collect()
}

/// Totals of the load.
#[derive(Clone, Debug, Serialize)]
pub struct Requests {
    /// Requests that ended.
    pub total: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Of these, tried twice.
    pub retried: u64,
    /// Per second.
    pub rate: f64,
    /// From the intended instant to the last byte of the answer.
    pub latency_ms: Latency,
    /// Answers per service.
    pub served: BTreeMap<String, u64>,
}

impl Requests {
    /// From the counts of a run of `seconds`.
    pub fn new(ledger: &Ledger, seconds: f64, names: &[String]) -> Requests {
        Requests {
            total: ledger.total,
            failed: ledger.failed,
            retried: ledger.retried,
            rate: ledger.total as f64 / seconds.max(0.001),
            latency_ms: ledger.latency(),
            served: names.iter().cloned().zip(ledger.served.iter().copied()).collect(),
        }
    }
}

/// Mistakes after the first minute that a run without faults, of up to an hour, may have: the project's goal.
pub const SOAK_MISTAKES: usize = 1;

/// What one detector said that no fault explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// FAILED transitions that no fault explains.
    pub mistakes: usize,
    /// Of these, after the first minute: what there is to learn is learned.
    pub mistakes_after_minute: usize,
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Length of the run, s.
    pub duration_s: f64,
    /// Load.
    pub requests: Requests,
    /// FAILED transitions that no fault explains.
    pub mistakes: usize,
    /// Of these, after the first minute: what there is to learn is learned.
    pub mistakes_after_minute: usize,
    /// SUSPECT transitions of all endpoints, whatever caused them.
    pub suspects: usize,
    /// Learned lateness of each endpoint at the end, ms.
    pub peaks_ms: BTreeMap<String, Option<f64>>,
    /// These transitions, in words.
    pub mistake_events: Vec<String>,
    /// The same of each detector of `--shadows`, by name.
    pub shadows: BTreeMap<String, Wrong>,
    /// All faults, in order.
    pub faults: Vec<Fault>,
    /// The same by kind.
    pub percentiles: BTreeMap<&'static str, OfKind>,
    /// How late 1 ms tickers beside the load were woken, one per processor, ms.
    pub noise: Latency,
    /// How often by 15 ms or more: nothing ran on that processor.
    pub stops: u64,
    /// "namespaces" or "loopback".
    pub network: &'static str,
    /// The sidecars see their services' processes.
    pub pid_seen: bool,
    /// Number of services.
    pub services: usize,
    /// Seed of the plan.
    pub seed: u64,
    /// What `--cpu-quota` did to each sidecar; empty without.
    pub throttled: BTreeMap<String, Throttled>,
    /// What could not be had here.
    pub notes: Vec<String>,
}

impl Report {
    /// Why the run is no success; empty if it is one. A run without faults is a soak: it has its own goal.
    pub fn reasons(&self) -> Vec<String> {
        if self.faults.is_empty() && self.mistakes_after_minute > SOAK_MISTAKES {
            let n = self.mistakes_after_minute;
            return vec![format!("{n} mistakes after the first minute, at most {SOAK_MISTAKES} allowed")];
        }
        let missed = self.faults.iter().filter(|f| f.met == Some(false));
        missed
            .map(|f| format!("{} of {}: expected {}, came to {}", f.kind, f.target, f.expected, f.verdict))
            .collect()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let r = &self.requests;
        for f in &self.faults {
            let _ = writeln!(out, "{}", f.line());
        }
        let _ = writeln!(
            out,
            "\n{} requests in {:.1} s ({:.0}/s), {} failed, {} retried; latency p50 {:.2} ms, p99 {:.2} ms",
            r.total, self.duration_s, r.rate, r.failed, r.retried, r.latency_ms.p50, r.latency_ms.p99
        );
        let _ = writeln!(
            out,
            "{} mistakes, {} of them after the first minute, {} transitions to SUSPECT; own wake-ups late by p50 {:.2} ms, \
             p99 {:.2} ms, max {:.2} ms, {} times by 15 ms or more; network: {}",
            self.mistakes,
            self.mistakes_after_minute,
            self.suspects,
            self.noise.p50,
            self.noise.p99,
            self.noise.max,
            self.stops,
            self.network
        );
        for (name, wrong) in &self.shadows {
            let Wrong { mistakes, mistakes_after_minute } = wrong;
            let _ = writeln!(
                out,
                "{name} (shadow): {mistakes} mistakes, {mistakes_after_minute} of them after the first minute"
            );
        }
        for (name, peak) in &self.peaks_ms {
            let _ = writeln!(out, "{name}: learned lateness {:.1} ms", peak.unwrap_or_default());
        }
        for (name, t) in &self.throttled {
            let _ = writeln!(
                out,
                "{name}: out of processor time in {} of {} periods, {} ms in all",
                t.throttled, t.periods, t.ms
            );
        }
        for line in self.mistake_events.iter().chain(&self.notes) {
            let _ = writeln!(out, "note: {line}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: Kind, ms: f64) -> Fault {
        let seen = Seen {
            detected_ms: Some(ms),
            suspected_ms: Some(ms / 2.0),
            healed: true,
            cause: Some("crash".into()),
            ..Seen::default()
        };
        Fault::new(kind, kind.expected(true), &seen)
    }

    fn report(faults: Vec<Fault>) -> Report {
        Report {
            duration_s: 20.0,
            requests: Requests::new(&Ledger::new(2), 20.0, &["orders-1".into(), "orders-2".into()]),
            mistakes: 0,
            mistakes_after_minute: 0,
            suspects: 0,
            peaks_ms: BTreeMap::new(),
            mistake_events: Vec::new(),
            shadows: [("phi".to_owned(), Wrong { mistakes: 3, mistakes_after_minute: 2 })].into(),
            percentiles: percentiles(&faults),
            faults,
            noise: Latency::default(),
            stops: 0,
            network: "loopback",
            pid_seen: true,
            services: 2,
            seed: 1,
            throttled: BTreeMap::new(),
            notes: vec!["no namespaces".into()],
        }
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        assert_eq!(spread([].into_iter()), None);
        assert_eq!(spread([None, Some(2.0)].into_iter()), Some(Spread { p50: 2.0, p99: 2.0, max: 2.0 }));
        let many = spread((1..=200).map(|n| Some(f64::from(n)))).unwrap();
        assert_eq!(many, Spread { p50: 100.0, p99: 198.0, max: 200.0 });
    }

    #[test]
    fn the_json_has_the_fields_of_the_contract() {
        let skipped = Fault::skipped(Kind::Cut, "orders-1", Expected::Failed, "no ip".into());
        let r = report(vec![fault(Kind::Kill, 1.2), fault(Kind::Kill, 1.4), skipped]);
        let v = serde_json::to_value(&r).unwrap();
        for key in ["duration_s", "mistakes", "faults", "percentiles", "noise", "notes"] {
            assert!(!v[key].is_null(), "{key}");
        }
        for key in ["total", "failed", "retried", "rate"] {
            assert!(v["requests"][key].is_number(), "{key}");
        }
        assert_eq!(v["faults"][0]["kind"], "kill");
        assert_eq!(v["faults"][0]["expected"], "failed");
        assert_eq!(v["faults"][0]["met"], true);
        assert_eq!(v["faults"][2]["met"], serde_json::Value::Null);
        assert_eq!(v["faults"][2]["skipped"], "no ip");
        assert_eq!(v["percentiles"]["kill"]["n"], 2);
        assert_eq!(v["percentiles"]["kill"]["detected_ms"]["max"], 1.4);
        assert!(v["percentiles"]["cut"].is_null());
        assert!(r.reasons().is_empty(), "a skipped fault is no failure: {:?}", r.reasons());
        assert!(r.text().contains("skipped: no ip"));
        assert_eq!(v["shadows"]["phi"]["mistakes_after_minute"], 2);
        assert!(r.text().contains("phi (shadow): 3 mistakes, 2 of them after"));
    }

    /// It was asked for when the fault was over, and had learned from it.
    #[test]
    fn the_peak_is_that_of_the_fault_and_not_what_it_taught() {
        let event =
            |to: State, peak: f64| Event { to, peak_ms: Some(peak), noise_ms: Some(2.0), ..Event::default() };
        let events = [
            event(State::Suspect, 3.0),
            event(State::Active, 9.0),
            event(State::Failed, 9.0),
            event(State::Active, 80.0),
            event(State::Failed, 80.0),
        ];
        let before = EndpointStatus { peak_ms: Some(1.0), noise_ms: Some(19.0), ..EndpointStatus::default() };
        let waited = |n: usize, before: Option<&EndpointStatus>| {
            let mut f = fault(Kind::Cut, 30.0);
            f.waited(events[..n].iter(), before);
            (f.peak_ms, f.noise_ms)
        };
        assert_eq!(waited(5, Some(&before)), (Some(9.0), Some(2.0)));
        assert_eq!(waited(2, Some(&before)), (Some(3.0), Some(2.0)));
        assert_eq!(waited(0, Some(&before)), (Some(1.0), Some(19.0)));
        assert_eq!(waited(0, None), (None, None));
    }

    #[test]
    fn one_missed_expectation_spoils_the_run() {
        let reasons = report(vec![fault(Kind::Kill, 1.0), fault(Kind::Notice, 1.0)]).reasons();
        assert_eq!(reasons, ["notice of : expected not failed, came to failed"]);
    }

    /// Any number of mistakes was a success.
    #[test]
    fn a_soak_may_be_wrong_once() {
        let soak = |mistakes_after_minute| Report { mistakes_after_minute, ..report(Vec::new()) };
        for n in 0..=SOAK_MISTAKES {
            assert!(soak(n).reasons().is_empty(), "{n}");
        }
        let reasons = soak(SOAK_MISTAKES + 1).reasons();
        assert!(
            reasons.len() == 1 && reasons[0].starts_with("2 mistakes after the first minute"),
            "{reasons:?}"
        );
        let with_faults = Report { mistakes_after_minute: 5, ..report(vec![fault(Kind::Kill, 1.0)]) };
        assert!(with_faults.reasons().is_empty(), "with faults the goal is what each must lead to");
    }
}
