//! Fuzz target for a stream of FPDUs in every mode and every order, driven by libFuzzer. The steps and their
//! invariants are in `fuzz/harness/fpdu`, which the tests run too.
#![no_main]

#[path = "../harness/fpdu/mod.rs"]
mod fpdu;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    fpdu::run(octets);
});
