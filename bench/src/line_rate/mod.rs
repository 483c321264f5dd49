//! How fast one core is by itself, with frames that cost it nothing: RDMA Writes into a device that drops
//! them, or from a generator. The generator and the acknowledgements are made on the same core; their cycles
//! are measured and left out. The cycles of `net_null` are counted apart.

mod peer;
mod report;
mod stream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use dpdk::{Eal, Mempool, MempoolConfig, Port, PortConfig};
use warpline::open::{self, OpenError};
use warpline::{
    Access, Advertisement, Completion, CompletionQueue, ConnectConfig, CoreDriver, Device, DeviceConfig,
    MemoryRegion, QpConfig, QueuePair, Revision, STag, SendBatch, StaticNeighbour, Status,
};
use warpline_dataplane::mpa::Framing;
use warpline_tools::arguments::Switch;
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, say};

use crate::arguments::parse_size;
use crate::device::{BenchDevice, config};
use crate::error::BenchError;
use crate::placement::{Placement, parse_cpu, pin_to};
use peer::{CORE, PEER, PEER_MAC, PORT, Peer, PeerConfig, Shared, cycles};
use report::{HEADING, Measured, Row};
use stream::Messages;

/// `line-rate`. Lists make a row of each combination.
#[derive(Args, Debug, Clone)]
pub struct LineRate {
    /// Arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// What the core does.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "transmit,receive")]
    pub direction: Vec<Direction>,
    /// The largest IP packets in bytes.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', default_value = "1500,9000",
          value_parser = clap::value_parser!(u16).range(576..=9600))]
    pub mtu: Vec<u16>,
    /// Bytes of a message.
    #[arg(long, short, value_name = "BYTES,..", value_delimiter = ',', default_value = "64,64k",
          value_parser = parse_size)]
    pub size: Vec<u32>,
    /// MPA Markers.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "off")]
    pub markers: Vec<Switch>,
    /// MPA's CRC.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "on")]
    pub crc: Vec<Switch>,
    /// Let small messages share segments.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "on")]
    pub packing: Vec<Switch>,
    /// Connections, with a queue pair each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256),
          default_value_t = 1)]
    pub connections: u16,
    /// How long to measure each row, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = crate::floor::parse_seconds,
          default_value = "1")]
    pub duration: f64,
    /// The CPU of the core. Without it, the idlest.
    #[arg(long, value_name = "CPU", value_parser = parse_cpu)]
    pub cpu: Option<usize>,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What the core does.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// RDMA Writes go into a device that drops them.
    Transmit,
    /// RDMA Writes come from a generator.
    Receive,
}

/// Writes outstanding on a queue pair.
const DEPTH: u64 = 128;
/// Writes posted at a time.
const BATCH: u64 = 16;
const _: () = assert!(BATCH as usize <= SendBatch::CAPACITY);
/// Bytes of IPv4 and TCP headers with timestamps.
const HEADER_BYTES: u16 = 52;
/// Frames of the pool.
const FRAMES: u32 = 2047;
/// The time before anything is counted.
const WARM_UP: Duration = Duration::from_millis(50);

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &LineRate) -> Result<(), BenchError> {
    let json = OutputFile::open_some(args.json.as_deref())?;
    let eal = open::eal(&[], &args.eal)?;
    let wanted: Vec<_> = args.cpu.into_iter().collect();
    let [cpu, ..] = Placement::choose(&wanted)?.cpus()[..] else { return Err(BenchError::Pin(0)) };
    say!("memory: {}; polling: CPU {cpu}", eal.memory_mode());
    say!("{HEADING}");
    let mut rows = Vec::new();
    for row in rows_of(args) {
        if interrupt::is_requested() {
            break;
        }
        let row = measure(eal, args, row, cpu)?;
        say!("{}", row.line());
        rows.push(row);
    }
    Ok(json.map_or(Ok(()), |file| file.write_json(&rows, true))?)
}

/// Returns each combination of what the lists have.
fn rows_of(args: &LineRate) -> Vec<Row> {
    let mut rows = vec![Row { connections: args.connections, ..Row::default() }];
    let mut each = |count: usize, set: &dyn Fn(&mut Row, usize)| {
        rows = rows
            .iter()
            .flat_map(|row| {
                (0..count).map(move |index| {
                    let mut row = *row;
                    set(&mut row, index);
                    row
                })
            })
            .collect();
    };
    each(args.direction.len(), &|row, index| {
        row.direction = match args.direction[index] {
            Direction::Transmit => "transmit",
            Direction::Receive => "receive",
        };
    });
    each(args.mtu.len(), &|row, index| row.mtu = args.mtu[index]);
    each(args.size.len(), &|row, index| row.size = args.size[index]);
    each(args.markers.len(), &|row, index| row.markers = args.markers[index].is_on());
    each(args.crc.len(), &|row, index| row.crc = args.crc[index].is_on());
    each(args.packing.len(), &|row, index| row.packing = args.packing[index].is_on());
    rows
}

