//! Segments in the usual form: recognized, found and consumed in one go, without the steps of the general
//! path ([`super::receive`]). Those that follow such a segment in the burst, and have its headers but for few
//! fields, are a train: they are compared with it, and neither parsed nor looked up.

use std::vec::Drain;

use crate::device::Device;
use crate::endpoint::{Followers, Outcome, Plain};
use crate::net::Host;
use crate::net::flow::FlowKey;
use crate::net::plain::follower;
use crate::tcp::Arrivals;
use crate::time::Instant;
use crate::wire::plain_segment::PlainSegment;
use crate::wire::tuple::Tuple;

use super::Core;

/// A frame that goes the general way.
pub(super) struct Other<F> {
    pub(super) frame: F,
    /// The host has recognized it: its checksums hold.
    pub(super) recognized: bool,
}

impl<D: Device> Core<D> {
    /// Handles a frame if it has the next segment in order of a connection that takes FPDUs, and those of
    /// `rest`, the rest of the burst, that go on with its train; or a plain acknowledgement alone. Returns
    /// any other frame.
    #[inline]
    pub(super) fn on_plain_frame(
        &mut self,
        now: Instant,
        frame: D::Frame,
        rest: &mut Drain<'_, D::Frame>,
    ) -> Option<Other<D::Frame>> {
        #[cfg(feature = "testing")]
        if super::testing::GeneralPathOnly::is_in_force() {
            return Some(Other { frame, recognized: false });
        }
        let Some(segment) = self.host.recognize(&frame) else {
            return Some(Other { frame, recognized: false });
        };
        let Some(slot) = self.slot_of(&segment.tuple) else { return Some(Other { frame, recognized: true }) };
        let Some(mut endpoint) = self.endpoints.at(now, slot) else {
            return Some(Other { frame, recognized: true });
        };
        let handled = if segment.payload_octets == 0 {
            endpoint.on_plain_ack(&segment, frame)
        } else {
            endpoint.on_plain_segment(&segment, frame)
        };
        let outcome = match handled {
            Plain::General(frame) => return Some(Other { frame, recognized: true }),
            Plain::Acknowledged(frame, outcome) => {
                self.host.recycle(frame);
                outcome
            }
            Plain::Consumed(leader, changes) => {
                endpoint.context.statistics.segments_predicted += 1;
                let mut dropped_surplus = false;
                let mut train = Train { host: &mut self.host, first: &segment, leader, rest };
                if !train.rest.as_slice().is_empty() {
                    dropped_surplus = endpoint.on_followers(&segment, &mut train);
                }
                let Train { host, leader, .. } = train;
                host.recycle(leader);
                Outcome { dirty: true, changes, dropped_surplus, ..Outcome::NONE }
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

/// The segments of a train after its first, in the rest of a burst.
struct Train<'c, 'b, D: Device> {
    host: &'c mut Host<D>,
    first: &'c PlainSegment,
    /// The frame of `first`.
    leader: D::Frame,
    rest: &'c mut Drain<'b, D::Frame>,
}

impl<D: Device> Followers<D::Frame> for Train<'_, '_, D> {
    #[inline]
    fn next(&mut self, arrivals: &Arrivals) -> Option<(usize, D::Frame)> {
        #[cfg(feature = "testing")]
        if super::testing::NoTrains::is_in_force() {
            return None;
        }
        let frame = self.rest.as_slice().first()?;
        let fits = |payload_octets| arrivals.fits(payload_octets);
        let payload_octets = follower(self.first, &self.leader, frame, arrivals.next(), fits)?;
        Some((payload_octets, self.rest.next()?))
    }

    #[inline]
    fn is_consumed(&mut self, frame: D::Frame) {
        self.host.recycle(frame);
    }
}
