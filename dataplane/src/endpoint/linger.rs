//! Connections whose queue pair was destroyed right after an error: the Terminate still goes out if the
//! peer's window opens in time.
//!
//! Destroying a queue pair lets its owner give the memory to others at once. So all that TCP has of it, sent
//! and not acknowledged or not sent yet, is built once more and kept as octets of the connection's own, with
//! the Terminate after it. From then on TCP sends them as it sends streaming octets, closes, and the
//! connection is reset if that takes too long ([`TERMINATE_LINGER_NS`](limits::TERMINATE_LINGER_NS)).

use crate::device::Frame;
use crate::limits;

use super::Endpoint;
use super::chunk::Chunk;
use super::connection::Mode;
use super::payload::PayloadBuilding;
use super::send_stream::SendStream;

impl<F: Frame> Endpoint<'_, F> {
    /// Makes a connection that owes the peer a Terminate independent of its queue pair, which is about to be
    /// destroyed. Returns false, and changes nothing that TCP sends, if it owes none, or if it has sent more
    /// octets than may be kept.
    ///
    /// [`begin_to_linger`](Self::begin_to_linger) completes this, once the queue pair is unbound.
    // Requirements: RDMAP-5.4-01, RDMAP-6.2.1-03
    pub(super) fn prepare_to_linger(&mut self) -> bool {
        let Some(octets) = self.build_unacknowledged() else { return false };
        let (connection, context) = (&mut *self.connection, &mut *self.context);
        let start = connection.tcp.oldest_kept(&context.pools);
        let queued = (connection.tcp.queued_end() - start).max(0) as u32;
        context.lingering_octets += octets.len();
        connection.stream = SendStream::resumed(octets.into_boxed_slice(), start, queued);
        connection.tcp.replace_payloads(&mut context.pools, Chunk::Stream);
        true
    }

    /// Drops what arrives from now on, and sends only the octets kept.
    pub(super) fn begin_to_linger(&mut self) {
        self.discard_received();
        self.connection.tcp.leave_startup(&mut self.context.pools);
        self.connection.closing = true;
        self.connection.mode = Mode::Lingering { kept_octets: self.connection.stream.octets() as usize };
    }

    /// Builds all that TCP has of the connection and the Terminate after it, as they go on the wire.
    fn build_unacknowledged(&mut self) -> Option<Vec<u8>> {
        let stream = self.rdmap()?;
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
        let sent_octets = (end - start).max(0) as usize;
        let room = (limits::LINGERING_BYTES_PER_CORE.saturating_sub(stream.context.lingering_octets))
            .min(limits::LINGERING_BYTES);
        if sent_octets > room {
            return None;
        }
        let segment_room = stream.operating.segment_room(end, stream.tcp.emss_octets(), false);
        let mut payload = self.payload();
        let PayloadBuilding { connection, queue_pair, pools, .. } = payload;
        let mut octets = vec![0; sent_octets];
        for segment in connection.tcp.kept(pools) {
            let at = (segment.seq - start).max(0) as usize;
            let place = octets.get_mut(at..at + segment.octets as usize)?;
            payload.build_segment(&segment, place).then_some(())?;
        }
        if has_unqueued {
            let run = queue_pair?.sender.peek_terminate(&segment_room)?;
            let at = octets.len();
            octets.resize(at + run.octets as usize, 0);
            payload.build_run(&run, end, &mut octets[at..]).then_some(())?;
        }
        Some(octets)
    }
}
