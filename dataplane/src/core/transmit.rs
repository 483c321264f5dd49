//! Frames out: queue pairs fill TCP's queue, TCP says what may go, and the frame is built from the descriptor.

use std::net::IpAddr;

use super::connection::{Chunk, Connection, Mode, Operating};
use super::cut::CutRuns;
use super::queue_pairs::QueuePairs;
use super::statistics::{DropCause, Statistics};
use super::{Core, flow_label, streaming};
use crate::crc32c::Digest;
use crate::device::{ChecksumRequest, Device, Frame, IpVersion};
use crate::limits;
use crate::memory::{StagTable, Target};
use crate::mpa::{Framing, MpaError, fpdu};
use crate::net::flow::FlowKey;
use crate::qp::error::StreamError;
use crate::qp::run::{FpduDescriptor, FpduRun, Source};
use crate::rdmap::RdmapError;
use crate::tcp::send_queue::Segment;
use crate::tcp::{EcnField, Outgoing, State};
use crate::time::Instant;
use crate::wire::checksum;
use crate::wire::ddp;
use crate::wire::ethernet::{EtherType, MacAddress};
use crate::wire::ipv4::{self, Protocol};
use crate::wire::ipv6;
use crate::wire::tcp::{self, Header, SeqNumber};

/// Where the packets of a flow go.
#[derive(Clone, Copy)]
struct To {
    key: FlowKey,
    /// The flow label, over IPv6.
    flow_label: u32,
    /// The hardware address of the next hop.
    mac: MacAddress,
}

