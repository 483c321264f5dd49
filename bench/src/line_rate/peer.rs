//! The other end of all connections, in place of a device: as much of TCP and MPA as a Responder needs that
//! loses nothing. What it receives goes into `net_null` and is acknowledged once a burst; what it sends are
//! RDMA Writes, made when the core asks for frames. Its own time is measured, so that it can be left out.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dpdk::{Mempool, QueuePair};
use warpline::link::{Capabilities, Device};
use warpline::open::Mbuf;
use warpline::time::{Instant, MILLISECOND};
use warpline::{Advertisement, MacAddress};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber, Timestamps};
use warpline_tools::segments::{self, Host};

use super::stream::{Messages, Position};

/// The two hosts.
pub const CORE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The port of the peer.
pub const PORT: u16 = 7471;
/// The hardware addresses.
pub const CORE_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
pub const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const CORE_HOST: Host = Host { mac: CORE_MAC, address: CORE };
const PEER_HOST: Host = Host { mac: PEER_MAC, address: PEER };

const ISS: SeqNumber = SeqNumber(1_000_000);
/// A Reply with Rev 1 (RFC 5044 §7.1.1), before its flags.
const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x00\x01\x00\x00";
const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
/// Returns the processor's time-stamp counter; 0 where it has none that counts at one rate.
#[inline]
pub fn cycles() -> u64 {
    dpdk::time_stamp().unwrap_or(0)
}

/// Octets that a connection has on their way at most.
const IN_FLIGHT: u64 = 128 << 10;
/// The peer's window: 0xffff, shifted by this.
const WINDOW_SCALE: u8 = 6;

/// What the peer and the program that measures share. One thread polls and measures.
#[derive(Default)]
pub struct Shared {
    /// The memory that the generator writes to, one for each connection in the order in which they were
    /// opened; set before it sends.
    pub sinks: OnceLock<Vec<Advertisement>>,
    /// Whether the generator sends.
    pub sending: AtomicBool,
    /// Packets with data and their octets of TCP payload, whichever way.
    pub packets: AtomicU64,
    pub octets: AtomicU64,
    /// FPDUs that the generator has sent.
    pub fpdus: AtomicU64,
    /// Acknowledgements that the core has sent or was sent.
    pub acknowledgements: AtomicU64,
    /// Cycles of the peer, and of `net_null`.
    pub peer_cycles: AtomicU64,
    pub device_cycles: AtomicU64,
    /// Segments that were not the next of their connection.
    pub unexpected: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// How the peer answers.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    pub mtu: u16,
    /// Whether it wants Markers in what it receives, and CRCs.
    pub markers: bool,
    pub crc: bool,
    /// What it sends.
    pub messages: Messages,
}

struct Connection {
    port: u16,
    /// The next octet expected of the core, and its clock.
    expected: SeqNumber,
    clock: u32,
    owes_acknowledgement: bool,
    /// Where its FPDUs begin in sequence space, once the Reply is out.
    start: Option<SeqNumber>,
    position: Position,
    acknowledged: u64,
}

/// The peer.
pub struct Peer {
    config: PeerConfig,
    pool: Mempool,
    null: QueuePair,
    shared: Arc<Shared>,
    connections: Vec<Connection>,
    outbox: Vec<Mbuf>,
    /// The connection that sends next.
    turn: usize,
}

impl Peer {
    pub fn new(config: PeerConfig, pool: Mempool, null: QueuePair, shared: Arc<Shared>) -> Self {
        Self { config, pool, null, shared, connections: Vec::new(), outbox: Vec::new(), turn: 0 }
    }

    /// Takes a frame of the core apart, and notes what must be answered.
    fn on_frame(&mut self, now: Instant, octets: &[u8]) {
        if let Some((header, len, payload)) = segments::parse(octets) {
            self.on_segment(now, &header, len, payload);
        }
    }

    /// Handles a segment with `len` octets of payload, the first of which are in `payload`.
    fn on_segment(&mut self, now: Instant, header: &Header, len: usize, payload: &[u8]) {
        let found = self.connections.iter().position(|connection| connection.port == header.source_port);
        let index = match found {
            Some(index) => index,
            None if header.flags.contains(Flags::SYN) => {
                self.connections.push(Connection {
                    port: header.source_port,
                    expected: header.seq + 1,
                    clock: 0,
                    owes_acknowledgement: false,
                    start: None,
                    position: Position::default(),
                    acknowledged: 0,
                });
                self.connections.len() - 1
            }
            None => return,
        };
        let connection = &mut self.connections[index];
        if let Some(timestamps) = header.options.timestamps {
            connection.clock = timestamps.value;
        }
        if header.flags.contains(Flags::SYN) {
            let mss = Some(self.config.mtu - 40);
            let options = Options { mss, window_scale: Some(WINDOW_SCALE), ..self.options(now, index) };
            self.send(now, index, Flags::SYN | Flags::ACK, ISS, Some(options), &[]);
            return;
        }
        if let Some(start) = connection.start {
            let acknowledged = u64::from(header.ack.0.wrapping_sub(start.0));
            // A stream of some gigabytes passes over the end of the sequence space.
            let low = connection.acknowledged & u64::from(u32::MAX);
            let more = acknowledged.wrapping_sub(low) & u64::from(u32::MAX);
            if more <= 2 * IN_FLIGHT {
                connection.acknowledged += more;
            }
        }
        if len == 0 {
            add(&self.shared.acknowledgements, 1);
            return;
        }
        if header.seq != connection.expected {
            add(&self.shared.unexpected, 1);
        }
        connection.expected = header.seq + len as u32;
        if connection.start.is_none() {
            connection.start = Some(ISS + (1 + REPLY.len() as u32));
            let mut reply = *REPLY;
            let flag = |flag, set| if set { flag } else { 0 };
            reply[16] = flag(FLAG_MARKERS, self.config.markers) | flag(FLAG_CRC, self.config.crc);
            debug_assert!(payload.starts_with(b"MPA ID Req Frame"), "the core begins with a Request");
            self.send(now, index, Flags::ACK | Flags::PSH, ISS + 1, None, &reply);
        } else {
            add(&self.shared.packets, 1);
            add(&self.shared.octets, len as u64);
            connection.owes_acknowledgement = true;
        }
    }

