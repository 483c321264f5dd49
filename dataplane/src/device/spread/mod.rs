//! Hands received frames to the core that owns their flow, for a device of several cores.
//!
//! [`spread`] wraps a device for each core. A TCP segment belongs to the core that the [`Steering`] names, an
//! ICMP error that quotes one to the owner of that flow, and everything else to core 0, the *host core*: ARP,
//! Neighbor Discovery, echo, fragments. Frames of other cores go into rings, one for each ordered pair, and
//! their owners take them as if their own queue had received them.
//!
//! | queues | segments | frames to send |
//! |---|---|---|
//! | [`Queues::PerCore`] | the adapter brings them to their owner (RSS) | to the core's own queue |
//! | [`Queues::Unsorted`] | the core that has received them hashes them, and hands over what is others' | the same |
//! | [`Queues::One`] | core 0 hashes them and hands them over | through a ring to core 0, which sends them |
//!
//! # An adapter that spreads otherwise
//!
//! A core believes that the adapter has brought it its own segments. What else has come it hands over when
//! it parses it ([`hand_over`](Device::hand_over)), so no frame is looked at twice. Each queue compares its
//! first segments with what the steering says; after the first one that is elsewhere than it should be, all
//! queues sort in software, for good, and [`adapter_differs`](Device::adapter_differs) reports it to the
//! application once. If all first segments are of one flow, they may be in their place by chance: so
//! a segment that a replica hands over later, because it is another core's, counts as well. Ports that are
//! restricted to a core are unknown to the adapter: from the first one on, all frames are sorted, for good.
//!
//! # Rings
//!
//! A burst is sorted into an array for each core, and each array is pushed at once: the frames of a flow stay
//! in order, a frame's pointer is moved four times, and its octets not at all. What finds its ring full is
//! dropped, and counted as [`NotHandedOver`], as an adapter does whose queue is full: a core that stalls
//! delays no other. A core takes its rings and its queue in turns, as many frames in all as it asked for.
//! Whether there are any is one load of a word of its own (`inbox`).
//!
//! [`NotHandedOver`]: crate::drops::DropCause::NotHandedOver
//!
//! Nothing that comes through a ring is trusted more than what comes from the wire: its receiver verifies the
//! checksums, of a datagram that the host core has reassembled too. Frames from one core to an address of
//! another, which nobody verifies, take other ways (`net`).
//!
//! # Sending without a queue
//!
//! Core 0 takes the frames of the others from their rings when it receives, a bounded number in each call,
//! and hands them to the device. What that has no room for waits, a burst at most, and the rings fill; then
//! the others keep their frames, as at any full device. Once core 0 has ended nothing is sent any more: what
//! finds its ring full is dropped and counted, so that the others do not wait for room for ever. While the
//! frames of core 0 wait as well, they have the first of what room there is in one of so many calls as there
//! are cores.

pub(crate) mod classify;
mod exchange;
mod forwarder;
mod inbox;
#[cfg(all(test, loom))]
mod loom_tests;
mod ring;
mod sorter;
#[cfg(all(test, not(loom)))]
mod tests;
mod turns;

use core::cell::Cell;
use std::sync::Arc;

use super::packet::HeardPorts;
use super::{Capabilities, Device, RxInterrupt};
use crate::limits;
use crate::steering::Steering;
use crate::time::Instant;
use crate::waker::Waker;
use crate::wire::ethernet::MacAddress;
use exchange::Exchange;
use forwarder::Forwarder;
use inbox::{Inboxes, inboxes};
use ring::{RingProducer, ring};
pub use sorter::SteeringWatch;
use sorter::{HOST_CORE, Sorter, SteeringState};
use turns::Turns;

/// Bursts taken from a queue in one call while most of their frames are other cores'.
const BURSTS: usize = 4;

/// The queues of the port below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// One for each core, among which the adapter spreads segments by the same hash and table (RSS).
    PerCore,
    /// One for each core, filled in a way that is not known. The segments of a flow mostly come to one of
    /// them; TCP puts those in order that do not.
    Unsorted,
    /// One, at core 0.
    One,
}

