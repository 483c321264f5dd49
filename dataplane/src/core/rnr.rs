//! Connections on which a Send waits for a receive, because the application asked for that instead of an
//! error.
//!
//! The FPDU stays in TCP's receive queue, whole and verified, and with it all that follows: nothing behind it
//! is Delivered, neither Responses nor the peer's FIN. Its octets are acknowledged as they come, so the
//! window closes by what waits, the peer probes it, and nothing that was acknowledged is dropped. The wait
//! ends when a receive is posted, or with the error that it is without waiting (RFC 5041 §7.1): at its
//! deadline, or earlier when the frames held here are what others lack ([`super::shortage`]).

use super::Core;
use super::connection::{Connection, Mode};
use super::queue_pairs::QueuePairs;
use super::ring::ConnectionId;
use super::stream::Step;
use crate::device::Device;
use crate::limits;
use crate::time::Instant;

/// How long messages of a stream may wait for a receive.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWait {
    /// How long one may wait, in nanoseconds; `None` if it is an error at once.
    allowed_ns: Option<u64>,
    /// When the message that waits is an error; `NEVER` while none does.
    until: Instant,
}

impl ReceiveWait {
    /// No message waits. Each may, for `allowed_ns` nanoseconds.
    pub const fn new(allowed_ns: Option<u64>) -> Self {
        Self { allowed_ns, until: Instant::NEVER }
    }

    /// Whether messages may wait.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.allowed_ns.is_some()
    }

    /// The next message has no receive at `now`. Returns `None` if its time is over, or else whether it has
    /// only begun to wait.
    pub fn wait(&mut self, now: Instant) -> Option<bool> {
        let allowed_ns = self.allowed_ns?;
        let begins = self.until == Instant::NEVER;
        if begins {
            // A deadline that is never reached differs from none.
            self.until = (now + allowed_ns).min(Instant::from_nanos(u64::MAX - 1));
        }
        (now < self.until).then_some(begins)
    }

    /// The next message has its receive, or needs none.
    #[inline]
    pub const fn served(&mut self) {
        self.until = Instant::NEVER;
    }

    /// The message that waits has waited long enough.
    const fn expire(&mut self) {
        self.until = Instant::ZERO;
    }
}

impl Connection {
    /// Whether a message waits for a receive.
    pub const fn awaits_receive(&self) -> bool {
        match &self.mode {
            Mode::FullOperation(operating) => operating.awaits_receive && !operating.failed,
            Mode::Streaming | Mode::Lingering { .. } => false,
        }
    }

    /// Whether it is in the list of those that wait for a shared receive queue.
    pub const fn awaits_shared_receive(&self) -> bool {
        matches!(&self.mode, Mode::FullOperation(operating) if operating.awaits_shared_receive)
    }

    /// When a message that waits for a receive is an error.
    pub(super) fn receive_due(&self, qps: &QueuePairs) -> Instant {
        if !self.awaits_receive() {
            return Instant::NEVER;
        }
        self.qp().and_then(|qp| qps.get(qp)).map_or(Instant::NEVER, |qp| qp.receive_wait.until)
    }
}

