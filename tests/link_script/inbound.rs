//! A scripted dialer against an inbound sidecar: what a link promises to do.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};

use sidebeat::clock;
use sidebeat::verdict::Vouch;
use sidebeat::wire::{Beat, Frame, Hello, RefuseCode, ResetReason, VERSION};

use crate::near::{Hand, Inbound, SOON, data_until, fill, greeted, read_all, wait_welcome, whole_request};
use crate::peer::{Peer, What, data_frame, encoded, hello};
use crate::support::pair::NAME;
use crate::support::rng::Rng;
use crate::support::service::{HANG, Service, reset};
use crate::support::{Port, eventually, pause};

#[test]
fn each_refusal_has_its_code() {
    let service = Service::echo();
    let inbound = Inbound::with(service.addr, "", "");
    let status: serde_json::Value = serde_json::from_str(&inbound.sidecar.status()).unwrap();
    let incarnation = u64::from_str_radix(status["incarnation"].as_str().unwrap(), 16).unwrap();
    let table = [
        (RefuseCode::Version, Hello { version: VERSION + 1, ..hello() }),
        (RefuseCode::Version, Hello { version: 0, ..hello() }),
        (RefuseCode::NoSuchService, Hello { service: "other".to_owned(), ..hello() }),
        (RefuseCode::NoSuchService, Hello { service: String::new(), ..hello() }),
        (RefuseCode::Loop, Hello { node: "inbound".to_owned(), incarnation, ..hello() }),
        (RefuseCode::Loop, Hello { hops: 9, ..hello() }),
        (RefuseCode::Loop, Hello { hops: 255, ..hello() }),
    ];
    for (code, bad) in table {
        let (said, text) = inbound.refusal(bad.clone());
        assert_eq!(said, code, "{bad:?}");
        assert!(!text.is_empty());
    }
    // The same name with another incarnation is another process: a restart, or a twin.
    let twin = greeted(inbound.link, false);
    twin.say(&Frame::Hello(Hello { node: "inbound".to_owned(), incarnation: incarnation ^ 1, ..hello() }));
    wait_welcome(&twin);
}

#[test]
fn an_address_that_is_not_allowed_is_refused() {
    let service = Service::echo();
    let inbound = Inbound::with(service.addr, "allow = [\"10.0.0.0/8\"]", "");
    assert_eq!(inbound.refusal(hello()).0, RefuseCode::NotAllowed);
}

#[test]
fn the_welcome_tells_node_incarnation_and_promises() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let (_peer, w) = inbound.linked();
    assert_eq!((w.version, w.node.as_str(), w.active_ms, w.idle_ms), (VERSION, "inbound", 20, 100));
    assert_ne!(w.incarnation, 0);
    assert_eq!(w.initial_credit, 256 * 1024);
}

#[test]
fn hello_open_data_and_fin_in_one_write() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = greeted(inbound.link, false);
    let body = Rng::new(1).bytes(50_000);
    peer.raw([encoded(&Frame::Hello(hello())), whole_request(1, &body)].concat());
    wait_welcome(&peer);
    peer.wait_opened(1);
    peer.wait_fin(1);
    assert_eq!(peer.bytes(1), body, "OPENED came before the data, FIN behind all of it");
}

#[test]
fn a_hello_that_arrives_byte_by_byte_is_a_hello() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = greeted(inbound.link, false);
    for byte in [encoded(&Frame::Hello(hello())), whole_request(1, b"slow")].concat() {
        peer.raw(vec![byte]);
    }
    wait_welcome(&peer);
    peer.wait_fin(1);
    assert_eq!(peer.bytes(1), b"slow");
}

#[test]
fn a_service_that_is_down_is_told_with_errno() {
    let port = Port::pick();
    let inbound = Inbound::start(port.addr());
    let peer = inbound.link();
    peer.raw(whole_request(1, b"anyone?"));
    let errno = peer.frame("OPEN_FAILED", |f| match f {
        Frame::OpenFailed { stream: 1, errno, .. } => Some(*errno),
        _ => None,
    });
    assert_eq!(errno, 111, "ECONNREFUSED");
    peer.beat_after("the vouch tells it too", |b| b.vouch == Vouch::Gone);
    // What is still under way for it is discarded.
    peer.data(1, b"late");
    peer.end(1);
    peer.credit(1, 10);
    peer.sync();
}

