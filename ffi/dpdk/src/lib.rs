//! A safe face for the parts of DPDK that warpline uses: the EAL, packet buffers and their pools, Ethernet
//! ports, a wire between two ends in memory, and hugepage memory that buffers can carry by reference.
//!
//! [`Eal`] is a token: it proves that the EAL runs, and everything else starts from it. The EAL can be
//! initialised once per process, even after its cleanup, so it stays up until the process ends.
//!
//! Threads that handle buffers should be known to the EAL ([`Eal::register_thread`]): only they have a cache
//! before each [`Mempool`]. Other threads may use everything too, at the cost of an atomic operation or two
//! per buffer.

#![deny(unreachable_pub)]
// The crate is a wall around C: this is where the workspace's unsafe code belongs.
#![allow(unsafe_code)]

mod eal;
mod errno;
mod external;
mod frame_ring;
mod handoff;
mod hotplug;
mod huge;
mod interrupts;
mod log;
mod mbuf;
mod mempool;
mod port;
mod prefetch;
mod streams;
mod thread;
mod time_stamp;
mod wire;

pub use eal::{Eal, EalBuilder, EalError, LogLevel, Memory, MemoryMode, Pci};
pub use errno::Errno;
pub use external::ExternalBuffer;
pub use handoff::{HandoffReceiver, HandoffSender, handoff};
pub use hotplug::VdevError;
pub use huge::{HugeRegion, HugeRegionError};
pub use log::LogLines;
pub use mbuf::{ChecksumStatus, Headers, IpVersion, Mbuf, Pieces};
pub use mempool::{Mempool, MempoolConfig, MempoolError};
pub use port::{
    AllMulticast, LinkState, Mtu, Multicast, Port, PortCapabilities, PortConfig, PortError, PortStatistics,
    QueuePair, Rss, RssLayout, RunningPort, RxInterrupt, RxQueue, RxTrigger, TxQueue, UnknownSpread,
};
pub use prefetch::{prefetch, prefetch_for_write};
pub use thread::{RegisteredThread, ThreadError};
pub use time_stamp::time_stamp;
pub use wire::{ExternalPieces, WireConfig, WireEnd, WireError, WireStatistics, wire};
