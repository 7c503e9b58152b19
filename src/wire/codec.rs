//! Pure: no IO, no clock. A stream of bytes, cut anywhere, to events.
//!
//! ```text
//!            header complete                       payload complete
//!  Header ---------------------> Data | Control | Skip ------------> Header
//!     \________________________________|_________________________________> Failed (for good)
//! ```

use super::error::WireError;
use super::frame::{Frame, HEADER_LEN, Header, Kind};
use super::kind::{METRIC_OTHER, Scope};
use super::load;

/// What a decoder accepts. The caps of control frames are fixed per kind ([`Kind::payload_cap`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest DATA payload, bytes. Default 256 KiB, the largest quantum.
    pub max_data: u32,
    /// Longest frame of an unknown kind that is skipped, bytes. Default 64 KiB.
    pub max_skip: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_data: 256 * 1024, max_skip: 64 * 1024 }
    }
}

impl Limits {
    /// For a peer that has not said hello: no payload, nothing unknown. See [`Decoder::set_limits`].
    pub const HANDSHAKE: Limits = Limits { max_data: 0, max_skip: 0 };
}

/// What the peer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece of a DATA payload, as it arrived. Empty only for an empty frame, which the caller should count: a peer
    /// can make many of them.
    Data {
        /// Stream id, not 0.
        stream: u32,
        /// Borrowed from the input.
        bytes: &'a [u8],
        /// First piece of its frame.
        first: bool,
        /// Last piece of its frame.
        last: bool,
    },
    /// A control frame.
    Frame(Frame),
    /// A frame of a kind of a later version was skipped.
    Skipped {
        /// Code of the kind.
        kind: u8,
        /// Payload, bytes.
        len: u32,
    },
}

impl Event<'_> {
    /// Index into [`METRIC_KINDS`](super::METRIC_KINDS).
    pub const fn metric_index(&self) -> usize {
        match self {
            Event::Data { .. } => Kind::Data.metric_index(),
            Event::Frame(frame) => frame.kind().metric_index(),
            Event::Skipped { .. } => METRIC_OTHER,
        }
    }
}

/// Where in a frame the input stopped.
#[derive(Clone, Copy, Debug)]
enum State {
    /// `have` bytes of a header, 0-7, are in `Decoder::head`.
    Header { have: u8 },
    /// `left` bytes of a DATA payload, at least 1, are to come.
    Data { stream: u32, left: u32, first: bool },
    /// The payload so far is in `Decoder::held`.
    Control { kind: Kind, len: u32, stream: u32 },
    /// `left` bytes, at least 1, are to be thrown away.
    Skip { kind: u8, len: u32, left: u32 },
    /// The link is to be closed.
    Failed(WireError),
}

const START: State = State::Header { have: 0 };

/// Turns the bytes of one direction of a link, after the greeting, into events.
///
/// It holds a buffer only while a control frame is split over two reads, and never more than
/// [`MAX_CONTROL_PAYLOAD`](super::MAX_CONTROL_PAYLOAD) bytes. DATA and BEAT frames are decoded without allocation.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
    head: [u8; HEADER_LEN],
    held: Vec<u8>,
}

impl Decoder {
    /// A decoder at the start of a frame.
    pub const fn new(limits: Limits) -> Self {
        Decoder { limits, state: START, head: [0; HEADER_LEN], held: Vec::new() }
    }

