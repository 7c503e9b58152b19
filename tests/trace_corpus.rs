//! Replays the fuzz corpus of trace files with the stable compiler. `ok.<what>` must be whole, `torn.<what>` damaged with
//! something left, `bad.<what>` no trace at all; other files come from the fuzzer and may end in any way but a panic.
//! `BLESS=1` writes the named files anew.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "../fuzz/check_trace.rs"]
mod check_trace;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sidebeat::detector::{End, Facts, Gate, Input, Said};
use sidebeat::stamp::Stamp;
use sidebeat::trace::format::{Builder, Event, Header, LinkInfo, NO_WORKER, Record};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/trace")
}

fn at(us: u64) -> Stamp {
    Stamp::from_nanos(5_000_000_000 + us * 1000)
}

fn info() -> Arc<LinkInfo> {
    Arc::new(LinkInfo {
        worker: 1,
        upstream: "orders".to_owned(),
        endpoint: "10.0.0.1:8080".to_owned(),
        node: "orders-1".to_owned(),
        law: "promise".to_owned(),
        settings: "tau_min=6000000ns learn_max=500000000ns half_life=600000000000ns slack=1000000ns"
            .to_owned(),
        first_promise: Duration::from_millis(100),
    })
}

/// One record of every kind, in an order that a link may see.
fn life() -> Vec<Record> {
    let ms = Duration::from_millis;
    let inputs = [
        Input::Heard { at: at(100) },
        Input::Rtt { at: at(100), rtt: Duration::from_nanos(212_345) },
        Input::PeerView { at: at(100), age: Duration::from_micros(321) },
        Input::Promised { at: at(100), promise: ms(20) },
        Input::Wrote { at: at(300), promise: ms(1000) },
        Input::Polled { at: at(21_100), facts: None, said: Some(Said::Challenge) },
        Input::ChallengeSent { at: at(21_100) },
        Input::Polled { at: at(25_300), facts: None, said: Some(Said::Suspect) },
        Input::OwnStall { from: at(26_000), to: at(41_000) },
        Input::Polled { at: at(60_000), facts: None, said: Some(Said::Held(Gate::OwnStall)) },
        Input::Polled {
            at: at(70_000),
            facts: Some(Facts {
                unread: true,
                others_heard: at(90),
                others_hear: at(80),
                others_asked: at(85),
            }),
            said: Some(Said::Held(Gate::Unread)),
        },
        Input::Polled { at: at(80_000), facts: Some(Facts::default()), said: Some(Said::Failed) },
        Input::Probe { at: at(81_000) },
        Input::Heard { at: at(90_000) },
        Input::Answered { at: at(90_000) },
        Input::PeerStalled { at: at(90_000) },
        Input::Polled { at: at(90_000), facts: None, said: None },
        Input::Backpressure { at: at(95_000), active: true, promise: ms(20) },
        Input::Backpressure { at: at(99_000), active: false, promise: ms(20) },
        Input::Maintenance { at: at(99_500), pause: ms(500) },
        Input::Polled {
            at: at(99_600),
            facts: None,
            said: Some(Said::Active { mistake: true, outage: false }),
        },
        Input::Polled { at: at(99_700), facts: None, said: Some(Said::LinkOnly) },
        Input::Ended { at: at(99_999), how: End::Rst },
    ];
    let begin = Record { link: 1, at: at(0), event: Event::Begin(info()) };
    let told = inputs.map(|i| Record { link: 1, at: i.at(), event: Event::Input(i) });
    std::iter::once(begin).chain(told).collect()
}

fn block(worker: u16, records: &[Record]) -> Vec<u8> {
    let mut b = Builder::new();
    records.iter().for_each(|r| b.push(r));
    b.finish(worker)
}

fn header() -> Vec<u8> {
    Header { wall_ns: 1, base: at(0), incarnation: 7, sequence: 0, node: "near".to_owned() }.encode()
}

/// Name and content, the first byte being the size of a piece.
fn named() -> Vec<(&'static str, Vec<u8>)> {
    let life = life();
    let known = Record { link: 1, at: at(200), event: Event::Known(info()) };
    let gap = Record { link: 0, at: at(200), event: Event::Gap(77) };
    let whole = [header(), block(1, &life)].concat();
    let two = [header(), block(1, &life[..9]), block(1, &life[9..])].concat();
    let hole =
        [header(), block(1, &life[..5]), block(1, &[gap, known.clone()]), block(1, &life[9..])].concat();
    let later = [header(), block(NO_WORKER, &[known]), block(1, &life[13..])].concat();
    let mut flipped = two.clone();
    flipped[header().len() + 40] ^= 4;
    let mut version = header();
    version[9] = 2;
    let piece = |size: u8, bytes: &[u8]| [&[size], bytes].concat();
    vec![
        ("ok.empty", piece(0, &header())),
        ("ok.life", piece(0, &whole)),
        ("ok.bytewise", piece(1, &whole)),
        ("ok.hole", piece(17, &hole)),
        ("ok.later-file", piece(64, &later)),
        ("torn.tail", piece(33, &two[..two.len() - 9])),
        ("torn.flipped", piece(0, &flipped)),
        ("torn.garbage", piece(9, &[&header()[..], b"garbage", &block(1, &life)].concat())),
        ("bad.text", piece(0, b"[node]\nid = \"x\"\n")),
        ("bad.version", piece(3, &version)),
        ("bad.cut-header", piece(0, &header()[..21])),
    ]
}

