//! proxy (see lib.rs).
