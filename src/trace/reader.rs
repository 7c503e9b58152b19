//! Trace files in the order in which they were written, record by record. Holds one block at a time, whatever the files hold.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::format::{Damage, FormatError, HEADER_MAX, Header, Item, Record, Scanner};

/// Bytes read from a file at a time.
const PIECE: usize = 64 * 1024;
/// Files of one replay; a directory with more is not one of traces.
const FILES_MAX: usize = 10_000;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system says no.
    #[error("{path}: cannot be read: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It is no trace, or not one for this program.
    #[error("{path}: {source}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        source: FormatError,
    },
    /// Nothing to read.
    #[error("{0}: no trace there: name a file, or a directory with files that end in .trace")]
    Nothing(String),
}

/// What reading a set of files brings.
#[derive(Debug)]
pub enum Step<'a> {
    /// Another run of a sidecar, or another sidecar: the numbers of links mean other links from here on.
    Run(&'a Header),
    /// What is missing here concerns every link: damage, or a file that is not there.
    Hole,
    /// A record of a worker.
    Record {
        /// The worker; [`super::format::NO_WORKER`] for the writer's own records.
        worker: u16,
        /// The record.
        record: &'a Record,
    },
}

/// One file, by its header.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it begins with.
    pub header: Header,
}

/// A damaged part of a file.
#[derive(Clone, Debug)]
pub struct Damaged {
    /// The file.
    pub path: PathBuf,
    /// Where and what.
    pub damage: Damage,
}

/// What [`open`] found.
#[derive(Debug)]
pub struct Opened {
    /// In the order of their runs; at least one.
    pub files: Vec<TraceFile>,
    /// Files of directories that are passed over, and why: a crash or a full disk leaves a file without its header.
    pub skipped: Vec<ReadError>,
}

/// The traces among `paths`, files or directories. A file of a directory counts as one if its name ends in `.trace`.
///
/// # Errors
/// A path that cannot be read, a file named here that is no trace, or no trace at all.
pub fn open(paths: &[PathBuf]) -> Result<Opened, ReadError> {
    let (mut files, mut skipped) = (Vec::new(), Vec::new());
    for (path, named) in candidates(paths)? {
        match header(&path) {
            Ok(file) => files.push(file),
            Err(why) if named => return Err(why),
            Err(why) => skipped.push(why),
        }
    }
    if files.is_empty() {
        let nothing = || ReadError::Nothing(String::new());
        return Err(skipped.into_iter().next().unwrap_or_else(nothing));
    }
    Ok(Opened { files: in_order(files), skipped })
}

/// Files to be read, each once; true: named itself, not only its directory.
fn candidates(paths: &[PathBuf]) -> Result<BTreeMap<PathBuf, bool>, ReadError> {
    let mut found = BTreeMap::new();
    for path in paths {
        let io = |source| ReadError::Io { path: path.display().to_string(), source };
        if !std::fs::metadata(path).map_err(io)?.is_dir() {
            found.insert(path.clone(), true);
            continue;
        }
        let mut any = false;
        for entry in std::fs::read_dir(path).map_err(io)?.take(FILES_MAX) {
            let file = entry.map_err(io)?.path();
            if file.extension().is_some_and(|e| e == "trace") {
                any = true;
                found.entry(file).or_insert(false);
            }
        }
        if !any {
            return Err(ReadError::Nothing(path.display().to_string()));
        }
    }
    Ok(found)
}

fn in_order(mut files: Vec<TraceFile>) -> Vec<TraceFile> {
    // The base of a run's first file orders runs of one machine's life; the wall clock all others.
    files.sort_by_key(|f| (f.header.incarnation, f.header.sequence));
    let start = |f: &TraceFile| {
        let of_run = files.iter().filter(|o| o.header.incarnation == f.header.incarnation);
        of_run.map(|o| o.header.wall_ns).min()
    };
    let starts: Vec<_> = files.iter().map(start).collect();
    let mut order: Vec<_> = starts.into_iter().zip(files).collect();
    order.sort_by_key(|(start, f)| (*start, f.header.incarnation, f.header.sequence));
    order.into_iter().map(|(_, f)| f).collect()
}

fn header(path: &Path) -> Result<TraceFile, ReadError> {
    let (io, format) = errors(path);
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(HEADER_MAX as u64 + 4).read_to_end(&mut bytes)).map_err(io)?;
    let header = Header::decode(&bytes).map_err(&format)?;
    let (header, _) =
        header.ok_or(FormatError::Corrupt("the file ends within its header")).map_err(format)?;
    Ok(TraceFile { path: path.to_owned(), header })
}

fn errors(path: &Path) -> (impl Fn(io::Error) -> ReadError + '_, impl Fn(FormatError) -> ReadError + '_) {
    let name = move || path.display().to_string();
    (
        move |source| ReadError::Io { path: name(), source },
        move |source| ReadError::Format { path: path.display().to_string(), source },
    )
}

/// Reads all `files`, as [`open`] gave them, and hands every step to `sink`. Gives what was damaged.
///
/// # Errors
/// A file cannot be read to its end. Damage within it is no error.
pub fn walk(files: &[TraceFile], sink: &mut dyn FnMut(Step<'_>)) -> Result<Vec<Damaged>, ReadError> {
    let mut damaged = Vec::new();
    let mut before: Option<&Header> = None;
    for file in files {
        let h = &file.header;
        match before {
            Some(b) if b.incarnation != h.incarnation => sink(Step::Run(h)),
            None => sink(Step::Run(h)),
            Some(b) if b.sequence.checked_add(1) != Some(h.sequence) => sink(Step::Hole),
            Some(_) => {}
        }
        before = Some(h);
        read(file, sink, &mut damaged)?;
    }
    Ok(damaged)
}

fn read(
    file: &TraceFile,
    sink: &mut dyn FnMut(Step<'_>),
    damaged: &mut Vec<Damaged>,
) -> Result<(), ReadError> {
    let (io, format) = errors(&file.path);
    let mut from = File::open(&file.path).map_err(&io)?;
    let (mut scanner, mut piece) = (Scanner::new(), vec![0; PIECE]);
    loop {
        let n = from.read(&mut piece).map_err(&io)?;
        if n == 0 {
            scanner.end();
        }
        scanner.feed(&piece[..n]);
        while let Some(item) = scanner.next_item().map_err(&format)? {
            match item {
                Item::Header(_) => {}
                Item::Block { worker, records } => {
                    records.iter().for_each(|record| sink(Step::Record { worker, record }));
                }
                Item::Damage(damage) => {
                    sink(Step::Hole);
                    damaged.push(Damaged { path: file.path.clone(), damage });
                }
            }
        }
        if n == 0 {
            return Ok(());
        }
    }
}
