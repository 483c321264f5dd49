//! The receives of a queue pair: buffers for Sends, and places for words.

use std::sync::Arc;

use warpline::{
    Access, MemoryRegion, ProtectionDomain, QueuePair, ReceiveRequest, SharedReceiveQueue, SliceList,
};

use super::plan::{Plan, Verb};
use super::settings::Settings;
use crate::error::BenchError;

/// Receives for words alone.
pub const WORDS: usize = 16;
/// The most receives for Sends without --rx-depth: as many as perftest has.
const USUAL_MAX: u32 = 512;
/// Bytes of all receives' buffers, at most.
const BYTES_MAX: u64 = 1 << 32;

/// The buffers of receives.
#[derive(Clone)]
pub struct Buffers {
    memory: Arc<MemoryRegion>,
    size: u32,
    count: usize,
}

impl Buffers {
    /// Allocates the buffers for the Sends of `plan`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`].
    pub fn new(domain: &ProtectionDomain, plan: &Plan, settings: &Settings) -> Result<Self, BenchError> {
        let (count, bytes) = Self::shape(plan, settings)?;
        let memory = domain.allocate(bytes as usize, Access::LOCAL_WRITE);
        let memory = memory.map_err(|error| BenchError::Memory(error.to_string()))?;
        Ok(Self { memory: Arc::new(memory), size: plan.size, count: count as usize })
    }

    /// Returns how many buffers there are for the Sends of `plan`, and their bytes.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`] if they are too many.
    pub fn shape(plan: &Plan, settings: &Settings) -> Result<(u32, u64), BenchError> {
        let usual = (plan.region / plan.size).clamp(2, USUAL_MAX);
        let count = settings.receiving.rx_depth.unwrap_or(usual);
        let bytes = u64::from(count) * u64::from(plan.size);
        if bytes > BYTES_MAX {
            return Err(BenchError::Memory(format!("{count} receives of {} bytes", plan.size)));
        }
        Ok((count, bytes))
    }

    /// Returns their memory.
    pub const fn memory(&self) -> &Arc<MemoryRegion> {
        &self.memory
    }

    /// Returns the offset of the buffer of receive `id`.
    pub const fn offset(&self, id: u64) -> usize {
        id as usize * self.size as usize
    }
}

/// Receives that all queue pairs of an end take from one queue.
#[derive(Clone)]
pub struct SharedReceives {
    queue: SharedReceiveQueue,
    buffers: Buffers,
}

impl SharedReceives {
    /// Returns a queue with all receives posted.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`], [`BenchError::Setup`].
    pub fn new(domain: &ProtectionDomain, plan: &Plan, settings: &Settings) -> Result<Self, BenchError> {
        let buffers = Buffers::new(domain, plan, settings)?;
        let queue = domain.shared_receive_queue(buffers.count);
        let receives = Receives { buffers: Some(buffers.clone()), shared: None, returned: Vec::new() };
        let all: Vec<_> = (0..buffers.count).map(|id| receives.request(id as u64)).collect();
        queue.post_many(&all).map_err(|error| BenchError::Setup(error.to_string()))?;
        Ok(Self { queue, buffers })
    }

    /// Returns the queue.
    pub const fn queue(&self) -> &SharedReceiveQueue {
        &self.queue
    }
}

/// The receives of a queue pair.
pub struct Receives {
    /// Buffers for Sends; without them receives take words alone.
    buffers: Option<Buffers>,
    shared: Option<SharedReceiveQueue>,
    /// Receives to post again.
    returned: Vec<ReceiveRequest>,
}

impl Receives {
    /// Returns the receives of a queue pair which the plan sends to, if `arriving`.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`].
    pub fn new(
        domain: &ProtectionDomain,
        plan: &Plan,
        settings: &Settings,
        arriving: bool,
        shared: Option<SharedReceives>,
    ) -> Result<Self, BenchError> {
        let (buffers, shared) = match shared {
            Some(SharedReceives { queue, buffers }) => (Some(buffers), Some(queue)),
            None if arriving && plan.verb == Verb::Send => {
                (Some(Buffers::new(domain, plan, settings)?), None)
            }
            None => (None, None),
        };
        let mut receives = Self { buffers, shared, returned: Vec::new() };
        receives.returned.reserve_exact(receives.count());
        Ok(receives)
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.buffers.as_ref().map_or(WORDS, |buffers| buffers.count)
    }

    /// Returns the buffers.
    pub const fn buffers(&self) -> Option<&Buffers> {
        self.buffers.as_ref()
    }

    /// Posts all of them to a new queue pair, unless they come from a queue that has them already.
    ///
    /// # Errors
    ///
    /// The reason why they were not taken, in words.
    pub fn post_all(&mut self, qp: &QueuePair) -> Result<(), String> {
        if self.shared.is_some() {
            return Ok(());
        }
        (0..self.count() as u64).for_each(|id| self.give_back(id));
        self.post(qp)
    }

    /// Takes back the receive `id`, to be posted again.
    #[inline]
    pub fn give_back(&mut self, id: u64) {
        let request = self.request(id);
        self.returned.push(request);
    }

    /// Posts what was given back.
    ///
    /// # Errors
    ///
    /// The reason why they were not taken, in words.
    #[inline]
    pub fn post(&mut self, qp: &QueuePair) -> Result<(), String> {
        if self.returned.is_empty() {
            return Ok(());
        }
        let posted = match &self.shared {
            Some(queue) => queue.post_many(&self.returned),
            None => qp.post_receives(&self.returned),
        };
        self.returned.clear();
        posted.map_err(|error| error.to_string())
    }

    #[inline]
    fn request(&self, id: u64) -> ReceiveRequest {
        match &self.buffers {
            Some(buffers) => ReceiveRequest::new(id, buffers.memory.slice(buffers.offset(id), buffers.size)),
            None => ReceiveRequest::new(id, SliceList::default()),
        }
    }
}
