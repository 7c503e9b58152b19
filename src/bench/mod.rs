//! `sidebeat bench`: the fault matrix of detection.md section 8 on the demo's scene, the baselines as shadows of the same
//! run.

use std::io;
use std::process::ExitCode;

use serde::Serialize;
use tokio::task::LocalSet;

pub mod args;
pub mod goal;
pub mod heartbeat;
pub mod rows;

pub use args::Args;

use crate::clock;
use crate::demo::faults::Kind;
use crate::demo::report::Fault;
use crate::demo::{self, Setting, net, unattended};
use args::{FaultArgs, Group, Traffic, What};
use rows::{Done, Row};

/// The whole report.
#[derive(Debug, Serialize)]
struct Report {
    rows: Vec<Row>,
    /// Faults that could not be injected, and what else could not be had.
    notes: Vec<String>,
    /// Why the exit code is 1; empty if it is 0.
    reasons: Vec<String>,
    duration_s: f64,
    /// How late a 1 ms ticker beside the load was woken, ms: p50, p99, max of the worst traffic.
    noise_ms: [f64; 3],
    beat_active: String,
    pid_seen: bool,
    seed: u64,
}

/// Runs a bench.
pub fn run(args: Args) -> ExitCode {
    let What::Faults(args) = args.what;
    match start(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("sidebeat bench faults: {e}");
            ExitCode::FAILURE
        }
    }
}

fn start(mut args: FaultArgs) -> io::Result<bool> {
    args.trace = args.trace.as_deref().map(demo::trace_dir).transpose()?;
    let mut notes = Vec::new();
    if !args.inside && args.kinds().iter().any(|k| k.needs_net()) {
        match net::possible() {
            // Comes back only if it failed.
            Ok(way) => return Err(demo::move_inside(way)),
            Err(e) => notes.push(format!("no network that can be cut: {e}")),
        }
    }
    let rt = demo::runtime()?;
    LocalSet::new().block_on(&rt, async {
        tokio::select! {
            done = perform(&args, notes) => done,
            () = demo::interrupted() => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
        }
    })
}

async fn perform(args: &FaultArgs, notes: Vec<String>) -> io::Result<bool> {
    let begin = clock::now();
    let seed = args.seed.unwrap_or_else(|| begin.as_nanos());
    let mut report = Report {
        rows: Vec::new(),
        notes,
        reasons: Vec::new(),
        duration_s: 0.0,
        noise_ms: [0.0; 3],
        beat_active: "20ms".into(),
        pid_seen: true,
        seed,
    };
    let mut network = None;
    let groups = possible(args, &mut report.notes);
    for traffic in &args.traffic {
        let kinds: usize = groups.iter().map(|g| g.kinds.len()).sum();
        eprintln!("traffic {}: {} faults", traffic.name(), kinds * args.repeat as usize);
        for group in &groups {
            network = of_traffic(args, *traffic, group, seed, network, &mut report).await?;
        }
    }
    report.reasons = goal::reasons(&report.rows, args.limit);
    report.duration_s = clock::now().since(begin).as_secs_f64();
    match args.json {
        true => println!("{}", serde_json::to_string(&report).map_err(io::Error::other)?),
        false => println!("{}", text(&report)),
    }
    demo::say_exit(&report.reasons);
    Ok(report.reasons.is_empty())
}

/// What can be had here of what is asked for. A path cannot be delayed everywhere: that is said once, and aloud.
fn possible(args: &FaultArgs, notes: &mut Vec<String>) -> Vec<Group> {
    let mut groups = args.groups();
    let delays = groups.iter().any(|g| g.kinds.contains(&Kind::Delay));
    if let Some(Err(why)) = (delays && args.inside).then(net::can_delay) {
        let note = format!("{} skipped: {why}", Kind::Delay);
        eprintln!("{note}");
        notes.push(note);
        groups.iter_mut().for_each(|g| g.kinds.retain(|k| *k != Kind::Delay));
        groups.retain(|g| !g.kinds.is_empty());
    }
    groups
}

/// All faults of a group under one traffic; gives the network back for the next.
async fn of_traffic(
    args: &FaultArgs,
    traffic: Traffic,
    group: &Group,
    seed: u64,
    network: Option<net::Net>,
    report: &mut Report,
) -> io::Result<Option<net::Net>> {
    let scene = args.scene(traffic, group).map_err(io::Error::other)?;
    if let Some(beat) = scene.beat_active {
        report.beat_active = humantime::format_duration(beat).to_string();
    }
    let setting = Setting { args: &scene, network, seed };
    let (stage, noise) = demo::set(setting, &mut report.notes).await?;
    let hearts: Vec<_> = stage
        .scene
        .pods
        .iter()
        .map(|pod| tokio::task::spawn_local(heartbeat::watch(pod.endpoint, stage.log.clone())))
        .collect();
    let run = unattended::run(&stage, &scene, seed, &noise, Vec::new()).await;
    hearts.iter().for_each(|h| h.abort());
    report.pid_seen = run.pid_seen;
    let late = [run.noise.p50, run.noise.p99, run.noise.max];
    if late[1] > report.noise_ms[1] {
        report.noise_ms = late;
    }
    let spans = stage.spans.borrow();
    let (skipped, conducted): (Vec<Fault>, Vec<Fault>) =
        run.faults.into_iter().partition(|f| f.skipped.is_some());
    note_once(&mut report.notes, skipped.iter().map(Fault::line));
    let done: Vec<Done> = conducted
        .into_iter()
        .zip(spans.iter())
        .map(|(fault, (expected, span))| Done { fault, span: span.clone(), expected: *expected })
        .collect();
    let mut names = args.detector.clone();
    names.push(heartbeat::NAME.to_owned());
    let judges = rows::Judges { main: args.main(), shadows: &names };
    let (events, shadows) = (stage.log.since(stage.begin), stage.log.shadows());
    report.rows.extend(rows::rows(traffic.name(), &done, &events, &shadows, judges));
    Ok(stage.scene.net.take())
}

/// A fault that cannot be had here is skipped each time: one note says so.
fn note_once(notes: &mut Vec<String>, lines: impl Iterator<Item = String>) {
    for line in lines {
        if !notes.contains(&line) {
            notes.push(line);
        }
    }
}

fn text(r: &Report) -> String {
    let mut out = rows::table(&r.rows);
    out += &format!(
        "\n{:.0} s, beat.active {}, PID access: {}, seed {}; own wake-ups late by p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms\n",
        r.duration_s,
        r.beat_active,
        if r.pid_seen { "yes" } else { "no" },
        r.seed,
        r.noise_ms[0],
        r.noise_ms[1],
        r.noise_ms[2]
    );
    for note in &r.notes {
        out += &format!("note: {note}\n");
    }
    out
}
