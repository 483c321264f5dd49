//! Frames out: connections take turns, each sends the segments that TCP allows, and the host adds headers.

use crate::device::{Device, Frame};
use crate::endpoint::{Chunk, Endpoint, Next, Turn};
use crate::limits;
use crate::net::Host;
use crate::net::headers::{Egress, FlowPath};
use crate::tcp::Outgoing;
use crate::time::Instant;

use super::Core;

impl<D: Device> Core<D> {
    /// Sends what the connections have to send, in turn. A connection that gets no turn, because the device
    /// is full or the poll has sent enough, is the first to have one in the next poll.
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        let mut turn = self.endpoints.table.turns();
        let mut busy = turn > 0;
        let enough = self.host.counters().frames_sent + limits::FRAMES_SENT_PER_POLL;
        while turn > 0 && self.host.counters().frames_sent < enough && self.host.has_room_for_turn(now) {
            turn -= 1;
            let slot = self.endpoints.table.turn(turn);
            if !self.transmit_connection(now, slot) {
                self.endpoints.table.end_turn(turn);
            }
        }
        self.endpoints.table.postpone_turns(turn);
        self.host.solicit_neighbours(now);
        busy |= self.host.frames_to_send() > 0;
        self.host.flush(now);
        busy
    }

    /// Gives a connection its turn. Returns true if it has more to send and gets another.
    fn transmit_connection(&mut self, now: Instant, slot: u32) -> bool {
        let Some(mut endpoint) = self.endpoints.at(now, slot) else { return false };
        endpoint.retry_stream();
        let key = endpoint.connection.key;
        let more = match self.host.resolve(key, now) {
            Some(egress) => send_segments(&mut self.host, &mut endpoint, egress),
            None => false,
        };
        match endpoint.end_turn(more) {
            Turn::More { deadline } => {
                self.endpoints.table.set_deadline(slot, deadline);
                true
            }
            Turn::Wait { mut deadline } => {
                if self.host.is_unresolved(key.remote) {
                    // The next hop may not answer: then the connection asks again.
                    deadline = deadline.min(now + limits::NEIGHBOUR_RETRANSMIT_NS);
                }
                self.endpoints.table.set_deadline(slot, deadline);
                false
            }
            Turn::Closed => {
                self.remove_connection(now, slot);
                false
            }
            Turn::TimeWait(state) => {
                self.remove_connection(now, slot);
                let evicted = self.time_waits.insert(now, key, state);
                self.endpoints.context.statistics.time_waits_evicted += u64::from(evicted);
                false
            }
        }
    }

    fn remove_connection(&mut self, now: Instant, slot: u32) {
        if let Some(mut endpoint) = self.endpoints.at(now, slot) {
            endpoint.release();
        }
        let removed = self.endpoints.table.remove(slot);
        debug_assert!(removed.is_some(), "a connection is removed once");
    }
}

/// Sends segments of a connection by `egress`, as many as one turn allows. Returns true if there may be more.
fn send_segments<D: Device>(
    host: &mut Host<D>,
    endpoint: &mut Endpoint<'_, D::Frame>,
    egress: Egress,
) -> bool {
    let (key, flow_label) = (endpoint.connection.key, endpoint.connection.flow_label);
    let path = FlowPath { key, flow_label, egress };
    let by_reference = host.takes_references(egress);
    for _ in 0..limits::TRANSMIT_BURST_SEGMENTS {
        if !host.has_room(egress) {
            // There is room again when the frames before have been received.
            return true;
        }
        let Some(frame) = host.empty_frame() else { return true };
        match endpoint.next_segment(by_reference) {
            Next::Segment(outgoing) => match build(host, endpoint, &path, outgoing, by_reference, frame) {
                Some(frame) => host.send(endpoint.now, egress, frame),
                // It stays unacknowledged, so TCP sends it again.
                None => host.count_no_buffer(),
            },
            Next::Failed => host.keep_spare(frame),
            Next::Nothing => {
                host.keep_spare(frame);
                return false;
            }
        }
    }
    true
}

/// Builds the frame of a segment; returns `None` if its octets cannot be had.
fn build<D: Device>(
    host: &Host<D>,
    endpoint: &mut Endpoint<'_, D::Frame>,
    path: &FlowPath,
    outgoing: Outgoing<Chunk>,
    by_reference: bool,
    mut frame: D::Frame,
) -> Option<D::Frame> {
    let headers = host.headers_octets(path.key, &outgoing.header);
    let mut payload_octets = 0;
    if let Some(segment) = &outgoing.segment {
        endpoint.write_payload(segment, by_reference, headers, &mut frame).then_some(())?;
        payload_octets = segment.octets as usize;
    } else {
        frame.append(headers)?;
    }
    host.write_headers(&mut frame, path, outgoing.header, payload_octets, outgoing.ecn.bits());
    Some(frame)
}
