//! The content of a received frame for the layers above the host.

use std::net::IpAddr;

use crate::wire::quoted;
use crate::wire::segment::Segment;
use crate::wire::tcp::Header;

use super::icmp_errors::IcmpErrorKind;

/// The result of a received frame.
#[derive(Debug)]
pub(crate) enum Inbound<F> {
    /// A TCP segment for an address of the host, from a source that a peer can have, with its header and its
    /// frame. Its checksum holds.
    Segment(Segment, Header, F),
    /// An ICMP error about a segment that the host may have sent.
    IcmpError(IcmpError),
    /// The hardware address of this neighbour, which packets wait for, is known now.
    NeighbourResolved(IpAddr),
    /// Nothing: the host has dealt with the frame.
    Done,
}

impl<F> Inbound<F> {
    /// Returns what follows for the layers above from a packet that says where `neighbour` is.
    pub(super) fn resolved(neighbour: Option<IpAddr>) -> Self {
        neighbour.map_or(Self::Done, Self::NeighbourResolved)
    }
}

/// An ICMP error. Any host can have sent it: whether the quoted segment is outstanding is for its connection
/// to say (RFC 5927).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IcmpError {
    /// The segment it quotes.
    pub segment: quoted::Segment,
    /// The error about the segment.
    pub kind: IcmpErrorKind,
}
