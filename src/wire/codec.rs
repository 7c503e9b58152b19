//! Pure: no IO, no clock. Bytes to frames and back.
