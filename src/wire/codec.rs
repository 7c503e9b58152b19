//! Pure: no IO, no clock. A byte stream to events, split anywhere.

use super::WireError;
use super::frame::{Frame, HEADER_LEN, Header, Kind};
use super::load::load;

/// The wire version this code speaks.
pub const VERSION: u16 = 1;
/// Bytes of the acceptor's greeting.
pub const GREETING_LEN: usize = 12;
/// No text protocol begins with a byte over 0x7f; line ends and ^Z catch a path that is not 8-bit clean.
const MAGIC: [u8; 8] = [0xb3, b'b', b'e', b'a', b't', b'\r', 0x1a, b'\n'];

/// What the acceptor says first: magic, highest and lowest version.
pub fn greeting() -> [u8; GREETING_LEN] {
    let mut out = [0; GREETING_LEN];
    out[..8].copy_from_slice(&MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_be_bytes());
    out[10..].copy_from_slice(&VERSION.to_be_bytes());
    out
}

/// The version to speak with the peer that greeted so.
pub fn parse_greeting(b: &[u8; GREETING_LEN]) -> Result<u16, WireError> {
    if b[..8] != MAGIC {
        return Err(WireError::BadMagic);
    }
    let highest = u16::from_be_bytes([b[8], b[9]]);
    let lowest = u16::from_be_bytes([b[10], b[11]]);
    if lowest <= VERSION && VERSION <= highest { Ok(VERSION) } else { Err(WireError::NoCommonVersion) }
}

/// Caps of the decoder.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest DATA payload, bytes.
    pub max_data: u32,
    /// Longest payload of an unknown kind that is skipped, bytes.
    pub max_skip: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_data: 256 * 1024, max_skip: 64 * 1024 }
    }
}

/// What the decoder found.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Payload of a stream, as much as has arrived.
    Data {
        /// Stream id, never 0.
        stream: u32,
        /// The bytes, borrowed from the input.
        bytes: &'a [u8],
        /// The first part of its frame.
        first: bool,
        /// The last part of its frame.
        last: bool,
    },
    /// A whole control frame.
    Frame(Frame),
    /// A frame of an unknown kind began; its payload is skipped.
    Skipped {
        /// Its code.
        kind: u8,
        /// Its payload, bytes.
        len: u32,
    },
}

enum Part {
    /// Some bytes of a header are in the buffer.
    Header,
    /// A control payload; what arrived of it is in the buffer.
    Control(Kind, Header),
    /// Left of a DATA payload.
    Data { stream: u32, left: u32, first: bool },
    /// Left of a skipped payload.
    Skip(u32),
}

/// Splits a byte stream into events. It keeps at most one header or one control payload (1 KiB), and nothing between
/// frames: an idle link holds no buffer.
pub struct Decoder {
    limits: Limits,
    part: Part,
    held: Vec<u8>,
}

impl Decoder {
    /// A decoder at a frame's begin.
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits, part: Part::Header, held: Vec::new() }
    }

    /// The next event. None: the input is used up (all of it is consumed). After an error the link must be closed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, WireError> {
        loop {
            match self.part {
                Part::Header => {
                    let Some(header) = self.header(input) else { return Ok(None) };
                    if let Some(event) = self.begin(header)? {
                        return Ok(Some(event));
                    }
                }
                Part::Control(kind, header) => {
                    let Some(frame) = self.control(kind, header, input)? else { return Ok(None) };
                    self.part = Part::Header;
                    return Ok(Some(Event::Frame(frame)));
                }
                Part::Data { stream, left, first } => {
                    if input.is_empty() && left > 0 {
                        return Ok(None);
                    }
                    return Ok(Some(self.data(stream, left, first, input)));
                }
                Part::Skip(left) => {
                    let n = input.len().min(left as usize);
                    *input = &input[n..];
                    let left = left - n as u32;
                    self.part = if left == 0 { Part::Header } else { Part::Skip(left) };
                    if left > 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn header(&mut self, input: &mut &[u8]) -> Option<Header> {
        if self.held.is_empty()
            && let Some((head, rest)) = input.split_first_chunk::<HEADER_LEN>()
        {
            *input = rest;
            return Some(Header::decode(head));
        }
        self.hold(HEADER_LEN, input);
        let head = Header::decode(self.held.first_chunk()?);
        self.held = Vec::new();
        Some(head)
    }

    /// Fills the buffer up to `want` bytes.
    fn hold(&mut self, want: usize, input: &mut &[u8]) {
        let n = input.len().min(want.saturating_sub(self.held.len()));
        self.held.extend_from_slice(&input[..n]);
        *input = &input[n..];
    }

    /// Checks a header before anything is allocated for it.
    fn begin<'a>(&mut self, h: Header) -> Result<Option<Event<'a>>, WireError> {
        let Some(kind) = Kind::from_code(h.kind) else {
            if h.len > self.limits.max_skip {
                return Err(WireError::TooLong(h.kind));
            }
            self.part = if h.len == 0 { Part::Header } else { Part::Skip(h.len) };
            return Ok(Some(Event::Skipped { kind: h.kind, len: h.len }));
        };
        if kind.of_stream() != (h.stream != 0) {
            return Err(WireError::WrongStream(h.kind));
        }
        if kind == Kind::Data {
            if h.len > self.limits.max_data {
                return Err(WireError::TooLong(h.kind));
            }
            self.part = Part::Data { stream: h.stream, left: h.len, first: true };
            return Ok(None);
        }
        if h.len as usize > kind.cap() {
            return Err(WireError::TooLong(h.kind));
        }
        self.part = Part::Control(kind, h);
        Ok(None)
    }

    fn control(&mut self, kind: Kind, h: Header, input: &mut &[u8]) -> Result<Option<Frame>, WireError> {
        let len = h.len as usize;
        if self.held.is_empty() && input.len() >= len {
            let (payload, rest) = input.split_at(len);
            *input = rest;
            return load(kind, h, payload).map(Some);
        }
        self.hold(len, input);
        if self.held.len() < len {
            return Ok(None);
        }
        let payload = std::mem::take(&mut self.held);
        load(kind, h, &payload).map(Some)
    }

    fn data<'a>(&mut self, stream: u32, left: u32, first: bool, input: &mut &'a [u8]) -> Event<'a> {
        let n = input.len().min(left as usize);
        let (bytes, rest) = input.split_at(n);
        *input = rest;
        let left = left - n as u32;
        self.part = if left == 0 { Part::Header } else { Part::Data { stream, left, first: false } };
        Event::Data { stream, bytes, first, last: left == 0 }
    }

    /// The stream and the rest of the DATA payload the decoder is in, for a reader that takes it by other means.
    pub fn data_remaining(&self) -> Option<(u32, u32)> {
        match self.part {
            Part::Data { stream, left, .. } if left > 0 => Some((stream, left)),
            _ => None,
        }
    }

    /// `n` bytes of that payload were taken by other means.
    pub fn skip_data(&mut self, n: u32) {
        if let Part::Data { stream, left, .. } = self.part {
            let left = left.saturating_sub(n);
            self.part = if left == 0 { Part::Header } else { Part::Data { stream, left, first: false } };
        }
    }

    /// True inside a frame.
    pub fn is_mid_frame(&self) -> bool {
        !self.held.is_empty() || !matches!(self.part, Part::Header)
    }

    /// Bytes the decoder holds.
    pub fn held(&self) -> usize {
        self.held.capacity()
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
