//! What a receiver has to keep of the segments of many connections until their FPDUs are whole (RFC 5044
//! appendix B), measured: a core in this process, a simulated line that reorders, and a sender with as many
//! connections as asked for.
//!
//! The line's rate and what it reorders stay the same however many connections share it. So does what an
//! aligned sender with Markers makes the receiver keep; a sender whose FPDUs do not begin its segments makes
//! it keep a part of one for every connection (MPA-B.2).

mod plot;
mod receiver;
mod scenario;
mod sender;

use std::path::PathBuf;

use clap::Args;
use warpline::link::sim::{self, EndConfig, Impairments};
use warpline::time::{Instant, MICROSECOND};
use warpline_tools::error::CommandError;
use warpline_tools::interrupt;
use warpline_tools::output::{OutputFile, say};

use receiver::Receiver;
use scenario::{EMSS, Framing, HEADERS, Outcome};
use sender::Sender;

/// Most connections of one run: each has a port, from 1024 on.
const CONNECTIONS_MAX: u32 = 60_000;

/// `reassembly`.
#[derive(Args, Debug, Clone)]
pub struct Reassembly {
    /// The numbers of connections, one run for each.
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', default_value = "10,100,1000,10000",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub connections: Vec<u32>,
    /// Segments that each connection sends.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000),
          default_value_t = 40)]
    pub segments: u32,
    /// The share of segments, in percent, that later segments overtake.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=50),
          default_value_t = 5)]
    pub reorder: u8,
    /// The seed of all random decisions.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a plot of the results as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Returns the line: 10 Gbit/s, 20 microseconds long; the frames it holds back arrive up to 100 microseconds
/// late.
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

fn measure(args: &Reassembly, connections: u32, framing: Framing) -> Result<Outcome, CommandError> {
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
    let octets = after.bytes_copied_rx - before.bytes_copied_rx;
    Ok(Outcome {
        connections,
        framing,
        fpdus: after.fpdus_received - before.fpdus_received,
        out_of_order_segments: after.tcp.out_of_order_segments - before.tcp.out_of_order_segments,
        retransmitted_segments: sender.retransmitted(),
        held_frames_peak: receiver.held_peak(),
        held_bytes_peak: receiver.held_peak() * (EMSS + HEADERS),
        copied_per_byte: octets as f64 / sender.payload_octets() as f64,
    })
}

/// Measures, prints, and writes what is asked for.
///
/// # Errors
///
/// [`CommandError`].
pub fn run(args: &Reassembly) -> Result<(), CommandError> {
    let svg = OutputFile::open_some(args.svg.as_deref())?;
    let json = OutputFile::open_some(args.json.as_deref())?;
    let mut outcomes = Vec::new();
    say!(
        " connections  framing               frames held   bytes held   document  out of order   copied/byte"
    );
    for connections in &args.connections {
        for framing in Framing::ALL {
            if interrupt::is_requested() {
                break;
            }
            let outcome = measure(args, *connections, framing)?;
            say!(
                " {:<12} {:<21} {:>11} {:>12} {:>10} {:>13} {:>13.3}",
                outcome.connections,
                framing.name(),
                outcome.held_frames_peak,
                outcome.held_bytes_peak,
                predicted(*connections, framing),
                outcome.out_of_order_segments,
                outcome.copied_per_byte,
            );
            outcomes.push(outcome);
        }
    }
    if outcomes.is_empty() {
        return Err(CommandError::Interrupted);
    }
    if let Some(file) = svg {
        file.replace(plot::svg(&outcomes).as_bytes())?;
    }
    json.map_or(Ok(()), |file| file.write_json(&outcomes, true))
}

/// Returns the prediction of RFC 5044 appendix B.2: `K1 * EMSS * number_of_connections` where FPDUs are not
/// aligned, with a K1 of one segment; nothing for each connection where they are.
fn predicted(connections: u32, framing: Framing) -> String {
    match framing {
        Framing::Unaligned => (connections as usize * EMSS).to_string(),
        Framing::AlignedMarkers => "constant".to_owned(),
        Framing::Aligned => String::new(),
    }
}
