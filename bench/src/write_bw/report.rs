//! The report that `write-bw` prints and writes of a measurement.

use serde::Serialize;

/// The result of one size.
#[derive(Serialize, Clone, Debug)]
pub struct Report {
    /// `write-bw`.
    pub test: &'static str,
    /// The device.
    pub device: String,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Bytes of a message.
    pub size: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Writes outstanding on each.
    pub depth: u32,
    /// Whether Markers were in use.
    pub markers: bool,
    /// Whether CRCs were in use.
    pub crc: bool,
    /// The CPUs that polled the ends in this process; a single one polled both.
    pub cpus: Vec<usize>,
    /// Time spent transferring, in seconds; verification and waiting for its result are not in it.
    pub duration_s: f64,
    /// Messages transferred.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Mean rate of payload.
    pub gbit_per_s: f64,
    /// Rate of the best round.
    pub peak_gbit_per_s: f64,
    /// Messages per second, in millions.
    pub mmsg_per_s: f64,
    /// Whether every byte was compared at the receiver.
    pub verified: bool,
    /// Bytes that were not what was sent.
    pub corrupt_bytes: u64,
    /// Segments that TCP sent again.
    pub retransmitted_segments: u64,
    /// Segments that came beyond a gap.
    pub out_of_order_segments: u64,
    /// The most frames a connection held at once.
    pub held_frames_peak: u32,
    /// Bytes copied from frames to buffers, at the ends in this process.
    pub bytes_copied_rx: u64,
    /// Bytes copied from buffers to frames, at the ends in this process, retransmissions included.
    pub bytes_copied_tx: u64,
}

/// perftest's heading.
pub const HEADING: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]";

impl Report {
    /// Returns the line under [`HEADING`].
    pub fn line(&self) -> String {
        format!(
            " {:<10} {:<14} {:<18.2} {:<20.2} {:.6}",
            self.size, self.messages, self.peak_gbit_per_s, self.gbit_per_s, self.mmsg_per_s
        )
    }
}
