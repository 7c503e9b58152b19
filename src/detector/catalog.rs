//! Pure: no IO, no clock. The laws and their parameters by name, for commands that compare them.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Kind, Params};

/// Every law.
pub const NAMES: [&str; 7] = ["promise", "huddm-tick", "huddm-miss", "phi", "chen", "timeout", "p95"];

/// Keys of [`set`], and what they mean. The ranges are those of the configuration.
pub const KEYS: &[(&str, &str)] = &[
    ("tau_min", "promise: least time constant of the decay, \"1ms\" to \"1s\""),
    ("learn_max", "promise: longest lateness that is learned, \"10ms\" to \"10s\""),
    ("half_life", "promise: how fast lateness is forgotten, \"1s\" to \"24h\""),
    ("slack", "promise: added to each promise, \"0ms\" to \"1s\""),
    ("timeout", "timeout: silence that is death, \"5ms\" to \"1h\""),
    ("timeout.interval", "timeout: in steps of this instead, SUSPECT after the first, \"5ms\" to \"1h\""),
    ("timeout.misses", "timeout: steps that are death, 1 to 100"),
    ("timeout.buffer", "timeout: added to the steps, \"0ms\" to \"1h\"; measured where it is not set"),
    ("phi.threshold", "phi: phi that is death, 1 to 16"),
    ("phi.window", "phi: gaps that are remembered, 5 to 100000"),
    ("phi.min_std", "phi: least deviation, \"0ms\" to \"10s\""),
    ("phi.pause", "phi: added to the mean gap, \"0ms\" to \"1m\""),
    ("chen.alpha", "chen: margin past the expected arrival, \"1ms\" to \"1m\""),
    ("chen.window", "chen: arrivals that are remembered, 5 to 100000"),
    ("p95.factor", "p95: the percentile times this is death, 1 to 100"),
    ("p95.window", "p95: gaps that are remembered, 5 to 1000"),
];

/// The defaults of the law of that name.
pub fn by_name(name: &str) -> Option<Params> {
    let kind = match name {
        "promise" => Kind::Promise,
        "huddm-tick" => Kind::HuddmTick,
        "huddm-miss" => Kind::HuddmMiss,
        "phi" => Kind::Phi,
        "chen" => Kind::Chen,
        "timeout" => Kind::Timeout,
        "p95" => Kind::P95,
        _ => return None,
    };
    Some(Params::of(kind))
}

/// Sets one of [`KEYS`]. Durations are written as in the configuration: `6ms`, `1m 30s`. The error says what is allowed,
/// and `params` stays as it was.
pub fn set(params: &mut Params, key: &str, value: &str) -> Result<(), String> {
    let ms = Duration::from_millis;
    let secs = Duration::from_secs;
    let windows = 5..=100_000;
    let done = match key {
        "tau_min" => duration(&mut params.tau_min, value, ms(1)..=secs(1)),
        "learn_max" => duration(&mut params.learn_max, value, ms(10)..=secs(10)),
        "half_life" => duration(&mut params.half_life, value, secs(1)..=secs(86_400)),
        "slack" => duration(&mut params.slack, value, Duration::ZERO..=secs(1)),
        "timeout" => duration(&mut params.timeout, value, ms(5)..=secs(3600)),
        "timeout.interval" => optional(&mut params.steps.interval, value, ms(5)..=secs(3600)),
        "timeout.misses" => count(&mut params.steps.misses, value, 1..=100),
        "timeout.buffer" => optional(&mut params.steps.buffer, value, Duration::ZERO..=secs(3600)),
        "phi.threshold" => real(&mut params.phi.threshold, value, 1.0..=16.0),
        "phi.window" => count(&mut params.phi.window, value, windows),
        "phi.min_std" => duration(&mut params.phi.min_std, value, Duration::ZERO..=secs(10)),
        "phi.pause" => duration(&mut params.phi.pause, value, Duration::ZERO..=secs(60)),
        "chen.alpha" => duration(&mut params.chen.alpha, value, ms(1)..=secs(60)),
        "chen.window" => count(&mut params.chen.window, value, windows),
        "p95.factor" => real(&mut params.p95.factor, value, 1.0..=100.0),
        "p95.window" => count(&mut params.p95.window, value, 5..=1000),
        _ => None,
    };
    done.ok_or_else(|| refusal(key, value))
}

