//! upstream (see lib.rs).
