//! Which core gets a frame that a queue has received.

use std::sync::Arc;

use super::classify::{Content, classify, has_ipv4_options};
use crate::device::{ChecksumStatus, Frame, ReceivedChecksums};
use crate::limits;
use crate::steering::Steering;
use crate::sync::{AtomicBool, Ordering};
use crate::wire::flow::Flow;

/// The core that gets what is of no flow.
pub(super) const HOST_CORE: u8 = 0;

/// How frames are steered, for all cores of a device.
#[derive(Debug)]
pub(super) struct SteeringState {
    pub steering: Arc<Steering>,
    /// The adapter brings flows elsewhere than `steering` says: each queue sorts what it receives. Never
    /// cleared.
    adapter_differs: AtomicBool,
}

impl SteeringState {
    pub(super) fn new(steering: Arc<Steering>) -> Self {
        Self { steering, adapter_differs: AtomicBool::new(false) }
    }

    /// Returns true if an adapter was found to bring flows elsewhere.
    #[inline]
    pub(super) fn adapter_differs(&self) -> bool {
        self.adapter_differs.load(Ordering::Relaxed)
    }

    /// Records that the adapter brings flows elsewhere.
    #[cold]
    pub(super) fn record_difference(&self) {
        self.adapter_differs.store(true, Ordering::Relaxed);
    }
}

/// Tells how the queues of a device are steered while others poll it.
#[derive(Clone, Debug)]
pub struct SteeringWatch(Arc<SteeringState>);

impl SteeringWatch {
    /// Returns true once the adapter was found to bring flows to other cores than the steering says.
    pub fn adapter_differs(&self) -> bool {
        self.0.adapter_differs()
    }
}

/// Which segments of a queue are sorted.
#[derive(Clone, Copy, Debug)]
enum Segments {
    /// All of them: nothing else has done it.
    All,
    /// Those that the adapter may have brought to the wrong queue. So many are compared yet with what the
    /// steering says.
    Misplaced { uncompared: usize },
}

/// Sorts what the queue of one core receives.
#[derive(Debug)]
pub(super) struct Sorter {
    core: u8,
    state: Arc<SteeringState>,
    segments: Segments,
}

impl Sorter {
    /// Returns the sorter of a queue that nobody has sorted for: the only one, or one of several that are
    /// filled in a way that is not known.
    pub(super) const fn of_unsorted_queue(core: u8, state: Arc<SteeringState>) -> Self {
        Self { core, state, segments: Segments::All }
    }

    /// Returns the sorter of one of several queues, among which the adapter spreads segments.
    pub(super) const fn of_adapter_queue(core: u8, state: Arc<SteeringState>) -> Self {
        let uncompared = limits::FRAMES_COMPARED_WITH_ADAPTER;
        Self { core, state, segments: Segments::Misplaced { uncompared } }
    }

    /// Returns true if frames are to be sorted. Else the core's queue has its own segments only: the core
    /// looks at each frame anyway, and [hands over](crate::device::Device::hand_over) what is not for it.
    #[inline]
    pub(super) fn is_sorting(&self) -> bool {
        match self.segments {
            Segments::All => true,
            Segments::Misplaced { uncompared } => {
                uncompared > 0 || self.state.adapter_differs() || self.state.steering.has_overrides()
            }
        }
    }

    /// Returns the core that gets `frame`.
    #[inline]
    pub(super) fn core_of(&mut self, frame: &impl Frame) -> u8 {
        match frame.piece(0).map_or(Content::Other, classify) {
            Content::Segment(flow) => {
                let owner = self.state.steering.owner(&flow);
                if matches!(self.segments, Segments::Misplaced { uncompared: 1.. }) {
                    self.compare(frame, &flow, owner);
                }
                owner
            }
            Content::QuotedSegment(flow) => self.state.steering.owner(&flow),
            Content::Other => HOST_CORE,
        }
    }

    /// Compares the queue that a segment came to with that of its owner.
    fn compare(&mut self, frame: &impl Frame, flow: &Flow, owner: u8) {
        let Segments::Misplaced { uncompared } = &mut self.segments else { return };
        // An adapter does not know of the ports that are restricted to a core.
        let is_restricted = self.state.steering.restricted_to(flow.destination_port()).is_some();
        if is_restricted || !is_hashed(frame) {
            return;
        }
        *uncompared -= 1;
        if owner != self.core {
            self.state.record_difference();
        }
    }

    /// Takes note of a frame that its core hands to `core` unsorted. A replica that does so with a segment
    /// has got it from the adapter, which therefore has another table, though the first frames were where
    /// they should be: there were too few flows. The host core also hands over what it has reassembled.
    #[cold]
    pub(super) fn on_handed_over(&self, core: u8, frame: &impl Frame) {
        if matches!(self.segments, Segments::Misplaced { .. })
            && self.core != HOST_CORE
            && !self.state.steering.has_overrides()
            && let Some(Content::Segment(flow)) = frame.piece(0).map(classify)
            && self.state.steering.owner(&flow) == core
            && is_hashed(frame)
        {
            self.state.record_difference();
        }
    }

    /// Returns how to ask that from elsewhere.
    pub(super) fn watch(&self) -> SteeringWatch {
        SteeringWatch(self.state.clone())
    }

    /// Returns true if the adapter was found to bring flows elsewhere than the steering says.
    #[inline]
    pub(super) fn adapter_differs(&self) -> bool {
        self.state.adapter_differs()
    }
}

/// Returns true if every adapter hashes the addresses and ports of a segment: it has no options of IPv4, and
/// its checksums are not known to be wrong. Else a stranger could send one, and have all others sorted. A
/// frame whose IP header does not fit a segment is not [classified](classify) as one.
fn is_hashed(frame: &impl Frame) -> bool {
    let ReceivedChecksums { ip, tcp } = frame.checksums();
    let is_bad = ip == ChecksumStatus::Bad || tcp == ChecksumStatus::Bad;
    !is_bad && !frame.piece(0).is_some_and(has_ipv4_options)
}
