//! The shape of the source, enforced: who may depend on whom, which files are pure, where the clock and `unsafe`
//! may be touched, and how long files and functions may grow. A finding reads `file:line: rule`.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What a part of the tree may touch. The longest matching prefix (relative to `src`) decides.
struct Rule {
    prefix: &'static str,
    /// Modules of this crate.
    modules: Modules,
    /// Other crates; None: any.
    crates: Option<&'static [&'static str]>,
    why: &'static str,
}

enum Modules {
    Only(&'static [&'static str]),
    Not(&'static [&'static str]),
}
use Modules::{Not, Only};

const PROGRAMS: &[&str] = &["app", "cli", "demo", "sim", "replay", "bench"];

#[rustfmt::skip]
const RULES: &[Rule] = &[
    Rule { prefix: "stamp.rs", modules: Only(&[]), crates: Some(&[]), why: "stamp is the core's only notion of time: std only" },
    Rule { prefix: "seldom.rs", modules: Only(&["stamp"]), crates: Some(&[]), why: "a limit of log lines is arithmetic" },
    Rule { prefix: "verdict.rs", modules: Only(&[]), crates: Some(&["serde"]), why: "the words of a judgement depend on nothing" },
    Rule { prefix: "clock.rs", modules: Only(&["stamp"]), crates: Some(&["tokio", "rustix"]), why: "the clock is one door, not a stage" },
    Rule { prefix: "sys/", modules: Only(&["sys", "stamp", "verdict", "clock"]), crates: None, why: "system calls know no stage" },
    Rule { prefix: "config/", modules: Only(&["config", "stamp", "verdict"]), crates: None, why: "configuration is a leaf" },
    Rule { prefix: "metrics/", modules: Only(&["metrics", "stamp", "verdict"]), crates: None, why: "metrics are a leaf: stages receive handles" },
    Rule { prefix: "wire/", modules: Only(&["wire", "stamp", "verdict"]), crates: Some(&["bytes", "thiserror", "serde"]), why: "a frame is data: fuzzable alone" },
    Rule { prefix: "detector/", modules: Only(&["detector", "stamp", "verdict"]), crates: Some(&[]), why: "a detector is driven by inputs, not frames: std, stamp, verdict" },
    Rule { prefix: "evidence/fuse", modules: Only(&["evidence", "detector", "stamp", "verdict"]), crates: Some(&[]), why: "an opinion is a pure function of observations" },
    Rule { prefix: "evidence/", modules: Not(&["proxy", "link", "upstream", "wire", "admin"]), crates: None, why: "evidence that shares the data path is deceived by it" },
    Rule { prefix: "upstream/endpoint/", modules: Only(&["upstream", "detector", "stamp", "verdict"]), crates: Some(&["serde"]), why: "the state of an endpoint is a table" },
    Rule { prefix: "upstream/balance.rs", modules: Only(&["upstream", "detector", "stamp", "verdict"]), crates: Some(&[]), why: "choice is a pure function" },
    Rule { prefix: "upstream/", modules: Not(&["proxy"]), crates: None, why: "an upstream does not know who asks it" },
    Rule { prefix: "link/", modules: Not(&["proxy", "upstream", "admin"]), crates: None, why: "a link reports verdicts; it does not know who routes by them" },
    Rule { prefix: "proxy/inbound.rs", modules: Not(&["admin"]), crates: None, why: "the inbound side answers links and observes the service; it serves no admin" },
    Rule { prefix: "proxy/meter.rs", modules: Not(&["detector", "wire", "admin"]), crates: None, why: "a meter feeds evidence and judges nothing" },
    Rule { prefix: "proxy/", modules: Not(&["detector", "wire", "evidence", "admin"]), crates: None, why: "the fast path asks for a connection and never judges health" },
    Rule { prefix: "worker/", modules: Only(&["worker", "stamp", "clock", "metrics", "verdict", "sys"]), crates: None, why: "a worker's tools know no stage" },
    Rule { prefix: "admin/", modules: Not(&["detector", "wire", "proxy", "evidence"]), crates: None, why: "admin reads snapshots" },
    Rule { prefix: "sim/", modules: Not(&["proxy", "clock", "app", "cli", "admin"]), crates: None, why: "the simulator drives the shipped pure code" },
    Rule { prefix: "trace/format", modules: Only(&["trace", "detector", "stamp"]), crates: Some(&["thiserror"]), why: "the bytes of a trace: fuzzable alone" },
    Rule { prefix: "trace/", modules: Only(&["trace", "detector", "metrics", "stamp", "clock"]), crates: None, why: "a recorder is told inputs of judges; it knows no link" },
    Rule { prefix: "replay/", modules: Not(&["proxy", "link", "upstream", "wire", "clock", "app", "cli", "admin"]), crates: None, why: "a replay drives the shipped pure code and has no clock" },
    Rule { prefix: "cli/", modules: Not(&["link", "proxy", "upstream", "wire"]), crates: None, why: "commands are thin" },
];

