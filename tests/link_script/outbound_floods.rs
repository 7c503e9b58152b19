//! A scripted acceptor that says too much, or takes its leave all the time: neither costs memory, connections or the
//! work of others.

use std::io::Read as _;
use std::time::Duration;

use sidebeat::clock;
use sidebeat::stamp::Stamp;
use sidebeat::upstream::endpoint::{Endpoint, EndpointOutput, EndpointParams};
use sidebeat::wire::Frame;

use crate::far::{Far, Manner, Outbound};
use crate::near::fill;
use crate::outbound::narrow_client;
use crate::outbound_abuse::{INITIAL, echoing, lives};
use crate::peer::{Auto, Peer, data_frame, encoded};
use crate::support::rng::Rng;
use crate::support::service::{connect, round_trip};
use crate::support::{eventually, pause};

fn goaway() -> Vec<u8> {
    encoded(&Frame::Goaway { deadline_ms: 5000 })
}

fn growth(outbound: &Outbound, during: impl FnOnce()) -> u64 {
    let before = outbound.sidecar.process().rss();
    during();
    let grown = outbound.sidecar.process().rss().saturating_sub(before);
    println!("grew by {} KiB", grown >> 10);
    grown
}

#[test]
fn floods_of_control_frames_cost_the_link_and_no_more() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    let table = [
        ("GOAWAY", goaway()),
        ("CREDIT of nothing", encoded(&Frame::Credit { stream: 1, bytes: 0 })),
        ("OPENED again", encoded(&Frame::Opened { stream: 1 })),
        ("frames of a later version", vec![42, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (what, frame) in table {
        lives(&outbound);
        while far.try_opened().is_some() {}
        let mut client = connect(outbound.addr);
        round_trip(&mut client, &mut Rng::new(1)).expect("an honest beginning");
        let (link, stream) = far.opened();
        println!("{what} on stream {stream}");
        let flood = frame.repeat(50_000);
        let grown = growth(&outbound, || {
            (0..40).for_each(|_| link.raw(flood.clone()));
            link.wait_closed();
        });
        assert!(grown < 24 << 20, "{grown} bytes for a flood of {what}");
        assert!(crate::near::read_all(&mut client).1.is_some(), "{what}: the client is told");
    }
    lives(&outbound);
}

/// Below the limit of control frames: streams go on, and successors are not sought without end.
#[test]
fn goaway_again_and_again_ends_no_stream_and_brings_few_dials() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    let mut client = connect(outbound.addr);
    round_trip(&mut client, &mut Rng::new(1)).expect("an honest beginning");
    let (link, _) = far.opened();
    let (begin, dials) = (clock::now(), far.dials());
    let mut most = 0;
    for n in 0..300 {
        link.raw(goaway().repeat(20));
        round_trip(&mut client, &mut Rng::new(n)).expect("the stream goes on");
        most = most.max(far.connections());
        pause();
    }
    let (dials, took) = (far.dials() - dials, clock::now().since(begin));
    println!("{dials} dials in {took:?}, at most {most} connections at once");
    assert!(!link.closed_now());
    // Each half second, and what one dial may race with; a machine that is slow makes it less.
    assert!(dials as u128 <= 4 + took.as_millis() / 250, "{dials} dials in {took:?}");
    assert!(most <= 16, "{most} connections to one endpoint");
    assert!(!outbound.ever_failed(), "{:#?}", outbound.events());
    lives(&outbound);
}

/// Each link that is welcomed is told to go in the same breath.
#[test]
fn a_peer_that_drains_from_the_first_word_is_not_dialled_without_end() {
    let manner = Manner { behind: goaway(), ..Manner::default() };
    let far = Far::with(echoing(), manner);
    let outbound = Outbound::to(&[&far]);
    let begin = clock::now();
    let mut most = 0;
    while clock::now().since(begin) < Duration::from_secs(4) {
        most = most.max(far.connections());
        pause();
    }
    let (dials, took) = (far.dials(), clock::now().since(begin));
    println!("{dials} dials in {took:?}, at most {most} connections at once");
    assert!(dials as u128 <= 6 + took.as_millis() / 250, "{dials} dials in {took:?}");
    assert!(most <= 16, "{most} connections to one endpoint");
    assert!(!outbound.ever_failed(), "{:#?}", outbound.events());
    // It means it no more.
    far.manner(|m| m.behind.clear());
    eventually(Duration::from_secs(20), "a link that takes work", || {
        let e = outbound.endpoint(0);
        if e["cause"] == "none" { Ok(()) } else { Err(e.to_string()) }
    });
    lives(&outbound);
}

/// The instant at which a successor is looked for follows from the seed of an endpoint: none of them may make a storm
/// of dials to a peer that welcomes each link and drains it at once. In virtual time.
#[test]
fn no_seed_makes_a_storm_of_dials_to_a_peer_that_always_drains() {
    for seed in [0, 1, 2, 10, 512, 1023, 1024, u64::MAX] {
        let begin = Stamp::from_millis(1000);
        let mut now = begin;
        let mut endpoint = Endpoint::new(EndpointParams { seed, ..EndpointParams::default() }, now);
        let mut dials = 0;
        endpoint.link_up(now, 1, 7);
        endpoint.goaway(now);
        while now.since(begin) < Duration::from_secs(10) && dials < 10_000 {
            while let Some(output) = endpoint.poll(now) {
                if matches!(output, EndpointOutput::FreshDial) {
                    dials += 1;
                    endpoint.link_up(now, 1 + dials, 7);
                    endpoint.goaway(now);
                    break;
                }
            }
            // A dial takes a moment too.
            now = endpoint.next_due(now).0.max(now + Duration::from_micros(200));
        }
        println!("seed {seed}: {dials} dials in 10 s");
        assert!(dials <= 25, "seed {seed}: {dials} dials in 10 s");
        assert!(dials >= 1, "seed {seed}: its successor is never looked for");
    }
}

/// DATA in pieces of one byte, to an application that reads nothing more, costs about what its credit says.
#[test]
fn tiny_pieces_for_a_client_that_does_not_read_cost_what_their_credit_says() {
    let far = Far::start(Auto::default());
    let outbound = Outbound::to(&[&far]);
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut client = narrow_client(outbound.addr);
        let (link, stream) = far.opened();
        // First what the kernels take; then room is made until there is credit again.
        let sent = fill(&link, stream, INITIAL, 1);
        let granted = link.granted(stream);
        while link.granted(stream) == granted {
            client.read_exact(&mut vec![0; 64 * 1024]).unwrap();
            link.sync();
        }
        streams.push((client, link, stream, sent));
    }
    let grown = growth(&outbound, || {
        streams.iter().for_each(|(_, link, stream, sent)| fill_with_single_bytes(link, *stream, *sent));
    });
    // No more credit came: half a window at least of each stream waits in the sidecar.
    assert!(grown < 32 << 20, "{grown} bytes");
    far.pilot.set(|a| a.echo = true);
    lives(&outbound);
}

/// Until no more credit comes.
fn fill_with_single_bytes(link: &Peer, stream: u32, mut sent: u64) {
    let begin = sent;
    let mut quiet = 0;
    while quiet < 20 {
        let n = (INITIAL + link.granted(stream) - sent).min(10_000);
        if n == 0 {
            link.sync();
            pause();
            quiet += 1;
            continue;
        }
        quiet = 0;
        link.raw(data_frame(stream, b"z").repeat(n as usize));
        sent += n;
    }
    println!("{} pieces on stream {stream}", sent - begin);
    assert!(sent - begin > 100_000);
}
