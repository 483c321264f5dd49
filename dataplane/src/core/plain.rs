//! Segments in the usual form: recognized, found and consumed in one go, without the steps of the general
//! path ([`super::receive`]).

use crate::device::Device;
use crate::endpoint::{Outcome, Plain};
use crate::net::flow::FlowKey;
use crate::time::Instant;
use crate::wire::tuple::Tuple;

use super::Core;

impl<D: Device> Core<D> {
    /// Handles a frame if it has the next segment in order of a connection that takes FPDUs, or a plain
    /// acknowledgement alone. Returns any other frame.
    #[inline]
    pub(super) fn on_plain_frame(&mut self, now: Instant, frame: D::Frame) -> Option<D::Frame> {
        #[cfg(feature = "testing")]
        if super::testing::GeneralPathOnly::is_in_force() {
            return Some(frame);
        }
        let Some(segment) = self.host.recognize(&frame) else { return Some(frame) };
        let Some(slot) = self.slot_of(&segment.tuple) else { return Some(frame) };
        let Some(mut endpoint) = self.endpoints.at(now, slot) else { return Some(frame) };
        let handled = if segment.payload_octets == 0 {
            endpoint.on_plain_ack(&segment, frame)
        } else {
            endpoint.on_plain_segment(&segment, frame)
        };
        let outcome = match handled {
            Plain::General(frame) => return Some(frame),
            Plain::Acknowledged(frame, outcome) => {
                self.host.recycle(frame);
                outcome
            }
            Plain::Consumed(frame, changes) => {
                self.host.recycle(frame);
                self.endpoints.context.statistics.segments_predicted += 1;
                Outcome { dirty: true, changes, ..Outcome::NONE }
            }
            Plain::Kept(outcome) => outcome,
        };
        let remote = || segment.tuple.source();
        self.after_segment(now, slot, outcome, remote);
        None
    }

    /// Returns the slot of the connection that segments with `tuple` are for. The addresses are checked when
    /// it is looked up for the first time.
    #[inline]
    fn slot_of(&mut self, tuple: &Tuple) -> Option<u32> {
        self.endpoints.table.recent(tuple).or_else(|| self.look_up(tuple))
    }

    #[inline(never)]
    fn look_up(&mut self, tuple: &Tuple) -> Option<u32> {
        let slot = self.endpoints.table.find(&FlowKey::of_received(tuple))?;
        if !self.host.has_plain_addresses(tuple) {
            return None;
        }
        self.endpoints.table.remember(*tuple, slot);
        Some(slot)
    }
}
