//! The protocols and the poll loop of warpline, a software RNIC: RDMAP over DDP over MPA over its own TCP.
//!
//! Octets enter at [`device`], rise through [`wire`], [`tcp`], [`mpa`], [`ddp`] and [`rdmap`] to a user buffer in
//! [`memory`] and a completion in [`qp`]; work requests sink the same stairs. A lower layer never names a higher one.
//!
//! Protocol code does no I/O and reads no clock: the caller passes `now`, and every state machine names its next
//! deadline. So the whole stack runs in virtual time over [`device::sim`].

pub mod conn;
pub mod core;
pub mod crc32c;
pub mod ddp;
pub mod device;
pub mod drops;
pub mod endpoint;
mod keyed_hash;
pub mod limits;
pub mod memory;
pub mod mpa;
pub mod net;
pub mod ordered;
pub mod pool;
pub mod qp;
pub mod rate_limit;
pub mod rdmap;
pub mod ring;
mod secret;
pub mod statistics;
pub mod sync;
pub mod tcp;
pub mod time;
pub mod waker;
pub mod wire;
