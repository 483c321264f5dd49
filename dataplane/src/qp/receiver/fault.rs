//! Why a ULPDU was refused, and what a Terminate reports of its headers.

use crate::ddp::DdpError;
use crate::mpa::receiver::Ulpdu;
use crate::qp::error::StreamError;
use crate::wire::atomic::AtomicRequest;
use crate::wire::ddp::{Header, Untagged};
use crate::wire::rdmap::ReadRequest;

/// The most octets of headers in a ULPDU: the untagged header and the longest of RDMAP.
const HEADER_OCTETS: usize = Untagged::LEN + AtomicRequest::LEN;

/// Why a ULPDU was refused, with the fields that a Terminate reports.
// Requirements: DDP-7.1-16
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The error for the application.
    pub error: StreamError,
    /// Octets of the DDP Segment, for the Terminate.
    pub segment_octets: u16,
    /// The header of the segment in error, as received.
    pub header: [u8; Untagged::LEN],
    /// Octets of `header` that are valid: 14, 18, or 0 if it could not be parsed.
    pub header_octets: u8,
    /// The header of the Read Request in error, if it is one.
    pub read_request: Option<[u8; ReadRequest::LEN]>,
}

/// A ULPDU with its parsed DDP header.
pub(super) struct ParsedUlpdu<'a, U> {
    pub octets: &'a U,
    /// The first octets of it.
    prefix: [u8; HEADER_OCTETS],
    prefix_octets: usize,
    pub header: Header,
    header_octets: usize,
}

impl<'a, U: Ulpdu> ParsedUlpdu<'a, U> {
    pub(super) fn parse(octets: &'a U) -> Result<Self, Fault> {
        let mut prefix = [0; HEADER_OCTETS];
        let prefix_octets = octets.copy_prefix(&mut prefix);
        // too short for its header is a local catastrophic error, and there is nothing to copy into a
        // Terminate.
        let (header, header_octets) =
            Header::parse(&prefix[..prefix_octets], octets.octets()).map_err(|_| Fault {
                error: StreamError::Ddp(DdpError::LocalCatastrophic),
                segment_octets: octets.octets() as u16,
                header: [0; Untagged::LEN],
                header_octets: 0,
                read_request: None,
            })?;
        Ok(Self { octets, prefix, prefix_octets, header, header_octets })
    }

    pub(super) fn payload_octets(&self) -> usize {
        self.octets.octets() - self.header_octets
    }

    /// The octets after the DDP header, as many as a header of RDMAP has.
    pub(super) fn after_header(&self) -> &[u8] {
        &self.prefix[self.header_octets..self.prefix_octets]
    }

    pub(super) fn fault(&self, error: StreamError) -> Fault {
        let mut header = [0; Untagged::LEN];
        header[..self.header_octets].copy_from_slice(&self.prefix[..self.header_octets]);
        let segment_octets = self.octets.octets() as u16;
        let header_octets = self.header_octets as u8;
        Fault { error, segment_octets, header, header_octets, read_request: None }
    }
}
