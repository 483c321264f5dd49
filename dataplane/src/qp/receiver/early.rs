//! Placement before its turn (RFC 5041 §5.3, RFC 5044 appendix B): a ULPDU that lies beyond a gap, verified by MPA, goes to
//! its buffer at once. Delivery, and every check of stream order, waits until the gap has closed. What does not pass the
//! checks here is not placed; it is judged again in its turn, so that errors come in stream order.

use super::{Fault, Receiver, Ulpdu, check_rdmap, memory_of};
use crate::limits;
use crate::memory::{StagTable, Target};
use crate::mpa::receiver::{Located, Octets};
use crate::pool::Pool;
use crate::qp::error::StreamError;
use crate::qp::shared::SharedQp;
use crate::qp::work::ReceiveRequest;
use crate::rdmap::message::SEND_QUEUE;
use crate::wire::ddp::{Header, Untagged};

/// A ULPDU that may be placed before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// Of the Tagged model: nothing is left to do at its Delivery.
    Tagged,
    /// Of the Untagged model: its Delivery must be remembered ([`PlacedSend`]).
    Untagged,
}

/// A segment of a Send that is placed and waits for its Delivery.
#[derive(Clone, Copy, Debug)]
pub struct PlacedSend {
    /// Where its FPDU begins in the stream.
    position: u64,
    header: Untagged,
    segment_octets: u16,
}

impl PlacedSend {
    fn fault(&self, error: StreamError) -> Fault {
        let mut header = [0; Untagged::LEN];
        self.header.emit(&mut header);
        Fault { error, segment_octets: self.segment_octets, header, header_octets: Untagged::LEN as u8 }
    }
}

impl Receiver {
    /// How many more segments of Sends may be placed before their turn.
    pub fn early_room(&self, early: &Pool<PlacedSend>) -> usize {
        early.free().min(limits::PLACED_SENDS_PER_CONNECTION.saturating_sub(self.early.len()))
    }

    /// Whether a ULPDU, verified by MPA, may be placed although its turn has not come. Nothing changes.
    pub fn check_early(
        &mut self,
        shared: &SharedQp,
        stags: &StagTable,
        octets: &impl Octets,
        located: &Located,
    ) -> Option<Early> {
        self.take_posted(shared);
        let ulpdu = Ulpdu::parse(octets, located).ok()?;
        self.early_target(&ulpdu, shared, stags)?;
        Some(match ulpdu.header {
            Header::Tagged(_) => Early::Tagged,
            Header::Untagged(_) => Early::Untagged,
        })
    }

    /// Places a ULPDU that [`check_early`](Self::check_early) allows, and remembers what its Delivery needs. `position` is
    /// where its FPDU begins. Gives the octets copied.
    pub fn place_early(
        &mut self,
        shared: &SharedQp,
        stags: &StagTable,
        early: &mut Pool<PlacedSend>,
        position: u64,
        octets: &impl Octets,
        located: &Located,
    ) -> usize {
        let Ok(ulpdu) = Ulpdu::parse(octets, located) else { return 0 };
        let Some((target, at)) = self.early_target(&ulpdu, shared, stags) else {
            debug_assert!(false, "it was allowed");
            return 0;
        };
        if let Some(target) = target {
            ulpdu.place(&target, at);
        }
        if let Header::Untagged(header) = ulpdu.header {
            self.remember(early, PlacedSend { position, header, segment_octets: located.ulpdu_len() as u16 });
        }
        ulpdu.payload_octets()
    }

    /// Delivers, in stream order, the segments placed before position `end` (DDP-5.4-01).
    ///
    /// # Errors
    ///
    /// [`Fault`] when a segment turns out not to be the one whose turn it is.
    pub fn deliver_early(
        &mut self,
        shared: &SharedQp,
        early: &mut Pool<PlacedSend>,
        end: u64,
    ) -> Result<(), Fault> {
        while let Some(front) = self.early.front().and_then(|node| early.get(node)) {
            if front.position >= end {
                break;
            }
            let Some(send) = early.pop_front(&mut self.early) else { break };
            let payload_octets = usize::from(send.segment_octets) - Untagged::LEN;
            let current = self
                .in_turn(&send.header, payload_octets)
                .map_err(|error| send.fault(StreamError::Ddp(error)))?;
            self.deliver(shared, current, send.header.last, payload_octets);
        }
        Ok(())
    }

    /// The memory that a ULPDU goes to before its turn, unless it is empty, and where in it the payload begins. A Tagged one
    /// says so itself; the buffer of a Send follows from its number. Others wait: they change what this end does, or are
    /// errors.
    fn early_target<'t, O: Octets>(
        &self,
        ulpdu: &Ulpdu<'_, O>,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> Option<(Option<Target<'t>>, usize)> {
        let payload_octets = ulpdu.payload_octets();
        match ulpdu.header {
            Header::Tagged(header) => {
                Some((self.tagged_target(&header, payload_octets, shared, stags).ok()?, 0))
            }
            // While a ready-to-receive indication is due, a number does not name a buffer yet: the indication may be a Send.
            Header::Untagged(header) if header.queue == SEND_QUEUE && !self.indications.are_due() => {
                self.check_queue(&header).ok()?;
                check_rdmap(self.version, header.rsvd_ulp[0], false).ok()?;
                let request = self.early_buffer(header.msn)?;
                let room = request.local.octets.checked_sub(header.mo)?;
                if payload_octets > room as usize {
                    return None;
                }
                let target = memory_of(&request, payload_octets, shared, stags).ok()?;
                Some((target, header.mo as usize))
            }
            Header::Untagged(_) => None,
        }
    }

    /// The buffer that the Send numbered `msn` will get, if it is posted already and not completed.
    fn early_buffer(&self, msn: u32) -> Option<ReceiveRequest> {
        let ahead = msn.wrapping_sub(self.expected_msn) as usize;
        match self.current {
            Some(current) if ahead == 0 => Some(current.request),
            Some(_) => self.buffers.get(ahead - 1).copied(),
            None => self.buffers.get(ahead).copied(),
        }
    }

    fn remember(&mut self, early: &mut Pool<PlacedSend>, send: PlacedSend) {
        let mut previous = self.early.back();
        if previous.and_then(|node| early.get(node)).is_some_and(|last| last.position > send.position) {
            previous = None;
            for (node, other) in early.iter(&self.early) {
                if other.position > send.position {
                    break;
                }
                previous = Some(node);
            }
        }
        let done = early.insert_after(&mut self.early, previous, send).is_ok();
        debug_assert!(done, "early_room was asked");
    }
}
