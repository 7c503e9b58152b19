//! Pure: no IO, no clock. What each kind of frame may look like: codes, payload bounds, where it may appear.

use super::frame::{Frame, Kind};

/// Values of the metric label `kind` (contract.md), in the order of [`Kind::metric_index`].
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

/// [`METRIC_KINDS`] index of frames that this version does not know.
pub const METRIC_OTHER: usize = METRIC_KINDS.len() - 1;

/// Code kept for MOVED: a stream goes on on another link (link.md). Nothing sends it yet, and to a decoder it is a kind of a
/// later version like any other; a new kind must not take it.
pub const RESERVED_MOVED: u8 = 17;

/// Longest payload of any control frame, bytes: the most a decoder ever holds.
pub const MAX_CONTROL_PAYLOAD: u32 = HELLO_CAP;

/// Longest name of a node or a service, bytes.
pub const NAME_CAP: usize = 255;
/// Longest text for people in REFUSE and OPEN_FAILED, bytes.
pub const TEXT_CAP: usize = 255;
/// Longest reason of MAINTENANCE, bytes.
pub const REASON_CAP: usize = 128;

/// Payload of a beat, bytes.
pub(super) const BEAT_LEN: usize = 29;
/// Payload of an answer, bytes: nonce and beat.
pub(super) const ANSWER_LEN: usize = 8 + BEAT_LEN;

// Each cap leaves room for fields of later versions, which this one ignores.
const HELLO_CAP: u32 = 1024;
const WELCOME_CAP: u32 = 512;
const TEXT_FRAME_CAP: u32 = 512;
const MAINTENANCE_CAP: u32 = 256;
const GOAWAY_CAP: u32 = 256;
const SMALL_CAP: u32 = 64;
/// With its header a beat is at most 64 bytes on the wire (rows H2, T2).
const BEAT_CAP: u32 = 56;
const ANSWER_CAP: u32 = 8 + BEAT_CAP;

/// Where a kind of frame may appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// On stream 0 only.
    Link,
    /// On any stream but 0.
    Stream,
}

/// Bounds of a control frame that can be checked from its header alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Shortest payload: all fields of version 1 with empty texts, bytes.
    pub(super) min: u32,
    /// Longest payload, bytes.
    pub(super) cap: u32,
    /// Stream 0 or not.
    pub(super) scope: Scope,
}

const fn link(min: u32, cap: u32) -> Rule {
    Rule { min, cap, scope: Scope::Link }
}

const fn stream(min: u32, cap: u32) -> Rule {
    Rule { min, cap, scope: Scope::Stream }
}

impl Kind {
    /// Every kind of this version.
    pub const ALL: [Kind; 16] = [
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

    /// Code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Inverse of [`Kind::code`]; `None` for kinds of later versions.
    pub const fn from_code(code: u8) -> Option<Kind> {
        if code == 0 || code as usize > Kind::ALL.len() {
            return None;
        }
        Some(Kind::ALL[code as usize - 1])
    }

    /// Index into [`METRIC_KINDS`]. OPENED and OPEN_FAILED count as `open`; HELLO, WELCOME and REFUSE as `other`.
    pub const fn metric_index(self) -> usize {
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
            Kind::Hello | Kind::Welcome | Kind::Refuse => METRIC_OTHER,
        }
    }

    /// Longest payload a decoder accepts, bytes. For DATA see [`Limits::max_data`](super::Limits::max_data) too.
    pub const fn payload_cap(self) -> u32 {
        match self {
            Kind::Data => super::MAX_PAYLOAD,
            _ => self.rule().cap,
        }
    }

    pub(super) const fn rule(self) -> Rule {
        match self {
            Kind::Hello => link(43, HELLO_CAP),
            Kind::Welcome => link(25, WELCOME_CAP),
            Kind::Refuse => link(3, TEXT_FRAME_CAP),
            Kind::Open => stream(1, TEXT_FRAME_CAP),
            Kind::Opened => stream(0, SMALL_CAP),
            Kind::OpenFailed => stream(3, TEXT_FRAME_CAP),
            Kind::Data => stream(0, super::MAX_PAYLOAD),
            Kind::Beat => link(BEAT_LEN as u32, BEAT_CAP),
            Kind::Backpressure => link(13, SMALL_CAP),
            Kind::Maintenance => link(7, MAINTENANCE_CAP),
            Kind::Challenge => link(8, SMALL_CAP),
            Kind::Answer => link(ANSWER_LEN as u32, ANSWER_CAP),
            Kind::Credit => stream(4, SMALL_CAP),
            Kind::Fin => stream(0, SMALL_CAP),
            Kind::Reset => stream(2, SMALL_CAP),
            Kind::Goaway => link(4, GOAWAY_CAP),
        }
    }
}

impl Frame {
    /// Kind of this frame; never [`Kind::Data`].
    pub const fn kind(&self) -> Kind {
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

    /// Stream this frame belongs to; 0 for frames of the link.
    pub const fn stream(&self) -> u32 {
        match self {
            Frame::Open { stream, .. }
            | Frame::Opened { stream }
            | Frame::OpenFailed { stream, .. }
            | Frame::Credit { stream, .. }
            | Frame::Fin { stream }
            | Frame::Reset { stream, .. } => *stream,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_others_are_unknown() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_code(kind.code()), Some(kind));
        }
        let known = (0..=u8::MAX).filter(|code| Kind::from_code(*code).is_some()).count();
        assert_eq!(known, Kind::ALL.len());
        assert_eq!(Kind::from_code(RESERVED_MOVED), None, "reserved");
    }

    #[test]
    fn every_metric_label_is_used_and_in_range() {
        let used: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.metric_index()).collect();
        assert_eq!(used.len(), METRIC_KINDS.len());
        assert_eq!(METRIC_KINDS[Kind::Beat.metric_index()], "beat");
        assert_eq!(METRIC_KINDS[Kind::Goaway.metric_index()], "goaway");
        assert_eq!(METRIC_KINDS[Kind::Hello.metric_index()], "other");
        assert_eq!(METRIC_KINDS[Kind::OpenFailed.metric_index()], "open");
    }

    #[test]
    fn every_rule_has_room_and_stays_below_the_buffer_cap() {
        for kind in Kind::ALL {
            let rule = kind.rule();
            assert!(rule.min < rule.cap, "{kind:?}");
            assert!(kind == Kind::Data || rule.cap <= MAX_CONTROL_PAYLOAD, "{kind:?}");
        }
    }

    #[test]
    fn a_beat_is_at_most_64_bytes_on_the_wire() {
        assert!(crate::wire::HEADER_LEN as u32 + Kind::Beat.payload_cap() <= 64);
    }
}
