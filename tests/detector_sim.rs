//! Seeded simulation in virtual time with the product's own simulator: false FAILED verdicts against the ceilings of the
//! design (the `promise 20` column of its table), the time to detect a black hole, and a committed ceiling for every
//! detector in every scenario. `SIM_SEED=n cargo test --test detector_sim` replays one seed of the first kind.

#![expect(clippy::unwrap_used, reason = "a test may panic; clippy only knows #[test] functions")]

use std::time::Duration;

use sidebeat::detector::{Facts, LinkJudge, Output, Params};
use sidebeat::sim::compare::{Request, compare};
use sidebeat::sim::detectors::{NAMES, Rhythm, Setup, setups};
use sidebeat::sim::gaps::{Every, Spec};
use sidebeat::sim::report::{Report, Spread};
use sidebeat::sim::rng::Rng;
use sidebeat::sim::run::{Plan, Verdicts, run};
use sidebeat::sim::scenario::{self, Scenario, by_name};
use sidebeat::stamp::Stamp;
use sidebeat::verdict::State;

const SEEDS: u64 = 64;
/// Each run without a fault: 64 of them are 64 minutes.
const RUN: Duration = Duration::from_secs(60);

fn seeds() -> Vec<u64> {
    match std::env::var("SIM_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..SEEDS).collect(),
    }
}

/// `promise-20` with its own beats.
fn promise() -> Setup {
    setups(&["promise-20"], Rhythm::Sidecar).remove(0)
}

fn play(s: &Scenario, seed: u64, length: Duration, fault: bool) -> Verdicts {
    let outcome = run(s, &promise(), &Plan { seed, length, fault, own: None, watch: None });
    assert!(outcome.frames > 40, "{}: the world is silent", s.name);
    outcome.verdicts.into_iter().next().unwrap()
}

/// False FAILED over all seeds, because we did not hear the peer and because it seemed not to hear us; and the most in one.
fn false_failed(s: &Scenario) -> (u64, u64, u64) {
    let seeds = seeds();
    assert!(!seeds.is_empty());
    let runs: Vec<_> = seeds.iter().map(|seed| play(s, *seed, RUN, false).counts).collect();
    let total = runs.iter().copied().reduce(|a, b| a + b).unwrap();
    let worst = runs.iter().map(|c| c.failed).max().unwrap();
    println!(
        "{:18} {} min: FAILED {} (at most {worst} in one run), {} unheard, SUSPECT {}, {} unheard, challenges {}",
        s.name,
        seeds.len(),
        total.failed,
        total.failed_unheard,
        total.suspect,
        total.suspect_unheard,
        total.challenges
    );
    (total.failed - total.failed_unheard, total.failed_unheard, worst)
}

/// Detection times of a fault, sorted, ms.
fn detection(s: &Scenario) -> Spread {
    let (mut failed, mut suspect) = (Vec::new(), Vec::new());
    for seed in seeds() {
        for part in 0..4u64 {
            let seed = 1000 + seed * 4 + part;
            let mut rng = Rng::new(seed);
            let v = play(s, seed, Duration::from_secs_f64(rng.uniform(5.0, 15.0)), true);
            failed.push(v.failed.unwrap_or_else(|| panic!("{}: seed {seed} undetected", s.name)));
            suspect.extend(v.suspect);
        }
    }
    let (failed, suspect) = (Spread::of(&failed).unwrap(), Spread::of(&suspect).unwrap());
    println!("{:18} T_D {failed:?}, SUSPECT {suspect:?}", s.name);
    failed
}

fn named(name: &str) -> Scenario {
    *by_name(name).unwrap()
}

#[test]
fn no_false_failed_where_the_design_promises_none() {
    for name in ["steady", "steady-loss", "bursts", "poisson", "idle-loss", "saturated"] {
        let (silent, unheard, _) = false_failed(&named(name));
        assert_eq!(silent, 0, "{name}");
        // The design's table knows hearing only. Where the jitter is above the least round trip time, a beat of ours that
        // is under way for longer than that looks like one that the peer missed.
        let most = if name == "saturated" { 5 } else { 0 };
        assert!(unheard <= most, "{name}: {unheard} unheard");
    }
}

#[test]
fn disturbances_cost_a_few_mistakes_and_are_learned() {
    // The design's table has 2 to 12 of these in an hour of *one* link. Here each of the 64 runs is a new link, which
    // has to learn its path for itself, so the ceiling is per run: what one link may pay.
    for (name, ceiling) in
        [("throttled-sender", 6), ("throttled-tells", 14), ("vm-pauses", 4), ("path-stalls", 2)]
    {
        let (silent, unheard, worst) = false_failed(&named(name));
        assert!(worst <= ceiling, "{name}: {worst} in one run");
        let mean = (silent + unheard) as f64 / seeds().len() as f64;
        assert!(seeds().len() == 1 || mean <= ceiling as f64 * 0.6, "{name}: {mean} per run");
    }
}

