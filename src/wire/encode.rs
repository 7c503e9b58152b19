//! Pure: no IO, no clock. Frames to bytes.

use bytes::{BufMut, BytesMut};

use super::frame::{
    Backpressure, Beat, BeatFlags, Frame, HEADER_LEN, Header, Hello, Kind, Maintenance, Welcome,
};
use super::kind::{ANSWER_LEN, BEAT_LEN, NAME_CAP, REASON_CAP, TEXT_CAP};

/// Longest payload a header can announce, bytes.
pub const MAX_PAYLOAD: u32 = (1 << 20) - 1;

/// Bytes of a beat on the wire, header included.
pub const BEAT_WIRE_LEN: usize = HEADER_LEN + BEAT_LEN;

impl Header {
    /// The eight bytes of this header.
    ///
    /// # Panics
    /// If `len` is beyond [`MAX_PAYLOAD`]: a wrong length would silently corrupt every stream of the link.
    pub const fn encode(self) -> [u8; HEADER_LEN] {
        assert!(self.len <= MAX_PAYLOAD);
        let first = ((self.kind as u32) << 24) | (((self.flags & 0xf) as u32) << 20) | self.len;
        (((first as u64) << 32) | self.stream as u64).to_be_bytes()
    }

    /// Reads a header; every value of the eight bytes is one.
    pub const fn decode(bytes: &[u8; HEADER_LEN]) -> Header {
        let word = u64::from_be_bytes(*bytes);
        let first = (word >> 32) as u32;
        Header {
            kind: (first >> 24) as u8,
            flags: ((first >> 20) & 0xf) as u8,
            len: first & MAX_PAYLOAD,
            stream: word as u32,
        }
    }
}

const fn header(kind: Kind, stream: u32, len: u32) -> [u8; HEADER_LEN] {
    Header { kind: kind.code(), flags: 0, len, stream }.encode()
}

/// Header of a DATA frame whose `len` bytes of payload follow.
///
/// # Panics
/// If `len` is beyond [`MAX_PAYLOAD`].
pub const fn data_header(stream: u32, len: u32) -> [u8; HEADER_LEN] {
    header(Kind::Data, stream, len)
}

impl BeatFlags {
    const DRAINING: u8 = 1;
    const FROZEN: u8 = 2;
    const STARVED: u8 = 4;
    const OWN_STALL: u8 = 8;
    const DEGRADED: u8 = 16;

    /// One byte on the wire.
    pub const fn bits(self) -> u8 {
        (self.draining as u8 * Self::DRAINING)
            | (self.frozen as u8 * Self::FROZEN)
            | (self.starved as u8 * Self::STARVED)
            | (self.own_stall as u8 * Self::OWN_STALL)
            | (self.degraded as u8 * Self::DEGRADED)
    }

    /// Inverse of [`BeatFlags::bits`]; bits of later versions are ignored.
    pub const fn from_bits(bits: u8) -> BeatFlags {
        BeatFlags {
            draining: bits & Self::DRAINING != 0,
            frozen: bits & Self::FROZEN != 0,
            starved: bits & Self::STARVED != 0,
            own_stall: bits & Self::OWN_STALL != 0,
            degraded: bits & Self::DEGRADED != 0,
        }
    }
}

impl Beat {
    /// The whole BEAT frame, header included, for a trailer on the stack.
    pub fn encode(&self) -> [u8; BEAT_WIRE_LEN] {
        let mut out = [0; BEAT_WIRE_LEN];
        let (head, payload) = out.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&header(Kind::Beat, 0, BEAT_LEN as u32));
        payload.copy_from_slice(&self.payload());
        out
    }

    fn payload(&self) -> [u8; BEAT_LEN] {
        let mut out = [0; BEAT_LEN];
        out[0..4].copy_from_slice(&self.seq.to_be_bytes());
        out[4..6].copy_from_slice(&self.promise_ms.to_be_bytes());
        out[6] = self.flags.bits();
        out[7] = self.vouch.code();
        out[8..12].copy_from_slice(&self.processing_us.to_be_bytes());
        out[12..16].copy_from_slice(&self.utility.to_be_bytes());
        out[16..18].copy_from_slice(&self.in_flight.to_be_bytes());
        out[18..20].copy_from_slice(&self.oldest_ms.to_be_bytes());
        out[20..24].copy_from_slice(&self.heard_seq.to_be_bytes());
        out[24..28].copy_from_slice(&self.heard_age_us.to_be_bytes());
        out[28] = self.late_ms;
        out
    }
}

