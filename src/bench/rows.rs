//! Pure: no IO, no clock. One row per fault, traffic and detector, as JSON and as a table.

use std::fmt::Write;

use serde::Serialize;

use crate::demo::events::Event;
use crate::demo::faults::{Expected, Span};
use crate::demo::late::Past;
use crate::demo::report::{Fault, ranks};
use crate::stamp::Stamp;

/// Nearest-rank percentiles of a time, ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Quantiles {
    /// None without values.
    pub fn of(values: impl Iterator<Item = Option<f64>>) -> Option<Quantiles> {
        let rank = ranks(values)?;
        Some(Quantiles { p50: rank(0.5), p90: rank(0.9), p99: rank(0.99), max: rank(1.0) })
    }
}

/// One row of the report. Times in ms from the fault's instant.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Kind of the fault.
    pub fault: &'static str,
    /// Traffic under it.
    pub traffic: &'static str,
    /// Who judged.
    pub detector: String,
    /// Acts on its verdicts; all others only watch.
    pub main: bool,
    /// Faults injected.
    pub n: usize,
    /// Of these, with the expected verdict of the main detector; null for shadows.
    pub met: Option<usize>,
    /// What had to follow.
    pub expected: &'static str,
    /// To leaving ACTIVE.
    pub suspect_ms: Option<Quantiles>,
    /// To FAILED.
    pub t_d_ms: Option<Quantiles>,
    /// To the first answer from another endpoint; null for shadows: they move nothing.
    pub served_elsewhere_ms: Option<Quantiles>,
    /// From the end of the fault to ACTIVE.
    pub healed_ms: Option<Quantiles>,
    /// Learned lateness of the endpoint at the faults, most of them; null where nothing is learned.
    pub peak_ms: Option<f64>,
    /// Lateness of its loop that the endpoint's sidecar told at the faults, most of them; null for shadows.
    pub noise_ms: Option<f64>,
    /// Requests that failed; null for shadows.
    pub failed_requests: Option<u64>,
    /// FAILED that nothing explains, between the end of the fault before and the end of this one.
    pub mistakes: usize,
    /// Faults without FAILED.
    pub undetected: usize,
    /// The most frequent cause.
    pub cause: Option<String>,
}

/// One fault that was conducted.
#[derive(Debug)]
pub struct Done {
    /// What was seen of it.
    pub fault: Fault,
    /// When and whom.
    pub span: Span,
    /// What had to follow.
    pub expected: Expected,
}

/// Names of the judges.
#[derive(Clone, Copy, Debug)]
pub struct Judges<'a> {
    /// Kind of the main detector.
    pub main: &'a str,
    /// The shadows.
    pub shadows: &'a [String],
}

