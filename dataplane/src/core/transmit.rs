//! Frames out: queue pairs fill TCP's queue, TCP says what may go, and the frame is built from the descriptor.

use super::connection::{Chunk, Connection, Mode, Operating};
use super::cut::CutRuns;
use super::queue_pairs::QueuePairs;
use super::statistics::Statistics;
use super::{Core, streaming};
use crate::crc32c::Digest;
use crate::device::{Device, Frame};
use crate::limits;
use crate::memory::{StagTable, Target};
use crate::mpa::{Framing, MpaError, fpdu};
use crate::net::flow::FlowKey;
use crate::net::headers::{Egress, FlowPath};
use crate::qp::error::StreamError;
use crate::qp::run::{FpduDescriptor, FpduRun, Source};
use crate::rdmap::RdmapError;
use crate::tcp::send_queue::Segment;
use crate::tcp::{Outgoing, State};
use crate::time::Instant;
use crate::wire::ddp;
use crate::wire::tcp::SeqNumber;

impl<D: Device> Core<D> {
    /// Sends what the connections have to send, in turn. Who gets no turn, because the device is full or the poll has done
    /// enough, is the first to have one in the next.
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        let mut busy = !self.dirty.is_empty();
        let enough = self.host.counters().frames_sent + limits::FRAMES_SENT_PER_POLL;
        let mut turn = self.dirty.len();
        while turn > 0 && self.host.counters().frames_sent < enough && self.host.has_room_for_turn(now) {
            turn -= 1;
            let index = self.dirty[turn];
            if !self.transmit_connection(now, index) {
                self.dirty.swap_remove(turn);
            }
        }
        let served = self.dirty.len() - turn;
        self.dirty.rotate_right(served);
        self.host.solicit_neighbours(now);
        busy |= self.host.frames_to_send() > 0;
        self.host.flush(now);
        busy
    }

    /// Sends for one connection. `true` when it has more to send and keeps its turn.
    fn transmit_connection(&mut self, now: Instant, index: u32) -> bool {
        if self.has_octets_to_lend(index) {
            self.take_again(now, index);
        }
        let Some(key) = self.slots[index as usize].connection.as_ref().map(|connection| connection.key)
        else {
            return false;
        };
        let more = match self.host.resolve(key, now) {
            Some(egress) => self.send_segments(now, index, key, egress),
            None => false,
        };
        self.settle(now, index, more)
    }

    fn send_segments(&mut self, now: Instant, index: u32, key: FlowKey, egress: Egress) -> bool {
        let by_reference = self.host.takes_references(egress);
        for _ in 0..limits::TRANSMIT_BURST_SEGMENTS {
            if !self.host.has_room(egress) {
                // The connection keeps its turn.
                return true;
            }
            let Some(frame) = self.host.empty_frame() else { return true };
            let Some(connection) = self.slots[index as usize].connection.as_mut() else { return false };
            streaming::fill(connection, &mut self.pools);
            fill(connection, &mut self.qps, &mut self.pools, &mut self.stags, by_reference);
            if has_failed(connection, &self.qps) {
                // RDMAP-7.1-01, RDMAP-7.1-02: a Terminate goes instead of the message.
                self.fail_stream(now, index, StreamError::Rdmap(RdmapError::LocalCatastrophic), None);
                self.host.keep_spare(frame);
                continue;
            }
            if self.asks_in_vain(index) {
                self.fail_stream(now, index, StreamError::Mpa(MpaError::TcpClosed), None);
            }
            let Some(connection) = self.slots[index as usize].connection.as_mut() else { return false };
            let Some(outgoing) = connection.tcp.poll_transmit(now, &mut self.pools) else {
                self.host.keep_spare(frame);
                return false;
            };
            let path = FlowPath { key, flow_label: connection.flow_label, egress };
            match self.build(frame, index, &path, &outgoing) {
                Some(frame) => self.host.send(now, egress, frame),
                // It stays unacknowledged, so TCP sends it again.
                None => self.host.count_no_buffer(),
            }
        }
        true
    }

    /// After a turn: the connection closes, ends, or waits for its next deadline.
    fn settle(&mut self, now: Instant, index: u32, more: bool) -> bool {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return false };
        let waiting = self.host.is_unresolved(connection.key.remote);
        if self.cut_octets > 0
            && let Some(cut) = self.cut.get_mut(&index)
        {
            self.cut_octets -= cut.acknowledge(connection.tcp.acknowledged());
        }
        // Acknowledged octets that control has no copy of yet outlive TCP.
        let unheard = connection.holds_back() && !connection.told_closed;
        if connection.tcp.state() == State::Closed && !more && !unheard {
            self.on_closed(index);
            self.remove_connection(index);
            return false;
        }
        if !more && Self::rests(connection) {
            self.enter_time_wait(now, index);
            return false;
        }
        let mut more = more;
        let streamed = connection.stream.unqueued_octets() == 0;
        if connection.closing && connection.tcp.may_send() && streamed && !has_work(connection, &self.qps) {
            connection.tcp.close();
            more = true;
        }
        connection.expect_answer(now);
        let mut deadline = connection.tcp.next_deadline().min(connection.abort_at).min(connection.fpdu_due());
        deadline = deadline.min(connection.nudge_due());
        deadline = deadline.min(connection.receive_due(&self.qps));
        if !more && waiting {
            // Nobody may answer: then the connection asks anew.
            deadline = deadline.min(now + limits::NEIGHBOUR_RETRANSMIT_NS);
        }
        if self.pools.segments.free() == 0 && (!streamed || has_work(connection, &self.qps)) {
            // Others have all descriptors, and nothing of its own need be on its way.
            deadline = deadline.min(now + limits::SEND_DESCRIPTOR_RETRY_NS);
        }
        if self.has_octets_to_lend(index) {
            deadline = deadline.min(now + limits::HAND_UP_RETRY_NS);
        }
        self.wheel.set(index, deadline);
        if let Some(connection) = self.slots[index as usize].connection.as_mut() {
            connection.dirty = more;
        }
        more
    }

    /// Builds the frame of a segment; `None` when its octets cannot be had.
    fn build(
        &mut self,
        mut frame: D::Frame,
        index: u32,
        path: &FlowPath,
        outgoing: &Outgoing<Chunk>,
    ) -> Option<D::Frame> {
        let headers = self.host.headers_octets(path.key, &outgoing.header);
        let by_reference = self.host.takes_references(path.egress);
        let payload_octets = outgoing.segment.map_or(0, |segment| segment.octets as usize);
        if let Some(segment) = &outgoing.segment {
            self.keep_if_cut(index, segment).then_some(())?;
            let connection = self.slots[index as usize].connection.as_ref()?;
            let (qps, stags, statistics) = (&self.qps, &self.stags, &mut self.statistics);
            let payload = Build { connection, cut: self.cut.get(&index), qps, stags, statistics };
            if let Some(reference) = by_reference.then(|| payload.referable(segment)).flatten() {
                payload.by_reference(&reference, headers, &mut frame)?;
            } else {
                let room = frame.append(headers + payload_octets)?;
                payload.segment(segment, &mut room[headers..]).then_some(())?;
            }
        } else {
            frame.append(headers)?;
        }
        let (header, ecn) = (outgoing.header.clone(), outgoing.ecn.bits());
        self.host.write_headers(&mut frame, path, header, payload_octets, ecn);
        Some(frame)
    }

    /// Builds and keeps all of the FPDUs that `segment` has a part of, unless they are kept already: what is
    /// sent of them fits together then, whatever becomes of their source. `false` when there is no room.
    fn keep_if_cut(&mut self, index: u32, segment: &Segment<Chunk>) -> bool {
        let Chunk::Fpdus(run) = segment.payload else { return true };
        if segment.octets == run.octets {
            return true;
        }
        let Some(connection) = &self.slots[index as usize].connection else { return false };
        let begin = segment.seq - segment.skip;
        let cut = self.cut.entry(index).or_default();
        if cut.get(begin).is_some() {
            return true;
        }
        // Each connection may keep one in any case, so that it gets on.
        let octets = run.octets as usize;
        if !cut.is_empty() && self.cut_octets + octets > self.cut_octets_max {
            return false;
        }
        let mut whole = vec![0; octets].into_boxed_slice();
        let (qps, stags, statistics) = (&self.qps, &self.stags, &mut self.statistics);
        if !(Build { connection, cut: None, qps, stags, statistics }).run(run, begin, &mut whole) {
            return false;
        }
        cut.keep(begin, whole);
        self.cut_octets += octets;
        true
    }
}

