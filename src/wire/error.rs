//! Pure: no IO, no clock. What can be wrong with a peer's bytes.
