//! Quotas: the part of a device's shared resources that one Protection Domain and one peer may hold (RFC 5042
//! §5.2).

use super::capacity::Capacity;

/// How much of a device's resources one holder may have. A request beyond its quota is refused, and no other
/// holder is affected.
///
/// The control engine decides, and allocates all of them. Receive buffers are shared only where an
/// application shares them itself (shared receive queues), and each of their queue pairs says how many it has
/// taken; RDMA Reads that a peer may have outstanding are of its own connection alone, and no more than the
/// listener's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Registrations and windows of one Protection Domain.
    pub regions_per_domain: usize,
    /// Queue pairs of one Protection Domain.
    pub queue_pairs_per_domain: usize,
    /// Connections from one address, to all listeners together: in startup, before an application, or open.
    /// Those in the middle of TCP's handshake prove no address and are not counted; they are bounded in all
    /// and then answered by SYN cookies.
    pub connections_per_peer: usize,
    /// Connections from all addresses of one IPv6 network of 64 bits, counted in the same way: a host may
    /// have as many addresses there as it likes.
    pub connections_per_network: usize,
}

impl Quotas {
    /// Returns half of what a device of this capacity has, three quarters for a network: one holder alone
    /// never leaves nothing for another. All hosts of a local network may be of one IPv6 network; a single
    /// host may have all its addresses.
    pub fn of(capacity: &Capacity) -> Self {
        Self {
            regions_per_domain: capacity.registrations.div_ceil(2),
            queue_pairs_per_domain: capacity.queue_pairs.div_ceil(2),
            connections_per_peer: capacity.connections.div_ceil(2),
            connections_per_network: (capacity.connections / 4 * 3).max(1),
        }
    }
}

impl Default for Quotas {
    /// Returns the quotas [of](Self::of) the default capacity.
    fn default() -> Self {
        Self::of(&Capacity::default())
    }
}
