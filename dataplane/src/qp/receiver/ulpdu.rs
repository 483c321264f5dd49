//! A ULPDU with its parsed DDP header, and the memory its payload is placed in.

use arrayvec::ArrayVec;

use crate::ddp::DdpError;
use crate::limits;
use crate::memory::Target;
use crate::mpa::receiver::{Located, Octets};
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
pub(super) struct Ulpdu<'a, O> {
    pub octets: &'a O,
    pub located: &'a Located,
    /// The first octets of it.
    prefix: [u8; HEADER_OCTETS],
    prefix_octets: usize,
    pub header: Header,
    header_octets: usize,
}

impl<'a, O: Octets> Ulpdu<'a, O> {
    pub(super) fn parse(octets: &'a O, located: &'a Located) -> Result<Self, Fault> {
        let mut prefix = [0; HEADER_OCTETS];
        let mut prefix_octets = located.header(octets, &mut prefix[..Untagged::LEN]);
        // too short for its header is a local catastrophic error, and there is nothing to copy into a
        // Terminate.
        let (header, header_octets) =
            Header::parse(&prefix[..prefix_octets], located.ulpdu_len()).map_err(|_| Fault {
                error: StreamError::Ddp(DdpError::LocalCatastrophic),
                segment_octets: located.ulpdu_len() as u16,
                header: [0; Untagged::LEN],
                header_octets: 0,
                read_request: None,
            })?;
        // RDMAP has a header on all queues except that of Sends.
        if matches!(header, Header::Untagged(header) if header.queue != 0) {
            prefix_octets = located.header(octets, &mut prefix);
        }
        Ok(Self { octets, located, prefix, prefix_octets, header, header_octets })
    }

    pub(super) fn payload_octets(&self) -> usize {
        self.located.ulpdu_len() - self.header_octets
    }

    /// The octets after the DDP header, as many as a header of RDMAP has.
    pub(super) fn after_header(&self) -> &[u8] {
        &self.prefix[self.header_octets..self.prefix_octets]
    }

    /// The eight octets of Immediate Data.
    pub(super) fn immediate(&self) -> u64 {
        let mut octets = [0; 8];
        self.located.payload(self.octets, self.header_octets, |at, slice| {
            if let Some(place) = octets.get_mut(at..at + slice.len()) {
                place.copy_from_slice(slice);
            }
        });
        u64::from_be_bytes(octets)
    }

    pub(super) fn fault(&self, error: StreamError) -> Fault {
        let mut header = [0; Untagged::LEN];
        header[..self.header_octets].copy_from_slice(&self.prefix[..self.header_octets]);
        let segment_octets = self.located.ulpdu_len() as u16;
        let header_octets = self.header_octets as u8;
        Fault { error, segment_octets, header, header_octets, read_request: None }
    }

    /// Places the payload in `memory`: the only copy of received data.
    pub(super) fn place(&self, memory: &Memory<'_>) {
        self.located.payload(self.octets, self.header_octets, |at, slice| {
            let fits = memory.write(at, slice);
            debug_assert!(fits, "the whole segment was checked before");
        });
    }
}

/// Checked ranges that the payload of one segment is placed in, in order, each with the offset in the payload
/// at which it begins.
pub(super) struct Memory<'t>(pub ArrayVec<(usize, Target<'t>), { limits::SCATTER_GATHER_ELEMENTS }>);

impl<'t> Memory<'t> {
    /// The memory of an empty segment.
    pub(super) const fn none() -> Self {
        Self(ArrayVec::new_const())
    }

    /// One range for the whole payload.
    pub(super) fn one(target: Target<'t>) -> Self {
        let mut ranges = ArrayVec::new();
        ranges.push((0, target));
        Self(ranges)
    }

    fn write(&self, at: usize, octets: &[u8]) -> bool {
        let mut written = 0;
        for (begin, target) in &self.0 {
            // The offset in this range of the next octet; none if the range begins later.
            let Some(place) = (at + written).checked_sub(*begin) else { break };
            let Some(room) = target.octets().checked_sub(place) else { continue };
            let part = &octets[written..(written + room).min(octets.len())];
            if !target.write(place, part) {
                return false;
            }
            written += part.len();
        }
        written == octets.len()
    }
}
