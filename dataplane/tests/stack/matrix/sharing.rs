//! Tests of long-lived connections: their throughput on a path that loses, their shares of a full one, and
//! progress under heavy overload.

use warpline_dataplane::device::sim::End;
use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::time::{MILLISECOND, SECOND};

use super::bottleneck::{Flows, Line};
use super::runs::{ALGORITHMS, marking};
use super::theory;

/// Opens `flows` connections over `line` and runs them for `seconds` first.
fn busy(seed: u64, line: Line, algorithm: Algorithm, connections: usize, seconds: u64) -> Flows {
    let mut flows = Flows::new(seed, line, algorithm);
    flows.register_busy();
    flows.impair();
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..connections {
        flows.open();
        // Connections that begin at the same moment would time out at the same moments.
        flows.keep_busy(flows.now + rng.u64(0..SECOND));
    }
    flows.keep_busy(flows.now + seconds * SECOND);
    flows
}

/// Lets the connections run on for `seconds`; returns the octets per second of each.
fn rates(flows: &mut Flows, seconds: u64) -> Vec<u64> {
    let shares = flows.keep_busy(flows.now + seconds * SECOND);
    shares.iter().map(|octets| octets / seconds).collect()
}

/// The average window under random loss is near the documents' prediction: far below would be slow, and far
/// above would displace other traffic. It is somewhat above, since losses within one round trip count once.
#[test]
fn the_window_under_loss_is_what_the_documents_say() {
    for (loss, rtt_ms, seconds) in [(0.01, 20, 100), (0.001, 20, 100), (0.0003, 100, 600)] {
        for algorithm in ALGORITHMS {
            // So wide that only losses hold the window back.
            let wide = Line::new(1_000_000_000, rtt_ms * MILLISECOND, 1500);
            let mut flows = busy(1, Line { loss, ..wide }, algorithm, 1, 10);
            let rtt = rtt_ms as f64 / 1000.0;
            let window = rates(&mut flows, seconds)[0] as f64 * rtt / theory::payload_octets(&wide);
            let expected = theory::average_window(algorithm, loss, rtt);
            let ratio = window / expected;
            assert!(
                (0.8..=1.4).contains(&ratio),
                "{algorithm} at {loss} over {rtt_ms} ms: a window of {window:.1} segments, not {expected:.1}"
            );
        }
    }
}

/// Jain's index over half a minute, after half a minute: connections that start one after the other converge
/// to equal shares, and the line stays full.
#[test]
fn connections_share_a_bottleneck() {
    for algorithm in ALGORITHMS {
        for connections in [2, 10] {
            let line = marking(Line::new(50_000_000, 20 * MILLISECOND, 1500), algorithm);
            let mut flows = busy(1, line, algorithm, connections, 30);
            let shares = rates(&mut flows, 30);
            let index = theory::fairness(&shares);
            assert!(index >= 0.95, "{connections} of {algorithm}: {index:.3} {shares:?}");
            let used = used(&shares, &line);
            assert!(used >= 0.95, "{connections} of {algorithm}: {used:.3} of the line");
        }
    }
}

/// A new connection gets its share from one that uses the whole line.
#[test]
fn a_late_connection_gets_its_share() {
    for algorithm in ALGORITHMS {
        let line = marking(Line::new(50_000_000, 20 * MILLISECOND, 1500), algorithm);
        let mut flows = busy(1, line, algorithm, 1, 20);
        flows.open();
        flows.keep_busy(flows.now + 20 * SECOND);
        let shares = rates(&mut flows, 30);
        let index = theory::fairness(&shares);
        assert!(index >= 0.95, "{algorithm}: {index:.3} {shares:?}");
    }
}

/// Twenty connections share a path that has no room for one segment of each: the line carries data in every
/// five seconds, and every connection makes progress.
#[test]
fn no_collapse_under_overload() {
    for algorithm in ALGORITHMS {
        let line = Line { queue_octets: 10 * 1514, ..Line::new(5_000_000, 20 * MILLISECOND, 1500) };
        let mut flows = busy(1, line, algorithm, 20, 10);
        let mut total = [0; 20];
        for _ in 0..20 {
            let shares = rates(&mut flows, 5);
            let used = used(&shares, &line);
            assert!(used >= 0.8, "{algorithm}: {used:.3} of the line");
            total.iter_mut().zip(&shares).for_each(|(total, share)| *total += share * 5);
        }
        let equal = total.iter().sum::<u64>() / 20;
        assert!(total.iter().all(|&octets| octets >= equal / 10), "{algorithm}: {total:?}");
        assert!(flows.sender().tcp.timeouts > 100, "{algorithm}: no overload");
    }
}

/// Where the network marks, nothing is lost and nothing sent again, and the line stays full: with DCTCP, and
/// with the classic answer to ECN, which needs a longer queue (RFC 3168 §6.1.2).
#[test]
fn marks_take_the_place_of_losses() {
    for (algorithm, mark_share) in [(Algorithm::Dctcp, 6), (Algorithm::Cubic, 1), (Algorithm::NewReno, 1)] {
        let line = Line::new(50_000_000, 20 * MILLISECOND, 1500);
        let on_its_way = line.on_its_way_octets();
        let line = Line { mark_octets: Some(on_its_way / mark_share), queue_octets: 8 * on_its_way, ..line };
        let mut flows = busy(1, line, algorithm, 2, 10);
        let shares = rates(&mut flows, 30);
        let used = used(&shares, &line);
        assert!(used >= 0.95, "{algorithm}: {used:.3} of the line");
        let tcp = flows.sender().tcp;
        assert!(
            flows.network.statistics(End::A).marked > 0 && tcp.ecn_reductions > 0,
            "{algorithm}: {tcp:?}"
        );
        assert_eq!((flows.lost_frames(), tcp.retransmitted_segments), (0, 0), "{algorithm}: {tcp:?}");
    }
}

/// How much of the line the octets a second of all are.
fn used(shares: &[u64], line: &Line) -> f64 {
    shares.iter().sum::<u64>() as f64 / theory::line_octets_per_second(line)
}
