//! Out-of-order placement (RFC 5041 §5.3, RFC 5044 appendix B): a ULPDU beyond a gap, verified by MPA, is
//! placed at once. Its Delivery, and every check of stream order, waits until the gap has closed. A ULPDU
//! that does not pass the checks here is not placed. It is checked again in stream order, so that errors are
//! reported in that order.

use super::fault::{Fault, ParsedUlpdu};
use super::message::Memory;
use super::{ReceiveContext, Receiver};
use crate::ddp::DdpError;
use crate::limits;
use crate::memory::{StagTable, Target};
use crate::mpa::receiver::Ulpdu;
use crate::ordered::{ANY, Ordered, OrderedPool};
use crate::qp::error::StreamError;
use crate::qp::reads::OutboundReads;
use crate::qp::shared::SharedQp;
use crate::rdmap::RdmapError;
use crate::rdmap::message::SEND_QUEUE;
use crate::wire::ddp::{Header, Tagged, Untagged};
use crate::wire::rdmap::Opcode;

/// A ULPDU that may be placed out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfOrder {
    /// A segment of a Write: nothing is left to do at its Delivery.
    Complete,
    /// A segment of a Send or of a Read Response: its Delivery must be remembered ([`PlacedSegment`]).
    AwaitsDelivery,
}

/// A segment that is placed and waits for its Delivery.
#[derive(Clone, Copy, Debug)]
pub struct PlacedSegment {
    /// The stream position of its FPDU.
    position: u64,
    header: Header,
    segment_octets: u16,
}

impl Ordered for PlacedSegment {
    type Key = u64;

    #[inline]
    fn key(&self) -> u64 {
        self.position
    }
}

impl PlacedSegment {
    fn fault(&self, error: StreamError) -> Fault {
        let mut header = [0; Untagged::LEN];
        let header_octets = self.header.emit(&mut header) as u8;
        Fault { error, segment_octets: self.segment_octets, header, header_octets, read_request: None }
    }
}

impl Receiver {
    /// How many more segments whose Delivery must be remembered may be placed out of order: the share of the
    /// connection falls as others want some.
    ///
    /// Example: with 90 places free and a share of twice what is left, a connection that has none may place
    /// 60 segments, which leave 30; one that has 30 may place 50, which leave 40.
    pub fn placement_room(&self, pool: &OrderedPool<PlacedSegment>) -> usize {
        let (has, share) = (self.placed.len(), limits::PLACED_SHARE);
        let within_share = (share * pool.free()).saturating_sub(has).div_ceil(share + 1);
        within_share.min(limits::PLACED_SENDS_PER_CONNECTION.saturating_sub(has))
    }

    /// Whether a ULPDU, verified by MPA, may be placed out of order. Places nothing.
    pub fn check_out_of_order(
        &mut self,
        shared: &SharedQp,
        stags: &StagTable,
        outbound: &OutboundReads,
        ulpdu: &impl Ulpdu,
    ) -> Option<OutOfOrder> {
        let ulpdu = ParsedUlpdu::parse(ulpdu).ok()?;
        // The header is checked first: a segment that is not placed moves no receive.
        if let Header::Untagged(header) = ulpdu.header
            && self.may_name_receive(&header)
        {
            let ahead = header.msn.wrapping_sub(self.expected_msn) as usize;
            if ahead < shared.receive_depth() {
                // A segment whose receive lies further on waits for the gap to close, or for others to move
                // the receives before. Example: with 10 moved and room for 128 more, MSN expected + 4000
                // leaves 138 moved, and its segment waits.
                let provided = self.moved.len() + usize::from(self.message.begun);
                let most = provided + limits::RECEIVES_MOVED_PER_SEGMENT;
                // Without a free entry for its completion it waits, too; there may be one by then.
                self.provide(shared, most.min(ahead + 1)).ok()?;
            }
        }
        self.memory_out_of_order(&ulpdu, shared, stags, outbound).map(|(_, kind)| kind)
    }

