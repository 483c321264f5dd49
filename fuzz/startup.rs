//! MPA startup in every revision and either role, driven by libFuzzer. What happens, and what must hold, is in
//! `control/tests/fuzz_startup`, which the tests run too.
#![no_main]

#[path = "../control/tests/fuzz_startup/mod.rs"]
mod fuzz_startup;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    fuzz_startup::run(octets);
});
