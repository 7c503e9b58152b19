//! Pure: no IO, no clock. Rows of the comparison: as a table for people, as JSON for scripts, as a plot.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::detectors::{NAMES, Rhythm};
use super::plot::{Axis, Plot, Series};
use super::run::Outcome;
use super::scenario::{self, Scenario};
use super::seat::Counts;

/// Times of a set of faults, ms. Nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: f64,
    /// All but a hundredth.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl Spread {
    /// Of times in any order; None of none.
    pub fn of(times: &[Duration]) -> Option<Spread> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let rank = |q: f64| {
            let index = ((sorted.len() as f64 * q).ceil() as usize).max(1) - 1;
            sorted.get(index).map(|d| millis(*d))
        };
        Some(Spread { p50: rank(0.5)?, p99: rank(0.99)?, max: rank(1.0)? })
    }
}

fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}

/// One detector in one scenario, over all runs.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The scenario.
    pub scenario: &'static Scenario,
    /// Name of the detector.
    pub detector: &'static str,
    /// It heard the frames that `promise-20` caused.
    pub same_beats: bool,
    /// Virtual time without a fault.
    pub length: Duration,
    /// Frames that the peer sent in it.
    pub frames: u64,
    /// What was said in it.
    pub counts: Counts,
    /// From each fault to SUSPECT.
    pub suspect: Vec<Duration>,
    /// From each fault to FAILED.
    pub detected: Vec<Duration>,
    /// Faults never found.
    pub undetected: u32,
}

impl Cell {
    fn hours(&self) -> f64 {
        self.length.as_secs_f64() / 3600.0
    }

    /// That many per hour of one link.
    pub fn per_hour(&self, count: u64) -> f64 {
        if self.length.is_zero() { 0.0 } else { count as f64 / self.hours() }
    }
}

/// The cells of a comparison, in the order of scenarios and detectors.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The cells.
    pub cells: Vec<Cell>,
    /// What those listened to that ask nobody.
    pub rhythm: Rhythm,
}

impl Report {
    /// Adds what came of one run.
    pub fn add(&mut self, scenario: &'static Scenario, outcome: &Outcome, fault: bool) {
        for v in &outcome.verdicts {
            let cell = self.cell(scenario, v.detector, v.same_beats);
            if !fault {
                cell.length += outcome.length;
                cell.frames += outcome.frames;
                cell.counts = cell.counts + v.counts;
                continue;
            }
            cell.suspect.extend(v.suspect);
            match v.failed {
                Some(after) => cell.detected.push(after),
                None => cell.undetected += 1,
            }
        }
    }

    fn cell(&mut self, scenario: &'static Scenario, detector: &'static str, same_beats: bool) -> &mut Cell {
        let found =
            |c: &Cell| (c.scenario.name, c.detector, c.same_beats) == (scenario.name, detector, same_beats);
        let index = self.cells.iter().position(found).unwrap_or_else(|| {
            self.cells.push(Cell {
                scenario,
                detector,
                same_beats,
                length: Duration::ZERO,
                frames: 0,
                counts: Counts::default(),
                suspect: Vec::new(),
                detected: Vec::new(),
                undetected: 0,
            });
            self.cells.len() - 1
        });
        &mut self.cells[index]
    }

    /// The cell of that scenario and detector.
    pub fn find(&self, scenario: &str, detector: &str, same_beats: bool) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|c| (c.scenario.name, c.detector, c.same_beats) == (scenario, detector, same_beats))
    }

    /// Puts the cells in order; leaves those of the wanted detectors.
    pub fn sort(&mut self, wanted: &[&str]) {
        self.cells.retain(|c| wanted.contains(&c.detector));
        let place = |c: &Cell| {
            let scenario = scenario::ALL.iter().position(|s| s.name == c.scenario.name);
            (scenario, NAMES.iter().position(|n| *n == c.detector), c.same_beats)
        };
        self.cells.sort_by_key(place);
    }

    /// Whether `promise-20` found every fault.
    pub fn held(&self) -> bool {
        self.cells.iter().filter(|c| c.detector == "promise-20").all(|c| c.undetected == 0)
    }

    /// One JSON object.
    pub fn json(&self) -> String {
        let rows: Vec<Row> = self.cells.iter().map(Row::of).collect();
        let text = serde_json::to_string_pretty(&serde_json::json!({ "beats": self.beats(), "rows": rows }));
        text.unwrap_or_default() + "\n"
    }

    /// A table.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut scenario = "";
        for cell in &self.cells {
            if cell.scenario.name != scenario {
                scenario = cell.scenario.name;
                heading(cell, &mut out);
            }
            line(cell, &mut out);
        }
        out.push_str(NOTES);
        out.push_str(match self.rhythm {
            Rhythm::Sidecar => NOTES_SIDECAR,
            Rhythm::Reference => NOTES_REFERENCE,
        });
        out
    }

    fn beats(&self) -> &'static str {
        match self.rhythm {
            Rhythm::Sidecar => "sidecar",
            Rhythm::Reference => "reference",
        }
    }

    /// Time to detect against mistakes, all detectors of one scenario.
    pub fn plot(&self, scenario: &Scenario) -> Plot {
        let of = |c: &&Cell| c.scenario.name == scenario.name;
        let series = self.cells.iter().filter(of).filter_map(|c| {
            let beats = if c.same_beats { ", same beats" } else { "" };
            let spread = Spread::of(&c.detected)?;
            Some(Series::new(
                format!("{}{beats}", c.detector),
                vec![(c.per_hour(c.counts.failed), spread.p50)],
            ))
        });
        Plot {
            title: format!("{}: {}", scenario.name, scenario.about),
            x: Axis::log("false FAILED per hour"),
            y: Axis::log("T_D p50 of a black hole, ms"),
            series: series.collect(),
        }
    }
}

