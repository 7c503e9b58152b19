//! Pure: no IO, no clock. A finished replay as table, JSON, CSV and plot.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::rows::Row;
use super::score::{LIMIT, Score, quantile};
use super::survey::Survey;
use crate::sim::plot::{Axis, Plot, Series};

/// What the files were.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Files read.
    pub files: usize,
    /// Node ids of the sidecars that recorded, each once.
    pub nodes: Vec<String>,
    /// Damaged parts, in words.
    pub damage: Vec<String>,
    /// Holes in the records.
    pub holes: u64,
    /// Records that the recorder had to drop.
    pub lost: u64,
    /// Records of links whose beginning is missing.
    pub unknown: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Report {
    /// The files.
    pub source: Source,
    /// The first pass.
    pub survey: Survey,
    /// The rows and what they came to.
    pub rows: Vec<(Row, Score)>,
    /// Cuts in all.
    pub cuts: usize,
}

fn hours(d: Duration) -> f64 {
    d.as_secs_f64() / 3600.0
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// The numbers of one row.
struct Numbers {
    t_d: [Option<f64>; 3],
    suspect: Option<f64>,
    undetected: usize,
    t_m: Option<f64>,
    t_m_max: Option<f64>,
    t_mr: Option<f64>,
    /// Mean and p99, ms.
    recovery: [Option<f64>; 2],
    lambda: Option<f64>,
    p_a: Option<f64>,
}

impl Report {
    fn numbers(&self, score: &Score) -> Numbers {
        let detections = score.detections();
        let lived = self.survey.lived();
        Numbers {
            t_d: [0.5, 0.99, 1.0].map(|q| quantile(&detections, q)),
            suspect: quantile(&score.suspicions(), 0.5),
            undetected: score.undetected(),
            t_m: score.t_m().map(ms),
            t_m_max: (score.mistakes > 0).then(|| ms(score.wrong_max)),
            t_mr: score.t_mr().map(|d| d.as_secs_f64()),
            recovery: [score.recovery().map(ms), quantile(&score.recovery_times(), 0.99)],
            lambda: (!lived.is_zero()).then(|| score.mistakes as f64 / hours(lived)),
            p_a: (!lived.is_zero()).then(|| 1.0 - score.wrong_time().as_secs_f64() / lived.as_secs_f64()),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = self.head();
        let mut table = vec![HEADINGS.map(str::to_owned).to_vec()];
        for (row, score) in &self.rows {
            let n = self.numbers(score);
            table.push(vec![
                row.law.clone(),
                row.settings.clone(),
                n.t_d.map(|x| short(x, 1)).join(" / "),
                short(n.suspect, 1),
                score.mistakes.to_string(),
                short(n.lambda, 2),
                short(n.t_m, 1),
                short(n.t_mr, 1),
                n.recovery.map(|x| short(x, 1)).join(" / "),
                n.p_a.map_or("-".to_owned(), |p| format!("{p:.6}")),
                score.suspects.to_string(),
                n.undetected.to_string(),
            ]);
        }
        out.push_str(&columns(&table));
        let _ = writeln!(
            out,
            "\nT_D: from {} random moments, after which nothing arrives, to FAILED (none within {} s: undetected). A mistake is\n\
             a FAILED of a link that lived, T_M its duration, T_MR the time lived to the next one, lambda_M mistakes per hour.\n\
             Recovery: how long FAILED outlasted an outage. P_A: the share of the time lived without FAILED. Rows other than\n\
             the recorded one were not asked live: docs/trace.md.",
            self.cuts,
            LIMIT.as_secs()
        );
        out
    }

    fn head(&self) -> String {
        let (s, r) = (&self.source, &self.survey.recorded);
        let mut out = format!(
            "{} {} of {}: {} links in {} {}, {} arrivals, {:.3} hours, {} real failures\n",
            s.files,
            if s.files == 1 { "file" } else { "files" },
            plain(&s.nodes.join(", ")),
            self.survey.stretches.len(),
            self.survey.groups.len(),
            if self.survey.groups.len() == 1 { "endpoint" } else { "endpoints" },
            self.survey.arrivals,
            hours(self.survey.lived()),
            self.survey.failures
        );
        for ((law, settings), n) in &r.laws {
            let _ = writeln!(out, "judged by {} {} ({n})", plain(law), plain(settings));
        }
        let _ = writeln!(
            out,
            "said then: {} SUSPECT, {} FAILED, {} healed as mistakes, {} as outages; repeated now: {} of {} verdicts the same",
            r.suspects, r.failed, r.mistakes, r.outages, r.reproduced, r.repeatable
        );
        if let Some(first) = &r.first_difference {
            let _ = writeln!(out, "first difference: {first}");
        }
        if let Some(why) = &r.unknown_law {
            let _ = writeln!(out, "some links cannot be repeated: {}", plain(why));
        }
        if s.holes > 0 || s.unknown > 0 {
            let _ = writeln!(
                out,
                "{} holes ({} records lost when recording), {} records of links whose beginning is missing",
                s.holes, s.lost, s.unknown
            );
        }
        for damage in &s.damage {
            let _ = writeln!(out, "damaged: {damage}");
        }
        out.push('\n');
        out
    }

    /// For programs.
    pub fn json(&self) -> String {
        let (s, r) = (&self.source, &self.survey.recorded);
        let laws =
            r.laws.iter().map(|((law, settings), n)| json!({ "law": law, "settings": settings, "links": n }));
        let report = json!({
            "trace": {
                "files": s.files, "nodes": s.nodes, "damage": s.damage, "holes": s.holes, "lost": s.lost,
                "unknown": s.unknown, "links": self.survey.stretches.len(), "endpoints": self.survey.groups.len(),
                "arrivals": self.survey.arrivals, "hours": hours(self.survey.lived()),
                "failures": self.survey.failures,
            },
            "recorded": {
                "laws": laws.collect::<Vec<_>>(), "suspects": r.suspects, "failed": r.failed,
                "mistakes": r.mistakes, "outages": r.outages, "repeatable": r.repeatable,
                "reproduced": r.reproduced, "first_difference": r.first_difference,
                "unknown_law": r.unknown_law,
            },
            "cuts": self.cuts,
            "rows": self.rows.iter().map(|(row, score)| self.json_row(row, score)).collect::<Vec<_>>(),
        });
        format!("{report:#}\n")
    }

    fn json_row(&self, row: &Row, score: &Score) -> Value {
        let n = self.numbers(score);
        json!({
            "detector": row.law, "settings": row.settings, "value": row.value,
            "arrivals": self.survey.arrivals, "hours": hours(self.survey.lived()),
            "t_d_ms": { "p50": n.t_d[0], "p99": n.t_d[1], "max": n.t_d[2] },
            "suspect_ms": { "p50": n.suspect }, "undetected": n.undetected,
            "suspects": score.suspects, "mistakes": score.mistakes, "lambda_m": n.lambda,
            "t_m_ms": { "mean": n.t_m, "max": n.t_m_max }, "t_mr_s": n.t_mr, "p_a": n.p_a,
            "recoveries": score.recoveries.len(), "recovery_ms": { "mean": n.recovery[0], "p99": n.recovery[1] },
        })
    }

    /// One line per row.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "detector,settings,value,arrivals,hours,t_d_p50_ms,t_d_p99_ms,t_d_max_ms,suspect_p50_ms,undetected,\
             suspects,mistakes,lambda_m_per_hour,t_m_mean_ms,t_m_max_ms,t_mr_mean_s,p_a,\
             recovery_mean_ms,recovery_p99_ms\n",
        );
        let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
        for (row, score) in &self.rows {
            let n = self.numbers(score);
            let cells = [
                row.law.clone(),
                row.settings.clone(),
                number(row.value),
                self.survey.arrivals.to_string(),
                hours(self.survey.lived()).to_string(),
                number(n.t_d[0]),
                number(n.t_d[1]),
                number(n.t_d[2]),
                number(n.suspect),
                n.undetected.to_string(),
                score.suspects.to_string(),
                score.mistakes.to_string(),
                number(n.lambda),
                number(n.t_m),
                number(n.t_m_max),
                number(n.t_mr),
                number(n.p_a),
                number(n.recovery[0]),
                number(n.recovery[1]),
            ];
            // No cell holds a separator: keys and values of settings have none.
            let _ = writeln!(out, "{}", cells.join(","));
        }
        out
    }

    /// Detection time against mistakes: a line per swept law, else a mark per row.
    pub fn plot(&self) -> Plot {
        let mut series: Vec<Series> = Vec::new();
        for (row, score) in &self.rows {
            let n = self.numbers(score);
            let (Some(lambda), Some(t_d)) = (n.lambda, n.t_d[0]) else { continue };
            let name = match row.value {
                Some(_) => row.law.clone(),
                None => row.name(),
            };
            match series.iter_mut().find(|s| s.name == name && row.value.is_some()) {
                Some(line) => line.points.push((lambda, t_d)),
                None => series.push(Series::new(name, vec![(lambda, t_d)])),
            }
        }
        Plot {
            title: format!(
                "Detection time against mistakes, {:.2} hours recorded",
                hours(self.survey.lived())
            ),
            x: Axis::log("mistakes per hour (lambda_M)"),
            y: Axis::linear("T_D p50, ms"),
            series,
        }
    }
}

/// Text from a file, for a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

const HEADINGS: [&str; 12] = [
    "detector",
    "settings",
    "T_D ms p50 / p99 / max",
    "SUSPECT p50",
    "mistakes",
    "lambda_M /h",
    "T_M ms",
    "T_MR s",
    "recovery ms mean / p99",
    "P_A",
    "suspects",
    "undetected",
];

fn short(x: Option<f64>, digits: usize) -> String {
    x.map_or("-".to_owned(), |x| format!("{x:.digits$}"))
}

/// Columns as wide as they must be: words to the left, numbers to the right.
fn columns(table: &[Vec<String>]) -> String {
    let widths: Vec<usize> =
        (0..HEADINGS.len()).map(|i| table.iter().map(|r| r[i].len()).max().unwrap_or_default()).collect();
    let mut out = String::new();
    for row in table {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // A column that is empty everywhere but for its heading is left out.
            if i == 1 && table[1..].iter().all(|r| r[1].is_empty()) {
                continue;
            }
            let _ = if i < 2 { write!(line, "{cell:width$}  ") } else { write!(line, "{cell:>width$}  ") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
