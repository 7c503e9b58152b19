use super::*;
use crate::detector::Evidence;
use proptest::prelude::*;

fn ms(x: u64) -> Stamp {
    Stamp::from_millis(x)
}

fn dur(x: u64) -> Duration {
    Duration::from_millis(x)
}

fn evidence(silence: u64) -> Evidence {
    Evidence {
        silence: dur(silence),
        since_last: dur(silence + 21),
        promise: dur(20),
        rtt: Some(dur(1)),
        peak: Duration::ZERO,
        score: if silence > 9 { 0.2 } else { 0.5 },
        one_way: false,
        learned: None,
        mistake: false,
        outage: false,
    }
}

struct Bench {
    endpoint: Endpoint,
    seen: Vec<(u64, EndpointOutput)>,
}

impl Bench {
    fn new(policy: LinkPolicy) -> Self {
        let params = EndpointParams { policy, ..EndpointParams::default() };
        Bench { endpoint: Endpoint::new(params, ms(1000)), seen: Vec::new() }
    }

    /// An endpoint with link 1 of incarnation 7, up since 1000.
    fn linked(policy: LinkPolicy) -> Self {
        let mut b = Bench::new(policy);
        b.endpoint.link_up(ms(1000), 1, 7);
        b.poll(1000);
        b.seen.clear();
        b
    }

    fn poll(&mut self, at: u64) {
        let mut rounds = 0;
        while let Some(output) = self.endpoint.poll(ms(at)) {
            self.seen.push((at, output));
            rounds += 1;
            assert!(rounds < 50, "poll never ends: {:?}", self.seen);
        }
        let (due, why) = self.endpoint.next_due(ms(at));
        assert!(due > ms(at), "{why} is due in the past");
    }

    /// Wakes each millisecond until `end`.
    fn until(&mut self, from: u64, end: u64) {
        for t in from..=end {
            self.poll(t);
        }
    }

    fn moves(&mut self) -> Vec<(u64, State, Cause, bool)> {
        let seen = std::mem::take(&mut self.seen);
        seen.iter()
            .filter_map(|(at, o)| match o {
                EndpointOutput::Transition(t) => Some((*at, t.to, t.cause, t.by_proof)),
                _ => None,
            })
            .collect()
    }

    fn at(&self, want: EndpointOutput) -> Vec<u64> {
        self.seen.iter().filter(|(_, o)| *o == want).map(|(at, _)| *at).collect()
    }

    fn fail_by_silence(&mut self, at: u64) {
        self.endpoint.link_output(ms(at), 1, &Output::Suspect(evidence(4)));
        self.poll(at);
        self.endpoint.link_output(ms(at + 5), 1, &Output::Failed(evidence(10)));
        self.poll(at + 5);
    }
}

#[test]
fn unknown_endpoints_take_work_and_are_dialled() {
    for (policy, mode, dials) in [
        (LinkPolicy::Auto, Mode::Plain, 1),
        (LinkPolicy::Required, Mode::Framed, 1),
        (LinkPolicy::Off, Mode::Plain, 0),
    ] {
        let mut b = Bench::new(policy);
        b.poll(1000);
        assert_eq!(b.at(EndpointOutput::FreshDial).len(), dials, "{policy:?}");
        assert_eq!((b.endpoint.state(), b.endpoint.mode()), (State::Active, mode));
        assert_eq!(b.endpoint.facets(ms(1000)), Facets::default());
    }
}

#[test]
fn a_link_makes_it_framed_and_ends_the_dials() {
    let mut b = Bench::new(LinkPolicy::Auto);
    b.endpoint.link_up(ms(1010), 1, 7);
    b.until(1010, 1500);
    assert_eq!(b.at(EndpointOutput::ModeFramed), [1010]);
    assert!(b.at(EndpointOutput::FreshDial).is_empty());
}

