//! Record what judges were told (row H15), so that laws and parameters can be compared on real traffic ([`crate::replay`]).
//!
//! ```text
//!  link ──► LinkJudge ──► tap ──► Recorder (one per worker, a bounded block) ──► sb-trace: Writer ──► files
//!                                     what does not fit is counted, and the hole is written
//!  files ──► Reader (format::Scanner) ──► records, holes, damage ──► replay
//! ```
//!
//! No payload, no name of a service beyond the configured upstream. [`format`](mod@format) is pure; docs/trace.md describes it.

pub mod format;
pub mod reader;
pub mod recorder;
pub mod settings;
pub mod writer;

pub use recorder::{Recorder, Seed};
pub use writer::{Conf, Hold, Prepared, Tracer, check_dir, prepare};

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The directory cannot be used.
    #[error("trace.path: {path}: {what}")]
    Path {
        /// As configured.
        path: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// The thread could not be made.
    #[error("the thread that writes traces cannot be started: {0}")]
    Thread(std::io::Error),
}

impl TraceError {
    /// In words, for a message that names the key itself.
    pub fn without_key(&self) -> String {
        match self {
            TraceError::Path { path, what } => format!("{path}: {what}"),
            TraceError::Thread(_) => self.to_string(),
        }
    }
}
