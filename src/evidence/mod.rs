//! What the inbound side knows of the service beside it, and what it may therefore vouch for (detection.md section 4).
//!
//! ```text
//! proxy ──events──► stats ◄──reads── watcher ──asks──► sys::sock_diag (unread bytes, listener)
//!                     ▲                 │  └──asks──► process (/proc: stopped, busy, gone)
//!                     └──── vouch ◄── fuse (pure)
//! ```
//!
//! The proxy reports bytes and ends to [`ServiceStats`] (a few atomic stores), one loop per process calls
//! [`ServiceWatch::sample`] when [`ServiceWatch::next_due`] says so or `kick` wakes it, and beats read
//! [`ServiceStats::vouch`].

pub mod fuse;
pub mod listener;
mod owners;
mod probe;
pub mod process;
pub mod reads;
pub mod schedule;
pub mod stats;
pub mod watcher;

pub use fuse::{Fusion, Observation};
pub use stats::{ConnStats, ServiceStats};
pub use watcher::{Explain, Params, ServiceWatch};
