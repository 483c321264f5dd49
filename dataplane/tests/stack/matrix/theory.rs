//! The documents' predictions for each algorithm: windows, and from them the time of a transfer.

use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::time::SECOND;

use super::bottleneck::Line;

/// Octets of a frame beside user data: preamble, gap and check sequence (24), Ethernet (14), IPv4 (20), TCP
/// with timestamps (32), MPA length and CRC (6), DDP tagged header (14).
const OVERHEAD_OCTETS: f64 = 110.0;
/// Octets of the MTU that are not payload of these connections.
const OVERHEAD_IN_MTU_OCTETS: f64 = 72.0;

/// Octets of user data in a full segment.
pub fn payload_octets(line: &Line) -> f64 {
    line.mtu_octets as f64 - OVERHEAD_IN_MTU_OCTETS
}

/// Octets of user data a second that the line carries at most.
pub fn line_octets_per_second(line: &Line) -> f64 {
    let share = payload_octets(line) / (payload_octets(line) + OVERHEAD_OCTETS);
    line.rate_bits_per_second as f64 / 8.0 * share
}

fn rtt(line: &Line) -> f64 {
    line.rtt_ns as f64 / SECOND as f64
}

/// The average window in segments when each is lost with probability `loss` (RFC 9438 §5.1): sqrt(3/2) /
/// sqrt(p) for Reno (Mathis, Semke, Mahdavi and Ott, 1997), 1.054 * (RTT / p)^(3/4) for CUBIC and never less
/// than Reno.
pub fn average_window(algorithm: Algorithm, loss: f64, rtt_seconds: f64) -> f64 {
    let reno = (1.5 / loss).sqrt();
    match algorithm {
        Algorithm::NewReno | Algorithm::Dctcp => reno,
        Algorithm::Cubic => reno.max(1.054 * (rtt_seconds / loss).powf(0.75)),
        other => panic!("there is no theory of {other:?} here"),
    }
}

/// Octets of user data per second in the long run: a window each round trip, or the rate of the line.
pub fn steady_octets_per_second(algorithm: Algorithm, line: &Line) -> f64 {
    if line.loss == 0.0 {
        return line_octets_per_second(line);
    }
    let window = average_window(algorithm, line.loss, rtt(line)) * payload_octets(line);
    line_octets_per_second(line).min(window / rtt(line))
}

/// How long `octets` octets take, in seconds: slow start from ten segments, doubling each round trip until
/// the steady rate is reached; then the steady rate. No time is allowed for timeouts: all losses but those at
/// the very end are to be found without (RFC 8985).
pub fn transfer_seconds(algorithm: Algorithm, line: &Line, octets: usize) -> f64 {
    let payload = payload_octets(line);
    let steady = steady_octets_per_second(algorithm, line);
    let initial = (10.0 * payload).min((2.0 * payload).max(14_600.0));
    let (mut seconds, mut left, mut window) = (rtt(line) / 2.0, octets as f64, initial);
    while window < steady * rtt(line) && left > window {
        seconds += rtt(line);
        left -= window;
        window *= 2.0;
    }
    seconds + left / steady
}

/// Jain's index of fairness: 1 when all get the same, 1 / n when one gets everything.
pub fn fairness(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn the_formulas_give_the_documents_figures() {
    // RFC 9438 §5.1, tables 1 and 2, and Mathis et al.
    for (loss, rtt, reno, cubic) in
        [(1e-4, 0.1, 122.5, 187.4), (1e-5, 0.1, 387.3, 1054.0), (1e-4, 0.01, 122.5, 122.5)]
    {
        assert!((average_window(Algorithm::NewReno, loss, rtt) - reno).abs() < 0.1);
        assert!((average_window(Algorithm::Cubic, loss, rtt) - cubic).abs() < 0.1);
    }
    assert!((fairness(&[5, 5, 5]) - 1.0).abs() < 1e-9 && (fairness(&[9, 0, 0]) - 1.0 / 3.0).abs() < 1e-9);
    // 100 Mbit/s, 10 ms, no loss: 1428 of 1538 octets are user data, 116.06 kB a round trip. Windows of
    // 14.28, 28.56, 57.12 and 114.24 kB go first, then 785.8 kB at the rate of the line.
    let line = Line::new(100_000_000, 10_000_000, 1500);
    assert!((line_octets_per_second(&line) - 11_605_982.0).abs() < 1.0);
    let seconds = transfer_seconds(Algorithm::Cubic, &line, 1_000_000);
    assert!((seconds - (0.005 + 0.04 + 785_800.0 / 11_605_982.0)).abs() < 1e-6, "{seconds}");
}
