//! The network interface of a host: its device, with frames in bursts, and those from the host to itself.

use std::sync::Arc;

use super::counters::Counters;
use super::link::Link;
use super::loopback::Loopback;
use super::notice::{Notice, Notices};
use super::place::Place;
use crate::device::{Capabilities, Device, Frame, IpVersion, RxInterrupt};
use crate::drops::DropCause;
use crate::limits;
use crate::time::Instant;
use crate::waker::Waker;

/// Frames that are consumed before they are freed: as many as a burst from the device has, and one from the
/// host to itself. Others were kept from bursts before.
const SPENT_FRAMES: usize = 2 * limits::RECEIVE_BURST_FRAMES;

/// A device, and the frames that come from it and go to it.
pub(crate) struct Interface<D: Device> {
    pub(super) link: Link,
    pub(super) capabilities: Capabilities,
    pub(super) counters: Counters,
    pub(super) notices: Notices,

    /// An empty burst, which keeps its allocation.
    burst: Vec<D::Frame>,
    /// Frames of the burst that are consumed.
    spent: Vec<D::Frame>,
    pub(super) loopback: Loopback<D::Frame>,
    /// The place of its core among those of the device, if there are several.
    pub(super) place: Option<Box<Place<D::Frame>>>,
    /// Segments in super-frames, the first of each not counted.
    pub(super) joined_segments: u64,
    /// Frames that the device has not accepted yet.
    pub(super) to_send: Vec<D::Frame>,
    /// Empty frames that were allocated and not needed yet.
    pub(super) spare: Vec<D::Frame>,

    /// Dropped last: the frames above go back to it.
    pub(super) device: D,
}

impl<D: Device> Interface<D> {
    /// Returns the interface to `device` in the VLAN `vlan`, of the core at `place` or the only one.
    /// Allocates everything it needs.
    pub(super) fn new(device: D, vlan: Option<u16>, place: Option<Place<D::Frame>>) -> Self {
        let capabilities = device.capabilities();
        let place = place.map(|mut place| {
            place.limit_frames(capabilities.frames);
            Box::new(place)
        });
        Self {
            link: Link { mac: device.mac(), vlan },
            capabilities,
            counters: Counters::default(),
            notices: Notices::default(),
            burst: Vec::with_capacity(limits::RECEIVE_BURST_FRAMES),
            spent: Vec::with_capacity(SPENT_FRAMES),
            loopback: Loopback::new(capabilities.frames),
            place,
            joined_segments: 0,
            to_send: Vec::with_capacity(limits::TRANSMIT_QUEUE_FRAMES + limits::RECEIVE_BURST_FRAMES),
            spare: Vec::with_capacity(limits::EMPTY_FRAMES + 1),
            device,
        }
    }

    /// Receives a burst of frames from the device, for [`dequeue_burst`](Self::dequeue_burst), unless there
    /// is one. Returns true if there is.
    #[inline]
    pub(crate) fn look_for_frames(&mut self, now: Instant) -> bool {
        if self.burst.is_empty() && self.device.may_have_frames() {
            let count = self.device.receive(now, &mut self.burst, limits::RECEIVE_BURST_FRAMES);
            self.counters.frames_received += count as u64;
        }
        !self.burst.is_empty()
    }

    /// Dequeues a burst of frames from the device; returns `None` if there are none.
    /// [`end_burst`](Self::end_burst) takes the empty vector back.
    #[inline]
    pub(crate) fn dequeue_burst(&mut self, now: Instant) -> Option<Vec<D::Frame>> {
        self.look_for_frames(now).then(|| core::mem::take(&mut self.burst))
    }

    /// Takes the vector of a burst, which is empty.
    pub(super) fn take_burst(&mut self) -> Vec<D::Frame> {
        core::mem::take(&mut self.burst)
    }

    /// Keeps the vector of [`dequeue_burst`](Self::dequeue_burst) for the next burst.
    pub(crate) fn end_burst(&mut self, burst: Vec<D::Frame>) {
        debug_assert!(burst.is_empty(), "frames of the burst are left");
        self.burst = burst;
    }

    /// Frees the frames of the burst that are consumed.
    #[inline]
    pub(crate) fn free_spent(&mut self) {
        D::Frame::free_all(&mut self.spent);
    }

