//! Pure: no IO, no clock. `/status` for people.

use std::fmt::Write;

use super::report::{Endpoint, Inbound, Status};
use crate::verdict::State;

const DASH: &str = "-";

/// One cell; `colour` is an ANSI code.
struct Cell {
    text: String,
    colour: Option<&'static str>,
}

impl Cell {
    // Names come from peers too: nothing in them may steer the terminal.
    fn new(text: impl AsRef<str>) -> Cell {
        let text = text.as_ref().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        Cell { text, colour: None }
    }

    fn right(number: Option<f64>, decimals: usize) -> Cell {
        Cell::new(number.map_or(DASH.to_owned(), |n| format!("{n:.decimals$}")))
    }
}

/// Left-aligned columns, two spaces between, no blanks at the end of a line.
fn aligned(head: &[&str], rows: Vec<Vec<Cell>>, colours: bool, out: &mut String) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|r| r.get(column)).map(|c| c.text.chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let heads = head.iter().map(|h| Cell { text: (*h).to_owned(), colour: None }).collect();
    for row in std::iter::once(heads).chain(rows) {
        let last = row.len().saturating_sub(1);
        for (i, cell) in row.iter().enumerate() {
            let pad = if i == last { 0 } else { widths[i] - cell.text.chars().count() + 2 };
            let done = match cell.colour.filter(|_| colours) {
                Some(code) => write!(out, "\x1b[{code}m{}\x1b[0m{:pad$}", cell.text, ""),
                None => write!(out, "{}{:pad$}", cell.text, ""),
            };
            done.expect("a String takes everything");
        }
        out.push('\n');
    }
}

/// The whole screen.
pub(super) fn render(s: &Status, colours: bool) -> String {
    let up = humantime::format_duration(std::time::Duration::from_secs(s.uptime_s.max(0.0) as u64));
    let draining = if s.draining { ", draining" } else { "" };
    let mut out = format!("{}  up {up}{draining}\n", Cell::new(&s.node).text);
    let mut rows = Vec::new();
    for u in &s.upstreams {
        rows.extend(u.endpoints.iter().map(|e| row(&u.name, e)));
    }
    if !rows.is_empty() {
        out.push('\n');
        let head = [
            "UPSTREAM", "ENDPOINT", "NODE", "STATE", "CAUSE", "SCORE", "LINK", "SERVICE", "VOUCH", "VIA",
            "SILENCE", "PROMISE", "RTT", "PEAK", "NOISE", "QUEUE", "MISTAKES",
        ];
        aligned(&head, rows, colours, &mut out);
    }
    if !s.inbounds.is_empty() {
        out.push('\n');
        let rows = s.inbounds.iter().flat_map(inbound_rows);
        let head = ["INBOUND", "SERVICE", "VOUCH", "LINKS", "CONNECTIONS", "EVIDENCE"];
        aligned(&head, rows.collect(), colours, &mut out);
    }
    out
}

/// One row, and one more for each further evidence.
fn inbound_rows(i: &Inbound) -> Vec<Vec<Cell>> {
    let mut said = i.evidence.iter().map(String::as_str);
    // A sidecar of before the words has the numbers only.
    let first = said.next().unwrap_or(if i.explain.is_empty() { DASH } else { &i.explain });
    let mut rows = vec![vec![
        Cell::new(&i.name),
        Cell::new(i.service.as_deref().unwrap_or(DASH)),
        Cell::new(i.vouch.name()),
        Cell::new(i.links.to_string()),
        Cell::new(i.connections.to_string()),
        Cell::new(first),
    ]];
    rows.extend(said.map(|s| ["", "", "", "", "", s].map(Cell::new).into()));
    rows
}

