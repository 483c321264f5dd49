//! The payload of segments out: FPDUs are built from the buffers of work requests, streaming octets are
//! copied.

use crate::conn::ConnectionId;
use crate::crc32c::Engine;
use crate::device::Frame;
use crate::limits;
use crate::memory::{RetainedMemory, STag, StagTable, Target};
use crate::mpa::Framing;
use crate::mpa::encode::{ConstantPayload, FpduWriter, PayloadIn, fill_in_crcs, write_small};
use crate::mpa::fpdu::{self, Filled};
use crate::qp::run::{FpduDescriptor, FpduRun, Source};
use crate::qp::sender::SmallMessage;
use crate::statistics::Statistics;
use crate::tcp::Pools;
use crate::tcp::send_queue::Segment;
use crate::wire::ddp;
use crate::wire::tcp::SeqNumber;

use super::Endpoint;
use super::chunk::Chunk;
use super::connection::{Connection, Mode};
use super::cut_runs::CutRunStore;
use super::operating::Operating;
use super::queue_pair::QueuePair;

/// The sources of a connection's payload.
pub(super) struct PayloadSources<'e> {
    pub(super) connection: &'e Connection,
    pub(super) queue_pair: Option<&'e QueuePair>,
    cut_runs: &'e CutRunStore,
    stags: &'e StagTable,
}

/// An FPDU that has a segment of its own, and whose payload is copied from registered memory.
struct SingleFpdu<'e> {
    header: ddp::Header,
    payload: Target<'e>,
    /// Where it begins in the stream of Full Operation.
    position: u64,
    framing: Framing,
}

/// FPDUs of small messages at the front of a segment.
#[derive(Default)]
struct SmallFpdus {
    /// How many were built.
    built: usize,
    /// Their octets.
    octets: usize,
    /// Octets of payload in them.
    payload_octets: u64,
}

/// An FPDU whose payload a frame may refer to.
struct Reference<'e> {
    header: ddp::Header,
    payload: ConstantPayload<'e>,
    crc: bool,
}

/// What the payload of a connection's segments is built with.
pub(super) struct PayloadBuilding<'e, F> {
    pub(super) sources: PayloadSources<'e>,
    /// The counters of what is built.
    pub(super) statistics: &'e mut Statistics,
    /// The pools of its segments.
    pub(super) pools: &'e Pools<Chunk, F>,
}

