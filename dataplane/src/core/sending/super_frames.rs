//! Super-frames: segments of equal length in one frame, which the device cuts.

use crate::device::Device;
use crate::endpoint::may_be_continued;
use crate::net::output::SuperFrameRoom;

use super::Sending;

/// What is in a super-frame.
struct SuperFrame {
    segments: usize,
    payload_octets: usize,
    /// Whether all of it could be written.
    complete: bool,
}

impl<D: Device> Sending<'_, '_, D> {
    /// Sends the segments of the burst in super-frames, the first in `frame`. Returns false if the device has
    /// no frame.
    pub(super) fn send_super_frames(&mut self, mut frame: D::Frame) -> bool {
        loop {
            let seq = self.burst.segment().seq;
            let segment_octets = self.burst.segment().octets as usize;
            let SuperFrame { segments, payload_octets, complete } = self.fill_super_frame(&mut frame);
            let push = self.burst.push();
            if !complete {
                // Its segments stay unacknowledged, so TCP sends them again.
                self.host.interface.count_no_buffer();
            } else if segments == 1 {
                self.host.template_mut(self.path).write(&mut frame, seq, push, payload_octets);
                self.host.send(self.endpoint.now, self.path, frame);
            } else {
                let template = self.host.template_mut(self.path);
                template.write_super_frame(&mut frame, seq, push, payload_octets, segment_octets as u16);
                self.host.interface.count_joined(segments - 1);
                self.host.send(self.endpoint.now, self.path, frame);
            }
            self.frames_left -= 1;
            if self.left == 0 || self.frames_left == 0 || push {
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
    /// `most_octets` octets of payload, if they [continue](crate::endpoint::Endpoint::continuations) a
    /// message.
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
