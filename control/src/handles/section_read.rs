//! A section of a stream that is read into its buffer.

use std::ops::Range;

use warpline_dataplane::byte_stream::Buffer;
use warpline_dataplane::memory::Region;
use warpline_dataplane::wire::tcp_rdma::Rid;

use crate::vocabulary::byte_stream::ByteStreamError;

/// A section that is being read.
pub(super) struct SectionRead<'m> {
    rid: Rid,
    memory: &'m Region,
    range: Range<usize>,
    /// Bytes read.
    at: usize,
    /// Nothing is placed on this connection, so its bytes go to their place at once.
    direct: bool,
    /// Bytes that were in their place already.
    pub(super) in_place: usize,
    /// Bytes for a place that others may still be read from, by the place.
    pub(super) aside: Vec<(usize, Vec<u8>)>,
}

impl<'m> SectionRead<'m> {
    pub(super) const fn new(rid: Rid, memory: &'m Region, range: Range<usize>, direct: bool) -> Self {
        Self { rid, memory, range, at: 0, direct, in_place: 0, aside: Vec::new() }
    }

    /// Bytes that are still to be read.
    pub(super) fn left(&self) -> usize {
        self.range.len() - self.at
    }

    /// Takes the next bytes, which were not placed.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), ByteStreamError> {
        let place = self.range.start + self.at;
        if self.direct {
            if !self.memory.write(place, bytes) {
                return Err(ByteStreamError::OutsideMemory);
            }
        } else {
            self.put_aside(place, bytes);
        }
        self.at += bytes.len();
        Ok(())
    }

    /// Takes the next bytes, which were placed: `found` is the buffer.
    pub(super) fn take_placed(
        &mut self,
        (rid, buffer, offset, octets): (Rid, Buffer, u32, u32),
        found: Option<(&Region, usize)>,
    ) -> Result<(), ByteStreamError> {
        let octets = octets as usize;
        let expected = rid == self.rid && buffer == Buffer::Expected && offset as usize == self.at;
        if expected {
            self.in_place += octets;
        } else {
            let (memory, start) = found.ok_or(ByteStreamError::OutsideMemory)?;
            let mut bytes = vec![0; octets];
            if !memory.read(start + offset as usize, &mut bytes) {
                return Err(ByteStreamError::OutsideMemory);
            }
            self.put_aside(self.range.start + self.at, &bytes);
        }
        self.at += octets;
        Ok(())
    }

    fn put_aside(&mut self, place: usize, bytes: &[u8]) {
        match self.aside.last_mut() {
            Some((start, before)) if *start + before.len() == place => before.extend_from_slice(bytes),
            _ => self.aside.push((place, bytes.to_vec())),
        }
    }

    /// Writes what was put aside to its place.
    pub(super) fn write_aside(&mut self) -> Result<(), ByteStreamError> {
        for (place, bytes) in self.aside.drain(..) {
            if !self.memory.write(place, &bytes) {
                return Err(ByteStreamError::OutsideMemory);
            }
        }
        Ok(())
    }
}
