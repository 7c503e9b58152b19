//! The comparison: every run of it is a job, jobs go to threads, and their outcomes are added up in the order of the jobs, so
//! that the result does not depend on the threads. No run keeps its arrivals: memory is that of the jobs' counts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::detectors::{Rhythm, Setup, setups};
use super::plot::{Axis, Plot, Series};
use super::report::Report;
use super::rng::Rng;
use super::run::{Outcome, Plan, Watch, run};
use super::scenario::Scenario;

/// Before a fault a detector has had this long to learn the path, and up to [`SPREAD`] more.
const WARM: f64 = 30.0;
/// See [`WARM`], s.
const SPREAD: f64 = 27.0;
/// A scenario of many links runs each of them this many hours' time in all, shared between them.
const SHARED: f64 = 20.0;
/// Faults of one job.
const FAULTS: u32 = 8;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Request {
    /// Scenarios.
    pub scenarios: Vec<&'static Scenario>,
    /// Names of detectors.
    pub detectors: Vec<&'static str>,
    /// What those listen to that ask nobody.
    pub rhythm: Rhythm,
    /// Seed of everything.
    pub seed: u64,
    /// Runs without a fault per cell.
    pub seeds: u32,
    /// Length of each.
    pub hours: f64,
    /// Runs with a fault per cell.
    pub faults: u32,
}

enum Job<'a> {
    /// The run with that number, without a fault.
    Quiet(&'static Scenario, &'a Setup, u32),
    /// Faults from the one to the other number.
    Faults(&'static Scenario, &'a Setup, u32, u32),
}

/// Runs it all on that many threads. `progress` hears how many jobs are done, of how many.
pub fn compare(request: &Request, threads: usize, progress: &(dyn Fn(usize, usize) + Sync)) -> Report {
    let setups = setups(&request.detectors, request.rhythm);
    let jobs = jobs(request, &setups);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Vec<Outcome>)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return };
            let outcomes = job.run(request);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((index, outcomes));
            progress(done.len(), jobs.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|d| d.0);
    let mut report = Report { rhythm: request.rhythm, ..Report::default() };
    for (index, outcomes) in &done {
        let (scenario, fault) = match jobs[*index] {
            Job::Quiet(s, ..) => (s, false),
            Job::Faults(s, ..) => (s, true),
        };
        outcomes.iter().for_each(|o| report.add(scenario, o, fault));
    }
    report.sort(&request.detectors);
    report
}

fn jobs<'a>(request: &Request, setups: &'a [Setup]) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for &scenario in &request.scenarios {
        for setup in setups {
            jobs.extend((0..request.seeds).map(|n| Job::Quiet(scenario, setup, n)));
            let parts = (0..request.faults).step_by(FAULTS as usize);
            jobs.extend(
                parts.map(|from| Job::Faults(scenario, setup, from, (from + FAULTS).min(request.faults))),
            );
        }
    }
    jobs
}

impl Job<'_> {
    fn run(&self, request: &Request) -> Vec<Outcome> {
        let root = Rng::new(request.seed);
        match *self {
            Job::Quiet(s, setup, n) => {
                let hours =
                    if s.links > 1 { request.hours * SHARED / f64::from(s.links) } else { request.hours };
                let length = Duration::from_secs_f64(hours * 3600.0);
                let seeds = root.fork(1).fork(u64::from(n));
                // The links of one observer touch each other by its loop only: the same naps, and each may run by itself.
                let own = (s.links > 1).then(|| seeds.fork(u64::MAX).word());
                let one = |link| {
                    let seed = seeds.fork(link).word();
                    run(s, setup, &Plan { seed, length, fault: false, own, watch: None })
                };
                (0..u64::from(s.links)).map(one).reduce(added).into_iter().collect()
            }
            Job::Faults(s, setup, from, to) => (from..to)
                .map(|n| {
                    let mut rng = root.fork(2).fork(u64::from(n));
                    run(s, setup, &fault_plan(&mut rng))
                })
                .collect(),
        }
    }
}

