//! sidebeat: a sidecar proxy that piggybacks liveness on business traffic.

pub mod stamp;
pub mod clock;
pub mod verdict;
pub mod sys;
pub mod config;
pub mod wire;
pub mod detector;
pub mod link;
pub mod upstream;
pub mod evidence;
pub mod proxy;
pub mod metrics;
pub mod admin;
pub mod cli;
pub mod demo;
pub mod app;