    fn options(&self, now: Instant, index: usize) -> Options {
        let value = (now.as_nanos() / MILLISECOND) as u32;
        let timestamps = Some(Timestamps { value, echo: self.connections[index].clock });
        Options { timestamps, ..Options::default() }
    }

    /// Queues a segment with `payload`.
    fn send(
        &mut self,
        now: Instant,
        index: usize,
        flags: Flags,
        seq: SeqNumber,
        options: Option<Options>,
        payload: &[u8],
    ) {
        let options = options.unwrap_or_else(|| self.options(now, index));
        let frame = self.frame(index, flags, seq, options, payload.len(), |out| out.copy_from_slice(payload));
        self.outbox.extend(frame);
    }

    /// Returns a frame with `len` octets of payload at most, which `fill` writes; `None` without a buffer.
    fn frame(
        &self,
        index: usize,
        flags: Flags,
        seq: SeqNumber,
        options: Options,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<Mbuf> {
        let connection = &self.connections[index];
        let header = Header {
            source_port: PORT,
            destination_port: connection.port,
            seq,
            ack: connection.expected,
            flags,
            window: 0xffff,
            urgent: 0,
            options,
        };
        let headers = segments::LOWER_OCTETS + header.header_len();
        let mut frame = self.pool.allocate()?;
        let octets = frame.append(headers + len)?;
        segments::emit(PEER_HOST, CORE_HOST, &header, octets);
        fill(&mut octets[headers..]);
        frame.assume_received();
        Some(frame)
    }

    /// Appends segments with FPDUs, of the connections in turn.
    fn generate(&mut self, now: Instant, frames: &mut Vec<Mbuf>, limit: usize) {
        let mut scratch = vec![0; self.config.messages.emss];
        let mut waiting = 0;
        let mut made = 0;
        while made < limit && waiting < self.connections.len() {
            let index = self.turn % self.connections.len();
            self.turn = index + 1;
            let connection = &mut self.connections[index];
            let sink = self.shared.sinks.get().and_then(|sinks| sinks.get(index));
            let in_flight = connection.position.octets - connection.acknowledged;
            let (Some(start), Some(sink), 0..IN_FLIGHT) = (connection.start, sink, in_flight) else {
                waiting += 1;
                continue;
            };
            waiting = 0;
            let before = connection.position;
            let len = self.config.messages.next_segment(&mut connection.position, *sink, &mut scratch);
            let fpdus = connection.position.fpdus - before.fpdus;
            let (seq, options) = (start + before.octets as u32, self.options(now, index));
            let frame = self.frame(index, Flags::ACK, seq, options, len, |out| {
                out.copy_from_slice(&scratch[..len]);
            });
            let Some(frame) = frame else {
                self.connections[index].position = before;
                return;
            };
            frames.push(frame);
            made += 1;
            add(&self.shared.packets, 1);
            add(&self.shared.octets, len as u64);
            add(&self.shared.fpdus, fpdus);
        }
    }
}

impl Device for Peer {
    type Frame = Mbuf;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu_bytes: self.config.mtu.into(),
            transmit_checksums: true,
            transmit_ip_checksums: true,
            gather: false,
            super_frame_bytes: 0,
            super_frame_pieces: usize::MAX,
            frames: self.pool.capacity(),
            frame_bytes: self.pool.data_octets(),
        }
    }

    fn mac(&self) -> MacAddress {
        CORE_MAC
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        let begin = cycles();
        let before = frames.len();
        let answers = self.outbox.len().min(limit);
        frames.extend(self.outbox.drain(..answers));
        if self.shared.sending.load(Ordering::Relaxed) {
            self.generate(now, frames, limit - answers);
        }
        add(&self.shared.peer_cycles, cycles().wrapping_sub(begin));
        frames.len() - before
    }

    fn allocate(&mut self) -> Option<Mbuf> {
        self.pool.allocate()
    }

    fn allocate_burst(&mut self, frames: &mut Vec<Mbuf>, limit: usize) {
        if !self.pool.allocate_many(frames, limit) {
            frames.extend(self.pool.allocate());
        }
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<Mbuf>) -> usize {
        let begin = cycles();
        for frame in &*frames {
            self.on_frame(now, frame.piece(0).unwrap_or_default());
        }
        for index in 0..self.connections.len() {
            if core::mem::take(&mut self.connections[index].owes_acknowledgement) {
                add(&self.shared.acknowledgements, 1);
                let connection = &self.connections[index];
                let start = connection.start.unwrap_or(ISS);
                let seq = start + connection.position.octets as u32;
                self.send(now, index, Flags::ACK, seq, None, &[]);
            }
        }
        let parsed = cycles();
        let taken = self.null.transmit.transmit(frames);
        let end = cycles();
        add(&self.shared.peer_cycles, parsed.wrapping_sub(begin));
        add(&self.shared.device_cycles, end.wrapping_sub(parsed));
        taken
    }
}
