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
mod tests;
