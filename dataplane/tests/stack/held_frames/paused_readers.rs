//! Tests of many readers that pause together: what their windows offer is held, and when they go on, nothing
//! waits for a retransmission timeout.

use crate::common::{PORT, Pair, address, address_v6, pattern};
use std::net::SocketAddr;
use std::sync::Arc;
use warpline_dataplane::byte_stream::{ByteReader, ByteStreamConfig, ByteWriter, ReadItem, SharedByteStream};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::device::sim::EndConfig;
use warpline_dataplane::limits;
use warpline_dataplane::memory::Region;
use warpline_dataplane::ring::{Command, ConnectionId, Event, Rings};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::SECOND;

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
};

struct Stream {
    /// That of its writer.
    connection: ConnectionId,
    writer: ByteWriter,
    reader: ByteReader,
    data: Vec<u8>,
    written: usize,
    read: usize,
}

fn attach(rings: &Rings, connection: ConnectionId, octets: [usize; 2]) -> Arc<SharedByteStream> {
    let [send, receive] = octets.map(|octets| Region::heap(octets).unwrap());
    let config = ByteStreamConfig::new(send, receive);
    let stream = Arc::new(SharedByteStream::new(connection.to_bits(), rings.doorbells.clone(), config));
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
        let pair = Pair::with_config(3, a, b, tables, |config| config.window_bytes = self.window_bytes);
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
            });
            let open = pair
                .run_until(60, |pair| opened(&pair.a.events).len() > n && opened(&pair.b.events).len() > n);
            assert!(open, "no connection");
            let (ours, theirs) = (opened(&pair.a.events)[n], opened(&pair.b.events)[n]);
            let writer = ByteWriter::new(attach(&pair.a.rings, ours, [self.octets, 64]));
            let reader = ByteReader::new(attach(&pair.b.rings, theirs, [64, self.ring_octets]));
            let data = pattern(n as u64, self.octets);
            streams.push(Stream { connection: ours, writer, reader, data, written: 0, read: 0 });
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
        while streams.iter().any(|stream| stream.written < self.octets) {
            for stream in streams.iter_mut().filter(|stream| stream.written < self.octets) {
                let octets = piece.next().unwrap().min(self.octets - stream.written);
                assert_eq!(stream.writer.write(&stream.data[stream.written..][..octets]), octets);
                stream.writer.commit();
                stream.written += octets;
            }
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
                while let ReadItem::Octets(count) = stream.reader.read(&mut out, usize::MAX)
                    && count > 0
                {
                    assert_eq!(out[..count], stream.data[stream.read..][..count]);
                    stream.read += count;
                }
            }
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
