//! A scripted acceptor against an outbound sidecar: where connections go, and what becomes of them.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use sidebeat::clock;
use sidebeat::verdict::State;
use sidebeat::wire::{Frame, RefuseCode};

use crate::far::{At, Far, Manner, Outbound};
use crate::near::{fill, read_all};
use crate::peer::{Auto, Opens, Peer};
use crate::support::rng::Rng;
use crate::support::service::{HANG, Service, connect, round_trip};
use crate::support::{eventually, pause};

fn echoing() -> Auto {
    Auto { echo: true, ..Auto::default() }
}

/// A client whose kernel takes little that it does not read.
pub(crate) fn narrow_client(addr: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&addr.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    stream
}

/// Sends all and its end, and gives what comes back.
fn ask(addr: SocketAddr, body: &[u8]) -> (Vec<u8>, Option<std::io::ErrorKind>) {
    let mut client = connect(addr);
    client.write_all(body).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    read_all(&mut client)
}

/// Connects and writes until the first of `fars` is the one that was chosen.
pub(crate) fn client_on(outbound: &Outbound, fars: &[&Far], body: &[u8]) -> (TcpStream, Peer, u32) {
    for _ in 0..50 {
        let mut client = connect(outbound.addr);
        client.write_all(body).unwrap();
        let (chosen, (link, stream)) = eventually(HANG, "OPEN on any endpoint", || {
            let found = fars.iter().enumerate().find_map(|(i, f)| Some((i, f.try_opened()?)));
            found.ok_or_else(|| "none".to_owned())
        });
        if chosen == 0 {
            return (client, link, stream);
        }
    }
    panic!("the first endpoint was never chosen: {}", outbound.sidecar.status());
}

#[test]
fn a_sender_keeps_to_whatever_credit_the_welcome_gives() {
    for initial_credit in [0, 1, 1000, 256 * 1024] {
        let far = Far::with(
            Auto { grants: false, ..Auto::default() },
            Manner { initial_credit, ..Manner::default() },
        );
        let outbound = Outbound::to(&[&far]);
        let body = Rng::new(8).bytes(300_000);
        let mut client = connect(outbound.addr);
        client.write_all(&body).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (link, stream) = far.opened();
        let mut credit = initial_credit as usize;
        for grant in [0, 1, 5000, 300_000] {
            link.credit(stream, grant as u32);
            credit += grant;
            let all = link.bytes_of(stream, credit.min(body.len()));
            link.sync();
            assert_eq!(all, body[..credit.min(body.len())], "welcome {initial_credit}, credit {credit}");
            assert_eq!(link.bytes(stream).len(), credit.min(body.len()));
        }
        let fin = |f: &Frame| matches!(f, Frame::Fin { stream: s } if *s == stream);
        eventually(HANG, "FIN behind all of it", || match link.count(fin) {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        });
        link.data(stream, b"k");
        link.end(stream);
        if initial_credit > 0 {
            assert_eq!(read_all(&mut client), (b"k".to_vec(), None));
        }
    }
}

#[test]
fn an_end_needs_no_credit() {
    let far = Far::with(
        Auto { grants: false, ..Auto::default() },
        Manner { initial_credit: 100, ..Manner::default() },
    );
    let outbound = Outbound::to(&[&far]);
    let mut client = connect(outbound.addr);
    client.write_all(&[1; 100]).unwrap();
    let (link, stream) = far.opened();
    link.bytes_of(stream, 100);
    client.shutdown(Shutdown::Write).unwrap();
    link.wait_fin(stream);
}

#[test]
fn a_service_that_refuses_is_left_at_once() {
    let bad = Far::start(Auto { opens: Opens::Fail(111), ..Auto::default() });
    let good = Far::start(echoing());
    let outbound = Outbound::to(&[&bad, &good]);
    for n in 0..20u8 {
        assert_eq!(ask(outbound.addr, &[n; 100]), (vec![n; 100], None));
    }
    outbound.change(0, State::Failed, &[sidebeat::verdict::Cause::Crash]);
}

#[test]
fn a_foreign_server_gets_nothing_and_traffic_stays_plain() {
    for banner in [&b"220 mail ESMTP\r\n"[..], b"\xb5BEA", b"\xb5BEA\r\n\x1a\n\0\x09\0\x09", b""] {
        let service = Service::echo();
        let manner = Manner { greeting: banner.to_vec(), welcomes: false, ..Manner::default() };
        let far = Far::with(Auto::default(), manner);
        let outbound = Outbound::raw(&[At(service.addr, far.addr)], "", "");
        eventually(HANG, "a dial", || if far.dials() > 0 { Ok(()) } else { Err("none".to_owned()) });
        for _ in 0..20 {
            round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("plain");
        }
        assert_eq!(far.unwelcome_bytes(), 0, "{banner:?}");
        assert_eq!(outbound.endpoint(0)["link"], "plain");
    }
}

