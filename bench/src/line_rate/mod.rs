//! How fast one core is by itself, with frames that cost it nothing: RDMA Writes into a device that drops
//! them, or from a generator. The generator and the acknowledgements are made on the same core; their cycles
//! are measured and left out. The cycles of `net_null` are counted apart.
//!
//! Several cores of one device do so at the same time, each with a queue of `net_null`, a generator and
//! connections of its own: no frame passes from one to another.

mod core_load;
mod peer;
mod ports;
mod report;
mod stream;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dpdk::Eal;
use warpline::open;
use warpline_dataplane::mpa::Framing;
use warpline_tools::arguments::Switch;
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, say};

use crate::arguments::parse_size;
use crate::error::BenchError;
use crate::gate::Gate;
use crate::placement::{Placement, for_cores, is_crowded, parse_cpu, pin_to, ranges};
use core_load::Core;
use peer::PeerConfig;
use ports::Ports;
use report::{HEADING, Measured, Outcome, Row};
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
    /// Connections of each core, with a queue pair each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256),
          default_value_t = 1)]
    pub connections: u16,
    /// How long to measure each row, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = crate::floor::parse_seconds,
          default_value = "1")]
    pub duration: f64,
    /// Cores of the device, 1 to 64, each with a queue. The rates are the sums of theirs, and each has a line
    /// of its own. With fewer CPUs they take turns, and the cycles of one are those of others too.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), default_value_t = 1)]
    pub cores: u8,
    /// The CPUs of the cores. Without it, the idlest for one core, and the first that this process may use
    /// for several.
    #[arg(long, visible_alias = "cpu", value_name = "CPU", value_delimiter = ',', value_parser = parse_cpu)]
    pub cpus: Vec<usize>,
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

/// Bytes of IPv4 and TCP headers with timestamps.
const HEADER_BYTES: u16 = 52;

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &LineRate) -> Result<(), BenchError> {
    let json = OutputFile::open_some(args.json.as_deref())?;
    let eal = open::eal(&[], &args.eal)?;
    let cpus = cpus(args)?;
    say!("memory: {}; polling: CPU {}", eal.memory_mode(), ranges(&cpus));
    is_crowded(args.cores.into(), &cpus);
    say!("{HEADING}");
    let mut rows = Vec::new();
    for row in rows_of(args) {
        if interrupt::is_requested() {
            break;
        }
        let result = measure(eal, args, row, &cpus)?;
        say!("{}", result.line());
        result.core_lines().iter().for_each(|line| say!("{line}"));
        rows.push(result);
    }
    Ok(json.map_or(Ok(()), |file| file.write_json(&rows, true))?)
}

/// Returns each combination of what the lists have.
fn rows_of(args: &LineRate) -> Vec<Row> {
    let mut rows = vec![Row { connections: args.connections, cores: args.cores, ..Row::default() }];
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

/// Returns the CPUs of the cores, each of which has one in turn.
fn cpus(args: &LineRate) -> Result<Vec<usize>, BenchError> {
    if args.cores == 1 {
        let cpus = Placement::choose(&args.cpus)?.cpus();
        return Ok(cpus.into_iter().take(1).collect());
    }
    for_cores(&args.cpus, args.cores.into())
}

/// Measures a row: each core on a thread of its own, all at the same time.
fn measure(eal: Eal, args: &LineRate, row: Row, cpus: &[usize]) -> Result<Outcome, BenchError> {
    let content: Vec<u8> = (0..row.size).map(|number| (number ^ (number >> 8)) as u8 | 1).collect();
    let framing = Framing { markers: row.markers, crc: row.crc };
    let emss = usize::from(row.mtu - HEADER_BYTES);
    let messages = Messages { content: content.clone(), framing, emss, packing: row.packing };
    let peer = PeerConfig { mtu: row.mtu, markers: row.markers, crc: row.crc, messages };
    let Ports { device, cores, port: _port } = Ports::start(eal, row, &peer)?;
    let gate = Gate::new(cores.len());
    let measured = std::thread::scope(|scope| {
        let threads = cores.into_iter().zip(cpus.iter().cycle()).enumerate();
        let threads: Vec<_> = threads
            .map(|(number, (core, &cpu))| {
                let (device, content, gate) = (&device, &content, &gate);
                scope.spawn(move || {
                    let mut passage = gate.passage();
                    pin_to(cpu)?;
                    let _lcore = eal.register_thread().ok();
                    let mut core = core.connect(device, number as u8, content)?;
                    core.poll_until(|| passage.is_open())?;
                    let measured = core.measure(Duration::from_secs_f64(args.duration))?;
                    core.verify(content)?;
                    // The device ends when no core is measured any more.
                    Ok((measured, core))
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Vec<Result<(Measured, Core), BenchError>>>()
    });
    let measured = measured.into_iter().collect::<Result<Vec<_>, _>>()?;
    let rows: Vec<_> = measured.iter().map(|(measured, _)| row.with(*measured)).collect();
    Ok(Outcome::of(&rows))
}
