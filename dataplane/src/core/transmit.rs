//! Frames out: connections take turns, each sends the segments that TCP allows, and the host adds headers.

use crate::device::{Device, Frame};
use crate::endpoint::{Chunk, Connection, Endpoint, StreamFailed, Turn};
use crate::limits;
use crate::net::Host;
use crate::net::output::SuperFrameRoom;
use crate::net::template::HeaderTemplate;
use crate::tcp::{Outgoing, Train};
use crate::time::Instant;
use crate::wire::tcp::Flags;

use super::Core;

impl<D: Device> Core<D> {
    /// Sends what the connections have to send, in turn. A connection that gets no turn, because the device
    /// is full or the poll has sent enough, is the first to have one in the next poll.
    #[inline]
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        let has_work = self.has_turns() || self.host.frames_to_send() > 0 || self.host.has_to_solicit(now);
        has_work && self.serve_turns(now)
    }

    #[inline(never)]
    fn serve_turns(&mut self, now: Instant) -> bool {
        let mut turn = self.endpoints.table.turns();
        let mut busy = turn > 0;
        let enough = self.host.segments_sent() + limits::SEGMENTS_SENT_PER_POLL;
        while turn > 0 && self.host.segments_sent() < enough && self.host.has_room_for_turn(now) {
            turn -= 1;
            let slot = self.endpoints.table.turn(turn);
            if !self.transmit_connection(now, slot, turn == 0) {
                self.endpoints.table.end_turn(turn);
            }
        }
        self.endpoints.table.postpone_turns(turn);
        self.host.solicit_neighbours(now);
        busy |= self.host.frames_to_send() > 0;
        self.host.flush(now);
        busy
    }

    /// Gives a connection its turn, which may be the `last` of this poll. Returns true if it has more to send
    /// and gets another.
    fn transmit_connection(&mut self, now: Instant, slot: u32, last: bool) -> bool {
        let Some(mut endpoint) = self.endpoints.at(now, slot) else { return false };
        debug_assert!(endpoint.connection.has_all_conditions(), "a condition began unnoticed");
        endpoint.retry_stream();
        let Connection { key, flow_label, .. } = *endpoint.connection;
        let headers = self.host.headers(&key, flow_label, now);
        let resolved = headers.is_some();
        let more = headers
            .is_some_and(|mut headers| send_segments(&mut self.host, &mut endpoint, &mut headers, last));
        match endpoint.end_turn(more) {
            Turn::More { deadline } => {
                self.endpoints.table.set_deadline(slot, deadline);
                true
            }
            Turn::Wait { mut deadline } => {
                if !resolved && self.host.is_unresolved(key.remote) {
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

/// Sends segments of a connection with these headers, as many as one turn allows. In the `last` turn of
/// a poll the device has the frames as soon as no other follows: before the connection looks for more work
/// and its deadline. Returns true if there may be more.
fn send_segments<D: Device>(
    host: &mut Host<D>,
    endpoint: &mut Endpoint<'_, D::Frame>,
    headers: &mut HeaderTemplate,
    last: bool,
) -> bool {
    let by_reference = host.takes_references(headers);
    let mut left = limits::TRANSMIT_BURST_SEGMENTS;
    while left > 0 {
        left -= 1;
        if !host.has_room(headers) {
            // There is room again when the frames before have been received.
            return true;
        }
        let Some(frame) = host.empty_frame() else { return true };
        let outgoing = match endpoint.next_segment(by_reference) {
            Ok(Some(outgoing)) => outgoing,
            Err(StreamFailed) => {
                host.keep_spare(frame);
                continue;
            }
            Ok(None) => {
                host.keep_spare(frame);
                return false;
            }
        };
        let header_octets = headers.octets_with(&outgoing.header);
        let super_frame_room = host.super_frame_room(headers, header_octets);
        // A device cuts a super-frame into segments of one length.
        let train = endpoint.train_after(&outgoing, super_frame_room.is_some());
        if let (Some(train), Some(room)) = (train, super_frame_room) {
            let Some(sent) = send_super_frames(
                host,
                endpoint,
                headers,
                outgoing,
                train,
                frame,
                (room, left, by_reference),
            ) else {
                return true;
            };
            left -= sent;
            continue;
        }
        let Some(frame) = build(host, endpoint, headers, &outgoing, by_reference, frame) else {
            // It stays unacknowledged, so TCP sends it again.
            host.count_no_buffer();
            continue;
        };
        host.send(endpoint.now, headers, frame);
        if let Some(train) = train {
            let Some(sent) = send_train(host, endpoint, headers, by_reference, train, left) else {
                return true;
            };
            left -= sent;
        }
        if last && !endpoint.connection.tcp.has_unsent() {
            host.flush(endpoint.now);
        }
        if endpoint.has_sent_all() {
            host.prefetch_spare();
            return false;
        }
    }
    true
}

/// Sends up to `most` segments of a train. Returns how many, or `None` if the device has no frame. The frames
/// are those that [`send_segments`] would build one by one.
fn send_train<D: Device>(
    host: &mut Host<D>,
    endpoint: &mut Endpoint<'_, D::Frame>,
    headers: &mut HeaderTemplate,
    by_reference: bool,
    mut train: Train<Chunk>,
    most: usize,
) -> Option<usize> {
    let mut sent = 0;
    let mut has_frames = true;
    while sent < most && host.has_room(headers) {
        if let Some(mut parts) = endpoint.parts(&mut train, headers, by_reference) {
            let before = sent;
            while sent < most && parts.left() > 0 && host.has_room(parts.headers()) {
                let Some(mut frame) = host.empty_frame() else { break };
                let Some(written) = parts.write_next(&mut frame) else {
                    host.keep_spare(frame);
                    break;
                };
                sent += 1;
                if written {
                    host.send(parts.now(), parts.headers(), frame);
                } else {
                    host.count_no_buffer();
                }
            }
            if sent > before {
                continue;
            }
        }
        let Some(mut frame) = host.empty_frame() else {
            has_frames = false;
            break;
        };
        let Some((segment, push)) = endpoint.next_of_train(&mut train) else {
            host.keep_spare(frame);
            break;
        };
        sent += 1;
        if endpoint.write_payload(segment, by_reference, headers.octets(), &mut frame) {
            headers.write(&mut frame, segment.seq, push, segment.octets as usize);
            host.send(endpoint.now, headers, frame);
        } else {
            host.count_no_buffer();
        }
    }
    endpoint.end_train(train);
    has_frames.then_some(sent)
}

/// Sends `first` and up to `most` segments of its train in super-frames with `room` for payload, which may go
/// `by_reference`. The first of them goes in `frame`. Returns how many of the train, or `None` if the device
/// has no frame.
fn send_super_frames<D: Device>(
    host: &mut Host<D>,
    endpoint: &mut Endpoint<'_, D::Frame>,
    headers: &mut HeaderTemplate,
    first: Outgoing<Chunk>,
    mut train: Train<Chunk>,
    mut frame: D::Frame,
    (room, most, by_reference): (SuperFrameRoom, usize, bool),
) -> Option<usize> {
    let Outgoing { mut header, ecn, .. } = first;
    let header_octets = headers.octets_with(&header);
    let by_reference = by_reference && room.references > 0;
    // Whether the segment of `train` has PSH, if that is to be sent.
    let mut next = Some(header.flags.contains(Flags::PSH));
    let mut sent = 0;
    let mut has_frames = true;
    while next.is_some() {
        header.seq = train.segment().seq;
        let segment_octets = train.segment().octets as usize;
        let (mut payload_octets, mut whole) = (0, true);
        let most_octets =
            if by_reference { room.octets.min(room.references * segment_octets) } else { room.octets };
        while let Some(push) = next.take() {
            // The headers go before the first.
            let before = if payload_octets == 0 { header_octets } else { 0 };
            whole &= endpoint.write_payload(train.segment(), by_reference, before, &mut frame);
            payload_octets += segment_octets;
            header.flags.set(Flags::PSH, push);
            if whole && payload_octets + segment_octets <= most_octets && sent < most {
                next = endpoint.next_of_train(&mut train).map(|(_, push)| push);
                sent += usize::from(next.is_some());
            }
        }
        if whole {
            let cut = (ecn.bits(), segment_octets as u16);
            host.write_super_headers(&mut frame, headers, &header, payload_octets, cut);
            host.note_joined(payload_octets / segment_octets - 1);
            host.send(endpoint.now, headers, frame);
        } else {
            // Its segments stay unacknowledged, so TCP sends them again.
            host.count_no_buffer();
        }
        if sent == most {
            break;
        }
        let Some(empty) = host.empty_frame() else {
            has_frames = false;
            break;
        };
        frame = empty;
        next = endpoint.next_of_train(&mut train).map(|(_, push)| push);
        sent += usize::from(next.is_some());
        if next.is_none() {
            host.keep_spare(frame);
            break;
        }
    }
    endpoint.end_train(train);
    has_frames.then_some(sent)
}

/// Builds the frame of a segment; returns `None` if its octets cannot be
/// had.
fn build<D: Device>(
    host: &Host<D>,
    endpoint: &mut Endpoint<'_, D::Frame>,
    headers: &mut HeaderTemplate,
    outgoing: &Outgoing<Chunk>,
    by_reference: bool,
    mut frame: D::Frame,
) -> Option<D::Frame> {
    let mut payload_octets = 0;
    let header_octets = headers.octets_with(&outgoing.header);
    if let Some(segment) = &outgoing.segment {
        endpoint.write_payload(segment, by_reference, header_octets, &mut frame).then_some(())?;
        payload_octets = segment.octets as usize;
    } else {
        frame.append(header_octets)?;
    }
    host.write_headers(&mut frame, headers, &outgoing.header, payload_octets, outgoing.ecn.bits());
    Some(frame)
}
