//! Frames out: empty ones to fill, and the queue to the device.

use super::interface::Interface;
use super::template::HeaderTemplate;
use crate::device::{Device, Frame};
use crate::drops::DropCause;
use crate::limits;
use crate::time::Instant;
use crate::wire::ethernet::{EtherType, MacAddress};

impl<D: Device> Interface<D> {
    /// Returns an empty frame to fill, or `None`, counted, if the device has none.
    #[inline]
    pub(crate) fn empty_frame(&mut self) -> Option<D::Frame> {
        if self.has_spare() { self.spare.pop() } else { None }
    }

    /// Returns true if there are empty frames at hand, or the device has some; otherwise counts that it has
    /// none.
    #[inline]
    fn has_spare(&mut self) -> bool {
        !self.spare.is_empty() || self.allocate_spare()
    }

    /// Fetches a burst of empty frames. Returns false, counted, if the device has none.
    #[inline(never)]
    fn allocate_spare(&mut self) -> bool {
        self.device.allocate_burst(&mut self.spare, limits::EMPTY_FRAMES);
        if self.spare.is_empty() {
            self.count_no_buffer();
        }
        !self.spare.is_empty()
    }

    /// Keeps an empty frame that was not needed for the next [`empty_frame`](Self::empty_frame).
    pub(crate) fn keep_spare(&mut self, mut frame: D::Frame) {
        // Its lines may be in the cache of the processor that had it last, and be slow to come.
        frame.prefetch_empty();
        self.spare.push(frame);
    }

    /// Has the processor fetch the next [`empty_frame`](Self::empty_frame), as for one that was
    /// [kept](Self::keep_spare).
    #[inline]
    pub(crate) fn prefetch_spare(&mut self) {
        if let Some(frame) = self.spare.last_mut() {
            frame.prefetch_empty();
        }
    }

    /// Counts a frame that could not be sent for want of a buffer.
    pub(crate) const fn count_no_buffer(&mut self) {
        self.counters.drops.count(DropCause::NoTransmitBuffer);
    }

    /// Returns how many more frames a connection may send with this template. There is room again to the host
    /// itself when the frames before have been received; to the device,
    /// [`has_room_for_connection`](Self::has_room_for_connection) has made sure.
    #[inline]
    pub(super) fn room(&self, template: &HeaderTemplate) -> usize {
        if !template.is_loopback() {
            return usize::MAX;
        }
        if self.place.is_some() {
            return self.looped_room(template.packet(), template.is_ipv4);
        }
        self.loopback.room()
    }

    /// Returns true if there is room in the queue to the device for all that a connection sends at once.
    pub(crate) fn has_room_for_connection(&mut self, now: Instant) -> bool {
        const MOST: usize = limits::TRANSMIT_QUEUE_FRAMES - limits::TRANSMIT_BURST_SEGMENTS;
        if self.to_send.len() > MOST {
            self.flush(now);
        }
        self.to_send.len() <= MOST
    }

    /// Sends the frame of a segment, to the device or to the host itself.
    #[inline]
    pub(super) fn send(&mut self, now: Instant, is_loopback: bool, frame: D::Frame) {
        if is_loopback {
            return self.loop_back(frame);
        }
        self.to_send.push(frame);
        if self.to_send.len() >= limits::TRANSMIT_CHUNK_FRAMES {
            self.flush(now);
        }
    }

    /// Sends up to `count` segments with the headers of `template`, for which there is [`room`](Self::room),
    /// each in an empty frame that `fill` fills. One of which it returns false is not sent, and counted.
    /// Returns how many frames there were.
    #[inline]
    pub(super) fn send_filled(
        &mut self,
        now: Instant,
        template: &HeaderTemplate,
        count: usize,
        mut fill: impl FnMut(&HeaderTemplate, &mut D::Frame) -> bool,
    ) -> usize {
        let mut left = count;
        while left > 0 && self.has_spare() {
            let chunk = limits::TRANSMIT_CHUNK_FRAMES.saturating_sub(self.to_send.len()).max(1);
            let chunk = chunk.min(left).min(self.spare.len());
            left -= chunk;
            let (first, rest) = (self.to_send.len(), self.spare.len() - chunk);
            // The last first, as `empty_frame` has them: a pool gives what was freed last first, so this is
            // the order in which they were used before, in which a processor fetches memory ahead.
            self.to_send.extend(self.spare.drain(rest..).rev());
            let mut index = first;
            while let Some(frame) = self.to_send.get_mut(index) {
                if fill(template, frame) {
                    index += 1;
                } else {
                    self.drop_unfilled(index);
                }
            }
            if template.is_loopback() {
                self.loop_back_from(first);
            } else if self.to_send.len() >= limits::TRANSMIT_CHUNK_FRAMES {
                self.flush(now);
            }
        }
        count - left
    }

    /// Drops a frame of the queue to the device, and counts it: its payload could not be had.
    #[cold]
    fn drop_unfilled(&mut self, index: usize) {
        self.to_send.remove(index);
        self.count_no_buffer();
    }

    /// Moves the frames from place `first` on of the queue to the device to the host itself.
    #[inline(never)]
    fn loop_back_from(&mut self, first: usize) {
        let mut frames = core::mem::take(&mut self.to_send);
        for frame in frames.drain(first..) {
            self.loop_back(frame);
        }
        self.to_send = frames;
    }

    /// Records that a super-frame holds `segments` segments beside its first.
    pub(crate) fn count_joined(&mut self, segments: usize) {
        self.joined_segments += segments as u64;
    }

    /// Returns how many frames the device has accepted, each segment of a super-frame counted as one.
    pub(crate) const fn segments_sent(&self) -> u64 {
        self.counters.frames_sent + self.joined_segments
    }

    /// Queues a frame that replies to another, or asks for a neighbour. The queue is bounded while the device
    /// uses nothing: a station that gets no reply asks again.
    pub(super) fn queue_reply(&mut self, frame: D::Frame) {
        if self.to_send.len() < limits::TRANSMIT_QUEUE_FRAMES + limits::RECEIVE_BURST_FRAMES {
            self.to_send.push(frame);
        } else {
            self.count_no_buffer();
        }
    }

    /// Queues a frame with a segment to the host itself.
    #[inline(never)]
    pub(super) fn loop_back(&mut self, frame: D::Frame) {
        if self.push_looped(frame).is_err() {
            self.count_no_buffer();
        }
    }

    /// Returns the number of frames that the device has not accepted yet.
    pub(crate) fn frames_to_send(&self) -> usize {
        self.to_send.len()
    }

    /// Hands the device as many of the queued frames as it accepts.
    #[inline(never)]
    pub(crate) fn flush(&mut self, now: Instant) {
        if !self.to_send.is_empty() {
            self.counters.frames_sent += self.device.transmit(now, &mut self.to_send) as u64;
        }
    }

    /// Sends a frame to `destination` with `octets` octets after the Ethernet header, which `write` fills in.
    pub(super) fn send_frame(
        &mut self,
        destination: MacAddress,
        ethertype: EtherType,
        octets: usize,
        write: impl FnOnce(&mut [u8]),
    ) {
        let link = self.link.octets();
        let Some(mut frame) = self.empty_frame() else { return };
        let Some(room) = frame.append(link + octets) else { return };
        self.link.write(room, destination, ethertype);
        write(&mut room[link..]);
        self.queue_reply(frame);
    }
}
