//! Cost of the codec per frame: `cargo bench --bench codec`. Each row is the median of several repeats.

use std::hint::black_box;
use std::time::Duration;

use bytes::BytesMut;
use sidebeat::wire::{Beat, Decoder, Event, Frame, Limits, data_header};

const REPEATS: usize = 15;
/// A test run only shows that the bench still works.
const QUICK: Duration = Duration::from_millis(1);
const FULL: Duration = Duration::from_millis(60);

#[expect(clippy::disallowed_methods, reason = "a bench measures real time and has no paused clock")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// Runs `work`, which handles `frames` frames, for `time` per repeat and prints ns per frame.
fn row(name: &str, frames: usize, time: Duration, mut work: impl FnMut()) {
    let mut repeats: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = clock();
            let mut rounds = 0;
            let mut spent = Duration::ZERO;
            while spent < time {
                (0..16).for_each(|_| work());
                rounds += 16;
                spent = clock() - start;
            }
            spent.as_nanos() as f64 / (rounds * frames) as f64
        })
        .collect();
    repeats.sort_by(f64::total_cmp);
    let (best, median, worst) = (repeats[0], repeats[REPEATS / 2], repeats[REPEATS - 1]);
    println!("{name:<46} {median:>8.1} ns/frame  ({best:.1} - {worst:.1})");
}

/// `data` frames of `len` bytes on different streams, then one beat: what one wake-up sends.
fn batch(data: u32, len: u32) -> BytesMut {
    let mut out = BytesMut::new();
    for stream in 1..=data {
        out.extend_from_slice(&data_header(stream, len));
        out.resize(out.len() + len as usize, stream as u8);
    }
    Frame::Beat(sample()).encode(&mut out);
    out
}

fn sample() -> Beat {
    Beat { seq: 77, promise_ms: 20, processing_us: 130, utility: 9, in_flight: 3, ..Beat::default() }
}

fn drain(decoder: &mut Decoder, mut input: &[u8]) -> usize {
    let mut sum = 0;
    loop {
        // Matched in place, as the link does: to move a beat that was just written stalls the processor.
        sum += match decoder.next(&mut input) {
            Ok(Some(Event::Data { stream, bytes, .. })) => stream as usize + bytes.len(),
            Ok(Some(Event::Frame(Frame::Beat(beat)))) => beat.seq as usize,
            Ok(Some(Event::Frame(frame))) => frame.stream() as usize,
            Ok(Some(Event::Skipped { len, .. })) => len as usize,
            Ok(None) | Err(_) => return sum,
        };
    }
}

fn encode_rows(time: Duration) {
    let mut out = BytesMut::with_capacity(64 * 1024);
    row("encode beat into a buffer", 1000, time, || {
        out.clear();
        for seq in 0..1000 {
            Frame::Beat(Beat { seq, ..sample() }).encode(&mut out);
        }
        black_box(&out);
    });
    row("encode beat on the stack", 1000, time, || {
        for seq in 0..1000 {
            black_box(Beat { seq, ..sample() }.encode());
        }
    });
    row("encode data header", 1000, time, || {
        for stream in 0..1000 {
            black_box(data_header(black_box(stream), 1024));
        }
    });
    row("encode credit", 1000, time, || {
        out.clear();
        for stream in 1..=1000 {
            Frame::Credit { stream, bytes: 4096 }.encode(&mut out);
        }
        black_box(&out);
    });
}

fn decode_rows(time: Duration) {
    for (data, len) in [(0, 0), (1, 64), (1, 1024), (16, 1024), (64, 64), (4, 65_536)] {
        let bytes = batch(data, len);
        let mut decoder = Decoder::new(Limits::default());
        let name = format!("decode {data} x {len} B data + beat");
        row(&name, data as usize + 1, time, || {
            black_box(drain(&mut decoder, black_box(&bytes)));
        });
    }
    let bytes = batch(16, 1024);
    for size in [1, 7, 1000] {
        let mut decoder = Decoder::new(Limits::default());
        let name = format!("decode 16 x 1024 B data + beat, {size} B pieces");
        row(&name, 17, time, || {
            for piece in black_box(&bytes).chunks(size) {
                black_box(drain(&mut decoder, piece));
            }
        });
    }
    let bytes = batch(0, 0);
    let mut decoder = Decoder::new(Limits::default());
    row("decode beat split in its payload (allocates)", 1, time, || {
        let (a, b) = black_box(&bytes).split_at(20);
        black_box(drain(&mut decoder, a) + drain(&mut decoder, b));
    });
}

fn main() {
    let time = if std::env::args().any(|arg| arg == "--bench") { FULL } else { QUICK };
    encode_rows(time);
    decode_rows(time);
}
