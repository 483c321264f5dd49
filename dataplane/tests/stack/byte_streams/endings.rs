//! The end of a connection while its reader is behind: octets that were acknowledged are not lost.

use super::receiver::{Receiver, whole};
use super::{attach, config, with_option};
use crate::common::raw::{PEER_ISS, PEER_PORT, RawPeer};
use crate::common::{PORT, pattern};
use warpline_dataplane::byte_stream::{ByteReader, ByteWriter, ReadItem};
use warpline_dataplane::core::Config;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::limits;
use warpline_dataplane::ring::{Command, ConnectionId, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};

const ACK: Flags = Flags::ACK;
const FIN: Flags = Flags::FIN;
const OCTETS: usize = 200_000;

/// Both ends finish, and the reader, whose ring is small, still has most to read. In TIME-WAIT it reads on:
/// the peer, which may be gone, gets no window updates, and a RST of it changes nothing (RFC 1337 §3).
#[test]
fn octets_outlive_time_wait() {
    for resets in [false, true] {
        let mut peer = RawPeer::new();
        peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: Some(with_option()) });
        let options = Options { mss: Some(1460), window_scale: Some(3), ..Options::default() };
        let syn = Header { options, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
        peer.inject(&RawPeer::segment(&syn, &[]));
        peer.settle();
        let next = peer.expect_one().header.seq + 1;
        peer.send(ACK, PEER_ISS + 1, next, &[]);
        let Some(Event::Accepted { connection, .. }) = peer.events.pop() else { panic!("not accepted") };
        let (mut writer, mut reader) = attach(&peer.rings, connection, config(64, 100));
        writer.finish();
        peer.settle();
        // Our FIN is acknowledged, then theirs comes.
        let stream = pattern(3, OCTETS);
        for (index, payload) in stream.chunks(1000).enumerate() {
            let seq = PEER_ISS + 1 + 1000 * index as u32;
            peer.send(ACK, seq, next + 1, payload);
        }
        let end = PEER_ISS + 1 + OCTETS as u32;
        peer.send(FIN | ACK, end, next + 1, &[]);
        peer.pass_ms(50);
        assert_eq!(peer.sent.back().expect("an answer").header.ack, end + 1, "everything is acknowledged");
        peer.sent.clear();
        let (mut read, mut out) = (0, vec![0; OCTETS]);
        while read < OCTETS {
            let octets = reader.read_octets(&mut out[read..]);
            assert!(octets > 0 || !reader.is_finished(), "{read} octets: {:?}", reader.shared().end());
            read += octets;
            peer.settle();
            assert_eq!(peer.sent, [], "the peer needs no window");
            if resets && read > OCTETS / 2 {
                let rst = peer.header(Flags::RST, end + 1, next + 1);
                peer.inject(&RawPeer::segment(&rst, &[]));
                peer.settle();
            }
        }
        assert!(out == stream);
        assert!(reader.is_finished());
    }
}

/// The peer has finished before its connection becomes a byte stream, and the ring takes only a part of what
/// it has sent: the reader finds the end after the last octet, however often it asks in between.
#[test]
fn a_fin_that_control_had_comes_after_the_octets() {
    let mut peer = RawPeer::with(Config { holds_stream: true, ..RawPeer::config() }, 1500);
    peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
    let (connection, next) = open(&mut peer, PEER_PORT);
    let stream = pattern(5, 20_000);
    for (index, payload) in stream.chunks(1000).enumerate() {
        peer.send(ACK, FIRST + 1000 * index as u32, next, payload);
    }
    peer.send(FIN_ACK, FIRST + 20_000, next, &[]);
    let told = |event: &Event| matches!(event, Event::PeerFinished { connection: of } if *of == connection);
    assert_eq!(peer.events.iter().filter(|event| told(event)).count(), 1);
    let (_writer, mut reader) = attach(&peer.rings, connection, config(64, 4096));
    peer.settle();
    let (mut read, mut piece) = (Vec::<u8>::new(), vec![0; 3000]);
    while read.len() < stream.len() {
        for _ in 0..3 {
            match reader.read(&mut piece, usize::MAX) {
                ReadItem::Octets(octets) => read.extend(&piece[..octets]),
                ReadItem::Nothing => {}
                ReadItem::Finished if read.len() == stream.len() => {}
                item => panic!("{item:?} after {} octets: {:?}", read.len(), reader.shared().end()),
            }
        }
        peer.settle();
    }
    assert!(read == stream);
    assert!(matches!(reader.read(&mut piece, usize::MAX), ReadItem::Finished));
}

const RST_ACK: Flags = Flags::RST.union(ACK);
const FIN_ACK: Flags = FIN.union(ACK);
/// The peer's first octet.
const FIRST: SeqNumber = SeqNumber(PEER_ISS.0.wrapping_add(1));
/// The time in which something has to move after an application has left.
const WITHIN_NS: u64 = 5 * SECOND;

