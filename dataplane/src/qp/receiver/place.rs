//! The one step of every ULPDU in stream order: its payload is placed and delivered.
//!
//! The checks here are those that a valid segment passes, in the order that costs least, and nothing has
//! changed when one fails. [`explain`](super::explain) then makes them in the order of the RFCs and names the
//! fault; [`requests`](super::requests) has the messages that are rare.

use super::fault::{Fault, ParsedUlpdu};
use super::message::{Memory, writable};
use super::{Placed, ReceiveContext, Received, Receiver};
use crate::memory::{Access, StagTable, Target};
use crate::mpa::receiver::Ulpdu;
use crate::qp::cqe::ReceivedMessage;
use crate::qp::reads::OutboundReads;
use crate::qp::shared::SharedQp;
use crate::rdmap::message::{ATOMIC_RESPONSE_QUEUE, READ_REQUEST_QUEUE, SEND_QUEUE, TERMINATE_QUEUE};
use crate::wire::ddp::{Header, Tagged, Untagged};
use crate::wire::rdmap::{Control, IMMEDIATE_OCTETS, Opcode};

/// Calls a function on each piece of a payload, with its offset.
type ForEachPiece<'p> = dyn Fn(&mut dyn FnMut(usize, &[u8])) + 'p;

/// Copies all of a payload to its place, which is as long. Returns false if that cannot be written.
type WriteTo<'p> = dyn Fn(&Target<'_>) -> bool + 'p;

/// The payload of a segment, wherever its octets lie.
enum Payload<'p> {
    Contiguous(&'p [u8]),
    Pieces { for_each: &'p ForEachPiece<'p>, write_to: &'p WriteTo<'p> },
}

impl Payload<'_> {
    /// Calls `write` on each piece, with its offset. It returns true: all of the segment was checked before
    /// the first.
    #[expect(clippy::inline_always, reason = "to a function that is inlined in each of its callers")]
    #[inline(always)]
    fn write_with(&self, mut write: impl FnMut(usize, &[u8]) -> bool) {
        let mut checked = |at: usize, piece: &[u8]| {
            let is_written = write(at, piece);
            debug_assert!(is_written, "all of the segment was checked before");
        };
        match self {
            Self::Contiguous(payload) => checked(0, payload),
            Self::Pieces { for_each, .. } => for_each(&mut checked),
        }
    }

    /// Copies all of it to `target`, which is as long, and was checked before.
    #[inline]
    fn write_to(&self, target: &Target<'_>) {
        let is_written = match self {
            Self::Contiguous(payload) => target.write(0, payload),
            Self::Pieces { write_to, .. } => write_to(target),
        };
        debug_assert!(is_written, "all of the segment was checked before");
    }
}

