//! Who has which hardware address on the local networks: one cache for ARP (RFC 826) and Neighbor Discovery, with the
//! states of RFC 4861 §7.3.2 for both families.
//!
//! Anybody on the link can claim anybody's address. So nothing is taken up but what we asked for and who asks us; what
//! others only claim never drives out what our connections use; and a claim that contradicts a known hardware address is
//! not believed before the known one was asked and did not answer for a second, although RFC 4861 §7.2.5 would believe
//! some at once: who takes over an address from a station that has gone is served a second later.

use std::collections::HashMap;
use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::time::Instant;
use crate::wire::ethernet::MacAddress;

/// A neighbour whose hardware address is configured: never asked for, never changed by what others say.
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
    /// It is asked for; none is known.
    Incomplete,
    /// Nobody answered. The next who needs it asks anew.
    Failed,
    /// It was right until lately.
    Reachable,
    /// It may be wrong by now. It is used, and using it leads to a question.
    Stale,
    /// It is used; if nothing shows it to be right, it is asked.
    Delay,
    /// It is asked, and used meanwhile.
    Probe,
    /// It was configured.
    Static,
}

impl State {
    /// Whether the hardware address means something.
    const fn is_resolved(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Failed)
    }

    /// Whether time alone moves the state on; [`State::Reachable`] is only looked at when it is used.
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
    /// Another hardware address, claimed for this neighbour.
    claimed: Option<MacAddress>,
    /// When it was last shown to be right, or first heard of.
    confirmed: Instant,
    /// When a packet was last to go there, if ever: such a neighbour is not driven out by what others say.
    used: Option<Instant>,
}

impl Neighbour {
    const fn new(mac: MacAddress, state: State, now: Instant) -> Self {
        Self { mac, state, due: now, solicitations: 0, claimed: None, confirmed: now, used: None }
    }

    fn solicit_from(&mut self, state: State, due: Instant) {
        (self.state, self.due, self.solicitations) = (state, due, 0);
    }
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Its hardware address.
    Known(MacAddress),
    /// Nothing yet; it is asked for.
    Wait,
}

/// A question to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// Whose hardware address.
    pub address: IpAddr,
    /// Who is asked: the one that had the address, or everybody.
    pub to: Option<MacAddress>,
}

/// Solicitations that are due at a time.
pub type Solicitations = ArrayVec<Solicitation, { limits::SOLICITATIONS_PER_POLL }>;

/// The neighbour cache of a core.
#[derive(Debug)]
pub struct Neighbours {
    entries: HashMap<IpAddr, Neighbour, KeyedHash>,
    /// Nothing is due before.
    next_due: Instant,
    /// How long a neighbour counts as reachable (RFC 4861 §6.3.2): random, so that hosts do not ask in step.
    reachable_ns: u64,
}

impl Neighbours {
    /// A cache of the configured neighbours.
    pub fn new(configured: &[StaticNeighbour], random: &mut fastrand::Rng) -> Self {
        let base = limits::NEIGHBOUR_REACHABLE_NS;
        let hasher = KeyedHash::new([random.u64(..), random.u64(..)]);
        let mut entries = HashMap::with_capacity_and_hasher(limits::NEIGHBOURS_PER_CORE, hasher);
        for StaticNeighbour { address, mac } in configured {
            entries.insert(*address, Neighbour::new(*mac, State::Static, Instant::ZERO));
        }
        Self { entries, next_due: Instant::NEVER, reachable_ns: random.u64(base / 2..=base / 2 * 3) }
    }

    /// When [`due`](Self::due) has something to give, at the earliest.
    pub const fn next_due(&self) -> Instant {
        self.next_due
    }

    /// The hardware address of `address` for a packet that is to go there now.
    pub fn resolve(&mut self, address: IpAddr, now: Instant) -> Resolution {
        if !self.entries.contains_key(&address) {
            if self.make_room(true) {
                let entry = Neighbour::new(MacAddress::default(), State::Incomplete, now);
                self.entries.insert(address, Neighbour { used: Some(now), ..entry });
                self.next_due = now;
            }
            return Resolution::Wait;
        }
        let Some(entry) = self.entries.get_mut(&address) else { return Resolution::Wait };
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

    /// The hardware address of `address`, if known, for an answer: nothing is asked for its sake.
    pub fn known(&self, address: IpAddr) -> Option<MacAddress> {
        self.entries.get(&address).filter(|entry| entry.state.is_resolved()).map(|entry| entry.mac)
    }

    /// Whether `address` is asked for and not known.
    pub fn is_waiting(&self, address: IpAddr) -> bool {
        self.entries.get(&address).is_some_and(|entry| !entry.state.is_resolved())
    }

    /// The questions that are due. What there is no room for comes in the next poll.
    pub fn due(&mut self, now: Instant) -> Solicitations {
        let mut solicitations = Solicitations::new();
        if now < self.next_due {
            return solicitations;
        }
        self.next_due = Instant::NEVER;
        for (address, entry) in &mut self.entries {
            if entry.state.is_timed() && entry.due <= now && !solicitations.is_full() {
                solicitations.extend(next_question(*address, entry, now));
            }
            if entry.state.is_timed() {
                self.next_due = self.next_due.min(entry.due);
            }
        }
        solicitations
    }

    /// The transport has shown that packets to `address` arrive (RFC 4861 §7.3.1). It does not decide between two who claim
    /// the address: what it saw may have been under way before.
    pub fn confirm(&mut self, address: IpAddr, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&address)
            && entry.state.is_resolved()
            && entry.state != State::Static
            && entry.claimed.is_none()
        {
            (entry.state, entry.due, entry.confirmed) = (State::Reachable, now + self.reachable_ns, now);
        }
    }

