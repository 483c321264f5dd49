//! Revocation: memory becomes unreachable at once, and the connections that read from it are reset. It takes
//! several polls where there are many queue pairs.

use crate::device::Frame;
use crate::endpoint::{Context, Endpoints};
use crate::limits;
use crate::memory::{ProtectionDomainId, RemoveError, STag};
use crate::ring::Event;
use crate::time::Instant;

/// A revocation of memory that grants nothing new any more: queue pairs are looked through for those that
/// read from it.
pub(super) struct Revocation {
    stag: STag,
    /// The Protection Domain of the memory.
    owner: ProtectionDomainId,
    /// The slot of the next queue pair to look at.
    slot: u32,
}

impl Revocation {
    /// Begins to revoke the memory that `stag` names, which [`go_on`](Self::go_on) does; answers control if
    /// there is none, or it has windows.
    pub(super) fn begin<F>(context: &mut Context<F>, stag: STag) -> Option<Self> {
        let error = match context.stags.owner(stag) {
            Some(owner) if !context.stags.has_windows(stag) => {
                // Requests that are accepted later find that it is not registered.
                context.stags.revoke(stag);
                return Some(Self { stag, owner, slot: 0 });
            }
            Some(_) => RemoveError::WindowsBound,
            None => RemoveError::Unknown,
        };
        context.events.push(Event::Deregistered { stag, result: Err(error) });
        None
    }

    /// Resets the connections of queue pairs that read from the memory, and then deregisters it and answers
    /// control. Returns false if the next poll is to go on.
    pub(super) fn go_on<F: Frame>(&mut self, now: Instant, endpoints: &mut Endpoints<F>) -> bool {
        let is_done = self.end_readers(now, endpoints);
        if is_done {
            let result = endpoints.context.stags.remove(self.stag);
            endpoints.context.events.push(Event::Deregistered { stag: self.stag, result });
        }
        is_done
    }

    /// Resets the connections of queue pairs that read from memory, until none does. Returns false if the
    /// next poll is to go on.
    ///
    /// Nothing new reads from it, so a queue pair that does not read from it now never will.
    fn end_readers<F: Frame>(&mut self, now: Instant, endpoints: &mut Endpoints<F>) -> bool {
        let mut left = limits::REQUESTS_VISITED_PER_POLL;
        while endpoints.context.stags.check_unused(self.stag) == Err(RemoveError::InUse) {
            if left == 0 {
                return false;
            }
            if self.slot as usize >= endpoints.queue_pairs.slots() {
                debug_assert!(false, "the queue pairs that read from memory are here");
                return true;
            }
            let qp = endpoints.queue_pairs.peek(self.slot);
            self.slot += 1;
            left -= 1;
            let Some(qp) = qp.filter(|qp| qp.shared.pd == self.owner) else { continue };
            left = left.saturating_sub(qp.requests());
            if let Some(id) = qp.connection.filter(|_| qp.reads_from(self.stag)) {
                endpoints.with_named(now, id, |mut endpoint| endpoint.abort());
            }
        }
        true
    }
}
