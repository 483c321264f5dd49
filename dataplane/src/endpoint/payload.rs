//! The payload of segments out: FPDUs are built from the buffers of work requests, or were when their first
//! part went out; streaming octets and those of byte streams are copied.

use crate::conn::ConnectionId;
use crate::device::Frame;
use crate::memory::StagTable;
use crate::qp::run::FpduRun;
use crate::statistics::Statistics;
use crate::tcp::Pools;
use crate::tcp::send_queue::Segment;
use crate::wire::tcp::SeqNumber;

use super::build::FpduSources;
use super::chunk::Chunk;
use super::connection::Connection;
use super::cut_runs::CutRunStore;
use super::queue_pair::QueuePair;
use super::single_fpdu::Reference;

/// What the payload of a connection's segments is built with.
pub(super) struct PayloadBuilding<'e, F> {
    /// The name of the connection.
    pub(super) id: ConnectionId,
    pub(super) connection: &'e Connection,
    pub(super) queue_pair: Option<&'e QueuePair>,
    pub(super) stags: &'e StagTable,
    /// FPDUs that were sent in part.
    pub(super) cut_runs: &'e mut CutRunStore,
    /// The counters of what is built.
    pub(super) statistics: &'e mut Statistics,
    /// The pools of its segments.
    pub(super) pools: &'e Pools<Chunk, F>,
}

impl<'e, F: Frame> PayloadBuilding<'e, F> {
    /// Appends the payload of any `segment` to `frame`, after room for `headers` octets; by reference if that
    /// is allowed and worth it. Returns false if the payload or room for it cannot be had.
    pub(super) fn write(
        &mut self,
        segment: &Segment<Chunk>,
        by_reference: bool,
        headers: usize,
        frame: &mut F,
    ) -> bool {
        if !self.keep_if_cut(segment) {
            return false;
        }
        if by_reference && let Some(reference) = self.fpdus().and_then(|fpdus| Reference::of(fpdus, segment))
        {
            return reference.write(headers, frame, self.statistics);
        }
        match frame.append(headers + segment.octets as usize) {
            Some(room) => self.build_segment(segment, &mut room[headers..]),
            None => false,
        }
    }

    /// Returns what the FPDUs of the connection are built from; `None` if it sends none.
    fn fpdus(&self) -> Option<FpduSources<'e>> {
        FpduSources::of(&self.connection.mode, self.queue_pair, self.stags)
    }

    /// Builds the FPDUs of a run, which begins at `begin`, one after the other. Returns false if they cannot
    /// be had.
    pub(super) fn build_run(&mut self, run: &FpduRun, begin: SeqNumber, out: &mut [u8]) -> bool {
        self.fpdus().is_some_and(|fpdus| fpdus.build_run(run, begin, out, self.statistics))
    }

    /// Builds the octets of `segment`. Returns false if they cannot be had.
    pub(super) fn build_segment(&mut self, segment: &Segment<Chunk>, out: &mut [u8]) -> bool {
        let begin = segment.seq - segment.skip;
        match &segment.payload {
            Chunk::Stream | Chunk::Bytes(_) => self.connection.copy_octets(segment, out, self.statistics),
            Chunk::Fpdus(run) if run.octets as usize == out.len() => self.build_run(run, begin, out),
            Chunk::Fpdus(_) => {
                let run = self.cut_runs.of(self.id).and_then(|runs| runs.get(begin));
                let skip = segment.skip as usize;
                let part = run.and_then(|run| run.get(skip..skip + out.len()));
                part.is_some_and(|part| {
                    out.copy_from_slice(part);
                    true
                })
            }
        }
    }

    /// Builds and keeps all of the FPDUs that `segment` has a part of, unless they are kept already: its
    /// segments fit together then, whatever happens to the source. Returns false if there is no room.
    fn keep_if_cut(&mut self, segment: &Segment<Chunk>) -> bool {
        let Chunk::Fpdus(run) = &segment.payload else { return true };
        if segment.octets == run.octets {
            return true;
        }
        let begin = segment.seq - segment.skip;
        let octets = run.octets as usize;
        if self.cut_runs.of(self.id).is_some_and(|runs| runs.get(begin).is_some()) {
            return true;
        }
        if !self.cut_runs.make_room(self.id, begin, octets, self.connection.tcp.acknowledged()) {
            return false;
        }
        let mut copy = vec![0; octets].into_boxed_slice();
        if !self.build_run(run, begin, &mut copy) {
            return false;
        }
        self.cut_runs.keep(self.id, begin, copy);
        true
    }
}
