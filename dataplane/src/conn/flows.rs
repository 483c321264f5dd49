//! Finds the connection of a segment.
//!
//! Segments come in runs: in most cases the next one is for a connection of the last few hundred. The index
//! of all flows needs a keyed hash to find it, because peers choose the addresses and ports; the front of it
//! is direct-mapped by an unkeyed hash, and a collision costs no more than the look-up in the index. That
//! holds slot numbers only; each connection's key is stored once, in its slot.

use super::flow_index::FlowIndex;
use crate::limits;
use crate::net::flow::FlowKey;
use crate::wire::flow::{Flow, FlowV4, FlowV6};

/// The slots of a core's connections, by the connections' addresses and ports.
pub(super) struct Flows {
    front: Front,
    index: FlowIndex,
}

impl Flows {
    /// Returns an empty table with room for `connections`, hashed under `key`.
    pub(super) fn new(connections: usize, key: [u64; 2]) -> Self {
        Self { front: Front::new(), index: FlowIndex::new(connections, key) }
    }

    /// Returns the slot of the connection `key`. `is_key_of` returns true if a slot's connection has that
    /// key.
    #[inline]
    pub(super) fn find(&self, key: &FlowKey, is_key_of: impl Fn(u32) -> bool) -> Option<u32> {
        self.index.find(key, is_key_of)
    }

    /// Returns the slot of the connection whose segments are of `flow`, and come from the host itself if they
    /// are `looped`, if one was [remembered](Self::remember) recently.
    #[inline]
    pub(super) fn recent(&self, flow: &Flow, looped: bool) -> Option<u32> {
        self.front.find(flow, looped)
    }

    /// Remembers that segments with `flow` are for the connection in `slot`, until it is removed.
    pub(super) fn remember(&mut self, flow: Flow, looped: bool, slot: u32) {
        self.front.remember(flow, looped, slot);
    }

    /// Adds the connection `key`, which is not in the table, as that of `slot`.
    pub(super) fn insert(&mut self, key: &FlowKey, slot: u32) {
        self.index.insert(key, slot);
    }

    /// Removes the connection `key` of `slot`.
    pub(super) fn remove(&mut self, key: &FlowKey, slot: u32) {
        let was_there = self.index.remove(key, slot);
        debug_assert!(was_there, "a connection is in the table from its insertion to its removal");
        if let Some(flow) = key.received() {
            self.front.forget(&flow);
        }
    }
}

/// The slots of flows that segments came for recently, each in the one place that its addresses and ports
/// lead to. Flows of one family displace none of the other.
struct Front {
    v4: Places<FlowV4>,
    v6: Places<FlowV6>,
}

impl Front {
    fn new() -> Self {
        Self { v4: Places::new(), v6: Places::new() }
    }

    /// Returns the slot of the connection whose segments are of `flow`, and come from the host itself if they
    /// are `looped`, if it is remembered.
    #[inline]
    fn find(&self, flow: &Flow, looped: bool) -> Option<u32> {
        match flow {
            Flow::V4(flow) => self.v4.find(flow, looped),
            Flow::V6(flow) => self.v6.find(flow, looped),
        }
    }

    /// Remembers that the connection in `slot` has `flow`, in place of another.
    fn remember(&mut self, flow: Flow, looped: bool, slot: u32) {
        match flow {
            Flow::V4(flow) => self.v4.remember(Recent { flow, looped, slot }),
            Flow::V6(flow) => self.v6.remember(Recent { flow, looped, slot }),
        }
    }

    /// Forgets the connection with `flow`: it has ended.
    fn forget(&mut self, flow: &Flow) {
        match flow {
            Flow::V4(flow) => self.v4.forget(flow),
            Flow::V6(flow) => self.v6.forget(flow),
        }
    }
}

/// The addresses and ports of one family.
trait Key: Copy + Eq {
    /// Returns a word that depends on all bits of both ports and of both addresses.
    fn word(&self) -> u64;
}

impl Key for FlowV4 {
    #[inline]
    fn word(&self) -> u64 {
        folded(u64::from_ne_bytes(self.addresses), self.ports)
    }
}

impl Key for FlowV6 {
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
    flow: K,
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
    fn find(&self, flow: &K, looped: bool) -> Option<u32> {
        let recent = self.0[place(flow)].as_ref()?;
        (recent.flow == *flow && recent.looped == looped).then_some(recent.slot)
    }

    fn remember(&mut self, recent: Recent<K>) {
        self.0[place(&recent.flow)] = Some(recent);
    }

    fn forget(&mut self, flow: &K) {
        let place = &mut self.0[place(flow)];
        if place.is_some_and(|recent| recent.flow == *flow) {
            *place = None;
        }
    }
}

