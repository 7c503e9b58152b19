//! Overrides from the environment: `SIDEBEAT__SECTION__KEY`, `SIDEBEAT__OUTBOUND__<name>__KEY`.
//!
//! Pure: no IO, no clock. The variables come in as pairs.

use toml::Spanned;
use toml::de::DeValue;

use super::kind::Kind;
use super::problem::{At, Report};
use super::schema::{self, Key, SECTIONS, Section};
use super::words::nearest;

/// Variables with this prefix are ours. `SIDEBEAT_CONFIG` and `SIDEBEAT_ADMIN` are not among them.
pub(super) const PREFIX: &str = "SIDEBEAT__";

/// One override.
pub(super) struct Override {
    pub(super) var: String,
    pub(super) section: &'static Section,
    /// Normalised name of the element of a list.
    pub(super) element: Option<String>,
    pub(super) key: &'static Key,
    pub(super) text: String,
    /// Elements it was applied to.
    pub(super) used: usize,
}

/// Names compare without case, and `-` and `.` as `_`: a shell cannot write them in a variable.
pub(super) fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace(['-', '.'], "_")
}

/// Sorts out the variables; those that are ours and unknown become errors.
pub(super) fn overrides(
    vars: impl Iterator<Item = (String, String)>,
    report: &mut Report<'_>,
) -> Vec<Override> {
    let mut ours: Vec<_> = vars.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    ours.sort();
    let mut found = Vec::new();
    for (var, text) in ours {
        match target(&var) {
            Ok((section, element, key)) => found.push(Override { var, section, element, key, text, used: 0 }),
            Err((what, hint)) => {
                let allowed = "SIDEBEAT__SECTION__KEY, SIDEBEAT__INBOUND__<name>__KEY or \
                               SIDEBEAT__OUTBOUND__<name>__KEY";
                let problem = report.error(&At::Env(var), "", what).allowed(allowed);
                problem.hint = hint;
            }
        }
    }
    found
}

type Target = (&'static Section, Option<String>, &'static Key);

fn target(var: &str) -> Result<Target, (String, Option<String>)> {
    let lower = var[PREFIX.len()..].to_ascii_lowercase();
    let Some((path, key)) = lower.rsplit_once("__") else {
        return Err(("names no key".to_owned(), None));
    };
    let (section, element) = match SECTIONS.iter().find(|s| s.list && first(path) == s.path) {
        Some(list) if path == list.path => {
            return Err(("names no element of the list".to_owned(), None));
        }
        Some(list) => (list, Some(normal(&path[list.path.len() + 2..]))),
        None => match schema::section(&path.replace("__", ".")) {
            Some(section) => (section, None),
            None => {
                let words = SECTIONS.iter().map(|s| s.path);
                let hint = nearest(&path.replace("__", "."), words).map(|w| format!("did you mean [{w}]?"));
                return Err((format!("unknown section `{}`", path.replace("__", ".")), hint));
            }
        },
    };
    match section.key(key) {
        Some(found) if element.is_some() && found.name == "name" => {
            let what = "a name cannot be changed from the environment: it is what the variables go by";
            Err((what.to_owned(), None))
        }
        Some(found) => Ok((section, element, found)),
        None => {
            let near = nearest(key, section.keys.iter().map(|k| k.name));
            let hint = near.map(|w| format!("did you mean `{w}`?"));
            Err((format!("unknown key `{key}` of {}", section.header()), hint))
        }
    }
}

fn first(path: &str) -> &str {
    path.split_once("__").map_or(path, |(first, _)| first)
}

/// A variable's text as a TOML value of the wanted kind.
pub(super) fn value<'t>(kind: &Kind, text: &'t str) -> Result<Spanned<DeValue<'t>>, String> {
    if kind.is_list() {
        return list(text);
    }
    let typed = match kind {
        Kind::Bool | Kind::Int { .. } | Kind::Real { .. } | Kind::Size { .. } => DeValue::parse(text).ok(),
        _ => None,
    };
    let plain = |v: &Spanned<DeValue<'_>>| {
        matches!(v.get_ref(), DeValue::Boolean(_) | DeValue::Integer(_) | DeValue::Float(_))
    };
    Ok(typed.filter(plain).unwrap_or_else(|| Spanned::new(0..text.len(), DeValue::String(text.into()))))
}

/// `[...]` is TOML, anything else is split at commas.
fn list(text: &str) -> Result<Spanned<DeValue<'_>>, String> {
    if text.trim_start().starts_with('[') {
        return DeValue::parse(text).map_err(|e| format!("not a list: {}", e.message()));
    }
    let items = text.split(',').map(str::trim).filter(|t| !t.is_empty());
    let items = items.map(|t| Spanned::new(0..text.len(), DeValue::String(t.into())));
    Ok(Spanned::new(0..text.len(), DeValue::Array(items.collect())))
}
