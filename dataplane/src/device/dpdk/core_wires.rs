//! Wires in memory between two ends with several cores: one for each pair of cores.
//!
//! The core that sends computes which core of the other end owns a segment, as an adapter there would, and
//! puts it on the wire to that core. So each core receives its own flows, and none waits for another's ring.
//! Frames without a flow go to core 0. Between two ends with one core each there is one wire and no sorting.
//!
//! A wire that is full leaves frames with their sender, as one between single cores does: nothing is lost
//! while a core is slow. A core that takes nothing for long must not hold up the flows of others, so its
//! frames are dropped then, and counted.

use std::sync::Arc;

use dpdk::{Eal, Mbuf, Mempool, WireConfig, WireEnd, WireError, wire};

use super::{DpdkDevice, PoolTooSmall};
use crate::limits;
use crate::steering::Steering;
use crate::steering::classify::flow_of_frame;
use crate::time::Instant;
use crate::waker::Waker;

/// The least frames on their way between two cores: a burst.
const FRAMES_MIN: u32 = limits::RECEIVE_BURST_FRAMES as u32;

/// Wires between several cores could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreWiresError {
    /// No memory for a wire.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The buffers do not take a full frame.
    #[error(transparent)]
    PoolTooSmall(#[from] PoolTooSmall),
}

/// Returns the devices of two ends with wires in memory between all their cores: for each end one for each of
/// its `pools`. `steering` says where the cores of an end expect their flows. What a sender may have on its
/// way is `config`'s number of frames, in equal parts for the cores of the other end.
///
/// # Errors
///
/// [`CoreWiresError`].
///
/// # Panics
///
/// If an end has not as many pools as its steering has cores.
pub fn core_wires(
    eal: Eal,
    config: &WireConfig,
    pools: [&[Mempool]; 2],
    steering: [&Arc<Steering>; 2],
) -> Result<[Vec<DpdkDevice>; 2], CoreWiresError> {
    for (pools, steering) in pools.iter().zip(steering) {
        assert_eq!(pools.len(), usize::from(steering.cores()), "a pool for each core");
    }
    let most = pools[0].len().max(pools[1].len()) as u32;
    let frames = config.frames.div_ceil(most).max(FRAMES_MIN.min(config.frames));
    let config = WireConfig { frames, ..*config };
    let mut ends = pools.map(|pools| pools.iter().map(|_| Vec::new()).collect::<Vec<Vec<WireEnd>>>());
    for (near, near_pool) in pools[0].iter().enumerate() {
        for (far, far_pool) in pools[1].iter().enumerate() {
            let (near_end, far_end) = wire(eal, &config, [near_pool, far_pool])?;
            ends[0][near].push(near_end);
            ends[1][far].push(far_end);
        }
    }
    let [near, far] = ends;
    Ok([devices(&config, 0, near, pools[0], steering[1])?, devices(&config, 1, far, pools[1], steering[0])?])
}

/// Returns the devices of the end `own`, whose cores share the buffers of each core that sends to them.
fn devices(
    config: &WireConfig,
    own: usize,
    ends: Vec<Vec<WireEnd>>,
    pools: &[Mempool],
    there: &Arc<Steering>,
) -> Result<Vec<DpdkDevice>, CoreWiresError> {
    let device = |(wires, pool): (Vec<WireEnd>, &Mempool)| {
        let device = DpdkDevice::wires(config, config.macs[own], wires, there.clone(), pool.clone())?;
        Ok(device.sharing_frames(pools.len()))
    };
    ends.into_iter().zip(pools).map(device).collect()
}

/// The wires of one core, to each core of the other end in their order; more than one.
pub(super) struct CoreWires {
    wires: Vec<WireEnd>,
    /// Where the cores of the other end expect their flows.
    there: Arc<Steering>,
    /// The wire that is received from first.
    first: usize,
    /// The core of each frame that is being sent.
    owners: Vec<u8>,
    /// The frames that are being sent, by core.
    sorted: Vec<Vec<Mbuf>>,
    /// For each core the frames of a burst that are its.
    wanted: Vec<usize>,
    /// Since when the wire to each core has been full, and nothing was taken from it.
    full_since: Vec<Option<Instant>>,
    /// Frames dropped because the core that they are for takes none.
    stalled_frames: u64,
}

impl core::fmt::Debug for CoreWires {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CoreWires").field("wires", &self.wires.len()).finish_non_exhaustive()
    }
}

