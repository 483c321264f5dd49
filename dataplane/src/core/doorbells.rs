//! Doorbells: applications have posted work, or receives.

use arrayvec::ArrayVec;

use crate::device::Device;
use crate::endpoint::Outcome;
use crate::limits;
use crate::qp::shared::QpState;
use crate::time::Instant;

use super::Core;

impl<D: Device> Core<D> {
    /// Serves the doorbells that were rung. Returns true if there were any.
    #[inline]
    pub(super) fn serve_doorbells(&mut self, now: Instant) -> bool {
        !self.rings.doorbells.is_empty() && self.serve_rung_doorbells(now)
    }

    #[inline(never)]
    fn serve_rung_doorbells(&mut self, now: Instant) -> bool {
        let mut busy = self.rings.doorbells.clear_others();
        if busy {
            if self.rings.doorbells.clear_shared_receives() {
                self.endpoints.context.receive_waiters.begin_pass();
                self.walks_on |= !self.resume_receive_waiters(now);
            }
            self.serve_byte_streams(now);
        }
        let mut rung = ArrayVec::<u32, { limits::DOORBELLS_PER_POLL }>::new();
        while !rung.is_full()
            && let Some(slot) = self.rings.doorbells.dequeue()
        {
            rung.push(slot);
        }
        if self.looks_ahead() && rung.len() > 1 {
            self.fetch_rung(&rung);
        }
        busy |= !rung.is_empty();
        for slot in rung {
            self.serve_doorbell(now, slot);
        }
        busy
    }

    fn serve_doorbell(&mut self, now: Instant, slot: u32) {
        // A queue pair may be destroyed after it has rung.
        let Some(qp) = self.endpoints.queue_pairs.at_mut(slot) else { return };
        match qp.connection {
            Some(id) => {
                let Some(mut endpoint) = self.endpoints.named(now, id) else { return };
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
    fn serve_byte_streams(&mut self, now: Instant) {
        for _ in 0..limits::DOORBELLS_PER_POLL {
            let Some(slot) = self.rings.doorbells.dequeue_byte_stream() else { return };
            // A stream may ring after its connection has ended.
            if self.endpoints.table.at(slot).is_some()
                && let Some(mut endpoint) = self.endpoints.at(now, slot)
            {
                let outcome = endpoint.on_byte_stream_bell();
                self.endpoints.apply(slot, outcome);
            }
        }
        self.rings.doorbells.leave_others();
    }

    /// Hands out receives that were posted to shared receive queues which connections wait for. The longest
    /// wait is served first; a connection that then waits again is the last. Returns false if the next poll
    /// is to go on.
    pub(super) fn resume_receive_waiters(&mut self, now: Instant) -> bool {
        let mut resumed = 0;
        for _ in 0..limits::RECEIVE_WAITERS_VISITED_PER_POLL {
            let Some((number, id)) = self.endpoints.context.receive_waiters.next_to_visit() else { break };
            let ready = self.endpoints.named(now, id).and_then(|mut endpoint| endpoint.has_shared_receive());
            if ready == Some(true) && resumed == limits::RECEIVES_RESUMED_PER_POLL {
                return false;
            }
            self.endpoints.context.receive_waiters.record_visit(number);
            if ready == Some(false) {
                continue;
            }
            self.endpoints.context.receive_waiters.remove(number);
            resumed += usize::from(ready.is_some());
            self.endpoints.with_named(now, id, |mut endpoint| {
                endpoint.on_unlisted();
                endpoint.resume_if_ready();
                Outcome::SCHEDULE
            });
        }
        !self.endpoints.context.receive_waiters.is_passing()
    }
}
