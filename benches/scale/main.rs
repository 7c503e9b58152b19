//! What liveness costs at scale, measured on real sidecars and printed beside the goals of the design:
//! `cargo bench --bench scale [-- --json] [CASE...]`, where a case is `watch`, `watch-aligned`, `clients` or
//! `connections`. About two minutes, on loopback only. `SIDEBEAT=path` measures another build.

#[path = "../../tests/support/mod.rs"]
mod support;

mod cases;
mod peer;
mod usage;

use std::process::ExitCode;

/// One measured number.
pub(crate) struct Line {
    case: &'static str,
    what: String,
    value: f64,
    unit: &'static str,
    /// At most; None where the number only explains.
    goal: Option<f64>,
}

impl Line {
    fn met(&self) -> Option<bool> {
        self.goal.map(|g| self.value <= g)
    }
}

type Case = fn() -> Vec<Line>;

const CASES: [(&str, Case); 4] = [
    ("watch", cases::watch_spread),
    ("watch-aligned", cases::watch_aligned),
    ("clients", cases::clients),
    ("connections", cases::connections),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let json = args.iter().any(|a| a == "--json");
    let wanted: Vec<_> = args.iter().filter(|a| *a != "--json").collect();
    if let Some(unknown) = wanted.iter().find(|w| !CASES.iter().any(|(name, _)| name == *w)) {
        eprintln!("no case {unknown}; there are: {}", CASES.map(|(name, _)| name).join(", "));
        return ExitCode::from(64);
    }
    let chosen = CASES.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name));
    let mut lines = Vec::new();
    for (name, case) in chosen {
        eprintln!("{name} ...");
        lines.extend(case());
    }
    if json {
        print_json(&lines)
    } else {
        print_table(&lines)
    }
    ExitCode::SUCCESS
}

fn print_table(lines: &[Line]) {
    println!("{:14} {:52} {:>10} {:10} {:>8}", "case", "what", "measured", "unit", "goal");
    for l in lines {
        let goal = l.goal.map_or(String::new(), |g| format!("{g}"));
        let verdict = l.met().map_or("", |ok| if ok { "OK" } else { "MISS" });
        println!("{:14} {:52} {:10.2} {:10} {goal:>8} {verdict}", l.case, l.what, l.value, l.unit);
    }
}

fn print_json(lines: &[Line]) {
    let all: Vec<_> = lines
        .iter()
        .map(|l| {
            serde_json::json!({
                "case": l.case, "what": l.what, "value": l.value, "unit": l.unit, "goal": l.goal, "met": l.met(),
            })
        })
        .collect();
    println!("{}", serde_json::Value::Array(all));
}