/// Returns a device for each core of `steering`: the one at index *i* is that of core *i*, and allocates from
/// the pool of the device that was given for it, whose capabilities it has. With [`Queues::One`] only the
/// first of `devices` receives and transmits, and [`Capabilities::frames`] of each is the part that its core
/// may keep of the frames received there.
///
/// # Panics
///
/// If `devices` are not as many as the cores, or those more than [`limits::CORES_MAX`].
pub fn spread<D: Device>(devices: Vec<D>, queues: Queues, steering: &Arc<Steering>) -> Vec<Spread<D>> {
    let cores = devices.len();
    assert_eq!(cores, usize::from(steering.cores()), "a device for each core");
    assert!(cores <= limits::CORES_MAX, "{cores} cores");
    let state = Arc::new(SteeringState::new(steering.clone()));
    let inboxes = inboxes(cores);
    let ring_frames: Vec<_> = devices.iter().map(|device| ring_frames(device, queues, cores)).collect();
    let has_ring = |one, other| queues != Queues::One || one == 0 || other == 0;
    let exchanges = Exchange::all(&inboxes, &ring_frames, has_ring);
    let ways = match queues {
        Queues::PerCore => ways_by_queues(cores, |core| Sorter::of_adapter_queue(core, state.clone())),
        Queues::Unsorted => ways_by_queues(cores, |core| Sorter::of_unsorted_queue(core, state.clone())),
        Queues::One => ways_by_one_queue(&ring_frames, &state),
    };
    let parts = devices.into_iter().zip(exchanges).zip(ways).zip(0..);
    parts
        .map(|(((device, exchange), way), core)| Spread {
            core,
            way,
            exchange,
            turns: Turns::default(),
            queue_has_more: false,
            inboxes: inboxes.clone(),
            device,
        })
        .collect()
}

/// Returns how many frames each ring from a core has room for. If all other cores stall, a quarter of the
/// frames that the cores may keep is in rings. Of a port with one queue, whose frames all come from the pool
/// of core 0, each core has its part for the ring to it; else from the pool of each core as many rings are
/// filled as there are other cores.
///
/// A queue that receives a burst of one flow pushes all of it at once. So a ring has room for a burst, if all
/// of them take no more than half of the frames then. Of a port with one queue and 80 frames for each core, a
/// ring has room for 32; with 20 for each core, for 10.
fn ring_frames<D: Device>(device: &D, queues: Queues, cores: usize) -> usize {
    let rings = match queues {
        Queues::PerCore | Queues::Unsorted => cores,
        Queues::One => 1,
    };
    let frames = device.capabilities().frames / rings;
    let burst = limits::RECEIVE_BURST_FRAMES.min(frames / 2);
    (frames / 4).max(burst).clamp(1, limits::FRAMES_BETWEEN_CORES)
}

/// Returns the ways of frames of all cores if each has a queue.
fn ways_by_queues<F>(cores: usize, sorter: impl Fn(u8) -> Sorter) -> Vec<Way<F>> {
    (0..cores).map(|core| Way::Queue(sorter(core as u8))).collect()
}

/// Returns the ways of frames of all cores if core 0 has the only queue.
fn ways_by_one_queue<F>(ring_frames: &[usize], state: &Arc<SteeringState>) -> Vec<Way<F>> {
    let rings = ring_frames.iter().skip(1).map(|frames| ring(*frames));
    let (to_queue, from): (Vec<_>, Vec<_>) = rings.unzip();
    let sorter = Sorter::of_unsorted_queue(HOST_CORE, state.clone());
    let mut ways = vec![Way::OnlyQueue(sorter, Forwarder::new(from))];
    ways.extend(to_queue.into_iter().map(Way::NoQueue));
    ways
}

/// How frames come to a core from the wire, and go there.
enum Way<F> {
    /// By a queue of its own, as those of the other cores.
    Queue(Sorter),
    /// By the only queue there is, which sends for the other cores too.
    OnlyQueue(Sorter, Forwarder<F>),
    /// Through the core that has the queue.
    NoQueue(RingProducer<F>),
}