/// A row of the JSON, as the contract names its fields.
#[derive(Serialize)]
struct Row {
    scenario: &'static str,
    detector: &'static str,
    same_beats: bool,
    hours: f64,
    links: u32,
    frames_per_s: f64,
    false_failed_per_hour: f64,
    false_suspect_per_hour: f64,
    /// Of both, those because the peer seemed not to hear us.
    unheard_failed_per_hour: f64,
    unheard_suspect_per_hour: f64,
    /// Of the former, those because the peer vouched so for its service.
    service_failed_per_hour: f64,
    outages_healed_per_hour: f64,
    /// Absent for detectors that ask: only their verdicts count.
    silences_failed_per_hour: Option<f64>,
    challenges_per_s: f64,
    suspect_ms: Option<Spread>,
    t_d_ms: Option<Spread>,
    faults: usize,
    undetected: u32,
}

impl Row {
    fn of(c: &Cell) -> Row {
        let per_second = |n: u64| round(c.per_hour(n) / 3600.0);
        let per_hour = |n: u64| round(c.per_hour(n));
        Row {
            scenario: c.scenario.name,
            detector: c.detector,
            same_beats: c.same_beats,
            hours: round(c.hours()),
            links: c.scenario.links,
            frames_per_s: per_second(c.frames),
            false_failed_per_hour: per_hour(c.counts.failed),
            false_suspect_per_hour: per_hour(c.counts.suspect),
            unheard_failed_per_hour: per_hour(c.counts.failed_unheard),
            unheard_suspect_per_hour: per_hour(c.counts.suspect_unheard),
            service_failed_per_hour: per_hour(c.counts.failed_service),
            outages_healed_per_hour: per_hour(c.counts.outages),
            silences_failed_per_hour: (!c.detector.starts_with("promise"))
                .then(|| per_hour(c.counts.silences)),
            challenges_per_s: if c.detector.starts_with("promise") {
                per_second(c.counts.challenges)
            } else {
                0.0
            },
            suspect_ms: Spread::of(&c.suspect),
            t_d_ms: Spread::of(&c.detected),
            faults: c.detected.len() + c.undetected as usize,
            undetected: c.undetected,
        }
    }
}

fn round(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

const NOTES: &str = "
FAILED/h, SUSPECT/h: verdicts while nothing was wrong, per hour of one link. silences/h: silences beyond the law's limit,
whatever the state was (detectors that ask are counted by their verdicts only). T_D, SUSPECT: ms from the fault.
";
const NOTES_SIDECAR: &str = "\
\"same beats\": hears exactly the frames that promise-20 causes; else a detector other than promise hears a peer that beats
100 ms after its last frame.
";
const NOTES_REFERENCE: &str = "\
Beats of the reference simulation: detectors other than promise are bare laws, FAILED/h and SUSPECT/h are silences, T_D is that of
the law. \"same beats\": after business the peer promises 20 ms, then 40, 80 and 100 with each beat, and nobody asks it; else it beats
100 ms after its last frame.
";

fn heading(c: &Cell, out: &mut String) {
    let links = if c.scenario.links > 1 { format!(", {} links", c.scenario.links) } else { String::new() };
    let faults = c.detected.len() + c.undetected as usize;
    let _ = writeln!(
        out,
        "\n{}: {} ({:.1} h of one link{links}, {faults} faults)\n{:<26}{:>9}{:>11}{:>11}{:>11}{:>8}{:>8}{:>8}{:>9}{:>9}{:>9}{:>8}",
        c.scenario.name,
        c.scenario.about,
        c.hours(),
        "detector",
        "frames/s",
        "FAILED/h",
        "silences/h",
        "SUSPECT/h",
        "asks/s",
        "T_D p50",
        "p99",
        "max",
        "SUSPECT",
        "p99",
        "missed",
    );
}

fn line(c: &Cell, out: &mut String) {
    let row = Row::of(c);
    let name = if c.same_beats { format!("{}, same beats", c.detector) } else { c.detector.to_owned() };
    let count = |x: f64| if x >= 100.0 { format!("{x:.0}") } else { format!("{x:.1}") };
    let time = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), count);
    let (t_d, suspect) = (row.t_d_ms, row.suspect_ms);
    let _ = writeln!(
        out,
        "{name:<26}{:>9.1}{:>11}{:>11}{:>11}{:>8.2}{:>8}{:>8}{:>9}{:>9}{:>9}{:>8}",
        row.frames_per_s,
        count(row.false_failed_per_hour),
        time(row.silences_failed_per_hour),
        count(row.false_suspect_per_hour),
        row.challenges_per_s,
        time(t_d.map(|s| s.p50)),
        time(t_d.map(|s| s.p99)),
        time(t_d.map(|s| s.max)),
        time(suspect.map(|s| s.p50)),
        time(suspect.map(|s| s.p99)),
        row.undetected,
    );
}

