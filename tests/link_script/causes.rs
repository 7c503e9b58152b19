//! A scripted acceptor against an outbound sidecar: causes that show only where a real shell asks a real port.

use std::time::Duration;

use sidebeat::verdict::{Cause, State, Vouch};
use sidebeat::wire::{Backpressure, Frame};

use crate::far::{At, Far, Outbound};
use crate::peer::{Auto, Peer};
use crate::support::eventually;
use crate::support::rng::Rng;
use crate::support::service::{HANG, Service, connect, round_trip};

fn echoing() -> Auto {
    Auto { echo: true, ..Auto::default() }
}

fn wait_endpoint(outbound: &Outbound, key: &str, value: &str) {
    eventually(HANG, &format!("{key} is {value}"), || {
        let e = outbound.endpoint(0);
        if e[key] == value { Ok(()) } else { Err(format!("{e}\n{:#?}", outbound.events())) }
    });
}

/// Round trips on connections of their own; gives how many streams the scripted sidecar was asked for meanwhile.
fn work(outbound: &Outbound, far: &Far) -> usize {
    let opens = || far.links().iter().map(|l| l.count(|f| matches!(f, Frame::Open { .. }))).sum::<usize>();
    let before = opens();
    for n in 0..20 {
        round_trip(&mut connect(outbound.addr), &mut Rng::new(n)).expect("traffic flows");
    }
    opens() - before
}

/// The process of the sidecar is gone: its links end and its port is closed.
fn gone(far: &Far) {
    far.stop_listening();
    far.live_links().iter().for_each(Peer::rst);
}

#[test]
fn a_service_that_lives_without_its_sidecar_is_used_plain_and_the_cause_says_so() {
    let service = Service::echo();
    let far = Far::start(echoing());
    let outbound = Outbound::raw(&[At(service.addr, far.addr)], "", "");
    wait_endpoint(&outbound, "link", "framed");
    assert_eq!(work(&outbound, &far), 20, "over the link");
    for _ in 0..3 {
        let before = outbound.events().len();
        gone(&far);
        let back = outbound.change(before, State::Active, &[Cause::SidecarLost]);
        assert_eq!(back.from, State::Suspect, "{back:?}");
        wait_endpoint(&outbound, "link", "plain");
        let e = outbound.endpoint(0);
        assert_eq!((&e["state"], &e["cause"]), (&"active".into(), &"sidecar_lost".into()), "{e}");
        assert_eq!(work(&outbound, &far), 0, "nobody is there to be asked");
        far.listen_again();
        wait_endpoint(&outbound, "link", "framed");
        wait_endpoint(&outbound, "cause", "none");
        assert_eq!(work(&outbound, &far), 20, "over the link again");
    }
    assert!(!outbound.ever_failed(), "{:#?}", outbound.events());
    let told = [("cause", "sidecar_lost"), ("to", "active")];
    assert_eq!(outbound.sidecar.metric("sidebeat_upstream_transitions_total", &told), Some(3.0));
}

/// Where nothing may go plain the same thing is a failure, and its cause is the same.
#[test]
fn without_a_way_round_a_lost_sidecar_is_failed_for_that_cause() {
    let service = Service::echo();
    let far = Far::start(echoing());
    let outbound = Outbound::raw(&[At(service.addr, far.addr)], "link = \"required\"", "");
    wait_endpoint(&outbound, "link", "framed");
    let before = outbound.events().len();
    gone(&far);
    outbound.change(before, State::Failed, &[Cause::SidecarLost]);
    assert_eq!(outbound.endpoint(0)["cause"], "sidecar_lost");
    far.listen_again();
    outbound.wait_state(0, State::Active);
    assert_eq!(work(&outbound, &far), 20);
}

#[test]
fn a_busy_service_keeps_its_work_and_the_cause_says_so() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    far.pilot.set(|a| a.vouch = Vouch::Busy);
    wait_endpoint(&outbound, "cause", "busy");
    assert_eq!((&outbound.endpoint(0)["state"], work(&outbound, &far)), (&"active".into(), 20));
    far.pilot.set(|a| a.vouch = Vouch::Working);
    wait_endpoint(&outbound, "cause", "none");
    assert!(!outbound.ever_failed(), "{:#?}", outbound.events());
}

#[test]
fn a_full_peer_is_saturated_until_it_says_that_it_is_over() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    let full =
        |active| Backpressure { active, occupancy: 990, queued: 1 << 20, since_ms: 10, promise_ms: 1500 };
    eventually(Duration::from_secs(20), "the cause is saturated", || {
        far.say(&Frame::Backpressure(full(true)));
        let e = outbound.endpoint(0);
        if e["cause"] == "saturated" && e["state"] == "active" { Ok(()) } else { Err(e.to_string()) }
    });
    far.say(&Frame::Backpressure(full(false)));
    wait_endpoint(&outbound, "cause", "none");
    assert!(!outbound.ever_failed(), "{:#?}", outbound.events());
}
