//! The device while it runs, and programs' objects by the numbers that it knows them by, for its events.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use warpline::cm::{EventChannel, EventKind, IdNumber};
use warpline::{CqNumber, Device, QpNumber, SharedQueuePair, SrqNumber, Turns};

use crate::abi::{
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR,
};
use crate::polled::PolledQueue;

/// A device with what programs have made on it.
pub(crate) struct Running {
    pub(crate) device: Device,
    /// The turns at it of the program's threads.
    pub(crate) turns: Turns,
    /// Makes ids, and has what happens to them.
    pub(crate) ids: EventChannel,
    pub(crate) registry: Registry,
    /// The program's pointer to the Protection Domain of ids that have been given none.
    pub(crate) shared_domain: OnceLock<usize>,
}

/// An object that asynchronous events are about.
pub(crate) trait Reports: Send + Sync {
    /// Brings an event of this number (`enum ibv_event_type`) to the program.
    fn report(&self, kind: u32);
}

/// An id that events of the connection manager are about.
pub(crate) trait ReportsConnections: Send + Sync {
    /// Brings an event to the program.
    fn report(self: Arc<Self>, kind: EventKind);
}

/// A queue pair that events and connections may be about.
pub(crate) struct ListedQueuePair {
    pub(crate) queue_pair: SharedQueuePair,
    reports: Arc<dyn Reports>,
    /// The program has got the event of its failure, and that of its last receive.
    told: [bool; 2],
}

impl ListedQueuePair {
    pub(crate) fn new(queue_pair: SharedQueuePair, reports: Arc<dyn Reports>) -> Self {
        Self { queue_pair, reports, told: [false; 2] }
    }

    /// Returns true if the program has got every event of its end that there can be.
    pub(crate) const fn has_told_all(&self) -> bool {
        matches!(self.told, [true, true])
    }

    /// Brings an event to the program: each of its end once.
    pub(crate) fn report(&mut self, kind: u32) {
        let told = match kind {
            IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => &mut self.told[0],
            IBV_EVENT_QP_LAST_WQE_REACHED => &mut self.told[1],
            _ => &mut false,
        };
        if !mem::replace(told, true) {
            self.reports.report(kind);
        }
    }
}

/// Objects by number. What is destroyed is removed first, so no event reaches it.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Objects>);

/// The objects.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) ids: HashMap<IdNumber, Arc<dyn ReportsConnections>>,
    pub(crate) queue_pairs: HashMap<QpNumber, ListedQueuePair>,
    pub(crate) completion_queues: HashMap<CqNumber, Arc<dyn Reports>>,
    pub(crate) receive_queues: HashMap<SrqNumber, Arc<dyn Reports>>,
    pub(crate) contexts: Vec<Arc<dyn Reports>>,
    /// The completion queues of destroyed queue pairs whose number no other has yet.
    pub(crate) left_out: HashMap<QpNumber, [Weak<PolledQueue>; 2]>,
}

impl Registry {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all connections.
    pub(crate) fn disconnect_all(&self) {
        for listed in self.lock().queue_pairs.values() {
            listed.queue_pair.disconnect();
        }
    }
}
