//! Tests of the spreading of frames over cores.

mod classification;
mod frames;
mod random;
mod receiving;
mod sending;
mod waking;

use std::sync::Arc;

use super::classify::{Content, classify};
use super::{Queues, Spread, spread};
use crate::device::sim::{EndConfig, Impairments, Network, SimDevice, SimFrame, link};
use crate::device::{Device, Frame};
use crate::steering::Steering;
use crate::time::Instant;

const NOW: Instant = Instant::from_nanos(1);

/// Returns the steering among `cores` cores that follows from `seed`.
fn steering(cores: u8, seed: u64) -> Arc<Steering> {
    let mut rng = fastrand::Rng::with_seed(seed);
    Arc::new(Steering::new(cores, 128, |key| rng.fill(key)))
}

/// The devices of the cores of an end, and the end that sends them frames.
struct Bench {
    cores: Vec<Spread<SimDevice>>,
    peer: SimDevice,
    network: Network,
    steering: Arc<Steering>,
    /// Frames that a core has found no room for when it handed them over.
    refused: u64,
}

impl Bench {
    /// Returns devices by `steering`, whose adapter spreads by `adapter`; without one it has one queue.
    fn new(steering: &Arc<Steering>, adapter: Option<&Arc<Steering>>) -> Self {
        Self::with_frames(steering, adapter, usize::MAX)
    }

    /// As [`new`](Self::new), with devices that have so many frames.
    fn with_frames(steering: &Arc<Steering>, adapter: Option<&Arc<Steering>>, frame_limit: usize) -> Self {
        let queues = if adapter.is_some() { Queues::PerCore } else { Queues::One };
        Self::with_queues(steering, queues, adapter, frame_limit)
    }

    /// Returns devices with a queue each, filled by `adapter`, of which the cores know nothing.
    fn unsorted(steering: &Arc<Steering>, adapter: &Arc<Steering>) -> Self {
        Self::with_queues(steering, Queues::Unsorted, Some(adapter), usize::MAX)
    }

    fn with_queues(
        steering: &Arc<Steering>,
        queues: Queues,
        adapter: Option<&Arc<Steering>>,
        frame_limit: usize,
    ) -> Self {
        let outbound = Impairments { delay_min_ns: 0, delay_max_ns: 0, ..Impairments::default() };
        let end = EndConfig { frame_limit, outbound, ..EndConfig::a() };
        let (end, peer) = link(1, end, EndConfig { outbound, ..EndConfig::b() });
        let network = end.network();
        let cores = match adapter {
            Some(adapter) => spread(end.queues(adapter), queues, steering),
            None => spread(end.sharing(steering.cores().into()), queues, steering),
        };
        Self { cores, peer, network, steering: steering.clone(), refused: 0 }
    }

    /// Puts frames on the wire.
    fn inject<'a>(&mut self, frames: impl IntoIterator<Item = &'a Vec<u8>>) {
        for octets in frames {
            transmit(&mut self.peer, octets);
        }
    }

    /// Polls one core once. Returns the octets of what it receives for itself. What else comes to a core, but
    /// segments, it hands over as a host does.
    fn poll(&mut self, core: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        assert_eq!(self.cores[core].receive(NOW, &mut frames, 32), frames.len());
        assert!(frames.len() <= 32, "within the limit");
        let mut received = Vec::new();
        for frame in frames {
            let octets = octets_of(&frame);
            let owner = expected_core(&self.steering, &octets);
            if owner == core || matches!(classify(&octets), Content::Segment(_)) {
                received.push(octets);
            } else {
                self.refused += u64::from(self.cores[core].hand_over(owner as u8, frame).is_err());
            }
        }
        received
    }

    /// Polls all cores, core 0 first, until none may have frames. Returns what each has received.
    fn poll_all(&mut self) -> Vec<Vec<Vec<u8>>> {
        let mut received = vec![Vec::new(); self.cores.len()];
        while self.cores.iter().any(|core| core.next_arrival().is_some()) {
            for (core, received) in received.iter_mut().enumerate() {
                received.extend(self.poll(core));
            }
        }
        received
    }

    /// Returns how many frames the cores have dropped.
    fn dropped(&self) -> u64 {
        self.refused + self.cores.iter().map(Device::frames_not_handed_over).sum::<u64>()
    }
}

/// Returns the core that is to have a frame.
fn expected_core(steering: &Steering, octets: &[u8]) -> usize {
    match classify(octets) {
        Content::Segment(flow) | Content::QuotedSegment(flow) => steering.owner(&flow).into(),
        Content::Other => 0,
    }
}

/// Returns the octets of a frame, without the padding of the link.
fn octets_of(frame: &SimFrame) -> Vec<u8> {
    frame.piece(0).expect("a piece").to_vec()
}

/// Sends a frame. Returns true if the device has taken it.
fn transmit<D: Device<Frame = SimFrame>>(device: &mut D, octets: &[u8]) -> bool {
    let mut frame = device.allocate().expect("a free buffer");
    frame.append(octets.len()).expect("room").copy_from_slice(octets);
    device.transmit(NOW, &mut vec![frame]) == 1
}
