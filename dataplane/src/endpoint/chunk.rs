//! What TCP keeps of the octets of a segment: where they come from.

use crate::byte_stream::ByteRun;
use crate::qp::run::FpduRun;
use crate::tcp::send_queue::SendPayload;
use crate::wire::tcp_rdma::RdmaOption;

/// The source of the octets of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chunk {
    /// Streaming octets: those that [`SendStream`](super::send_stream::SendStream) keeps for the segment's
    /// place.
    Stream,
    /// Complete FPDUs.
    Fpdus(FpduRun),
    /// Octets of a byte stream, which it finds by the segment's place.
    Bytes(ByteRun),
}

impl SendPayload for Chunk {
    /// Streaming octets are found by their sequence number.
    #[inline]
    fn move_on(&mut self, count: u32) {
        match self {
            Self::Stream => {}
            Self::Fpdus(run) => run.move_on(count),
            Self::Bytes(run) => run.move_on(count),
        }
    }

    #[inline]
    fn rdma_option(&self, skip: u32, octets: u32) -> Option<RdmaOption> {
        match self {
            Self::Bytes(run) => run.rdma_option(skip, octets),
            Self::Stream | Self::Fpdus(_) => None,
        }
    }

    #[inline]
    fn option_octets(&self) -> u32 {
        match self {
            Self::Bytes(run) => run.option_octets(),
            Self::Stream | Self::Fpdus(_) => 0,
        }
    }
}
