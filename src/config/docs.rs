//! The schema printed: `config/default.toml` and `docs/configuration.md`.
//!
//! Pure: no IO, no clock.

use std::fmt::Write;

use super::schema::{Default, ENDPOINT, Key, PLANNED, SECTIONS, Section};

/// Columns of a comment in the default file.
const WIDTH: usize = 100;

/// The commented default configuration (`sidebeat config defaults`). Lines that begin with `#` and no space
/// are samples to uncomment; what is not commented out is the default.
pub fn defaults() -> String {
    let mut out = String::from(
        "# sidebeat: every key with its default.\n\
         # Lines that begin with \"#\" and no space are samples: remove the \"#\" to use them. A configuration needs\n\
         # at least one [[inbound]] or [[outbound]]. Any key can be overridden from the environment:\n\
         # SIDEBEAT__BEAT__IDLE=50ms, SIDEBEAT__OUTBOUND__INVENTORY__CUT_AFTER=off.\n",
    );
    for section in SECTIONS {
        out.push('\n');
        comment(&mut out, section.about);
        let sample = if section.list { "#" } else { "" };
        let _ = writeln!(out, "{sample}{}", section.header());
        for key in section.keys {
            default_key(&mut out, section, key);
        }
    }
    out
}

fn default_key(out: &mut String, section: &Section, key: &Key) {
    let (state, value) = match key.default {
        Default::Value(value) if section.list && !key.sample.is_empty() => {
            (format!("default: {value}"), key.sample)
        }
        Default::Value(value) => (String::new(), value),
        Default::Computed(how) => (format!("default: {how}"), key.sample),
        Default::Unset(means) => (format!("default: {means}"), key.sample),
        Default::Required => ("must be given".to_owned(), key.sample),
    };
    let state = if state.is_empty() { state } else { format!(" ({state})") };
    comment(out, &format!("{} Allowed: {}.{state}", key.about, key.kind.allowed()));
    let plain = matches!(key.default, Default::Value(_)) && !section.list;
    let _ = writeln!(out, "{}{} = {value}", if plain { "" } else { "#" }, key.name);
}

fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

/// The reference for people (`docs/configuration.md`).
pub fn markdown() -> String {
    let mut out = String::from(INTRO);
    for section in SECTIONS {
        let _ = writeln!(out, "\n## `{}`\n\n{}\n", section.header(), section.about);
        table(&mut out, section);
        if section.path == "outbound" {
            let _ = writeln!(out, "\n{}\n", ENDPOINT.about);
            table(&mut out, &ENDPOINT);
        }
    }
    out.push_str("\n## Planned\n\nThese tables are refused until they do something:\n\n");
    for (path, hint) in PLANNED {
        let _ = writeln!(out, "- `{path}`: {hint}.");
    }
    out
}

const INTRO: &str = "# Configuration

<!-- Generated from src/config/schema.rs: `BLESS=1 cargo test --test config` writes it anew. -->

`sidebeat run -c FILE` reads one TOML file of at most 1 MiB; without `-c` it is `$SIDEBEAT_CONFIG`, then
`/etc/sidebeat/sidebeat.toml`. `sidebeat check FILE` reports every error with line, column, key and what is allowed, and
exits 78 if there is one. `sidebeat config defaults` prints a file with every default to begin with.

- Durations are strings: `\"250ms\"`, `\"1m 30s\"`. A bare number is refused.
- Sizes are bytes or strings: `4194304`, `\"4MiB\"`.
- Addresses are `\"IP:port\"`, IPv6 in brackets. Host names come with discovery.
- Unknown keys are errors.
- No two listeners may share an address and port; port 0 picks a free one.

Every key can be set from the environment, which wins over the file: `SIDEBEAT__BEAT__IDLE=50ms`,
`SIDEBEAT__DETECTOR__PROMISE__TAU_MIN=4ms`, and by name in arrays: `SIDEBEAT__OUTBOUND__INVENTORY__CUT_AFTER=off`. Case does
not matter, and `-` and `.` in a name are written `_`. Lists are separated by commas, or written as in TOML. An unknown variable
that begins with `SIDEBEAT__` is an error.
";

fn table(out: &mut String, section: &Section) {
    out.push_str("| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n");
    for key in section.keys {
        let default = match key.default {
            Default::Value(value) => format!("`{value}`"),
            Default::Computed(how) => how.to_owned(),
            Default::Unset(means) => means.to_owned(),
            Default::Required => "required".to_owned(),
        };
        let cells = [key.kind.type_name(), &default, &key.kind.allowed(), key.about].map(cell);
        let _ = writeln!(out, "| `{}` | {} |", key.name, cells.join(" | "));
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
