//! The connections that segments came for recently.
//!
//! Segments come in runs: in most cases the next one is for a connection of the last few hundred. The table
//! of all flows needs a keyed hash to find it, because peers choose the addresses and ports; this one is read
//! by a plain hash, and a collision costs no more than the look-up in the table of all flows.

use crate::limits;
use crate::wire::tuple::{Tuple, Tuple4, Tuple6};

/// The slots of recent flows. Flows of one family displace none of the other.
pub(super) struct RecentFlows {
    v4: Places<Tuple4>,
    v6: Places<Tuple6>,
}

impl RecentFlows {
    pub(super) fn new() -> Self {
        Self { v4: Places::new(), v6: Places::new() }
    }

    /// Returns the slot of the connection whose segments have `tuple`, and come from the host itself if they
    /// are `looped`, if it is remembered.
    #[inline]
    pub(super) fn find(&self, tuple: &Tuple, looped: bool) -> Option<u32> {
        match tuple {
            Tuple::V4(tuple) => self.v4.find(tuple, looped),
            Tuple::V6(tuple) => self.v6.find(tuple, looped),
        }
    }

    /// Remembers that the connection in `slot` has `tuple`, in place of another.
    pub(super) fn remember(&mut self, tuple: Tuple, looped: bool, slot: u32) {
        match tuple {
            Tuple::V4(tuple) => self.v4.remember(Recent { tuple, looped, slot }),
            Tuple::V6(tuple) => self.v6.remember(Recent { tuple, looped, slot }),
        }
    }

    /// Forgets the connection with `tuple`: it has ended.
    pub(super) fn forget(&mut self, tuple: &Tuple) {
        match tuple {
            Tuple::V4(tuple) => self.v4.forget(tuple),
            Tuple::V6(tuple) => self.v6.forget(tuple),
        }
    }
}

/// The addresses and ports of one family.
trait Key: Copy + Eq {
    /// Returns a word that depends on all bits of both ports and of both addresses.
    fn word(&self) -> u64;
}

impl Key for Tuple4 {
    #[inline]
    fn word(&self) -> u64 {
        folded(u64::from_ne_bytes(self.addresses), self.ports)
    }
}

impl Key for Tuple6 {
    #[inline]
    fn word(&self) -> u64 {
        let (words, _) = self.addresses.as_chunks();
        folded(words.iter().fold(0, |all, word| all ^ u64::from_ne_bytes(*word)), self.ports)
    }
}

#[inline]
fn folded(addresses: u64, ports: [u8; 4]) -> u64 {
    addresses ^ addresses >> 32 ^ u64::from(u32::from_ne_bytes(ports))
}

/// The slot of a flow.
#[derive(Clone, Copy)]
struct Recent<K> {
    /// As the peer's segments have it.
    tuple: K,
    /// They come from the host itself, which no frame from the device does.
    looped: bool,
    slot: u32,
}

/// Flows of one family, each in the one place that its addresses and ports lead to.
struct Places<K>(Box<[Option<Recent<K>>; limits::RECENT_FLOWS]>);

impl<K: Key> Places<K> {
    fn new() -> Self {
        Self(Box::new([None; limits::RECENT_FLOWS]))
    }

    #[inline]
    fn find(&self, tuple: &K, looped: bool) -> Option<u32> {
        let recent = self.0[place(tuple)].as_ref()?;
        (recent.tuple == *tuple && recent.looped == looped).then_some(recent.slot)
    }

    fn remember(&mut self, recent: Recent<K>) {
        self.0[place(&recent.tuple)] = Some(recent);
    }

    fn forget(&mut self, tuple: &K) {
        let place = &mut self.0[place(tuple)];
        if place.is_some_and(|recent| recent.tuple == *tuple) {
            *place = None;
        }
    }
}

/// The place of `tuple`: the middle bits of a product of its word.
#[inline]
fn place(tuple: &impl Key) -> usize {
    const {
        assert!(limits::RECENT_FLOWS.is_power_of_two() && limits::RECENT_FLOWS <= 1 << 16);
    }
    let product = tuple.word().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> 48) as usize & (limits::RECENT_FLOWS - 1)
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    const CLIENTS: [&str; 2] = ["198.18.0.2", "fd00::2"];

    /// The flow from `port` of `client` to this host.
    fn tuple(client: &str, port: u16) -> Tuple {
        let host = if client.contains(':') { "fd00::1" } else { "198.18.0.1" };
        let [client, host]: [IpAddr; 2] = [client, host].map(|text| text.parse().unwrap());
        Tuple::new((client, port), (host, 7471)).unwrap()
    }

    fn place_of(tuple: &Tuple) -> usize {
        match tuple {
            Tuple::V4(tuple) => place(tuple),
            Tuple::V6(tuple) => place(tuple),
        }
    }

    #[test]
    fn a_flow_is_found_until_it_is_forgotten() {
        for client in CLIENTS {
            let tuple = |port| tuple(client, port);
            let mut recent = RecentFlows::new();
            assert_eq!(recent.find(&tuple(1), false), None);
            recent.remember(tuple(1), false, 7);
            assert_eq!((recent.find(&tuple(1), false), recent.find(&tuple(2), false)), (Some(7), None));
            recent.forget(&tuple(2));
            assert_eq!(recent.find(&tuple(1), false), Some(7));
            recent.forget(&tuple(1));
            assert_eq!(recent.find(&tuple(1), false), None);
        }
    }

    /// A frame from the device with the addresses of a connection of the host to itself is not found, nor one
    /// from the host with those of another.
    #[test]
    fn a_looped_flow_is_found_for_looped_segments_alone() {
        for client in CLIENTS {
            for looped in [false, true] {
                let mut recent = RecentFlows::new();
                recent.remember(tuple(client, 1), looped, 7);
                assert_eq!(recent.find(&tuple(client, 1), looped), Some(7));
                assert_eq!(recent.find(&tuple(client, 1), !looped), None, "looped: {looped}");
                recent.forget(&tuple(client, 1));
                assert_eq!(recent.find(&tuple(client, 1), looped), None);
            }
        }
    }

    /// Of flows that share a place the last one stays, and forgetting another leaves it there.
    #[test]
    fn flows_that_share_a_place_displace_each_other() {
        for client in CLIENTS {
            let tuple = |port| tuple(client, port);
            let first = tuple(1);
            let shares = |other: &Tuple| place_of(other) == place_of(&first);
            let other = (2..=u16::MAX).map(tuple).find(shares).expect("one");
            let mut recent = RecentFlows::new();
            recent.remember(first, false, 1);
            recent.remember(other, false, 2);
            assert_eq!((recent.find(&first, false), recent.find(&other, false)), (None, Some(2)));
            recent.forget(&first);
            assert_eq!(recent.find(&other, false), Some(2));
        }
    }

    /// The flows of one client lie in many places, and so do those from one port of many clients.
    #[test]
    fn flows_in_a_row_are_spread() {
        let spread = |flows: &mut dyn Iterator<Item = Tuple>| {
            let mut places: Vec<usize> = flows.map(|tuple| place_of(&tuple)).collect();
            places.sort_unstable();
            places.dedup();
            assert!(places.len() > 64, "{} of 128", places.len());
        };
        for client in CLIENTS {
            spread(&mut (50_000..50_128).map(|port| tuple(client, port)));
        }
        spread(&mut (1..129).map(|client| tuple(&format!("198.18.{client}.2"), 50_000)));
        spread(&mut (1..129).map(|client| tuple(&format!("fd00:0:0:{client:x}::2"), 50_000)));
    }
}
