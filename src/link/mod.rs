//! link (see lib.rs).