/// The rows of one traffic: first the main detector's, then the shadows' of each kind.
pub fn rows(
    traffic: &'static str,
    done: &[Done],
    events: &[Event],
    shadows: &[Event],
    judges: Judges<'_>,
) -> Vec<Row> {
    let mut kinds: Vec<&'static str> = Vec::new();
    for d in done {
        if !kinds.contains(&d.fault.kind) {
            kinds.push(d.fault.kind);
        }
    }
    let spans: Vec<_> = done.iter().map(|d| (d.expected, d.span.clone())).collect();
    let of = |name: &String| -> Vec<Event> {
        shadows.iter().filter(|e| e.detector.as_ref() == Some(name)).cloned().collect()
    };
    let said: Vec<(&String, Vec<Event>)> = judges.shadows.iter().map(|n| (n, of(n))).collect();
    let watched: Vec<(&String, Past<'_>)> = said.iter().map(|(n, e)| (*n, Past::new(&spans, e))).collect();
    let acted = Past::new(&spans, events);
    let mut out = Vec::new();
    for kind in kinds {
        let mine: Vec<(usize, &Done)> =
            done.iter().enumerate().filter(|(_, d)| d.fault.kind == kind).collect();
        out.push(main_row(traffic, judges.main, &mine, count(&acted, &spans, &mine)));
        for (name, past) in &watched {
            out.push(shadow_row(traffic, &mine, name, past, count(past, &spans, &mine)));
        }
    }
    out
}

/// Mistakes that happened between the fault before one of `mine` and its own end, or belong to one of them.
fn count(past: &Past<'_>, spans: &[(Expected, Span)], mine: &[(usize, &Done)]) -> usize {
    let within = |at: Stamp| {
        mine.iter().any(|(i, d)| {
            let from = i.checked_sub(1).map_or(Stamp::ZERO, |before| spans[before].1.settled);
            at > from && at <= d.span.settled
        })
    };
    let wrong = past.mistakes();
    let here = |(e, late): &&(&Event, Option<usize>)| match late {
        Some(owner) => mine.iter().any(|(i, _)| i == owner),
        None => within(e.at()),
    };
    wrong.iter().filter(here).count()
}

fn main_row(traffic: &'static str, name: &str, mine: &[(usize, &Done)], mistakes: usize) -> Row {
    let of = |field: fn(&Fault) -> Option<f64>| Quantiles::of(mine.iter().map(|(_, d)| field(&d.fault)));
    let faults = || mine.iter().map(|(_, d)| &d.fault);
    Row {
        detector: name.to_owned(),
        main: true,
        met: Some(faults().filter(|f| f.met == Some(true)).count()),
        suspect_ms: of(|f| f.suspected_ms),
        t_d_ms: of(|f| f.detected_ms),
        served_elsewhere_ms: of(|f| f.served_elsewhere_ms),
        healed_ms: of(|f| f.healed_ms),
        peak_ms: faults().filter_map(|f| f.peak_ms).reduce(f64::max),
        noise_ms: faults().filter_map(|f| f.noise_ms).reduce(f64::max),
        failed_requests: Some(faults().map(|f| f.failed_requests).sum()),
        undetected: faults().filter(|f| f.detected_ms.is_none()).count(),
        cause: most(faults().filter_map(|f| f.cause.clone())),
        ..empty(traffic, mine, mistakes)
    }
}

fn shadow_row(
    traffic: &'static str,
    mine: &[(usize, &Done)],
    name: &str,
    past: &Past<'_>,
    mistakes: usize,
) -> Row {
    let seen: Vec<_> = mine.iter().map(|(i, _)| past.seen(*i)).collect();
    Row {
        detector: name.to_owned(),
        suspect_ms: Quantiles::of(seen.iter().map(|s| s.suspected_ms)),
        t_d_ms: Quantiles::of(seen.iter().map(|s| s.detected_ms)),
        healed_ms: Quantiles::of(seen.iter().map(|s| s.healed_ms)),
        undetected: seen.iter().filter(|s| s.detected_ms.is_none()).count(),
        ..empty(traffic, mine, mistakes)
    }
}

fn empty(traffic: &'static str, mine: &[(usize, &Done)], mistakes: usize) -> Row {
    let first = mine.first().map(|(_, d)| &d.fault);
    Row {
        fault: first.map_or("", |f| f.kind),
        traffic,
        detector: String::new(),
        main: false,
        n: mine.len(),
        met: None,
        expected: first.map_or("", |f| f.expected),
        suspect_ms: None,
        t_d_ms: None,
        served_elsewhere_ms: None,
        healed_ms: None,
        peak_ms: None,
        noise_ms: None,
        failed_requests: None,
        mistakes,
        undetected: 0,
        cause: None,
    }
}

fn most(words: impl Iterator<Item = String>) -> Option<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for word in words {
        match counts.iter_mut().find(|(w, _)| *w == word) {
            Some((_, n)) => *n += 1,
            None => counts.push((word, 1)),
        }
    }
    counts.into_iter().max_by_key(|(_, n)| *n).map(|(w, _)| w)
}

