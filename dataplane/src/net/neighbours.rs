//! The neighbour cache: the hardware addresses of stations on the local networks, from ARP (RFC 826) and
//! Neighbor Discovery, with the states of RFC 4861 §7.3.2 for both families.
//!
//! Any station on the link can claim any address. So the cache holds only the neighbours that the host
//! asks for and those that ask for the host; a mere claim never evicts a neighbour that connections use. A
//! claim that contradicts a known hardware address counts only after the known one was solicited and did not
//! answer for a second, although RFC 4861 §7.2.5 would accept some at once: a station that takes over the
//! address of one that has gone waits a second for it.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use super::neighbour_entries::Entries;
use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::time::Instant;
use crate::wire::ethernet::MacAddress;

/// A neighbour whose hardware address is configured: it is never solicited, and no claim changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address.
    pub mac: MacAddress,
}

/// How well a hardware address is known (RFC 4861 §7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Solicited; no hardware address is known.
    Incomplete,
    /// No station answered. The next packet to the neighbour solicits it again.
    Failed,
    /// Confirmed lately.
    Reachable,
    /// It may be wrong by now. A packet that uses it moves it to `Delay`.
    Stale,
    /// In use, and to be solicited unless the transport confirms it first.
    Delay,
    /// Solicited, and in use meanwhile.
    Probe,
    /// Configured.
    Static,
}

impl State {
    /// Returns true if the hardware address is usable.
    const fn is_resolved(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed)
    }

    /// Returns true if only time ends the state. [`State::Reachable`] ends when a packet uses it.
    const fn is_timed(self) -> bool {
        matches!(self, Self::Incomplete | Self::Delay | Self::Probe)
    }
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    mac: MacAddress,
    state: State,
    /// When the state ends, or the next solicitation is due.
    due: Instant,
    /// Solicitations sent in this state.
    solicitations: u8,
    /// Another hardware address that was claimed for this neighbour.
    claimed: Option<MacAddress>,
    /// When it was last confirmed, or entered the cache.
    confirmed: Instant,
    /// The hardware address was claimed, and nothing has confirmed it.
    is_mere_claim: bool,
    /// When a packet last needed it, if ever. Claims do not evict such a neighbour.
    used: Option<Instant>,
    /// The replicas that have asked for it, a bit for each.
    wanted_by: u64,
    /// Those of them that its latest hardware address is still to be sent to.
    unsent_to: u64,
}

impl Neighbour {
    const fn new(mac: MacAddress, state: State, now: Instant) -> Self {
        Self {
            mac,
            state,
            due: now,
            solicitations: 0,
            claimed: None,
            confirmed: now,
            is_mere_claim: false,
            used: None,
            wanted_by: 0,
            unsent_to: 0,
        }
    }

    /// Makes it one whose hardware address has just become known. It is to be sent to the replicas that
    /// have asked for it.
    fn become_known(&mut self, mac: MacAddress, state: State, now: Instant) {
        let Self { used, wanted_by, .. } = *self;
        *self = Self { used, wanted_by, unsent_to: wanted_by, ..Self::new(mac, state, now) };
    }

    fn become_reachable(&mut self, until: Instant, now: Instant) {
        (self.state, self.due, self.confirmed) = (State::Reachable, until, now);
        self.is_mere_claim = false;
    }

    fn solicit_from(&mut self, state: State, due: Instant) {
        (self.state, self.due, self.solicitations) = (state, due, 0);
    }
}

/// The entry of the cache for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Its hardware address.
    Known(MacAddress),
    /// Nothing yet: it is solicited.
    Wait,
}

/// A solicitation to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The neighbour whose hardware address is asked for.
    pub address: IpAddr,
    /// The station that had the address; `None` to ask every station.
    pub to: Option<MacAddress>,
}

/// Solicitations that are due at a time.
pub type Solicitations = ArrayVec<Solicitation, { limits::SOLICITATIONS_PER_POLL }>;

