//! Wiring only.
