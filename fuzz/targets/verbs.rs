//! Fuzz target for libibverbs and librdmacm on warpline, driven by libFuzzer. The calls and what must hold
//! are in `ffi/verbs/tests/calls`, which the tests run too.
#![no_main]

#[path = "../../ffi/verbs/tests/calls/mod.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    calls::run(octets);
});