#[test]
fn a_link_off_duty_that_breaks_no_promise_hides_no_cause() {
    for (result, cause) in
        [(DialResult::AcceptedNoWelcome, Cause::HangPeer), (DialResult::Unanswered, Cause::Blackhole)]
    {
        let mut b = Bench::linked(LinkPolicy::Auto);
        b.endpoint.link_up(ms(1005), 2, 7);
        b.until(1005, 1900);
        b.endpoint.link_heard(ms(1900), 1);
        b.fail_by_silence(2000);
        b.endpoint.dial(ms(2040), result);
        b.poll(2040);
        assert_eq!((b.endpoint.state(), b.endpoint.cause()), (State::Failed, cause));
        // Once it is heard it speaks for the node.
        b.endpoint.link_heard(ms(2050), 2);
        b.endpoint.dial(ms(2060), DialResult::Unanswered);
        assert_eq!(b.endpoint.cause(), cause);
    }
}

#[test]
fn a_foreign_server_is_used_plain_and_asked_rarely() {
    let mut b = Bench::new(LinkPolicy::Auto);
    b.poll(1000);
    b.endpoint.dial(ms(1001), DialResult::NotSidecar);
    b.seen.clear();
    b.until(1001, 20_000);
    assert!(b.at(EndpointOutput::FreshDial).is_empty());
    for t in 20_001..32_000 {
        b.poll(t);
        if b.at(EndpointOutput::FreshDial).last() == Some(&t) {
            b.endpoint.dial(ms(t), DialResult::NotSidecar);
        }
    }
    assert_eq!(b.at(EndpointOutput::FreshDial).len(), 1);
    assert_eq!(b.endpoint.state(), State::Active);
}

#[test]
fn silence_goes_through_suspect_to_failed_with_dials_and_a_late_cut() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.fail_by_silence(2000);
    b.until(2006, 4000);
    let dials = b.at(EndpointOutput::FreshDial);
    assert_eq!(dials[0], 2000, "at SUSPECT at once");
    assert!((80..=101).contains(&(dials[1] - dials[0])));
    assert!((9..=14).contains(&dials.len()), "{dials:?}");
    assert_eq!(b.at(EndpointOutput::CutStreams), [3005]);
    let moves = b.moves();
    assert_eq!(
        moves,
        [(2000, State::Suspect, Cause::Silent, false), (2005, State::Failed, Cause::Silent, false)]
    );
}

#[test]
fn the_transition_carries_its_numbers() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.fail_by_silence(2000);
    let Some((_, EndpointOutput::Transition(t))) =
        b.seen.iter().rfind(|(_, o)| matches!(o, EndpointOutput::Transition(_)))
    else {
        panic!()
    };
    assert_eq!((t.silence, t.detection), (dur(10), Some(dur(31))));
    assert!((t.score, t.link_score) == (0.2, 0.2) && t.service_score == 1.0);
}

#[test]
fn causes_are_refined_by_the_fresh_dial_for_250_ms() {
    for (result, cause) in
        [(DialResult::AcceptedNoWelcome, Cause::HangPeer), (DialResult::Unanswered, Cause::Blackhole)]
    {
        let mut b = Bench::linked(LinkPolicy::Auto);
        b.fail_by_silence(2000);
        b.endpoint.dial(ms(2100), result);
        b.poll(2100);
        assert_eq!(b.at(EndpointOutput::CauseRefined(cause)), [2100]);
        let mut b = Bench::linked(LinkPolicy::Auto);
        b.fail_by_silence(2000);
        b.endpoint.dial(ms(2300), result);
        b.poll(2300);
        assert_eq!(b.endpoint.cause(), Cause::Silent);
    }
}

#[test]
fn one_way_keeps_its_name() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    let e = Evidence { one_way: true, ..evidence(10) };
    b.endpoint.link_output(ms(2000), 1, &Output::Suspect(e));
    b.poll(2000);
    b.endpoint.dial(ms(2001), DialResult::Unanswered);
    b.endpoint.link_output(ms(2005), 1, &Output::Failed(e));
    b.poll(2005);
    assert_eq!(
        b.moves(),
        [(2000, State::Suspect, Cause::OneWay, false), (2005, State::Failed, Cause::OneWay, false)]
    );
}

