//! What a receiver has to keep of the segments of many connections until their FPDUs are whole (RFC 5044 appendix B),
//! measured: a core in this process, a simulated line that reorders, and a sender with as many connections as asked for.
//!
//! The line's rate and what it reorders stay the same however many connections share it. So does what an aligned sender
//! with Markers makes the receiver keep; a sender whose FPDUs do not begin its segments makes it keep a part of one for every
//! connection (MPA-B.2).

mod plot;
mod receiver;
mod sender;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use warpline_dataplane::device::sim::{self, EndConfig, Impairments};
use warpline_dataplane::time::{Instant, MICROSECOND};

use crate::BenchError;
use receiver::Receiver;
use sender::Sender;

/// Octets of a segment's payload, as in the document's question: what TCP leaves of 1500 octets beside its timestamps.
const EMSS: usize = 1448;
/// Octets of a frame around it: Ethernet, IPv4, TCP with timestamps.
const HEADERS: usize = 14 + 20 + 32;
/// Most connections of one run: each has a port, from 1024 on.
const CONNECTIONS_MAX: u32 = 60_000;

/// `reassembly`.
#[derive(Args, Debug, Clone)]
pub struct Reassembly {
    /// How many connections, one run for each number.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', default_value = "10,100,1000,10000",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub connections: Vec<u32>,
    /// Segments that each connection sends.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), default_value_t = 40)]
    pub segments: u32,
    /// Share of the segments, in percent, that later ones overtake.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=50), default_value_t = 5)]
    pub reorder: u8,
    /// What chance decides follows from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Plot them.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// How the sender's FPDUs lie in its segments.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Framing {
    /// Each segment is one FPDU, and Markers lead to it.
    AlignedMarkers,
    /// Each segment is one FPDU; without Markers nobody knows that before all before it has come.
    Aligned,
    /// FPDUs are longer than segments, made for a path that has narrowed or by a TCP that knows nothing of them.
    Unaligned,
}

impl Framing {
    const ALL: [Self; 3] = [Self::AlignedMarkers, Self::Aligned, Self::Unaligned];

    const fn markers(self) -> bool {
        matches!(self, Self::AlignedMarkers)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::AlignedMarkers => "aligned, Markers",
            Self::Aligned => "aligned, no Markers",
            Self::Unaligned => "not aligned",
        }
    }
}

/// What one run came to.
#[derive(Serialize, Clone, Copy, Debug)]
struct Outcome {
    connections: u32,
    framing: Framing,
    /// FPDUs placed and delivered: all that were sent.
    fpdus: u64,
    /// Segments that came beyond a gap.
    out_of_order_segments: u64,
    /// Segments sent again, because they had no room at the receiver or their acknowledgement was late.
    retransmitted_segments: u64,
    /// The most frames kept at one time, over all connections.
    held_frames_peak: usize,
    /// Their octets.
    held_octets_peak: usize,
    /// Octets of user data copied for each octet delivered.
    copied_per_octet: f64,
}

/// The line: 10 Gbit/s, 20 microseconds long, and what it holds back comes up to 100 microseconds late.
fn line(reorder: f64) -> Impairments {
    Impairments {
        reorder,
        reorder_delay_ns: 100 * MICROSECOND,
        delay_min_ns: 20 * MICROSECOND,
        delay_max_ns: 20 * MICROSECOND,
        rate_bits_per_second: Some(10_000_000_000),
        ..Impairments::default()
    }
}

fn measure(args: &Reassembly, connections: u32, framing: Framing) -> Result<Outcome, BenchError> {
    let perfect = EndConfig::a();
    let reordering = EndConfig { outbound: line(f64::from(args.reorder) / 100.0), ..EndConfig::b() };
    let (at_receiver, at_sender) = sim::link(args.seed, perfect, reordering);
    let mut receiver = Receiver::new(at_receiver, connections, framing.markers())?;
    let mut sender = Sender::new(at_sender, connections, framing, args.segments);
    let mut now = Instant::from_nanos(1);
    sender.open_all(&mut receiver, &mut now)?;
    let before = receiver.statistics();
    receiver.forget_peak();
    sender.send_all(&mut receiver, &mut now)?;
    let after = receiver.statistics();
    let octets = after.octets_copied_rx - before.octets_copied_rx;
    Ok(Outcome {
        connections,
        framing,
        fpdus: after.fpdus_received - before.fpdus_received,
        out_of_order_segments: after.tcp.out_of_order_segments - before.tcp.out_of_order_segments,
        retransmitted_segments: sender.retransmitted(),
        held_frames_peak: receiver.held_peak(),
        held_octets_peak: receiver.held_peak() * (EMSS + HEADERS),
        copied_per_octet: octets as f64 / sender.payload_octets() as f64,
    })
}

/// Measures, prints, and writes what is asked for.
///
/// # Errors
///
/// [`BenchError`].
pub fn run(args: &Reassembly) -> Result<(), BenchError> {
    let mut outcomes = Vec::new();
    println!(
        " connections  framing               frames held  octets held   document  out of order  copied/octet"
    );
    for connections in &args.connections {
        for framing in Framing::ALL {
            let outcome = measure(args, *connections, framing)?;
            println!(
                " {:<12} {:<21} {:>11} {:>12} {:>10} {:>13} {:>13.3}",
                outcome.connections,
                framing.name(),
                outcome.held_frames_peak,
                outcome.held_octets_peak,
                predicted(*connections, framing),
                outcome.out_of_order_segments,
                outcome.copied_per_octet,
            );
            outcomes.push(outcome);
        }
    }
    if let Some(path) = &args.svg {
        write(path, &plot::svg(&outcomes))?;
    }
    if let Some(path) = &args.json {
        let written = crate::report::write_json(path, &outcomes, true);
        written.map_err(|error| BenchError::File(path.clone(), error))?;
    }
    Ok(())
}

/// RFC 5044 appendix B.2: `K1 * EMSS * number_of_connections` where FPDUs are not aligned, with a K1 of one segment; nothing
/// for each connection where they are.
fn predicted(connections: u32, framing: Framing) -> String {
    match framing {
        Framing::Unaligned => (connections as usize * EMSS).to_string(),
        Framing::AlignedMarkers => "constant".to_owned(),
        Framing::Aligned => String::new(),
    }
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    std::fs::write(path, text).map_err(|error| BenchError::File(path.into(), error))
}
