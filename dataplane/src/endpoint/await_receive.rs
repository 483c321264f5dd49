//! Connections on which a Send waits for a receive, because the application asked for that instead of an
//! error.
//!
//! The FPDU stays in TCP's receive queue, complete and verified, and so does everything after it: nothing of
//! that is Delivered, neither Responses nor the peer's FIN. TCP acknowledges the octets as they arrive, so
//! the window closes by as many, the peer probes it, and nothing that was acknowledged is dropped. The wait
//! ends when a receive is posted, or with the error that the Send is without waiting (RFC 5041 §7.1): at its
//! deadline, or earlier when other connections lack the frames held here ([`super::shortage`]).

use crate::device::Frame;
use crate::tcp::Unusual;
use crate::time::Instant;

use super::Endpoint;
use super::connection::Mode;
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

    /// Returns true if a message waits for a receive and there is one.
    fn has_awaited_receive(&self) -> bool {
        self.operating.awaits_receive
            && !self.operating.failed
            && self.qp.receiver.has_receive(&self.qp.shared)
    }
}

impl<F: Frame> Endpoint<'_, F> {
    /// Returns when a message that waits for a receive is an error.
    pub(super) fn receive_due(&self) -> Instant {
        match &self.queue_pair {
            Some(qp) if self.connection.awaits_receive() => qp.receive_wait.until,
            _ => Instant::NEVER,
        }
    }

    /// Resumes a message that waits for a receive, if there may be one now. The wait keeps its deadline.
    pub(crate) fn resume_if_ready(&mut self) {
        if let Some(stream) = self.rdmap()
            && stream.has_awaited_receive()
        {
            stream.operating.awaits_receive = false;
            self.resume_receive();
        }
    }

    /// Returns true if the shared receive queue has a receive for a message that waits; `None` if none waits
    /// any more. Without a receive, the queue's next post rings again.
    pub(crate) fn has_shared_receive(&mut self) -> Option<bool> {
        let stream =
            self.rdmap().filter(|stream| stream.operating.awaits_receive && !stream.operating.failed)?;
        let ready = stream.qp.receiver.has_receive(&stream.qp.shared);
        if !ready {
            stream.qp.shared.await_shared_receive();
        }
        Some(ready)
    }

    /// Ends the wait of a message for a receive: it finds one now, or the stream fails.
    pub(super) fn expire_receive_wait(&mut self) {
        if let Some(stream) = self.rdmap()
            && !stream.operating.failed
        {
            stream.operating.awaits_receive = false;
            stream.qp.receive_wait.expire();
            self.resume_receive();
        }
    }

    /// Records that the connection is out of the list of those that wait for a shared receive queue.
    pub(crate) fn on_unlisted(&mut self) {
        if let Mode::FullOperation(operating) = &mut self.connection.mode {
            operating.awaits_shared_receive = false;
        }
    }

    /// Removes the connection from the list of those that wait for a shared receive queue.
    pub(super) fn leave_shared_receive_waiters(&mut self) {
        if let Mode::FullOperation(operating) = &mut self.connection.mode
            && core::mem::take(&mut operating.awaits_shared_receive)
            && let Some(qp) = self.queue_pair.as_deref()
        {
            self.context.receive_waiters.remove(qp.receive_wait.number);
        }
    }
}
