//! How a device is set up, why it may not start, and what it reports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use warpline_dataplane::core::Config;
use warpline_dataplane::device::packet::PacketError;
use warpline_dataplane::limits;
use warpline_dataplane::memory::Region;
use warpline_dataplane::net::addresses::{
    Addresses, Cidr, Presence, Route, Routes, is_directed_broadcast, is_host_address, is_network_address,
};
use warpline_dataplane::net::neighbours::StaticNeighbour;
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::wire::tcp_rdma;

use super::capacity::Capacity;
use super::device_name::DeviceName;
use super::poll_thread::PollThreadError;
use super::quota::Quotas;

/// Whether CRCs are used. Only an administrator decides this; users of connections do not see it.
// Requirements: MPA-4.4-06
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CrcPolicy {
    /// C=1 in every startup frame: CRCs are always generated and checked.
    // Requirements: MPA-4.4-02, MPA-4.4-03
    #[default]
    Always,
    /// C=0: no CRCs with peers that say the same. Octets that are damaged below TCP's checksum, and damaged
    /// headers that misplace them, then go unnoticed: do not use it without end-to-end protection at least as
    /// strong, such as IPsec.
    // Requirements: MPA-4.4-04, MPA-4.4-05
    OffIfPeerAgrees,
}

/// Where a device gets the memory that applications ask it for.
#[derive(Clone)]
pub struct MemorySource(Arc<dyn Fn(usize) -> Option<Region> + Send + Sync>);

impl MemorySource {
    /// Returns a source of memory from `allocate`, which takes a number of bytes and returns `None` when
    /// memory is short.
    pub fn new(allocate: impl Fn(usize) -> Option<Region> + Send + Sync + 'static) -> Self {
        Self(Arc::new(allocate))
    }

    /// Returns a source of ordinary memory.
    pub fn heap() -> Self {
        Self::new(Region::heap)
    }

    /// Allocates `bytes` bytes; returns `None` when memory is short.
    pub fn allocate(&self, len: usize) -> Option<Region> {
        (self.0)(len)
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySource").finish_non_exhaustive()
    }
}

/// The configuration of a device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its addresses, IPv4 and IPv6, each with the prefix of its network: one to
    /// [`ADDRESSES_PER_CORE`](limits::ADDRESSES_PER_CORE).
    pub addresses: Vec<Cidr>,
    /// Gateways to other networks, at most [`ROUTES_PER_CORE`](limits::ROUTES_PER_CORE) of them.
    pub routes: Vec<Route>,
    /// Neighbours whose hardware address is configured: they are not asked for it. At most
    /// [`STATIC_NEIGHBOURS_PER_CORE`](limits::STATIC_NEIGHBOURS_PER_CORE).
    pub neighbours: Vec<StaticNeighbour>,
    /// Whose the addresses are: with [`Presence::Shared`] those of the kernel of this machine, which answers
    /// for them; the device holds the ports that it uses against it, of which it has 128 for connections
    /// that it opens: so many at a time to one port of a peer.
    pub presence: Presence,
    /// Whether the link is asked for other stations with our IPv6 addresses before these are used (RFC 4862
    /// §5.4), for one to two seconds after the start.
    pub duplicate_address_detection: bool,
    /// The VLAN that all frames belong to, 1 to 4094, by an IEEE 802.1Q tag; `None` for frames without one.
    pub vlan: Option<u16>,
    /// The kind of the TCP RDMA option (draft-csapuntz-tcprdma-00), for connections whose
    /// [behaviour](Behaviour::rdma_option) has it. The draft's kind is 25; 0 to 5 and 8 are those of other
    /// options.
    pub rdma_option_kind: u8,
    /// Octets a peer may have in flight on one connection: at least the product of rate and delay.
    // Requirements: DDP-A-01
    pub window_bytes: u32,
    /// How TCP behaves on its connections.
    pub tcp: Behaviour,
    /// Whether CRCs are used.
    pub crc: CrcPolicy,
    /// Where memory comes from.
    pub memory: MemorySource,
    /// How many connections, queue pairs and other things it has room for.
    pub capacity: Capacity,
    /// What one Protection Domain, and one peer, may hold.
    pub quotas: Quotas,
}

