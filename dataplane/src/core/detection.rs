//! Our addresses' beginning and defence: duplicate address detection (RFC 4862 §5.4, RFC 7527), announcements, and what is
//! done when another station uses an address of ours (RFC 5227 §2.4).

use std::net::{IpAddr, Ipv6Addr};

use arrayvec::ArrayVec;

use super::Core;
use super::statistics::DropCause;
use crate::device::Device;
use crate::limits;
use crate::time::Instant;
use crate::wire::ethernet::MacAddress;
use crate::wire::icmpv6::NeighborSolicitation;
use crate::wire::ipv6;

/// An address that is not ours before it is clear that nobody else has it.
#[derive(Clone, Copy, Debug)]
struct Tentative {
    address: Ipv6Addr,
    /// When the probe goes out, or, after it, when the address is ours.
    due: Instant,
    probed: bool,
}

/// What is known of our own addresses.
#[derive(Debug)]
pub(super) struct Detection {
    started: bool,
    tentative: ArrayVec<Tentative, { limits::ADDRESSES_PER_CORE }>,
    /// When an address may be defended again.
    may_defend: Instant,
    /// Tells our probes from those of others (RFC 7527 §4.1).
    nonce: [u8; 6],
    random: fastrand::Rng,
}

impl Detection {
    pub(super) fn new(mut random: fastrand::Rng) -> Self {
        let nonce = core::array::from_fn(|_| random.u8(..));
        let (tentative, may_defend) = (ArrayVec::new(), Instant::ZERO);
        Self { started: false, tentative, may_defend, nonce, random }
    }

    /// When something is to be done; at once before the first time.
    pub(super) fn next_due(&self) -> Instant {
        if !self.started {
            return Instant::ZERO;
        }
        self.tentative.iter().map(|tentative| tentative.due).min().unwrap_or(Instant::NEVER)
    }
}

impl<D: Device> Core<D> {
    /// Whether `address` is to become ours.
    pub(super) fn is_tentative(&self, address: Ipv6Addr) -> bool {
        self.detection.tentative.iter().any(|tentative| tentative.address == address)
    }

    /// Whether `address` is one of ours, and may be used.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.config.addresses.iter().any(|own| own.address == address)
            && !matches!(address, IpAddr::V6(address) if self.is_tentative(address))
    }

    /// Whether `group` is the solicited-node group of an address of ours, tentative ones included.
    pub(super) fn is_solicited_group(&self, group: Ipv6Addr) -> bool {
        let addresses = &self.config.addresses;
        addresses
            .iter()
            .any(|own| matches!(own.address, IpAddr::V6(own) if ipv6::solicited_node(own) == group))
    }

    /// Brings our addresses into use.
    pub(super) fn detect_duplicates(&mut self, now: Instant) -> bool {
        if now < self.detection.next_due() {
            return false;
        }
        if !core::mem::replace(&mut self.detection.started, true) {
            self.start_addresses(now);
        }
        let mut assigned = ArrayVec::<Ipv6Addr, { limits::ADDRESSES_PER_CORE }>::new();
        let mut to_probe = assigned.clone();
        self.detection.tentative.retain(|tentative| {
            if tentative.due > now {
                return true;
            }
            let done = core::mem::replace(&mut tentative.probed, true);
            tentative.due = now + limits::NEIGHBOUR_RETRANSMIT_NS;
            let list = if done { &mut assigned } else { &mut to_probe };
            list.push(tentative.address);
            !done
        });
        for target in to_probe {
            let nonce = Some(self.detection.nonce);
            let probe = NeighborSolicitation { target, source_mac: None, nonce };
            self.send_solicitation(Ipv6Addr::UNSPECIFIED, &probe, None);
        }
        for address in assigned {
            self.announce_by_advertisement(address);
            self.wake_where(|_, key| key.local == IpAddr::V6(address));
        }
        true
    }

    /// Announces the IPv4 addresses, and probes for the IPv6 ones or announces them too.
    fn start_addresses(&mut self, now: Instant) {
        for own in self.config.addresses.clone() {
            match own.address {
                IpAddr::V4(own) => self.announce_by_arp(own),
                IpAddr::V6(own) if !self.config.duplicate_address_detection => {
                    self.announce_by_advertisement(own);
                }
                IpAddr::V6(address) => {
                    // RFC 4862 §5.4.2: hosts that start together do not probe together.
                    let due = now + self.detection.random.u64(0..=limits::PROBE_DELAY_NS);
                    self.detection.tentative.push(Tentative { address, due, probed: false });
                }
            }
        }
    }

    /// Another station advertises an address that is to become ours, or probes for it, with this nonce. Then it does not
    /// become ours (RFC 4862 §5.4.3, §5.4.4).
    pub(super) fn on_rival(&mut self, address: Ipv6Addr, nonce: Option<[u8; 6]>) -> Result<(), DropCause> {
        if nonce == Some(self.detection.nonce) {
            // Our own, come back.
            return Err(DropCause::OtherAddress);
        }
        self.detection.tentative.retain(|tentative| tentative.address != address);
        self.config.addresses.retain(|own| own.address != IpAddr::V6(address));
        Err(DropCause::AddressConflict)
    }

    /// Another station says it has our address. It is told once in a while that it has not; gives what to count.
    pub(super) fn on_conflict(&mut self, now: Instant, address: IpAddr, mac: MacAddress) -> DropCause {
        if mac == self.mac {
            // Our own packet, come back.
            return DropCause::OtherAddress;
        }
        if now >= self.detection.may_defend {
            self.detection.may_defend = now + limits::DEFEND_INTERVAL_NS;
            match address {
                IpAddr::V4(own) => self.announce_by_arp(own),
                IpAddr::V6(own) => self.announce_by_advertisement(own),
            }
        }
        DropCause::AddressConflict
    }
}
