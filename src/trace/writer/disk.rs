//! Where the files are: a directory, locked against a second writer; or whatever a test takes for one.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place for files.
pub(super) trait Disk {
    /// A new file, to be written from its start.
    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write + Send>>;
    /// All names there.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Takes a file away.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// That a directory is ours. It is let go with the last clone.
#[derive(Clone, Debug)]
pub struct Hold(Arc<File>);

impl Hold {
    fn is(&self, file: &File) -> bool {
        let id = |f: &File| f.metadata().map(|m| (m.dev(), m.ino()));
        matches!((id(&self.0), id(file)), (Ok(a), Ok(b)) if a == b)
    }
}

/// A directory that this process alone writes to under its prefix.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    pub(super) hold: Hold,
    /// A recorder of this process, which is about to end, holds it too.
    pub(super) shared: bool,
}

impl Directory {
    /// `before` is the recorder that the caller ends before it writes to this one.
    ///
    /// # Errors
    /// Text for people: it cannot be locked, or somebody else did.
    pub(super) fn lock(path: &Path, prefix: &str, before: Option<&Hold>) -> Result<Directory, String> {
        let name = path.join(format!("{prefix}.lock"));
        let lock = File::options().create(true).append(true).open(&name);
        let lock = lock.map_err(|e| format!("{} cannot be made: {e}", name.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.to_owned(), hold: Hold(Arc::new(lock)), shared: false }),
            Err(TryLockError::WouldBlock) => {
                if let Some(before) = before.filter(|b| b.is(&lock)) {
                    return Ok(Directory { path: path.to_owned(), hold: before.clone(), shared: true });
                }
                Err("another sidecar with this node id records there: give each \
                                                  its own directory or its own [node] id"
                    .to_owned())
            }
            Err(TryLockError::Error(e)) => Err(format!("{} cannot be locked: {e}", name.display())),
        }
    }
}

impl Disk for Directory {
    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write + Send>> {
        let file = File::options().create_new(true).write(true).open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // Names that are not text are not ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }
}