fn refusal(key: &str, value: &str) -> String {
    match KEYS.iter().find(|(known, _)| *known == key) {
        Some((_, about)) => format!("{key} = {value:?} is not allowed; {about}"),
        None => {
            let known: Vec<_> = KEYS.iter().map(|(known, _)| *known).collect();
            format!("there is no key {key:?}; known are {}", known.join(", "))
        }
    }
}

fn put<T: PartialOrd>(into: &mut T, value: T, allowed: RangeInclusive<T>) -> Option<()> {
    allowed.contains(&value).then(|| *into = value)
}

fn duration(into: &mut Duration, text: &str, allowed: RangeInclusive<Duration>) -> Option<()> {
    put(into, parse_duration(text)?, allowed)
}

fn optional(into: &mut Option<Duration>, text: &str, allowed: RangeInclusive<Duration>) -> Option<()> {
    let mut value = Duration::ZERO;
    duration(&mut value, text, allowed)?;
    *into = Some(value);
    Some(())
}

fn real(into: &mut f64, text: &str, allowed: RangeInclusive<f64>) -> Option<()> {
    put(into, text.trim().parse().ok()?, allowed)
}

fn count(into: &mut u32, text: &str, allowed: RangeInclusive<u32>) -> Option<()> {
    put(into, text.trim().parse().ok()?, allowed)
}

/// Parts of digits, a fraction if wanted, and a unit: `6ms`, `2.5ms`, `1m 30s`.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len()));
        let unit_ns = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            "d" | "day" | "days" => 86_400e9,
            _ => return None,
        };
        let ns = number.parse::<f64>().ok()? * unit_ns;
        sum = sum.checked_add(Duration::try_from_secs_f64(ns.round() / 1e9).ok()?)?;
        rest = tail.trim_start();
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_law_of_its_own() {
        let kinds: Vec<_> = NAMES.iter().map(|n| by_name(n).expect(n).kind).collect();
        for (i, kind) in kinds.iter().enumerate() {
            assert!(!kinds[..i].contains(kind), "{kind:?} twice");
        }
        assert_eq!(by_name("huddm"), None);
        assert_eq!(by_name("promise"), Some(Params::default()));
    }

    /// One value that is allowed and one that is not.
    fn samples(key: &str) -> (&'static str, &'static str) {
        match key {
            "phi.threshold" => ("3.5", "0.5"),
            "phi.window" | "chen.window" | "p95.window" => ("77", "4"),
            "timeout.misses" => ("7", "0"),
            "p95.factor" => ("2", "NaN"),
            "half_life" => ("1m 30s", "10ms"),
            _ => ("11ms", "2days"),
        }
    }

    #[test]
    fn every_key_changes_one_thing_and_refuses_the_rest() {
        let mut seen = Vec::new();
        for (key, about) in KEYS {
            let (good, bad) = samples(key);
            let mut params = Params::default();
            set(&mut params, key, good).expect(key);
            assert_ne!(params, Params::default(), "{key} changed nothing");
            assert!(!seen.contains(&params), "{key} changed what another key changes");
            let before = params;
            for bad in [bad, "", "x", "-1", "9e99", "1ms2", "5 5"] {
                let error = set(&mut params, key, bad).expect_err(key);
                assert!(error.contains(key) && error.contains(about), "{error}");
            }
            assert_eq!(params, before);
            seen.push(params);
        }
        let error = set(&mut Params::default(), "phi.treshold", "3").expect_err("unknown");
        assert!(KEYS.iter().all(|(key, _)| error.contains(key)), "{error}");
    }

    #[test]
    fn durations_are_read_as_the_configuration_reads_them() {
        for (text, ns) in [
            ("6ms", 6_000_000),
            ("2.5ms", 2_500_000),
            ("1m 30s", 90_000_000_000),
            ("1h1ns", 3_600_000_000_001),
            (" 20us ", 20_000),
            ("1day", 86_400_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(ns)), "{text}");
        }
        for bad in ["", "6", "ms", "6 ms", "6xs", "1.2.3s", "6ms,", "1e3s", "99999999999999999999h", "é"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
