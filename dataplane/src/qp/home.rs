//! Where a queue pair is served: a core of the device, and a slot there.

use crate::sync::{AtomicU32, Ordering};

/// The bits of a slot: as many as those of the slot of a connection.
const SLOT_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// The queue pair is at no core: its stream has not begun.
const NOWHERE: u32 = u32::MAX;

/// The place of a queue pair whose stream has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The number of the core.
    pub core: u8,
    /// The slot of the queue pair at that core, less than 2^24.
    pub slot: u32,
}

/// The home of a queue pair once it has one: the core in the upper 8 bits, the slot in the lower 24. Slot 5
/// of core 2 is 0x0200_0005.
#[derive(Debug)]
pub(super) struct HomeCell(AtomicU32);

impl HomeCell {
    /// Returns that there is no home yet.
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(NOWHERE))
    }

    /// Returns the home.
    #[inline]
    pub(super) fn get(&self) -> Option<Home> {
        let bits = self.0.load(Ordering::Relaxed);
        (bits != NOWHERE).then_some(Home { core: (bits >> SLOT_BITS) as u8, slot: bits & SLOT_MASK })
    }

    /// Sets the home.
    pub(super) fn set(&self, home: Home) {
        let bits = u32::from(home.core) << SLOT_BITS | home.slot;
        assert!(home.slot <= SLOT_MASK && bits != NOWHERE, "no queue pair has {home:?}");
        self.0.store(bits, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_read_as_it_was_set() {
        let cell = HomeCell::new();
        assert_eq!(cell.get(), None);
        for core in [0, 2, 255] {
            for slot in [0, 5, SLOT_MASK - 1] {
                cell.set(Home { core, slot });
                assert_eq!(cell.get(), Some(Home { core, slot }));
            }
        }
        cell.set(Home { core: 254, slot: SLOT_MASK });
        assert_eq!(cell.get(), Some(Home { core: 254, slot: SLOT_MASK }));
    }

    #[test]
    #[should_panic(expected = "no queue pair has")]
    fn a_slot_does_not_reach_into_the_core() {
        HomeCell::new().set(Home { core: 0, slot: SLOT_MASK + 1 });
    }
}
