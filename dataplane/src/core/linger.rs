//! Connections whose queue pair was destroyed right after an error: the Terminate still goes out where the
//! peer's window opens in time.
//!
//! Whoever destroys a queue pair may give its memory to others at once. So all that TCP has of it, sent and
//! not acknowledged or never sent, is built once more and kept as octets of the connection's own, with the
//! Terminate behind it. From then on TCP sends them as it sends streaming octets, closes, and the connection
//! is reset if that takes too long ([`TERMINATE_LINGER_NS`](limits::TERMINATE_LINGER_NS)).

use super::Core;
use super::connection::{Chunk, Mode};
use super::ring::ConnectionId;
use super::send_stream::SendStream;
use super::transmit::Build;
use crate::device::Device;
use crate::limits;

impl<D: Device> Core<D> {
    /// Makes a connection that owes the peer a Terminate independent of its queue pair, which is about to be
    /// destroyed. Returns false, and changes nothing that TCP sends, if it owes none, or if more octets are
    /// on their way than are kept.
    ///
    /// [`leave_queue_pair`](Self::leave_queue_pair) completes this, once the queue pair is told of its end.
    // RDMAP-5.4-01, RDMAP-6.2.1-03
    pub(super) fn keep_terminate(&mut self, id: ConnectionId) -> bool {
        let Some(octets) = self.own_octets(id.index) else { return false };
        let Some(connection) = self.slots[id.index as usize].connection.as_mut() else { return false };
        let start = connection.tcp.oldest_kept(&self.pools);
        let queued = (connection.tcp.queued_end() - start).max(0) as u32;
        self.lingering_octets += octets.len();
        connection.stream = SendStream::resumed(octets.into_boxed_slice(), start, queued);
        connection.tcp.replace_payloads(&mut self.pools, Chunk::Stream);
        true
    }

    /// What comes is dropped from now on, and what is sent are the octets kept.
    pub(super) fn leave_queue_pair(&mut self, index: u32) {
        let id = self.id(index);
        let listed = self.connection(id).is_some_and(|connection| connection.awaits_shared_receive());
        self.forget_waiting(id, listed);
        if let Some(connection) = self.slots[index as usize].connection.as_mut() {
            let waiting = connection.tcp.received().available();
            connection.tcp.consume(&mut self.pools, waiting);
            connection.closing = true;
            connection.mode = Mode::Lingering { kept_octets: connection.stream.octets() as usize };
        }
    }

    /// All that TCP has of the connection and the Terminate behind it, as they go on the wire.
    fn own_octets(&mut self, index: u32) -> Option<Vec<u8>> {
        let connection = self.slots[index as usize].connection.as_ref()?;
        let Mode::FullOperation(operating) = &connection.mode else { return None };
        let qp = self.qps.get(operating.qp)?;
        let unqueued = qp.sender.terminate_is_due();
        if !operating.failed || connection.told_closed || !qp.sender.has_terminate() {
            return None;
        }
        if unqueued && !(operating.may_send && connection.tcp.may_send())
            || connection.stream.unqueued_octets() > 0
        {
            return None;
        }
        let (start, end) = (connection.tcp.oldest_kept(&self.pools), connection.tcp.queued_end());
        let sent_octets = (end - start).max(0) as usize;
        let room = (limits::LINGERING_OCTETS_PER_CORE.saturating_sub(self.lingering_octets))
            .min(limits::LINGERING_OCTETS);
        if sent_octets > room {
            return None;
        }
        let mut octets = vec![0; sent_octets];
        for segment in connection.tcp.kept(&self.pools) {
            let at = (segment.seq - start).max(0) as usize;
            let place = octets.get_mut(at..at + segment.octets as usize)?;
            let statistics = &mut self.statistics;
            let build = Build {
                connection,
                cut: self.cut.get(&index),
                qps: &self.qps,
                stags: &self.stags,
                statistics,
            };
            build.segment(segment, place).then_some(())?;
        }
        if unqueued {
            let segment_room = operating.segment_room(end, connection.tcp.emss_octets(), false);
            let run = qp.sender.peek_terminate(&segment_room)?;
            let at = octets.len();
            octets.resize(at + run.octets as usize, 0);
            let statistics = &mut self.statistics;
            let mut build = Build {
                connection,
                cut: self.cut.get(&index),
                qps: &self.qps,
                stags: &self.stags,
                statistics,
            };
            build.run(run, end, &mut octets[at..]).then_some(())?;
        }
        Some(octets)
    }
}
