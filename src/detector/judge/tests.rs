use super::*;
use crate::detector::Kind;
use proptest::prelude::*;

fn ms(x: u64) -> Stamp {
    Stamp::from_millis(x)
}

fn dur(x: u64) -> Duration {
    Duration::from_millis(x)
}

const RTT: Duration = Duration::from_micros(500);

/// A judge in virtual time. `echo`: the peer answers challenges after one round trip.
pub(super) struct Bench {
    pub(super) judge: LinkJudge,
    pub(super) now: Stamp,
    facts: Facts,
    pub(super) echo: bool,
    answers: Vec<Stamp>,
    seen: Vec<(Stamp, Output)>,
    pub(super) shifts: Vec<Shift>,
}

impl Bench {
    pub(super) fn new(params: &Params) -> Self {
        Bench::with_shadows(params, &[])
    }

    pub(super) fn with_shadows(params: &Params, shadows: &[(&'static str, Params)]) -> Self {
        let mut judge = LinkJudge::with_shadows(params, shadows, ms(1000));
        judge.rtt_sample(RTT);
        Bench {
            judge,
            now: ms(1000),
            facts: Facts::default(),
            echo: false,
            answers: Vec::new(),
            seen: Vec::new(),
            shifts: Vec::new(),
        }
    }

    /// A default judge after a second of frames each 16 ms, promising 20 ms.
    fn steady() -> Self {
        let mut bench = Bench::new(&Params::default());
        bench.beats(60);
        assert!(bench.take().is_empty());
        bench
    }

    pub(super) fn beats(&mut self, n: u64) {
        for _ in 0..n {
            self.after(dur(16));
            self.beat();
        }
    }

    pub(super) fn beat(&mut self) {
        self.judge.heard(self.now);
        self.judge.promised(self.now, dur(20));
        self.poll();
    }

    fn poll(&mut self) {
        let mut rounds = 0;
        while let Some(output) = self.judge.poll(self.now, &mut || self.facts) {
            if output == Output::Challenge {
                self.judge.challenge_sent(self.now);
                if self.echo {
                    self.answers.push(self.now + RTT);
                }
            }
            self.seen.push((self.now, output));
            rounds += 1;
            assert!(rounds < 20, "poll never ends: {:?}", self.seen);
        }
        while let Some(shift) = self.judge.take_shift() {
            self.shifts.push(shift);
        }
        assert!(self.judge.next_due().0 > self.now, "due in the past: {:?}", self.judge.next_due());
    }

    /// Lets time pass, waking exactly when the judge asks for it or an answer arrives.
    pub(super) fn after(&mut self, d: Duration) {
        let end = self.now + d;
        loop {
            self.answers.sort();
            let answer = self.answers.first().copied().unwrap_or(Stamp::NEVER);
            let next = self.judge.next_due().0.min(answer);
            if next >= end {
                break;
            }
            self.now = next.max(self.now);
            if answer <= self.now {
                self.answers.remove(0);
                self.judge.heard(self.now);
                self.judge.promised(self.now, dur(20));
                self.judge.challenge_answered(self.now);
            }
            self.poll();
        }
        self.now = end;
        self.poll();
    }

    fn take(&mut self) -> Vec<(Stamp, Output)> {
        std::mem::take(&mut self.seen)
    }

    /// When it said FAILED, of all since it was asked last.
    fn failed_at(&mut self) -> Stamp {
        self.take().iter().find(|(_, o)| name(o) == Some("failed")).unwrap().0
    }

    pub(super) fn verdicts(&mut self) -> Vec<&'static str> {
        self.take().iter().filter_map(|(_, o)| name(o)).collect()
    }
}

fn name(output: &Output) -> Option<&'static str> {
    match output {
        Output::Challenge => None,
        Output::Suspect(_) => Some("suspect"),
        Output::Failed(_) => Some("failed"),
        Output::Active(_) => Some("active"),
        Output::LinkOnly(_) => Some("link_only"),
        Output::Held(gate) => Some(gate.name()),
    }
}

#[test]
fn a_new_link_waits_for_the_first_promise() {
    let mut b = Bench::new(&Params::default());
    b.after(dur(101));
    assert!(b.verdicts().is_empty());
    b.after(dur(20));
    assert_eq!(b.verdicts(), ["suspect", "failed"]);
}

