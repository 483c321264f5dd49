//! The connections of a core: where each one lies, whether it is scheduled, and when its next
//! timer is due.

use std::collections::VecDeque;
use std::num::NonZeroU8;

use super::flow_index::FlowIndex;
use super::flows::Flows;
use super::schedule::{Allowance, Schedule, Served, Share};
use super::wheel::Wheel;
use crate::limits;
use crate::memory::prefetch;
use crate::net::flow::FlowKey;
use crate::tally;
use crate::time::Instant;
use crate::wire::flow::Flow;

/// Names a connection: its core, its slot there, and how many connections had the slot before. Numbers are
/// not used again for a long time, so a stale name finds nothing.
///
/// Slot 5 of core 2 has index 0x0200_0005.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// The core in the upper 8 bits, the slot in the lower ones.
    index: u32,
    generation: u32,
}

/// Bits of a slot in a [`ConnectionId`].
const SLOT_BITS: u32 = 24;
const _: () = assert!(limits::CONNECTIONS_MAX <= 1 << SLOT_BITS);

impl ConnectionId {
    const fn new(core: u8, slot: u32, generation: u32) -> Self {
        Self { index: (core as u32) << SLOT_BITS | slot, generation }
    }

    /// Returns the name as a number.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Returns the name that was that number.
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }

    /// Returns the number of its core.
    pub const fn core(self) -> u8 {
        (self.index >> SLOT_BITS) as u8
    }

    /// Returns its slot at its core. Another connection may have it later.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.index & ((1 << SLOT_BITS) - 1)
    }
}

/// A connection that has addresses and ports.
pub(crate) trait Keyed {
    /// Returns its addresses and ports.
    fn key(&self) -> &FlowKey;
}

/// A place for a connection. The generation outlives the connection, so that old names find nothing. It
/// begins a cache line, so the connection can say which of its fields share one.
#[repr(C, align(64))]
struct Slot<C> {
    generation: u32,
    share: Share,
    connection: Option<C>,
}

/// The connections of a core, by slot, by name and by addresses and ports.
///
/// Room for all slots is reserved at once, and none is touched before it is first needed: those that were
/// used last are used next, so that a table is as large as the most connections there were at a time.
pub(crate) struct Table<C> {
    /// The number of the core.
    core: u8,
    /// The slots that were ever used.
    slots: Vec<Slot<C>>,
    capacity: usize,
    free: Vec<u32>,
    flows: Flows,
    timers: Wheel,
    schedule: Schedule,
    /// Slots of connections that had no path to their peers when they were served. Some may have one by now,
    /// or be others.
    without_path: VecDeque<u32>,
    /// How many of these, the last, are to be looked at because there are new paths.
    to_resume: usize,
}

impl<C: Keyed> Table<C> {
    /// Returns an empty table of the core with number `core`, with room for `capacity` connections, which are
    /// found under a hash with `hash_key`.
    pub(crate) fn new(core: u8, capacity: usize, hash_key: [u64; 2]) -> Self {
        assert!(capacity <= limits::CONNECTIONS_MAX, "{capacity} connections have no names");
        Self {
            core,
            slots: Vec::with_capacity(capacity),
            capacity,
            free: Vec::with_capacity(capacity),
            flows: Flows::new(capacity, hash_key),
            timers: Wheel::new(capacity),
            schedule: Schedule::new(capacity),
            without_path: VecDeque::with_capacity(capacity),
            to_resume: 0,
        }
    }

    /// Returns the address space of a table for `capacity` connections, in bytes.
    pub(crate) const fn bytes(capacity: usize) -> usize {
        // The slot, and its place in the two lists here.
        let slot = size_of::<Slot<C>>() + 2 * size_of::<u32>();
        (slot + Schedule::ENTRY_BYTES + Wheel::ENTRY_BYTES) * capacity + FlowIndex::bytes(capacity)
    }

    /// Returns the number of the core.
    pub(crate) const fn core(&self) -> u8 {
        self.core
    }

