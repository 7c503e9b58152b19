//! Byte transparency, against the real program: what one end of a connection does, the other end sees, in every mode.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use sidebeat::clock;
use socket2::SockRef;
use support::pair::{Mode, Pair, Setup, Sidecar};
use support::rng::{Rng, Sum};
use support::service::{
    HANG, Service, both_ways, connect, connect_from, receive_all, reset, round_trip, send_random, telling,
};
use support::usage::{at_rest, memory_given_back};
use support::{Port, eventually, sized};

const MIB: u64 = 1 << 20;

macro_rules! in_every_mode {
    ($($name:ident),* $(,)?) => {
        mod shared { $( #[test] fn $name() { super::$name(super::Mode::Shared) } )* }
        mod per_connection { $( #[test] fn $name() { super::$name(super::Mode::PerConnection) } )* }
        mod plain { $( #[test] fn $name() { super::$name(super::Mode::Plain) } )* }
    };
}

in_every_mode!(
    a_client_that_ends_first_gets_all_that_comes_after,
    a_service_that_ends_first_gets_all_that_comes_after,
    a_reset_by_the_client_is_a_reset_at_the_service,
    a_reset_by_the_service_is_a_reset_at_the_client,
    an_end_is_an_end_and_no_reset,
    bytes_before_an_end_are_never_lost,
    a_slow_service_gets_all_of_a_client_that_is_gone,
    bulk_both_ways_at_once_arrives_unchanged,
    short_connections_leave_nothing_behind,
    many_connections_at_once,
    a_reader_that_stops_costs_bounded_memory_and_nobody_else,
    a_service_that_speaks_first_is_heard_at_once,
    a_service_that_is_down_gives_a_reset_and_no_hang,
    one_stream_over_a_long_path_keeps_its_speed,
);

fn start(service: &Service, mode: Mode) -> Pair {
    Setup::mode(service.addr, mode).start()
}

fn a_client_that_ends_first_gets_all_that_comes_after(mode: Mode) {
    let (service, told) = telling(|mut stream| {
        let heard = receive_all(&mut stream).unwrap();
        let said = send_random(&mut stream, 2, 3 * MIB).unwrap();
        (heard, said)
    });
    let pair = start(&service, mode);
    let mut client = connect(pair.addr);
    let said = send_random(&mut client, 1, MIB + 17).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let heard = receive_all(&mut client).unwrap();
    assert_eq!(told.recv_timeout(HANG).unwrap(), (said, heard));
    pair.finish();
}

fn a_service_that_ends_first_gets_all_that_comes_after(mode: Mode) {
    let (service, told) = telling(|mut stream| {
        let said = send_random(&mut stream, 3, MIB + 17).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        (said, receive_all(&mut stream).unwrap())
    });
    let pair = start(&service, mode);
    let mut client = connect(pair.addr);
    let heard = receive_all(&mut client).unwrap();
    let said = send_random(&mut client, 4, 3 * MIB).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(told.recv_timeout(HANG).unwrap(), (heard, said));
    pair.finish();
}

/// How a stream ended: by FIN, or by which error.
fn ending(stream: &mut TcpStream) -> Result<Sum, ErrorKind> {
    receive_all(stream).map_err(|e| e.kind())
}

fn a_reset_by_the_client_is_a_reset_at_the_service(mode: Mode) {
    let (service, told) = telling(|mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
        ending(&mut stream)
    });
    let pair = start(&service, mode);
    for _ in 0..20 {
        let mut client = connect(pair.addr);
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        reset(client);
        assert_eq!(told.recv_timeout(HANG).unwrap(), Err(ErrorKind::ConnectionReset));
    }
    pair.finish();
}

fn a_reset_by_the_service_is_a_reset_at_the_client(mode: Mode) {
    let service = Service::start(|mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
        stream.read_exact(&mut byte).unwrap();
        reset(stream);
    });
    let pair = start(&service, mode);
    for _ in 0..20 {
        let mut client = connect(pair.addr);
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        client.write_all(b"y").unwrap();
        assert_eq!(ending(&mut client), Err(ErrorKind::ConnectionReset));
    }
    pair.finish();
}

fn an_end_is_an_end_and_no_reset(mode: Mode) {
    let (service, told) = telling(|mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
        ending(&mut stream)
    });
    let pair = start(&service, mode);
    for _ in 0..20 {
        let mut client = connect(pair.addr);
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(ending(&mut client), Ok(Sum::default()));
        assert_eq!(told.recv_timeout(HANG).unwrap(), Ok(Sum::default()));
    }
    pair.finish();
}

/// Write and close at once, many sizes: the end must not overtake the bytes.
fn bytes_before_an_end_are_never_lost(mode: Mode) {
    let (service, told) = telling(|mut stream| receive_all(&mut stream).unwrap());
    let pair = start(&service, mode);
    let mut rng = Rng::new(5);
    for n in 0..200u64 {
        let len = 1 + rng.below(sized(300_000, 3_000_000)) as u64;
        let mut client = connect(pair.addr);
        let said = send_random(&mut client, n, len).unwrap();
        drop(client);
        assert_eq!(told.recv_timeout(HANG).unwrap(), said, "connection {n}");
    }
    pair.finish();
}

/// The client ends both directions long before the service has read what it sent.
fn a_slow_service_gets_all_of_a_client_that_is_gone(mode: Mode) {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let (service, told) = telling(move |mut stream| {
        // A small buffer: most of it waits in the sidecars.
        SockRef::from(&stream).set_recv_buffer_size(32 * 1024).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        wait.lock().unwrap().recv_timeout(HANG).unwrap();
        receive_all(&mut stream).map_err(|e| e.kind())
    });
    let pair = start(&service, mode);
    for n in 0..20 {
        let mut client = connect(pair.addr);
        let said = send_random(&mut client, n, 200_000).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(receive_all(&mut client).unwrap(), Sum::default());
        drop(client);
        // Time for the near side to be done with it.
        eventually(HANG, "the near side is done", || {
            let active = pair.near.metric("sidebeat_connections_active", &[]);
            let done = active == Some(0.0) || mode == Mode::Plain;
            if done { Ok(()) } else { Err(format!("{active:?} active")) }
        });
        support::pause();
        go.send(()).unwrap();
        assert_eq!(told.recv_timeout(HANG).unwrap(), Ok(said), "connection {n}");
    }
    pair.finish();
}

fn bulk_both_ways_at_once_arrives_unchanged(mode: Mode) {
    let len = sized(64 * MIB, 1024 * MIB);
    let (service, told) = telling(move |stream| both_ways(stream, 6, len));
    let pair = start(&service, mode);
    let (said, heard) = both_ways(connect(pair.addr), 7, len);
    assert_eq!(heard.len, len);
    assert_eq!(told.recv_timeout(HANG * 10).unwrap(), (heard, said));
    pair.finish();
}

/// Open connections and streams as both sidecars count them.
fn open(pair: &Pair) -> f64 {
    let gauges = ["sidebeat_connections_active", "sidebeat_streams_active"];
    pair.sidecars().flat_map(|s| gauges.iter().filter_map(|g| s.metric(g, &[]))).sum()
}

fn nothing_open(pair: &Pair) {
    eventually(Duration::from_secs(20), "no connection and no stream is left", || match open(pair) {
        0.0 => Ok(()),
        n => Err(format!("{n} left")),
    });
}

fn short_connections_leave_nothing_behind(mode: Mode) {
    let service = Service::echo();
    let pair = start(&service, mode);
    let mut rng = Rng::new(8);
    let mut some = |count: usize| {
        for n in 0..count {
            let mut client = connect_from(pair.addr, n);
            round_trip(&mut client, &mut rng).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
        nothing_open(&pair);
    };
    // The first ones fill what is kept for the next ones.
    let count = sized(4_000, 20_000);
    some(count / 2);
    let before = at_rest(&pair);
    some(count);
    memory_given_back(&pair, &before, count);
    pair.finish();
}

fn many_connections_at_once(mode: Mode) {
    let count = sized(500, 2_000);
    let service = Service::echo();
    let pair = start(&service, mode);
    let mut rng = Rng::new(9);
    let mut clients: Vec<_> =
        (0..count).map(|n| (connect_from(pair.addr, n), rng.bytes(1024 + n % 7))).collect();
    for _ in 0..3 {
        for (client, text) in &mut clients {
            client.write_all(text).unwrap();
        }
        for (n, (client, text)) in clients.iter_mut().enumerate() {
            let mut answer = vec![0; text.len()];
            client.read_exact(&mut answer).unwrap_or_else(|e| panic!("connection {n}: {e}"));
            assert!(answer == *text, "connection {n}: another answer than the question");
        }
    }
    let active = pair.near.metric("sidebeat_connections_active", &[]);
    assert_eq!(active, Some(count as f64), "open connections");
    let links = pair.near.metric("sidebeat_links_active", &[("direction", "out")]).unwrap_or_default();
    match mode {
        // One of each worker, and perhaps a witness of each.
        Mode::Shared => assert!((1.0..=6.0).contains(&links), "{links} links"),
        Mode::PerConnection => assert!(links >= count as f64, "{links} links"),
        Mode::Plain => assert_eq!(links, 0.0, "links"),
    }
    drop(clients);
    nothing_open(&pair);
    pair.finish();
}

/// Bytes that a reader which stops has asked for.
const HELD: u64 = 256 * MIB;

/// Echoes questions of 32 bytes, and answers a "B" with [`HELD`] bytes.
fn echo_or_bulk() -> Service {
    Service::start(|mut stream| {
        let mut wish = [0];
        while stream.read_exact(&mut wish).is_ok() {
            if wish == *b"B" {
                // The client does not read for a long time: only its own patience counts.
                stream.set_write_timeout(None).unwrap();
                let _ = send_random(&mut stream, 10, HELD);
                return;
            }
            let mut rest = [0; 31];
            stream.read_exact(&mut rest).unwrap();
            stream.write_all(&[&wish[..], &rest].concat()).unwrap();
        }
    })
}

/// Questions and answers on `stream` for that long; gives how many a second. `now_and_then`: each 50.
fn trips_per_second(stream: &mut TcpStream, time: Duration, mut now_and_then: impl FnMut()) -> f64 {
    let begin = clock::now();
    let mut trips = 0u64;
    while clock::now() < begin + time {
        let mut question = Rng::new(trips).bytes(32);
        question[0] = b'e';
        stream.write_all(&question).unwrap();
        let mut answer = [0; 32];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..], question[..]);
        trips += 1;
        if trips.is_multiple_of(50) {
            now_and_then();
        }
    }
    trips as f64 / clock::now().since(begin).as_secs_f64()
}

/// Round trips a second to each of two addresses, by turns and so under the same load of the machine. Each turn has a
/// connection of its own: two cores or one make threefold a difference, and that stays as it is for seconds.
fn by_turns(to: [SocketAddr; 2], time: Duration, mut each: impl FnMut()) -> [f64; 2] {
    const TURNS: u32 = 10;
    let mut sums = [0.0; 2];
    for _ in 0..TURNS {
        for (sum, addr) in sums.iter_mut().zip(to) {
            *sum += trips_per_second(&mut connect(addr), time / TURNS / 2, &mut each);
        }
    }
    sums.map(|sum| sum / f64::from(TURNS))
}

/// Beats that each sidecar has sent and heard.
fn beats(pair: &Pair) -> Vec<f64> {
    let count = |s: &Sidecar, direction| {
        s.metric("sidebeat_frames_total", &[("kind", "beat"), ("direction", direction)]).unwrap_or(0.0)
    };
    pair.sidecars().flat_map(|s| [count(s, "out"), count(s, "in")]).collect()
}

fn a_reader_that_stops_costs_bounded_memory_and_nobody_else(mode: Mode) {
    const PARTS: u32 = 3;
    let service = echo_or_bulk();
    // The second pair has nobody who stops: it shows what is usual.
    let (pair, well) = (start(&service, mode), start(&service, mode));
    let before: Vec<u64> = pair.sidecars().map(|s| s.process().rss()).collect();
    let events = pair.near.events();

    let mut stopped = connect(pair.addr);
    stopped.write_all(b"B").unwrap();
    let (mut most, mut sums) = (vec![0; before.len()], [0.0; 2]);
    for part in 0..PARTS {
        let beaten = beats(&pair);
        let time = Duration::from_secs(sized(1, 20));
        let [beside, usual] = by_turns([pair.addr, well.addr], time, || {
            for (most, s) in most.iter_mut().zip(pair.sidecars()) {
                *most = s.process().rss().max(*most);
            }
        });
        let now = beats(&pair);
        println!("{mode:?}: {usual:.0} round trips a second elsewhere, {beside:.0} beside a stopped reader");
        println!("resident {before:?}, at most {most:?}; beats {beaten:?}, then {now:?}");
        sums = [sums[0] + beside, sums[1] + usual];
        assert!(
            mode == Mode::Plain || now.iter().zip(&beaten).all(|(now, then)| now > then),
            "part {part}: beats {beaten:?}, then {now:?}"
        );
    }
    // Three seconds are little, so half of it is wanted only where long runs were asked for.
    let [beside, usual] = sums;
    assert!(beside >= usual * sized(0.2, 0.5), "{sums:?} round trips beside a stopped reader, and elsewhere");
    for (most, before) in most.iter().zip(&before) {
        assert!(*most < before + (16 << 20), "memory grew from {before} to {most}");
    }
    // Being full must never look like death. A machine with too few cores may cost a SUSPECT.
    let news: Vec<_> = pair.near.events().split_off(events.len());
    println!("{mode:?}: {} changes of state meanwhile", news.len());
    let bad = |e: &String| e.contains("\"to\":\"failed\"") || sized(false, e.contains("\"to\":\"suspect\""));
    assert!(!news.iter().any(bad), "a reader that stops is no failure: {news:?}");

    let mut expected = Sum::default();
    send_random(&mut SumOnly(&mut expected), 10, HELD).unwrap();
    assert_eq!(receive_all(&mut stopped).unwrap(), expected);
    drop(stopped);
    nothing_open(&pair);
    pair.finish();
    well.finish();
}

/// A sink that keeps the checksum only.
struct SumOnly<'a>(&'a mut Sum);

impl std::io::Write for SumOnly<'_> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.add(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn a_service_that_speaks_first_is_heard_at_once(mode: Mode) {
    let service = Service::start(|mut stream| {
        stream.write_all(b"220 ready\r\n").unwrap();
        let _ = receive_all(&mut stream);
    });
    let pair = start(&service, mode);
    for _ in 0..20 {
        let mut client = connect(pair.addr);
        let mut banner = [0; 11];
        client.read_exact(&mut banner).unwrap();
        assert_eq!(&banner, b"220 ready\r\n");
    }
    pair.finish();
}

