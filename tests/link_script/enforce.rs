//! What a verdict may do: `enforce` in its three modes, changed on the way, and `max_failed`.

use std::net::TcpStream;
use std::time::Duration;

use sidebeat::verdict::{Cause, State, Vouch};
use sidebeat::wire::Frame;

use crate::far::{Far, Outbound};
use crate::near::read_all;
use crate::peer::{Auto, Peer};
use crate::support::eventually;
use crate::support::pair::NAME;
use crate::support::rng::Rng;
use crate::support::service::{HANG, connect, round_trip};
use crate::verdicts::{FOR_EVER, echoing, looks};

/// More than both workers' balancers need to come to every endpoint several times.
const MANY: usize = 12;

/// Scripted sidecars, each a node of its own.
fn fars<const N: usize>() -> [Far; N] {
    std::array::from_fn(|n| {
        let far = Far::start(echoing());
        far.manner(|m| m.incarnation = 100 + n as u64);
        far
    })
}

fn to(fars: &[Far], more: &str) -> Outbound {
    let outbound = Outbound::with(&fars.iter().collect::<Vec<_>>(), more, "");
    (0..fars.len()).for_each(|n| outbound.wait_state(n, State::Active));
    outbound
}

fn opens(far: &Far) -> usize {
    far.links().iter().map(|l| l.count(|f| matches!(f, Frame::Open { .. }))).sum()
}

/// New connections: how many came to each of `fars`. None may fail.
fn new_work(outbound: &Outbound, fars: &[Far]) -> Vec<usize> {
    let before: Vec<_> = fars.iter().map(opens).collect();
    for n in 0..MANY {
        round_trip(&mut connect(outbound.addr), &mut Rng::new(n as u64)).expect("a new connection is served");
    }
    fars.iter().zip(before).map(|(f, b)| opens(f) - b).collect()
}

/// A connection that is held open on `far`, and its stream there.
fn held_on(outbound: &Outbound, far: &Far) -> (TcpStream, Peer, u32) {
    let mut others = Vec::new();
    eventually(HANG, "a connection to each endpoint", || {
        let before = opens(far);
        let mut client = connect(outbound.addr);
        round_trip(&mut client, &mut Rng::new(7)).map_err(|e| e.to_string())?;
        if opens(far) > before {
            let (link, stream) = far.opened();
            return Ok((client, link, stream));
        }
        others.push(client);
        Err("it came to another one".to_owned())
    })
}

/// Whether a new connection is reset, be it while it connects or before it has an answer.
fn turned_away(outbound: &Outbound) -> bool {
    let asked = TcpStream::connect_timeout(&outbound.addr, HANG).and_then(|mut client| {
        client.set_read_timeout(Some(HANG))?;
        round_trip(&mut client, &mut Rng::new(9))
    });
    asked.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock)
}

fn goes_on(client: &mut TcpStream) {
    round_trip(client, &mut Rng::new(8)).expect("what is open goes on");
}

fn cut_so_far(outbound: &Outbound) -> f64 {
    let failed = [("reason", "failed")];
    outbound.sidecar.metric("sidebeat_connections_closed_total", &failed).expect("there from the start")
}

fn enforced(outbound: &Outbound) -> String {
    let status: serde_json::Value = serde_json::from_str(&outbound.sidecar.status()).expect("JSON");
    status["upstreams"][0]["enforce"].as_str().expect("a word").to_owned()
}

fn enforce(outbound: &Outbound, mode: &str) {
    let (status, said) = outbound.sidecar.post(&format!("/enforce?upstream={NAME}&mode={mode}"));
    assert_eq!((status, said), (200, format!("{NAME}: enforce is {mode}\n")));
    assert_eq!(enforced(outbound), mode);
}

#[test]
fn off_judges_and_does_nothing() {
    let fars = fars::<2>();
    let outbound = to(&fars, "enforce = \"off\"");
    assert_eq!(enforced(&outbound), "off");
    let (mut held, link, _) = held_on(&outbound, &fars[0]);
    // By what its sidecar says: proof, which cuts at once.
    fars[0].pilot.set(|a| a.vouch = Vouch::Gone);
    outbound.change(0, State::Failed, &[Cause::Crash]);
    let came = new_work(&outbound, &fars);
    assert!(came.iter().all(|n| *n >= 2), "a FAILED endpoint gets its share as any other: {came:?}");
    goes_on(&mut held);
    fars[0].pilot.set(|a| a.vouch = Vouch::Working);
    outbound.wait_state(0, State::Active);

    // By silence, which cuts after a second.
    let before = outbound.events().len();
    fars[0].manner(|m| m.delay = FOR_EVER);
    fars[0].pilot.set(|a| (a.every, a.answers) = (None, false));
    outbound.change(before, State::Failed, &[]);
    looks("silent", Duration::from_secs(2), || {});
    goes_on(&mut held);
    assert_eq!(link.count(|f| matches!(f, Frame::Reset { .. })), 0, "nothing is cut");
    assert_eq!(cut_so_far(&outbound), 0.0);
}