#[test]
fn jitter_within_the_promise_is_nothing() {
    let mut b = Bench::steady();
    for gap in [1, 20, 3, 19, 20, 20, 2, 20] {
        b.after(dur(gap));
        b.beat();
    }
    assert!(b.take().is_empty());
    assert_eq!(b.judge.score(b.now), 1.0);
}

#[test]
fn one_lost_beat_is_cleared_by_the_challenge() {
    let mut b = Bench::steady();
    b.echo = true;
    b.after(dur(40));
    let seen = b.take();
    assert!(seen.iter().any(|(_, o)| *o == Output::Challenge));
    assert!(seen.iter().all(|(_, o)| *o == Output::Challenge), "{seen:?}");
    assert_eq!(b.judge.take_lateness(), Some(RTT));
    assert_eq!(b.judge.take_lateness(), None);
}

#[test]
fn silence_is_challenged_then_suspect_then_failed() {
    let mut b = Bench::steady();
    let last = b.now;
    b.after(dur(60));
    let seen = b.take();
    let at = |want: &str| {
        seen.iter().find(|(_, o)| name(o) == Some(want)).map(|(t, _)| t.millis_since(last)).unwrap()
    };
    assert_eq!(seen[0], (last + dur(21), Output::Challenge));
    assert!((at("suspect") - 25.16).abs() < 0.01);
    assert!((at("failed") - 30.66).abs() < 0.01);
    let (_, Output::Failed(e)) = seen.iter().find(|(_, o)| name(o) == Some("failed")).unwrap() else {
        panic!()
    };
    assert!((e.since_last.as_secs_f64() * 1e3 - 30.66).abs() < 0.01);
    assert!((e.silence.as_secs_f64() * 1e3 - 9.66).abs() < 0.01);
    assert_eq!((e.promise, e.rtt, e.one_way), (dur(20), Some(RTT), false));
    assert!((e.score - 0.2).abs() < 1e-3);
}

#[test]
fn a_dead_link_is_asked_with_backoff() {
    let mut b = Bench::steady();
    b.after(Duration::from_secs(60));
    let n = b.take().iter().filter(|(_, o)| *o == Output::Challenge).count();
    assert!((50..75).contains(&n), "{n}");
}

#[test]
fn healing_takes_tens_of_ms_not_idle_periods() {
    let mut b = Bench::steady();
    b.after(dur(700));
    assert_eq!(b.verdicts(), ["suspect", "failed"]);
    b.echo = true;
    let healed_from = b.now;
    b.beat();
    b.after(dur(60));
    let seen = b.take();
    let (at, Output::Active(e)) = seen.iter().find(|(_, o)| name(o) == Some("active")).unwrap() else {
        panic!()
    };
    assert!(at.since(healed_from) <= dur(25), "{:?}", at.since(healed_from));
    assert!(e.outage && !e.mistake);
    assert_eq!((b.judge.mistakes(), b.judge.outages_healed()), (0, 1));
    assert!(b.judge.peak(b.now) < dur(1), "an outage is not learned");
    assert!(b.judge.score(b.now) >= 0.8);
}

#[test]
fn a_mistake_is_paid_once() {
    let mut b = Bench::steady();
    b.echo = true;
    for round in 0..5 {
        b.echo = false;
        b.answers.clear();
        b.after(dur(121));
        b.echo = true;
        b.beat();
        b.beats(10);
        let verdicts = b.verdicts();
        if round == 0 {
            assert_eq!(verdicts, ["suspect", "failed", "active"]);
        } else {
            assert_eq!(verdicts, ["suspect", "active"], "round {round}");
        }
    }
    assert_eq!((b.judge.mistakes(), b.judge.outages_healed()), (1, 0));
}

#[test]
fn one_late_frame_undoes_nothing_a_burst_neither() {
    let mut b = Bench::steady();
    b.after(dur(200));
    b.take();
    for _ in 0..50 {
        b.beat();
    }
    assert!(b.verdicts().is_empty());
    assert_eq!(b.judge.state(), State::Failed);
}

