//! A scripted acceptor that breaks the rules of frames, streams and credit: it loses the stream or the link, its own
//! clients are told, and nobody else notices.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use sidebeat::verdict::{Cause, State};
use sidebeat::wire::{Beat, Frame, Header, Kind, RefuseCode, ResetReason};

use crate::far::{At, Far, Manner, Outbound};
use crate::near::{fill, read_all};
use crate::outbound::{client_on, narrow_client};
use crate::peer::{Auto, Opens, Peer, data_frame, encoded, hello};
use crate::support::eventually;
use crate::support::rng::Rng;
use crate::support::service::{HANG, Service, connect, round_trip};

/// An id that no stream of these tests ever has.
const NEVER: u32 = 1_000_000;
/// Credit of a new stream.
pub(crate) const INITIAL: u64 = 256 * 1024;

pub(crate) fn echoing() -> Auto {
    Auto { echo: true, ..Auto::default() }
}

fn header(kind: u8, len: u32, stream: u32) -> Vec<u8> {
    Header { kind, flags: 0, len, stream }.encode().to_vec()
}

/// Other clients are served, on whatever link.
pub(crate) fn lives(outbound: &Outbound) {
    outbound.wait_state(0, State::Active);
    eventually(HANG, "work for others", || {
        round_trip(&mut connect(outbound.addr), &mut Rng::new(3)).map_err(|e| e.to_string())
    });
}

/// A client whose stream carries bytes both ways, and that stream.
fn talking(outbound: &Outbound, far: &Far) -> (TcpStream, Peer, u32) {
    let mut client = connect(outbound.addr);
    round_trip(&mut client, &mut Rng::new(11)).expect("an honest beginning");
    let (link, stream) = far.opened();
    (client, link, stream)
}

type Abuse = (&'static str, fn(&Peer, u32));

const CLOSING: [Abuse; 20] = [
    ("OPENED for an id that never was", |p, _| p.say(&Frame::Opened { stream: NEVER })),
    ("OPEN_FAILED for an id that never was", |p, _| {
        p.say(&Frame::OpenFailed { stream: NEVER, errno: 111, text: String::new() });
    }),
    ("DATA for an id that never was", |p, _| p.data(NEVER, b"?")),
    ("FIN for an id that never was", |p, _| p.end(NEVER)),
    ("RESET for an id that never was", |p, _| p.reset(NEVER)),
    ("CREDIT for an id that never was", |p, _| p.credit(NEVER, 1)),
    ("credit beyond belief", |p, s| (0..3).for_each(|_| p.credit(s, u32::MAX))),
    ("OPEN from the side that may not", |p, s| p.open(s + 1)),
    ("a second welcome, or a hello", |p, _| p.say(&Frame::Hello(hello()))),
    ("a refusal that comes too late", |p, _| {
        p.say(&Frame::Refuse { code: RefuseCode::Draining, text: String::new() });
    }),
    ("DATA on stream 0", |p, _| p.raw(data_frame(0, b"?"))),
    ("OPENED on stream 0", |p, _| p.raw(header(Kind::Opened as u8, 0, 0))),
    ("a beat on a stream", |p, s| {
        p.raw([header(Kind::Beat as u8, 29, s), vec![0; 29]].concat());
    }),
    ("GOAWAY on a stream", |p, s| p.raw([header(Kind::Goaway as u8, 4, s), vec![0; 4]].concat())),
    ("a beat that is too short", |p, _| p.raw(header(Kind::Beat as u8, 3, 0))),
    ("a frame that is too long", |p, s| p.raw(header(Kind::Credit as u8, 65, s))),
    ("GOAWAY that is too long", |p, _| p.raw(header(Kind::Goaway as u8, 257, 0))),
    ("DATA that is too long", |p, s| p.raw(header(Kind::Data as u8, 300_000, s))),
    ("an unknown kind that is too long", |p, _| p.raw(header(99, 70_000, 0))),
    ("a text that is none", |p, s| {
        let text = [0, 111, 2, 0xff, 0xfe];
        p.raw([header(Kind::OpenFailed as u8, 5, s), text.to_vec()].concat());
    }),
];

#[test]
fn what_costs_an_acceptor_its_link() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    for (what, abuse) in CLOSING {
        lives(&outbound);
        while far.try_opened().is_some() {}
        let (mut client, link, stream) = talking(&outbound, &far);
        println!("{what}");
        abuse(&link, stream);
        link.wait_closed();
        let (got, error) = read_all(&mut client);
        assert_eq!((got.len(), error), (0, Some(std::io::ErrorKind::ConnectionReset)), "{what}");
    }
    lives(&outbound);
}