/// Links that promise little hear the peer and are trusted; they must not take the verdict back before we are heard.
#[test]
fn one_way_is_not_healed_by_what_is_heard_on_links_of_before() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.link_up(ms(1100), 2, 7);
    let e = Evidence { one_way: true, ..evidence(10) };
    b.endpoint.link_heard(ms(2004), 2);
    b.endpoint.link_output(ms(2005), 1, &Output::Suspect(e));
    b.endpoint.link_output(ms(2010), 1, &Output::Failed(e));
    for t in 2010..2500 {
        b.endpoint.link_heard(ms(t), 2);
        b.poll(t);
    }
    assert_eq!(b.endpoint.state(), State::Failed);
    b.endpoint.link_up(ms(2500), 3, 7);
    for t in 2500..2600 {
        b.endpoint.link_heard(ms(t), 3);
        b.poll(t);
    }
    assert_eq!(b.endpoint.state(), State::Active);
}

#[test]
fn the_judge_of_the_silent_link_heals_it() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.fail_by_silence(2000);
    let e = Evidence { mistake: true, ..evidence(60) };
    b.endpoint.link_heard(ms(2050), 1);
    b.endpoint.link_output(ms(2065), 1, &Output::Active(e));
    b.poll(2065);
    assert_eq!(b.moves().last(), Some(&(2065, State::Active, Cause::None, false)));
    assert_eq!((b.endpoint.mistakes(), b.endpoint.outages_healed()), (1, 0));
    assert!((b.endpoint.share(ms(2065)) - 0.1).abs() < 1e-9);
    assert_eq!(b.endpoint.share(ms(13_000)), 1.0);
    b.until(2066, 5000);
    assert!(b.at(EndpointOutput::CutStreams).is_empty() && b.at(EndpointOutput::FreshDial).is_empty());
}

#[test]
fn a_fresh_link_heals_within_tens_of_ms_and_is_probed() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.fail_by_silence(2000);
    b.endpoint.link_up(ms(4000), 2, 7);
    b.poll(4000);
    assert_eq!(b.at(EndpointOutput::Probe(2)), [4000]);
    for i in 1..=3 {
        b.endpoint.link_heard(ms(4000 + 5 * i), 2);
        b.endpoint.link_heard(ms(4001 + 5 * i), 2);
        b.poll(4001 + 5 * i);
    }
    assert_eq!(b.moves().last(), Some(&(4016, State::Active, Cause::None, false)));
    assert_eq!(b.endpoint.outages_healed(), 1);
}

#[test]
fn a_silent_link_whose_frames_arrive_does_not_heal_without_its_judge() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.fail_by_silence(2000);
    for t in 2010..2100 {
        b.endpoint.link_heard(ms(t), 1);
        b.poll(t);
    }
    assert_eq!(b.endpoint.state(), State::Failed);
}

#[test]
fn suspect_is_undone_by_two_frames_of_a_fresh_link() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.link_output(ms(2000), 1, &Output::Suspect(evidence(4)));
    b.poll(2000);
    b.endpoint.link_up(ms(2002), 2, 7);
    b.poll(2002);
    assert_eq!(b.endpoint.state(), State::Suspect);
    b.endpoint.link_heard(ms(2008), 2);
    b.poll(2008);
    assert_eq!(b.endpoint.state(), State::Active);
    b.endpoint.link_output(ms(2009), 1, &Output::LinkOnly(evidence(10)));
    b.endpoint.link_lost(ms(2009), 1, LinkLost::Cut);
    b.poll(2009);
    assert_eq!(b.endpoint.state(), State::Active);
}

#[test]
fn a_link_alone_is_not_the_node() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.link_up(ms(1001), 2, 7);
    b.endpoint.link_heard(ms(1999), 2);
    b.endpoint.link_output(ms(2000), 1, &Output::Suspect(evidence(4)));
    b.poll(2000);
    assert_eq!(b.endpoint.state(), State::Active);
    b.endpoint.link_lost(ms(2001), 1, LinkLost::Rst);
    b.until(2001, 2500);
    assert_eq!(b.endpoint.state(), State::Active);
    assert!(b.moves().is_empty());
}