    /// Returns how many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if there is no room for another connection.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == self.capacity
    }

    /// Returns how many slots were ever used.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the slot of the connection with these addresses and ports.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        self.flows.find(key, |slot| key_of(&self.slots, slot) == Some(key))
    }

    /// Returns the slot of the connection whose segments are of `flow`, and come from the host itself if they
    /// are `looped`, if one was [remembered](Self::remember) recently.
    #[inline]
    pub(crate) fn recent(&self, flow: &Flow, looped: bool) -> Option<u32> {
        self.flows.recent(flow, looped)
    }

    /// Remembers that segments with `flow` are for the connection in `slot`, until it is removed.
    pub(crate) fn remember(&mut self, flow: Flow, looped: bool, slot: u32) {
        self.flows.remember(flow, looped, slot);
    }

    /// Returns the name of the connection in `slot`.
    #[cfg(test)]
    #[inline]
    pub(crate) fn id(&self, slot: u32) -> ConnectionId {
        ConnectionId::new(self.core, slot, self.slots[slot as usize].generation)
    }

    /// Returns the connection in `slot`.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<&C> {
        tally::record_visits(1);
        self.slots.get(slot as usize)?.connection.as_ref()
    }

    /// Returns the connection in `slot`, to change it, and its name.
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<(ConnectionId, &mut C)> {
        tally::record_visits(1);
        let place = &mut self.slots[slot as usize];
        let id = ConnectionId::new(self.core, slot, place.generation);
        Some((id, place.connection.as_mut()?))
    }

    /// Has the processor fetch the connection in `slot`, if there is such a slot, and its timer.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(place) = self.slots.get(slot as usize) {
            prefetch(place);
            self.timers.prefetch(slot);
        }
    }

    /// Returns the connection in `slot`, to see what to fetch for it.
    #[inline]
    pub(crate) fn peek(&self, slot: u32) -> Option<&C> {
        self.slots.get(slot as usize)?.connection.as_ref()
    }

    /// Returns the slot of the connection that is served after `served` others, if none is scheduled first.
    #[inline]
    pub(crate) fn scheduled_after(&self, served: usize) -> Option<u32> {
        self.schedule.after(served)
    }

    /// Returns the connection that `id` names; `None` if it is gone.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&C> {
        tally::record_visits(1);
        debug_assert_eq!(id.core(), self.core, "a connection of another core");
        let slot = self.slots.get(id.slot() as usize).filter(|slot| slot.generation == id.generation)?;
        slot.connection.as_ref()
    }

    /// Returns the connection that `id` names, to change it; `None` if it is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut C> {
        tally::record_visits(1);
        debug_assert_eq!(id.core(), self.core, "a connection of another core");
        let slot = self.slots.get_mut(id.slot() as usize)?;
        if slot.generation == id.generation { slot.connection.as_mut() } else { None }
    }

    /// Returns all connections. No poll has the time to visit them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        self.slots.iter().inspect(|_| tally::record_visits(1)).filter_map(|slot| slot.connection.as_ref())
    }

    /// Adds a connection, whose addresses and ports no other has. It is scheduled. Returns its slot;
    /// `None` if the table is full.
    pub(crate) fn insert(&mut self, connection: C) -> Option<u32> {
        let slot = self.free.pop().or_else(|| self.add_slot())?;
        let key = *connection.key();
        debug_assert!(self.find(&key).is_none(), "{key:?} names two connections");
        let place = &mut self.slots[slot as usize];
        place.connection = Some(connection);
        place.share.restart();
        self.flows.insert(&key, slot);
        self.schedule(slot);
        Some(slot)
    }

    /// Adds a slot that was never used, if there is another.
    fn add_slot(&mut self) -> Option<u32> {
        let slot = (self.slots.len() < self.capacity).then_some(self.slots.len() as u32)?;
        self.slots.push(Slot { generation: 0, share: Share::new(), connection: None });
        self.timers.add_name();
        Some(slot)
    }

    /// Removes the connection in `slot`, which is being served: its name becomes void, and its timer is off.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<C> {
        let place = &mut self.slots[slot as usize];
        debug_assert!(
            place.share.is_scheduled(),
            "a connection ends when it is served, or a free slot stays scheduled"
        );
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.flows.remove(connection.key(), slot);
        self.timers.set(slot, Instant::NEVER);
        self.free.push(slot);
        Some(connection)
    }

    /// Schedules the connection in `slot`, unless it is.
    #[inline]
    pub(crate) fn schedule(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        debug_assert!(place.connection.is_some(), "slot {slot} has no connection");
        self.schedule.add(slot, &mut place.share);
    }

    /// Has the connection in `slot`, which was served and has no path, scheduled when there is one.
    #[cold]
    pub(crate) fn await_path(&mut self, slot: u32) {
        if !self.slots[slot as usize].share.replace_without_path(true) {
            self.without_path.push_front(slot);
        }
    }

    /// Records that there are new paths, for [`resume`](Self::resume).
    pub(crate) fn begin_to_resume(&mut self) {
        self.to_resume = self.without_path.len();
    }

    /// Looks at up to `most` connections without a path, and schedules those that `has_path` holds for.
    /// Returns false if there are more to look at.
    pub(crate) fn resume(&mut self, most: usize, has_path: impl Fn(&C) -> bool) -> bool {
        for _ in 0..most.min(self.to_resume) {
            let Some(slot) = self.without_path.pop_back() else { break };
            self.to_resume -= 1;
            let place = &mut self.slots[slot as usize];
            tally::record_visits(1);
            match &place.connection {
                Some(connection) if !has_path(connection) => self.without_path.push_front(slot),
                found => {
                    place.share.replace_without_path(false);
                    if found.is_some() {
                        self.schedule(slot);
                    }
                }
            }
        }
        self.to_resume == 0
    }

    /// Returns true if the connection in `slot` is scheduled.
    #[inline]
    pub(crate) fn is_scheduled(&self, slot: u32) -> bool {
        self.slots[slot as usize].share.is_scheduled()
    }

    /// Returns true if any connection is scheduled.
    #[inline]
    pub(crate) fn has_scheduled(&self) -> bool {
        !self.schedule.is_empty()
    }

    /// Returns how many connections are scheduled.
    #[inline]
    pub(crate) fn scheduled(&self) -> usize {
        self.schedule.len()
    }

    /// Returns the connection that is to be served next, which then [ends](Self::end_serving). `None` if none
    /// is scheduled, or the next one sits out this round.
    #[inline]
    pub(crate) fn begin_serving(&mut self) -> Option<Allowance> {
        let slot = self.schedule.next()?;
        self.schedule.begin(slot, &mut self.slots[slot as usize].share)
    }

    /// Records that the connection in `slot` was served: it stays scheduled if it has more to send.
    #[inline]
    pub(crate) fn end_serving(&mut self, slot: u32, served: Served) {
        self.schedule.end(slot, &mut self.slots[slot as usize].share, served);
    }

    /// Sets the weight of the connection in `slot`.
    pub(crate) fn set_weight(&mut self, slot: u32, weight: NonZeroU8) {
        self.slots[slot as usize].share.set_weight(weight);
    }

    /// Sets when the timer of the connection in `slot` is due; `NEVER` turns it off.
    #[inline]
    pub(crate) fn set_deadline(&mut self, slot: u32, deadline: Instant) {
        self.timers.set(slot, deadline);
    }

    /// Returns the slot of a connection whose timer is due at `now`, and turns the timer off; `None` if none
    /// is, or the next poll is to look for it.
    #[inline]
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        self.timers.pop_due(now)
    }

    /// Returns until when [`pop_due`](Self::pop_due) finds nothing after it has found nothing at `now`,
    /// unless a deadline is set: at most a millisecond.
    pub(crate) fn next_look(&self, now: Instant) -> Instant {
        self.timers.next_look(now)
    }

    /// Returns a time no later than the earliest deadline. It is later than now unless one is due, or there
    /// are too many in a tick to look at all of them.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.timers.next_deadline()
    }
}

