//! How frames arrive at an interface of the kernel: what a sender in this machine has left to an interface
//! that does not do it, and what the kernel has joined.

use std::net::IpAddr;

use super::interfaces::{Interface, Kind};
use super::offloads::Offloads;

/// The most interfaces above one another that are looked at: VLANs of bonds of VLANs.
const LAYERS: usize = 4;

/// The interfaces of this network namespace, with their offloads.
pub(crate) struct Arrivals<'a> {
    pub(crate) interfaces: &'a [Interface],
    /// Returns the offloads of the interface with a number, if the kernel lists them.
    pub(crate) offloads: &'a dyn Fn(u32) -> Option<Offloads>,
}

/// Why packets longer than the MTU arrive at a packet socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LongPackets {
    /// The kernel sends them, for the other end of the veth pair to segment.
    Unsegmented { other_end: String },
    /// The interface or the kernel joins segments that arrive.
    Joined { interface: String, by: Vec<&'static str> },
}

impl Arrivals<'_> {
    /// Returns true if intact TCP segments may arrive at `interface` with partial checksums. Where that
    /// cannot be asked they may: nothing damages what never leaves this machine's memory.
    pub(crate) fn have_partial_checksums(&self, interface: &Interface) -> bool {
        self.are_partial(interface, LAYERS)
    }

    fn are_partial(&self, interface: &Interface, layers: usize) -> bool {
        if layers == 0 {
            return true;
        }
        let own = (self.offloads)(interface.index);
        // What the kernel joins, it gives the checksum that it would leave to an interface to complete.
        let joins = own.as_ref().is_some_and(|own| !own.joining_received().is_empty());
        match interface.kind {
            Kind::Hardware => joins,
            // Its host passes on what another of its guests has sent, and says so only in the driver.
            Kind::Virtio => joins || own.is_some_and(|own| own.verifies_received()),
            Kind::Veth => {
                let other_end = self.link(interface).and_then(|other| (self.offloads)(other.index));
                joins || other_end.is_none_or(|other_end| other_end.sums_transmitted())
            }
            Kind::Vlan => self.link(interface).is_none_or(|lower| self.are_partial(lower, layers - 1)),
            Kind::Bond => self.members(interface).any(|member| self.are_partial(member, layers - 1)),
            Kind::Other => true,
        }
    }

    /// Returns why packets longer than its MTU arrive at `interface`, if that is known. Of a veth pair whose
    /// other end is in another network namespace only what arrives can tell.
    pub(crate) fn long_packets(&self, interface: &Interface) -> Option<LongPackets> {
        self.long(interface, LAYERS)
    }

    fn long(&self, interface: &Interface, layers: usize) -> Option<LongPackets> {
        let layers = layers.checked_sub(1)?;
        match interface.kind {
            Kind::Hardware | Kind::Virtio => self.joined(interface),
            Kind::Veth => self.joined(interface).or_else(|| self.unsegmented(self.link(interface)?)),
            Kind::Vlan => self.long(self.link(interface)?, layers),
            Kind::Bond => self.members(interface).find_map(|member| self.long(member, layers)),
            Kind::Other => None,
        }
    }

    fn joined(&self, interface: &Interface) -> Option<LongPackets> {
        let by = (self.offloads)(interface.index)?.joining_received();
        (!by.is_empty()).then(|| LongPackets::Joined { interface: interface.name.clone(), by })
    }

    /// Looks at the other end of a veth pair. If the kernel has no address there but those that every
    /// interface gets, then it has no connections either: whatever sends there does it frame by frame.
    fn unsegmented(&self, other_end: &Interface) -> Option<LongPackets> {
        let is_host = other_end.addresses.iter().any(|own| !is_link_local(own.address));
        let segments = is_host && (self.offloads)(other_end.index)?.segments_transmitted();
        segments.then(|| LongPackets::Unsegmented { other_end: other_end.name.clone() })
    }

    /// Returns the interface beneath `interface`, or the other end of a veth pair, if it is in this network
    /// namespace.
    fn link(&self, interface: &Interface) -> Option<&Interface> {
        let index = interface.link.filter(|_| !interface.is_link_elsewhere)?;
        self.interfaces.iter().find(|other| other.index == index)
    }

    fn members(&self, interface: &Interface) -> impl Iterator<Item = &Interface> {
        let controller = Some(interface.index);
        self.interfaces.iter().filter(move |member| member.controller == controller)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, kind: Kind) -> Interface {
        Interface { index, name: format!("i{index}"), kind, ..Interface::default() }
    }

    fn linked(index: u32, kind: Kind, link: u32) -> Interface {
        Interface { link: Some(link), ..interface(index, kind) }
    }

    /// Returns what is found out about the first of `interfaces`, whose offloads are listed in their order.
    fn look(interfaces: &[Interface], offloads: &[&[&str]]) -> (bool, Option<LongPackets>) {
        let offloads = |index: u32| {
            let at = interfaces.iter().position(|one| one.index == index)?;
            offloads.get(at).map(|names| Offloads::of(names))
        };
        let arrivals = Arrivals { interfaces, offloads: &offloads };
        (arrivals.have_partial_checksums(&interfaces[0]), arrivals.long_packets(&interfaces[0]))
    }

    fn joined(interface: &str, by: &[&'static str]) -> LongPackets {
        LongPackets::Joined { interface: interface.into(), by: by.to_vec() }
    }

    const TX: &[&str] = &["tx-checksum-ip-generic", "tx-tcp-segmentation"];

    #[test]
    fn of_a_veth_pair_the_other_end_counts() {
        let pair = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|own| own.parse().unwrap()).collect();
            let other_end = Interface { addresses, ..linked(2, Kind::Veth, 1) };
            [linked(1, Kind::Veth, 2), other_end]
        };
        let unsegmented = Some(LongPackets::Unsegmented { other_end: "i2".into() });
        assert_eq!(look(&pair(&["198.18.0.1/24"]), &[&[], TX]), (true, unsegmented));
        assert_eq!(look(&pair(&["198.18.0.1/24"]), &[TX, &[]]), (false, None), "its own do not");
        assert_eq!(look(&pair(&["fe80::1/64"]), &[&[], TX]), (true, None), "nobody is there");
        assert_eq!(look(&pair(&[]), &[&["rx-gro"], &[]]), (true, Some(joined("i1", &["gro"]))));
        assert_eq!(look(&pair(&["198.18.0.1/24"]), &[]), (true, None), "not to be known");
        let elsewhere = [Interface { is_link_elsewhere: true, ..linked(1, Kind::Veth, 2) }];
        assert_eq!(look(&elsewhere, &[&[]]), (true, None));
        // The number is that of another interface here.
        let another = [elsewhere[0].clone(), interface(2, Kind::Hardware)];
        assert_eq!(look(&another, &[&[], &[]]), (true, None));
    }

    #[test]
    fn what_comes_from_a_cable_is_whole_unless_it_was_joined() {
        let hardware = [interface(1, Kind::Hardware)];
        assert_eq!(look(&hardware, &[TX]), (false, None));
        assert_eq!(look(&hardware, &[]), (false, None));
        assert_eq!(look(&hardware, &[&["rx-gro", "rx-lro"]]), (true, Some(joined("i1", &["gro", "lro"]))));
        let virtio = [interface(1, Kind::Virtio)];
        assert_eq!(look(&virtio, &[&["rx-checksum"]]), (true, None));
        assert_eq!(look(&virtio, &[&["rx-gro-hw"]]), (true, Some(joined("i1", &["rx-gro-hw"]))));
        assert_eq!(look(&virtio, &[&[]]), (false, None));
        assert_eq!(look(&[interface(1, Kind::Other)], &[&[]]), (true, None));
    }

    #[test]
    fn of_interfaces_above_others_those_count() {
        let vlan = [linked(1, Kind::Vlan, 2), interface(2, Kind::Hardware)];
        assert_eq!(look(&vlan, &[TX, &[]]), (false, None));
        assert_eq!(look(&vlan, &[&[], &["rx-gro"]]), (true, Some(joined("i2", &["gro"]))));
        let member = |index| Interface { controller: Some(1), ..interface(index, Kind::Hardware) };
        let bond = [interface(1, Kind::Bond), member(2), member(3), interface(4, Kind::Other)];
        assert_eq!(look(&bond, &[&["rx-gro"], &[], &[], &[]]), (false, None));
        assert_eq!(look(&bond, &[&[], &[], &["rx-lro"], &[]]), (true, Some(joined("i3", &["lro"]))));
        // Numbers that lead nowhere, or round in a circle.
        assert_eq!(look(&[linked(1, Kind::Vlan, 9)], &[&[]]), (true, None));
        assert_eq!(look(&[linked(1, Kind::Vlan, 1)], &[&[]]), (true, None));
    }
}