#[test]
fn crash_is_fin_and_refused_twice() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.link_heard(ms(1999), 1);
    b.endpoint.link_lost(ms(2000), 1, LinkLost::Fin);
    b.poll(2000);
    assert_eq!(b.at(EndpointOutput::FreshDial), [2000]);
    b.endpoint.dial(ms(2001), DialResult::Refused);
    b.poll(2001);
    assert_eq!(b.at(EndpointOutput::ProbeServicePort), [2001]);
    b.endpoint.service_port(ms(2002), PortState::Refused);
    b.poll(2002);
    assert_eq!(b.at(EndpointOutput::CutStreams), [2002], "proof cuts at once");
    assert_eq!(
        b.moves(),
        [(2000, State::Suspect, Cause::Silent, false), (2002, State::Failed, Cause::Crash, true)]
    );
    assert!(b.endpoint.by_proof());
}

#[test]
fn a_dying_process_that_still_accepts_is_asked_again_in_a_millisecond() {
    let mut b = Bench::linked(LinkPolicy::Required);
    b.endpoint.link_lost(ms(2000), 1, LinkLost::Rst);
    b.poll(2000);
    b.endpoint.dial(ms(2000), DialResult::NotSidecar);
    b.until(2000, 2001);
    assert_eq!(b.at(EndpointOutput::FreshDial), [2000, 2001]);
    b.endpoint.dial(ms(2001), DialResult::Refused);
    b.poll(2001);
    assert_eq!(b.endpoint.state(), State::Failed);
}

#[test]
fn a_lost_sidecar_is_plain_with_auto_and_failed_with_required() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.link_lost(ms(2000), 1, LinkLost::Rst);
    b.endpoint.dial(ms(2001), DialResult::Refused);
    b.poll(2001);
    b.endpoint.service_port(ms(2002), PortState::Accepts);
    b.poll(2002);
    assert_eq!(b.at(EndpointOutput::ModePlain), [2002]);
    assert_eq!((b.endpoint.state(), b.endpoint.cause()), (State::Active, Cause::SidecarLost));
    b.endpoint.link_up(ms(3000), 2, 8);
    b.poll(3000);
    assert_eq!((b.endpoint.mode(), b.endpoint.state()), (Mode::Framed, State::Active));

    let mut b = Bench::linked(LinkPolicy::Required);
    b.endpoint.link_lost(ms(2000), 1, LinkLost::Rst);
    b.endpoint.dial(ms(2001), DialResult::Refused);
    b.poll(2001);
    assert_eq!(b.endpoint.state(), State::Failed);
    b.endpoint.service_port(ms(2002), PortState::Accepts);
    b.poll(2002);
    assert_eq!(b.at(EndpointOutput::CauseRefined(Cause::SidecarLost)), [2002]);
    assert_eq!(b.endpoint.state(), State::Failed);
}

#[test]
fn an_old_vouch_does_not_outlive_its_sidecar() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.vouch(ms(1900), 1, Vouch::Stopped, false, false);
    b.poll(1900);
    assert_eq!(b.endpoint.state(), State::Failed);
    b.endpoint.link_lost(ms(2000), 1, LinkLost::Rst);
    b.endpoint.dial(ms(2001), DialResult::Refused);
    b.endpoint.service_port(ms(2002), PortState::Accepts);
    b.poll(2002);
    assert_eq!((b.endpoint.state(), b.endpoint.mode()), (State::Active, Mode::Plain));
}

#[test]
fn no_link_and_only_silence_is_failed_after_patience() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.link_lost(ms(2000), 1, LinkLost::Rst);
    b.poll(2000);
    b.endpoint.dial(ms(2100), DialResult::Unanswered);
    b.until(2100, 2400);
    assert_eq!(
        b.moves(),
        [(2000, State::Suspect, Cause::Silent, false), (2250, State::Failed, Cause::Blackhole, false)]
    );
}

#[test]
fn a_new_incarnation_starts_fresh_and_cuts_the_old_link() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.vouch(ms(1500), 1, Vouch::Stalled, false, false);
    b.fail_by_silence(2000);
    b.endpoint.link_up(ms(4000), 2, 8);
    b.poll(4000);
    assert_eq!(b.at(EndpointOutput::CutLink(1)), [4000]);
    assert_eq!(b.moves().last(), Some(&(4000, State::Active, Cause::Restart, false)));
    assert_eq!((b.endpoint.last_vouch(), b.endpoint.incarnation()), (Vouch::Unknown, Some(8)));
    assert_eq!((b.endpoint.mistakes(), b.endpoint.outages_healed()), (0, 1));
}

