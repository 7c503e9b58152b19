use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::detector::{End, Facts, Gate, Input, Said};

fn ns(n: u64) -> Stamp {
    Stamp::from_nanos(n)
}

fn header() -> Header {
    Header { wall_ns: 7, base: ns(9), incarnation: 11, sequence: 13, node: "orders-1".to_owned() }
}

fn info() -> Arc<LinkInfo> {
    Arc::new(LinkInfo {
        worker: 1,
        upstream: "inventory".to_owned(),
        endpoint: "10.1.0.4:8080".to_owned(),
        node: "inventory-2".to_owned(),
        law: "promise".to_owned(),
        settings: "tau_min=6ms".to_owned(),
        first_promise: Duration::from_millis(100),
    })
}

fn heard(link: u32, at: u64) -> Record {
    Record { link, at: ns(at), event: Event::Input(Input::Heard { at: ns(at) }) }
}

fn block(records: &[Record]) -> Vec<u8> {
    let mut b = Builder::new();
    records.iter().for_each(|r| b.push(r));
    assert_eq!(b.count() as usize, records.len());
    b.finish(3)
}

/// Everything a scanner says of `bytes`, fed in pieces of `size`.
fn scan(bytes: &[u8], size: usize) -> Result<Vec<Item>, FormatError> {
    let (mut scanner, mut items) = (Scanner::new(), Vec::new());
    for piece in bytes.chunks(size.max(1)) {
        scanner.feed(piece);
        while let Some(item) = scanner.next_item()? {
            items.push(item);
        }
    }
    scanner.end();
    while let Some(item) = scanner.next_item()? {
        items.push(item);
    }
    Ok(items)
}

fn file(blocks: &[Vec<u8>]) -> Vec<u8> {
    std::iter::once(header().encode()).chain(blocks.iter().cloned()).flatten().collect()
}

fn blocks(items: &[Item]) -> Vec<&[Record]> {
    items
        .iter()
        .filter_map(|i| if let Item::Block { records, .. } = i { Some(&records[..]) } else { None })
        .collect()
}

fn damage(items: &[Item]) -> Vec<(u64, u64)> {
    items
        .iter()
        .filter_map(|i| if let Item::Damage(d) = i { Some((d.offset, d.len)) } else { None })
        .collect()
}

#[test]
fn a_usual_beat_is_small() {
    let mut b = Builder::new();
    let mut at = ns(1_000_000_000);
    for _ in 0..100 {
        at = at + Duration::from_nanos(16_034_511);
        let inputs = [
            Input::Heard { at },
            Input::Rtt { at, rtt: Duration::from_nanos(213_700) },
            Input::PeerView { at, age: Duration::from_micros(4711) },
            Input::Promised { at, promise: Duration::from_millis(20) },
        ];
        for input in inputs {
            b.push(&Record { link: 1, at, event: Event::Input(input) });
        }
    }
    assert!(b.len() < 100 * 16, "{} bytes a beat", b.len() / 100);
}

#[test]
fn a_header_comes_back_and_later_fields_are_ignored() {
    let bytes = header().encode();
    assert_eq!(Header::decode(&bytes), Ok(Some((header(), bytes.len()))));
    for end in 0..bytes.len() {
        assert_eq!(Header::decode(&bytes[..end]), Ok(None), "{end} bytes");
    }
    let mut later = bytes[..bytes.len() - 4].to_vec();
    later.extend(*b"more");
    let len = (later.len() - HEADER_HEAD) as u16;
    later[10..12].copy_from_slice(&len.to_be_bytes());
    later.extend(crc(&later).to_be_bytes());
    assert_eq!(Header::decode(&later).unwrap().unwrap().0, header());
}

#[test]
fn what_is_no_trace_is_told_from_what_is_damaged() {
    assert_eq!(scan(b"[node]\nid = 1\n", 5), Err(FormatError::NotATrace));
    assert_eq!(scan(&[0; 4096], 4096), Err(FormatError::NotATrace));
    let mut later = header().encode();
    later[9] = 9;
    assert_eq!(scan(&later, 7), Err(FormatError::LaterVersion(9)));
    assert!(matches!(scan(&header().encode()[..20], 20), Err(FormatError::Corrupt(_))));
    let mut wrong = header().encode();
    wrong[14] ^= 1;
    assert!(matches!(scan(&wrong, 64), Err(FormatError::Corrupt(_))));
    let mut long = header().encode();
    long[10] = 0xff;
    assert!(matches!(scan(&long, 64), Err(FormatError::Corrupt(_))));
}

