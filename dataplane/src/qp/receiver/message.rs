//! The message that is being received on the queue of Sends, and the receives that it and the messages after
//! it complete.
//!
//! A receive stays in the slot where it was posted, or in the shared receive queue, until the first segment
//! of its message is placed. One of a shared receive queue is moved to the queue pair before that only for a
//! message beyond a gap, or one that is refused.

use arrayvec::ArrayVec;

use super::Receiver;
use super::fault::ParsedUlpdu;
use crate::limits;
use crate::memory::{Access, StagTable, Target};
use crate::mpa::receiver::Ulpdu;
use crate::qp::error::StreamError;
use crate::qp::shared::SharedQp;
use crate::qp::work::{ReceiveRequest, Slice, SliceList};
use crate::rdmap::message::SEND_QUEUE;
use crate::wire::ddp::Header;
use crate::wire::rdmap::Control;

/// The next message on the queue of Sends.
#[derive(Debug)]
pub(super) struct Message {
    /// Its receive, once it has begun.
    pub request: ReceiveRequest,
    /// Octets placed: the offset at which the next segment must begin.
    pub placed: u32,
    /// Octets of the range `range` that are placed. If that range is full, the next segment begins in one
    /// after it.
    placed_in_range: u32,
    range: u8,
    /// Its first segment is placed, so the receive is its own.
    pub begun: bool,
}

impl Message {
    pub(super) fn new() -> Self {
        let request = ReceiveRequest::new(0, SliceList::default());
        Self { request, placed: 0, placed_in_range: 0, range: 0, begun: false }
    }

    /// Returns the memory of the next `octets` octets if they lie in the range that was written last; `None`
    /// if they do not, or there are none.
    #[inline]
    pub(super) fn in_one_range(&self, octets: usize) -> Option<Slice> {
        let range = self.request.local.as_slice().get(usize::from(self.range))?;
        let left = (range.len - self.placed_in_range) as usize;
        let to = range.to.wrapping_add(u64::from(self.placed_in_range));
        (1..=left).contains(&octets).then_some(Slice { stag: range.stag, to, len: octets as u32 })
    }

    /// Adds the ranges of the next `octets` octets to `memory`, which is empty. Returns false if its receive
    /// has no room for them, or the application may not write one of the ranges.
    #[inline]
    pub(super) fn add_next<'t>(
        &self,
        memory: &mut Memory<'t>,
        octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> bool {
        let (mut at, mut skip) = (0, self.placed_in_range);
        for range in self.request.local.as_slice().get(usize::from(self.range)..).unwrap_or_default() {
            let len = ((range.len - skip) as usize).min(octets - at) as u32;
            if len > 0 {
                let part = Slice { stag: range.stag, to: range.to.wrapping_add(u64::from(skip)), len };
                let Some(target) = writable(&part, shared, stags) else { return false };
                if memory.0.try_push((at, target)).is_err() {
                    return false;
                }
                at += len as usize;
            }
            if at == octets {
                break;
            }
            skip = 0;
        }
        at == octets
    }

    /// Counts `octets` octets that are placed.
    #[inline]
    pub(super) fn advance(&mut self, octets: usize) {
        self.placed += octets as u32;
        self.placed_in_range += octets as u32;
        let ranges = self.request.local.as_slice();
        // The range that the last of them is in, or the last one.
        while let Some(range) = ranges.get(usize::from(self.range))
            && self.placed_in_range > range.len
        {
            self.placed_in_range -= range.len;
            self.range += 1;
        }
    }

    /// Ends: the next message has no receive yet.
    #[inline]
    pub(super) const fn end(&mut self) {
        (self.placed, self.placed_in_range, self.range, self.begun) = (0, 0, 0, false);
    }
}

/// Checked ranges that the payload of one segment is placed in, in order, each with the offset in the payload
/// at which it begins.
pub(super) struct Memory<'t>(ArrayVec<(usize, Target<'t>), { limits::SCATTER_GATHER_ELEMENTS }>);

impl<'t> Memory<'t> {
    /// No ranges.
    #[inline]
    pub(super) const fn none() -> Self {
        Self(ArrayVec::new_const())
    }

    /// One range for all of the payload, or none for an empty one.
    pub(super) fn of_target(target: Option<Target<'t>>) -> Self {
        Self(target.into_iter().map(|target| (0, target)).collect())
    }

    /// Adds the ranges of `request` for `octets` octets from offset `mo` on. Returns false if the application
    /// may not write one of them.
    #[inline]
    pub(super) fn add_receive(
        &mut self,
        request: &ReceiveRequest,
        mo: u32,
        octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> bool {
        request.local.pieces(u64::from(mo), octets).all(|(at, part)| {
            let target = writable(&part, shared, stags);
            target.is_some_and(|target| self.0.try_push((at, target)).is_ok())
        })
    }

    /// Writes `payload`, which the ranges are for.
    #[inline]
    pub(super) fn write_all(&self, payload: &[u8]) {
        for (begin, target) in &self.0 {
            let part = payload.get(*begin..begin + target.octets());
            let is_written = part.is_some_and(|part| target.write(0, part));
            debug_assert!(is_written, "all of the segment was checked before");
        }
    }

    /// Writes `octets`, which are at `at` of the payload.
    pub(super) fn write(&self, at: usize, octets: &[u8]) -> bool {
        let mut written = 0;
        for (begin, target) in &self.0 {
            // The offset in this range of the next octet; none if the range begins later.
            let Some(place) = (at + written).checked_sub(*begin) else { break };
            let Some(room) = target.octets().checked_sub(place) else { continue };
            let part = &octets[written..(written + room).min(octets.len())];
            if !target.write(place, part) {
                return false;
            }
            written += part.len();
        }
        written == octets.len()
    }
}

/// Returns a range of a receive if the application may write it.
#[inline]
pub(super) fn writable<'t>(range: &Slice, shared: &SharedQp, stags: &'t StagTable) -> Option<Target<'t>> {
    stags.check(range.stag, shared.accessor(), Access::LOCAL_WRITE, range.to, range.len as usize).ok()
}

