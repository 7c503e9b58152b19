//! The tables of docs/protocol.md say what the code does.

use std::collections::BTreeMap;

use super::kind::{BEAT_LEN, RESERVED_MOVED, Scope};
use super::*;

const DOC: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/protocol.md"));

/// Cells of the rows of the table whose heading begins with `| first |`.
fn table(first: &str) -> Vec<Vec<&'static str>> {
    let row = |line: &'static str| -> Vec<&'static str> { line.split('|').map(str::trim).collect() };
    let heading = format!("| {first} |");
    let lines = DOC.lines().skip_while(|l| !l.starts_with(&heading)).skip(2);
    let rows: Vec<_> = lines.take_while(|l| l.starts_with('|')).map(row).collect();
    assert!(!rows.is_empty(), "docs/protocol.md has no table that begins with {first}");
    rows
}

/// Bytes of a field, given as its type; a text at least says its length.
fn bytes(kind: &str) -> u32 {
    match kind {
        "u8" | "text" => 1,
        "u16" => 2,
        "u32" => 4,
        "u64" => 8,
        "16 bytes" => 16,
        other => panic!("no type of a field: {other}"),
    }
}

/// Shortest payload that a cell such as `errno u16, text` describes.
fn shortest(payload: &str) -> u32 {
    // What stands behind a colon or in brackets explains.
    let fields = payload.split(':').next().unwrap().split(", ").filter(|f| !f.is_empty());
    let size = |field: &str| {
        let field = field.split('(').next().unwrap().trim();
        let kind =
            field.strip_suffix("16 bytes").map_or_else(|| field.rsplit(' ').next().unwrap(), |_| "16 bytes");
        bytes(kind)
    };
    fields.map(size).sum()
}

/// `OpenFailed` is written OPEN_FAILED.
fn written(kind: Kind) -> String {
    let name = format!("{kind:?}");
    let parts = name.char_indices().map(|(n, c)| match c {
        'A'..='Z' if n > 0 => format!("_{c}"),
        c => c.to_ascii_uppercase().to_string(),
    });
    parts.collect()
}

#[test]
fn kinds_names_streams_caps_and_fields_are_documented_as_they_are() {
    let rows: BTreeMap<u8, Vec<&str>> =
        table("kind").into_iter().map(|r| (r[1].parse().unwrap(), r)).collect();
    assert_eq!(rows.len(), Kind::ALL.len() + 1, "each kind, and the reserved one");
    for kind in Kind::ALL {
        let row = &rows[&kind.code()];
        let (name, stream, cap, payload) = (row[2], row[3], row[4], row[5]);
        assert_eq!(name, written(kind));
        assert_eq!(stream, if kind.rule().scope == Scope::Link { "0" } else { "id" }, "{name}");
        if kind == Kind::Data {
            assert_eq!(cap, format!("{} KiB", Limits::default().max_data / 1024));
            continue;
        }
        assert_eq!(cap.parse(), Ok(kind.payload_cap()), "cap of {name}");
        let fields = match kind {
            Kind::Beat => BEAT_LEN as u32,
            Kind::Answer => {
                assert_eq!(payload, "nonce u64, then as BEAT");
                8 + BEAT_LEN as u32
            }
            _ => shortest(payload),
        };
        assert_eq!(fields, kind.rule().min, "fields of {name}: {payload}");
    }
    let reserved = &rows[&RESERVED_MOVED];
    assert!(reserved[2] == "MOVED" && reserved[5].starts_with("reserved"), "{reserved:?}");
}

#[test]
fn the_fields_of_a_beat_are_documented_as_they_are() {
    let rows = table("field");
    let size: u32 = rows.iter().map(|r| bytes(r[2])).sum();
    assert_eq!(size, BEAT_LEN as u32);
    let on_the_wire = HEADER_LEN + BEAT_LEN;
    assert!(DOC.contains(&format!("**BEAT**, {on_the_wire} bytes on the wire")), "{on_the_wire}");
}

#[test]
fn codes_of_refuse_and_reset_are_documented_as_they_are() {
    let doc = DOC.replace('\n', " ");
    let refusals = [
        (RefuseCode::Version, "version"),
        (RefuseCode::NoSuchService, "no such service"),
        (RefuseCode::NotAllowed, "not allowed"),
        (RefuseCode::Loop, "loop"),
        (RefuseCode::TooMany, "too many"),
        (RefuseCode::Draining, "draining"),
        (RefuseCode::Malformed, "malformed"),
    ];
    let said = refusals.map(|(code, words)| format!("{} {words}", code as u16)).join(", ");
    assert!(doc.contains(&format!("Codes of REFUSE: {said}.")), "{said}");
    let resets = [
        (ResetReason::Rst, "the application sent RST"),
        (ResetReason::Io, "its socket failed"),
        (ResetReason::Protocol, "protocol"),
        (ResetReason::Limit, "limit"),
        (ResetReason::Shutdown, "shutdown"),
    ];
    let said = resets.map(|(reason, words)| format!("{} {words}", reason as u16)).join(", ");
    assert!(doc.contains(&format!("Reasons of RESET: {said}.")), "{said}");
}