/// A byte stream of a core, and the peer of its connection.
struct Accepted {
    peer: RawPeer,
    connection: ConnectionId,
    writer: ByteWriter,
    reader: ByteReader,
    /// The number of the core's first octet.
    next: SeqNumber,
}

impl Accepted {
    fn new() -> Self {
        let mut peer = RawPeer::new();
        peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
        let (connection, next) = open(&mut peer, PEER_PORT);
        let (writer, reader) = attach(&peer.rings, connection, config(1 << 16, 1 << 16));
        peer.settle();
        Self { peer, connection, writer, reader, next }
    }

    fn abandon(&mut self) {
        abandon(&mut self.peer, self.connection);
    }

    /// The peer sends `payload` as its octets from `place` on, and acknowledges those of the core before
    /// `acknowledged`.
    fn send(&mut self, flags: Flags, place: u32, acknowledged: u32, payload: &[u8]) {
        self.peer.send(flags, FIRST + place, self.next + acknowledged, payload);
    }

    /// The core resets the connection, now, and its user is told.
    fn expect_reset(&mut self, reason: CloseReason) {
        assert_eq!(self.peer.expect_one().header.flags, RST_ACK);
        let Some(Event::Closed { reason: actual, .. }) = self.peer.events.pop() else { panic!("not closed") };
        assert_eq!(actual, reason);
        assert_eq!((self.peer.core.usage().connections, self.peer.core.usage().orphans), (0, 0));
    }
}

/// Opens a connection of the peer from `port`. Returns it, and the number of the core's first octet.
fn open(peer: &mut RawPeer, port: u16) -> (ConnectionId, SeqNumber) {
    let options = Options { mss: Some(1460), ..Options::default() };
    let header = |peer: &RawPeer, flags, seq, ack, options| Header {
        source_port: port,
        options,
        ..peer.header(flags, seq, ack)
    };
    peer.inject(&RawPeer::segment(&header(peer, Flags::SYN, PEER_ISS, SeqNumber(0), options), &[]));
    peer.settle();
    let next = peer.expect_one().header.seq + 1;
    peer.inject(&RawPeer::segment(&header(peer, ACK, FIRST, next, Options::default()), &[]));
    peer.settle();
    let Some(Event::Accepted { connection, .. }) = peer.events.pop() else { panic!("not accepted") };
    peer.sent.clear();
    (connection, next)
}

/// The application of `connection` leaves.
fn abandon(peer: &mut RawPeer, connection: ConnectionId) {
    peer.command(Command::Abandon { connection, within_ns: WITHIN_NS });
    peer.settle();
}

/// RFC 9293 §3.6.1, RFC 2525 §2.17: octets that the application has not read are lost, and the peer is told.
#[test]
fn unread_octets_reset_the_connection() {
    // In the ring, beyond a gap, and with the peer's FIN after them.
    for (place, flags) in [(0, ACK), (10, ACK), (0, FIN_ACK)] {
        let mut stream = Accepted::new();
        stream.send(flags, place, 0, &[1; 100]);
        stream.peer.sent.clear();
        stream.peer.events.clear();
        stream.abandon();
        stream.expect_reset(CloseReason::Aborted);
    }
    // Dropped after the reader had left, and before the writer did.
    let mut stream = Accepted::new();
    let Accepted { peer, connection, writer, reader, next } = stream;
    drop(reader);
    stream = Accepted { reader: ByteReader::new(writer.shared().clone()), peer, connection, writer, next };
    stream.send(ACK, 0, 0, &[1; 100]);
    stream.peer.sent.clear();
    stream.abandon();
    stream.expect_reset(CloseReason::Aborted);
}

/// Octets that were placed and not read are lost as those of the ring are when the application leaves, also
/// if its reader has looked at them or read some: the peer is reset (RFC 2525 §2.17).
#[test]
fn placed_octets_that_are_not_read_reset_the_connection() {
    for octets in [0, 10, 100] {
        let mut receiver = Receiver::expecting();
        receiver.send_next(100, whole(100));
        assert!(receiver.reader.is_readable());
        assert_eq!(receiver.reader.read_octets(&mut vec![0; octets]), octets);
        receiver.leave();
        let reset = receiver.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::RST));
        assert_eq!(reset, octets < 100, "{octets} octets were read");
    }
}

/// The same for octets that come after the application has left: in order, beyond a gap, and a FIN beyond
/// one.
#[test]
fn octets_for_nobody_reset_the_connection() {
    for (place, flags, octets) in [(100, ACK, 1), (200, ACK, 1), (200, FIN_ACK, 0), (50, ACK, 51)] {
        let mut stream = Accepted::new();
        stream.send(ACK | Flags::PSH, 0, 0, &[1; 100]);
        assert_eq!(stream.reader.read_octets(&mut [0; 200]), 100);
        stream.peer.sent.clear();
        stream.abandon();
        assert_eq!(stream.peer.expect_one().header.flags, FIN_ACK);
        assert_eq!(stream.peer.core.usage().orphans, 1);
        stream.send(flags, place, 1, &vec![2; octets]);
        stream.expect_reset(CloseReason::Aborted);
        assert_eq!(stream.peer.core.statistics().drops.get(DropCause::AfterClose), 1);
    }
}

