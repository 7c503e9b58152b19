//! Raw bytes of a trace file to the reader and to the judges behind it.
#![no_main]

#[path = "../check_trace.rs"]
mod check_trace;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check_trace::check(bytes);
});
