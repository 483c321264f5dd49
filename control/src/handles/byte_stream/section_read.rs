//! A section of a stream that is read into its buffer.

use std::ops::Range;

use warpline_dataplane::byte_stream::Buffer;
use warpline_dataplane::memory::Region;
use warpline_dataplane::wire::tcp_rdma::Rid;

use crate::vocabulary::byte_stream::ByteStreamError;

/// A section that is being read.
pub(super) struct SectionRead<'m> {
    pub(super) rid: Rid,
    memory: &'m Region,
    range: Range<usize>,
    /// Bytes read.
    at: usize,
    /// Nothing is placed for this transfer, or nothing more, so its bytes go to their place at once.
    direct: bool,
    /// Bytes that were in their place already.
    pub(super) in_place: usize,
    /// The unsolicited buffer of the transfer of this name, if bytes came from one.
    pub(super) unsolicited: Option<u16>,
    /// Bytes for a place that others may still be read from, by the place.
    aside: Vec<(usize, Vec<u8>)>,
    /// How many those are.
    aside_bytes: usize,
}

impl<'m> SectionRead<'m> {
    pub(super) const fn new(rid: Rid, memory: &'m Region, range: Range<usize>, direct: bool) -> Self {
        Self {
            rid,
            memory,
            range,
            at: 0,
            direct,
            in_place: 0,
            unsolicited: None,
            aside: Vec::new(),
            aside_bytes: 0,
        }
    }

    /// Bytes that are still to be read.
    pub(super) fn left(&self) -> usize {
        self.range.len() - self.at
    }

    /// Bytes that were put aside, and take memory of their own.
    pub(super) const fn aside_bytes(&self) -> usize {
        self.aside_bytes
    }

    /// Takes the next bytes, which were not placed.
    pub(super) fn accept(&mut self, bytes: &[u8]) -> Result<(), ByteStreamError> {
        let place = self.range.start + self.at;
        if self.direct {
            self.write(place, bytes)?;
        } else {
            self.put_aside(place, bytes);
        }
        self.at += bytes.len();
        Ok(())
    }

    fn write(&self, place: usize, bytes: &[u8]) -> Result<(), ByteStreamError> {
        self.memory.write(place, bytes).then_some(()).ok_or(ByteStreamError::OutsideMemory)
    }

    /// Takes the next bytes, which were placed: `found` is the buffer.
    pub(super) fn accept_placed(
        &mut self,
        rid: Rid,
        buffer: Buffer,
        offset: u32,
        octets: u32,
        found: Option<(&Region, usize)>,
    ) -> Result<(), ByteStreamError> {
        let octets = octets as usize;
        let expected = rid == self.rid && buffer == Buffer::Expected && offset as usize == self.at;
        if expected {
            self.in_place += octets;
            self.at += octets;
        } else {
            if let (true, Buffer::Unsolicited(buffer)) = (rid == self.rid, buffer) {
                self.unsolicited = Some(buffer);
            }
            let (memory, start) = found.ok_or(ByteStreamError::OutsideMemory)?;
            let mut bytes = vec![0; octets];
            if !memory.read(start + offset as usize, &mut bytes) {
                return Err(ByteStreamError::OutsideMemory);
            }
            self.accept(&bytes)?;
        }
        Ok(())
    }

    fn put_aside(&mut self, place: usize, bytes: &[u8]) {
        self.aside_bytes += bytes.len();
        match self.aside.last_mut() {
            Some((start, before)) if *start + before.len() == place => before.extend_from_slice(bytes),
            _ => self.aside.push((place, bytes.to_vec())),
        }
    }

    /// Writes what was put aside to its place, and all that follows at once: nothing more is placed for the
    /// transfer, and what was, for other places of the stream, is kept elsewhere.
    pub(super) fn write_aside(&mut self) -> Result<(), ByteStreamError> {
        self.direct = true;
        self.aside_bytes = 0;
        for (place, bytes) in std::mem::take(&mut self.aside) {
            self.write(place, &bytes)?;
        }
        Ok(())
    }
}
