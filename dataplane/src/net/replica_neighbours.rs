//! The neighbours that a replica uses: a part of the host core's [cache](super::neighbours), which it asks
//! for and is sent by [notes](super::notes).
//!
//! It has no timers. A packet that needs a neighbour asks for it, once in a retransmission interval at most.
//! So does one that uses a neighbour that was neither confirmed nor sent for a while: for the host core that
//! is the use of which RFC 4861 §7.3.3 speaks, and it solicits the neighbour if that is silent. What the
//! transport has confirmed goes to the host core once in half of the time for which it holds there.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::neighbour_entries::Entries;
use super::neighbours::{Resolution, StaticNeighbour, reachable_ns};
use super::notes::ReplicaNote;
use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::time::Instant;
use crate::wire::ethernet::MacAddress;

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: Option<MacAddress>,
    /// It is configured: nothing changes it.
    is_static: bool,
    /// Until when a packet may use it without a note of that.
    fresh_until: Instant,
    /// When the host core was last asked for it.
    asked: Option<Instant>,
    /// From when on it is confirmed again.
    confirm_from: Instant,
    /// When a packet last needed it.
    used: Instant,
}

/// The neighbours of a replica.
#[derive(Debug)]
pub(super) struct ReplicaNeighbours {
    entries: Entries<Neighbour>,
    /// Notes to the host core.
    notes: VecDeque<ReplicaNote>,
    /// How long a neighbour counts as reachable.
    reachable_ns: u64,
    /// Changes when a hardware address that was known does not hold any more.
    generation: u32,
}

impl ReplicaNeighbours {
    /// Returns a cache of the configured neighbours. `random` is that of the host core, whose cache draws as
    /// many numbers before: so both agree on how long a neighbour counts as reachable.
    pub(super) fn new(configured: &[StaticNeighbour], random: &mut fastrand::Rng) -> Self {
        let hasher = KeyedHash::new([random.u64(..), random.u64(..)]);
        let mut entries = Entries::with_capacity(limits::NEIGHBOURS_PER_CORE, hasher);
        for StaticNeighbour { address, mac } in configured {
            let unknown = Neighbour::unknown(Instant::ZERO);
            entries.insert(*address, Neighbour { mac: Some(*mac), is_static: true, ..unknown });
        }
        let notes = VecDeque::with_capacity(limits::NOTES_BETWEEN_CORES);
        Self { entries, notes, reachable_ns: reachable_ns(random), generation: 1 }
    }

    /// As [`Neighbours::generation`](super::neighbours::Neighbours::generation).
    #[inline]
    pub(super) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the hardware address of `address` for a packet to send now, and asks for it if it is not known
    /// or may be wrong by now.
    pub(super) fn resolve(&mut self, address: IpAddr, now: Instant) -> Resolution {
        if self.entries.get_mut(address).is_none() {
            if !self.make_room() {
                return Resolution::Wait;
            }
            self.entries.insert(address, Neighbour::unknown(now));
        }
        let Some(entry) = self.entries.get_mut(address) else { return Resolution::Wait };
        entry.used = now;
        if entry.is_to_be_asked_for(now) && push(&mut self.notes, ReplicaNote::Wanted(address)) {
            entry.asked = Some(now);
        }
        entry.mac.map_or(Resolution::Wait, Resolution::Known)
    }

    /// Returns the hardware address of `address` if it is known, and asks for nothing.
    pub(super) fn known(&self, address: IpAddr) -> Option<MacAddress> {
        self.entries.get(address)?.mac
    }

    /// Returns true if `address` was asked for and is not known.
    pub(super) fn is_waiting(&self, address: IpAddr) -> bool {
        self.entries.get(address).is_some_and(|entry| entry.mac.is_none())
    }

    /// Records that the transport has shown that packets to `address` arrive, for the host core too.
    pub(super) fn confirm(&mut self, address: IpAddr, now: Instant) {
        let Some(entry) = self.entries.get_mut(address) else { return };
        let Some(mac) = entry.mac.filter(|_| !entry.is_static) else { return };
        entry.fresh_until = now + self.reachable_ns;
        let is_due = now >= entry.confirm_from;
        if is_due && push(&mut self.notes, ReplicaNote::Confirmed { address, mac }) {
            entry.confirm_from = now + self.reachable_ns / 2;
        }
    }

