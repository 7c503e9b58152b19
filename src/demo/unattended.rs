//! The unattended run: each fault of a list at a random moment, one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::args::Args;
use super::conduct::Stage;
use super::faults::{self, Kind};
use super::late::Past;
use super::noise::Noise;
use super::report::{Fault, Report, Requests, Wrong, percentiles};
use super::rng::Rng;
use crate::clock;
use crate::stamp::Stamp;
use crate::verdict::State;

/// What is done if no list is given.
pub const DEFAULT: [Kind; 6] =
    [Kind::Kill, Kind::Hang, Kind::Pause, Kind::Notice, Kind::HangSidecar, Kind::Cut];

/// What happens before this is not held against a detector that learns.
const WARM_UP: Duration = Duration::from_secs(60);
/// Room for healing and settling within a fault's share of the time.
const AFTER: Duration = Duration::from_millis(900);

/// The faults of a run, in order.
pub fn list(args: &Args) -> Vec<Kind> {
    let once = args.faults.as_ref().map_or_else(|| DEFAULT.to_vec(), |f| f.0.clone());
    let times = args.repeat as usize;
    once.iter().copied().cycle().take(once.len() * times).collect()
}

/// Bounds of the random wait before a fault that shares `total` with `n - 1` others.
fn wait_bounds(total: Option<Duration>, n: usize, hold: Duration) -> (Duration, Duration) {
    let least = Duration::from_millis(200);
    let Some(total) = total else { return (Duration::from_millis(300), Duration::from_secs(1)) };
    let share = total / u32::try_from(n.max(1)).unwrap_or(u32::MAX);
    (least, share.saturating_sub(hold + AFTER).max(least * 2))
}

/// Runs all faults and lets the load go on for the rest of the time.
pub async fn run(stage: &Stage, args: &Args, seed: u64, noise: &Noise, notes: Vec<String>) -> Report {
    let mut rng = Rng::new(seed);
    let kinds = list(args);
    let (min, max) = wait_bounds(args.for_, kinds.len(), args.hold);
    let first = rng.below(stage.scene.pods.len());
    let mut done: Vec<Fault> = Vec::with_capacity(kinds.len());
    for (n, kind) in kinds.iter().enumerate() {
        let target = stage.calm(first + n).await;
        tokio::time::sleep(rng.between(min, max)).await;
        let fault = stage.fault(*kind, target).await;
        eprintln!("[{}/{}] {}", n + 1, kinds.len(), fault.line());
        done.push(fault);
    }
    if let Some(total) = args.for_ {
        tokio::time::sleep_until(clock::instant(stage.begin + total)).await;
    }
    let rows = super::events::status(stage.scene.admin, super::config::UPSTREAM).await.unwrap_or_default();
    let peak = |at: String| rows.iter().find(|r| r.address == at).and_then(|r| r.peak_ms);
    let peaks = stage.scene.pods.iter().map(|p| (p.name.clone(), peak(p.endpoint.to_string()))).collect();
    let shadows = shadows(stage, &args.shadows);
    Report { peaks_ms: peaks, shadows, ..report(stage, done, seed, noise, notes) }
}

/// What each detector that only listened got wrong.
fn shadows(stage: &Stage, names: &[String]) -> BTreeMap<String, Wrong> {
    let mut said = stage.log.shadows();
    said.retain(|e| e.at() >= stage.begin);
    let of = |name: &String| {
        let events: Vec<_> = said.iter().filter(|e| e.detector.as_ref() == Some(name)).cloned().collect();
        let spans = stage.spans.borrow();
        let mistakes: Vec<_> = Past::new(&spans, &events).mistakes().into_iter().map(|(e, _)| e).collect();
        (name.clone(), wrong(&mistakes, stage.begin))
    };
    names.iter().map(of).collect()
}

fn wrong(mistakes: &[&super::events::Event], begin: Stamp) -> Wrong {
    let late = mistakes.iter().filter(|e| e.at().since(begin) > WARM_UP);
    Wrong { mistakes: mistakes.len(), mistakes_after_minute: late.count() }
}

fn report(stage: &Stage, done: Vec<Fault>, seed: u64, noise: &Noise, notes: Vec<String>) -> Report {
    let names: Vec<String> = stage.scene.pods.iter().map(|p| p.name.clone()).collect();
    let seconds = clock::now().since(stage.begin).as_secs_f64();
    let events = stage.log.since(stage.begin);
    let mistakes = faults::mistakes(&events, &stage.spans.borrow());
    let Wrong { mistakes: all, mistakes_after_minute } = wrong(&mistakes, stage.begin);
    let words = |e: &&super::events::Event| {
        let at = e.at().since(stage.begin).as_secs_f64();
        let silence = e.silence_ms.unwrap_or_default();
        let since = e.at() - Duration::from_secs_f64(silence.max(0.0) / 1e3);
        let stop = noise.stop_within(since, e.at()).map_or(String::new(), |s| format!("; {s} then"));
        format!(
            "unexplained at {at:.3} s: {} failed ({}), silent for {silence:.1} ms{stop}",
            e.endpoint, e.cause
        )
    };
    Report {
        duration_s: seconds,
        requests: Requests::new(&stage.load.ledger(), seconds, &names),
        mistakes: all,
        mistakes_after_minute,
        suspects: events.iter().filter(|e| e.to == State::Suspect).count(),
        peaks_ms: Default::default(),
        mistake_events: mistakes.iter().take(20).map(words).collect(),
        shadows: Default::default(),
        percentiles: percentiles(&done),
        faults: done,
        noise: noise.lateness(),
        stops: noise.stops(),
        network: if stage.scene.net.borrow().is_some() { "namespaces" } else { "loopback" },
        pid_seen: stage.scene.pid_seen,
        services: stage.scene.pods.len(),
        seed,
        throttled: stage.scene.throttled(),
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_seconds_are_enough_for_the_default_list() {
        let (min, max) =
            wait_bounds(Some(Duration::from_secs(20)), DEFAULT.len(), Duration::from_millis(1200));
        assert!(min < max);
        assert!(
            (max + Duration::from_millis(1200) + AFTER) * DEFAULT.len() as u32 <= Duration::from_secs(20)
        );
    }

    #[test]
    fn a_list_too_long_for_the_time_still_waits_at_random() {
        let (min, max) = wait_bounds(Some(Duration::from_secs(1)), 100, Duration::from_secs(1));
        assert!(min < max);
    }
}