#[test]
fn the_corpus_holds_all_promises() {
    std::fs::create_dir_all(folder()).unwrap();
    for (name, bytes) in named() {
        let path = folder().join(name);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        let found = std::fs::read(&path).unwrap_or_default();
        assert!(found == bytes, "{name} is of another format: BLESS=1 writes it anew, with a new version");
    }
    let (mut files, mut kinds) = (0, std::collections::BTreeSet::new());
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let outcome = check_trace::check(&std::fs::read(&path).unwrap());
        match name.split('.').next().unwrap() {
            "ok" => assert!(outcome.error.is_none() && outcome.damage.is_empty(), "{name}: {outcome:?}"),
            "torn" => {
                assert!(outcome.error.is_none() && outcome.damage.len() == 1, "{name}: {outcome:?}");
                assert!(!outcome.records.is_empty(), "{name} lost everything");
            }
            "bad" => assert!(outcome.error.is_some(), "{name}: {outcome:?}"),
            _ => {}
        }
        kinds.extend(outcome.records.iter().map(|(_, r)| match &r.event {
            Event::Input(input) => {
                format!("{input:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
            }
            Event::Begin(_) => "begin".to_owned(),
            Event::Known(_) => "known".to_owned(),
            Event::Gap(_) => "gap".to_owned(),
        }));
        files += 1;
    }
    assert!(files >= named().len(), "only {files} files");
    assert_eq!(kinds.len(), 14 + 3, "each kind of record: {kinds:?}");
}

#[test]
fn any_cut_and_any_change_of_the_corpus_is_no_panic() {
    let (_, whole) = named().swap_remove(1);
    for end in 1..whole.len() {
        check_trace::check(&whole[..end]);
    }
    for i in 1..whole.len() {
        let mut bytes = whole.clone();
        bytes[i] = bytes[i].wrapping_add(0x55);
        check_trace::check(&bytes);
    }
}

/// The checksum keeps accidents from the judges, not malice: what is behind it is changed here, and sealed again.
#[test]
fn hostile_records_are_no_panic() {
    let life = life();
    let mut tried = 0;
    for (i, record) in life.iter().enumerate() {
        for far in [0, 1, 1 << 40, (1 << 62) - 1] {
            let mut records = life.clone();
            let stamp = Stamp::from_nanos(far);
            records[i] = Record { at: stamp, ..moved(record, stamp) };
            let bytes = [&[0][..], &header(), &block(1, &records)].concat();
            check_trace::check(&bytes);
            let mut twice = life.clone();
            twice.splice(i..i, [record.clone(), record.clone()]);
            check_trace::check(&[&[0][..], &header(), &block(1, &twice)].concat());
            tried += 1;
        }
    }
    assert!(tried > 80);
}

/// The same input at another time.
fn moved(record: &Record, to: Stamp) -> Record {
    let Event::Input(input) = &record.event else { return record.clone() };
    let long = Duration::from_secs(399 * 86_400);
    let input = match *input {
        Input::Heard { .. } => Input::Heard { at: to },
        Input::Promised { .. } => Input::Promised { at: to, promise: long },
        Input::PeerView { .. } => Input::PeerView { at: to, age: long },
        Input::Wrote { .. } => Input::Wrote { at: to, promise: Duration::ZERO },
        Input::Rtt { .. } => Input::Rtt { at: to, rtt: long },
        Input::ChallengeSent { .. } => Input::ChallengeSent { at: to },
        Input::Answered { .. } => Input::Answered { at: to },
        Input::Backpressure { active, .. } => Input::Backpressure { at: to, active, promise: long },
        Input::PeerStalled { .. } => Input::PeerStalled { at: to },
        Input::OwnStall { .. } => Input::OwnStall { from: to - long, to },
        Input::Probe { .. } => Input::Probe { at: to },
        Input::Polled { facts, said, .. } => Input::Polled { at: to, facts, said },
        Input::Inherited { .. } => Input::Inherited { at: to, peak: long },
        Input::Noise { .. } => Input::Noise { at: to, noise: long },
        Input::Maintenance { .. } => Input::Maintenance { at: to, pause: long },
        Input::Ended { how, .. } => Input::Ended { at: to, how },
    };
    Record { link: record.link, at: to, event: Event::Input(input) }
}