#[test]
fn what_costs_an_acceptor_nothing() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    let (mut client, link, stream) = talking(&outbound, &far);
    for kind in [0, 17, 42, 255] {
        for (len, stream) in [(0u32, 0), (1, stream), (64 * 1024, 999)] {
            link.raw([header(kind, len, stream), vec![kind; len as usize]].concat());
        }
    }
    link.say(&Frame::Opened { stream });
    link.say(&Frame::Opened { stream });
    link.credit(stream, 0);
    link.data(stream, b"");
    link.say(&Frame::Answer { nonce: 1, beat: Beat { promise_ms: 1500, ..Beat::default() } });
    link.sync();
    round_trip(&mut client, &mut Rng::new(12)).expect("the stream goes on");
    // What comes for a stream that is over may have been under way.
    link.reset(stream);
    assert_eq!(read_all(&mut client).1, Some(std::io::ErrorKind::ConnectionReset));
    link.say(&Frame::Opened { stream });
    link.say(&Frame::OpenFailed { stream, errno: 111, text: "late".to_owned() });
    link.data(stream, b"late");
    link.end(stream);
    (0..3).for_each(|_| link.credit(stream, u32::MAX));
    link.reset(stream);
    link.sync();
    eventually(HANG, "late frames are counted", || {
        let n = outbound.sidecar.metric("sidebeat_discarded_frames_total", &[]);
        if n >= Some(8.0) { Ok(()) } else { Err(format!("{n:?}")) }
    });
    assert!(!link.closed_now());
    lives(&outbound);
}

/// Ways to make a link: one for all streams, and one for each.
const MODES: [&str; 2] = ["shared", "per-connection"];

#[test]
fn data_beyond_the_credit_costs_its_stream_only() {
    for mode in MODES {
        let far = Far::start(Auto::default());
        let outbound = Outbound::with(&[&far], &format!("link_mode = \"{mode}\""), "");
        let mut deaf = narrow_client(outbound.addr);
        let (link, stream) = far.opened();
        let sent = fill(&link, stream, INITIAL, 1);
        link.data(stream, &[2; 50_000]);
        assert_eq!(link.wait_reset(stream), ResetReason::Protocol, "{mode}");
        let (got, error) = read_all(&mut deaf);
        assert_eq!(error, Some(std::io::ErrorKind::ConnectionReset), "{mode}");
        assert!(got.len() as u64 <= sent, "{mode}: {} bytes of {sent}", got.len());
        if mode == "shared" {
            link.sync();
        }
        far.pilot.set(|a| a.echo = true);
        lives(&outbound);
        assert!(!outbound.ever_failed(), "{mode}: {:#?}", outbound.events());
    }
}

#[test]
fn an_end_said_twice_is_one_end() {
    let far = Far::start(Auto::default());
    let outbound = Outbound::to(&[&far]);
    let mut client = connect(outbound.addr);
    let (link, stream) = far.opened();
    link.data(stream, b"answer");
    (0..3).for_each(|_| link.end(stream));
    assert_eq!(read_all(&mut client), (b"answer".to_vec(), None));
    client.write_all(b"and the other direction goes on").unwrap();
    assert_eq!(link.bytes_of(stream, 31), b"and the other direction goes on");
    link.end(stream);
    client.shutdown(Shutdown::Write).unwrap();
    link.wait_fin(stream);
    link.end(stream);
    link.sync();
    far.pilot.set(|a| a.echo = true);
    lives(&outbound);
}

