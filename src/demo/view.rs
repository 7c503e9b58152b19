//! Pure: no IO, no clock. The live view as text with ANSI colours.

use std::fmt::Write;

use super::events::{EndpointStatus, Event};
use super::keys::KEYS;
use super::ledger::Latency;
use crate::stamp::Stamp;

/// One endpoint's row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Name of the service.
    pub name: String,
    /// What the client's sidecar says; None if it says nothing.
    pub status: Option<EndpointStatus>,
    /// Answers per second.
    pub served: f64,
    /// Under a fault now.
    pub fault: bool,
}

/// All that is shown.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Endpoints.
    pub rows: Vec<Row>,
    /// Chosen target.
    pub target: usize,
    /// Answers per second.
    pub rate: f64,
    /// Latency since the last picture.
    pub latency: Latency,
    /// Requests so far: all, failed, retried.
    pub counts: (u64, u64, u64),
    /// Last transitions.
    pub events: Vec<Event>,
    /// Beginning of the run.
    pub begin: Stamp,
    /// Last results of faults and hints.
    pub messages: Vec<String>,
    /// Columns of the terminal.
    pub width: usize,
    /// Colours wanted.
    pub colour: bool,
}

const BAR: usize = 16;

/// The picture: cursor home, lines, rest of the screen cleared.
pub fn render(m: &Model) -> String {
    let mut lines = Vec::new();
    let (total, failed, retried) = m.counts;
    lines.push(format!(
        "sidebeat demo   {:>6.0} req/s   p50 {:>7.2} ms   p99 {:>8.2} ms   {total} requests, {failed} failed, {retried} retried",
        m.rate, m.latency.p50, m.latency.p99
    ));
    lines.push(String::new());
    let head = format!(
        "   {:<10} {:<8} {:<width$} {:<13} {:<7} {:>8} {:>9} {:>9}",
        "endpoint",
        "state",
        "score",
        "cause",
        "link",
        "served/s",
        "silence",
        "peak",
        width = BAR + 5
    );
    lines.push(head);
    for (i, row) in m.rows.iter().enumerate() {
        lines.push(row_line(m, i, row));
    }
    lines.push(String::new());
    lines.extend(m.events.iter().map(|e| event_line(m, e)));
    lines.push(String::new());
    lines.extend(m.messages.iter().cloned());
    lines.push(String::new());
    lines.extend(help(m));
    let mut out = String::from("\x1b[H");
    for line in lines {
        let _ = write!(out, "{}\x1b[K\r\n", cut(&line, m.width));
    }
    out + "\x1b[J"
}

fn row_line(m: &Model, i: usize, row: &Row) -> String {
    let arrow = if i == m.target { '>' } else { ' ' };
    let mark = if row.fault { '*' } else { ' ' };
    let Some(s) = &row.status else { return format!("{arrow}{mark} {:<10} unknown", row.name) };
    let ms = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.1} ms"));
    let state = paint(m, &s.state, &format!("{:<8}", s.state.to_uppercase()));
    let bar = paint(m, &s.state, &score_bar(s.score));
    let cause = if s.cause == "none" { "" } else { &s.cause };
    format!(
        "{arrow}{mark} {:<10} {state} {bar} {cause:<13} {:<7} {:>8.0} {:>9} {:>9}",
        row.name,
        s.link,
        row.served,
        ms(s.silence_ms),
        ms(s.peak_ms)
    )
}

fn score_bar(score: Option<f64>) -> String {
    let Some(score) = score else { return format!("{:<width$}", "-", width = BAR + 5) };
    let full = ((score.clamp(0.0, 1.0) * BAR as f64).round()) as usize;
    format!("{}{} {score:.2}", "█".repeat(full), "░".repeat(BAR - full))
}

fn event_line(m: &Model, e: &Event) -> String {
    let at = e.at().since(m.begin).as_secs_f64();
    let name = m.rows.iter().find(|r| r.status.as_ref().is_some_and(|s| s.address == e.endpoint));
    let name = name.map_or(e.endpoint.as_str(), |r| r.name.as_str());
    let to = paint(m, e.to.name(), e.to.name());
    let silence = e.silence_ms.map(|ms| format!(", silent for {ms:.1} ms")).unwrap_or_default();
    let proof = if e.by_proof { ", proof" } else { "" };
    let mistake = if e.mistake { ", a mistake" } else { "" };
    format!("   {at:>9.3} s  {name}  {} -> {to}  {}{silence}{proof}{mistake}", e.from.name(), e.cause)
}

fn help(m: &Model) -> Vec<String> {
    let words: Vec<_> = KEYS.iter().map(|(k, _, what)| format!("{} {what}", char::from(*k))).collect();
    let (first, second) = words.split_at(words.len() / 2);
    let last = m.rows.len();
    vec![
        format!("   {}", first.join("   ")),
        format!("   {}", second.join("   ")),
        format!("   1-{last} target   q quit"),
    ]
}

fn paint(m: &Model, state: &str, text: &str) -> String {
    let code = match state {
        "active" => "32",
        "suspect" => "33",
        "failed" => "31",
        _ => "0",
    };
    if m.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// The line up to `width` columns; colour codes take none.
fn cut(line: &str, width: usize) -> String {
    let (mut out, mut column, mut in_code) = (String::with_capacity(line.len()), 0, false);
    for c in line.chars().filter(|c| !c.is_control() || *c == '\x1b') {
        in_code |= c == '\x1b';
        if in_code {
            out.push(c);
            in_code = c != 'm';
        } else if column < width {
            out.push(c);
            column += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::State;

    fn model(colour: bool) -> Model {
        let status = EndpointStatus {
            address: "127.0.0.1:1".into(),
            state: "failed".into(),
            score: Some(0.25),
            cause: "crash".into(),
            link: "framed".into(),
            silence_ms: Some(12.3),
            ..EndpointStatus::default()
        };
        let row = Row { name: "orders-1".into(), status: Some(status), served: 333.0, fault: true };
        let unknown = Row { name: "orders-2".into(), ..Row::default() };
        let event = Event {
            mono_ns: 2_500_000_000,
            endpoint: "127.0.0.1:1".into(),
            to: State::Failed,
            cause: "crash".into(),
            by_proof: true,
            ..Event::default()
        };
        Model { rows: vec![row, unknown], events: vec![event], width: 100, colour, ..Model::default() }
    }

    #[test]
    fn the_picture_says_what_is_known() {
        let text = render(&model(false));
        assert!(text.contains(">* orders-1   FAILED   ████░░░░░░░░░░░░ 0.25 crash"), "{text}");
        assert!(text.contains("   orders-2   unknown"));
        assert!(text.contains("2.500 s  orders-1  active -> failed  crash, proof"));
        assert!(text.contains("1-2 target") && text.contains("k kill"));
        assert!(!text.contains("\x1b[31m"));
        assert!(render(&model(true)).contains("\x1b[31m"));
    }

    #[test]
    fn a_narrow_terminal_cuts_text_and_never_codes() {
        let line = "ab\x1b[31mcd\x1b[0mef";
        assert_eq!(cut(line, 3), "ab\x1b[31mc\x1b[0m");
        assert_eq!(cut(line, 0), "\x1b[31m\x1b[0m");
        assert_eq!(cut("a\nb\tc", 10), "abc");
    }

    #[test]
    fn odd_scores_do_not_break_the_bar() {
        for s in [f64::NAN, -1.0, 7.0, f64::INFINITY] {
            assert!(score_bar(Some(s)).chars().count() >= BAR);
        }
    }
}