#[test]
fn two_pods_behind_one_address_coexist() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.link_heard(ms(1999), 1);
    b.endpoint.link_up(ms(2000), 2, 8);
    b.poll(2000);
    assert!(b.at(EndpointOutput::CutLink(1)).is_empty());
    assert_eq!(b.endpoint.links(), 2);
}

#[test]
fn who_drains_may_have_a_successor_behind_the_same_address() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.goaway(ms(2000));
    b.until(2000, 20_000);
    let dials = b.at(EndpointOutput::FreshDial);
    assert!(dials.first().is_some_and(|at| *at < 2500), "{dials:?}");
    assert!((3..=5).contains(&dials.len()), "now and then: {dials:?}");
    b.endpoint.link_up(ms(20_001), 2, 7);
    b.poll(20_001);
    assert!(!b.endpoint.draining());
    b.until(20_001, 60_000);
    assert_eq!(b.at(EndpointOutput::FreshDial).len(), dials.len(), "found");
}

#[test]
fn draining_is_planned() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.goaway(ms(2000));
    b.poll(2000);
    assert_eq!(b.at(EndpointOutput::CauseRefined(Cause::Draining)), [2000]);
    b.endpoint.link_lost(ms(2100), 1, LinkLost::Goaway);
    b.endpoint.dial(ms(2101), DialResult::Refused);
    b.poll(2101);
    b.endpoint.service_port(ms(2102), PortState::Refused);
    b.until(2102, 4000);
    assert!(b.endpoint.draining());
    assert_eq!((b.endpoint.state(), b.endpoint.cause()), (State::Active, Cause::Draining));
    b.endpoint.link_up(ms(5000), 2, 9);
    b.poll(5000);
    assert!(!b.endpoint.draining());
}

#[test]
fn proof_from_the_vouch_and_back() {
    for (vouch, cause, cut) in [(Vouch::Stopped, Cause::Hang, 3000), (Vouch::Gone, Cause::Crash, 2000)] {
        let mut b = Bench::linked(LinkPolicy::Auto);
        b.endpoint.vouch(ms(1990), 1, Vouch::Working, false, false);
        b.endpoint.vouch(ms(2000), 1, vouch, false, false);
        b.until(2000, 3100);
        assert_eq!(b.at(EndpointOutput::CutStreams), [cut], "{vouch:?}");
        assert!(b.at(EndpointOutput::FreshDial).is_empty(), "the link is fine");
        assert_eq!(b.moves(), [(2000, State::Failed, cause, true)]);
        for i in 0..4 {
            b.endpoint.vouch(ms(3200 + 5 * i), 1, Vouch::Running, false, false);
            b.poll(3200 + 5 * i);
        }
        assert_eq!(b.moves(), [(3215, State::Active, Cause::None, false)]);
        assert_eq!((b.endpoint.mistakes(), b.endpoint.outages_healed()), (0, 1));
    }
}

#[test]
fn stalls_and_maintenance() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.vouch(ms(2000), 1, Vouch::Stalled, false, false);
    b.poll(2000);
    b.endpoint.vouch(ms(2020), 1, Vouch::Working, false, false);
    b.poll(2020);
    b.endpoint.maintenance(ms(2100), 1, dur(500));
    b.endpoint.vouch(ms(2200), 1, Vouch::Stopped, true, false);
    b.until(2200, 2500);
    b.endpoint.vouch(ms(2550), 1, Vouch::Working, false, false);
    b.until(2550, 3500);
    assert_eq!(
        b.moves(),
        [(2000, State::Suspect, Cause::Stall, false), (2020, State::Active, Cause::None, false)]
    );
}

