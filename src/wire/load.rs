//! Pure: no IO, no clock. Payload bytes to frames. Extra bytes behind the known fields are of a later version: ignored.

use bytes::Buf;

use super::WireError;
use super::frame::{
    Backpressure, Beat, BeatFlags, Frame, Header, Hello, Kind, Maintenance, RefuseCode, ResetReason, Welcome,
};
use crate::verdict::Vouch;

impl Kind {
    const ALL: [Kind; 16] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Refuse,
        Kind::Open,
        Kind::Opened,
        Kind::OpenFailed,
        Kind::Data,
        Kind::Beat,
        Kind::Backpressure,
        Kind::Maintenance,
        Kind::Challenge,
        Kind::Answer,
        Kind::Credit,
        Kind::Fin,
        Kind::Reset,
        Kind::Goaway,
    ];

    /// The kind with this code, if this version knows it.
    pub fn from_code(code: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Place in [`METRIC_KINDS`].
    pub fn metric_index(self) -> usize {
        match self {
            Kind::Data => 0,
            Kind::Beat => 1,
            Kind::Backpressure => 2,
            Kind::Maintenance => 3,
            Kind::Challenge => 4,
            Kind::Answer => 5,
            Kind::Credit => 6,
            Kind::Open | Kind::Opened | Kind::OpenFailed => 7,
            Kind::Fin => 8,
            Kind::Reset => 9,
            Kind::Goaway => 10,
            Kind::Hello | Kind::Welcome | Kind::Refuse => 11,
        }
    }

    /// Longest payload this version accepts, bytes, with room for fields of later versions.
    pub(super) fn cap(self) -> usize {
        match self {
            Kind::Hello | Kind::Welcome => 1024,
            Kind::Refuse | Kind::Open | Kind::OpenFailed | Kind::Maintenance => 512,
            Kind::Opened
            | Kind::Beat
            | Kind::Backpressure
            | Kind::Challenge
            | Kind::Answer
            | Kind::Credit
            | Kind::Fin
            | Kind::Reset
            | Kind::Goaway => 128,
            Kind::Data => 0,
        }
    }

    /// True for kinds that speak of a stream.
    pub(super) fn of_stream(self) -> bool {
        matches!(
            self,
            Kind::Open
                | Kind::Opened
                | Kind::OpenFailed
                | Kind::Data
                | Kind::Credit
                | Kind::Fin
                | Kind::Reset
        )
    }
}

/// Values of the metric label `kind`.
pub const METRIC_KINDS: [&str; 12] = [
    "data",
    "beat",
    "backpressure",
    "maintenance",
    "challenge",
    "answer",
    "credit",
    "open",
    "fin",
    "reset",
    "goaway",
    "other",
];

/// Reads fields and remembers whose they are.
struct Fields<'a> {
    rest: &'a [u8],
    kind: u8,
}

impl Fields<'_> {
    fn need(&self, n: usize) -> Result<(), WireError> {
        if self.rest.len() < n { Err(WireError::TooShort(self.kind)) } else { Ok(()) }
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.need(1)?;
        Ok(self.rest.get_u8())
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.need(2)?;
        Ok(self.rest.get_u16())
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.need(4)?;
        Ok(self.rest.get_u32())
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.need(8)?;
        Ok(self.rest.get_u64())
    }

    fn text(&mut self) -> Result<String, WireError> {
        let n = usize::from(self.u8()?);
        self.need(n)?;
        let (text, rest) = self.rest.split_at(n);
        self.rest = rest;
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| WireError::BadText(self.kind))
    }

    fn beat(&mut self) -> Result<Beat, WireError> {
        Ok(Beat {
            seq: self.u32()?,
            promise_ms: self.u16()?,
            flags: BeatFlags::from_bits(self.u8()?),
            vouch: Vouch::from_code(self.u8()?),
            processing_us: self.u32()?,
            utility: self.u32()?,
            in_flight: self.u16()?,
            oldest_ms: self.u16()?,
            load: self.u8()?,
            heard_seq: self.u32()?,
            heard_age_us: self.u32()?,
        })
    }

    fn hello(&mut self) -> Result<Hello, WireError> {
        let (version, features, incarnation) = (self.u16()?, self.u32()?, self.u64()?);
        let (active_ms, idle_ms, accept_min_ms) = (self.u16()?, self.u16()?, self.u16()?);
        let (want_active_ms, want_idle_ms, hops) = (self.u16()?, self.u16()?, self.u8()?);
        let mut trace = [0; 16];
        self.need(16)?;
        self.rest.copy_to_slice(&mut trace);
        Ok(Hello {
            version,
            features,
            incarnation,
            active_ms,
            idle_ms,
            accept_min_ms,
            want_active_ms,
            want_idle_ms,
            hops,
            trace,
            node: self.text()?,
            service: self.text()?,
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
            node: self.text()?,
        })
    }
}

fn refuse_code(code: u16) -> RefuseCode {
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

fn reset_reason(code: u16) -> ResetReason {
    match code {
        1 => ResetReason::Rst,
        2 => ResetReason::Io,
        3 => ResetReason::Protocol,
        4 => ResetReason::Limit,
        5 => ResetReason::Shutdown,
        _ => ResetReason::Other,
    }
}

/// A control frame from its whole payload. The header was checked against cap and stream rule.
pub(super) fn load(kind: Kind, header: Header, payload: &[u8]) -> Result<Frame, WireError> {
    let mut f = Fields { rest: payload, kind: header.kind };
    let stream = header.stream;
    Ok(match kind {
        Kind::Hello => Frame::Hello(f.hello()?),
        Kind::Welcome => Frame::Welcome(f.welcome()?),
        Kind::Refuse => Frame::Refuse { code: refuse_code(f.u16()?), text: f.text()? },
        Kind::Open => Frame::Open { stream, service: f.text()? },
        Kind::Opened => Frame::Opened { stream },
        Kind::OpenFailed => Frame::OpenFailed { stream, errno: f.u16()?, text: f.text()? },
        Kind::Beat => Frame::Beat(f.beat()?),
        Kind::Backpressure => Frame::Backpressure(Backpressure {
            active: f.u8()? & 1 != 0,
            occupancy: f.u16()?,
            queued: f.u32()?,
            since_ms: f.u32()?,
            promise_ms: f.u16()?,
        }),
        Kind::Maintenance => {
            Frame::Maintenance(Maintenance { for_ms: f.u32()?, promise_ms: f.u16()?, reason: f.text()? })
        }
        Kind::Challenge => Frame::Challenge { nonce: f.u64()? },
        Kind::Answer => Frame::Answer { nonce: f.u64()?, beat: f.beat()? },
        Kind::Credit => Frame::Credit { stream, bytes: f.u32()? },
        Kind::Fin => Frame::Fin { stream },
        Kind::Reset => Frame::Reset { stream, reason: reset_reason(f.u16()?) },
        Kind::Goaway => Frame::Goaway { deadline_ms: f.u32()? },
        Kind::Data => return Err(WireError::WrongStream(header.kind)),
    })
}
