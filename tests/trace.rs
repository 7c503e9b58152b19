//! A real pair of sidecars records what its links told their judges; `sidebeat replay` judges it again.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sidebeat::clock;
use sidebeat::verdict::State;
use support::child::{finish, run};
use support::pair::{Pair, Setup};
use support::rng::Rng;
use support::service::{HANG, Service, connect, round_trip};
use support::{TempDir, eventually, pause};

fn program() -> Command {
    Command::new(std::env::var("SIDEBEAT").unwrap_or_else(|_| env!("CARGO_BIN_EXE_sidebeat").to_owned()))
}

fn replay(dir: &Path, args: &[&str]) -> Value {
    let out = run(program().arg("replay").arg(dir).args(["--json", "--cuts", "200"]).args(args));
    serde_json::from_str(&out).unwrap()
}

fn recording(service: &Service, dir: &TempDir, more: &str) -> Pair {
    let table = format!("[trace]\npath = \"{}\"\n{more}", dir.path().display());
    Setup::new(service.addr).near_extra(&table).start()
}

/// Round trips for so long, one each few milliseconds.
fn traffic(pair: &Pair, time: Duration) {
    let (mut stream, mut rng) = (connect(pair.addr), Rng::new(1));
    let end = clock::now() + time;
    while clock::now() < end {
        round_trip(&mut stream, &mut rng).unwrap();
        pause();
    }
}

fn files(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|n| n.ends_with(".trace")).collect();
    names.sort();
    names
}

/// Changes of state of the near sidecar.
fn states(pair: &Pair) -> Vec<String> {
    let to = |line: &String| serde_json::from_str::<Value>(line).unwrap()["to"].as_str().unwrap().to_owned();
    pair.near.events().iter().map(to).collect()
}

