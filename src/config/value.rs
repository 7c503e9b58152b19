//! Values of each [`Kind`], read from TOML.
//!
//! Pure: no IO, no clock.

use std::net::SocketAddr;
use std::time::Duration;

use toml::de::DeValue;

use super::address::read_address;
use super::checked::{Cidr, Shadow};
use super::filter::parse_filter;
use super::kind::{Choice, Kind, MAX_NAME, MAX_SOCKET_PATH, MAX_URL_PATH, OWN_TIMEOUT};
use super::words::{nearest, parse_size};

/// A value of its kind. Lists are read by [`super::read`], element by element.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Text(String),
    Int(u64),
    Real(f64),
    Duration(Duration),
    Off,
    Address(SocketAddr),
    Networks(Vec<Cidr>),
    Endpoints(Vec<super::raw::Endpoint>),
    Statuses(Vec<(u16, u16)>),
    Words(Vec<String>),
    Nothing,
}

/// Why a value is refused.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

pub(super) fn fault<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { what: what.into(), hint: None })
}

pub(super) fn fault_hint<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { what: what.into(), hint: Some(hint.into()) })
}

// === impl Kind ===

impl Kind {
    /// Reads one value that is not a list.
    pub(super) fn read(&self, value: &DeValue<'_>) -> Result<Value, Fault> {
        match self {
            Kind::Bool => match value.as_bool() {
                Some(b) => Ok(Value::Bool(b)),
                None => wrong_type(value, "true or false"),
            },
            Kind::Int { min, max } => read_int(value, *min, *max),
            Kind::Real { min, max } => read_real(value, *min, *max),
            Kind::Size { min, max } => read_size(value, *min, *max),
            Kind::Duration { min, max, off } => read_duration(value, *min, *max, *off),
            Kind::Text { .. }
            | Kind::Name
            | Kind::Choice(_)
            | Kind::Filter
            | Kind::Address(_)
            | Kind::UrlPath
            | Kind::Statuses
            | Kind::SocketPath
            | Kind::Mode => {
                let Some(text) = value.as_str() else { return wrong_type(value, "a string") };
                self.read_text(text)
            }
            Kind::Networks | Kind::Endpoints | Kind::Shadows(_) | Kind::Strings { .. } => {
                wrong_type(value, "a list")
            }
        }
    }

    fn read_text(&self, text: &str) -> Result<Value, Fault> {
        match self {
            Kind::Text { max } if text.is_empty() || text.len() > *max => {
                fault(format!("has {} bytes", text.len()))
            }
            Kind::Text { .. } if text.chars().any(char::is_control) => fault("holds control characters"),
            Kind::Name => read_name(text),
            Kind::Choice(choices) => read_choice(choices, text),
            Kind::Filter => match parse_filter(text) {
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(what) => fault(what),
            },
            Kind::Address(role) => read_address(text, *role).map(Value::Address),
            Kind::UrlPath => read_url_path(text),
            Kind::Statuses => read_statuses(text),
            Kind::SocketPath => read_socket_path(text),
            Kind::Mode => read_mode(text),
            _ => Ok(Value::Text(text.to_owned())),
        }
    }
}

// === readers ===

/// "wrong type" with the words a user would use for what is there.
pub(super) fn wrong_type<T>(value: &DeValue<'_>, wanted: &str) -> Result<T, Fault> {
    let found = match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a bool",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    let what = format!("wrong type: {found} where {wanted} is needed");
    match value {
        DeValue::String(s) if wanted.starts_with("true") && (s == "true" || s == "false") => {
            fault_hint(what, format!("write {s} without quotes"))
        }
        DeValue::String(s) if wanted.starts_with("an integer") && s.parse::<u64>().is_ok() => {
            fault_hint(what, format!("write {s} without quotes"))
        }
        _ => fault(what),
    }
}

fn integer(value: &DeValue<'_>) -> Option<i128> {
    let int = value.as_integer()?;
    i128::from_str_radix(int.as_str(), int.radix()).ok()
}

fn read_int(value: &DeValue<'_>, min: u64, max: u64) -> Result<Value, Fault> {
    if !value.is_integer() {
        return wrong_type(value, "an integer");
    }
    match integer(value).and_then(|n| u64::try_from(n).ok()).filter(|n| (min..=max).contains(n)) {
        Some(n) => Ok(Value::Int(n)),
        None => fault("out of range"),
    }
}

fn read_real(value: &DeValue<'_>, min: f64, max: f64) -> Result<Value, Fault> {
    let number = match value {
        DeValue::Integer(_) => integer(value).map(|n| n as f64),
        DeValue::Float(f) => f.as_str().parse().ok(),
        _ => return wrong_type(value, "a number"),
    };
    match number.filter(|n| (min..=max).contains(n)) {
        Some(n) => Ok(Value::Real(n)),
        None => fault("out of range"),
    }
}

fn read_size(value: &DeValue<'_>, min: u64, max: u64) -> Result<Value, Fault> {
    let bytes = match value {
        DeValue::Integer(_) => integer(value).and_then(|n| u64::try_from(n).ok()),
        DeValue::String(text) => match parse_size(text) {
            Some(None) => return fault("too large"),
            Some(bytes) => bytes,
            None => {
                return fault_hint(
                    "not a size",
                    "write bytes such as 4194304 or \"4MiB\" (units: B, kB, MB, GB, KiB, MiB, GiB, TiB)",
                );
            }
        },
        _ => return wrong_type(value, "a size"),
    };
    match bytes.filter(|b| (min..=max).contains(b)) {
        Some(bytes) => Ok(Value::Int(bytes)),
        None => fault("out of range"),
    }
}

