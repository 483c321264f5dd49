//! The interfaces of this network namespace, as the kernel lists them (rtnetlink(7)).

use std::io;
use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use warpline_dataplane::net::addresses::Cidr;

use super::netlink;

/// An interface of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Set up by its administrator.
    pub(crate) is_up: bool,
    /// What it is attached to is there and up: the cable, or the other end of a veth pair.
    pub(crate) has_carrier: bool,
    pub(crate) is_loopback: bool,
    /// The largest IP packet, in bytes.
    pub(crate) mtu: u32,
    /// What makes its frames.
    pub(crate) kind: Kind,
    /// The interface beneath it, or of a veth pair the other end.
    pub(crate) link: Option<u32>,
    /// Whether that is in another network namespace, where its number means another interface.
    pub(crate) is_link_elsewhere: bool,
    /// The interface whose member it is.
    pub(crate) controller: Option<u32>,
    /// The kernel's addresses on it.
    pub(crate) addresses: Vec<Cidr>,
}

/// What makes the frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// An adapter: drivers of hardware have no kind.
    #[default]
    Hardware,
    /// An adapter of virtio: the host of this virtual machine.
    Virtio,
    /// The kernel, of what it sends to the other end.
    Veth,
    /// The interface beneath it.
    Vlan,
    /// Its members.
    Bond,
    /// Anything in this machine's memory (bridge, tap, ...).
    Other,
}

/// Returns the interfaces of this network namespace, in the kernel's order.
///
/// # Errors
///
/// That of the socket; or `InvalidData` if an answer of the kernel cannot be read.
pub(crate) fn list() -> io::Result<Vec<Interface>> {
    let socket = netlink::open(NETLINK_ROUTE)?;
    let mut interfaces = Vec::new();
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    netlink::ask(&socket, NLM_F_DUMP, request, |message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            interfaces.extend(interface(&link));
        }
    })?;
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    netlink::ask(&socket, NLM_F_DUMP, request, |message| {
        if let RouteNetlinkMessage::NewAddress(address) = message
            && let Some(own) = cidr(&address)
            && let Some(interface) = interfaces.iter_mut().find(|one| one.index == address.header.index)
        {
            interface.addresses.push(own);
        }
    })?;
    Ok(interfaces)
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let flags = link.header.flags;
    let mut name = None;
    let mut one = Interface {
        index: link.header.index,
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        is_loopback: flags.contains(LinkFlags::Loopback),
        mtu: u32::MAX,
        ..Interface::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Mtu(bytes) => one.mtu = *bytes,
            LinkAttribute::Link(index) => one.link = Some(*index),
            LinkAttribute::LinkNetNsId(_) => one.is_link_elsewhere = true,
            LinkAttribute::Controller(index) => one.controller = Some(*index),
            LinkAttribute::ParentDevBusName(bus) if bus == "virtio" => one.kind = Kind::Virtio,
            LinkAttribute::LinkInfo(infos) => {
                let kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(InfoKind::Veth) => Some(Kind::Veth),
                    LinkInfo::Kind(InfoKind::Vlan) => Some(Kind::Vlan),
                    LinkInfo::Kind(InfoKind::Bond | InfoKind::Team) => Some(Kind::Bond),
                    LinkInfo::Kind(_) => Some(Kind::Other),
                    _ => None,
                });
                one.kind = kind.unwrap_or(one.kind);
            }
            _ => {}
        }
    }
    Some(Interface { name: name?, ..one })
}

/// Returns the address that the kernel has. Over a point-to-point link `IFA_ADDRESS` is the peer's, and
/// `IFA_LOCAL` its own.
fn cidr(message: &AddressMessage) -> Option<Cidr> {
    let mut own: Option<IpAddr> = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => own = Some(*address),
            AddressAttribute::Address(address) => own = own.or(Some(*address)),
            _ => {}
        }
    }
    Some(Cidr::new(own?, message.header.prefix_len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_among_them() {
        let interfaces = list().unwrap();
        let lo = interfaces.iter().find(|interface| interface.name == "lo").expect("lo");
        assert!(lo.is_loopback && lo.index > 0 && lo.mtu >= 1500);
        if lo.is_up {
            assert!(lo.addresses.contains(&"127.0.0.1/8".parse().unwrap()), "{lo:?}");
        }
    }
}