/// The neighbour cache of a core.
#[derive(Debug)]
pub struct Neighbours {
    entries: Entries<Neighbour>,
    /// No solicitation is due before.
    next_due: Instant,
    /// How long a neighbour counts as reachable (RFC 4861 §6.3.2): random, so that hosts do not solicit in
    /// step.
    reachable_ns: u64,
    /// Changes when a hardware address that was known does not hold any more.
    generation: u32,
    /// Something is to be sent to a replica that was not at the last [`take_updates`](Self::take_updates).
    has_updates: bool,
}

impl Neighbours {
    /// Returns a cache of the configured neighbours.
    pub fn new(configured: &[StaticNeighbour], random: &mut fastrand::Rng) -> Self {
        let hasher = KeyedHash::new([random.u64(..), random.u64(..)]);
        let mut entries = Entries::with_capacity(limits::NEIGHBOURS_PER_CORE, hasher);
        for StaticNeighbour { address, mac } in configured {
            entries.insert(*address, Neighbour::new(*mac, State::Static, Instant::ZERO));
        }
        Self {
            entries,
            next_due: Instant::NEVER,
            reachable_ns: reachable_ns(random),
            generation: 1,
            has_updates: false,
        }
    }

    /// Returns a number that changes when a hardware address that was [known](Resolution::Known) does not
    /// hold any more.
    #[inline]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the earliest time at which [`dequeue_due`](Self::dequeue_due) has a solicitation.
    pub const fn next_due(&self) -> Instant {
        self.next_due
    }

    /// Returns the hardware address of `address` for a packet to send now, and solicits it if it is not
    /// known.
    #[inline]
    pub fn resolve(&mut self, address: IpAddr, now: Instant) -> Resolution {
        let Some(entry) = self.entries.get_mut(address) else {
            if self.make_room(true) {
                let entry = Neighbour::new(MacAddress::default(), State::Incomplete, now);
                self.entries.insert(address, Neighbour { used: Some(now), ..entry });
                self.next_due = now;
            }
            return Resolution::Wait;
        };
        entry.used = Some(now);
        match entry.state {
            State::Reachable if now < entry.due => {}
            State::Static | State::Delay | State::Probe => {}
            State::Reachable | State::Stale => {
                entry.solicit_from(State::Delay, now + limits::NEIGHBOUR_DELAY_NS);
                self.next_due = self.next_due.min(entry.due);
            }
            State::Incomplete => return Resolution::Wait,
            State::Failed => {
                entry.solicit_from(State::Incomplete, now);
                self.next_due = now;
                return Resolution::Wait;
            }
        }
        Resolution::Known(entry.mac)
    }

    /// Returns the hardware address of `address` if it is known, and solicits nothing.
    pub fn known(&self, address: IpAddr) -> Option<MacAddress> {
        self.entries.get(address).filter(|entry| entry.state.is_resolved()).map(|entry| entry.mac)
    }

    /// Returns true if `address` is solicited and not known.
    pub fn is_waiting(&self, address: IpAddr) -> bool {
        self.entries.get(address).is_some_and(|entry| !entry.state.is_resolved())
    }

    /// Returns the solicitations that are due. Those beyond the bound are due again in the next poll.
    pub fn dequeue_due(&mut self, now: Instant) -> Solicitations {
        let mut solicitations = Solicitations::new();
        if now < self.next_due {
            return solicitations;
        }
        self.next_due = Instant::NEVER;
        let Self { entries, next_due, generation, has_updates, .. } = self;
        entries.for_each_mut(|address, entry| {
            if entry.state.is_timed() && entry.due <= now && !solicitations.is_full() {
                let before = (entry.mac, entry.state.is_resolved());
                solicitations.extend(next_solicitation(address, entry, now));
                if before.1 && before != (entry.mac, entry.state.is_resolved()) {
                    *generation = generation.wrapping_add(1);
                    entry.unsent_to = entry.wanted_by;
                    *has_updates |= entry.unsent_to != 0;
                }
            }
            if entry.state.is_timed() {
                *next_due = (*next_due).min(entry.due);
            }
        });
        solicitations
    }

