//! The order in which connections are served: deficit round robin in octets, with weights.
//!
//! In each round a connection may send its *quantum*, which follows from its weight; its *deficit* is what is
//! left of that. Connections with a deficit left go first, and those that have used up theirs wait for the
//! next round, in the order in which they did. So a connection that becomes busy does not wait for those that
//! have much to send (RFC 8290 §3.4 has it go first once; here it does until its quantum is used up, so that
//! a ping beside bulk transfers is always first), and none waits for longer than the quanta of all others
//! take.
//!
//! While only one connection has something to send, it pays nothing.

use std::collections::VecDeque;
use std::num::NonZeroU8;

use crate::limits;

/// Octets in a unit of deficits.
const UNIT_OCTETS: usize = 64;
/// The least deficit that is kept: what a connection may send beyond its deficit is far less.
const DEFICIT_MIN: i16 = i16::MIN / 2;
/// Bits of the number of a round.
const ROUND_BITS: u8 = 6;
const ROUND_MASK: u8 = (1 << ROUND_BITS) - 1;
const SCHEDULED: u8 = 1 << ROUND_BITS;
const WITHOUT_PATH: u8 = 1 << (ROUND_BITS + 1);

const _: () = assert!(quantum(NonZeroU8::MAX) as usize * UNIT_OCTETS <= 2 << 20);
const _: () = assert!(DEFICIT_MIN as isize + quantum(NonZeroU8::MAX) as isize <= i16::MAX as isize);

/// Returns what a connection of this weight may send in a round, in units.
const fn quantum(weight: NonZeroU8) -> i16 {
    const UNITS_PER_WEIGHT: i16 = 128;
    const { assert!(UNITS_PER_WEIGHT as usize * UNIT_OCTETS == limits::BYTES_PER_WEIGHT) };
    UNITS_PER_WEIGHT * weight.get() as i16
}

/// The share of a connection in what its core sends: four octets, which lie beside the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// What it may still send in its round, in units; below zero if it has sent more.
    deficit: i16,
    weight: NonZeroU8,
    /// The lower bits of the round that the deficit is of, whether it is scheduled, and whether it is in the
    /// list of those without a path. One that rests for 64 rounds is taken for one of the present round, and
    /// may wait for the next.
    marks: u8,
}

impl Share {
    /// Returns the share of a connection of the usual weight.
    pub(super) const fn new() -> Self {
        let weight = limits::WEIGHT_USUAL;
        Self { deficit: quantum(weight), weight, marks: 0 }
    }

    pub(super) const fn is_scheduled(self) -> bool {
        self.marks & SCHEDULED != 0
    }

    /// Returns whether it was scheduled, which it is, or is not, from now on.
    const fn replace_scheduled(&mut self, is_scheduled: bool) -> bool {
        let was = self.is_scheduled();
        self.marks = if is_scheduled { self.marks | SCHEDULED } else { self.marks & !SCHEDULED };
        was
    }

    /// Returns whether it was in the list of those without a path, in which it is, or is not, from now on.
    pub(super) const fn replace_without_path(&mut self, is_without: bool) -> bool {
        let was = self.marks & WITHOUT_PATH != 0;
        self.marks = if is_without { self.marks | WITHOUT_PATH } else { self.marks & !WITHOUT_PATH };
        was
    }

    /// Begins anew, for another connection in the same slot.
    pub(super) const fn restart(&mut self) {
        *self = Self { marks: self.marks, ..Self::new() };
    }

    /// Sets the weight, which counts from the next round on.
    pub(super) const fn set_weight(&mut self, weight: NonZeroU8) {
        self.weight = weight;
    }

    /// Adds the quantum of `round`, unless it has that already.
    #[inline]
    const fn enter(&mut self, round: u8) {
        if self.marks & ROUND_MASK != round {
            self.marks = self.marks & !ROUND_MASK | round;
            let quantum = quantum(self.weight);
            // What was not used in an earlier round is gone; what was sent too much is not.
            self.deficit = if self.deficit < 0 { self.deficit + quantum } else { quantum };
        }
    }

    const fn has_deficit(self) -> bool {
        self.deficit > 0
    }

