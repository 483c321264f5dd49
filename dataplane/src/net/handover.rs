//! Frames between the cores of a device: those of other cores' flows, and those for the host core.

use super::flow::FlowKey;
use super::inbound::Inbound;
use super::interface::Interface;
use super::place::HOST_CORE;
use crate::device::Device;
use crate::drops::DropCause;
use crate::limits;
use crate::steering::WithoutLocalPort;
use crate::wire::flow::Flow;

impl<D: Device> Interface<D> {
    /// Returns how many cores the device has.
    pub(crate) fn cores(&self) -> u8 {
        self.place.as_ref().map_or(1, |place| place.cores())
    }

    /// Returns true if the host is a replica.
    pub(super) fn is_replica(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_replica())
    }

    /// Returns the owner of the flow of received segments, if that is another core.
    pub(crate) fn other_owner(&self, flow: &Flow) -> Option<u8> {
        self.place.as_ref()?.other_owner(flow)
    }

    /// Returns true if segments to `port` all go to one core.
    pub(crate) fn is_restricted(&self, port: u16) -> bool {
        self.place.as_ref().is_some_and(|place| place.steering().restricted_to(port).is_some())
    }

    /// Returns what of the connection of `key` is the same for all local ports, for
    /// [`owns_port`](Self::owns_port); `None` if there is one core only.
    pub(crate) fn without_local_port(&self, key: &FlowKey) -> Option<WithoutLocalPort> {
        Some(self.place.as_ref()?.steering().without_local_port(&key.received()?))
    }

    /// Returns true if this core owns the connection with that local port.
    #[inline]
    pub(crate) fn owns_port(&self, rest: Option<WithoutLocalPort>, port: u16) -> bool {
        let (Some(place), Some(rest)) = (&self.place, rest) else { return true };
        place.steering().owner_by_port(rest, port) == place.core()
    }

    /// Hands a frame to another core.
    pub(super) fn hand_over(&mut self, core: u8, frame: D::Frame) -> Result<Inbound<D::Frame>, DropCause> {
        self.device.hand_over(core, frame).map_err(|_| DropCause::NotHandedOver)?;
        Ok(Inbound::Done)
    }

    /// Hands a frame to the host core, which handles what replicas do not.
    pub(super) fn hand_to_host_core(&mut self, frame: D::Frame) -> Result<Inbound<D::Frame>, DropCause> {
        self.hand_over(HOST_CORE, frame)
    }

    /// Returns the flow of the segment in a frame, to look ahead: nothing is checked.
    #[inline]
    pub(crate) fn flow_of(&self, frame: &D::Frame) -> Option<Flow> {
        self.link.flow_of(frame)
    }

    /// Returns how many more frames a connection may send to another core by this path to the device itself.
    #[inline(never)]
    pub(super) fn looped_room(&self, packet: &[u8], is_ipv4: bool) -> usize {
        let flow = if is_ipv4 { Flow::at_ipv4(packet) } else { Flow::at_ipv6(packet) };
        match (flow.and_then(|flow| self.other_owner(&flow)), &self.place) {
            (Some(owner), Some(place)) => place.room(owner),
            _ => self.loopback.room(),
        }
    }

    /// Sends a frame with a segment to the device itself: to this core or the one that owns its flow.
    ///
    /// # Errors
    ///
    /// `frame`, when there is no room.
    pub(super) fn push_looped(&mut self, frame: D::Frame) -> Result<(), D::Frame> {
        if self.place.is_some()
            && let Some(owner) = self.link.flow_of(&frame).and_then(|flow| self.other_owner(&flow))
            && let Some(place) = &mut self.place
        {
            return place.send_frame(owner, frame);
        }
        self.loopback.push(frame)
    }

    /// Returns true if another core may have sent frames or notes.
    #[inline]
    pub(crate) fn may_have_input_of_cores(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.may_have_input())
    }

    /// Dequeues frames to the device's addresses that other cores have sent, a burst at most, as
    /// [`dequeue_burst`](Self::dequeue_burst) does those of the device.
    pub(crate) fn dequeue_burst_of_cores(&mut self) -> Vec<D::Frame> {
        let mut burst = self.take_burst();
        debug_assert!(burst.capacity() >= limits::RECEIVE_BURST_FRAMES, "it is allocated beforehand");
        if let Some(place) = &mut self.place {
            place.dequeue_frames(&mut burst);
        }
        self.counters.frames_looped += burst.len() as u64;
        burst
    }
}
