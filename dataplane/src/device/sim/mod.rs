//! A network in memory, in virtual time: two devices and the link between them.
//!
//! Each direction loses, reorders, duplicates, damages, cuts and joins, delays and paces frames as its
//! [`Impairments`] say. Everything follows from one seed and the times and frames passed in, so that a
//! failing run can be had again.
//!
//! ```
//! use warpline_dataplane::device::sim::{self, EndConfig, Impairments};
//! use warpline_dataplane::device::{Device, Frame};
//! use warpline_dataplane::time::Instant;
//!
//! let slow = Impairments { delay_min_ns: 5_000, delay_max_ns: 5_000, ..Impairments::default() };
//! let (mut a, mut b) = sim::link(42, EndConfig { outbound: slow, ..EndConfig::a() }, EndConfig::b());
//!
//! let mut frame = a.allocate().unwrap();
//! frame.append(60).unwrap().fill(7);
//! a.transmit(Instant::ZERO, &mut vec![frame]);
//!
//! let arrival = b.next_arrival().unwrap();
//! assert_eq!(arrival, Instant::from_nanos(5_000));
//! let mut received = Vec::new();
//! assert_eq!(b.receive(arrival, &mut received, 32), 1);
//! assert_eq!(received[0].piece(0).unwrap(), [7; 60]);
//! ```

mod queues;
mod super_frame;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::path::middlebox::{self, ETHERNET_OCTETS, TAG_OCTETS};
use super::path::{Buffers, MIN_FRAME_OCTETS, Parcel, Path};
use super::{Capabilities, ChecksumRequest, Device, Frame, ReceivedChecksums};
use crate::memory::Region;
use crate::time::Instant;
use crate::waker::Waker;
use crate::wire::ethernet::MacAddress;
use queues::EndQueues;
use super_frame::SuperFrame;

pub use super::path::{Impairments, OptionFaults, Statistics, Verdict};

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The first device of the pair.
    A,
    /// The second device of the pair.
    B,
}

impl End {
    /// The end at the other side.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
}

/// One end of a link and the path that leads away from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndConfig {
    /// The hardware address.
    pub mac: MacAddress,
    /// Largest IP packet of this device, in bytes.
    pub mtu_bytes: usize,
    /// Frames this end may hold at once, allocated and received ones together. At the limit,
    /// [`Device::allocate`] returns none and arriving frames are dropped.
    pub frame_limit: usize,
    /// Whether the device offers to fill in TCP checksums on transmit.
    pub transmit_checksums: bool,
    /// Whether a device that fills in TCP checksums fills in those of IPv4 headers too.
    pub transmit_ip_checksums: bool,
    /// Whether the device takes payload by reference. As one that does DMA it reads the octets when the frame
    /// leaves, and finds what is there by then: also in memory that no frame should refer to.
    pub gather: bool,
    /// The largest IP packet that the device takes as a super-frame, in bytes. It cuts super-frames into
    /// segments as it sends them, and takes only those of an end that fills in checksums.
    pub super_frame_bytes: usize,
    /// The most pieces that a super-frame may have: payload by reference is one, and what is between two
    /// another.
    pub super_frame_pieces: usize,
    /// Octets of each piece of a received frame but the last: enough for all headers.
    pub receive_piece_octets: usize,
    /// What happens to the frames this end sends.
    pub outbound: Impairments,
}

impl EndConfig {
    /// An end with a locally administered address ending in `01`, MTU 1500, no frame limit and a perfect
    /// path.
    pub fn a() -> Self {
        Self {
            mac: MacAddress([0x02, 0, 0, 0, 0, 0x01]),
            mtu_bytes: 1500,
            frame_limit: usize::MAX,
            transmit_checksums: false,
            transmit_ip_checksums: true,
            gather: false,
            super_frame_bytes: 0,
            super_frame_pieces: usize::MAX,
            receive_piece_octets: usize::MAX,
            outbound: Impairments::default(),
        }
    }

    /// As [`a`](Self::a), with an address ending in `02`.
    pub fn b() -> Self {
        Self { mac: MacAddress([0x02, 0, 0, 0, 0, 0x02]), ..Self::a() }
    }
}

