//! The command: files in, report out.

use std::collections::BTreeSet;
use std::path::Path;

use super::args::Args;
use super::report::{Report, Source};
use super::rows::{Row, plan};
use super::score::{Score, Scoring};
use super::survey::{self, Cut, Survey, Surveyor};
use super::tracks::{Seen, Tracks};
use super::watch::{self, Watching};
use crate::sim::plot::Plot;
use crate::sim::rng::Rng;
use crate::trace::reader::{self, Damaged, Opened, ReadError, TraceFile};

/// Damaged parts that are named; the rest is counted.
const DAMAGE_SHOWN: usize = 10;

/// Replays; gives what goes to stdout.
///
/// # Errors
/// A trace cannot be read, or a file cannot be written: which one, and why.
pub fn run(args: &Args) -> Result<String, String> {
    let traces = Traces::read(args).map_err(|e| e.to_string())?;
    let rows = plan(&args.detector, &args.set, &args.sweep);
    if let Some(file) = &args.score_svg {
        write(file, &watch(&traces, &rows)?.svg())?;
    }
    let report = replay(args, traces, rows).map_err(|e| e.to_string())?;
    if let Some(file) = &args.csv {
        write(file, &report.csv())?;
    }
    if let Some(file) = &args.svg {
        write(file, &report.plot().svg())?;
    }
    if args.json {
        return Ok(report.json());
    }
    let mut text = report.text();
    if !args.sweep.is_empty() {
        text.push('\n');
        text.push_str(&report.plot().text(72, 18));
    }
    Ok(text)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))
}

/// What the first pass brings.
struct Traces {
    files: Vec<TraceFile>,
    survey: Survey,
    source: Source,
}

impl Traces {
    fn read(args: &Args) -> Result<Traces, ReadError> {
        let Opened { files, skipped } = reader::open(&args.traces)?;
        let mut surveyor = Surveyor::new();
        let (tracks, damaged) = pass(&files, &mut |seen| surveyor.see(&seen))?;
        let source = source(&files, &skipped, &damaged, &tracks);
        Ok(Traces { files, survey: surveyor.finish(), source })
    }
}

/// Reads all files once, link by link.
fn pass(files: &[TraceFile], sink: &mut dyn FnMut(Seen<'_>)) -> Result<(Tracks, Vec<Damaged>), ReadError> {
    let mut tracks = Tracks::new();
    let damaged = reader::walk(files, &mut |step| tracks.step(&step, sink))?;
    tracks.finish(sink);
    Ok((tracks, damaged))
}

/// The figure of the longest silence.
fn watch(traces: &Traces, rows: &[Row]) -> Result<Plot, String> {
    let silence = watch::longest(&traces.survey)
        .ok_or("--score-svg: no link of these traces fell silent, there is nothing to draw")?;
    let mut watching = Watching::new(rows, silence);
    pass(&traces.files, &mut |seen| watching.see(&seen)).map_err(|e| e.to_string())?;
    Ok(watching.plot())
}

/// The whole comparison.
fn replay(args: &Args, traces: Traces, rows: Vec<Row>) -> Result<Report, ReadError> {
    let Traces { files, survey, source } = traces;
    let mut rng = Rng::new(args.seed);
    let count = args.cuts as usize;
    let cuts = survey::cuts(&survey, count, &mut || rng.unit());
    let scores = score(&files, &survey, &rows, &cuts, count)?;
    Ok(Report { source, survey, rows: rows.into_iter().zip(scores).collect(), cuts: count })
}

/// Rows are independent: each thread reads the files for its share of them.
fn score(
    files: &[TraceFile],
    survey: &Survey,
    rows: &[Row],
    cuts: &[Vec<Cut>],
    count: usize,
) -> Result<Vec<Score>, ReadError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = rows.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let shares: Vec<_> = rows
            .chunks(share)
            .map(|rows| scope.spawn(move || score_share(files, survey, rows, cuts, count)))
            .collect();
        let mut all = Vec::new();
        for share in shares {
            match share.join() {
                Ok(scores) => all.extend(scores?),
                Err(defect) => std::panic::resume_unwind(defect),
            }
        }
        Ok(all)
    })
}

fn score_share(
    files: &[TraceFile],
    survey: &Survey,
    rows: &[Row],
    cuts: &[Vec<Cut>],
    count: usize,
) -> Result<Vec<Score>, ReadError> {
    let mut scoring = Scoring::new(rows, survey, cuts, count);
    pass(files, &mut |seen| scoring.see(&seen))?;
    Ok(scoring.scores)
}

fn source(files: &[TraceFile], skipped: &[ReadError], damaged: &[Damaged], tracks: &Tracks) -> Source {
    let nodes: BTreeSet<_> = files.iter().map(|f| f.header.node.clone()).collect();
    let words = |d: &Damaged| {
        format!(
            "{}: {} bytes from offset {}: {}",
            d.path.display(),
            d.damage.len,
            d.damage.offset,
            d.damage.what
        )
    };
    let whole = skipped.iter().map(|why| format!("{why}: the file is passed over"));
    let mut damage: Vec<_> = whole.chain(damaged.iter().map(words)).take(DAMAGE_SHOWN).collect();
    let all = skipped.len() + damaged.len();
    if all > DAMAGE_SHOWN {
        damage.push(format!("and {} more", all - DAMAGE_SHOWN));
    }
    Source {
        files: files.len(),
        nodes: nodes.into_iter().collect(),
        damage,
        holes: tracks.holes,
        lost: tracks.lost,
        unknown: tracks.unknown,
    }
}
