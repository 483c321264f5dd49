//! The counters of a connection.

use crate::named::{NamedValue, named_values};

/// Counters of one connection, or of all connections of a core together. They only grow. Counters of rare
/// events have 32 bits, to keep idle connections small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments with data sent, retransmissions included.
    pub data_segments_sent: u64,
    /// Segments retransmitted for any reason.
    pub retransmitted_segments: u64,
    /// Of these, after a retransmission timeout.
    pub retransmitted_after_timeout: u32,
    /// Of these, to probe for a loss at the tail (RFC 8985 §7).
    pub retransmitted_as_probe: u32,
    /// Times loss recovery began without a timeout.
    pub fast_retransmits: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Reductions of the congestion window that were spurious and undone.
    pub undone_reductions: u32,
    /// Reductions of the congestion window because of ECN marks.
    pub ecn_reductions: u32,
    /// Segments that the peer has reported as received twice (RFC 2883).
    pub duplicate_deliveries: u32,
    /// Times the peer has dropped bytes that it had selectively acknowledged.
    pub reneged: u32,
    /// Segments sent that were overtaken on their way.
    pub reordered_segments: u32,
    /// Segments received with data beyond a gap.
    pub out_of_order_segments: u64,
    /// Bytes received beyond a gap and kept.
    pub out_of_order_bytes: u64,
    /// Of these, bytes of FPDUs that were placed out of order; the others were held in their frames.
    pub placed_bytes: u64,
    /// Zero-window probes sent.
    pub window_probes: u32,
    /// Keepalive probes sent.
    pub keepalive_probes: u32,
    /// FPDUs that had to be cut to fit a small segment, window or path.
    pub cut_segments: u32,
    /// Times the path MTU turned out smaller than assumed.
    pub path_mtu_reductions: u32,
    /// The most frames held at once.
    pub held_frames_peak: u32,
    /// FPDUs dropped before acknowledgement because their CRC was wrong (RFC 5044 §8).
    pub forgotten_runs: u32,
}

impl Counters {
    /// Adds the counters of another connection; peaks are taken, not added.
    pub fn add(&mut self, other: &Self) {
        let Self {
            data_segments_sent,
            retransmitted_segments,
            retransmitted_after_timeout,
            retransmitted_as_probe,
            fast_retransmits,
            timeouts,
            undone_reductions,
            ecn_reductions,
            duplicate_deliveries,
            reneged,
            reordered_segments,
            out_of_order_segments,
            out_of_order_bytes,
            placed_bytes,
            window_probes,
            keepalive_probes,
            cut_segments,
            path_mtu_reductions,
            held_frames_peak,
            forgotten_runs,
        } = other;
        self.data_segments_sent += data_segments_sent;
        self.retransmitted_segments += retransmitted_segments;
        self.retransmitted_after_timeout += retransmitted_after_timeout;
        self.retransmitted_as_probe += retransmitted_as_probe;
        self.fast_retransmits += fast_retransmits;
        self.timeouts += timeouts;
        self.undone_reductions += undone_reductions;
        self.ecn_reductions += ecn_reductions;
        self.duplicate_deliveries += duplicate_deliveries;
        self.reneged += reneged;
        self.reordered_segments += reordered_segments;
        self.out_of_order_segments += out_of_order_segments;
        self.out_of_order_bytes += out_of_order_bytes;
        self.placed_bytes += placed_bytes;
        self.window_probes += window_probes;
        self.keepalive_probes += keepalive_probes;
        self.cut_segments += cut_segments;
        self.path_mtu_reductions += path_mtu_reductions;
        self.held_frames_peak = self.held_frames_peak.max(*held_frames_peak);
        self.forgotten_runs += forgotten_runs;
    }

    /// Returns all counters with their names.
    pub fn named(&self) -> Vec<NamedValue> {
        let Self {
            data_segments_sent,
            retransmitted_segments,
            retransmitted_after_timeout,
            retransmitted_as_probe,
            fast_retransmits,
            timeouts,
            undone_reductions,
            ecn_reductions,
            duplicate_deliveries,
            reneged,
            reordered_segments,
            out_of_order_segments,
            out_of_order_bytes,
            placed_bytes,
            window_probes,
            keepalive_probes,
            cut_segments,
            path_mtu_reductions,
            held_frames_peak,
            forgotten_runs,
        } = self;
        named_values![
            data_segments_sent,
            retransmitted_segments,
            retransmitted_after_timeout,
            retransmitted_as_probe,
            fast_retransmits,
            timeouts,
            undone_reductions,
            ecn_reductions,
            duplicate_deliveries,
            reneged,
            reordered_segments,
            out_of_order_segments,
            out_of_order_bytes,
            placed_bytes,
            window_probes,
            keepalive_probes,
            cut_segments,
            path_mtu_reductions,
            held_frames_peak,
            forgotten_runs
        ]
    }
}
