//! Queue pairs at the control thread.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_dataplane::core::ring::{Command, ConnectionId, FullOperation};
use warpline_dataplane::limits;
use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::qp::shared::{CompletionRing, QpState, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::Instant;

use super::names::QpNumbers;
use super::request::Reply;
use super::{Control, LINGER_NS};
use crate::engine::quota::{Holdings, Quotas};
use crate::handles::driver::nanos;
use crate::handles::queue_pair::{CreateError, Ending, Halves, QpConfig, RnrPolicy};

/// How far the end of a queue pair has come whose owner has gone.
enum Destroy {
    /// Its connection is being closed in an orderly way; by then it goes anyway.
    AfterClose(Instant),
    /// The core was told.
    Told(Option<Reply<()>>),
}

/// What control knows of a queue pair.
pub(super) struct QueuePair {
    pub(super) shared: Arc<SharedQp>,
    pub(super) ending: Arc<Ending>,
    pub(super) config: QpConfig,
    /// It is or was connected, or a connection for it is being opened. A queue pair serves one connection.
    pub(super) bound: bool,
    pub(super) connection: Option<ConnectionId>,
}

/// All queue pairs of a device.
pub(super) struct QueuePairs {
    numbers: QpNumbers,
    pub(super) entries: HashMap<QpNumber, QueuePair>,
    /// Those whose owners have gone.
    leaving: HashMap<QpNumber, Destroy>,
    /// Whose they are.
    pub(super) domains: Holdings<ProtectionDomainId, QpNumber>,
}

impl QueuePairs {
    pub(super) fn new(quotas: &Quotas) -> Self {
        let domains = Holdings::new(quotas.queue_pairs_per_domain);
        Self { numbers: QpNumbers::new(), entries: HashMap::new(), leaving: HashMap::new(), domains }
    }

    /// What control knows of just this queue pair, and not of another one that has its number by now (DDP-8.2-01).
    pub(super) fn of(&self, qp: &Arc<SharedQp>) -> Option<&QueuePair> {
        self.entries.get(&qp.number).filter(|entry| Arc::ptr_eq(&entry.shared, qp))
    }

    pub(super) fn of_mut(&mut self, qp: &Arc<SharedQp>) -> Option<&mut QueuePair> {
        self.entries.get_mut(&qp.number).filter(|entry| Arc::ptr_eq(&entry.shared, qp))
    }

    /// Binds a queue pair to a connection to be; `false` when it is not free for that.
    pub(super) fn bind(&mut self, qp: &Arc<SharedQp>) -> bool {
        self.of_mut(qp).is_some_and(|entry| !core::mem::replace(&mut entry.bound, true))
    }

    /// Whether the queue pair is there, and is to stay.
    pub(super) fn is_there(&self, qp: &Arc<SharedQp>) -> bool {
        self.of(qp).is_some() && !self.leaving.contains_key(&qp.number)
    }

    /// Takes [`bind`](Self::bind) back: the connection did not come to Full Operation.
    pub(super) fn unbind(&mut self, qp: &Arc<SharedQp>) {
        if let Some(entry) = self.of_mut(qp) {
            entry.bound = false;
            entry.connection = None;
        }
    }

    /// `operation` as `qp`, whose it is, is set up for it.
    pub(super) fn adapt(&self, qp: &Arc<SharedQp>, operation: FullOperation) -> FullOperation {
        match self.of(qp).map(|entry| entry.config) {
            // C00-7.3-02: an operation may rule packing out.
            Some(QpConfig { packing, crc_retries, rnr, .. }) => FullOperation {
                packing: operation.packing && packing,
                crc_retries,
                receive_wait_ns: match rnr {
                    RnrPolicy::Terminate => None,
                    RnrPolicy::Wait { timeout } => Some(nanos(timeout)),
                },
                ..operation
            },
            None => operation,
        }
    }

    /// Whether the core has brought the queue pair's connection to Full Operation.
    pub(super) fn has_switched(&self, qp: &Arc<SharedQp>) -> bool {
        self.of(qp).is_some_and(|entry| entry.shared.state() != QpState::Idle)
    }

    /// Nobody polls the core any more: nothing that is posted will ever complete.
    pub(super) fn fail_all(&mut self) {
        for qp in self.entries.values() {
            qp.shared.abandon();
            qp.ending.set(CloseReason::Aborted);
        }
    }
}

impl Control {
    pub(super) fn create_qp(
        &mut self,
        pd: ProtectionDomainId,
        config: QpConfig,
        completions: (Arc<CompletionRing>, Arc<CompletionRing>),
        receives: Option<Arc<SharedReceiveQueue>>,
    ) -> Result<Halves, CreateError> {
        // Before anything is allocated: one careless value must not cost others their device.
        let (depth, most) = (config.send_depth.max(config.receive_depth), limits::WORK_REQUESTS_PER_QUEUE);
        if depth > most {
            return Err(CreateError::TooDeep { depth, most });
        }
        // DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03
        if !self.queue_pairs.domains.has_room(pd) {
            return Err(CreateError::Quota);
        }
        let number = self.queue_pairs.numbers.take().ok_or(CreateError::TooManyQueuePairs)?;
        self.queue_pairs.domains.take(pd, number);
        let depths = (config.send_depth, config.receive_depth);
        let doorbells = self.commands.rings.doorbells.clone();
        let mut shared =
            SharedQp::new(number, pd, depths, completions, doorbells).with_events(self.events.clone());
        if let Some(receives) = receives {
            shared = shared.with_shared_receives(receives);
        }
        let shared = Arc::new(shared);
        let ending = Arc::new(Ending::default());
        self.commands.push(Command::CreateQp(shared.clone()));
        let entry = QueuePair {
            shared: shared.clone(),
            ending: ending.clone(),
            config,
            bound: false,
            connection: None,
        };
        self.queue_pairs.entries.insert(number, entry);
        Ok((shared, ending))
    }

    pub(super) fn destroy_qp(&mut self, now: Instant, number: QpNumber, reply: Reply<()>) {
        let Some(qp) = self.queue_pairs.entries.get(&number) else { return };
        // The core sees to the Terminate of a stream that has failed, and needs nothing of the queue pair for
        // that.
        let orderly = !qp.shared.state().is_over();
        let destroy = if orderly && qp.connection.is_some_and(|id| self.connections.is_finishing(id)) {
            // What was posted before the FIN is still delivered; the buffers stay registered as long.
            reply.send(());
            self.alarm.set(now + LINGER_NS);
            Destroy::AfterClose(now + LINGER_NS)
        } else {
            self.commands.push(Command::DestroyQp(number));
            Destroy::Told(Some(reply))
        };
        self.queue_pairs.leaving.insert(number, destroy);
    }

    /// The core has forgotten the queue pair: its number may be given out again.
    pub(super) fn on_qp_destroyed(&mut self, number: QpNumber) {
        if self.queue_pairs.entries.remove(&number).is_some() {
            self.queue_pairs.numbers.give_back(number);
            self.queue_pairs.domains.give_back(&number);
        }
        if let Some(Destroy::Told(Some(reply))) = self.queue_pairs.leaving.remove(&number) {
            reply.send(());
        }
    }

    /// The queue pair's connection is over.
    pub(super) fn qp_closed(&mut self, qp: &Arc<SharedQp>, reason: CloseReason) {
        let Some(entry) = self.queue_pairs.of_mut(qp) else { return };
        entry.connection = None;
        entry.ending.set(reason);
        if let Some(destroy @ Destroy::AfterClose(_)) = self.queue_pairs.leaving.get_mut(&qp.number) {
            *destroy = Destroy::Told(None);
            self.commands.push(Command::DestroyQp(qp.number));
        }
    }

    pub(super) fn look_at_queue_pairs(&mut self, now: Instant) {
        for (number, destroy) in &mut self.queue_pairs.leaving {
            match *destroy {
                Destroy::AfterClose(at) if now >= at => {
                    *destroy = Destroy::Told(None);
                    self.commands.push(Command::DestroyQp(*number));
                }
                Destroy::AfterClose(at) => self.alarm.set(at),
                Destroy::Told(_) => {}
            }
        }
    }
}
