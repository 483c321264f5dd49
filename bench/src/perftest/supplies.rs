//! What the queue pairs of an end share while messages have one size: the Protection Domain, the bytes of
//! messages, and the receives if they come from one queue.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use warpline::{
    Access, CompletionQueue, CompletionQueueControl, Device, MemoryRegion, ProtectionDomain,
    SharedCompletionQueue, limits,
};

use super::content::Content;
use super::plan::{ATOMIC_BYTES, ATOMIC_WORDS, Plan, Verb};
use super::receives::{Buffers, SharedReceives};
use super::settings::Settings;
use crate::error::BenchError;

/// What the queue pairs of an end share.
pub struct Supplies {
    /// What the test does.
    pub plan: Plan,
    /// The Protection Domain.
    pub domain: ProtectionDomain,
    /// The bytes of messages.
    pub content: Arc<Content>,
    source: OnceLock<Arc<MemoryRegion>>,
    /// Where the messages of all queue pairs go, if that is one region.
    sink: OnceLock<Arc<MemoryRegion>>,
    shared_receives: OnceLock<SharedReceives>,
    /// The completion queue that queue pairs report to together; `None` if each has its own.
    together: Option<Mutex<Together>>,
}

/// The completion queues of many queue pairs: one, or as many as hold what is outstanding on all of them.
struct Together {
    /// Queue pairs that have none yet.
    queue_pairs: usize,
    /// The last queue, and how many more queue pairs it has room for.
    last: Option<SharedCompletionQueue>,
    room: usize,
}

impl Together {
    /// Returns the queue for another queue pair, which has `capacity` requests at a time.
    fn assign(&mut self, capacity: usize) -> SharedCompletionQueue {
        let last = self.last.take().filter(|_| self.room > 0).unwrap_or_else(|| {
            self.room = self.queue_pairs.clamp(1, (limits::COMPLETIONS_PER_QUEUE / capacity).max(1));
            SharedCompletionQueue::new(CompletionQueue::new(self.room * capacity))
        });
        self.room -= 1;
        self.queue_pairs = self.queue_pairs.saturating_sub(1);
        self.last.insert(last).clone()
    }
}

/// The completion queue of a queue pair.
pub enum Completions {
    /// Its own.
    Own(CompletionQueue),
    /// That of many queue pairs of a plan.
    Shared(SharedCompletionQueue),
}

impl Completions {
    /// Returns the queue, to make a queue pair that reports to it.
    pub fn control(&self) -> &CompletionQueueControl {
        match self {
            Self::Own(queue) => queue,
            Self::Shared(queue) => queue,
        }
    }
}

impl Supplies {
    /// Returns what the queue pairs of `plan` share on `device`.
    pub fn new(device: &Device, plan: &Plan) -> Self {
        Self {
            plan: *plan,
            domain: device.protection_domain(),
            content: Arc::new(Content::new(plan.size)),
            source: OnceLock::new(),
            sink: OnceLock::new(),
            shared_receives: OnceLock::new(),
            together: None,
        }
    }

    /// The same, where `queue_pairs` queue pairs report to one completion queue if they are more than one, or
    /// to a few.
    #[must_use]
    pub fn reporting_together(self, queue_pairs: usize) -> Self {
        let together = Together { queue_pairs, last: None, room: 0 };
        Self { together: (queue_pairs > 1).then(|| Mutex::new(together)), ..self }
    }

    /// Returns the completion queue of a queue pair that has `capacity` requests at a time.
    pub fn completions(&self, capacity: usize) -> Completions {
        match &self.together {
            None => Completions::Own(CompletionQueue::new(capacity)),
            Some(together) => {
                let mut together = together.lock().unwrap_or_else(PoisonError::into_inner);
                Completions::Shared(together.assign(capacity))
            }
        }
    }

    /// Returns the bytes that all queue pairs of `plan` share, at most: the content, the source region that
    /// it fills, the region that messages go to if it is one, and receives that come from one queue.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`] if the receives are too many.
    pub fn shared_bytes(plan: &Plan, settings: &Settings) -> Result<u64, BenchError> {
        let receives = if shares_receives(plan, settings) { Buffers::shape(plan, settings)?.1 } else { 0 };
        let sink = if plan.one_region { plan.sink_bytes() as u64 } else { 0 };
        Ok(2 * Content::len_for(plan.size) as u64 + sink + receives)
    }

    /// Returns the bytes that each queue pair of `plan` has for itself at the end that listens.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`] if the receives are too many.
    pub fn own_bytes(plan: &Plan, settings: &Settings) -> Result<u64, BenchError> {
        let sink = plan.sink_bytes() as u64;
        match plan.verb {
            Verb::Write | Verb::Read if plan.one_region => Ok(0),
            Verb::Write | Verb::Read => Ok(sink),
            Verb::Send if shares_receives(plan, settings) => Ok(0),
            Verb::Send => Ok(Buffers::shape(plan, settings)?.1),
            Verb::FetchAdd | Verb::CompareSwap => Ok(sink + u64::from(plan.depth * ATOMIC_BYTES)),
        }
    }

