//! Devices behind a pointer: their kind is not known when the poll loop is compiled.
//!
//! A [core](crate::core::PollLoop) that control starts has its device so: there is one poll loop for all
//! devices with the same frames. It asks its device for bursts, a few times in a poll, and the pointer costs
//! a few instructions of each.

use std::sync::Arc;

use super::packet::HeardPorts;
use super::{Capabilities, Device, RxInterrupt};
use crate::time::Instant;
use crate::waker::Waker;
use crate::wire::ethernet::MacAddress;

/// A device of whatever kind, whose frames are of one kind, for a core that has a thread of its own.
pub type BoxedDevice<F> = Box<dyn Device<Frame = F> + Send>;

/// Returns `device` behind a pointer.
pub fn boxed<D: Device + Send>(device: D) -> BoxedDevice<D::Frame> {
    Box::new(device)
}

impl<D: Device + ?Sized> Device for Box<D> {
    type Frame = D::Frame;

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn mac(&self) -> MacAddress {
        (**self).mac()
    }

    #[inline]
    fn may_have_frames(&self) -> bool {
        (**self).may_have_frames()
    }

    #[inline]
    fn receive(&mut self, now: Instant, frames: &mut Vec<D::Frame>, limit: usize) -> usize {
        (**self).receive(now, frames, limit)
    }

    #[inline]
    fn allocate(&mut self) -> Option<D::Frame> {
        (**self).allocate()
    }

    #[inline]
    fn allocate_burst(&mut self, frames: &mut Vec<D::Frame>, limit: usize) {
        (**self).allocate_burst(frames, limit);
    }

    #[inline]
    fn transmit(&mut self, now: Instant, frames: &mut Vec<D::Frame>) -> usize {
        (**self).transmit(now, frames)
    }

    fn hand_over(&mut self, core: u8, frame: D::Frame) -> Result<(), D::Frame> {
        (**self).hand_over(core, frame)
    }

    fn frames_not_handed_over(&self) -> u64 {
        (**self).frames_not_handed_over()
    }

    fn stalled_frames(&self) -> u64 {
        (**self).stalled_frames()
    }

    fn missed_frames(&self) -> u64 {
        (**self).missed_frames()
    }

    fn unsent_frames(&self) -> u64 {
        (**self).unsent_frames()
    }

    fn adapter_differs(&self) -> bool {
        (**self).adapter_differs()
    }

    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        (**self).wake_on_arrival(waker)
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        (**self).rx_interrupt()
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        (**self).enable_rx_interrupt()
    }

    fn disable_rx_interrupt(&mut self) {
        (**self).disable_rx_interrupt();
    }

    fn reaches_programs(&self) -> bool {
        (**self).reaches_programs()
    }

    fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        (**self).take_heard_ports()
    }

    fn next_arrival(&self) -> Option<Instant> {
        (**self).next_arrival()
    }
}
