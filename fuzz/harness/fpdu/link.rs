//! A core, one connection in Full Operation, and the peer at its other end.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, Core, CoreSetup};
use warpline_dataplane::memory::{Access, Grant, ProtectionDomainId, Region, STag};
use warpline_dataplane::net::neighbours::StaticNeighbour;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, Doorbells, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Completion, QpNumber, ReceiveRequest, Slice};
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event, FullOperation, Rings};
use warpline_dataplane::time::Instant;
use warpline_dataplane::wire::ethernet::MacAddress;

use super::device::{Behaviour, FuzzDevice, Port};
use super::frames::{CORE, CORE_MAC, Odd, PEERS, Segment, mac_of};
use super::input::Input;
use super::speech::{Mode, RECEIVE_OCTETS, RECEIVES, SINK, SINK_OCTETS};
use super::watch::{self, ACK, FIN, SYN};

/// Contents of memory before anything is placed in it.
pub const UNTOUCHED: u8 = 0xee;

const PORT: u16 = 7471;
const PEER_PORT: u16 = 40_000;
const QP: QpNumber = QpNumber(0);
const PD: ProtectionDomainId = ProtectionDomainId(1);
const INBOX: STag = STag::new(2, 0x4b);
/// Octets on either side of the granted memory.
const GUARD_OCTETS: usize = 64;
/// Polls after which the core has nothing left to do at one time.
const POLLS: usize = 200;

/// Frames that may be held. Octets beyond gaps may use two thirds of the frames that are not reserved, and
/// octets in order four fifths: the rest is the need of the longest stream over the narrowest link, so that
/// it always makes progress.
const HELD_FRAMES: usize = 768;
/// Frames of the device: it keeps half of them for others than those that hold.
const FRAMES: usize = 2 * HELD_FRAMES;

#[allow(clippy::needless_update, reason = "tables to come have their usual size")]
fn tables() -> Tables {
    Tables {
        connections: 2,
        time_waits: 2,
        send_descriptors: 32,
        held_frames: HELD_FRAMES,
        queue_pairs: 1,
        regions: 8,
        ..Tables::default()
    }
}

/// Memory that the core may write to, with guards.
struct Buffer {
    whole: Region,
    octets: usize,
}

impl Buffer {
    fn new(octets: usize) -> Self {
        let whole = Region::heap(octets + 2 * GUARD_OCTETS).unwrap();
        assert!(whole.write(0, &vec![UNTOUCHED; octets + 2 * GUARD_OCTETS]));
        Self { whole, octets }
    }

    fn grant(&self, access: Access) -> Grant {
        let region = self.whole.part(GUARD_OCTETS, self.octets).unwrap();
        Grant::new(region, PD, 0, access)
    }

    /// Returns the granted octets. Panics if the guards have changed.
    fn content(&self) -> Vec<u8> {
        let mut whole = vec![0; self.octets + 2 * GUARD_OCTETS];
        assert!(self.whole.read(0, &mut whole));
        let (before, rest) = whole.split_at(GUARD_OCTETS);
        let (content, after) = rest.split_at(self.octets);
        assert!(before.iter().chain(after).all(|octet| *octet == UNTOUCHED), "a guard was written");
        content.to_vec()
    }
}

pub struct Link {
    core: Core<FuzzDevice>,
    port: Port,
    rings: Rings,
    completions: Arc<CompletionRing>,
    sink: Buffer,
    inbox: Buffer,
    now: Instant,
    mtu_octets: usize,
    /// The sequence number of the peer's first octet in Full Operation.
    start: u32,
    /// The core's last acknowledgement, and the place after its last sent octet.
    acknowledged: u32,
    core_next: u32,
    failed: Option<StreamError>,
}

impl Link {
    /// A connection in Full Operation with `mode`, over a device with the properties that `input` selects.
    pub fn new(input: &mut Input<'_>, mode: Mode) -> Self {
        let how = input.octet();
        let behaviour = Behaviour {
            mtu_octets: [1500, 9000, 576][usize::from(how & 3) % 3],
            frames: FRAMES,
            offloads: how & 8 != 0,
            verifies: how & 0x10 != 0,
            piece_octets: (how & 0x20 != 0).then_some(37),
        };
        let neighbour = StaticNeighbour { address: PEERS[0], mac: MacAddress(mac_of(PEERS[0])) };
        let config = Config {
            window_bytes: 1 << 16,
            neighbours: [neighbour].into_iter().collect(),
            ..Config::new(CORE.into(), 24, [7, 11])
        };
        let (device, port) = FuzzDevice::new(MacAddress(CORE_MAC), behaviour);
        let rings = Rings {
            commands: Arc::new(ArrayQueue::new(16)),
            events: Arc::new(ArrayQueue::new(16)),
            doorbells: Arc::new(Doorbells::new(1)),
        };
        let completions = Arc::new(CompletionRing::new(4 * RECEIVES));
        let core = Core::new(device, CoreSetup::new(config, rings.clone()).with_tables(tables()));
        let mut link = Self {
            core,
            port,
            rings,
            completions,
            sink: Buffer::new(SINK_OCTETS),
            inbox: Buffer::new(RECEIVES * RECEIVE_OCTETS),
            now: Instant::from_nanos(1),
            mtu_octets: behaviour.mtu_octets,
            start: mode.start,
            acknowledged: mode.start,
            core_next: 0,
            failed: None,
        };
        let qp = link.supply();
        link.open(mode, qp);
        link
    }

    fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok());
    }

    /// A queue pair with its receives, and memory.
    fn supply(&self) -> Arc<SharedQp> {
        let completions = CompletionRings::shared(self.completions.clone());
        let depths = QueueDepths { send: 1, receive: RECEIVES };
        let qp = Arc::new(SharedQp::new(QP, PD, depths, completions, self.rings.doorbells.clone()));
        self.command(Command::Register { stag: SINK, grant: self.sink.grant(Access::REMOTE_WRITE) });
        self.command(Command::Register { stag: INBOX, grant: self.inbox.grant(Access::LOCAL_WRITE) });
        for id in 0..RECEIVES as u64 {
            let to = id * RECEIVE_OCTETS as u64;
            let local = Slice { stag: INBOX, to, len: RECEIVE_OCTETS as u32 };
            qp.post_receive(ReceiveRequest::new(id, local)).unwrap();
        }
        qp
    }

    /// The peer connects, and Full Operation begins: the Request is the one octet before it, and so is the
    /// Reply.
    fn open(&mut self, mode: Mode, qp: Arc<SharedQp>) {
        self.command(Command::Listen { address: None, port: PORT, backlog: 1, tcp: None });
        let iss = mode.start.wrapping_sub(2);
        self.segment(SYN, iss, &[]);
        self.settle();
        self.segment(ACK, iss.wrapping_add(1), b"?");
        self.settle();
        let connection = self.connection();
        let operation = FullOperation {
            markers_received: mode.markers,
            crc: mode.crc,
            version: mode.version,
            ..FullOperation::new(false)
        };
        let then = AfterStream::FullOperation { qp, operation };
        self.command(Command::Stream { connection, octets: Box::new(*b"!"), then });
        self.settle();
        assert_eq!(self.received(), 0);
    }

    fn connection(&self) -> ConnectionId {
        let mut connection = None;
        while let Some(event) = self.rings.events.pop() {
            if let Event::Accepted { connection: accepted, .. } = event {
                connection = Some(accepted);
            }
        }
        connection.expect("accepted")
    }

    fn segment(&mut self, flags: u8, seq: u32, payload: &[u8]) {
        let segment = Segment {
            source_port: PEER_PORT,
            destination_port: PORT,
            seq,
            ack: self.core_next,
            flags,
            window: 0xffff,
            payload,
            ..Segment::default()
        };
        self.port.put(segment.frame(PEERS[0], Odd::default()));
    }

    /// Sends the octets of the stream from `from` to `end`, in segments as large as the link allows, and
    /// polls the core to receive them.
    pub fn say_all(&mut self, stream: &[u8], from: usize, end: usize) {
        let each = self.mtu_octets - 40;
        for at in (from..end).step_by(each) {
            let seq = self.start.wrapping_add(at as u32);
            self.segment(ACK, seq, &stream[at..end.min(at + each)]);
            self.settle();
        }
    }

    /// Sends the peer's FIN after all of its stream of `octets`.
    pub fn finish(&mut self, octets: usize) {
        self.segment(ACK | FIN, self.start.wrapping_add(octets as u32), &[]);
        self.settle();
    }

    pub fn pass(&mut self, nanos: u64) {
        self.now += nanos;
        self.settle();
    }

    fn settle(&mut self) {
        let mut polls = 0;
        while self.core.poll_once(self.now) {
            polls += 1;
            assert!(polls < POLLS, "the core does not come to rest");
            self.hear();
        }
        self.hear();
        assert!(self.port.alive() <= FRAMES && self.core.usage().held_frames <= HELD_FRAMES);
    }

    fn hear(&mut self) {
        while let Some(frame) = self.port.take() {
            let Some(sent) = watch::dissect(&frame, self.mtu_octets) else { continue };
            if sent.flags & ACK != 0 {
                self.acknowledged = sent.ack;
            }
            let control = u32::from(sent.flags & SYN != 0) + u32::from(sent.flags & FIN != 0);
            let end = sent.seq.wrapping_add(sent.payload.len() as u32 + control);
            if self.core_next == 0 || watch::distance(self.core_next, end) > 0 {
                self.core_next = end;
            }
        }
        while self.failed.is_none()
            && let Some(event) = self.rings.events.pop()
        {
            match event {
                Event::StreamFailed { error, .. } => self.failed = Some(error),
                Event::Accepted { .. } => {
                    // For `connection`.
                    assert!(self.rings.events.push(event).is_ok());
                    return;
                }
                _ => {}
            }
        }
    }

    /// Octets of the stream that the core has acknowledged.
    pub fn received(&self) -> usize {
        self.acknowledged.wrapping_sub(self.start) as usize
    }

    /// Why the stream failed, if it did.
    pub fn failed(&self) -> Option<StreamError> {
        self.failed
    }

    pub fn completions(&self) -> Vec<Completion> {
        std::iter::from_fn(|| self.completions.poll()).collect()
    }

    pub fn sink(&self) -> Vec<u8> {
        self.sink.content()
    }

    pub fn inbox(&self) -> Vec<u8> {
        self.inbox.content()
    }
}
