//! The sender: as much of TCP and MPA as an Initiator needs that only sends, over as many connections as
//! asked for, each with a port of its own. All send the same stream; how its FPDUs lie in segments is what is
//! compared.

use warpline::link::sim::{EndConfig, SimDevice};
use warpline::link::{Device, Frame};
use warpline::time::{Instant, MILLISECOND};
use warpline_dataplane::mpa::{self, fpdu};
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ddp::{DDP_VERSION, Tagged};
use warpline_dataplane::wire::ipv4::Protocol;
use warpline_dataplane::wire::rdmap::{Control, Opcode, RDMAP_VERSION};
use warpline_dataplane::wire::tcp::{self, Flags, Header, Options, SeqNumber, Timestamps};
use warpline_tools::error::CommandError;
use warpline_tools::segments::{self, Host, write_fpdu};

use super::receiver::Receiver;
use super::scenario::{EMSS, Framing, PORT, RECEIVER, SENDER, SINK};

const FIRST_PORT: u16 = 1024;
const ISS: SeqNumber = SeqNumber(0xffff_0000);
/// A Request with Rev 1 and CRCs (RFC 5044 §7.1.1); M, which asks for Markers the other way, is clear.
const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x40\x01\x00\x00";
/// The place of the first octet in Full Operation.
const START: u32 = ISS.0.wrapping_add(1 + REQUEST.len() as u32);

/// Segments that a connection sends in its turn.
const BURST: usize = 4;
/// How long that takes on the line, in nanoseconds: 1514 octets of frame, 24 around it, at 10 Gbit/s.
const BURST_NS: u64 = BURST as u64 * (1514 + 24) * 8 / 10;
/// Segments that a connection has on their way at most: they fit a window without a scale.
const IN_FLIGHT: usize = 32;
/// Without progress for so long, a segment is sent again.
const TIMEOUT_NS: u64 = 200 * MILLISECOND;
/// Polls in a row without progress after which a run is abandoned.
const STUCK: u64 = 10_000_000;

struct Connection {
    /// Octets of the stream acknowledged, and segments sent.
    acknowledged: usize,
    sent: usize,
    /// What it expects of the receiver, and the receiver's clock.
    expected: SeqNumber,
    clock: u32,
    /// The receiver has answered the SYN; it has answered the Request.
    open: bool,
    started: bool,
    progress_at: Instant,
}

pub struct Sender {
    device: SimDevice,
    connections: Vec<Connection>,
    /// What each sends, and where its segments end.
    stream: Vec<u8>,
    ends: Vec<usize>,
    fpdu_payload: usize,
    retransmitted: u64,
    waiting: Vec<<SimDevice as Device>::Frame>,
}

/// Returns the octets of a ULPDU in each framing: as large as its FPDU fits a segment, or made for segments
/// of 1460 octets.
const fn ulpdu_octets(framing: Framing) -> usize {
    match framing {
        Framing::AlignedMarkers => fpdu::mulpdu(EMSS, true),
        Framing::Aligned => fpdu::mulpdu(EMSS, false),
        Framing::Unaligned => fpdu::mulpdu(EMSS + 12, false),
    }
}

/// Returns a stream of `segments` segments or a little more, and their ends.
fn stream(framing: Framing, segments: usize) -> (Vec<u8>, Vec<usize>) {
    let control = Control { version: RDMAP_VERSION, opcode: Opcode::Write };
    let tagged = Tagged { last: true, version: DDP_VERSION, rsvd_ulp: control.to_octet(), stag: SINK, to: 0 };
    let payload = vec![0x5a; ulpdu_octets(framing) - Tagged::LEN];
    let mpa = mpa::Framing { markers: framing.markers(), crc: true };
    // Markers take 4 octets in 512, and an FPDU may meet one more.
    let mut fpdu = vec![0; EMSS + 64];
    let (mut stream, mut fpdus) = (Vec::new(), Vec::new());
    for _ in 0..segments {
        let octets = write_fpdu(&mut fpdu, stream.len() as u64, mpa, tagged, &payload);
        stream.extend_from_slice(&fpdu[..octets.expect("room for the FPDU")]);
        fpdus.push(stream.len());
    }
    let ends = match framing {
        Framing::Unaligned => (EMSS..stream.len()).step_by(EMSS).chain([stream.len()]).collect(),
        Framing::AlignedMarkers | Framing::Aligned => fpdus,
    };
    (stream, ends)
}

