//! The IP host: Ethernet, ARP and Neighbor Discovery, IPv4 and IPv6, fragments, ICMP.
//!
//! A `Host` turns a received frame into an `Inbound`: a TCP segment, an ICMP error about a segment, a
//! neighbour whose hardware address is known now, or nothing, because the host has handled the frame itself.
//! For segments to be sent it finds the next hop, writes the headers and queues the frame. It holds no state
//! of connections: what a frame changes for them is in the value that it returns. Its parts:
//!
//! - the `Interface`: the device, frames in and out in bursts, and those between the cores of the device;
//! - the `Neighbourhood`: the own addresses, the neighbours and the routes, with ARP and Neighbor Discovery;
//! - the `SegmentParser`, which finds the segment in nearly every frame in one pass;
//! - the paths, with the templates of the headers of segments out.
//!
//! # Loopback
//!
//! A connection to an address of the host's own sends its frames to the host's own hardware address, and
//! those go to a queue of the core instead of the device (`net/loopback.rs`). A burst of them is delivered in
//! the next poll; when the queue is three quarters full, connections stay scheduled, and the rest is left to
//! answers. No other host has had the octets, so checksums are neither computed nor verified. A frame from
//! the wire with one of these addresses for its source is dropped.
//!
//! # Several cores
//!
//! Each core of a device has a host of its own, with the addresses of all. That of core 0, the *host core*,
//! alone speaks for them on the link: ARP, Neighbor Discovery, duplicate address detection, echo replies,
//! reassembly. The others are *replicas*, and learn by notes which addresses are theirs and where neighbours
//! are (`net/notes.rs`). A frame that belongs to another core is handed over: by the device if it came from
//! the wire, and by rings of their own if it is for the device itself, so that none from the wire can pass
//! for one (`net/place.rs`).

pub mod addresses;
mod arp;
pub(crate) mod between_cores;
pub(crate) mod counters;
mod duplicate_detection;
pub(crate) mod flow;
mod fragments;
mod handover;
pub(crate) mod host;
mod icmp;
pub(crate) mod icmp_errors;
pub(crate) mod inbound;
pub(crate) mod input;
mod interface;
mod ip;
mod link;
mod loopback;
mod neighbor_discovery;
mod neighbour_cache;
mod neighbour_entries;
mod neighbourhood;
pub mod neighbours;
mod notes;
pub mod notice;
pub(crate) mod output;
mod own_addresses;
mod path_mtu;
pub mod place;
pub(crate) mod port_set;
mod reassembly;
mod replica_neighbours;
mod segment;
pub(crate) mod template;
#[cfg(feature = "testing")]
pub(crate) mod testing;
mod transmit;

pub(crate) use host::{Config, Host};