    /// Takes a frame that is consumed: it is freed with others, by [`free_spent`](Self::free_spent) at the
    /// latest, before the next burst is dequeued.
    #[inline]
    pub(crate) fn recycle(&mut self, frame: D::Frame) {
        if self.spent.len() == self.spent.capacity() {
            self.free_spent_early();
        }
        self.spent.push(frame);
    }

    #[cold]
    #[inline(never)]
    fn free_spent_early(&mut self) {
        self.free_spent();
    }

    /// Dequeues the frames from the host to itself that wait, a burst at most, as
    /// [`dequeue_burst`](Self::dequeue_burst) does those of the device.
    pub(crate) fn dequeue_looped_burst(&mut self) -> Vec<D::Frame> {
        let count = self.loopback.len().min(limits::RECEIVE_BURST_FRAMES);
        let mut burst = self.take_burst();
        burst.extend((0..count).map_while(|_| self.loopback.pop()));
        self.counters.frames_looped += burst.len() as u64;
        burst
    }

    /// Returns the number of frames from the host to itself that wait to be received.
    #[inline]
    pub(crate) fn looped_frames(&self) -> usize {
        self.loopback.len()
    }

    /// Returns the time at which there is work even if nothing arrives and nothing is sent: at once if frames
    /// from the host to itself wait.
    pub(super) fn next_due(&self) -> Instant {
        if self.loopback.len() > 0 {
            return Instant::ZERO;
        }
        let of_cores = self.place.as_ref().map_or(Instant::NEVER, |place| place.next_due());
        self.device.next_arrival().map_or(of_cores, |arrival| arrival.min(of_cores))
    }

    /// Whether more has come than was received, as far as the host and its device know. A device that sorts
    /// frames may return fewer than a burst, and have more.
    pub(crate) fn has_backlog(&self, now: Instant) -> bool {
        let of_device = self.device.next_arrival().is_some_and(|arrival| arrival <= now);
        of_device || self.loopback.len() > 0 || self.may_have_input_of_cores()
    }

    /// Returns why a packet cannot be parsed of which `octets` have come.
    #[cold]
    pub(super) fn unreadable(&mut self, octets: &[u8], version: IpVersion) -> DropCause {
        self.notices.unreadable(octets, version, self.capabilities.mtu_bytes)
    }

    /// Dequeues the latest notice.
    pub(crate) fn dequeue_notice(&mut self) -> Option<Notice> {
        self.notices.dequeue()
    }

    /// Returns true if the adapter was found to [differ](Device::adapter_differs), and
    /// [`take_adapter_notice`](Self::take_adapter_notice) has not returned that yet.
    #[inline]
    pub(crate) fn has_adapter_notice(&self) -> bool {
        self.device.adapter_differs() && self.notices.awaits_adapter()
    }

    /// Takes the notice about the adapter.
    pub(crate) fn take_adapter_notice(&mut self) -> Notice {
        debug_assert!(self.has_adapter_notice(), "it was taken, or there is none");
        self.notices.report_adapter()
    }

    /// Returns the counters.
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how many frames the device has dropped, see [`Device::frames_not_handed_over`].
    pub(crate) fn frames_not_handed_over(&self) -> u64 {
        self.device.frames_not_handed_over()
    }

    /// Returns how many frames the device had no room for, see [`Device::missed_frames`].
    pub(crate) fn missed_frames(&self) -> u64 {
        self.device.missed_frames()
    }

    /// Returns how many frames the device could not send, see [`Device::unsent_frames`].
    pub(crate) fn unsent_frames(&self) -> u64 {
        self.device.unsent_frames()
    }

    /// Returns how many frames the device has dropped, see [`Device::stalled_frames`].
    pub(crate) fn stalled_frames(&self) -> u64 {
        self.device.stalled_frames()
    }

    /// Has `waker` called when frames arrive; see [`Device::wake_on_arrival`].
    pub(crate) fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.device.wake_on_arrival(waker)
    }

    /// Returns the device's receive interrupt, see [`Device::rx_interrupt`].
    pub(crate) fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.device.rx_interrupt()
    }

    /// Enables the device's receive interrupt, see [`Device::enable_rx_interrupt`].
    pub(crate) fn enable_rx_interrupt(&mut self) -> bool {
        self.device.enable_rx_interrupt()
    }

    /// Disables the device's receive interrupt, see [`Device::disable_rx_interrupt`].
    pub(crate) fn disable_rx_interrupt(&mut self) {
        self.device.disable_rx_interrupt();
    }
}
