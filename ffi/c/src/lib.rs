//! warpline for C.
//!
//! `include/warpline.h` is made from this crate and is its manual: it describes the arguments, results and
//! errors of each function. Each module here is a part of it. A function that C calls does three things: it
//! checks its arguments, calls the Rust interface of the same name, and turns the result into a number. No
//! panic leaves it (`error::guard`).
//!
//! C's contract, on which every `unsafe` block here relies, for every call:
//!
//! - a handle came from this library and was not given back (`warpline_device_close`, `warpline_*_destroy`,
//!   ...) before or while the call runs;
//! - a pointer to something else is null where the header allows that, or points to as much of it as the
//!   header says, which nobody changes while the call runs.

#![deny(unreachable_pub)]
// The crate is a wall before C: this is where the workspace's unsafe code belongs.
#![allow(unsafe_code)]
// One contract serves all functions: it stands above and at the top of the header.
#![allow(clippy::missing_safety_doc)]

pub mod address;
pub mod advertisement;
pub mod byte_stream;
pub mod cm;
pub mod completion;
pub mod connection;
pub mod device;
pub mod error;
pub mod event;
mod extensible;
pub mod memory;
mod pointer;
pub mod queue_pair;
pub mod statistics;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod version;
pub mod window;
pub mod work;
