//! The structures and numbers that programs were compiled with, and the functions that they call: those of
//! rdma-core's headers. A build checks the size and the offsets of each structure.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::pedantic
)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
