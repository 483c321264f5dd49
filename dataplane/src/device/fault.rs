//! A device that injects faults into the traffic of another.
//!
//! Each direction is a [path](super::path) with impairments of its own, so that a real device treats its
//! frames as the simulated network does. Which frames are hit follows from the seed and the order of the
//! frames alone.

use std::sync::Arc;

use super::packet::HeardPorts;
use super::path::middlebox::ETHERNET_OCTETS;
use super::path::{Buffers, MIN_FRAME_OCTETS, Parcel, Path};
use super::{Capabilities, Device, Frame, RxInterrupt};
use crate::limits::RECEIVE_BURST_FRAMES;
use crate::time::Instant;
use crate::waker::Waker;
use crate::wire::ethernet::MacAddress;

pub use super::path::{Impairments, Statistics};

/// Bursts taken from the device inside at each poll: enough for what gathers in a ring between two polls.
const RECEIVE_BURSTS: usize = 8;

/// A device around another one that drops, delays, reorders, duplicates and damages frames.
///
/// Frames on their way are copies in ordinary memory: a long delay takes no buffer from the device inside.
/// They are complete, so the fault-injecting device offers neither checksum offload nor transmission by
/// reference, and nothing is claimed of the checksums of what it delivers.
///
/// Frames move when the device is polled: [`receive`](Device::receive) also hands those on that were
/// transmitted before and are due by now. A frame that the device inside has no room or buffer for stays
/// until it has.
pub struct Fault<D: Device> {
    buffers: Buffers,
    inbound: Path,
    outbound: Path,
    /// Frames received by `inner`; empty between calls.
    burst: Vec<D::Frame>,
    /// Frames that are due and that `inner` had no room for.
    leaving: Vec<D::Frame>,
    /// Dropped last: the frames are its own.
    inner: D,
}

impl<D: Device> Fault<D> {
    /// Faults around `inner`: `inbound` for what it receives, `outbound` for what it transmits. All that
    /// chance decides follows from `seed`.
    pub fn new(inner: D, seed: u64, inbound: Impairments, outbound: Impairments) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let Capabilities { mtu_bytes: mtu_octets, super_frame_bytes, .. } = inner.capabilities();
        // A peer in software may send super-frames, whatever this end does.
        let most_octets = mtu_octets.max(super_frame_bytes);
        Self {
            buffers: Buffers::new((ETHERNET_OCTETS + most_octets).max(MIN_FRAME_OCTETS)),
            inbound: Path::new(inbound, most_octets, rng.fork()),
            outbound: Path::new(outbound, mtu_octets, rng.fork()),
            burst: Vec::with_capacity(RECEIVE_BURST_FRAMES),
            leaving: Vec::with_capacity(RECEIVE_BURST_FRAMES),
            inner,
        }
    }

    /// Returns the device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the counters of the frames that the device inside received. [`Statistics::delivered`] counts
    /// those that [`receive`](Device::receive) gave.
    pub fn inbound(&self) -> Statistics {
        self.inbound.statistics
    }

    /// Returns the counters of the frames given to [`transmit`](Device::transmit). [`Statistics::delivered`]
    /// counts those that were handed to the device inside.
    pub fn outbound(&self) -> Statistics {
        self.outbound.statistics
    }

    /// Returns the number of frames in flight, both directions together.
    pub fn in_flight(&self) -> usize {
        self.inbound.in_flight() + self.outbound.in_flight() + self.leaving.len()
    }

    /// Puts the frames that the device inside has received on their way.
    fn take_in(&mut self, now: Instant) {
        // Bounded: frames that arrive faster than they can be taken must not block the other direction.
        for _ in 0..RECEIVE_BURSTS {
            if self.inner.receive(now, &mut self.burst, RECEIVE_BURST_FRAMES) == 0 {
                return;
            }
            for frame in self.burst.drain(..) {
                put_on(&mut self.inbound, &mut self.buffers, now, &frame);
            }
        }
    }

    /// Passes the frames that are due to the caller. Returns how many.
    fn deliver_due(&mut self, now: Instant, frames: &mut Vec<D::Frame>, limit: usize) -> usize {
        let due = || deliver(&mut self.inbound, &mut self.buffers, now, &mut self.inner);
        let before = frames.len();
        frames.extend(core::iter::from_fn(due).take(limit));
        frames.len() - before
    }

    /// Passes the frames that are due to the device inside.
    fn let_out(&mut self, now: Instant) {
        loop {
            while self.leaving.len() < RECEIVE_BURST_FRAMES
                && let Some(frame) = deliver(&mut self.outbound, &mut self.buffers, now, &mut self.inner)
            {
                self.leaving.push(frame);
            }
            if self.leaving.is_empty() || self.inner.transmit(now, &mut self.leaving) == 0 {
                return;
            }
        }
    }
}

