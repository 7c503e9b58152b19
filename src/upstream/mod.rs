//! A named set of endpoints: who may take work, by which link, and who owns the verdict.
//!
//! [`endpoint`] and [`balance`] are pure. [`registry`] is what every worker reads; [`owner`] is the one writer of an
//! endpoint's state; [`hub`] gives a worker its links; [`side`] is what an outbound link tells its owner.

pub mod balance;
pub mod dial;
pub mod endpoint;
pub mod hub;
pub mod owner;
pub mod registry;
pub mod side;
