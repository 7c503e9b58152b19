//! The shape of the source, enforced: who may depend on whom, which files are pure, where the clock and `unsafe`
//! may be touched, and how long files and functions may grow. A finding reads `file:line: rule`.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "architecture/paths.rs"]
mod paths;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use paths::{Mention, is_below, mentions};

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
    Rule { prefix: "evidence/fuse", modules: Only(&["evidence", "detector", "stamp", "verdict"]), crates: Some(&["serde"]), why: "an opinion is a pure function of observations" },
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

/// Paths that a file marked Pure may not name, nor anything below them: clocks, IO, chance, and what says things aloud.
const PURE_FORBIDDEN: &[&str] = &[
    "crate::clock",
    "crate::sys",
    "std::env",
    "std::fs",
    "std::io::std*",
    "std::net::Tcp*",
    "std::net::Udp*",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "libc",
    "rand",
    "rustix",
    "socket2",
    "tokio",
    "tracing",
];

/// Macros that it may not use.
const PURE_SILENT: &[&str] = &["print!", "println!", "eprint!", "eprintln!", "dbg!"];

/// Numbers and forms of the kernel's interface are no IO.
const PURE_ANYWAY: &[(&str, &str)] = &[("sys/diag_wire.rs", "libc"), ("sys/diag_wire.rs", "crate::sys")];

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

    /// The paths it names, in full.
    fn mentions(&self) -> Vec<Mention> {
        mentions(&self.name, &self.lines.join("\n"))
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

/// Modules of this crate that a file names, however it does, with their line; `*` for all of them at once.
fn crate_modules(source: &Source) -> Vec<Mention> {
    let below = |(line, path): Mention| {
        let module = path.strip_prefix("crate::")?.split("::").next()?;
        Some((line, module.to_owned()))
    };
    source.mentions().into_iter().filter_map(below).collect()
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
        if module == "*" || refused && all.contains(&module) {
            writeln!(out, "src/{}:{line}: may not use crate::{module}: {}", source.name, rule.why).unwrap();
        }
    }
    let Some(allowed) = rule.crates else { return };
    for (line, path) in source.mentions() {
        let name = path.split("::").next().unwrap();
        if crates.contains(name) && !allowed.contains(&name) {
            writeln!(out, "src/{}:{line}: may not use the crate {name}: {}", source.name, rule.why).unwrap();
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
    for source in sources().iter().filter(|s| s.pure) {
        check_pure(source, &mut out);
    }
    report(&out);
}

fn check_pure(source: &Source, out: &mut String) {
    for (line, path) in source.mentions() {
        let bad = PURE_FORBIDDEN.iter().filter(|p| is_below(&path, p));
        for prefix in bad.filter(|p| !PURE_ANYWAY.contains(&(source.name.as_str(), **p))) {
            writeln!(out, "src/{}:{line}: a file marked Pure may not name {prefix}", source.name).unwrap();
        }
    }
    for (line, text) in source.code() {
        for word in PURE_SILENT.iter().filter(|w| has_word(text, w)) {
            writeln!(out, "src/{}:{line}: a file marked Pure may not say {word}", source.name).unwrap();
        }
    }
}

/// Modules that ARCHITECTURE.md calls pure, as in code, and those that it excepts.
fn called_pure(text: &str) -> (Vec<String>, Vec<String>) {
    let list = text.split_once("give outputs:").and_then(|(_, l)| l.split_once("are pure too"));
    let list = list.expect("ARCHITECTURE.md lists the pure modules as it did").0;
    let (mut pure, mut but): (Vec<String>, Vec<String>) = Default::default();
    let mut before = "";
    for (n, part) in list.split('`').enumerate() {
        if n % 2 == 0 {
            before = part;
        } else if before.ends_with("(but ") {
            but.push(format!("{}::{part}", pure.last().expect("something is excepted from")));
        } else if let Some((of, names)) = part.split_once("::{") {
            pure.extend(names.trim_end_matches('}').split(',').map(|n| format!("{of}::{}", n.trim())));
        } else {
            pure.push(part.to_owned());
        }
    }
    (pure, but)
}

/// Whether the file of that name is the module, or within it.
fn is_of(file: &str, module: &str) -> bool {
    let path = module.replace("::", "/");
    file == format!("{path}.rs") || file.starts_with(&format!("{path}/"))
}

fn unmarked(sources: &[Source], (pure, but): &(Vec<String>, Vec<String>), out: &mut String) {
    for module in pure {
        let mut files = sources.iter().filter(|s| is_of(&s.name, module)).peekable();
        if files.peek().is_none() {
            writeln!(out, "ARCHITECTURE.md calls {module} pure, which does not exist").unwrap();
        }
        for source in files.filter(|s| !s.pure && !but.iter().any(|b| is_of(&s.name, b))) {
            writeln!(
                out,
                "src/{}:1: ARCHITECTURE.md calls it pure, and it has no line `//! Pure:`",
                source.name
            )
            .unwrap();
        }
    }
}

#[test]
fn what_is_called_pure_is_marked_so() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap();
    let called = called_pure(&text);
    assert!(called.0.len() > 20 && !called.1.is_empty(), "{called:?}");
    let mut out = String::new();
    unmarked(&sources(), &called, &mut out);
    report(&out);
}

#[test]
fn one_door_to_the_clock_and_one_home_for_unsafe() {
    let mut out = String::new();
    for source in sources() {
        for (line, path) in source.mentions() {
            let asks = ["Instant::now", "SystemTime::now"].iter().find(|asks| path.ends_with(*asks));
            if let (Some(asks), true) = (asks, source.name != "clock.rs") {
                writeln!(out, "src/{}:{line}: only src/clock.rs may call {asks}", source.name).unwrap();
            }
        }
        for (line, text) in source.code() {
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
        for (line, path) in source.mentions() {
            if is_below(&path, "tokio::time") {
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

fn sample(name: &str, text: &str) -> Source {
    let lines = without_tests(blank_literals(text)).lines().map(str::to_owned).collect();
    Source { name: name.into(), pure: true, lines }
}

#[test]
fn the_checker_finds_what_it_looks_for() {
    let text = "use crate::{wire::Frame, clock};\n// crate::demo\nlet s = \"crate::app\"; let c = 'x'; fn f<'a>() {\n}\n\
                #[cfg(test)]\nmod tests {\n    fn g() { x.unwrap() }\n}\nfn h() { r#\"}\"#; }\n";
    let source = sample("x.rs", text);
    assert_eq!(crate_modules(&source), [(1, "wire".to_owned()), (1, "clock".to_owned())]);
    assert!(!source.code().any(|(_, l)| l.contains("unwrap")));
    assert_eq!(functions(&source), [(3, "f".to_owned(), 2), (9, "h".to_owned(), 1)]);
    assert!(has_word("a tokio::x", "tokio") && !has_word("a tokiox", "tokio") && !has_word("strand", "rand"));
}

/// Each of these was, or would have been, overlooked by a search for words.
#[test]
fn the_checker_finds_what_is_no_pure_code() {
    for (text, names) in [
        ("use std::net::TcpStream;", "std::net::Tcp*"),
        ("fn f() { std::net::TcpListener::bind(a) }", "std::net::Tcp*"),
        ("use std::net::{IpAddr, UdpSocket};", "std::net::Udp*"),
        ("use crate::{stamp::Stamp, clock};", "crate::clock"),
        ("use super::super::clock;", "crate::clock"),
        ("use crate as all;\nfn f() { all::clock::now() }", "crate::clock"),
        ("use crate::sys::tcp;", "crate::sys"),
        ("use std::{cell::Cell, fs};", "std::fs"),
        ("use std::{\n    cell::Cell,\n    thread,\n};", "std::thread"),
        ("use std::*;", "std::fs"),
        ("use std::time::{Duration, Instant};", "std::time::Instant"),
        ("use std::time;\nfn f() { time::SystemTime::now() }", "std::time::SystemTime"),
        ("fn f() { std::process::exit(1) }", "std::process"),
        ("use std::env;", "std::env"),
        ("fn f() { std::io::stdin() }", "std::io::std*"),
        ("use std::os::fd::AsFd;", "std::os"),
        ("use rustix::{fs, io};", "rustix"),
        ("use socket2::SockRef;", "socket2"),
        ("fn f() { libc::getpid() }", "libc"),
        ("fn f() { tracing::info!(\"x\") }", "tracing"),
        ("use tokio::time;", "tokio"),
        ("fn f() { rand::random() }", "rand"),
        ("fn f() { println!(\"x\") }", "println!"),
    ] {
        let mut out = String::new();
        check_pure(&sample("link/x.rs", text), &mut out);
        assert!(out.contains(&format!(" {names}\n")), "{text}: {out}");
    }
    let mut out = String::new();
    let well =
        "use std::{net::IpAddr, io::IoSlice, time::Duration};\nuse crate::wire::clock_of;\nfn f(rand: u8) {}";
    check_pure(&sample("x.rs", well), &mut out);
    report(&out);
}

#[test]
fn the_checker_finds_whoever_uses_what_it_may_not() {
    let all = ["detector", "wire", "clock"].map(str::to_owned).into();
    let crates = ["tokio", "bytes"].map(str::to_owned).into();
    let rule = Rule { prefix: "", modules: Only(&["wire"]), crates: Some(&["bytes"]), why: "so" };
    for (text, names) in [
        ("use super::super::detector::Output;", "crate::detector"),
        ("fn f() { super::super::detector::judge() }", "crate::detector"),
        ("use crate::{wire, detector::{Output}};", "crate::detector"),
        ("use super::super::*;", "crate::*"),
        ("use tokio::{net};", "the crate tokio"),
        ("use tokio as t;", "the crate tokio"),
    ] {
        let mut out = String::new();
        check_rule(&sample("link/inner.rs", text), &rule, &all, &crates, &mut out);
        assert!(out.contains(&format!("may not use {names}: so")), "{text}: {out}");
    }
    let mut out = String::new();
    let well = "use bytes::Bytes;\nuse super::detector;\nuse crate::wire::{self, *};";
    check_rule(&sample("link/inner.rs", well), &rule, &all, &crates, &mut out);
    report(&out);
}

#[test]
fn the_checker_finds_a_pure_module_without_its_mark() {
    let text = "give outputs: `wire`, `link::{pace, outq}`, `gone`. `replay` (but `run`)\nare pure too.";
    let called = called_pure(text);
    let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        called,
        (words(&["wire", "link::pace", "link::outq", "gone", "replay"]), words(&["replay::run"]))
    );
    let file = |name: &str, pure| Source { name: name.into(), pure, lines: Vec::new() };
    let sources = [
        file("wire/mod.rs", true),
        file("wire/kind.rs", false),
        file("link/pace.rs", true),
        file("link/outq/mod.rs", false),
        file("link/driver.rs", false),
        file("replay/run.rs", false),
    ];
    let mut out = String::new();
    unmarked(&sources, &called, &mut out);
    let found: Vec<_> = out.lines().map(|l| l.split(": ").next().unwrap()).collect();
    let gone = "ARCHITECTURE.md calls gone pure, which does not exist";
    assert_eq!(found, ["src/wire/kind.rs:1", "src/link/outq/mod.rs:1", gone]);
}
