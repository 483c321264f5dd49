//! F-RTO: whether a retransmission timeout was spurious, by the first two acknowledgements after it (RFC 5682
//! §2.1 without selective acknowledgements, §3.1 with them).
//!
//! The first acknowledgement may be for either sending of the segment that was sent again. If it arrives, new
//! segments are sent instead of those that are marked lost. If the second one then delivers a segment that
//! was sent once, before the timeout, the path was slow and nothing was lost.
//!
//! Example: segments 1 to 10 are outstanding when the timer expires, and 1 is sent again. Its acknowledgement
//! is answered by 11 and 12. An acknowledgement of 2 shows that the timeout was spurious; a duplicate, or a
//! selective acknowledgement of 11, that 2 was lost.

use crate::time::Instant;

use super::Pools;
use super::acknowledgement::{AckKind, Delivery};
use super::congestion::CongestionControl;
use super::losses::LossRepair;
use super::recovery::{Frto, Phase, Recovery};
use super::send_queue::SendPayload;

/// New segments that are sent after the first acknowledgement.
const NEW_SEGMENTS: u8 = 2;

impl LossRepair<'_> {
    /// Accepts an acknowledgement after a timeout: the timeout was spurious, or may still turn out to be, or
    /// was not.
    pub(super) fn judge_timeout<P: SendPayload, F>(
        &mut self,
        now: Instant,
        ack: AckKind,
        delivery: &Delivery,
        pools: &mut Pools<P, F>,
    ) {
        let Phase::Timeout { frto } = self.recovery.phase else { return };
        let spurious = match frto {
            Frto::First => self.judge_first(ack, delivery, pools),
            Frto::Second { .. } => self.judge_second(ack, delivery),
            Frto::Over => false,
        };
        if spurious {
            self.undo_reduction(now, pools);
            // §2.1 step 3b: losses after this are of another recovery.
            self.recovery.until = self.send.una - 1;
        }
    }

    /// Step 2. The octets that the first acknowledgement covers may be in it for the segment sent again, so
    /// the RFC leaves the verdict to the second. A peer with selective acknowledgements has reported what it
    /// holds beyond a hole, though: what it covers now for the first time has arrived after the timeout, and
    /// there may be nothing new to ask with. If it covers everything, all those reports may have been lost
    /// (step 2a).
    fn judge_first<P: SendPayload, F>(
        &mut self,
        ack: AckKind,
        delivery: &Delivery,
        pools: &Pools<P, F>,
    ) -> bool {
        let complete = self.send.una >= self.recovery.until;
        if self.sack && delivery.original && !complete {
            return true;
        }
        if ack.advanced {
            let asks = !complete && delivery.octets > 0 && self.send.may_send_new(&pools.segments);
            let next = if asks { Frto::Second { segments_left: NEW_SEGMENTS } } else { Frto::Over };
            self.recovery.phase = Phase::Timeout { frto: next };
        } else if ack.duplicate && !self.sack {
            self.recovery.phase = Phase::Timeout { frto: Frto::Over };
        }
        false
    }

    /// Step 3.
    fn judge_second(&mut self, ack: AckKind, delivery: &Delivery) -> bool {
        let beyond = delivery.beyond || self.send.una > self.recovery.until;
        if delivery.original && !beyond {
            return true;
        }
        if ack.advanced || ack.duplicate || delivery.octets > 0 {
            self.recovery.phase = Phase::Timeout { frto: Frto::Over };
            if !ack.advanced {
                // As many segments as slow start would have sent: one again, and two new ones. An
                // acknowledgement that advances lets the window grow to that by itself.
                self.congestion.set_window(3 * self.emss_octets);
            }
        }
        false
    }
}

impl Recovery {
    /// Whether only new segments are sent for now: how many more.
    pub(super) const fn frto_segments_left(&self) -> Option<u8> {
        match self.phase {
            Phase::Timeout { frto: Frto::Second { segments_left } } => Some(segments_left),
            _ => None,
        }
    }

    /// A new segment is sent for step 2b, or none can be. If none was, the second acknowledgement would not
    /// tell anything: recovery goes on as the conventional one.
    pub(super) const fn on_frto_segment(&mut self, sent: bool) {
        let Some(left) = self.frto_segments_left() else { return };
        let frto = match left {
            left if sent => Frto::Second { segments_left: left.saturating_sub(1) },
            NEW_SEGMENTS => Frto::Over,
            _ => return,
        };
        self.phase = Phase::Timeout { frto };
    }
}
