//! Memory that peers may read and write: regions, the STag table, access checks, and the one place that writes into
//! user buffers.

mod region;
mod stag;

pub use region::{Backing, HeapBacking, Region};
pub use stag::{Access, AccessError, Grant, ProtectionDomainId, STag, StagTable, TableFull, Target};
