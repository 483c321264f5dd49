//! The configuration, capabilities and errors of ports.

use dpdk_sys as sys;

use crate::errno::Errno;
use crate::log::LogLines;

/// A port could not be opened or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// There is none of that name.
    #[error("there is no port `{name}`; the ports are: {known}")]
    NotFound {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Somebody in this process has it.
    #[error("the port `{0}` is open already")]
    InUse(String),
    /// One pool per queue pair is needed.
    #[error("{queues} queue pairs need as many pools, not {pools}")]
    Pools {
        /// Queue pairs asked for.
        queues: u16,
        /// Pools given.
        pools: usize,
    },
    /// It has fewer queues, or 0 were asked for.
    #[error("`{name}` has 1 to {offered} queue pairs, not {asked}")]
    Queues {
        /// The port.
        name: String,
        /// Queue pairs asked for.
        asked: u16,
        /// Queue pairs it has.
        offered: u16,
    },
    /// It receives by all its queues, so what comes to those that are not used would be lost.
    #[error(
        "`{name}` receives by all of its {has} queue pairs, of which {asked} would be used: create it with \
         qpairs=1, or with one for each core"
    )]
    UnusedQueues {
        /// The port.
        name: String,
        /// Queue pairs asked for.
        asked: u16,
        /// Queue pairs it has.
        has: u16,
    },
    /// It does not take that MTU.
    #[error("`{name}` takes an MTU of {least} to {most} bytes, not {asked}")]
    Mtu {
        /// The port.
        name: String,
        /// The MTU asked for.
        asked: u16,
        /// The smallest it takes.
        least: u16,
        /// The largest it takes.
        most: u16,
    },
    /// A frame is larger than a buffer, and the port cannot spread it over several.
    #[error("`{name}` puts a frame of {frame_octets} bytes in one buffer, but the pool's take {data_octets}")]
    DataOctets {
        /// The port.
        name: String,
        /// Octets of the largest frame.
        frame_octets: usize,
        /// Octets a buffer takes.
        data_octets: usize,
    },
    /// The driver refused a step.
    #[error("`{name}`: {step} failed: {errno}{said}")]
    Refused {
        /// The port.
        name: String,
        /// The attempted operation.
        step: &'static str,
        /// The driver's reason.
        errno: Errno,
        /// What it said.
        said: LogLines,
    },
}

/// The MTU of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mtu {
    /// Configure the port for IP packets of this many octets.
    Set(u16),
    /// Leave the port as it is and take it to carry IP packets of this many octets: for drivers that cannot
    /// set what the interface beneath them has (`net_af_packet`).
    Assume(u16),
}

impl Mtu {
    /// Returns the octets.
    pub const fn octets(self) -> u16 {
        match self {
            Self::Set(octets) | Self::Assume(octets) => octets,
        }
    }
}

/// How received frames are spread over queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rss {
    /// The Toeplitz key. Ports with longer keys get it repeated.
    pub key: [u8; 40],
}

/// How the port spreads TCP segments, for code that must predict the queue of a frame: the hash of its
/// addresses and ports, modulo the table's entries, modulo the queues. Other frames come to any queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssLayout {
    /// The Toeplitz key.
    pub key: [u8; 40],
    /// Entries of the indirection table, a power of two, filled with the queues in turn.
    pub table_entries: u16,
}

/// What a port gets that does not spread TCP segments in a way that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownSpread {
    /// One queue pair, for the first pool.
    OneQueue,
    /// A queue pair for each pool, if it has so many: what they receive is to be sorted.
    QueueEach,
}