/// A connection's queue pair and its memory: the source or the sink.
struct Lane {
    qp: QueuePair,
    completions: CompletionQueue,
    region: MemoryRegion,
    posted: u64,
    completed: u64,
}

/// Measures a row.
fn measure(eal: Eal, args: &LineRate, row: Row, cpu: usize) -> Result<Row, BenchError> {
    let content: Vec<u8> = (0..row.size).map(|number| (number ^ (number >> 8)) as u8 | 1).collect();
    let framing = Framing { markers: row.markers, crc: row.crc };
    let emss = usize::from(row.mtu - HEADER_BYTES);
    let messages = Messages { content: content.clone(), framing, emss, packing: row.packing };
    let crc = if row.crc { Switch::On } else { Switch::Off };
    let shared = Arc::new(Shared::default());
    let peer = PeerConfig { mtu: row.mtu, markers: row.markers, crc: row.crc, messages };
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            pin_to(cpu)?;
            let _lcore = eal.register_thread().ok();
            let (pool, null, _port) = null_port(eal, row.mtu)?;
            let device = BenchDevice::Own(Box::new(Peer::new(peer, pool, null, shared.clone())));
            let neighbour = StaticNeighbour { address: PEER.into(), mac: PEER_MAC };
            let own = DeviceConfig { neighbours: vec![neighbour], ..DeviceConfig::new(CORE, 24) };
            let (device, mut driver) = Device::start_manual(device, &config(crc, own))?;
            let lanes = driver.run(|| connect(&device, row, &content))?;
            let duration = Duration::from_secs_f64(args.duration);
            let polled = Vec::with_capacity(DEPTH as usize);
            let mut core = Core { driver, lanes, shared: shared.clone(), row, polled };
            let measured = core.measure(duration)?;
            core.verify(&content)?;
            Ok(row.with(measured))
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Starts a `net_null`, which drops what is sent. It ends when all that is returned has been dropped.
fn null_port(eal: Eal, mtu: u16) -> Result<(Mempool, dpdk::QueuePair, dpdk::RunningPort), BenchError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("net_null_line{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    eal.add_vdev(&name).map_err(|error| BenchError::Setup(error.to_string()))?;
    let data_octets = (mtu + 256).max(2048);
    let pool = Mempool::new(eal, MempoolConfig { mbufs: FRAMES, data_octets, ..MempoolConfig::default() });
    let pool = pool.map_err(OpenError::from)?;
    let started = Port::open(eal, &name)
        .and_then(|port| port.start(&PortConfig::default(), std::slice::from_ref(&pool)))
        .map_err(OpenError::from)?;
    let (port, queues) = started;
    let queues = queues.into_iter().next().ok_or(OpenError::NoQueue(name))?;
    Ok((pool, queues, port))
}

/// Connects the queue pairs.
fn connect(device: &Device, row: Row, content: &[u8]) -> Result<Vec<Lane>, BenchError> {
    let peer = SocketAddr::from((PEER, PORT));
    let setup = |error: &dyn std::error::Error| BenchError::Setup(error.to_string());
    (0..row.connections)
        .map(|_| {
            let domain = device.protection_domain();
            let completions = CompletionQueue::new(2 * DEPTH as usize);
            let config = QpConfig { send_depth: DEPTH as usize, packing: row.packing, ..QpConfig::default() };
            let qp = domain.queue_pair(&config, &completions, &completions).map_err(|error| setup(&error))?;
            let region = domain
                .allocate(content.len(), Access::REMOTE_WRITE)
                .map_err(|error| BenchError::Memory(error.to_string()))?;
            if row.transmits() && !region.write(0, content) {
                return Err(BenchError::Memory("the content does not fit".into()));
            }
            let config =
                ConnectConfig { markers: row.markers, revision: Revision::One, ..ConnectConfig::default() };
            qp.connect(peer, &config).map_err(|error| BenchError::Connect(peer, error))?;
            Ok(Lane { qp, completions, region, posted: 0, completed: 0 })
        })
        .collect()
}

/// The core that is measured, and its work.
struct Core {
    driver: CoreDriver<BenchDevice>,
    lanes: Vec<Lane>,
    shared: Arc<Shared>,
    row: Row,
    polled: Vec<Completion>,
}

impl Core {
    /// Measures for `duration`.
    fn measure(&mut self, duration: Duration) -> Result<Measured, BenchError> {
        if !self.row.transmits() {
            let sinks = self.lanes.iter().map(|lane| lane.region.advertisement(0, self.row.size));
            let sinks: Option<Vec<_>> = sinks.collect();
            // Set once: a core is measured once.
            let _ = self.shared.sinks.set(sinks.ok_or_else(|| BenchError::Memory("no range".into()))?);
            self.shared.sending.store(true, Ordering::Relaxed);
        }
        self.work(WARM_UP.min(duration))?;
        let (before, start, begin) = (self.snapshot(), Instant::now(), cycles());
        self.work(duration)?;
        let (seconds, all_cycles) = (start.elapsed().as_secs_f64(), cycles().wrapping_sub(begin));
        let after = self.snapshot();
        self.shared.sending.store(false, Ordering::Relaxed);
        Ok(Measured { seconds, all_cycles, ..after.since(&before) })
    }

    fn work(&mut self, duration: Duration) -> Result<(), BenchError> {
        /// Polls between two readings of the clock.
        const POLLS: u32 = 64;
        let start = Instant::now();
        while interrupt::goes_on(start, duration) {
            for _ in 0..POLLS {
                if self.row.transmits() {
                    self.post()?;
                }
                self.driver.poll_once();
            }
        }
        Ok(())
    }

    /// Takes what has completed, and posts as much.
    fn post(&mut self) -> Result<(), BenchError> {
        let failed = |error: &dyn std::error::Error| BenchError::Peer(error.to_string());
        // The peer takes any STag.
        let sink = Advertisement { to: 0, stag: STag(0x100), len: self.row.size };
        for lane in &mut self.lanes {
            while lane.completions.poll_into(&mut self.polled) > 0 {
                for completion in self.polled.drain(..) {
                    if completion.status != Status::Success {
                        return Err(BenchError::Peer(format!("a Write ended with {:?}", completion.status)));
                    }
                    lane.completed += 1;
                }
            }
            let count = (lane.completed + DEPTH - lane.posted).min(BATCH);
            if count == 0 {
                continue;
            }
            let mut batch = lane.qp.batch();
            for number in lane.posted..lane.posted + count {
                let local = lane.region.slice(0, self.row.size);
                batch.write(number, local, &sink, 0).map_err(|error| failed(&error))?;
            }
            batch.commit().map_err(|error| failed(&error))?;
            lane.posted += count;
        }
        Ok(())
    }

    fn snapshot(&self) -> Measured {
        let shared = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let statistics = self.driver.statistics();
        Measured {
            seconds: 0.0,
            all_cycles: 0,
            packets: shared(&self.shared.packets),
            octets: shared(&self.shared.octets),
            acknowledgements: shared(&self.shared.acknowledgements),
            peer_cycles: shared(&self.shared.peer_cycles),
            device_cycles: shared(&self.shared.device_cycles),
            fpdus: statistics.fpdus_sent + statistics.fpdus_received,
            retransmitted_segments: statistics.tcp.retransmitted_segments,
        }
    }

    /// Returns an error unless all went as it must: segments came in order, and what was received is in its
    /// place.
    fn verify(&mut self, content: &[u8]) -> Result<(), BenchError> {
        if let Some(error) = self.lanes.iter().find_map(|lane| lane.qp.error()) {
            return Err(BenchError::Peer(error.to_string()));
        }
        let unexpected = self.shared.unexpected.load(Ordering::Relaxed);
        if unexpected > 0 {
            return Err(BenchError::Peer(format!("{unexpected} segments were not the next")));
        }
        if self.row.transmits() {
            return Ok(());
        }
        // What was generated in the last poll has been placed by the next.
        self.driver.poll_once();
        let (sent, received) =
            (self.shared.fpdus.load(Ordering::Relaxed), self.driver.statistics().fpdus_received);
        if sent != received {
            return Err(BenchError::Peer(format!("of {sent} FPDUs that were sent, {received} were placed")));
        }
        let mut corrupt = 0;
        for lane in &self.lanes {
            let placed = lane.region.to_vec(0, content.len()).unwrap_or_default();
            corrupt += placed.iter().zip(content).filter(|(placed, sent)| placed != sent).count() as u64;
        }
        if corrupt == 0 { Ok(()) } else { Err(BenchError::Corrupt(corrupt)) }
    }
}
