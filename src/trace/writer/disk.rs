//! Where the files are: a directory, locked against a second writer; or whatever a test takes for one.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A place for files.
pub(super) trait Disk {
    /// A new file, to be written from its start.
    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write + Send>>;
    /// All names there.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Takes a file away.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// A directory that this process alone writes to under its prefix.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// # Errors
    /// Text for people: it cannot be locked, or somebody else did.
    pub(super) fn lock(path: &Path, prefix: &str) -> Result<Directory, String> {
        let name = path.join(format!("{prefix}.lock"));
        let lock = File::options().create(true).append(true).open(&name);
        let lock = lock.map_err(|e| format!("{} cannot be made: {e}", name.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
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
