//! Properties of the codec as a whole.

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::verdict::Vouch;

/// One event without borrowing; the pieces of a DATA payload are joined.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Data { stream: u32, bytes: Vec<u8> },
    Frame(Frame),
    Skipped { kind: u8, len: u32 },
}

/// Decodes `pieces` one after the other and checks what must hold at every moment.
fn decode<'a>(limits: Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Seen>, Option<WireError>) {
    let mut decoder = Decoder::new(limits);
    let mut seen = Vec::new();
    let mut data: Option<(u32, Vec<u8>)> = None;
    for piece in pieces {
        let mut input = piece;
        loop {
            let event = match decoder.next(&mut input) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => return (seen, Some(error)),
            };
            match event {
                Event::Data { stream, bytes, first, last } => {
                    assert_eq!(first, data.is_none());
                    assert!(!bytes.is_empty() || first && last);
                    let (of, mut joined) = data.take().unwrap_or((stream, Vec::new()));
                    assert_eq!(of, stream);
                    joined.extend_from_slice(bytes);
                    if last {
                        seen.push(Seen::Data { stream, bytes: joined });
                    } else {
                        data = Some((stream, joined));
                    }
                }
                Event::Frame(frame) => seen.push(Seen::Frame(frame)),
                Event::Skipped { kind, len } => seen.push(Seen::Skipped { kind, len }),
            }
        }
        assert!(input.is_empty(), "all is taken before None");
        assert!(decoder.buffered() <= MAX_CONTROL_PAYLOAD as usize);
    }
    (seen, None)
}

fn encoded(frame: &Frame) -> BytesMut {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out
}

fn raw(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Header { kind, flags: 0, len: payload.len() as u32, stream }.encode().to_vec();
    out.extend_from_slice(payload);
    out
}

fn next_of(bytes: &[u8]) -> Result<Option<Event<'_>>, WireError> {
    let mut input = bytes;
    Decoder::new(Limits::default()).next(&mut input)
}

fn beat() -> impl Strategy<Value = Beat> {
    let flags = any::<[bool; 5]>().prop_map(|[draining, frozen, starved, own_stall, degraded]| BeatFlags {
        draining,
        frozen,
        starved,
        own_stall,
        degraded,
    });
    let first = (any::<u32>(), any::<u16>(), flags, (0..9u8).prop_map(Vouch::from_code), any::<u32>());
    let second = (any::<u32>(), any::<u16>(), any::<u16>(), any::<u8>(), any::<u32>(), any::<u32>());
    (first, second).prop_map(|(a, b)| Beat {
        seq: a.0,
        promise_ms: a.1,
        flags: a.2,
        vouch: a.3,
        processing_us: a.4,
        utility: b.0,
        in_flight: b.1,
        oldest_ms: b.2,
        late_ms: b.3,
        heard_seq: b.4,
        heard_age_us: b.5,
    })
}

fn text(cap: usize) -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..=cap).prop_map(move |chars| {
        let text: String = chars.into_iter().collect();
        text[..text.floor_char_boundary(cap)].to_owned()
    })
}

fn hello() -> impl Strategy<Value = Frame> {
    let numbers = (any::<u16>(), any::<u32>(), any::<u64>(), any::<[u16; 5]>(), any::<u8>());
    (numbers, any::<[u8; 16]>(), text(NAME_CAP), text(NAME_CAP)).prop_map(|(n, trace, node, service)| {
        let [active_ms, idle_ms, accept_min_ms, want_active_ms, want_idle_ms] = n.3;
        Frame::Hello(Hello {
            version: n.0,
            features: n.1,
            incarnation: n.2,
            node,
            service,
            active_ms,
            idle_ms,
            accept_min_ms,
            want_active_ms,
            want_idle_ms,
            hops: n.4,
            trace,
        })
    })
}

fn welcome() -> impl Strategy<Value = Frame> {
    let numbers = (any::<u16>(), any::<u32>(), any::<u64>(), any::<[u16; 3]>(), any::<u32>());
    (numbers, text(NAME_CAP)).prop_map(|((version, features, incarnation, ms, initial_credit), node)| {
        let [active_ms, idle_ms, accept_min_ms] = ms;
        Frame::Welcome(Welcome {
            version,
            features,
            incarnation,
            node,
            active_ms,
            idle_ms,
            accept_min_ms,
            initial_credit,
        })
    })
}

fn backpressure() -> impl Strategy<Value = Frame> {
    (any::<bool>(), any::<u16>(), any::<u32>(), any::<u32>(), any::<u16>()).prop_map(
        |(active, occupancy, queued, since_ms, promise_ms)| {
            Frame::Backpressure(Backpressure { active, occupancy, queued, since_ms, promise_ms })
        },
    )
}

