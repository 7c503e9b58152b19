//! admin (see lib.rs).
