//! Pure: no IO, no clock. What can be wrong with a peer's bytes. All of it ends the link.

/// A protocol error of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The greeting is not ours.
    #[error("not a sidebeat link port")]
    BadMagic,
    /// No version both sides speak.
    #[error("no common wire version")]
    NoCommonVersion,
    /// A control payload over the cap of its kind.
    #[error("frame of kind {0} is too long")]
    TooLong(u8),
    /// A payload that ends before its fields.
    #[error("frame of kind {0} is too short")]
    TooShort(u8),
    /// Text that is not UTF-8.
    #[error("frame of kind {0} holds invalid text")]
    BadText(u8),
    /// A stream frame on stream 0, or a link frame on a stream.
    #[error("frame of kind {0} on a wrong stream id")]
    WrongStream(u8),
}

impl WireError {
    /// Value of the metric label `reason`.
    pub fn label(&self) -> &'static str {
        match self {
            WireError::BadMagic => "bad_magic",
            WireError::NoCommonVersion => "version",
            WireError::TooLong(_) => "too_long",
            WireError::TooShort(_) => "too_short",
            WireError::BadText(_) => "bad_text",
            WireError::WrongStream(_) => "wrong_stream",
        }
    }
}
