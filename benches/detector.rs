//! What a judgement costs: ns per arrival, per wake-up that finds nothing, and per whole sweep, for 1 to 10 000 links;
//! and per choice among endpoints. `cargo bench --bench detector`; the machine's noise is in the spread.

use std::hint::black_box;
use std::time::Duration;

use sidebeat::clock;
use sidebeat::detector::{Facts, Kind, LinkJudge, Params, catalog};
use sidebeat::stamp::{Stamp, nanos};
use sidebeat::upstream::balance::{Balance, Enforce, View};
use sidebeat::upstream::endpoint::{Endpoint, EndpointParams};

const ROUNDS: usize = 5;

/// Best and worst of the rounds, ns per operation.
fn measure(operations: usize, mut round: impl FnMut()) -> (f64, f64) {
    round();
    let mut best = f64::INFINITY;
    let mut worst: f64 = 0.0;
    for _ in 0..ROUNDS {
        let start = clock::now();
        round();
        let each = nanos(clock::now().since(start)) as f64 / operations as f64;
        best = best.min(each);
        worst = worst.max(each);
    }
    (best, worst)
}

fn report(name: &str, links: usize, (best, worst): (f64, f64)) {
    println!("{name:34} {links:6} {best:9.1} {worst:9.1}");
}

fn judges(params: &Params, shadows: &[(&'static str, Params)], n: usize) -> Vec<LinkJudge> {
    (0..n)
        .map(|_| {
            let mut judge = LinkJudge::with_shadows(params, shadows, Stamp::from_millis(1000));
            judge.rtt_sample(Duration::from_micros(300));
            judge
        })
        .collect()
}

/// Every link hears a beat each 16 ms and looks at its clock after each.
fn hear(params: &Params, shadows: &[(&'static str, Params)], n: usize) -> (f64, f64) {
    let mut judges = judges(params, shadows, n);
    let sweeps = (200_000 / n).max(20);
    let mut t = Stamp::from_millis(1000);
    measure(sweeps * n, || {
        for _ in 0..sweeps {
            t = t + Duration::from_millis(16);
            for judge in &mut judges {
                judge.heard(t);
                judge.promised(t, Duration::from_millis(20));
                black_box(judge.poll(t, &mut Facts::default));
            }
        }
    })
}

/// The same with the peer's view of us and our own writes: all that one beat carries.
fn whole_beat(n: usize) -> (f64, f64) {
    let mut judges = judges(&Params::of(Kind::Promise), &[], n);
    let sweeps = (200_000 / n).max(20);
    let mut t = Stamp::from_millis(1000);
    measure(sweeps * n, || {
        for _ in 0..sweeps {
            t = t + Duration::from_millis(16);
            for judge in &mut judges {
                judge.we_promised(t, Duration::from_millis(20));
                judge.heard(t);
                judge.promised(t, Duration::from_millis(20));
                judge.peer_view(t, Duration::from_millis(3));
                judge.rtt_sample_at(t, Duration::from_micros(300));
                black_box(judge.poll(t, &mut Facts::default));
            }
        }
    })
}

/// A wake-up within the promise: nothing to do.
fn tick(n: usize) -> (f64, f64) {
    let mut judges = judges(&Params::of(Kind::Promise), &[], n);
    let sweeps = (400_000 / n).max(40);
    let t = Stamp::from_millis(1010);
    measure(sweeps * n, || {
        for _ in 0..sweeps {
            for judge in &mut judges {
                black_box(judge.poll(t, &mut Facts::default));
                black_box(judge.next_due());
            }
        }
    })
}

fn endpoint(n: usize) -> (f64, f64) {
    let start = Stamp::from_millis(1000);
    let mut endpoints: Vec<Endpoint> = (0..n)
        .map(|i| {
            let mut e = Endpoint::new(EndpointParams::default(), start);
            e.link_up(start, i as u64, 7);
            while e.poll(start).is_some() {}
            e
        })
        .collect();
    let sweeps = (200_000 / n).max(20);
    let mut t = start;
    measure(sweeps * n, || {
        for _ in 0..sweeps {
            t = t + Duration::from_millis(16);
            for (i, e) in endpoints.iter_mut().enumerate() {
                e.link_heard(t, i as u64);
                black_box(e.poll(t));
            }
        }
    })
}

fn pick(n: usize) -> (f64, f64) {
    let views = vec![View::active(1); n];
    let mut balance = Balance::new(Enforce::Failed, 0.5);
    let picks = (1_000_000 / n).max(50);
    measure(picks, || {
        for _ in 0..picks {
            black_box(balance.pick(&views, &[]));
        }
    })
}

fn main() {
    // `cargo test --benches` runs this file too; only `cargo bench` asks for numbers.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    println!("{:34} {:>6} {:>9} {:>9}", "", "links", "best ns", "worst ns");
    let laws: Vec<_> = catalog::NAMES.iter().filter_map(|n| Some((*n, catalog::by_name(n)?))).collect();
    for n in [1, 100, 1000, 10_000] {
        for (name, params) in &laws {
            report(&format!("{name}: heard + poll"), n, hear(params, &[], n));
        }
        report("promise, seven shadows", n, hear(&Params::default(), &laws, n));
        report("promise: whole beat + poll", n, whole_beat(n));
        report("promise: idle poll + next_due", n, tick(n));
        report("endpoint: heard + poll", n, endpoint(n));
    }
    for n in [1, 3, 10, 100] {
        report("balance: pick", n, pick(n));
    }
}