#[test]
fn saturated_is_suspect_at_most_and_says_so() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.backpressure(ms(2000), true);
    b.poll(2000);
    assert_eq!(b.endpoint.cause(), Cause::Saturated);
    assert_eq!(b.endpoint.facets(ms(2000)).saturated, Some(true));
    b.endpoint.backpressure(ms(2100), false);
    b.poll(2100);
    assert_eq!((b.endpoint.cause(), b.endpoint.state()), (Cause::None, State::Active));
}

#[test]
fn an_open_refused_by_the_service_is_proof() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.open_failed(ms(2000), 1, true);
    b.poll(2000);
    assert_eq!(b.moves(), [(2000, State::Failed, Cause::Crash, true)]);
}

#[test]
fn plain_mode_is_judged_by_its_connections() {
    let mut b = Bench::new(LinkPolicy::Off);
    b.endpoint.plain_result(ms(2000), PlainResult::Refused);
    b.until(2000, 2500);
    assert!(b.at(EndpointOutput::ProbeServicePort).len() >= 2, "its port is looked at");
    assert_eq!(b.moves(), [(2000, State::Failed, Cause::Crash, true)]);
    b.endpoint.service_port(ms(2600), PortState::Accepts);
    b.poll(2600);
    assert_eq!(b.moves(), [(2600, State::Active, Cause::None, false)]);
    b.seen.clear();
    b.until(2601, 4000);
    assert!(b.seen.is_empty());
    for i in 0..3 {
        b.endpoint.plain_result(ms(5000 + i), PlainResult::Timeout);
        b.poll(5000 + i);
    }
    assert_eq!(b.moves().iter().map(|m| m.1).collect::<Vec<_>>(), [State::Suspect, State::Failed]);
    b.endpoint.plain_result(ms(6000), PlainResult::Accepted);
    b.poll(6000);
    assert_eq!(b.endpoint.state(), State::Active);
}

/// One connection that breaks is everyday life; whether the service broke with it only its port can tell.
#[test]
fn a_plain_connection_that_breaks_has_the_port_looked_at_and_no_more() {
    for result in [PlainResult::Reset, PlainResult::Broken] {
        let mut b = Bench::new(LinkPolicy::Off);
        b.endpoint.plain_result(ms(2000), result);
        b.until(2000, 2400);
        assert_eq!(b.at(EndpointOutput::ProbeServicePort), [2000], "{result:?}");
        b.endpoint.service_port(ms(2401), PortState::Accepts);
        b.poll(2401);
        assert!(b.moves().is_empty());
        b.endpoint.plain_result(ms(6000), result);
        b.poll(6000);
        b.endpoint.service_port(ms(6001), PortState::Refused);
        b.poll(6001);
        assert_eq!(b.moves(), [(6001, State::Failed, Cause::Crash, true)], "{result:?}");
    }
}

/// A bug of an earlier version: each reset came behind a connect that counted as an answer, so none was ever one of three.
#[test]
fn resets_in_a_row_without_an_answer_are_doubt_until_somebody_is_answered() {
    let reset = |b: &mut Bench, at: u64| {
        b.endpoint.plain_result(ms(at), PlainResult::Accepted);
        b.endpoint.plain_result(ms(at), PlainResult::Reset);
        b.poll(at);
        b.endpoint.service_port(ms(at), PortState::Accepts);
        b.poll(at);
    };
    let mut b = Bench::new(LinkPolicy::Off);
    for at in [2000, 2010, 2020] {
        reset(&mut b, at);
    }
    b.until(2020, 3000);
    assert_eq!(
        b.moves(),
        [(2020, State::Suspect, Cause::Silent, false)],
        "that its port accepts is no answer"
    );
    b.endpoint.plain_result(ms(3001), PlainResult::Answered);
    b.poll(3001);
    assert_eq!(b.moves(), [(3001, State::Active, Cause::None, false)]);
    for at in [4000, 4010] {
        reset(&mut b, at);
    }
    b.endpoint.plain_result(ms(4015), PlainResult::Answered);
    reset(&mut b, 4020);
    assert!(b.moves().is_empty(), "not in a row");
}

