//! How a core is set up.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::limits;
use crate::net;
use crate::net::addresses::{Addresses, Cidr, Presence, Routes};
use crate::net::neighbours::StaticNeighbour;
use crate::tcp;
use crate::wire::tcp_rdma;

/// How a core is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its addresses, IPv4 and IPv6, each with the prefix of its network.
    pub addresses: Addresses,
    /// The gateways to other networks.
    pub routes: Routes,
    /// Neighbours whose hardware address is configured.
    pub neighbours: ArrayVec<StaticNeighbour, { limits::STATIC_NEIGHBOURS_PER_CORE }>,
    /// Whose the addresses are. Shared ones are used at once.
    pub presence: Presence,
    /// Whether the core probes for other stations that have its IPv6 addresses before it uses them (RFC 4862
    /// §5.4): for one to two seconds after the start. Without it, the core uses the addresses at once.
    pub duplicate_address_detection: bool,
    /// The VLAN that all frames belong to, 1 to 4094, by an IEEE 802.1Q tag; `None` for frames without one.
    pub vlan: Option<u16>,
    /// The kind of the TCP RDMA option, for connections that [use it](tcp::Behaviour::rdma_option). [No other
    /// option has it](tcp_rdma::is_free_kind).
    pub rdma_option_kind: u8,
    /// Bytes a peer may have in flight on one connection.
    pub window_bytes: u32,
    /// First and last local port of connections this core opens. Cores that share an address must not share
    /// ports, unless they are [placed](super::CoreSetup::placed) in one device; at a shared address no other
    /// station may use them.
    pub ports: (u16, u16),
    /// How TCP behaves on its connections, unless a command says otherwise.
    pub tcp: tcp::Behaviour,
    /// Whether streaming bytes stay in TCP's window until control has consumed them
    /// ([`Command::ConsumeStream`]): a peer sends no more than the window to an application that consumes
    /// nothing, and Full Operation can begin at any byte that was not consumed. Control is then notified how
    /// many of its own bytes the peer has acknowledged ([`Event::StreamAcknowledged`]). Without it, bytes
    /// are consumed when control gets its copy: that is enough for MPA's startup.
    ///
    /// [`Command::ConsumeStream`]: crate::ring::Command::ConsumeStream
    /// [`Event::StreamAcknowledged`]: crate::ring::Event::StreamAcknowledged
    pub holds_stream: bool,
    /// Secret of initial sequence numbers and ports: different on every start (RFC 6528).
    pub secret: [u64; 2],
}

impl Config {
    /// Bytes of the window unless changed: a millisecond at 16 Gbit/s.
    pub const WINDOW_BYTES: u32 = {
        let octets = 2 << 20;
        // A core holds a full window of Ethernet's full frames after a single loss, or the peer sends much
        // of it again.
        let beyond_gap = limits::HELD_FRAMES_BEYOND_GAP;
        assert!(beyond_gap * 1428 >= octets as usize, "the frames held are too few for the window");
        // It also holds one that an application does not read, whatever the length of the segments.
        let in_order = limits::HELD_FRAMES_PER_CONNECTION;
        assert!(in_order * limits::GATHER_MAX_BYTES >= octets as usize, "the frames are too few");
        octets
    };

    /// Returns the defaults with one address: no routes, no VLAN, a window of 2 MiB. The TCP RDMA option is
    /// off, and has the kind of the draft.
    pub fn new(address: IpAddr, prefix_bits: u8, secret: [u64; 2]) -> Self {
        Self {
            addresses: [Cidr::new(address, prefix_bits)].into_iter().collect(),
            routes: Routes::new(),
            neighbours: ArrayVec::new(),
            presence: Presence::Own,
            duplicate_address_detection: true,
            vlan: None,
            rdma_option_kind: tcp_rdma::DEFAULT_KIND,
            window_bytes: Self::WINDOW_BYTES,
            ports: limits::EPHEMERAL_PORTS,
            tcp: tcp::Behaviour::default(),
            holds_stream: false,
            secret,
        }
    }

    /// Returns how the IP host is set up.
    pub(super) fn into_host(self) -> net::Config {
        let Self { addresses, routes, neighbours, presence, vlan, rdma_option_kind, .. } = self;
        let duplicate_address_detection = self.duplicate_address_detection && presence == Presence::Own;
        net::Config {
            addresses,
            routes,
            neighbours,
            presence,
            duplicate_address_detection,
            vlan,
            rdma_option_kind,
        }
    }
}
