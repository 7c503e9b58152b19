//! The wire between two sidecars: frames, their codec, and limits (link.md).
//!
//! Pure: no IO, no clock.

pub mod codec;
pub mod error;
pub mod frame;

pub use frame::{
    Backpressure, Beat, BeatFlags, Frame, HEADER_LEN, Header, Hello, Kind, Maintenance, RefuseCode,
    ResetReason, Welcome,
};
