//! Log filters.
//!
//! Pure: no IO, no clock.

use super::words::nearest;

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

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

#[cfg(test)]
mod tests {
    use super::*;

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
