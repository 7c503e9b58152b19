//! What holds for every law.

use super::*;
use proptest::prelude::*;

fn ms(x: u64) -> Stamp {
    Stamp::from_millis(x)
}

fn dur(x: u64) -> Duration {
    Duration::from_millis(x)
}

fn laws(now: Stamp) -> Vec<(&'static str, Box<dyn Detector>)> {
    catalog::NAMES.iter().map(|name| (*name, catalog::by_name(name).expect(name).build(now))).collect()
}

/// Everything a law says, at some instants.
fn answers(law: &dyn Detector, now: Stamp) -> (Stamp, Stamp, Stamp, Vec<f64>, u64, Stamp) {
    let scores = (0..20).map(|i| law.score(now + dur(40 * i))).collect();
    (law.deadline(), law.suspect_at(), law.fail_at(), scores, law.credits(), law.last())
}

#[test]
fn silence_falls_to_failed_and_four_arrivals_heal() {
    for (name, mut law) in laws(ms(1000)) {
        for i in 1..=100 {
            law.heard(ms(1000 + 16 * i), Some(dur(20)));
            // The first estimate of huddm is 10 ms.
            assert!(i < 30 || law.score(ms(1000 + 16 * i)) == 1.0, "{name}");
        }
        assert!(law.suspect_at() > ms(2616), "{name}");
        assert!(law.fail_at() <= ms(2600) + dur(3000), "{name}");
        let back = law.fail_at() + dur(50);
        assert!(law.score(back) < FAILED_BELOW + 1e-9, "{name}");
        law.heard(back, Some(dur(20)));
        assert!(law.score(back) < SUSPECT_BELOW, "{name}: one frame is not enough");
        for i in 1..=3 {
            law.heard(back + dur(10 * i), Some(dur(20)));
        }
        assert!(promise::reached(law.score(back + dur(30)), HEALED_FROM), "{name}");
    }
}

#[test]
fn backpressure_holds_any_law() {
    for (name, mut law) in laws(ms(1000)) {
        for i in 1..=100 {
            law.heard(ms(1000 + 16 * i), Some(dur(20)));
        }
        law.heard(ms(2610), None);
        law.hold(ms(2610), ms(7610));
        assert!(law.score(ms(7609)) >= SATURATED_FLOOR, "{name}");
        assert!(law.held(ms(7600)), "{name}");
        assert!(law.score(ms(11_000)) <= FAILED_BELOW + 1e-9, "{name}: decay resumes");
    }
}

#[test]
fn links_off_duty_rest_under_any_law() {
    for (name, mut law) in laws(ms(1000)) {
        for i in 1..=100 {
            law.heard(ms(1000 + 16 * i), Some(dur(20)));
        }
        law.heard(ms(2616), Some(dur(20)));
        let patience = law.fail_at().since(law.last());
        law.heard(ms(2616), Some(OFF_DUTY));
        assert_eq!(law.score(ms(12_616)), 1.0, "{name}");
        assert!(law.suspect_at() > ms(12_616), "{name}");
        law.heard(ms(10_616), Some(dur(20)));
        assert_eq!(law.score(ms(10_616)), 1.0, "{name}");
        assert_eq!(law.fail_at().since(law.last()), patience, "{name}: it learned nothing");
    }
}

proptest! {
    #[test]
    fn one_arrival_told_twice_counts_once(
        frames in prop::collection::vec((1u64..1500, 1u64..200), 1..60),
    ) {
        for (i, (name, mut once)) in laws(ms(1000)).into_iter().enumerate() {
            let mut twice = laws(ms(1000)).swap_remove(i).1;
            let mut at = ms(1000);
            for (gap, promise) in &frames {
                at = at + dur(*gap);
                once.heard(at, Some(dur(*promise)));
                twice.heard(at, None);
                twice.heard(at, Some(dur(*promise)));
                prop_assert_eq!(answers(&*once, at), answers(&*twice, at), "{}", name);
            }
        }
    }

    #[test]
    fn arrivals_in_order_keep_every_law_in_order(
        frames in prop::collection::vec((0u64..3_000_000, 1u64..200), 1..80), rtt_us in 0u64..50_000,
    ) {
        for (name, mut law) in laws(ms(1000)) {
            law.set_rtt(Duration::from_micros(rtt_us));
            let mut at = ms(1000);
            for (gap_us, promise) in &frames {
                at = at + Duration::from_micros(*gap_us);
                law.heard(at, Some(dur(*promise)));
                let (due, suspect, fail) = (law.deadline(), law.suspect_at(), law.fail_at());
                prop_assert!(at <= due && due < suspect && suspect <= fail, "{}: {:?}", name, law);
                prop_assert_eq!(law.last(), at);
                let mut last = law.score(at);
                prop_assert!((0.0..=1.0).contains(&last), "{}", name);
                for i in 1..30 {
                    let score = law.score(at + dur(i * i * 5));
                    prop_assert!((0.0..=last).contains(&score), "{}: {:?}", name, law);
                    last = score;
                }
                prop_assert!(law.score(fail + Duration::from_micros(10)) < FAILED_BELOW + 1e-3, "{}", name);
            }
        }
    }

    #[test]
    fn even_arrivals_never_move_the_deadline_back(gap in 1u64..150, promise in 1u64..150) {
        for (name, mut law) in laws(ms(1000)) {
            law.heard(ms(1000), Some(dur(promise)));
            let mut due = Stamp::ZERO;
            for i in 1..=80 {
                law.heard(ms(1000 + gap * i), Some(dur(promise)));
                // What a law assumes until it has seen something may be more than what it sees.
                prop_assert!(i < 10 || law.deadline() >= due, "{}: {:?}", name, law);
                due = law.deadline();
            }
        }
    }

    #[test]
    fn absurd_input_changes_nothing_worse_than_the_score(
        steps in prop::collection::vec((0u8..10, any::<u64>(), any::<u64>()), 1..60), near in any::<bool>(),
    ) {
        for (name, mut law) in laws(ms(1000)) {
            for (what, a, b) in &steps {
                // Near the start or anywhere at all, until the end of time.
                let stamp = |x: u64| Stamp::from_nanos(if near { 1_000_000_000 + x % 4_000_000_000 } else { x });
                let (x, y) = (stamp(*a), stamp(*b));
                match what {
                    0 => law.heard(x, None),
                    1 => law.heard(x, Some(Duration::from_nanos(*b))),
                    2 => law.heard(x, Some(Duration::MAX)),
                    3 => law.forgive(x),
                    4 => law.excuse(x, y),
                    5 => law.hold(x, y),
                    6 => law.inherit(x, Duration::from_nanos(*b)),
                    8 => law.answered(),
                    7 => law.set_noise(Duration::from_nanos(*b % 250_000_000)),
                    _ => law.set_rtt(Duration::from_nanos(*a % 3_600_000_000_000)),
                }
                prop_assert!(law.suspect_at() <= law.fail_at(), "{}: {:?}", name, law);
                for at in [x, y, Stamp::ZERO, Stamp::NEVER, law.deadline(), law.fail_at()] {
                    prop_assert!((0.0..=1.0).contains(&law.score(at)), "{}: {:?}", name, law);
                    let _ = (law.held(at), law.peak(at));
                }
                law.unlearn();
            }
        }
    }
}