/// Copies a frame and puts it on `path`.
fn put_on(path: &mut Path, buffers: &mut Buffers, now: Instant, frame: &impl Frame) {
    let octets = frame.len();
    let mut buffer = buffers.take();
    if octets > buffer.len() {
        path.statistics.sent += 1;
        path.statistics.oversize += 1;
        return buffers.give(buffer);
    }
    let mut at = 0;
    for piece in (0..).map_while(|index| frame.piece(index)) {
        buffer[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    path.send(now, Parcel::new(buffer, octets), buffers);
}

/// Returns the next frame of `path` that is due, in a buffer of `device`; `None` without one or without a
/// buffer.
fn deliver<D: Device>(
    path: &mut Path,
    buffers: &mut Buffers,
    now: Instant,
    device: &mut D,
) -> Option<D::Frame> {
    if path.next_arrival()? > now {
        return None;
    }
    let mut frame = device.allocate()?;
    let parcel = path.arrive(now)?;
    if let Some(octets) = frame.append(parcel.octets) {
        octets.copy_from_slice(parcel.frame());
        path.statistics.delivered += 1;
    } else {
        // Cannot happen: no path carries more than the device's frames hold.
        path.statistics.oversize += 1;
    }
    buffers.give(parcel.buffer);
    Some(frame)
}

impl<D: Device> Device for Fault<D> {
    type Frame = D::Frame;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().without_offloads()
    }

    fn mac(&self) -> MacAddress {
        self.inner.mac()
    }

    fn reaches_programs(&self) -> bool {
        self.inner.reaches_programs()
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<D::Frame>, limit: usize) -> usize {
        self.let_out(now);
        let taken = self.deliver_due(now, frames, limit);
        if taken == limit {
            // More comes in than the caller takes: it waits in the device, as it would without this one.
            return taken;
        }
        self.take_in(now);
        taken + self.deliver_due(now, frames, limit - taken)
    }

    fn allocate(&mut self) -> Option<D::Frame> {
        self.inner.allocate()
    }

    fn allocate_burst(&mut self, frames: &mut Vec<D::Frame>, limit: usize) {
        self.inner.allocate_burst(frames, limit);
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<D::Frame>) -> usize {
        let taken = frames.len();
        for frame in frames.drain(..) {
            put_on(&mut self.outbound, &mut self.buffers, now, &frame);
        }
        self.let_out(now);
        taken
    }

    fn hand_over(&mut self, core: u8, frame: D::Frame) -> Result<(), D::Frame> {
        self.inner.hand_over(core, frame)
    }

    fn frames_not_handed_over(&self) -> u64 {
        self.inner.frames_not_handed_over()
    }

    fn stalled_frames(&self) -> u64 {
        self.inner.stalled_frames()
    }

    fn missed_frames(&self) -> u64 {
        self.inner.missed_frames()
    }

    fn unsent_frames(&self) -> u64 {
        self.inner.unsent_frames()
    }

    fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        self.inner.take_heard_ports()
    }

    fn adapter_differs(&self) -> bool {
        self.inner.adapter_differs()
    }

    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.inner.wake_on_arrival(waker)
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.inner.rx_interrupt()
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        self.inner.enable_rx_interrupt()
    }

    fn disable_rx_interrupt(&mut self) {
        self.inner.disable_rx_interrupt();
    }

    /// Returns the time of the next poll: a frame arrives, at either end, or one that was transmitted is due.
    fn next_arrival(&self) -> Option<Instant> {
        let arrivals = [self.inner.next_arrival(), self.inbound.next_arrival(), self.outbound.next_arrival()];
        arrivals.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