#[test]
fn late_answers_are_suspect_for_stall_and_never_more_and_end_with_an_answer_or_with_those_who_wait() {
    let mut b = Bench::new(LinkPolicy::Off);
    for at in (2000..20_000).step_by(250) {
        b.endpoint.plain_result(ms(at), PlainResult::Late);
        b.endpoint.plain_result(ms(at), PlainResult::Accepted);
        b.endpoint.service_port(ms(at), PortState::Accepts);
        b.until(at, at + 249);
    }
    assert!(
        b.at(EndpointOutput::ProbeServicePort).is_empty(),
        "each would be one more that it does not serve"
    );
    assert_eq!(b.moves(), [(2000, State::Suspect, Cause::Stall, false)]);
    b.until(20_000, 30_000);
    assert_eq!(b.moves(), [(24_750, State::Active, Cause::None, false)], "somebody may try it again");
    b.endpoint.plain_result(ms(31_000), PlainResult::Late);
    b.poll(31_000);
    b.endpoint.plain_result(ms(31_001), PlainResult::Answered);
    b.until(31_001, 40_000);
    assert_eq!(
        b.moves(),
        [(31_000, State::Suspect, Cause::Stall, false), (31_001, State::Active, Cause::None, false)]
    );
}

#[test]
fn lost_bytes_are_suspect_until_the_port_accepts() {
    let mut b = Bench::new(LinkPolicy::Off);
    // A firewall that forgets its connections takes all of them at once.
    for _ in 0..5 {
        b.endpoint.plain_result(ms(2000), PlainResult::Silent);
        b.poll(2000);
    }
    b.endpoint.service_port(ms(4000), PortState::Unanswered);
    b.until(4000, 10_000);
    assert!(b.at(EndpointOutput::ProbeServicePort).len() > 10, "looked at for as long as it lasts");
    assert_eq!(b.moves(), [(2000, State::Suspect, Cause::Silent, false)]);
    b.endpoint.service_port(ms(10_001), PortState::Accepts);
    b.poll(10_001);
    assert_eq!(b.moves(), [(10_001, State::Active, Cause::None, false)]);
    // One question that the port does not answer is doubt, not proof.
    b.endpoint.plain_result(ms(12_000), PlainResult::Broken);
    b.poll(12_000);
    b.endpoint.service_port(ms(14_000), PortState::Unanswered);
    b.until(14_000, 15_000);
    assert_eq!(b.moves(), [(14_000, State::Suspect, Cause::Silent, false)]);
}

#[test]
fn a_refused_port_cuts_plain_connections_after_the_patience_that_those_who_live_deserve() {
    let mut b = Bench::new(LinkPolicy::Off);
    b.endpoint.plain_result(ms(2000), PlainResult::Refused);
    b.until(2000, 5000);
    assert_eq!(b.at(EndpointOutput::CutStreams), [3000]);
}

/// Who ends in order takes no more and goes on with those it has.
#[test]
fn answers_on_connections_of_before_open_no_port() {
    let mut b = Bench::new(LinkPolicy::Off);
    b.endpoint.plain_result(ms(2000), PlainResult::Refused);
    b.endpoint.plain_result(ms(2001), PlainResult::Answered);
    b.until(2001, 2500);
    assert_eq!(b.endpoint.state(), State::Failed);
    b.endpoint.service_port(ms(2501), PortState::Accepts);
    b.poll(2501);
    assert_eq!(b.endpoint.state(), State::Active);
    for at in [3000, 3001, 3002] {
        b.endpoint.plain_result(ms(at), PlainResult::Timeout);
        b.endpoint.plain_result(ms(at), PlainResult::Answered);
        b.poll(at);
    }
    assert_eq!(
        (b.endpoint.state(), b.endpoint.cause()),
        (State::Failed, Cause::Blackhole),
        "its queue is full"
    );
    b.endpoint.plain_result(ms(3100), PlainResult::Accepted);
    b.poll(3100);
    assert_eq!(b.endpoint.state(), State::Active);
}

