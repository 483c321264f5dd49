//! Tests of peers that hold as many frames as they can and consume an octet now and then: those who hold most
//! are failed, whatever they consume, and nobody below a fair share; peers before Full Operation share a part
//! of the frames among themselves.

use super::{FEW, PAYLOAD_OCTETS, Remote, Stranger, World, expect_to_thrive};
use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PD, pattern};
use std::sync::Arc;
use warpline_dataplane::byte_stream::{ByteReader, ByteStreamConfig, ReadItem, SharedByteStream};
use warpline_dataplane::core::Config;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::payload::Slice;
use warpline_dataplane::qp::work::ReceiveRequest;
use warpline_dataplane::ring::{Command, ConnectionId, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{MILLISECOND, SECOND};
use warpline_dataplane::wire::tcp::{Flags, SeqNumber};

const RING_OCTETS: usize = 65_536;
const INBOX: STag = STag::new(3, 0x3333);

impl Stranger {
    /// Sends `octets` from place `at` of its stream on.
    fn sends(&self, world: &mut World, at: u32, octets: &[u8]) {
        world.inject(self.port, Flags::ACK, PEER_ISS + 1 + at, self.ack, octets);
        world.peer.sent.clear();
    }

    /// Sends every other one of the octets from 1 to `2 * count`: none can be consumed.
    fn crowds(&self, world: &mut World, count: u32) {
        for n in 0..count {
            self.sends(world, 2 * n + 1, b"x");
        }
    }

    /// Sends the octets that are missing first: `fill` of them, after `filled` before. As many that have
    /// waited are consumed with them.
    fn trickles(&self, world: &mut World, filled: u32, fill: u32) {
        for n in filled..filled + fill {
            self.sends(world, 2 * n, b"y");
        }
    }
}

/// A byte stream whose application does not read, and which has a whole window of acknowledged octets.
fn paused_reader(world: &mut World, segment_octets: usize) -> (Stranger, ByteReader, usize) {
    let mut stranger = world.accept();
    let rings = [4096, RING_OCTETS].map(|octets| Region::heap(octets).unwrap());
    let [send_ring, receive_ring] = rings;
    let config = ByteStreamConfig::new(send_ring, receive_ring);
    let (connection, doorbells) = (stranger.connection, world.peer.rings.doorbells.clone());
    let stream = Arc::new(SharedByteStream::new(connection.slot(), doorbells, config));
    world.peer.command(Command::AttachByteStream { connection, stream: stream.clone() });
    world.peer.come_to_rest();
    // The ring takes half of them; the others fill a window without a scale.
    let octets = 2 * RING_OCTETS - 2 * PAYLOAD_OCTETS;
    let data = pattern(7, octets);
    let mut at = SeqNumber(0);
    for (n, part) in data.chunks(segment_octets).enumerate() {
        let seq = PEER_ISS + 1 + (n * segment_octets) as u32;
        world.inject(stranger.port, Flags::ACK, seq, stranger.ack, part);
        at = seq + part.len() as u32;
    }
    world.peer.pass_ms(50);
    let answer = world.peer.sent.drain(..).next_back().expect("an acknowledgement");
    assert_eq!((answer.header.destination_port, answer.header.ack), (stranger.port, at));
    stranger.ack = answer.header.seq;
    (stranger, ByteReader::new(stream), octets)
}

/// The application goes on, and finds every octet that was acknowledged.
fn read_all(world: &mut World, reader: &mut ByteReader, octets: usize) {
    let (mut read, mut piece) = (Vec::<u8>::new(), vec![0; 8192]);
    while read.len() < octets {
        match reader.read(&mut piece, usize::MAX) {
            ReadItem::Octets(count) if count > 0 => read.extend(&piece[..count]),
            _ => {
                let before = read.len();
                world.peer.pass_ms(1);
                let count = match reader.read(&mut piece, usize::MAX) {
                    ReadItem::Octets(count) => count,
                    item => panic!("{item:?} after {before} octets"),
                };
                assert!(count > 0, "{before} octets of {octets}");
                read.extend(&piece[..count]);
            }
        }
    }
    assert!(read == pattern(7, octets), "not what was sent");
}

fn is_closed(world: &World, connection: ConnectionId) -> bool {
    let closed =
        |event: &Event| matches!(event, Event::Closed { connection: named, .. } if *named == connection);
    world.peer.events.iter().any(closed)
}

/// Streaming octets of the connection have reached control.
fn is_heard(world: &World, connection: ConnectionId) -> bool {
    let named = |event: &Event| matches!(event, Event::Stream { connection: of, .. } if *of == connection);
    world.peer.events.iter().any(named)
}

/// Four peers before Full Operation each hold as many frames beyond gaps as they are let, and consume an
/// octet every two seconds. A byte stream whose reader pauses and a queue pair that waits for a receive keep
/// their acknowledged octets however long that lasts, and others are not held up.
#[test]
fn strangers_before_startup_do_not_crowd_out_tenants() {
    let mut world = World::new(Tables::default());
    let (stranger, mut reader, octets) = paused_reader(&mut world, PAYLOAD_OCTETS);
    let waiting = world.open_and_wait();
    let held_by_tenants = world.held();
    assert!(held_by_tenants > 40, "{held_by_tenants} frames");
    let strangers: Vec<_> = (0..4).map(|_| world.accept()).collect();
    for stranger in &strangers {
        stranger.crowds(&mut world, 1900);
    }
    let bound = limits::HELD_FRAMES_PER_CORE / limits::HELD_PART_IN_STARTUP;
    for round in 0..20 {
        world.peer.now += 2 * SECOND;
        for stranger in &strangers {
            stranger.trickles(&mut world, round, 1);
            // What was refused comes again.
            for n in 1500..1600 {
                stranger.sends(&mut world, 2 * n + 1, b"x");
            }
        }
        assert!(world.held() <= held_by_tenants + bound, "{} frames held", world.held());
        assert!(world.held() > held_by_tenants + bound / 2, "{} frames held", world.held());
    }
    assert_eq!(waiting.qp.error(), None);
    assert!(!is_closed(&world, stranger.connection) && !is_closed(&world, waiting.connection));
    let mut remote = world.open();
    let before = world.short_of_frames();
    expect_to_thrive(&mut world, &mut remote);
    assert_eq!(world.short_of_frames(), before);
    read_all(&mut world, &mut reader, octets);
    let grant = Grant::new(Region::heap(4096).unwrap(), PD, 0, Access::LOCAL_WRITE);
    world.peer.command(Command::Register { stag: INBOX, grant });
    world.peer.come_to_rest();
    let inbox = Slice { stag: INBOX, to: 0, len: 4096 };
    waiting.qp.post_receive(ReceiveRequest::new(1, inbox)).unwrap();
    world.peer.pass_ms(1);
    let done = world.completions.poll().expect("the message that waited");
    assert_eq!((done.id, done.byte_len), (1, 100));
    // The next one opens as if the strangers were not there.
    let next = world.accept();
    next.sends(&mut world, 0, b"a startup frame");
    assert!(is_heard(&world, next.connection));
}

/// A connection in Full Operation holds most, and consumes an FPDU every second. When another finds no frame,
/// it is the one that is failed: no connection that has a frame or two, and no message that waits for its
/// receive, is.
#[test]
fn who_holds_most_is_failed_although_it_consumes() {
    let mut world = World::new(FEW);
    let mut remote = world.open();
    let waiting = world.open_and_wait();
    let mut hog = world.open();
    let small: Vec<_> = (0..20).map(|_| world.fpdu(&mut hog, 8)).collect();
    let (seq, fpdu) = world.fpdu(&mut hog, 60_000);
    for (n, part) in fpdu.chunks(300).enumerate().skip(1) {
        world.arrives(&hog, seq + n as u32 * 300, part);
    }
    let held = world.held();
    assert!(held > FEW.held_frames / 2, "{held} frames");
    let silent: Vec<_> = (0..60).map(|_| world.open_and_fall_silent()).collect();
    assert!(world.held() >= FEW.held_frames - FEW.held_frames / 8 - 1);
    let (seq, fpdu) = world.fpdu(&mut remote, PAYLOAD_OCTETS);
    world.peer.sent.clear();
    let mut tries = 0;
    while world.acknowledged(&remote) != Some(seq + 500) {
        if tries % 10 == 0 {
            let (seq, fpdu) = &small[tries / 10];
            world.arrives(&hog, *seq, fpdu);
        }
        world.peer.now += 100 * MILLISECOND;
        world.peer.sent.clear();
        world.arrives(&remote, seq, &fpdu[..500]);
        tries += 1;
        assert!(tries < 100, "never");
    }
    assert!(tries as u64 * 100 * MILLISECOND >= limits::HELD_PATIENCE_NS, "{tries} tries");
    world.arrives(&remote, seq + 500, &fpdu[500..]);
    assert_eq!(hog.qp.error(), Some(StreamError::Mpa(MpaError::LocalCatastrophic)));
    let spared = silent.iter().chain([&waiting, &remote]);
    assert!(spared.into_iter().all(|Remote { qp, .. }| qp.error().is_none()), "nobody else had to be");
    assert_eq!(world.peer.core.statistics().dropped(DropCause::HeldTooLong), 1);
}

/// Octets of connections before Full Operation stay where the application does not consume them. When those
/// hold all the frames that they may have, a newcomer takes the place of one of them, and not of a connection
/// in Full Operation.
#[test]
fn strangers_compete_among_themselves() {
    let config = Config { holds_stream: true, ..RawPeer::config() };
    let mut world = World::with(config, FEW);
    let silent: Vec<_> = (0..20).map(|_| world.open_and_fall_silent()).collect();
    let bound = FEW.held_frames / limits::HELD_PART_IN_STARTUP;
    let strangers: Vec<_> = (0..2 * bound).map(|_| world.accept()).collect();
    for stranger in &strangers {
        stranger.sends(&mut world, 0, b"octets");
    }
    assert_eq!(world.held(), silent.len() + bound, "all that they may have");
    let newcomer = world.accept();
    let mut tries = 0;
    while !is_heard(&world, newcomer.connection) {
        world.peer.now += 100 * MILLISECOND;
        newcomer.sends(&mut world, 0, b"a startup frame");
        tries += 1;
        assert!(tries < 100, "never");
    }
    assert!(silent.iter().all(|remote| remote.qp.error().is_none()), "they have nothing to do with it");
    let failed = strangers.iter().filter(|stranger| is_closed(&world, stranger.connection)).count();
    assert!((1..=bound / 4).contains(&failed), "{failed} failed");
    assert_eq!(world.peer.core.statistics().dropped(DropCause::HeldTooLong), failed as u64);
}

/// A reader pauses where frames are too few for each segment of a window to have one of its own: segments
/// share frames, none is refused, and all octets are there when the reader goes on.
#[test]
fn segments_share_frames_that_are_short() {
    for segment_octets in [513, 600, 700] {
        let mut world = World::new(FEW);
        let (_, mut reader, octets) = paused_reader(&mut world, segment_octets);
        let held_octets = octets - RING_OCTETS;
        assert!(held_octets / segment_octets > FEW.held_frames * 5 / 8, "one or two to a frame");
        assert!(world.held() <= held_octets / segment_octets * 5 / 8, "{} frames", world.held());
        assert_eq!(world.short_of_frames(), 0);
        read_all(&mut world, &mut reader, octets);
    }
}

/// Both ends of a byte stream have finished, and its reader, which pauses, has not read all. When frames are
/// short it loses its place, and its application is told that the stream was cut off: not that it has ended.
#[test]
fn a_finished_stream_that_loses_octets_is_aborted() {
    let mut world = World::new(Tables { held_frames: 256, ..FEW });
    let (stranger, reader, octets) = paused_reader(&mut world, PAYLOAD_OCTETS);
    let end = PEER_ISS + 1 + octets as u32;
    world.inject(stranger.port, Flags::FIN | Flags::ACK, end, stranger.ack, &[]);
    world.peer.command(Command::Disconnect { connection: stranger.connection, within_ns: None });
    world.peer.come_to_rest();
    world.inject(stranger.port, Flags::ACK, end + 1, stranger.ack + 1, &[]);
    assert!(!is_closed(&world, stranger.connection), "its reader has octets to read");
    let silent: Vec<_> = (0..180).map(|_| world.open_and_fall_silent()).collect();
    let mut remote = world.open();
    let (seq, fpdu) = world.fpdu(&mut remote, PAYLOAD_OCTETS);
    assert!(world.held() > 192, "{} frames", world.held());
    let mut tries = 0;
    while world.peer.core.statistics().dropped(DropCause::HeldTooLong) == 0 {
        world.peer.now += 100 * MILLISECOND;
        world.arrives(&remote, seq, &fpdu[..500]);
        tries += 1;
        assert!(tries < 100, "never");
    }
    assert!(silent.iter().all(|remote| remote.qp.error().is_none()), "the stream holds more");
    assert!(is_closed(&world, stranger.connection));
    assert_eq!(reader.shared().end(), Some(CloseReason::Aborted));
}
