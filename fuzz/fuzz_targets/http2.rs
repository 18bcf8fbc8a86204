//! `sendoff_fuzz::http2` under libFuzzer.
#![no_main]
#![allow(unsafe_code, missing_docs, reason = "in the macro")]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sendoff_fuzz::http2::check(input));
