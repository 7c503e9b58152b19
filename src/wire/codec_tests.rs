use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::verdict::Vouch;
use crate::wire::frame::*;

fn name() -> impl Strategy<Value = String> {
    "[a-z0-9é-]{0,40}"
}

fn beat() -> impl Strategy<Value = Beat> {
    let a = (any::<u32>(), any::<u16>(), 0u8..16, 0u8..9, any::<u32>(), any::<u32>());
    let b = (any::<u16>(), any::<u16>(), any::<u8>(), any::<u32>(), any::<u32>());
    (a, b).prop_map(|((seq, promise_ms, f, v, processing_us, utility), (i, o, load, hs, ha))| Beat {
        seq,
        promise_ms,
        flags: BeatFlags::from_bits(f),
        vouch: Vouch::from_code(v),
        processing_us,
        utility,
        in_flight: i,
        oldest_ms: o,
        load,
        heard_seq: hs,
        heard_age_us: ha,
    })
}

fn hello() -> impl Strategy<Value = Frame> {
    (any::<[u16; 6]>(), any::<u32>(), any::<u64>(), name(), name(), any::<u8>(), any::<[u8; 16]>()).prop_map(
        |(n, features, incarnation, node, service, hops, trace)| {
            Frame::Hello(Hello {
                version: n[0],
                features,
                incarnation,
                node,
                service,
                active_ms: n[1],
                idle_ms: n[2],
                accept_min_ms: n[3],
                want_active_ms: n[4],
                want_idle_ms: n[5],
                hops,
                trace,
            })
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let id = 1u32..;
    prop_oneof![
        hello(),
        (any::<[u16; 4]>(), any::<u32>(), any::<u64>(), name(), any::<u32>()).prop_map(
            |(n, features, incarnation, node, initial_credit)| Frame::Welcome(Welcome {
                version: n[0],
                features,
                incarnation,
                node,
                active_ms: n[1],
                idle_ms: n[2],
                accept_min_ms: n[3],
                initial_credit
            })
        ),
        name().prop_map(|text| Frame::Refuse { code: RefuseCode::Loop, text }),
        (id.clone(), name()).prop_map(|(stream, service)| Frame::Open { stream, service }),
        id.clone().prop_map(|stream| Frame::Opened { stream }),
        (id.clone(), any::<u16>(), name()).prop_map(|(stream, errno, text)| Frame::OpenFailed {
            stream,
            errno,
            text
        }),
        beat().prop_map(Frame::Beat),
        (any::<bool>(), any::<u16>(), any::<u32>(), any::<u32>(), any::<u16>()).prop_map(
            |(active, occupancy, queued, since_ms, promise_ms)| Frame::Backpressure(Backpressure {
                active,
                occupancy,
                queued,
                since_ms,
                promise_ms
            })
        ),
        (any::<u32>(), any::<u16>(), name())
            .prop_map(|(for_ms, promise_ms, reason)| Frame::Maintenance(Maintenance { for_ms, promise_ms, reason })),
        any::<u64>().prop_map(|nonce| Frame::Challenge { nonce }),
        (any::<u64>(), beat()).prop_map(|(nonce, beat)| Frame::Answer { nonce, beat }),
        (id.clone(), any::<u32>()).prop_map(|(stream, bytes)| Frame::Credit { stream, bytes }),
        id.clone().prop_map(|stream| Frame::Fin { stream }),
        id.prop_map(|stream| Frame::Reset { stream, reason: ResetReason::Io }),
        any::<u32>().prop_map(|deadline_ms| Frame::Goaway { deadline_ms }),
    ]
}

/// Events as owned values, the parts of one DATA frame joined.
#[derive(Debug, PartialEq)]
enum Seen {
    Data(u32, Vec<u8>),
    Frame(Frame),
    Skipped(u8, u32),
}

fn decode(parts: &[&[u8]]) -> Result<Vec<Seen>, WireError> {
    let mut d = Decoder::new(Limits::default());
    let mut seen = Vec::new();
    for part in parts {
        let mut input = *part;
        while let Some(e) = d.next(&mut input)? {
            match e {
                Event::Data { stream, bytes, first: true, .. } => seen.push(Seen::Data(stream, bytes.to_vec())),
                Event::Data { bytes, .. } => match seen.last_mut() {
                    Some(Seen::Data(_, b)) => b.extend_from_slice(bytes),
                    other => panic!("a part without a first: {other:?}"),
                },
                Event::Frame(f) => seen.push(Seen::Frame(f)),
                Event::Skipped { kind, len } => seen.push(Seen::Skipped(kind, len)),
            }
        }
        assert!(input.is_empty(), "all of the input is consumed");
        assert!(d.held() <= 2048, "held {}", d.held());
    }
    Ok(seen)
}

proptest! {
    #[test]
    fn decode_is_the_inverse_of_encode(f in frame()) {
        let mut b = BytesMut::new();
        f.encode(&mut b);
        prop_assert_eq!(decode(&[&b]).unwrap(), vec![Seen::Frame(f)]);
    }

    #[test]
    fn any_split_gives_the_same_events(
        fs in prop::collection::vec(frame(), 1..6),
        data in prop::collection::vec(any::<u8>(), 0..300),
        cuts in prop::collection::vec(0usize..1500, 0..12),
    ) {
        let mut b = BytesMut::new();
        for f in &fs {
            f.encode(&mut b);
            b.extend_from_slice(&crate::wire::data_header(5, data.len() as u32));
            b.extend_from_slice(&data);
            b.extend_from_slice(&Header { kind: 99, flags: 3, len: 3, stream: 0 }.encode());
            b.extend_from_slice(b"xyz");
        }
        let whole = decode(&[&b]).unwrap();
        let mut cuts: Vec<_> = cuts.into_iter().map(|c| c.min(b.len())).collect();
        cuts.push(0);
        cuts.push(b.len());
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|w| &b[w[0]..w[1]]).collect();
        prop_assert_eq!(decode(&parts).unwrap(), whole);
        let bytewise: Vec<&[u8]> = b.chunks(1).collect();
        prop_assert_eq!(decode(&bytewise).unwrap().len(), fs.len() * 3);
    }

    #[test]
    fn garbage_is_an_error_or_events_never_a_panic(b in prop::collection::vec(any::<u8>(), 0..4000), n in 1usize..64) {
        let parts: Vec<&[u8]> = b.chunks(n).collect();
        let _ = decode(&parts);
    }
}

#[test]
fn a_beat_takes_at_most_64_bytes() {
    let mut b = BytesMut::new();
    Frame::Beat(Beat::default()).encode(&mut b);
    assert!(b.len() <= 64, "{}", b.len());
}

#[test]
fn caps_are_checked_from_the_header() {
    let long = |kind: Kind, len, stream| Header { kind: kind as u8, flags: 0, len, stream }.encode();
    assert_eq!(decode(&[&long(Kind::Data, 262_145, 1)]), Err(WireError::TooLong(7)));
    assert_eq!(decode(&[&long(Kind::Hello, 1025, 0)]), Err(WireError::TooLong(1)));
    assert_eq!(decode(&[&long(Kind::Data, 1, 0)]), Err(WireError::WrongStream(7)));
    assert_eq!(decode(&[&long(Kind::Beat, 29, 4)]), Err(WireError::WrongStream(8)));
    assert_eq!(decode(&[&long(Kind::Challenge, 7, 0), &[0; 7]]), Err(WireError::TooShort(11)));
    let skip = Header { kind: 200, flags: 0, len: 65_537, stream: 0 }.encode();
    assert_eq!(decode(&[&skip]), Err(WireError::TooLong(200)));
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    let mut b = BytesMut::new();
    b.extend_from_slice(&Header { kind: Kind::Credit as u8, flags: 0xf, len: 8, stream: 3 }.encode());
    b.extend_from_slice(&[0, 0, 1, 0, 9, 9, 9, 9]);
    assert_eq!(decode(&[&b]).unwrap(), vec![Seen::Frame(Frame::Credit { stream: 3, bytes: 256 })]);
}

#[test]
fn an_empty_data_frame_is_one_event() {
    let h = crate::wire::data_header(7, 0);
    assert_eq!(decode(&[&h]).unwrap(), vec![Seen::Data(7, vec![])]);
}

#[test]
fn long_text_is_cut_at_a_character() {
    let mut b = BytesMut::new();
    Frame::Open { stream: 1, service: "é".repeat(200) }.encode(&mut b);
    let Ok(seen) = decode(&[&b]) else { panic!() };
    assert_eq!(seen, vec![Seen::Frame(Frame::Open { stream: 1, service: "é".repeat(127) })]);
}

#[test]
fn greetings() {
    assert_eq!(parse_greeting(&greeting()), Ok(VERSION));
    let mut g = greeting();
    g[8..].copy_from_slice(&[0, 9, 0, 5]);
    assert_eq!(parse_greeting(&g), Err(WireError::NoCommonVersion));
    g[0] = b'2';
    assert_eq!(parse_greeting(&g), Err(WireError::BadMagic));
}

#[test]
fn a_payload_may_be_taken_by_other_means() {
    let mut d = Decoder::new(Limits::default());
    let mut b = crate::wire::data_header(4, 10).to_vec();
    b.extend_from_slice(b"abc");
    let mut input = &b[..];
    assert!(matches!(d.next(&mut input), Ok(Some(Event::Data { bytes: b"abc", first: true, last: false, .. }))));
    assert_eq!(d.data_remaining(), Some((4, 7)));
    d.skip_data(7);
    assert!(!d.is_mid_frame());
}
