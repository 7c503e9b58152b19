//! Pure: no IO, no clock. The frames of link.md as types.
//!
//! Every frame has a header of 8 bytes, big endian: `kind:8 | flags:4 | length:20`, then `stream:32`. Stream 0 is the
//! link itself. `length` counts the payload only.

use crate::verdict::Vouch;

/// Bytes of a frame header.
pub const HEADER_LEN: usize = 8;

/// Kind of a frame. The discriminant is the code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// First frame of the dialer.
    Hello = 1,
    /// Answer of the acceptor: the link is up.
    Welcome = 2,
    /// Answer of the acceptor: no link, with a reason.
    Refuse = 3,
    /// Start of a stream, with the name of the wanted inbound.
    Open = 4,
    /// The service accepted the stream.
    Opened = 5,
    /// The service did not accept the stream.
    OpenFailed = 6,
    /// Payload of a stream.
    Data = 7,
    /// Heartbeat: ends each batch, or stands alone.
    Beat = 8,
    /// Sender is full, not dead (H11).
    Backpressure = 9,
    /// Announced pause (H12).
    Maintenance = 10,
    /// Question that the peer's link loop answers at once.
    Challenge = 11,
    /// Answer to a challenge; also a beat.
    Answer = 12,
    /// Bytes a stream's sender may send in addition.
    Credit = 13,
    /// End of one direction of a stream.
    Fin = 14,
    /// Abort of a stream.
    Reset = 15,
    /// Planned end of the link.
    Goaway = 16,
}

/// A decoded frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Code of the kind; may be unknown to this version.
    pub kind: u8,
    /// Four bits, meaning by kind; unknown bits are ignored.
    pub flags: u8,
    /// Payload bytes, at most 2^20 - 1.
    pub len: u32,
    /// Stream id; 0 is the link.
    pub stream: u32,
}

/// Bit of [`Hello::features`]: the link will carry one stream at a time. Bulk data may then pass without a copy.
pub const FEATURE_ONE_STREAM: u32 = 1;

/// What the dialer says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Wire version the dialer speaks.
    pub version: u16,
    /// Feature bits; unknown bits are ignored.
    pub features: u32,
    /// Random per start of the process.
    pub incarnation: u64,
    /// Node id, at most 255 bytes.
    pub node: String,
    /// Name of the wanted inbound, at most 255 bytes.
    pub service: String,
    /// Promise the dialer makes while active, ms.
    pub active_ms: u16,
    /// Promise the dialer makes while idle, ms.
    pub idle_ms: u16,
    /// Fastest promise the dialer accepts from the peer, ms.
    pub accept_min_ms: u16,
    /// Promise the dialer wants while active, ms.
    pub want_active_ms: u16,
    /// Promise the dialer wants while idle, ms.
    pub want_idle_ms: u16,
    /// Reserved for the sidecars that a path went through: a dialer says 1.
    pub hops: u8,
    /// Trace id of the link (S11).
    pub trace: [u8; 16],
}

/// What the acceptor says of itself. Same meaning as in [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Wire version the link will speak.
    pub version: u16,
    /// Feature bits both sides have.
    pub features: u32,
    /// Random per start of the process.
    pub incarnation: u64,
    /// Node id, at most 255 bytes.
    pub node: String,
    /// Promise the acceptor makes while active, ms.
    pub active_ms: u16,
    /// Promise the acceptor makes while idle, ms.
    pub idle_ms: u16,
    /// Fastest promise the acceptor accepts, ms.
    pub accept_min_ms: u16,
    /// Initial credit of each stream in each direction, bytes.
    pub initial_credit: u32,
}

/// Why a hello was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum RefuseCode {
    /// No common version.
    Version = 1,
    /// No inbound of that name.
    NoSuchService = 2,
    /// The address is not allowed.
    NotAllowed = 3,
    /// A dial to oneself, or too many hops.
    Loop = 4,
    /// Too many links.
    TooMany = 5,
    /// Going away.
    Draining = 6,
    /// Malformed hello.
    Malformed = 7,
    /// A code of a later version.
    Other = 0xffff,
}

