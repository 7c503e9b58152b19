//! metrics (see lib.rs).