impl Receiver {
    /// Copies the receive of the message that begins from where it lies. Returns false if there is none.
    #[expect(clippy::inline_always, reason = "the other caller is for segments beyond a gap")]
    #[inline(always)]
    pub(super) fn load_receive(&mut self, shared: &SharedQp) -> bool {
        match self.moved.front() {
            None => shared.read_front_receive(&mut self.message.request),
            Some(moved) => {
                self.message.request = *moved;
                true
            }
        }
    }

    /// Consumes the receive that was [loaded](Self::load_receive): the message has begun. Returns false if it
    /// stays where it is, because its completion has no entry.
    #[inline]
    pub(super) fn begin_message(&mut self, shared: &SharedQp) -> bool {
        self.message.begun = if self.moved.is_empty() {
            shared.consume_front_receive()
        } else {
            self.moved.pop_front().is_some()
        };
        self.message.begun
    }

    /// Moves receives of a shared receive queue here for the next `messages` messages, the one under way
    /// included, as far as there are any. No more are moved than that, in the order in which the messages
    /// will be Delivered: the rest is for other queue pairs.
    // Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
    pub(super) fn provide(&mut self, shared: &SharedQp, messages: usize) -> Result<(), StreamError> {
        while shared.shares_receives() && self.moved.len() + usize::from(self.message.begun) < messages {
            let Some(request) = shared.dequeue_shared_receive()? else { break };
            self.moved.push_back(request);
        }
        Ok(())
    }

    /// Returns the receive of the message `ahead` messages after the next one, if it is posted, and
    /// [provided](Self::provide) if it is shared.
    pub(super) fn receive_of(&self, shared: &SharedQp, ahead: usize) -> Option<ReceiveRequest> {
        if self.message.begun && ahead == 0 {
            return Some(self.message.request);
        }
        let index = ahead - usize::from(self.message.begun);
        if shared.shares_receives() { self.moved.get(index).copied() } else { shared.posted_receive(index) }
    }

    /// Whether the next ULPDU, verified by MPA, begins a valid message for which no receive is posted. A
    /// ULPDU with any other error does not wait.
    // Requirements: DDP-7.1-02
    #[cold]
    pub fn lacks_receive(&self, shared: &SharedQp, ulpdu: &impl Ulpdu) -> bool {
        if self.message.begun || !self.moved.is_empty() || shared.has_front_receive() {
            return false;
        }
        let Ok(ulpdu) = ParsedUlpdu::parse(ulpdu) else { return false };
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
        begins && indications.take(self.version, &ulpdu.header, ulpdu.octets).is_none()
    }

    /// Whether a receive is posted for a message that waits for one.
    pub fn has_receive(&self, shared: &SharedQp) -> bool {
        !self.moved.is_empty()
            || shared.has_posted_receives()
            || shared.shared_receives().is_some_and(|queue| !queue.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::STag;

    fn message(lens: &[u32]) -> Message {
        let slices: Vec<Slice> =
            lens.iter().zip(1..).map(|(&len, n)| Slice { stag: STag::new(n, 0), to: 100, len }).collect();
        let request = ReceiveRequest::new(7, SliceList::try_from(&slices[..]).unwrap());
        Message { request, begun: true, ..Message::new() }
    }

    /// Where the next octets lie follows from those before, however they were cut.
    #[test]
    fn the_next_octets_lie_after_those_placed() {
        let in_one = |message: &Message, octets| {
            message.in_one_range(octets).map(|slice| (slice.stag.index(), slice.to - 100, slice.len))
        };
        let mut message = message(&[10, 0, 20, 30]);
        assert_eq!(in_one(&message, 10), Some((1, 0, 10)));
        assert_eq!((in_one(&message, 11), in_one(&message, 0)), (None, None));
        message.advance(4);
        assert_eq!((in_one(&message, 6), in_one(&message, 7)), (Some((1, 4, 6)), None));
        message.advance(6);
        assert_eq!(in_one(&message, 1), None, "the range is full");
        message.advance(1);
        assert_eq!((in_one(&message, 19), in_one(&message, 20)), (Some((3, 1, 19)), None));
        message.advance(30);
        assert_eq!((in_one(&message, 19), in_one(&message, 20)), (Some((4, 11, 19)), None));
        assert_eq!(message.placed, 41);
        message.end();
        assert_eq!((in_one(&message, 10), message.begun), (Some((1, 0, 10)), false));
    }

    #[test]
    fn a_receive_without_ranges_has_no_memory() {
        let mut message = message(&[]);
        assert_eq!((message.in_one_range(0), message.in_one_range(1)), (None, None));
        message.advance(0);
        assert_eq!(message.placed, 0);
    }
}