#[test]
fn the_observer_s_own_sleep_blames_nobody() {
    let own = |every, min, max| Some(Spec { every, min, max });
    for own in [own(Every::Fixed(150.0), 5.0, 90.0), own(Every::Mean(2500.0), 110.0, 2000.0)] {
        let s = Scenario { own, ..named("steady") };
        let (silent, unheard, _) = false_failed(&s);
        assert_eq!((silent, unheard), (0, 0), "{own:?}");
    }
    for name in ["clock-jumps", "thousand-endpoints"] {
        let (silent, unheard, _) = false_failed(&named(name));
        assert_eq!((silent, unheard), (0, 0), "{name}");
    }
}

#[test]
fn black_holes_are_found_in_the_design_s_time() {
    // Scenario, p50 and p99 of the design's table; a tenth and a millisecond to spare for the seeds.
    let table = [
        ("steady", 24.0, 30.0),
        ("steady-loss", 26.0, 31.0),
        ("bursts", 58.0, 110.0),
        // The table has 63 from 120 faults; 2 000 of them settle at 80, there and here.
        ("poisson", 23.0, 80.0),
        ("idle-loss", 67.0, 111.0),
    ];
    for (name, p50, p99) in table {
        let found = detection(&named(name));
        assert!(found.p50 <= p50 * 1.1 + 1.0, "{name} p50");
        assert!(found.p99 <= p99 * 1.1 + 1.0, "{name} p99");
    }
}

/// Ceilings only, and of few hours: `detector_sim_table.rs` holds the design's ten scenarios closer and from both sides.
/// Each line of the file: scenario, detector, same beats, most false FAILED per hour, most T_D p50 and p99 in ms ("-": it
/// need not find the fault).
const CEILINGS: &str = include_str!("detector_sim.csv");

/// A cell's ceiling; None for "-".
fn ceiling(field: &str) -> Option<f64> {
    (field != "-").then(|| field.parse().unwrap())
}

#[test]
fn every_detector_stays_under_its_ceiling_in_every_scenario() {
    let request = Request {
        scenarios: scenario::ALL.iter().collect(),
        detectors: NAMES.to_vec(),
        rhythm: Rhythm::Sidecar,
        seed: 20,
        seeds: 4,
        hours: 0.1,
        faults: 40,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = compare(&request, threads, &|_, _| {});
    let rows: Vec<Vec<&str>> = CEILINGS.lines().skip(1).map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), report.cells.len(), "one line per cell");
    let mut over = String::new();
    for row in &rows {
        over.push_str(&above(&report, row));
    }
    assert!(over.is_empty(), "{over}");
}

/// What is above the ceilings of that row.
fn above(report: &Report, row: &[&str]) -> String {
    let cell = report.find(row[0], row[1], row[2] == "true").unwrap_or_else(|| panic!("no cell for {row:?}"));
    let failed = cell.per_hour(cell.counts.failed);
    let found = Spread::of(&cell.detected);
    let mut over = String::new();
    let mut check = |what: &str, value: Option<f64>, field: &str| {
        let Some(most) = ceiling(field) else { return };
        if value.is_none_or(|v| v > most) {
            over.push_str(&format!("{row:?}: {what} {value:?}\n"));
        }
    };
    check("false FAILED per hour", Some(failed), row[3]);
    let all = found.filter(|_| cell.undetected == 0);
    check("T_D p50", all.map(|s| s.p50), row[4]);
    check("T_D p99", all.map(|s| s.p99), row[5]);
    over
}

/// We hear the peer, it does not hear us: only its beats can tell.
#[test]
fn a_cut_of_our_own_direction_is_found() {
    let ms = |t: u64| Stamp::from_millis(t);
    let mut times = Vec::new();
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let cut = 5000 + rng.uniform(0.0, 1000.0) as u64;
        let mut judge = LinkJudge::new(&Params::default(), ms(1000));
        judge.rtt_sample(Duration::from_millis(1));
        let (mut heard, mut t) = (1000, 1000);
        while judge.state() != State::Failed {
            t += 1;
            assert!(t < cut + 1000, "seed {seed}: undetected");
            if t % 16 == 0 {
                judge.we_promised(ms(t), Duration::from_millis(20));
                heard = if t < cut { t } else { heard };
            }
            if t % 16 == seed % 16 {
                judge.heard(ms(t));
                judge.promised(ms(t), Duration::from_millis(20));
                judge.peer_view(ms(t), Duration::from_millis(t - heard));
            }
            while let Some(output) = judge.poll(ms(t), &mut Facts::default) {
                match output {
                    Output::Challenge => judge.challenge_sent(ms(t)),
                    Output::Failed(e) => assert!(e.one_way && t >= cut),
                    Output::Suspect(_) => assert!(t >= cut, "seed {seed}: false doubt at {t}"),
                    _ => {}
                }
            }
        }
        times.push(Duration::from_millis(t - cut));
    }
    let found = Spread::of(&times).unwrap();
    println!("one-way            T_D {found:?} ms");
    assert!(found.p99 <= 60.0);
}