impl DeviceConfig {
    /// Returns the defaults with one address: no routes, no VLAN, a window of 2 MiB, CRCs always, memory from
    /// the heap.
    pub fn new(address: impl Into<IpAddr>, prefix_bits: u8) -> Self {
        Self {
            addresses: vec![Cidr::new(address.into(), prefix_bits)],
            routes: Vec::new(),
            neighbours: Vec::new(),
            presence: Presence::Own,
            duplicate_address_detection: true,
            vlan: None,
            rdma_option_kind: tcp_rdma::DEFAULT_KIND,
            window_bytes: Config::WINDOW_BYTES,
            tcp: Behaviour::default(),
            crc: CrcPolicy::Always,
            memory: MemorySource::heap(),
            capacity: Capacity::default(),
            quotas: Quotas::default(),
        }
    }

    /// The same, with this capacity and the quotas [of it](Quotas::of).
    #[must_use]
    pub fn with_capacity(self, capacity: Capacity) -> Self {
        Self { capacity, quotas: Quotas::of(&capacity), ..self }
    }
}

impl DeviceName {
    /// Returns the configuration of a device with the addresses, routes, VLAN and capacity of this name, and
    /// the defaults of [`DeviceConfig::new`] for the rest. It can be started only if the name has an address.
    pub fn config(&self) -> DeviceConfig {
        let usual = DeviceConfig::new(Ipv4Addr::UNSPECIFIED, 0);
        DeviceConfig {
            addresses: self.addresses().to_vec(),
            routes: self.routes().to_vec(),
            vlan: self.vlan(),
            presence: self.presence(),
            ..usual.with_capacity(self.connections().map_or_else(Capacity::default, Capacity::of))
        }
    }
}

/// Why a device could not be started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The kernel does not leave ports to a device that shares its addresses.
    #[error(transparent)]
    Ports(#[from] PacketError),
    /// The address is not that of a host.
    #[error("{0} is not the address of a host: give the device a unicast address of its network")]
    Address(IpAddr),
    /// The address is that of its network, not of a host in it.
    #[error("{0} is the address of the network itself: give the device another address of {network}",
        network = .0.network())]
    NetworkAddress(Cidr),
    /// All stations of the network have the address.
    #[error("{0} is the broadcast address of its network: give the device another address of {network}",
        network = .0.network())]
    BroadcastAddress(Cidr),
    /// No address, or too many.
    #[error("{0} addresses: a device has one to {max}", max = limits::ADDRESSES_PER_CORE)]
    AddressCount(usize),
    /// The prefix is longer than an address.
    #[error("{0}: a prefix has at most 32 bits for IPv4, 128 for IPv6")]
    Prefix(Cidr),
    /// Too many routes.
    #[error("{0} routes: a device has at most {max}", max = limits::ROUTES_PER_CORE)]
    RouteCount(usize),
    /// The gateway cannot be reached, or is this device.
    #[error("gateway {0} is no neighbour on a network of the device: nothing could be sent to it")]
    Gateway(IpAddr),
    /// Too many configured neighbours.
    #[error(
        "{0} configured neighbours: a device has at most {max}",
        max = limits::STATIC_NEIGHBOURS_PER_CORE
    )]
    NeighbourCount(usize),
    /// No VLAN has that number.
    #[error("VLAN {0}: the number of a VLAN is 1 to 4094")]
    Vlan(u16),
    /// Another TCP option has that kind.
    #[error("TCP option kind {0} has another meaning: give the RDMA option one that is not 0 to 5 or 8")]
    RdmaOptionKind(u8),
    /// A capacity that no device can have.
    #[error("a capacity of {number} {of}: a device has room for 1 to {most}")]
    Capacity {
        /// What of.
        of: &'static str,
        /// How many.
        number: usize,
        /// The most that is possible.
        most: usize,
    },
    /// There are other numbers of devices, cores and threads, or more than a device can have.
    #[error("{devices} devices for {cores} cores: a device has one for each core, 1 to {max}",
        max = limits::CORES_MAX)]
    CoreCount {
        /// Devices, which are the queues of a NIC.
        devices: usize,
        /// Cores, or threads for them.
        cores: usize,
    },
    /// Two cores would take turns on a CPU, and each wait for what the other has.
    #[error("CPU {cpu} is to poll cores {first} and {second}: give each core a CPU of its own")]
    CpuTwice {
        /// The CPU.
        cpu: usize,
        /// The core that has it.
        first: usize,
        /// The next core that was to have it.
        second: usize,
    },
    /// There is not enough address space for the tables.
    #[error("no address space for tables of {0} bytes: take a smaller capacity, or raise `ulimit -v`")]
    AddressSpace(usize),
    /// The random source of the system failed.
    #[error("no random bytes from /dev/urandom: {0}; STags must not be predictable")]
    Random(std::io::Error),
    /// No file descriptor.
    #[error("no file descriptor for events: {0}; check the limit on open files (ulimit -n)")]
    EventFd(std::io::Error),
    /// No control thread.
    #[error("no control thread: {0}; check the limit on threads (ulimit -u)")]
    ControlThread(std::io::Error),
    /// No poll thread.
    #[error(transparent)]
    PollThread(#[from] PollThreadError),
}

