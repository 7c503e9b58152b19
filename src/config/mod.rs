//! Configuration: TOML as typed ([`raw`]) to checked values ([`checked`]). Leaf: no stage is known here.

pub mod checked;

pub use checked::*;
