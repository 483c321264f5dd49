//! A snapshot of a connection for its user: state, windows, round-trip time, counters.

use super::congestion::{Algorithm, CongestionControl};
use super::{Connection, Counters, State};
use crate::named::{NamedValue, named_values};

/// One connection at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Its state.
    pub state: State,
    /// Largest payload of a segment it sends (EMSS).
    pub emss_bytes: u16,
    /// Whether both ends understand selective acknowledgements.
    pub sack: bool,
    /// Whether both ends send timestamps.
    pub timestamps: bool,
    /// Whether both ends take part in ECN.
    pub ecn: bool,
    /// Whether both ends use the TCP RDMA option.
    pub rdma_option: bool,
    /// The congestion control algorithm.
    pub congestion: Algorithm,
    /// Bytes that may be in flight.
    pub window_bytes: u32,
    /// The slow-start threshold in bytes; `u32::MAX` while nothing has set it.
    pub threshold_bytes: u32,
    /// The peer's window in bytes.
    pub peer_window_bytes: u32,
    /// Bytes sent and not acknowledged.
    pub outstanding_bytes: u32,
    /// Bytes presumed to be in the network.
    pub in_flight_bytes: u32,
    /// Bytes selectively acknowledged.
    pub sacked_bytes: u32,
    /// Bytes presumed lost and not retransmitted yet.
    pub lost_bytes: u32,
    /// Bytes queued and never sent.
    pub unsent_bytes: u32,
    /// The smoothed round-trip time in nanoseconds, once known.
    pub smoothed_rtt_ns: Option<u64>,
    /// Its variation in nanoseconds, once known.
    pub rtt_variation_ns: Option<u64>,
    /// The least round-trip time of the last minutes in nanoseconds, once known.
    pub least_rtt_ns: Option<u64>,
    /// The retransmission timeout in nanoseconds, with backoff.
    pub rto_ns: u64,
    /// Whether reordering was seen on the path to the peer.
    pub reordering_seen: bool,
    /// Frames held for bytes received and not consumed.
    pub held_frames: usize,
    /// Runs of bytes placed beyond a gap that wait for their Delivery. [`Counters`] counts the bytes.
    pub placed_runs: usize,
    /// The counters.
    pub counters: Counters,
}

impl Snapshot {
    /// Returns the snapshot of a connection.
    pub(super) fn of(connection: &Connection) -> Self {
        let Connection { state, config, path, ack, timestamps, ecn, send, recovery, rtt, receive, .. } =
            connection;
        Self {
            state: *state,
            emss_bytes: path.emss_octets() as u16,
            sack: ack.sack,
            timestamps: timestamps.negotiated,
            ecn: ecn.is_negotiated(),
            rdma_option: receive.rdma_option.is_agreed(),
            congestion: config.behaviour.congestion,
            window_bytes: connection.congestion.window_octets(),
            threshold_bytes: connection.congestion.threshold_octets(),
            peer_window_bytes: send.window_octets,
            outstanding_bytes: send.flight_octets(),
            in_flight_bytes: connection.pipe_octets(),
            sacked_bytes: send.queue.sacked_octets(),
            lost_bytes: send.queue.lost_octets(),
            unsent_bytes: send.queue.unsent_octets(),
            smoothed_rtt_ns: rtt.smoothed_ns(),
            rtt_variation_ns: rtt.variation_ns(),
            least_rtt_ns: rtt.least_ns(),
            rto_ns: rtt.rto_ns(),
            reordering_seen: recovery.rack.reordering_seen(),
            held_frames: receive.queue.frames(),
            placed_runs: receive.queue.placed_runs(),
            counters: connection.counters,
        }
    }

    /// Returns all its numbers and counters with their names; round-trip times only once they are known.
    /// State and algorithm are not numbers.
    pub fn named(&self) -> Vec<NamedValue> {
        let Self {
            state: _,
            congestion: _,
            emss_bytes,
            sack,
            timestamps,
            ecn,
            rdma_option,
            window_bytes,
            threshold_bytes,
            peer_window_bytes,
            outstanding_bytes,
            in_flight_bytes,
            sacked_bytes,
            lost_bytes,
            unsent_bytes,
            smoothed_rtt_ns,
            rtt_variation_ns,
            least_rtt_ns,
            rto_ns,
            reordering_seen,
            held_frames,
            placed_runs,
            counters,
        } = self;
        let (held_frames, placed_runs) = (&(*held_frames as u64), &(*placed_runs as u64));
        let mut values = named_values![
            emss_bytes,
            sack,
            timestamps,
            ecn,
            rdma_option,
            window_bytes,
            threshold_bytes,
            peer_window_bytes,
            outstanding_bytes,
            in_flight_bytes,
            sacked_bytes,
            lost_bytes,
            unsent_bytes,
            rto_ns,
            reordering_seen,
            held_frames,
            placed_runs,
        ];
        let known = [
            ("smoothed_rtt_ns", smoothed_rtt_ns),
            ("rtt_variation_ns", rtt_variation_ns),
            ("least_rtt_ns", least_rtt_ns),
        ];
        values.extend(known.iter().filter_map(|(name, time)| time.map(|ns| NamedValue::new(*name, ns))));
        values.extend(counters.named());
        values
    }
}
