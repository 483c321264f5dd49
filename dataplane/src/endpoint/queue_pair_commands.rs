//! Commands for a queue pair, with or without a connection.

use std::sync::Arc;

use crate::device::Frame;
use crate::memory::{ChangeId, ChangeResult};
use crate::qp::shared::{QpState, SharedQp};
use crate::ring::Event;
use crate::tcp::CloseReason;
use crate::time::Instant;

use super::endpoints::Endpoints;
use super::queue_pair::QueuePair;

impl<F: Frame> Endpoints<F> {
    /// Ends a queue pair that never had a connection.
    pub(crate) fn end_queue_pair(&mut self, shared: &Arc<SharedQp>) {
        let core = self.table.core();
        let Self { queue_pairs, context, .. } = self;
        let (stags, placed) = (&mut context.stags, &mut context.placed_sends);
        match queue_pairs.add(shared.clone(), core) {
            Some(qp) => qp.end(stags, placed, CloseReason::Aborted),
            // There is no slot, so no doorbell would lead to what is posted later.
            None if shared.home().is_none() => {
                shared.set_last_core(core);
                shared.refuse_posts();
                QueuePair::new(shared.clone()).end(stags, placed, CloseReason::Aborted);
            }
            None => debug_assert!(false, "{:?} has begun", shared.number),
        }
        self.context.events.push(Event::QpEnded(shared.number));
    }

    /// Destroys a queue pair, with the stream that it has.
    pub(crate) fn destroy_queue_pair(&mut self, now: Instant, shared: Arc<SharedQp>) {
        let number = shared.number;
        let home = shared.home();
        // Nobody but its own core may touch its queues; of one that was never at a core, the core that
        // control asks.
        let core = self.table.core();
        if home.is_some_and(|home| home.core != core) {
            debug_assert!(false, "core {core} destroys the queue pair at {home:?}");
            return;
        }
        if home.is_none() {
            shared.set_last_core(core);
        }
        let at_core = home.and_then(|home| self.queue_pairs.at_mut(home.slot));
        if let Some(id) = at_core.and_then(|qp| qp.connection) {
            self.with_named(now, id, |mut endpoint| endpoint.lose_queue_pair());
        }
        let context = &mut self.context;
        // One without a stream has receives to flush.
        let at_core = self.queue_pairs.remove(&shared);
        let mut qp = at_core.unwrap_or_else(|| QueuePair::new(shared));
        debug_assert!(qp.connection.is_none(), "its connection has lost it");
        // No doorbell leads to it any more: work posted now would never be flushed.
        qp.shared.refuse_posts();
        qp.shared.set_state(QpState::Error);
        qp.flush(&mut context.stags, &mut context.placed_sends, None);
        // Another queue pair will have its number.
        context.stags.end_stream(number.0);
        context.events.push(Event::QpDestroyed(number));
    }

    /// Ends a change of memory by a work request, if its queue pair is there: the work request completes, or
    /// fails.
    pub(crate) fn end_change(&mut self, id: ChangeId, result: ChangeResult) {
        if let Some(qp) = self.queue_pairs.at_mut(id.slot()) {
            qp.sender.end_change(id, result, &qp.shared, &mut self.context.stags);
            qp.shared.ring();
        }
    }
}
