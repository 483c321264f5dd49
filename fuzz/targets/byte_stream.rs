//! Fuzz target for the receiver of byte streams with the TCP RDMA option, driven by libFuzzer. The steps and
//! their invariants are in `fuzz/harness/byte_stream`, which the tests run too.
#![no_main]

#[path = "../harness/byte_stream/mod.rs"]
mod byte_stream;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    byte_stream::run(octets);
});
