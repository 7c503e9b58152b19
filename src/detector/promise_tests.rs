use super::*;
use crate::detector::SATURATED_FLOOR;
use proptest::prelude::*;

fn ms(x: u64) -> Stamp {
    Stamp::from_millis(x)
}

fn dur(x: u64) -> Duration {
    Duration::from_millis(x)
}

/// A link heard each 16 ms with a promise of 20 ms, from 1000 on; returns the instant of the last frame.
fn steady() -> (Promise, u64) {
    let mut law = Promise::new(&Params::default(), ms(1000));
    let mut t = 1000;
    for _ in 0..100 {
        t += 16;
        law.heard(ms(t), Some(dur(20)));
    }
    (law, t)
}

fn near(a: Stamp, b: Stamp) -> bool {
    a.millis_since(b).abs() < 0.01
}

#[test]
fn the_first_promise_is_assumed() {
    let law = Promise::new(&Params::default(), ms(1000));
    assert_eq!(law.deadline(), ms(1101));
    assert_eq!(law.score(ms(1101)), 1.0);
}

#[test]
fn the_two_laws_without_learning_are_one_exponential() {
    let (law, t) = steady();
    let d = ms(t + 21);
    assert_eq!(law.deadline(), d);
    assert!(near(law.suspect_at(), d + dur(6).mul_f64(std::f64::consts::LN_2)));
    assert!(near(law.fail_at(), d + dur(6).mul_f64(1.6094)));
    for x in 1..20u64 {
        let want = (-(x as f64) / 6.0).exp();
        assert!((law.score(d + dur(x)) - want).abs() < 1e-6, "{x}");
    }
}

#[test]
fn scores_at_the_verdicts() {
    let (mut law, t) = steady();
    law.heard(ms(t + 121), Some(dur(20)));
    for i in 1..20 {
        law.heard(ms(t + 121 + 16 * i), Some(dur(20)));
    }
    assert!((law.score(law.suspect_at()) - 0.5).abs() < 1e-6);
    assert!((law.score(law.fail_at()) - 0.2).abs() < 1e-4);
    let failed_after = law.fail_at().since(law.deadline());
    assert!((millis(failed_after) - 120.0).abs() < 0.1, "1.2 times the lateness of 100 ms: {failed_after:?}");
    assert!(
        near(law.suspect_at(), law.deadline() + dur(6).mul_f64(std::f64::consts::LN_2)),
        "SUSPECT stays fast"
    );
}

#[test]
fn the_round_trip_stretches_both_laws() {
    let (mut law, _) = steady();
    law.set_rtt(dur(20));
    assert!(near(law.suspect_at(), law.deadline() + dur(60).mul_f64(std::f64::consts::LN_2)));
    law.set_rtt(Duration::from_micros(20));
    assert!(near(law.suspect_at(), law.deadline() + dur(6).mul_f64(std::f64::consts::LN_2)));
}

#[test]
fn outages_are_not_learned_and_lateness_fades() {
    let (mut law, t) = steady();
    law.heard(law.deadline() + dur(501), Some(dur(20)));
    assert_eq!(law.peak(ms(t + 600)), Duration::ZERO);
    let late = law.deadline() + dur(400);
    law.heard(late, Some(dur(20)));
    assert_eq!(law.peak(late), dur(400));
    assert!((millis(law.peak(late + Duration::from_secs(600))) - 200.0).abs() < 0.1);
    law.unlearn();
    assert_eq!(law.peak(late), Duration::ZERO);
}

#[test]
fn learned_lateness_never_waits_longer_than_learn_max() {
    let (mut law, _) = steady();
    law.heard(law.deadline() + dur(499), Some(dur(20)));
    assert!(law.fail_at().since(law.deadline()) <= dur(500));
}

#[test]
fn a_burst_of_queued_frames_counts_once() {
    let (mut law, t) = steady();
    law.heard(ms(t + 1000), Some(dur(20)));
    let once = law.score(ms(t + 1000));
    for i in 0..40 {
        law.heard(ms(t + 1000) + Duration::from_micros(100 * i), Some(dur(20)));
    }
    assert_eq!(law.score(ms(t + 1004)), once);
    assert!(once < 0.21);
    for i in 1..4 {
        law.heard(ms(t + 1000 + 5 * i), Some(dur(20)));
    }
    assert!(reached(law.score(ms(t + 1016)), 0.8));
}

#[test]
fn time_going_backwards_changes_nothing_bad() {
    let (mut law, t) = steady();
    let before = law.deadline();
    law.heard(ms(t - 900), Some(dur(20)));
    assert_eq!(law.deadline(), before);
    assert_eq!(law.last(), ms(t));
    assert_eq!(law.score(ms(t - 900)), 1.0);
}

