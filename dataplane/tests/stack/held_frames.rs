//! Tests of peers that send half an FPDU and fall silent, on the maximum number of connections: the frames
//! that they make a core hold are bounded, no other connection is affected, and when frames are short, these
//! connections are failed.

mod crowds;
mod gaps_of_streams;
mod paused_readers;

use std::sync::Arc;

use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PD, PORT, holds, region_of};
use crate::reference::mpa::{Sender, Stream};
use warpline_dataplane::core::Config;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Grant, STag};
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QpState, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::QpNumber;
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event, FullOperation};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{MILLISECOND, SECOND};
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

const SINK: STag = STag::new(2, 0x2222);
const SINK_OCTETS: usize = 1 << 20;
const PAYLOAD_OCTETS: usize = 1400;
const MARKERS: bool = true;

/// A connection's peer, and the octets it has sent.
struct Remote {
    port: u16,
    connection: ConnectionId,
    qp: Arc<SharedQp>,
    sender: Sender,
    /// Octets of payload sent so far: where the next go.
    written: usize,
    ack: SeqNumber,
}

/// A connection's peer before Full Operation.
struct Stranger {
    port: u16,
    connection: ConnectionId,
    ack: SeqNumber,
}

struct World {
    peer: RawPeer,
    completions: Arc<CompletionRing>,
    data: Vec<u8>,
    sink: warpline_dataplane::memory::Region,
    next_port: u16,
}

impl World {
    fn new(tables: Tables) -> Self {
        Self::with(RawPeer::config(), tables)
    }

    fn with(config: Config, tables: Tables) -> Self {
        let peer = RawPeer::with_tables(config, 1500, tables);
        let data = crate::common::pattern(1, SINK_OCTETS);
        let sink = region_of(&vec![0; SINK_OCTETS]);
        let grant = Grant::new(sink.clone(), PD, 0, Access::REMOTE_WRITE);
        peer.command(Command::Register { stag: SINK, grant });
        peer.command(Command::Listen { address: None, port: PORT, backlog: u32::MAX, tcp: None });
        Self { peer, completions: Arc::new(CompletionRing::new(1)), data, sink, next_port: 10_000 }
    }

    fn inject(&mut self, port: u16, flags: Flags, seq: SeqNumber, ack: SeqNumber, payload: &[u8]) {
        let mut header = self.peer.header(flags, seq, ack);
        (header.source_port, header.destination_port) = (port, PORT);
        if flags.contains(Flags::SYN) {
            header.options = Options { sack_permitted: true, ..Options::default() };
        }
        self.peer.inject(&RawPeer::segment(&header, payload));
        self.peer.come_to_rest();
    }

    /// A connection in Full Operation, the core being the Responder.
    fn open(&mut self) -> Remote {
        self.open_with(None)
    }