/// Two devices with a link between them. All that chance decides follows from `seed`.
pub fn link(seed: u64, a: EndConfig, b: EndConfig) -> (SimDevice, SimDevice) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mtu_octets = a.mtu_bytes.min(b.mtu_bytes);
    let most_octets = [a, b].map(|end| end.mtu_bytes.max(end.super_frame_bytes));
    let capacity = (ETHERNET_OCTETS + TAG_OCTETS + most_octets[0].max(most_octets[1])).max(MIN_FRAME_OCTETS);
    let shared = Shared {
        buffers: Buffers::new(capacity),
        paths: [Path::new(a.outbound, mtu_octets, rng.fork()), Path::new(b.outbound, mtu_octets, rng.fork())],
        held_frames: [0; 2],
        frame_limits: [a.frame_limit, b.frame_limit],
        transmit_credits: [None; 2],
        queues: [None, None],
        wakers: [vec![None], vec![None]],
        observers: [None, None],
    };
    let network = Network { shared: Arc::new(Mutex::new(shared)) };
    let device = |end: End, config: EndConfig| SimDevice {
        network: network.clone(),
        end,
        queue: 0,
        mac: config.mac,
        receive_piece_octets: config.receive_piece_octets,
        capabilities: Capabilities {
            mtu_bytes: config.mtu_bytes,
            transmit_checksums: config.transmit_checksums,
            transmit_ip_checksums: config.transmit_checksums && config.transmit_ip_checksums,
            gather: config.gather,
            super_frame_bytes: config.super_frame_bytes.max(config.mtu_bytes),
            super_frame_pieces: config.super_frame_pieces,
            frames: config.frame_limit,
            frame_bytes: config.mtu_bytes.max(config.super_frame_bytes) + ETHERNET_OCTETS + TAG_OCTETS,
        },
    };
    (device(End::A, a), device(End::B, b))
}

/// What both devices and every frame of a link share. The lock is never contended in a single-threaded
/// simulation.
struct Shared {
    buffers: Buffers,
    /// By the end the frames come from.
    paths: [Path; 2],
    held_frames: [usize; 2],
    frame_limits: [usize; 2],
    /// Frames each end may still transmit; `None` without limit.
    transmit_credits: [Option<usize>; 2],
    /// Of each end that has several.
    queues: [Option<EndQueues>; 2],
    /// Called when frames for an end are on their way: that of each of its devices.
    wakers: [Vec<Option<Arc<Waker>>>; 2],
    /// Shown each frame that an end takes.
    observers: [Option<Observer>; 2],
}

/// A closure that is shown frames and when they are taken.
type Observer = Box<dyn FnMut(Instant, &[u8]) + Send>;

/// A handle on a link, for the test that watches and steers it while the devices belong to others.
#[derive(Clone)]
pub struct Network {
    shared: Arc<Mutex<Shared>>,
}

