//! Connections on which a Send waits for a receive, because the application asked for that instead of an
//! error.
//!
//! The FPDU stays in TCP's receive queue, complete and verified, and so does everything after it: nothing of
//! that is Delivered, neither Responses nor the peer's FIN. TCP acknowledges the octets as they arrive, so
//! the window closes by as many, the peer probes it, and nothing that was acknowledged is dropped. The wait
//! ends when a receive is posted, or with the error that the Send is without waiting (RFC 5041 §7.1): at its
//! deadline, or earlier when other connections lack the frames held here ([`super::shortage`]).

use crate::tcp::Unusual;

use super::rdmap_stream::RdmapStream;

impl<F> RdmapStream<'_, F> {
    /// Has the next message, which is valid for MPA, [wait](super::receive_wait::ReceiveWait::wait) for a
    /// receive.
    pub(super) fn await_receive(&mut self) {
        // It lets us send, whether or not it is valid for DDP.
        // Requirements: A-08
        self.operating.on_fpdu(&self.qp.shared);
        self.operating.crc_retries = 0;
        self.operating.awaits_receive = true;
        self.tcp.unusual |= Unusual::AWAITS_RECEIVE;
        if self.qp.shared.shares_receives() {
            if !core::mem::replace(&mut self.operating.awaits_shared_receive, true) {
                self.qp.receive_wait.number = self.context.receive_waiters.add(self.id);
            }
            self.qp.shared.await_shared_receive();
        }
    }

    /// Ends the wait of a message for a receive, if it waits and there may be one now. Returns true if it is
    /// to be placed again. The wait keeps its deadline.
    pub(super) fn end_wait_if_ready(&mut self) -> bool {
        self.qp.receiver.has_receive(&self.qp.shared) && self.end_wait()
    }

    /// Ends the wait of a message for a receive, if it waits. Returns true if it is to be placed again: then
    /// it waits on if there is none, until the same deadline.
    pub(super) fn end_wait(&mut self) -> bool {
        let waits = self.awaits_receive();
        if waits {
            self.operating.awaits_receive = false;
        }
        waits
    }

    /// Returns true if the shared receive queue has a receive for a message that waits; `None` if none waits
    /// any more. Without a receive, the queue's next post rings again.
    pub(super) fn has_shared_receive(&self) -> Option<bool> {
        if !self.awaits_receive() {
            return None;
        }
        let ready = self.qp.receiver.has_receive(&self.qp.shared);
        if !ready {
            self.qp.shared.await_shared_receive();
        }
        Some(ready)
    }

    /// Ends the wait of a message for a receive, unless the stream has failed: it finds one now, or is an
    /// error. Returns true if it is to be placed again.
    pub(super) fn expire_wait(&mut self) -> bool {
        if self.operating.failed {
            return false;
        }
        self.operating.awaits_receive = false;
        self.qp.receive_wait.expire();
        true
    }

    /// Removes the connection from the list of those that wait for a shared receive queue.
    pub(super) fn leave_waiters(&mut self) {
        if core::mem::take(&mut self.operating.awaits_shared_receive) {
            self.context.receive_waiters.remove(self.qp.receive_wait.number);
        }
    }

    /// Returns true if a message waits for a receive.
    fn awaits_receive(&self) -> bool {
        self.operating.awaits_receive && !self.operating.failed
    }
}