impl<D: Device> Core<D> {
    /// Sends what the connections have to send, in turn. Who gets no turn, because the device is full or the poll has done
    /// enough, is the first to have one in the next.
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        let mut busy = !self.dirty.is_empty();
        let enough = self.statistics.frames_sent + limits::FRAMES_SENT_PER_POLL;
        let mut turn = self.dirty.len();
        while turn > 0 && self.statistics.frames_sent < enough && self.has_room_to_send(now) {
            turn -= 1;
            let index = self.dirty[turn];
            if !self.transmit_connection(now, index) {
                self.dirty.swap_remove(turn);
            }
        }
        let served = self.dirty.len() - turn;
        self.dirty.rotate_right(served);
        self.solicit_neighbours(now);
        busy |= !self.to_send.is_empty();
        self.flush_device(now);
        busy
    }

    /// Whether a connection's turn may be queued for the device.
    fn has_room_to_send(&mut self, now: Instant) -> bool {
        const MOST: usize = limits::TRANSMIT_QUEUE_FRAMES - limits::TRANSMIT_BURST_SEGMENTS;
        if self.to_send.len() > MOST {
            self.flush_device(now);
        }
        self.to_send.len() <= MOST
    }

    fn flush_device(&mut self, now: Instant) {
        if !self.to_send.is_empty() {
            self.statistics.frames_sent += self.device.transmit(now, &mut self.to_send) as u64;
        }
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
        let more = match self.resolve(key, now) {
            Some(mac) => self.send_segments(now, index, key, mac),
            None => false,
        };
        self.settle(now, index, more)
    }

    fn send_segments(&mut self, now: Instant, index: u32, key: FlowKey, mac: MacAddress) -> bool {
        let looped = self.loops_back(key.remote, mac);
        let by_reference = self.takes_references() && !looped;
        for _ in 0..limits::TRANSMIT_BURST_SEGMENTS {
            if looped && !self.loopback.has_room() {
                // It keeps its turn: there is room again when the frames before have been delivered.
                return true;
            }
            let Some(frame) = self.empty_frame() else { return true };
            let Some(connection) = self.slots[index as usize].connection.as_mut() else { return false };
            streaming::fill(connection, &mut self.pools);
            fill(connection, &mut self.qps, &mut self.pools, &mut self.stags, by_reference);
            if has_failed(connection, &self.qps) {
                // RDMAP-7.1-01, RDMAP-7.1-02: a Terminate goes instead of the message.
                self.fail_stream(now, index, StreamError::Rdmap(RdmapError::LocalCatastrophic), None);
                self.spare = Some(frame);
                continue;
            }
            if self.asks_in_vain(index) {
                self.fail_stream(now, index, StreamError::Mpa(MpaError::TcpClosed), None);
            }
            let Some(connection) = self.slots[index as usize].connection.as_mut() else { return false };
            let Some(outgoing) = connection.tcp.poll_transmit(now, &mut self.pools) else {
                self.spare = Some(frame);
                return false;
            };
            let to = To { key, flow_label: connection.flow_label, mac };
            match self.build(frame, index, &to, &outgoing) {
                Some(frame) if looped => self.loop_back(frame),
                Some(frame) => {
                    self.to_send.push_back(frame);
                    if self.to_send.len() >= limits::TRANSMIT_CHUNK_FRAMES {
                        self.flush_device(now);
                    }
                }
                // It stays unacknowledged, so TCP sends it again.
                None => self.statistics.count(DropCause::NoTransmitBuffer),
            }
        }
        true
    }

    /// After a turn: the connection closes, ends, or waits for its next deadline.
    fn settle(&mut self, now: Instant, index: u32, more: bool) -> bool {
        let waiting = self.is_waiting(index);
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return false };
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

    /// Whether what the connection has to send waits for a hardware address.
    fn is_waiting(&self, index: u32) -> bool {
        let connection = self.slots[index as usize].connection.as_ref();
        let next_hop = connection.and_then(|connection| self.next_hop(connection.key.remote));
        next_hop.is_some_and(|next_hop| self.neighbours.is_waiting(next_hop))
    }

    /// An empty frame to fill.
    pub(super) fn empty_frame(&mut self) -> Option<D::Frame> {
        let frame = self.spare.take().or_else(|| self.device.allocate());
        if frame.is_none() {
            self.statistics.count(DropCause::NoTransmitBuffer);
        }
        frame
    }

    /// Queues a frame that answers another, or asks for a neighbour. While the device takes nothing, only so many wait:
    /// whoever is left without an answer asks again.
    pub(super) fn queue_answer(&mut self, frame: D::Frame) {
        if self.to_send.len() < limits::TRANSMIT_QUEUE_FRAMES + limits::RECEIVE_BURST_FRAMES {
            self.to_send.push_back(frame);
        } else {
            self.statistics.count(DropCause::NoTransmitBuffer);
        }
    }

    /// Sends a segment of no connection: a RST.
    pub(super) fn send_bare(&mut self, key: FlowKey, header: Header) {
        // Only a neighbour that is known is answered; strangers are not asked for.
        if let Some(mac) = self.known_mac(key.remote) {
            self.send_bare_to(mac, key, header);
        }
    }

    /// Sends a segment without data to `mac`.
    pub(super) fn send_bare_to(&mut self, mac: MacAddress, key: FlowKey, header: Header) {
        let Some(mut frame) = self.empty_frame() else { return };
        let octets = self.headers_octets(key, &header);
        if frame.append(octets).is_some() {
            let to = To { key, flow_label: flow_label(self.flow_labels, &key), mac };
            self.write_headers(&mut frame, &to, header, 0, EcnField::NotCapable);
            if self.loops_back(key.remote, mac) {
                self.loop_back(frame);
            } else {
                self.queue_answer(frame);
            }
        }
    }

    /// Whether payload may go by reference: only where nobody here has to sum up its octets for TCP.
    const fn takes_references(&self) -> bool {
        self.capabilities.gather && self.capabilities.transmit_checksums
    }

    /// Octets of all headers.
    fn headers_octets(&self, key: FlowKey, header: &Header) -> usize {
        self.link_octets() + network_octets(key) + header.header_len()
    }

    /// Builds the frame of a segment; `None` when its octets cannot be had.
    fn build(
        &mut self,
        mut frame: D::Frame,
        index: u32,
        to: &To,
        outgoing: &Outgoing<Chunk>,
    ) -> Option<D::Frame> {
        let headers = self.headers_octets(to.key, &outgoing.header);
        let by_reference = self.takes_references() && !self.loops_back(to.key.remote, to.mac);
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
        self.write_headers(&mut frame, to, outgoing.header.clone(), payload_octets, outgoing.ecn);
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

    /// Writes the Ethernet, IP and TCP headers before the payload that is already there.
    fn write_headers(
        &mut self,
        frame: &mut D::Frame,
        to: &To,
        mut header: Header,
        payload_octets: usize,
        ecn: EcnField,
    ) {
        let To { key, mac, .. } = *to;
        (header.source_port, header.destination_port) = (key.local_port, key.remote_port);
        let segment_octets = header.header_len() + payload_octets;
        let looped = self.loops_back(key.remote, mac);
        // Nobody verifies the checksums of a frame to ourselves.
        let offload = self.capabilities.transmit_checksums || looped;
        let octets = frame.first_mut();
        let link_octets = self.link_octets();
        let (link, rest) = octets.split_at_mut(link_octets);
        let ethertype = if key.remote.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        self.write_link(link, mac, ethertype);
        let (ip, segment) = rest.split_at_mut(network_octets(key));
        self.write_network(ip, to, segment_octets, ecn);
        header.emit(segment);
        let mut sum = checksum::pseudo_header(key.local, key.remote, Protocol::TCP.0, segment_octets as u16);
        if offload {
            // The device completes the sum over the segment; the field holds the pseudo-header's.
            tcp::set_checksum(segment, !sum.finish());
            if !looped {
                frame.request_checksums(ChecksumRequest {
                    ip: if key.remote.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 },
                    l2_octets: link_octets as u8,
                    l3_octets: network_octets(key) as u8,
                    l4_octets: header.header_len() as u8,
                });
            }
        } else {
            // The whole segment lies in this piece: payload goes by reference only with the device's checksums.
            sum.add(&segment[..segment_octets]);
            tcp::set_checksum(segment, sum.finish());
        }
    }

    /// Writes the IP header before a segment of `segment_octets`. A device that completes checksums completes IPv4's too.
    fn write_network(&self, out: &mut [u8], to: &To, segment_octets: usize, ecn: EcnField) {
        match (to.key.local, to.key.remote) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = ipv4::Header {
                    source,
                    destination,
                    protocol: Protocol::TCP,
                    ttl: limits::TIME_TO_LIVE,
                    total_len: (ipv4::Header::LEN + segment_octets) as u16,
                    // MPA-A.5-01: no fragments of ours.
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: 0,
                    // RFC 6864 §4.1: a datagram that is never fragmented may have any. A number that counts
                    // what this end sends would tell strangers how much that is. Zero needs no state,
                    // receivers coalesce segments with it (Linux's GRO), and no path refuses it: Linux
                    // answers every SYN with it.
                    identification: 0,
                    ecn: ecn.bits(),
                    dscp: 0,
                };
                if self.capabilities.transmit_checksums {
                    header.emit_without_checksum(out);
                } else {
                    header.emit(out);
                }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Header {
                source,
                destination,
                next_header: Protocol::TCP,
                hop_limit: limits::TIME_TO_LIVE,
                payload_len: segment_octets as u16,
                flow_label: to.flow_label,
                ecn: ecn.bits(),
                dscp: 0,
            }
            .emit(out),
            _ => debug_assert!(false, "a flow between two families: {:?}", to.key),
        }
    }
}

/// Octets of the IP header.
const fn network_octets(key: FlowKey) -> usize {
    if key.remote.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN }
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