fn pulse(pair: &Pair) {
    let before = states(pair).len();
    pair.far().process().signal(Signal::STOP);
    let reached = |state: State| {
        eventually(HANG, state.name(), || {
            let seen = states(pair);
            if seen[before..].iter().any(|s| s == state.name()) { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    };
    reached(State::Failed);
    // Longer than a mistake lasts.
    let end = clock::now() + Duration::from_millis(900);
    while clock::now() < end {
        pause();
    }
    pair.far().process().signal(Signal::CONT);
    reached(State::Active);
}

#[test]
fn a_real_link_is_recorded_and_its_verdicts_come_out_again() {
    let (service, dir) = (Service::echo(), TempDir::new());
    let pair = recording(&service, &dir, "");
    traffic(&pair, Duration::from_millis(1500));
    pulse(&pair);
    traffic(&pair, Duration::from_millis(1500));
    pulse(&pair);
    traffic(&pair, Duration::from_millis(500));
    assert_eq!(pair.near.metric("sidebeat_trace_dropped_total", &[]), Some(0.0));
    assert_eq!(pair.near.metric("sidebeat_trace_errors_total", &[]), Some(0.0));
    assert!(pair.near.metric("sidebeat_trace_bytes_total", &[]) > Some(5000.0));
    pair.finish();

    let report = replay(dir.path(), &[]);
    let (trace, recorded) = (&report["trace"], &report["recorded"]);
    assert_eq!((&trace["holes"], &trace["unknown"]), (&0.into(), &0.into()), "{trace}");
    assert_eq!(trace["damage"], Value::Array(vec![]));
    assert!(trace["arrivals"].as_u64() > Some(300), "{trace}");
    assert!(trace["failures"].as_u64() >= Some(2), "both pulses: {trace}");
    assert_eq!(recorded["laws"][0]["law"], "promise");
    assert!(recorded["failed"].as_u64() >= Some(2), "{recorded}");
    assert!(recorded["repeatable"].as_u64() >= Some(6), "doubted, failed and healed twice: {recorded}");
    assert_eq!(recorded["reproduced"], recorded["repeatable"], "{recorded}");
    assert_eq!(recorded["first_difference"], Value::Null);

    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert_eq!(row["undetected"], 0, "{row}");
        assert!(row["t_d_ms"]["p50"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(rows[0]["detector"], "recorded");
    let by_law = |law: &str| rows.iter().find(|r| r["detector"] == law).unwrap();
    assert!(by_law("timeout")["t_d_ms"]["p50"].as_f64() > Some(2900.0));
    assert_eq!(by_law("timeout")["mistakes"], 0);
}

#[test]
fn a_sweep_has_a_row_per_value_and_is_drawn() {
    let (service, dir) = (Service::echo(), TempDir::new());
    let pair = recording(&service, &dir, "");
    traffic(&pair, Duration::from_millis(600));
    pair.finish();
    let (csv, svg) = (dir.join("rows.csv"), dir.join("curve.svg"));
    let text = run(program()
        .arg("replay")
        .arg(dir.path())
        .args(["--sweep", "timeout=20ms..200ms:4", "--csv"])
        .arg(&csv)
        .arg("--svg")
        .arg(&svg));
    assert_eq!(text.lines().filter(|l| l.starts_with("timeout ")).count(), 4, "{text}");
    assert!(text.contains("timeout=200ms") && text.contains("T_D p50, ms"), "{text}");
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 5);
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    // A longer time-out is slower, whatever the traffic was.
    let t_d = |line: &str| line.split(',').nth(5).and_then(|x| x.parse::<f64>().ok());
    let csv = std::fs::read_to_string(&csv).unwrap();
    let times: Vec<_> = csv.lines().skip(1).map(|l| t_d(l).unwrap()).collect();
    assert!(times.windows(2).all(|w| w[0] < w[1]), "{times:?}");
}

#[test]
fn a_torn_file_is_replayed_as_far_as_it_is_whole() {
    let (service, dir) = (Service::echo(), TempDir::new());
    let pair = recording(&service, &dir, "");
    traffic(&pair, Duration::from_millis(700));
    pair.finish();
    let [name] = &files(dir.path())[..] else { panic!("{:?}", files(dir.path())) };
    let path = dir.join(name);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let report = replay(&path, &["--detector", "promise"]);
    let damage = report["trace"]["damage"].as_array().unwrap();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].as_str().unwrap().contains("offset"), "{damage:?}");
    assert!(report["trace"]["arrivals"].as_u64() > Some(20), "{}", report["trace"]);

    std::fs::write(&path, &bytes[..7]).unwrap();
    let told = finish(program().arg("replay").arg(&path), HANG);
    assert_eq!(told.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&told.stderr).contains("ends within its header"));
}

/// A crash or a full disk leaves a newest file without its header; the others were not read either.
#[test]
fn a_file_without_its_header_does_not_hide_the_others_of_its_directory() {
    let (service, dir) = (Service::echo(), TempDir::new());
    let pair = recording(&service, &dir, "");
    traffic(&pair, Duration::from_millis(400));
    pair.finish();
    let [name] = &files(dir.path())[..] else { panic!("{:?}", files(dir.path())) };
    let good = dir.join(name);
    let bytes = std::fs::read(&good).unwrap();
    let mut later = bytes[..200].to_vec();
    later[8..10].copy_from_slice(&9u16.to_be_bytes());
    let bad: [(&str, &[u8], &str); 3] = [
        ("empty.trace", b"", "ends within its header"),
        ("sidebeat-near-9999999999999-000000.trace", &bytes[..20], "ends within its header"),
        ("later.trace", &later, "version 9"),
    ];
    for (name, bytes, _) in bad {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
    let report = replay(dir.path(), &["--detector", "promise"]);
    let trace = &report["trace"];
    assert_eq!((&trace["files"], &trace["holes"]), (&1.into(), &0.into()), "{trace}");
    assert!(trace["arrivals"].as_u64() > Some(20), "{trace}");
    let damage: Vec<_> = trace["damage"].as_array().unwrap().iter().map(|d| d.as_str().unwrap()).collect();
    assert_eq!(damage.len(), 3, "{damage:?}");
    for (name, _, why) in bad {
        assert!(damage.iter().any(|d| d.contains(name) && d.contains(why)), "{name}: {damage:?}");
        let told = finish(program().arg("replay").arg(dir.path()).arg(dir.join(name)), HANG);
        assert_eq!(told.status.code(), Some(1), "named itself, it is an error");
        assert!(String::from_utf8_lossy(&told.stderr).contains(why), "{told:?}");
    }
    std::fs::remove_file(good).unwrap();
    let told = finish(program().arg("replay").arg(dir.path()), HANG);
    assert_eq!(told.status.code(), Some(1), "no file is left");
}

#[test]
fn a_directory_that_cannot_be_used_stops_the_start_and_says_why() {
    let dir = TempDir::new();
    let file = dir.join("near.toml");
    let config = |path: &Path| {
        let text = format!(
            "[[outbound]]\nname = \"x\"\nlisten = \"127.0.0.1:0\"\nendpoints = [\"127.0.0.1:9\"]\n[admin]\nlisten = \
             \"127.0.0.1:0\"\n[trace]\npath = \"{}\"\n",
            path.display()
        );
        std::fs::write(&file, text).unwrap();
    };
    for (path, part) in [(dir.join("none"), "does not exist"), (file.clone(), "is not a directory")] {
        config(&path);
        for args in [&["check"][..], &["run", "-c"]] {
            let told = finish(program().args(args).arg(&file), HANG);
            let err = String::from_utf8_lossy(&told.stderr).into_owned();
            assert_eq!(told.status.code(), Some(78), "{args:?}: {err}");
            assert!(err.contains("near.toml:8:8: trace.path: ") && err.contains(part), "{err}");
        }
    }
    config(dir.path());
    assert_eq!(finish(program().arg("check").arg(&file), HANG).status.code(), Some(0));
    assert!(files(dir.path()).is_empty(), "a check makes nothing");
}

#[test]
fn what_is_no_trace_is_refused() {
    let dir = TempDir::new();
    let text = dir.join("text");
    std::fs::write(&text, "hello\n").unwrap();
    let none = dir.join("none");
    for (path, part) in
        [(&text, "not a trace"), (&none, "cannot be read"), (&dir.path().to_owned(), "no trace there")]
    {
        let told = finish(program().arg("replay").arg(path), HANG);
        let err = String::from_utf8_lossy(&told.stderr).into_owned();
        assert_eq!((told.status.code(), told.stdout.len()), (Some(1), 0), "{err}");
        assert!(err.contains(part) && err.contains(&path.display().to_string()), "{err}");
    }
    assert_eq!(finish(program().args(["replay"]), HANG).status.code(), Some(64));
    assert_eq!(finish(program().args(["replay", "x", "--detector", "raft"]), HANG).status.code(), Some(64));
}

/// Two runs in one directory are two runs, and the files of the first are not written over.
#[test]
fn a_restart_begins_another_file() {
    let (service, dir) = (Service::echo(), TempDir::new());
    for runs in 1..=2 {
        let pair = recording(&service, &dir, "files = 3\n");
        traffic(&pair, Duration::from_millis(300));
        pair.finish();
        assert_eq!(files(dir.path()).len(), runs);
    }
    let report = replay(dir.path(), &["--detector", "timeout"]);
    assert_eq!(report["trace"]["files"], 2);
    assert!(report["trace"]["endpoints"].as_u64() >= Some(2), "one per run: {}", report["trace"]);
    assert_eq!(report["rows"][0]["mistakes"], 0, "the time between the runs is no silence");
}
