//! Acknowledgements without data: what a connection that only sends gets from its peer.

use crate::device::Frame;
use crate::tcp::Changes;
use crate::wire::plain_segment::PlainSegment;

use super::{Endpoint, Outcome, Plain};

impl<F: Frame> Endpoint<'_, F> {
    /// Handles a segment without payload in the usual form, if its acknowledgement is
    /// [plain](crate::tcp::Connection::take_plain_ack).
    #[inline(never)]
    pub fn on_plain_ack(&mut self, segment: &PlainSegment, frame: F) -> Plain<F> {
        let tcp = &mut self.connection.tcp;
        let Some(changes) = tcp.take_plain_ack(self.now, segment, &mut self.context.pools) else {
            return Plain::General(frame);
        };
        self.connection.note_changes(self.now, changes);
        if changes.contains(Changes::ACKNOWLEDGED) {
            self.complete_sends();
        }
        let dropped_surplus = self.drop_unacked_surplus();
        Plain::Acknowledged(frame, Outcome { dirty: true, changes, dropped_surplus, ..Outcome::NONE })
    }
}
