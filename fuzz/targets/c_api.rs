//! Fuzz target for the C API, driven by libFuzzer. The calls and what must hold are in `ffi/c/tests/calls`,
//! which the tests run too.
#![no_main]

#[path = "../../ffi/c/tests/calls/mod.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    calls::run(octets);
});
