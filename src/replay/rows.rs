//! Pure: no IO, no clock. Which laws with which parameters are compared: one row each.

use std::time::Duration;

use super::player::Player;
use crate::detector::{Params, catalog};
use crate::stamp::Stamp;
use crate::trace::format::LinkInfo;
use crate::trace::settings;

/// Rows a sweep may ask for.
const STEPS_MAX: u32 = 200;
const STEPS: u32 = 10;

/// One row of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the law; `recorded` for the one that judged when the trace was made.
    pub law: String,
    /// What differs from its defaults, `key=value` separated by spaces.
    pub settings: String,
    /// None: as recorded, link by link.
    pub params: Option<Params>,
    /// The swept value, as a number: ms or plain.
    pub value: Option<f64>,
}

impl Row {
    /// Beside a link whose records begin at `at`.
    pub fn player(&self, info: &LinkInfo, at: Stamp) -> Player {
        let mut params = self.params.unwrap_or_else(|| settings::params(info).unwrap_or_default());
        params.first_promise = info.first_promise;
        Player::new(&params, at)
    }

    /// Law and settings, for a legend.
    pub fn name(&self) -> String {
        format!("{} {}", self.law, self.settings).trim_end().to_owned()
    }
}

/// `key=value` of `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// One of [`catalog::KEYS`].
    pub key: String,
    /// As typed.
    pub value: String,
}

/// For the command line.
///
/// # Errors
/// It is no `key=value`, or the key or the value is not allowed; the text says what is.
pub fn parse_setting(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').ok_or("expected key=value, such as tau_min=4ms")?;
    catalog::set(&mut Params::default(), key, value)?;
    Ok(Setting { key: key.to_owned(), value: value.to_owned() })
}

/// `key=a..b[:steps]` of `--sweep`: the key and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// One of [`catalog::KEYS`].
    pub key: String,
    /// Values as they are set, and as numbers: ms for times.
    pub values: Vec<(String, f64)>,
}

/// For the command line. Steps are equal ratios if the ends differ by ten times or more, else equal differences.
///
/// # Errors
/// It has another form, or a value on the way is not allowed; the text says what is.
pub fn parse_sweep(text: &str) -> Result<Sweep, String> {
    const FORM: &str = "expected key=a..b or key=a..b:steps, such as tau_min=2ms..20ms:10";
    let (key, range) = text.split_once('=').ok_or(FORM)?;
    let (a, rest) = range.split_once("..").ok_or(FORM)?;
    let (b, steps) = match rest.split_once(':') {
        Some((b, steps)) => (b, steps.parse().map_err(|_| FORM)?),
        None => (rest, STEPS),
    };
    if !(2..=STEPS_MAX).contains(&steps) {
        return Err(format!("2 to {STEPS_MAX} steps, not {steps}"));
    }
    let values: Vec<(String, f64)> = match (humantime::parse_duration(a), humantime::parse_duration(b)) {
        (Ok(a), Ok(b)) => {
            let ms = |d: Duration| d.as_secs_f64() * 1e3;
            spread(ms(a), ms(b), steps).into_iter().map(as_duration).collect()
        }
        _ => {
            let number = |t: &str| t.parse::<f64>().ok().filter(|n| n.is_finite()).ok_or(FORM);
            let whole = !a.contains('.') && !rest.contains('.');
            let all = spread(number(a)?, number(b)?, steps).into_iter();
            all.map(|v| if whole { v.round() } else { (v * 1e4).round() / 1e4 })
                .map(|v| (v.to_string(), v))
                .collect()
        }
    };
    let mut sweep = Sweep { key: key.to_owned(), values };
    sweep.values.dedup();
    for (value, _) in &sweep.values {
        catalog::set(&mut Params::default(), key, value)?;
    }
    Ok(sweep)
}

fn spread(a: f64, b: f64, steps: u32) -> Vec<f64> {
    let ratio = b / a;
    let by_ratio = a > 0.0 && b > 0.0 && !(0.1..10.0).contains(&ratio) || ratio == 10.0 || ratio == 0.1;
    let part = |i: u32| f64::from(i) / f64::from(steps - 1);
    (0..steps).map(|i| if by_ratio { a * ratio.powf(part(i)) } else { a + (b - a) * part(i) }).collect()
}

/// Whole microseconds, as the configuration writes them.
fn as_duration(ms: f64) -> (String, f64) {
    let us = (ms * 1e3).round().max(0.0) as u64;
    let text = humantime::format_duration(Duration::from_micros(us)).to_string().replace(' ', "");
    (text, us as f64 / 1e3)
}

/// The laws that a key changes.
fn laws_of(key: &str) -> &'static [&'static str] {
    match key.split('.').next().unwrap_or_default() {
        "phi" => &["phi"],
        "chen" => &["chen"],
        "p95" => &["p95"],
        "timeout" => &["timeout"],
        _ => &["promise"],
    }
}

/// The rows asked for. Without detectors and sweeps: as recorded and every law with its defaults. With settings each law
/// comes twice, without and with them: one change at a time (row T15). One sweep: the laws that its key changes, or those
/// that are named. Several: each its own laws, and the laws that none of them changes as they are.
pub fn plan(detectors: &[String], set: &[Setting], sweeps: &[Sweep]) -> Vec<Row> {
    let names: Vec<&str> = match detectors.is_empty() {
        false => detectors.iter().map(String::as_str).collect(),
        true => catalog::NAMES.to_vec(),
    };
    if sweeps.is_empty() {
        return plain(&names, set, detectors.is_empty());
    }
    let changes = |sweep: &Sweep, law: &str| {
        let all = sweeps.len() == 1 && !detectors.is_empty();
        all || laws_of(&sweep.key).contains(&law)
    };
    let mut rows = Vec::new();
    for sweep in sweeps {
        for law in names.iter().filter(|law| changes(sweep, law)) {
            rows.extend(sweep.values.iter().map(|v| row(law, set, Some((&sweep.key, v)))));
        }
    }
    if sweeps.len() > 1 {
        let left = names.iter().filter(|law| !sweeps.iter().any(|s| changes(s, law)));
        rows.extend(left.map(|law| row(law, set, None)));
    }
    rows
}