impl<F: Frame> Endpoint<'_, F> {
    /// Returns what the payload of the connection's segments is built with.
    pub(super) fn payload(&mut self) -> PayloadBuilding<'_, F> {
        let context = &mut *self.context;
        let sources = PayloadSources {
            connection: self.connection,
            queue_pair: self.queue_pair.as_deref(),
            cut_runs: &context.cut_runs,
            stags: &context.stags,
        };
        PayloadBuilding { sources, statistics: &mut context.statistics, pools: &context.pools }
    }

    /// Appends the payload of `segment` to `frame`, after room for `headers` octets; by reference if that is
    /// allowed and worth it. Returns false if the payload or room for it cannot be had.
    pub(crate) fn write_payload(
        &mut self,
        segment: &Segment<Chunk>,
        by_reference: bool,
        headers: usize,
        frame: &mut F,
    ) -> bool {
        if let Chunk::Fpdus(run) = &segment.payload
            && run.first_octets < limits::SMALL_MESSAGE_BYTES
            && run.octets == segment.octets
        {
            // Not cut, and copied on any device.
            let Some(room) = frame.append(headers + segment.octets as usize) else { return false };
            let PayloadBuilding { sources, statistics, .. } = self.payload();
            return sources.build_run(run, segment.seq, &mut room[headers..], statistics);
        }
        if let Some(single) = self.single_fpdu(segment, by_reference) {
            let Some(room) = frame.append(headers + segment.octets as usize) else { return false };
            let payload_octets = single.payload.octets();
            let mut writer = FpduWriter::new(&mut room[headers..], single.position, single.framing);
            let written = writer.push_segment(&single.header, single.payload) && writer.is_full();
            let statistics = &mut self.context.statistics;
            statistics.fpdus_sent += 1;
            statistics.bytes_copied_tx += payload_octets as u64;
            return written;
        }
        if !self.keep_if_cut(segment) {
            return false;
        }
        let id = self.id;
        let PayloadBuilding { sources, statistics, .. } = self.payload();
        if by_reference && let Some(reference) = sources.reference(segment) {
            return reference.write(headers, frame, statistics);
        }
        match frame.append(headers + segment.octets as usize) {
            Some(room) => sources.build_segment(id, segment, &mut room[headers..], statistics),
            None => false,
        }
    }

    /// Returns the FPDU of `segment`, if it is the usual one: the only one of its segment, not cut, its
    /// payload copied from registered memory.
    #[inline]
    fn single_fpdu(&self, segment: &Segment<Chunk>, by_reference: bool) -> Option<SingleFpdu<'_>> {
        let Chunk::Fpdus(run) = &segment.payload else { return None };
        let Mode::FullOperation(operating) = &self.connection.mode else { return None };
        if run.fpdus() > 1 || run.octets != segment.octets || run.first_octets == 0 {
            return None;
        }
        let qp = self.queue_pair.as_deref()?;
        let FpduDescriptor { header, source: Source::Memory(slice), .. } =
            qp.sender.first_of(run, &qp.reads)?
        else {
            return None;
        };
        let payload = self.context.stags.retained(slice.stag, slice.to, slice.len as usize)?;
        if by_reference && !operating.markers_sent && payload.constant().is_some() {
            return None;
        }
        let position = operating.position_of(segment.seq);
        Some(SingleFpdu { header, payload, position, framing: operating.send_framing() })
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
        if self.context.cut_runs.of(self.id).is_some_and(|runs| runs.get(begin).is_some()) {
            return true;
        }
        if !self.context.cut_runs.has_room(self.id, octets) {
            return false;
        }
        let mut copy = vec![0; octets].into_boxed_slice();
        let PayloadBuilding { sources, statistics, .. } = self.payload();
        if !sources.build_run(run, begin, &mut copy, statistics) {
            return false;
        }
        self.context.cut_runs.keep(self.id, begin, copy);
        true
    }
}

impl<'e> PayloadSources<'e> {
    /// Builds the octets of `segment`. Returns false if they cannot be had.
    pub(super) fn build_segment(
        &self,
        id: ConnectionId,
        segment: &Segment<Chunk>,
        out: &mut [u8],
        statistics: &mut Statistics,
    ) -> bool {
        let begin = segment.seq - segment.skip;
        match &segment.payload {
            Chunk::Stream => self.connection.stream.copy(segment.seq, out),
            Chunk::Bytes(_) => match &self.connection.mode {
                Mode::Bytes(stream) => {
                    statistics.bytes_copied_tx += out.len() as u64;
                    stream.outbound.copy(segment.seq, out)
                }
                _ => false,
            },
            Chunk::Fpdus(run) if run.octets as usize == out.len() => {
                self.build_run(run, begin, out, statistics)
            }
            Chunk::Fpdus(_) => {
                let run = self.cut_runs.of(id).and_then(|runs| runs.get(begin));
                let skip = segment.skip as usize;
                let part = run.and_then(|run| run.get(skip..skip + out.len()));
                part.is_some_and(|part| {
                    out.copy_from_slice(part);
                    true
                })
            }
        }
    }

    fn operating(&self) -> Option<(&'e Operating, &'e QueuePair)> {
        match (&self.connection.mode, self.queue_pair) {
            (Mode::FullOperation(operating), Some(qp)) => Some((operating, qp)),
            _ => None,
        }
    }

