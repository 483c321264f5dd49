//! Memory that peers may read and write: regions, the STag table, access checks, and the one place that writes into
//! user buffers.

#[cfg(feature = "dpdk")]
mod huge;
mod region;
mod stag;

#[cfg(feature = "dpdk")]
pub use huge::HugeBacking;
pub use region::{Backing, HeapBacking, Region};
pub use stag::{
    Access, AccessError, Accessor, Grant, Invalidation, ProtectionDomainId, STag, StagTable, TableFull,
    Target,
};
