//! The judge with laws other than `promise`, and with shadows beside it.

use super::tests::Bench;
use super::*;
use crate::detector::{Kind, catalog};

fn dur(x: u64) -> Duration {
    Duration::from_millis(x)
}

fn ms(x: u64) -> Stamp {
    Stamp::from_millis(x)
}

#[test]
fn any_law_fails_a_silent_link_and_takes_it_back() {
    for name in catalog::NAMES {
        let mut b = Bench::new(&catalog::by_name(name).expect(name));
        b.beats(60);
        assert!(b.verdicts().is_empty(), "{name}");
        b.after(dur(4000));
        assert_eq!(b.verdicts(), ["suspect", "failed"], "{name}");
        b.echo = true;
        b.beats(4);
        assert_eq!(b.verdicts(), ["active"], "{name}");
        b.beats(60);
        assert!(b.verdicts().is_empty(), "{name}: it stays");
    }
}

#[test]
fn any_law_waits_for_a_full_peer() {
    for name in catalog::NAMES {
        let mut b = Bench::new(&catalog::by_name(name).expect(name));
        b.beats(60);
        b.judge.backpressure(b.now, true, dur(5000));
        b.after(dur(4900));
        assert_eq!(b.verdicts(), ["backpressure"], "{name}");
        b.after(dur(4100));
        assert_eq!(b.verdicts(), ["suspect", "failed"], "{name}");
    }
}

#[test]
fn our_own_sleep_is_nobody_s_silence() {
    for name in catalog::NAMES {
        let mut b = Bench::new(&catalog::by_name(name).expect(name));
        b.beats(60);
        let slept = b.now + dur(9000);
        b.judge.own_stall(b.now, slept);
        b.now = slept;
        b.beats(60);
        assert!(!b.verdicts().contains(&"suspect"), "{name}");
    }
}

/// A fresh link to an endpoint in doubt is asked each 5 ms; a law that took the answers for the peer's rhythm would
/// doubt at the first beat after them, and bring the next fresh link.
#[test]
fn answers_are_no_rhythm() {
    for name in catalog::NAMES {
        let shadows = [("p95", Params::of(Kind::P95)), ("huddm", Params::of(Kind::HuddmTick))];
        let mut b = Bench::with_shadows(&catalog::by_name(name).expect(name), &shadows);
        b.echo = true;
        b.judge.probe(b.now);
        b.after(dur(40));
        assert!(b.judge.last_heard() > ms(1030), "{name}: it was asked");
        b.beats(30);
        assert!(b.verdicts().is_empty(), "{name}");
        assert!(b.shifts.is_empty(), "{name}: {:?}", b.shifts);
    }
}

fn shadowed() -> Bench {
    let shadows: Vec<_> = catalog::NAMES.iter().map(|n| (*n, catalog::by_name(n).expect(n))).collect();
    let mut b = Bench::with_shadows(&Params::default(), &shadows);
    b.beats(60);
    assert!(b.shifts.is_empty() && b.verdicts().is_empty());
    b
}

fn told(b: &Bench, detector: &str) -> Vec<(State, Stamp)> {
    b.shifts.iter().filter(|s| s.detector == detector).map(|s| (s.to, s.at)).collect()
}

#[test]
fn each_shadow_says_what_it_would_say_as_judge() {
    let mut b = shadowed();
    let last = b.judge.last_heard();
    b.after(dur(4000));
    b.beats(10);
    assert_eq!(b.shifts.len(), 3 * catalog::NAMES.len(), "{:?}", b.shifts);
    for name in catalog::NAMES {
        let mut alone = catalog::by_name(name).expect(name).build(ms(1000));
        let mut at = ms(1000);
        while at < last {
            at = at + dur(16);
            alone.heard(at, Some(dur(20)));
        }
        alone.set_rtt(Duration::from_micros(500));
        let wanted = [(State::Suspect, alone.suspect_at()), (State::Failed, alone.fail_at())];
        let all = told(&b, name);
        assert_eq!(all[..2], wanted, "{name}");
        assert_eq!(all[2].0, State::Active, "{name}");
        assert!(all[2].1 >= last + dur(4000), "{name}: healed by an arrival");
    }
}

#[test]
fn shadows_change_nothing_for_the_judge() {
    let mut plain = Bench::new(&Params::default());
    plain.beats(60);
    let mut b = shadowed();
    for (silence, beats) in [(30, 5), (45, 3), (400, 20), (2000, 30), (19, 4)] {
        for bench in [&mut plain, &mut b] {
            bench.after(dur(silence));
            bench.beats(beats);
        }
        assert_eq!(plain.verdicts(), b.verdicts(), "after {silence} ms");
        assert_eq!(plain.judge.score(plain.now), b.judge.score(b.now));
        assert_eq!(plain.judge.peak(plain.now), b.judge.peak(b.now));
    }
    assert!(plain.judge.take_shift().is_none() && plain.shifts.is_empty());
}

#[test]
fn one_shadow_heals_while_another_never_fell() {
    let mut b = shadowed();
    b.after(dur(200));
    b.beats(20);
    let states = |all: Vec<(State, Stamp)>| all.into_iter().map(|(to, _)| to).collect::<Vec<_>>();
    assert!(told(&b, "timeout").is_empty(), "200 ms are nothing to 3 s");
    assert_eq!(states(told(&b, "promise")), [State::Suspect, State::Failed, State::Active]);
    assert_eq!(states(told(&b, "chen")), [State::Suspect, State::Failed, State::Active]);
}

#[test]
fn own_sleep_and_backpressure_excuse_shadows_too() {
    let mut b = shadowed();
    let slept = b.now + dur(9000);
    b.judge.own_stall(b.now, slept);
    b.now = slept;
    b.beats(20);
    assert!(b.shifts.is_empty(), "{:?}", b.shifts);
    b.judge.backpressure(b.now, true, dur(5000));
    b.after(dur(4900));
    assert!(b.shifts.is_empty(), "{:?}", b.shifts);
    b.after(dur(4100));
    assert_eq!(b.shifts.len(), 2 * catalog::NAMES.len());
}

#[test]
fn a_shadow_of_the_main_law_agrees_with_it() {
    let mut b = Bench::with_shadows(
        &Params::of(Kind::HuddmTick),
        &[("huddm", Params::of(Kind::HuddmTick)), ("timeout", Params::of(Kind::Timeout))],
    );
    b.beats(200);
    let mut falls = 0;
    for silence in [18, 25, 40, 300, 21] {
        b.after(dur(silence));
        b.beats(30);
        let main = b.verdicts();
        let shadow: Vec<_> = b.shifts.drain(..).map(|s| s.to.name()).collect();
        assert_eq!(main, shadow, "after {silence} ms");
        falls += main.len();
    }
    assert!(falls > 4);
}
