//! Types of values: how each is read from TOML, and the words for what is allowed.
//!
//! Pure: no IO, no clock.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use toml::de::DeValue;

use super::checked::Cidr;

/// Longest name of an inbound or outbound, bytes: a metric label and a part of a file name.
pub(super) const MAX_NAME: usize = 64;
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// One word of a choice.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// As written in the file.
    pub word: &'static str,
    /// Refused with this hint.
    pub planned: bool,
    /// Accepted with this warning.
    pub warning: Option<&'static str>,
}

impl Choice {
    pub(super) const fn built(word: &'static str) -> Choice {
        Choice { word, planned: false, warning: None }
    }

    pub(super) const fn planned(word: &'static str) -> Choice {
        Choice { word, planned: true, warning: None }
    }

    pub(super) const fn warned(word: &'static str, warning: &'static str) -> Choice {
        Choice { word, planned: false, warning: Some(warning) }
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
    /// A list that must be empty for now; the text is the hint.
    Empty(&'static str),
    /// A log filter.
    Filter,
}

/// A value of its kind. Lists are read by [`super::raw`], element by element.
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
    Nothing,
}

/// Why a value is refused.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

fn fault<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { what: what.into(), hint: None })
}

fn fault_hint<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { what: what.into(), hint: Some(hint.into()) })
}

// === impl Kind ===

impl Kind {
    /// What is allowed, for errors and the documentation.
    pub fn allowed(&self) -> String {
        match self {
            Kind::Bool => "true or false".to_owned(),
            Kind::Text { max } => format!("text of 1 to {max} bytes without control characters"),
            Kind::Name => format!("1 to {MAX_NAME} letters, digits, `-`, `_` or `.`"),
            Kind::Choice(choices) => {
                let words: Vec<_> =
                    choices.iter().filter(|c| !c.planned).map(|c| format!("\"{}\"", c.word)).collect();
                words.join(", ")
            }
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
            Kind::Empty(_) => "[]".to_owned(),
            Kind::Filter => {
                "a level (off, error, warn, info, debug, trace) or target=level, separated by commas"
                    .to_owned()
            }
        }
    }

    /// Name of the type, for the documentation.
    pub fn type_name(&self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Text { .. } | Kind::Name | Kind::Choice(_) | Kind::Filter => "string",
            Kind::Duration { .. } => "duration",
            Kind::Int { .. } => "integer",
            Kind::Real { .. } => "number",
            Kind::Size { .. } => "size",
            Kind::Address(_) => "address",
            Kind::Networks | Kind::Endpoints | Kind::Empty(_) => "list",
        }
    }

    /// The warning that goes with a chosen word.
    pub(super) fn warning(&self, value: &Value) -> Option<&'static str> {
        let (Kind::Choice(choices), Value::Text(word)) = (self, value) else { return None };
        choices.iter().find(|c| c.word == word)?.warning
    }

    /// True for lists, which [`super::raw`] reads element by element.
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Kind::Networks | Kind::Endpoints | Kind::Empty(_))
    }

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
            Kind::Text { .. } | Kind::Name | Kind::Choice(_) | Kind::Filter | Kind::Address(_) => {
                let Some(text) = value.as_str() else { return wrong_type(value, "a string") };
                self.read_text(text)
            }
            Kind::Networks | Kind::Endpoints | Kind::Empty(_) => wrong_type(value, "a list"),
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
            Some(bytes) => Some(bytes),
            None => {
                return fault_hint(
                    "not a size",
                    "write bytes such as 4194304 or \"4MiB\" (units: B, kB, MB, GB, KiB, MiB, GiB)",
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
        Err(e) => {
            let units = "units: ns, us, ms, s, m, h; parts may be joined: \"1m 30s\"";
            fault_hint(format!("not a duration: {e}"), units)
        }
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

fn read_choice(choices: &[Choice], text: &str) -> Result<Value, Fault> {
    match choices.iter().find(|c| c.word == text) {
        Some(c) if c.planned => {
            fault_hint(format!("\"{text}\" is not built yet"), "choose one of the words above for now")
        }
        Some(_) => Ok(Value::Text(text.to_owned())),
        None => {
            let what = format!("\"{text}\" is not known");
            match nearest(text, choices.iter().filter(|c| !c.planned).map(|c| c.word)) {
                Some(word) => fault_hint(what, format!("did you mean \"{word}\"?")),
                None => fault(what),
            }
        }
    }
}

pub(super) fn read_address(text: &str, role: Role) -> Result<SocketAddr, Fault> {
    let address = match text.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) => return address_fault(text),
    };
    let ip = address.ip();
    match role {
        _ if ip.is_multicast() || ip == IpAddr::from([255; 4]) => fault("a multicast or broadcast address"),
        Role::Dial if address.port() == 0 => fault("port 0 cannot be connected to"),
        Role::Dial if ip.is_unspecified() => {
            fault_hint("the wildcard address cannot be connected to", "for a local service write 127.0.0.1")
        }
        Role::Listen | Role::Dial => Ok(address),
    }
}