fn key_of<C: Keyed>(slots: &[Slot<C>], slot: u32) -> Option<&FlowKey> {
    tally::record_visits(1);
    slots.get(slot as usize)?.connection.as_ref().map(C::key)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(FlowKey);

    impl Keyed for Named {
        fn key(&self) -> &FlowKey {
            &self.0
        }
    }

    fn key(port: u16) -> FlowKey {
        FlowKey {
            local: [198, 18, 0, 1].into(),
            remote: [198, 18, 0, 2].into(),
            remote_port: port,
            local_port: 7471,
        }
    }

    fn table(ports: u16) -> Table<Named> {
        let mut table = Table::new(0, usize::from(ports), [1, 2]);
        for port in 0..ports {
            assert!(table.insert(Named(key(port))).is_some());
        }
        table
    }

    #[test]
    fn a_connection_is_found_until_it_is_removed() {
        let mut table = table(3);
        assert!(table.is_full() && table.insert(Named(key(9))).is_none());
        let slot = table.find(&key(1)).expect("it is there");
        let id = table.id(slot);
        assert_eq!(table.get(id).map(|named| named.0), Some(key(1)));
        assert!(table.remove(slot).is_some());
        assert_eq!((table.find(&key(1)), table.len()), (None, 2));
        assert!(table.get(id).is_none() && table.get_mut(id).is_none(), "the name is void");
    }

    #[test]
    fn a_slot_that_is_used_again_has_another_name() {
        let mut table = table(1);
        let old = table.id(0);
        let allowance = table.begin_serving().expect("it is scheduled");
        assert!(table.remove(0).is_some());
        table.end_serving(allowance.slot, Served::NOTHING);
        assert_eq!(table.insert(Named(key(5))), Some(0));
        assert!(table.get(old).is_none() && table.get(table.id(0)).is_some());
    }

    /// Of four connections without a path, those that have one then are scheduled, a few at a time; a slot
    /// without a connection is forgotten.
    #[test]
    fn connections_without_a_path_are_scheduled_when_they_have_one() {
        let mut table = table(4);
        for slot in 0..4 {
            table.await_path(slot);
            table.await_path(slot);
        }
        assert!(table.remove(2).is_some());
        while let Some(allowance) = table.begin_serving() {
            table.end_serving(allowance.slot, Served::NOTHING);
        }
        assert!(table.resume(9, |_| true), "there is no new path");
        table.begin_to_resume();
        let has_path = |named: &Named| named.0.remote_port != 1;
        assert!(!table.resume(3, has_path) && table.resume(3, has_path));
        assert_eq!((table.scheduled(), table.without_path.len()), (2, 1));
        table.begin_to_resume();
        assert!(table.resume(3, |_| true));
        assert_eq!((table.scheduled(), table.without_path.len()), (3, 0));
    }
}