fn row(upstream: &str, e: &Endpoint) -> Vec<Cell> {
    let colour = match e.state {
        State::Active => "32",
        State::Suspect => "33",
        State::Failed => "31",
    };
    let ms = |v: Option<f64>| Cell::new(v.map_or(DASH.to_owned(), millis));
    let queue = match e.backpressure {
        Some(true) => "full".to_owned(),
        _ => e.queue_ratio.map_or(DASH.to_owned(), |q| format!("{:.0}%", q * 100.0)),
    };
    vec![
        Cell::new(upstream),
        Cell::new(&e.address),
        Cell::new(e.node.as_deref().unwrap_or(DASH)),
        Cell { text: e.state.name().to_uppercase(), colour: Some(colour) },
        Cell::new(if e.cause.name() == "none" { DASH } else { e.cause.name() }),
        Cell::right(e.score, 2),
        Cell::right(e.link_score, 2),
        Cell::right(e.service_score, 2),
        Cell::new(e.vouch.name()),
        Cell::new(e.link.name()),
        ms(e.silence_ms),
        ms(e.promise_ms),
        ms(e.rtt_ms),
        ms(e.peak_ms),
        ms(e.noise_ms),
        Cell::new(queue),
        Cell::new(e.mistakes.to_string()),
    ]
}

/// Three digits and a unit: 0.02ms, 4.1ms, 103ms, 12.0s, 3.1h.
fn millis(ms: f64) -> String {
    match ms {
        m if m < 1.0 => format!("{m:.2}ms"),
        m if m < 100.0 => format!("{m:.1}ms"),
        m if m < 10_000.0 => format!("{m:.0}ms"),
        m if m < 600_000.0 => format!("{:.1}s", m / 1e3),
        m => format!("{:.1}h", m / 3.6e6),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Upstream;
    use super::*;
    use crate::verdict::Cause;

    fn status() -> Status {
        let mut dead = Endpoint::unknown("10.1.0.5:8080");
        dead.state = State::Failed;
        dead.cause = Cause::Blackhole;
        dead.score = Some(0.001);
        dead.silence_ms = Some(61_000.0);
        dead.noise_ms = Some(23.0);
        dead.node = Some("evil\x1b[2J".into());
        Status {
            node: "orders-1".into(),
            uptime_s: 61.5,
            upstreams: vec![Upstream {
                name: "inventory".into(),
                endpoints: vec![Endpoint::unknown("10.1.0.4:8080"), dead],
                ..Upstream::default()
            }],
            inbounds: vec![Inbound {
                name: "orders".into(),
                evidence: vec!["E1 progress: \x1b[2Jnothing".into(), "E2 unread queue: empty".into()],
                ..Inbound::default()
            }],
            ..Status::default()
        }
    }

    #[test]
    fn columns_stand_under_their_heads() {
        let t = render(&status(), false);
        let lines: Vec<&str> = t.lines().collect();
        assert_eq!(lines[0], "orders-1  up 1m 1s");
        for (column, values) in [
            ("STATE", ["ACTIVE", "FAILED"]),
            ("CAUSE", ["-", "blackhole"]),
            ("SILENCE", ["-", "61.0s"]),
            ("NOISE", ["-", "23.0ms"]),
        ] {
            let at = lines[2].find(column).unwrap();
            for (line, value) in lines[3..].iter().zip(values) {
                assert!(line[at..].starts_with(value), "{column}:\n{t}");
            }
        }
        assert!(lines.iter().all(|l| *l == l.trim_end()), "{t}");
        let at = lines.iter().find_map(|l| l.find("EVIDENCE")).unwrap();
        let said: Vec<_> = lines.iter().filter(|l| l[at.min(l.len())..].starts_with('E')).collect();
        assert_eq!(said.len(), 3, "head and two sentences in one column:\n{t}");
    }

    #[test]
    fn a_peer_cannot_steer_the_terminal_and_colour_is_ours() {
        assert!(!render(&status(), false).contains('\x1b'));
        let coloured = render(&status(), true);
        assert!(coloured.contains("\x1b[31mFAILED\x1b[0m") && coloured.contains("evil?[2J"));
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (ms, text) in
            [(0.019, "0.02ms"), (4.06, "4.1ms"), (103.4, "103ms"), (12_000.0, "12.0s"), (7.2e6, "2.0h")]
        {
            assert_eq!(millis(ms), text);
        }
    }
}
