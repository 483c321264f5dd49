//! DPDK devices for the usual cases: the EAL from a line of arguments, a port, a wire in memory.
//!
//! ```no_run
//! use warpline::{Device, DeviceConfig, PollThread, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let eal = open::eal("--vdev=net_tap0,iface=tap0")?;
//! let port = open::port(eal, "net_tap0", 1500)?;
//! let config = DeviceConfig { memory: open::hugepages(eal), ..DeviceConfig::new([198, 18, 0, 2], 24) };
//! let device = Device::start(port, &config, PollThread::default())?;
//! # Ok(())
//! # }
//! ```

use dpdk::{
    Eal, EalBuilder, EalError, Memory, Mempool, MempoolConfig, MempoolError, Mtu, Pci, Port, PortConfig,
    PortError, WireConfig, WireError, wire,
};
use warpline_dataplane::device::dpdk::{DpdkDevice, PoolTooSmall};
use warpline_dataplane::memory::Region;

use crate::handles::device::MemorySource;

/// Buffers of a port: as many as a core may hold back, with a ring of descriptors to spare.
const PORT_MBUFS: u32 = 16_383;
/// Octets of all the buffers of an end of a wire: a few windows' worth. A wire loses nothing, so little is held back; and
/// a pool's buffers are used in turn, so that a small pool stays in the caches of the two cores.
const WIRE_POOL_OCTETS: u32 = 5 << 19;
/// Buffers that a thread keeps at hand of a wire's pool: those of a few chunks, for the other end lacks what it keeps.
const WIRE_CACHE_MBUFS: u32 = 32;
/// Octets of a buffer beyond the largest IP packet: for the Ethernet header, and because `net_af_packet` wants to fit the
/// frames of its ring, which are a multiple of a cache line or more.
const SPARE_OCTETS: u16 = 256;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An argument of the EAL lacks its value.
    #[error("EAL argument {0} lacks its value")]
    Argument(String),
    /// The EAL did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// No buffers.
    #[error(transparent)]
    Mempool(#[from] MempoolError),
    /// No port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// No wire.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The buffers are too small for the port's frames.
    #[error(transparent)]
    PoolTooSmall(#[from] PoolTooSmall),
    /// The port was started without queues.
    #[error("port {0} has no queue: its driver is of no use here")]
    NoQueue(String),
}

/// Starts the EAL with `arguments` as DPDK's programs take them, separated by blanks. What they do not say is as for
/// [`Eal::builder`]: no PCI device is taken, hugepages are used where there are some.
///
/// # Errors
///
/// [`OpenError::Argument`], [`OpenError::Eal`].
pub fn eal(arguments: &str) -> Result<Eal, OpenError> {
    Ok(builder(arguments)?.init()?)
}

fn builder(arguments: &str) -> Result<EalBuilder, OpenError> {
    let mut builder = Eal::builder();
    let mut devices = Vec::new();
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let mut value = || value.or_else(|| words.next()).ok_or_else(|| OpenError::Argument(name.into()));
        builder = match name {
            "--no-huge" => builder.memory(Memory::Ordinary),
            "--in-memory" => builder.memory(Memory::Hugepages),
            // The builder's way without `-a`.
            "--no-pci" => builder,
            "-m" => {
                let mib = value()?.parse().map_err(|_| OpenError::Argument(name.into()))?;
                builder.memory_mib(mib)
            }
            "--lcores" => builder.lcores(value()?),
            "--vdev" => builder.vdev(value()?),
            "--file-prefix" => builder.file_prefix(value()?),
            "-a" | "--allow" => {
                devices.push(value()?.to_owned());
                builder
            }
            _ => builder.argument(word),
        };
    }
    if !devices.is_empty() {
        builder = builder.pci(Pci::Allow(devices));
    }
    Ok(builder)
}

/// Memory of the EAL, which frames carry by reference.
pub fn hugepages(eal: Eal) -> MemorySource {
    MemorySource::new(move |octets| Region::huge(eal, octets).ok())
}

fn port_pool(eal: Eal, mtu_octets: u16) -> Result<Mempool, MempoolError> {
    let data_octets = data_octets(mtu_octets);
    Mempool::new(eal, MempoolConfig { mbufs: PORT_MBUFS, data_octets, ..MempoolConfig::default() })
}

fn wire_pool(eal: Eal, mtu_octets: u16) -> Result<Mempool, MempoolError> {
    let data_octets = data_octets(mtu_octets);
    // A power of two less one wastes no memory: 255 jumbo frames, 1023 of 1500 octets.
    let mbufs = (WIRE_POOL_OCTETS / u32::from(data_octets)).next_power_of_two() / 2 - 1;
    Mempool::new(eal, MempoolConfig { mbufs, data_octets, cache_mbufs: WIRE_CACHE_MBUFS })
}

fn data_octets(mtu_octets: u16) -> u16 {
    mtu_octets.saturating_add(SPARE_OCTETS).max(MempoolConfig::default().data_octets)
}

/// Starts the port `name` with one queue pair, for IP packets of up to `mtu_octets` octets.
///
/// # Errors
///
/// [`OpenError`].
pub fn port(eal: Eal, name: &str, mtu_octets: u16) -> Result<DpdkDevice, OpenError> {
    let port = Port::open(eal, name)?;
    let pool = port_pool(eal, mtu_octets)?;
    // That driver cannot change what the interface beneath it has.
    let assume = name.starts_with("net_af_packet");
    let mtu = if assume { Mtu::Assume(mtu_octets) } else { Mtu::Set(mtu_octets) };
    let config = PortConfig { mtu, ..PortConfig::default() };
    let (port, queues) = port.start(&config, std::slice::from_ref(&pool))?;
    let queues = queues.into_iter().next().ok_or_else(|| OpenError::NoQueue(name.into()))?;
    Ok(DpdkDevice::port(&port, queues, pool)?)
}

/// Two devices with a wire in memory between them.
///
/// # Errors
///
/// [`OpenError`].
pub fn ring_pair(eal: Eal, config: &WireConfig) -> Result<(DpdkDevice, DpdkDevice), OpenError> {
    let mtu_octets = u16::try_from(config.mtu_octets).unwrap_or(u16::MAX);
    let pools = [wire_pool(eal, mtu_octets)?, wire_pool(eal, mtu_octets)?];
    let (near, far) = wire(eal, config, [&pools[0], &pools[1]])?;
    let [near_pool, far_pool] = pools;
    Ok((DpdkDevice::wire(near, near_pool)?, DpdkDevice::wire(far, far_pool)?))
}
