//! The addresses, routes and MTU of an interface of the kernel, for a device that shares them.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use warpline_dataplane::limits;
use warpline_dataplane::net::addresses::{Cidr, Route};

use super::interfaces::{self, Interface};
use super::netlink;
use super::survey::{HostFault, check_interface};
use crate::vocabulary::device_name::DeviceName;

/// The largest MTU of a device, in bytes.
const MTU_MAX: u32 = 9600;

/// Returns `device`, which has no addresses, with those of the kernel on its interface, those of its routes
/// whose gateways are on a network of these, and the interface's MTU, unless the name has another.
///
/// # Errors
///
/// [`HostFault`]: there is no such interface, or it has no address.
pub(crate) fn shared(device: &DeviceName) -> Result<DeviceName, HostFault> {
    let listed = interfaces::list().unwrap_or_default();
    let interface = listed.iter().find(|one| one.name == device.target());
    let interface = interface.cloned().unwrap_or_default();
    let mtu = interface.mtu.min(MTU_MAX) as u16;
    // With the interface's MTU, which may be less than that of devices.
    check_interface(&device.sharing(Vec::new(), Vec::new(), mtu), &listed)?;
    let addresses = usable(&interface.addresses);
    if addresses.is_empty() {
        return Err(HostFault::NoKernelAddress { interface: device.target().to_owned() });
    }
    let routes = if device.routes().is_empty() { routes(&interface).unwrap_or_default() } else { Vec::new() };
    let routes = reachable(routes, &addresses);
    Ok(device.sharing(addresses, routes, mtu))
}

/// Returns those addresses that a device can have, as many as it can. A link-local one is of use on a link
/// that is named beside it alone.
fn usable(addresses: &[Cidr]) -> Vec<Cidr> {
    let is_link_local = |own: &&Cidr| match own.address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    addresses.iter().filter(|own| !is_link_local(own)).copied().take(limits::ADDRESSES_PER_CORE).collect()
}

/// Returns those routes whose gateway is a neighbour, as many as a device can have, the default ones first.
fn reachable(mut routes: Vec<Route>, addresses: &[Cidr]) -> Vec<Route> {
    routes.retain(|route| addresses.iter().any(|own| own.contains(route.gateway)));
    routes.sort_by_key(|route| route.destination.prefix_bits);
    routes.dedup_by_key(|route| route.destination);
    routes.truncate(limits::ROUTES_PER_CORE);
    routes
}

/// Returns the routes by gateways through `interface`, of the table that all traffic uses.
fn routes(interface: &Interface) -> io::Result<Vec<Route>> {
    let socket = netlink::open(NETLINK_ROUTE)?;
    let mut routes = Vec::new();
    let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
    netlink::ask(&socket, NLM_F_DUMP, request, |message| {
        if let RouteNetlinkMessage::NewRoute(route) = message {
            routes.extend(route_through(interface.index, &route));
        }
    })?;
    Ok(routes)
}

fn route_through(interface: u32, message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    if header.kind != RouteType::Unicast || header.table != RouteHeader::RT_TABLE_MAIN {
        return None;
    }
    let unspecified: IpAddr = match header.address_family {
        AddressFamily::Inet => [0; 4].into(),
        AddressFamily::Inet6 => [0; 16].into(),
        _ => return None,
    };
    let (mut destination, mut gateway, mut through) = (unspecified, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(address)?,
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::Oif(index) => through = Some(*index),
            _ => {}
        }
    }
    let destination = Cidr::new(destination, header.destination_prefix_length);
    (through == Some(interface)).then_some(Route { destination, gateway: gateway? })
}

const fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().expect("an address")
    }

    #[test]
    fn link_local_addresses_and_far_gateways_are_left_out() {
        let addresses = usable(&["198.18.0.1/24", "fe80::1/64", "fd00::1/64"].map(cidr));
        assert_eq!(addresses, ["198.18.0.1/24", "fd00::1/64"].map(cidr));
        let route = |destination, gateway: &str| Route {
            destination: cidr(destination),
            gateway: gateway.parse().expect("an address"),
        };
        let routes = vec![
            route("198.19.0.0/16", "198.18.0.9"),
            route("198.18.9.0/24", "198.18.1.1"),
            route("0.0.0.0/0", "198.18.0.254"),
            route("0.0.0.0/0", "198.18.0.253"),
            route("::/0", "fe80::9"),
        ];
        let kept = [route("0.0.0.0/0", "198.18.0.254"), route("198.19.0.0/16", "198.18.0.9")];
        assert_eq!(reachable(routes, &addresses), kept);
    }

    /// Of a route of the kernel's its gateway counts, in the main table and through the interface.
    #[test]
    fn routes_of_the_kernel_are_read() {
        let message = |table, oif, gateway: Option<[u8; 4]>| {
            let mut message = RouteMessage::default();
            message.header.address_family = AddressFamily::Inet;
            message.header.table = table;
            message.header.kind = RouteType::Unicast;
            message.header.destination_prefix_length = 8;
            message.attributes = vec![
                RouteAttribute::Destination(RouteAddress::Inet([10, 0, 0, 0].into())),
                RouteAttribute::Oif(oif),
            ];
            message
                .attributes
                .extend(gateway.map(|at| RouteAttribute::Gateway(RouteAddress::Inet(at.into()))));
            message
        };
        let gateway = Some([198, 18, 0, 254]);
        let expected = Route { destination: cidr("10.0.0.0/8"), gateway: [198, 18, 0, 254].into() };
        assert_eq!(route_through(3, &message(254, 3, gateway)), Some(expected));
        assert_eq!(route_through(3, &message(254, 3, None)), None, "a network without a gateway");
        assert_eq!(route_through(3, &message(254, 4, gateway)), None);
        assert_eq!(route_through(3, &message(255, 3, gateway)), None);
    }
}