/// Every kind of frame, short texts being as likely as long ones.
fn frame() -> impl Strategy<Value = Frame> {
    let stream = 1..=u32::MAX;
    let refuse_code = any::<u16>().prop_map(|code| RefuseCode::from_code(code % 10));
    let reason = any::<u16>().prop_map(|code| ResetReason::from_code(code % 8));
    prop_oneof![
        hello(),
        welcome(),
        (refuse_code, text(TEXT_CAP)).prop_map(|(code, text)| Frame::Refuse { code, text }),
        (stream.clone(), text(NAME_CAP)).prop_map(|(stream, service)| Frame::Open { stream, service }),
        stream.clone().prop_map(|stream| Frame::Opened { stream }),
        (stream.clone(), any::<u16>(), text(TEXT_CAP)).prop_map(|(stream, errno, text)| Frame::OpenFailed {
            stream,
            errno,
            text
        }),
        beat().prop_map(Frame::Beat),
        backpressure(),
        (any::<u32>(), any::<u16>(), text(REASON_CAP)).prop_map(|(for_ms, promise_ms, reason)| {
            Frame::Maintenance(Maintenance { for_ms, promise_ms, reason })
        }),
        any::<u64>().prop_map(|nonce| Frame::Challenge { nonce }),
        (any::<u64>(), beat()).prop_map(|(nonce, beat)| Frame::Answer { nonce, beat }),
        (stream.clone(), any::<u32>()).prop_map(|(stream, bytes)| Frame::Credit { stream, bytes }),
        stream.clone().prop_map(|stream| Frame::Fin { stream }),
        (stream, reason).prop_map(|(stream, reason)| Frame::Reset { stream, reason }),
        any::<u32>().prop_map(|deadline_ms| Frame::Goaway { deadline_ms }),
    ]
}

/// What a well-behaved peer of this or a later version sends.
fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        3 => frame().prop_map(Seen::Frame),
        2 => (1..=u32::MAX, vec(any::<u8>(), 0..200)).prop_map(|(stream, bytes)| Seen::Data { stream, bytes }),
        1 => (17..=u8::MAX, 0..200u32).prop_map(|(kind, len)| Seen::Skipped { kind, len }),
    ]
}

fn write(seen: &Seen, out: &mut BytesMut) {
    match seen {
        Seen::Frame(frame) => frame.encode(out),
        Seen::Data { stream, bytes } => {
            out.extend_from_slice(&data_header(*stream, bytes.len() as u32));
            out.extend_from_slice(bytes);
        }
        Seen::Skipped { kind, len } => out.extend_from_slice(&raw(*kind, 7, &vec![0xaa; *len as usize])),
    }
}

/// Cuts `bytes` at the given places, taken modulo the rest.
fn cut<'a>(bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for place in places {
        let (piece, next) = rest.split_at(place % (rest.len() + 1));
        pieces.push(piece);
        rest = next;
    }
    pieces.push(rest);
    pieces
}

