//! Pure: no IO, no clock. Frames to bytes.

use bytes::{BufMut, BytesMut};

use super::frame::{Beat, BeatFlags, Frame, HEADER_LEN, Header, Hello, Kind, Welcome};

/// Longest payload the header can say.
pub const MAX_PAYLOAD: u32 = (1 << 20) - 1;
/// Names (node, service) on the wire, bytes.
const NAME_MAX: usize = 255;
/// Reason of a maintenance, bytes.
const REASON_MAX: usize = 128;

impl Header {
    /// Eight bytes, big endian.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let first = u32::from(self.kind) << 24 | u32::from(self.flags & 0xf) << 20 | (self.len & MAX_PAYLOAD);
        let mut out = [0; HEADER_LEN];
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..].copy_from_slice(&self.stream.to_be_bytes());
        out
    }

    /// Inverse of [`Header::encode`]; every eight bytes are a header.
    pub fn decode(b: &[u8; HEADER_LEN]) -> Header {
        let first = u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
        Header {
            kind: (first >> 24) as u8,
            flags: (first >> 20 & 0xf) as u8,
            len: first & MAX_PAYLOAD,
            stream: u32::from_be_bytes([b[4], b[5], b[6], b[7]]),
        }
    }
}

/// Header of a DATA frame.
pub fn data_header(stream: u32, len: u32) -> [u8; HEADER_LEN] {
    Header { kind: Kind::Data as u8, flags: 0, len, stream }.encode()
}

impl BeatFlags {
    pub(super) fn bits(self) -> u8 {
        u8::from(self.draining)
            | u8::from(self.frozen) << 1
            | u8::from(self.starved) << 2
            | u8::from(self.own_stall) << 3
    }

    pub(super) fn from_bits(b: u8) -> BeatFlags {
        BeatFlags { draining: b & 1 != 0, frozen: b & 2 != 0, starved: b & 4 != 0, own_stall: b & 8 != 0 }
    }
}

impl Frame {
    /// Kind of the frame.
    pub fn kind(&self) -> Kind {
        match self {
            Frame::Hello(_) => Kind::Hello,
            Frame::Welcome(_) => Kind::Welcome,
            Frame::Refuse { .. } => Kind::Refuse,
            Frame::Open { .. } => Kind::Open,
            Frame::Opened { .. } => Kind::Opened,
            Frame::OpenFailed { .. } => Kind::OpenFailed,
            Frame::Beat(_) => Kind::Beat,
            Frame::Backpressure(_) => Kind::Backpressure,
            Frame::Maintenance(_) => Kind::Maintenance,
            Frame::Challenge { .. } => Kind::Challenge,
            Frame::Answer { .. } => Kind::Answer,
            Frame::Credit { .. } => Kind::Credit,
            Frame::Fin { .. } => Kind::Fin,
            Frame::Reset { .. } => Kind::Reset,
            Frame::Goaway { .. } => Kind::Goaway,
        }
    }

    /// Stream of the frame; 0 is the link.
    pub fn stream(&self) -> u32 {
        match *self {
            Frame::Open { stream, .. }
            | Frame::Opened { stream }
            | Frame::OpenFailed { stream, .. }
            | Frame::Credit { stream, .. }
            | Frame::Fin { stream }
            | Frame::Reset { stream, .. } => stream,
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refuse { .. }
            | Frame::Beat(_)
            | Frame::Backpressure(_)
            | Frame::Maintenance(_)
            | Frame::Challenge { .. }
            | Frame::Answer { .. }
            | Frame::Goaway { .. } => 0,
        }
    }

    /// Appends header and payload. Text longer than its cap is cut at a character.
    pub fn encode(&self, out: &mut BytesMut) {
        let at = out.len();
        out.put_bytes(0, HEADER_LEN);
        self.payload(out);
        let len = u32::try_from(out.len() - at - HEADER_LEN).unwrap_or(0);
        let header = Header { kind: self.kind() as u8, flags: 0, len, stream: self.stream() };
        out[at..at + HEADER_LEN].copy_from_slice(&header.encode());
    }

    fn payload(&self, out: &mut BytesMut) {
        match self {
            Frame::Hello(h) => hello(h, out),
            Frame::Welcome(w) => welcome(w, out),
            Frame::Refuse { code, text: t } => {
                out.put_u16(*code as u16);
                text(t, NAME_MAX, out);
            }
            Frame::Open { service, .. } => text(service, NAME_MAX, out),
            Frame::Opened { .. } | Frame::Fin { .. } => {}
            Frame::OpenFailed { errno, text: t, .. } => {
                out.put_u16(*errno);
                text(t, NAME_MAX, out);
            }
            Frame::Beat(b) => beat(b, out),
            Frame::Backpressure(b) => {
                out.put_u8(u8::from(b.active));
                out.put_u16(b.occupancy);
                out.put_u32(b.queued);
                out.put_u32(b.since_ms);
                out.put_u16(b.promise_ms);
            }
            Frame::Maintenance(m) => {
                out.put_u32(m.for_ms);
                out.put_u16(m.promise_ms);
                text(&m.reason, REASON_MAX, out);
            }
            Frame::Challenge { nonce } => out.put_u64(*nonce),
            Frame::Answer { nonce, beat: b } => {
                out.put_u64(*nonce);
                beat(b, out);
            }
            Frame::Credit { bytes, .. } => out.put_u32(*bytes),
            Frame::Reset { reason, .. } => out.put_u16(*reason as u16),
            Frame::Goaway { deadline_ms } => out.put_u32(*deadline_ms),
        }
    }
}

fn text(s: &str, cap: usize, out: &mut BytesMut) {
    let cut = s.floor_char_boundary(cap);
    out.put_u8(cut as u8);
    out.put_slice(&s.as_bytes()[..cut]);
}

fn hello(h: &Hello, out: &mut BytesMut) {
    out.put_u16(h.version);
    out.put_u32(h.features);
    out.put_u64(h.incarnation);
    for ms in [h.active_ms, h.idle_ms, h.accept_min_ms, h.want_active_ms, h.want_idle_ms] {
        out.put_u16(ms);
    }
    out.put_u8(h.hops);
    out.put_slice(&h.trace);
    text(&h.node, NAME_MAX, out);
    text(&h.service, NAME_MAX, out);
}

fn welcome(w: &Welcome, out: &mut BytesMut) {
    out.put_u16(w.version);
    out.put_u32(w.features);
    out.put_u64(w.incarnation);
    for ms in [w.active_ms, w.idle_ms, w.accept_min_ms] {
        out.put_u16(ms);
    }
    out.put_u32(w.initial_credit);
    text(&w.node, NAME_MAX, out);
}

fn beat(b: &Beat, out: &mut BytesMut) {
    out.put_u32(b.seq);
    out.put_u16(b.promise_ms);
    out.put_u8(b.flags.bits());
    out.put_u8(b.vouch.code());
    out.put_u32(b.processing_us);
    out.put_u32(b.utility);
    out.put_u16(b.in_flight);
    out.put_u16(b.oldest_ms);
    out.put_u8(b.load);
    out.put_u32(b.heard_seq);
    out.put_u32(b.heard_age_us);
}
