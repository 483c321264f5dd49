//! Raw bindings to the parts of DPDK that warpline uses. The crate `dpdk` is the safe face over them.
//!
//! Names are DPDK's. `inlined_*` are the functions of the shim `inlined.c`: what DPDK's headers offer only
//! inline or as a macro. `constant_*` are its flag macros, as 64-bit numbers.

#![allow(unsafe_code, non_camel_case_types, non_snake_case, non_upper_case_globals, missing_docs)]
#![allow(clippy::all, clippy::pedantic, rust_2018_idioms, unused_qualifications)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