/// Whether the queue pair has FPDUs that may go before the FIN.
fn has_work(connection: &Connection, qps: &QueuePairs) -> bool {
    let Mode::FullOperation(operating) = &connection.mode else { return false };
    let Some(qp) = qps.get(operating.qp) else { return false };
    operating.may_send && qp.sender.has_work(&qp.shared, &qp.reads)
}

/// Whether the queue pair's next request cannot be done.
fn has_failed(connection: &Connection, qps: &QueuePairs) -> bool {
    let Mode::FullOperation(operating) = &connection.mode else { return false };
    let Some(qp) = qps.get(operating.qp) else { return false };
    !operating.failed && qp.sender.has_failed()
}

/// Moves FPDUs from the queue pair to TCP while they can go at once, and one more when none waits, so that TCP knows of
/// it (MPA-4.5-03: each is cut for the EMSS of its moment). What is queued goes out, whatever becomes of EMSS and window
/// (DDP-3-02, MPA-A.1-03, C00-7.3-05, C00-7.3-06).
fn fill<F>(
    connection: &mut Connection,
    qps: &mut QueuePairs,
    pools: &mut crate::tcp::Pools<Chunk, F>,
    stags: &mut StagTable,
    by_reference: bool,
) {
    let Mode::FullOperation(operating) = &connection.mode else { return };
    let Some(qp) = qps.get_mut(operating.qp) else { return };
    if !qp.shared.state().is_over() {
        qp.sender.take_posted(&qp.shared, stags);
        // What puts nothing on the wire waits for nobody's first FPDU.
        while qp.sender.carry_out(&qp.shared, stags, &qp.reads) {
            qp.sender.take_posted(&qp.shared, stags);
        }
        qp.sender.flush_after_close(&qp.shared);
    }
    // Streaming octets go before the first FPDU.
    if !operating.may_send || !connection.tcp.may_send() || connection.stream.unqueued_octets() > 0 {
        return;
    }
    let tcp = &mut connection.tcp;
    if operating.packing
        && let Some((Chunk::Fpdus(run), octets)) = tcp.last_unsent(pools)
    {
        let begin = tcp.queued_end() - octets;
        let room = operating.segment_room(begin, tcp.emss_octets(), by_reference);
        if let Some(longer) = qp.sender.extend(run, &room, &qp.reads) {
            tcp.extend_last(pools, Chunk::Fpdus(longer), longer.octets);
            qp.sender.advance(&longer, run.fpdus(), tcp.queued_end(), &mut qp.reads);
        }
    }
    loop {
        let room = operating.segment_room(tcp.queued_end(), tcp.emss_octets(), by_reference);
        let Some(run) = qp.sender.peek(&room, &qp.reads) else { break };
        if tcp.has_unsent() && tcp.send_room() < run.octets as usize {
            return;
        }
        if !tcp.queue(pools, Chunk::Fpdus(run), 0, run.octets) {
            return;
        }
        qp.sender.advance(&run, 0, tcp.queued_end(), &mut qp.reads);
    }
}