    /// Takes what was sent from the deficit.
    #[inline]
    fn pay(&mut self, octets: usize) {
        let units = i16::try_from(octets.div_ceil(UNIT_OCTETS)).unwrap_or(i16::MAX);
        self.deficit = self.deficit.saturating_sub(units).max(DEFICIT_MIN);
    }
}

/// A connection that is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Its slot.
    pub slot: u32,
    /// What it may send now, in octets. One that sends segments sends the last one whole.
    pub octets: usize,
}

/// What a connection did when it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// What it has sent, in octets.
    pub octets: usize,
    /// It has more to send.
    pub more: bool,
}

impl Served {
    /// Nothing was sent, and there is nothing more.
    pub(crate) const NOTHING: Self = Self { octets: 0, more: false };
}

/// The connections that may have something to send, in the order in which they are served.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Those that have a deficit left in this round, which go first.
    first: VecDeque<u32>,
    /// The others.
    waiting: VecDeque<u32>,
    /// How many of `waiting`, those in front, are served in this round.
    left_in_round: usize,
    /// The number of this round, as in [`Share::marks`].
    round: u8,
}

impl Schedule {
    /// Bytes of address space for a connection.
    pub(super) const ENTRY_BYTES: usize = 2 * size_of::<u32>();

    pub(super) fn new(capacity: usize) -> Self {
        Self {
            first: VecDeque::with_capacity(capacity),
            waiting: VecDeque::with_capacity(capacity),
            left_in_round: 0,
            round: 0,
        }
    }

    /// Returns how many connections are scheduled.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.waiting.len()
    }

    /// Returns true if none is.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // One question: most polls ask it a few times, and find nothing.
        self.first.len() | self.waiting.len() == 0
    }

    /// Schedules the connection in `slot` with this share, unless it is.
    #[inline]
    pub(super) fn add(&mut self, slot: u32, share: &mut Share) {
        if !share.replace_scheduled(true) {
            share.enter(self.round);
            self.append(slot, *share);
        }
    }

    #[inline]
    fn append(&mut self, slot: u32, share: Share) {
        let list = if share.has_deficit() { &mut self.first } else { &mut self.waiting };
        list.push_back(slot);
    }

    /// Returns the slot of the connection that is served after `served` others, if all stay as they are.
    #[inline]
    pub(super) fn after(&self, served: usize) -> Option<u32> {
        let first = self.first.len();
        let slot = if served < first { self.first.get(served) } else { self.waiting.get(served - first) };
        slot.copied()
    }

    /// Returns the slot of the connection that is served next; the caller is to [begin](Self::begin) with it.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u32> {
        if let Some(slot) = self.first.pop_front() {
            return Some(slot);
        }
        if self.left_in_round == 0 {
            self.left_in_round = self.waiting.len();
            self.round = (self.round + 1) & ROUND_MASK;
        }
        let slot = self.waiting.pop_front()?;
        self.left_in_round -= 1;
        Some(slot)
    }

    /// Begins to serve the connection in `slot`; `None` if it has sent so much beyond its deficit that it
    /// sits out this round, too.
    #[inline]
    pub(super) fn begin(&mut self, slot: u32, share: &mut Share) -> Option<Allowance> {
        share.enter(self.round);
        if self.is_empty() {
            return Some(Allowance { slot, octets: usize::MAX });
        }
        if !share.has_deficit() {
            self.waiting.push_back(slot);
            return None;
        }
        Some(Allowance { slot, octets: share.deficit.cast_unsigned() as usize * UNIT_OCTETS })
    }

    /// Ends to serve the connection in `slot`, which stays scheduled if it has more to send.
    #[inline]
    pub(super) fn end(&mut self, slot: u32, share: &mut Share, served: Served) {
        let Served { octets, more } = served;
        // While no other has anything to send, nothing is taken from others.
        if !self.is_empty() {
            share.pay(octets + limits::SERVE_BYTES);
        }
        if !more {
            share.replace_scheduled(false);
        } else if octets > 0 && share.has_deficit() {
            // What there was no room for in the burst, or in the device.
            self.first.push_front(slot);
        } else {
            // Something else held it up, which may last.
            self.waiting.push_back(slot);
        }
    }
}

#[cfg(test)]
mod tests;
