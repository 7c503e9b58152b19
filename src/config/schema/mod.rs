//! The one table of keys: name, type, default, range and meaning. Reading, checking, `sidebeat config
//! defaults`, `docs/configuration.md` and the hints in errors all come from it.
//!
//! Pure: no IO, no clock.

use std::time::Duration;

mod judging;
mod observing;
mod process;
mod proxying;

pub use super::kind::{Choice, Kind, Role};

/// What a key is when it is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// This value, as TOML.
    Value(&'static str),
    /// Found out at start, as the text says.
    Computed(&'static str),
    /// It must be written.
    Required,
    /// Nothing; the text says what that means.
    Unset(&'static str),
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Name in the file.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// When not written.
    pub default: Default,
    /// A value for the sample of a key without a fixed default, as TOML.
    pub sample: &'static str,
    /// Meaning, and why the range is what it is.
    pub about: &'static str,
}

/// A table or an array of tables.
#[derive(Debug)]
pub struct Section {
    /// Dotted path.
    pub path: &'static str,
    /// `[[path]]` rather than `[path]`.
    pub list: bool,
    /// Meaning.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

impl Section {
    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }

    /// The header as written in a file.
    pub fn header(&self) -> String {
        if self.list { format!("[[{}]]", self.path) } else { format!("[{}]", self.path) }
    }
}

/// The section of this path.
pub fn section(path: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|s| s.path == path)
}

/// The hint for a table that is planned but not built yet.
pub fn planned(path: &str) -> Option<&'static str> {
    PLANNED.iter().find(|(p, _)| *p == path).map(|(_, hint)| *hint)
}

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) const fn key(
    name: &'static str,
    kind: Kind,
    default: Default,
    sample: &'static str,
    about: &'static str,
) -> Key {
    Key { name, kind, default, sample, about }
}

pub(super) const fn duration(min: Duration, max: Duration) -> Kind {
    Kind::Duration { min, max, off: false }
}

/// Every section, in the order of the documentation.
pub const SECTIONS: &[Section] = &[
    process::NODE,
    process::ADMIN,
    proxying::INBOUND,
    proxying::OUTBOUND,
    judging::BEAT,
    judging::DETECTOR,
    judging::DETECTOR_PROMISE,
    judging::DETECTOR_HUDDM,
    judging::DETECTOR_PHI,
    judging::DETECTOR_CHEN,
    judging::DETECTOR_TIMEOUT,
    judging::DETECTOR_P95,
    judging::BACKPRESSURE,
    process::DRAIN,
    judging::SERVICE,
    observing::PROBE,
    observing::MAINTENANCE,
    process::LIMITS,
    process::TRACE,
    process::LOG,
];

pub use proxying::ENDPOINT;

const BALANCE: &str = "endpoints are chosen by weight and health without it: remove the table";
const TLS: &str = "TLS comes with a later release: limit who may connect with `allow`";

/// Tables that are planned: refused with a hint, so that nobody believes they act.
pub const PLANNED: &[(&str, &str)] = &[
    ("inbound.tls", TLS),
    ("outbound.tls", "TLS comes with a later release: remove the table"),
    ("outbound.balance", BALANCE),
    ("outbound.retry", "nothing is retried yet: remove the table"),
    ("outbound.timeouts", "only `connect_timeout` exists: remove the table"),
    ("outbound.bulkhead", "`[limits]` holds the caps that exist: remove the table"),
    ("outbound.fallback", "nothing falls back yet: remove the table"),
    ("outbound.discovery", "write the addresses in `endpoints`: remove the table"),
];
