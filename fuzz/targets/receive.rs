//! Fuzz target for the whole receive path, driven by libFuzzer. The steps and their invariants are in
//! `fuzz/harness/receive`, which the tests run too.
#![no_main]

#[path = "../harness/receive/mod.rs"]
mod receive;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| receive::run(octets));
