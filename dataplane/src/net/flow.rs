//! The addresses and ports of a TCP connection.

use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use crate::keyed_hash::KeyedHash;
use crate::wire::flow::Flow;

/// The addresses and ports that name a TCP connection. Both addresses are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// The peer's port.
    pub remote_port: u16,
    /// Our port.
    pub local_port: u16,
}

impl FlowKey {
    /// Returns our address and port.
    pub const fn local_end(&self) -> SocketAddr {
        SocketAddr::new(self.local, self.local_port)
    }

    /// Returns the peer's address and port.
    pub const fn remote_end(&self) -> SocketAddr {
        SocketAddr::new(self.remote, self.remote_port)
    }

    /// Returns the connection that segments of `flow` are for.
    pub fn of_received(flow: &Flow) -> Self {
        Self {
            local: flow.destination(),
            remote: flow.source(),
            remote_port: flow.source_port(),
            local_port: flow.destination_port(),
        }
    }

    /// Returns the flow of the peer's segments.
    pub fn received(&self) -> Option<Flow> {
        Flow::new(self.remote_end(), self.local_end())
    }

    /// Returns the flow label of its IPv6 packets; 0 over IPv4, which has none. All packets of a flow have
    /// the same, and others cannot foresee it (RFC 6437 §3): the key of `labels` serves nothing else.
    pub(super) fn flow_label(&self, labels: KeyedHash) -> u32 {
        // Over IPv6, 0 would mean that there is none.
        if self.remote.is_ipv4() { 0 } else { (labels.hash_one(self) as u32 & 0xf_ffff).max(1) }
    }
}

impl Hash for FlowKey {
    /// Hashes as few words as possible: the connection table hashes a key for every segment.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match (self.local, self.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                state.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
            }
            (local, remote) => {
                for address in [local, remote] {
                    match address {
                        IpAddr::V4(address) => state.write_u32(address.to_bits()),
                        IpAddr::V6(address) => state.write_u128(address.to_bits()),
                    }
                }
            }
        }
        state.write_u32(u32::from(self.local_port) << 16 | u32::from(self.remote_port));
    }
}
