//! A path: one direction of a link, with the frames on their way and its impairments. The simulated network
//! and the fault-injecting device use the same paths.

mod impairments;
pub(super) mod middlebox;
#[cfg(test)]
pub(super) mod sample;

use std::collections::VecDeque;

pub use self::impairments::{Impairments, OptionFaults, Statistics, Verdict};

use self::middlebox::{ETHERNET_OCTETS, Segment};
use crate::time::{Instant, SECOND};

/// Octets that Ethernet adds to a frame on the line: preamble, frame check sequence, gap.
const LINE_OVERHEAD_OCTETS: u64 = 24;
/// Ethernet's shortest frame without its check sequence. Shorter ones are padded, and receivers must cope.
pub(super) const MIN_FRAME_OCTETS: usize = 60;

/// A filter: shown each frame as sent, before any impairment.
pub(super) type Filter = Box<dyn FnMut(Instant, &mut [u8]) -> Verdict + Send>;

/// Frame buffers, all of one size, used again and again.
pub(super) struct Buffers {
    free: Vec<Box<[u8]>>,
    /// Octets of every buffer.
    pub(super) capacity: usize,
    /// Buffers made so far.
    pub(super) made: usize,
}

impl Buffers {
    pub(super) fn new(capacity: usize) -> Self {
        Self { free: Vec::new(), capacity, made: 0 }
    }

    /// Takes a buffer with unspecified contents.
    pub(super) fn take(&mut self) -> Box<[u8]> {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            vec![0; self.capacity].into_boxed_slice()
        })
    }

    pub(super) fn give(&mut self, buffer: Box<[u8]>) {
        self.free.push(buffer);
    }
}

/// A frame on its way.
pub(super) struct Parcel {
    pub(super) buffer: Box<[u8]>,
    pub(super) octets: usize,
    /// Later than the path alone would bring it.
    held_ns: u64,
    /// Not damaged by this path: joining would otherwise give a damaged segment a good checksum.
    intact: bool,
}

impl Parcel {
    pub(super) fn new(buffer: Box<[u8]>, octets: usize) -> Self {
        Self { buffer, octets, held_ns: 0, intact: true }
    }

    pub(super) fn frame(&self) -> &[u8] {
        &self.buffer[..self.octets]
    }

    fn frame_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.octets]
    }

    fn copy(&self, buffers: &mut Buffers) -> Self {
        let mut buffer = buffers.take();
        buffer[..self.octets].copy_from_slice(self.frame());
        Self { buffer, ..*self }
    }
}

/// One direction of a link.
pub(super) struct Path {
    pub(super) impairments: Impairments,
    pub(super) filter: Option<Filter>,
    pub(super) statistics: Statistics,
    /// The largest IP packet that both devices take, in octets.
    device_mtu_octets: usize,
    rng: fastrand::Rng,
    /// In order of arrival; equal times in order of sending.
    queue: VecDeque<(Instant, Parcel)>,
    /// When the line has sent all that was put on it.
    line_free: Instant,
    /// When the last frame that was not reordered arrives: no frame with a shorter delay overtakes it.
    last_arrival: Instant,
    /// The TCP RDMA option of the last segment that had one, if some are put on others.
    last_option: Option<middlebox::rdma_option::Copied>,
}

impl Path {
    pub(super) fn new(impairments: Impairments, device_mtu_octets: usize, rng: fastrand::Rng) -> Self {
        Self {
            impairments,
            filter: None,
            statistics: Statistics::default(),
            device_mtu_octets,
            rng,
            queue: VecDeque::new(),
            line_free: Instant::ZERO,
            last_arrival: Instant::ZERO,
            last_option: None,
        }
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.queue.front().map(|&(arrival, _)| arrival)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queue.len()
    }

    /// Removes and returns the next frame that has arrived by `now`.
    pub(super) fn arrive(&mut self, now: Instant) -> Option<Parcel> {
        if self.next_arrival()? > now {
            return None;
        }
        self.queue.pop_front().map(|(_, parcel)| parcel)
    }