/// Flags of a beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeatFlags {
    /// GOAWAY was or will be sent.
    pub draining: bool,
    /// The service is in announced maintenance.
    pub frozen: bool,
    /// An upstream of the sender's service explains that the service stands still.
    pub starved: bool,
    /// The sender's own loop was late since its last beat.
    pub own_stall: bool,
    /// An upstream of the sender's service has no ACTIVE endpoint, whether or not that explains anything.
    pub degraded: bool,
}

/// Heartbeat (H2): at most 64 bytes on the wire, header included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// Sequence number of this direction, wraps.
    pub seq: u32,
    /// "You will hear from me within", ms.
    pub promise_ms: u16,
    /// Flags.
    pub flags: BeatFlags,
    /// What the sender says of its service.
    pub vouch: Vouch,
    /// Processing time of the last batch, us, saturating.
    pub processing_us: u32,
    /// Completed turn-arounds, wraps.
    pub utility: u32,
    /// Requests in flight, saturating.
    pub in_flight: u16,
    /// Age of the oldest unanswered request, ms, saturating.
    pub oldest_ms: u16,
    /// How late the sender's loop was at most lately, ms, saturating.
    pub late_ms: u8,
    /// Highest sequence number heard from the other side.
    pub heard_seq: u32,
    /// How long ago that was, us, saturating.
    pub heard_age_us: u32,
}

/// "I am full, not dead" (H11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backpressure {
    /// False in the last frame, when it ends.
    pub active: bool,
    /// Queued / cap, per mille.
    pub occupancy: u16,
    /// Queued bytes.
    pub queued: u32,
    /// Since when, ms.
    pub since_ms: u32,
    /// Its own promise, ms.
    pub promise_ms: u16,
}

/// Announced pause (H12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// Stated duration, ms; the receiver caps it at 30 s. 0 ends it.
    pub for_ms: u32,
    /// Its own promise, ms.
    pub promise_ms: u16,
    /// For people, at most 128 bytes.
    pub reason: String,
}

/// Why a stream was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ResetReason {
    /// The application sent RST.
    Rst = 1,
    /// The application's socket failed.
    Io = 2,
    /// The peer broke the rules of the stream (credit, ids).
    Protocol = 3,
    /// A cap was reached.
    Limit = 4,
    /// The sidecar stops.
    Shutdown = 5,
    /// A code of a later version.
    Other = 0xffff,
}

/// Every frame but DATA, whose payload is borrowed from the read buffer (see [`crate::wire::Event`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// See [`Hello`].
    Hello(Hello),
    /// See [`Welcome`].
    Welcome(Welcome),
    /// Reason code and text, at most 255 bytes.
    Refuse {
        /// Code.
        code: RefuseCode,
        /// For people.
        text: String,
    },
    /// Start of a stream.
    Open {
        /// New id, never used before on this link.
        stream: u32,
        /// Name of a configured inbound, at most 255 bytes.
        service: String,
    },
    /// The service accepted.
    Opened {
        /// Stream id.
        stream: u32,
    },
    /// The service did not accept.
    OpenFailed {
        /// Stream id.
        stream: u32,
        /// errno of the connect, 0 if none.
        errno: u16,
        /// For people, at most 255 bytes.
        text: String,
    },
    /// See [`Beat`].
    Beat(Beat),
    /// See [`Backpressure`].
    Backpressure(Backpressure),
    /// See [`Maintenance`].
    Maintenance(Maintenance),
    /// Question.
    Challenge {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// Answer.
    Answer {
        /// Of the challenge.
        nonce: u64,
        /// The answer is also a beat.
        beat: Beat,
    },
    /// More bytes may be sent.
    Credit {
        /// Stream id.
        stream: u32,
        /// Additional bytes.
        bytes: u32,
    },
    /// End of one direction.
    Fin {
        /// Stream id.
        stream: u32,
    },
    /// Abort.
    Reset {
        /// Stream id.
        stream: u32,
        /// Why.
        reason: ResetReason,
    },
    /// Planned end of the link.
    Goaway {
        /// Streams still open then are cut, ms from now.
        deadline_ms: u32,
    },
}