/// The rows as a table in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| fault | traffic | detector | n (met) | SUSPECT p50 / p99 | T_D p50 / p99 / max | peak | noise | elsewhere p50 / p99 | healed \
         p50 / p99 | failed requests | mistakes | no FAILED | cause |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let two = |q: &Option<Quantiles>| q.map_or("-".into(), |q| format!("{:.1} / {:.1}", q.p50, q.p99));
    for r in rows {
        let t_d = r.t_d_ms.map_or("-".into(), |q| format!("{:.1} / {:.1} / {:.1}", q.p50, q.p99, q.max));
        let name = if r.main { format!("**{}**", r.detector) } else { r.detector.clone() };
        let failed = r.failed_requests.map_or("-".into(), |n| n.to_string());
        let most = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{ms:.1}"));
        let n = r.met.map_or(r.n.to_string(), |met| format!("{} ({met})", r.n));
        let _ = writeln!(
            out,
            "| {} | {} | {name} | {n} | {} | {t_d} | {} | {} | {} | {} | {failed} | {} | {} | {} |",
            r.fault,
            r.traffic,
            two(&r.suspect_ms),
            most(r.peak_ms),
            most(r.noise_ms),
            two(&r.served_elsewhere_ms),
            two(&r.healed_ms),
            r.mistakes,
            r.undetected,
            r.cause.as_deref().unwrap_or("-"),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::faults::{Kind, Seen};
    use crate::verdict::State;

    fn event(ms: u64, endpoint: &str, to: State, detector: Option<&str>) -> Event {
        Event {
            mono_ns: ms * 1_000_000,
            endpoint: endpoint.into(),
            from: State::Active,
            to,
            cause: "silent".into(),
            detector: detector.map(str::to_owned),
            ..Event::default()
        }
    }

    fn cut(at: u64, detected: f64) -> Done {
        let seen = Seen { detected_ms: Some(detected), healed: true, ..Seen::default() };
        let span = Span {
            endpoint: Some("a:1".into()),
            at: Stamp::from_millis(at),
            end: Stamp::from_millis(at + 1200),
            settled: Stamp::from_millis(at + 1500),
        };
        let mut fault = Fault::new(Kind::Cut, Expected::Failed, &seen);
        fault.failed_requests = 2;
        Done { fault, span, expected: Expected::Failed }
    }

    #[test]
    fn a_shadow_is_judged_by_the_same_faults() {
        let done = [cut(1000, 25.0), cut(4000, 27.0)];
        let shadows = [
            event(500, "a:1", State::Failed, Some("phi")),
            event(1100, "a:1", State::Failed, Some("phi")),
            event(2300, "a:1", State::Active, Some("phi")),
            event(4090, "b:1", State::Failed, Some("phi")),
            event(4095, "a:1", State::Failed, Some("huddm")),
        ];
        let names = ["phi".to_owned(), "huddm".to_owned()];
        let judges = Judges { main: "chen", shadows: &names };
        let rows = rows("steady", &done, &[], &shadows, judges);
        let detectors: Vec<_> = rows.iter().map(|r| r.detector.as_str()).collect();
        assert_eq!(detectors, ["chen", "phi", "huddm"]);
        let (main, phi, huddm) = (&rows[0], &rows[1], &rows[2]);
        assert_eq!((main.n, main.met, main.failed_requests, main.undetected), (2, Some(2), Some(4), 0));
        assert_eq!(main.t_d_ms.map(|q| (q.p50, q.max)), Some((25.0, 27.0)));
        assert_eq!((phi.undetected, phi.mistakes), (1, 2), "one before the first fault, one of a neighbour");
        assert_eq!(phi.t_d_ms.map(|q| q.max), Some(100.0));
        assert_eq!((huddm.undetected, huddm.mistakes), (1, 0));
        let text = table(&rows);
        assert!(text.contains("| cut | steady | **chen** | 2 (2) |") && text.contains("| phi |"), "{text}");
    }

    /// It was a mistake of the next row, and the fault itself counted as missed.
    #[test]
    fn a_slow_shadow_is_credited_with_the_fault_before() {
        let mut next = cut(3000, 25.0);
        (next.fault.kind, next.span.endpoint) = ("hang", Some("b:1".into()));
        let done = [cut(1000, 25.0), next];
        let failed = Event { silence_ms: Some(3900.0), ..event(4400, "a:1", State::Failed, Some("heart")) };
        let shadows = [failed, event(4600, "a:1", State::Active, Some("heart"))];
        let names = ["heart".to_owned()];
        let rows = rows("steady", &done, &[], &shadows, Judges { main: "promise", shadows: &names });
        let heart: Vec<_> = rows.iter().filter(|r| !r.main).collect();
        assert_eq!((heart[0].fault, heart[0].undetected, heart[0].mistakes), ("cut", 0, 0));
        assert_eq!(heart[0].t_d_ms.map(|q| q.max), Some(3400.0));
        assert_eq!((heart[1].fault, heart[1].undetected, heart[1].mistakes), ("hang", 1, 0));
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        assert_eq!(Quantiles::of([None].into_iter()), None);
        let q = Quantiles::of((1..=100).map(|n| Some(f64::from(n)))).unwrap();
        assert_eq!((q.p50, q.p90, q.p99, q.max), (50.0, 90.0, 99.0, 100.0));
    }

    #[test]
    fn the_json_has_the_fields_of_the_contract() {
        let judges = Judges { main: "promise", shadows: &[] };
        let v = serde_json::to_value(&rows("idle", &[cut(1000, 25.0)], &[], &[], judges)[0]).unwrap();
        for key in [
            "fault",
            "traffic",
            "detector",
            "n",
            "suspect_ms",
            "t_d_ms",
            "served_elsewhere_ms",
            "failed_requests",
            "mistakes",
            "undetected",
        ] {
            assert!(v.get(key).is_some(), "{key}");
        }
        for key in ["p50", "p90", "p99", "max"] {
            assert!(v["t_d_ms"][key].is_number(), "{key}");
        }
    }
}