#[cfg(test)]
mod tests {
    use super::super::run::Verdicts;
    use super::*;

    fn outcome(detector: &'static str, failed: u64, after: Option<u64>) -> Outcome {
        Outcome {
            length: Duration::from_secs(1800),
            frames: 3600,
            verdicts: vec![Verdicts {
                detector,
                same_beats: false,
                counts: Counts { failed, suspect: failed * 2, silences: failed * 3, ..Counts::default() },
                suspect: after.map(|a| Duration::from_millis(a / 2)),
                failed: after.map(Duration::from_millis),
                scores: Vec::new(),
            }],
        }
    }

    fn sample() -> Report {
        let mut report = Report::default();
        let s = &scenario::ALL[0];
        for failed in [1, 2] {
            report.add(s, &outcome("phi", failed, None), false);
        }
        report.add(s, &outcome("promise-20", 0, None), false);
        for after in [Some(10), Some(30), Some(20), None] {
            report.add(s, &outcome("phi", 9, after), true);
        }
        report.sort(&NAMES);
        report
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(Spread::of(&times), Some(Spread { p50: 100.0, p99: 198.0, max: 200.0 }));
        assert_eq!(Spread::of(&times[..1]), Some(Spread { p50: 200.0, p99: 200.0, max: 200.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn runs_add_up_and_faults_do_not_count_as_mistakes() {
        let report = sample();
        let order: Vec<_> = report.cells.iter().map(|c| c.detector).collect();
        assert_eq!(order, ["promise-20", "phi"]);
        let phi = report.find("steady", "phi", false).unwrap();
        assert_eq!((phi.length, phi.frames, phi.undetected), (Duration::from_secs(3600), 7200, 1));
        assert_eq!(phi.per_hour(phi.counts.failed), 3.0);
        assert!(report.held());
        let mut worse = report.clone();
        worse.cells[0].undetected = 1;
        assert!(!worse.held());
    }

    #[test]
    fn the_json_has_the_fields_of_the_contract() {
        let v: serde_json::Value = serde_json::from_str(&sample().json()).unwrap();
        let row = &v["rows"][1];
        assert_eq!((&row["scenario"], &row["detector"]), (&"steady".into(), &"phi".into()));
        assert_eq!(row["same_beats"], false);
        for key in
            ["hours", "frames_per_s", "false_failed_per_hour", "false_suspect_per_hour", "challenges_per_s"]
        {
            assert!(row[key].is_number(), "{key}");
        }
        assert_eq!(row["silences_failed_per_hour"], 9.0);
        for key in ["p50", "p99", "max"] {
            assert!(row["t_d_ms"][key].is_number() && row["suspect_ms"][key].is_number(), "{key}");
        }
        assert_eq!((&row["undetected"], &row["faults"]), (&1.into(), &4.into()));
        assert!(v["rows"][0]["silences_failed_per_hour"].is_null() && v["rows"][0]["t_d_ms"].is_null());
    }

    #[test]
    fn the_table_and_the_plot_name_everybody() {
        let report = sample();
        let text = report.text();
        assert!(
            text.contains("steady: frames each 5-20 ms")
                && text.contains("promise-20")
                && text.contains("phi")
        );
        let plot = report.plot(&scenario::ALL[0]);
        assert_eq!(plot.series, [Series::new("phi", vec![(3.0, 20.0)])], "who found nothing has no place");
    }
}
