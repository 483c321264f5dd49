//! A timing wheel: deadlines of connections, at a bounded cost per poll.

use crate::limits;
use crate::memory::prefetch;
use crate::tally;
use crate::time::Instant;

/// Nanoseconds of a tick, as a power of two: about a millisecond, finer than any TCP timer needs.
const TICK_SHIFT: u32 = 20;
/// Slots: deadlines up to about four seconds ahead lie in their own slot; later ones lie in the last slot,
/// and move when the wheel comes to it.
const SLOTS: usize = 4096;
const WORDS: usize = SLOTS / 64;
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    deadline: Instant,
    /// The slot it lies in, or `NIL`.
    slot: u32,
    next: u32,
    previous: u32,
}

/// Deadlines by the numbers of slots of the connection table, at most one for each.
pub(super) struct Wheel {
    /// Those of the names that were [added](Self::add_name).
    entries: Vec<Entry>,
    heads: Vec<u32>,
    occupied: [u64; WORDS],
    /// The tick up to which everything that was due has been returned.
    tick: u64,
    armed: usize,
    /// The pass over the slot of a tick, in which each entry is looked at once.
    pass: Pass,
    /// Entries that may still be looked at in the poll at `polled_at`.
    visits_left: u32,
    polled_at: Instant,
}

/// A pass over the entries of a slot. It goes on in the next poll if there are too many for one.
struct Pass {
    tick: u64,
    /// The time when it began.
    now: Instant,
    /// The next entry to look at; `NIL` at the end.
    next: u32,
}

impl Wheel {
    /// The memory of a name, in bytes.
    pub(super) const ENTRY_BYTES: usize = size_of::<Entry>();

    /// Returns a wheel with room for `names` names, none of which is there yet.
    pub(super) fn new(names: usize) -> Self {
        Self {
            entries: Vec::with_capacity(names),
            heads: vec![NIL; SLOTS],
            occupied: [0; WORDS],
            tick: 0,
            armed: 0,
            pass: Pass { tick: 0, now: Instant::ZERO, next: NIL },
            visits_left: limits::TIMERS_VISITED_PER_POLL,
            polled_at: Instant::ZERO,
        }
    }

    /// Adds the next name, without a deadline: the first is 0.
    pub(super) fn add_name(&mut self) {
        self.entries.push(Entry { deadline: Instant::NEVER, slot: NIL, next: NIL, previous: NIL });
    }

    /// Sets the deadline of `name`, replacing the one it had; [`Instant::NEVER`] removes it.
    #[inline]
    pub(super) fn set(&mut self, name: u32, deadline: Instant) {
        let entry = self.entries[name as usize];
        if entry.deadline == deadline {
            return;
        }
        // A later deadline stays in its slot and moves when the wheel comes to that slot: a timer that each
        // acknowledgement postpones is moved once, not each time.
        if entry.slot != NIL && deadline != Instant::NEVER && deadline > entry.deadline {
            self.entries[name as usize].deadline = deadline;
            return;
        }
        self.unlink(name);
        self.entries[name as usize].deadline = deadline;
        if deadline != Instant::NEVER {
            self.link(name);
        }
    }

    /// Has the processor fetch the deadline of `name`.
    #[inline]
    pub(super) fn prefetch(&self, name: u32) {
        prefetch(&self.entries[name as usize]);
    }

