//! Memory that peers may read and write: regions, the STag table, access checks, and the one place that
//! writes into user buffers.
//!
//! # Memory that is taken back
//!
//! Memory leaves a core's reach in a handshake: `Deregister` and `DestroyQp` are answered by an event, and
//! nothing is touched after it. A send that still reads from a region keeps it registered, and so does work
//! of its Protection Domain that the core cannot look at yet: requests posted after a request that changes
//! what this end grants are checked when that request is carried out.
//!
//! Invalidation closes a name to everything new. An answer that was begun is read to its end from the memory
//! it began with; that memory is neither freed nor given another name before.
//!
//! # Sources that change
//!
//! Memory may change while it is sent: what a peer reads is the application's at any time, a peer may have
//! the right to write to what a Write is sent from, and applications err. RFC 5040 §5.5 (8) leaves the
//! contents of the message undetermined then, and nothing else. So the stream must not end by it, and nothing
//! may go out that was written after the completion:
//!
//! - The CRC is that of the copy in the frame, so both fit, however long the frame waits at the device, and
//!   whatever the buffer is used for meanwhile. No frame that is still to leave refers to memory that can
//!   still be written; so a completion waits for TCP's acknowledgement and for nothing else, and a region can
//!   be taken back and a queue pair destroyed while frames wait.
//! - What is sent again is built again, whole, and is as consistent as the first time. The peer may find old
//!   contents or new ones.
//! - An FPDU that goes out in several segments is built once. The copy is kept until all of it is
//!   acknowledged (`endpoint/cut_runs.rs`), and every part, the first time and again, comes from there. These
//!   copies have a bound; a connection beyond it has one.
//! - If a middlebox cuts segments, a part of one arrives, and the source changes before the whole is sent
//!   again, the peer has an old part and a CRC that is new. It finds that the CRC does not hold and ends the
//!   stream (MPA error 2). To prevent that, all that is unacknowledged would have to be kept, which is a send
//!   buffer. Nothing of the mixture is placed.
//!
//! By reference goes only what cannot change, by default wherever it can. `Region::freeze` makes memory
//! constant for the rest of its life, when it has no other owner: every write is refused, and no right to
//! write is ever granted to it. Where the device gathers pieces and sums up TCP's checksum, a payload of 1024
//! octets or more without Markers from constant hugepages is not copied: the frame refers to them, and keeps
//! them in place after the region is gone. That holds for RDMA Read Responses too, whose source is what a
//! server has most of. To send other memory by reference, completions would have to wait for the device to
//! let go of each frame, which drivers report when they need the descriptor and not before, and the CRC would
//! have to be given up or computed by the device.

mod access;
mod change;
mod claims;
mod copy;
#[cfg(feature = "dpdk")]
mod huge;
#[cfg(all(test, loom))]
mod loom_tests;
mod own;
mod pool;
mod prefetch;
mod region;
mod table;
mod target;

pub use access::{
    Access, AccessError, Accessor, Binding, FastRegistration, Grant, Invalidation, ProtectionDomainId,
};
pub use change::{ChangeId, ChangeResult, GrantChange, Reach};
pub use claims::Claims;
#[cfg(feature = "dpdk")]
pub use huge::HugeBacking;
pub use pool::{RegionPool, RegionPoolReport};
pub(crate) use prefetch::prefetch;
pub use region::{Backing, HeapBacking, Region};
pub use table::{
    BindError, InsertError, InvalidationError, Readable, RemoveError, RetainedMemory, StagTable,
};
pub use target::Target;

pub use crate::wire::stag::STag;
