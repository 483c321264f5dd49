//! Segments of one connection become frames: the host adds headers, the endpoint the payload.

mod super_frames;

use crate::device::{Device, Frame};
use crate::endpoint::{Chunk, Endpoint, StreamFailed, may_be_continued};
use crate::limits;
use crate::net::Host;
use crate::net::template::PathId;
use crate::tcp::{Burst, Outgoing};
use crate::wire::tcp_rdma::RdmaOption;

/// Sends up to `most` segments of a connection on its path. Of the `last` connection of a poll the device has
/// the frames as soon as no other follows: before the connection looks for more work and its deadline.
/// Returns how many it has sent, and whether there may be more.
pub(super) fn send_segments<D: Device>(
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
        let Some(frame) = host.interface.empty_frame() else { return (most - left, true) };
        if endpoint.queue_work(by_reference, left) == Err(StreamFailed) {
            host.interface.keep_spare(frame);
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
                None => host.interface.count_no_buffer(),
            }
        } else {
            host.interface.keep_spare(frame);
            return (most - left, false);
        }
        if last && !endpoint.connection.tcp.has_unsent() {
            host.interface.flush(endpoint.now);
        }
        if endpoint.has_sent_all() {
            host.interface.prefetch_spare();
            return (most - left, false);
        }
    }
    (most - left, true)
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
            if self.endpoint.connection.tcp.rdma_option().may_be_in(segment) {
                self.send_with_option(frame);
            } else if self.endpoint.write_payload(segment, self.by_reference, template.octets(), &mut frame) {
                template.write(&mut frame, seq, self.burst.push(), octets);
                self.host.send(self.endpoint.now, self.path, frame);
            } else {
                // It stays unacknowledged, so TCP sends it again.
                self.host.interface.count_no_buffer();
            }
            self.left -= 1;
            if may_be_continued(self.burst) {
                self.send_continuations();
            }
            if self.left == 0 || self.burst.push() || self.host.room(self.path) == 0 {
                return true;
            }
            let Some(empty) = self.host.interface.empty_frame() else { return false };
            if !self.endpoint.next_of_burst(self.burst, u32::MAX) {
                self.host.interface.keep_spare(empty);
                return true;
            }
            frame = empty;
        }
    }

    /// Sends the segment with its RDMA option, if it has one, in `frame`.
    #[inline(never)]
    fn send_with_option(&mut self, mut frame: D::Frame) {
        let (segment, push, kind) =
            (self.burst.segment(), self.burst.push(), self.host.parser.rdma_option_kind);
        let (seq, octets) = (segment.seq, segment.octets as usize);
        let option = self.endpoint.connection.tcp.rdma_option().of(segment);
        let template = self.host.template_mut(self.path);
        let headers = template.octets() + option.as_ref().map_or(0, RdmaOption::len);
        if !self.endpoint.write_payload(segment, self.by_reference, headers, &mut frame) {
            // It stays unacknowledged, so TCP sends it again.
            self.host.interface.count_no_buffer();
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
