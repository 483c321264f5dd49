//! Fuzz target for MPA startup in every revision and either role, driven by libFuzzer. The steps and their
//! invariants are in `fuzz/harness/startup`, which the tests run too.
#![no_main]

#[path = "../harness/startup/mod.rs"]
mod startup;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    startup::run(octets);
});