/// The device of one core among several; see [`spread`].
pub struct Spread<D: Device> {
    core: u8,
    way: Way<D::Frame>,
    exchange: Exchange<D::Frame>,
    /// The turns of the rings, and of the queue as the source of the core's own number.
    turns: Turns,
    /// The last burst from the queue was full: it may have more, also if the caller got none of it.
    queue_has_more: bool,
    /// Those of all cores.
    inboxes: Inboxes,
    /// Dropped last: frames above are its own.
    device: D,
}

impl<D: Device> Spread<D> {
    /// Returns the device below.
    pub const fn inner(&self) -> &D {
        &self.device
    }

    /// Returns how to ask what [`adapter_differs`](Device::adapter_differs) says while a core polls the
    /// device; `None` if the core has no queue.
    pub fn watch(&self) -> Option<SteeringWatch> {
        match &self.way {
            Way::Queue(sorter) | Way::OnlyQueue(sorter, _) => Some(sorter.watch()),
            Way::NoQueue(_) => None,
        }
    }

    /// Returns true if the core has a queue.
    const fn has_queue(&self) -> bool {
        !matches!(self.way, Way::NoQueue(_))
    }

    /// Returns true if frames wait for a poll, apart from what the queue may have.
    #[inline]
    fn has_waiting_frames(&self) -> bool {
        let has_to_send = match &self.way {
            Way::OnlyQueue(_, forwarder) => forwarder.has_frames(&self.exchange.inbox().to_send),
            Way::Queue(_) | Way::NoQueue(_) => false,
        };
        has_to_send || self.exchange.has_frames()
    }

    /// Receives what the queue has, and hands over what is not the core's own, until `frames` has `room`
    /// frames more, or the queue has no more, some bursts at most.
    #[inline]
    fn receive_from_queue(&mut self, now: Instant, frames: &mut Vec<D::Frame>, room: usize) {
        let end = frames.len() + room;
        for _ in 0..BURSTS {
            let start = frames.len();
            let limit = (end - start).min(limits::RECEIVE_BURST_FRAMES);
            let count = self.device.receive(now, frames, limit);
            self.sort(frames, start);
            self.queue_has_more = count == limit;
            if !self.queue_has_more || frames.len() == end {
                break;
            }
        }
    }

    /// Hands the frames from `start` on over that are not the core's own, where they are to be sorted. The
    /// others stay in their order.
    #[inline]
    fn sort(&mut self, frames: &mut Vec<D::Frame>, start: usize) {
        let (Way::Queue(sorter) | Way::OnlyQueue(sorter, _)) = &mut self.way else { return };
        if sorter.is_sorting() {
            hand_over_others(self.core, sorter, &mut self.exchange, frames, start);
        }
    }

    /// Receives where there is more to do than to take the core's own frames from its own queue: some are
    /// other cores', or come through other cores, or are to be sent for them.
    #[inline(never)]
    fn receive_and_sort(&mut self, now: Instant, frames: &mut Vec<D::Frame>, limit: usize) -> usize {
        let before = frames.len();
        if limit == 0 {
            return 0;
        }
        if let Way::OnlyQueue(_, forwarder) = &mut self.way {
            forwarder.forward(now, &self.exchange.inbox().to_send, &mut self.device);
        }
        match self.exchange.senders() {
            0 if self.has_queue() => self.receive_from_queue(now, frames, limit),
            0 => {}
            senders => self.receive_in_turns(now, frames, senders, limit),
        }
        frames.len() - before
    }

    /// Takes from the rings and from the queue in turns.
    #[inline(never)]
    fn receive_in_turns(&mut self, now: Instant, frames: &mut Vec<D::Frame>, senders: u64, limit: usize) {
        let end = frames.len() + limit;
        let queue = u64::from(self.has_queue()) << self.core;
        for source in self.turns.of(senders | queue) {
            let room = end - frames.len();
            if source == self.core {
                self.receive_from_queue(now, frames, room);
            } else {
                self.exchange.dequeue(source, frames, room);
            }
            if frames.len() == end {
                return self.turns.end_at(source);
            }
        }
    }
}