impl Network {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic elsewhere leaves nothing half done here that would matter to the report of that panic.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who poll the devices of an end.
    fn wake(&self, end: End) {
        let mut device = 0;
        // Not under the lock, which the woken may take.
        while let Some(waker) = { self.lock().wakers[end.index()].get(device).cloned() } {
            device += 1;
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Changes what happens to frames that `from` sends from now on.
    pub fn set_impairments(&self, from: End, impairments: Impairments) {
        self.lock().paths[from.index()].impairments = impairments;
    }

    /// What happens to frames that `from` sends.
    pub fn impairments(&self, from: End) -> Impairments {
        self.lock().paths[from.index()].impairments
    }

    /// Shows every frame that `from` sends to `filter`, before any impairment and before padding. The filter
    /// must not use this network or its devices.
    pub fn set_filter<F>(&self, from: End, filter: F)
    where
        F: FnMut(Instant, &mut [u8]) -> Verdict + Send + 'static,
    {
        self.lock().paths[from.index()].filter = Some(Box::new(filter));
    }

    /// Removes the filter of frames that `from` sends.
    pub fn clear_filter(&self, from: End) {
        self.lock().paths[from.index()].filter = None;
    }

    /// Shows every frame that `end` takes from its device to `observer`, which must not use this network or
    /// its devices.
    pub fn set_observer<F>(&self, end: End, observer: F)
    where
        F: FnMut(Instant, &[u8]) + Send + 'static,
    {
        self.lock().observers[end.index()] = Some(Box::new(observer));
    }

    /// Changes how many frames `end` may hold at once; frames it holds already stay.
    pub fn set_frame_limit(&self, end: End, frames: usize) {
        self.lock().frame_limits[end.index()] = frames;
    }

    /// Lets `end` transmit `frames` more frames and then refuses, as a port with a full ring does; `None`
    /// lifts the limit.
    pub fn set_transmit_credit(&self, end: End, frames: Option<usize>) {
        self.lock().transmit_credits[end.index()] = frames;
    }

    /// What has happened to frames that `from` sent.
    pub fn statistics(&self, from: End) -> Statistics {
        self.lock().paths[from.index()].statistics
    }

    /// Frames that `from` sent and that have not been received yet.
    pub fn in_flight(&self, from: End) -> usize {
        self.lock().in_flight(from.other().index())
    }

    /// Frames that `end` holds, allocated and received ones together.
    pub fn held_frames(&self, end: End) -> usize {
        self.lock().held_frames[end.index()]
    }

    /// When the next frame arrives, at either end.
    pub fn next_arrival(&self) -> Option<Instant> {
        let shared = self.lock();
        let queues = [0, 1].map(|end| shared.queues[end].as_ref().map_or(1, EndQueues::count));
        let ends = [0, 1].into_iter().flat_map(|end| (0..queues[end]).map(move |queue| (end, queue)));
        ends.filter_map(|(end, queue)| shared.next_arrival(end, queue)).min()
    }
}

/// One end of a simulated link.
pub struct SimDevice {
    network: Network,
    end: End,
    /// The number of its queue, if the end has several.
    queue: usize,
    mac: MacAddress,
    capabilities: Capabilities,
    receive_piece_octets: usize,
}

impl SimDevice {
    /// A handle on the link.
    pub fn network(&self) -> Network {
        self.network.clone()
    }

    /// Which end this is.
    pub fn end(&self) -> End {
        self.end
    }

    fn frame(&self, buffer: Box<[u8]>, octets: usize) -> SimFrame {
        let (end, gather, network) = (self.end, self.capabilities.gather, self.network.clone());
        SimFrame {
            buffer,
            octets,
            end,
            gather,
            piece_octets: usize::MAX,
            references: Vec::new(),
            request: None,
            segment_octets: None,
            network,
        }
    }
}

impl Device for SimDevice {
    type Frame = SimFrame;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn mac(&self) -> MacAddress {
        self.mac
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<SimFrame>, limit: usize) -> usize {
        let mut guard = self.network.lock();
        let shared = &mut *guard;
        let (end, sender) = (self.end.index(), self.end.other().index());
        let mut taken = 0;
        while taken < limit
            && let Some(parcel) = shared.arrive(now, end, self.queue)
        {
            let statistics = &mut shared.paths[sender].statistics;
            if shared.held_frames[end] >= shared.frame_limits[end] {
                statistics.no_buffer += 1;
                shared.buffers.give(parcel.buffer);
                continue;
            }
            statistics.delivered += 1;
            shared.held_frames[end] += 1;
            if let Some(observer) = &mut shared.observers[end] {
                observer(now, parcel.frame());
            }
            let mut frame = self.frame(parcel.buffer, parcel.octets);
            frame.piece_octets = self.receive_piece_octets;
            frames.push(frame);
            taken += 1;
        }
        taken
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        let mut shared = self.network.lock();
        let end = self.end.index();
        if shared.held_frames[end] >= shared.frame_limits[end] {
            return None;
        }
        shared.held_frames[end] += 1;
        let buffer = shared.buffers.take();
        Some(self.frame(buffer, 0))
    }

    /// # Panics
    ///
    /// When a frame comes from another link.
    fn transmit(&mut self, now: Instant, frames: &mut Vec<SimFrame>) -> usize {
        // Before the lock is taken: dropping a frame takes it too.
        assert!(
            frames.iter().all(|frame| Arc::ptr_eq(&frame.network.shared, &self.network.shared)),
            "a simulated frame is sent over the link it was made for"
        );
        let mut guard = self.network.lock();
        let shared = &mut *guard;
        let end = self.end.index();
        let room = shared.transmit_credits[end].unwrap_or(usize::MAX).min(frames.len());
        for mut frame in frames.drain(..room) {
            // The headers, and for each reference itself and what follows it.
            let pieces = 1 + 2 * frame.references.len();
            frame.read_references();
            // Emptied, so that dropping what is left of the frame touches nothing shared.
            let mut buffer = core::mem::take(&mut frame.buffer);
            shared.held_frames[frame.end.index()] -= 1;
            let request = frame.request.filter(|_| self.capabilities.transmit_checksums);
            if let Some((request, segment_octets)) = request.zip(frame.segment_octets) {
                let super_frame = SuperFrame { octets: &buffer[..frame.octets], request, segment_octets };
                assert!(
                    pieces <= self.capabilities.super_frame_pieces,
                    "a NIC sends a frame of no more pieces"
                );
                assert!(super_frame.has_its_length(), "a NIC takes the length from the IP header");
                // Each segment has a length of its own.
                let request = ChecksumRequest { ip_checksum: true, ..request };
                for segment in super_frame.segments() {
                    let mut buffer = shared.buffers.take();
                    let octets = super_frame.write(&segment, &mut buffer);
                    middlebox::offload_checksums(&mut buffer[..octets], request);
                    shared.paths[end].send(now, Parcel::new(buffer, octets), &mut shared.buffers);
                }
                shared.buffers.give(buffer);
                continue;
            }
            if let Some(request) = request {
                let octets = &mut buffer[..frame.octets];
                middlebox::offload_checksums(octets, request);
            }
            shared.paths[end].send(now, Parcel::new(buffer, frame.octets), &mut shared.buffers);
        }
        if let Some(credit) = &mut shared.transmit_credits[end] {
            *credit -= room;
        }
        drop(guard);
        if room > 0 {
            self.network.wake(self.end.other());
        }
        room
    }

    /// Frames that take time are announced when they are sent: [`next_arrival`](Device::next_arrival) then
    /// tells when they arrive.
    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.network.lock().wakers[self.end.index()][self.queue] = Some(waker.clone());
        true
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.network.lock().next_arrival(self.end.index(), self.queue)
    }
}

/// A frame of a simulated link, in one piece unless it was received in several. Dropping it returns its
/// buffer to the link.
pub struct SimFrame {
    /// The whole buffer; empty once the frame has been sent.
    buffer: Box<[u8]>,
    octets: usize,
    /// The holder of the frame.
    end: End,
    gather: bool,
    /// Octets of each piece but the last.
    piece_octets: usize,
    references: Vec<Reference>,
    request: Option<ChecksumRequest>,
    /// Octets of payload of each segment, for a super-frame.
    segment_octets: Option<u16>,
    network: Network,
}

/// Octets of a frame that lie elsewhere until it leaves.
struct Reference {
    /// Where in the frame.
    at: usize,
    octets: usize,
    region: Region,
    offset: usize,
}

impl SimFrame {
    /// What DMA does.
    fn read_references(&mut self) {
        for Reference { at, octets, region, offset } in self.references.drain(..) {
            let read = region.read(offset, &mut self.buffer[at..at + octets]);
            debug_assert!(read, "it was inside when the frame was made");
        }
    }
}

impl Frame for SimFrame {
    fn piece(&self, index: usize) -> Option<&[u8]> {
        let begin =
            index.checked_mul(self.piece_octets).filter(|begin| index == 0 || *begin < self.octets)?;
        Some(&self.buffer[begin..begin.saturating_add(self.piece_octets).min(self.octets)])
    }

