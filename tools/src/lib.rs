//! What the command lines of warpline have in common: the benchmark, `warpline-bench`, and the rigs of the
//! tests in this package's program, `warpline-tools`.
//!
//! A command prints by [`output`], ends in an orderly way by [`interrupt`], and fails with a
//! [`CommandError`](error::CommandError), whose text is one line that says what to do. Nothing here is for
//! applications: it changes with the programs.

pub mod arguments;
pub mod capture;
pub mod error;
pub mod host_port;
pub mod interrupt;
pub mod output;
pub mod segments;
pub mod setup;
