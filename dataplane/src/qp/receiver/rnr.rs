//! Sends that meet no receive, on a queue pair whose application wants them to wait for one ("receiver not
//! ready", in the words of InfiniBand): the FPDU stays where it is, in TCP's receive queue, and so does all
//! that follows it.

use super::Receiver;
use super::ulpdu::Ulpdu;
use crate::mpa::receiver::{Located, Octets};
use crate::qp::shared::SharedQp;
use crate::rdmap::message::SEND_QUEUE;
use crate::wire::ddp::Header;
use crate::wire::rdmap::Control;

impl Receiver {
    /// Whether the next ULPDU, verified by MPA, begins a message that lacks nothing but a receive. One that
    /// is wrong in another way does not wait: it is judged at once.
    // Requirements: DDP-7.1-02
    pub fn lacks_receive(&mut self, shared: &SharedQp, octets: &impl Octets, located: &Located) -> bool {
        if self.current.is_some() || !self.buffers.is_empty() {
            return false;
        }
        let Ok(ulpdu) = Ulpdu::parse(octets, located) else { return false };
        let Header::Untagged(header) = ulpdu.header else { return false };
        let control = Control::from_octet(header.rsvd_ulp[0]);
        let begins = header.queue == SEND_QUEUE
            && header.msn == self.expected_msn
            && header.mo == 0
            && header.version == self.version
            && control.version == self.version
            && (control.opcode.is_send() || control.opcode.is_immediate());
        // The provider has the buffer for what its peer sends as a ready-to-receive indication.
        let mut indications = self.indications;
        let indicated =
            begins && indications.take(self.version, &ulpdu.header, ulpdu.octets, ulpdu.located).is_some();
        // Without a place for its completion it is an error, which is found when it is taken.
        begins && !indicated && self.provide(shared, 1).is_ok() && self.buffers.is_empty()
    }

    /// Whether a receive is there for a message that waits for one.
    pub fn has_receive(&self, shared: &SharedQp) -> bool {
        !self.buffers.is_empty()
            || shared.has_posted_receives()
            || shared.shared_receives().is_some_and(|queue| !queue.is_empty())
    }
}