#[test]
fn each_direction_ends_by_itself_and_not_before_its_bytes() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = inbound.link();
    peer.pilot().set(|a| a.grants = true);
    peer.open(1);
    let mut service = hand.next();
    // The service ends first, the client goes on.
    let answer = Rng::new(2).bytes(900_000);
    service.write_all(&answer).unwrap();
    service.shutdown(Shutdown::Write).unwrap();
    peer.wait_fin(1);
    assert_eq!(peer.bytes(1), answer);
    let question = Rng::new(3).bytes(200_000);
    peer.data(1, &question);
    peer.end(1);
    assert_eq!(read_all(&mut service), (question.clone(), None));

    // And the other way round.
    peer.open(2);
    let mut service = hand.next();
    peer.data(2, &question);
    peer.end(2);
    assert_eq!(read_all(&mut service), (question, None));
    service.write_all(&answer).unwrap();
    drop(service);
    peer.wait_fin(2);
    assert_eq!(peer.bytes(2), answer);
    peer.sync();
}

#[test]
fn a_reset_of_the_peer_reaches_the_service_as_one() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = inbound.link();
    peer.open(1);
    let mut service = hand.next();
    peer.wait_opened(1);
    peer.reset(1);
    let (_, error) = read_all(&mut service);
    assert_eq!(error, Some(std::io::ErrorKind::ConnectionReset));
    peer.sync();
}

#[test]
fn a_reset_of_the_service_reaches_the_peer_as_one() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = inbound.link();
    peer.open(1);
    let mut service = hand.next();
    service.write_all(b"so far").unwrap();
    peer.bytes_of(1, 6);
    reset(service);
    assert_eq!(peer.wait_reset(1), ResetReason::Rst);
    peer.sync();
}

/// A server may answer early and close although the client still sends; the answer must arrive before the reset.
#[test]
fn an_early_answer_is_not_lost_in_the_reset_behind_it() {
    let service = Service::start(|mut stream| {
        let mut some = [0; 100];
        let _ = stream.read(&mut some);
        let _ = stream.write_all(b"413 too large");
        // Closed with unread bytes: the kernel says RST.
    });
    let inbound = Inbound::start(service.addr);
    let peer = inbound.link();
    for stream in 1..=100 {
        peer.open(stream);
        for _ in 0..200 {
            peer.raw(data_frame(stream, &[7; 500]));
        }
    }
    let early: Vec<u32> = (1..=100)
        .filter(|&stream| {
            eventually(HANG, "the end of the stream", || {
                let ended = |f: &Frame| matches!(f, Frame::Reset { stream: s, .. } if *s == stream);
                if peer.count(ended) > 0 { Ok(()) } else { Err(format!("stream {stream} has not ended")) }
            });
            peer.bytes(stream) != b"413 too large"
        })
        .collect();
    assert_eq!(early, Vec::<u32>::new(), "streams whose answer was lost");
}

#[test]
fn a_sender_keeps_to_its_credit() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, welcome) = inbound.linked();
    let credit = welcome.initial_credit as usize;
    peer.open(1);
    let mut service = hand.next();
    std::thread::spawn(move || while service.write_all(&[9; 64 * 1024]).is_ok() {});
    peer.bytes_of(1, credit);
    for grant in [0, 1, 1000, 70_000] {
        let had = peer.bytes(1).len();
        peer.credit(1, grant as u32);
        peer.bytes_of(1, had + grant);
        peer.sync();
        assert_eq!(peer.bytes(1).len(), had + grant, "a grant of {grant} bytes");
    }
}

#[test]
fn credit_comes_as_the_service_drains() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, welcome) = inbound.linked();
    peer.open(1);
    let mut service = hand.next();
    let initial = u64::from(welcome.initial_credit);
    let sent = fill(&peer, 1, initial, 1);
    assert_eq!(sent, initial + peer.granted(1));
    // The service wakes up: everything arrives and credit comes again.
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; sent as usize];
        service.read_exact(&mut got).unwrap();
        got.iter().all(|b| *b == 1)
    });
    assert!(reader.join().unwrap());
    eventually(HANG, "credit for what was drained", || {
        let left = initial + peer.granted(1) - sent;
        if left >= initial / 2 { Ok(()) } else { Err(format!("{left} left")) }
    });
}

#[test]
fn more_than_the_credit_resets_the_stream_only() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, welcome) = inbound.linked();
    peer.open(1);
    let mut service = hand.next();
    fill(&peer, 1, u64::from(welcome.initial_credit), 1);
    peer.data(1, &[2; 1000]);
    assert_eq!(peer.wait_reset(1), ResetReason::Protocol);
    assert_eq!(read_all(&mut service).1, Some(std::io::ErrorKind::ConnectionReset));
    peer.open(2);
    peer.wait_opened(2);
    peer.data(2, b"others live");
    let mut got = [0; 11];
    hand.next().read_exact(&mut got).unwrap();
    assert_eq!(&got, b"others live");
}