    /// Accepts what the host core has found about a neighbour. Returns true if packets may wait for it.
    pub(super) fn learn(&mut self, address: IpAddr, mac: Option<MacAddress>, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(address).filter(|entry| !entry.is_static) else {
            return false;
        };
        let was_known = entry.mac.is_some();
        if was_known && entry.mac != mac {
            self.generation = self.generation.wrapping_add(1);
            // Of the address that it had before.
            entry.confirm_from = now;
        }
        entry.mac = mac;
        entry.fresh_until = now + limits::NEIGHBOUR_DELAY_NS;
        !was_known && mac.is_some()
    }

    /// Returns true if there are notes to the host core.
    #[inline]
    pub(super) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// Returns the oldest note to the host core.
    pub(super) fn first_note(&self) -> Option<ReplicaNote> {
        self.notes.front().copied()
    }

    /// Removes the oldest note: it was sent.
    pub(super) fn pop_note(&mut self) {
        self.notes.pop_front();
    }

    /// Makes room for another neighbour: evicts the one that was used longest ago, of those that are not
    /// known if they are many (RFC 6583 §7.1). Returns false if all are configured.
    fn make_room(&mut self) -> bool {
        if self.entries.len() < limits::NEIGHBOURS_PER_CORE {
            return true;
        }
        let candidates = || self.entries.iter().filter(|(_, entry)| !entry.is_static);
        let unknown = candidates().filter(|(_, entry)| entry.mac.is_none()).count();
        let spares_known = unknown >= limits::UNANSWERED_NEIGHBOURS_PER_CORE;
        let victim = candidates().min_by_key(|(_, entry)| (spares_known && entry.mac.is_some(), entry.used));
        let victim = victim.map(|(address, _)| address);
        if let Some(address) = victim {
            self.entries.remove(address);
            self.generation = self.generation.wrapping_add(1);
        }
        victim.is_some()
    }
}

impl Neighbour {
    const fn unknown(now: Instant) -> Self {
        Self {
            mac: None,
            is_static: false,
            fresh_until: Instant::ZERO,
            asked: None,
            confirm_from: Instant::ZERO,
            used: now,
        }
    }

    /// Returns true if a packet that needs it now is to ask for it.
    fn is_to_be_asked_for(&self, now: Instant) -> bool {
        let is_fresh = self.is_static || self.mac.is_some() && now < self.fresh_until;
        !is_fresh && self.asked.is_none_or(|asked| now - asked >= limits::NEIGHBOUR_RETRANSMIT_NS)
    }
}