#[test]
fn an_empty_trace_says_its_header_only() {
    assert_eq!(scan(&header().encode(), 3), Ok(vec![Item::Header(header())]));
}

#[test]
fn a_torn_tail_loses_its_block_only() {
    let whole = file(&[block(&[heard(1, 10)]), block(&[heard(1, 20), heard(2, 30)])]);
    let first = file(&[block(&[heard(1, 10)])]).len();
    for end in first + 1..whole.len() {
        let items = scan(&whole[..end], 4096).unwrap();
        assert_eq!(blocks(&items), [&[heard(1, 10)][..]], "cut at {end}");
        assert_eq!(damage(&items), [(first as u64, (end - first) as u64)], "cut at {end}");
    }
    assert!(damage(&scan(&whole, 4096).unwrap()).is_empty());
}

#[test]
fn any_flipped_bit_loses_its_block_only() {
    let three = [block(&[heard(1, 10)]), block(&[heard(1, 20), heard(2, 30)]), block(&[heard(3, 40)])];
    let whole = file(&three);
    let begin = header().encode().len() + three[0].len();
    for bit in 0..three[1].len() * 8 {
        let mut bytes = whole.clone();
        bytes[begin + bit / 8] ^= 1 << (bit % 8);
        let items = scan(&bytes, 64).unwrap();
        let left = blocks(&items);
        assert_eq!(left, [&[heard(1, 10)][..], &[heard(3, 40)]], "bit {bit}");
        assert_eq!(damage(&items), [(begin as u64, three[1].len() as u64)], "bit {bit}");
    }
}

#[test]
fn garbage_between_blocks_is_passed_over() {
    let mut bytes = file(&[block(&[heard(1, 10)])]);
    let at = bytes.len() as u64;
    let garbage = [&SYNC[..], &SYNC, b"garbage", &[0xb3; 100]].concat();
    bytes.extend(&garbage);
    bytes.extend(block(&[heard(1, 20)]));
    for size in [1, 2, 7, 33, 4096] {
        let items = scan(&bytes, size).unwrap();
        assert_eq!(blocks(&items).len(), 2, "pieces of {size}");
        assert_eq!(damage(&items), [(at, garbage.len() as u64)], "pieces of {size}");
    }
}

#[test]
fn a_block_with_a_right_checksum_may_still_be_wrong() {
    let sealed = |records: &[u8], count: u32| {
        let head = BlockHead { len: records.len() as u32, count, worker: 0, base: ns(5), sum: crc(records) };
        file(&[[&head.encode()[..], records].concat(), block(&[heard(1, 10)])])
    };
    for (records, count) in [
        (&[0x30][..], 1),                                                         // kind 0
        (&[0x34], 2),                                                             // more records than bytes
        (&[0x34, 0x34], 1),                                                       // bytes behind the records
        (&[0x35], 1),                                                             // ends within a record
        (&[0x35, 0x03], 1),                                                       // unknown unit
        (&[0x7e, 0x7f], 1),                                                       // unknown verdict
        (&[0x3f, 0x07], 1),       // unknown kind of the second table
        (&[0x3f, 0x02, 0x09], 1), // unknown end
        (&[0x14, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], 1), // before the machine's start
        (&[0x24, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], 1),                         // number of a link
        (&[0x31, 0x00, 0x05, b'a'], 1),                                           // text
    ] {
        let items = scan(&sealed(records, count), 4096).unwrap();
        assert_eq!(blocks(&items).len(), 1, "{records:?}");
        assert_eq!(damage(&items).len(), 1, "{records:?}");
    }
    assert_eq!(blocks(&scan(&sealed(&[0x34], 1), 4096).unwrap()).len(), 2, "the frame of this test is right");
}