    /// `address` has answered a question of ours: an ARP reply, a solicited advertisement. One that does not tell a
    /// hardware address confirms the known one. `true` when somebody may have waited for it.
    pub fn answered(&mut self, address: IpAddr, mac: Option<MacAddress>, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&address) else { return false };
        let same = mac.is_none_or(|mac| mac == entry.mac);
        match (entry.state, mac) {
            (State::Incomplete | State::Failed, Some(mac)) if is_station(mac) => {
                let used = entry.used;
                *entry = Neighbour { used, ..Neighbour::new(mac, State::Reachable, now) };
                entry.due = now + self.reachable_ns;
                true
            }
            (State::Probe, _) if same => {
                entry.claimed = None;
                (entry.state, entry.due, entry.confirmed) = (State::Reachable, now + self.reachable_ns, now);
                false
            }
            (_, Some(mac)) => self.claimed(address, mac, now, false),
            (_, None) => false,
        }
    }

    /// Somebody says, unasked, that `address` has the hardware address `mac`. A stranger is taken up only if it asks for us
    /// (`asks_us`): it will want an answer. `true` when somebody may have waited for it.
    pub fn claimed(&mut self, address: IpAddr, mac: MacAddress, now: Instant, asks_us: bool) -> bool {
        if !is_station(mac) {
            return false;
        }
        let Some(entry) = self.entries.get_mut(&address) else {
            if asks_us && self.make_room(false) {
                self.entries.insert(address, Neighbour::new(mac, State::Stale, now));
            }
            return false;
        };
        match entry.state {
            State::Static => false,
            State::Incomplete | State::Failed => {
                let used = entry.used;
                *entry = Neighbour { used, ..Neighbour::new(mac, State::Stale, now) };
                true
            }
            _ if entry.mac == mac => false,
            State::Probe => {
                entry.claimed.get_or_insert(mac);
                false
            }
            State::Reachable | State::Stale | State::Delay => {
                if now - entry.confirmed >= limits::NEIGHBOUR_RETRANSMIT_NS {
                    entry.claimed = Some(mac);
                    entry.solicit_from(State::Probe, now);
                    self.next_due = now;
                }
                false
            }
        }
    }

    /// Makes room for one more: who was never used goes first, the longest unheard before others; then, for one that is to
    /// be used, who was not used for longest. `false` when nobody may go.
    fn make_room(&mut self, to_be_used: bool) -> bool {
        if self.entries.len() < limits::NEIGHBOURS_PER_CORE {
            return true;
        }
        let candidates = self.entries.iter().filter(|(_, entry)| entry.state != State::Static);
        let victim = candidates.min_by_key(|(_, entry)| (entry.used, entry.confirmed));
        match victim.map(|(address, entry)| (*address, entry.used)) {
            Some((address, used)) if to_be_used || used.is_none() => {
                self.entries.remove(&address);
                true
            }
            _ => false,
        }
    }
}

/// Moves the entry of `address` on, whose time has come; gives who is to be asked, if anybody.
fn next_question(address: IpAddr, entry: &mut Neighbour, now: Instant) -> Option<Solicitation> {
    if entry.state == State::Delay {
        entry.solicit_from(State::Probe, now);
    }
    if entry.state == State::Probe {
        if let Some(mac) = entry.claimed.filter(|_| entry.solicitations > 0) {
            // The one we knew is silent: whoever else claimed the address has to show that it answers when it is used.
            entry.claimed = None;
            (entry.mac, entry.state) = (mac, State::Stale);
            return None;
        }
        if entry.solicitations >= limits::NEIGHBOUR_SOLICITATIONS {
            // RFC 7048 §3: everybody is asked before the neighbour is given up.
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

/// Whether `mac` can be that of one station.
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
        let due = cache.due(now);
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
        // Whoever needs it asks anew; a late answer is as good as any.
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
        // When all are used, what others say finds no room; what we need does, and the longest unused goes.
        for n in 0..limits::NEIGHBOURS_PER_CORE as u32 - 1 {
            cache.resolve(stranger(20_000 + n), at(10_000 + u64::from(n)));
        }
        assert!(!cache.claimed(stranger(1), OTHER, at(20_000), true));
        assert_eq!((cache.known(stranger(1)), cache.known(peer())), (None, Some(MAC)));
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
            let due = cache.due(at(0)).len();
            assert!(due <= limits::SOLICITATIONS_PER_POLL && due > 0);
            sent += due;
        }
        assert_eq!(sent, 100);
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