/// The place of `flow`: the middle bits of a product of its word.
#[inline]
fn place(flow: &impl Key) -> usize {
    const {
        assert!(limits::RECENT_FLOWS.is_power_of_two() && limits::RECENT_FLOWS <= 1 << 16);
    }
    let product = flow.word().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> 48) as usize & (limits::RECENT_FLOWS - 1)
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;
    use std::net::IpAddr;

    use super::*;
    use crate::keyed_hash::KeyedHash;

    const CLIENTS: [&str; 2] = ["198.18.0.2", "fd00::2"];

    fn key(n: u32) -> FlowKey {
        FlowKey {
            local: [198, 18, 0, 1].into(),
            remote: std::net::Ipv4Addr::from(198 << 24 | 18 << 16 | n >> 16).into(),
            remote_port: n as u16,
            local_port: 7471,
        }
    }

    /// Tuples that all go to one place of a table are chosen with its key in hand. Under another key they go
    /// everywhere, so that knowing them is knowing the key.
    #[test]
    fn tuples_collide_under_one_key_only() {
        let [one, same, other] =
            [[1, 2], [1, 2], [1, 3]].map(|secret| *Flows::new(16, secret).index.hasher());
        let place = |hasher: &KeyedHash, key: &FlowKey| hasher.hash_one(key) % 1024;
        let colliding: Vec<FlowKey> = (0..100_000).map(key).filter(|key| place(&one, key) == 0).collect();
        assert!(colliding.len() > 50, "{}", colliding.len());
        assert!(colliding.iter().all(|key| place(&same, key) == 0), "the key says where a flow goes");
        let still = colliding.iter().filter(|key| place(&other, key) == 0).count();
        assert!(still <= 3, "{still} of {}", colliding.len());
    }

    /// The flow from `port` of `client` to this host.
    fn flow(client: &str, port: u16) -> Flow {
        let host = if client.contains(':') { "fd00::1" } else { "198.18.0.1" };
        let [client, host]: [IpAddr; 2] = [client, host].map(|text| text.parse().unwrap());
        Flow::new((client, port).into(), (host, 7471).into()).unwrap()
    }

    fn place_of(flow: &Flow) -> usize {
        match flow {
            Flow::V4(flow) => place(flow),
            Flow::V6(flow) => place(flow),
        }
    }

    #[test]
    fn a_flow_is_found_until_it_is_forgotten() {
        for client in CLIENTS {
            let flow = |port| flow(client, port);
            let mut recent = Front::new();
            assert_eq!(recent.find(&flow(1), false), None);
            recent.remember(flow(1), false, 7);
            assert_eq!((recent.find(&flow(1), false), recent.find(&flow(2), false)), (Some(7), None));
            recent.forget(&flow(2));
            assert_eq!(recent.find(&flow(1), false), Some(7));
            recent.forget(&flow(1));
            assert_eq!(recent.find(&flow(1), false), None);
        }
    }

    /// A frame from the device with the addresses of a connection of the host to itself is not found, nor one
    /// from the host with those of another.
    #[test]
    fn only_looped_segments_find_a_looped_flow() {
        for client in CLIENTS {
            for looped in [false, true] {
                let mut recent = Front::new();
                recent.remember(flow(client, 1), looped, 7);
                assert_eq!(recent.find(&flow(client, 1), looped), Some(7));
                assert_eq!(recent.find(&flow(client, 1), !looped), None, "looped: {looped}");
                recent.forget(&flow(client, 1));
                assert_eq!(recent.find(&flow(client, 1), looped), None);
            }
        }
    }

    /// Of flows that share a place the last one stays, and forgetting another leaves it there.
    #[test]
    fn flows_that_share_a_place_displace_each_other() {
        for client in CLIENTS {
            let flow = |port| flow(client, port);
            let first = flow(1);
            let shares = |other: &Flow| place_of(other) == place_of(&first);
            let other = (2..=u16::MAX).map(flow).find(shares).expect("one");
            let mut recent = Front::new();
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
        let spread = |flows: &mut dyn Iterator<Item = Flow>| {
            let mut places: Vec<usize> = flows.map(|flow| place_of(&flow)).collect();
            places.sort_unstable();
            places.dedup();
            assert!(places.len() > 64, "{} of 128", places.len());
        };
        for client in CLIENTS {
            spread(&mut (50_000..50_128).map(|port| flow(client, port)));
        }
        spread(&mut (1..129).map(|client| flow(&format!("198.18.{client}.2"), 50_000)));
        spread(&mut (1..129).map(|client| flow(&format!("fd00:0:0:{client:x}::2"), 50_000)));
    }
}
