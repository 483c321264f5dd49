//! The send queue of a connection: descriptors of segments to send and sent, not their octets, and the state
//! of each (the scoreboard of RFC 6675). A retransmission returns the same descriptor, so the layer above
//! rebuilds the same FPDU within the same boundaries (RFC 5044 App. A.1).

use crate::limits;
use crate::pool::{List, NodeId, Pool};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::scan_budget::ScanBudget;

/// The state of a segment, as far as the sender can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Not yet sent.
    Unsent,
    /// Sent, and presumed to be in the network.
    InFlight,
    /// Selectively acknowledged: the peer holds it, though it may still drop it (RFC 2018 §8).
    Sacked,
    /// Presumed lost, to be retransmitted.
    Lost,
}

/// The data of one segment: a range of a descriptor's payload.
#[derive(Clone, Copy, Debug)]
pub struct Segment<P> {
    /// The sequence number of the first octet.
    pub seq: SeqNumber,
    /// Octets in the segment.
    pub octets: u32,
    /// The descriptor from which the layer above builds the octets.
    pub payload: P,
    /// The offset in the payload at which the segment begins: 0 unless an FPDU had to be cut (RFC 5044 §4.5,
    /// EMSS below the floor).
    pub skip: u32,
    /// When it was last sent.
    pub sent_at: Instant,
    /// The number of transmissions.
    pub transmissions: u8,
    /// Its state.
    pub state: SegmentState,
}

impl<P> Segment<P> {
    /// The sequence number after the last octet.
    pub fn end(&self) -> SeqNumber {
        self.seq + self.octets
    }

    /// Whether it was sent more than once, so that its acknowledgement is ambiguous (Karn).
    pub const fn retransmitted(&self) -> bool {
        self.transmissions > 1
    }
}

/// The segments of one connection from the oldest unacknowledged to the last queued.
#[derive(Debug)]
pub struct SendQueue {
    segments: List,
    /// The next segment never sent; `None` when all are sent.
    next: Option<NodeId>,
    /// No segment before this one is lost; `None` if no segment is.
    lost_from: Option<NodeId>,
    /// SND.NXT: the sequence number of the next octet never sent.
    nxt: SeqNumber,
    /// The sequence number after the last queued octet.
    end: SeqNumber,
    in_flight_octets: u32,
    lost_octets: u32,
    sacked_octets: u32,
    sacked_segments: u32,
    /// The sequence number after the highest octet selectively acknowledged.
    sacked_end: SeqNumber,
}

impl SendQueue {
    /// An empty queue whose first octet will have the sequence number `start`.
    pub const fn new(start: SeqNumber) -> Self {
        Self {
            segments: List::new(),
            next: None,
            lost_from: None,
            nxt: start,
            end: start,
            in_flight_octets: 0,
            lost_octets: 0,
            sacked_octets: 0,
            sacked_segments: 0,
            sacked_end: start,
        }
    }

    /// SND.NXT: the sequence number of the next octet never sent.
    pub const fn nxt(&self) -> SeqNumber {
        self.nxt
    }

    /// The sequence number after the last queued octet.
    pub const fn end(&self) -> SeqNumber {
        self.end
    }

    /// Octets queued and never sent.
    pub fn unsent_octets(&self) -> u32 {
        (self.end - self.nxt) as u32
    }

    /// Octets presumed to be in the network (the pipe of RFC 6675 §4).
    pub const fn in_flight_octets(&self) -> u32 {
        self.in_flight_octets
    }

    /// Octets presumed lost and not retransmitted yet.
    pub const fn lost_octets(&self) -> u32 {
        self.lost_octets
    }

    /// Octets sent and neither acknowledged nor selectively acknowledged.
    pub const fn outstanding_octets(&self) -> u32 {
        self.in_flight_octets + self.lost_octets
    }

    /// Octets selectively acknowledged.
    pub const fn sacked_octets(&self) -> u32 {
        self.sacked_octets
    }

