//! sidebeat: a sidecar proxy that piggybacks liveness on business traffic.

pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod detector;
pub mod evidence;
pub mod link;
pub mod metrics;
pub mod proxy;
pub mod stamp;
pub mod sys;
pub mod upstream;
pub mod verdict;
pub mod wire;
pub mod worker;
