//! The content of a received frame for the layers above the host.

use std::net::IpAddr;

use crate::wire::quoted;
use crate::wire::tcp;

use super::flow::FlowKey;
use super::icmp_errors::IcmpErrorKind;

/// The result of a received frame.
#[derive(Debug)]
pub enum Inbound<F> {
    /// A TCP segment for an address of the host.
    Segment(Segment<F>),
    /// An ICMP error about a segment that the host may have sent.
    IcmpError(IcmpError),
    /// The hardware address of this neighbour, which packets wait for, is known now.
    NeighbourResolved(IpAddr),
    /// Nothing: the host has dealt with the frame.
    Done,
}

/// A TCP segment whose checksum holds, from a source that a peer can have.
#[derive(Debug)]
pub struct Segment<F> {
    /// The connection it belongs to, if there is one.
    pub key: FlowKey,
    /// Its header.
    pub header: tcp::Header,
    /// The frame it came in.
    pub frame: F,
    /// Where in the frame its payload begins.
    pub payload_offset: usize,
    /// Octets of payload.
    pub payload_octets: usize,
    /// The two ECN bits of its IP header (RFC 3168 §5).
    pub ecn: u8,
}

/// An ICMP error. Any host can have sent it: whether the quoted segment is outstanding is for its connection
/// to say (RFC 5927).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The segment it quotes.
    pub segment: quoted::Segment,
    /// The error about the segment.
    pub kind: IcmpErrorKind,
}
