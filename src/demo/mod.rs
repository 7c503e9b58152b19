//! demo (see lib.rs).
