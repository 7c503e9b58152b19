//! The wire between two sidecars: frames, their codec, and limits (link.md).
//!
//! Pure: no IO, no clock.

pub mod codec;
mod encode;
pub mod error;
pub mod frame;
mod load;

pub use codec::{Decoder, Event, GREETING_LEN, Limits, VERSION, greeting, parse_greeting};
pub use encode::{MAX_PAYLOAD, data_header};
pub use error::WireError;
pub use frame::{
    Backpressure, Beat, BeatFlags, Frame, HEADER_LEN, Header, Hello, Kind, Maintenance, RefuseCode,
    ResetReason, Welcome,
};
pub use load::METRIC_KINDS;