/// Adds a note. Returns false if there is no room.
fn push(notes: &mut VecDeque<ReplicaNote>, note: ReplicaNote) -> bool {
    let has_room = notes.len() < limits::NOTES_BETWEEN_CORES;
    if has_room {
        notes.push_back(note);
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 6]);

    fn peer() -> IpAddr {
        "fd00::1".parse().unwrap()
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn cache(configured: &[StaticNeighbour]) -> ReplicaNeighbours {
        ReplicaNeighbours::new(configured, &mut fastrand::Rng::with_seed(1))
    }

    fn notes(cache: &mut ReplicaNeighbours) -> Vec<ReplicaNote> {
        cache.notes.drain(..).collect()
    }

    /// RFC 6583 §7.1: whoever has this host look for many addresses that do not exist drives none out that
    /// do.
    #[test]
    fn unknown_neighbours_drive_no_known_one_out() {
        let mut cache = cache(&[]);
        cache.resolve(peer(), at(0));
        cache.learn(peer(), Some(MAC), at(0));
        for number in 0..600u16 {
            let stranger = core::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, number).into();
            assert_eq!(cache.resolve(stranger, at(SECOND)), Resolution::Wait);
        }
        assert_eq!(cache.known(peer()), Some(MAC));
    }

    #[test]
    fn a_neighbour_is_asked_for_once_in_an_interval() {
        let mut cache = cache(&[]);
        let mut asked = 0;
        for tenth in 0..30 {
            assert_eq!(cache.resolve(peer(), at(tenth * SECOND / 10)), Resolution::Wait);
            asked += notes(&mut cache).len();
        }
        assert!(cache.is_waiting(peer()) && cache.known(peer()).is_none());
        assert_eq!(asked, 3);
        assert!(cache.learn(peer(), Some(MAC), at(3 * SECOND)), "packets wait for it");
        assert!(!cache.learn(peer(), Some(MAC), at(3 * SECOND)), "not any more");
        assert_eq!(cache.resolve(peer(), at(3 * SECOND)), Resolution::Known(MAC));
        assert!(notes(&mut cache).is_empty() && !cache.is_waiting(peer()));
    }

    #[test]
    fn use_without_confirmation_asks_and_with_it_confirms() {
        let mut cache = cache(&[]);
        cache.resolve(peer(), at(0));
        cache.learn(peer(), Some(MAC), at(0));
        notes(&mut cache);
        for (now, expected) in [
            (limits::NEIGHBOUR_DELAY_NS - 1, vec![]),
            (limits::NEIGHBOUR_DELAY_NS, vec![ReplicaNote::Wanted(peer())]),
        ] {
            assert_eq!(cache.resolve(peer(), at(now)), Resolution::Known(MAC));
            assert_eq!(notes(&mut cache), expected);
        }
        let confirmed = ReplicaNote::Confirmed { address: peer(), mac: MAC };
        let (start, half) = (6 * SECOND, cache.reachable_ns / 2);
        for (after, expected) in [(0, 1), (1, 0), (half - 1, 0), (half, 1)] {
            cache.confirm(peer(), at(start + after));
            assert_eq!(notes(&mut cache), vec![confirmed; expected], "{after}");
            cache.resolve(peer(), at(start + after));
            assert!(notes(&mut cache).is_empty(), "it is fresh");
        }
    }

    #[test]
    fn a_neighbour_that_moves_or_goes_changes_the_generation() {
        let mut cache = cache(&[]);
        cache.resolve(peer(), at(0));
        cache.learn(peer(), Some(MAC), at(0));
        let first = cache.generation();
        assert!(!cache.learn(peer(), Some(OTHER), at(1)), "nothing waits");
        assert_eq!(cache.resolve(peer(), at(1)), Resolution::Known(OTHER));
        let second = cache.generation();
        assert!(!cache.learn(peer(), None, at(2)));
        assert_eq!(cache.resolve(peer(), at(2)), Resolution::Wait);
        assert!(first != second && second != cache.generation());
        assert!(cache.learn(peer(), Some(MAC), at(3)));
    }

    #[test]
    fn a_note_without_room_is_made_later() {
        let mut cache = cache(&[]);
        let host = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        for n in 0..limits::NOTES_BETWEEN_CORES as u32 {
            cache.resolve(host(n), at(0));
        }
        cache.resolve(peer(), at(0));
        assert_eq!(notes(&mut cache).len(), limits::NOTES_BETWEEN_CORES);
        cache.resolve(peer(), at(1));
        assert_eq!(notes(&mut cache), [ReplicaNote::Wanted(peer())], "it was not asked for");
    }

    #[test]
    fn the_cache_has_a_bound_and_keeps_what_is_configured() {
        let configured = StaticNeighbour { address: peer(), mac: MAC };
        let mut cache = cache(&[configured]);
        let host = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        for n in 0..2 * limits::NEIGHBOURS_PER_CORE as u32 {
            cache.resolve(host(n), at(n.into()));
        }
        assert_eq!(cache.entries.len(), limits::NEIGHBOURS_PER_CORE);
        notes(&mut cache);
        assert!(!cache.learn(peer(), Some(OTHER), at(9)) && !cache.learn(host(0), Some(OTHER), at(9)));
        cache.confirm(peer(), at(10));
        assert_eq!(cache.resolve(peer(), at(1000 * SECOND)), Resolution::Known(MAC));
        assert!(notes(&mut cache).is_empty());
    }
}