    /// Places a ULPDU that [`check_out_of_order`](Self::check_out_of_order) allows, and remembers its
    /// Delivery. `position` is the stream position of its FPDU. Returns the octets copied.
    pub fn place_out_of_order(
        &mut self,
        context: &ReceiveContext<'_>,
        pool: &mut OrderedPool<PlacedSegment>,
        position: u64,
        ulpdu: &impl Ulpdu,
    ) -> usize {
        let Ok(ulpdu) = ParsedUlpdu::parse(ulpdu) else { return 0 };
        let Some((memory, when)) =
            self.memory_out_of_order(&ulpdu, context.shared, context.stags, &context.reads.outbound)
        else {
            debug_assert!(false, "it was allowed");
            return 0;
        };
        ulpdu.octets.for_each_piece(ulpdu.header.header_len(), |at, piece| {
            let is_written = memory.write(at, piece);
            debug_assert!(is_written, "all of the segment was checked before");
        });
        if when == OutOfOrder::AwaitsDelivery {
            let (header, segment_octets) = (ulpdu.header, ulpdu.octets.octets() as u16);
            self.remember(pool, PlacedSegment { position, header, segment_octets });
        }
        ulpdu.payload_octets()
    }

    /// Delivers, in stream order, the segments placed before position `end`.
    ///
    /// # Errors
    ///
    /// [`Fault`] if a segment is not the next one of its message.
    // Requirements: DDP-5.4-01
    pub fn deliver_placed(
        &mut self,
        context: &mut ReceiveContext<'_>,
        pool: &mut OrderedPool<PlacedSegment>,
        end: u64,
    ) -> Result<(), Fault> {
        while pool
            .first(&self.placed, ANY, |_| true)
            .and_then(|node| pool.get(node))
            .is_some_and(|first| first.position < end)
        {
            let Some(placed) = pool.pop_first(&mut self.placed) else { break };
            self.deliver_one(context, &placed).map_err(|error| placed.fault(error))?;
        }
        Ok(())
    }

    fn deliver_one(
        &mut self,
        context: &mut ReceiveContext<'_>,
        placed: &PlacedSegment,
    ) -> Result<(), StreamError> {
        let payload_octets = usize::from(placed.segment_octets) - placed.header.header_len();
        match placed.header {
            Header::Tagged(header) => {
                context.reads.outbound.check_turn(&header, payload_octets)?;
                context.reads.outbound.deliver(header.last, payload_octets);
                Ok(())
            }
            Header::Untagged(header) => {
                let shared = context.shared;
                self.check_next(&header, payload_octets, shared).map_err(StreamError::Ddp)?;
                if !self.message.begun {
                    // It is there, and its completion has an entry since the segment was placed.
                    let is_loaded = self.load_receive(shared);
                    debug_assert!(is_loaded, "the segment was placed in its receive");
                    if !is_loaded {
                        return Err(StreamError::Ddp(DdpError::NoBuffer));
                    }
                    self.begin_message(shared);
                }
                let delivered = self.deliver(shared, context.stags, &header, payload_octets);
                delivered.then_some(()).ok_or(StreamError::Rdmap(RdmapError::CannotInvalidate))
            }
        }
    }

