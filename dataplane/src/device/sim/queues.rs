//! An end with several devices, one for each core of a host: an adapter that spreads what arrives among its
//! queues, or one with a single queue.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Parcel, Shared, SimDevice};
use crate::device::Capabilities;
use crate::device::path::Buffers;
use crate::device::path::middlebox::ETHERNET_OCTETS;
use crate::device::spread::classify::{Content, classify};
use crate::steering::Steering;
use crate::time::Instant;

/// Frames that a queue holds; those beyond are dropped.
const QUEUE_FRAMES: usize = 1024;

/// The queues of an end.
pub(super) struct EndQueues {
    spreading: Arc<Steering>,
    /// Frames that have arrived in each.
    arrived: Vec<VecDeque<Parcel>>,
}

impl EndQueues {
    /// Puts a frame that has arrived into its queue. Returns false if that is full.
    fn put(&mut self, parcel: Parcel, buffers: &mut Buffers) -> bool {
        let queue = usize::from(self.queue_of(parcel.frame()));
        let queue = &mut self.arrived[queue];
        if queue.len() >= QUEUE_FRAMES {
            buffers.give(parcel.buffer);
            return false;
        }
        queue.push_back(parcel);
        true
    }

    /// Returns the queue of a frame. As adapters do, it spreads other packets by some of their octets too:
    /// fragments, ICMP.
    fn queue_of(&self, frame: &[u8]) -> u8 {
        match classify(frame) {
            Content::Segment(flow) => self.spreading.owner(&flow),
            Content::QuotedSegment(_) | Content::Other => {
                let header = &frame[ETHERNET_OCTETS..frame.len().min(ETHERNET_OCTETS + 20)];
                header.iter().fold(0, |sum: u8, octet| sum.wrapping_add(*octet)) % self.spreading.cores()
            }
        }
    }

    /// Returns how many queues there are.
    pub(super) fn count(&self) -> usize {
        self.arrived.len()
    }

    fn frames(&self) -> usize {
        self.arrived.iter().map(VecDeque::len).sum()
    }
}

impl SimDevice {
    /// Makes this end one with a queue for each core of `spreading`, as an adapter that computes what that
    /// says. Returns the device of each queue.
    #[must_use]
    pub fn queues(self, spreading: &Arc<Steering>) -> Vec<Self> {
        let count = usize::from(spreading.cores());
        let queues = EndQueues {
            spreading: spreading.clone(),
            arrived: (0..count).map(|_| VecDeque::new()).collect(),
        };
        self.network.lock().queues[self.end.index()] = Some(queues);
        self.sharing(count)
    }

    /// Returns `count` devices of this end. If it has a single queue, only one of them is to receive.
    #[must_use]
    pub fn sharing(self, count: usize) -> Vec<Self> {
        self.network.lock().wakers[self.end.index()].resize(count, None);
        // Each may keep its part.
        let frames = self.capabilities.frames / count;
        let capabilities = Capabilities { frames, ..self.capabilities };
        (0..count).map(|queue| Self { queue, network: self.network.clone(), capabilities, ..self }).collect()
    }
}

impl Shared {
    /// Removes and returns the next frame that has arrived by `now` in a queue of the end `to`.
    pub(super) fn arrive(&mut self, now: Instant, to: usize, queue: usize) -> Option<Parcel> {
        let path = &mut self.paths[1 - to];
        let Some(queues) = &mut self.queues[to] else { return path.arrive(now) };
        while let Some(parcel) = path.arrive(now) {
            if !queues.put(parcel, &mut self.buffers) {
                path.statistics.no_buffer += 1;
            }
        }
        queues.arrived[queue].pop_front()
    }

    /// Returns when the next frame for the end `to` arrives, which may be in any queue, or has arrived in
    /// this one.
    pub(super) fn next_arrival(&self, to: usize, queue: usize) -> Option<Instant> {
        match &self.queues[to] {
            Some(queues) if !queues.arrived[queue].is_empty() => Some(Instant::ZERO),
            _ => self.paths[1 - to].next_arrival(),
        }
    }

    /// Returns how many frames for the end `to` have not been received.
    pub(super) fn in_flight(&self, to: usize) -> usize {
        self.paths[1 - to].in_flight() + self.queues[to].as_ref().map_or(0, EndQueues::frames)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::path::sample::Sample;
    use super::super::{EndConfig, Impairments, link};
    use super::*;
    use crate::device::{Device, Frame};

    /// Each frame is received once, in the queue that the steering names, in the order of its flow.
    #[test]
    fn an_end_with_queues_spreads_what_arrives() {
        let steering = Arc::new(Steering::new(4, 128, |key| fastrand::Rng::with_seed(3).fill(key)));
        let outbound = Impairments { delay_min_ns: 0, delay_max_ns: 0, ..Impairments::default() };
        let (mut peer, end) = link(1, EndConfig { outbound, ..EndConfig::a() }, EndConfig::b());
        let network = peer.network();
        let mut queues = end.queues(&steering);
        for sequence in 0..200 {
            let octets =
                Sample { sequence, source_port: 1000 + sequence as u16 % 20, ..Sample::default() }.frame();
            let mut frame = peer.allocate().expect("a free buffer");
            frame.append(octets.len()).expect("room").copy_from_slice(&octets);
            peer.transmit(Instant::ZERO, &mut vec![frame]);
        }
        let mut received = Vec::new();
        assert_eq!(queues[3].receive(Instant::ZERO, &mut received, 0), 0);
        for (core, queue) in queues.iter_mut().enumerate() {
            assert_eq!(queue.next_arrival(), Some(Instant::ZERO));
            received.clear();
            assert!(queue.receive(Instant::ZERO, &mut received, 200) > 10);
            let mut last = [0; 20];
            for frame in &received {
                let octets = frame.piece(0).expect("octets");
                let Content::Segment(flow) = classify(octets) else { panic!("a segment") };
                assert_eq!(usize::from(steering.owner(&flow)), core);
                let sequence = u32::from_be_bytes(*octets[38..].first_chunk().expect("a segment"));
                let last = &mut last[sequence as usize % 20];
                assert!(sequence >= *last);
                *last = sequence;
            }
            assert_eq!(queue.next_arrival(), None);
        }
        assert_eq!(network.in_flight(peer.end()), 0);
        assert_eq!(network.statistics(peer.end()).delivered, 200);
    }
}
