//! The admin port: metrics, probes, status, events, and the few calls that change something.
//!
//! Runs on the control thread. It reads snapshots through [`Control`] and never touches the data path; a second,
//! read-only listener serves probes and metrics to the network. The HTTP paths are fixed in docs/metrics.md and the
//! index at `/`.

pub mod client;
pub mod events;
pub mod report;

mod body;
mod guard;
pub mod hook;
mod pause;
mod query;
mod routes;
mod scrape;
mod server;
mod table;

use std::time::Duration;

pub use server::serve;

/// Answers to the three probes (row D9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// All listeners are bound and the first attempts to reach the upstreams are over.
    pub started: bool,
    /// New work is welcome: started, not draining.
    pub ready: bool,
    /// Why not, one short sentence each; empty when ready.
    pub reasons: Vec<String>,
}

/// The program as the admin port sees it. All calls come from the control thread and must return at once: they read
/// snapshots or post a command, they never wait for the data path.
pub trait Control: Send + Sync {
    /// The state of everything, now.
    fn status(&self) -> report::Status;

    /// The effective configuration, secrets redacted.
    fn config(&self) -> serde_json::Value;

    /// For `/startup` and `/ready`.
    fn readiness(&self) -> Readiness;

    /// For `/live`: whether this process can still do its work. Must not depend on any upstream, or a dead
    /// dependency gets every sidecar restarted.
    fn live(&self) -> bool;

    /// Starts to drain. Calling it again changes nothing.
    fn drain(&self);

    /// Announces a pause of the local service to all downstreams. `pause` is more than zero and at most
    /// [`MAX_MAINTENANCE`].
    ///
    /// # Errors
    /// A sentence for the caller, when it cannot be announced now.
    fn maintenance(&self, pause: Duration, reason: &str) -> Result<(), String>;

    /// The announced pause is over early. Without one nothing changes.
    ///
    /// # Errors
    /// As [`Control::maintenance`].
    fn resume(&self) -> Result<(), String>;

    /// Sets the log filter, such as `info` or `sidebeat::link=debug`.
    ///
    /// # Errors
    /// A sentence for the caller, when the filter does not parse.
    fn set_log_level(&self, filter: &str) -> Result<(), String>;

    /// Sets what verdicts on an upstream may do: `off`, `suspect` or `failed` (already checked).
    ///
    /// # Errors
    /// A sentence for the caller, when there is no such upstream.
    fn set_enforce(&self, upstream: &str, mode: &str) -> Result<(), String>;
}

/// The longest pause a MAINTENANCE frame may announce (detection.md section 2).
pub const MAX_MAINTENANCE: Duration = Duration::from_secs(30);
