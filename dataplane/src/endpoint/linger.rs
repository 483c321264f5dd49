//! Connections whose queue pair was destroyed right after an error: the Terminate still goes out if the
//! peer's window opens in time. One that is being closed in the orderly way, and has nothing more to send,
//! lingers for the FINs.
//!
//! Destroying a queue pair lets its owner give the memory to others at once. So all that TCP has of it, sent
//! and not acknowledged or not sent yet, is built once more and kept as octets of the connection's own, with
//! the Terminate after it. From then on TCP sends them as it sends streaming octets, closes, and the
//! connection is reset if that takes too long ([`TERMINATE_LINGER_NS`](limits::TERMINATE_LINGER_NS)).

use crate::device::Frame;
use crate::limits;
use crate::qp::run::SegmentRoom;
use crate::wire::tcp::SeqNumber;

use super::payload::PayloadBuilding;
use super::rdmap_stream::RdmapStream;

/// The octets that a connection with a Terminate owes its peer: all that TCP has of it, and the Terminate
/// after them.
pub(super) struct OwedOctets {
    /// The first octet that TCP has.
    start: SeqNumber,
    /// The place after the last octet that TCP has.
    end: SeqNumber,
    /// The room for the Terminate, if TCP does not have it yet.
    terminate_room: Option<SegmentRoom>,
}

impl OwedOctets {
    /// Returns what a stream owes its peer; `None` if that is no Terminate, or more octets than may be kept.
    pub(super) fn of<F>(stream: &RdmapStream<'_, F>) -> Option<Self> {
        let has_unqueued = stream.qp.sender.terminate_is_due();
        if !stream.operating.failed || !stream.qp.sender.has_terminate() {
            return None;
        }
        if has_unqueued && !(stream.operating.may_send && stream.tcp.may_send())
            || stream.stream.unqueued_octets() > 0
        {
            return None;
        }
        let (start, end) = (stream.tcp.oldest_kept(&stream.context.pools), stream.tcp.queued_end());
        let room = (limits::LINGERING_BYTES_PER_CORE.saturating_sub(stream.context.lingering_octets))
            .min(limits::LINGERING_BYTES);
        let terminate_room =
            has_unqueued.then(|| stream.operating.segment_room(end, stream.tcp.emss_octets(), false));
        let owed = Self { start, end, terminate_room };
        (owed.sent_octets() <= room).then_some(owed)
    }

    /// Returns how many octets TCP has.
    fn sent_octets(&self) -> usize {
        (self.end - self.start).max(0) as usize
    }

    /// Builds the octets as they go on the wire. Returns `None` if some cannot be had.
    pub(super) fn build<F: Frame>(&self, mut payload: PayloadBuilding<'_, F>) -> Option<Vec<u8>> {
        let PayloadBuilding { connection, queue_pair, pools, .. } = payload;
        let mut octets = vec![0; self.sent_octets()];
        for segment in connection.tcp.kept(pools) {
            let at = (segment.seq - self.start).max(0) as usize;
            let place = octets.get_mut(at..at + segment.octets as usize)?;
            payload.build_segment(&segment, place).then_some(())?;
        }
        if let Some(room) = &self.terminate_room {
            let run = queue_pair?.sender.peek_terminate(room)?;
            let at = octets.len();
            octets.resize(at + run.octets as usize, 0);
            payload.build_run(&run, self.end, &mut octets[at..]).then_some(())?;
        }
        Some(octets)
    }
}
