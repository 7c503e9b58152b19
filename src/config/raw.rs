//! Values as written, each right alone; what holds between them is not known yet.
//!
//! Pure: no IO, no clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::checked::Cidr;
use super::problem::At;
use super::value::Value;

/// One endpoint as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) weight: u32,
    pub(super) link_port: Option<u16>,
    pub(super) at: At,
}

/// One key's value and where it came from.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) at: At,
    /// An error was reported: relations with other keys are not worth checking.
    pub(super) broken: bool,
}

/// One section, or one element of a list section. Holds an entry for every key of the schema.
#[derive(Debug)]
pub(super) struct Table {
    /// Name in messages: `beat` or `outbound.inventory`.
    pub(super) label: String,
    pub(super) entries: BTreeMap<&'static str, Entry>,
}

/// The whole document.
pub(super) struct Document {
    pub(super) tables: BTreeMap<&'static str, Table>,
    pub(super) lists: BTreeMap<&'static str, Vec<Table>>,
}

// === impl Document ===

impl Document {
    pub(super) fn table(&self, path: &str) -> &Table {
        &self.tables[path]
    }

    pub(super) fn list(&self, path: &str) -> &[Table] {
        &self.lists[path]
    }
}

// === impl Table ===

impl Table {
    /// The entry of a key of the schema.
    pub(super) fn entry(&self, key: &str) -> &Entry {
        &self.entries[key]
    }

    /// Full name of a key in messages.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.label)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        matches!(self.entry(key).value, Value::Bool(true))
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.entry(key).value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn int(&self, key: &str) -> u64 {
        match self.entry(key).value {
            Value::Int(n) => n,
            _ => 0,
        }
    }

    /// An integer or size that its range keeps within usize.
    pub(super) fn count(&self, key: &str) -> usize {
        usize::try_from(self.int(key)).unwrap_or(usize::MAX)
    }

    pub(super) fn real(&self, key: &str) -> f64 {
        match self.entry(key).value {
            Value::Real(n) => n,
            _ => 0.0,
        }
    }

    /// None: "off".
    pub(super) fn duration_or_off(&self, key: &str) -> Option<Duration> {
        match self.entry(key).value {
            Value::Duration(d) => Some(d),
            _ => None,
        }
    }

    pub(super) fn duration(&self, key: &str) -> Duration {
        self.duration_or_off(key).unwrap_or_default()
    }

    pub(super) fn address(&self, key: &str) -> Option<SocketAddr> {
        match self.entry(key).value {
            Value::Address(address) => Some(address),
            _ => None,
        }
    }

    pub(super) fn networks(&self, key: &str) -> &[Cidr] {
        match &self.entry(key).value {
            Value::Networks(list) => list,
            _ => &[],
        }
    }

    pub(super) fn statuses(&self, key: &str) -> &[(u16, u16)] {
        match &self.entry(key).value {
            Value::Statuses(list) => list,
            _ => &[],
        }
    }

    pub(super) fn words(&self, key: &str) -> &[String] {
        match &self.entry(key).value {
            Value::Words(list) => list,
            _ => &[],
        }
    }

    pub(super) fn endpoints(&self, key: &str) -> &[Endpoint] {
        match &self.entry(key).value {
            Value::Endpoints(list) => list,
            _ => &[],
        }
    }
}
