//! evidence (see lib.rs).