#[test]
fn data_behind_a_fin_resets_the_stream_only() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = inbound.link();
    peer.open(1);
    let _service = hand.next();
    peer.end(1);
    peer.data(1, b"one more thing");
    assert_eq!(peer.wait_reset(1), ResetReason::Protocol);
    peer.sync();
}

#[test]
fn many_streams_interleaved_do_not_mix() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = inbound.link();
    peer.pilot().set(|a| a.grants = true);
    let bodies: Vec<_> = (0..64).map(|i| Rng::new(100 + i).bytes(40_000 + 97 * i as usize)).collect();
    for stream in 1..=64 {
        peer.open(stream);
    }
    let mut rng = Rng::new(5);
    let mut at = vec![0; bodies.len()];
    while at.iter().zip(&bodies).any(|(a, b)| *a < b.len()) {
        let i = rng.below(bodies.len());
        let n = (1 + rng.below(5000)).min(bodies[i].len() - at[i]);
        peer.data(1 + i as u32, &bodies[i][at[i]..at[i] + n]);
        at[i] += n;
        if at[i] == bodies[i].len() && n > 0 {
            peer.end(1 + i as u32);
        }
    }
    for (i, body) in bodies.iter().enumerate() {
        assert_eq!(&peer.bytes_of(1 + i as u32, body.len()), body, "stream {}", 1 + i);
    }
}

#[test]
fn a_question_is_answered_at_once_also_behind_megabytes() {
    let service = Service::start(|mut stream| while stream.write_all(&[1; 64 * 1024]).is_ok() {});
    let inbound = Inbound::start(service.addr);
    let peer = inbound.narrow_link();
    peer.pilot().set(|a| a.reads = false);
    for stream in 1..=16 {
        peer.open(stream);
    }
    // 16 streams of 256 KiB: let the queue of the sidecar become as full as it gets.
    eventually(HANG, "data waits", || {
        let held = inbound.sidecar.metric("sidebeat_buffered_bytes", &[]);
        if held >= Some(512.0 * 1024.0) { Ok(()) } else { Err(format!("{held:?}")) }
    });
    let from = peer.log().len();
    peer.say(&Frame::Challenge { nonce: 4711 });
    peer.pilot().set(|a| a.reads = true);
    let answered = |w: &What| matches!(w, What::Frame(Frame::Answer { nonce: 4711, .. }));
    peer.wait("the answer", answered);
    let before = data_until(&peer, from, answered);
    println!("{before} bytes of data came before the answer");
    for stream in 1..=16 {
        peer.bytes_of(stream, 256 * 1024);
    }
    // What the kernels held, and one batch that was being written.
    assert!(before < 1 << 20, "{before} of 4 MiB came before the answer");
}

#[test]
fn a_batch_ends_with_a_beat() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = inbound.link();
    peer.open(1);
    for n in 1..=50 {
        peer.data(1, &[n; 100]);
        peer.bytes_of(1, 100 * usize::from(n));
    }
    peer.sync();
    let log = peer.log();
    let data: Vec<usize> =
        (0..log.len()).filter(|i| matches!(log[*i].what, What::Data(_, _, true))).collect();
    assert!(data.len() >= 50);
    for i in data {
        assert!(
            matches!(log[i + 1].what, What::Frame(Frame::Beat(_)) | What::Data(..)),
            "behind data came {:?}",
            log[i + 1].what
        );
    }
}

#[test]
fn the_promise_relaxes_from_20_over_40_and_80_to_100() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = inbound.link();
    peer.raw(whole_request(1, b"busy"));
    peer.wait_fin(1);
    let mut seen = vec![20];
    peer.beat_after("an active beat", |b| b.promise_ms == 20);
    while seen.last() != Some(&100) {
        let beat = peer.beat_after("the next beat", |_| true);
        if seen.last() != Some(&beat.promise_ms) {
            seen.push(beat.promise_ms);
        }
    }
    assert_eq!(seen, [20, 40, 80, 100]);
}

#[test]
fn idle_beats_keep_coming_with_rising_numbers() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = inbound.link();
    let beats: Vec<Beat> = (0..30).map(|_| peer.beat_after("a beat", |_| true)).collect();
    for pair in beats.windows(2) {
        assert_eq!(pair[1].seq, pair[0].seq + 1);
    }
    let log = peer.log();
    let times: Vec<_> =
        log.iter().filter(|h| matches!(h.what, What::Frame(Frame::Beat(_)))).map(|h| h.at).collect();
    // 30 beats of 80 ms are 2.4 s: a late machine may double it, a sender that waits for its promise to run out
    // would be found by the detector's own tests.
    assert!(times[29].since(times[0]) < SOON, "{:?}", times[29].since(times[0]));
}

