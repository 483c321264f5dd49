//! What the ends that `scripts/interop` drives have in common: a device polled by a thread of its own, and
//! failures as codes.

pub mod device;
pub mod failure;
