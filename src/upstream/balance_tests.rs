use super::*;
use proptest::prelude::*;

fn view(state: State, by_proof: bool) -> View {
    View { state, by_proof, ..View::active(1) }
}

fn silent(score: f64) -> View {
    View { score, ..view(State::Failed, false) }
}

fn balance() -> Balance {
    Balance::new(Enforce::Failed, 0.5)
}

fn picks(balance: &mut Balance, views: &[View], n: usize) -> Vec<usize> {
    let mut counts = vec![0; views.len()];
    for _ in 0..n {
        if let Some(i) = balance.pick(views, &[]) {
            counts[i] += 1;
        }
    }
    counts
}

#[test]
fn nothing_to_choose() {
    assert_eq!(balance().pick(&[], &[]), None);
    assert_eq!(balance().pick(&[View::active(1)], &[0]), None);
}

#[test]
fn weights_are_honoured_smoothly() {
    let views = [View::active(5), View::active(1), View::active(2)];
    assert_eq!(picks(&mut balance(), &views, 800), [500, 100, 200]);
    let mut b = balance();
    let order: Vec<_> = (0..8).filter_map(|_| b.pick(&views, &[])).collect();
    assert!(!order.windows(4).any(|w| w.iter().all(|i| *i == w[0])), "not in clumps: {order:?}");
}

#[test]
fn slow_start_takes_a_share() {
    let views = [View::active(1), View { share: 0.1, ..View::active(1) }];
    assert_eq!(picks(&mut balance(), &views, 1100), [1000, 100]);
}

#[test]
fn tiers_come_in_order() {
    let mut views = vec![
        view(State::Active, false),
        view(State::Suspect, false),
        View { draining: true, ..View::active(1) },
        view(State::Failed, true),
    ];
    assert_eq!(picks(&mut balance(), &views, 10), [10, 0, 0, 0]);
    views[0] = view(State::Failed, true);
    assert_eq!(picks(&mut balance(), &views, 10), [0, 10, 0, 0]);
    views[1] = view(State::Failed, true);
    assert_eq!(picks(&mut balance(), &views, 10), [0, 0, 10, 0]);
    views[2] = view(State::Failed, true);
    assert_eq!(picks(&mut balance(), &views, 10), [0, 0, 0, 0], "proof has no limit");
}

#[test]
fn a_single_endpoint_is_never_refused() {
    for by_proof in [true, false] {
        assert_eq!(balance().pick(&[view(State::Failed, by_proof)], &[]), Some(0));
    }
}

#[test]
fn silence_takes_out_at_most_its_share_worst_first() {
    let views = [silent(0.1), silent(0.0), silent(0.05), silent(0.15)];
    let mut b = balance();
    assert!(b.out(&views, 1) && b.out(&views, 2));
    assert_eq!(picks(&mut b, &views, 10), [5, 0, 0, 5]);
}

#[test]
fn silence_alone_never_takes_the_last_one() {
    let mut all = Balance::new(Enforce::Failed, 1.0);
    let views = [silent(0.1), view(State::Failed, true)];
    assert_eq!(all.pick(&views, &[]), Some(0));
    assert_eq!(picks(&mut all, &[silent(0.1), silent(0.0)], 10), [10, 0]);
    assert!(all.out(&[silent(0.1), View::active(1)], 0), "another one works");
}

/// Each verdict that the rule holds back is counted, once, whoever's change of state it was that brought it.
#[test]
fn what_the_panic_rule_holds_back_is_told_once() {
    let (well, proof) = (View::active(1), view(State::Failed, true));
    let b = balance();
    for (before, after, held) in [
        (vec![well], vec![silent(0.1)], 1),
        (vec![well], vec![proof], 1),
        (vec![silent(0.1)], vec![proof], 0),
        (vec![well, well], vec![silent(0.1), well], 0),
        (vec![silent(0.1), well], vec![silent(0.1), silent(0.0)], 1),
        (vec![proof, well], vec![proof, silent(0.0)], 1),
        (vec![proof, well], vec![proof, proof], 0),
        (vec![silent(0.1), silent(0.0)], vec![silent(0.1), well], 0),
    ] {
        assert_eq!(b.newly_held(&before, &after), held, "{before:?} to {after:?}");
    }
    let lenient = Balance::new(Enforce::Suspect, 0.5);
    assert_eq!(lenient.newly_held(&[well], &[silent(0.1)]), 0, "nothing would have been taken out");
}

#[test]
fn enforce_runs_dry() {
    let views = [view(State::Failed, true), View::active(1), view(State::Suspect, false)];
    assert_eq!(picks(&mut Balance::new(Enforce::Off, 0.5), &views, 30), [10, 10, 10]);
    let mut suspect = Balance::new(Enforce::Suspect, 0.5);
    assert_eq!(picks(&mut suspect, &views, 10), [0, 10, 0]);
    assert_eq!(suspect.pick(&views, &[1, 2]), Some(0), "avoided, never taken out");
}

#[test]
fn a_set_that_changes_size_starts_anew() {
    let mut b = balance();
    picks(&mut b, &[View::active(1); 3], 7);
    assert_eq!(picks(&mut b, &[View::active(1); 2], 10), [5, 5]);
}

fn any_view() -> impl Strategy<Value = View> {
    (0u8..3, any::<bool>(), prop::bool::weighted(0.1), 1u32..=1000, 0.1f64..=1.0, 0.0f64..=1.0).prop_map(
        |(state, by_proof, draining, weight, share, score)| View {
            state: State::from_code(state),
            by_proof: by_proof && state == 2,
            draining,
            weight,
            share,
            score,
        },
    )
}

proptest! {
    #[test]
    fn never_worse_than_the_best_tier(
        views in prop::collection::vec(any_view(), 1..12),
        exclude in prop::collection::vec(0usize..12, 0..6),
        rounds in 1usize..20,
    ) {
        let mut b = balance();
        for _ in 0..rounds {
            let picked = b.pick(&views, &exclude);
            let open = |s: State| {
                views.iter().enumerate().any(|(i, v)| v.state == s && !v.draining && !exclude.contains(&i))
            };
            match picked {
                Some(i) => {
                    prop_assert!(!exclude.contains(&i));
                    if open(State::Active) {
                        prop_assert_eq!(views[i].state, State::Active);
                    } else if open(State::Suspect) {
                        prop_assert_eq!(views[i].state, State::Suspect);
                    }
                    prop_assert!(!b.out(&views, i));
                }
                None => {
                    for (i, v) in views.iter().enumerate() {
                        prop_assert!(exclude.contains(&i) || v.state == State::Failed);
                    }
                }
            }
        }
    }

    #[test]
    fn at_most_half_is_out_by_silence(views in prop::collection::vec(any_view(), 2..12)) {
        let b = balance();
        let out = (0..views.len()).filter(|&i| b.out(&views, i) && !views[i].by_proof).count();
        prop_assert!(out <= views.len() / 2);
        let proved = views.iter().filter(|v| v.by_proof).count();
        prop_assert!(proved == views.len() || (0..views.len()).any(|i| !b.out(&views, i)));
    }

    #[test]
    fn weights_hold_for_any_weights(weights in prop::collection::vec(1u32..50, 1..8)) {
        let views: Vec<View> = weights.iter().map(|w| View::active(*w)).collect();
        let sum: u32 = weights.iter().sum();
        let counts = picks(&mut balance(), &views, sum as usize * 10);
        for (count, weight) in counts.iter().zip(&weights) {
            let want = *weight as usize * 10;
            prop_assert!(count.abs_diff(want) <= 1, "{counts:?} {weights:?}");
        }
    }
}
