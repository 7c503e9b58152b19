//! Each label of the counters about links, handshakes, gates and work that is turned away moves when its thing happens.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sidebeat::verdict::{Cause, State, Vouch};
use sidebeat::wire::{FEATURE_ONE_STREAM, Frame, Hello, RefuseCode, greeting};

use crate::far::{At, Far, Manner, Outbound};
use crate::near::{Hand, Inbound, greeted, read_all, wait_welcome};
use crate::peer::{Auto, Opens, Peer, encoded, hello};
use crate::support::pair::{Mode, Setup, Sidecar};
use crate::support::service::{HANG, Service, connect};
use crate::support::{Port, eventually, sized};

const HANDSHAKES: &str = "sidebeat_handshakes_total";
const LINK_ERRORS: &str = "sidebeat_link_errors_total";
const REJECTED: &str = "sidebeat_rejected_total";
const CLOSED: &str = "sidebeat_connections_closed_total";

fn counted(sidecar: &Sidecar, name: &str, labels: &[(&str, &str)]) -> f64 {
    sidecar.metric(name, labels).unwrap_or_else(|| panic!("no series {name} {labels:?}"))
}

/// Waits until it was counted at least once.
fn moves(sidecar: &Sidecar, name: &str, labels: &[(&str, &str)]) {
    eventually(HANG, &format!("{name} {labels:?} moves"), || match counted(sidecar, name, labels) {
        n if n > 0.0 => Ok(()),
        n => Err(format!("{n}\n{}", sidecar.log())),
    });
}

/// The sum of all series but these.
fn others(sidecar: &Sidecar, name: &str, but: &[(&str, &str)]) -> f64 {
    counted(sidecar, name, &[]) - counted(sidecar, name, but)
}

/// How a client is turned away; that may come before its connect is over.
pub(crate) fn turned_away(addr: SocketAddr) -> ErrorKind {
    let mut client = match TcpStream::connect(addr) {
        Ok(client) => client,
        Err(e) => return e.kind(),
    };
    client.set_read_timeout(Some(HANG)).unwrap();
    let (got, error) = read_all(&mut client);
    assert!(got.is_empty());
    error.expect("an error, for an end could be an empty answer")
}

/// Greets, reads a hello and hangs up.
fn hangs_up() -> Service {
    Service::start(|mut io| {
        let _ = io.write_all(&greeting());
        let _ = io.read(&mut [0; 1024]);
    })
}

#[test]
fn dials_by_their_result() {
    let far = Far::start(Auto::default());
    let refuses =
        Far::with(Auto::default(), Manner { refuses: Some(RefuseCode::NoSuchService), ..Manner::default() });
    let silent = Far::with(Auto::default(), Manner { welcomes: false, ..Manner::default() });
    let foreign = Far::with(
        Auto::default(),
        Manner { greeting: b"220 mail ESMTP\r\n".to_vec(), welcomes: false, ..Manner::default() },
    );
    let (nobody, rude, service) = (Port::pick(), hangs_up(), Service::echo());
    for (result, link) in [
        ("ok", far.addr),
        ("connect", nobody.addr()),
        ("refused", refuses.addr),
        ("timeout", silent.addr),
        ("protocol", foreign.addr),
        ("io", rude.addr),
    ] {
        let outbound = Outbound::raw(&[At(service.addr, link)], "", "");
        let labels = [("direction", "out"), ("result", result)];
        moves(&outbound.sidecar, HANDSHAKES, &labels);
        assert_eq!(others(&outbound.sidecar, HANDSHAKES, &labels), 0.0, "{result}");
    }
}

#[test]
fn handshakes_of_dialers_by_their_result() {
    let service = Service::echo();
    let inbound = Inbound::with(service.addr, "", "[limits]\nhello_timeout = \"500ms\"\n");
    let say = |bytes: &[u8]| {
        let mut io = connect(inbound.link);
        io.write_all(bytes).unwrap();
        io
    };
    let (_peer, _) = inbound.linked();
    inbound.refusal(Hello { service: "other".to_owned(), ..hello() });
    let _silent = connect(inbound.link);
    let _garbage = say(&[0xff; 64]);
    drop(say(&encoded(&Frame::Hello(hello()))[..5]));
    for result in ["ok", "refused", "timeout", "protocol", "io"] {
        moves(&inbound.sidecar, HANDSHAKES, &[("direction", "in"), ("result", result)]);
    }
}