impl<D: Device> Core<D> {
    /// The next message of a connection, which is valid for MPA, [waits](ReceiveWait::wait) for a receive.
    pub(super) fn await_receive(&mut self, index: u32) -> Step {
        let id = self.id(index);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return Step::Wait };
        let Mode::FullOperation(operating) = &mut connection.mode else { return Step::Wait };
        let Some(qp) = self.qps.get(operating.qp) else { return Step::Wait };
        // whatever DDP makes of it, it lets us send.
        operating.on_fpdu(&qp.shared);
        operating.crc_retries = 0;
        operating.awaits_receive = true;
        if let Some(queue) = qp.shared.shared_receives() {
            if !core::mem::replace(&mut operating.awaits_shared_receive, true) {
                self.awaiting_shared.push_back(id);
            }
            queue.await_post(&self.rings.doorbells);
        }
        Step::Wait
    }

    /// Looks at a message again that waits for a receive, if there may be one now.
    pub(super) fn resume_if_ready(&mut self, now: Instant, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        let Mode::FullOperation(operating) = &mut connection.mode else { return };
        if !operating.awaits_receive || operating.failed {
            return;
        }
        let Some(qp) = self.qps.get(operating.qp) else { return };
        if qp.receiver.has_receive(&qp.shared) {
            // It is looked at again, with the same deadline.
            operating.awaits_receive = false;
            self.take_again(now, index);
            self.mark_dirty(index);
        }
    }

    /// Receives have come to a shared receive queue that connections wait for. Who has waited longest is
    /// served first, and who then waits again is the last.
    pub(super) fn resume_sharing(&mut self, now: Instant) {
        let (mut at, mut resumed) = (0, 0);
        // Those that wait again join at the back, and are not looked at.
        for _ in 0..self.awaiting_shared.len() {
            let Some(&id) = self.awaiting_shared.get(at) else { return };
            match self.shared_queue_has_receive(id) {
                Some(false) => at += 1,
                Some(true) if resumed == limits::RECEIVES_RESUMED_PER_POLL => {
                    self.rings.doorbells.ring_shared_receives();
                    return;
                }
                ready => {
                    self.awaiting_shared.remove(at);
                    if let Some(connection) = self.connection(id)
                        && let Mode::FullOperation(operating) = &mut connection.mode
                    {
                        operating.awaits_shared_receive = false;
                    }
                    if ready.is_some() {
                        resumed += 1;
                        self.resume_if_ready(now, id.index);
                    }
                }
            }
        }
    }

    /// Whether there is a receive for a message that waits; `None` when none waits on that connection any
    /// more. Without a receive the queue's next post rings again.
    fn shared_queue_has_receive(&self, id: ConnectionId) -> Option<bool> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        let connection = slot.connection.as_ref().filter(|connection| connection.awaits_receive())?;
        let qp = self.qps.get(connection.qp()?)?;
        let ready = qp.receiver.has_receive(&qp.shared);
        if !ready && let Some(queue) = qp.shared.shared_receives() {
            queue.await_post(&self.rings.doorbells);
        }
        Some(ready)
    }

    /// The message that waits for a receive has waited long enough: it finds one now, or the stream fails.
    pub(super) fn end_wait(&mut self, now: Instant, index: u32) {
        if let Some(connection) = self.slots[index as usize].connection.as_mut()
            && let Mode::FullOperation(operating) = &mut connection.mode
            && !operating.failed
        {
            operating.awaits_receive = false;
            if let Some(qp) = self.qps.get_mut(operating.qp) {
                qp.receive_wait.expire();
            }
            self.take_again(now, index);
            self.mark_dirty(index);
        }
    }

    /// A connection is gone, or its queue pair is: it waits no more.
    pub(super) fn forget_waiting(&mut self, id: ConnectionId, listed: bool) {
        if listed {
            self.awaiting_shared.retain(|other| *other != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_waits_for_its_own_time() {
        let now = Instant::from_nanos(100);
        assert_eq!(ReceiveWait::new(None).wait(now), None);
        let mut receive_wait = ReceiveWait::new(Some(10));
        assert_eq!(receive_wait.wait(now), Some(true));
        assert_eq!(receive_wait.wait(now + 9), Some(false), "still the same deadline");
        assert_eq!(receive_wait.wait(now + 10), None);
        receive_wait.served();
        assert_eq!(receive_wait.wait(now + 10), Some(true), "the next has its own");
        receive_wait.expire();
        assert_eq!(receive_wait.wait(now + 11), None);
        let mut patient = ReceiveWait::new(Some(u64::MAX));
        assert_eq!((patient.wait(now), patient.wait(now)), (Some(true), Some(false)));
    }
}
