//! A receiver of a byte stream whose peer is made of frames: any option on any segment.

use std::sync::Arc;

use super::{attach, config, rid, with_option};
use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PORT, pattern};
use warpline_dataplane::byte_stream::{
    Buffer, ByteReader, ByteStreamConfig, ByteWriter, ReadItem, SharedByteStream, TransferCounters,
};
use warpline_dataplane::memory::Region;
use warpline_dataplane::ring::{Command, ConnectionId, Event};
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};
use warpline_dataplane::wire::tcp_rdma::{RdmaOption, Transfer};

pub(super) const ACK: Flags = Flags::ACK;
pub(super) const GUARD: u8 = 0xa5;
pub(super) const NAME: u64 = 0x2abb_ccdd_eeff;
/// Where the buffer begins in its memory, and its octets.
pub(super) const AT: usize = 64;
pub(super) const BUFFER: usize = 300;

/// A receiver with a byte stream, and what its peer has sent.
pub(super) struct Receiver {
    pub(super) peer: RawPeer,
    connection: ConnectionId,
    pub(super) reader: ByteReader,
    pub(super) _writer: ByteWriter,
    /// Octets before and after the buffer are guards.
    pub(super) memory: Region,
    /// The core's next sequence number.
    pub(super) ack: SeqNumber,
    pub(super) stream: Vec<u8>,
    /// Octets of the stream that were read.
    pub(super) position: usize,
}

/// What a reader is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Start,
    Octets(usize),
    /// Of a message before its turn.
    Early(usize),
    Item(ReadItem),
}

pub(super) fn guarded(octets: usize) -> Region {
    let memory = Region::heap(octets).unwrap();
    assert!(memory.write(0, &vec![GUARD; octets]));
    memory
}

pub(super) fn octets_of(memory: &Region) -> Vec<u8> {
    let mut octets = vec![0; memory.len()];
    assert!(memory.read(0, &mut octets));
    octets
}

/// An option about all of a payload of `octets`.
pub(super) fn whole(octets: usize) -> Transfer {
    Transfer {
        rid: rid(NAME),
        message_aligned: false,
        unsolicited: false,
        buffer_offset: 0,
        data_offset: 0,
        data_octets: octets as u16,
        total_octets: None,
    }
}

