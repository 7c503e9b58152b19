//! Replays the fuzz corpus and past crashes with the stable compiler. A file named `err.<label>.<what>` must end in the
//! error of that label, `cut.<what>` within a frame, `ok.<what>` between two frames; other files come from the fuzzer
//! and may end in any way but a panic.

#[path = "../fuzz/check.rs"]
mod check;

use std::collections::BTreeSet;
use std::path::Path;

use sidebeat::wire::{METRIC_KINDS, WireError};

#[test]
fn the_corpus_holds_all_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decoder");
    let mut files = 0;
    let mut kinds = BTreeSet::new();
    let mut frames = BTreeSet::new();
    let mut labels = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let outcome = check::check(&std::fs::read(&path).unwrap());
        let label = outcome.error.map(|error| error.label());
        match name.split('.').collect::<Vec<_>>()[..] {
            ["err", expected, ..] => assert_eq!(label, Some(expected), "{name}"),
            ["cut", ..] => assert!(label.is_none() && outcome.mid_frame, "{name}"),
            ["ok", ..] => assert!(label.is_none() && !outcome.mid_frame, "{name}"),
            _ => {}
        }
        kinds.extend(outcome.kinds);
        frames.extend(outcome.frames.iter().map(|frame| frame.kind().code()));
        labels.extend(label);
        files += 1;
    }
    assert!(files > 30, "only {files} files");
    assert_eq!(kinds.len(), METRIC_KINDS.len(), "each metric kind");
    assert_eq!(frames.len(), 15, "each control frame");
    let of_greeting = 2;
    assert_eq!(labels.len(), WireError::LABELS.len() - of_greeting, "each error: {labels:?}");
}

#[test]
fn any_cut_of_any_corpus_file_says_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decoder");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let mut bytes = std::fs::read(entry.unwrap().path()).unwrap();
        if bytes.is_empty() {
            continue;
        }
        for rule in (0..=u8::MAX).step_by(5) {
            bytes[0] = rule;
            check::check(&bytes);
            checked += 1;
        }
    }
    assert!(checked > 30 * 50);
}
