//! What a connection has to send and has sent: descriptors of segments, never octets. A retransmission gives the same
//! descriptor again, so the layer above rebuilds the same FPDU within the same boundaries (RFC 5044 App. A.1).

use crate::pool::{List, NodeId, Pool};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// One segment's worth of data: a range of what a descriptor stands for.
#[derive(Clone, Copy, Debug)]
pub struct Segment<P> {
    /// The first octet's place in the stream.
    pub seq: SeqNumber,
    /// Octets in the segment.
    pub octets: u32,
    /// What the layer above builds the octets from.
    pub payload: P,
    /// Where in the payload the segment begins: 0 unless an FPDU had to be cut (RFC 5044 §4.5, EMSS below the floor).
    pub skip: u32,
    /// When it was last sent.
    pub sent_at: Instant,
    /// How often it was sent.
    pub transmissions: u8,
}

impl<P> Segment<P> {
    /// The place after the last octet.
    pub fn end(&self) -> SeqNumber {
        self.seq + self.octets
    }
}

/// The segments of one connection from the oldest unacknowledged to the last queued.
#[derive(Debug)]
pub struct SendQueue {
    segments: List,
    /// The next segment to send; `None` when all are sent.
    next: Option<NodeId>,
    /// Place of the next octet to send (SND.NXT). It steps back when a timeout makes everything to be sent again.
    nxt: SeqNumber,
    /// The highest place ever sent.
    max: SeqNumber,
    /// Place after the last queued octet.
    end: SeqNumber,
}

/// What an acknowledgement freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// When the newest freed segment was sent, if none of the freed ones was ever retransmitted: a valid sample of the
    /// round-trip time (Karn).
    pub sample: Option<Instant>,
}

impl SendQueue {
    /// An empty queue whose first octet will have place `start`.
    pub const fn new(start: SeqNumber) -> Self {
        Self { segments: List::new(), next: None, nxt: start, max: start, end: start }
    }

    /// SND.NXT.
    pub const fn nxt(&self) -> SeqNumber {
        self.nxt
    }

    /// The highest place ever sent.
    pub const fn max(&self) -> SeqNumber {
        self.max
    }

    /// The place after the last queued octet.
    pub const fn end(&self) -> SeqNumber {
        self.end
    }

    /// Octets queued and not yet sent (or to be sent again after a timeout).
    pub fn unsent_octets(&self) -> u32 {
        (self.end - self.nxt) as u32
    }

    /// Segments held.
    pub const fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether nothing is held.
    pub const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Queues a segment of `octets` octets. `false`, and nothing queued, when the pool has no node left.
    pub fn push<P>(&mut self, pool: &mut Pool<Segment<P>>, payload: P, skip: u32, octets: u32) -> bool {
        let segment =
            Segment { seq: self.end, octets, payload, skip, sent_at: Instant::ZERO, transmissions: 0 };
        let Ok(node) = pool.push_back(&mut self.segments, segment) else {
            return false;
        };
        self.end += octets;
        if self.next.is_none() {
            self.next = Some(node);
        }
        true
    }