    /// Takes a frame from the sender.
    pub(super) fn send(&mut self, now: Instant, mut parcel: Parcel, buffers: &mut Buffers) {
        self.statistics.sent += 1;
        let mut copies = 1;
        if let Some(filter) = &mut self.filter {
            match filter(now, parcel.frame_mut()) {
                Verdict::Pass => {}
                Verdict::Drop => {
                    self.statistics.filtered += 1;
                    return buffers.give(parcel.buffer);
                }
                Verdict::Delay(nanos) => parcel.held_ns = nanos,
                Verdict::Duplicate => copies = 2,
                Verdict::Replace(octets) if octets.len() > buffers.capacity => {
                    self.statistics.oversize += 1;
                    return buffers.give(parcel.buffer);
                }
                Verdict::Replace(octets) => {
                    parcel.octets = octets.len();
                    parcel.frame_mut().copy_from_slice(&octets);
                }
            }
        }
        if parcel.octets.saturating_sub(middlebox::link_octets(parcel.frame())) > self.mtu_octets() {
            self.statistics.oversize += 1;
            return buffers.give(parcel.buffer);
        }
        if copies == 2 {
            self.statistics.duplicated += 1;
            let copy = parcel.copy(buffers);
            self.pass_middlebox(now, copy, buffers);
        }
        self.pass_middlebox(now, parcel, buffers);
    }

    fn mtu_octets(&self) -> usize {
        self.impairments
            .mtu_octets
            .map_or(self.device_mtu_octets, |octets| octets.min(self.device_mtu_octets))
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.f64() < probability
    }

    /// Cuts or joins the frame, or leaves it alone, and carries what results.
    fn pass_middlebox(&mut self, now: Instant, mut parcel: Parcel, buffers: &mut Buffers) {
        if self.impairments.rdma_option != OptionFaults::NONE
            && let Some(segment) = Segment::locate(parcel.frame())
            && segment.checksums_hold(parcel.frame())
        {
            self.change_option(&mut parcel, segment);
            let segment = Segment::locate(parcel.frame());
            let has_option = |segment| middlebox::rdma_option::locate(parcel.frame(), segment).is_some();
            if segment.is_some_and(has_option) && self.chance(self.impairments.rdma_option.split) {
                return self.carry_in_pieces(now, parcel, buffers);
            }
        }
        if self.chance(self.impairments.resegment)
            && let Some(segment) = Segment::locate(parcel.frame())
        {
            if !segment.checksums_hold(parcel.frame()) {
                self.statistics.bad_checksums += 1;
            } else if self.rng.bool() && self.merge_with_last(&parcel) {
                self.statistics.merged += 1;
                return buffers.give(parcel.buffer);
            } else {
                return self.carry_in_pieces(now, parcel, buffers);
            }
        }
        self.carry(now, parcel, buffers);
    }

    /// Takes away, replaces or alters the TCP RDMA option of a segment, as chance has it.
    fn change_option(&mut self, parcel: &mut Parcel, segment: Segment) {
        use middlebox::rdma_option;
        let (faults, mtu_octets) = (self.impairments.rdma_option, self.mtu_octets());
        let before = self.last_option;
        let own = rdma_option::locate(parcel.frame(), segment);
        if let Some(option) = own.clone() {
            self.last_option = Some(rdma_option::copy(parcel.frame(), option));
        }
        if let Some(option) = own.clone()
            && self.chance(faults.strip)
        {
            self.statistics.options_stripped += 1;
            return rdma_option::strip(parcel.frame_mut(), segment, option);
        }
        if let Some(copied) = before
            && self.chance(faults.replicate)
            && let Some(octets) = rdma_option::put(&mut parcel.buffer, segment, &copied, mtu_octets)
        {
            self.statistics.options_replicated += 1;
            parcel.octets = octets;
            return;
        }
        if let Some(option) = own
            && self.chance(faults.alter)
        {
            self.statistics.options_altered += 1;
            rdma_option::alter(parcel.frame_mut(), segment, option, |bound| self.rng.usize(0..bound));
        }
    }

    /// Joins the frame to the last one on its way, if it continues it.
    fn merge_with_last(&mut self, parcel: &Parcel) -> bool {
        let mtu_octets = self.mtu_octets();
        let Some((_, last)) = self.queue.back_mut() else {
            return false;
        };
        let sound = |segment: Segment| segment.checksums_hold(last.frame());
        if !last.intact || !Segment::locate(last.frame()).is_some_and(sound) {
            return false;
        }
        // Located by its header: the padding of a short frame is overwritten.
        let Some(octets) = middlebox::merge(&mut last.buffer, parcel.frame(), mtu_octets) else {
            return false;
        };
        last.octets = octets.max(MIN_FRAME_OCTETS);
        last.buffer[octets..last.octets].fill(0);
        true
    }