    /// Builds the FPDUs of a run, which begins at `begin`, one after the other.
    pub(super) fn build_run(
        &self,
        run: &FpduRun,
        begin: SeqNumber,
        out: &mut [u8],
        statistics: &mut Statistics,
    ) -> bool {
        let Some((operating, qp)) = self.operating() else { return false };
        let position = operating.position_of(begin);
        let crc = operating.crc.then(Engine::best);
        let mut small = SmallFpdus::default();
        if !operating.markers_sent {
            if let Some(message) = qp.sender.small_message(run) {
                statistics.fpdus_sent += 1;
                statistics.bytes_copied_tx += message.payload_octets() as u64;
                return self.build_small_message(&message, crc, out);
            }
            small = self.build_small_messages(run, qp, crc, out);
        }
        statistics.fpdus_sent += small.built as u64;
        statistics.bytes_copied_tx += small.payload_octets;
        if small.built == run.fpdus() {
            return small.octets == out.len();
        }
        let mut writer = FpduWriter::after(out, small.octets, position, operating.send_framing());
        let mut build = |fpdu: &FpduDescriptor| {
            statistics.fpdus_sent += 1;
            statistics.bytes_copied_tx += u64::from(fpdu.octets);
            self.build_fpdu(fpdu, qp, &mut writer)
        };
        let begun = small.built > 0 || qp.sender.first_of(run, &qp.reads).is_some_and(|first| build(&first));
        let built = begun && qp.sender.all_after_first(run, small.built.max(1), build);
        built && writer.is_full()
    }

    /// Builds the FPDU of a small message in a stream without Markers. Returns false, and `out` is
    /// unspecified, if that is not the room for it, or its memory cannot be had.
    #[inline]
    fn build_small_message(&self, message: &SmallMessage<'_>, crc: Option<Engine>, out: &mut [u8]) -> bool {
        if out.len() != message.fpdu_octets() {
            return false;
        }
        let written = match message.range() {
            None => self.write_without_range(message, out),
            Some(local) => {
                let payload = self.stags.retained(local.stag, local.to, local.len as usize);
                payload.is_some_and(|payload| write_range(message, &payload, out))
            }
        };
        if let Some(engine) = crc {
            fill_in_crcs(out, engine);
        }
        written
    }

