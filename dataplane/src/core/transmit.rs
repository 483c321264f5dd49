//! Frames out: scheduled connections are served one after the other, each sends the segments that TCP allows,
//! and the host adds headers.

use crate::conn::{Allowance, Served};
use crate::device::{Device, Frame};
use crate::endpoint::{AfterTransmit, Chunk, Connection, Endpoint, StreamFailed, may_be_continued};
use crate::limits;
use crate::net::Host;
use crate::net::output::SuperFrameRoom;
use crate::net::template::PathId;
use crate::tcp::{self, Burst, Outgoing, Unusual};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;
use crate::wire::tcp_rdma::RdmaOption;

use super::{Core, look_ahead};

impl<D: Device> Core<D> {
    /// Serves the scheduled connections: each sends what it has. One that is not served, because the device
    /// is full or the poll has sent enough, is the first in the next poll.
    #[inline]
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        let has_work = self.endpoints.table.has_scheduled()
            || self.host.frames_to_send() > 0
            || self.host.has_to_solicit(now);
        has_work && self.serve_scheduled(now)
    }

    #[inline(never)]
    fn serve_scheduled(&mut self, now: Instant) -> bool {
        let count = self.endpoints.table.scheduled().min(limits::CONNECTIONS_SERVED_PER_POLL);
        let enough = self.host.segments_sent() + limits::SEGMENTS_SENT_PER_POLL;
        let looks_ahead = count > 1 && look_ahead::is_useful(&self.endpoints.table);
        for left in (0..count).rev() {
            if self.host.segments_sent() >= enough || !self.host.has_room_for_connection(now) {
                break;
            }
            let Some(allowance) = self.endpoints.table.begin_serving() else { continue };
            if looks_ahead {
                look_ahead::fetch_scheduled(&self.endpoints);
            }
            let served = self.transmit_connection(now, allowance, left == 0);
            self.endpoints.table.end_serving(allowance.slot, served);
        }
        self.host.solicit_neighbours(now);
        let busy = count > 0 || self.host.frames_to_send() > 0;
        self.host.flush(now);
        busy
    }

    /// Serves a connection, which may be the `last` of this poll.
    fn transmit_connection(&mut self, now: Instant, allowance: Allowance, last: bool) -> Served {
        let Allowance { slot, octets } = allowance;
        let Some(mut endpoint) = self.endpoints.at(now, slot) else { return Served::NOTHING };
        debug_assert!(endpoint.connection.has_all_conditions(), "a condition began unnoticed");
        endpoint.retry_stream();
        let Connection { key, flow_label, .. } = &*endpoint.connection;
        let path = self.host.path(key, *flow_label, now);
        let sent = path.map_or(Served::NOTHING, |path| {
            let begin = endpoint.connection.tcp.next_seq();
            let emss_octets = endpoint.connection.tcp.emss_octets();
            let most = segments_in(octets, emss_octets, burst_segments(&self.host, path, emss_octets));
            let (segments, more) = send_segments(&mut self.host, &mut endpoint, path, most, last);
            Served { octets: octets_of(&endpoint.connection.tcp, begin, segments), more }
        });
        let more = match endpoint.unschedule(sent.more) {
            AfterTransmit::More { deadline } => {
                self.endpoints.table.set_deadline(slot, deadline);
                true
            }
            AfterTransmit::Wait { mut deadline } => {
                if path.is_none() {
                    if self.host.is_unresolved(endpoint.connection.key.remote) {
                        // The next hop may not answer: then the connection asks again.
                        deadline = deadline.min(now + limits::NEIGHBOUR_RETRANSMIT_NS);
                    }
                    self.endpoints.table.await_path(slot);
                }
                self.endpoints.table.set_deadline(slot, deadline);
                false
            }
            AfterTransmit::Closed => {
                self.remove_connection(now, slot);
                false
            }
            AfterTransmit::TimeWait(state) => {
                let key = endpoint.connection.key;
                self.remove_connection(now, slot);
                let evicted = self.handshakes.time_waits.insert(now, key, state);
                self.endpoints.context.statistics.time_waits_evicted += u64::from(evicted);
                false
            }
        };
        Served { more, ..sent }
    }

    fn remove_connection(&mut self, now: Instant, slot: u32) {
        if let Some(mut endpoint) = self.endpoints.at(now, slot) {
            endpoint.release();
        }
        let removed = self.endpoints.table.remove(slot);
        debug_assert!(removed.is_some(), "a connection is removed once");
    }
}