#[test]
fn a_cleared_builder_begins_anew() {
    let mut b = Builder::new();
    b.push(&heard(4, 100));
    b.clear();
    assert!(b.is_empty());
    b.push(&heard(4, 200));
    let items = scan(&file(&[b.finish(3)]), 4096).unwrap();
    assert_eq!(blocks(&items), [&[heard(4, 200)][..]]);
    assert!(b.is_empty());
}

fn any_stamp() -> impl Strategy<Value = Stamp> {
    prop_oneof![0..1_000_000_000_000u64, 0..=STAMP_MAX].prop_map(ns)
}

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..10_000u64).prop_map(Duration::from_millis),
        (0..10_000_000u64).prop_map(Duration::from_micros),
        (0..=SPAN_MAX.as_nanos() as u64).prop_map(Duration::from_nanos),
    ]
}

fn any_said() -> impl Strategy<Value = Option<Said>> {
    let active =
        (any::<bool>(), any::<bool>()).prop_map(|(mistake, outage)| Said::Active { mistake, outage });
    let held = (0..Gate::ALL.len()).prop_map(|i| Said::Held(Gate::ALL[i]));
    let plain = prop::sample::select(vec![Said::Challenge, Said::Suspect, Said::Failed, Said::LinkOnly]);
    prop::option::of(prop_oneof![plain, active, held])
}

fn any_input() -> impl Strategy<Value = Input> {
    let asked = prop_oneof![any_stamp(), Just(Stamp::NEVER)];
    let facts = prop::option::of((any::<bool>(), any_stamp(), any_stamp(), asked)).prop_map(|f| {
        f.map(|(unread, others_heard, others_hear, others_asked)| Facts {
            unread,
            others_heard,
            others_hear,
            others_asked,
        })
    });
    (0..16u8, any_stamp(), any_span(), any::<bool>(), any_said(), facts).prop_map(
        |(kind, at, d, active, said, facts)| match kind {
            0 => Input::Heard { at },
            1 => Input::Promised { at, promise: d },
            2 => Input::PeerView { at, age: d },
            3 => Input::Wrote { at, promise: d },
            4 => Input::Rtt { at, rtt: d },
            5 => Input::ChallengeSent { at },
            6 => Input::Answered { at },
            7 => Input::Backpressure { at, active, promise: d },
            8 => Input::PeerStalled { at },
            9 => Input::OwnStall { from: at - d, to: at },
            10 => Input::Probe { at },
            11 => Input::Polled { at, facts, said },
            12 => Input::Maintenance { at, pause: d },
            13 => Input::Inherited { at, peak: d },
            14 => Input::Noise { at, noise: d },
            _ => Input::Ended { at, how: End::ALL[at.as_nanos() as usize % End::ALL.len()] },
        },
    )
}

fn any_record() -> impl Strategy<Value = Record> {
    (any::<u32>(), any_input(), 0..20u8, any::<u64>()).prop_map(|(link, input, kind, n)| {
        let at = input.at();
        let event = match kind {
            0 => Event::Begin(info()),
            1 => Event::Known(info()),
            2 => Event::Gap(n),
            _ => Event::Input(input),
        };
        Record { link: if kind % 2 == 0 { link } else { 5 }, at, event }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(any_record(), 1..60), size in 1..200usize) {
        let items = scan(&file(&[block(&records)]), size).unwrap();
        prop_assert_eq!(items.len(), 2);
        prop_assert_eq!(&items[1], &Item::Block { worker: 3, records });
    }

    #[test]
    fn any_bytes_say_something_or_nothing_but_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600), size in 1..100usize, framed: bool,
    ) {
        let bytes = if framed { [header().encode(), bytes].concat() } else { bytes };
        prop_assert_eq!(scan(&bytes, size), scan(&bytes, bytes.len()), "pieces say the same");
    }

    #[test]
    fn any_records_behind_a_right_checksum_never_panic(
        records in prop::collection::vec(any::<u8>(), 0..100), count in 0..40u32, base: u64,
    ) {
        let head = BlockHead { len: records.len() as u32, count, worker: 0, base: ns(base), sum: crc(&records) };
        let bytes = file(&[[&head.encode()[..], &records].concat()]);
        let items = scan(&bytes, 4096).unwrap();
        prop_assert_eq!(blocks(&items).len() + damage(&items).len(), 1);
    }
}
