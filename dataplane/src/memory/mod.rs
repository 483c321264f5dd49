//! Memory that peers may read and write: regions, the STag table, access checks, and the one place that
//! writes into user buffers.

mod access;
mod copy;
#[cfg(feature = "dpdk")]
mod huge;
mod own;
mod region;
mod table;
mod target;

pub use access::{
    Access, AccessError, Accessor, Binding, FastRegistration, Grant, Invalidation, ProtectionDomainId,
};
#[cfg(feature = "dpdk")]
pub use huge::HugeBacking;
pub use region::{Backing, HeapBacking, Region};
pub use table::{
    BindError, InsertError, InvalidationError, Readable, RemoveError, RetainedMemory, StagTable,
};
pub use target::Target;

pub use crate::wire::stag::STag;
