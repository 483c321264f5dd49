//! The device that is measured: a core for each queue of a `net_null`, whose other end is a [`Peer`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dpdk::{Eal, Mempool, MempoolConfig, Port, PortConfig, RunningPort, UnknownSpread};
use warpline::open::OpenError;
use warpline::{Device, DeviceConfig, StaticNeighbour};
use warpline_dataplane::steering::Steering;
use warpline_tools::arguments::Switch;

use super::core_load::UnconnectedCore;
use super::peer::{CORE, PEER, PEER_MAC, Peer, PeerConfig, Shared};
use super::report::Row;
use crate::device::config;
use crate::error::BenchError;

/// Frames of a core's pool.
const FRAMES: u32 = 2047;
/// Entries of the table by which flows have their cores: local ports are chosen by it.
const STEERING_ENTRIES: usize = 512;

/// A device on a `net_null`, which ends when all of this has been dropped.
pub struct Ports {
    pub device: Device,
    /// By number.
    pub cores: Vec<UnconnectedCore>,
    /// Closed at last.
    pub port: RunningPort,
}

impl Ports {
    /// Starts the device for a row, and a peer of each of its cores.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn start(eal: Eal, row: Row, peer: &PeerConfig) -> Result<Self, BenchError> {
        let (pools, queues, port) = null_port(eal, row)?;
        let shared: Vec<_> = pools.iter().map(|_| Arc::new(Shared::default())).collect();
        let links = pools
            .into_iter()
            .zip(queues)
            .zip(&shared)
            .map(|((pool, null), shared)| Peer::new(peer.clone(), pool, null, shared.clone()));
        let neighbour = StaticNeighbour { address: PEER.into(), mac: PEER_MAC };
        let own = DeviceConfig { neighbours: vec![neighbour], ..DeviceConfig::new(CORE, 24) };
        let config = config(if row.crc { Switch::On } else { Switch::Off }, own);
        let mut links: Vec<_> = links.collect();
        let (device, drivers) = if row.cores == 1 {
            let (device, driver) = Device::start_manual(links.remove(0), &config)?;
            (device, vec![driver])
        } else {
            Device::start_cores_manual(links, &steering(row.cores), &config)?
        };
        let cores = drivers.into_iter().zip(shared);
        let cores = cores.map(|(driver, shared)| UnconnectedCore { driver, shared, row }).collect();
        Ok(Self { device, cores, port })
    }
}

/// Returns a steering among `cores` cores. Its keys are always the same: nobody else sends.
fn steering(cores: u8) -> Arc<Steering> {
    let mut number = 0u64;
    Arc::new(Steering::new(cores, STEERING_ENTRIES, |key| {
        for byte in key {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (number >> 56) as u8;
        }
    }))
}

/// Starts a `net_null` with a queue for each core, which drops what is sent.
fn null_port(eal: Eal, row: Row) -> Result<(Vec<Mempool>, Vec<dpdk::QueuePair>, RunningPort), BenchError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("net_null_line{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    eal.add_vdev(&name).map_err(|error| BenchError::Setup(error.to_string()))?;
    let data_octets = (row.mtu + 256).max(2048);
    let pool = || Mempool::new(eal, MempoolConfig { mbufs: FRAMES, data_octets, ..MempoolConfig::default() });
    let pools = (0..row.cores).map(|_| pool()).collect::<Result<Vec<_>, _>>().map_err(OpenError::from)?;
    let started = Port::open(eal, &name)
        .and_then(|port| port.start_spread(&PortConfig::default(), &pools, UnknownSpread::OneQueue));
    let (port, queues) = started.map_err(OpenError::from)?;
    if queues.len() < pools.len() {
        return Err(OpenError::NoQueue(name).into());
    }
    Ok((pools, queues, port))
}
