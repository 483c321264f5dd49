//! The floor: what this machine allows at most, to be held beside every result of the other benchmarks.

mod hand_off;
mod one_core;
mod rates;
mod ring;
mod vdev;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dpdk::{Eal, Mbuf, Mempool, MempoolConfig};
use serde::Serialize;
use warpline::{Region, open};
use warpline_tools::arguments::Switch;
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, say};

use crate::arguments::parse_region;
use crate::error::BenchError;
use crate::placement::{Placement, keep_off, parse_cpu, pin_to};
use hand_off::{FRAMES_MAX, Place, Shape, Tuning};
use rates::Rates;
use ring::HalfRoundTrip;
use vdev::PacketRates;

/// The smallest region.
const REGION_LEAST: &str = "64k";

/// `floor`.
#[derive(Args, Debug, Clone)]
pub struct Floor {
    /// Arguments for DPDK's EAL, as one string.
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub eal: String,
    /// The largest IP packets in bytes. A frame carries 72 bytes less: those of IPv4, TCP with timestamps,
    /// MPA, DDP and RDMAP.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', default_value = "1500,9000",
          value_parser = clap::value_parser!(u16).range(576..=9600))]
    pub mtu: Vec<u16>,
    /// Bytes of the memory that is copied from, and of the memory that is copied to.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', default_value = "1M,256M",
          value_parser = |text: &str| parse_region(text, REGION_LEAST))]
    pub region: Vec<u32>,
    /// With CRC, without, or both.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "on,off")]
    pub crc: Vec<Switch>,
    /// How long to measure each figure, in seconds.
    #[arg(long, short = 'D', value_name = "S", value_parser = parse_seconds, default_value = "1")]
    pub duration: f64,
    /// The CPUs that work: two for the hand-off. Without it, the idlest two that are free, or the idlest one.
    #[arg(long, visible_alias = "cpu", value_name = "CPU", value_delimiter = ',', num_args = 1..=2,
          value_parser = parse_cpu)]
    pub cpus: Vec<usize>,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Parses a duration in seconds.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.01..=60.0).contains(seconds))
        .ok_or_else(|| format!("'{text}' is not a duration: write 0.01 to 60 seconds"))
}

/// Bytes of a packet that are not payload: IPv4, TCP with timestamps, MPA with CRC, and the headers of DDP
/// and RDMAP of an RDMA Write.
const HEADER_BYTES: usize = 20 + 32 + 2 + 4 + 14;
/// Frames that one core works on: a window's worth.
const FRAMES: usize = FRAMES_MAX - 1;

const PAGE_BYTES: usize = 4096;

/// A figure of payload copied and summed.
#[derive(Serialize, Clone, Copy, Debug)]
struct Figure {
    /// `one-core`, `hand-off` or `by-reference`.
    kind: &'static str,
    mtu: u16,
    payload_bytes: usize,
    /// Bytes of the source and of the destination.
    region_bytes: usize,
    crc: bool,
    #[serde(flatten)]
    rates: Rates,
    /// The best way to hand frames over.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuning: Option<Tuning>,
}

/// All results. The first rates are those of one core with the first MTU and region.
#[derive(Serialize, Debug)]
struct Report {
    test: &'static str,
    /// The CPUs that work; with a single one there is no hand-off.
    cpus: Vec<usize>,
    memory: String,
    #[serde(flatten)]
    rates: Rates,
    figures: Vec<Figure>,
    half_round_trip: Option<HalfRoundTrip>,
    packet_rate: Option<PacketRates>,
}

/// Measures and reports.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &Floor) -> Result<(), BenchError> {
    let json = OutputFile::open_some(args.json.as_deref())?;
    let eal = open::eal(&[], &args.eal)?;
    let placement = Placement::choose(&args.cpus)?;
    let cpus = placement.cpus();
    let [first, ..] = cpus[..] else { return Err(BenchError::Pin(0)) };
    keep_off(&cpus);
    say!("memory: {}", eal.memory_mode());
    match cpus[..] {
        [near, far] => say!("hand-off from CPU {near} to CPU {far}; one core is CPU {near}"),
        _ => say!("one CPU is free, CPU {first}: no hand-off is measured, which takes two"),
    }
    pin_to(first)?;
    let _lcore = eal.register_thread().ok();
    say!("{:<14}{:>6}{:>12}{:>6}{:>10}  least to greatest", "", "MTU", "region", "CRC", "Gb/s");
    let mut figures = Vec::new();
    for &region_bytes in &args.region {
        let regions = Regions::new(eal, region_bytes as usize)?;
        for &mtu in &args.mtu {
            for crc in &args.crc {
                figures.extend(measure(eal, args, &regions, mtu, crc.is_on(), &cpus)?);
            }
        }
    }
    let duration = Duration::from_secs_f64(args.duration);
    let half_round_trip = match cpus[..] {
        [near, far] if !interrupt::is_requested() => {
            Some(ring::measure(&pool(eal, 1500)?, [near, far], duration)?)
        }
        _ => None,
    };
    if let Some(times) = half_round_trip {
        say!(
            "{} bytes over a bare ring, half round trip: median {:.0} ns, 99 % {:.0} ns, least {:.0} ns",
            times.frame_bytes,
            times.median_ns,
            times.p99_ns,
            times.min_ns
        );
    }
    let packet_rate = if interrupt::is_requested() { None } else { Some(vdev::measure(eal, duration)?) };
    let packet_rate = packet_rate.filter(|_| !interrupt::is_requested());
    if let Some(rate) = &packet_rate {
        say!(
            "{}: {:.1} Mpps sent, {:.1} Mpps received, of {} bytes",
            rate.device,
            rate.transmit_mpps,
            rate.receive_mpps,
            rate.frame_bytes
        );
    }
    let Some(first) = figures.first() else { return Err(BenchError::interrupted()) };
    let report = Report {
        test: "floor",
        cpus,
        memory: eal.memory_mode().to_string(),
        rates: first.rates,
        figures,
        half_round_trip,
        packet_rate,
    };
    Ok(json.map_or(Ok(()), |file| file.write_json(&[report], false))?)
}

