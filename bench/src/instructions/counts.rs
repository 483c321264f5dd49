//! What an end did, from its core's statistics.

use serde::Serialize;
use warpline::Statistics;

/// What an end did.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Counts {
    /// Times it was polled.
    pub polls: u64,
    /// Of these, those that found nothing to do.
    pub idle_polls: u64,
    /// Requests of this end, and pieces of a byte stream, that completed; pings of this end that were posted.
    pub messages: u64,
    /// Those of the core that has done the fewest.
    #[serde(skip)]
    pub least_messages: u64,
    /// FPDUs sent by the writer, received by the target.
    pub fpdus: u64,
    /// Frames it received and sent.
    pub frames_received: u64,
    pub frames_sent: u64,
    /// Segments with data that it sent.
    pub data_segments_sent: u64,
    /// Of these, those sent before.
    pub retransmitted_segments: u64,
    /// Segments that it received after a gap.
    pub out_of_order_segments: u64,
    /// Segments of its own that the other end has reported as reordered.
    pub reordered_segments: u32,
    /// How often it has reduced the congestion window for marks.
    pub ecn_reductions: u32,
}

impl Counts {
    /// Returns the counts so far of an end whose cores have done `messages` messages each.
    pub fn new(statistics: &Statistics, messages: &[u64]) -> Self {
        Self {
            polls: statistics.polls,
            idle_polls: statistics.idle_polls,
            messages: messages.iter().sum(),
            least_messages: messages.iter().copied().min().unwrap_or_default(),
            fpdus: statistics.fpdus_sent + statistics.fpdus_received,
            frames_received: statistics.frames_received,
            frames_sent: statistics.frames_sent,
            data_segments_sent: statistics.tcp.data_segments_sent,
            retransmitted_segments: statistics.tcp.retransmitted_segments,
            out_of_order_segments: statistics.tcp.out_of_order_segments,
            reordered_segments: statistics.tcp.reordered_segments,
            ecn_reductions: statistics.tcp.ecn_reductions,
        }
    }

    /// Returns what was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            polls: self.polls - before.polls,
            idle_polls: self.idle_polls - before.idle_polls,
            messages: self.messages - before.messages,
            least_messages: self.least_messages - before.least_messages,
            fpdus: self.fpdus - before.fpdus,
            frames_received: self.frames_received - before.frames_received,
            frames_sent: self.frames_sent - before.frames_sent,
            data_segments_sent: self.data_segments_sent - before.data_segments_sent,
            retransmitted_segments: self.retransmitted_segments - before.retransmitted_segments,
            out_of_order_segments: self.out_of_order_segments - before.out_of_order_segments,
            reordered_segments: self.reordered_segments - before.reordered_segments,
            ecn_reductions: self.ecn_reductions - before.ecn_reductions,
        }
    }
}
