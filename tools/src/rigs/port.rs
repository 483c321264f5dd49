//! Describes a port of DPDK's: what its driver offers, what it is configured with when it is started, and
//! whether it can be opened again after that.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use dpdk::{LinkState, Mempool, MempoolConfig, Mtu, Multicast, Port, PortCapabilities, PortConfig};
use serde_json::{Value, json};
use warpline::{Device, DeviceName, PollThread, open};
use warpline_tools::error::CommandError;
use warpline_tools::output::say;

use crate::failure::Failure;

/// How long an adapter may take until its link is up.
const LINK: Duration = Duration::from_secs(15);
/// Buffers of a queue: enough to fill its descriptors twice.
const MBUFS: u32 = 4095;
/// Bytes of a buffer beyond the MTU.
const SPARE_OCTETS: u16 = 256;

/// The port.
#[derive(Args, Clone, Debug)]
pub struct PortArguments {
    /// The device: pci:0000:03:00.0,mtu=9000.
    #[arg(long, value_name = "NAME")]
    device: DeviceName,
    /// More arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    eal: String,
    /// Queue pairs to start it with; no more than it has.
    #[arg(long, value_name = "N", default_value_t = 1)]
    queues: u16,
    /// Open it so many times again, one after the other, as programs do.
    #[arg(long, value_name = "N", default_value_t = 0)]
    again: u32,
}

/// Starts the port, prints one line of JSON about it, and closes it.
///
/// # Errors
///
/// [`CommandError::Failed`].
pub fn run(arguments: &PortArguments) -> Result<(), CommandError> {
    let eal = open::eal(&[&arguments.device], &arguments.eal).map_err(Failure::local)?;
    let mut report = started(eal, arguments)?;
    for _ in 0..arguments.again {
        let device = opened(&arguments.device)?;
        drop(device);
    }
    report["opened_again"] = arguments.again.into();
    say!("{report}");
    Ok(())
}

/// Opens the device as a program that has it for itself does.
fn opened(name: &DeviceName) -> Result<Device, Failure> {
    let eal = open::eal(&[name], "").map_err(Failure::local)?;
    let port = open::port(eal, name).map_err(Failure::local)?;
    Device::start(port, &name.config(), PollThread::default()).map_err(Failure::local)
}

/// Starts the port with the queues that were asked for. Returns what there is to say about it.
fn started(eal: open::Eal, arguments: &PortArguments) -> Result<Value, Failure> {
    let device = &arguments.device;
    let port = Port::open(eal, device.target()).map_err(Failure::local)?;
    let offered = port.capabilities().map_err(Failure::local)?;
    let queues = arguments.queues.clamp(1, offered.queues.max(1));
    let (mtu, super_frames) = (Mtu::Set(device.mtu()), device.has_super_frames());
    let config = PortConfig { queues, mtu, super_frames, ..PortConfig::default() };
    let data_octets = device.mtu().saturating_add(SPARE_OCTETS).max(MempoolConfig::default().data_octets);
    let pool = MempoolConfig { mbufs: MBUFS, data_octets, ..MempoolConfig::default() };
    let pools: Result<Vec<_>, _> = (0..queues).map(|_| Mempool::new(eal, pool)).collect();
    let (running, pairs) = port.start(&config, &pools.map_err(Failure::local)?).map_err(Failure::local)?;
    let began = Instant::now();
    let link = loop {
        let link = running.link().map_err(Failure::local)?;
        if link.up || began.elapsed() > LINK {
            break link;
        }
        thread::sleep(Duration::from_millis(10));
    };
    Ok(json!({
        "mac": running.mac().map(|octet| format!("{octet:02x}")).join(":"),
        "offered": described(&offered),
        "started": described(&running.capabilities()),
        "table_entries": running.rss().map(|rss| rss.table_entries),
        "multicast": match running.multicast() {
            Multicast::All => "all",
            Multicast::Promiscuous => "promiscuous",
            Multicast::AsItIs => "as it is",
        },
        "interrupts": pairs.iter().filter(|pair| pair.receive.interrupt().is_some()).count(),
        "link": linked(link),
        "link_seconds": began.elapsed().as_secs_f64(),
    }))
}

fn described(capabilities: &PortCapabilities) -> Value {
    json!({
        "queues": capabilities.queues,
        "mtu": capabilities.mtu_octets,
        "receive_checksums": capabilities.receive_checksums,
        "transmit_checksums": capabilities.transmit_checksums,
        "transmit_ip_checksums": capabilities.transmit_ip_checksums,
        "gather": capabilities.gather,
        "scatter": capabilities.scatter,
        "segmentation": capabilities.segmentation,
        "joins_received": capabilities.joins_received,
        "pieces": capabilities.pieces,
    })
}

fn linked(link: LinkState) -> Value {
    let speed = (link.megabits_per_second != u32::MAX).then_some(link.megabits_per_second);
    json!({ "up": link.up, "megabits_per_second": speed, "full_duplex": link.full_duplex })
}