    /// A connection before Full Operation.
    fn accept(&mut self) -> Stranger {
        let port = self.next_port;
        self.next_port += 1;
        self.inject(port, Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
        let ack = self.peer.sent.drain(..).next_back().expect("a SYN in answer").header.seq + 1;
        self.inject(port, Flags::ACK, PEER_ISS + 1, ack, &[]);
        let accepted = self.peer.events.drain(..).find_map(|event| match event {
            Event::Accepted { connection, .. } => Some(connection),
            _ => None,
        });
        Stranger { port, connection: accepted.expect("a connection"), ack }
    }

    /// A connection in Full Operation; a Send without a receive waits.
    fn open_with(&mut self, receive_wait_ns: Option<u64>) -> Remote {
        let Stranger { port, connection, ack } = self.accept();
        let number = QpNumber(u32::from(port) - 10_000);
        let rings = CompletionRings::shared(self.completions.clone());
        let qp = Arc::new(SharedQp::new(
            number,
            PD,
            QueueDepths { send: 1, receive: 1 },
            rings,
            self.peer.rings.doorbells.clone(),
        ));
        let base = FullOperation { receive_wait_ns, ..FullOperation::new(false) };
        let operation = FullOperation { markers_received: MARKERS, ..base };
        let then = AfterStream::FullOperation { qp: qp.clone(), operation };
        self.peer.command(Command::Stream { connection, octets: Box::new([]), then });
        self.peer.come_to_rest();
        let stream = Stream { start: (PEER_ISS + 1).0, markers: MARKERS, crc: true };
        Remote { port, connection, qp, sender: Sender::new(stream), written: 0, ack }
    }

    /// The next FPDU of `remote`, a Write of the next octets of the pattern, and where it begins.
    fn fpdu(&self, remote: &mut Remote, octets: usize) -> (SeqNumber, Vec<u8>) {
        let mut ulpdu = vec![0xc1, 0x40];
        ulpdu.extend(SINK.0.to_be_bytes());
        ulpdu.extend((remote.written as u64).to_be_bytes());
        ulpdu.extend(&self.data[remote.written..][..octets]);
        remote.written += octets;
        let seq = SeqNumber(remote.sender.seq);
        let mut fpdu = Vec::new();
        remote.sender.frame(&ulpdu, &mut fpdu);
        (seq, fpdu)
    }

    fn arrives(&mut self, remote: &Remote, seq: SeqNumber, octets: &[u8]) {
        self.inject(remote.port, Flags::ACK, seq, remote.ack, octets);
    }

    /// Returns the core's last acknowledgement to `remote`.
    fn acknowledged(&mut self, remote: &Remote) -> Option<SeqNumber> {
        let mut to_it = self.peer.sent.drain(..).filter(|sent| sent.header.destination_port == remote.port);
        to_it.next_back().map(|sent| sent.header.ack)
    }

    fn short_of_frames(&self) -> u64 {
        self.peer.core.statistics().dropped(DropCause::NoRoomForFrame)
    }

    fn held(&self) -> usize {
        self.peer.core.usage().held_frames
    }

    /// Half an FPDU arrives of a new connection, and then nothing more.
    fn open_and_fall_silent(&mut self) -> Remote {
        let mut remote = self.open();
        let (seq, fpdu) = self.fpdu(&mut remote, PAYLOAD_OCTETS);
        self.arrives(&remote, seq, &fpdu[..700]);
        remote
    }

    /// A Send arrives of a new connection that has no receive for it.
    fn open_and_wait(&mut self) -> Remote {
        let mut remote = self.open_with(Some(3600 * SECOND));
        let mut ulpdu = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        ulpdu.extend([7; 100]);
        let (seq, mut fpdu) = (SeqNumber(remote.sender.seq), Vec::new());
        remote.sender.frame(&ulpdu, &mut fpdu);
        self.arrives(&remote, seq, &fpdu);
        remote
    }

    #[track_caller]
    fn expect_placed(&self, remote: &Remote) {
        assert!(holds(&self.sink, 0, &self.data[..remote.written]));
        assert_eq!(remote.qp.error(), None);
    }
}

/// FPDUs whole in one segment, in two segments, and beyond gaps: all of it is taken at once.
fn expect_to_thrive(world: &mut World, remote: &mut Remote) {
    let short = world.short_of_frames();
    let first = remote.written;
    for _ in 0..20 {
        let (seq, fpdu) = world.fpdu(remote, PAYLOAD_OCTETS);
        world.arrives(remote, seq, &fpdu);
        let (seq, fpdu) = world.fpdu(remote, PAYLOAD_OCTETS);
        world.arrives(remote, seq, &fpdu[..333]);
        world.arrives(remote, seq + 333, &fpdu[333..]);
        let segments: Vec<_> = (0..8).map(|_| world.fpdu(remote, PAYLOAD_OCTETS)).collect();
        for (seq, fpdu) in segments[1..].iter().chain(&segments[..1]) {
            world.arrives(remote, *seq, fpdu);
        }
        assert_eq!(world.acknowledged(remote), Some(SeqNumber(remote.sender.seq)));
    }
    world.expect_placed(remote);
    assert_eq!(world.short_of_frames(), short);
    assert_eq!(remote.written - first, 200 * PAYLOAD_OCTETS);
}

/// As many connections as a core has, half a frame each, in order, then silence.
#[test]
fn silent_holders_on_all_connections_are_not_noticed() {
    let mut world = World::new(Tables::default());
    let mut remote = world.open();
    let silent: Vec<_> = (1..4001).map(|_| world.open_and_fall_silent()).collect();
    assert_eq!(world.held(), silent.len());
    expect_to_thrive(&mut world, &mut remote);
    assert_eq!(world.held(), silent.len(), "what is whole is not held");
    assert!(silent.iter().all(|remote| remote.qp.error().is_none()), "there is room for all");
}

const FEW: Tables = Tables {
    connections: 256,
    time_waits: 16,
    send_descriptors: 256,
    held_frames: 128,
    placed_runs: 64,
    placed_sends: 64,
    queue_pairs: 256,
    listeners: 4,
    regions: 8,
    cut_octets: 1024,
};

/// More connections hold octets than there are frames. Complete FPDUs still pass, no acknowledged octet is
/// lost, and connections that need a frame for longer get one when the silent connections are failed, and
/// only those are failed.
#[test]
fn when_frames_are_short_the_silent_are_failed() {
    let mut world = World::new(FEW);
    let mut remote = world.open();
    // A connection that holds a frame at every check, but makes progress.
    let mut slow = world.open();
    let (mut slow_seq, mut half) = world.fpdu(&mut slow, PAYLOAD_OCTETS);
    world.arrives(&slow, slow_seq, &half[..700]);
    let silent: Vec<_> = (2..200).map(|_| world.open_and_fall_silent()).collect();
    let reserved = FEW.held_frames / 8;
    assert_eq!(world.held(), FEW.held_frames - reserved - 1, "some are left to pass through");
    assert!(world.short_of_frames() > 0);
    for _ in 0..100 {
        let (seq, fpdu) = world.fpdu(&mut remote, PAYLOAD_OCTETS);
        world.arrives(&remote, seq, &fpdu);
        let from = remote.written - PAYLOAD_OCTETS;
        assert!(holds(&world.sink, from, &world.data[from..remote.written]), "taken at once");
    }
    // In two parts, the first of which comes again and again.
    let (seq, fpdu) = world.fpdu(&mut remote, PAYLOAD_OCTETS);
    let mut tries = 0;
    world.peer.sent.clear();
    while world.acknowledged(&remote) != Some(seq + 500) {
        world.peer.now += 100 * MILLISECOND;
        world.arrives(&slow, slow_seq + 700, &half[700..]);
        (slow_seq, half) = world.fpdu(&mut slow, PAYLOAD_OCTETS);
        world.arrives(&slow, slow_seq, &half[..700]);
        world.peer.sent.clear();
        world.arrives(&remote, seq, &fpdu[..500]);
        tries += 1;
        assert!(tries < 100, "never");
    }
    let waited_ns = tries * 100 * MILLISECOND;
    let patience_ns = limits::HELD_PATIENCE_NS;
    assert!((patience_ns..2 * patience_ns).contains(&waited_ns), "{waited_ns} ns");
    world.arrives(&remote, seq + 500, &fpdu[500..]);
    world.expect_placed(&remote);
    expect_to_thrive(&mut world, &mut remote);
    let failed: Vec<_> = silent.iter().filter(|remote| remote.qp.error().is_some()).collect();
    assert_eq!(failed.len() as u64, world.peer.core.statistics().dropped(DropCause::HeldTooLong));
    assert!(world.held() <= FEW.held_frames * 3 / 4, "{} frames held", world.held());
    assert!(failed.len() < FEW.held_frames / 4, "no more than had to be: {}", failed.len());
    let error = StreamError::Mpa(MpaError::LocalCatastrophic);
    for remote in failed {
        assert_eq!(remote.qp.error(), Some(error));
        let aborted = |event: &&Event| match event {
            Event::Closed { connection, reason } => {
                *connection == remote.connection && *reason == CloseReason::Aborted
            }
            _ => false,
        };
        assert_eq!(world.peer.events.iter().filter(aborted).count(), 1);
    }
    assert_eq!((remote.qp.error(), slow.qp.error()), (None, None));
}

/// A look at all connections takes several polls. Before, and after, the silent hold what they held.
#[test]
fn no_poll_looks_at_all_connections_for_their_frames() {
    const MANY: usize = 4000;
    let mut world = World::new(Tables { connections: MANY, held_frames: 1024, ..Tables::default() });
    let mut remote = world.open();
    for _ in 1..MANY {
        world.open_and_fall_silent();
    }
    world.peer.most_visits = 0;
    let (seq, fpdu) = world.fpdu(&mut remote, PAYLOAD_OCTETS);
    let mut tries = 0;
    while world.acknowledged(&remote) != Some(seq + 500) {
        world.peer.now += 100 * MILLISECOND;
        world.peer.sent.clear();
        world.arrives(&remote, seq, &fpdu[..500]);
        tries += 1;
        assert!(tries < 100, "never");
    }
    assert!(world.peer.core.statistics().dropped(DropCause::HeldTooLong) > 0, "some were failed");
    let visits = world.peer.most_visits;
    assert!(visits < MANY as u64 / 2, "{visits} visits in one poll");
}

/// Messages that wait for receives hold frames while no other connection lacks them. Then the wait of some
/// ends early: with the error of a wait that expires, reported to the peer, and no acknowledged octet is lost
/// silently.
#[test]
fn when_frames_are_short_waits_end_early() {
    let mut world = World::new(FEW);
    let mut remote = world.open();
    let waiting: Vec<_> = (1..200).map(|_| world.open_and_wait()).collect();
    let reserved = FEW.held_frames / 8;
    assert_eq!(world.held(), FEW.held_frames - reserved - 1, "some are left to pass through");
    world.peer.pass_ms(10_000);
    assert!(waiting.iter().all(|remote| remote.qp.error().is_none()), "nobody lacks any");
    let (seq, fpdu) = world.fpdu(&mut remote, PAYLOAD_OCTETS);
    let mut tries = 0;
    world.peer.sent.clear();
    while world.acknowledged(&remote) != Some(seq + 500) {
        world.peer.now += 100 * MILLISECOND;
        world.peer.sent.clear();
        world.arrives(&remote, seq, &fpdu[..500]);
        tries += 1;
        assert!(tries < 100, "never");
    }
    world.arrives(&remote, seq + 500, &fpdu[500..]);
    world.expect_placed(&remote);
    let failed: Vec<_> = waiting.iter().filter(|remote| remote.qp.error().is_some()).collect();
    assert!(!failed.is_empty() && failed.len() < FEW.held_frames / 2, "{}", failed.len());
    for remote in failed {
        assert_eq!(remote.qp.error(), Some(StreamError::Ddp(DdpError::NoBuffer)));
        assert_eq!(remote.qp.state(), QpState::Terminate, "it closes, and is not reset");
    }
    assert_eq!(world.peer.core.statistics().dropped(DropCause::HeldTooLong), 0);
}

/// A connection that held frames before they became short is not cut off: a segment that closes its gap is
/// accepted.
#[test]
fn a_gap_is_filled_when_frames_are_short() {
    let mut world = World::new(FEW);
    let mut remote = world.open();
    let (seq, fpdu) = world.fpdu(&mut remote, 6000);
    for (n, part) in fpdu.chunks(700).enumerate().skip(1) {
        world.arrives(&remote, seq + n as u32 * 700, part);
    }
    let held = world.held();
    assert!(held >= 8, "{held} frames");
    let silent: Vec<_> = (1..200).map(|_| world.open_and_fall_silent()).collect();
    assert!(world.short_of_frames() > 0 && world.held() > held + 90, "{} held", world.held());
    let short = world.short_of_frames();
    world.arrives(&remote, seq, &fpdu[..700]);
    world.expect_placed(&remote);
    assert_eq!(world.short_of_frames(), short);
    assert!(silent.iter().all(|remote| remote.qp.error().is_none()), "nobody had to be failed for it");
}

/// One connection alone, however much it holds beyond a gap, leaves enough frames for the others.
#[test]
fn one_connection_does_not_take_all_frames() {
    let mut world = World::new(FEW);
    let mut greedy = world.open();
    let mut remote = world.open();
    // The end of an FPDU that never begins: no Marker leads to its front.
    let (seq, fpdu) = world.fpdu(&mut greedy, 60_000);
    for (n, part) in fpdu.chunks(300).enumerate().skip(1) {
        world.arrives(&greedy, seq + n as u32 * 300, part);
    }
    assert!(world.held() > FEW.held_frames / 2 && world.held() < FEW.held_frames * 3 / 4, "{}", world.held());
    greedy.written = 0;
    expect_to_thrive(&mut world, &mut remote);
}