    /// Records that the transport has shown that packets to `address` arrive (RFC 4861 §7.3.1). That does not
    /// decide between two stations that claim the address: the packets may have been sent before the
    /// claim.
    #[inline]
    pub fn confirm(&mut self, address: IpAddr, now: Instant) {
        if let Some(entry) = self.entries.get_mut(address)
            && entry.state.is_resolved()
            && entry.state != State::Static
            && entry.claimed.is_none()
        {
            entry.become_reachable(now + self.reachable_ns, now);
        }
    }

    /// Accepts the answer of `address` to a solicitation: an ARP reply, a solicited advertisement. An answer
    /// without a hardware address confirms the known one. Returns true if packets may wait for the neighbour.
    pub fn answered(&mut self, address: IpAddr, mac: Option<MacAddress>, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(address) else { return false };
        let same = mac.is_none_or(|mac| mac == entry.mac);
        match (entry.state, mac) {
            (State::Incomplete | State::Failed, Some(mac)) if is_station(mac) => {
                entry.become_known(mac, State::Reachable, now);
                entry.due = now + self.reachable_ns;
                self.has_updates |= entry.unsent_to != 0;
                true
            }
            (State::Probe, _) if same => {
                entry.claimed = None;
                entry.become_reachable(now + self.reachable_ns, now);
                false
            }
            (State::Probe, Some(mac)) if entry.is_mere_claim && is_station(mac) => {
                // Of two claims before it neither was confirmed.
                entry.claimed = Some(mac);
                false
            }
            (_, Some(mac)) => self.claimed(address, mac, now, false),
            (_, None) => false,
        }
    }

    /// Accepts an unsolicited claim that `address` has the hardware address `mac`. An unknown neighbour
    /// enters the cache only if it solicits the host (`solicits_host`): the host will answer it. Returns true
    /// if packets may wait for the neighbour.
    pub fn claimed(&mut self, address: IpAddr, mac: MacAddress, now: Instant, solicits_host: bool) -> bool {
        if !is_station(mac) {
            return false;
        }
        let Some(entry) = self.entries.get_mut(address) else {
            if solicits_host && self.make_room(false) {
                self.entries.insert(address, Neighbour::new(mac, State::Stale, now));
            }
            return false;
        };
        match entry.state {
            State::Static => false,
            State::Incomplete | State::Failed => {
                entry.become_known(mac, State::Stale, now);
                entry.is_mere_claim = true;
                self.has_updates |= entry.unsent_to != 0;
                true
            }
            _ if entry.mac == mac => false,
            State::Probe => {
                entry.claimed.get_or_insert(mac);
                false
            }
            State::Reachable | State::Stale | State::Delay => {
                if entry.is_mere_claim || now - entry.confirmed >= limits::NEIGHBOUR_RETRANSMIT_NS {
                    entry.claimed = Some(mac);
                    entry.solicit_from(State::Probe, now);
                    self.next_due = now;
                }
                false
            }
        }
    }

    /// Has a packet of replica `core` need `address`, as [`resolve`](Self::resolve) has one of this core. The
    /// replica is [sent](Self::send_updates) its hardware address if it is known, and each change of it.
    pub(super) fn want(&mut self, address: IpAddr, core: u8, now: Instant) {
        let is_known = matches!(self.resolve(address, now), Resolution::Known(_));
        if let Some(entry) = self.entries.get_mut(address) {
            entry.wanted_by |= 1 << core;
            if is_known {
                entry.unsent_to |= 1 << core;
                self.has_updates = true;
            }
        }
    }

    /// Records that packets of replica `core` to the station `mac` reach `address`, as
    /// [`confirm`](Self::confirm) does for those of this core.
    pub(super) fn confirm_for(&mut self, address: IpAddr, core: u8, mac: MacAddress, now: Instant) {
        let Some(entry) = self.entries.get_mut(address) else { return };
        if entry.state.is_resolved() && entry.mac == mac {
            entry.used = Some(now);
            entry.wanted_by |= 1 << core;
            self.confirm(address, now);
        }
    }