impl Sender {
    pub fn new(device: SimDevice, connections: u32, framing: Framing, segments: u32) -> Self {
        let (stream, ends) = stream(framing, segments as usize);
        let connection = || Connection {
            acknowledged: 0,
            sent: 0,
            expected: SeqNumber(0),
            clock: 0,
            open: false,
            started: false,
            progress_at: Instant::ZERO,
        };
        Self {
            device,
            connections: (0..connections).map(|_| connection()).collect(),
            fpdu_payload: segments as usize * (ulpdu_octets(framing) - Tagged::LEN),
            stream,
            ends,
            retransmitted: 0,
            waiting: Vec::new(),
        }
    }

    /// Returns the octets of user data in all that is sent.
    pub fn payload_octets(&self) -> u64 {
        (self.fpdu_payload * self.connections.len()) as u64
    }

    /// Segments sent again.
    pub fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// Opens every connection and brings it into Full Operation, one after another.
    pub fn open_all(&mut self, receiver: &mut Receiver, now: &mut Instant) -> Result<(), CommandError> {
        for index in 0..self.connections.len() {
            let options = Options { mss: Some(1460), ..self.options(index, *now) };
            self.segment(*now, index, Flags::SYN, ISS, options, 0..0);
            self.run_until(receiver, now, |sender| sender.connections[index].open)?;
            let options = self.options(index, *now);
            self.put(*now, index, Flags::ACK | Flags::PSH, ISS + 1, options, REQUEST);
            self.run_until(receiver, now, |sender| sender.connections[index].started)?;
            let options = self.options(index, *now);
            self.segment(*now, index, Flags::ACK, SeqNumber(START), options, 0..0);
        }
        self.run_until(receiver, now, |sender| sender.device.network().next_arrival().is_none())
    }

    /// Sends the stream on every connection, a few segments in turn, and waits until all of it is
    /// acknowledged.
    pub fn send_all(&mut self, receiver: &mut Receiver, now: &mut Instant) -> Result<(), CommandError> {
        let mut left = self.connections.len();
        let mut idle_since = *now;
        while left > 0 {
            left = 0;
            for index in 0..self.connections.len() {
                if self.connections[index].acknowledged == self.stream.len() {
                    continue;
                }
                left += 1;
                if self.take_turn(*now, index) {
                    *now += BURST_NS;
                    idle_since = *now;
                    receiver.poll(*now)?;
                    self.collect(*now);
                }
            }
            // A sender that waits for acknowledgements lets time pass.
            let next = self.device.network().next_arrival().unwrap_or(*now + MILLISECOND);
            *now = next.min(receiver.next_deadline()).max(*now + 1);
            receiver.poll(*now)?;
            self.collect(*now);
            if *now - idle_since > 100 * TIMEOUT_NS {
                return Err(CommandError::Failed(format!("{left} connections make no progress")));
            }
        }
        Ok(())
    }

    /// Sends the next segments, or one again that is late. Returns true if it sent any.
    fn take_turn(&mut self, now: Instant, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let acknowledged = self.ends.partition_point(|end| *end <= connection.acknowledged);
        let (first, last) = if connection.sent > acknowledged && now - connection.progress_at > TIMEOUT_NS {
            connection.progress_at = now;
            self.retransmitted += 1;
            (acknowledged, acknowledged + 1)
        } else {
            let last = self.ends.len().min(connection.sent + BURST);
            if connection.sent == last || last > acknowledged + IN_FLIGHT {
                return false;
            }
            if connection.sent == acknowledged {
                connection.progress_at = now;
            }
            (core::mem::replace(&mut connection.sent, last), last)
        };
        for number in first..last {
            let begin = if number == 0 { 0 } else { self.ends[number - 1] };
            let end = self.ends[number];
            let options = self.options(index, now);
            self.segment(now, index, Flags::ACK, SeqNumber(START) + begin as u32, options, begin..end);
        }
        true
    }