/// The payload of an FPDU that may go by reference.
struct Reference<'c> {
    header: ddp::Header,
    target: Target<'c>,
    octets: &'c [u8],
    crc: bool,
}

/// Builds the payload of segments.
pub(super) struct Build<'c> {
    pub(super) connection: &'c Connection,
    pub(super) cut: Option<&'c CutRuns>,
    pub(super) qps: &'c QueuePairs,
    pub(super) stags: &'c StagTable,
    pub(super) statistics: &'c mut Statistics,
}

impl<'c> Build<'c> {
    /// Builds the octets of `segment`. `false` when they cannot be had.
    pub(super) fn segment(mut self, segment: &Segment<Chunk>, out: &mut [u8]) -> bool {
        let begin = segment.seq - segment.skip;
        match segment.payload {
            Chunk::Stream => self.connection.stream.copy(segment.seq, out),
            Chunk::Fpdus(run) if run.octets as usize == out.len() => self.run(run, begin, out),
            Chunk::Fpdus(_) => {
                let whole = self.cut.and_then(|cut| cut.get(begin));
                let skip = segment.skip as usize;
                let part = whole.and_then(|whole| whole.get(skip..skip + out.len()));
                part.is_some_and(|part| {
                    out.copy_from_slice(part);
                    true
                })
            }
        }
    }

    /// Builds the FPDUs of a run, which begins at `begin`, one behind the other.
    pub(super) fn run(&mut self, run: FpduRun, begin: SeqNumber, out: &mut [u8]) -> bool {
        let Mode::FullOperation(operating) = &self.connection.mode else { return false };
        // Where the run begins in the stream of Full Operation; Markers only need it modulo 512.
        let position = u64::from((begin - operating.send_start) as u32);
        let Some(qp) = self.qps.get(operating.qp) else { return false };
        let mut at = 0;
        for fpdu in qp.sender.fpdus(run) {
            let begin = position + at as u64;
            let end = at + fpdu::wire_len(begin, fpdu.ulpdu_octets(), operating.markers_sent);
            let Some(place) = out.get_mut(at..end) else { return false };
            if !self.fpdu(&fpdu, operating, begin, place) {
                return false;
            }
            at = end;
        }
        at == out.len()
    }

