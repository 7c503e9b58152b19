//! The wire between two sidecars: frames, their codec, and limits (link.md).
//!
//! Pure: no IO, no clock.
//!
//! ```text
//!  acceptor -> dialer   greeting: magic, highest version, lowest version         12 bytes
//!  then both ways       frames: kind:8 | flags:4 | length:20 | stream:32         8 bytes, then `length` bytes
//! ```
//!
//! All numbers are big endian; a text is a length byte and UTF-8. Fields only ever grow at the end: a receiver ignores
//! what follows the fields it knows, up to the cap of the kind.
//!
//! [`frame`] are the types, [`kind`] what may come where and how long, [`encode`] and [`Decoder`] the two directions.

pub mod codec;
pub mod encode;
pub mod error;
pub mod frame;
pub mod greeting;
pub mod kind;
mod load;

#[cfg(test)]
mod doc_tests;
#[cfg(test)]
mod tests;

pub use codec::{Decoder, Event, Limits};
pub use encode::{BEAT_WIRE_LEN, MAX_PAYLOAD, data_header};
pub use error::WireError;
pub use frame::{
    Backpressure, Beat, BeatFlags, FEATURE_ONE_STREAM, Frame, HEADER_LEN, Header, Hello, Kind, Maintenance,
    RefuseCode, ResetReason, Welcome,
};
pub use greeting::{GREETING_LEN, LOWEST_VERSION, VERSION, greeting, parse_greeting};
pub use kind::{MAX_CONTROL_PAYLOAD, METRIC_KINDS, METRIC_OTHER, NAME_CAP, REASON_CAP, TEXT_CAP};