/// The memory that payload is copied from and to.
struct Regions {
    /// Constant, so that frames may refer to it.
    source: Region,
    destination: Region,
}

impl Regions {
    fn new(eal: Eal, bytes: usize) -> Result<Self, BenchError> {
        // Large ones may not fit the EAL's memory.
        let region = || Region::huge(eal, bytes).ok().or_else(|| Region::heap(bytes));
        let memory = || BenchError::Memory(format!("{bytes} bytes for the source, and as many again"));
        let [source, destination] = [region().ok_or_else(memory)?, region().ok_or_else(memory)?];
        // Both are written, so that every page is there, the destination with something else than the source.
        let mut number = 0u64;
        for at in (0..bytes).step_by(PAGE_BYTES) {
            let page = [0; PAGE_BYTES].map(|_| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (number >> 33) as u8
            });
            let page = &page[..PAGE_BYTES.min(bytes - at)];
            let fits = source.write(at, page)
                && destination.write(at, &page.iter().map(|octet| !octet).collect::<Vec<_>>());
            debug_assert!(fits, "both have that many bytes");
        }
        let source = source.freeze().map_err(|_| memory())?;
        Ok(Self { source, destination })
    }
}

fn pool(eal: Eal, mtu: u16) -> Result<Mempool, BenchError> {
    // More than are used: threads that have ended may have some in their caches.
    let config = MempoolConfig {
        mbufs: 4 * FRAMES_MAX as u32 - 1,
        data_octets: mtu.max(2048),
        ..MempoolConfig::default()
    };
    Ok(Mempool::new(eal, config).map_err(open::OpenError::from)?)
}

/// Measures one core, and two where there are two, with and without references.
fn measure(
    eal: Eal,
    args: &Floor,
    regions: &Regions,
    mtu: u16,
    crc: bool,
    cpus: &[usize],
) -> Result<Vec<Figure>, BenchError> {
    let duration = Duration::from_secs_f64(args.duration);
    let payload_bytes = usize::from(mtu) - HEADER_BYTES;
    let pool = pool(eal, mtu)?;
    let figure = |kind, rates, tuning| {
        let region_bytes = regions.source.len();
        let figure = Figure { kind, mtu, payload_bytes, region_bytes, crc, rates, tuning };
        say!("{}", figure.line());
        figure
    };
    // What a signal cuts short is no figure.
    let measured = |kind, rates, tuning| (!interrupt::is_requested()).then(|| figure(kind, rates, tuning));
    let frames = filled_frames(&pool, payload_bytes);
    let mut figures = Vec::new();
    figures.extend(measured(
        "one-core",
        one_core::measure(&frames, &regions.destination, crc, duration),
        None,
    ));
    drop(frames);
    if let [near, far] = *cpus {
        let Regions { source, destination } = regions;
        let place = Place { source, destination, cpus: [near, far] };
        for (kind, by_reference) in [("hand-off", false), ("by-reference", true)] {
            if interrupt::is_requested() {
                break;
            }
            let shape = Shape { payload_bytes, crc, by_reference };
            let (rates, tuning) = hand_off::measure(shape, place, &pool, duration)?;
            figures.extend(measured(kind, rates, Some(tuning)));
        }
    }
    Ok(figures)
}

impl Figure {
    fn line(&self) -> String {
        let Rates { median, least, most } = self.rates;
        let tuning = self.tuning.map(|Tuning { frames, batch, prefetched_lines }| {
            format!("  ({frames} frames, {batch} at a time, {prefetched_lines} lines prefetched)")
        });
        format!(
            "{:<14}{:>6}{:>12}{:>6}{median:>10.1}  {least:.1} to {most:.1}{}",
            self.kind,
            self.mtu,
            self.region_bytes,
            if self.crc { "on" } else { "off" },
            tuning.unwrap_or_default(),
        )
    }
}

fn filled_frames(pool: &Mempool, payload_bytes: usize) -> Vec<Mbuf> {
    let mut frames = Vec::new();
    pool.allocate_many(&mut frames, FRAMES);
    for (number, frame) in frames.iter_mut().enumerate() {
        if let Some(octets) = frame.append(payload_bytes) {
            octets.fill(number as u8);
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_and_durations_have_bounds() {
        let parse_region = |text: &str| parse_region(text, REGION_LEAST);
        assert_eq!(parse_region("64k"), Ok(1 << 16));
        assert_eq!(parse_region("1G"), Ok(1 << 30));
        assert_eq!(parse_region("1M"), Ok(1 << 20));
        assert_eq!(parse_region("1024M"), Ok(1 << 30));
        for wrong in ["63k", "1025M", "2G", "x", ""] {
            assert!(parse_region(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        for wrong in ["0", "61", "NaN", "-1", "s"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
