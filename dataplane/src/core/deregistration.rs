//! Deregistration: memory becomes unreachable, unless something uses it. It takes several polls where many
//! queue pairs have posted requests.

use crate::endpoint::{Context, Endpoints};
use crate::limits;
use crate::memory::{ProtectionDomainId, RemoveError, STag};
use crate::qp::shared::Doorbells;
use crate::ring::Event;

/// How memory is to be deregistered.
#[derive(Clone, Copy)]
pub(super) enum Manner {
    /// If nothing uses it.
    IfUnused,
    /// Not yet: control asks whether anything uses it, by an attempt of this number.
    Probe(u32),
}

impl Manner {
    /// Returns what control is answered.
    const fn answer(self, stag: STag, result: Result<(), RemoveError>) -> Event {
        match self {
            Self::IfUnused => Event::Deregistered { stag, result },
            Self::Probe(attempt) => Event::Probed { stag, attempt, result },
        }
    }
}

/// A deregistration: posted requests are accepted that may use the memory.
pub(super) struct Deregistration {
    stag: STag,
    manner: Manner,
    /// The Protection Domain of the memory.
    owner: ProtectionDomainId,
    /// The next [word](Doorbells::rung) of doorbells to look at.
    word: usize,
    /// A queue pair of the domain has posted requests that cannot be accepted yet, and may use the memory.
    is_used: bool,
}

impl Deregistration {
    /// Begins to deregister the memory that `stag` names, which [`go_on`](Self::go_on) does; answers control
    /// if there is none.
    pub(super) fn begin<F>(context: &mut Context<F>, stag: STag, manner: Manner) -> Option<Self> {
        let Some(owner) = context.stags.owner(stag) else {
            context.events.push(manner.answer(stag, Err(RemoveError::Unknown)));
            return None;
        };
        Some(Self { stag, manner, owner, word: 0, is_used: false })
    }

    /// Accepts what was posted, and then deregisters the memory and answers control. Returns false if the
    /// next poll is to go on.
    pub(super) fn go_on<F>(&mut self, endpoints: &mut Endpoints<F>, doorbells: &Doorbells) -> bool {
        let is_done = self.accept_posted(endpoints, doorbells);
        if is_done {
            self.end(&mut endpoints.context);
        }
        is_done
    }

    /// Accepts requests that were posted before a deregistration: they read from the memory too. Returns
    /// false if the next poll is to go on.
    ///
    /// A posted request is accepted already, or the doorbell of its queue pair rings, or it was found then
    /// that it has to wait ([`Unaccepted`](crate::endpoint::Unaccepted)): no other queue pair is looked at.
    fn accept_posted<F>(&mut self, endpoints: &mut Endpoints<F>, doorbells: &Doorbells) -> bool {
        let Endpoints { table, queue_pairs, context } = endpoints;
        let mut left = limits::QUEUE_PAIRS_VISITED_TOGETHER;
        while self.word < doorbells.words() {
            let word = self.word;
            let mut bits = doorbells.rung(word) | context.unaccepted.word(word);
            if bits != 0 && left == 0 {
                return false;
            }
            left = left.saturating_sub(bits.count_ones());
            self.word += 1;
            while bits != 0 {
                let slot = word as u32 * u64::BITS + bits.trailing_zeros();
                bits &= bits - 1;
                let found = queue_pairs.at_mut(slot);
                match found.filter(|qp| !qp.shared.state().is_over()) {
                    Some(qp) if qp.shared.pd == self.owner => {
                        context.unaccepted.remove(slot);
                        qp.accept_posted(&mut context.stags, &mut context.unaccepted);
                        self.is_used |= qp.sender.may_be_posted(&qp.shared);
                        if let Some(connection) = qp.connection.and_then(|id| table.get_mut(id)) {
                            connection.expect_work();
                        }
                    }
                    Some(_) => {}
                    None => context.unaccepted.remove(slot),
                }
            }
        }
        true
    }

    fn end<F>(&self, context: &mut Context<F>) {
        let result = match self.manner {
            _ if self.is_used => Err(RemoveError::InUse),
            Manner::IfUnused => context.stags.remove(self.stag),
            Manner::Probe(_) => context.stags.check_unused(self.stag),
        };
        context.events.push(self.manner.answer(self.stag, result));
    }
}
