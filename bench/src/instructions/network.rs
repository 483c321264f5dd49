//! A network that does to a writer's frames what a congested or a parallel one does: it marks them, or
//! delivers them in another order.

use std::sync::Arc;

use warpline::MacAddress;
use warpline::link::{Capabilities, Device, RxInterrupt, Waker};
use warpline::open::{DpdkDevice, Mbuf};
use warpline::time::Instant;

use super::case::Network;

/// One segment in so many is marked.
const SEGMENTS_A_MARK: u64 = 2;
/// Frames with more bytes carry data.
const DATA_BYTES: usize = 128;
/// Bursts of fewer frames stay in order. Fewer than three segments follow the one that is late, so no sender
/// takes it for lost (RFC 8985 §6.2).
const LEAST_REORDERED: usize = 4;
/// The octet of the Type of Service in an Ethernet frame with an IPv4 packet, and Congestion Experienced in
/// it (RFC 3168 §5).
const TYPE_OF_SERVICE: usize = 15;
const CONGESTION_EXPERIENCED: u8 = 3;
/// The octet of TCP's flags in such a frame, and ECN-Echo in it (RFC 3168 §6.1).
const TCP_FLAGS: usize = 47;
const ECN_ECHO: u8 = 0x40;

/// The writer's device with a network behind it that does something to frames.
pub struct Disturbed {
    device: DpdkDevice,
    network: Network,
    /// Segments with data so far.
    segments: u64,
    /// The frame that leaves with the next burst.
    late: Option<Mbuf>,
}

impl Disturbed {
    /// Returns `device` with `network` behind it.
    pub const fn new(device: DpdkDevice, network: Network) -> Self {
        Self { device, network, segments: 0, late: None }
    }

    /// Does to a burst what the network does. `scripts/bench` counts no instruction of it.
    #[inline(never)]
    fn disturb_burst(&mut self, frames: &mut Vec<Mbuf>) {
        match self.network {
            Network::Marking | Network::MarkingUnheard => {
                for frame in frames.iter_mut().filter(|frame| frame.len() > DATA_BYTES) {
                    self.segments += 1;
                    if self.segments.is_multiple_of(SEGMENTS_A_MARK)
                        && let Some(octet) = frame.first_mut().get_mut(TYPE_OF_SERVICE)
                    {
                        *octet |= CONGESTION_EXPERIENCED;
                    }
                }
            }
            Network::Reordering if frames.len() >= LEAST_REORDERED || self.late.is_some() => {
                let late = (frames.len() >= LEAST_REORDERED).then(|| frames.remove(frames.len() - 2));
                if let Some(before) = core::mem::replace(&mut self.late, late) {
                    frames.insert(0, before);
                }
            }
            _ => {}
        }
    }

    /// Does to the acknowledgements what the network does: not counted either.
    #[inline(never)]
    fn disturb_acknowledgements(&mut self, frames: &mut [Mbuf]) {
        if self.network != Network::MarkingUnheard {
            return;
        }
        for frame in frames {
            if let Some(octet) = frame.first_mut().get_mut(TCP_FLAGS) {
                *octet &= !ECN_ECHO;
            }
        }
    }
}

impl Device for Disturbed {
    type Frame = Mbuf;

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.device.mac()
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        let before = frames.len();
        let count = self.device.receive(now, frames, limit);
        self.disturb_acknowledgements(&mut frames[before..]);
        count
    }

    fn allocate(&mut self) -> Option<Mbuf> {
        self.device.allocate()
    }

    fn allocate_burst(&mut self, frames: &mut Vec<Mbuf>, limit: usize) {
        self.device.allocate_burst(frames, limit);
    }

    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.device.wake_on_arrival(waker)
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.device.rx_interrupt()
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<Mbuf>) -> usize {
        self.disturb_burst(frames);
        self.device.transmit(now, frames)
    }
}
