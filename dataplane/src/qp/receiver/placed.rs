//! Segments that are placed out of order and wait for their Delivery.

use super::ulpdu::Fault;
use crate::ordered::Ordered;
use crate::qp::error::StreamError;
use crate::wire::ddp::{Header, Untagged};

/// A ULPDU that may be placed out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfOrder {
    /// A segment of a Write: nothing is left to do at its Delivery.
    Complete,
    /// A segment of a Send or of a Read Response: its Delivery must be remembered ([`PlacedSegment`]).
    AwaitsDelivery,
}

/// A segment that is placed and waits for its Delivery.
#[derive(Clone, Copy, Debug)]
pub struct PlacedSegment {
    /// The stream position of its FPDU.
    pub(super) position: u64,
    pub(super) header: Header,
    pub(super) segment_octets: u16,
}

impl Ordered for PlacedSegment {
    type Key = u64;

    #[inline]
    fn key(&self) -> u64 {
        self.position
    }
}

impl PlacedSegment {
    pub(super) fn fault(&self, error: StreamError) -> Fault {
        let mut header = [0; Untagged::LEN];
        let header_octets = self.header.emit(&mut header) as u8;
        Fault { error, segment_octets: self.segment_octets, header, header_octets, read_request: None }
    }
}