/// Rows of the table that must exist as files or folders, so that a rename cannot switch a rule off unseen.
const MUST_EXIST: &[&str] = &[
    "stamp.rs",
    "verdict.rs",
    "clock.rs",
    "sys/",
    "config/",
    "metrics/",
    "wire/",
    "detector/",
    "evidence/fuse",
    "upstream/endpoint/",
    "upstream/balance.rs",
    "link/",
    "proxy/",
    "admin/",
    "cli/",
    "sim/",
    "trace/format",
    "trace/",
    "replay/",
];

/// Modules whose input comes from a peer: no `expect(` outside tests. `unwrap()` is forbidden everywhere.
const PEER_INPUT: &[&str] =
    &["wire/", "link/", "proxy/", "upstream/", "evidence/", "detector/", "sys/", "trace/", "replay/"];

const PURE_FORBIDDEN: &[&str] = &[
    "tokio",
    "crate::clock",
    "Instant::now",
    "SystemTime",
    "rand",
    "std::net::Tcp",
    "std::fs",
    "std::thread",
];

const FILE_SOFT: usize = 400;
const FILE_HARD: usize = 450;
const FUNCTION_HARD: usize = 80;

/// One source file, split into lines, without comments, literals and test items (blank lines remain in their place).
struct Source {
    name: String,
    pure: bool,
    lines: Vec<String>,
}

impl Source {
    fn load(root: &Path, path: &Path) -> Source {
        let text = fs::read_to_string(path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let pure = text.lines().take_while(|l| l.starts_with("//!")).any(|l| l.starts_with("//! Pure:"));
        let lines = without_tests(blank_literals(&text)).lines().map(str::to_owned).collect();
        Source { name, pure, lines }
    }

    /// Lines that hold code, with their numbers from 1.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines.iter().enumerate().map(|(i, l)| (i + 1, l.as_str())).filter(|(_, l)| !l.trim().is_empty())
    }
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    rust_files(&root, &mut paths);
    // A `tests.rs` or a `tests` folder is the test module of its parent.
    paths.retain(|p| {
        !p.to_string_lossy().ends_with("tests.rs") && !p.components().any(|c| c.as_os_str() == "tests")
    });
    paths.iter().map(|p| Source::load(&root, p)).collect()
}

