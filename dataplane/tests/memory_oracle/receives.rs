//! Receives in the model, of queue pairs with their own and with shared queues: posted, used by messages,
//! completed.

use core::ops::Range;

use fastrand::Rng;
use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::work::{Completion, ReceiveRequest, Slice, SliceList, Status};

use super::half::Half;
use super::hazards::{Area, Span};
use super::play::Play;
use super::pool::LEAST_OCTETS;
use super::stack::{DEPTH, World};
use super::work::Message;

/// Messages of a host that may be without a shared receive.
const LATE_MAX: usize = 4;

/// A receive that is posted.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub id: u64,
    /// Which part of the memory for messages it has.
    pub slot: usize,
    pub pieces: Vec<Span>,
}

impl Receive {
    pub(crate) fn octets(&self) -> usize {
        self.pieces.iter().map(|piece| piece.range.len()).sum()
    }

    /// The stack's request for this receive, in memory named `stag`.
    pub(crate) fn request(&self, stag: STag) -> ReceiveRequest {
        let slice =
            |piece: &Span| Slice { stag, to: piece.range.start as u64, len: piece.range.len() as u32 };
        let slices: Vec<Slice> = self.pieces.iter().map(slice).collect();
        ReceiveRequest::new(self.id, SliceList::try_from(&slices[..]).expect("few pieces"))
    }
}

/// The `slot` from its beginning on, at least `least` octets of it, in pieces of any order.
pub(super) fn pieces(rng: &mut Rng, slot: Range<usize>, least: usize) -> Vec<Span> {
    let mut cuts: Vec<usize> = (0..rng.usize(..4)).map(|_| rng.usize(0..=least)).collect();
    cuts.push(0);
    cuts.push(rng.usize(least..=slot.len()));
    cuts.sort_unstable();
    let piece =
        |pair: &[usize]| Span { area: Area::Inbox, range: slot.start + pair[0]..slot.start + pair[1] };
    let mut pieces: Vec<_> = cuts.windows(2).map(piece).collect();
    rng.shuffle(&mut pieces);
    pieces
}

/// A completion of the receive queue that is to come.
#[derive(Debug)]
pub(crate) struct DueReceive {
    /// Which it must be; of a shared queue it is seen when it comes.
    pub receive: Option<Receive>,
    /// The octets received, if it is a Send and no Immediate Data.
    pub octets: Option<Vec<u8>>,
    pub immediate: Option<u64>,
    pub invalidated: Option<STag>,
    pub solicited: bool,
}

impl<W: World> Play<W> {
    pub(crate) fn post_receives(&mut self, number: usize, side: usize) {
        for _ in 0..self.rng.usize(1..6) {
            let half = &mut self.halves[number][side];
            if half.shares {
                let host = self.world.host_of(number, side);
                self.pools[host].post(&mut self.rng);
                continue;
            }
            if half.over || half.receives.len() + half.due_receives.len() == DEPTH {
                return;
            }
            let Some(receive) = half.receive(&mut self.rng) else { return };
            let request = receive.request(half.memory(Area::Inbox).stag);
            self.world.qp(number, side).post_receive(request).expect("there is room");
            half.receives.push_back(receive);
        }
    }

    /// Octets that the peer's next message may have: those of its receive, or of one that it waits for.
    pub(crate) fn room_or_patience(&self, number: usize, side: usize) -> Option<usize> {
        self.room(number, side).or_else(|| {
            let waits = self.halves[number][1 - side].shares && self.world.waits_for_shared_receives();
            let host = self.world.host_of(number, 1 - side);
            (waits && self.awaited_receives(host) < LATE_MAX).then_some(LEAST_OCTETS)
        })
    }

    /// How many messages to a host are more than the shared receives posted there.
    fn awaited_receives(&self, host: usize) -> usize {
        self.messages_to_pool(host).sum::<usize>().saturating_sub(self.pools[host].posted.len())
    }

    /// Now and then posts a shared receive that a message waits for.
    pub(crate) fn post_awaited(&mut self) {
        if !self.world.waits_for_shared_receives() || self.rng.u8(..32) > 0 {
            return;
        }
        for host in 0..self.pools.len() {
            if self.awaited_receives(host) > 0 {
                self.pools[host].post(&mut self.rng);
            }
        }
    }

    /// Octets of the receive that the peer's next message takes; `None` when there may be none.
    pub(crate) fn room(&self, number: usize, side: usize) -> Option<usize> {
        let there = &self.halves[number][1 - side];
        if !there.shares {
            return there.receives.front().map(Receive::octets);
        }
        // Every message in flight takes one, and any of the rest may serve this message.
        let host = self.world.host_of(number, 1 - side);
        let taken: usize = self.messages_to_pool(host).sum();
        (self.pools[host].posted.len() > taken).then_some(LEAST_OCTETS)
    }

    /// All halves of connections of a host, since it was started.
    fn halves_at(&self, host: usize) -> impl Iterator<Item = (usize, usize, &Half)> {
        self.halves.iter().enumerate().flat_map(move |(number, halves)| {
            let at = move |side: &usize| self.world.host_of(number, *side) == host && !halves[*side].gone;
            [0, 1].into_iter().filter(at).map(move |side| (number, side, &halves[side]))
        })
    }