/// Returns how many segments of `emss_octets` a connection sends on a path in one poll.
#[inline]
fn burst_segments<D: Device>(host: &Host<D>, path: PathId, emss_octets: usize) -> usize {
    if !host.allows_super_frames(path) {
        return limits::TRANSMIT_BURST_SEGMENTS;
    }
    let joined = limits::TRANSMIT_BURST_SUPER_FRAMES * (host.super_frame_room(path).octets / emss_octets);
    joined.clamp(limits::TRANSMIT_BURST_SEGMENTS, limits::TRANSMIT_BURST_SEGMENTS_JOINED)
}

/// Returns how many segments of `emss_octets` an allowance of `octets` octets is good for, the last one
/// whole; at most `most`.
#[inline]
fn segments_in(octets: usize, emss_octets: usize, most: usize) -> usize {
    if octets >= most * emss_octets { most } else { octets.div_ceil(emss_octets) }
}

/// Returns the octets that `segments` segments take of the wire, which were sent since SND.NXT was `begin`.
/// While something is sent again, each counts as a full one.
#[inline]
fn octets_of(tcp: &tcp::Connection, begin: SeqNumber, segments: usize) -> usize {
    let payload = if tcp.unusual.contains(Unusual::RECOVERING) {
        segments * tcp.emss_octets()
    } else {
        (tcp.next_seq() - begin).max(0).cast_unsigned() as usize
    };
    payload + segments * limits::FRAME_OVERHEAD_BYTES
}

/// Sends up to `most` segments of a connection on its path. Of the `last` connection of a poll the device has
/// the frames as soon as no other follows: before the connection looks for more work and its deadline.
/// Returns how many it has sent, and whether there may be more.
fn send_segments<D: Device>(
    host: &mut Host<D>,
    endpoint: &mut Endpoint<'_, D::Frame>,
    path: PathId,
    most: usize,
    last: bool,
) -> (usize, bool) {
    let by_reference = host.allows_references(path);
    let allows_super_frames = host.allows_super_frames(path);
    let (mut left, mut frames_left) = (most, limits::TRANSMIT_BURST_SEGMENTS);
    while left > 0 && frames_left > 0 {
        if host.room(path) == 0 {
            // There is room again when the frames before have been received.
            return (most - left, true);
        }
        let Some(frame) = host.empty_frame() else { return (most - left, true) };
        if endpoint.queue_work(by_reference, left) == Err(StreamFailed) {
            host.keep_spare(frame);
            left -= 1;
            frames_left -= 1;
            continue;
        }
        // A device that cuts a super-frame gives each segment the same options.
        let mut begun = endpoint.begin_burst(allows_super_frames);
        if let Some(burst) = &mut begun {
            let template = host.template_mut(path);
            template.set(burst.header(), burst.segment().octets as usize, burst.ecn().bits());
            let mut sending = Sending { host, endpoint, path, burst, by_reference, left, frames_left };
            let has_frames =
                if allows_super_frames { sending.send_super_frames(frame) } else { sending.send(frame) };
            (left, frames_left) = (sending.left, sending.frames_left);
            endpoint.end_burst(burst);
            if !has_frames {
                return (most - left, true);
            }
        } else if let Some(outgoing) = endpoint.poll_transmit() {
            left -= 1;
            frames_left -= 1;
            match build(host, endpoint, path, &outgoing, by_reference, frame) {
                Some(frame) => host.send(endpoint.now, path, frame),
                // It stays unacknowledged, so TCP sends it again.
                None => host.count_no_buffer(),
            }
        } else {
            host.keep_spare(frame);
            return (most - left, false);
        }
        if last && !endpoint.connection.tcp.has_unsent() {
            host.flush(endpoint.now);
        }
        if endpoint.has_sent_all() {
            host.prefetch_spare();
            return (most - left, false);
        }
    }
    (most - left, true)
}