impl Receiver {
    /// Places the payload of one ULPDU, verified by MPA, in stream order, and delivers it. Returns `None`,
    /// and has delivered nothing, if it is one for [`on_rare`](Self::on_rare): not only a payload, or not
    /// valid.
    #[expect(
        clippy::inline_always,
        reason = "a call costs the loop over a burst a tenth of what it does for one"
    )]
    #[inline(always)]
    pub fn place<U: Ulpdu>(&mut self, context: &mut ReceiveContext<'_>, ulpdu: &U) -> Option<Placed> {
        // What comes first may be a message of the peer's provider.
        if self.indications.are_due() {
            return None;
        }
        self.place_expected(context, ulpdu)
    }

    /// [`place`](Self::place) of a message of the peer's ULP.
    #[expect(clippy::inline_always, reason = "the other caller is for the first FPDU of a stream")]
    #[inline(always)]
    fn place_expected<U: Ulpdu>(&mut self, context: &mut ReceiveContext<'_>, ulpdu: &U) -> Option<Placed> {
        let tagged = ulpdu.first_octets().and_then(|octets: [u8; Tagged::LEN]| Tagged::parse(&octets));
        if let Some(header) = tagged {
            return self.place_tagged(context, ulpdu, &header);
        }
        let header: [u8; Untagged::LEN] = ulpdu.first_octets()?;
        let (octets, skip) = (ulpdu.octets() - Untagged::LEN, Untagged::LEN);
        let payload = ulpdu.contiguous(skip);
        let pieces = |write: &mut dyn FnMut(usize, &[u8])| ulpdu.for_each_piece(skip, write);
        let write_to = |target: &Target<'_>| ulpdu.write_to(skip, target);
        let pieces = Payload::Pieces { for_each: &pieces, write_to: &write_to };
        let payload = payload.map_or(pieces, Payload::Contiguous);
        self.place_send(context, &header, octets, &payload)
    }

    /// Places a segment of a Write, or of the Read Response that is next. STag and offset of an empty segment
    /// are ignored. The ULP does not see a Write.
    // Requirements: DDP-4.2-03, DDP-4.2-07, DDP-5.2-04, DDP-5.2-09, DDP-5.4-03, RDMAP-5.1-02
    #[expect(clippy::inline_always, reason = "most of the FPDUs of a burst are placed by it")]
    #[inline(always)]
    fn place_tagged<U: Ulpdu>(
        &self,
        context: &mut ReceiveContext<'_>,
        ulpdu: &U,
        header: &Tagged,
    ) -> Option<Placed> {
        let octets = ulpdu.octets() - Tagged::LEN;
        let control = Control::from_octet(header.rsvd_ulp);
        if header.version != self.version || control.version != self.version {
            return None;
        }
        let is_response = control.opcode == Opcode::ReadResponse;
        let access = match control.opcode {
            Opcode::Write => Access::REMOTE_WRITE,
            Opcode::ReadResponse => {
                context.reads.outbound.check_turn(header, octets).ok()?;
                Access::LOCAL_WRITE
            }
            _ => return None,
        };
        if octets > 0 {
            let accessor = context.shared.accessor();
            let target = context.stags.check(header.stag, accessor, access, header.to, octets).ok()?;
            let is_written = ulpdu.write_to(Tagged::LEN, &target);
            debug_assert!(is_written, "all of the segment was checked before");
        }
        if is_response {
            context.reads.outbound.deliver(header.last, octets);
        }
        Some(Placed { octets, answers_read: is_response && header.last })
    }

    /// Places the next segment of the message on the queue of Sends, which has `octets` octets of payload,
    /// and delivers it. Returns `None` for a segment of any other queue.
    ///
    /// The peer sends the segments of a message in the order of their offsets, and TCP keeps the order: in
    /// stream order any offset but the next is an error, even one inside the buffer. A message that is
    /// Delivered is therefore complete, though RFC 5041 §5.2 does not ask the receiver to check that. It may
    /// be shorter than the buffer, or empty, but not longer.
    // Requirements: DDP-4.3-08, RDMAP-5.3-02, RDMAP-5.3-05
    #[inline(never)]
    fn place_send(
        &mut self,
        context: &mut ReceiveContext<'_>,
        header: &[u8; Untagged::LEN],
        octets: usize,
        payload: &Payload<'_>,
    ) -> Option<Placed> {
        let header = Untagged::parse(header)?;
        let control = Control::from_octet(header.rsvd_ulp[0]);
        // Requirements: DDP-5.2-11, DDP-7.1-02 to DDP-7.1-05
        let is_next = header.queue == SEND_QUEUE
            && header.msn == self.expected_msn
            && header.mo == self.message.placed
            && header.version == self.version
            && control.version == self.version;
        let shared = context.shared;
        // An empty message needs a receive too.
        // Requirements: DDP-7.1-06, DDP-7.1-08, RDMAP-5.3-06
        if !is_next || !self.message.begun && !self.load_receive(shared) {
            return None;
        }
        let placed = self.place_in_receive(context, &header, control, octets, payload);
        if placed.is_none() {
            self.keep_loaded(shared);
        }
        placed
    }

    /// Places a segment of a Send, and delivers it. The receive of its message is there, and is consumed by
    /// the first segment.
    #[expect(clippy::inline_always, reason = "it is a part of its one caller")]
    #[inline(always)]
    fn place_in_receive(
        &mut self,
        context: &mut ReceiveContext<'_>,
        header: &Untagged,
        control: Control,
        octets: usize,
        payload: &Payload<'_>,
    ) -> Option<Placed> {
        let shared = context.shared;
        if !control.opcode.is_send() {
            return self.place_immediate(shared, payload, header.last, control);
        }
        // A message ends at 2^32 - 1 octets, however large the receive is.
        // Requirements: DDP-5.2-02, DDP-7.1-04
        self.message.placed.checked_add(octets as u32)?;
        if let Some(range) = self.message.in_one_range(octets) {
            let target = writable(&range, shared, context.stags)?;
            if !self.message.begun {
                self.begin_message(shared);
            }
            payload.write_to(&target);
        } else {
            self.place_in_ranges(shared, context.stags, octets, payload)?;
        }
        let delivered = self.deliver(shared, context.stags, header, octets);
        delivered.then_some(Placed { octets, answers_read: false })
    }

    /// Places a payload that is empty, or begins in another range of its receive than the octets before it,
    /// or ends in another than it begins.
    #[inline(never)]
    fn place_in_ranges(
        &mut self,
        shared: &SharedQp,
        stags: &StagTable,
        octets: usize,
        payload: &Payload<'_>,
    ) -> Option<()> {
        let mut memory = Memory::none();
        let may_write = self.message.add_next(&mut memory, octets, shared, stags);
        if !may_write {
            return None;
        }
        if !self.message.begun {
            self.begin_message(shared);
        }
        match payload {
            Payload::Contiguous(octets) => memory.write_all(octets),
            Payload::Pieces { .. } => payload.write_with(|at, piece| memory.write(at, piece)),
        }
        Some(())
    }

    /// Delivers a segment that is placed, the next of the message that has begun: everything before it is
    /// placed and delivered. RDMAP gets the header with its own fields in it; those of the last segment count
    /// for the message. Returns false, and has changed nothing, if the message invalidates an STag that
    /// cannot be invalidated.
    // Requirements: DDP-1-02, DDP-4.1-07, DDP-5.3-06, DDP-5.3-07, DDP-5.4-01, RDMAP-5.5-02
    #[expect(clippy::inline_always, reason = "the other caller is for segments beyond a gap")]
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        shared: &SharedQp,
        stags: &mut StagTable,
        header: &Untagged,
        octets: usize,
    ) -> bool {
        if !header.last {
            self.message.advance(octets);
            return true;
        }
        // Requirements: DDP-4.3-03, DDP-4.3-05, DDP-5.4-03
        let (control, invalidated) = Control::from_rsvd_ulp(header.rsvd_ulp);
        // RDMAP-5.3-08, RDMAP-7.2-04, A-17.
        if let Some(stag) = invalidated
            && stags.invalidate_for_peer(stag, shared.accessor()).is_err()
        {
            return false;
        }
        // In stream order, the last segment of the oldest message is its Delivery.
        // Requirements: DDP-5.4-01, DDP-5.4-02
        let byte_len = self.message.placed + octets as u32;
        let solicited = control.opcode.solicits_event();
        self.complete(shared, &ReceivedMessage { byte_len, solicited, invalidated, immediate: None });
        true
    }

    /// Accepts Immediate Data, which completes a receive of any length and does not touch its buffer.
    // Requirements: RDMAPX-6-01
    fn place_immediate(
        &mut self,
        shared: &SharedQp,
        payload: &Payload<'_>,
        last: bool,
        control: Control,
    ) -> Option<Placed> {
        let mut octets = [0; IMMEDIATE_OCTETS];
        let mut copied = 0;
        payload.write_with(|at, piece| {
            if let Some(place) = octets.get_mut(at..at + piece.len()) {
                place.copy_from_slice(piece);
            }
            copied += piece.len();
            true
        });
        let is_valid = control.opcode.is_immediate() && last && copied == octets.len() && !self.message.begun;
        if !is_valid {
            return None;
        }
        self.begin_message(shared);
        let solicited = control.opcode.solicits_event();
        let immediate = Some(u64::from_be_bytes(octets));
        self.complete(shared, &ReceivedMessage { byte_len: 0, solicited, invalidated: None, immediate });
        Some(Placed { octets: copied, answers_read: false })
    }

    /// Completes the receive of the message, which ends.
    #[inline]
    fn complete(&mut self, shared: &SharedQp, received: &ReceivedMessage) {
        shared.complete_message(&self.message.request, received);
        self.message.end();
        self.expected_msn = self.expected_msn.wrapping_add(1);
    }

    /// Handles a ULPDU that was not [placed](Self::place): a request, the answer to an Atomic Request, a
    /// Terminate, or a message of the peer's provider.
    ///
    /// # Errors
    ///
    /// [`Fault`] if it is not valid. Nothing is placed then, but what a message that fails at its Delivery
    /// consists of.
    // Requirements: DDP-7.1-09, DDP-7.1-15
    #[cold]
    #[inline(never)]
    pub fn on_rare<U: Ulpdu>(
        &mut self,
        context: &mut ReceiveContext<'_>,
        octets: &U,
    ) -> Result<Received, Fault> {
        let ulpdu = ParsedUlpdu::parse(octets)?;
        if self.indications.are_due() {
            if let Some(received) = self.accept_indication(&ulpdu, &mut context.reads.outbound) {
                return Ok(received);
            }
            if let Some(placed) = self.place_expected(context, octets) {
                return Ok(Received::First(placed));
            }
        }
        match ulpdu.header {
            Header::Tagged(header) => {
                Err(ulpdu.fault(self.explain_tagged(&header, ulpdu.payload_octets(), context)))
            }
            Header::Untagged(header) => match header.queue {
                TERMINATE_QUEUE => self.on_terminate(&header, &ulpdu).map_err(|error| ulpdu.fault(error)),
                READ_REQUEST_QUEUE => self.on_request(&header, &ulpdu, context),
                ATOMIC_RESPONSE_QUEUE => {
                    self.on_atomic_response(&header, &ulpdu, context).map_err(|error| ulpdu.fault(error))
                }
                _ => self.on_refused_send(&header, &ulpdu, context),
            },
        }
    }

    /// Handles a segment on the queue of Sends, or on none, that was not placed. It may have been refused
    /// only because no receive was posted, and one is now: then it is placed after all.
    fn on_refused_send<U: Ulpdu>(
        &mut self,
        header: &Untagged,
        ulpdu: &ParsedUlpdu<'_, U>,
        context: &mut ReceiveContext<'_>,
    ) -> Result<Received, Fault> {
        let checked = self.check_untagged(header, ulpdu.payload_octets(), context);
        checked.map_err(|error| ulpdu.fault(error))?;
        match self.place_expected(context, ulpdu.octets) {
            Some(placed) => Ok(Received::First(placed)),
            None => Err(ulpdu.fault(self.refused_invalidation(header))),
        }
    }

    /// Consumes a ULPDU if it is a message of the peer's provider.
    fn accept_indication<U: Ulpdu>(
        &mut self,
        ulpdu: &ParsedUlpdu<'_, U>,
        outbound: &mut OutboundReads,
    ) -> Option<Received> {
        let received = self.indications.consume(self.version, &ulpdu.header, ulpdu.octets)?;
        // Ambiguity A-16: the provider has the buffer for it, and it uses an MSN.
        match (received, ulpdu.header) {
            (Received::RtrReceived, Header::Untagged(_)) => {
                self.expected_msn = self.expected_msn.wrapping_add(1);
            }
            (Received::RtrReceived, Header::Tagged(_)) => outbound.on_indication_answered(),
            (Received::RtrReadReceived { .. }, _) => {
                self.expected_request = self.expected_request.wrapping_add(1);
            }
            _ => {}
        }
        Some(received)
    }
}