    /// The memory that a ULPDU is placed in out of order, and whether its Delivery must be remembered. A
    /// Tagged segment names the memory; the buffer of a Send follows from its MSN. Other segments wait: they
    /// are requests, or errors.
    fn memory_out_of_order<'t, U: Ulpdu>(
        &self,
        ulpdu: &ParsedUlpdu<'_, U>,
        shared: &SharedQp,
        stags: &'t StagTable,
        outbound: &OutboundReads,
    ) -> Option<(Memory<'t>, OutOfOrder)> {
        let payload_octets = ulpdu.payload_octets();
        match ulpdu.header {
            // While the response to our indication is due, an empty Response may be that.
            Header::Tagged(header) if !self.indications.are_due() || payload_octets > 0 => {
                let (target, when) =
                    self.tagged_out_of_order(&header, payload_octets, shared, stags, outbound)?;
                Some((Memory::of_target(target), when))
            }
            Header::Untagged(header) if self.may_name_receive(&header) => {
                let ahead = header.msn.wrapping_sub(self.expected_msn) as usize;
                let request = self.receive_of(shared, ahead)?;
                let room = request.longest_message().checked_sub(u64::from(header.mo))?;
                if payload_octets as u64 > room {
                    return None;
                }
                let mut memory = Memory::none();
                let may_write = memory.add_receive(&request, header.mo, payload_octets, shared, stags);
                may_write.then_some((memory, OutOfOrder::AwaitsDelivery))
            }
            Header::Tagged(_) | Header::Untagged(_) => None,
        }
    }

    /// Whether the header of an untagged segment is that of a Send whose MSN names a receive. While a
    /// ready-to-receive indication is due, an MSN does not name one yet: the indication may be a Send.
    fn may_name_receive(&self, header: &Untagged) -> bool {
        header.queue == SEND_QUEUE
            && !self.indications.are_due()
            && self.check_queue(header).is_ok()
            && self.check_send(header).is_ok()
    }

    /// Returns the memory that a tagged segment is placed in out of order, if it has a payload, and whether
    /// its Delivery must be remembered; `None` if it cannot be placed before its turn. A Read Response must
    /// lie inside the sink of one of the outstanding Reads; that it continues the oldest one is checked at
    /// its Delivery.
    fn tagged_out_of_order<'t>(
        &self,
        header: &Tagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
        outbound: &OutboundReads,
    ) -> Option<(Option<Target<'t>>, OutOfOrder)> {
        let (opcode, target) = self.check_tagged(header, payload_octets, shared, stags).ok()?;
        if opcode != Opcode::ReadResponse {
            return Some((target.ok()?, OutOfOrder::Complete));
        }
        if payload_octets > 0 && !outbound.has_sink(header, payload_octets) {
            return None;
        }
        Some((target.ok()?, OutOfOrder::AwaitsDelivery))
    }

    fn remember(&mut self, pool: &mut OrderedPool<PlacedSegment>, segment: PlacedSegment) {
        let done = pool.insert(&mut self.placed, segment, 0).is_ok();
        debug_assert!(done, "placement_room was asked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(position: u64) -> PlacedSegment {
        let header = Untagged { last: true, version: 1, rsvd_ulp: [0; 5], queue: SEND_QUEUE, msn: 1, mo: 0 };
        PlacedSegment { position, header: Header::Untagged(header), segment_octets: 18 }
    }

    /// A connection whose peer never fills gaps, but sends much beyond them, leaves others some places.
    #[test]
    fn no_connection_has_all_places() {
        let mut pool = OrderedPool::new(90);
        let mut receivers = [0; 8].map(|_| Receiver::new());
        let rooms = receivers.each_mut().map(|receiver| {
            let room = receiver.placement_room(&pool);
            for n in 0..room {
                assert!(receiver.placement_room(&pool) >= room - n, "as many as promised");
                receiver.remember(&mut pool, segment(24 * n as u64));
            }
            assert_eq!(receiver.placement_room(&pool), 0);
            room
        });
        assert_eq!(rooms, [60, 20, 7, 2, 1, 0, 0, 0]);
        // When the first is Delivered, the others may have more.
        while pool.pop_first(&mut receivers[0].placed).is_some() {}
        assert_eq!(receivers[7].placement_room(&pool), 40);
        assert_eq!(receivers[1].placement_room(&pool), 34);
    }

    /// RFC 5041 §5.3 leaves the order of Placement to the network. Remembering a segment is cheap in any
    /// order, and Deliveries come in the order of the stream.
    #[test]
    fn no_order_of_placement_makes_remembering_dear() {
        let count = limits::PLACED_SENDS_PER_CONNECTION as u64;
        let orders: [fn(u64, u64) -> u64; 4] = [
            |n, _| n,
            |n, count| count - 1 - n,
            // The last first, then all others in order.
            |n, count| if n == 0 { count - 1 } else { n - 1 },
            |n, count| n * 641 % count,
        ];
        for order in orders {
            let mut pool = OrderedPool::new(count as usize);
            let mut receiver = Receiver::new();
            for n in 0..count {
                let before = pool.visits();
                receiver.remember(&mut pool, segment(24 * order(n, count)));
                let visits = pool.visits() - before;
                // Down and up a tree of 2048.
                assert!(visits <= 34, "{visits} nodes for one segment");
            }
            let positions = core::iter::from_fn(|| pool.pop_first(&mut receiver.placed));
            assert!(positions.map(|placed| placed.position).eq((0..count).map(|n| 24 * n)));
        }
    }
}
