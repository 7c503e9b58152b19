//! System calls that have no safe wrapper elsewhere. The only place with `unsafe`; each block says why it is sound.
//!
//! - [`alarm`]: a kernel timer that wakes a task of the runtime.
//! - [`tcp`]: what the kernel knows of one of our own TCP sockets.
//! - [`sock_diag`]: what it knows of any TCP socket of the network namespace (NETLINK_SOCK_DIAG, no privileges).
//! - [`memory`]: keeps the program's code in memory.
//! - [`sched`]: how the scheduler treats a thread of ours.
//! - [`child`]: what must happen in a child process between fork and exec.

pub mod alarm;
pub mod child;
mod diag_wire;
pub mod memory;
pub mod sched;
pub mod sock_diag;
pub mod tcp;
