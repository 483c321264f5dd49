//! Tests of many readers that pause together: what their windows offer is held, and when they go on, nothing
//! waits for a retransmission timeout.

use crate::common::{PORT, Pair, address, address_v6, pattern};
use std::net::SocketAddr;
use std::sync::Arc;
use warpline_dataplane::byte_stream::{
    Annotation, ByteReader, ByteStreamConfig, ByteWriter, Section, SharedByteStream,
};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::device::sim::EndConfig;
use warpline_dataplane::limits;
use warpline_dataplane::memory::Region;
use warpline_dataplane::ring::{Command, ConnectionId, Event, Rings};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp_rdma::Rid;

/// The transfers of a stream.
const NAMES: [Rid; 2] = [Rid::new(1).unwrap(), Rid::new(2).unwrap()];

/// Streams from one host to another, whose readers pause.
#[derive(Clone, Copy)]
struct Crowd {
    streams: usize,
    held_frames: usize,
    window_bytes: u32,
    ring_octets: usize,
    /// Octets that each writer has to send: more than the window.
    octets: usize,
    /// The largest packet that writers send.
    mtu_bytes: usize,
    ipv6: bool,
    /// Octets written at a time: each piece is sent as it is written.
    pieces: &'static [usize],
    /// The ends use the TCP RDMA option, and one piece after the other is of another of two transfers that
    /// the reader expects: each has a record.
    transfers: bool,
}

const CROWD: Crowd = Crowd {
    streams: 24,
    held_frames: 1024,
    window_bytes: 256 << 10,
    ring_octets: 64 << 10,
    octets: 400 << 10,
    mtu_bytes: 1500,
    ipv6: false,
    pieces: &[400 << 10],
    transfers: false,
};

struct Stream {
    /// That of its writer.
    connection: ConnectionId,
    writer: ByteWriter,
    reader: ByteReader,
    data: Vec<u8>,
    written: usize,
    read: usize,
    /// The transfer of the next piece, how far it has come, and the other.
    name: Rid,
    transfers: [u32; 2],
}

impl Stream {
    /// Writes a piece, of another transfer than the one before if `transfers` is set. Returns false if the
    /// stream has no room for it.
    fn write(&mut self, octets: usize, transfers: bool) -> bool {
        let [next, last] = self.transfers;
        let pieces = usize::from(self.name == NAMES[1]);
        let section = transfers.then_some((Section::solicited(NAMES[pieces], None), next));
        let annotation = Annotation { starts_message: false, section };
        let written = self.writer.write_annotated(annotation, &self.data[self.written..][..octets]);
        self.writer.commit();
        if written > 0 {
            assert_eq!(written, octets);
            self.written += octets;
            self.transfers = [last, next + octets as u32];
            self.name = NAMES[1 - pieces];
        }
        written > 0
    }
}

fn attach(rings: &Rings, connection: ConnectionId, octets: [usize; 2]) -> Arc<SharedByteStream> {
    let [send, receive] = octets.map(|octets| Region::heap(octets).unwrap());
    let config = ByteStreamConfig::new(send, receive);
    let stream = Arc::new(SharedByteStream::new(connection.slot(), rings.doorbells.clone(), config));
    let command = Command::AttachByteStream { connection, stream: stream.clone() };
    assert!(rings.commands.push(command).is_ok(), "command ring full");
    stream
}

/// Returns the connections that have opened so far.
fn opened(events: &[Event]) -> Vec<ConnectionId> {
    let connection = |event: &Event| match event {
        Event::Accepted { connection, .. } | Event::Connected { connection, .. } => Some(*connection),
        _ => None,
    };
    events.iter().filter_map(connection).collect()
}

impl Crowd {
    fn pair(&self) -> Pair {
        let tables = Tables { held_frames: self.held_frames, ..Tables::default() };
        // The frames of the reader's host have room for full segments, as those of its device have.
        let (a, b) = (EndConfig { mtu_bytes: self.mtu_bytes, ..EndConfig::a() }, EndConfig::b());
        let pair = Pair::with_config(3, a, b, tables, |config| {
            config.window_bytes = self.window_bytes;
            config.tcp.rdma_option = self.transfers;
        });
        pair.b.command(Command::Listen { address: None, port: PORT, backlog: 1000, tcp: None });
        pair
    }

    fn open(&self, pair: &mut Pair) -> Vec<Stream> {
        (pair.a.events, pair.b.events) = (Vec::new(), Vec::new());
        let remote = if self.ipv6 { address_v6(2).into() } else { address(2).into() };
        let mut streams = Vec::new();
        for n in 0..self.streams {
            pair.a.command(Command::Connect {
                token: n as u64,
                local: None,
                remote: SocketAddr::new(remote, PORT),
                timeout_ns: 60 * SECOND,
                tcp: None,
                octets: Box::default(),
            });
            let open = pair
                .run_until(60, |pair| opened(&pair.a.events).len() > n && opened(&pair.b.events).len() > n);
            assert!(open, "no connection");
            let (ours, theirs) = (opened(&pair.a.events)[n], opened(&pair.b.events)[n]);
            let writer = ByteWriter::new(attach(&pair.a.rings, ours, [self.octets, 64]));
            let mut reader = ByteReader::new(attach(&pair.b.rings, theirs, [64, self.ring_octets]));
            if self.transfers {
                let memory = Region::heap(2 * self.octets).unwrap();
                let expects =
                    |half: usize| reader.expect(NAMES[half], &memory, half * self.octets, self.octets);
                assert_eq!([0, 1].map(expects), [true; 2]);
            }
            let data = pattern(n as u64, self.octets);
            streams.push(Stream {
                connection: ours,
                writer,
                reader,
                data,
                written: 0,
                read: 0,
                name: NAMES[0],
                transfers: [0; 2],
            });
            pair.step();
        }
        streams
    }