#[test]
fn a_link_ends_what_plain_connections_made_doubtful() {
    let mut b = Bench::new(LinkPolicy::Auto);
    b.endpoint.plain_result(ms(2000), PlainResult::Late);
    b.poll(2000);
    b.endpoint.link_up(ms(2001), 1, 7);
    b.until(2001, 2005);
    for t in (2006..2100).step_by(6) {
        b.endpoint.link_heard(ms(t), 1);
        b.until(t, t + 5);
    }
    assert_eq!((b.endpoint.state(), b.endpoint.mode()), (State::Active, Mode::Framed));
    b.endpoint.plain_result(ms(2200), PlainResult::Late);
    b.endpoint.plain_result(ms(2200), PlainResult::Refused);
    b.until(2200, 9000);
    assert_eq!(b.endpoint.state(), State::Active, "where there is a link, it judges");
}

#[test]
fn a_silence_that_turns_out_to_be_a_crash_cuts_at_once() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.fail_by_silence(2000);
    b.endpoint.link_lost(ms(2100), 1, LinkLost::Rst);
    b.endpoint.dial(ms(2101), DialResult::Refused);
    b.endpoint.service_port(ms(2102), PortState::Refused);
    b.until(2102, 4000);
    assert_eq!(b.at(EndpointOutput::CutStreams), [2102]);
    assert_eq!(b.endpoint.cause(), Cause::Crash);
}

#[test]
fn inputs_of_unknown_links_are_harmless() {
    let mut b = Bench::linked(LinkPolicy::Auto);
    b.endpoint.link_heard(ms(2000), 99);
    b.endpoint.link_output(ms(2000), 99, &Output::Failed(evidence(50)));
    b.endpoint.link_lost(ms(2000), 99, LinkLost::Rst);
    b.poll(2000);
    assert_eq!(b.endpoint.state(), State::Active);
}

proptest! {
    #[test]
    fn any_inputs_keep_the_invariants(
        policy in 0u8..3,
        steps in prop::collection::vec((0u8..18, 0u64..4, 0u64..120), 1..150),
    ) {
        let policy = [LinkPolicy::Auto, LinkPolicy::Required, LinkPolicy::Off][policy as usize];
        let mut b = Bench::new(policy);
        let mut t = 1000;
        for (what, x, dt) in steps {
            t += dt;
            let now = ms(t);
            let e = &mut b.endpoint;
            match what {
                0 => e.link_up(now, x, 7),
                1 => e.link_up(now, x, dt),
                2 => e.link_heard(now, x),
                3 => e.link_output(now, x, &Output::Suspect(evidence(4))),
                4 => e.link_output(now, x, &Output::Failed(evidence(10))),
                5 => e.link_output(now, x, &Output::Active(evidence(10))),
                6 => e.link_output(now, x, &Output::LinkOnly(evidence(10))),
                7 => e.link_lost(now, x, [LinkLost::Fin, LinkLost::TimedOut, LinkLost::Cut, LinkLost::Protocol][x as usize]),
                8 => e.link_lost(now, x, LinkLost::Goaway),
                9 => e.vouch(now, x, Vouch::from_code((dt % 9) as u8), x == 0, x == 1),
                10 => e.maintenance(now, x, dur(dt)),
                11 => e.backpressure(now, x == 0),
                12 => e.dial(now, [DialResult::Refused, DialResult::Unanswered, DialResult::NotSidecar, DialResult::AcceptedNoWelcome][x as usize]),
                13 => e.service_port(now, [PortState::Accepts, PortState::Refused, PortState::Unanswered, PortState::Accepts][x as usize]),
                15 => e.isolation(now, x == 0),
                14 => e.plain_result(now, [PlainResult::Answered, PlainResult::Refused, PlainResult::Reset, PlainResult::Timeout][x as usize]),
                16 => e.plain_result(now, [PlainResult::Accepted, PlainResult::Broken, PlainResult::Silent, PlainResult::Late][x as usize]),
                _ => e.open_failed(now, x, x == 0),
            }
            let before = b.seen.len();
            b.poll(t);
            let mut state = None;
            for (_, o) in &b.seen[before..] {
                if let EndpointOutput::Transition(m) = o {
                    prop_assert!(m.from != m.to);
                    prop_assert!(m.to == State::Active || m.cause != Cause::None);
                    prop_assert!(state.is_none_or(|s| s == m.from));
                    state = Some(m.to);
                }
            }
            prop_assert!(state.is_none_or(|s| s == b.endpoint.state()));
        }
    }
}