    /// Segments selectively acknowledged.
    pub const fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    /// The sequence number after the highest octet selectively acknowledged, if any is.
    pub const fn sacked_end(&self) -> Option<SeqNumber> {
        if self.sacked_segments > 0 { Some(self.sacked_end) } else { None }
    }

    /// Segments held.
    pub const fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether nothing is held.
    pub const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Queues a segment of `octets` octets. Returns false and queues nothing if the pool has no node left, or
    /// this queue holds its share of them.
    pub fn push<P>(&mut self, pool: &mut Pool<Segment<P>>, payload: P, skip: u32, octets: u32) -> bool {
        let segment = Segment {
            seq: self.end,
            octets,
            payload,
            skip,
            sent_at: Instant::ZERO,
            transmissions: 0,
            state: SegmentState::Unsent,
        };
        if self.segments.len() >= limits::SEND_DESCRIPTOR_SHARE * pool.free() {
            return false;
        }
        let Ok(node) = pool.push_back(&mut self.segments, segment) else {
            return false;
        };
        self.end += octets;
        if self.next.is_none() {
            self.next = Some(node);
        }
        true
    }

    /// The segments held, in order.
    pub fn iter<'p, P>(&self, pool: &'p Pool<Segment<P>>) -> impl Iterator<Item = &'p Segment<P>> {
        let next = |segment: &NodeId| pool.next(*segment);
        core::iter::successors(self.segments.front(), next).filter_map(|node| pool.get(node))
    }

    /// Replaces the payload of every segment by `payload`.
    pub fn replace_payloads<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, payload: P) {
        let mut at = self.segments.front();
        while let Some(node) = at {
            if let Some(segment) = pool.get_mut(node) {
                (segment.payload, segment.skip) = (payload, 0);
            }
            at = pool.next(node);
        }
    }

    /// The payload and the octets of the last segment, if it was never sent and is whole.
    pub fn last_unsent<P: Copy>(&self, pool: &Pool<Segment<P>>) -> Option<(P, u32)> {
        let last = pool.get(self.segments.back()?)?;
        (last.state == SegmentState::Unsent && last.skip == 0).then_some((last.payload, last.octets))
    }

    /// Replaces the last segment, which [`last_unsent`](Self::last_unsent) returned and which is not longer,
    /// by `payload` of `octets` octets.
    pub fn extend_last<P>(&mut self, pool: &mut Pool<Segment<P>>, payload: P, octets: u32) {
        let Some(last) = self.segments.back().and_then(|node| pool.get_mut(node)) else { return };
        debug_assert!(last.state == SegmentState::Unsent && last.octets <= octets, "it cannot grow any more");
        self.end += octets - last.octets;
        (last.payload, last.octets) = (payload, octets);
    }

    /// Octets of the segment after the next one never sent.
    pub fn octets_behind<P>(&self, pool: &Pool<Segment<P>>) -> Option<u32> {
        pool.get(pool.next(self.next?)?).map(|segment| segment.octets)
    }

    /// The next segment never sent.
    pub fn peek<'p, P>(&self, pool: &'p Pool<Segment<P>>) -> Option<&'p Segment<P>> {
        pool.get(self.next?)
    }

    /// The oldest unacknowledged segment, if it was ever sent.
    pub fn oldest<'p, P>(&self, pool: &'p Pool<Segment<P>>) -> Option<&'p Segment<P>> {
        pool.get(self.segments.front()?).filter(|segment| segment.transmissions > 0)
    }

    /// The first segment presumed lost.
    pub fn peek_lost<'p, P>(&mut self, pool: &'p Pool<Segment<P>>) -> Option<&'p Segment<P>> {
        if self.lost_octets == 0 {
            return None;
        }
        let mut at = self.lost_from;
        while let Some(node) = at {
            let segment = pool.get(node)?;
            if segment.state == SegmentState::Lost {
                self.lost_from = at;
                return Some(segment);
            }
            at = pool.next(node);
        }
        debug_assert!(false, "lost octets without a lost segment");
        None
    }

    /// Notes that the next unsent segment is sent at `now`, and returns it.
    pub fn advance<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, now: Instant) -> Option<Segment<P>> {
        self.advance_if(pool, now, |_| true)
    }

    /// Does what [`advance`](Self::advance) does, if `wanted` holds for the segment.
    #[inline]
    pub fn advance_if<P: Copy>(
        &mut self,
        pool: &mut Pool<Segment<P>>,
        now: Instant,
        wanted: impl FnOnce(&Segment<P>) -> bool,
    ) -> Option<Segment<P>> {
        let (segment, next) = pool.get_mut_and_next(self.next?)?;
        if !wanted(segment) {
            return None;
        }
        note_sent(segment, now);
        self.in_flight_octets += segment.octets;
        self.nxt = segment.end();
        self.next = next;
        Some(*segment)
    }

    /// Notes that the first lost segment is retransmitted at `now`, and returns it.
    pub fn resend_lost<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, now: Instant) -> Option<Segment<P>> {
        self.peek_lost(pool)?;
        let segment = pool.get_mut(self.lost_from?)?;
        note_sent(segment, now);
        let sent = *segment;
        self.lost_octets -= sent.octets;
        self.in_flight_octets += sent.octets;
        Some(sent)
    }

    /// Notes that the last segment sent is retransmitted at `now`, and returns it (RFC 8985 §7.3).
    pub fn resend_last<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, now: Instant) -> Option<Segment<P>> {
        // The last segment sent is the last of the list, unless others are queued after it; then those are
        // sent first.
        let node = self.segments.back()?;
        let segment = pool.get_mut(node)?;
        if segment.transmissions == 0 {
            return None;
        }
        match segment.state {
            SegmentState::InFlight => {}
            SegmentState::Lost => {
                self.lost_octets -= segment.octets;
                self.in_flight_octets += segment.octets;
            }
            SegmentState::Sacked | SegmentState::Unsent => return None,
        }
        note_sent(segment, now);
        Some(*segment)
    }

    /// Cuts the next unsent segment so that its first part has `octets` octets. Returns false if it is not
    /// longer than that, or the pool has no node left.
    pub fn split<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, octets: u32) -> bool {
        let Some(node) = self.next else { return false };
        self.split_node(pool, node, octets)
    }

    /// Cuts the first lost segment so that its first part has `octets` octets: the path has become narrower.
    pub fn split_lost<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, octets: u32) -> bool {
        if self.peek_lost(pool).is_none() {
            return false;
        }
        let Some(node) = self.lost_from else { return false };
        self.split_node(pool, node, octets)
    }

    fn split_node<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, node: NodeId, octets: u32) -> bool {
        let Some(&first) = pool.get(node) else { return false };
        if octets == 0 || first.octets <= octets {
            return false;
        }
        let rest = Segment {
            seq: first.seq + octets,
            octets: first.octets - octets,
            skip: first.skip + octets,
            ..first
        };
        if pool.insert_after(&mut self.segments, Some(node), rest).is_err() {
            return false;
        }
        if let Some(segment) = pool.get_mut(node) {
            segment.octets = octets;
        }
        true
    }

    /// Frees the segments that `ack` covers wholly, and calls `delivered` for each before. A segment
    /// acknowledged in part stays, and is retransmitted whole if necessary, so that its boundaries hold.
    pub fn acknowledge<P>(
        &mut self,
        pool: &mut Pool<Segment<P>>,
        ack: SeqNumber,
        mut delivered: impl FnMut(&Segment<P>),
    ) {
        while let Some(front) = self.segments.front() {
            let Some(segment) = pool.get(front) else { break };
            if segment.end() > ack || segment.transmissions == 0 {
                break;
            }
            delivered(segment);
            match segment.state {
                SegmentState::InFlight => self.in_flight_octets -= segment.octets,
                SegmentState::Lost => self.lost_octets -= segment.octets,
                SegmentState::Sacked => {
                    self.sacked_octets -= segment.octets;
                    self.sacked_segments -= 1;
                }
                SegmentState::Unsent => {}
            }
            if self.lost_from == Some(front) {
                self.lost_from = pool.next(front);
            }
            pool.pop_front(&mut self.segments);
        }
    }

    /// Marks the segments that lie wholly inside `blocks` (first octet, octet after the last) as held by the
    /// peer, and calls `delivered` for each one newly marked before.
    pub fn mark_sacked<P>(
        &mut self,
        pool: &mut Pool<Segment<P>>,
        budget: &mut ScanBudget,
        blocks: &[(SeqNumber, SeqNumber)],
        mut delivered: impl FnMut(&Segment<P>),
    ) {
        let Some(highest) = blocks.iter().map(|block| block.1).reduce(SeqNumber::later) else { return };
        let mut at = self.segments.front();
        while let Some(node) = at {
            budget.spend_one();
            let Some(segment) = pool.get_mut(node) else { return };
            if segment.end() > highest || segment.transmissions == 0 {
                return;
            }
            let (seq, end) = (segment.seq, segment.end());
            let held = blocks.iter().any(|&(left, right)| left <= seq && end <= right);
            if held && segment.state != SegmentState::Sacked {
                delivered(segment);
                match segment.state {
                    SegmentState::InFlight => self.in_flight_octets -= segment.octets,
                    SegmentState::Lost => self.lost_octets -= segment.octets,
                    SegmentState::Sacked | SegmentState::Unsent => {}
                }
                segment.state = SegmentState::Sacked;
                self.sacked_end = if self.sacked_segments == 0 { end } else { self.sacked_end.later(end) };
                self.sacked_segments += 1;
                self.sacked_octets += segment.octets;
            }
            at = pool.next(node);
        }
    }

    /// Calls `judge` for the segments in flight, oldest first, and marks as lost those for which it returns
    /// [`Verdict::Lost`]. It ends at the first [`Verdict::Stop`]. Returns true if it marked any.
    pub fn mark_lost<P>(
        &mut self,
        pool: &mut Pool<Segment<P>>,
        budget: &mut ScanBudget,
        mut judge: impl FnMut(&Segment<P>) -> Verdict,
    ) -> bool {
        let mut first_lost = None;
        let mut at = self.segments.front();
        while let Some(node) = at {
            budget.spend_one();
            let Some(segment) = pool.get_mut(node) else { break };
            match segment.state {
                SegmentState::Unsent => break,
                SegmentState::Sacked | SegmentState::Lost => {}
                SegmentState::InFlight => match judge(segment) {
                    Verdict::Keep => {}
                    Verdict::Lost => {
                        segment.state = SegmentState::Lost;
                        self.in_flight_octets -= segment.octets;
                        self.lost_octets += segment.octets;
                        first_lost = first_lost.or(at);
                    }
                    Verdict::Stop => break,
                },
            }
            at = pool.next(node);
        }
        if first_lost.is_some() {
            // The first lost segment is this one or an older one; the next search starts at the front.
            self.lost_from = self.segments.front();
        }
        first_lost.is_some()
    }

    /// Marks all lost segments as in flight: they were not lost (a spurious timeout or retransmission).
    pub fn unmark_lost<P>(&mut self, pool: &mut Pool<Segment<P>>) {
        while self.peek_lost(pool).is_some() {
            let Some(segment) = self.lost_from.and_then(|node| pool.get_mut(node)) else { return };
            segment.state = SegmentState::InFlight;
            self.lost_octets -= segment.octets;
            self.in_flight_octets += segment.octets;
        }
    }

    /// Marks all selectively acknowledged segments as lost: the peer has dropped them (RFC 2018 §8).
    pub fn forget_sacked<P>(&mut self, pool: &mut Pool<Segment<P>>) {
        let mut at = self.segments.front();
        while let Some(node) = at {
            let Some(segment) = pool.get_mut(node) else { break };
            if segment.state == SegmentState::Sacked {
                segment.state = SegmentState::Lost;
                self.lost_octets += segment.octets;
            }
            at = pool.next(node);
        }
        (self.sacked_octets, self.sacked_segments) = (0, 0);
        self.lost_from = self.segments.front();
    }

    /// Frees everything.
    pub fn clear<P>(&mut self, pool: &mut Pool<Segment<P>>) {
        pool.clear(&mut self.segments);
        *self = Self::new(self.nxt);
    }
}

