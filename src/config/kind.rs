//! Types of values, and the words for what is allowed.
//!
//! Pure: no IO, no clock.

use std::time::Duration;

use super::value::Value;
use super::words::{duration_text, size_text};

/// Longest name of an inbound or outbound, bytes: a metric label and a part of a file name.
pub(super) const MAX_NAME: usize = 64;
/// Most shadow detectors: each costs memory per link and counters per upstream.
pub(super) const MAX_SHADOWS: usize = 16;
/// A shadow with a time-out of its own begins like this.
pub(super) const OWN_TIMEOUT: &str = "timeout-";
/// Least and longest time-out that is death to a detector.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(5);
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// Longest path of a socket, bytes: the kernel takes 107, and a new socket is made beside its place first.
pub(super) const MAX_SOCKET_PATH: usize = 100;
/// Longest path of HTTP, bytes.
pub(super) const MAX_URL_PATH: usize = 1024;

/// One word of a choice.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// As written in the file.
    pub word: &'static str,
    /// Accepted with this warning.
    pub warning: Option<&'static str>,
}

impl Choice {
    pub(super) const fn built(word: &'static str) -> Choice {
        Choice { word, warning: None }
    }

    pub(super) const fn warned(word: &'static str, warning: &'static str) -> Choice {
        Choice { word, warning: Some(warning) }
    }
}

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To listen on: port 0 and the wildcard address are fine.
    Listen,
    /// To connect to.
    Dial,
}

/// Type and range of a key.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// true or false.
    Bool,
    /// Printable text of 1 to `max` bytes.
    Text {
        /// Longest, bytes.
        max: usize,
    },
    /// 1-64 letters, digits, `-`, `_`, `.`.
    Name,
    /// One of some words.
    Choice(&'static [Choice]),
    /// A string such as "250ms".
    Duration {
        /// Least.
        min: Duration,
        /// Most.
        max: Duration,
        /// "off" is allowed.
        off: bool,
    },
    /// An integer.
    Int {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A number.
    Real {
        /// Least.
        min: f64,
        /// Most.
        max: f64,
    },
    /// Bytes, as an integer or a string such as "4MiB".
    Size {
        /// Least, bytes.
        min: u64,
        /// Most, bytes.
        max: u64,
    },
    /// IP address and port.
    Address(Role),
    /// A list of CIDR blocks.
    Networks,
    /// A list of endpoints.
    Endpoints,
    /// A list of different shadow detectors: words, and `timeout-` with a time of its own.
    Shadows(&'static [Choice]),
    /// A log filter.
    Filter,
    /// A path of HTTP, beginning with a slash.
    UrlPath,
    /// Ranges of HTTP statuses, such as "200-299,401".
    Statuses,
    /// An absolute path of a socket.
    SocketPath,
    /// Permissions of a file, as an octal string.
    Mode,
    /// A list of strings.
    Strings {
        /// Most of them.
        most: usize,
        /// Longest, bytes.
        max: usize,
    },
}

// === impl Kind ===

impl Kind {
    /// What is allowed, for errors and the documentation.
    pub fn allowed(&self) -> String {
        match self {
            Kind::Bool => "true or false".to_owned(),
            Kind::Text { max } => format!("text of 1 to {max} bytes without control characters"),
            Kind::Name => format!("1 to {MAX_NAME} letters, digits, `-`, `_` or `.`"),
            Kind::Choice(choices) => listed(choices),
            Kind::Duration { min, max, off } => {
                let or_off = if *off { ", or \"off\"" } else { "" };
                format!("a duration from \"{}\" to \"{}\"{or_off}", duration_text(*min), duration_text(*max))
            }
            Kind::Int { min, max } => format!("an integer from {min} to {max}"),
            Kind::Real { min, max } => format!("a number from {min} to {max}"),
            Kind::Size { min, max } => {
                format!("bytes from \"{}\" to \"{}\"", size_text(*min), size_text(*max))
            }
            Kind::Address(Role::Listen) => {
                "\"IP:port\", such as \"127.0.0.1:7501\" or \"[::]:7501\"; port 0 picks a free one".to_owned()
            }
            Kind::Address(Role::Dial) => {
                "\"IP:port\", such as \"10.1.0.4:8080\" or \"[fd00::4]:8080\"".to_owned()
            }
            Kind::Networks => "a list of networks, such as [\"10.0.0.0/8\", \"fd00::/8\"]".to_owned(),
            Kind::Endpoints => {
                "a list of at least one \"IP:port\" or { address, weight, link_port }".to_owned()
            }
            Kind::Shadows(choices) => {
                format!("a list of at most {MAX_SHADOWS} of {}, each once", shadows(choices))
            }
            Kind::UrlPath => {
                "a path such as \"/health\", at most 1024 bytes, without spaces or `#`".to_owned()
            }
            Kind::Statuses => {
                "statuses from 100 to 599 such as \"200\", \"200-299\" or \"200-299,401\"".to_owned()
            }
            Kind::SocketPath => {
                format!(
                    "an absolute path of at most {MAX_SOCKET_PATH} bytes, such as \"/run/sidebeat/hook.sock\""
                )
            }
            Kind::Mode => {
                "permissions as an octal string from \"0600\" to \"0777\", such as \"0660\"".to_owned()
            }
            Kind::Strings { most, max } => {
                format!("a list of at most {most} strings of 1 to {max} bytes, such as [\"a\", \"b\"]")
            }
            Kind::Filter => {
                "a level (off, error, warn, info, debug, trace) or target=level, separated by commas"
                    .to_owned()
            }
        }
    }

    /// What is allowed as one element of a list.
    pub(super) fn allowed_element(&self) -> String {
        match self {
            Kind::Strings { max, .. } => format!("a string of 1 to {max} bytes without control characters"),
            Kind::Networks => "a network, such as \"10.0.0.0/8\", or an IP address".to_owned(),
            Kind::Endpoints => {
                "\"IP:port\", such as \"10.1.0.4:8080\" or \"[fd00::4]:8080\", or { address, weight, link_port }".to_owned()
            }
            Kind::Shadows(choices) => shadows(choices),
            _ => self.allowed(),
        }
    }

    /// Name of the type, for the documentation.
    pub fn type_name(&self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Text { .. } | Kind::Name | Kind::Choice(_) | Kind::Filter => "string",
            Kind::UrlPath | Kind::Statuses | Kind::SocketPath | Kind::Mode => "string",
            Kind::Duration { .. } => "duration",
            Kind::Int { .. } => "integer",
            Kind::Real { .. } => "number",
            Kind::Size { .. } => "size",
            Kind::Address(_) => "address",
            Kind::Networks | Kind::Endpoints | Kind::Shadows(_) | Kind::Strings { .. } => "list",
        }
    }

    /// The warning that goes with a chosen word.
    pub(super) fn warning(&self, value: &Value) -> Option<&'static str> {
        let (Kind::Choice(choices), Value::Text(word)) = (self, value) else { return None };
        choices.iter().find(|c| c.word == word)?.warning
    }

    /// True for lists, which [`super::read`] reads element by element.
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Kind::Networks | Kind::Endpoints | Kind::Shadows(_) | Kind::Strings { .. })
    }
}

fn shadows(choices: &[Choice]) -> String {
    let (least, most) = (duration_text(TIMEOUT_MIN), duration_text(TIMEOUT_MAX));
    format!("{}, \"{OWN_TIMEOUT}TIME\" with a time from {least} to {most}", listed(choices))
}

fn listed(choices: &[Choice]) -> String {
    let words: Vec<_> = choices.iter().map(|c| format!("\"{}\"", c.word)).collect();
    words.join(", ")
}