fn address_fault<T>(text: &str) -> Result<T, Fault> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        let example = SocketAddr::new(ip, 8080);
        return fault_hint("no port", format!("write the port too, such as \"{example}\""));
    }
    if let Some((_, rest)) = text.split_once("://") {
        return fault_hint(
            "a URL where an address is needed",
            format!("write only \"IP:port\", not {rest:?}"),
        );
    }
    if text.starts_with(':') && text[1..].parse::<u16>().is_ok() {
        return fault_hint("no IP address", format!("write \"0.0.0.0{text}\" or \"127.0.0.1{text}\""));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return match port.parse::<u16>() {
            Ok(port) => fault_hint("not an address", format!("write \"{}\"", SocketAddr::new(ip, port))),
            Err(_) => fault(format!("{port:?} is not a port")),
        };
    }
    let dns = |h: &str| !h.is_empty() && h.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    let digits = |h: &str| h.chars().all(|c| c.is_ascii_digit() || c == '.');
    if dns(host) && !digits(host) {
        let hint = "write an IP address; DNS names come with discovery";
        return fault_hint(format!("{host:?} is a host name"), hint);
    }
    fault("not an address")
}

/// A CIDR block; a bare address is a block of one.
pub(super) fn read_network(text: &str) -> Result<Cidr, Fault> {
    let (addr, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
    let Ok(addr) = addr.parse::<IpAddr>() else { return fault("not a network") };
    let bits = if addr.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix.map(str::parse::<u8>) {
        None => bits,
        Some(Ok(prefix)) if prefix <= bits => prefix,
        Some(_) => return fault(format!("the prefix must be 0 to {bits}")),
    };
    let network = mask(addr, prefix);
    if network != addr {
        let hint = format!("write \"{network}/{prefix}\" for the network, \"{addr}/{bits}\" for the host");
        return fault_hint("bits are set past the prefix", hint);
    }
    Ok(Cidr { addr, prefix })
}

fn mask(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(v4) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::from((v4.to_bits() & keep).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::from((v6.to_bits() & keep).to_be_bytes())
        }
    }
}

// === log filters ===

/// A checked log filter: the default level and levels per target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// For all other targets; None: nothing of them is logged.
    pub level: Option<&'static str>,
    /// Target and level, in the order written.
    pub targets: Vec<(String, &'static str)>,
}

/// Reads a log filter such as `info` or `info,sidebeat::link=debug`. Levels are case-insensitive.
///
/// # Errors
/// Text that says which part is wrong. A bare word that is no level is refused: as a target it would
/// silently mean "trace".
pub fn parse_filter(text: &str) -> Result<Filter, String> {
    let mut filter = Filter::default();
    for part in text.split(',').map(str::trim) {
        let (target, word) = part.split_once('=').map_or((None, part), |(t, l)| (Some(t.trim()), l.trim()));
        let known = LEVELS.iter().find(|l| l.eq_ignore_ascii_case(word));
        let Some(level) = known else {
            let near = nearest(word, LEVELS.iter().copied());
            let guess = near.map_or(String::new(), |n| format!(", did you mean {n}?"));
            return Err(format!("{word:?} is not a level{guess}"));
        };
        match target {
            None if filter.level.is_some() => return Err("two levels without a target".to_owned()),
            None => filter.level = Some(level),
            Some(t) if t.is_empty() || !t.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c)) => {
                return Err(format!("{t:?} is not a target"));
            }
            Some(t) => filter.targets.push((t.to_owned(), level)),
        }
    }
    Ok(filter)
}