/// What is in a super-frame.
struct SuperFrame {
    segments: usize,
    payload_octets: usize,
    /// Whether all of it could be written.
    complete: bool,
}

/// A burst that is handed to the device.
struct Sending<'s, 'e, D: Device> {
    host: &'s mut Host<D>,
    endpoint: &'s mut Endpoint<'e, D::Frame>,
    path: PathId,
    burst: &'s mut Burst<Chunk>,
    /// Payload may go by reference.
    by_reference: bool,
    /// How many segments the connection may still send now, the next one included.
    left: usize,
    /// How many super-frames it may still send now.
    frames_left: usize,
}

impl<D: Device> Sending<'_, '_, D> {
    /// Sends the segments of the burst, each in a frame, the first in `frame`. Returns false if the device
    /// has no frame.
    fn send(&mut self, mut frame: D::Frame) -> bool {
        loop {
            let segment = self.burst.segment();
            let (seq, octets) = (segment.seq, segment.octets as usize);
            let template = self.host.template_mut(self.path);
            if self.endpoint.connection.tcp.may_have_rdma_option(segment) {
                self.send_with_option(frame);
            } else if self.endpoint.write_payload(segment, self.by_reference, template.octets(), &mut frame) {
                template.write(&mut frame, seq, self.burst.push(), octets);
                self.host.send(self.endpoint.now, self.path, frame);
            } else {
                // It stays unacknowledged, so TCP sends it again.
                self.host.count_no_buffer();
            }
            self.left -= 1;
            if may_be_continued(self.burst) {
                self.send_continuations();
            }
            if self.left == 0 || self.burst.push() || self.host.room(self.path) == 0 {
                return true;
            }
            let Some(empty) = self.host.empty_frame() else { return false };
            if !self.endpoint.next_of_burst(self.burst, u32::MAX) {
                self.host.keep_spare(empty);
                return true;
            }
            frame = empty;
        }
    }

    /// Sends the segment with its RDMA option, if it has one, in `frame`.
    #[inline(never)]
    fn send_with_option(&mut self, mut frame: D::Frame) {
        let (segment, push, kind) = (self.burst.segment(), self.burst.push(), self.host.rdma_option_kind);
        let (seq, octets) = (segment.seq, segment.octets as usize);
        let option = self.endpoint.connection.tcp.rdma_option_of(segment);
        let template = self.host.template_mut(self.path);
        let headers = template.octets() + option.as_ref().map_or(0, RdmaOption::len);
        if !self.endpoint.write_payload(segment, self.by_reference, headers, &mut frame) {
            // It stays unacknowledged, so TCP sends it again.
            self.host.count_no_buffer();
            return;
        }
        match &option {
            Some(option) => template.write_with_option(&mut frame, seq, push, octets, option, kind),
            None => template.write(&mut frame, seq, push, octets),
        }
        self.host.send(self.endpoint.now, self.path, frame);
    }

    /// Sends segments of the current group, if they [continue](Endpoint::continuations) a message.
    // Not inlined: the loop over them needs the registers.
    #[inline(never)]
    fn send_continuations(&mut self) {
        let now = self.endpoint.now;
        let Some(mut continuations) = self.endpoint.continuations(self.burst, self.by_reference) else {
            return;
        };
        self.host.template_mut(self.path).fit(continuations.segment_octets());
        loop {
            let fit = continuations.fit(self.left.min(self.host.room(self.path)));
            if fit == 0 {
                return;
            }
            let mut next = continuations.next();
            let sent =
                self.host.send_filled(now, self.path, fit, |headers, frame| next.write(headers, frame));
            if sent > 0 {
                continuations.end(&next, sent);
            }
            self.left -= sent;
            if sent < fit {
                return;
            }
        }
    }