#[test]
fn suspect_needs_two_frames() {
    let mut b = Bench::steady();
    b.after(dur(27));
    assert_eq!(b.verdicts(), ["suspect"]);
    b.beat();
    assert!(b.verdicts().is_empty(), "score is enough, one frame is not");
    b.after(dur(6));
    b.beat();
    assert_eq!(b.verdicts(), ["active"]);
}

/// A bug of an earlier version: a FAILED link was ACTIVE after a long sleep of our own, with nothing heard.
#[test]
fn failed_is_not_healed_by_our_own_sleep() {
    for stall in [50u64, 101, 2100] {
        let mut b = Bench::steady();
        b.after(dur(200));
        assert_eq!(b.judge.state(), State::Failed);
        b.take();
        let from = b.now;
        b.now = b.now + dur(stall);
        b.judge.own_stall(from, b.now);
        b.poll();
        assert_eq!((b.judge.state(), b.judge.mistakes()), (State::Failed, 0), "{stall}");
        b.beats(8);
        assert_eq!(b.judge.state(), State::Active, "{stall}");
    }
}

#[test]
fn own_stalls_of_any_length_blame_nobody() {
    for stall in [21u64, 35, 99, 101, 210, 2100] {
        let mut b = Bench::steady();
        let from = b.now;
        b.now = b.now + dur(stall);
        b.judge.own_stall(from, b.now);
        b.poll();
        assert!(b.take().iter().all(|(_, o)| matches!(o, Output::Held(Gate::OwnStall) | Output::Challenge)));
        b.beat();
        b.beats(5);
        assert!(b.verdicts().is_empty(), "{stall}");
        assert_eq!(b.judge.peak(b.now), Duration::ZERO, "{stall}");
        assert_eq!(b.judge.score(b.now), 1.0, "{stall}");
    }
}

#[test]
fn a_held_own_stall_is_counted_once_and_death_is_still_found() {
    let mut b = Bench::steady();
    let from = b.now;
    b.now = b.now + dur(50);
    b.judge.own_stall(from, b.now);
    b.poll();
    assert_eq!(b.verdicts(), ["own_stall"]);
    b.after(dur(30));
    assert_eq!(b.verdicts(), ["suspect", "failed"]);
}

#[test]
fn unread_data_holds_once_and_not_for_ever() {
    let mut b = Bench::steady();
    b.facts.unread = true;
    let last = b.now;
    b.after(dur(200));
    assert_eq!(b.verdicts(), ["suspect", "unread"]);
    b.after(dur(200));
    let at = b.failed_at();
    assert!((at.millis_since(last) - (30.66 + 251.0)).abs() < 0.1);
}

#[test]
fn unread_data_that_is_drained_without_life_fails_at_once() {
    let mut b = Bench::steady();
    b.facts.unread = true;
    b.after(dur(60));
    b.facts.unread = false;
    b.after(dur(10));
    assert_eq!(b.verdicts(), ["suspect", "unread", "failed"]);
}

#[test]
fn another_link_that_hears_saves_the_node() {
    let mut b = Bench::steady();
    b.facts.others_heard = b.now + dur(25);
    b.after(dur(60));
    assert_eq!(b.verdicts(), ["suspect", "other_link", "link_only"]);
    assert_eq!(b.judge.state(), State::Failed);
}

#[test]
fn another_link_that_heard_before_saves_nothing() {
    let mut b = Bench::steady();
    b.facts.others_heard = b.now + dur(20);
    b.after(dur(60));
    assert_eq!(b.verdicts(), ["suspect", "failed"]);
}

#[test]
fn another_loop_that_did_not_come_to_ask_holds_until_its_answer_is_due() {
    let mut b = Bench::steady();
    let last = b.now;
    b.facts.others_asked = Stamp::NEVER;
    b.after(dur(60));
    assert_eq!(b.verdicts(), ["suspect", "own_stall"]);
    b.facts.others_asked = b.now;
    b.after(dur(3));
    assert_eq!(b.verdicts(), [""; 0], "no answer can be here yet");
    b.after(dur(10));
    let at = b.failed_at();
    assert!((at.millis_since(last) - 65.0).abs() < 2.6, "{}", at.millis_since(last));
}

