//! What the ends that `scripts/interop` drives have in common: a device polled by a thread of its own.

pub mod device;