    /// Sends the segments of the burst in super-frames, the first in `frame`. Returns false if the device has
    /// no frame.
    fn send_super_frames(&mut self, mut frame: D::Frame) -> bool {
        loop {
            let seq = self.burst.segment().seq;
            let segment_octets = self.burst.segment().octets as usize;
            let SuperFrame { segments, payload_octets, complete } = self.fill_super_frame(&mut frame);
            let push = self.burst.push();
            if !complete {
                // Its segments stay unacknowledged, so TCP sends them again.
                self.host.count_no_buffer();
            } else if segments == 1 {
                self.host.template_mut(self.path).write(&mut frame, seq, push, payload_octets);
                self.host.send(self.endpoint.now, self.path, frame);
            } else {
                let template = self.host.template_mut(self.path);
                template.write_super_frame(&mut frame, seq, push, payload_octets, segment_octets as u16);
                self.host.count_joined(segments - 1);
                self.host.send(self.endpoint.now, self.path, frame);
            }
            self.frames_left -= 1;
            if self.left == 0 || self.frames_left == 0 || push {
                return true;
            }
            let Some(empty) = self.host.empty_frame() else { return false };
            if !self.endpoint.next_of_burst(self.burst, u32::MAX) {
                self.host.keep_spare(empty);
                return true;
            }
            frame = empty;
        }
    }

    /// Writes the payload of the segment of the burst to `frame`, after room for headers, and that of those
    /// after it which are as long, until one is shorter: the device cuts a super-frame at one length.
    #[inline]
    fn fill_super_frame(&mut self, frame: &mut D::Frame) -> SuperFrame {
        let segment_octets = self.burst.segment().octets as usize;
        let SuperFrameRoom { octets: room, references } = self.host.super_frame_room(self.path);
        let by_reference = self.by_reference && references > 0;
        let most_octets =
            if by_reference { room.min(references.saturating_mul(segment_octets)) } else { room };
        let mut filled = SuperFrame { segments: 0, payload_octets: 0, complete: true };
        loop {
            // The headers go before the first.
            let before = if filled.segments == 0 { self.host.template(self.path).octets() } else { 0 };
            let segment = self.burst.segment();
            let octets = segment.octets as usize;
            filled.complete = self.endpoint.write_payload(segment, by_reference, before, frame);
            filled.segments += 1;
            filled.payload_octets += octets;
            self.left -= 1;
            if !filled.complete || octets < segment_octets {
                return filled;
            }
            if may_be_continued(self.burst) {
                self.join_continuations(frame, most_octets, by_reference, &mut filled);
            }
            let next_octets = most_octets.saturating_sub(filled.payload_octets).min(segment_octets);
            let goes_on = filled.complete
                && self.left > 0
                && self.endpoint.next_of_burst(self.burst, next_octets as u32);
            if !goes_on {
                return filled;
            }
        }
    }

    /// Appends segments of the current group to the super-frame in `frame`, which is to have no more than
    /// `most_octets` octets of payload, if they [continue](Endpoint::continuations) a message.
    // Not inlined: the loop over them needs the registers.
    #[inline(never)]
    fn join_continuations(
        &mut self,
        frame: &mut D::Frame,
        most_octets: usize,
        by_reference: bool,
        filled: &mut SuperFrame,
    ) {
        let Some(mut continuations) = self.endpoint.continuations(self.burst, by_reference) else {
            return;
        };
        let segment_octets = continuations.segment_octets();
        let room = most_octets.saturating_sub(filled.payload_octets) / segment_octets.max(1);
        let fit = continuations.fit(room.min(self.left));
        if fit == 0 {
            return;
        }
        let mut next = continuations.next();
        for _ in 0..fit {
            filled.complete &= next.append(frame);
        }
        continuations.end(&next, fit);
        filled.segments += fit;
        filled.payload_octets += fit * segment_octets;
        self.left -= fit;
    }
}

/// Builds the frame of a segment; returns `None` if its octets cannot be had.
fn build<D: Device>(
    host: &mut Host<D>,
    endpoint: &mut Endpoint<'_, D::Frame>,
    path: PathId,
    outgoing: &Outgoing<Chunk>,
    by_reference: bool,
    mut frame: D::Frame,
) -> Option<D::Frame> {
    let mut payload_octets = 0;
    let header_octets = host.template(path).octets_with(&outgoing.header);
    if let Some(segment) = &outgoing.segment {
        endpoint.write_payload(segment, by_reference, header_octets, &mut frame).then_some(())?;
        payload_octets = segment.octets as usize;
    } else {
        frame.append(header_octets)?;
    }
    host.write_headers(&mut frame, path, &outgoing.header, payload_octets, outgoing.ecn.bits());
    Some(frame)
}