fn fault_plan(rng: &mut Rng) -> Plan {
    let length = Duration::from_secs_f64(WARM + rng.uniform(0.0, SPREAD));
    Plan { seed: rng.word(), length, fault: true, own: None, watch: None }
}

/// Two links of one run.
fn added(mut a: Outcome, b: Outcome) -> Outcome {
    a.length += b.length;
    a.frames += b.frames;
    for (a, b) in a.verdicts.iter_mut().zip(b.verdicts) {
        a.counts = a.counts + b.counts;
    }
    a
}

/// The scores of the wanted detectors around one fault, all of them with the beats of `promise-20`.
pub fn score_plot(scenario: &Scenario, detectors: &[&str], rhythm: Rhythm, seed: u64) -> Plot {
    let ms = Duration::from_millis;
    let mut plan = fault_plan(&mut Rng::new(seed).fork(2).fork(0));
    plan.watch = Some(Watch { before: ms(60), after: ms(200), every: Duration::from_micros(500) });
    let shared = setups(detectors, rhythm).into_iter().filter(|s| s.same_beats);
    let outcomes = shared.map(|setup| run(scenario, &setup, &plan));
    let verdicts = outcomes.flat_map(|o| o.verdicts);
    let wanted =
        verdicts.filter(|v| detectors.contains(&v.detector) && (v.same_beats || v.detector == "promise-20"));
    Plot {
        title: format!("{}: score around a fault at 0, same beats", scenario.name),
        x: Axis::linear("ms from the fault"),
        y: Axis::linear("score: SUSPECT below 0.5, FAILED below 0.2"),
        series: wanted.map(|v| Series::new(v.detector, v.scores)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::by_name;
    use super::*;

    fn request(names: &[&str]) -> Request {
        Request {
            scenarios: names.iter().map(|n| by_name(n).unwrap()).collect(),
            detectors: vec!["promise-20", "huddm-tick", "timeout-3s"],
            rhythm: Rhythm::Sidecar,
            seed: 11,
            seeds: 3,
            hours: 0.02,
            faults: 10,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_report_on_any_number_of_threads() {
        let quiet = |_, _| {};
        let request = request(&["bursts", "throttled-sender"]);
        let one = compare(&request, 1, &quiet).json();
        assert_eq!(one, compare(&request, 3, &quiet).json());
        assert_ne!(one, compare(&Request { seed: 12, ..request }, 2, &quiet).json());
    }

    #[test]
    fn every_cell_has_its_hours_and_its_faults() {
        let told = AtomicUsize::new(0);
        let report = compare(&request(&["steady", "thousand-endpoints"]), 2, &|done, of| {
            assert!(done <= of);
            told.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(told.load(Ordering::Relaxed), 2 * 2 * (3 + 2));
        assert_eq!(report.cells.len(), 2 * (1 + 2 * 2));
        for c in &report.cells {
            let hours = if c.scenario.links > 1 { 0.06 * SHARED } else { 0.06 };
            assert!((c.length.as_secs_f64() / 3600.0 / hours - 1.0).abs() < 1e-3, "{}", c.scenario.name);
            assert_eq!(c.detected.len() + c.undetected as usize, 10, "{} {}", c.scenario.name, c.detector);
            assert_eq!(c.undetected, 0, "{} {}", c.scenario.name, c.detector);
        }
    }

    #[test]
    fn scores_fall_after_the_fault_and_not_before() {
        let plot = score_plot(by_name("steady").unwrap(), &["promise-20", "timeout-3s"], Rhythm::Sidecar, 1);
        assert_eq!(plot.series.len(), 2);
        let promise = &plot.series[0].points;
        assert!(promise.len() > 400 && promise[0].0 < -59.0, "{}", promise.len());
        assert!(promise.iter().filter(|p| p.0 < 0.0).all(|p| p.1 >= 0.5));
        assert!(promise.iter().filter(|p| p.0 > 60.0).all(|p| p.1 < 0.2));
        assert!(plot.series[1].points.iter().all(|p| p.1 > 0.2), "three seconds are not over");
    }
}