#[test]
fn links_that_others_ended_by_how_they_did() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let flood = |p: &Peer| {
        let frames = encoded(&Frame::Credit { stream: 0, bytes: 0 });
        let credit = [&frames[..4], &1u32.to_be_bytes(), &frames[8..]].concat().repeat(50_000);
        p.open(1);
        p.wait_opened(1);
        (0..40).for_each(|_| p.raw(credit.clone()));
    };
    type End<'a> = (&'a str, &'a dyn Fn(&Peer));
    let table: [End<'_>; 4] = [
        ("eof", &|p| p.fin()),
        ("rst", &|p| p.rst()),
        ("protocol", &|p| p.say(&Frame::Hello(hello()))),
        ("limit", &flood),
    ];
    for (reason, end) in table {
        let peer = inbound.link();
        end(&peer);
        moves(&inbound.sidecar, LINK_ERRORS, &[("reason", reason)]);
    }
    assert_eq!(counted(&inbound.sidecar, LINK_ERRORS, &[]), 4.0, "each of them once");
}

/// A peer whose kernel takes nothing any more: the kernel of the sidecar gives the link up after 15 s.
#[test]
fn a_link_that_the_kernel_gives_up() {
    if sized(true, false) {
        return println!("only with SIDEBEAT_BIG=1: it takes a quarter of a minute");
    }
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = inbound.narrow_link();
    peer.open(1);
    let mut service = hand.next();
    peer.wait_opened(1);
    peer.pilot().set(|a| a.reads = false);
    service.write_all(&[1; 256 * 1024]).unwrap();
    moves(&inbound.sidecar, LINK_ERRORS, &[("reason", "timeout")]);
}

#[test]
fn links_of_ours_by_how_they_ended() {
    let far = Far::start(Auto::default());
    let outbound = Outbound::to(&[&far]);
    let again = || {
        eventually(HANG, "a new link", || match far.live_links().first() {
            Some(link) => Ok(link.clone()),
            None => Err("none".to_owned()),
        })
    };
    for (reason, end) in [("eof", Peer::fin as fn(&Peer)), ("rst", Peer::rst)] {
        end(&again());
        moves(&outbound.sidecar, LINK_ERRORS, &[("reason", reason)]);
    }
    again().say(&Frame::Hello(hello()));
    moves(&outbound.sidecar, LINK_ERRORS, &[("reason", "protocol")]);
    assert_eq!(counted(&outbound.sidecar, LINK_ERRORS, &[("reason", "failed")]), 0.0);
    // All links fall silent, and another process answers behind the address: the old ones lead nowhere.
    again();
    outbound.wait_state(0, State::Active);
    far.pilot.set(|a| (a.every, a.answers) = (None, false));
    eventually(HANG, "a link that is not trusted is cut", || {
        // Another one each time: a dial that was under way may have found the first one while the old link was trusted.
        far.manner(|m| m.incarnation += 1);
        match counted(&outbound.sidecar, LINK_ERRORS, &[("reason", "failed")]) {
            n if n > 0.0 => Ok(()),
            n => Err(format!("{n}: {}", outbound.sidecar.status())),
        }
    });
}