    /// Cuts a segment once, or twice, and carries the pieces.
    fn carry_in_pieces(&mut self, now: Instant, parcel: Parcel, buffers: &mut Buffers) {
        let mut rest = parcel;
        for _ in 0..self.rng.usize(1..=2) {
            let Some(segment) = Segment::locate(rest.frame()) else {
                break;
            };
            if !middlebox::can_split(rest.frame(), segment) {
                break;
            }
            let at = self.cut(segment.payload_octets());
            let mut tail = Parcel { buffer: buffers.take(), ..rest };
            (rest.octets, tail.octets) = middlebox::split(&mut rest.buffer, segment, at, &mut tail.buffer);
            self.statistics.split += 1;
            self.carry(now, core::mem::replace(&mut rest, tail), buffers);
        }
        self.carry(now, rest, buffers);
    }

    /// Returns where to cut a payload of `octets` octets: often right after its first octet or before its
    /// last.
    fn cut(&mut self, octets: usize) -> usize {
        match self.rng.u8(0..8) {
            0 => 1,
            1 => octets - 1,
            _ => self.rng.usize(1..octets),
        }
    }

    /// Drops, damages or duplicates the frame at random, and sends the rest on its way.
    fn carry(&mut self, now: Instant, mut parcel: Parcel, buffers: &mut Buffers) {
        if parcel.octets < MIN_FRAME_OCTETS {
            parcel.buffer[parcel.octets..MIN_FRAME_OCTETS].fill(0);
            parcel.octets = MIN_FRAME_OCTETS;
        }
        if self.chance(self.impairments.loss) {
            self.statistics.lost += 1;
            return buffers.give(parcel.buffer);
        }
        if self.chance(self.impairments.duplicate) {
            self.statistics.duplicated += 1;
            let copy = parcel.copy(buffers);
            self.damage_and_enqueue(now, copy, buffers);
        }
        self.damage_and_enqueue(now, parcel, buffers);
    }

    fn damage_and_enqueue(&mut self, now: Instant, mut parcel: Parcel, buffers: &mut Buffers) {
        if self.chance(self.impairments.corrupt_payload)
            && let Some(segment) = Segment::locate(parcel.frame())
            && middlebox::corrupt_payload(
                parcel.frame_mut(),
                segment,
                self.impairments.corrupt_payload_spares,
                |bound| self.rng.usize(0..bound),
            )
        {
            self.statistics.corrupted_payload += 1;
            parcel.intact = false;
        }
        if self.chance(self.impairments.corrupt_bits) {
            if !middlebox::is_ipv4(parcel.frame()) {
                self.statistics.corrupted_lost += 1;
                return buffers.give(parcel.buffer);
            }
            let bit = self.rng.usize(0..(parcel.octets - ETHERNET_OCTETS) * 8);
            middlebox::invert_bit(parcel.frame_mut(), bit);
            self.statistics.corrupted_bits += 1;
            parcel.intact = false;
        }
        let Some(arrival) = self.schedule(now, &mut parcel) else {
            self.statistics.queue_full += 1;
            return buffers.give(parcel.buffer);
        };
        let behind = self.queue.back().is_none_or(|&(last, _)| last <= arrival);
        if behind {
            self.queue.push_back((arrival, parcel));
        } else {
            let index = self.queue.partition_point(|&(other, _)| other <= arrival);
            self.queue.insert(index, (arrival, parcel));
        }
    }

    /// Marks the frame if the queue is long. Returns when it arrives; `None` if the queue has no room for it.
    fn schedule(&mut self, now: Instant, parcel: &mut Parcel) -> Option<Instant> {
        if self.queue.len() >= self.impairments.in_flight_frames {
            return None;
        }
        let mut departure = now;
        if let Some(rate) = self.impairments.rate_bits_per_second {
            let nanos_for = |octets: u64| octets.saturating_mul(8 * SECOND) / rate.max(1);
            let start = self.line_free.max(now);
            if start - now > nanos_for(self.impairments.queue_octets) {
                return None;
            }
            let full = |octets| start - now > nanos_for(octets);
            if self.impairments.mark_octets.is_some_and(full) && middlebox::mark(parcel.frame_mut()) {
                self.statistics.marked += 1;
            }
            departure = start + nanos_for(parcel.octets as u64 + LINE_OVERHEAD_OCTETS);
            self.line_free = departure;
        }
        let (min, max) = (self.impairments.delay_min_ns, self.impairments.delay_max_ns);
        let delay_ns = if min < max { self.rng.u64(min..=max) } else { min };
        let in_order = (departure + delay_ns).max(self.last_arrival);
        if self.chance(self.impairments.reorder) {
            self.statistics.reordered += 1;
            return Some(
                in_order + parcel.held_ns + self.rng.u64(1..=self.impairments.reorder_delay_ns.max(1)),
            );
        }
        if parcel.held_ns > 0 {
            return Some(in_order + parcel.held_ns);
        }
        self.last_arrival = in_order;
        Some(in_order)
    }
}