#[test]
fn backpressure_holds_for_its_promise_and_recovers_nothing() {
    let (mut law, t) = steady();
    let at = ms(t + 30);
    law.heard(at, None);
    law.hold(at, at + dur(200));
    assert_eq!(law.score(at), SATURATED_FLOOR);
    assert_eq!(law.score(at + dur(199)), SATURATED_FLOOR);
    assert!(law.held(at + dur(100)), "without it this were FAILED");
    assert!(law.score(at + dur(240)) < 0.2, "decay resumes");
}

#[test]
fn forgiven_silence_is_not_learned() {
    let (mut law, t) = steady();
    law.forgive(ms(t + 300));
    assert_eq!(law.deadline(), ms(t + 321));
    law.heard(ms(t + 310), Some(dur(20)));
    assert_eq!(law.peak(ms(t + 310)), Duration::ZERO);
}

#[test]
fn only_sleep_past_the_deadline_is_excused() {
    for (from, to, moved) in [(0, 10, 0), (0, 21, 0), (0, 30, 9), (21, 30, 9), (40, 70, 30), (10, 21, 0)] {
        let (mut law, t) = steady();
        law.excuse(ms(t + from), ms(t + to));
        assert_eq!(law.deadline(), ms(t + 21 + moved), "{from}..{to}");
    }
}

proptest! {
    #[test]
    fn gaps_within_the_promise_never_leave_active(
        frames in prop::collection::vec((1u64..=100, 0.0f64..=1.0), 1..300), rtt_us in 0u64..50_000,
    ) {
        let mut law = Promise::new(&Params::default(), ms(1000));
        law.set_rtt(Duration::from_micros(rtt_us));
        let mut at = ms(1000);
        let mut promise = dur(100);
        for (next, share) in frames {
            at = at + promise.mul_f64(share);
            prop_assert!(at <= law.deadline());
            prop_assert_eq!(law.score(at), 1.0);
            promise = dur(next);
            law.heard(at, Some(promise));
        }
        prop_assert_eq!(law.peak(at), Duration::ZERO);
    }

    #[test]
    fn total_silence_fails_within_the_law(
        gaps in prop::collection::vec(0u64..800, 0..100), rtt_us in 0u64..20_000,
    ) {
        let mut law = Promise::new(&Params::default(), ms(1000));
        law.set_rtt(Duration::from_micros(rtt_us));
        let mut at = ms(1000);
        for gap in gaps {
            at = at + dur(gap);
            law.heard(at, Some(dur(20)));
        }
        let tau0 = dur(6).max(Duration::from_micros(3 * rtt_us));
        let bound = tau0.mul_f64(1.6095).max(law.peak(law.deadline()).mul_f64(1.2)) + Duration::from_micros(1);
        prop_assert!(law.fail_at() <= law.deadline() + bound);
        prop_assert!(law.fail_at().since(law.deadline()) <= dur(500).max(tau0.mul_f64(1.6095)));
        prop_assert!(law.score(law.fail_at() + Duration::from_micros(1)) <= 0.2 + 1e-6);
        let mut last = law.score(law.deadline());
        for i in 0..200 {
            let score = law.score(law.deadline() + dur(i));
            prop_assert!(score <= last && score >= 0.0);
            last = score;
        }
    }
}

#[test]
fn what_another_link_learned_is_not_paid_for_again() {
    let mut d = Promise::new(&Params::default(), ms(1000));
    d.heard(ms(1000), Some(dur(20)));
    d.inherit(ms(1000), dur(30));
    assert_eq!(d.peak(ms(1000)), dur(30));
    assert!(d.fail_at() >= ms(1021) + dur(35), "{:?}", d.fail_at());
    d.inherit(ms(1000), dur(10));
    assert_eq!(d.peak(ms(1000)), dur(30), "less is no news");
    d.inherit(ms(1000), dur(100_000));
    assert_eq!(d.peak(ms(1000)), Params::default().learn_max, "and no outage is inherited");
}

#[test]
fn failed_waits_for_the_lateness_that_loops_tell_of_themselves() {
    let mut d = Promise::new(&Params::default(), ms(1000));
    d.heard(ms(1000), Some(dur(20)));
    let (suspect, quick) = (d.suspect_at(), d.fail_at());
    d.set_noise(dur(12));
    assert_eq!(d.fail_at(), quick, "a beat leaves early: so much breaks no promise");
    d.set_noise(dur(35));
    assert_eq!((d.suspect_at(), d.fail_at()), (suspect, ms(1021) + dur(30)));
    assert!(d.score(ms(1021) + dur(29)) > 0.2 && d.score(ms(1021) + dur(31)) < 0.2);
    d.set_noise(dur(0));
    assert_eq!(d.fail_at(), quick);
}