    fn first_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.octets.min(self.piece_octets)]
    }

    fn len(&self) -> usize {
        self.octets
    }

    fn append(&mut self, octets: usize) -> Option<&mut [u8]> {
        let start = self.octets;
        let end = start.checked_add(octets)?;
        let added = self.buffer.get_mut(start..end)?;
        self.octets = end;
        Some(added)
    }

    /// The octets are in the frame at once, and are read again when it leaves.
    fn append_region(&mut self, region: &Region, offset: usize, octets: usize) -> bool {
        let at = self.octets;
        let place = at.checked_add(octets).and_then(|end| self.buffer.get_mut(at..end));
        if !self.gather || !place.is_some_and(|place| region.read(offset, place)) {
            return false;
        }
        self.octets += octets;
        self.references.push(Reference { at, octets, region: region.clone(), offset });
        true
    }

    fn copy_part(&self, offset: usize, octets: usize) -> Option<Self> {
        let part = self.buffer.get(offset..offset.checked_add(octets)?)?;
        let mut shared = self.network.lock();
        let end = self.end.index();
        if shared.held_frames[end] >= shared.frame_limits[end] {
            return None;
        }
        shared.held_frames[end] += 1;
        let mut buffer = shared.buffers.take();
        buffer.get_mut(..octets)?.copy_from_slice(part);
        drop(shared);
        Some(Self {
            buffer,
            octets,
            end: self.end,
            gather: self.gather,
            piece_octets: self.piece_octets,
            references: Vec::new(),
            request: None,
            segment_octets: None,
            network: self.network.clone(),
        })
    }

    fn checksums(&self) -> ReceivedChecksums {
        ReceivedChecksums::default()
    }

    fn request_checksums(&mut self, request: ChecksumRequest) {
        self.request = Some(request);
    }

    fn request_segmentation(&mut self, request: ChecksumRequest, segment_octets: u16) {
        self.request = Some(request);
        self.segment_octets = Some(segment_octets);
    }
}

impl Drop for SimFrame {
    fn drop(&mut self) {
        if !self.buffer.is_empty() {
            let mut shared = self.network.lock();
            shared.held_frames[self.end.index()] -= 1;
            shared.buffers.give(core::mem::take(&mut self.buffer));
        }
    }
}

impl core::fmt::Debug for SimFrame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SimFrame")
            .field("end", &self.end)
            .field("octets", &self.octets)
            .finish_non_exhaustive()
    }
}
