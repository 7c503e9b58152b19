//! A scripted dialer that breaks the rules: it loses its stream or its link, and nobody else notices.

use std::time::Duration;

use sidebeat::clock;
use sidebeat::wire::{Beat, Frame, Header, Kind, ResetReason};

use crate::near::{Hand, Inbound, greeted, whole_request};
use crate::peer::{Peer, data_frame, encoded, hello};
use crate::support::eventually;
use crate::support::service::{HANG, Service};

fn lives(inbound: &Inbound) {
    let other = inbound.link();
    other.raw(whole_request(1, b"honest"));
    other.wait_fin(1);
    assert_eq!(other.bytes(1), b"honest");
}

#[test]
fn what_closes_the_link() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    type Abuse = (&'static str, fn(&Peer));
    let table: [Abuse; 14] = [
        ("an id that is open", |p| p.open(10)),
        ("an id below the highest", |p| p.open(9)),
        ("DATA for an id that never was", |p| p.data(11, b"?")),
        ("FIN for an id that never was", |p| p.end(11)),
        ("RESET for an id that never was", |p| p.reset(11)),
        ("CREDIT for an id that never was", |p| p.credit(11, 1)),
        ("credit beyond belief", |p| (0..3).for_each(|_| p.credit(10, u32::MAX))),
        ("a second hello", |p| p.say(&Frame::Hello(hello()))),
        ("DATA on stream 0", |p| p.raw(data_frame(0, b"?"))),
        ("a beat on a stream", |p| {
            let mut beat = encoded(&Frame::Beat(Beat::default()));
            beat[7] = 10;
            p.raw(beat);
        }),
        ("a beat that is too short", |p| {
            p.raw(Header { kind: Kind::Beat as u8, flags: 0, len: 3, stream: 0 }.encode().to_vec());
        }),
        ("a frame that is too long", |p| {
            p.raw(Header { kind: Kind::Credit as u8, flags: 0, len: 65, stream: 10 }.encode().to_vec());
        }),
        ("DATA that is too long", |p| {
            p.raw(Header { kind: Kind::Data as u8, flags: 0, len: 300_000, stream: 10 }.encode().to_vec());
        }),
        ("an unknown kind that is too long", |p| {
            p.raw(Header { kind: 99, flags: 0, len: 70_000, stream: 0 }.encode().to_vec());
        }),
    ];
    for (what, abuse) in table {
        let peer = inbound.link();
        peer.open(10);
        peer.wait_opened(10);
        abuse(&peer);
        println!("{what}");
        peer.wait_closed();
    }
    lives(&inbound);
}

#[test]
fn what_does_not_close_the_link() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = inbound.link();
    peer.open(10);
    peer.wait_opened(10);
    let _service = hand.next();
    // Unknown kinds, on any stream.
    for kind in [0, 17, 42, 255] {
        for (len, stream) in [(0u32, 0), (1, 10), (64 * 1024, 999)] {
            let header = Header { kind, flags: 15, len, stream }.encode();
            peer.raw([&header[..], &vec![kind; len as usize]].concat());
        }
    }
    // Frames of a dialer that make no sense, but harm nobody.
    peer.say(&Frame::Opened { stream: 10 });
    peer.credit(10, 0);
    peer.data(10, b"");
    for promise_ms in [0, 1, u16::MAX] {
        peer.say(&Frame::Beat(Beat {
            seq: 0,
            promise_ms,
            heard_seq: u32::MAX,
            heard_age_us: 1,
            ..Beat::default()
        }));
    }
    peer.say(&Frame::Goaway { deadline_ms: 0 });
    peer.say(&Frame::Answer { nonce: 1, beat: Beat::default() });
    // For a stream that is over.
    peer.reset(10);
    peer.data(10, b"late");
    peer.end(10);
    peer.credit(10, u32::MAX);
    peer.credit(10, u32::MAX);
    peer.reset(10);
    peer.sync();
    peer.open(11);
    peer.wait_opened(11);
}

#[test]
fn a_slow_hello_is_closed_in_time() {
    let service = Service::echo();
    let inbound = Inbound::with(service.addr, "", "[limits]\nhello_timeout = \"500ms\"\n");
    let silent = greeted(inbound.link, false);
    let slow = greeted(inbound.link, false);
    let begun = clock::now();
    let bytes = encoded(&Frame::Hello(hello()));
    let mut some = bytes[..bytes.len() - 1].iter();
    eventually(HANG, "the slow one is closed", || {
        some.next().into_iter().for_each(|byte| slow.raw(vec![*byte]));
        if slow.closed_now() { Ok(()) } else { Err("open".to_owned()) }
    });
    silent.wait_closed();
    assert!(clock::now().since(begun) < Duration::from_secs(20));
    lives(&inbound);
}

#[test]
fn a_flood_of_control_frames_closes_the_link() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let flood = encoded(&Frame::Credit { stream: 1, bytes: 0 }).repeat(50_000);
    let peer = inbound.link();
    peer.open(1);
    peer.wait_opened(1);
    for _ in 0..40 {
        peer.raw(flood.clone());
    }
    peer.wait_closed();
    lives(&inbound);
}

fn growth(inbound: &Inbound, during: impl FnOnce()) -> u64 {
    let before = inbound.sidecar.process().rss();
    during();
    let grown = inbound.sidecar.process().rss().saturating_sub(before);
    println!("grew by {} KiB", grown >> 10);
    grown
}