#[test]
fn a_refusal_falls_back_to_plain() {
    let service = Service::echo();
    let manner = Manner { refuses: Some(RefuseCode::NoSuchService), ..Manner::default() };
    let far = Far::with(Auto::default(), manner);
    let outbound = Outbound::raw(&[At(service.addr, far.addr)], "", "");
    eventually(HANG, "a dial", || if far.dials() > 0 { Ok(()) } else { Err("none".to_owned()) });
    for _ in 0..20 {
        round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("plain");
    }
    assert!(!outbound.ever_failed());
}

/// A path with a round trip of a tenth of a second is no reason to be without a link.
#[test]
fn a_slow_greeting_still_makes_a_link() {
    let service = Service::echo();
    let far = Far::with(echoing(), Manner { delay: Duration::from_millis(400), ..Manner::default() });
    let outbound = Outbound::raw(&[At(service.addr, far.addr)], "", "");
    eventually(Duration::from_secs(15), "the link is up", || {
        let e = outbound.endpoint(0);
        if e["link"] == "framed" { Ok(()) } else { Err(format!("{} dials, {e}", far.dials())) }
    });
    round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("framed");
    far.hears("OPEN", |f| matches!(f, Frame::Open { .. }));
}

#[test]
fn a_stream_that_could_not_be_opened_goes_elsewhere_with_its_first_bytes() {
    for initial_credit in [256 * 1024, 1000] {
        let bad = Far::start(Auto { opens: Opens::Ignore, ..Auto::default() });
        let good = Far::with(echoing(), Manner { initial_credit, ..Manner::default() });
        let outbound = Outbound::to(&[&bad, &good]);
        let body = Rng::new(9).bytes(40_000);
        let (mut client, link, stream) = client_on(&outbound, &[&bad, &good], &body);
        link.bytes_of(stream, body.len());
        link.say(&Frame::OpenFailed { stream, errno: 111, text: "scripted".to_owned() });
        client.write_all(b"and more").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (got, error) = read_all(&mut client);
        assert_eq!((got.len(), error), (body.len() + 8, None), "credit {initial_credit}");
        assert_eq!(got, [&body[..], b"and more"].concat());
        // Refused is proof: the next ones do not go there.
        outbound.wait_state(0, State::Failed);
        for _ in 0..10 {
            assert_eq!(ask(outbound.addr, b"next"), (b"next".to_vec(), None));
        }
    }
}

#[test]
fn a_link_that_is_lost_before_opened_sends_the_stream_elsewhere() {
    let bad = Far::start(Auto { opens: Opens::Ignore, ..Auto::default() });
    let good = Far::start(echoing());
    let outbound = Outbound::to(&[&bad, &good]);
    for end in [Peer::fin as fn(&Peer), Peer::rst] {
        outbound.wait_state(0, State::Active);
        let (mut client, link, stream) = client_on(&outbound, &[&bad, &good], b"first bytes");
        link.bytes_of(stream, 11);
        end(&link);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client), (b"first bytes".to_vec(), None));
        eventually(HANG, "a new link", || {
            if bad.live_links().is_empty() { Err("none".to_owned()) } else { Ok(()) }
        });
    }
}

#[test]
fn an_open_without_an_answer_goes_elsewhere_in_time() {
    let bad = Far::start(Auto { opens: Opens::Ignore, ..Auto::default() });
    let good = Far::start(echoing());
    let outbound = Outbound::with(&[&bad, &good], "connect_timeout = \"500ms\"", "");
    let (mut client, link, stream) = client_on(&outbound, &[&bad, &good], b"anyone?");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), (b"anyone?".to_vec(), None));
    link.wait_reset(stream);
}

#[test]
fn a_link_that_is_lost_later_resets_its_clients() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    for end in [Peer::fin as fn(&Peer), Peer::rst] {
        let mut client = connect(outbound.addr);
        round_trip(&mut client, &mut Rng::new(4)).unwrap();
        let (link, _) = far.opened();
        end(&link);
        let (_, error) = read_all(&mut client);
        assert_eq!(error, Some(std::io::ErrorKind::ConnectionReset));
        eventually(HANG, "a new link", || {
            if far.live_links().is_empty() { Err("none".to_owned()) } else { Ok(()) }
        });
        outbound.wait_state(0, State::Active);
    }
}

