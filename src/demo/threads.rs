//! Threads of the demo that go on until they are told to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Told to stop, and waited for, when dropped.
#[derive(Debug, Default)]
pub struct Threads {
    stop: Arc<AtomicBool>,
    all: Vec<JoinHandle<()>>,
}

impl Threads {
    /// One more; `body` ends soon after the flag that it gets is set.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn spawn(&mut self, name: &str, body: impl FnOnce(&AtomicBool) + Send + 'static) -> io::Result<()> {
        let stop = self.stop.clone();
        self.all.push(std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&stop))?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for t in self.all.drain(..) {
            let _ = t.join();
        }
    }
}
