//! Everything falls silent at once: then the fault is ours, and FAILED waits (detection.md section 5, last row). Told by
//! the owners of three endpoints on real sockets, in events and in the counter of the gate.

use std::net::Ipv4Addr;
use std::time::Duration;

use sidebeat::verdict::{Cause, State};

use crate::far::{Change, Far, Manner, Outbound};
use crate::peer::Auto;
use crate::support::eventually;
use crate::support::rng::Rng;
use crate::support::service::{HANG, connect, round_trip};

/// For a scripted sidecar whose kernel still accepts, and that says nothing more.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// From the broken promise on; as `upstream::isolation` has it.
const HOLD: Duration = Duration::from_secs(2);
/// What the scripted sidecars promise, ms.
const PROMISE_MS: u16 = 1500;
/// A slow decay, so that a few milliseconds between the three do not let one fail before the others are doubted: SUSPECT
/// 139 ms after the broken promise, FAILED 322 ms after it.
const SLOW: &str = "[detector.promise]\ntau_min = \"200ms\"\n";
/// Farther apart the machine was too busy for "at once", which means 100 ms.
const TOGETHER: Duration = Duration::from_millis(50);
/// Times that a busy machine may spoil.
const ROUNDS: usize = 8;

fn far(last: u8) -> Far {
    let auto = Auto { echo: true, promise_ms: PROMISE_MS, ..Auto::default() };
    Far::at(Ipv4Addr::new(127, 0, 0, last), auto, Manner::default())
}

/// All stop at the same instant, and their last word comes at the same instant too: the promises fall due together.
fn fall_silent(fars: &[&Far]) {
    for far in fars {
        far.manner(|m| m.delay = FOR_EVER);
        far.pilot.set(|a| (a.every, a.answers) = (None, false));
    }
    fars.iter().flat_map(|f| f.live_links()).for_each(|l| l.beat_now());
}

fn speak(fars: &[&Far]) {
    for far in fars {
        far.manner(|m| m.delay = Duration::ZERO);
        far.pilot.set(|a| (a.every, a.answers) = (Some(Duration::from_millis(20)), true));
    }
}

fn holds(outbound: &Outbound) -> f64 {
    let gate = [("gate", "self_isolated")];
    outbound.sidecar.metric("sidebeat_gate_holds_total", &gate).expect("there from the start")
}

/// What one endpoint went through since `before` changes.
struct Course {
    all: Vec<Change>,
    suspect: Change,
    failed: Change,
}

/// Waits until each of them is FAILED, and gives their ways there.
fn courses(outbound: &Outbound, before: usize, fars: &[&Far]) -> Vec<Course> {
    let course = |far: &Far| {
        let address = far.addr.to_string();
        let all: Vec<Change> =
            outbound.events().into_iter().skip(before).filter(|c| c.endpoint == address).collect();
        let first = |to: State| all.iter().find(|c| c.to == to).cloned();
        match (first(State::Suspect), first(State::Failed)) {
            (Some(suspect), Some(failed)) => Ok(Course { all, suspect, failed }),
            _ => Err(format!("{all:#?}")),
        }
    };
    let course = |far: &&Far| eventually(HANG, "SUSPECT, then FAILED", || course(far));
    fars.iter().map(course).collect()
}

/// Whether all were in doubt before the first of them could fail.
fn fell_together(courses: &[Course]) -> bool {
    let doubts = || courses.iter().map(|c| c.suspect.at);
    let (first, last) = (doubts().min().expect("some"), doubts().max().expect("some"));
    let apart = last.since(first);
    println!("in doubt within {apart:?}");
    apart <= TOGETHER && courses.iter().all(|c| c.failed.at > last)
}

fn heal(outbound: &Outbound, fars: &[&Far]) {
    speak(fars);
    (0..fars.len()).for_each(|i| outbound.wait_state(i, State::Active));
    round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("work again");
}

#[test]
fn failed_waits_two_seconds_where_all_fall_silent_at_once() {
    let [a, b, c] = [2, 3, 4].map(far);
    let fars = [&a, &b, &c];
    let outbound = Outbound::with(&fars, "", SLOW);
    for _ in 0..ROUNDS {
        heal(&outbound, &fars);
        let (before, held) = (outbound.events().len(), holds(&outbound));
        fall_silent(&fars);
        let courses = courses(&outbound, before, &fars);
        if !fell_together(&courses) {
            continue;
        }
        for course in &courses {
            let all = &course.all;
            let says_why = |c: &Change| c.to == State::Suspect && c.cause == Cause::SelfIsolated;
            assert!(all.iter().any(says_why), "{all:#?}");
            assert_eq!(course.failed.cause, Cause::SelfIsolated, "{all:#?}");
            let waited = course.failed.at.since(course.suspect.at);
            println!("{}: FAILED {waited:?} after SUSPECT", course.failed.endpoint);
            // The hold counts from the broken promise, which was a little before SUSPECT.
            assert!(waited >= HOLD - Duration::from_millis(250), "{waited:?}: {all:#?}");
            let silence = course.failed.silence_ms.expect("known");
            let least = f64::from(PROMISE_MS) + HOLD.as_secs_f64() * 1e3;
            assert!(silence >= least - 1.0, "FAILED after {silence} ms of silence, {least} at least");
        }
        let held = holds(&outbound) - held;
        assert!(held >= 3.0, "the gate held back {held} verdicts");
        let failed = [("cause", "self_isolated"), ("to", "failed")];
        let failed = outbound.sidecar.metric("sidebeat_upstream_transitions_total", &failed);
        assert!(failed >= Some(3.0), "{failed:?}");
        return heal(&outbound, &fars);
    }
    panic!("the machine was too busy {ROUNDS} times: {:#?}", outbound.events());
}

/// Nothing is held back, and nobody blames himself: `silent` of these are silent.
fn fails_without_a_hold(fars: &[&Far], silent: usize) {
    let outbound = Outbound::with(fars, "", SLOW);
    let before = outbound.events().len();
    let silent = &fars[..silent];
    fall_silent(silent);
    for course in courses(&outbound, before, silent) {
        let waited = course.failed.at.since(course.suspect.at);
        println!("{}: FAILED {waited:?} after SUSPECT", course.failed.endpoint);
        outbound.change(before, State::Failed, &[Cause::HangPeer]);
    }
    let blamed = outbound.events().into_iter().filter(|c| c.cause == Cause::SelfIsolated).count();
    assert_eq!((blamed, holds(&outbound)), (0, 0.0), "{:#?}", outbound.events());
    heal(&outbound, fars);
}

#[test]
fn one_silent_of_three_is_failed_without_that_hold() {
    let [a, b, c] = [2, 3, 4].map(far);
    fails_without_a_hold(&[&a, &b, &c], 1);
}

/// One machine may well be gone with all that is on it.
#[test]
fn three_on_one_address_are_failed_without_that_hold() {
    let [a, b, c] = [2, 2, 2].map(far);
    fails_without_a_hold(&[&a, &b, &c], 3);
}