/// What was sent and cannot be sent again must not look like an answer of nothing.
#[test]
fn a_stream_that_cannot_be_replayed_is_reset_and_not_ended() {
    let far = Far::start(Auto { opens: Opens::Ignore, ..Auto::default() });
    let outbound = Outbound::to(&[&far]);
    let body = vec![5; 150_000];
    let mut client = connect(outbound.addr);
    client.write_all(&body).unwrap();
    let (link, stream) = far.opened();
    link.bytes_of(stream, body.len());
    link.say(&Frame::OpenFailed { stream, errno: 110, text: "scripted".to_owned() });
    assert_eq!(read_all(&mut client), (Vec::new(), Some(std::io::ErrorKind::ConnectionReset)));
}

#[test]
fn a_reset_of_the_client_is_carried_also_without_credit() {
    let far = Far::start(Auto { grants: false, ..Auto::default() });
    let outbound = Outbound::to(&[&far]);
    let mut client = connect(outbound.addr);
    client.write_all(&vec![1; 300_000]).unwrap();
    let (link, stream) = far.opened();
    link.bytes_of(stream, 256 * 1024);
    crate::support::service::reset(client);
    link.wait_reset(stream);
}

#[test]
fn a_finished_stream_outlives_its_link() {
    let far = Far::start(Auto::default());
    let outbound = Outbound::to(&[&far]);
    let mut client = narrow_client(outbound.addr);
    let (link, stream) = far.opened();
    client.shutdown(Shutdown::Write).unwrap();
    link.wait_fin(stream);
    let sent = fill(&link, stream, 256 * 1024, 7);
    link.end(stream);
    link.sync();
    link.fin();
    link.wait_closed();
    let (got, error) = read_all(&mut client);
    assert_eq!((got.len() as u64, error), (sent, None));
}

/// The acceptor says how much credit a new stream has, in both directions; a smaller window of ours is no reason to
/// call what it then sends a violation.
#[test]
fn the_credit_of_the_welcome_holds_in_both_directions() {
    let far = Far::start(Auto::default());
    let outbound = Outbound::with(&[&far], "", "[limits]\nstream_window = \"64KiB\"\n");
    let mut client = narrow_client(outbound.addr);
    let (link, stream) = far.opened();
    let mut sent = fill(&link, stream, 64 * 1024, 1);
    let more = 256 * 1024 + link.granted(stream) - sent;
    link.data(stream, &vec![1; more as usize]);
    sent += more;
    link.end(stream);
    let mut got = vec![0; sent as usize];
    client.read_exact(&mut got).expect("all of it");
}

#[test]
fn a_full_link_is_not_the_end() {
    let far = Far::start(echoing());
    let outbound = Outbound::with(&[&far], "", "[limits]\nstreams_per_link = 2\n");
    let mut clients: Vec<TcpStream> = (0..12).map(|_| connect(outbound.addr)).collect();
    for client in &mut clients {
        round_trip(client, &mut Rng::new(6)).expect("each has its stream");
    }
    assert!(far.live_links().len() >= 6, "{} links", far.live_links().len());
    for client in &mut clients {
        round_trip(client, &mut Rng::new(7)).expect("each goes on");
    }
}

/// A sidecar that welcomes every link and then says nothing must not collect links of ours.
#[test]
fn links_that_stay_silent_do_not_pile_up() {
    let far = Far::start(Auto::none());
    let outbound = Outbound::to(&[&far]);
    let end = clock::now() + Duration::from_secs(12);
    let mut most = 0;
    while clock::now() < end {
        most = most.max(far.connections());
        pause();
    }
    println!("{} dials, at most {most} connections at once", far.dials());
    assert!(far.dials() >= 5, "{} dials", far.dials());
    assert!(most <= 24, "{most} connections to one endpoint: {}", outbound.sidecar.status());
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_its_link_and_no_more() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    type Abuse = fn(&Peer, u32);
    let table: [Abuse; 6] = [
        |p, _| p.open(1_000_000),
        |p, _| p.data(1_000_000, b"?"),
        |p, s| (0..3).for_each(|_| p.credit(s, u32::MAX)),
        |p, _| p.say(&Frame::Hello(crate::peer::hello())),
        |p, _| p.raw(vec![0xff; 64]),
        |p, s| p.raw(crate::peer::data_frame(s, &[0; 10])[..12].iter().map(|b| b ^ 0x08).collect()),
    ];
    for abuse in table {
        outbound.wait_state(0, State::Active);
        let mut client = connect(outbound.addr);
        round_trip(&mut client, &mut Rng::new(11)).unwrap();
        let (link, stream) = far.opened();
        abuse(&link, stream);
        link.wait_closed();
        assert_eq!(read_all(&mut client).1, Some(std::io::ErrorKind::ConnectionReset));
    }
    outbound.wait_state(0, State::Active);
    assert_eq!(ask(outbound.addr, b"again"), (b"again".to_vec(), None));
}
