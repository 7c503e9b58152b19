//! The four laws of waits, around what each of them learns.

use super::*;
use crate::detector::{FAILED_BELOW, Kind, SATURATED_FLOOR};

fn ms(x: u64) -> Stamp {
    Stamp::from_millis(x)
}

fn dur(x: u64) -> Duration {
    Duration::from_millis(x)
}

const KINDS: [Kind; 4] = [Kind::Timeout, Kind::P95, Kind::Phi, Kind::Chen];

/// Each law after frames each 16 ms, promising 20 ms, the last at 2600.
fn steady() -> impl Iterator<Item = (Kind, Box<dyn Detector>)> {
    KINDS.into_iter().map(|kind| {
        let mut law = Params::of(kind).build(ms(1000));
        for i in 1..=100 {
            law.heard(ms(1000 + 16 * i), Some(dur(20)));
        }
        (kind, law)
    })
}

/// How long the law waits after its last arrival.
fn patience(law: &dyn Detector) -> (Duration, Duration, Duration) {
    let from = law.last();
    (law.deadline().since(from), law.suspect_at().since(from), law.fail_at().since(from))
}

#[test]
fn waits_are_put_in_order() {
    let waits = Waits::new(dur(50), dur(40), dur(30));
    assert_eq!((waits.fail, waits.suspect), (dur(30), dur(30)));
    assert_eq!(waits.due, dur(30) - TICK);
    let nothing = Waits::new(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    assert!(nothing.due < nothing.suspect);
    let forever = Waits::single(Duration::MAX, Duration::MAX);
    assert_eq!(forever.fail, WAIT_MAX);
}

#[test]
fn the_score_passes_its_marks_at_the_verdicts() {
    let waits = Waits::new(dur(100), dur(140), dur(200));
    for (late, score) in [(0, 1.0), (20, 0.5f64.sqrt()), (40, 0.5), (100, 0.2)] {
        assert!((waits.decayed(dur(late)) - score).abs() < 1e-9, "{late}: {}", waits.decayed(dur(late)));
    }
    let half_way = (0.5f64 * 0.2).sqrt();
    assert!((waits.decayed(dur(70)) - half_way).abs() < 1e-9);
    let single = Waits::single(dur(100), dur(140));
    assert!(single.decayed(dur(39)) > 0.5);
    assert!((single.decayed(dur(40)) - 0.2).abs() < 1e-9);
}

#[test]
fn a_window_holds_what_it_should() {
    let mut window = Window::new(6);
    let out: Vec<_> = (0..9).map(|i| window.push(i)).collect();
    assert_eq!(out, [None, None, None, None, None, None, Some(0), Some(1), Some(2)]);
    assert_eq!(window.len(), 6);
    assert_eq!((Window::new(0).size, Window::new(u32::MAX).size), (MIN_GAPS, WINDOW_MAX));
}

#[test]
fn backpressure_holds_until_its_promise_ends_and_recovers_nothing() {
    for (kind, mut law) in steady() {
        let before = law.credits();
        law.heard(ms(2610), None);
        law.hold(ms(2610), ms(7610));
        assert_eq!(law.credits(), before, "{kind:?}: the frame itself is worth nothing");
        assert_eq!(law.score(ms(7610)), 1.0, "{kind:?}");
        assert!(law.held(ms(7000)), "{kind:?}: without it this were FAILED");
        assert!(!law.held(ms(2612)), "{kind:?}: nothing to hold yet");
        assert!(law.score(ms(11_000)) <= FAILED_BELOW + 1e-9, "{kind:?}: decay resumes");
    }
}

#[test]
fn a_fallen_score_is_lifted_to_the_floor_by_backpressure() {
    for (kind, mut law) in steady() {
        let at = law.fail_at() + dur(1);
        law.heard(at, None);
        law.hold(at, at + dur(100));
        assert_eq!(law.score(at), SATURATED_FLOOR, "{kind:?}");
    }
}

#[test]
fn forgiven_silence_waits_afresh_and_teaches_nothing() {
    for (kind, mut law) in steady() {
        let before = patience(&*law);
        law.forgive(ms(2900));
        let due = law.deadline();
        assert!(due > ms(2900) && due <= ms(2900) + before.0, "{kind:?}");
        law.heard(ms(2905), Some(dur(20)));
        assert_eq!(law.score(ms(2905)), 1.0, "{kind:?}");
        assert_eq!(patience(&*law), before, "{kind:?}");
    }
}

#[test]
fn only_sleep_past_the_deadline_is_excused() {
    for (kind, law) in steady() {
        let (due, fail) = (law.deadline(), law.fail_at());
        drop(law);
        for (from, to, moved) in [(0, 5, 0), (5, 30, 30), (40, 70, 30)] {
            let mut law = steady().find(|(k, _)| *k == kind).expect("it is there").1;
            let at = |x: u64| if x < 30 { ms(2600) + dur(x) } else { due + dur(x) };
            law.excuse(at(from), at(to));
            assert_eq!(law.deadline(), due + dur(moved), "{kind:?} {from}..{to}");
            assert_eq!(law.fail_at(), fail + dur(moved), "{kind:?} {from}..{to}");
        }
    }
}

#[test]
fn a_link_off_duty_is_not_doubted_within_its_promise() {
    for (kind, mut law) in steady() {
        law.heard(ms(2616), Some(dur(20)));
        let before = patience(&*law);
        law.heard(ms(2616), Some(OFF_DUTY));
        assert_eq!(law.deadline(), ms(2616) + OFF_DUTY + dur(1), "{kind:?}");
        assert!(law.fail_at() > law.deadline(), "{kind:?}: a broken one is");
        law.heard(ms(11_000), Some(dur(20)));
        assert_eq!(law.score(ms(11_000)), 1.0, "{kind:?}");
        assert_eq!(patience(&*law), before, "{kind:?}: what was announced teaches nothing");
    }
}

#[test]
fn the_round_trip_is_nothing_to_them() {
    for (kind, mut law) in steady() {
        let before = patience(&*law);
        law.set_rtt(dur(500));
        assert_eq!(patience(&*law), before, "{kind:?}");
        assert!(!law.challenges() && law.peak(ms(9000)).is_zero());
    }
}

#[test]
fn an_answer_takes_its_gap_back_and_no_other() {
    for (kind, mut law) in steady() {
        law.heard(ms(2616), Some(dur(20)));
        let before = patience(&*law);
        law.heard(ms(2900), Some(dur(20)));
        let learned = patience(&*law);
        assert!(
            kind == Kind::Timeout || learned != before || kind == Kind::P95,
            "{kind:?}: 284 ms are a lesson"
        );
        law.answered();
        assert_eq!(patience(&*law), before, "{kind:?}");
        law.answered();
        assert_eq!(patience(&*law), before, "{kind:?}: once");
        law.heard(ms(2916), Some(dur(20)));
        let (due, ..) = patience(&*law);
        assert!(due >= dur(15) && due <= dur(20), "{kind:?}: {due:?}");
    }
}

#[test]
fn a_window_takes_the_latest_back() {
    let mut window = Window::new(5);
    for i in 0..7 {
        window.push(i);
    }
    assert_eq!(window.undo(), Some((6, Some(1))));
    assert_eq!(window.kept, [1, 2, 3, 4, 5]);
    assert_eq!(window.undo(), Some((5, None)), "what comes back comes once");
}
