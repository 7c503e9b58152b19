//! sys (see lib.rs).
