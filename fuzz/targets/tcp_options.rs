//! Fuzz target for the option list of a TCP header with RDMA options, driven by libFuzzer. The steps and
//! their invariants are in `fuzz/harness/tcp_options`, which the tests run too.
#![no_main]

#[path = "../harness/tcp_options/mod.rs"]
mod tcp_options;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    tcp_options::run(octets);
});
