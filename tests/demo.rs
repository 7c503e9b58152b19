//! The demo as a user runs it: real processes on loopback, and a real black hole between namespaces.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::time::Duration;

fn demo(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sidebeat")).arg("demo").args(args).output().unwrap()
}

fn report(out: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(
        text.lines().count(),
        1,
        "stdout is not one line: {text}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_killed_service_is_found_and_the_report_says_so() {
    let out = demo(&["--faults", "kill,notice", "--seed", "1", "--hold", "600ms", "--rate", "300", "--json"]);
    let r = report(&out);
    let faults = r["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2);
    assert_eq!(faults[0]["met"], true, "{r}");
    // A machine that wakes its threads late may fail a sidecar that was announced to pause: no defect of ours.
    if r["noise"]["max"].as_f64().unwrap() < 10.0 {
        assert_eq!(faults[1]["met"], true, "{r}");
        assert_eq!(faults[1]["detected_ms"], serde_json::Value::Null);
    }
    assert_eq!(out.status.success(), faults.iter().all(|f| f["met"] == true));
    assert_eq!((&faults[0]["kind"], &faults[0]["expected"]), (&"kill".into(), &"failed".into()));
    assert!(faults[0]["detected_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{}", faults[0]);
    assert!(faults[0]["served_elsewhere_ms"].is_number() && faults[0]["healed_ms"].is_number());
    assert_eq!(
        (&faults[1]["expected"], &faults[1]["detected_ms"]),
        (&"not failed".into(), &serde_json::Value::Null)
    );
    assert!(r["requests"]["total"].as_u64().is_some_and(|n| n > 100));
    assert_eq!(r["percentiles"]["kill"]["n"], 1);
    let served = r["requests"]["served"].as_object().unwrap();
    assert_eq!(served.len(), 3);
    assert!(served.values().all(|n| n.as_u64() > Some(0)), "{r}");
}

#[test]
fn a_cut_is_a_black_hole_or_skipped_with_a_reason() {
    // Long enough for a verdict that comes late on a busy machine, and for its cause behind it.
    let out = demo(&[
        "--faults",
        "cut",
        "--hold",
        "3s",
        "--seed",
        "2",
        "--services",
        "2",
        "--rate",
        "300",
        "--json",
    ]);
    let r = report(&out);
    let cut = &r["faults"][0];
    match cut["skipped"].as_str() {
        Some(why) => {
            assert!(!why.is_empty() && cut["met"].is_null());
            assert_eq!(r["network"], "loopback");
            support::skip(&format!("{why}; {}", r["notes"]));
        }
        None => {
            assert_eq!(r["network"], "namespaces");
            assert_eq!(cut["met"], true, "{r}");
            assert_eq!(cut["cause"], "blackhole", "{r}");
        }
    }
    assert!(out.status.success(), "{r}");
}

#[test]
fn usage_errors_exit_64() {
    let out = demo(&["--faults", "explode"]);
    assert_eq!(out.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&out.stderr).contains("kill-sidecar"));
}

/// In namespaces of its own: a cut path swallows packets without a word, and a joined one carries again.
#[test]
fn a_cut_path_is_silent() {
    let way = match sidebeat::demo::net::possible() {
        Ok(way) => way,
        Err(e) => return support::skip(&e),
    };
    if std::env::var_os("SIDEBEAT_TEST_INSIDE").is_none() {
        let out = Command::new("unshare")
            .args(way)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "a_cut_path_is_silent", "--nocapture"])
            .env("SIDEBEAT_TEST_INSIDE", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        return;
    }
    let program = sidebeat::demo::child::Program::at(env!("CARGO_BIN_EXE_sidebeat").into());
    let mut net = sidebeat::demo::net::Net::build(&program, 2).unwrap();
    // Nothing listens in the pod, so an open path refuses at once; a refusal is also what an ICMP error would give.
    let dial = |net: &sidebeat::demo::net::Net, i, ms| {
        let to = SocketAddr::new(net.address(i), 9);
        TcpStream::connect_timeout(&to, Duration::from_millis(ms)).unwrap_err().kind()
    };
    use sidebeat::demo::net::Side;
    assert_eq!(dial(&net, 0, 5000), ErrorKind::ConnectionRefused);
    for side in [Side::Both, Side::In, Side::Out] {
        let (before, after) = net.switch(0, side, false).unwrap();
        assert!(before <= after);
        assert_eq!(dial(&net, 0, 300), ErrorKind::TimedOut, "{side:?}");
        assert_eq!(dial(&net, 1, 5000), ErrorKind::ConnectionRefused, "{side:?} cut another pod");
        net.switch(0, side, true).unwrap();
        assert_eq!(dial(&net, 0, 5000), ErrorKind::ConnectionRefused, "{side:?} was not joined again");
    }
}