impl Frame {
    /// Appends this frame, header included. Names and texts beyond their cap are cut at a character's end.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Frame::Beat(beat) => out.extend_from_slice(&beat.encode()),
            Frame::Answer { nonce, beat } => {
                fixed::<{ HEADER_LEN + ANSWER_LEN }>(out, self, &nonce.to_be_bytes(), &beat.payload())
            }
            Frame::Credit { bytes, .. } => fixed::<{ HEADER_LEN + 4 }>(out, self, &bytes.to_be_bytes(), &[]),
            Frame::Fin { .. } | Frame::Opened { .. } => fixed::<HEADER_LEN>(out, self, &[], &[]),
            _ => self.encode_sized_later(out),
        }
    }

    fn encode_sized_later(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_bytes(0, HEADER_LEN);
        self.put_payload(out);
        let len = (out.len() - start - HEADER_LEN) as u32;
        out[start..start + HEADER_LEN].copy_from_slice(&header(self.kind(), self.stream(), len));
    }

    fn put_payload(&self, out: &mut BytesMut) {
        match self {
            Frame::Hello(hello) => put_hello(out, hello),
            Frame::Welcome(welcome) => put_welcome(out, welcome),
            Frame::Refuse { code, text } => {
                out.put_u16(*code as u16);
                put_text(out, text, TEXT_CAP);
            }
            Frame::Open { service, .. } => put_text(out, service, NAME_CAP),
            Frame::OpenFailed { errno, text, .. } => {
                out.put_u16(*errno);
                put_text(out, text, TEXT_CAP);
            }
            Frame::Backpressure(pressure) => put_backpressure(out, pressure),
            Frame::Maintenance(pause) => put_maintenance(out, pause),
            Frame::Challenge { nonce } => out.put_u64(*nonce),
            Frame::Reset { reason, .. } => out.put_u16(*reason as u16),
            Frame::Goaway { deadline_ms } => out.put_u32(*deadline_ms),
            Frame::Beat(beat) => out.put_slice(&beat.payload()),
            Frame::Answer { nonce, beat } => {
                out.put_u64(*nonce);
                out.put_slice(&beat.payload());
            }
            Frame::Credit { bytes, .. } => out.put_u32(*bytes),
            Frame::Fin { .. } | Frame::Opened { .. } => {}
        }
    }
}

/// Appends a frequent frame of known size with one copy: `N` is header and both parts.
fn fixed<const N: usize>(out: &mut BytesMut, frame: &Frame, first: &[u8], second: &[u8]) {
    let mut bytes = [0; N];
    let (head, payload) = bytes.split_at_mut(HEADER_LEN);
    head.copy_from_slice(&header(frame.kind(), frame.stream(), (N - HEADER_LEN) as u32));
    let (a, b) = payload.split_at_mut(first.len());
    a.copy_from_slice(first);
    b.copy_from_slice(second);
    out.extend_from_slice(&bytes);
}

fn put_hello(out: &mut BytesMut, hello: &Hello) {
    out.put_u16(hello.version);
    out.put_u32(hello.features);
    out.put_u64(hello.incarnation);
    out.put_u16(hello.active_ms);
    out.put_u16(hello.idle_ms);
    out.put_u16(hello.accept_min_ms);
    out.put_u16(hello.want_active_ms);
    out.put_u16(hello.want_idle_ms);
    out.put_u8(hello.hops);
    out.put_slice(&hello.trace);
    put_text(out, &hello.node, NAME_CAP);
    put_text(out, &hello.service, NAME_CAP);
}

fn put_welcome(out: &mut BytesMut, welcome: &Welcome) {
    out.put_u16(welcome.version);
    out.put_u32(welcome.features);
    out.put_u64(welcome.incarnation);
    out.put_u16(welcome.active_ms);
    out.put_u16(welcome.idle_ms);
    out.put_u16(welcome.accept_min_ms);
    out.put_u32(welcome.initial_credit);
    put_text(out, &welcome.node, NAME_CAP);
}

fn put_backpressure(out: &mut BytesMut, pressure: &Backpressure) {
    out.put_u8(u8::from(pressure.active));
    out.put_u16(pressure.occupancy);
    out.put_u32(pressure.queued);
    out.put_u32(pressure.since_ms);
    out.put_u16(pressure.promise_ms);
}

fn put_maintenance(out: &mut BytesMut, pause: &Maintenance) {
    out.put_u32(pause.for_ms);
    out.put_u16(pause.promise_ms);
    put_text(out, &pause.reason, REASON_CAP);
}

/// Length in one byte, then the text.
fn put_text(out: &mut BytesMut, text: &str, cap: usize) {
    let cut = &text[..text.floor_char_boundary(cap.min(usize::from(u8::MAX)))];
    out.put_u8(cut.len() as u8);
    out.put_slice(cut.as_bytes());
}
