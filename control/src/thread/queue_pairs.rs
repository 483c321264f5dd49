//! Queue pairs at the control thread.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_dataplane::core::ring::{Command, ConnectionId};
use warpline_dataplane::memory::ProtectionDomainId;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, QpState, SharedQp};
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::Instant;

use super::names::QpNumbers;
use super::request::Reply;
use super::{Control, LINGER_NS};
use crate::queue_pair::{CreateError, Ending, QpConfig};

/// How far the end of a queue pair has come.
pub(super) enum Destroy {
    /// It lives.
    No,
    /// Its owner has gone, its connection is being closed in an orderly way; by then it goes anyway.
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
    pub(super) destroy: Destroy,
}

/// All queue pairs of a device.
pub(super) struct QueuePairs {
    pub(super) numbers: QpNumbers,
    pub(super) entries: HashMap<QpNumber, QueuePair>,
}

impl QueuePairs {
    /// Binds a queue pair to a connection to be; `false` when it is not free for that.
    pub(super) fn bind(&mut self, number: QpNumber) -> bool {
        match self.entries.get_mut(&number) {
            Some(qp) => !core::mem::replace(&mut qp.bound, true),
            None => false,
        }
    }

    /// Takes [`bind`](Self::bind) back: the connection did not come to Full Operation.
    pub(super) fn unbind(&mut self, number: QpNumber) {
        if let Some(qp) = self.entries.get_mut(&number) {
            qp.bound = false;
            qp.connection = None;
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.entries.values().any(|qp| !matches!(qp.destroy, Destroy::No))
    }

    /// Nobody polls the core any more: nothing that is posted will ever complete.
    pub(super) fn fail_all(&mut self) {
        for qp in self.entries.values() {
            qp.shared.set_error(StreamError::Tcp(CloseReason::Aborted));
            qp.shared.set_state(QpState::Error);
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
    ) -> Result<(Arc<SharedQp>, Arc<Ending>), CreateError> {
        let number = self.queue_pairs.numbers.take().ok_or(CreateError::TooManyQueuePairs)?;
        let shared = Arc::new(SharedQp::new(
            number,
            pd,
            (config.send_depth, config.receive_depth),
            completions,
            self.commands.rings.doorbells.clone(),
        ));
        let ending = Arc::new(Ending::default());
        self.commands.push(Command::CreateQp(shared.clone()));
        let entry = QueuePair {
            shared: shared.clone(),
            ending: ending.clone(),
            config,
            bound: false,
            connection: None,
            destroy: Destroy::No,
        };
        self.queue_pairs.entries.insert(number, entry);
        Ok((shared, ending))
    }

    pub(super) fn destroy_qp(&mut self, now: Instant, number: QpNumber, reply: Reply<()>) {
        let Some(qp) = self.queue_pairs.entries.get_mut(&number) else { return };
        if qp.connection.is_some_and(|id| self.connections.is_finishing(id)) {
            // What was posted before the FIN is still delivered; the buffers stay registered as long.
            qp.destroy = Destroy::AfterClose(now + LINGER_NS);
            self.alarm.set(now + LINGER_NS);
            reply.send(());
        } else {
            qp.destroy = Destroy::Told(Some(reply));
            self.commands.push(Command::DestroyQp(number));
        }
    }

    /// The core has forgotten the queue pair: its number may be given out again.
    pub(super) fn on_qp_destroyed(&mut self, number: QpNumber) {
        let Some(qp) = self.queue_pairs.entries.remove(&number) else { return };
        self.queue_pairs.numbers.give_back(number);
        if let Destroy::Told(Some(reply)) = qp.destroy {
            reply.send(());
        }
    }

    /// The queue pair's connection is over.
    pub(super) fn qp_closed(&mut self, number: QpNumber, reason: CloseReason) {
        let Some(qp) = self.queue_pairs.entries.get_mut(&number) else { return };
        qp.connection = None;
        qp.ending.set(reason);
        if matches!(qp.destroy, Destroy::AfterClose(_)) {
            qp.destroy = Destroy::Told(None);
            self.commands.push(Command::DestroyQp(number));
        }
    }

    pub(super) fn look_at_queue_pairs(&mut self, now: Instant) {
        for (number, qp) in &mut self.queue_pairs.entries {
            match qp.destroy {
                Destroy::AfterClose(at) if now >= at => {
                    qp.destroy = Destroy::Told(None);
                    self.commands.push(Command::DestroyQp(*number));
                }
                Destroy::AfterClose(at) => self.alarm.set(at),
                Destroy::No | Destroy::Told(_) => {}
            }
        }
    }
}
