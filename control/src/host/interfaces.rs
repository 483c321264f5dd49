//! The interfaces of this network namespace, as the kernel lists them (rtnetlink(7)).

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use warpline_dataplane::net::addresses::Cidr;

/// An interface of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Its frames stay in this machine's memory (veth, bridge, tap, ...): the kernel then leaves TCP
    /// checksums to a device that never computes them.
    pub(crate) is_virtual: bool,
    /// The kernel's addresses on it.
    pub(crate) addresses: Vec<Cidr>,
}

/// Returns the interfaces of this network namespace, in the kernel's order.
///
/// # Errors
///
/// That of the socket; or `InvalidData` if an answer of the kernel cannot be read.
pub(crate) fn list() -> io::Result<Vec<Interface>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut interfaces = Vec::new();
    dump(&socket, RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            interfaces.extend(interface(&link));
        }
    })?;
    dump(&socket, RouteNetlinkMessage::GetAddress(AddressMessage::default()), |message| {
        if let RouteNetlinkMessage::NewAddress(address) = message
            && let Some(own) = cidr(&address)
            && let Some(interface) = interfaces.iter_mut().find(|one| one.index == address.header.index)
        {
            interface.addresses.push(own);
        }
    })?;
    Ok(interfaces)
}

/// Has the kernel list what `request` asks for, and calls `each` for each message of the answer.
fn dump(
    socket: &Socket,
    request: RouteNetlinkMessage,
    mut each: impl FnMut(RouteNetlinkMessage),
) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    socket.send(&octets, 0)?;
    let unreadable = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(unreadable)?;
            // Messages begin at multiples of four octets.
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => each(message),
                _ => {}
            }
        }
    }
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let flags = link.header.flags;
    let mut name = None;
    let mut mtu = u32::MAX;
    let mut is_virtual = false;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Mtu(bytes) => mtu = *bytes,
            // Drivers of hardware have no kind.
            LinkAttribute::LinkInfo(infos) => {
                is_virtual = infos.iter().any(|info| matches!(info, LinkInfo::Kind(_)));
            }
            _ => {}
        }
    }
    Some(Interface {
        index: link.header.index,
        name: name?,
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        is_loopback: flags.contains(LinkFlags::Loopback),
        mtu,
        is_virtual,
        addresses: Vec::new(),
    })
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
