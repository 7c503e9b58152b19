//! Beats that no honest peer sends: each is counted, and what it can do is bounded.

use std::time::Duration;

use sidebeat::clock;
use sidebeat::verdict::{Cause, State, Vouch};
use sidebeat::wire::{Beat, Frame};

use crate::far::{Far, Outbound};
use crate::near::{Inbound, whole_request};
use crate::peer::Auto;
use crate::support::eventually;
use crate::support::pair::{Setup, Sidecar};
use crate::support::rng::Rng;
use crate::support::service::{HANG, Service, connect, round_trip};

/// No promise is believed for longer.
const BELIEVED: Duration = Duration::from_secs(10);
/// Number of a beat that is newer than all that the autopilot has said.
const NEWER: u32 = 1_000_000;

fn odd(sidecar: &Sidecar, kind: &str) -> f64 {
    sidecar.metric("sidebeat_odd_beats_total", &[("kind", kind)]).expect("the series is there")
}

fn counts(sidecar: &Sidecar, kind: &str, what: impl FnOnce()) {
    let before = odd(sidecar, kind);
    what();
    eventually(HANG, kind, || {
        (odd(sidecar, kind) > before).then_some(()).ok_or_else(|| "not counted".to_owned())
    });
}

/// A scripted sidecar that says nothing by itself, but answers.
fn quiet() -> (Far, Outbound) {
    let far = Far::start(Auto { echo: true, ..Auto::default() });
    let outbound = Outbound::to(&[&far]);
    outbound.wait_state(0, State::Active);
    far.pilot.set(|a| a.every = None);
    (far, outbound)
}

#[test]
fn each_oddity_is_counted_and_changes_no_state() {
    let (far, outbound) = quiet();
    let sidecar = &outbound.sidecar;
    let beat = |seq: u32| Beat { seq, promise_ms: 1500, ..Beat::default() };
    counts(sidecar, "gap", || far.say(&Frame::Beat(beat(NEWER))));
    // What it says is not taken: a service that is said to be stopped would be FAILED by proof.
    for seq in [NEWER, NEWER - 1, 1, 0, NEWER.wrapping_add(1 << 31)] {
        counts(sidecar, "replayed", || {
            far.say(&Frame::Beat(Beat { vouch: Vouch::Stopped, promise_ms: 1, ..beat(seq) }));
        });
    }
    counts(sidecar, "promise_zero", || far.say(&Frame::Beat(Beat { promise_ms: 0, ..beat(NEWER + 1) })));
    counts(sidecar, "echo", || far.say(&Frame::Beat(Beat { heard_seq: NEWER, ..beat(NEWER + 2) })));
    counts(sidecar, "promise_capped", || {
        far.say(&Frame::Beat(Beat { promise_ms: u16::MAX, ..beat(NEWER + 3) }));
    });
    assert!(!outbound.ever_failed(), "{:?}", outbound.events());
    round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("work goes on");
}

#[test]
fn a_proof_that_is_newer_is_taken() {
    let (far, outbound) = quiet();
    far.say(&Frame::Beat(Beat { seq: NEWER, promise_ms: 1500, vouch: Vouch::Stopped, ..Beat::default() }));
    outbound.change(0, State::Failed, &[Cause::Hang]);
}

#[test]
fn the_longest_promise_blinds_for_ten_seconds() {
    let (far, outbound) = quiet();
    far.pilot.set(|a| a.answers = false);
    far.say(&Frame::Beat(Beat { seq: NEWER, promise_ms: u16::MAX, ..Beat::default() }));
    let said = clock::now();
    outbound.change(0, State::Failed, &[]);
    let took = clock::now().since(said);
    assert!(took < BELIEVED * 3 / 2, "{took:?}");
}

#[test]
fn a_replayed_promise_is_not_taken() {
    let (far, outbound) = quiet();
    far.pilot.set(|a| a.answers = false);
    far.say(&Frame::Beat(Beat { seq: NEWER, promise_ms: 500, ..Beat::default() }));
    far.say(&Frame::Beat(Beat { seq: NEWER, promise_ms: 10_000, ..Beat::default() }));
    let said = clock::now();
    outbound.change(0, State::Failed, &[]);
    let took = clock::now().since(said);
    assert!(took < BELIEVED / 2, "{took:?}");
}

#[test]
fn sidecars_say_nothing_odd_to_each_other() {
    let service = Service::echo();
    let pair = Setup::new(service.addr).start();
    let mut client = connect(pair.addr);
    for n in 0..300 {
        round_trip(&mut client, &mut Rng::new(n)).expect("work");
    }
    for sidecar in pair.sidecars() {
        eventually(HANG, "beats are counted", || {
            let beats = sidecar.metric("sidebeat_frames_total", &[("kind", "beat"), ("direction", "in")]);
            (beats > Some(10.0)).then_some(()).ok_or_else(|| format!("{beats:?}"))
        });
        for kind in ["replayed", "gap", "echo", "promise_zero", "promise_capped", "rtt_capped"] {
            assert_eq!(odd(sidecar, kind), 0.0, "{kind}");
        }
    }
    drop(client);
    pair.finish();
}

#[test]
fn more_links_may_be_on_duty() {
    for duty in [1, 2] {
        let service = Service::echo();
        let tables = format!("[beat]\nduty = {duty}\n");
        let inbound = Inbound::with(service.addr, "", &tables);
        let links: Vec<_> = (0..3).map(|_| inbound.link()).collect();
        for link in &links {
            link.raw(whole_request(1, b"work"));
            link.wait_fin(1);
        }
        // The link used first was thrown off duty by those after it.
        let (first, others) = links.split_first().unwrap();
        first.beat_after("off duty", |b| b.promise_ms == 10_000);
        let on_duty = &others[2 - duty..];
        for link in on_duty {
            link.beat_after("an idle beat on duty", |b| b.promise_ms == 100);
        }
    }
}
