//! libibverbs and librdmacm on warpline, for programs that were written and compiled for them.
//!
//! A program that is started with this library in front (`warpline-run`, which sets `LD_PRELOAD`) finds its
//! functions here instead of those of rdma-core, and an RDMA device that is warpline: iWARP over a network
//! interface, in the program's own process. No adapter and no kernel module take part.
//!
//! - `abi`: the structures and numbers of rdma-core's headers.
//! - `object`: what programs hold, with ours around it.
//! - `adapter`: the only device, which starts when it is needed. `config` says which.
//! - `verbs`, `cm`: the functions of the two libraries, by what they are about.
//! - `dlopen` for programs that load those two when they need them.
//! - `made_once`: values that are made without a lock, which a child of the process could not unlock.
//! - `testing`: a device in memory, for tests.
//! - `polled`: a completion queue without what destroyed queue pairs report.
//! - `events` brings what happens to the descriptors of the program, which are `tokens`; `registry` knows
//!   whose it is, and `acks` what the program has not acknowledged.
//!
//! The contract of the ABI, on which the `unsafe` blocks here rely: a pointer is null where that is allowed,
//! or to what the manual pages say; an object is not destroyed while a call uses it.

#![deny(unreachable_pub)]
// The crate is a wall before C: this is where the workspace's unsafe code belongs.
#![allow(unsafe_code)]
// One contract serves all functions: it stands above.
#![allow(clippy::missing_safety_doc)]
// C's numbers have a sign where Rust's have none, and the reverse; every cast is between such a pair.
#![allow(clippy::cast_possible_wrap)]

#[doc(hidden)]
pub mod abi;
mod acks;
mod adapter;
mod cm;
pub mod config;
// Not in a fuzzer, whose runtime looks for functions before any code with its checks can run.
#[cfg(all(target_arch = "x86_64", not(fuzzing)))]
mod dlopen;
mod errno;
mod events;
mod made_once;
mod object;
mod polled;
mod registry;
#[doc(hidden)]
pub mod testing;
mod tokens;
mod verbs;