#[test]
fn another_loop_that_hears_after_its_sleep_saves_the_node() {
    let mut b = Bench::steady();
    b.facts.others_asked = Stamp::NEVER;
    b.after(dur(60));
    b.facts.others_asked = b.now;
    b.facts.others_heard = b.now + dur(1);
    b.after(dur(10));
    assert_eq!(b.verdicts(), ["suspect", "own_stall", "other_link", "link_only"]);
}

#[test]
fn another_loop_that_never_comes_holds_for_a_while_only() {
    let mut b = Bench::steady();
    let last = b.now;
    b.facts.others_asked = Stamp::NEVER;
    b.after(dur(400));
    let at = b.failed_at();
    let late = at.millis_since(last);
    assert!((275.0..290.0).contains(&late), "a quarter of a second after the deadline: {late}");
}

#[test]
fn another_loop_that_asked_in_time_holds_nothing() {
    let mut b = Bench::steady();
    let last = b.now;
    b.facts.others_asked = last + dur(22);
    b.after(dur(60));
    let at = b.failed_at();
    assert!(at.millis_since(last) < 31.0, "{}", at.millis_since(last));
}

#[test]
fn an_unsent_challenge_holds_and_then_no_longer() {
    let mut b = Bench::steady();
    let last = b.now;
    let mut seen = Vec::new();
    while b.now < last + dur(400) {
        b.now = b.judge.next_due().0.min(last + dur(400));
        while let Some(o) = b.judge.poll(b.now, &mut Facts::default) {
            seen.push((b.now, o));
        }
    }
    let names: Vec<_> = seen.iter().filter_map(|(_, o)| name(o)).collect();
    assert_eq!(names, ["suspect", "challenge", "failed"]);
    let (at, _) = seen.iter().find(|(_, o)| name(o) == Some("failed")).unwrap();
    assert!((at.millis_since(last) - (21.0 + 255.0)).abs() < 0.1, "{seen:?}");
}

#[test]
fn backpressure_is_not_death_until_it_stops() {
    let mut b = Bench::steady();
    for _ in 0..20 {
        b.after(dur(80));
        b.judge.heard(b.now);
        b.judge.backpressure(b.now, true, dur(100));
        b.poll();
    }
    let first: Vec<_> = b.take().into_iter().filter(|(_, o)| matches!(o, Output::Failed(_))).collect();
    assert!(first.len() <= 1, "only the first frame can come late: {first:?}");
    b.beats(20);
    b.take();
    b.judge.backpressure(b.now, true, dur(100));
    b.after(dur(99));
    assert_eq!(b.verdicts(), ["backpressure"]);
    b.after(dur(600));
    assert_eq!(b.verdicts(), ["suspect", "failed"], "they vanished too");
}

#[test]
fn the_end_of_backpressure_ends_the_hold_by_its_promise() {
    let mut b = Bench::steady();
    b.judge.backpressure(b.now, true, dur(100));
    b.after(dur(50));
    b.judge.backpressure(b.now, false, dur(20));
    b.beats(30);
    assert!(b.verdicts().iter().all(|v| *v == "backpressure"));
    assert_eq!(b.judge.score(b.now), 1.0);
}

impl Bench {
    /// Both sides beat each 16 ms; from the twentieth on the peer does not hear us any more. `facts` is told each time.
    fn one_way(&mut self, facts: impl Fn(Stamp) -> Facts) {
        let mut since_heard = dur(0);
        for i in 0..40 {
            self.after(dur(16));
            self.facts = facts(self.now);
            self.judge.we_promised(self.now, dur(20));
            since_heard = if i < 20 { Duration::from_micros(300) } else { since_heard + dur(16) };
            self.judge.heard(self.now);
            self.judge.promised(self.now, dur(20));
            self.judge.peer_view(self.now, since_heard);
            self.poll();
        }
    }
}

/// What the peer sends arrives on all links: that is no sign that it hears us on any.
#[test]
fn other_links_that_are_heard_save_nobody_who_does_not_hear_us() {
    let mut b = Bench::steady();
    b.one_way(|now| Facts { others_heard: now, ..Facts::default() });
    assert_eq!(b.verdicts(), ["suspect", "failed"]);
    let mut b = Bench::steady();
    b.one_way(|now| Facts { others_hear: now, ..Facts::default() });
    assert_eq!(b.verdicts(), ["suspect", "other_link", "link_only"]);
}

