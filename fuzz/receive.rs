//! The whole receive path, driven by libFuzzer. What happens, and what must hold, is in `dataplane/tests/fuzz`, which the
//! tests run too.
#![no_main]

#[path = "../dataplane/tests/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| fuzz::run(octets));