#[test]
fn suspect_avoids_and_takes_nothing_out() {
    let fars = fars::<2>();
    let outbound = to(&fars, "enforce = \"suspect\"");
    let (mut held, ..) = held_on(&outbound, &fars[0]);
    for (vouch, state) in [(Vouch::Stalled, State::Suspect), (Vouch::Gone, State::Failed)] {
        fars[0].pilot.set(|a| a.vouch = vouch);
        outbound.wait_state(0, state);
        assert_eq!(new_work(&outbound, &fars), [0, MANY], "{state:?} is avoided");
    }
    // All are FAILED by proof: each still takes work, where `failed` would turn everybody away.
    fars[1].pilot.set(|a| a.vouch = Vouch::Gone);
    outbound.wait_state(1, State::Failed);
    let came = new_work(&outbound, &fars);
    assert!(came.iter().all(|n| *n >= 2), "nothing is taken out: {came:?}");
    goes_on(&mut held);
    assert_eq!(cut_so_far(&outbound), 0.0);
}

#[test]
fn failed_avoids_takes_out_and_cuts() {
    let fars = fars::<2>();
    let outbound = to(&fars, "");
    assert_eq!(enforced(&outbound), "failed", "as it is by default");
    let (mut held, link, stream) = held_on(&outbound, &fars[0]);
    fars[0].pilot.set(|a| a.vouch = Vouch::Gone);
    outbound.wait_state(0, State::Failed);
    assert_eq!(read_all(&mut held).1, Some(std::io::ErrorKind::ConnectionReset));
    link.wait_reset(stream);
    assert!(cut_so_far(&outbound) >= 1.0);
    assert_eq!(new_work(&outbound, &fars), [0, MANY]);
    fars[1].pilot.set(|a| a.vouch = Vouch::Gone);
    outbound.wait_state(1, State::Failed);
    assert!(turned_away(&outbound), "all are dead for sure: nobody takes it");
    assert!(outbound.sidecar.metric("sidebeat_rejected_total", &[("reason", "no_endpoint")]) >= Some(1.0));
}

/// An operator who does not trust the verdicts any more, and who does so again.
#[test]
fn what_a_verdict_may_do_is_changed_on_the_way() {
    let fars = fars::<2>();
    let outbound = to(&fars, "");
    fars[0].pilot.set(|a| a.vouch = Vouch::Gone);
    outbound.wait_state(0, State::Failed);
    assert_eq!(new_work(&outbound, &fars), [0, MANY]);
    enforce(&outbound, "off");
    let came = new_work(&outbound, &fars);
    assert!(came[0] >= 2, "{came:?}");
    enforce(&outbound, "suspect");
    assert_eq!(new_work(&outbound, &fars), [0, MANY]);
    enforce(&outbound, "failed");
    fars[1].pilot.set(|a| a.vouch = Vouch::Gone);
    outbound.wait_state(1, State::Failed);
    assert!(turned_away(&outbound));
    enforce(&outbound, "off");
    let came = new_work(&outbound, &fars);
    assert!(came.iter().all(|n| *n >= 2), "{came:?}");

    let (status, said) = outbound.sidecar.post("/enforce?upstream=nobody&mode=off");
    assert!(status == 400 && said.contains(NAME), "names those there are: {status} {said}");
    assert_eq!(enforced(&outbound), "off");
}

/// Those of `fars` that a new connection is tried on, all of them being silent.
fn tried(outbound: &Outbound, fars: &[Far]) -> usize {
    let before: Vec<_> = fars.iter().map(opens).collect();
    for _ in 0..MANY {
        // Nobody answers: it is turned away when each that may have it was tried.
        assert!(turned_away(outbound));
    }
    fars.iter().zip(before).filter(|(f, b)| opens(f) > *b).count()
}

/// Silence alone takes out at most that share, and never the last one.
#[test]
fn max_failed_bounds_what_silence_takes_out() {
    for (max_failed, left) in [("0.0", 3), ("0.34", 2), ("1.0", 1)] {
        let fars = fars::<3>();
        let outbound = to(
            &fars,
            &format!("max_failed = {max_failed}\nconnect_timeout = \"100ms\"\ncut_after = \"off\""),
        );
        for far in &fars {
            far.manner(|m| m.delay = FOR_EVER);
            far.pilot.set(|a| *a = Auto::none());
        }
        (0..3).for_each(|n| outbound.wait_state(n, State::Failed));
        assert!(outbound.events().iter().all(|c| c.cause != Cause::Crash), "nothing proves it");
        assert_eq!(tried(&outbound, &fars), left, "max_failed = {max_failed}");
    }
}
