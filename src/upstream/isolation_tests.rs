//! Endpoints of which many fall silent at once.

use std::time::Duration;

use super::endpoint::Endpoint;
use super::facts::{DialResult, EndpointOutput, EndpointParams, LinkLost};
use super::isolation::ISOLATION_HOLD;
use crate::detector::{Evidence, Output};
use crate::stamp::Stamp;
use crate::verdict::{Cause, State};

fn ms(n: u64) -> Stamp {
    Stamp::from_millis(n)
}

fn evidence(silence: u64) -> Evidence {
    let silence = Duration::from_millis(silence);
    Evidence {
        silence,
        since_last: silence + Duration::from_millis(21),
        promise: Duration::from_millis(20),
        rtt: None,
        peak: Duration::ZERO,
        score: 0.2,
        one_way: false,
        learned: None,
        mistake: false,
        outage: false,
    }
}

/// Linked at 1000, doubted at 2000; its judge fails it at 2010.
fn doubted() -> Endpoint {
    let mut e = Endpoint::new(EndpointParams::default(), ms(1000));
    e.link_up(ms(1000), 1, 7);
    e.link_output(ms(2000), 1, &Output::Suspect(evidence(5)));
    settle(&mut e, 2000);
    e
}

fn settle(e: &mut Endpoint, at: u64) {
    let mut rounds = 0;
    while let Some(out) = e.poll(ms(at)) {
        assert!(!matches!(out, EndpointOutput::CutStreams), "nothing is cut at {at}");
        rounds += 1;
        assert!(rounds < 50, "poll never ends");
    }
}

fn fails(e: &mut Endpoint, at: u64, isolated: bool) {
    e.isolation(ms(at), isolated);
    e.link_output(ms(at), 1, &Output::Failed(evidence(15)));
    settle(e, at);
}

#[test]
fn failed_by_silence_waits_while_everything_is_silent_and_then_says_why() {
    let mut e = doubted();
    fails(&mut e, 2010, true);
    assert_eq!((e.state(), e.cause()), (State::Suspect, Cause::SelfIsolated));
    assert!(e.asks_isolation(ms(2010)));
    let until = 1995 + ISOLATION_HOLD.as_millis() as u64;
    e.dial(ms(2100), DialResult::Unanswered);
    settle(&mut e, until - 1);
    assert_eq!((e.state(), e.cause()), (State::Suspect, Cause::SelfIsolated));
    settle(&mut e, until);
    assert_eq!((e.state(), e.cause()), (State::Failed, Cause::SelfIsolated));
    assert!(!e.by_proof());
}

#[test]
fn when_others_are_heard_again_what_was_held_back_is_true_at_once() {
    let mut e = doubted();
    fails(&mut e, 2010, true);
    e.isolation(ms(2100), false);
    settle(&mut e, 2100);
    assert_eq!((e.state(), e.cause()), (State::Failed, Cause::Silent));
    e.dial(ms(2200), DialResult::Unanswered);
    settle(&mut e, 2200);
    assert_eq!(e.cause(), Cause::Blackhole, "and may be refined");
}

#[test]
fn one_that_failed_before_the_others_fell_silent_is_told_why_later() {
    let mut e = doubted();
    fails(&mut e, 2010, false);
    assert_eq!((e.state(), e.cause()), (State::Failed, Cause::Silent));
    assert!(e.asks_isolation(ms(2100)) && !e.asks_isolation(ms(2300)));
    e.isolation(ms(2100), true);
    settle(&mut e, 2100);
    assert_eq!((e.state(), e.cause()), (State::Failed, Cause::SelfIsolated));
    e.isolation(ms(2150), false);
    settle(&mut e, 2150);
    assert_eq!((e.state(), e.cause()), (State::Failed, Cause::Silent));
}

#[test]
fn life_ends_the_wait() {
    let mut e = doubted();
    fails(&mut e, 2010, true);
    e.link_output(ms(2300), 1, &Output::Active(evidence(300)));
    settle(&mut e, 2300);
    assert_eq!((e.state(), e.cause()), (State::Active, Cause::None));
    settle(&mut e, 6000);
    assert_eq!(e.state(), State::Active, "nothing of the wait is left");
}

#[test]
fn proof_does_not_wait() {
    let mut e = doubted();
    fails(&mut e, 2010, true);
    e.link_lost(ms(2020), 1, LinkLost::Rst);
    e.dial(ms(2021), DialResult::Refused);
    e.service_port(ms(2022), super::facts::PortState::Refused);
    let mut cut = false;
    while let Some(out) = e.poll(ms(2022)) {
        cut |= matches!(out, EndpointOutput::CutStreams);
    }
    assert_eq!((e.state(), e.cause(), e.by_proof(), cut), (State::Failed, Cause::Crash, true, true));
}