/// A bug of an earlier version: the link of a connection that was over looked as if its peer were on its way out, and who
/// is on its way out is never FAILED.
#[test]
fn the_end_of_a_link_of_one_stream_is_neither_an_error_nor_a_drain() {
    let service = Service::echo();
    let pair = Setup::mode(service.addr, Mode::PerConnection).start();
    for n in 0..3u8 {
        let mut client = connect(pair.addr);
        client.write_all(&[n]).unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    eventually(HANG, "all three are over", || {
        match counted(&pair.near, CLOSED, &[("direction", "out"), ("reason", "fin")]) {
            n if n >= 3.0 => Ok(()),
            n => Err(n.to_string()),
        }
    });
    eventually(HANG, "their links are over", || match counted(pair.far(), "sidebeat_links_active", &[]) {
        n if n <= 2.0 => Ok(()),
        n => Err(n.to_string()),
    });
    let status = pair.near.status();
    assert!(!status.contains("draining\":true") && !status.contains("\"cause\":\"draining\""), "{status}");
    assert!(pair.near.events().iter().all(|e| !e.contains("draining")), "{:?}", pair.near.events());
    for sidecar in pair.sidecars() {
        assert_eq!(counted(sidecar, LINK_ERRORS, &[]), 0.0, "{}: {}", sidecar.name, sidecar.log());
    }
    pair.finish();
}

#[test]
fn a_link_of_one_stream_that_never_carried_it_ended_unplanned() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = greeted(inbound.link, false);
    peer.say(&Frame::Hello(Hello { features: FEATURE_ONE_STREAM, ..hello() }));
    wait_welcome(&peer);
    peer.fin();
    moves(&inbound.sidecar, LINK_ERRORS, &[("reason", "eof")]);
}

#[test]
fn the_panic_rule_counts_what_it_holds_back() {
    let (a, b) = (Far::start(Auto::default()), Far::start(Auto::default()));
    let panic = [("gate", "panic")];
    let alone = Outbound::to(&[&a]);
    a.pilot.set(|p| p.vouch = Vouch::Gone);
    alone.change(0, State::Failed, &[Cause::Crash]);
    moves(&alone.sidecar, "sidebeat_gate_holds_total", &panic);
    // Proof takes any number out where there are several.
    a.pilot.set(|p| p.vouch = Vouch::Idle);
    let two = Outbound::to(&[&a, &b]);
    a.pilot.set(|p| p.vouch = Vouch::Gone);
    two.change(0, State::Failed, &[Cause::Crash]);
    assert_eq!(counted(&two.sidecar, "sidebeat_gate_holds_total", &panic), 0.0);
}

#[test]
fn connections_that_are_turned_away_by_reason() {
    let (far, service) = (Far::start(Auto::default()), Service::echo());
    // More than there may be: RST, for FIN could be an empty answer.
    let limited = Outbound::with(&[&far], "", "[limits]\nconnections = 2\n");
    let kept: Vec<_> = (0..2).map(|_| connect(limited.addr)).collect();
    (0..2).for_each(|_| drop(far.opened()));
    assert_eq!(turned_away(limited.addr), ErrorKind::ConnectionReset);
    moves(&limited.sidecar, REJECTED, &[("reason", "limit")]);
    drop(kept);
    // Each endpoint was tried.
    let nobody = Port::pick();
    let off = "link = \"off\"";
    let gone = Outbound::raw(&[At(nobody.addr(), nobody.addr())], off, "");
    assert_eq!(turned_away(gone.addr), ErrorKind::ConnectionReset);
    moves(&gone.sidecar, REJECTED, &[("reason", "unreachable")]);
    // None is worth a try.
    let two = [Port::pick(), Port::pick()];
    let out = Outbound::raw(&two.each_ref().map(|p| At(p.addr(), p.addr())), off, "");
    eventually(HANG, "both are out", || {
        turned_away(out.addr);
        match counted(&out.sidecar, REJECTED, &[("reason", "no_endpoint")]) {
            n if n > 0.0 => Ok(()),
            n => Err(n.to_string()),
        }
    });
    // A sidecar that we do not want as a peer, and a stream more than a link may have.
    let picky = Inbound::with(service.addr, "allow = [\"10.0.0.0/8\"]", "");
    assert_eq!(picky.refusal(hello()).0, RefuseCode::NotAllowed);
    moves(&picky.sidecar, REJECTED, &[("reason", "not_allowed")]);
    let narrow = Inbound::with(service.addr, "", "[limits]\nstreams_per_link = 1\n");
    let peer = narrow.link();
    peer.open(1);
    peer.open(2);
    moves(&narrow.sidecar, REJECTED, &[("reason", "limit")]);
}