pub(super) fn accept(peer: &mut RawPeer, option: bool, source_port: u16) -> (ConnectionId, SeqNumber) {
    let rdma = option.then_some(RdmaOption::Permitted);
    let options = Options { mss: Some(1460), rdma, ..Options::default() };
    let syn = Header { options, source_port, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
    peer.inject(&RawPeer::segment(&syn, &[]));
    peer.settle();
    let answer = peer.expect_one();
    let next = answer.header.seq + 1;
    let header = Header { source_port, ..peer.header(ACK, PEER_ISS + 1, next) };
    peer.inject(&RawPeer::segment(&header, &[]));
    peer.settle();
    match peer.events.pop() {
        Some(Event::Accepted { connection, .. }) => (connection, next),
        event => panic!("not accepted: {event:?}"),
    }
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self::with(true, config(4096, 65_536))
    }

    pub(super) fn with(option: bool, config: ByteStreamConfig) -> Self {
        let mut peer = RawPeer::new();
        peer.command(Command::Listen { address: None, port: PORT, backlog: 8, tcp: Some(with_option()) });
        let (connection, ack) = accept(&mut peer, option, crate::common::raw::PEER_PORT);
        let (writer, reader) = attach(&peer.rings, connection, config);
        peer.settle();
        let memory = guarded(AT + BUFFER + AT);
        Self { peer, connection, reader, _writer: writer, memory, ack, stream: Vec::new(), position: 0 }
    }

    /// The application leaves.
    pub(super) fn leave(&mut self) {
        let config = config(4096, 65_536);
        let shared = SharedByteStream::new(0, self.peer.rings.doorbells.clone(), config);
        drop(std::mem::replace(&mut self.reader, ByteReader::new(Arc::new(shared))));
        self.peer.command(Command::Abandon { connection: self.connection, within_ns: SECOND });
        self.peer.settle();
    }

    /// Expects the transfer [`NAME`] in the buffer.
    pub(super) fn expecting() -> Self {
        let mut receiver = Self::new();
        receiver.expect();
        receiver
    }

    pub(super) fn expect(&mut self) {
        assert!(self.reader.expect(rid(NAME), &self.memory, AT, BUFFER));
        self.peer.settle();
        assert!(self.reader.has_settled());
    }

    /// The counters of the stream, which are those of the core, if it has no other.
    #[track_caller]
    pub(super) fn counters(&self) -> TransferCounters {
        let counters = self.reader.shared().transfer_counters();
        assert_eq!(counters, self.peer.core.transfer_counters());
        assert_eq!(counters, self.peer.core.statistics().transfers);
        counters
    }

    /// Makes octets of the stream up to `end`.
    pub(super) fn grow(&mut self, end: usize) {
        let more = pattern(end as u64, end.saturating_sub(self.stream.len()));
        self.stream.extend(more);
    }

    /// Sends the `octets` octets at `at` of the stream with an option.
    pub(super) fn send(&mut self, at: usize, octets: usize, rdma: Option<RdmaOption>) {
        self.grow(at + octets);
        let header = self.peer.header(ACK | Flags::PSH, PEER_ISS + 1 + at as u32, self.ack);
        let options = Options { rdma, ..Options::default() };
        let frame = RawPeer::segment(&Header { options, ..header }, &self.stream[at..at + octets]);
        self.peer.inject(&frame);
        self.peer.settle();
        self.peer.sent.clear();
    }

    /// Sends the next `octets` octets with an option.
    pub(super) fn send_next(&mut self, octets: usize, option: Transfer) {
        self.send(self.stream.len(), octets, Some(RdmaOption::Transfer(option)));
    }

    /// Reads all there is; returns what was told beside octets, which are those of the stream.
    #[track_caller]
    pub(super) fn read(&mut self) -> Vec<ReadItem> {
        let (mut items, mut out) = (Vec::new(), vec![0; 70_000]);
        loop {
            let item = self.reader.read(&mut out, usize::MAX);
            match item {
                ReadItem::Octets(octets) => {
                    assert!(out[..octets] == self.stream[self.position..self.position + octets]);
                    self.position += octets;
                    continue;
                }
                ReadItem::Placed { rid, buffer, offset, octets } => {
                    let octets = octets as usize;
                    let (memory, at) = self.reader.buffer(rid, buffer).expect("a buffer");
                    assert!(memory.read(at + offset as usize, &mut out[..octets]));
                    assert!(out[..octets] == self.stream[self.position..self.position + octets]);
                    self.position += octets;
                }
                ReadItem::Nothing => break,
                _ => {}
            }
            items.push(item);
        }
        items
    }

    /// Reads all there is, and returns what was told in its order.
    #[track_caller]
    pub(super) fn read_with_octets(&mut self) -> Vec<Told> {
        let (mut told, mut out) = (Vec::new(), vec![0; 70_000]);
        let (mut early, mut passing) = (0, false);
        loop {
            let item = self.reader.read(&mut out, usize::MAX);
            match item {
                ReadItem::Octets(octets) => {
                    assert!(out[..octets] == self.stream[self.position..self.position + octets]);
                    self.position += octets;
                    match told.last_mut() {
                        Some(Told::Octets(before)) => *before += octets,
                        _ => told.push(Told::Octets(octets)),
                    }
                }
                ReadItem::EarlyOctets(octets) => {
                    assert!(out[..octets] == self.stream[early..early + octets]);
                    early += octets;
                    told.push(Told::Early(octets));
                }
                ReadItem::MessageStart => {
                    // What was handed out ends where the next message begins.
                    passing = false;
                    told.push(Told::Start);
                }
                ReadItem::Nothing => return told,
                _ => {
                    match item {
                        // Counted with the message.
                        ReadItem::Placed { .. } if passing => {}
                        ReadItem::Placed { octets, .. } => self.position += octets as usize,
                        ReadItem::EarlyMessage { position, .. } => early = position as usize,
                        ReadItem::HandedOut { position, octets } => {
                            assert_eq!(position, self.position as u64);
                            self.position += octets as usize;
                            passing = true;
                        }
                        _ => {}
                    }
                    told.push(Told::Item(item));
                }
            }
        }
    }

    /// All of the stream was read, and no guard was written.
    #[track_caller]
    pub(super) fn is_entire(&mut self) {
        assert_eq!(self.position, self.stream.len(), "all of the stream was read");
        let octets = octets_of(&self.memory);
        let guards = octets[..AT].iter().chain(&octets[AT + BUFFER..]);
        assert!(guards.copied().all(|octet| octet == GUARD), "written outside of the buffer");
    }

    /// Nothing was placed: all octets come from the ring.
    #[track_caller]
    pub(super) fn nothing_is_placed(&mut self) {
        assert_eq!(self.read(), []);
        self.is_entire();
        assert!(octets_of(&self.memory).iter().all(|octet| *octet == GUARD), "the buffer is as before");
    }
}

pub(super) fn placed(offset: u32, octets: u32) -> ReadItem {
    ReadItem::Placed { rid: rid(NAME), buffer: Buffer::Expected, offset, octets }
}

pub(super) fn complete(total_octets: u32) -> ReadItem {
    ReadItem::Complete { rid: rid(NAME), buffer: Buffer::Expected, total_octets }
}
