//! The parts of a long message, in segments of their own one after the other: most of what a busy connection
//! sends.
//!
//! [`Endpoint::parts`] looks once at what holds for all that are left of a group: the memory that they are
//! from, the framing, and that nothing but an offset differs. Then each is written in one pass over its
//! frame: headers, FPDU, payload and CRC. Every other segment is left to
//! [`write_payload`](Endpoint::write_payload), which would write the same.

use crate::device::Frame;
use crate::memory::RetainedMemory;
use crate::mpa::encode::{self, write_long};
use crate::mpa::fpdu::Passes;
use crate::net::template::HeaderTemplate;
use crate::qp::run::{FpduDescriptor, FpduRun, Source};
use crate::statistics::Statistics;
use crate::tcp::{self, Burst};
use crate::time::Instant;
use crate::wire::ddp;

use super::Endpoint;
use super::connection::{Chunk, Mode};

/// The segments of a burst that are left of a group, each one FPDU whose payload is copied.
pub(crate) struct Continuations<'e> {
    now: Instant,
    tcp: &'e mut tcp::Connection,
    burst: &'e mut Burst<Chunk>,
    /// Their payload is from here.
    memory: RetainedMemory<'e>,
    /// The header of the part that was sent last, where its payload begins in the memory, and its octets.
    header: ddp::Header,
    to: u64,
    octets: u32,
    passes: Passes,
    statistics: &'e mut Statistics,
}

impl<F: Frame> Endpoint<'_, F> {
    /// Returns the segments that are left of the group of the one that `burst` sent last; `None` if there
    /// are none, or they are not parts of a message whose payload is copied from registered memory: constant
    /// memory goes by reference if that is allowed, in a stream without Markers.
    #[inline]
    pub(crate) fn parts<'s>(
        &'s mut self,
        burst: &'s mut Burst<Chunk>,
        by_reference: bool,
    ) -> Option<Continuations<'s>> {
        if burst.left_in_group() == 0 {
            return None;
        }
        let segment = burst.segment();
        let Chunk::Fpdus(run) = &segment.payload else { return None };
        let Mode::FullOperation(operating) = &self.connection.mode else { return None };
        let usual = run.fpdus() == 1
            && run.octets == segment.octets
            && run.octets as usize == run.markers.wire_len(run.first_ulpdu_octets())
            && run.first_octets as usize >= encode::LONG_MIN_LEN;
        if !usual {
            return None;
        }
        let qp = self.queue_pair.as_deref()?;
        let FpduDescriptor { header, source: Source::Memory(slice), .. } =
            qp.sender.first_of(run, &qp.reads)?
        else {
            return None;
        };
        let context = &mut *self.context;
        let memory = context.stags.retained_memory(slice.stag)?;
        // The parts of a message are from one region, which is constant as a whole or not at all.
        if by_reference
            && !operating.markers_sent
            && memory.target(slice.to, slice.len as usize)?.constant().is_some()
        {
            return None;
        }
        let passes = Passes::summed(operating.crc, slice.len as usize);
        Some(Continuations {
            now: self.now,
            passes,
            tcp: &mut self.connection.tcp,
            memory,
            header,
            to: slice.to,
            octets: slice.len,
            statistics: &mut context.statistics,
            burst,
        })
    }
}

impl Continuations<'_> {
    /// Returns the time of the turn.
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Returns how many segments are left.
    pub(crate) const fn left(&self) -> u32 {
        self.burst.left_in_group()
    }

    /// Returns the octets of each segment.
    pub(crate) const fn segment_octets(&self) -> usize {
        self.burst.segment().octets as usize
    }

    /// Writes the next segment to `frame`, which is empty, with `headers`, which fit its length, if any are
    /// [`left`](Self::left).
    /// Returns false if the payload or room for it cannot be had, and `None` if there is no segment for now.
    #[inline]
    pub(crate) fn write_next<F: Frame>(&mut self, headers: &HeaderTemplate, frame: &mut F) -> Option<bool> {
        if !self.tcp.next_in_group(self.now, self.burst) {
            return None;
        }
        let (segment, push) = (self.burst.segment(), self.burst.push());
        let Chunk::Fpdus(FpduRun { first_octets: len, markers, .. }) = segment.payload else {
            return Some(false);
        };
        self.header.move_on(self.octets);
        self.to = self.to.wrapping_add(u64::from(self.octets));
        self.octets = len;
        let payload = self.memory.target(self.to, len as usize);
        let octets = headers.octets() + segment.octets as usize;
        let Some((payload, room)) = payload.zip(frame.append(octets)) else { return Some(false) };
        headers.begin(room, segment.seq, push);
        if !write_long(&mut room[headers.octets()..], &self.header, &payload, markers, self.passes) {
            return Some(false);
        }
        self.statistics.fpdus_sent += 1;
        self.statistics.bytes_copied_tx += u64::from(len);
        headers.finish(frame);
        Some(true)
    }
}
