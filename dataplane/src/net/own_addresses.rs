//! The host's own addresses, and how they become its own: duplicate address detection (RFC 4862 §5.4, RFC
//! 7527).

use std::net::{IpAddr, Ipv6Addr};

use arrayvec::ArrayVec;

use super::addresses::{Addresses, Cidr};
use super::notes::AddressStates;
use crate::limits;
use crate::time::Instant;
use crate::wire::ipv6;

/// An address that the host may not use before it is clear that no other station has it.
#[derive(Clone, Copy, Debug)]
struct Tentative {
    address: Ipv6Addr,
    /// When the probe goes out, or, after it, when the address becomes the host's own.
    due: Instant,
    probed: bool,
}

/// IPv6 addresses of the host.
pub(super) type Ipv6Addresses = ArrayVec<Ipv6Addr, { limits::ADDRESSES_PER_CORE }>;

/// The tentative addresses whose time has come.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Those to send a probe for.
    pub to_probe: Ipv6Addresses,
    /// Those that are the host's own from now on.
    pub assigned: Ipv6Addresses,
}

/// The addresses of a host, tentative ones included.
#[derive(Debug)]
pub(super) struct OwnAddresses {
    addresses: Addresses,
    /// Those that it was set up with, in their order.
    configured: Addresses,
    started: bool,
    tentative: ArrayVec<Tentative, { limits::ADDRESSES_PER_CORE }>,
    /// When an address may be defended again.
    may_defend: Instant,
    /// Distinguishes the host's own probes from those of others (RFC 7527 §4.1).
    nonce: [u8; 6],
    random: fastrand::Rng,
}

impl OwnAddresses {
    /// Returns the configured addresses, before the host has begun to use them.
    pub(super) fn new(addresses: Addresses, mut random: fastrand::Rng) -> Self {
        let nonce = core::array::from_fn(|_| random.u8(..));
        let (tentative, may_defend) = (ArrayVec::new(), Instant::ZERO);
        let configured = addresses.clone();
        Self { addresses, configured, started: false, tentative, may_defend, nonce, random }
    }

    /// Returns all addresses, each with the prefix of its network.
    pub(super) fn as_slice(&self) -> &[Cidr] {
        &self.addresses
    }

    /// Returns the nonce of the host's own probes.
    pub(super) const fn nonce(&self) -> [u8; 6] {
        self.nonce
    }

    /// Returns the time at which the next address is due; at once before [`start`](Self::start).
    #[inline]
    pub(super) fn next_due(&self) -> Instant {
        if !self.started {
            return Instant::ZERO;
        }
        self.tentative.iter().map(|tentative| tentative.due).min().unwrap_or(Instant::NEVER)
    }

    /// Returns true if `address` is to become the host's own.
    pub(super) fn is_tentative(&self, address: Ipv6Addr) -> bool {
        self.tentative.iter().any(|tentative| tentative.address == address)
    }