    /// The FPDU of `segment`, if its payload may go by reference: one whole FPDU, without Markers, long
    /// enough that a reference costs less than a copy, and from constant memory.
    ///
    /// A device reads what a frame refers to when it sends the frame: after the CRC was computed, and perhaps
    /// after the peer's acknowledgement of an earlier copy has completed the request. Memory that anybody can
    /// write to by then, the application, a peer, or another request of ours, would go out with a CRC that
    /// does not fit, or show the peer what was never meant for it. RFC 5040 §5.5 (8) leaves the contents
    /// indeterminate in such a case, not the stream. So all other memory is copied, and the CRC computed over
    /// the copy.
    fn referable(&self, segment: &Segment<Chunk>) -> Option<Reference<'c>> {
        let Chunk::Fpdus(FpduRun { first: descriptor, .. }) = segment.payload else { return None };
        let Mode::FullOperation(operating) = &self.connection.mode else { return None };
        // No more and no less than the first: others behind it would make the segment longer.
        let whole = segment.skip == 0
            && segment.octets as usize == fpdu::wire_len(0, descriptor.ulpdu_octets(), false)
            && !operating.markers_sent;
        if !whole || descriptor.octets < limits::BY_REFERENCE_MIN_OCTETS {
            return None;
        }
        let Source::Memory(slice) = descriptor.source else { return None };
        let target = self.stags.retained(slice.stag, slice.to, slice.octets as usize)?;
        let octets = target.constant()?;
        Some(Reference { header: descriptor.header, target, octets, crc: operating.crc })
    }

    /// Builds one FPDU whose payload stays where it is: its head after room for `headers` octets, a reference to the user's
    /// buffer, then pad and CRC. `None` when a part of it cannot be had.
    fn by_reference<F: Frame>(self, payload: &Reference<'_>, headers: usize, frame: &mut F) -> Option<()> {
        let octets = payload.octets.len();
        let mut header = [0; ddp::Untagged::LEN];
        let header_octets = payload.header.emit(&mut header);
        let head = fpdu::LENGTH_LEN + header_octets;
        let room = frame.append(headers + head)?;
        fpdu::encode_head(&mut room[headers..], &header[..header_octets], octets)?;
        let digest = payload.crc.then(|| {
            let mut digest = Digest::new();
            digest.update(&room[headers..]);
            digest.update(payload.octets);
            digest
        });
        let (tail, tail_octets) = fpdu::tail(digest, octets);
        let (region, offset) = payload.target.region();
        self.statistics.fpdus_sent += 1;
        if frame.append_region(region, offset, octets) {
            frame.append(tail_octets)?.copy_from_slice(&tail[..tail_octets]);
        } else {
            // Memory the device cannot refer to is copied behind the head.
            let room = frame.append(octets + tail_octets)?;
            let (copy, rest) = room.split_at_mut(octets);
            copy.copy_from_slice(payload.octets);
            rest.copy_from_slice(&tail[..tail_octets]);
            self.statistics.octets_copied_tx += octets as u64;
        }
        Some(())
    }

    /// Builds one FPDU: its payload is copied once, from the user's buffer to its place in the frame.
    fn fpdu(
        &mut self,
        descriptor: &FpduDescriptor,
        operating: &Operating,
        position: u64,
        out: &mut [u8],
    ) -> bool {
        let Some(qp) = self.qps.get(operating.qp) else { return false };
        let mut header = [0; ddp::Untagged::LEN];
        let header_octets = descriptor.header.emit(&mut header);
        let header = &header[..header_octets];
        let payload_octets = descriptor.octets as usize;
        self.statistics.fpdus_sent += 1;
        self.statistics.octets_copied_tx += payload_octets as u64;
        let framing = Framing { markers: operating.markers_sent, crc: operating.crc };
        match descriptor.source {
            Source::Memory(slice) if slice.octets == 0 => {
                fpdu::encode(out, position, framing, header, 0, |_, _| true)
            }
            Source::Memory(slice) => {
                let target = self.stags.retained(slice.stag, slice.to, slice.octets as usize);
                target.is_some_and(|target| {
                    fpdu::encode(out, position, framing, header, payload_octets, |at, out| {
                        target.read(at, out)
                    })
                })
            }
            source => fpdu::encode(out, position, framing, header, payload_octets, |at, out| {
                qp.sender.copy(source, self.stags, at, out)
            }),
        }
    }
}