    /// Changes the limits for the frames whose header is not complete yet.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes bytes from the front of `input` until an event is complete. `None` means that all of `input` is taken
    /// and more is needed. The caller knows the bytes of each event by how much shorter `input` became.
    ///
    /// # Errors
    /// After any [`WireError`] the link must be closed; the decoder then gives the same error for ever, and what is
    /// left of `input` means nothing.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, WireError> {
        let result = self.step(input);
        if let Err(error) = result {
            self.held = Vec::new();
            self.state = State::Failed(error);
        }
        result
    }

    // Each function below hands its result on as it is: taking an event apart and wrapping it again costs more than
    // decoding a beat does.

    #[inline]
    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, WireError> {
        let State::Header { have } = self.state else { return self.proceed(input) };
        match self.take_header(have, input) {
            Some(header) => self.begin(header, input),
            None => Ok(None),
        }
    }

    #[inline]
    fn take_header(&mut self, have: u8, input: &mut &[u8]) -> Option<Header> {
        if have == 0
            && let Some((head, rest)) = input.split_first_chunk()
        {
            *input = rest;
            return Some(Header::decode(head));
        }
        let have = usize::from(have);
        let piece = take(input, HEADER_LEN - have);
        let now = have + piece.len();
        self.head[have..now].copy_from_slice(piece);
        if now == HEADER_LEN {
            return Some(Header::decode(&self.head));
        }
        self.state = State::Header { have: now as u8 };
        None
    }

    /// Checks all that a header alone can show, then goes on with the payload.
    #[inline]
    fn begin<'a>(&mut self, header: Header, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, WireError> {
        let Header { len, stream, .. } = header;
        self.state = START;
        match Kind::from_code(header.kind) {
            Some(Kind::Data) => self.begin_data(stream, len, input),
            Some(kind) => self.begin_control(kind, stream, len, input),
            None => self.begin_skip(header.kind, len, input),
        }
    }

    #[inline]
    fn begin_data<'a>(
        &mut self,
        stream: u32,
        len: u32,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, WireError> {
        if stream == 0 {
            return Err(WireError::WrongStream { kind: Kind::Data, stream });
        }
        if len > self.limits.max_data {
            return Err(WireError::DataTooLong { len, max: self.limits.max_data });
        }
        if len == 0 {
            return Ok(Some(Event::Data { stream, bytes: &[], first: true, last: true }));
        }
        self.state = State::Data { stream, left: len, first: true };
        self.proceed(input)
    }

    #[inline]
    fn begin_control<'a>(
        &mut self,
        kind: Kind,
        stream: u32,
        len: u32,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, WireError> {
        let rule = kind.rule();
        if (rule.scope == Scope::Link) != (stream == 0) {
            return Err(WireError::WrongStream { kind, stream });
        }
        if len > rule.cap {
            return Err(WireError::TooLong { kind, len, cap: rule.cap });
        }
        if len < rule.min {
            return Err(WireError::TooShort { kind, len });
        }
        if let Some((payload, rest)) = input.split_at_checked(len as usize) {
            *input = rest;
            return load::control(kind, stream, payload);
        }
        self.state = State::Control { kind, len, stream };
        self.proceed(input)
    }

    fn begin_skip<'a>(
        &mut self,
        kind: u8,
        len: u32,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, WireError> {
        if len > self.limits.max_skip {
            return Err(WireError::SkipTooLong { kind, len, max: self.limits.max_skip });
        }
        if len == 0 {
            return Ok(Some(Event::Skipped { kind, len }));
        }
        self.state = State::Skip { kind, len, left: len };
        self.proceed(input)
    }

    /// Goes on inside a frame.
    #[inline]
    fn proceed<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, WireError> {
        match self.state {
            State::Failed(error) => Err(error),
            _ if input.is_empty() => Ok(None),
            State::Data { stream, left, first } => {
                let bytes = take(input, left as usize);
                let left = left - bytes.len() as u32;
                self.state = if left == 0 { START } else { State::Data { stream, left, first: false } };
                Ok(Some(Event::Data { stream, bytes, first, last: left == 0 }))
            }
            State::Control { kind, len, stream } => self.hold(kind, len, stream, input),
            State::Skip { kind, len, left } => {
                let left = left - take(input, left as usize).len() as u32;
                self.state = if left == 0 { START } else { State::Skip { kind, len, left } };
                Ok((left == 0).then_some(Event::Skipped { kind, len }))
            }
            State::Header { .. } => Ok(None),
        }
    }

    #[cold]
    fn hold<'a>(
        &mut self,
        kind: Kind,
        len: u32,
        stream: u32,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, WireError> {
        let len = len as usize;
        self.held.reserve_exact(len - self.held.len());
        self.held.extend_from_slice(take(input, len - self.held.len()));
        if self.held.len() < len {
            return Ok(None);
        }
        self.state = START;
        let payload = std::mem::take(&mut self.held);
        load::control(kind, stream, &payload)
    }

    /// Inside a DATA payload: its stream and the bytes to come, at least 1. If no byte of it is in the input any
    /// more, they may be taken from the socket in another way, see [`Decoder::skip_data`].
    pub const fn data_remaining(&self) -> Option<(u32, u32)> {
        match self.state {
            State::Data { stream, left, .. } => Some((stream, left)),
            _ => None,
        }
    }

    /// Says that `n` bytes of the DATA payload of [`Decoder::data_remaining`] were taken elsewhere (splice). At most
    /// the remaining bytes count. No event is given for them, also not for the last one.
    pub const fn skip_data(&mut self, n: u32) {
        if let State::Data { stream, left, .. } = self.state
            && n > 0
        {
            let left = left.saturating_sub(n);
            self.state = if left == 0 { START } else { State::Data { stream, left, first: false } };
        }
    }

    /// True if the peer stopped within a frame: an end of the input here is no clean end. True after an error.
    pub const fn is_mid_frame(&self) -> bool {
        !matches!(self.state, State::Header { have: 0 })
    }

    /// Heap bytes held for a split control frame; 0 between frames.
    pub const fn buffered(&self) -> usize {
        self.held.capacity()
    }
}

/// Takes up to `n` bytes from the front.
#[inline]
fn take<'a>(input: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (piece, rest) = input.split_at(n.min(input.len()));
    *input = rest;
    piece
}