#[test]
fn one_way_faults_are_seen_by_the_peer_s_beats() {
    let mut b = Bench::steady();
    b.one_way(|_| Facts::default());
    let seen = b.take();
    let names: Vec<_> = seen.iter().filter_map(|(_, o)| name(o)).collect();
    assert_eq!(names, ["suspect", "failed"]);
    let (_, Output::Failed(e)) = seen.iter().find(|(_, o)| name(o) == Some("failed")).unwrap() else {
        panic!()
    };
    assert!(e.one_way);
    assert!(e.since_last < dur(20), "we hear it well");
    for _ in 0..6 {
        b.after(dur(16));
        b.judge.promised(b.now, dur(20));
        b.judge.we_promised(b.now, dur(20));
        b.judge.peer_view(b.now, Duration::from_micros(300));
        b.poll();
    }
    assert_eq!(b.verdicts(), ["active"]);
}

#[test]
fn the_peer_s_own_stall_is_an_outage_and_not_learned() {
    let mut b = Bench::steady();
    b.after(dur(300));
    b.judge.heard(b.now);
    b.judge.peer_stalled(b.now);
    b.beats(10);
    assert_eq!(b.verdicts(), ["suspect", "failed", "active"]);
    assert_eq!((b.judge.mistakes(), b.judge.outages_healed()), (0, 1));
    assert_eq!(b.judge.peak(b.now), Duration::ZERO);
}

#[test]
fn a_peer_that_slept_has_not_read_us_yet_and_blames_nobody() {
    for flag_first in [true, false] {
        let mut b = Bench::steady();
        for _ in 0..4 {
            b.judge.we_promised(b.now, dur(20));
            b.judge.peer_view(b.now, Duration::from_micros(300));
            b.beats(1);
        }
        b.judge.heard(b.now);
        if flag_first {
            b.judge.peer_stalled(b.now);
        }
        b.judge.peer_view(b.now, dur(60));
        if !flag_first {
            b.judge.peer_stalled(b.now);
        }
        b.poll();
        assert!(b.take().is_empty(), "{flag_first}");
    }
}

/// Found by a review: a peer that told of a stall in each beat was never found deaf.
#[test]
fn a_peer_that_always_tells_of_stalls_is_found_deaf() {
    for deaf in [true, false] {
        let mut b = Bench::steady();
        let mut since_heard = Duration::from_micros(300);
        for i in 0..150 {
            b.after(dur(16));
            b.judge.we_promised(b.now, dur(20));
            if deaf && i > 20 {
                since_heard += dur(16);
            }
            b.judge.heard(b.now);
            b.judge.peer_stalled(b.now);
            b.judge.promised(b.now, dur(20));
            b.judge.peer_view(b.now, since_heard);
            b.poll();
        }
        let seen = b.verdicts();
        assert_eq!(seen.contains(&"failed"), deaf, "{seen:?}");
    }
}

#[test]
fn a_throttled_peer_is_a_habit_and_learned() {
    let mut b = Bench::steady();
    for _ in 0..40 {
        b.beats(3);
        b.after(dur(60));
        b.judge.heard(b.now);
        b.judge.peer_stalled(b.now);
        b.poll();
    }
    b.take();
    assert!(b.judge.peak(b.now) >= dur(38), "{:?}", b.judge.peak(b.now));
    for _ in 0..40 {
        b.beats(3);
        b.after(dur(60));
        b.judge.heard(b.now);
        b.judge.peer_stalled(b.now);
        b.poll();
    }
    assert!(!b.verdicts().contains(&"failed"));
}

#[test]
fn flapping_is_told_each_time_and_stays_consistent() {
    let mut b = Bench::steady();
    for _ in 0..10 {
        b.after(dur(900));
        b.beat();
        b.beats(6);
    }
    let verdicts = b.verdicts();
    assert_eq!(verdicts.len(), 30);
    for round in verdicts.chunks(3) {
        assert_eq!(round, ["suspect", "failed", "active"]);
    }
    assert_eq!(b.judge.outages_healed(), 10);
}