fn read_duration(value: &DeValue<'_>, min: Duration, max: Duration, off: bool) -> Result<Value, Fault> {
    let text = match value {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(n) => {
            let example = format!("write \"{}ms\" or \"{}s\", whichever is meant", n.as_str(), n.as_str());
            return fault_hint("wrong type: a bare number where a duration string is needed", example);
        }
        DeValue::Float(_) => {
            let what = "wrong type: a bare number where a duration string is needed";
            return fault_hint(what, "write a string with a unit, such as \"250ms\"");
        }
        _ => return wrong_type(value, "a duration string"),
    };
    if off && text == "off" {
        return Ok(Value::Off);
    }
    match humantime::parse_duration(text) {
        Ok(d) if (min..=max).contains(&d) => Ok(Value::Duration(d)),
        Ok(_) => fault("out of range"),
        Err(_) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => fault_hint(
            "a duration without a unit",
            format!("write \"{text}ms\" or \"{text}s\", whichever is meant"),
        ),
        Err(humantime::DurationError::NumberOverflow) => {
            fault(if text.contains('.') { "too large, or finer than nanoseconds" } else { "too large" })
        }
        Err(_) => fault_hint("not a duration", "units: ns, us, ms, s, m, h; parts may be joined: \"1m 30s\""),
    }
}

fn read_name(text: &str) -> Result<Value, Fault> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > MAX_NAME {
        return fault(format!("has {} characters", text.chars().count()));
    }
    match text.chars().find(|&c| !fine(c)) {
        Some(c) => fault(format!("holds {c:?}")),
        None => Ok(Value::Text(text.to_owned())),
    }
}

/// One element of a list of shadows, after those before it.
pub(super) fn read_shadow(
    choices: &[Choice],
    value: &DeValue<'_>,
    before: &[String],
) -> Result<String, Fault> {
    let Some(text) = value.as_str() else { return wrong_type(value, "a string") };
    if !text.starts_with(OWN_TIMEOUT) {
        read_choice(choices, text)?;
    } else if Shadow::from_name(text).is_none() {
        return fault_hint(
            format!("\"{text}\" holds no time that is allowed"),
            "write the time without blanks, such as \"timeout-27ms\"",
        );
    }
    if before.iter().any(|word| word == text) {
        return fault_hint(format!("\"{text}\" is listed twice"), "each counts once: remove one of them");
    }
    Ok(text.to_owned())
}

fn read_url_path(text: &str) -> Result<Value, Fault> {
    if text.len() > MAX_URL_PATH {
        return fault(format!("has {} bytes", text.len()));
    }
    if text.contains("://") {
        return fault_hint(
            "a URL where a path is needed",
            "write only the path: the address is the inbound's `service`",
        );
    }
    match text.chars().find(|c| !c.is_ascii_graphic() || *c == '#') {
        _ if !text.starts_with('/') => fault("does not begin with a slash"),
        Some(c) => fault(format!("holds {c:?}")),
        None => Ok(Value::Text(text.to_owned())),
    }
}

fn read_statuses(text: &str) -> Result<Value, Fault> {
    let one = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |n: &str| n.trim().parse::<u16>().ok().filter(|n| (100..=599).contains(n));
        Some((number(from)?, number(to)?)).filter(|(from, to)| from <= to)
    };
    let parts: Vec<_> = text.split(',').take(33).map(one).collect();
    if parts.len() > 32 {
        return fault("has more than 32 parts");
    }
    match parts.into_iter().collect::<Option<Vec<_>>>() {
        Some(ranges) => Ok(Value::Statuses(ranges)),
        None => fault("not statuses"),
    }
}

fn read_socket_path(text: &str) -> Result<Value, Fault> {
    if !text.starts_with('/') {
        return fault_hint(
            "is not absolute",
            "begin it with a slash: the folder that `run` is started in may change",
        );
    }
    if text.len() > MAX_SOCKET_PATH {
        return fault(format!("has {} bytes", text.len()));
    }
    if text.ends_with('/') || text.chars().any(char::is_control) {
        return fault("is no path of a file");
    }
    Ok(Value::Text(text.to_owned()))
}

fn read_mode(text: &str) -> Result<Value, Fault> {
    match u64::from_str_radix(text, 8).ok().filter(|m| (0o600..=0o777).contains(m) && m & 0o600 == 0o600) {
        Some(mode) => Ok(Value::Int(mode)),
        None => fault("not permissions of a socket"),
    }
}

/// One string of a list.
pub(super) fn read_string(text: &str, max: usize) -> Result<String, Fault> {
    if text.is_empty() || text.len() > max {
        return fault(format!("has {} bytes", text.len()));
    }
    if text.chars().any(char::is_control) {
        return fault("holds control characters");
    }
    Ok(text.to_owned())
}

fn read_choice(choices: &[Choice], text: &str) -> Result<Value, Fault> {
    if choices.iter().any(|c| c.word == text) {
        return Ok(Value::Text(text.to_owned()));
    }
    let what = format!("\"{text}\" is not known");
    match nearest(text, choices.iter().map(|c| c.word)) {
        Some(word) => fault_hint(what, format!("did you mean \"{word}\"?")),
        None => fault(what),
    }
}