proptest! {
    #[test]
    fn a_header_round_trips(kind: u8, flags in 0..16u8, len in 0..=MAX_PAYLOAD, stream: u32) {
        let header = Header { kind, flags, len, stream };
        prop_assert_eq!(Header::decode(&header.encode()), header);
    }

    #[test]
    fn a_frame_round_trips(frame in frame()) {
        let bytes = encoded(&frame);
        let len = (bytes.len() - HEADER_LEN) as u32;
        prop_assert!(len >= frame.kind().rule().min && len <= frame.kind().payload_cap());
        let mut input = &bytes[..];
        let mut decoder = Decoder::new(Limits::default());
        prop_assert_eq!(decoder.next(&mut input), Ok(Some(Event::Frame(frame))));
        prop_assert!(input.is_empty() && !decoder.is_mid_frame());
    }

    #[test]
    fn a_longer_frame_of_a_later_version_is_understood(frame in frame(), more in 1..=1024usize) {
        let bytes = encoded(&frame);
        let mut payload = bytes[HEADER_LEN..].to_vec();
        let room = frame.kind().payload_cap() as usize - payload.len();
        payload.resize(payload.len() + more.min(room), 0xff);
        let bytes = raw(frame.kind().code(), frame.stream(), &payload);
        prop_assert_eq!(next_of(&bytes), Ok(Some(Event::Frame(frame))));
    }

    #[test]
    fn any_cut_gives_the_same_events(sent in vec(seen(), 0..12), places in vec(0..300usize, 0..40)) {
        let mut bytes = BytesMut::new();
        sent.iter().for_each(|seen| write(seen, &mut bytes));
        let (got, error) = decode(Limits::default(), cut(&bytes, &places));
        prop_assert_eq!(error, None);
        prop_assert_eq!(&got, &sent);
        let (got, error) = decode(Limits::default(), bytes.chunks(1));
        prop_assert_eq!(error, None);
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn garbage_gives_the_same_however_cut(bytes in vec(any::<u8>(), 0..600), places in vec(0..60usize, 0..30)) {
        let whole = decode(Limits::default(), [&bytes[..]]);
        prop_assert_eq!(decode(Limits::default(), cut(&bytes, &places)), whole.clone());
        prop_assert_eq!(decode(Limits::default(), bytes.chunks(1)), whole);
    }

    #[test]
    fn garbage_behind_a_plausible_header(
        kind in 0..20u8, stream in 0..2u32, len in 0..1100u32, payload in vec(any::<u8>(), 1100), cut_at in 0..1100usize,
    ) {
        let mut bytes = Header { kind, flags: 0, len, stream }.encode().to_vec();
        bytes.extend_from_slice(&payload);
        let whole = decode(Limits::default(), [&bytes[..]]);
        prop_assert_eq!(decode(Limits::default(), [&bytes[..cut_at], &bytes[cut_at..]]), whole);
    }

    #[test]
    fn one_flipped_bit_never_panics(sent in vec(seen(), 1..6), bit: usize) {
        let mut bytes = BytesMut::new();
        sent.iter().for_each(|seen| write(seen, &mut bytes));
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let whole = decode(Limits::default(), [&bytes[..]]);
        prop_assert_eq!(decode(Limits::default(), bytes.chunks(3)), whole);
    }

    #[test]
    fn texts_are_cut_at_a_character(chars in vec(any::<char>(), 0..400)) {
        let reason: String = chars.iter().collect();
        let sent = Frame::Maintenance(Maintenance { for_ms: 1, promise_ms: 2, reason: reason.clone() });
        let Ok(Some(Event::Frame(Frame::Maintenance(got)))) = next_of(&encoded(&sent)) else {
            return Err(TestCaseError::fail("not understood"));
        };
        prop_assert!(reason.starts_with(&got.reason));
        prop_assert!(got.reason == reason || got.reason.len() > REASON_CAP - 4);
    }
}

#[test]
fn a_beat_is_small_on_the_wire() {
    let bytes = encoded(&Frame::Beat(Beat { seq: u32::MAX, late_ms: 255, ..Beat::default() }));
    assert_eq!(bytes.len(), BEAT_WIRE_LEN);
    assert!(bytes.len() <= 64, "rows H2 and T2");
    let answer = encoded(&Frame::Answer { nonce: u64::MAX, beat: Beat::default() });
    assert!(answer.len() <= 128, "row T2");
}

#[test]
fn the_bytes_of_a_beat_are_fixed() {
    let beat = Beat {
        seq: 0x0102_0304,
        promise_ms: 0x0506,
        flags: BeatFlags { frozen: true, own_stall: true, ..BeatFlags::default() },
        vouch: Vouch::Stalled,
        processing_us: 0x0708_090a,
        utility: 0x0b0c_0d0e,
        in_flight: 0x0f10,
        oldest_ms: 0x1112,
        late_ms: 0x1b,
        heard_seq: 0x1314_1516,
        heard_age_us: 0x1718_191a,
    };
    let expected = [
        [8, 0, 0, 29, 0, 0, 0, 0].as_slice(),
        &[1, 2, 3, 4, 5, 6, 0b1010, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18],
        &[19, 20, 21, 22, 23, 24, 25, 26, 27],
    ]
    .concat();
    assert_eq!(encoded(&Frame::Beat(beat))[..], expected[..]);
}

#[test]
fn the_bytes_of_a_header_are_fixed() {
    assert_eq!(data_header(0x0102_0304, 0x0f_edcb), [7, 0x0f, 0xed, 0xcb, 1, 2, 3, 4]);
    let header = Header { kind: 0xab, flags: 0xc, len: 0xd_ef01, stream: 9 };
    assert_eq!(header.encode(), [0xab, 0xcd, 0xef, 0x01, 0, 0, 0, 9]);
}

#[test]
#[should_panic(expected = "MAX_PAYLOAD")]
fn a_length_beyond_the_header_is_never_sent() {
    data_header(1, MAX_PAYLOAD + 1);
}

#[test]
fn every_control_kind_is_checked_by_its_header_alone() {
    let mut checked = 0;
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Data) {
        let (rule, right) = (kind.rule(), u32::from(kind.rule().scope == kind::Scope::Stream));
        let head = |len, stream| Header { kind: kind.code(), flags: 0, len, stream }.encode();
        let wrong = 1 - right;
        assert_eq!(next_of(&head(rule.min, wrong)), Err(WireError::WrongStream { kind, stream: wrong }));
        let len = rule.cap + 1;
        assert_eq!(next_of(&head(len, right)), Err(WireError::TooLong { kind, len, cap: rule.cap }));
        if rule.min > 0 {
            assert_eq!(
                next_of(&head(rule.min - 1, right)),
                Err(WireError::TooShort { kind, len: rule.min - 1 })
            );
            assert_eq!(next_of(&head(rule.cap, right)), Ok(None));
        }
        checked += 1;
    }
    assert_eq!(checked, 15);
}