#[test]
fn beats_echo_what_was_heard_and_how_long_ago() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = inbound.link();
    let first = peer.beat_after("a beat", |_| true);
    assert_eq!(first.heard_seq, 0, "nothing heard yet");
    let said = clock::now();
    peer.say(&Frame::Beat(Beat { seq: 500, promise_ms: 1000, ..Beat::default() }));
    let echo = peer.beat_after("the echo", |b| b.heard_seq == 500);
    assert!(u128::from(echo.heard_age_us) <= clock::now().since(said).as_micros(), "{echo:?}");
    let later = peer.beat_after("an older echo", |b| b.heard_age_us > 200_000);
    assert_eq!(later.heard_seq, 500);
    // An older number does not count as newer, and wrapping does.
    peer.say(&Frame::Beat(Beat { seq: 499, promise_ms: 1000, ..Beat::default() }));
    peer.sync();
    assert_eq!(peer.beat_after("a beat", |_| true).heard_seq, 500);
    for seq in [1 << 30, 1 << 31, 3 << 30, u32::MAX, 5] {
        peer.say(&Frame::Beat(Beat { seq, promise_ms: 1000, ..Beat::default() }));
        peer.beat_after("the echo", |b| b.heard_seq == seq);
    }
}

fn pressure(active: bool) -> impl Fn(&Frame) -> bool {
    move |f| matches!(f, Frame::Backpressure(b) if b.active == active)
}

fn wait_pressure(peer: &Peer, active: bool) {
    peer.wait("BACKPRESSURE", |w| matches!(w, What::Frame(f) if pressure(active)(f)));
}

#[test]
fn backpressure_is_told_repeated_and_ended_once() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, welcome) = inbound.linked();
    peer.open(1);
    let mut service = hand.next();
    service.write_all(&vec![1; welcome.initial_credit as usize + 100_000]).unwrap();
    for _ in 0..4 {
        wait_pressure(&peer, true);
    }
    peer.credit(1, 1 << 20);
    wait_pressure(&peer, false);
    peer.sync();
    for _ in 0..10 {
        peer.beat_after("a beat", |_| true);
    }
    assert_eq!(peer.count(pressure(false)), 1, "ended once");
    let log = peer.log();
    let over = log.iter().position(|h| matches!(&h.what, What::Frame(f) if pressure(false)(f))).unwrap();
    assert!(!log[over..].iter().any(|h| matches!(&h.what, What::Frame(f) if pressure(true)(f))));
}

/// Beats that ride on business traffic fall due never: backpressure must not wait for one.
#[test]
fn backpressure_is_repeated_and_ended_while_other_streams_are_busy() {
    let service = Service::start(|mut stream| {
        let mut kind = [0];
        if stream.read_exact(&mut kind).is_err() {
            return;
        }
        if kind == *b"F" {
            while stream.write_all(&[1; 64 * 1024]).is_ok() {}
        }
        let mut buf = [0; 1000];
        while let Ok(n @ 1..) = stream.read(&mut buf) {
            let _ = stream.write_all(&buf[..n]);
        }
    });
    let inbound = Inbound::start(service.addr);
    let peer = inbound.link();
    peer.open(1);
    peer.data(1, b"F");
    peer.open(2);
    peer.data(2, b"E");
    let mut echoed = 0;
    let mut busy = |until: &str, done: &dyn Fn() -> bool| {
        let end = clock::now() + HANG;
        while !done() {
            assert!(
                clock::now() < end,
                "{until}: {} told, {} ended",
                peer.count(pressure(true)),
                peer.count(pressure(false))
            );
            peer.data(2, b"x");
            echoed += 1;
            while peer.bytes(2).len() < echoed {
                assert!(clock::now() < end, "{until}: no echo");
                std::thread::yield_now();
            }
        }
    };
    busy("backpressure is repeated", &|| peer.count(pressure(true)) >= 8);
    peer.reset(1);
    busy("backpressure is ended", &|| peer.count(pressure(false)) == 1);
}

/// Nothing to send is no backpressure, however little credit there is.
#[test]
fn no_backpressure_without_anything_to_send() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, welcome) = inbound.linked();
    peer.open(1);
    let mut service = hand.next();
    service.write_all(&vec![1; welcome.initial_credit as usize]).unwrap();
    peer.bytes_of(1, welcome.initial_credit as usize);
    for _ in 0..10 {
        peer.beat_after("a beat", |_| true);
    }
    assert_eq!(peer.count(pressure(true)), 0);
}