/// The verdict on a segment in flight, for [`SendQueue::mark_lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may still arrive.
    Keep,
    /// It is lost.
    Lost,
    /// Neither it nor any after it is lost.
    Stop,
}

fn note_sent<P>(segment: &mut Segment<P>, now: Instant) {
    segment.sent_at = now;
    segment.transmissions = segment.transmissions.saturating_add(1);
    segment.state = SegmentState::InFlight;
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: SeqNumber = SeqNumber(0xffff_ff00);

    fn queue(sizes: &[u32]) -> (SendQueue, Pool<Segment<char>>) {
        let mut pool = Pool::new(8);
        let mut queue = SendQueue::new(START);
        for (name, size) in ('a'..).zip(sizes) {
            assert!(queue.push(&mut pool, name, 0, *size));
        }
        (queue, pool)
    }

    fn sent(queue: &mut SendQueue, pool: &mut Pool<Segment<char>>) -> Option<(char, u32, u32)> {
        queue.advance(pool, Instant::ZERO).map(|s| (s.payload, s.skip, s.octets))
    }

    fn resent(queue: &mut SendQueue, pool: &mut Pool<Segment<char>>) -> Option<(char, u32, u32)> {
        queue.resend_lost(pool, Instant::ZERO).map(|s| (s.payload, s.skip, s.octets))
    }

    fn counts(queue: &SendQueue) -> (u32, u32, u32) {
        (queue.in_flight_octets(), queue.lost_octets(), queue.sacked_octets())
    }

    /// A retransmission keeps its segment boundaries.
    // Requirements: MPA-A.1-04
    #[test]
    fn retransmission_keeps_boundaries() {
        let (mut queue, mut pool) = queue(&[100, 200, 300]);
        while sent(&mut queue, &mut pool).is_some() {}
        queue.acknowledge(&mut pool, START + 150, |_| {});
        assert_eq!(queue.len(), 2, "a segment acknowledged in part stays");
        assert!(queue.mark_lost(&mut pool, &mut ScanBudget::new(), |_| Verdict::Lost));
        assert_eq!(counts(&queue), (0, 500, 0));
        assert_eq!(resent(&mut queue, &mut pool), Some(('b', 0, 200)));
        assert_eq!(resent(&mut queue, &mut pool), Some(('c', 0, 300)));
        assert_eq!(resent(&mut queue, &mut pool), None);
        assert_eq!(counts(&queue), (500, 0, 0));
    }

    #[test]
    fn an_ack_may_overtake_the_second_sending() {
        let (mut queue, mut pool) = queue(&[100, 200, 300]);
        while sent(&mut queue, &mut pool).is_some() {}
        queue.mark_lost(&mut pool, &mut ScanBudget::new(), |_| Verdict::Lost);
        assert_eq!(resent(&mut queue, &mut pool), Some(('a', 0, 100)));
        let mut freed = Vec::new();
        queue.acknowledge(&mut pool, START + 300, |s| freed.push((s.payload, s.retransmitted())));
        assert_eq!(freed, [('a', true), ('b', false)]);
        assert_eq!(resent(&mut queue, &mut pool), Some(('c', 0, 300)));
        queue.acknowledge(&mut pool, START + 600, |_| {});
        assert!(queue.is_empty());
        assert_eq!((pool.used(), counts(&queue)), (0, (0, 0, 0)));
    }

    /// RFC 2018 §5: only segments that are wholly inside a block count as held by the peer.
    #[test]
    fn selective_acknowledgement_marks_whole_segments() {
        let (mut queue, mut pool) = queue(&[100, 100, 100, 100]);
        while sent(&mut queue, &mut pool).is_some() {}
        let mut held = Vec::new();
        let blocks = [(START + 100, START + 200), (START + 250, START + 400)];
        queue.mark_sacked(&mut pool, &mut ScanBudget::new(), &blocks, |s| held.push(s.payload));
        queue.mark_sacked(&mut pool, &mut ScanBudget::new(), &blocks, |s| held.push(s.payload));
        assert_eq!(held, ['b', 'd'], "each is shown once, and c is not whole");
        assert_eq!((counts(&queue), queue.sacked_segments()), ((200, 0, 200), 2));
        assert_eq!(queue.sacked_end(), Some(START + 400));
        assert!(queue.mark_lost(&mut pool, &mut ScanBudget::new(), |_| Verdict::Lost), "of a and c");
        assert_eq!(resent(&mut queue, &mut pool), Some(('a', 0, 100)));
        assert_eq!(resent(&mut queue, &mut pool), Some(('c', 0, 100)));
        assert_eq!(resent(&mut queue, &mut pool), None);
    }

    #[test]
    fn a_peer_that_drops_what_it_held_gets_it_again() {
        let (mut queue, mut pool) = queue(&[100, 100]);
        while sent(&mut queue, &mut pool).is_some() {}
        queue.mark_sacked(&mut pool, &mut ScanBudget::new(), &[(START + 100, START + 200)], |_| {});
        queue.forget_sacked(&mut pool);
        assert_eq!(counts(&queue), (100, 100, 0));
        assert_eq!(resent(&mut queue, &mut pool), Some(('b', 0, 100)));
    }

    #[test]
    fn a_mistaken_loss_is_taken_back() {
        let (mut queue, mut pool) = queue(&[100, 100]);
        while sent(&mut queue, &mut pool).is_some() {}
        queue.mark_lost(&mut pool, &mut ScanBudget::new(), |_| Verdict::Lost);
        queue.unmark_lost(&mut pool);
        assert_eq!(counts(&queue), (200, 0, 0));
        assert_eq!(resent(&mut queue, &mut pool), None);
    }

    #[test]
    fn a_cut_segment_loses_nothing() {
        let (mut queue, mut pool) = queue(&[100, 200]);
        assert!(queue.split(&mut pool, 30));
        assert!(!queue.split(&mut pool, 30), "already that short");
        assert_eq!(sent(&mut queue, &mut pool), Some(('a', 0, 30)));
        assert_eq!(sent(&mut queue, &mut pool), Some(('a', 30, 70)));
        assert_eq!(sent(&mut queue, &mut pool), Some(('b', 0, 200)));
        assert_eq!(queue.unsent_octets(), 0);
        queue.mark_lost(&mut pool, &mut ScanBudget::new(), |s| {
            if s.payload == 'b' { Verdict::Lost } else { Verdict::Keep }
        });
        assert!(queue.split_lost(&mut pool, 150), "the path has become narrower");
        assert_eq!(resent(&mut queue, &mut pool), Some(('b', 0, 150)));
        assert_eq!(resent(&mut queue, &mut pool), Some(('b', 150, 50)));
        assert_eq!(counts(&queue), (300, 0, 0));
    }

    #[test]
    fn the_last_segment_is_sent_again_as_a_probe() {
        let (mut queue, mut pool) = queue(&[100, 200]);
        sent(&mut queue, &mut pool);
        assert!(queue.resend_last(&mut pool, Instant::ZERO).is_none(), "new data goes first");
        sent(&mut queue, &mut pool);
        let probe = queue.resend_last(&mut pool, Instant::ZERO).map(|s| (s.payload, s.transmissions));
        assert_eq!(probe, Some(('b', 2)));
        assert_eq!(counts(&queue), (300, 0, 0));
    }

    #[test]
    fn a_full_pool_refuses() {
        let (mut one, mut pool) = queue(&[1; 7]);
        assert!(!one.push(&mut pool, 'x', 0, 1), "it has four fifths and more");
        assert_eq!(one.unsent_octets(), 7);
        let mut other = SendQueue::new(START);
        assert!(other.push(&mut pool, 'x', 0, 1), "one is left");
        assert!(!SendQueue::new(START).push(&mut pool, 'x', 0, 1));
        other.clear(&mut pool);
        one.clear(&mut pool);
        assert_eq!(pool.used(), 0);
    }
}
