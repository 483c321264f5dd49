//! Watches the acknowledgements of one connection for stalls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warpline_dataplane::device::sim::{End, Verdict};
use warpline_dataplane::time::{Instant, MILLISECOND};

use super::bottleneck::{Flows, Line};

/// Least retransmission timeout, and how long an acknowledgement may be held back.
const RTO_MIN_NS: u64 = 200 * MILLISECOND;
const DELAYED_ACK_NS: u64 = 40 * MILLISECOND;

/// Where an Ethernet frame of IPv4 without options, which is all of TCP we send, has its type and its
/// acknowledgment number.
const ETHER_TYPE: core::ops::Range<usize> = 12..14;
const ACKNOWLEDGMENT: core::ops::Range<usize> = 42..46;

/// A time without progress that nothing explains.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no progress from {since:?} to {until:?}: {timeouts} timeouts for {losses} losses")]
pub struct Stall {
    since: Instant,
    until: Instant,
    timeouts: u64,
    losses: u64,
}

pub struct Watch {
    /// The furthest acknowledgement the receiver has sent, as a count of octets.
    furthest: Arc<AtomicU64>,
    seen: u64,
    line: Line,
    progress: Instant,
    timeouts: u64,
    lost: u64,
    /// When frames were lost, of late.
    losses: VecDeque<Instant>,
    pub longest_ns: u64,
    pub stall: Option<Stall>,
}

impl Watch {
    /// Watches the only connection of `flows` from now on.
    pub fn new(flows: &Flows, line: Line) -> Self {
        let furthest = Arc::new(AtomicU64::new(0));
        let (writer, mut last) = (furthest.clone(), None);
        flows.network.set_filter(End::B, move |_, frame| {
            if let Some(number) = acknowledgment(frame) {
                let advance = number.wrapping_sub(last.unwrap_or(number));
                if advance < 1 << 31 {
                    last = Some(number);
                    writer.fetch_add(u64::from(advance), Ordering::Relaxed);
                }
            }
            Verdict::Pass
        });
        Self {
            furthest,
            seen: 0,
            line,
            progress: flows.now,
            timeouts: flows.timeouts(),
            lost: flows.lost_frames(),
            losses: VecDeque::new(),
            longest_ns: 0,
            stall: None,
        }
    }

    /// After each step: looks whether the receiver has acknowledged more.
    pub fn look(&mut self, flows: &Flows) {
        let lost = flows.lost_frames();
        self.losses.extend((self.lost..lost).map(|_| flows.now));
        self.lost = lost;
        let furthest = self.furthest.load(Ordering::Relaxed);
        if furthest > self.seen {
            self.seen = furthest;
            self.advance(flows);
        }
    }

    fn advance(&mut self, flows: &Flows) {
        let (since, until) = (self.progress, flows.now);
        let timeouts = flows.timeouts();
        let gap_ns = until - since;
        self.longest_ns = self.longest_ns.max(gap_ns);
        let rtt_ns = self.line.longest_rtt_ns();
        // A loss shows within a timeout.
        while self.losses.front().is_some_and(|&loss| loss + allowed_ns(rtt_ns, 0) < since) {
            self.losses.pop_front();
        }
        let (in_gap, losses) = (timeouts - self.timeouts, self.losses.len() as u64);
        if gap_ns > rtt_ns + allowed_ns(rtt_ns, in_gap) || in_gap > losses {
            self.stall.get_or_insert(Stall { since, until, timeouts: in_gap, losses });
        }
        self.progress = until;
        self.timeouts = timeouts;
    }
}

fn acknowledgment(frame: &[u8]) -> Option<u32> {
    let number = frame.get(ACKNOWLEDGMENT).filter(|_| frame[ETHER_TYPE] == [0x08, 0x00])?;
    number.try_into().ok().map(u32::from_be_bytes)
}

/// How long `timeouts` timeouts in a row and the one that did not happen may take: each twice the one before
/// (RFC 6298 §5.5), the first at most SRTT + 4 * RTTVAR, where RTTVAR is at most half a round trip (§2.2).
fn allowed_ns(rtt_ns: u64, timeouts: u64) -> u64 {
    let first = (3 * rtt_ns).max(RTO_MIN_NS) + DELAYED_ACK_NS;
    first * ((2 << timeouts.min(16)) - 1)
}