/// Questions below the limit of control frames, whose answers are never read.
#[test]
fn answers_that_nobody_reads_do_not_pile_up() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    let peer = inbound.narrow_link();
    peer.pilot().set(|a| a.reads = false);
    let questions = encoded(&Frame::Challenge { nonce: 1 }).repeat(10_000);
    let grown = growth(&inbound, || {
        // 150 000 a second: a third of what is allowed.
        for _ in 0..150 {
            peer.raw(questions.clone());
            let sent = clock::now();
            while clock::now().since(sent) < Duration::from_millis(66) {
                crate::support::pause();
            }
            if inbound.sidecar.process().rss() > 1 << 30 {
                break;
            }
        }
    });
    assert!(grown < 24 << 20, "{grown} bytes for 1.5 million questions");
    lives(&inbound);
}

/// DATA in pieces of one byte must cost about what its credit says.
#[test]
fn data_in_tiny_pieces_costs_what_its_credit_says() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let (peer, welcome) = inbound.linked();
    let streams = 1..=8;
    let mut kept = Vec::new();
    for stream in streams.clone() {
        peer.open(stream);
        kept.push(hand.next());
        peer.wait_opened(stream);
    }
    let grown = growth(&inbound, || {
        for stream in streams {
            let mut sent = 0;
            while sent < 600_000 {
                let left = u64::from(welcome.initial_credit) + peer.granted(stream) - sent;
                if left == 0 {
                    break;
                }
                let n = left.min(10_000);
                peer.raw(data_frame(stream, b"z").repeat(n as usize));
                sent += n;
                peer.sync();
            }
        }
        peer.sync();
    });
    assert!(grown < 32 << 20, "{grown} bytes for 8 streams");
}

/// OPEN and RESET at once, again and again: each costs a connection to the service for a moment, never a heap of them.
#[test]
fn rapid_resets_do_not_pile_up_connections() {
    let service = Service::echo();
    let inbound = Inbound::with(service.addr, "", "[limits]\nstreams_per_link = 100\n");
    let peer = inbound.link();
    let most = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|s| {
        let watch = s.spawn(|| {
            for _ in 0..300 {
                most.fetch_max(inbound.sidecar.process().fds(), std::sync::atomic::Ordering::Relaxed);
                crate::support::pause();
            }
        });
        let mut all = Vec::new();
        for stream in 1..=30_000u32 {
            all.extend(encoded(&Frame::Open { stream, service: crate::support::pair::NAME.to_owned() }));
            all.extend(encoded(&Frame::Reset { stream, reason: ResetReason::Rst }));
        }
        peer.raw(all);
        watch.join().unwrap();
    });
    let most = most.into_inner();
    println!("{most} descriptors at most");
    assert!(most < 400, "{most} descriptors for a link that may have 100 streams");
    lives(&inbound);
}

/// Data for services that do not even accept is held in memory, and memory has a cap.
#[test]
fn buffered_bytes_have_a_cap_in_all() {
    let service = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    service.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    service.listen(0).unwrap();
    let addr = service.local_addr().unwrap().as_socket().unwrap();
    let limits = "[limits]\nmemory = \"8MiB\"\nstream_window = \"1MiB\"\nlink_queue = \"1MiB\"\n";
    let inbound = Inbound::with(addr, "", limits);
    let peer = inbound.link();
    let grown = growth(&inbound, || {
        for stream in 1..=200 {
            peer.open(stream);
            peer.data(stream, &[3; 256 * 1024]);
        }
        peer.sync();
    });
    let limited = |f: &Frame| matches!(f, Frame::Reset { reason: ResetReason::Limit, .. });
    assert!(peer.count(limited) > 100, "{} of 200 streams were reset", peer.count(limited));
    assert!(grown < 24 << 20, "{grown} bytes with a cap of 8 MiB");
    let told = |enough: fn(f64) -> bool| {
        eventually(HANG, "the metric follows", || {
            let held = inbound.sidecar.metric("sidebeat_buffered_bytes", &[]);
            if held.is_some_and(enough) { Ok(()) } else { Err(format!("{held:?}")) }
        });
    };
    told(|held| (2e6..10e6).contains(&held));
    // The memory comes back with the streams.
    for stream in 1..=200 {
        peer.reset(stream);
    }
    peer.sync();
    told(|held| held < 1e6);
    peer.open(1000);
    peer.data(1000, &[4; 100_000]);
    peer.sync();
    assert_eq!(peer.count(|f| matches!(f, Frame::Reset { stream: 1000, .. })), 0);
}

/// Every number of a hello at its ends: a link, and beats within what is believed.
#[test]
fn a_wish_for_absurd_promises_is_cut_to_what_is_believed() {
    let service = Service::echo();
    let inbound = Inbound::start(service.addr);
    for wish in [0, 1, 10_000, 10_001, u16::MAX] {
        for at in 0..3 {
            let mut h = hello();
            *[&mut h.want_active_ms, &mut h.want_idle_ms, &mut h.accept_min_ms][at] = wish;
            let peer = greeted(inbound.link, false);
            peer.say(&Frame::Hello(h));
            let welcome = crate::near::wait_welcome(&peer);
            for ms in [welcome.active_ms, welcome.idle_ms] {
                assert!((5..=10_000).contains(&ms), "{ms} for {wish}");
            }
            peer.raw(whole_request(1, b"x"));
            peer.wait_fin(1);
        }
    }
}
