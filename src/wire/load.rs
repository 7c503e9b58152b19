//! Pure: no IO, no clock. Payloads to frames. Lengths were checked against the kind's [`Rule`](super::kind::Rule)
//! before; bytes behind the known fields belong to later versions and are ignored.

use super::codec::Event;
use super::error::WireError;
use super::frame::{
    Backpressure, Beat, BeatFlags, Frame, Hello, Kind, Maintenance, RefuseCode, ResetReason, Welcome,
};
use super::kind::{BEAT_LEN, NAME_CAP, REASON_CAP, TEXT_CAP};
use crate::verdict::Vouch;

/// Reads the payload of a control frame; gives nothing for [`Kind::Data`], which is no control frame.
pub(super) fn control<'a>(kind: Kind, stream: u32, payload: &[u8]) -> Result<Option<Event<'a>>, WireError> {
    let mut fields = Fields { kind, len: payload.len() as u32, rest: payload };
    Ok(Some(Event::Frame(match kind {
        Kind::Beat => Frame::Beat(fields.beat()?),
        Kind::Credit => Frame::Credit { stream, bytes: fields.u32()? },
        Kind::Fin => Frame::Fin { stream },
        Kind::Open => Frame::Open { stream, service: fields.text(NAME_CAP)? },
        Kind::Opened => Frame::Opened { stream },
        Kind::OpenFailed => Frame::OpenFailed { stream, errno: fields.u16()?, text: fields.text(TEXT_CAP)? },
        Kind::Reset => Frame::Reset { stream, reason: ResetReason::from_code(fields.u16()?) },
        Kind::Challenge => Frame::Challenge { nonce: fields.u64()? },
        Kind::Answer => Frame::Answer { nonce: fields.u64()?, beat: fields.beat()? },
        Kind::Backpressure => Frame::Backpressure(fields.backpressure()?),
        Kind::Maintenance => Frame::Maintenance(fields.maintenance()?),
        Kind::Goaway => Frame::Goaway { deadline_ms: fields.u32()? },
        Kind::Hello => Frame::Hello(fields.hello()?),
        Kind::Welcome => Frame::Welcome(fields.welcome()?),
        Kind::Refuse => {
            Frame::Refuse { code: RefuseCode::from_code(fields.u16()?), text: fields.text(TEXT_CAP)? }
        }
        Kind::Data => return Ok(None),
    })))
}

impl RefuseCode {
    /// From the wire; codes of later versions are [`RefuseCode::Other`].
    pub const fn from_code(code: u16) -> RefuseCode {
        match code {
            1 => RefuseCode::Version,
            2 => RefuseCode::NoSuchService,
            3 => RefuseCode::NotAllowed,
            4 => RefuseCode::Loop,
            5 => RefuseCode::TooMany,
            6 => RefuseCode::Draining,
            7 => RefuseCode::Malformed,
            _ => RefuseCode::Other,
        }
    }
}

impl ResetReason {
    /// From the wire; codes of later versions are [`ResetReason::Other`].
    pub const fn from_code(code: u16) -> ResetReason {
        match code {
            1 => ResetReason::Rst,
            2 => ResetReason::Io,
            3 => ResetReason::Protocol,
            4 => ResetReason::Limit,
            5 => ResetReason::Shutdown,
            _ => ResetReason::Other,
        }
    }
}

/// Fields of one payload, taken from the front.
struct Fields<'a> {
    kind: Kind,
    len: u32,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], WireError> {
        let (field, rest) = self.rest.split_first_chunk().ok_or(self.too_short())?;
        self.rest = rest;
        Ok(field)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| *byte)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(|bytes| u16::from_be_bytes(*bytes))
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(|bytes| u32::from_be_bytes(*bytes))
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(|bytes| u64::from_be_bytes(*bytes))
    }

    fn text(&mut self, cap: usize) -> Result<String, WireError> {
        let len = usize::from(self.u8()?);
        if len > cap {
            return Err(WireError::TextTooLong { kind: self.kind, len: len as u32, cap: cap as u32 });
        }
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(self.too_short())?;
        self.rest = rest;
        let text = std::str::from_utf8(bytes).map_err(|_| WireError::BadUtf8 { kind: self.kind })?;
        Ok(text.to_owned())
    }

    fn too_short(&self) -> WireError {
        WireError::TooShort { kind: self.kind, len: self.len }
    }

    fn beat(&mut self) -> Result<Beat, WireError> {
        let b: &[u8; BEAT_LEN] = self.array()?;
        let word = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
        Ok(Beat {
            seq: word(0),
            promise_ms: half(4),
            flags: BeatFlags::from_bits(b[6]),
            vouch: Vouch::from_code(b[7]),
            processing_us: word(8),
            utility: word(12),
            in_flight: half(16),
            oldest_ms: half(18),
            heard_seq: word(20),
            heard_age_us: word(24),
            late_ms: b[28],
        })
    }

    fn backpressure(&mut self) -> Result<Backpressure, WireError> {
        Ok(Backpressure {
            active: self.u8()? & 1 != 0,
            occupancy: self.u16()?,
            queued: self.u32()?,
            since_ms: self.u32()?,
            promise_ms: self.u16()?,
        })
    }

    fn maintenance(&mut self) -> Result<Maintenance, WireError> {
        Ok(Maintenance { for_ms: self.u32()?, promise_ms: self.u16()?, reason: self.text(REASON_CAP)? })
    }

    fn hello(&mut self) -> Result<Hello, WireError> {
        Ok(Hello {
            version: self.u16()?,
            features: self.u32()?,
            incarnation: self.u64()?,
            active_ms: self.u16()?,
            idle_ms: self.u16()?,
            accept_min_ms: self.u16()?,
            want_active_ms: self.u16()?,
            want_idle_ms: self.u16()?,
            hops: self.u8()?,
            trace: *self.array()?,
            node: self.text(NAME_CAP)?,
            service: self.text(NAME_CAP)?,
        })
    }

    fn welcome(&mut self) -> Result<Welcome, WireError> {
        Ok(Welcome {
            version: self.u16()?,
            features: self.u32()?,
            incarnation: self.u64()?,
            active_ms: self.u16()?,
            idle_ms: self.u16()?,
            accept_min_ms: self.u16()?,
            initial_credit: self.u32()?,
            node: self.text(NAME_CAP)?,
        })
    }
}