#[test]
fn connections_that_ended_by_reason() {
    let far = Far::start(Auto { echo: true, ..Auto::default() });
    let outbound = Outbound::with(&[&far], "cut_after = \"100ms\"", "");
    let ends = |reason: &str| moves(&outbound.sidecar, CLOSED, &[("direction", "out"), ("reason", reason)]);
    let stream = || {
        let mut client = connect(outbound.addr);
        client.write_all(b"?").unwrap();
        client.read_exact(&mut [0]).unwrap();
        (client, far.opened())
    };
    let (client, _) = stream();
    drop(client);
    ends("fin");
    let (_client, (link, id)) = stream();
    link.reset(id);
    ends("rst");
    let (_client, (link, _)) = stream();
    link.rst();
    ends("link_lost");
    eventually(HANG, "a new link", || if far.live_links().is_empty() { Err(String::new()) } else { Ok(()) });
    outbound.wait_state(0, State::Active);
    let (_client, _) = stream();
    far.pilot.set(|a| a.vouch = Vouch::Gone);
    ends("failed");
    far.pilot.set(|a| (a.vouch, a.opens) = (Vouch::Running, Opens::Fail(111)));
    outbound.wait_state(0, State::Active);
    turned_away(outbound.addr);
    ends("open_failed");
}

/// Bytes of both directions, as an application counts them, whether or not there is a link.
#[test]
fn payload_is_counted_with_and_without_a_link() {
    let service = Service::echo();
    for mode in [Mode::Shared, Mode::Plain] {
        let pair = Setup::mode(service.addr, mode).start();
        let mut client = connect(pair.addr);
        client.write_all(&[1; 5000]).unwrap();
        client.read_exact(&mut [0; 5000]).unwrap();
        for direction in ["in", "out"] {
            eventually(HANG, &format!("5000 bytes {direction} in {mode:?}"), || {
                match counted(&pair.near, "sidebeat_bytes_total", &[("direction", direction)]) {
                    5000.0 => Ok(()),
                    n => Err(n.to_string()),
                }
            });
        }
        drop(client);
        pair.finish();
    }
}

/// Garbage, another version, an address that is not allowed: each costs a line with address and reason, and a flood of them
/// a few.
#[test]
fn who_is_turned_away_leaves_a_line_with_its_address() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let line = |inbound: &Inbound, from: SocketAddr, reason: &str| {
        eventually(HANG, &format!("a line about {from}: {reason}"), || {
            let log = inbound.sidecar.log();
            let found = log
                .lines()
                .any(|l| l.contains(" WARN ") && l.contains(&from.to_string()) && l.contains(reason));
            if found { Ok(()) } else { Err(log) }
        });
    };
    let mut garbage = connect(inbound.link);
    garbage.write_all(&[0xff; 64]).unwrap();
    line(&inbound, garbage.local_addr().unwrap(), "skipped");
    let mut versions = connect(inbound.link);
    versions.write_all(&encoded(&Frame::Hello(Hello { version: 99, ..hello() }))).unwrap();
    line(&inbound, versions.local_addr().unwrap(), "speaks version");
    let picky = Inbound::with(service.addr, "allow = [\"10.0.0.0/8\"]", "");
    let mut stranger = connect(picky.link);
    stranger.write_all(&encoded(&Frame::Hello(hello()))).unwrap();
    line(&picky, stranger.local_addr().unwrap(), "allow");
    // Whoever only looks whether the port is open is nobody's business.
    drop(connect(picky.link));
    moves(&picky.sidecar, HANDSHAKES, &[("direction", "in"), ("result", "io")]);
    assert_eq!(picky.sidecar.log().matches("turned away").count(), 1, "{}", picky.sidecar.log());
    let begun = sidebeat::clock::now();
    for _ in 0..500 {
        let mut io = connect(inbound.link);
        io.write_all(&[0xff; 64]).unwrap();
        let _ = read_all(&mut io);
    }
    let passed = sidebeat::clock::now().since(begun) + Duration::from_secs(2);
    let lines = inbound.sidecar.log().matches("turned away").count() as u64;
    // Five at once and then one a second, of each worker.
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    assert!(lines <= (5 + passed.as_secs()) * workers, "{lines} lines in {passed:?}");
}
