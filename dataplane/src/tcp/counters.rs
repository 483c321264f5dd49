//! The counters of a connection.

use crate::counters::counters;

counters! {
    /// Counters of one connection, or of all connections of a core together. They only grow. Counters of rare
    /// events have 32 bits, to keep idle connections small.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Counters {
        sums {
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
            /// Segments sent that were overtaken on the path.
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
            /// FPDUs dropped before acknowledgement because their CRC was wrong (RFC 5044 §8).
            pub forgotten_runs: u32,
        }
        peaks {
            /// The most frames held at once.
            pub held_frames_peak: u32,
        }
    }
}
