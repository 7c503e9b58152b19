//! Pure: no IO, no clock. What can be wrong with a peer's bytes.

use super::frame::Kind;

/// Why a peer's bytes cannot be understood. Each of these ends the link: after it the place of the next header is
/// unknown or the peer cannot be trusted. Nothing was allocated for the frame that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first bytes are not a sidecar's.
    #[error("not a sidebeat link: the greeting has another magic")]
    BadMagic,
    /// The peer speaks other versions only.
    #[error("no common wire version: the peer speaks {lowest} to {highest}")]
    NoCommonVersion {
        /// Highest version of the peer.
        highest: u16,
        /// Lowest version of the peer.
        lowest: u16,
    },
    /// A control payload is longer than its kind may ever be.
    #[error("{kind:?} of {len} bytes, at most {cap} are allowed")]
    TooLong {
        /// Kind of the frame.
        kind: Kind,
        /// Announced payload, bytes.
        len: u32,
        /// Cap of the kind, bytes.
        cap: u32,
    },
    /// A payload ends before the fields of its kind do.
    #[error("{kind:?} of {len} bytes is too short")]
    TooShort {
        /// Kind of the frame.
        kind: Kind,
        /// Announced payload, bytes.
        len: u32,
    },
    /// A text inside a frame is longer than its cap.
    #[error("{kind:?} with a text of {len} bytes, at most {cap} are allowed")]
    TextTooLong {
        /// Kind of the frame.
        kind: Kind,
        /// Announced text, bytes.
        len: u32,
        /// Cap of the text, bytes.
        cap: u32,
    },
    /// A name or text is not UTF-8.
    #[error("{kind:?} with a text that is not UTF-8")]
    BadUtf8 {
        /// Kind of the frame.
        kind: Kind,
    },
    /// A DATA frame is longer than [`Limits::max_data`](super::Limits::max_data).
    #[error("DATA of {len} bytes, at most {max} are allowed")]
    DataTooLong {
        /// Announced payload, bytes.
        len: u32,
        /// The limit, bytes.
        max: u32,
    },
    /// A frame of an unknown kind is longer than [`Limits::max_skip`](super::Limits::max_skip).
    #[error("frame of unknown kind {kind} with {len} bytes, at most {max} are skipped")]
    SkipTooLong {
        /// Code of the kind.
        kind: u8,
        /// Announced payload, bytes.
        len: u32,
        /// The limit, bytes.
        max: u32,
    },
    /// A frame of the link on a stream, or a frame of a stream on stream 0.
    #[error("{kind:?} on stream {stream}")]
    WrongStream {
        /// Kind of the frame.
        kind: Kind,
        /// Stream id of the frame.
        stream: u32,
    },
}

impl WireError {
    /// Every label, for pre-created metrics.
    pub const LABELS: [&'static str; 9] = [
        "bad_magic",
        "no_common_version",
        "too_long",
        "too_short",
        "text_too_long",
        "bad_utf8",
        "data_too_long",
        "skip_too_long",
        "wrong_stream",
    ];

    /// Short name for a metric label; one of [`WireError::LABELS`].
    pub const fn label(&self) -> &'static str {
        match self {
            WireError::BadMagic => "bad_magic",
            WireError::NoCommonVersion { .. } => "no_common_version",
            WireError::TooLong { .. } => "too_long",
            WireError::TooShort { .. } => "too_short",
            WireError::TextTooLong { .. } => "text_too_long",
            WireError::BadUtf8 { .. } => "bad_utf8",
            WireError::DataTooLong { .. } => "data_too_long",
            WireError::SkipTooLong { .. } => "skip_too_long",
            WireError::WrongStream { .. } => "wrong_stream",
        }
    }
}