/// The device serves no more: its core is not polled any longer.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the device has stopped: its core is polled no longer, start a new one")]
pub struct Stopped;

/// Counts of what applications have of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// Registered regions.
    pub regions: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Listeners.
    pub listeners: usize,
    /// Connections, those being opened or closed included.
    pub connections: usize,
    /// How often something was refused since the start because its holder had its quota ([`Quotas`]):
    /// connections of peers, regions, windows and queue pairs.
    pub refused_by_quota: u64,
}

/// Returns the addresses and routes of a configuration that a core can work with.
pub(crate) fn check(config: &DeviceConfig) -> Result<(Addresses, Routes), StartError> {
    if let Some(vlan) = config.vlan
        && !(1..=4094).contains(&vlan)
    {
        return Err(StartError::Vlan(vlan));
    }
    if !tcp_rdma::is_free_kind(config.rdma_option_kind) {
        return Err(StartError::RdmaOptionKind(config.rdma_option_kind));
    }
    if config.neighbours.len() > limits::STATIC_NEIGHBOURS_PER_CORE {
        return Err(StartError::NeighbourCount(config.neighbours.len()));
    }
    if let Some((of, number, most)) = config.capacity.fault() {
        return Err(StartError::Capacity { of, number, most });
    }
    let addresses = config.addresses.as_slice();
    for own in addresses {
        if !is_host_address(own.address) {
            return Err(StartError::Address(own.address));
        }
        check_prefix(*own)?;
        if is_network_address(*own) {
            return Err(StartError::NetworkAddress(*own));
        }
        if is_directed_broadcast(&[*own], own.address) {
            return Err(StartError::BroadcastAddress(*own));
        }
    }
    for route in &config.routes {
        check_prefix(route.destination)?;
        let own = addresses.iter().any(|own| own.address == route.gateway);
        if own || !addresses.iter().any(|own| own.contains(route.gateway)) {
            return Err(StartError::Gateway(route.gateway));
        }
    }
    let wrong_count = |_| StartError::AddressCount(addresses.len());
    let addresses = Addresses::try_from(addresses).map_err(wrong_count)?;
    if addresses.is_empty() {
        return Err(StartError::AddressCount(0));
    }
    let wrong_count = |_| StartError::RouteCount(config.routes.len());
    Ok((addresses, Routes::try_from(config.routes.as_slice()).map_err(wrong_count)?))
}

/// Checks that there is address space for tables of `bytes` bytes: a core that finds none ends the process.
pub(crate) fn check_address_space(bytes: usize) -> Result<(), StartError> {
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| StartError::AddressSpace(bytes))
}

fn check_prefix(cidr: Cidr) -> Result<(), StartError> {
    if cidr.prefix_bits > cidr.address_bits() { Err(StartError::Prefix(cidr)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that no device can have is named with its bounds, and so is a lack of address space.
    #[test]
    fn an_impossible_capacity_is_refused() {
        let usual = Capacity::default();
        let config = |capacity| DeviceConfig::new([198, 18, 0, 1], 24).with_capacity(capacity);
        assert!(check(&config(usual)).is_ok());
        for (capacity, expected) in [
            (Capacity { connections: 0, ..usual }, "0 connections: a device has room for 1 to 16777216"),
            (Capacity { queue_pairs: 16_777_217, ..usual }, "16777217 queue pairs"),
            (
                Capacity { registrations: 32_769, ..usual },
                "32769 registrations: a device has room for 1 to 32768",
            ),
            (Capacity { time_waits: usize::MAX, ..usual }, "connections in TIME-WAIT"),
            (Capacity { listeners: 8193, ..usual }, "8193 listeners: a device has room for 1 to 8192"),
            (Capacity { frames: 0, ..usual }, "0 frames"),
            (Capacity { stream_bytes: usize::MAX, ..usual }, "bytes for byte streams"),
        ] {
            let error = check(&config(capacity)).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        for connections in [1, limits::CONNECTIONS_MAX] {
            assert!(check(&config(Capacity::of(connections))).is_ok(), "{connections}");
        }
        assert!(check_address_space(1 << 30).is_ok());
        let error = check_address_space(1 << 60).expect_err("there is not so much").to_string();
        assert!(error.contains("no address space for tables of 1152921504606846976 bytes"), "{error}");
    }
}