    /// Returns what [`take_updates`](Self::take_updates) would.
    #[inline]
    pub(super) const fn has_updates(&self) -> bool {
        self.has_updates
    }

    /// Returns true if there is something to [send](Self::send_updates) that there was not at the last call.
    pub(super) fn take_updates(&mut self) -> bool {
        core::mem::take(&mut self.has_updates)
    }

    /// Calls `send` with a replica, a neighbour and its hardware address, if it has one, for all that is to
    /// be sent to the replicas. What it returns false for is still to be sent, and this returns false then.
    pub(super) fn send_updates(
        &mut self,
        mut send: impl FnMut(u8, IpAddr, Option<MacAddress>) -> bool,
    ) -> bool {
        let mut all_sent = true;
        self.entries.for_each_mut(|address, entry| {
            let mac = entry.state.is_resolved().then_some(entry.mac);
            let mut unsent_to = entry.unsent_to;
            while unsent_to != 0 {
                let core = unsent_to.trailing_zeros();
                unsent_to &= unsent_to - 1;
                if send(core as u8, address, mac) {
                    entry.unsent_to &= !(1 << core);
                }
            }
            all_sent &= entry.unsent_to == 0;
        });
        all_sent
    }

    /// Makes room for one more neighbour. Evicts the one that was never used and confirmed longest ago; if
    /// all were used, and the new one is to be used, the one that was used longest ago, of those that have
    /// not answered once they have a share of the cache: the sender of a SYN need not exist, and many may not
    /// drive out those that do (RFC 6583 §7.1). Returns false if none may be evicted.
    fn make_room(&mut self, to_be_used: bool) -> bool {
        if self.entries.len() < limits::NEIGHBOURS_PER_CORE {
            return true;
        }
        let candidates = || self.entries.iter().filter(|(_, entry)| entry.state != State::Static);
        let unanswered = candidates().filter(|(_, entry)| !entry.state.is_resolved()).count();
        let spares_answered = unanswered >= limits::UNANSWERED_NEIGHBOURS_PER_CORE;
        let victim = candidates().min_by_key(|(_, entry)| {
            let is_spared = spares_answered && entry.used.is_some() && entry.state.is_resolved();
            (entry.used.is_some(), is_spared, entry.used, entry.confirmed)
        });
        match victim.map(|(address, entry)| (address, entry.used)) {
            Some((address, used)) if to_be_used || used.is_none() => {
                self.entries.remove(address);
                self.generation = self.generation.wrapping_add(1);
                true
            }
            _ => false,
        }
    }
}

/// Draws how long a neighbour counts as reachable after each confirmation, in nanoseconds.
pub(super) fn reachable_ns(random: &mut fastrand::Rng) -> u64 {
    let base = limits::NEIGHBOUR_REACHABLE_NS;
    random.u64(base / 2..=base / 2 * 3)
}

/// Ends the state of an entry that is due. Returns the solicitation to send, if there is one.
fn next_solicitation(address: IpAddr, entry: &mut Neighbour, now: Instant) -> Option<Solicitation> {
    if entry.state == State::Delay {
        entry.solicit_from(State::Probe, now);
    }
    if entry.state == State::Probe {
        if let Some(mac) = entry.claimed.filter(|_| entry.solicitations > 0) {
            // The known station is silent. The station that claims the address has to answer when it is used.
            entry.claimed = None;
            (entry.mac, entry.state) = (mac, State::Stale);
            return None;
        }
        if entry.solicitations >= limits::NEIGHBOUR_SOLICITATIONS {
            // RFC 7048 §3: every station is solicited before the neighbour counts as unreachable.
            entry.solicit_from(State::Incomplete, now);
        }
    }
    if entry.solicitations >= limits::NEIGHBOUR_SOLICITATIONS {
        entry.state = State::Failed;
        return None;
    }
    entry.solicitations += 1;
    entry.due = now + limits::NEIGHBOUR_RETRANSMIT_NS;
    Some(Solicitation { address, to: (entry.state == State::Probe).then_some(entry.mac) })
}