#[test]
fn data_is_bounded_and_never_of_the_link() {
    assert_eq!(next_of(&data_header(0, 5)), Err(WireError::WrongStream { kind: Kind::Data, stream: 0 }));
    let max = Limits::default().max_data;
    assert_eq!(next_of(&data_header(1, max)), Ok(None));
    assert_eq!(next_of(&data_header(1, max + 1)), Err(WireError::DataTooLong { len: max + 1, max }));
}

#[test]
fn empty_data_is_an_event() {
    let event = Event::Data { stream: 3, bytes: &[], first: true, last: true };
    assert_eq!(next_of(&data_header(3, 0)), Ok(Some(event)));
}

#[test]
fn unknown_kinds_are_skipped_up_to_a_limit() {
    let max = Limits::default().max_skip;
    let head = |len| Header { kind: 200, flags: 15, len, stream: 0 }.encode();
    assert_eq!(next_of(&head(max + 1)), Err(WireError::SkipTooLong { kind: 200, len: max + 1, max }));
    let bytes = [&head(max)[..], &vec![0; max as usize], &encoded(&Frame::Fin { stream: 2 })].concat();
    let expected = vec![Seen::Skipped { kind: 200, len: max }, Seen::Frame(Frame::Fin { stream: 2 })];
    assert_eq!(decode(Limits::default(), bytes.chunks(1000)), (expected, None));
}

#[test]
fn codes_of_later_versions_read_as_other() {
    let refuse = Frame::Refuse { code: RefuseCode::Other, text: "x".into() };
    assert_eq!(next_of(&raw(3, 0, &[0x12, 0x34, 1, b'x'])), Ok(Some(Event::Frame(refuse))));
    let reset = Frame::Reset { stream: 1, reason: ResetReason::Other };
    assert_eq!(next_of(&raw(15, 1, &[0, 99])), Ok(Some(Event::Frame(reset))));
    let mut beat = [0; 29];
    beat[7] = 200;
    let expected = Frame::Beat(Beat { vouch: Vouch::Unknown, ..Beat::default() });
    assert_eq!(next_of(&raw(8, 0, &beat)), Ok(Some(Event::Frame(expected))));
}

#[test]
fn texts_are_checked() {
    let open = |payload: &[u8]| next_of(&raw(4, 1, payload)).map(|event| event.is_some());
    assert_eq!(open(&[2, b'a', b'b']), Ok(true));
    assert_eq!(open(&[2, 0xff, 0xfe]), Err(WireError::BadUtf8 { kind: Kind::Open }));
    assert_eq!(open(&[3, b'a', b'b']), Err(WireError::TooShort { kind: Kind::Open, len: 3 }));
    let mut pause = vec![0; 7 + 129];
    pause[6] = 129;
    let error = WireError::TextTooLong { kind: Kind::Maintenance, len: 129, cap: 128 };
    assert_eq!(next_of(&raw(9 + 1, 0, &pause)), Err(error));
}

#[test]
fn an_error_is_for_ever() {
    let mut decoder = Decoder::new(Limits::default());
    let error = WireError::WrongStream { kind: Kind::Fin, stream: 0 };
    let good = encoded(&Frame::Fin { stream: 1 });
    assert_eq!(decoder.next(&mut &raw(14, 0, &[])[..]), Err(error));
    for mut input in [&good[..], &[]] {
        assert_eq!(decoder.next(&mut input), Err(error));
    }
    assert!(decoder.is_mid_frame());
    assert_eq!(decoder.data_remaining(), None);
}

