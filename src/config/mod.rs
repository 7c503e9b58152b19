//! Configuration: TOML to checked values ([`checked`]). Leaf: no stage is known here.
//!
//! One table, [`schema`], says which keys exist, their types, defaults, ranges and meaning. [`raw`] reads a
//! file and the environment by it, [`build`] checks relations and makes a [`Config`], [`docs`] prints it.

pub mod checked;
pub mod docs;
pub mod schema;

mod build;
mod env;
mod json;
mod kind;
mod load;
mod problem;
mod raw;
mod relations;

pub use checked::*;
pub use kind::{Filter, parse_filter};
pub use load::{MAX_BYTES, load, parse};
pub use problem::{Errors, Place, Problem, Warning};