    /// The next segment to send.
    pub fn peek<'p, P>(&self, pool: &'p Pool<Segment<P>>) -> Option<&'p Segment<P>> {
        pool.get(self.next?)
    }

    /// The oldest unacknowledged segment, if it was ever sent.
    pub fn oldest<'p, P>(&self, pool: &'p Pool<Segment<P>>) -> Option<&'p Segment<P>> {
        pool.get(self.segments.front()?).filter(|segment| segment.transmissions > 0)
    }

    /// Notes that the next segment was sent at `now`; gives it.
    pub fn advance<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, now: Instant) -> Option<Segment<P>> {
        let node = self.next?;
        let segment = pool.get_mut(node)?;
        segment.sent_at = now;
        segment.transmissions = segment.transmissions.saturating_add(1);
        let sent = *segment;
        self.nxt = sent.end();
        self.max = self.max.later(self.nxt);
        self.next = pool.next(node);
        Some(sent)
    }

    /// Notes that the oldest segment was sent once more at `now`, out of turn; gives it.
    pub fn resend_oldest<P: Copy>(
        &mut self,
        pool: &mut Pool<Segment<P>>,
        now: Instant,
    ) -> Option<Segment<P>> {
        let segment = pool.get_mut(self.segments.front()?)?;
        if segment.transmissions == 0 {
            return None;
        }
        segment.sent_at = now;
        segment.transmissions = segment.transmissions.saturating_add(1);
        Some(*segment)
    }

    /// Everything unacknowledged is to be sent again, oldest first (a retransmission timeout).
    pub fn rewind<P>(&mut self, pool: &Pool<Segment<P>>) {
        self.next = self.segments.front();
        if let Some(segment) = self.peek(pool) {
            self.nxt = segment.seq;
        }
    }

    /// Cuts the next segment so that its first part has `octets` octets. `false` when it is no longer than that or the
    /// pool has no node left.
    pub fn split<P: Copy>(&mut self, pool: &mut Pool<Segment<P>>, octets: u32) -> bool {
        let Some(node) = self.next else { return false };
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

    /// Frees the segments that `ack` covers whole. A segment acknowledged in part stays and is sent whole again if
    /// need be, so that its boundaries hold.
    pub fn acknowledge<P>(&mut self, pool: &mut Pool<Segment<P>>, ack: SeqNumber) -> Acked {
        let mut newest = None;
        let mut retransmitted = false;
        while let Some(front) = self.segments.front() {
            let Some(segment) = pool.get(front) else { break };
            if segment.end() > ack {
                break;
            }
            retransmitted |= segment.transmissions > 1;
            newest = Some(segment.sent_at);
            if self.next == Some(front) {
                // Acknowledged by an earlier transmission before its turn came again.
                self.next = pool.next(front);
                self.nxt = segment.end();
            }
            pool.pop_front(&mut self.segments);
        }
        if self.nxt < ack {
            self.nxt = ack;
        }
        Acked { sample: newest.filter(|_| !retransmitted) }
    }

    /// Frees everything.
    pub fn clear<P>(&mut self, pool: &mut Pool<Segment<P>>) {
        pool.clear(&mut self.segments);
        self.next = None;
        self.end = self.max;
        self.nxt = self.max;
    }
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

    /// MPA-A.1-04: what is sent again has the boundaries it had.
    #[test]
    fn retransmission_keeps_boundaries() {
        let (mut queue, mut pool) = queue(&[100, 200, 300]);
        while sent(&mut queue, &mut pool).is_some() {}
        queue.acknowledge(&mut pool, START + 150);
        assert_eq!(queue.len(), 2, "a segment acknowledged in part stays");
        queue.rewind(&pool);
        assert_eq!(queue.nxt(), START + 100);
        assert_eq!(sent(&mut queue, &mut pool), Some(('b', 0, 200)));
        assert_eq!(sent(&mut queue, &mut pool), Some(('c', 0, 300)));
        assert_eq!(sent(&mut queue, &mut pool), None);
    }

    #[test]
    fn an_ack_may_overtake_the_second_sending() {
        let (mut queue, mut pool) = queue(&[100, 200, 300]);
        while sent(&mut queue, &mut pool).is_some() {}
        queue.rewind(&pool);
        assert_eq!(sent(&mut queue, &mut pool), Some(('a', 0, 100)));
        let acked = queue.acknowledge(&mut pool, START + 300);
        assert!(acked.sample.is_none(), "Karn: a was sent twice");
        assert_eq!(queue.nxt(), START + 300);
        assert_eq!(sent(&mut queue, &mut pool), Some(('c', 0, 300)));
        queue.acknowledge(&mut pool, START + 600);
        assert!(queue.is_empty());
        assert_eq!(pool.used(), 0);
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
    }

    #[test]
    fn a_full_pool_refuses() {
        let (mut queue, mut pool) = queue(&[1; 8]);
        assert!(!queue.push(&mut pool, 'x', 0, 1));
        assert_eq!(queue.unsent_octets(), 8);
        queue.clear(&mut pool);
        assert_eq!(pool.used(), 0);
    }
}