#[test]
fn time_going_backwards_is_ignored() {
    let mut b = Bench::steady();
    b.judge.heard(ms(3));
    b.judge.promised(ms(3), dur(20));
    b.judge.peer_view(ms(3), dur(1));
    b.judge.own_stall(ms(9), ms(3));
    b.poll();
    b.beats(5);
    assert!(b.verdicts().is_empty());
}

#[test]
fn arrival_and_verdict_at_the_same_instant() {
    let mut b = Bench::steady();
    let last = b.now;
    b.now = last + Duration::from_micros(30_700);
    b.judge.heard(b.now);
    b.poll();
    assert!(b.verdicts().is_empty(), "the byte came first");
    let mut b = Bench::steady();
    b.now = last + Duration::from_micros(30_700);
    b.poll();
    b.judge.heard(b.now);
    b.poll();
    let verdicts = b.verdicts();
    assert_eq!(verdicts[0], "suspect");
    assert!(!verdicts.contains(&"failed"), "nothing was asked long enough ago: {verdicts:?}");
}

#[test]
fn the_published_laws_do_not_ask() {
    for kind in [Kind::HuddmTick, Kind::HuddmMiss] {
        let mut b = Bench::new(&Params { kind, ..Params::default() });
        b.beats(200);
        b.take();
        b.after(dur(100));
        let seen = b.take();
        assert!(seen.iter().all(|(_, o)| *o != Output::Challenge));
        let names: Vec<_> = seen.iter().filter_map(|(_, o)| name(o)).collect();
        assert_eq!(names, ["suspect", "failed"]);
    }
}

#[test]
fn a_probe_is_eight_challenges() {
    let mut b = Bench::steady();
    b.judge.probe(b.now);
    for _ in 0..100 {
        b.after(dur(5));
        b.beat();
    }
    let n = b.take().iter().filter(|(_, o)| *o == Output::Challenge).count();
    assert_eq!(n, 8);
}

proptest! {
    #[test]
    fn gaps_within_promises_never_cause_a_verdict(gaps in prop::collection::vec((1u64..=100, 0.0f64..=1.0), 1..150)) {
        let mut b = Bench::new(&Params::default());
        let mut promise = dur(100);
        for (next, share) in gaps {
            b.after(promise.mul_f64(share));
            promise = dur(next);
            b.judge.heard(b.now);
            b.judge.promised(b.now, promise);
            b.poll();
        }
        prop_assert!(b.verdicts().is_empty());
    }

    #[test]
    fn total_silence_fails_in_time(gaps in prop::collection::vec(1u64..700, 0..40)) {
        let mut b = Bench::new(&Params::default());
        for gap in gaps {
            b.after(dur(gap));
            b.beat();
        }
        for _ in 0..8 {
            b.after(dur(6));
            b.beat();
        }
        b.take();
        let bound = dur(6).mul_f64(1.6095).max(b.judge.peak(b.now).mul_f64(1.2).min(dur(500)));
        let end = b.judge.deadline() + bound + Duration::from_micros(10);
        b.after(end.since(b.now));
        prop_assert_eq!(b.judge.state(), State::Failed);
    }

    #[test]
    fn any_inputs_keep_the_invariants(steps in prop::collection::vec((0u8..12, 0u64..300), 1..200)) {
        let mut b = Bench::new(&Params::default());
        for (what, x) in steps {
            match what {
                0 | 1 => b.after(dur(x)),
                2 => b.beat(),
                3 => b.judge.peer_view(b.now, dur(x)),
                4 => b.judge.we_promised(b.now, dur(x)),
                5 => b.judge.own_stall(b.now - dur(x), b.now),
                6 => b.judge.peer_stalled(b.now),
                7 => b.judge.backpressure(b.now, x % 2 == 0, dur(x)),
                8 => b.judge.challenge_answered(b.now),
                9 => b.judge.rtt_sample(dur(x)),
                10 => b.facts.unread = x % 2 == 0,
                _ => b.facts.others_heard = b.now,
            }
            b.poll();
            let score = b.judge.score(b.now);
            prop_assert!((0.0..=1.0).contains(&score));
            match b.judge.state() {
                State::Active => prop_assert!(score >= 0.5),
                State::Suspect => prop_assert!(score >= 0.2),
                State::Failed => prop_assert!(score <= 0.8),
            }
        }
    }
}