fn plain(names: &[&str], set: &[Setting], recorded: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    if recorded {
        rows.push(Row { law: "recorded".to_owned(), settings: String::new(), params: None, value: None });
    }
    for law in names {
        rows.push(row(law, &[], None));
        rows.extend((!set.is_empty()).then(|| row(law, set, None)));
    }
    rows
}

fn row(law: &str, set: &[Setting], swept: Option<(&String, &(String, f64))>) -> Row {
    let mut params = catalog::by_name(law).unwrap_or_default();
    let mut words = Vec::new();
    let settings = set.iter().map(|s| (&s.key, &s.value)).chain(swept.map(|(key, v)| (key, &v.0)));
    for (key, value) in settings {
        // Both were tried when the command line was read.
        if catalog::set(&mut params, key, value).is_ok() {
            words.push(format!("{key}={value}"));
        }
    }
    Row {
        law: law.to_owned(),
        settings: words.join(" "),
        params: Some(params),
        value: swept.map(|(_, v)| v.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(s: &str) -> Vec<String> {
        parse_sweep(s).unwrap().values.into_iter().map(|v| v.0).collect()
    }

    #[test]
    fn sweeps_step_by_difference_or_by_ratio() {
        assert_eq!(texts("tau_min=2ms..6ms:5"), ["2ms", "3ms", "4ms", "5ms", "6ms"]);
        assert_eq!(texts("timeout=10ms..1s:3"), ["10ms", "100ms", "1s"]);
        assert_eq!(texts("tau_min=1ms..2ms:3"), ["1ms", "1ms500us", "2ms"]);
        assert_eq!(texts("phi.threshold=2..8:3"), ["2", "5", "8"]);
        assert_eq!(texts("p95.factor=1.0..2.0:3"), ["1", "1.5", "2"]);
        assert_eq!(texts("phi.window=5..7:9"), ["5", "6", "7"], "whole numbers, each once");
        assert_eq!(parse_sweep("tau_min=2ms..6ms").unwrap().values.len(), 10);
        assert_eq!(texts("tau_min=6ms..2ms:2"), ["6ms", "2ms"]);
    }

    #[test]
    fn what_cannot_be_swept_is_refused_with_what_can() {
        for (bad, part) in [
            ("tau_min", "key=a..b"),
            ("tau_min=6ms", "key=a..b"),
            ("tau_min=a..b", "key=a..b"),
            ("tau_min=2ms..9", "key=a..b"),
            ("phi.threshold=1..inf", "key=a..b"),
            ("tau_min=2ms..6ms:x", "key=a..b"),
            ("tau_min=2ms..6ms:1", "steps"),
            ("tau_min=2ms..6ms:9999", "steps"),
            ("tau_min=2ms..6h", "1s"),
            ("warp=1..9", "tau_min"),
        ] {
            let error = parse_sweep(bad).unwrap_err();
            assert!(error.contains(part), "{bad}: {error}");
        }
        assert!(parse_setting("tau_min").unwrap_err().contains("key=value"));
        assert!(parse_setting("warp=9").unwrap_err().contains("tau_min"));
        assert!(parse_setting("tau_min=6h").is_err());
    }

    #[test]
    fn every_law_is_compared_unless_some_are_named() {
        let laws =
            |rows: &[Row]| rows.iter().map(|r| format!("{} {}", r.law, r.settings)).collect::<Vec<_>>();
        let all = plan(&[], &[], &[]);
        assert_eq!(all.len(), 1 + catalog::NAMES.len());
        assert_eq!((all[0].law.as_str(), all[0].params), ("recorded", None));
        let set = [parse_setting("phi.threshold=4").unwrap()];
        let some = plan(&["phi".to_owned()], &set, &[]);
        assert_eq!(laws(&some), ["phi ", "phi phi.threshold=4"]);
        assert_eq!(some[1].params.unwrap().phi.threshold, 4.0);
        let sweep = parse_sweep("phi.pause=0ms..10ms:2").unwrap();
        let swept = plan(&[], &set, &[sweep]);
        assert_eq!(laws(&swept), ["phi phi.threshold=4 phi.pause=0s", "phi phi.threshold=4 phi.pause=10ms"]);
        assert_eq!(swept[1].value, Some(10.0));
        let tau = parse_sweep("tau_min=2ms..4ms:2").unwrap();
        assert_eq!(plan(&[], &[], std::slice::from_ref(&tau))[0].law, "promise");
        let several = plan(&[], &[], &[tau.clone(), parse_sweep("timeout=20ms..40ms:2").unwrap()]);
        let laws: Vec<_> = several.iter().map(|r| r.law.as_str()).collect();
        assert_eq!(
            laws,
            ["promise", "promise", "timeout", "timeout", "huddm-tick", "huddm-miss", "phi", "chen", "p95"]
        );
        assert_eq!(plan(&["phi".to_owned()], &[], &[tau]).len(), 2, "one key, the law that was named");
    }
}
