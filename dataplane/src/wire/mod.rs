//! Views over the octets of each header, checked when they are made, and their emission.
//!
//! Parsing accepts any octets and never panics. Emission writes exactly the octets of the header; output that
//! is too short for them is a mistake of the caller, is left unchanged and trips an assertion in builds that
//! have them.

pub mod arp;
pub mod atomic;
pub mod checksum;
pub mod ddp;
pub mod ethernet;
pub mod flow;
pub mod following;
pub mod icmp;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mpa;
pub mod quoted;
pub mod rdmap;
pub mod segment;
pub mod stag;
pub mod tcp;
pub mod tcp_rdma;

use thiserror::Error;

/// Why octets are not the header they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Malformed {
    /// Fewer octets than the header has, or than its length field requires.
    #[error("truncated")]
    Truncated,
    /// Another version of the protocol.
    #[error("unexpected version")]
    Version,
    /// A length field contradicts the format or another one.
    #[error("impossible length")]
    Length,
    /// The checksum does not hold.
    #[error("wrong checksum")]
    Checksum,
    /// A field has a value that the format does not define.
    #[error("impossible field")]
    Field,
}

/// The first `N` octets of `out`, to emit a header of that length into.
#[inline]
fn room<const N: usize>(out: &mut [u8]) -> Option<&mut [u8; N]> {
    debug_assert!(out.len() >= N, "{} octets are no room for {N}", out.len());
    out.first_chunk_mut()
}

/// Fills a header from its front.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    /// Writes `octets` and moves past them; does nothing when they do not fit.
    #[inline]
    fn put<const N: usize>(&mut self, octets: [u8; N]) {
        if self.0.len() >= N
            && let Some((front, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut()
        {
            *front = octets;
            self.0 = rest;
        }
    }
}

/// Reads a header from its front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Reads the next `N` octets; `None`, and nothing read, when there are fewer.
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }
}
