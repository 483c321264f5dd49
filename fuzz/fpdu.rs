//! A stream of FPDUs in every mode and every order, driven by libFuzzer. What happens, and what must hold, is in
//! `dataplane/tests/fuzz_fpdu`, which the tests run too.
#![no_main]

#[path = "../dataplane/tests/fuzz_fpdu/mod.rs"]
mod fuzz_fpdu;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    fuzz_fpdu::run(octets);
});