    /// Returns the memory that the messages of the plan come from at this end, or that takes their answers.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`].
    pub fn local(&self) -> Result<Arc<MemoryRegion>, BenchError> {
        match self.plan.verb {
            Verb::Write | Verb::Send => self.source(Access::empty()),
            Verb::Read => self.sink(Access::LOCAL_WRITE),
            Verb::FetchAdd | Verb::CompareSwap => {
                self.allocate(self.plan.depth as usize * ATOMIC_BYTES as usize, Access::LOCAL_WRITE)
            }
        }
    }

    /// Returns the memory that the other end's messages of the plan work on; `None` for Sends, which go to
    /// the buffers of receives.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`].
    pub fn exposed(&self) -> Result<Option<Arc<MemoryRegion>>, BenchError> {
        let bytes = self.plan.sink_bytes();
        match self.plan.verb {
            Verb::Write => self.sink(Access::REMOTE_WRITE).map(Some),
            Verb::Read => self.source(Access::REMOTE_READ).map(Some),
            Verb::Send => Ok(None),
            Verb::FetchAdd | Verb::CompareSwap => self.allocate(bytes, Access::REMOTE_ATOMIC).map(Some),
        }
    }

    /// Returns the receives that all queue pairs take from one queue, if that was asked for.
    ///
    /// # Errors
    ///
    /// [`BenchError::Memory`], [`BenchError::Setup`].
    pub fn shared_receives(&self, settings: &Settings) -> Result<Option<SharedReceives>, BenchError> {
        if !shares_receives(&self.plan, settings) {
            return Ok(None);
        }
        if let Some(shared) = self.shared_receives.get() {
            return Ok(Some(shared.clone()));
        }
        let shared = SharedReceives::new(&self.domain, &self.plan, settings)?;
        Ok(Some(self.shared_receives.get_or_init(|| shared).clone()))
    }

    /// Returns the memory that the messages of a queue pair go to.
    fn sink(&self, access: Access) -> Result<Arc<MemoryRegion>, BenchError> {
        if !self.plan.one_region {
            return self.allocate(self.plan.sink_bytes(), access);
        }
        if let Some(sink) = self.sink.get() {
            return Ok(sink.clone());
        }
        let sink = self.allocate(self.plan.sink_bytes(), access)?;
        Ok(self.sink.get_or_init(|| sink).clone())
    }

    fn source(&self, access: Access) -> Result<Arc<MemoryRegion>, BenchError> {
        if let Some(source) = self.source.get() {
            return Ok(source.clone());
        }
        let source = self.allocate(self.content.bytes().len(), access)?;
        let fits = source.write(0, self.content.bytes());
        debug_assert!(fits, "the source has the content's length");
        Ok(self.source.get_or_init(|| source).clone())
    }

    fn allocate(&self, bytes: usize, access: Access) -> Result<Arc<MemoryRegion>, BenchError> {
        let memory = self.domain.allocate(bytes, access);
        memory.map(Arc::new).map_err(|error| BenchError::Memory(error.to_string()))
    }

    /// Returns the sum of the words that the other end's Atomic Operations count in.
    pub fn sum_of_words(memory: &MemoryRegion) -> u64 {
        (0..ATOMIC_WORDS as usize)
            .filter_map(|word| {
                let mut value = [0; ATOMIC_BYTES as usize];
                memory.read(word * value.len(), &mut value).then(|| u64::from_ne_bytes(value))
            })
            .fold(0, u64::wrapping_add)
    }
}

/// Returns true if all queue pairs of `plan` take their receives from one queue: those beside a test of Sends
/// have none but their own.
fn shares_receives(plan: &Plan, settings: &Settings) -> bool {
    settings.receiving.use_srq && plan.verb == Verb::Send
}

/// How long the bytes of a ping may take to become right after its last one has arrived.
pub const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Queue pairs share as few queues as hold what all of them have outstanding.
    #[test]
    fn completion_queues_have_room_for_all() {
        let assigned = |queue_pairs, capacity| {
            let mut together = Together { queue_pairs, last: None, room: 0 };
            let queues = (0..queue_pairs).map(|_| together.assign(capacity)).collect::<Vec<_>>();
            let mut sizes: Vec<(usize, usize)> = Vec::new();
            let mut before = None;
            for queue in queues {
                if before.replace(queue.number()) != Some(queue.number()) {
                    sizes.push((0, queue.capacity()));
                }
                sizes.last_mut().unwrap().0 += 1;
            }
            sizes
        };
        assert_eq!(assigned(100, 16), [(100, 1600)]);
        let (all, most) = (limits::COMPLETIONS_PER_QUEUE, limits::COMPLETIONS_PER_QUEUE / 1000);
        assert_eq!(assigned(most, 1000), [(most, most * 1000)]);
        assert_eq!(assigned(2 * most + 1, 1000), [(most, most * 1000), (most, most * 1000), (1, 1000)]);
        assert_eq!(assigned(2, all), [(1, all), (1, all)]);
        assert_eq!(assigned(2, all + 1), [(1, all), (1, all)], "no queue is larger");
    }
}
