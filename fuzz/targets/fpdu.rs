//! A stream of FPDUs in every mode and every order, driven by libFuzzer. What happens, and what must hold, is
//! in `fuzz/harness/fpdu`, which the tests run too.
#![no_main]

#[path = "../harness/fpdu/mod.rs"]
mod fpdu;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    fpdu::run(octets);
});
