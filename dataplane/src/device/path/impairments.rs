//! The impairments of a path, and its counters.

/// One microsecond each way: the default, so that virtual time always moves on.
const DEFAULT_DELAY_NS: u64 = 1_000;
/// Long enough for a burst to overtake, short enough to stay under any retransmission timeout.
const DEFAULT_REORDER_DELAY_NS: u64 = 100_000;
/// Sixteen mebibytes of 256-octet frames.
const DEFAULT_IN_FLIGHT_FRAMES: usize = 1 << 16;

/// How one direction of a link treats the frames it carries. Probabilities are per frame, 0.0 to 1.0.
///
/// The default is a perfect path with a delay of one microsecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairments {
    /// Probability that a frame vanishes.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame is held back for 1 to [`reorder_delay_ns`](Self::reorder_delay_ns), so that
    /// later ones overtake it. Nothing else reorders: a varying delay keeps the order.
    pub reorder: f64,
    /// Longest time a reordered frame is held back, in nanoseconds.
    pub reorder_delay_ns: u64,
    /// Probability that one bit after the Ethernet header of a frame is inverted: an error that the IPv4,
    /// ICMP or TCP checksum always catches. A frame other than IPv4 has no checksum of its own and is lost,
    /// as it would be by the frame check sequence of a real link.
    pub corrupt_bits: f64,
    /// Probability that the TCP payload of a frame is altered in a way its checksum cannot see: only the CRC
    /// of MPA can.
    pub corrupt_payload: f64,
    /// Octets at the start of a segment's payload that this corruption spares: 8 keep a Marker and the length
    /// of an FPDU whole. A wrong length makes MPA wait for octets that TCP acknowledges meanwhile, and no
    /// retransmission helps then.
    pub corrupt_payload_spares: usize,
    /// Probability that a TCP segment is cut into two or three, or joined with the one sent before it, by a
    /// middlebox that recomputes lengths and checksums. Segments with SYN, RST or URG, and those whose
    /// checksums do not hold, pass unchanged.
    pub resegment: f64,
    /// What happens to the TCP RDMA option of segments.
    pub rdma_option: OptionFaults,
    /// Shortest delay of a frame, in nanoseconds.
    pub delay_min_ns: u64,
    /// Longest delay of a frame, in nanoseconds.
    pub delay_max_ns: u64,
    /// Line rate, counting preamble, frame check sequence and gap as Ethernet does; `None`: frames take no
    /// time.
    pub rate_bits_per_second: Option<u64>,
    /// Octets that may wait for the line; a frame that finds more waiting is lost. Means nothing without a
    /// rate.
    pub queue_octets: u64,
    /// Octets waiting for the line beyond which a frame that finds them is marked with Congestion
    /// Experienced, if its sender takes marks (RFC 3168 §5): the step at which DCTCP's switches mark (RFC
    /// 8257 §3.1). `None`: never. Means nothing without a rate.
    pub mark_octets: Option<u64>,
    /// Frames that may be on their way at once, waiting included; a frame over the limit is lost.
    pub in_flight_frames: usize,
    /// Largest IP packet the path carries, in octets; a larger one is lost. `None`: the largest that both
    /// devices take.
    pub mtu_octets: Option<usize>,
}

impl Default for Impairments {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay_ns: DEFAULT_REORDER_DELAY_NS,
            corrupt_bits: 0.0,
            corrupt_payload: 0.0,
            corrupt_payload_spares: 0,
            resegment: 0.0,
            rdma_option: OptionFaults::NONE,
            delay_min_ns: DEFAULT_DELAY_NS,
            delay_max_ns: DEFAULT_DELAY_NS,
            rate_bits_per_second: None,
            queue_octets: u64::MAX,
            mark_octets: None,
            in_flight_frames: DEFAULT_IN_FLIGHT_FRAMES,
            mtu_octets: None,
        }
    }
}

/// What a middlebox does to the TCP RDMA option (draft-csapuntz-tcprdma-00) of IPv4 segments with data, whose
/// checksums it computes again. Probabilities are per segment, 0.0 to 1.0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionFaults {
    /// Probability that the option is overwritten with NOPs.
    pub strip: f64,
    /// Probability that a segment with the option is cut into two or three, each with all of the option, as
    /// ports with TSO do.
    pub split: f64,
    /// Probability that a segment gets the option of the one before: in the place of its own, or beside its
    /// other options.
    pub replicate: f64,
    /// Probability that a field of the option is changed.
    pub alter: f64,
}

impl OptionFaults {
    /// Options pass as they are.
    pub const NONE: Self = Self { strip: 0.0, split: 0.0, replicate: 0.0, alter: 0.0 };
}

/// The counters of one direction of a link, in frames.
///
/// Once nothing is on its way, `sent + duplicated + split` equals `delivered + lost + filtered + oversize +
/// queue_full + corrupted_lost + merged + no_buffer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Taken from the sending device.
    pub sent: u64,
    /// Handed to the receiving device.
    pub delivered: u64,
    /// Lost by [`Impairments::loss`].
    pub lost: u64,
    /// Dropped by the filter.
    pub filtered: u64,
    /// Dropped because they exceed the MTU of the path.
    pub oversize: u64,
    /// Dropped because the queue or the number of frames on their way was at its limit.
    pub queue_full: u64,
    /// Dropped at the receiver because it held as many frames as it may.
    pub no_buffer: u64,
    /// Copies made by [`Impairments::duplicate`] or by the filter.
    pub duplicated: u64,
    /// Marked with Congestion Experienced by [`Impairments::mark_octets`].
    pub marked: u64,
    /// Held back by [`Impairments::reorder`].
    pub reordered: u64,
    /// With a bit inverted, those of [`corrupted_lost`](Self::corrupted_lost) not included.
    pub corrupted_bits: u64,
    /// With a bit inverted and no checksum to catch it, so lost.
    pub corrupted_lost: u64,
    /// With a payload altered so that its checksum still holds.
    pub corrupted_payload: u64,
    /// Frames that came into being when segments were cut: a cut into three counts two.
    pub split: u64,
    /// Frames that disappeared into the one before.
    pub merged: u64,
    /// Segments whose TCP RDMA option was taken away.
    pub options_stripped: u64,
    /// Segments that got the TCP RDMA option of the one before.
    pub options_replicated: u64,
    /// Segments whose TCP RDMA option was changed.
    pub options_altered: u64,
    /// Segments the middlebox would have cut or joined, but whose checksum did not hold: a fault of the
    /// sender.
    pub bad_checksums: u64,
}

/// The verdict of a filter on a frame. The filter may also alter the octets of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame continues to the impairments.
    Pass,
    /// The frame vanishes.
    Drop,
    /// The frame continues, this many nanoseconds later than it would: later frames overtake it.
    Delay(u64),
    /// The frame continues twice.
    Duplicate,
    /// These octets go on in its place. Anything longer than the devices' largest frame counts as oversize.
    Replace(Vec<u8>),
}
