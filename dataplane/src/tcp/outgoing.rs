//! A segment that a connection sends.

use crate::wire::tcp::Header;

use super::ecn::EcnField;
use super::send_queue::Segment;

/// A segment to send. The caller fills in ports and checksum.
#[derive(Clone, Debug)]
pub struct Outgoing<P> {
    /// The header, ports zero.
    pub header: Header,
    /// The data, if any: a range of a descriptor's payload.
    pub segment: Option<Segment<P>>,
    /// The ECN field of the IP header.
    pub ecn: EcnField,
}

impl<P> Outgoing<P> {
    /// A segment without data. It is never sent as ECN-capable (RFC 3168 §6.1.4).
    pub(super) const fn control(header: Header) -> Self {
        Self { header, segment: None, ecn: EcnField::NotCapable }
    }
}