/// Returns true if `mac` can be that of one station.
fn is_station(mac: MacAddress) -> bool {
    !mac.is_multicast() && mac != MacAddress::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 6]);
    const RETRANSMIT: u64 = limits::NEIGHBOUR_RETRANSMIT_NS;

    fn peer() -> IpAddr {
        "fd00::1".parse().unwrap()
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn cache() -> Neighbours {
        Neighbours::new(&[], &mut fastrand::Rng::with_seed(1))
    }

    /// A cache that learnt the peer at 0.
    fn resolved() -> Neighbours {
        let mut cache = cache();
        assert_eq!(cache.resolve(peer(), at(0)), Resolution::Wait);
        assert_eq!(asked(&mut cache, at(0)), Some(everybody()));
        assert!(cache.answered(peer(), Some(MAC), at(0)), "somebody waited");
        cache
    }

    /// The question that is due, if there is one.
    fn asked(cache: &mut Neighbours, now: Instant) -> Option<Solicitation> {
        let due = cache.dequeue_due(now);
        assert!(due.len() <= 1);
        due.first().copied()
    }

    fn everybody() -> Solicitation {
        Solicitation { address: peer(), to: None }
    }

    fn only(mac: MacAddress) -> Solicitation {
        Solicitation { address: peer(), to: Some(mac) }
    }

    /// The time from which the peer does not count as reachable any more.
    fn stale(cache: &Neighbours) -> Instant {
        at(cache.reachable_ns)
    }

    #[test]
    fn asks_three_times_a_second_apart_and_gives_up() {
        let mut cache = cache();
        assert_eq!(cache.resolve(peer(), at(0)), Resolution::Wait);
        assert!(cache.is_waiting(peer()));
        for n in 0..u64::from(limits::NEIGHBOUR_SOLICITATIONS) {
            assert_eq!(cache.next_due(), at(n * RETRANSMIT));
            assert_eq!(asked(&mut cache, at(n * RETRANSMIT)), Some(everybody()));
            assert_eq!(asked(&mut cache, at((n + 1) * RETRANSMIT - 1)), None);
            assert_eq!(cache.resolve(peer(), at(n * RETRANSMIT + 1)), Resolution::Wait);
        }
        assert_eq!(asked(&mut cache, at(3 * RETRANSMIT)), None);
        assert_eq!(cache.next_due(), Instant::NEVER, "nobody needs it");
        // A sender that needs the address asks again; a late answer is valid.
        assert_eq!(cache.resolve(peer(), at(10 * RETRANSMIT)), Resolution::Wait);
        assert_eq!(asked(&mut cache, at(10 * RETRANSMIT)), Some(everybody()));
        assert!(cache.answered(peer(), Some(MAC), at(11 * RETRANSMIT)));
        assert_eq!(cache.resolve(peer(), at(11 * RETRANSMIT)), Resolution::Known(MAC));
        assert!(!cache.is_waiting(peer()));
    }

    #[test]
    fn a_stale_neighbour_is_used_and_then_asked() {
        let mut cache = resolved();
        let used = stale(&cache);
        assert!(
            (limits::NEIGHBOUR_REACHABLE_NS / 2..=limits::NEIGHBOUR_REACHABLE_NS / 2 * 3)
                .contains(&cache.reachable_ns)
        );
        assert_eq!(asked(&mut cache, used), None, "not used: not asked");
        assert_eq!(cache.resolve(peer(), used), Resolution::Known(MAC));
        assert_eq!(cache.next_due(), used + limits::NEIGHBOUR_DELAY_NS);
        let probed = cache.next_due();
        for n in 0..u64::from(limits::NEIGHBOUR_SOLICITATIONS) {
            assert_eq!(asked(&mut cache, probed + n * RETRANSMIT), Some(only(MAC)), "asked itself");
            assert_eq!(cache.resolve(peer(), probed + n * RETRANSMIT), Resolution::Known(MAC));
        }
        assert_eq!(asked(&mut cache, probed + 3 * RETRANSMIT), Some(everybody()), "then all are asked");
        assert_eq!(cache.resolve(peer(), probed + 3 * RETRANSMIT), Resolution::Wait);
        assert!(cache.answered(peer(), Some(OTHER), probed + 3 * RETRANSMIT));
        assert_eq!(cache.known(peer()), Some(OTHER));
    }

    #[test]
    fn an_answer_or_progress_ends_the_questions() {
        for by_transport in [false, true] {
            let mut cache = resolved();
            let used = stale(&cache);
            cache.resolve(peer(), used);
            let probed = used + limits::NEIGHBOUR_DELAY_NS;
            assert_eq!(asked(&mut cache, probed), Some(only(MAC)));
            if by_transport {
                cache.confirm(peer(), probed + 1);
            } else {
                assert!(!cache.answered(peer(), None, probed + 1));
            }
            assert_eq!(cache.resolve(peer(), probed + 2), Resolution::Known(MAC));
            assert_eq!(asked(&mut cache, probed + 100 * RETRANSMIT), None);
        }
    }

    #[test]
    fn while_the_known_one_answers_no_claim_is_believed() {
        for solicited in [false, true] {
            let mut cache = resolved();
            let mut now = at(2 * SECOND);
            for _ in 0..10 {
                if solicited {
                    cache.answered(peer(), Some(OTHER), now);
                } else {
                    cache.claimed(peer(), OTHER, now, true);
                }
                assert_eq!(cache.resolve(peer(), now), Resolution::Known(MAC));
                assert_eq!(asked(&mut cache, now), Some(only(MAC)));
                cache.confirm(peer(), now);
                // Claims while it is asked change nothing; nor does a claim right after the answer ask again.
                cache.claimed(peer(), OTHER, now + 1, true);
                assert!(!cache.answered(peer(), Some(MAC), now + 2));
                cache.claimed(peer(), OTHER, now + 3, true);
                assert_eq!(asked(&mut cache, now + 3), None);
                assert_eq!(cache.resolve(peer(), now + 4), Resolution::Known(MAC));
                now += 2 * SECOND;
            }
        }
    }

    #[test]
    fn who_takes_over_from_a_silent_one_is_believed_after_a_second() {
        let mut cache = resolved();
        let claimed = at(2 * SECOND);
        assert!(!cache.claimed(peer(), OTHER, claimed, false));
        assert_eq!(asked(&mut cache, claimed), Some(only(MAC)));
        cache.confirm(peer(), claimed + 1);
        assert_eq!(asked(&mut cache, claimed + RETRANSMIT), None);
        assert_eq!(cache.resolve(peer(), claimed + RETRANSMIT), Resolution::Known(OTHER));
        // It has to show that it answers.
        assert_eq!(asked(&mut cache, claimed + RETRANSMIT + limits::NEIGHBOUR_DELAY_NS), Some(only(OTHER)));
    }

    /// A claim that came before the answer to our own question is not held against the answer: nothing has
    /// confirmed it.
    #[test]
    fn an_answer_right_after_a_claim_has_the_claim_asked() {
        let mut cache = cache();
        cache.resolve(peer(), at(0));
        assert_eq!(asked(&mut cache, at(0)), Some(everybody()));
        assert!(cache.claimed(peer(), OTHER, at(1), false), "somebody waited");
        assert!(!cache.answered(peer(), Some(MAC), at(2)));
        assert_eq!(asked(&mut cache, at(2)), Some(only(OTHER)));
        assert_eq!(asked(&mut cache, at(2 + RETRANSMIT)), None);
        assert_eq!(cache.known(peer()), Some(MAC));
        // Two claims hide it as little as one.
        let mut cache = self::cache();
        cache.resolve(peer(), at(0));
        asked(&mut cache, at(0));
        assert!(cache.claimed(peer(), OTHER, at(1), false));
        assert!(!cache.claimed(peer(), MacAddress([2, 0, 0, 0, 0, 7]), at(1), false));
        assert!(!cache.answered(peer(), Some(MAC), at(2)));
        assert_eq!(asked(&mut cache, at(2)), Some(only(OTHER)));
        assert_eq!(asked(&mut cache, at(2 + RETRANSMIT)), None);
        assert_eq!(cache.known(peer()), Some(MAC));
    }

    /// New neighbours of a full cache do not take each other's places before they are asked for.
    #[test]
    fn new_neighbours_of_a_full_cache_are_all_asked() {
        let neighbour = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        let mut cache = cache();
        for n in 0..limits::NEIGHBOURS_PER_CORE as u32 {
            cache.resolve(neighbour(n), at(u64::from(n)));
            assert!(cache.answered(neighbour(n), Some(MAC), at(u64::from(n))));
        }
        let now = at(1_000_000);
        let new = 1000..1000 + limits::UNANSWERED_NEIGHBOURS_PER_CORE as u32;
        new.clone().for_each(|n| _ = cache.resolve(neighbour(n), now));
        assert!(new.clone().all(|n| cache.is_waiting(neighbour(n))));
        assert!(new.clone().all(|n| cache.answered(neighbour(n), Some(MAC), now)));
        let longest_unused = |n| cache.known(neighbour(n)).is_none();
        assert!((0..new.len() as u32).all(longest_unused));
    }

    #[test]
    fn strangers_neither_fill_the_cache_nor_drive_others_out() {
        let stranger = |n: u32| IpAddr::from(n.to_be_bytes());
        let mut cache = resolved();
        assert!(!cache.claimed(stranger(1), MAC, at(0), false));
        assert!(!cache.answered(stranger(1), Some(MAC), at(0)));
        assert!(!cache.claimed(stranger(1), MacAddress::BROADCAST, at(0), true), "a group is no station");
        assert!(!cache.claimed(stranger(1), MacAddress::default(), at(0), true));
        assert_eq!(cache.entries.len(), 1);
        for n in 0..10_000 {
            cache.claimed(stranger(n), OTHER, at(u64::from(n)), true);
        }
        assert_eq!(cache.entries.len(), limits::NEIGHBOURS_PER_CORE);
        assert_eq!(cache.known(peer()), Some(MAC), "used: it stays");
        assert_eq!(cache.known(stranger(9_999)), Some(OTHER));
        // When all entries are used, unsolicited claims find no room. A neighbour that this core needs
        // replaces one that has not answered, however lately it was needed.
        for n in 0..2 * limits::NEIGHBOURS_PER_CORE as u32 {
            cache.resolve(stranger(20_000 + n), at(10_000 + u64::from(n)));
        }
        assert!(!cache.claimed(stranger(1), OTHER, at(20_000), true));
        assert_eq!((cache.known(stranger(1)), cache.known(peer())), (None, Some(MAC)));
        assert_eq!(cache.entries.len(), limits::NEIGHBOURS_PER_CORE);
        // When all have answered, it replaces the one that was used longest ago.
        let answer = limits::NEIGHBOURS_PER_CORE as u32 + 1..2 * limits::NEIGHBOURS_PER_CORE as u32;
        for n in answer {
            assert!(cache.answered(stranger(20_000 + n), Some(OTHER), at(20_000)), "{n}");
        }
        assert_eq!(cache.known(peer()), Some(MAC));
        cache.resolve(stranger(30_000), at(20_001));
        assert_eq!((cache.entries.len(), cache.known(peer())), (limits::NEIGHBOURS_PER_CORE, None));
        assert!(cache.is_waiting(stranger(30_000)));
    }

    #[test]
    fn questions_have_a_bound_per_poll() {
        let mut cache = cache();
        for n in 0..100u32 {
            cache.resolve(IpAddr::from(n.to_be_bytes()), at(0));
        }
        let mut sent = 0;
        while cache.next_due() <= at(0) {
            let due = cache.dequeue_due(at(0)).len();
            assert!(due <= limits::SOLICITATIONS_PER_POLL && due > 0);
            sent += due;
        }
        assert_eq!(sent, 100);
    }

    /// All that is sent to the replicas.
    fn sent(cache: &mut Neighbours) -> Vec<(u8, Option<MacAddress>)> {
        let mut sent = Vec::new();
        assert!(cache.send_updates(|core, address, mac| {
            assert_eq!(address, peer());
            sent.push((core, mac));
            true
        }));
        sent
    }

    #[test]
    fn replicas_are_sent_what_they_have_asked_for() {
        let mut cache = cache();
        cache.want(peer(), 3, at(0));
        assert_eq!(asked(&mut cache, at(0)), Some(everybody()), "it is solicited for the replica");
        assert_eq!(sent(&mut cache), [], "nothing is known");
        assert!(cache.answered(peer(), Some(MAC), at(1)));
        assert_eq!(sent(&mut cache), [(3, Some(MAC))]);
        cache.want(peer(), 5, at(2));
        assert_eq!(sent(&mut cache), [(5, Some(MAC))], "at once, and the other one not again");
        cache.claimed(peer(), OTHER, at(2 * SECOND), false);
        assert_eq!(asked(&mut cache, at(2 * SECOND)), Some(only(MAC)));
        asked(&mut cache, at(2 * SECOND + RETRANSMIT));
        assert_eq!(sent(&mut cache), [(3, Some(OTHER)), (5, Some(OTHER))]);
    }

    /// What finds no room is sent later, and then as it is by then.
    #[test]
    fn a_replica_that_takes_nothing_is_sent_it_later() {
        let mut cache = resolved();
        cache.want(peer(), 1, at(1));
        assert!(!cache.send_updates(|_, _, _| false));
        let used = stale(&cache);
        cache.want(peer(), 1, used);
        let mut now = used + limits::NEIGHBOUR_DELAY_NS;
        while cache.known(peer()).is_some() {
            assert!(cache.dequeue_due(now).len() <= 1);
            assert!(cache.known(peer()).is_none() || !cache.send_updates(|_, _, _| false));
            now += RETRANSMIT;
        }
        assert_eq!(sent(&mut cache), [(1, None)]);
        assert_eq!(sent(&mut cache), []);
    }

    /// Acknowledgements of a station that had the address before confirm nothing.
    #[test]
    fn a_replica_confirms_the_station_that_it_sends_to() {
        for (mac, is_confirmed) in [(MAC, true), (OTHER, false)] {
            let mut cache = resolved();
            let used = stale(&cache);
            cache.want(peer(), 1, used);
            cache.confirm_for(peer(), 1, mac, used + 1);
            let probed = asked(&mut cache, used + limits::NEIGHBOUR_DELAY_NS).is_some();
            assert_eq!(probed, !is_confirmed, "{mac:?}");
        }
    }

    #[test]
    fn a_configured_neighbour_stays_as_it_is() {
        let configured = StaticNeighbour { address: peer(), mac: MAC };
        let mut cache = Neighbours::new(&[configured], &mut fastrand::Rng::with_seed(1));
        cache.claimed(peer(), OTHER, at(10 * SECOND), true);
        cache.answered(peer(), Some(OTHER), at(10 * SECOND));
        cache.confirm(peer(), at(10 * SECOND));
        assert_eq!(cache.resolve(peer(), at(1000 * SECOND)), Resolution::Known(MAC));
        assert_eq!(cache.next_due(), Instant::NEVER);
        for n in 0..1000u32 {
            cache.resolve(IpAddr::from(n.to_be_bytes()), at(2000 * SECOND));
        }
        assert_eq!(cache.known(peer()), Some(MAC));
    }
}
