//! Pure: no IO, no clock. The parameters of a judge as a trace names them, and back.

use std::time::Duration;

use crate::detector::{Params, catalog};

use super::format::LinkInfo;

/// Name of the law and its parameters, exact to the nanosecond.
pub fn describe(params: &Params) -> (&'static str, String) {
    let law = catalog::NAMES.into_iter().find(|n| catalog::by_name(n).is_some_and(|p| p.kind == params.kind));
    let span = |d: Duration| humantime::format_duration(d).to_string().replace(' ', "");
    let mut settings = vec![
        ("tau_min", span(params.tau_min)),
        ("learn_max", span(params.learn_max)),
        ("half_life", span(params.half_life)),
        ("slack", span(params.slack)),
        ("timeout", span(params.timeout)),
        ("phi.threshold", params.phi.threshold.to_string()),
        ("phi.window", params.phi.window.to_string()),
        ("phi.min_std", span(params.phi.min_std)),
        ("phi.pause", span(params.phi.pause)),
        ("chen.alpha", span(params.chen.alpha)),
        ("chen.window", params.chen.window.to_string()),
        ("p95.factor", params.p95.factor.to_string()),
        ("p95.window", params.p95.window.to_string()),
        ("timeout.misses", params.steps.misses.to_string()),
    ];
    let set = [("timeout.interval", params.steps.interval), ("timeout.buffer", params.steps.buffer)];
    settings.extend(set.into_iter().filter_map(|(key, d)| Some((key, span(d?)))));
    // What is the law's default is not worth a word; names change less than defaults, so these four always are.
    let base = law.and_then(catalog::by_name).unwrap_or_default();
    let told = settings.iter().filter(|(key, value)| {
        ALWAYS.contains(key) || {
            let mut same = base;
            catalog::set(&mut same, key, value).is_ok() && same != base
        }
    });
    let text: Vec<_> = told.map(|(key, value)| format!("{key}={value}")).collect();
    (law.unwrap_or_default(), text.join(" "))
}

const ALWAYS: [&str; 4] = ["tau_min", "learn_max", "half_life", "slack"];

/// The parameters that a trace names.
///
/// # Errors
/// A law, a key or a value that this program does not know: the trace is of another version.
pub fn params(info: &LinkInfo) -> Result<Params, String> {
    let mut params = catalog::by_name(&info.law)
        .ok_or_else(|| format!("recorded under the unknown law `{}`", info.law))?;
    for word in info.settings.split(' ').filter(|w| !w.is_empty()) {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no setting"))?;
        catalog::set(&mut params, key, value)?;
    }
    params.first_promise = info.first_promise;
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(params: &Params) -> LinkInfo {
        let (law, settings) = describe(params);
        LinkInfo {
            worker: 0,
            upstream: "u".to_owned(),
            endpoint: "e".to_owned(),
            node: "n".to_owned(),
            law: law.to_owned(),
            settings,
            first_promise: params.first_promise,
        }
    }

    #[test]
    fn parameters_come_back_exactly() {
        for name in catalog::NAMES {
            let mut p = catalog::by_name(name).unwrap();
            assert_eq!(params(&info(&p)), Ok(p), "{name}");
            p.first_promise = Duration::from_micros(12_345);
            for (key, value) in [
                ("tau_min", "4ms 7us"),
                ("learn_max", "300ms"),
                ("half_life", "90s"),
                ("slack", "2ms"),
                ("timeout", "27ms"),
                ("phi.threshold", "7.25"),
                ("phi.window", "50"),
                ("phi.min_std", "3ms"),
                ("phi.pause", "20ms"),
                ("chen.alpha", "33ms"),
                ("chen.window", "20"),
                ("p95.factor", "2.5"),
                ("p95.window", "12"),
                ("timeout.misses", "5"),
                ("timeout.interval", "20ms"),
                ("timeout.buffer", "7ms"),
            ] {
                catalog::set(&mut p, key, value).unwrap();
            }
            let told = info(&p);
            assert_eq!(params(&told), Ok(p), "{name}");
            assert!(told.settings.len() < 255, "{} bytes do not fit", told.settings.len());
        }
    }

    #[test]
    fn what_is_unknown_is_said() {
        let mut i = info(&Params::default());
        i.settings = "tau_min=6ms warp=9".to_owned();
        assert!(params(&i).unwrap_err().contains("warp"));
        i.settings = "tau_min".to_owned();
        assert!(params(&i).unwrap_err().contains("tau_min"));
        i.law = "later".to_owned();
        assert!(params(&i).unwrap_err().contains("later"));
    }
}