    /// Returns a name whose deadline has come, and removes the deadline; `None` if no deadline has come, or
    /// too many were looked at in this poll.
    #[inline]
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let now_tick = now.as_nanos() >> TICK_SHIFT;
        // As most polls find it: nothing is due in this tick, and no other has begun.
        if self.tick == now_tick && self.heads[(now_tick % SLOTS as u64) as usize] == NIL {
            return None;
        }
        self.pop_due_by(now, now_tick)
    }

    /// Returns until when [`pop_due`](Self::pop_due) finds nothing after it has found nothing at `now`,
    /// unless a deadline is set: not beyond the tick of `now`, so that this takes no search.
    pub(super) fn next_look(&self, now: Instant) -> Instant {
        let now_tick = now.as_nanos() >> TICK_SHIFT;
        let is_empty = self.heads[(now_tick % SLOTS as u64) as usize] == NIL;
        if self.tick == now_tick && is_empty {
            Instant::from_nanos((now_tick + 1) << TICK_SHIFT)
        } else {
            now
        }
    }

    fn pop_due_by(&mut self, now: Instant, now_tick: u64) -> Option<u32> {
        if self.polled_at != now {
            (self.polled_at, self.visits_left) = (now, limits::TIMERS_VISITED_PER_POLL);
        }
        loop {
            if self.armed == 0 {
                self.tick = self.tick.max(now_tick);
                return None;
            }
            if self.pass.next == NIL && (self.pass.tick, self.pass.now) != (self.tick, now) {
                let next = self.heads[(self.tick % SLOTS as u64) as usize];
                self.pass = Pass { tick: self.tick, now, next };
            }
            while self.pass.next != NIL {
                self.visits_left = self.visits_left.checked_sub(1)?;
                tally::record_visits(1);
                let at = self.pass.next;
                let entry = self.entries[at as usize];
                self.pass.next = entry.next;
                if entry.deadline <= now {
                    self.unlink(at);
                    self.entries[at as usize].deadline = Instant::NEVER;
                    return Some(at);
                }
                if self.slot_for(entry.deadline) != entry.slot {
                    self.unlink(at);
                    self.link(at);
                }
            }
            if self.pass.now != now {
                // It began in an earlier poll: entries that it came by then may be due by now.
                continue;
            }
            if self.tick >= now_tick {
                return None;
            }
            self.tick = self.next_occupied(self.tick + 1, now_tick);
        }
    }

    /// Returns a time no later than the earliest deadline. It is later than now unless one is due, or there
    /// are too many in a tick to look at all of them.
    pub(super) fn next_deadline(&self) -> Instant {
        if self.armed == 0 {
            return Instant::NEVER;
        }
        if self.pass.next != NIL {
            return self.pass.now;
        }
        let tick = self.next_occupied(self.tick, self.tick + SLOTS as u64 - 1);
        let mut earliest = Instant::NEVER;
        let mut at = self.heads[(tick % SLOTS as u64) as usize];
        let mut left = limits::TIMERS_VISITED_PER_POLL;
        while at != NIL {
            if left == 0 {
                return Instant::from_nanos(tick << TICK_SHIFT);
            }
            left -= 1;
            tally::record_visits(1);
            let entry = &self.entries[at as usize];
            earliest = earliest.min(entry.deadline);
            at = entry.next;
        }
        // A later slot may hold nothing earlier, but this slot may hold only postponed deadlines.
        earliest.min(Instant::from_nanos((tick + 1) << TICK_SHIFT))
    }

    fn slot_for(&self, deadline: Instant) -> u32 {
        let tick = (deadline.as_nanos() >> TICK_SHIFT).clamp(self.tick, self.tick + SLOTS as u64 - 1);
        (tick % SLOTS as u64) as u32
    }

    /// Returns the first tick from `from` to `to` whose slot holds something; `to` when there is none.
    fn next_occupied(&self, from: u64, to: u64) -> u64 {
        let mut tick = from;
        while tick < to {
            let slot = (tick % SLOTS as u64) as usize;
            let word = self.occupied[slot / 64] >> (slot % 64);
            if word != 0 {
                return (tick + u64::from(word.trailing_zeros())).min(to);
            }
            tick += 64 - (slot % 64) as u64;
        }
        to
    }

    fn link(&mut self, name: u32) {
        let deadline = self.entries[name as usize].deadline;
        let slot = self.slot_for(deadline);
        let head = core::mem::replace(&mut self.heads[slot as usize], name);
        let entry = &mut self.entries[name as usize];
        (entry.slot, entry.next, entry.previous) = (slot, head, NIL);
        if head != NIL {
            self.entries[head as usize].previous = name;
        }
        self.occupied[slot as usize / 64] |= 1 << (slot % 64);
        self.armed += 1;
        if deadline <= self.pass.now {
            // The pass would not come by it.
            self.pass.next = name;
        }
    }

    fn unlink(&mut self, name: u32) {
        let Entry { slot, next, previous, .. } = self.entries[name as usize];
        if slot == NIL {
            return;
        }
        if self.pass.next == name {
            self.pass.next = next;
        }
        if previous == NIL {
            self.heads[slot as usize] = next;
            if next == NIL {
                self.occupied[slot as usize / 64] &= !(1 << (slot % 64));
            }
        } else {
            self.entries[previous as usize].next = next;
        }
        if next != NIL {
            self.entries[next as usize].previous = previous;
        }
        self.entries[name as usize].slot = NIL;
        self.armed -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{MILLISECOND, SECOND};

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// A wheel with names below `names`.
    fn wheel(names: usize) -> Wheel {
        let mut wheel = Wheel::new(names);
        (0..names).for_each(|_| wheel.add_name());
        wheel
    }

    #[test]
    fn gives_each_deadline_once_and_not_early() {
        let mut wheel = wheel(4);
        wheel.set(0, at(5 * MILLISECOND));
        wheel.set(1, at(5 * MILLISECOND + 1));
        wheel.set(2, at(100 * SECOND));
        assert_eq!(wheel.pop_due(at(5 * MILLISECOND - 1)), None);
        assert_eq!(wheel.pop_due(at(5 * MILLISECOND)), Some(0));
        assert_eq!(wheel.pop_due(at(5 * MILLISECOND)), None);
        assert_eq!(wheel.pop_due(at(6 * MILLISECOND)), Some(1));
        assert_eq!(wheel.pop_due(at(99 * SECOND)), None);
        assert_eq!(wheel.pop_due(at(100 * SECOND)), Some(2));
        assert_eq!(wheel.next_deadline(), Instant::NEVER);
    }

    #[test]
    fn deadlines_move_both_ways() {
        let mut wheel = wheel(1);
        wheel.set(0, at(10 * MILLISECOND));
        wheel.set(0, at(300 * MILLISECOND));
        assert_eq!(wheel.pop_due(at(20 * MILLISECOND)), None);
        wheel.set(0, at(30 * MILLISECOND));
        assert_eq!(wheel.pop_due(at(30 * MILLISECOND)), Some(0));
        wheel.set(0, at(40 * MILLISECOND));
        wheel.set(0, Instant::NEVER);
        assert_eq!(wheel.pop_due(at(SECOND)), None);
    }

    /// Timers of one tick that are not due are not looked at again for each that is.
    #[test]
    fn each_entry_of_a_tick_is_looked_at_once() {
        let names = limits::TIMERS_VISITED_PER_POLL;
        let mut wheel = wheel(names as usize);
        // The last half is due before the first, and lies after it in the list.
        for name in 0..names {
            wheel.set(name, at(u64::from(1 + name / (names / 2))));
        }
        assert_eq!(core::iter::from_fn(|| wheel.pop_due(at(1))).count(), names as usize / 2);
        assert_eq!(wheel.visits_left, 0);
    }

    /// More timers in a tick than are looked at in a poll: each poll looks at others, and all end.
    #[test]
    fn too_many_timers_for_one_poll_end_in_several() {
        let names = 3 * limits::TIMERS_VISITED_PER_POLL;
        let mut wheel = wheel(names as usize);
        for name in 0..names {
            wheel.set(name, at(u64::from(1 + name % 3)));
        }
        let mut ended = 0;
        for poll in 1..=7 {
            assert!(ended == names as usize || wheel.next_deadline() <= at(poll));
            let due = core::iter::from_fn(|| wheel.pop_due(at(poll))).count();
            assert!(due <= limits::TIMERS_VISITED_PER_POLL as usize);
            ended += due;
        }
        assert_eq!(ended, names as usize);
        assert_eq!(wheel.next_deadline(), Instant::NEVER);
    }

    /// The wheel against a list that is searched, over random deadlines and steps.
    #[test]
    fn agrees_with_a_sorted_list() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut wheel = wheel(64);
            let mut model = [Instant::NEVER; 64];
            let mut now = Instant::ZERO;
            for _ in 0..2000 {
                let name = rng.usize(..64);
                let deadline = match rng.u32(..10) {
                    0 => Instant::NEVER,
                    1 => now + rng.u64(..100 * SECOND),
                    _ => now + rng.u64(..500 * MILLISECOND),
                };
                wheel.set(name as u32, deadline);
                model[name] = deadline;
                let earliest = model.into_iter().min().unwrap();
                assert!(wheel.next_deadline() <= earliest, "seed {seed}: would oversleep");
                now += rng.u64(..20 * MILLISECOND);
                if rng.u32(..50) == 0 {
                    now += rng.u64(..10 * SECOND);
                }
                let mut due: Vec<_> = core::iter::from_fn(|| wheel.pop_due(now)).collect();
                due.sort_unstable();
                let expected: Vec<_> = (0..64u32).filter(|n| model[*n as usize] <= now).collect();
                assert_eq!(due, expected, "seed {seed}");
                for name in due {
                    model[name as usize] = Instant::NEVER;
                }
                let earliest = model.into_iter().min().unwrap();
                assert!(wheel.next_look(now) <= earliest, "seed {seed}: would come by a deadline");
            }
        }
    }
}