    /// How many messages have been sent to each half of those that share, and are not reported.
    pub(crate) fn messages_to_pool(&self, host: usize) -> impl Iterator<Item = usize> {
        let sharing = self.halves_at(host).map(|(.., half)| half).filter(|half| half.shares);
        sharing.map(|half| half.due_receives.len() + usize::from(half.begun.is_some()))
    }

    /// Returns the receive of the shared queue that a completion belongs to: one that is still posted, after
    /// those that this queue pair took before, and such that each older one that is still posted has a
    /// message of another queue pair.
    // Requirements: DDP-8.3.2-07
    pub(super) fn take_shared(&mut self, number: usize, side: usize, id: u64, what: &str) -> Receive {
        let host = self.world.host_of(number, side);
        let others: usize = self.messages_to_pool(host).sum();
        let half = &mut self.halves[number][side];
        let others = others - half.due_receives.len() - usize::from(half.begun.is_some());
        assert!(half.last_shared < id, "{what}: it was posted before {}", half.last_shared);
        half.last_shared = id;
        half.shared_taken += 1;
        let (receive, older) = self.pools[host].take(id).unwrap_or_else(|| panic!("{what}: not posted"));
        assert!(older <= others, "{what}: {older} older ones are still there, for {others} messages");
        receive
    }

    pub(crate) fn dequeue_receive(&mut self, number: usize, side: usize, completion: &Completion) {
        let what = self.what(number, side, completion);
        let half = &mut self.halves[number][side];
        let due = half.due_receives.pop_front().unwrap_or_else(|| panic!("{what}: no message was sent"));
        assert_eq!(completion.status, Status::Success, "{what}");
        let said = (completion.immediate, completion.invalidated, completion.solicited);
        assert_eq!(said, (due.immediate, due.invalidated, due.solicited), "{what}");
        if let Some(octets) = &due.octets {
            assert_eq!(completion.byte_len as usize, octets.len(), "{what}");
        }
        if let Some(receive) = due.receive {
            assert_eq!(completion.id, receive.id, "{what}");
            half.memory(Area::Inbox).expect(&receive.pieces, &what);
            half.release(&receive);
            return;
        }
        let receive = self.take_shared(number, side, completion.id, &what);
        let octets = due.octets.unwrap_or_default();
        self.tally.shared_receives += 1;
        let pool = &mut self.pools[self.world.host_of(number, side)];
        pool.fill(&receive, &octets);
        pool.memory.expect(&receive.pieces, &what);
        pool.release(&receive);
    }

    /// A receive of a stream that has ended, or is about to. From a shared queue it takes the one that it
    /// held for a message.
    pub(crate) fn take_last_receive(&mut self, number: usize, side: usize, completion: &Completion) {
        let what = self.what(number, side, completion);
        assert_ne!(completion.status, Status::Success, "{what}");
        let half = &mut self.halves[number][side];
        if !half.shares {
            let receive = half.receives.pop_front().unwrap_or_else(|| panic!("{what}: nothing is posted"));
            assert_eq!(completion.id, receive.id, "{what}");
            return;
        }
        let octets = half.begun.take().unwrap_or_else(|| panic!("{what}: no message has begun"));
        let receive = self.take_shared(number, side, completion.id, &what);
        let pool = &mut self.pools[self.world.host_of(number, side)];
        pool.fill(&receive, &octets);
        pool.release(&receive);
    }

    /// At the end, with nothing in flight: the remaining receives were posted last, and all are counted.
    // Requirements: DDP-8.3.2-07, RDMAP-8.1.2-05
    pub(crate) fn expect_pool(&self, host: usize, what: &str) {
        let (pool, queue) = (&self.pools[host], self.world.shared_receives(host));
        pool.memory.expect_all(what);
        let (counted, taken): (Vec<u64>, Vec<u64>) = self
            .halves_at(host)
            .map(|(number, side, half)| (self.world.qp(number, side).receives_consumed(), half.shared_taken))
            .unzip();
        assert_eq!(counted, taken, "{what}");
        assert_eq!(queue.len(), pool.posted.len(), "{what}");
        assert_eq!(queue.dequeued(), taken.iter().sum(), "{what}");
        let last = self.halves_at(host).map(|(.., half)| half.last_shared).max();
        let left = pool.posted.front().map(|receive| receive.id);
        assert!(left.is_none_or(|left| Some(left) > last), "{what}: {left:?} was left out");
    }
}

/// A message arrives at its receive, or at one that is not known yet.
pub(super) fn deliver(there: &mut Half, message: Message) {
    let Message { octets, immediate, invalidates, solicited } = message;
    let receive = if there.shares {
        None
    } else {
        Some(there.receives.pop_front().expect("messages are only sent to receives"))
    };
    if let Some(receive) = &receive {
        there.scatter(&receive.pieces, &octets);
    }
    let invalidated = invalidates.map(|place| {
        there.names[place].reach = None;
        there.names[place].stag
    });
    let octets = immediate.is_none().then_some(octets);
    there.due_receives.push_back(DueReceive { receive, octets, immediate, invalidated, solicited });
}