#[test]
fn data_behind_an_end_costs_its_stream_only() {
    for mode in MODES {
        let far = Far::start(Auto::default());
        let outbound = Outbound::with(&[&far], &format!("link_mode = \"{mode}\""), "");
        let mut client = connect(outbound.addr);
        let (link, stream) = far.opened();
        link.data(stream, b"all");
        link.end(stream);
        let mut got = [0; 3];
        client.read_exact(&mut got).unwrap();
        link.data(stream, b"and more");
        assert_eq!(link.wait_reset(stream), ResetReason::Protocol, "{mode}");
        eventually(HANG, "the client is told", || match client.write_all(b"?") {
            Err(_) => Ok(()),
            Ok(()) => Err("it may still write".to_owned()),
        });
        if mode == "shared" {
            link.sync();
        }
        far.pilot.set(|a| a.echo = true);
        lives(&outbound);
    }
}

/// Who says that the service did not accept has no answer of it: bytes before OPENED must not be mixed with those of the
/// endpoint that is asked next.
#[test]
fn an_answer_before_opened_is_no_answer() {
    type Answer = fn(&Peer, u32);
    for answer in [(|p, s| p.data(s, b"forged")) as Answer, |p, s| p.end(s)] {
        let bad = Far::start(Auto { opens: Opens::Ignore, ..Auto::default() });
        let good = Far::start(echoing());
        let outbound = Outbound::to(&[&bad, &good]);
        let (mut client, link, stream) = client_on(&outbound, &[&bad, &good], b"question");
        answer(&link, stream);
        link.say(&Frame::OpenFailed { stream, errno: 110, text: "scripted".to_owned() });
        assert_eq!(link.wait_reset(stream), ResetReason::Protocol);
        let (got, error) = read_all(&mut client);
        assert_eq!((&got[..], error), (&b""[..], Some(std::io::ErrorKind::ConnectionReset)));
        link.sync();
    }
}

/// What may not come before WELCOME: everything else.
fn early() -> Vec<(&'static str, Vec<u8>)> {
    let frames = [
        ("a beat", Frame::Beat(Beat { promise_ms: 1500, ..Beat::default() })),
        ("OPENED", Frame::Opened { stream: 1 }),
        ("OPEN", Frame::Open { stream: 1, service: crate::support::pair::NAME.to_owned() }),
        ("CREDIT", Frame::Credit { stream: 1, bytes: u32::MAX }),
        ("FIN", Frame::Fin { stream: 1 }),
        ("GOAWAY", Frame::Goaway { deadline_ms: 0 }),
        ("a hello", Frame::Hello(hello())),
    ];
    let mut all: Vec<_> = frames.iter().map(|(what, f)| (*what, encoded(f))).collect();
    all.push(("DATA", data_frame(1, b"early")));
    all.push(("an unknown kind", header(42, 0, 0)));
    all.push(("a welcome that is too long", header(Kind::Welcome as u8, 600, 0)));
    all.push(("garbage", vec![0xff; 64]));
    all
}

#[test]
fn frames_before_the_welcome_make_no_link_and_plain_traffic_goes_on() {
    let table = early();
    assert_eq!(table.len(), 11);
    for (what, bytes) in table {
        let service = Service::echo();
        let far = Far::with(echoing(), Manner { early: bytes, ..Manner::default() });
        let outbound = Outbound::raw(&[At(service.addr, far.addr)], "", "");
        eventually(HANG, &format!("a dial that ended: {what}"), || match (far.dials(), far.connections()) {
            (1.., 0) => Ok(()),
            seen => Err(format!("dials and open connections: {seen:?}")),
        });
        for n in 0..10 {
            round_trip(&mut connect(outbound.addr), &mut Rng::new(n)).expect("plain");
        }
        assert_eq!(outbound.endpoint(0)["link"], "plain", "{what}");
        assert!(!outbound.ever_failed(), "{what}: {:#?}", outbound.events());
    }
}

/// Where nothing may go plain such a peer is no sidecar, until it behaves.
#[test]
fn frames_before_the_welcome_are_forgiven_once_they_stop() {
    for (what, bytes) in early() {
        let far = Far::with(echoing(), Manner { early: bytes, ..Manner::default() });
        let outbound = Outbound::raw(&[At(far.addr, far.addr)], "link = \"required\"", "");
        outbound.change(0, State::Failed, &[Cause::SidecarLost]);
        far.manner(|m| m.early.clear());
        println!("{what}");
        lives(&outbound);
    }
}
