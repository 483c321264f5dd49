//! The IP host: Ethernet, ARP and Neighbor Discovery, IPv4 and IPv6, ICMP.

pub mod addresses;
pub mod flow;
pub mod neighbours;
pub(crate) mod path_mtu;
