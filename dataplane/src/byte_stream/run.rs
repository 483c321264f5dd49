//! The octets of one segment of a byte stream, and the TCP RDMA option that goes with each part of them.

use crate::wire::tcp_rdma::{RdmaOption, Rid, Transfer};

/// What all octets of a transfer have in common (draft-csapuntz-tcprdma-00 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The name of the transfer.
    // Requirements: TRO-3.1.1-01
    pub rid: Rid,
    /// The receiver does not expect it.
    // Requirements: TRO-3.1.7-01
    pub unsolicited: bool,
    /// Octets of the transfer, if they are known. All sections of a transfer say the same.
    // Requirements: TRO-3.1.4-01, TRO-3.1.4-02
    pub total_octets: Option<u32>,
}

impl Section {
    /// Returns a section of a transfer that the receiver has asked for: the data of an NFS READ reply, of a
    /// response to an HTTP GET, and all that a CIFS server sends (draft-csapuntz-tcprdma-00 §5).
    // Requirements: TRO-5.1.2-01, TRO-5.2.2-01, TRO-5.3.2-01
    pub const fn solicited(rid: Rid, total_octets: Option<u32>) -> Self {
        Self { rid, unsolicited: false, total_octets }
    }

    /// Returns a section of a transfer that the receiver does not expect: the data of an NFS WRITE call, of
    /// an HTTP POST or PUT, and all that a CIFS client sends.
    // Requirements: TRO-5.1.3-01, TRO-5.2.3-01, TRO-5.3.2-02
    pub const fn unsolicited(rid: Rid, total_octets: Option<u32>) -> Self {
        Self { rid, unsolicited: true, total_octets }
    }

    /// The octets of its option in a TCP header.
    pub(super) const fn option_octets(&self) -> u32 {
        if self.total_octets.is_some() { 20 } else { 16 }
    }
}

/// Octets of a section that lie in one run, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionPart {
    /// The section.
    pub section: Section,
    /// Octets of the run before it.
    pub at: u32,
    /// How many there are; 0 for a transfer of nothing.
    pub octets: u32,
    /// The place of the first in the receiver's buffer. Octets between the sections of a transfer, as the
    /// lines around the chunks of HTTP, do not count.
    // Requirements: TRO-5.2.2-03
    pub buffer_offset: u32,
}

/// Octets that go in one segment unless it has to be cut, at most one part of a section among them
/// (TRO-4-03). The octets themselves are found by their place in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRun {
    /// Octets of the run.
    pub octets: u32,
    /// The first begins a message.
    pub starts_message: bool,
    /// The part of a section.
    pub part: Option<SectionPart>,
}

impl ByteRun {
    /// Turns the run into the one `count` runs after it, where all of them are
    /// [alike](super::Outbound::runs_alike).
    #[inline]
    pub const fn move_on(&mut self, count: u32) {
        if let Some(part) = &mut self.part {
            part.buffer_offset += count * self.octets;
        }
    }

    /// The octets of a TCP header that any part of the run needs for the option.
    #[inline]
    pub const fn option_octets(&self) -> u32 {
        match &self.part {
            Some(part) => part.section.option_octets(),
            None if self.starts_message => 4,
            None => 0,
        }
    }

    /// The option of a segment with the `octets` octets from `skip` octets into the run on. It depends on
    /// nothing else, so a segment that is sent again has it again, and one that is cut has the right one in
    /// each part.
    // Requirements: TRO-3.1.5-01, TRO-3.1.6-01, TRO-3.1.6-02, TRO-3.1.8-01, TRO-3.3-02
    #[inline]
    pub fn rdma_option(&self, skip: u32, octets: u32) -> Option<RdmaOption> {
        let message_aligned = self.starts_message && skip == 0;
        if let Some(part) = &self.part
            && let Some((at, data_octets)) = part.within(skip, octets, self.octets)
        {
            let before = (skip + at).saturating_sub(part.at);
            return Some(RdmaOption::Transfer(Transfer {
                rid: part.section.rid,
                message_aligned,
                unsolicited: part.section.unsolicited,
                buffer_offset: part.buffer_offset.wrapping_add(before),
                data_offset: at as u16,
                data_octets: data_octets as u16,
                total_octets: part.section.total_octets,
            }));
        }
        message_aligned.then_some(RdmaOption::Aligned { message_aligned, unsolicited: false })
    }
}

impl SectionPart {
    /// Where in the `octets` octets from `skip` on it begins, and how many octets of it are there; `None` if
    /// there are none. One without octets is where its first would be, at the end of the run of `of` octets
    /// if there is no other place.
    #[inline]
    const fn within(&self, skip: u32, octets: u32, of: u32) -> Option<(u32, u32)> {
        let end = skip + octets;
        if self.octets == 0 {
            let here = self.at >= skip && (self.at < end || (self.at == end && end == of));
            return if here { Some((self.at - skip, 0)) } else { None };
        }
        let from = if self.at > skip { self.at } else { skip };
        let to = if self.at + self.octets < end { self.at + self.octets } else { end };
        if from < to { Some((from - skip, to - from)) } else { None }
    }
}

#[cfg(test)]
mod tests;
