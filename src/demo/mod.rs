//! `sidebeat demo`: the whole scene on this machine with real processes, and faults to watch it by.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

pub mod args;
pub mod child;
pub mod conduct;
pub mod config;
pub mod events;
pub mod faults;
pub mod http;
pub mod keys;
pub mod late;
pub mod ledger;
pub mod live;
pub mod load;
pub mod net;
pub mod noise;
pub mod quota;
pub mod report;
pub mod rng;
pub mod scene;
pub mod service;
pub mod threads;
pub mod unattended;
pub mod view;

pub use args::Args;
pub use child::{Inner, run as run_inner};

use crate::clock;
use child::Program;
use conduct::Stage;

/// Runs the demo. Children are this program again: the command line must know [`Inner`].
pub fn run(args: Args) -> ExitCode {
    match start(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("sidebeat demo: {e}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn start(mut args: Args) -> io::Result<bool> {
    args.trace = args.trace.as_deref().map(trace_dir).transpose()?;
    let unattended = args.json || args.for_.is_some() || args.faults.is_some();
    let interactive = !unattended && io::stdout().is_terminal() && io::stdin().is_terminal();
    if !interactive && !args.json && args.for_.is_none() && args.faults.is_none() {
        args.for_ = Some(Duration::from_secs(20));
    }
    let mut notes = Vec::new();
    let wants_net = interactive || unattended::list(&args).iter().any(|k| k.needs_net());
    if wants_net && !args.inside {
        match net::possible() {
            // Comes back only if it failed.
            Ok(way) => return Err(move_inside(way)),
            Err(e) => notes.push(format!("cut needs a network namespace, which is not to be had here: {e}")),
        }
    }
    for note in &notes {
        eprintln!("{note}");
    }
    let rt = runtime()?;
    LocalSet::new().block_on(&rt, async {
        tokio::select! {
            done = perform(args, interactive, notes) => done,
            () = interrupted() => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
        }
    })
}

/// `--trace`: as the sidecar must be told it, which reads it relative to nothing.
pub(crate) fn trace_dir(dir: &Path) -> io::Result<PathBuf> {
    let wrong = |what: String| io::Error::other(format!("--trace {}: {what}", dir.display()));
    let path = dir.canonicalize().map_err(|e| wrong(format!("{e}; make the directory first")))?;
    if path.is_dir() { Ok(path) } else { Err(wrong("it is no directory".to_owned())) }
}

/// Becomes the same program in a user and network namespace of its own; comes back only if that failed.
pub(crate) fn move_inside(way: &[&str]) -> io::Error {
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(e) => return e,
    };
    let argv: Vec<OsString> = std::env::args_os().skip(1).collect();
    Command::new("unshare").args(way).arg(exe).args(argv).arg("--inside").exec()
}

/// Waits until somebody wants this to end.
pub(crate) async fn interrupted() {
    let wait = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut s) => {
                s.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}

/// What a stage is set with.
pub(crate) struct Setting<'a> {
    /// The scene.
    pub(crate) args: &'a Args,
    /// The network of a stage before, for the same number of services.
    pub(crate) network: Option<net::Net>,
    /// Seed of the load.
    pub(crate) seed: u64,
}

/// Starts all processes, the load and the observers of both. `notes` gets lines about what could not be had.
pub(crate) async fn set(setting: Setting<'_>, notes: &mut Vec<String>) -> io::Result<(Stage, noise::Noise)> {
    let Setting { args, network, seed } = setting;
    let program = Program::this()?;
    let network = match (network, args.inside) {
        (None, true) => Some(net::Net::build(&program, usize::from(args.services))?),
        (known, _) => known,
    };
    let place = if network.is_some() { "network namespaces ready, " } else { "" };
    eprintln!("{place}starting {} services, each with its sidecar ...", args.services);
    let known = notes.len();
    let scene = scene::Scene::start(args, network, program, notes).await?;
    for note in &notes[known..] {
        eprintln!("{note}");
    }
    let log = Rc::new(events::Log::default());
    tokio::task::spawn_local(events::follow(scene.admin, log.clone()));
    if !args.shadows.is_empty() {
        tokio::task::spawn_local(events::follow_shadows(scene.admin, log.clone()));
    }
    let shape = load::Shape {
        to: scene.listen,
        services: scene.pods.len(),
        rate: args.rate,
        gap: args.gap,
        bursts: args.bursts,
        seed: seed.rotate_left(17),
    };
    let load = load::Load::start(shape)?;
    let noise = noise::Noise::start()?;
    let stage = Stage {
        _burn: noise::burn(args.burn)?,
        scene,
        log,
        load,
        hold: args.hold,
        begin: clock::now(),
        spans: Default::default(),
        busy: Default::default(),
    };
    Ok((stage, noise))
}

async fn perform(args: Args, interactive: bool, mut notes: Vec<String>) -> io::Result<bool> {
    let seed = args.seed.unwrap_or_else(|| clock::now().as_nanos());
    let (stage, noise) = set(Setting { args: &args, network: None, seed }, &mut notes).await?;
    if interactive {
        let stage = Rc::new(stage);
        return live::run(stage, notes).await.map(|()| true);
    }
    eprintln!("all links are up; seed {seed}");
    let report = unattended::run(&stage, &args, seed, &noise, notes).await;
    match args.json {
        true => println!("{}", serde_json::to_string(&report).map_err(io::Error::other)?),
        false => println!("{}", report.text()),
    }
    let reasons = report.reasons();
    say_exit(&reasons);
    Ok(reasons.is_empty())
}

/// One line to stderr for each reason of an exit code of 1.
pub(crate) fn say_exit(reasons: &[String]) {
    reasons.iter().for_each(|why| eprintln!("exit 1: {why}"));
}
