//! Sends that find no receive posted, on a queue pair that lets them wait for one (receiver not ready, RNR,
//! in InfiniBand): the FPDU and everything after it stay in TCP's receive queue.

use super::Receiver;
use super::ulpdu::Ulpdu;
use crate::mpa::receiver::{Located, Octets};
use crate::qp::shared::SharedQp;
use crate::rdmap::message::SEND_QUEUE;
use crate::wire::ddp::Header;
use crate::wire::rdmap::Control;

impl Receiver {
    /// Whether the next ULPDU, verified by MPA, begins a valid message for which no receive is posted. A
    /// ULPDU with any other error does not wait.
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
        // The provider has the buffer for a ready-to-receive indication.
        let mut indications = self.indications;
        let indicated =
            begins && indications.take(self.version, &ulpdu.header, ulpdu.octets, ulpdu.located).is_some();
        // Without a free entry for its completion it is an error, which is found when it is taken.
        begins && !indicated && self.provide(shared, 1).is_ok() && self.buffers.is_empty()
    }

    /// Whether a receive is posted for a message that waits for one.
    pub fn has_receive(&self, shared: &SharedQp) -> bool {
        !self.buffers.is_empty()
            || shared.has_posted_receives()
            || shared.shared_receives().is_some_and(|queue| !queue.is_empty())
    }
}