/// Replaces comments and the contents of string and character literals by spaces; line ends stay.
fn blank_literals(text: &str) -> String {
    let b: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < b.len() {
        let end = literal_end(&b, i);
        if end == i {
            out.push(b[i]);
            i += 1;
        } else {
            out.extend(b[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// Where the comment or literal that starts at `i` ends; `i` if none starts there.
fn literal_end(b: &[char], i: usize) -> usize {
    let at = |k: usize| b.get(k).copied().unwrap_or('\0');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match at(i) {
        '/' if at(i + 1) == '/' => (i..b.len()).find(|&k| b[k] == '\n').unwrap_or(b.len()),
        '/' if at(i + 1) == '*' => block_comment_end(b, i),
        'r' if (at(i + 1) == '"' || at(i + 1) == '#') && (i == 0 || !word(b[i - 1]) || b[i - 1] == 'b') => {
            raw_end(b, i)
        }
        '"' => quoted_end(b, i, '"'),
        // A lifetime is no literal: 'a is followed by anything but a quote.
        '\'' if at(i + 1) == '\\' || at(i + 2) == '\'' => quoted_end(b, i, '\''),
        _ => i,
    }
}

fn block_comment_end(b: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i < b.len() {
        match (b[i], b.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 1),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 1),
            _ => {}
        }
        i += 1;
        if depth == 0 {
            break;
        }
    }
    i
}

fn raw_end(b: &[char], start: usize) -> usize {
    let hashes = b[start + 1..].iter().take_while(|c| **c == '#').count();
    if b.get(start + 1 + hashes) != Some(&'"') {
        return start; // r#name
    }
    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = start + 2 + hashes;
    (body..b.len()).find(|&k| b[k..].starts_with(&close)).map_or(b.len(), |k| k + close.len())
}

fn quoted_end(b: &[char], start: usize, quote: char) -> usize {
    let mut i = start + 1;
    while i < b.len() && b[i] != quote {
        i += if b[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(b.len())
}

/// Blanks each item behind `#[cfg(test)]` (or `cfg(all(test, ...))`).
fn without_tests(text: String) -> String {
    let mut b: Vec<char> = text.chars().collect();
    let mut i = 0;
    while let Some(found) = find_test_attribute(&b, i) {
        let end = item_end(&b, found);
        for c in &mut b[found..end] {
            if *c != '\n' {
                *c = ' ';
            }
        }
        i = end;
    }
    b.into_iter().collect()
}

fn find_test_attribute(b: &[char], from: usize) -> Option<usize> {
    let marks = ["#[cfg(test)]", "#[cfg(all(test"].map(|m| m.chars().collect::<Vec<_>>());
    (from..b.len()).find(|&k| marks.iter().any(|m| b[k..].starts_with(m)))
}

/// End of the item that starts at `from`: its closing brace, or a semicolon outside all brackets.
fn item_end(b: &[char], from: usize) -> usize {
    let mut depth = 0usize;
    for (k, c) in b.iter().enumerate().skip(from) {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && *c == '}' {
                    return k + 1;
                }
            }
            ';' if depth == 0 => return k + 1,
            _ => {}
        }
    }
    b.len()
}

/// True if `word` stands in `line` with no identifier character at its ends.
fn has_word(line: &str, word: &str) -> bool {
    let ident = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(k, _)| {
        !line[..k].chars().next_back().is_some_and(ident)
            && !line[k + word.len()..].chars().next().is_some_and(ident)
    })
}

/// Modules named as `crate::x` or within `crate::{a, b::c}` (also over several lines), with their line.
fn crate_modules(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let text = source.lines.join("\n");
    for (at, _) in text.match_indices("crate::") {
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + "crate::".len()..];
        for name in first_segments(rest) {
            found.push((line, name));
        }
    }
    found
}

fn first_segments(rest: &str) -> Vec<String> {
    let ident =
        |s: &str| s.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![ident(rest)] };
    let (mut depth, mut names, mut start) = (0, Vec::new(), 0);
    for (k, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(ident(&group[start..k]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(ident(&group[start..k]));
                start = k + 1;
            }
            _ => {}
        }
    }
    names.retain(|n| !n.is_empty());
    names
}

/// Names of the crates in Cargo.toml, as they are written in code.
fn dependencies() -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let names = table["dependencies"]
        .as_table()
        .unwrap()
        .keys()
        .map(|k| k.replace('-', "_"))
        .collect::<BTreeSet<_>>();
    assert!(names.contains("tokio"), "Cargo.toml was not understood");
    names
}

fn report(findings: &str) {
    assert!(findings.is_empty(), "\n{findings}");
}

