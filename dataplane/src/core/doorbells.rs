//! Doorbells: applications have posted work, or receives.

use arrayvec::ArrayVec;

use crate::device::Frame;
use crate::endpoint::Endpoints;
use crate::limits;
use crate::qp::shared::{Doorbells, QpState};
use crate::time::Instant;

use super::look_ahead;

/// The doorbells of a core in one poll, and the endpoints that they ring for.
pub(super) struct RungDoorbells<'c, F> {
    /// The time of the poll.
    pub now: Instant,
    pub doorbells: &'c Doorbells,
    pub endpoints: &'c mut Endpoints<F>,
}

impl<F: Frame> RungDoorbells<'_, F> {
    /// Serves the queue pairs that have rung. Returns true if there were any.
    pub(super) fn serve_queue_pairs(&mut self) -> bool {
        let mut rung = ArrayVec::<u32, { limits::DOORBELLS_PER_POLL }>::new();
        while !rung.is_full()
            && let Some(slot) = self.doorbells.dequeue()
        {
            rung.push(slot);
        }
        if look_ahead::is_useful(&self.endpoints.table) && rung.len() > 1 {
            look_ahead::fetch_rung(self.endpoints, &rung);
        }
        let has_rung = !rung.is_empty();
        for slot in rung {
            self.serve_queue_pair(slot);
        }
        has_rung
    }

    fn serve_queue_pair(&mut self, slot: u32) {
        // A queue pair may be destroyed after it has rung.
        let Some(qp) = self.endpoints.queue_pairs.at_mut(slot) else { return };
        match qp.connection {
            Some(id) => {
                let Some(mut endpoint) = self.endpoints.named(self.now, id) else { return };
                let outcome = endpoint.on_doorbell();
                if !endpoint.connection.tcp.unusual.is_empty() {
                    endpoint.connection.review();
                }
                self.endpoints.schedule_if_due(id.slot(), outcome);
            }
            // Posted while the stream of the queue pair ended.
            None if qp.shared.state() == QpState::Error => {
                let context = &mut self.endpoints.context;
                qp.flush(&mut context.stags, &mut context.placed_sends, None);
            }
            None => {}
        }
    }

    /// Serves the byte streams that have rung.
    pub(super) fn serve_byte_streams(&mut self) {
        for _ in 0..limits::DOORBELLS_PER_POLL {
            let Some(slot) = self.doorbells.dequeue_byte_stream() else { return };
            // A stream may ring after its connection has ended.
            if self.endpoints.table.at(slot).is_some()
                && let Some(mut endpoint) = self.endpoints.at(self.now, slot)
            {
                let outcome = endpoint.on_byte_stream_bell();
                self.endpoints.apply(slot, outcome);
            }
        }
        self.doorbells.leave_others();
    }

    /// Begins a pass over the connections that wait for a shared receive queue, one of which has rung.
    /// Returns false if the next poll is to go on.
    pub(super) fn serve_shared_receives(&mut self) -> bool {
        self.endpoints.context.receive_waiters.begin_pass();
        self.resume_receive_waiters()
    }

    /// Hands out receives that were posted to shared receive queues which connections wait for. The longest
    /// wait is served first; a connection that then waits again is the last. Returns false if the next poll
    /// is to go on.
    pub(super) fn resume_receive_waiters(&mut self) -> bool {
        let mut resumed = 0;
        for _ in 0..limits::RECEIVE_WAITERS_VISITED_PER_POLL {
            let Some((number, id)) = self.endpoints.context.receive_waiters.next_to_visit() else { break };
            let ready =
                self.endpoints.named(self.now, id).and_then(|mut endpoint| endpoint.has_shared_receive());
            if ready == Some(true) && resumed == limits::RECEIVES_RESUMED_PER_POLL {
                return false;
            }
            self.endpoints.context.receive_waiters.record_visit(number);
            if ready == Some(false) {
                continue;
            }
            self.endpoints.context.receive_waiters.remove(number);
            resumed += usize::from(ready.is_some());
            self.endpoints.with_named(self.now, id, |mut endpoint| endpoint.on_unlisted());
        }
        !self.endpoints.context.receive_waiters.is_passing()
    }
}