/// A peer that ends in an orderly way is not reset: its acknowledgements, octets that come again, and its FIN
/// are no news.
#[test]
fn an_orderly_end_stays_orderly() {
    let mut stream = Accepted::new();
    stream.send(ACK | Flags::PSH, 0, 0, &[1; 100]);
    assert_eq!(stream.reader.read_octets(&mut [0; 200]), 100);
    let written = stream.writer.write(&[3; 1000]);
    assert_eq!(written, 1000);
    stream.writer.finish();
    stream.abandon();
    stream.peer.sent.clear();
    stream.send(ACK, 0, 500, &[1; 100]);
    assert_eq!(stream.peer.expect_one().header.flags, ACK, "a duplicate is acknowledged");
    stream.send(ACK, 100, 1000, &[]);
    stream.peer.sent.clear();
    stream.send(FIN_ACK, 100, 1001, &[]);
    assert_eq!(stream.peer.expect_one().header.ack, FIRST + 101);
    let closed = stream.peer.events.pop();
    assert!(matches!(closed, Some(Event::Closed { reason: CloseReason::Finished, .. })), "{closed:?}");
    let usage = stream.peer.core.usage();
    assert_eq!((usage.connections, usage.orphans, usage.time_waits), (0, 0, 1));
}

/// An application may leave at once: all that it has written goes before the FIN, also what the core has not
/// accepted yet, because it holds as many pieces as it may.
#[test]
fn all_that_was_written_goes_before_the_fin() {
    let mut stream = Accepted::new();
    let mut written = 0;
    for pieces in [limits::BYTE_STREAM_PIECES, 76] {
        for _ in 0..pieces {
            written += stream.writer.write(&[3]) as u32;
            stream.writer.commit();
        }
        stream.peer.settle();
    }
    stream.writer.finish();
    stream.abandon();
    let (mut received, mut has_finished) = (0, false);
    for _ in 0..50 {
        for sent in stream.peer.sent.drain(..) {
            let end = sent.header.seq + sent.payload.len() as u32;
            received = received.max((end - stream.next) as u32);
            has_finished |= sent.header.flags.contains(FIN);
        }
        if has_finished {
            break;
        }
        stream.send(ACK, 0, received, &[]);
    }
    assert_eq!((received, has_finished), (written, true));
    assert_eq!(written as usize, limits::BYTE_STREAM_PIECES + 76);
}

/// A peer that acknowledges an octet every four seconds always makes progress, and still holds a connection
/// that its application has left no longer than the deadline.
#[test]
fn an_orphan_has_a_deadline() {
    let mut stream = Accepted::new();
    let written = stream.writer.write(&[3; 10_000]);
    assert_eq!(written, 10_000);
    stream.writer.finish();
    stream.abandon();
    let (from, mut acknowledged) = (stream.peer.now, 0);
    let reset = |peer: &RawPeer| peer.sent.iter().any(|sent| sent.header.flags == RST_ACK);
    while !reset(&stream.peer) {
        let after_s = (stream.peer.now - from) / SECOND;
        assert!(after_s <= limits::ORPHAN_NS / SECOND, "it lives after {after_s} s");
        acknowledged += 1;
        stream.peer.send_with_window(1000, FIRST, stream.next + acknowledged);
        stream.peer.pass_s(4);
    }
    assert!(stream.peer.now - from >= limits::ORPHAN_NS, "it had its time");
    let closed = stream.peer.events.pop();
    assert!(matches!(closed, Some(Event::Closed { reason: CloseReason::TimedOut, .. })), "{closed:?}");
    assert_eq!((stream.peer.core.usage().connections, stream.peer.core.usage().orphans), (0, 0));
}

/// One address holds few places with connections that applications have left.
#[test]
fn orphans_of_one_address_are_bounded() {
    let tables = Tables { connections: 64, ..Tables::default() };
    let most = tables.connections / limits::ORPHAN_PART_OF_ADDRESS;
    let mut peer = RawPeer::with_tables(RawPeer::config(), 1500, tables);
    peer.command(Command::Listen { address: None, port: PORT, backlog: 16, tcp: None });
    let mut streams = Vec::new();
    for port in 0..most as u16 + 2 {
        let (connection, _) = open(&mut peer, PEER_PORT + port);
        streams.push((connection, attach(&peer.rings, connection, config(4096, 4096))));
        peer.settle();
    }
    for (index, (connection, _)) in streams.iter().enumerate() {
        abandon(&mut peer, *connection);
        let flags = peer.expect_one().header.flags;
        assert_eq!(flags, if index < most { FIN_ACK } else { RST_ACK }, "number {index}");
    }
    assert_eq!((peer.core.usage().orphans, peer.core.usage().connections), (most, most));
    // They let go of their places when they end.
    peer.pass_ms(2 * WITHIN_NS / 1_000_000);
    assert_eq!((peer.core.usage().orphans, peer.core.usage().connections), (0, 0));
}