#[test]
fn modules_depend_only_on_what_the_table_allows() {
    let sources = sources();
    let all: BTreeSet<String> = sources
        .iter()
        .map(|s| s.name.split('/').next().unwrap().trim_end_matches(".rs").to_owned())
        .collect();
    let crates = dependencies();
    let mut out = String::new();
    for source in &sources {
        let matching = RULES.iter().filter(|r| source.name.starts_with(r.prefix));
        if let Some(rule) = matching.max_by_key(|r| r.prefix.len()) {
            check_rule(source, rule, &all, &crates, &mut out);
        }
    }
    report(&out);
}

fn check_rule(
    source: &Source,
    rule: &Rule,
    all: &BTreeSet<String>,
    crates: &BTreeSet<String>,
    out: &mut String,
) {
    for (line, module) in crate_modules(source) {
        let refused = match rule.modules {
            Only(allowed) => !allowed.contains(&module.as_str()),
            Not(denied) => denied.contains(&module.as_str()),
        };
        if refused && all.contains(&module) {
            writeln!(out, "src/{}:{line}: may not use crate::{module}: {}", source.name, rule.why).unwrap();
        }
    }
    let Some(allowed) = rule.crates else { return };
    for (line, text) in source.code() {
        for name in crates.iter().filter(|c| !allowed.contains(&c.as_str())) {
            if has_word(text, &format!("{name}::")) || text.trim_start().starts_with(&format!("use {name};"))
            {
                writeln!(out, "src/{}:{line}: may not use the crate {name}: {}", source.name, rule.why)
                    .unwrap();
            }
        }
    }
}

#[test]
fn only_commands_and_wiring_know_the_programs() {
    let mut out = String::new();
    for source in sources() {
        let top = source.name.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        if PROGRAMS.contains(&top.as_str()) || top == "main" || top == "lib" {
            continue;
        }
        for (line, module) in
            crate_modules(&source).into_iter().filter(|(_, m)| PROGRAMS.contains(&m.as_str()))
        {
            writeln!(out, "src/{}:{line}: a stage may not use crate::{module}", source.name).unwrap();
        }
    }
    report(&out);
}

#[test]
fn pure_files_have_no_clock_no_io_no_chance() {
    let mut out = String::new();
    for source in sources().into_iter().filter(|s| s.pure) {
        for (line, text) in source.code() {
            for word in PURE_FORBIDDEN.iter().filter(|w| has_word(text, w)) {
                writeln!(out, "src/{}:{line}: a file marked Pure may not say {word}", source.name).unwrap();
            }
        }
    }
    report(&out);
}

#[test]
fn one_door_to_the_clock_and_one_home_for_unsafe() {
    let mut out = String::new();
    for source in sources() {
        for (line, text) in source.code() {
            if has_word(text, "Instant::now") && source.name != "clock.rs" {
                writeln!(out, "src/{}:{line}: only src/clock.rs may call Instant::now", source.name).unwrap();
            }
            if has_word(text, "unsafe") && !source.name.starts_with("sys/") {
                writeln!(out, "src/{}:{line}: unsafe lives in src/sys only", source.name).unwrap();
            }
        }
    }
    report(&out);
}

/// The runtime of a worker is built without timers: `Worker::timeout` and `Worker::sleep_until` are its clockwork.
#[test]
fn workers_use_no_timers_of_the_runtime() {
    /// Probes run on the control thread.
    const ELSEWHERE: &str = "evidence/ask/";
    const ON_WORKERS: &[&str] = &["worker/", "link/", "proxy/", "upstream/", "evidence/", "app/data.rs"];
    let (mut out, mut seen) = (String::new(), 0);
    for source in sources()
        .iter()
        .filter(|s| ON_WORKERS.iter().any(|p| s.name.starts_with(p)) && !s.name.starts_with(ELSEWHERE))
    {
        seen += 1;
        for (line, text) in source.code() {
            if has_word(text, "tokio::time") {
                writeln!(out, "src/{}:{line}: use the worker's timer", source.name).unwrap();
            }
        }
    }
    assert!(seen > 30, "looked at {seen} files only");
    report(&out);
}

