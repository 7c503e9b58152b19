//! The fault bench as a user runs it: real processes on loopback, and one link of two cut between namespaces.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sidebeat")).args(["bench", "faults"]).args(args).output().unwrap()
}

fn report(out: &Output) -> Value {
    let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(text.lines().count(), 1, "stdout is not one line: {text}\n{said}");
    serde_json::from_str(&text).unwrap()
}

fn rows<'a>(r: &'a Value, fault: &str) -> Vec<&'a Value> {
    r["rows"].as_array().unwrap().iter().filter(|row| row["fault"] == fault).collect()
}

/// The exit code and the reasons say the same, on stderr too.
fn exit_is_explained(out: &Output, r: &Value) {
    let reasons = r["reasons"].as_array().unwrap();
    assert_eq!(out.status.code(), Some(i32::from(!reasons.is_empty())), "{r}");
    let said = String::from_utf8_lossy(&out.stderr);
    for why in reasons {
        assert!(said.contains(&format!("exit 1: {}", why.as_str().unwrap())), "{why} is missing in {said}");
    }
}

#[test]
fn a_killed_and_a_locked_service_as_every_detector_saw_them() {
    let out = bench(&[
        "--repeat",
        "1",
        "--faults",
        "kill,deadlock",
        "--traffic",
        "steady",
        "--seed",
        "1",
        "--json",
    ]);
    let r = report(&out);
    let detectors = [
        "promise",
        "timeout",
        "timeout-27ms",
        "p95",
        "phi",
        "chen",
        "huddm-tick",
        "huddm-miss",
        "heartbeat 1s/3s",
    ];
    for fault in ["kill", "deadlock"] {
        let rows = rows(&r, fault);
        let names: Vec<_> = rows.iter().map(|row| row["detector"].as_str().unwrap()).collect();
        assert_eq!(names, detectors, "{fault}");
        for (i, row) in rows.iter().enumerate() {
            assert_eq!(
                (&row["n"], &row["traffic"], &row["main"]),
                (&1.into(), &"steady".into(), &(i == 0).into())
            );
            assert_eq!(row["met"].is_null(), i > 0, "only the one that acts has something to meet: {row}");
        }
        assert!(rows[0]["peak_ms"].is_number() && rows[0]["noise_ms"].is_number(), "{}", rows[0]);
    }
    let kill = rows(&r, "kill")[0];
    assert_eq!(
        (&kill["expected"], &kill["met"], &kill["undetected"]),
        (&"failed".into(), &1.into(), &0.into())
    );
    let ms = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {kill}"));
    assert!(
        ms(&kill["t_d_ms"]["p50"]) > 0.0 && ms(&kill["t_d_ms"]["p50"]) < 1200.0,
        "while it was down: {kill}"
    );
    assert!(ms(&kill["served_elsewhere_ms"]["p50"]) > 0.0 && ms(&kill["healed_ms"]["p50"]) >= 0.0);
    // A machine that wakes its threads late may go further than SUSPECT: no defect of the bench.
    let lock = rows(&r, "deadlock")[0];
    assert!(lock["suspect_ms"]["p50"].as_f64().is_some_and(|ms| ms > 0.0), "{lock}");
    // It answers again before three questions are missed.
    for fault in ["kill", "deadlock"] {
        let rows = rows(&r, fault);
        let heart = rows.last().unwrap();
        assert_eq!((&heart["undetected"], &heart["mistakes"]), (&1.into(), &0.into()), "{heart}");
    }
    exit_is_explained(&out, &r);
}

#[test]
fn a_limit_that_is_exceeded_is_exit_code_1() {
    let args = ["--repeat", "1", "--faults", "kill", "--traffic", "steady", "--detector", "phi", "--json"];
    let out = bench(&[&args[..], &["--limit", "1us/1us"]].concat());
    let r = report(&out);
    let reasons: Vec<_> = r["reasons"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    assert!(reasons.iter().any(|why| why.starts_with("kill under steady: p99 to FAILED")), "{reasons:?}");
    assert_eq!(out.status.code(), Some(1));
    exit_is_explained(&out, &r);
}

/// In namespaces; the endpoint lives on its other link.
#[test]
fn one_link_of_two_is_no_dead_endpoint() {
    let out = bench(&[
        "--repeat",
        "2",
        "--faults",
        "cut-link",
        "--traffic",
        "steady",
        "--detector",
        "phi",
        "--json",
    ]);
    let r = report(&out);
    let Some(row) = rows(&r, "cut-link").first().copied() else {
        return eprintln!("SKIPPED: {}", r["notes"]);
    };
    assert_eq!((&row["expected"], &row["n"]), (&"not failed".into(), &2.into()));
    if r["noise_ms"][2].as_f64().unwrap() < 10.0 {
        assert_eq!(
            (&row["met"], &row["undetected"], &row["failed_requests"]),
            (&2.into(), &2.into(), &0.into()),
            "{r}"
        );
    }
    exit_is_explained(&out, &r);
}