#[test]
fn every_error_has_a_label_of_its_own() {
    let kind = Kind::Open;
    let all = [
        WireError::BadMagic,
        WireError::NoCommonVersion { highest: 1, lowest: 1 },
        WireError::TooLong { kind, len: 1, cap: 1 },
        WireError::TooShort { kind, len: 1 },
        WireError::TextTooLong { kind, len: 1, cap: 1 },
        WireError::BadUtf8 { kind },
        WireError::DataTooLong { len: 1, max: 1 },
        WireError::SkipTooLong { kind: 99, len: 1, max: 1 },
        WireError::WrongStream { kind, stream: 1 },
    ];
    assert_eq!(all.map(|error| error.label()), WireError::LABELS);
    assert!(all.iter().all(|error| !error.to_string().is_empty()));
}

#[test]
fn a_buffer_exists_only_while_a_control_frame_is_split() {
    let hello = Frame::Hello(Hello {
        version: 1,
        features: 0,
        incarnation: 5,
        node: "n".repeat(255),
        service: "s".repeat(255),
        active_ms: 20,
        idle_ms: 100,
        accept_min_ms: 10,
        want_active_ms: 20,
        want_idle_ms: 100,
        hops: 0,
        trace: [7; 16],
    });
    let bytes = encoded(&hello);
    let mut decoder = Decoder::new(Limits::default());
    let (mut head, mut tail) = bytes.split_at(HEADER_LEN);
    assert_eq!(decoder.next(&mut head), Ok(None));
    assert_eq!(decoder.buffered(), 0, "an announced length alone costs nothing");
    let mut some = &tail[..1];
    assert_eq!(decoder.next(&mut some), Ok(None));
    assert!(decoder.is_mid_frame());
    assert!((1..=1024).contains(&decoder.buffered()));
    tail = &tail[1..];
    assert_eq!(decoder.next(&mut tail), Ok(Some(Event::Frame(hello))));
    assert_eq!(decoder.buffered(), 0);
    assert!(!decoder.is_mid_frame());
}

#[test]
fn data_is_borrowed_and_beats_hold_nothing() {
    let mut batch = BytesMut::new();
    batch.extend_from_slice(&data_header(5, 1024));
    batch.extend_from_slice(&[1; 1024]);
    Frame::Beat(Beat::default()).encode(&mut batch);
    let range = batch.as_ptr_range();
    let mut decoder = Decoder::new(Limits::default());
    let mut input = &batch[..];
    let mut events = 0;
    while let Some(event) = decoder.next(&mut input).unwrap() {
        if let Event::Data { bytes, .. } = event {
            assert!(range.contains(&bytes.as_ptr()));
        }
        assert_eq!(decoder.buffered(), 0);
        events += 1;
    }
    assert_eq!(events, 2);
}

#[test]
fn a_payload_can_be_taken_past_the_decoder() {
    let mut decoder = Decoder::new(Limits::default());
    let head = data_header(9, 1000);
    assert_eq!(decoder.next(&mut &head[..]), Ok(None));
    assert_eq!(decoder.data_remaining(), Some((9, 1000)));
    decoder.skip_data(0);
    decoder.skip_data(400);
    assert_eq!(decoder.data_remaining(), Some((9, 600)));
    let event = Event::Data { stream: 9, bytes: &[1, 2], first: false, last: false };
    assert_eq!(decoder.next(&mut &[1, 2][..]), Ok(Some(event)));
    decoder.skip_data(598);
    assert_eq!(decoder.data_remaining(), None);
    assert!(!decoder.is_mid_frame());
    let fin = encoded(&Frame::Fin { stream: 9 });
    assert_eq!(decoder.next(&mut &fin[..]), Ok(Some(Event::Frame(Frame::Fin { stream: 9 }))));
    decoder.skip_data(5);
    assert!(!decoder.is_mid_frame(), "outside of a payload nothing is skipped");
}

#[test]
fn before_the_hello_only_control_frames_are_taken() {
    let mut decoder = Decoder::new(Limits::HANDSHAKE);
    let http = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let error = decoder.next(&mut &http[..]).unwrap_err();
    assert_eq!(error.label(), "skip_too_long");
    let mut decoder = Decoder::new(Limits::HANDSHAKE);
    assert_eq!(decoder.next(&mut &data_header(1, 1)[..]), Err(WireError::DataTooLong { len: 1, max: 0 }));
    let mut decoder = Decoder::new(Limits::HANDSHAKE);
    decoder.set_limits(Limits::default());
    assert_eq!(decoder.next(&mut &data_header(1, 1)[..]), Ok(None));
}