/// How to start a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Pairs of a receive and a transmit queue.
    pub queues: u16,
    /// Receive descriptors per queue; moved to the nearest number the port takes.
    pub receive_descriptors: u16,
    /// Transmit descriptors per queue; likewise.
    pub transmit_descriptors: u16,
    /// The MTU.
    pub mtu: Mtu,
    /// How TCP segments are spread, with several queues, if the port [can](crate::Port::spreads).
    pub rss: Rss,
    /// Whether to receive frames for other hardware addresses.
    pub promiscuous: bool,
    /// Whether to receive frames for multicast groups: IPv6 finds its neighbours through them
    /// (RFC 4861 §7.2.1).
    pub multicast: bool,
    /// Whether to use what checksum offload the port has.
    pub offloads: bool,
    /// Whether to send and receive super-frames, each with many TCP segments, as far as the port can: it cuts
    /// those that are sent (TSO), and joins what it receives (LRO). Those received are spread over several
    /// buffers where one does not take them. `net_vhost`, which passes super-frames on, does not report that
    /// in DPDK 22.11: its peer has to take them, and its device needs the argument `tso=1`.
    pub super_frames: bool,
    /// Whether to set the receive queues up for interrupts
    /// ([`RxQueue::interrupt`](crate::RxQueue::interrupt)), where the driver takes that. They stay disabled
    /// until enabled.
    pub rx_interrupts: bool,
}

impl Default for PortConfig {
    /// Returns one queue pair of 1024 descriptors each way, 1500 octets, checksum offload, interrupts, frames
    /// for ourselves and for groups, no super-frames. The key is one that treats all input bits alike.
    fn default() -> Self {
        Self {
            queues: 1,
            receive_descriptors: 1024,
            transmit_descriptors: 1024,
            mtu: Mtu::Set(1500),
            rss: Rss { key: DEFAULT_KEY },
            promiscuous: false,
            multicast: true,
            offloads: true,
            super_frames: false,
            rx_interrupts: true,
        }
    }
}

/// The key of Microsoft's RSS specification, for which test vectors are published.
const DEFAULT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// How a started port comes by the frames for multicast groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multicast {
    /// The port passes the frames of all groups.
    All,
    /// The driver has no such mode; the port passes every frame.
    Promiscuous,
    /// The port has neither mode, as virtual devices without a filter; or such frames were not requested.
    AsItIs,
}

/// The capabilities of a port, or, of a started one, those it was configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCapabilities {
    /// Queue pairs.
    pub queues: u16,
    /// Largest IP packet, in octets.
    pub mtu_octets: u16,
    /// Verifies IPv4 and TCP checksums of received frames. Some ports verify TCP's alone, and mark the
    /// frames.
    pub receive_checksums: bool,
    /// Fills in TCP checksums, over IPv4 and IPv6.
    pub transmit_checksums: bool,
    /// Fills in the checksums of IPv4 headers, beside those of TCP.
    pub transmit_ip_checksums: bool,
    /// Sends frames of several pieces, such as those carried by reference.
    pub gather: bool,
    /// Spreads a received frame over several buffers.
    pub scatter: bool,
    /// Cuts frames into TCP segments, or passes them whole to a peer in software.
    pub segmentation: bool,
    /// Receives frames with several TCP segments.
    pub joins_received: bool,
    /// The most pieces that a frame to send may have.
    pub pieces: u16,
}

impl PortCapabilities {
    pub(super) const fn new(queues: u16, mtu_octets: u16, pieces: u16, receive: u64, transmit: u64) -> Self {
        Self {
            queues,
            mtu_octets,
            receive_checksums: receive & RECEIVE_CHECKSUMS == RECEIVE_CHECKSUMS,
            transmit_checksums: transmit & sys::constant_RTE_ETH_TX_OFFLOAD_TCP_CKSUM != 0,
            transmit_ip_checksums: transmit & TRANSMIT_CHECKSUMS == TRANSMIT_CHECKSUMS,
            gather: transmit & sys::constant_RTE_ETH_TX_OFFLOAD_MULTI_SEGS != 0,
            scatter: receive & sys::constant_RTE_ETH_RX_OFFLOAD_SCATTER != 0,
            segmentation: transmit & sys::constant_RTE_ETH_TX_OFFLOAD_TCP_TSO != 0,
            joins_received: receive & sys::constant_RTE_ETH_RX_OFFLOAD_TCP_LRO != 0,
            pieces,
        }
    }
}

pub(super) const RECEIVE_CHECKSUMS: u64 =
    sys::constant_RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | sys::constant_RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
pub(super) const TRANSMIT_CHECKSUMS: u64 =
    sys::constant_RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | sys::constant_RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
