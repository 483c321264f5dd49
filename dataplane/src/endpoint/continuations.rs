//! The continuations of a long message, each in a segment of its own, one after the other: most of what a
//! busy connection sends.
//!
//! [`Continuations::of`] finds out once what holds for all the segments that are left of a group: the memory
//! that they are from, the framing, and that nothing but an offset differs. Then each is written in one pass
//! over its frame: headers, FPDU, payload and CRC, and TCP and the statistics learn afterwards how many there
//! were. Every other segment is left to [`write_payload`](super::Endpoint::write_payload), which would write
//! the same.

use crate::device::Frame;
use crate::memory::RetainedMemory;
use crate::mpa::encode::{self, Head};
use crate::mpa::fpdu::Passes;
use crate::net::template::HeaderTemplate;
use crate::qp::run::{FpduDescriptor, FpduRun, Source};
use crate::statistics::Statistics;
use crate::tcp::{self, Burst};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::chunk::Chunk;
use super::rdmap_stream::RdmapStream;

/// The segments of a burst that are left of a group, each one FPDU whose payload is copied.
pub(crate) struct Continuations<'e> {
    now: Instant,
    tcp: &'e mut tcp::Connection,
    burst: &'e mut Burst<Chunk>,
    statistics: &'e mut Statistics,
    /// The segment after the one that was sent last.
    next: Next<'e>,
}

/// The next of the continuations of a message. It is computed from the one before, and a loop over them keeps
/// it in registers.
#[derive(Clone, Copy)]
pub(crate) struct Next<'e> {
    /// The payload of all is from here.
    memory: RetainedMemory<'e>,
    passes: Passes,
    /// The head of the segment before, where its payload begins in the memory, and its octets.
    head: Head,
    to: u64,
    octets: u32,
    /// The FPDU of the segment before, and its sequence number.
    run: FpduRun,
    seq: SeqNumber,
    /// Octets of each segment.
    segment_octets: u32,
    /// The sequence number after all that is queued.
    queued_until: SeqNumber,
    /// Segments that could not be written, and octets of their payload.
    missing: u64,
    missing_octets: u64,
}

/// Whether the segments that are left of the group of the one that `burst` sent last may be continuations:
/// there are some, and they are FPDUs.
#[inline]
pub(crate) const fn may_be_continued(burst: &Burst<Chunk>) -> bool {
    burst.left_in_group() > 0 && matches!(burst.segment().payload, Chunk::Fpdus(_))
}

impl<'e> Continuations<'e> {
    /// Returns the segments that are left of the group of the one that `burst` sent last, which
    /// [may be continued](may_be_continued); `None` if they do not continue a message whose payload is copied
    /// from registered memory: constant memory goes by reference if that is allowed, in a stream without
    /// Markers.
    #[inline]
    pub(super) fn of<F>(
        stream: RdmapStream<'e, F>,
        burst: &'e mut Burst<Chunk>,
        by_reference: bool,
    ) -> Option<Self> {
        let RdmapStream { now, tcp, operating, qp, context, .. } = stream;
        let segment = burst.segment();
        let Chunk::Fpdus(run) = &segment.payload else { return None };
        let usual = run.fpdus() == 1
            && run.octets == segment.octets
            && run.octets as usize == run.markers.wire_len(run.first_ulpdu_octets())
            && run.first_octets as usize >= encode::LONG_MIN_LEN;
        if !usual {
            return None;
        }
        let FpduDescriptor { header, source: Source::Memory(slice), .. } =
            qp.sender.first_of(run, &qp.reads)?
        else {
            return None;
        };
        let memory = context.stags.retained_memory(slice.stag)?;
        // A message is from one region, which is constant as a whole or not at all.
        if by_reference
            && !operating.markers_sent
            && memory.target(slice.to, slice.len as usize)?.constant().is_some()
        {
            return None;
        }
        let next = Next {
            memory,
            passes: Passes::summed(operating.crc, slice.len as usize),
            head: Head::new(header, slice.len as usize),
            to: slice.to,
            octets: slice.len,
            run: *run,
            seq: segment.seq,
            segment_octets: segment.octets,
            queued_until: tcp.queued_end(),
            missing: 0,
            missing_octets: 0,
        };
        Some(Self { now, tcp, burst, statistics: &mut context.statistics, next })
    }

    /// Returns the octets of each segment.
    pub(crate) const fn segment_octets(&self) -> usize {
        self.next.segment_octets as usize
    }

    /// Returns how many of the segments that are left may be sent together, at most `most`.
    #[inline]
    pub(crate) fn fit(&self, most: usize) -> usize {
        self.burst.fit_of_group(self.tcp, self.now, most.min(u32::MAX as usize) as u32) as usize
    }

    /// Returns the next segment.
    #[inline]
    pub(crate) const fn next(&self) -> Next<'e> {
        self.next
    }

    /// Records that `count` segments, which [fit](Self::fit), were sent: `next` is the one after them.
    #[inline]
    pub(crate) fn end(&mut self, next: &Next<'e>, count: usize) {
        let payload_octets = next.until().wrapping_sub(self.next.until());
        self.burst.advance_in_group(self.tcp, self.now, count as u32);
        self.statistics.fpdus_sent += count as u64 - next.missing;
        self.statistics.bytes_copied_tx += u64::from(payload_octets) - next.missing_octets;
        self.next = Next { missing: 0, missing_octets: 0, ..*next };
    }
}

impl Next<'_> {
    /// Returns where the payload of the segment before ends in its message.
    #[inline]
    const fn until(&self) -> u32 {
        self.run.offset().wrapping_add(self.octets)
    }

    /// Writes the segment to `frame`, which is empty, with `headers`, which fit its length, and goes on to
    /// the one after it. Returns false if the payload or room for it cannot be had.
    #[inline]
    pub(crate) fn write<F: Frame>(&mut self, headers: &HeaderTemplate, frame: &mut F) -> bool {
        self.move_on();
        let room = frame.append(headers.octets() + self.segment_octets as usize);
        let fpdu = room.and_then(|room| {
            headers.begin(room, self.seq, self.seq + self.segment_octets == self.queued_until);
            room.get_mut(headers.octets()..)
        });
        let written = self.write_fpdu(fpdu);
        if written {
            headers.finish(frame);
        }
        written
    }

    /// Appends the segment to `frame`, which has others, without headers, and goes on to the one after it.
    /// Returns false if the payload or room for it cannot be had.
    #[inline]
    pub(crate) fn append<F: Frame>(&mut self, frame: &mut F) -> bool {
        self.move_on();
        self.write_fpdu(frame.append(self.segment_octets as usize))
    }

    /// Goes on to the segment after the one before.
    #[inline]
    fn move_on(&mut self) {
        self.run.move_on(1);
        self.seq += self.segment_octets;
        self.head.move_on(self.octets);
        self.to = self.to.wrapping_add(u64::from(self.octets));
        self.octets = self.run.first_octets;
    }

    /// Writes the FPDU to `room`, if there is some. Returns false, counted, if that or the payload cannot be
    /// had.
    #[inline]
    fn write_fpdu(&mut self, room: Option<&mut [u8]>) -> bool {
        let payload = self.memory.target(self.to, self.octets as usize);
        let written = payload
            .zip(room)
            .is_some_and(|(payload, room)| self.head.write(room, &payload, self.run.markers, self.passes));
        if !written {
            self.missing += 1;
            self.missing_octets += u64::from(self.octets);
        }
        written
    }
}
