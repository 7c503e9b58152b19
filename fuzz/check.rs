//! What must hold for any bytes of a peer. Used by the fuzz target and by the test that replays the corpus.

use std::collections::BTreeSet;

use bytes::BytesMut;
use sidebeat::wire::{Decoder, Event, Frame, Limits, MAX_CONTROL_PAYLOAD, WireError};

/// Everything a decoder said, the pieces of DATA payloads being joined.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Complete DATA payloads, with their stream, in order of their end.
    pub(crate) data: Vec<(u32, Vec<u8>)>,
    /// Control frames in order.
    pub(crate) frames: Vec<Frame>,
    /// Skipped frames: code and length.
    pub(crate) skipped: Vec<(u8, u32)>,
    /// Metric indices of all events.
    pub(crate) kinds: BTreeSet<usize>,
    /// The error that ended it.
    pub(crate) error: Option<WireError>,
    /// Whether the bytes ended within a frame.
    pub(crate) mid_frame: bool,
}

/// The first byte says how the rest arrives: its low seven bits are the size of a piece (0: all at once), its high bit
/// lets payloads be taken past the decoder, as splice does. Panics if the decoder breaks a promise.
pub(crate) fn check(input: &[u8]) -> Outcome {
    let Some((rule, bytes)) = input.split_first() else { return Outcome::default() };
    let whole = run(bytes, bytes.len(), false);
    let size = match usize::from(rule & 0x7f) {
        0 => bytes.len(),
        size => size,
    };
    let pieces = run(bytes, size, rule & 0x80 != 0);
    assert_eq!(pieces, whole, "the same bytes, cut in another way, must say the same");
    whole.frames.iter().for_each(round_trip);
    whole
}

fn run(mut bytes: &[u8], size: usize, splice: bool) -> Outcome {
    let mut decoder = Decoder::new(Limits::default());
    let mut outcome = Outcome::default();
    let mut open: Option<(u32, Vec<u8>)> = None;
    while !bytes.is_empty() && outcome.error.is_none() {
        if let Some((stream, left)) = decoder.data_remaining().filter(|_| splice) {
            let (taken, rest) = bytes.split_at((left as usize).min(size).min(bytes.len()));
            bytes = rest;
            decoder.skip_data(taken.len() as u32);
            outcome.data_piece(&mut open, stream, taken, decoder.data_remaining().is_none());
            continue;
        }
        let (mut piece, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        outcome.feed(&mut decoder, &mut piece, &mut open);
        assert!(decoder.buffered() <= MAX_CONTROL_PAYLOAD as usize);
        assert!(decoder.is_mid_frame() || decoder.buffered() == 0);
    }
    outcome.mid_frame = decoder.is_mid_frame();
    outcome
}

impl Outcome {
    fn feed(&mut self, decoder: &mut Decoder, piece: &mut &[u8], open: &mut Option<(u32, Vec<u8>)>) {
        loop {
            let before = piece.len();
            match decoder.next(piece) {
                Ok(Some(event)) => {
                    assert!(piece.len() < before, "an event without bytes would be an endless loop");
                    self.kinds.insert(event.metric_index());
                    self.event(event, open);
                }
                Ok(None) => return assert!(piece.is_empty(), "all is taken before None"),
                Err(error) => {
                    assert_eq!(decoder.next(piece), Err(error), "an error is for ever");
                    self.error = Some(error);
                    return;
                }
            }
        }
    }

    fn event(&mut self, event: Event<'_>, open: &mut Option<(u32, Vec<u8>)>) {
        match event {
            Event::Data { stream, bytes, first, last } => {
                assert_eq!(first, open.is_none());
                assert!(!bytes.is_empty() || (first && last));
                self.data_piece(open, stream, bytes, last);
            }
            Event::Frame(frame) => self.frames.push(frame),
            Event::Skipped { kind, len } => self.skipped.push((kind, len)),
        }
    }

    fn data_piece(&mut self, open: &mut Option<(u32, Vec<u8>)>, stream: u32, bytes: &[u8], last: bool) {
        let (of, mut joined) = open.take().unwrap_or((stream, Vec::new()));
        assert_eq!(of, stream, "frames do not mix");
        assert_ne!(stream, 0, "the link has no payload");
        joined.extend_from_slice(bytes);
        self.kinds.insert(0);
        if last {
            self.data.push((stream, joined));
        } else {
            *open = Some((stream, joined));
        }
    }
}

fn round_trip(frame: &Frame) {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    let mut input = &out[..];
    let back = Decoder::new(Limits::default()).next(&mut input);
    assert_eq!(back, Ok(Some(Event::Frame(frame.clone()))));
}