// === texts ===

/// A duration as the configuration writes it.
pub(super) fn duration_text(d: Duration) -> String {
    humantime::format_duration(d).to_string()
}

/// A size with the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    fits.map_or_else(|| format!("{bytes}B"), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

fn parse_size(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The word nearest to what was typed, if it is near enough to be a slip.
pub(super) fn nearest(typed: &str, words: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    if typed.len() > MAX_NAME {
        return None;
    }
    let typed = typed.to_ascii_lowercase().replace('-', "_");
    let ranked = words.map(|w| (distance(&typed, &w.replace('-', "_")), w));
    let (far, word) = ranked.min_by_key(|(d, _)| *d)?;
    (far <= (word.len() / 3).max(1)).then_some(word)
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip_and_refuse_nonsense() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, 3 << 30, 4_000_000] {
            assert_eq!(parse_size(&size_text(bytes)), Some(bytes));
        }
        assert_eq!(parse_size("4 MiB"), Some(4 << 20));
        for bad in ["", "MiB", "4XB", "-1", "1.5MiB", "99999999999GiB"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn nearest_is_a_slip_and_not_a_guess() {
        let words = || ["idle", "active", "link_port"].into_iter();
        for (typed, word) in [("idel", "idle"), ("actve", "active"), ("Link-Port", "link_port")] {
            assert_eq!(nearest(typed, words()), Some(word));
        }
        for far in ["", "x", "listen", "löss", &"a".repeat(1000)] {
            assert_eq!(nearest(far, words()), None, "{far}");
        }
    }

    #[test]
    fn networks() {
        let ok = |t: &str| read_network(t).map(|c| (c.addr.to_string(), c.prefix)).unwrap();
        assert_eq!(ok("10.0.0.0/8"), ("10.0.0.0".to_owned(), 8));
        assert_eq!(ok("0.0.0.0/0"), ("0.0.0.0".to_owned(), 0));
        assert_eq!(ok("::/0"), ("::".to_owned(), 0));
        assert_eq!(ok("10.1.2.3"), ("10.1.2.3".to_owned(), 32));
        assert_eq!(ok("fd00::1"), ("fd00::1".to_owned(), 128));
        assert!(read_network("10.1.2.3/8").unwrap_err().hint.unwrap().contains("10.0.0.0/8"));
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "x/8", "10.0.0/8", "/8"] {
            assert!(read_network(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn address_faults_say_what_is_missing() {
        for (text, hint) in [
            ("10.0.0.1", "10.0.0.1:8080"),
            ("fd00::1", "[fd00::1]:8080"),
            (":8080", "0.0.0.0:8080"),
            ("http://10.0.0.1:80", "IP:port"),
            ("inventory:8080", "DNS names come with discovery"),
            ("localhost", "DNS names come with discovery"),
            ("[10.0.0.1]:80", "10.0.0.1:80"),
        ] {
            let fault = read_address(text, Role::Dial).unwrap_err();
            assert!(fault.hint.as_deref().unwrap_or("").contains(hint), "{text}: {fault:?}");
        }
        for text in
            ["", "10.0.0.1:", "10.0.0.1:99999", "256.0.0.1:80", "[fd00::1]", ":", ":::", "[", "1.2.3.4:x"]
        {
            assert!(read_address(text, Role::Listen).is_err(), "{text}");
        }
        assert!(read_address("0.0.0.0:80", Role::Dial).is_err());
        assert!(read_address("10.0.0.1:0", Role::Dial).is_err());
        assert!(read_address("[::]:0", Role::Listen).is_ok());
    }

    #[test]
    fn filters() {
        assert_eq!(parse_filter("INFO").unwrap().level, Some("info"));
        let f = parse_filter("warn, sidebeat::link=debug").unwrap();
        assert_eq!(f.targets, vec![("sidebeat::link".to_owned(), "debug")]);
        for bad in ["", "inof", "sidebeat", "info,debug", "a=b", "=info", "a b=info", "info,"] {
            assert!(parse_filter(bad).is_err(), "{bad}");
        }
        assert!(parse_filter("inof").unwrap_err().contains("did you mean info"));
    }
}