    /// Builds the first FPDUs of a run in a stream without Markers, as long as they are small messages.
    // Not inlined: its loop needs the registers.
    #[inline(never)]
    fn build_small_messages(
        &self,
        run: &FpduRun,
        qp: &QueuePair,
        crc: Option<Engine>,
        out: &mut [u8],
    ) -> SmallFpdus {
        let (mut filled, mut payload_octets) = (0, 0);
        // Most messages of a segment are from the same memory.
        let mut last: Option<(STag, RetainedMemory<'_>)> = None;
        let built = qp.sender.each_small_message(run, |message| {
            let octets = message.fpdu_octets();
            let Some(room) = out.get_mut(filled..filled + octets) else { return false };
            let Some(local) = message.range() else {
                let written = self.write_without_range(&message, room);
                if written {
                    filled += octets;
                    payload_octets += message.payload_octets() as u64;
                }
                return written;
            };
            let memory = match last {
                Some((stag, memory)) if stag == local.stag => memory,
                _ => {
                    let Some(memory) = self.stags.retained_memory(local.stag) else { return false };
                    last = Some((local.stag, memory));
                    memory
                }
            };
            let Some(payload) = memory.target(local.to, local.len as usize) else { return false };
            let written = write_range(&message, &payload, room);
            if written {
                filled += octets;
                payload_octets += u64::from(local.len);
            }
            written
        });
        if let Some(engine) = crc {
            fill_in_crcs(&mut out[..filled], engine);
        }
        SmallFpdus { built, octets: filled, payload_octets }
    }

    /// Writes the FPDU of a small message whose payload is anything but one range of memory to `out`, of
    /// which it takes all, without its CRC. Returns false, and `out` is unspecified, if the payload cannot be
    /// had.
    // Not inlined: the loop over many messages needs the registers.
    #[inline(never)]
    fn write_without_range(&self, message: &SmallMessage<'_>, out: &mut [u8]) -> bool {
        let fill = |room: &mut [u8]| message.copy(self.stags, room);
        write_small(out, message.header_len(), message.payload_octets(), |out| message.emit_header(out), fill)
    }

    /// Builds one FPDU: its payload is copied once, from the user's buffer to its place in the frame.
    #[inline]
    fn build_fpdu(&self, descriptor: &FpduDescriptor, qp: &QueuePair, writer: &mut FpduWriter<'_>) -> bool {
        let FpduDescriptor { header, octets, source } = descriptor;
        match *source {
            Source::Memory(slice) if slice.len > 0 => {
                let target = self.stags.retained(slice.stag, slice.to, slice.len as usize);
                target.is_some_and(|target| writer.push_segment(header, target))
            }
            source => {
                let fill = |at, out: &mut [u8]| qp.sender.copy(source, self.stags, at, out);
                writer.push_segment(header, Filled { octets: *octets as usize, fill })
            }
        }
    }

    /// Returns the FPDU of `segment`, if its payload may go by reference: one complete FPDU, without Markers,
    /// long enough that a reference costs less than a copy, and from constant memory.
    ///
    /// A device reads what a frame refers to when it sends the frame: after the CRC was computed, and perhaps
    /// after the peer's acknowledgement of an earlier copy has completed the request. Memory that the
    /// application, a peer or another of our requests can still write to would go out with a CRC that does
    /// not fit, or show the peer data that was never meant for it. RFC 5040 §5.5 (8) leaves the contents
    /// indeterminate in such a case, not the stream. So all other memory is copied, and the CRC computed over
    /// the copy.
    fn reference(&self, segment: &Segment<Chunk>) -> Option<Reference<'e>> {
        let Chunk::Fpdus(run) = &segment.payload else { return None };
        let (operating, qp) = self.operating()?;
        // The segment has the first FPDU only: others after it would make it longer.
        let is_entire = segment.skip == 0
            && segment.octets as usize == fpdu::wire_len(0, run.first_ulpdu_octets(), false)
            && !operating.markers_sent;
        if !is_entire || run.first_octets < limits::BY_REFERENCE_MIN_BYTES {
            return None;
        }
        let FpduDescriptor { header, source: Source::Memory(slice), .. } =
            qp.sender.first_of(run, &qp.reads)?
        else {
            return None;
        };
        let target = self.stags.retained(slice.stag, slice.to, slice.len as usize)?;
        let (region, offset) = target.region();
        let payload = ConstantPayload { octets: target.constant()?, region, offset };
        Some(Reference { header, payload, crc: operating.crc })
    }
}

/// Writes the FPDU of a small message whose payload is `payload` to `out`, of which it takes all, without its
/// CRC. Returns false, and `out` is unspecified, if that is too short.
#[inline]
fn write_range(message: &SmallMessage<'_>, payload: &Target<'_>, out: &mut [u8]) -> bool {
    let emit = |out: &mut [u8]| message.emit_header_of_range(out);
    write_small(out, message.header_len_of_range(), payload.octets(), emit, |room| payload.read(0, room))
}

impl Reference<'_> {
    /// Builds the FPDU, after room for `headers` octets. Returns false if a part of it cannot be had.
    fn write<F: Frame>(&self, headers: usize, frame: &mut F, statistics: &mut Statistics) -> bool {
        let mut header = [0; ddp::Untagged::LEN];
        let header_octets = self.header.emit(&mut header);
        let payload_in = self.payload.append_fpdu(frame, headers, &header[..header_octets], self.crc);
        statistics.fpdus_sent += u64::from(payload_in.is_some());
        if payload_in == Some(PayloadIn::Copy) {
            statistics.bytes_copied_tx += self.payload.octets.len() as u64;
        }
        payload_in.is_some()
    }
}
