//! A link of one stream, whose bulk data passes through kernel pipes: it must look like any other link from outside.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use sidebeat::wire::{FEATURE_ONE_STREAM, Frame, Hello, ResetReason};

use crate::near::{Hand, Inbound, fill, greeted, read_all, wait_welcome};
use crate::peer::{Peer, What, data_frame, hello};
use crate::support::eventually;
use crate::support::rng::Rng;
use crate::support::service::HANG;

const INITIAL: u64 = 256 * 1024;
const BULK: usize = 3 << 20;

fn link(inbound: &Inbound) -> Peer {
    let peer = greeted(inbound.link, false);
    peer.say(&Frame::Hello(Hello { features: FEATURE_ONE_STREAM, ..hello() }));
    assert_eq!(wait_welcome(&peer).features, FEATURE_ONE_STREAM);
    peer
}

/// Sends all under the credit that is granted.
fn send(peer: &Peer, stream: u32, body: &[u8]) {
    let mut sent = 0;
    while sent < body.len() {
        let left = (INITIAL + peer.granted(stream)) as usize - sent;
        let n = left.min(64 * 1024).min(body.len() - sent);
        if n == 0 {
            crate::support::pause();
            continue;
        }
        peer.raw(data_frame(stream, &body[sent..sent + n]));
        sent += n;
    }
}

#[test]
fn bulk_arrives_whole_both_ways_with_its_ends() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = link(&inbound);
    peer.pilot().set(|a| a.grants = true);
    peer.open(1);
    let mut service = hand.next();
    let (up, down) = (Rng::new(1).bytes(BULK), Rng::new(2).bytes(BULK));
    let mut reader = service.try_clone().unwrap();
    let reads = std::thread::spawn(move || read_all(&mut reader));
    send(&peer, 1, &up);
    peer.end(1);
    assert!(reads.join().unwrap() == (up, None));
    service.write_all(&down).unwrap();
    service.shutdown(Shutdown::Write).unwrap();
    peer.wait_fin(1);
    assert!(peer.bytes(1) == down);
    // The next stream of the link, when the first one is over.
    peer.open(2);
    let mut service = hand.next();
    service.write_all(b"next").unwrap();
    assert_eq!(peer.bytes_of(2, 4), b"next");
}

#[test]
fn more_than_the_credit_resets_the_stream_only() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = link(&inbound);
    peer.open(1);
    let mut service = hand.next();
    fill(&peer, 1, INITIAL, 1);
    peer.data(1, &[2; 50_000]);
    assert_eq!(peer.wait_reset(1), ResetReason::Protocol);
    assert!(read_all(&mut service).1.is_some());
    peer.sync();
}

#[test]
fn a_second_stream_at_once_is_refused() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    let peer = link(&inbound);
    peer.open(1);
    peer.wait_opened(1);
    peer.open(2);
    peer.wait("OPEN_FAILED", |w| matches!(w, What::Frame(Frame::OpenFailed { stream: 2, .. })));
    peer.sync();
}

#[test]
fn resets_in_the_middle_of_bulk_are_carried() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    for stream in 1..=10 {
        let peer = link(&inbound);
        peer.pilot().set(|a| a.grants = true);
        peer.open(stream);
        let service = hand.next();
        let mut writer = service.try_clone().unwrap();
        let writes = std::thread::spawn(move || {
            loop {
                if let Err(e) = writer.write_all(&[5; 64 * 1024]) {
                    return e.kind();
                }
            }
        });
        eventually(HANG, "bulk flows", || match peer.bytes(stream).len() {
            0..1_000_000 => Err("not yet".to_owned()),
            _ => Ok(()),
        });
        if stream % 2 == 0 {
            peer.reset(stream);
            assert_eq!(writes.join().unwrap(), std::io::ErrorKind::ConnectionReset);
        } else {
            service.shutdown(Shutdown::Both).unwrap();
            assert_eq!(writes.join().unwrap(), std::io::ErrorKind::BrokenPipe);
            peer.wait_fin(stream);
        }
        link(&inbound).sync();
    }
}

#[test]
fn a_service_that_stops_reading_in_the_middle_of_bulk_loses_nothing_it_said() {
    let hand = Hand::new();
    let inbound = Inbound::start(hand.service.addr);
    for stream in 1..=10 {
        let peer = link(&inbound);
        peer.open(stream);
        let mut service = hand.next();
        let got = std::thread::spawn(move || {
            let mut some = vec![0; 1_000_000];
            service.read_exact(&mut some).unwrap();
            service.write_all(b"enough").unwrap();
            // Closed with unread bytes: the kernel says RST.
        });
        let body = vec![6; 8 << 20];
        let mut sent = 0;
        let over = |f: &Frame| matches!(f, Frame::Reset { .. });
        while peer.count(over) == 0 {
            let left = (INITIAL + peer.granted(stream)) as usize - sent;
            let n = left.min(64 * 1024).min(body.len() - sent);
            if n == 0 {
                crate::support::pause();
                continue;
            }
            peer.raw(data_frame(stream, &body[..n]));
            sent += n;
        }
        got.join().unwrap();
        assert_eq!(peer.bytes(stream), b"enough");
        peer.sync();
    }
}
