//! The thread `sb-trace`: blocks of all workers into files that are rotated. Only this thread touches the disk.

mod disk;
mod files;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::TraceError;
use super::recorder::{Chunk, Seed, Shared};
use crate::clock;
use crate::metrics::Metrics;
use disk::Directory;
pub use disk::Hold;
use files::{Files, Identity};

/// What is recorded and how much of it is kept.
#[derive(Clone, Debug)]
pub struct Conf {
    /// Directory of the files.
    pub path: PathBuf,
    /// Most bytes of one file.
    pub max_size: u64,
    /// Files that are kept, the one being written included.
    pub files: usize,
    /// Most links recorded at once.
    pub links: usize,
}

/// A recorder that writes as soon as it is told to. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Prepared {
    go: Option<Sender<()>>,
    tracer: Option<Tracer>,
}

impl Prepared {
    /// Writes from now on. A recorder that it shares the directory with has ended.
    pub fn start(mut self) -> Option<Tracer> {
        if let Some(go) = self.go.take() {
            // The thread waits for nothing else.
            let _ = go.send(());
        }
        self.tracer.take()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.go = None;
        self.tracer.take().into_iter().for_each(Tracer::join);
    }
}

/// The running recorder.
#[derive(Debug)]
pub struct Tracer {
    thread: JoinHandle<()>,
    hold: Hold,
}

impl Tracer {
    /// Lets the next recorder prepare itself in the same directory; see [`prepare`].
    pub fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Waits until everything that was recorded is written. Call it when the workers are gone.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the thread that writes traces stopped by a defect");
        }
    }
}

/// Everything that can fail: opens the first file and starts the thread, which waits for [`Prepared::start`]; one seed per
/// worker. `before` is a recorder of this process that the caller ends before that start: it may have the same directory.
///
/// # Errors
/// The directory cannot be used, or somebody else records there under the same node id.
pub fn prepare(
    conf: &Conf,
    node: &str,
    incarnation: u64,
    workers: usize,
    metrics: &Arc<Metrics>,
    before: Option<&Hold>,
) -> Result<(Prepared, Vec<Seed>), TraceError> {
    check_dir(&conf.path)?;
    let fail = |what: String| TraceError::Path { path: conf.path.display().to_string(), what };
    let (now, wall) = (clock::now(), clock::wall());
    let id = Identity { node: node.to_owned(), incarnation, start_ms: wall.as_millis() as u64 };
    let disk = Directory::lock(&conf.path, &id.prefix(), before).map_err(fail)?;
    let (hold, shared) = (disk.hold.clone(), disk.shared);
    let mut files = Files::new(disk, conf.max_size, conf.files, id, metrics.clone());
    files.begin(now, wall, shared).map_err(|e| fail(format!("cannot be written: {e}")))?;
    let (to, chunks) = channel();
    let shared = Arc::new(Shared {
        links: AtomicUsize::new(0),
        links_max: conf.links,
        next_link: AtomicU32::new(1),
        metrics: metrics.clone(),
    });
    let seed = |worker| Seed { worker: worker as u16, to: to.clone(), shared: shared.clone() };
    let seeds = (0..workers).map(seed).collect();
    let named = std::thread::Builder::new().name("sb-trace".to_owned());
    let (go, told) = channel();
    let thread = named.spawn(move || write_all(files, &told, &chunks)).map_err(TraceError::Thread)?;
    Ok((Prepared { go: Some(go), tracer: Some(Tracer { thread, hold }) }, seeds))
}

fn write_all(mut files: Files<Directory>, go: &Receiver<()>, chunks: &Receiver<Chunk>) {
    if go.recv().is_err() {
        return files.withdraw();
    }
    files.settle();
    while let Ok(chunk) = chunks.recv() {
        files.take(chunk, clock::now(), clock::wall());
    }
}

/// Whether files can be made in `path`; makes none.
///
/// # Errors
/// What is wrong with it and what to do.
pub fn check_dir(path: &Path) -> Result<(), TraceError> {
    use rustix::fs::{Access, access};
    let fail = |what: String| Err(TraceError::Path { path: path.display().to_string(), what });
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            fail("does not exist: create the directory, or remove `path` to record nothing".to_owned())
        }
        Err(e) => fail(format!("cannot be looked at: {e}")),
        Ok(m) if !m.is_dir() => {
            fail("is not a directory: name a directory, the files get names of their own".to_owned())
        }
        Ok(_) => match access(path, Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => Ok(()),
            Err(e) => fail(format!(
                "files cannot be made there ({e}): let this user write to it, or name another directory"
            )),
        },
    }
}

#[cfg(test)]
mod tests;