/// Hands the frames from `start` on over that are not those of `core`.
#[inline(never)]
fn hand_over_others<F: super::Frame>(
    core: u8,
    sorter: &mut Sorter,
    exchange: &mut Exchange<F>,
    frames: &mut Vec<F>,
    start: usize,
) {
    let target = Cell::new(core);
    let is_others = |frame: &mut F| {
        target.set(sorter.core_of(frame));
        target.get() != core
    };
    for frame in frames.extract_if(start.., is_others) {
        exchange.sort(target.get(), frame);
    }
    exchange.send_sorted();
}

impl<D: Device> Device for Spread<D> {
    type Frame = D::Frame;

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.device.mac()
    }

    #[inline]
    fn may_have_frames(&self) -> bool {
        self.has_waiting_frames() || self.queue_has_more || self.has_queue() && self.device.may_have_frames()
    }

    #[inline]
    fn receive(&mut self, now: Instant, frames: &mut Vec<D::Frame>, limit: usize) -> usize {
        match &self.way {
            Way::Queue(sorter) if !sorter.is_sorting() && !self.exchange.has_frames() => {
                let count = self.device.receive(now, frames, limit);
                self.queue_has_more = count == limit;
                count
            }
            _ => self.receive_and_sort(now, frames, limit),
        }
    }

    fn allocate(&mut self) -> Option<D::Frame> {
        self.device.allocate()
    }

    #[inline]
    fn allocate_burst(&mut self, frames: &mut Vec<D::Frame>, limit: usize) {
        self.device.allocate_burst(frames, limit);
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<D::Frame>) -> usize {
        match &mut self.way {
            Way::Queue(_) => self.device.transmit(now, frames),
            Way::OnlyQueue(_, forwarder) => {
                let sent = self.device.transmit(now, frames);
                forwarder.end_own(!frames.is_empty());
                sent
            }
            Way::NoQueue(to_queue) => {
                let sent = to_queue.push_burst(frames);
                if sent == 0 && to_queue.is_abandoned() {
                    return self.exchange.drop_all(frames);
                }
                if sent > 0 {
                    self.inboxes[usize::from(HOST_CORE)].announce_to_send(self.core);
                }
                sent
            }
        }
    }

    fn reaches_programs(&self) -> bool {
        self.device.reaches_programs()
    }

    fn hand_over(&mut self, core: u8, frame: D::Frame) -> Result<(), D::Frame> {
        if let Way::Queue(sorter) = &self.way {
            sorter.on_handed_over(core, &frame);
        }
        self.exchange.send(core, frame)
    }

    fn frames_not_handed_over(&self) -> u64 {
        self.exchange.dropped()
    }

    fn stalled_frames(&self) -> u64 {
        self.device.stalled_frames()
    }

    fn missed_frames(&self) -> u64 {
        self.device.missed_frames()
    }

    fn unsent_frames(&self) -> u64 {
        self.device.unsent_frames()
    }

    fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        self.device.take_heard_ports()
    }

    #[inline]
    fn adapter_differs(&self) -> bool {
        match &self.way {
            Way::Queue(sorter) => sorter.adapter_differs(),
            Way::OnlyQueue(..) | Way::NoQueue(_) => false,
        }
    }

    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        let by_cores = self.exchange.inbox().wake_by(waker);
        by_cores && (!self.has_queue() || self.device.wake_on_arrival(waker))
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        if self.has_queue() { self.device.rx_interrupt() } else { None }
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        self.has_queue() && self.device.enable_rx_interrupt()
    }

    fn disable_rx_interrupt(&mut self) {
        if self.has_queue() {
            self.device.disable_rx_interrupt();
        }
    }

    /// Returns the time of the next poll: at once if frames wait in rings or for room in the device, or may
    /// be left in the queue.
    fn next_arrival(&self) -> Option<Instant> {
        if self.has_waiting_frames() || self.queue_has_more {
            return Some(Instant::ZERO);
        }
        if self.has_queue() { self.device.next_arrival() } else { None }
    }
}