#[test]
fn peer_input_never_panics() {
    let mut out = String::new();
    for source in sources() {
        let peer = PEER_INPUT.iter().any(|p| source.name.starts_with(p));
        for (line, text) in source.code() {
            if text.contains(".unwrap()") {
                writeln!(out, "src/{}:{line}: no unwrap() outside tests", source.name).unwrap();
            }
            if peer
                && (text.contains(".expect(") || has_word(text, "panic!") || has_word(text, "unreachable!"))
            {
                writeln!(
                    out,
                    "src/{}:{line}: no expect(), panic! or unreachable! where peers are read",
                    source.name
                )
                .unwrap();
            }
        }
    }
    report(&out);
}

#[test]
fn files_and_functions_stay_short() {
    let mut out = String::new();
    for source in sources() {
        let lines = source.code().count();
        if lines > FILE_HARD {
            writeln!(out, "src/{}:1: {lines} lines of code, at most {FILE_HARD}", source.name).unwrap();
        } else if lines > FILE_SOFT {
            println!("note: src/{}: {lines} lines of code, aim at {FILE_SOFT}", source.name);
        }
        for (line, name, len) in functions(&source) {
            if len > FUNCTION_HARD {
                writeln!(
                    out,
                    "src/{}:{line}: fn {name} has {len} lines, at most {FUNCTION_HARD}",
                    source.name
                )
                .unwrap();
            }
        }
    }
    report(&out);
}

/// Line, name and length in lines of code of each function with a body.
fn functions(source: &Source) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (i, line) in source.lines.iter().enumerate() {
        let Some(at) =
            line.match_indices("fn ").map(|(k, _)| k).find(|&k| k == 0 || line[..k].ends_with([' ', '(']))
        else {
            continue;
        };
        let name: String = line[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if name.is_empty() {
            continue; // a type: fn(u8)
        }
        let text: Vec<char> = source.lines[i..].join("\n").chars().skip(at).collect();
        let body: String = text[..item_end(&text, 0)].iter().collect();
        found.push((i + 1, name, body.lines().filter(|l| !l.trim().is_empty()).count()));
    }
    found
}

#[test]
fn the_walk_saw_the_tree() {
    let sources = sources();
    let pure = sources.iter().filter(|s| s.pure).count();
    let functions: usize = sources.iter().map(|s| functions(s).len()).sum();
    println!("{} files, {pure} pure, {functions} functions", sources.len());
    assert!(sources.len() > 30, "only {} files seen", sources.len());
    assert!(pure > 8, "only {pure} pure files seen");
    assert!(functions > 200, "only {functions} functions seen");
    for row in MUST_EXIST {
        assert!(sources.iter().any(|s| s.name.starts_with(row)), "no src/{row}: adapt the table");
    }
}

#[test]
fn the_checker_finds_what_it_looks_for() {
    let text = "use crate::{wire::Frame, clock};\n// crate::demo\nlet s = \"crate::app\"; let c = 'x'; fn f<'a>() {\n}\n\
                #[cfg(test)]\nmod tests {\n    fn g() { x.unwrap() }\n}\nfn h() { r#\"}\"#; }\n";
    let lines: Vec<String> = without_tests(blank_literals(text)).lines().map(str::to_owned).collect();
    let source = Source { name: "x.rs".into(), pure: false, lines };
    assert_eq!(crate_modules(&source), [(1, "wire".to_owned()), (1, "clock".to_owned())]);
    assert!(!source.code().any(|(_, l)| l.contains("unwrap")));
    assert_eq!(functions(&source), [(3, "f".to_owned(), 2), (9, "h".to_owned(), 1)]);
    assert!(has_word("a tokio::x", "tokio") && !has_word("a tokiox", "tokio") && !has_word("strand", "rand"));
}
