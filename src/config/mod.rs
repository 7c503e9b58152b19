//! Configuration: TOML to checked values ([`checked`]). Leaf: no stage is known here.
//!
//! One table, [`schema`], says which keys exist, their types, defaults, ranges and meaning. `read` reads a file
//! and the environment by it into `raw` values, `relations` checks what holds between them, `build` makes the
//! [`Config`], [`docs`] prints the table.

pub mod checked;
pub mod docs;
pub mod schema;

mod address;
mod build;
mod env;
mod filter;
mod json;
mod kind;
mod load;
mod problem;
mod raw;
mod read;
mod relations;
mod value;
mod words;

pub use checked::*;
pub use filter::{Filter, parse_filter};
pub use load::{MAX_BYTES, admin_listen, blame, load, load_again, parse};
pub use problem::{Errors, Place, Problem, Warning};
