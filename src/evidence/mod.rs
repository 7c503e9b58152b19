//! What the inbound side knows of the service beside it, and what it may therefore vouch for (detection.md section 4).
//!
//! ```text
//! proxy ──events──► stats ◄──reads── watcher ──asks──► sys::sock_diag (unread bytes, listener)
//!                     ▲                 │  └──asks──► process (/proc: stopped, busy, gone)
//!  ask (probes) ──► notes ──reads──►    │
//!  hooks ──────────►  └──── vouch ◄── fuse (pure) ◄── answers (pure)
//! ```
//!
//! The proxy reports bytes and ends to [`ServiceStats`] (a few atomic stores), one loop per process calls
//! [`ServiceWatch::sample`] when [`ServiceWatch::next_due`] says so or `kick` wakes it, and beats read
//! [`ServiceStats::vouch`]. Probes ([`ask`], planned by [`prober`]) and hooks run on the control thread, away from the
//! data path, and leave [`notes`].

pub mod answers;
pub mod ask;
pub mod explain;
pub mod fuse;
pub mod listener;
pub mod notes;
mod owners;
pub mod prober;
pub mod process;
pub mod reads;
mod redial;
pub mod schedule;
pub mod stats;
pub mod watcher;

pub use explain::Explain;
pub use fuse::{Fusion, Observation};
pub use stats::{ConnStats, ServiceStats};
pub use watcher::{Params, ServiceWatch};
