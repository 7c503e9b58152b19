//! A scripted acceptor against an outbound sidecar: every kind of detector as the main one, and shadows beside it.

use std::time::Duration;

use sidebeat::verdict::State;
use sidebeat::wire::Frame;

use crate::far::{Far, Outbound};
use crate::peer::Auto;
use crate::support::eventually;
use crate::support::rng::Rng;
use crate::support::service::{HANG, connect, round_trip};

const FOR_EVER: Duration = Duration::from_secs(3600);
const SHADOW: &str = "sidebeat_detector_shadow_transitions_total";

fn echoing() -> Auto {
    Auto { echo: true, ..Auto::default() }
}

fn silence(far: &Far) {
    far.manner(|m| m.delay = FOR_EVER);
    far.pilot.set(|a| (a.every, a.answers) = (None, false));
}

fn speak(far: &Far) {
    far.manner(|m| m.delay = Duration::ZERO);
    far.pilot.set(|a| (a.every, a.answers) = (Some(Duration::from_millis(20)), true));
}

fn count(outbound: &Outbound, detector: &str, to: State) -> f64 {
    let labels = [("detector", detector), ("to", to.name())];
    outbound.sidecar.metric(SHADOW, &labels).unwrap_or(-1.0)
}

fn reaches(outbound: &Outbound, detector: &str, to: State, least: f64) {
    eventually(HANG, &format!("{detector} says {to:?}"), || {
        let n = count(outbound, detector, to);
        if n >= least { Ok(()) } else { Err(format!("{n} times\n{}", outbound.sidecar.status())) }
    });
}

/// Beats, so that laws which learn have learned something.
fn heard_beats(outbound: &Outbound) {
    eventually(HANG, "a second of beats", || {
        let beats = [("direction", "in"), ("kind", "beat")];
        let n = outbound.sidecar.metric("sidebeat_frames_total", &beats).unwrap_or(0.0);
        if n > 50.0 { Ok(()) } else { Err(format!("{n} beats")) }
    });
}

#[test]
fn every_kind_judges_a_real_link() {
    for kind in ["promise", "huddm", "phi", "chen", "timeout", "p95"] {
        let far = Far::start(echoing());
        let tables = format!("[detector]\nkind = \"{kind}\"\n[detector.timeout]\nafter = \"400ms\"\n");
        let outbound = Outbound::with(&[&far], "", &tables);
        round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("work");
        heard_beats(&outbound);
        outbound.wait_state(0, State::Active);
        silence(&far);
        outbound.wait_state(0, State::Failed);
        speak(&far);
        outbound.wait_state(0, State::Active);
        round_trip(&mut connect(outbound.addr), &mut Rng::new(2)).unwrap_or_else(|e| panic!("{kind}: {e}"));
    }
}

#[test]
fn shadows_count_what_they_would_have_said() {
    let far = Far::start(echoing());
    let tables = "[detector]\nshadows = [\"huddm\", \"timeout\", \"promise\", \"p95\"]\n\
                  [detector.timeout]\nafter = \"30s\"\n";
    let outbound = Outbound::with(&[&far], "", tables);
    for detector in ["huddm", "timeout", "promise", "p95"] {
        for to in State::ALL {
            assert!(count(&outbound, detector, to) >= 0.0, "{detector} {to:?} is there from the start");
        }
    }
    assert_eq!(count(&outbound, "phi", State::Failed), -1.0, "not configured");
    heard_beats(&outbound);
    // A busy machine may have made them doubt already: what counts is what comes.
    let before: Vec<_> = ["huddm", "promise", "p95"].map(|d| (d, count(&outbound, d, State::Failed))).into();
    silence(&far);
    outbound.wait_state(0, State::Failed);
    for (detector, n) in &before {
        reaches(&outbound, detector, State::Failed, n + 1.0);
    }
    speak(&far);
    for (detector, _) in &before {
        reaches(&outbound, detector, State::Active, 1.0);
    }
    outbound.wait_state(0, State::Active);
    assert_eq!(count(&outbound, "timeout", State::Suspect), 0.0, "30 s never passed");
    for change in ["\"from\":\"suspect\",\"to\":\"failed\"", "\"from\":\"failed\",\"to\":\"active\""] {
        let said = outbound.sidecar.get("/events?follow=0&shadows=1");
        let by_huddm = |l: &&str| l.contains(change) && l.contains("\"detector\":\"huddm\"");
        assert!(
            said.lines().find(by_huddm).is_some_and(|l| l.contains("\"node\":\"far\"")),
            "{change} in {said}"
        );
    }
}

#[test]
fn shadows_act_on_nothing() {
    let far = Far::start(echoing());
    let tables = "[detector]\nkind = \"timeout\"\nshadows = [\"promise\", \"huddm\"]\n\
                  [detector.timeout]\nafter = \"60s\"\n";
    let outbound = Outbound::with(&[&far], "", tables);
    heard_beats(&outbound);
    silence(&far);
    reaches(&outbound, "huddm", State::Failed, 1.0);
    reaches(&outbound, "promise", State::Failed, 1.0);
    assert!(outbound.events().is_empty(), "{:?}", outbound.events());
    let asked = far.links().iter().map(|l| l.count(|f| matches!(f, Frame::Challenge { .. }))).sum::<usize>();
    assert_eq!(asked, 0, "a shadow asks nobody");
    speak(&far);
    reaches(&outbound, "promise", State::Active, 1.0);
    round_trip(&mut connect(outbound.addr), &mut Rng::new(3)).expect("work goes on");
}