impl CoreWires {
    pub(super) fn new(wires: Vec<WireEnd>, there: Arc<Steering>) -> Self {
        assert!(
            wires.len() == usize::from(there.cores()),
            "{} wires to {} cores",
            wires.len(),
            there.cores()
        );
        let frames = wires.iter().map(|wire| wire.config().frames as usize).max().unwrap_or_default();
        let cores = wires.len();
        Self {
            wires,
            there,
            first: 0,
            owners: Vec::with_capacity(frames * cores),
            sorted: (0..cores).map(|_| Vec::with_capacity(frames)).collect(),
            wanted: vec![0; cores],
            full_since: vec![None; cores],
            stalled_frames: 0,
        }
    }

    pub(super) const fn stalled_frames(&self) -> u64 {
        self.stalled_frames
    }

    pub(super) fn unsent_frames(&self) -> u64 {
        self.wires.iter().map(|wire| wire.statistics().unsent_frames()).sum()
    }

    /// Whether frames have arrived from any core. An adapter would have one queue to look at.
    // Never inlined, as those of a wire: what wires take is counted apart from what their users do.
    #[inline(never)]
    pub(super) fn has_arrivals(&self) -> bool {
        self.wires.iter().any(WireEnd::has_arrivals)
    }

    /// Takes frames off the wires in turn, so that no core's frames wait for another's.
    // Never inlined, as above.
    #[inline(never)]
    pub(super) fn receive(&mut self, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        let mut taken = 0;
        for _ in 0..self.wires.len() {
            let wire = &mut self.wires[self.first];
            if wire.has_arrivals() {
                taken += wire.receive(frames, limit - taken);
            }
            self.first = if self.first + 1 == self.wires.len() { 0 } else { self.first + 1 };
            if taken == limit {
                break;
            }
        }
        taken
    }

    /// Takes frames from the front of `frames` until one comes for whose core there is no room.
    #[inline(never)]
    pub(super) fn transmit(&mut self, now: Instant, frames: &mut Vec<Mbuf>) -> usize {
        let offered = frames.len().min(self.owners.capacity());
        self.find_owners(&frames[..offered]);
        let taken = self.admit(now);
        if taken == frames.len()
            && let Some(only) = self.wanted.iter().position(|wanted| *wanted == taken)
        {
            return self.wires[only].transmit(frames);
        }
        for (frame, owner) in frames.drain(..taken).zip(&self.owners) {
            match self.sorted.get_mut(usize::from(*owner)) {
                Some(sorted) => sorted.push(frame),
                None => self.stalled_frames += 1,
            }
        }
        for (wire, sorted) in self.wires.iter_mut().zip(&mut self.sorted) {
            if !sorted.is_empty() {
                wire.transmit(sorted);
                debug_assert!(sorted.is_empty(), "there was room for all of them");
            }
        }
        taken
    }

    fn find_owners(&mut self, frames: &[Mbuf]) {
        self.owners.clear();
        self.wanted.fill(0);
        // The frames of a flow come one after the other.
        let mut last = None;
        for frame in frames {
            let flow = flow_of_frame(frame.first());
            let owner = match last {
                Some((known, owner)) if known == flow => owner,
                _ => flow.map_or(0, |flow| self.there.owner(&flow)),
            };
            last = Some((flow, owner));
            self.owners.push(owner);
            self.wanted[usize::from(owner)] += 1;
        }
    }

    /// Returns how many of the frames, from the first on, are taken. Those for cores that take none get no
    /// owner: they are dropped.
    fn admit(&mut self, now: Instant) -> usize {
        let mut all_fit = true;
        for ((wire, wanted), full_since) in self.wires.iter().zip(&mut self.wanted).zip(&mut self.full_since)
        {
            let room = if *wanted > 0 { wire.room(*wanted) } else { continue };
            all_fit &= room == *wanted;
            // From here on it is the room that is left.
            *wanted = room;
            if room > 0 {
                *full_since = None;
            }
        }
        if all_fit { self.owners.len() } else { self.admit_some(now) }
    }

    /// As [`admit`](Self::admit), where not every frame has room.
    #[cold]
    fn admit_some(&mut self, now: Instant) -> usize {
        for (index, owner) in self.owners.iter_mut().enumerate() {
            let core = usize::from(*owner);
            if let Some(room) = self.wanted[core].checked_sub(1) {
                self.wanted[core] = room;
                continue;
            }
            let since = *self.full_since[core].get_or_insert(now);
            if now.nanos_since(since) < limits::CORE_STALL_NS {
                return index;
            }
            *owner = STALLED;
        }
        self.owners.len()
    }

    /// Has each core of the other end wake the thread when it has sent frames.
    pub(super) fn wake_on_arrival(&self, waker: &Arc<Waker>) {
        for wire in &self.wires {
            let waker = waker.clone();
            wire.on_arrival(move || waker.wake());
        }
    }
}

/// The owner of frames whose core takes none. No core has this number.
const STALLED: u8 = u8::MAX;