fn a_service_that_is_down_gives_a_reset_and_no_hang(mode: Mode) {
    let nobody = Port::pick();
    let pair = Setup::mode(nobody.addr(), mode).start();
    for _ in 0..10 {
        let outcome = TcpStream::connect_timeout(&pair.addr, HANG).and_then(|mut client| {
            client.set_read_timeout(Some(HANG))?;
            client.read(&mut [0])
        });
        let kind = outcome.map_err(|e| e.kind());
        let refused = matches!(kind, Err(ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused));
        assert!(refused, "a client of a service that is down got {kind:?}");
    }
    nothing_open(&pair);
    pair.finish();
}

/// 20 ms each way, 200 Mbit/s. The bytes are checked always, the time only where long runs were asked for.
fn one_stream_over_a_long_path_keeps_its_speed(mode: Mode) {
    const DELAY: Duration = Duration::from_millis(20);
    const RATE: f64 = 200e6 / 8.0;
    // At least ten times what the initial credit allows for a round trip: the rest comes by credit that grows.
    let len = sized(4 * MIB, 100 * MIB);
    let mut expected = Sum::default();
    send_random(&mut SumOnly(&mut expected), 11, len).unwrap();
    let service = Service::start(move |mut stream| {
        let _ = stream.read_exact(&mut [0]);
        let _ = send_random(&mut stream, 11, len);
    });
    let pair = Setup::mode(service.addr, mode).path(DELAY, RATE).start();
    let timed = |addr| {
        let begin = clock::now();
        let mut client = connect(addr);
        client.write_all(b"x").unwrap();
        assert_eq!(receive_all(&mut client).unwrap(), expected);
        clock::now().since(begin).as_secs_f64()
    };
    let direct = timed(support::relay::start(service.addr, DELAY, RATE));
    let through = timed(pair.addr);
    println!(
        "{mode:?}: {direct:.2} s direct, {through:.2} s through the pair: {:.0} %",
        100.0 * direct / through
    );
    if support::big() {
        assert!(direct / through >= 0.8, "{:.0} % of the direct speed", 100.0 * direct / through);
    }
    pair.finish();
}