#[test]
fn a_maintenance_call_is_told_on_every_link() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let links = [inbound.link(), inbound.link()];
    inbound.post("/maintenance?for=700ms");
    for link in &links {
        let told = link.frame("MAINTENANCE", |f| match f {
            Frame::Maintenance(m) => Some(m.clone()),
            _ => None,
        });
        assert_eq!(told.for_ms, 700);
        assert!(link.beat_after("a beat", |_| true).flags.frozen);
        link.beat_after("the pause ends", |b| !b.flags.frozen);
    }
}

#[test]
fn sigterm_says_goaway_and_streams_go_on_to_their_end() {
    let hand = Hand::new();
    let mut inbound = Inbound::start(hand.service.addr);
    let peer = inbound.link();
    peer.open(1);
    let mut service = hand.next();
    inbound.sidecar.process().signal(rustix::process::Signal::TERM);
    let deadline = peer.frame("GOAWAY", |f| match f {
        Frame::Goaway { deadline_ms } => Some(*deadline_ms),
        _ => None,
    });
    assert!(deadline > 0);
    assert!(peer.beat_after("a beat", |_| true).flags.draining);
    peer.data(1, b"still here?");
    let mut got = [0; 11];
    service.read_exact(&mut got).unwrap();
    service.write_all(b"yes").unwrap();
    peer.bytes_of(1, 3);
    peer.end(1);
    drop(service);
    peer.wait_fin(1);
    let status = inbound.sidecar.stop();
    assert!(status.success(), "{status}");
}

/// Both sides have said all: what is not delivered yet must be, although the link ends.
#[test]
fn a_finished_stream_outlives_its_link() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, welcome) = inbound.linked();
    peer.open(1);
    let mut service = hand.next();
    service.shutdown(Shutdown::Write).unwrap();
    peer.wait_fin(1);
    let sent = fill(&peer, 1, u64::from(welcome.initial_credit), 6);
    peer.end(1);
    peer.sync();
    peer.fin();
    peer.wait_closed();
    let (got, error) = read_all(&mut service);
    assert_eq!((got.len() as u64, error), (sent, None));
}

/// The reset of a blocked sender must not wait for credit that will never come.
#[test]
fn a_reset_is_seen_without_credit() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, welcome) = inbound.linked();
    peer.open(1);
    let mut service = hand.next();
    service.write_all(&vec![1; welcome.initial_credit as usize + 50_000]).unwrap();
    peer.bytes_of(1, welcome.initial_credit as usize);
    reset(service);
    assert_eq!(peer.wait_reset(1), ResetReason::Rst);
}

#[test]
fn a_stream_may_be_reset_before_its_service_accepted() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = inbound.link();
    for stream in 1..=200 {
        peer.open(stream);
        peer.data(stream, b"never mind");
        peer.reset(stream);
    }
    peer.sync();
    peer.raw(whole_request(1000, b"this one"));
    peer.wait_fin(1000);
    assert_eq!(peer.bytes(1000), b"this one");
}

#[test]
fn the_service_sees_the_sidecars_own_address() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = inbound.link();
    peer.say(&Frame::Open { stream: 1, service: NAME.to_owned() });
    let from: SocketAddr = hand.next().peer_addr().unwrap();
    assert_eq!(from.ip().to_string(), "127.0.0.6");
    // Not a port of the peer's choice.
    peer.say(&Frame::Open { stream: 2, service: "127.0.0.1:22".to_owned() });
    peer.wait("OPEN_FAILED", |w| matches!(w, What::Frame(Frame::OpenFailed { stream: 2, .. })));
}

/// A bug of an earlier version: on a slow path the beat of a batch comes long after its first bytes, and the sender was told
/// that nobody had heard it.
#[test]
fn bytes_on_their_way_count_as_heard_before_their_beat() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, _) = inbound.linked();
    peer.open(1);
    let _service = hand.next();
    peer.wait_opened(1);
    let frame = data_frame(1, &[5; 100]);
    for byte in &frame {
        peer.raw(vec![*byte]);
        pause();
    }
    // That was a second of bytes without a beat.
    let ages: Vec<u32> = peer
        .log()
        .iter()
        .filter_map(|h| match &h.what {
            What::Frame(Frame::Beat(b)) => Some(b.heard_age_us),
            _ => None,
        })
        .collect();
    assert!(ages.len() > 3, "{ages:?}");
    assert!(ages.iter().all(|age| *age < 250_000), "{ages:?}");
}
