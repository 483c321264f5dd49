//! The matrix: every combination of loss, delay, reordering, MTU and congestion control, and one seeded run
//! of each.

use warpline_dataplane::memory::{Access, Region};
use warpline_dataplane::qp::work::Slice;
use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

use super::bottleneck::{Flows, INBOX, Line, SINK, SOURCE, next};
use super::theory;
use super::watch::Watch;
use crate::common::{holds, pattern, region_of};

const LOSSES: [f64; 4] = [0.0, 0.001, 0.01, 0.03];
const REORDERS: [f64; 2] = [0.0, 0.02];
const MTUS: [usize; 2] = [1500, 9000];
pub const ALGORITHMS: [Algorithm; 3] = [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Dctcp];
/// Rates in bits per second and round trips in nanoseconds: a machine room, a town, a continent.
const PATHS: [(u64, u64); 3] =
    [(1_000_000_000, MILLISECOND), (100_000_000, 10 * MILLISECOND), (50_000_000, 50 * MILLISECOND)];

/// One combination.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub algorithm: Algorithm,
    pub line: Line,
}

/// The cell of run `number`: as many runs in a row as there are cells go through all of them.
pub fn cell_of(number: u64) -> Cell {
    let mut rest = number as usize;
    let mut choose = |choices: usize| {
        let choice = rest % choices;
        rest /= choices;
        choice
    };
    let algorithm = ALGORITHMS[choose(ALGORITHMS.len())];
    let loss = LOSSES[choose(LOSSES.len())];
    let (rate, rtt_ns) = PATHS[choose(PATHS.len())];
    let reorder = REORDERS[choose(REORDERS.len())];
    let mtu_octets = MTUS[choose(MTUS.len())];
    let line = Line { loss, reorder, ..Line::new(rate, rtt_ns, mtu_octets) };
    Cell { algorithm, line: marking(line, algorithm) }
}

/// A switch for DCTCP that marks above a sixth of the bandwidth-delay product (RFC 8257 §4.1 has a seventh as
/// the least), but not below a few frames.
pub fn marking(line: Line, algorithm: Algorithm) -> Line {
    let mark = (line.on_its_way_octets() / 6).max(4 * line.mtu_octets as u64);
    Line { mark_octets: (algorithm == Algorithm::Dctcp).then_some(mark), ..line }
}

/// Results of one run.
#[derive(Debug)]
pub struct Outcome {
    /// The time of the transfer in theory, divided by its measured time.
    pub ratio: f64,
    pub longest_wait_ns: u64,
    pub segments: u64,
    pub lost_frames: u64,
    pub timeouts: u64,
    pub retransmitted: u64,
}

/// Writes in a transfer.
const WRITES: usize = 16;

/// Transfers `octets` octets and verifies that they arrive.
///
/// # Errors
///
/// A description of the failure.
pub fn run(cell: Cell, seed: u64, octets: usize) -> Result<Outcome, String> {
    let Cell { algorithm, line } = cell;
    let mut flows = Flows::new(seed, line, algorithm);
    let data = pattern(seed, octets);
    let sink = Region::heap(octets).unwrap();
    flows.a.register(SOURCE, &region_of(&data), Access::empty());
    flows.b.register(SINK, &sink, Access::REMOTE_WRITE);
    flows.b.register(INBOX, &Region::heap(64).unwrap(), Access::LOCAL_WRITE);
    let flow = flows.open();
    flows.impair();
    let start = flows.now;
    let lost_before = flows.lost_frames();
    let mut watch = Watch::new(&flows, line);
    post(&flows, flow, octets);
    let arrived = arrival(&mut flows, flow, &mut watch)?;
    if !holds(&sink, 0, &data) {
        return Err("octets differ".into());
    }
    let seconds = (arrived - start) as f64 / SECOND as f64;
    let octets_per_second = octets as f64 / seconds;
    if octets_per_second > theory::line_octets_per_second(&line) {
        return Err(format!("{octets_per_second} octets a second: faster than the line"));
    }
    let tcp = flows.sender().tcp;
    let outcome = Outcome {
        ratio: theory::transfer_seconds(algorithm, &line, octets) / seconds,
        longest_wait_ns: watch.longest_ns,
        segments: tcp.data_segments_sent,
        lost_frames: flows.lost_frames() - lost_before,
        timeouts: tcp.timeouts.into(),
        retransmitted: tcp.retransmitted_segments,
    };
    let probes = u64::from(tcp.retransmitted_as_probe);
    if line.reorder == 0.0 && outcome.retransmitted > outcome.lost_frames + outcome.timeouts + probes {
        return Err(format!("more sent again than was lost: {outcome:?}, {probes} probes"));
    }
    if line.loss == 0.0 && outcome.timeouts > 0 {
        return Err(format!("a timeout where nothing but a full queue loses: {outcome:?}"));
    }
    Ok(outcome)
}

/// Posts the Writes, and a Send that marks their end.
fn post(flows: &Flows, flow: usize, octets: usize) {
    let (a, b) = (&flows.connections[flow].a, &flows.connections[flow].b);
    b.receive(77, Slice { stag: INBOX, to: 0, len: 64 });
    let chunk = octets.div_ceil(WRITES);
    for start in (0..octets).step_by(chunk) {
        let local = Slice { stag: SOURCE, to: start as u64, len: chunk.min(octets - start) as u32 };
        a.write(start as u64, local, start as u64);
    }
    a.send(1, Slice { stag: SOURCE, to: 0, len: 16 });
}

/// When the Send arrives. The time without progress is bounded, so a run that never ends is found long
/// before.
fn arrival(flows: &mut Flows, flow: usize, watch: &mut Watch) -> Result<Instant, String> {
    let end = flows.now + 3600 * SECOND;
    loop {
        flows.step();
        watch.look(flows);
        if next(&flows.connections[flow].b.completions).is_some() {
            return Ok(flows.now);
        }
        if let Some(stall) = watch.stall {
            return Err(stall.to_string());
        }
        if flows.now > end {
            return Err(format!("nothing arrives: {:?}", flows.sender().tcp));
        }
    }
}