    fn run_until(
        &mut self,
        receiver: &mut Receiver,
        now: &mut Instant,
        done: impl Fn(&Self) -> bool,
    ) -> Result<(), CommandError> {
        for _ in 0..STUCK {
            let busy = receiver.poll(*now)?;
            self.collect(*now);
            if done(self) {
                return Ok(());
            }
            if !busy {
                let next = self.device.network().next_arrival().unwrap_or(Instant::NEVER);
                *now = next.min(receiver.next_deadline()).max(*now + 1);
            }
        }
        Err(CommandError::Failed("a connection does not open".into()))
    }

    fn options(&self, index: usize, now: Instant) -> Options {
        let value = (now.as_nanos() / MILLISECOND) as u32;
        let timestamps = Some(Timestamps { value, echo: self.connections[index].clock });
        Options { timestamps, ..Options::default() }
    }

    /// Sends a segment with octets of the stream.
    fn segment(
        &mut self,
        now: Instant,
        index: usize,
        flags: Flags,
        seq: SeqNumber,
        options: Options,
        range: std::ops::Range<usize>,
    ) {
        let payload = self.stream[range].to_vec();
        self.put(now, index, flags, seq, options, &payload);
    }

    fn put(
        &mut self,
        now: Instant,
        index: usize,
        flags: Flags,
        seq: SeqNumber,
        options: Options,
        payload: &[u8],
    ) {
        let header = Header {
            source_port: FIRST_PORT + index as u16,
            destination_port: PORT,
            seq,
            ack: self.connections[index].expected,
            flags,
            window: 0xffff,
            urgent: 0,
            options,
        };
        let Some(mut frame) = self.device.allocate() else { return };
        let headers = segments::LOWER_OCTETS + header.header_len();
        let Some(octets) = frame.append(headers + payload.len()) else { return };
        let us = Host { mac: EndConfig::b().mac, address: SENDER };
        let them = Host { mac: EndConfig::a().mac, address: RECEIVER };
        segments::emit(us, them, &header, octets);
        octets[headers..].copy_from_slice(payload);
        let segment = &mut octets[segments::LOWER_OCTETS..];
        let mut sum = checksum::ipv4_pseudo_header(SENDER, RECEIVER, Protocol::TCP.0, segment.len() as u16);
        sum.add(segment);
        tcp::set_checksum(segment, sum.finish());
        self.waiting.push(frame);
        self.device.transmit(now, &mut self.waiting);
    }

    /// Takes what the receiver has sent.
    fn collect(&mut self, now: Instant) {
        let mut frames = Vec::new();
        self.device.receive(now, &mut frames, usize::MAX);
        for frame in frames {
            if let Some((header, octets, _)) = frame.piece(0).and_then(segments::parse) {
                self.on_segment(now, &header, octets);
            }
        }
    }

    fn on_segment(&mut self, now: Instant, header: &Header, payload: usize) {
        let index = usize::from(header.destination_port.wrapping_sub(FIRST_PORT));
        let Some(connection) = self.connections.get_mut(index) else { return };
        if header.flags.contains(Flags::SYN) {
            connection.open = true;
            connection.expected = header.seq + 1;
        } else if payload > 0 && header.seq == connection.expected {
            connection.started = true;
            connection.expected = header.seq + payload as u32;
        }
        if let Some(timestamps) = header.options.timestamps {
            connection.clock = timestamps.value;
        }
        let acknowledged = header.ack.0.wrapping_sub(START) as usize;
        if connection.started && acknowledged <= self.stream.len() && acknowledged > connection.acknowledged {
            connection.acknowledged = acknowledged;
            connection.progress_at = now;
        }
    }
}
