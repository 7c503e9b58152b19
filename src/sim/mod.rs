//! `sidebeat sim`: the detectors against each other in virtual time (detection.md sections 1 and 8).
//!
//! ```text
//!   traffic --> sender (Pace) ==path==> seat (LinkJudge) --> report, plot
//!                      ^                  |  challenges, beats
//!                      +======path========+
//! ```
//!
//! What judges, asks, paces and vouches is the shipped code; only the world around it is made up: [`traffic`], [`path`], [`gaps`]
//! (who sleeps when), [`sender`], [`service`] and the observer's loop in [`mod@run`]. A [`bare`] law counts as a simulation without states.
//! [`scenario`] names the worlds, [`detectors`] who is compared, [`mod@compare`] runs it all on threads. [`plot`] draws.
//!
//! What the shell of a link does between the socket and the judge is written anew here ([`seat`], after `link::receive`): its order, its
//! conditions, without its frames. docs/detection.md says what is left out.

pub mod args;
pub mod bare;
pub mod compare;
pub mod detectors;
pub mod gaps;
pub mod path;
pub mod plot;
pub mod report;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod seat;
pub mod sender;
pub mod service;
pub mod traffic;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;

pub use args::Args;
use compare::Request;
use plot::Plot;

/// What a finished comparison prints, and whether `promise-20` found every fault.
#[derive(Clone, Debug)]
pub struct Finished {
    /// For stdout.
    pub text: String,
    /// No fault went unseen.
    pub held: bool,
}

/// Runs the comparison; progress goes to stderr.
///
/// # Errors
/// A plot could not be written: which file, and why.
pub fn run(args: &Args) -> Result<Finished, String> {
    let (scenarios, detectors) = (args.scenarios(), args.detectors());
    let first = scenarios[0];
    if let Some(file) = &args.score_svg {
        write(file, &compare::score_plot(first, &detectors, args.beats, args.seed))?;
    }
    let request = Request {
        scenarios,
        detectors,
        rhythm: args.beats,
        seed: args.seed,
        seeds: args.seeds,
        hours: args.hours,
        faults: args.faults,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let told = Mutex::new(0);
    let report = compare::compare(&request, threads, &|done, of| progress(&told, done, of));
    if let Some(file) = &args.svg {
        write(file, &report.plot(first))?;
    }
    let text = if args.json { report.json() } else { report.text() };
    Ok(Finished { text, held: report.held() })
}

/// In a terminal one line that counts, elsewhere a line for each tenth.
fn progress(told: &Mutex<usize>, done: usize, of: usize) {
    let mut err = std::io::stderr().lock();
    let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let tenth = done * 10 / of.max(1);
    if err.is_terminal() {
        let end = if done == of { "\n" } else { "" };
        let _ = write!(err, "\rsim: {done} of {of} runs{end}");
    } else if tenth > *told {
        let _ = writeln!(err, "sim: {done} of {of} runs");
    }
    *told = tenth.max(*told);
}

/// In the way that the file's name asks for.
fn write(file: &Path, plot: &Plot) -> Result<(), String> {
    let text = match file.extension().and_then(|e| e.to_str()) {
        Some("csv") => plot.csv(),
        Some("txt") => plot.text(100, 24),
        _ => plot.svg(),
    };
    std::fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))
}
