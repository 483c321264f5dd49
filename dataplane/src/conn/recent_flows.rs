//! The connections that segments came for recently.
//!
//! Segments come in runs: in most cases the next one is for a connection of the last few hundred. The table
//! of all flows needs a keyed hash to find it, because peers choose the addresses and ports; this one is read
//! by a plain hash, and a collision costs no more than the look-up in the table of all flows.

use crate::limits;
use crate::wire::plain_segment::Tuple4;

/// The slot of a flow.
#[derive(Clone, Copy)]
struct Recent {
    /// As the peer's segments have it.
    tuple: Tuple4,
    slot: u32,
}

/// The slots of recent flows over IPv4, each in the one place that its addresses and ports lead to.
pub(super) struct RecentFlows {
    places: Box<[Option<Recent>; limits::RECENT_FLOWS]>,
}

impl RecentFlows {
    pub(super) fn new() -> Self {
        Self { places: Box::new([None; limits::RECENT_FLOWS]) }
    }

    /// Returns the slot of the connection whose segments have `tuple`, if it is remembered.
    #[inline]
    pub(super) fn find(&self, tuple: &Tuple4) -> Option<u32> {
        let recent = self.places[place(tuple)].as_ref()?;
        (recent.tuple == *tuple).then_some(recent.slot)
    }

    /// Remembers that the connection in `slot` has `tuple`, in place of another.
    pub(super) fn remember(&mut self, tuple: Tuple4, slot: u32) {
        self.places[place(&tuple)] = Some(Recent { tuple, slot });
    }

    /// Forgets the connection with `tuple`: it has ended.
    pub(super) fn forget(&mut self, tuple: &Tuple4) {
        let place = &mut self.places[place(tuple)];
        if place.is_some_and(|recent| recent.tuple == *tuple) {
            *place = None;
        }
    }
}

/// The place of `tuple`: the middle bits of a product, which depend on all bits of both ports and of both
/// addresses.
#[inline]
fn place(tuple: &Tuple4) -> usize {
    const {
        assert!(limits::RECENT_FLOWS.is_power_of_two() && limits::RECENT_FLOWS <= 1 << 16);
    }
    let addresses = u64::from_ne_bytes(tuple.addresses);
    let ports = u64::from(u32::from_ne_bytes(tuple.ports));
    let product = (addresses ^ addresses >> 32 ^ ports).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> 48) as usize & (limits::RECENT_FLOWS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple4 {
        let [high, low] = port.to_be_bytes();
        Tuple4 { addresses: [198, 18, 0, 2, 198, 18, 0, 1], ports: [high, low, 0x1d, 0x2f] }
    }

    #[test]
    fn a_flow_is_found_until_it_is_forgotten() {
        let mut recent = RecentFlows::new();
        assert_eq!(recent.find(&tuple(1)), None);
        recent.remember(tuple(1), 7);
        assert_eq!((recent.find(&tuple(1)), recent.find(&tuple(2))), (Some(7), None));
        recent.forget(&tuple(2));
        assert_eq!(recent.find(&tuple(1)), Some(7));
        recent.forget(&tuple(1));
        assert_eq!(recent.find(&tuple(1)), None);
    }

    /// Of flows that share a place the last one stays, and forgetting another leaves it there.
    #[test]
    fn flows_that_share_a_place_displace_each_other() {
        let first = tuple(1);
        let other = (2..=u16::MAX).map(tuple).find(|other| place(other) == place(&first)).expect("one");
        let mut recent = RecentFlows::new();
        recent.remember(first, 1);
        recent.remember(other, 2);
        assert_eq!((recent.find(&first), recent.find(&other)), (None, Some(2)));
        recent.forget(&first);
        assert_eq!(recent.find(&other), Some(2));
    }

    /// The flows of one client lie in many places.
    #[test]
    fn ports_in_a_row_are_spread() {
        let mut places: Vec<usize> = (50_000..50_128).map(tuple).map(|tuple| place(&tuple)).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 64, "{} of 128", places.len());
    }
}