    /// Returns true if `address` is one of the host's own that it may use.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
            && !matches!(address, IpAddr::V6(address) if self.is_tentative(address))
    }

    /// Returns true if `group` is the solicited-node group of one of the addresses, tentative ones included.
    pub(super) fn is_solicited_group(&self, group: Ipv6Addr) -> bool {
        self.addresses
            .iter()
            .any(|own| matches!(own.address, IpAddr::V6(own) if ipv6::solicited_node(own) == group))
    }

    /// Begins to use the addresses, once: IPv6 addresses become tentative if `detect_duplicates` is set.
    /// Returns those to announce at once.
    pub(super) fn start(&mut self, now: Instant, detect_duplicates: bool) -> Addresses {
        if core::mem::replace(&mut self.started, true) {
            return Addresses::new();
        }
        let mut to_announce = self.addresses.clone();
        to_announce.retain(|own| match own.address {
            IpAddr::V6(address) if detect_duplicates => {
                // RFC 4862 §5.4.2: a random delay, so that hosts that start together do not probe together.
                let due = now + self.random.u64(0..=limits::PROBE_DELAY_NS);
                self.tentative.push(Tentative { address, due, probed: false });
                false
            }
            _ => true,
        });
        to_announce
    }

    /// Begins to use the addresses, once, as a replica does, which detects no duplicates: if the host core
    /// does, IPv6 addresses are tentative until it has [assigned](Self::follow) them.
    pub(super) fn start_as_replica(&mut self, detect_duplicates: bool) {
        self.started = true;
        for own in &self.addresses {
            if let IpAddr::V6(address) = own.address
                && detect_duplicates
            {
                self.tentative.push(Tentative { address, due: Instant::NEVER, probed: false });
            }
        }
    }

    /// Returns the states of all addresses, for the replicas.
    pub(super) fn states(&self) -> AddressStates {
        let mut states = AddressStates::default();
        for (own, bit) in self.configured.iter().zip(0..) {
            if self.started && self.contains(own.address) {
                states.assigned |= 1 << bit;
            } else if !self.addresses.contains(own) {
                states.given_up |= 1 << bit;
            }
        }
        states
    }

    /// Adopts the states that the host core has found. Returns the addresses that are the host's own from now
    /// on.
    pub(super) fn follow(&mut self, states: AddressStates) -> Ipv6Addresses {
        let mut assigned = Ipv6Addresses::new();
        for (own, bit) in self.configured.clone().iter().zip(0..) {
            let IpAddr::V6(address) = own.address else { continue };
            if states.given_up & 1 << bit != 0 {
                self.give_up(address);
            } else if states.assigned & 1 << bit != 0 && self.is_tentative(address) {
                self.tentative.retain(|tentative| tentative.address != address);
                assigned.push(address);
            }
        }
        assigned
    }

    /// Removes the tentative addresses that are due.
    pub(super) fn dequeue_due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        self.tentative.retain(|tentative| {
            if tentative.due > now {
                return true;
            }
            let done = core::mem::replace(&mut tentative.probed, true);
            tentative.due = now + limits::NEIGHBOUR_RETRANSMIT_NS;
            let list = if done { &mut due.assigned } else { &mut due.to_probe };
            list.push(tentative.address);
            !done
        });
        due
    }

    /// Abandons a tentative address that another station has or probes for (RFC 4862 §5.4.3, §5.4.4).
    pub(super) fn give_up(&mut self, address: Ipv6Addr) {
        self.tentative.retain(|tentative| tentative.address != address);
        self.addresses.retain(|own| own.address != IpAddr::V6(address));
    }

    /// Returns true if an address may be defended at `now`; the defence counts then (RFC 5227 §2.4).
    pub(super) fn may_defend(&mut self, now: Instant) -> bool {
        let may = now >= self.may_defend;
        if may {
            self.may_defend = now + limits::DEFEND_INTERVAL_NS;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1);

    fn own() -> OwnAddresses {
        let addresses = ["198.18.0.1/24", "fd00::1/64"].map(|text| text.parse().expect("an address"));
        OwnAddresses::new(addresses.into_iter().collect(), fastrand::Rng::with_seed(1))
    }

    fn v6() -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)
    }

    #[test]
    fn an_ipv6_address_is_probed_for_once_and_then_assigned() {
        let mut own = own();
        assert_eq!(own.next_due(), Instant::ZERO);
        let announced = own.start(NOW, true);
        assert_eq!(announced.as_slice(), &own.as_slice()[..1], "the IPv4 address");
        assert!(own.is_tentative(v6()) && !own.contains(v6().into()) && own.contains([198, 18, 0, 1].into()));
        assert!(own.is_solicited_group(ipv6::solicited_node(v6())));
        let probe_at = own.next_due();
        let due = own.dequeue_due(probe_at);
        assert_eq!((due.to_probe.as_slice(), due.assigned.as_slice()), (&[v6()][..], &[][..]));
        let due = own.dequeue_due(probe_at + limits::NEIGHBOUR_RETRANSMIT_NS);
        assert_eq!((due.to_probe.as_slice(), due.assigned.as_slice()), (&[][..], &[v6()][..]));
        assert!(own.contains(v6().into()));
        assert_eq!(own.next_due(), Instant::NEVER);
    }

    #[test]
    fn without_detection_every_address_is_announced_at_once() {
        let mut own = own();
        assert_eq!(own.start(NOW, false).len(), 2);
        assert!(own.contains(v6().into()));
        assert!(own.start(NOW, false).is_empty(), "once");
    }

    #[test]
    fn an_address_given_up_is_gone() {
        let mut own = own();
        own.start(NOW, true);
        own.give_up(v6());
        assert_eq!((own.next_due(), own.as_slice().len()), (Instant::NEVER, 1));
    }

    /// A replica uses an IPv6 address from the moment in which the host core does, and gives it up with it.
    #[test]
    fn a_replica_follows_the_host_core() {
        for is_unique in [true, false] {
            let (mut host, mut replica) = (own(), own());
            replica.start_as_replica(true);
            assert!(replica.follow(host.states()).is_empty(), "it has not begun");
            assert!(!replica.contains(v6().into()) && replica.contains([198, 18, 0, 1].into()));
            host.start(NOW, true);
            assert_eq!(host.states(), AddressStates { assigned: 0b01, given_up: 0 });
            assert!(replica.follow(host.states()).is_empty(), "it is tentative");
            assert_eq!(replica.next_due(), Instant::NEVER, "a replica probes for nothing");
            let expected = if is_unique {
                let probe_at = host.next_due();
                host.dequeue_due(probe_at);
                host.dequeue_due(probe_at + limits::NEIGHBOUR_RETRANSMIT_NS);
                vec![v6()]
            } else {
                host.give_up(v6());
                vec![]
            };
            assert_eq!(replica.follow(host.states()).as_slice(), expected);
            assert!(replica.follow(host.states()).is_empty(), "once");
            assert_eq!(replica.contains(v6().into()), is_unique);
            assert_eq!((replica.states(), replica.as_slice()), (host.states(), host.as_slice()));
        }
    }

    #[test]
    fn addresses_are_defended_once_in_an_interval() {
        let mut own = own();
        assert!(own.may_defend(NOW));
        assert!(!own.may_defend(NOW + (limits::DEFEND_INTERVAL_NS - 1)));
        assert!(own.may_defend(NOW + limits::DEFEND_INTERVAL_NS));
    }
}
