//! sidebeat: a sidecar proxy that piggybacks liveness on business traffic.
//!
//! ```text
//!  app ──► proxy::accept ──► proxy::outbound ──► upstream::hub ──► link ═══ frames ═══► link ──► proxy::inbound ──► service
//!                                 (pick)          │      ▲                             │              │
//!                                                 │   beats, vouch ◄───────────────────┘          evidence
//!                                                 ▼
//!                             detector (pure) ──► upstream::owner ──► state, event, log, metric
//! ```
//!
//! Three walks (a byte, a beat, a death) are in ARCHITECTURE.md. Modules in the order of the data path:

pub mod cli;

pub mod app;
pub mod bench;
pub mod config;

pub mod proxy;
pub mod upstream;

pub mod detector;
pub mod link;
pub mod wire;
pub mod worker;

pub mod evidence;
pub mod sys;

pub mod admin;
pub mod metrics;

pub mod clock;
pub mod seldom;
pub mod stamp;
pub mod verdict;

pub mod trace;

pub mod demo;
pub mod replay;
pub mod sim;
