//! detector (see lib.rs).