    fn run(&self) {
        self.run_on(&mut self.pair());
    }

    /// All readers pause while as much comes as their windows offer. Then they go on.
    fn run_on(&self, pair: &mut Pair) {
        let mut streams = self.open(pair);
        let mut piece = self.pieces.iter().copied().cycle();
        let mut write = |streams: &mut [Stream]| {
            let mut has_written = false;
            for stream in streams.iter_mut().filter(|stream| stream.written < self.octets) {
                let octets = piece.next().unwrap().min(self.octets - stream.written);
                has_written |= stream.write(octets, self.transfers);
            }
            has_written
        };
        // Some pieces may wait until others are acknowledged.
        let mut waited = 0;
        while waited < 100 {
            waited = if write(&mut streams) { 0 } else { waited + 1 };
            pair.step();
        }
        pair.run_for(3);
        let dropped = |pair: &Pair| pair.b.core.statistics().dropped(DropCause::NoRoomForFrame);
        let timeouts = |pair: &Pair| pair.a.core.statistics().tcp.timeouts;
        let held = pair.b.core.usage().held_frames;
        assert_eq!((dropped(pair), timeouts(pair)), (0, 0), "{held} frames held");
        // What lies in a ring alone would not be a test of frames.
        assert!(held > self.held_frames / 8, "{held} frames held");
        let begun = pair.now;
        let mut out = vec![0; 1 << 16];
        while streams.iter().any(|stream| stream.read < self.octets) {
            for stream in &mut streams {
                let count = stream.reader.read_octets(&mut out);
                assert!(out[..count] == stream.data[stream.read..][..count], "after {}", stream.read);
                stream.read += count;
            }
            write(&mut streams);
            pair.step();
            let waited_ns = pair.now - begun;
            assert!(waited_ns < limits::MIN_RTO_NS, "{waited_ns} ns, {} timeouts", timeouts(pair));
        }
        assert_eq!((dropped(pair), timeouts(pair)), (0, 0));
        for Stream { connection, .. } in streams {
            pair.a.command(Command::Abort { connection });
            pair.step();
        }
        pair.run_for(1);
    }
}

/// When the streams have ended, there is as much for the next ones.
#[test]
fn what_the_windows_of_paused_readers_offer_is_held() {
    let mut pair = CROWD.pair();
    for _ in 0..4 {
        CROWD.run_on(&mut pair);
    }
}

#[test]
fn the_same_in_segments_of_536_octets() {
    Crowd { mtu_bytes: 576, ..CROWD }.run();
}

#[test]
fn the_same_in_segments_of_mixed_lengths() {
    Crowd { pieces: &[1460, 700, 1, 731, 513, 1460, 90], octets: 300 << 10, ..CROWD }.run();
}

#[test]
fn the_same_over_ipv6() {
    Crowd { ipv6: true, ..CROWD }.run();
}

/// With the TCP RDMA option a window is as large as without it, also where frames are few.
#[test]
fn the_window_of_an_annotated_stream_counts_its_ring() {
    let offered = [false, true].map(|transfers| {
        let few =
            Crowd { streams: 1, held_frames: 64, window_bytes: 256 << 10, ring_octets: 1 << 20, ..CROWD };
        let crowd = Crowd { transfers, pieces: &[1000], ..few };
        let mut pair = crowd.pair();
        let mut streams = crowd.open(&mut pair);
        for _ in 0..100 {
            assert!(streams[0].write(1000, transfers));
            pair.run_for(1);
            assert_eq!(streams[0].reader.read_octets(&mut [0; 2000]), 1000);
        }
        let connection = pair.a.core.tcp(streams[0].connection).expect("it is open");
        connection.snapshot().peer_window_bytes
    });
    assert!(offered[0] > 250 << 10 && offered[1] >= offered[0], "{offered:?}");
}

/// Of annotated streams, too, the window counts the ring, also where there are more pieces than records.
#[test]
fn the_same_in_pieces_of_two_transfers() {
    Crowd { transfers: true, octets: 300 << 10, pieces: &[300, 100, 70, 1200], ..CROWD }.run();
}

/// A window much larger than what frames of a connection hold.
#[test]
fn a_window_above_what_frames_hold_is_not_offered() {
    for mtu_bytes in [576, 1500] {
        let window_bytes = 16 << 20;
        Crowd {
            streams: 2,
            held_frames: limits::HELD_FRAMES_PER_CORE,
            window_bytes,
            octets: 12 << 20,
            pieces: &[12 << 20],
            mtu_bytes,
            ..CROWD
        }
        .run();
    }
}

/// More readers pause than there are frames for a few segments of each.
#[test]
fn a_thousand_paused_readers_keep_what_was_offered() {
    let few = Crowd { streams: 1000, held_frames: limits::HELD_FRAMES_PER_CORE, octets: 100 << 10, ..CROWD };
    Crowd { window_bytes: 96 << 10, pieces: &[100 << 10], ..few }.run();
}
