//! The stack that is judged: a core with a queue pair in Full Operation, and memory of every kind.

use std::sync::Arc;

use fastrand::Rng;
use warpline_dataplane::core::Config;
use warpline_dataplane::memory::{Access, Grant, ProtectionDomainId, Region, STag};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::{SharedReceiveQueue, SrqNumber};
use warpline_dataplane::qp::work::{Completion, ReceiveRequest, Slice, SliceList};
use warpline_dataplane::ring::{AfterStream, Command, FullOperation};
use warpline_dataplane::wire::tcp::{Options, SeqNumber};

use crate::common::raw::RawPeer;
use crate::common::{PD, QP, WINDOW_OCTETS, region_of};
use crate::reference::memory::{Association, Memory, Region as ReferenceRegion, Rights};
use crate::reference::target::Receive;

pub(super) const SINK: STag = STag::new(2, 0x2222);
pub(super) const READABLE: STag = STag::new(3, 0x3333);
pub(super) const FOREIGN: STag = STag::new(4, 0x4444);
pub(super) const INBOX: STag = STag::new(5, 0x5555);
pub(super) const COUNTERS: STag = STag::new(6, 0x6666);
pub(super) const ANSWERS: STag = STag::new(7, 0x7777);
pub(super) const SOURCE: STag = STag::new(8, 0x8888);
const HIGHEST: STag = STag::new(9, 0x9999);
pub(super) const OTHERS: STag = STag::new(10, 0xaaaa);
/// The peer may invalidate these.
pub(super) const KEYS: [STag; 4] =
    [STag::new(11, 0xb0b0), STag::new(12, 0xb1b1), STag::new(13, 0xb2b2), STag::new(14, 0xb3b3)];

/// Octets around each registration that must not change.
const GUARD_OCTETS: usize = 64;
pub(super) const SINK_OCTETS: usize = 24 * 1024;
pub(super) const READABLE_OCTETS: usize = 6000;
/// Buffers for messages, and the octets of each.
pub(super) const SLOTS: usize = 12;
pub(super) const SLOT_OCTETS: usize = 2600;
pub(super) const COUNTERS_OCTETS: usize = 64;
/// Requests of the core that may wait for a response, areas for responses, and the octets of each.
pub(super) const ORD: usize = 4;
pub(super) const AREAS: usize = 2 * ORD;
pub(super) const ANSWER_OCTETS: usize = 3000;
pub(super) const SOURCE_OCTETS: usize = 6000;
const KEY_OCTETS: usize = 700;
/// Requests of each kind that the peer may have outstanding.
pub(super) const IRD: usize = 4;
pub(super) const SEND_DEPTH: usize = 64;

/// How a stream runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub markers_received: bool,
    pub markers_sent: bool,
    pub crc: bool,
    pub packing: bool,
    /// The core is the Initiator: it may send first.
    pub initiator: bool,
    /// The peer may have requests outstanding.
    pub takes_requests: bool,
    /// Receives come from a shared receive queue.
    pub shares_receives: bool,
    pub mtu_octets: usize,
    /// The MSS of the peer, which bounds what the core sends.
    pub mss: u16,
}

impl Setup {
    pub(super) fn choose(rng: &mut Rng) -> Self {
        let large = rng.u32(..4) == 0;
        let mss = match rng.u32(..4) {
            0 => 536,
            1 => rng.u16(200..1460),
            _ if large => 8960,
            _ => 1460,
        };
        Self {
            markers_received: rng.bool(),
            markers_sent: rng.bool(),
            crc: rng.u32(..4) > 0,
            packing: rng.u32(..3) > 0,
            initiator: rng.bool(),
            takes_requests: rng.u32(..8) > 0,
            shares_receives: rng.u32(..3) == 0,
            mtu_octets: if large { 9000 } else { 1500 },
            mss,
        }
    }
}

fn registration(stag: STag, base: u64, octets: Vec<u8>, rights: Rights) -> ReferenceRegion {
    ReferenceRegion { stag: stag.0, association: Association::Domain, base, rights, valid: true, octets }
}

/// The memory of the core before the first octet has come.
fn memory(rng: &mut Rng) -> Memory {
    let mut some = |octets: usize| (0..octets).map(|_| rng.u8(..)).collect::<Vec<_>>();
    let none = Rights::default();
    let local = Rights { local_write: true, ..none };
    let read = Rights { remote_read: true, ..none };
    let write = Rights { remote_write: true, ..none };
    let atomic = Rights { remote_atomic: true, ..none };
    let highest = u64::MAX - 299;
    let mut regions = vec![
        registration(SINK, 0xffff_f000, some(SINK_OCTETS), Rights { remote_read: true, ..write }),
        registration(READABLE, 0, some(READABLE_OCTETS), read),
        ReferenceRegion {
            association: Association::Elsewhere,
            ..registration(FOREIGN, 0, some(256), Rights { remote_read: true, ..write })
        },
        registration(INBOX, 0x100, some(SLOTS * SLOT_OCTETS), local),
        registration(COUNTERS, 0x1000, some(COUNTERS_OCTETS), atomic),
        registration(ANSWERS, 7, some(AREAS * ANSWER_OCTETS), local),
        registration(SOURCE, 0, some(SOURCE_OCTETS), none),
        registration(HIGHEST, highest, some(256), write),
        ReferenceRegion {
            association: Association::Elsewhere,
            ..registration(OTHERS, 0, some(256), Rights { remote_atomic: true, ..write })
        },
    ];
    regions.extend(KEYS.iter().map(|key| ReferenceRegion {
        association: Association::Stream,
        ..registration(*key, 0, some(KEY_OCTETS), write)
    }));
    Memory(regions)
}

fn access(rights: Rights) -> Access {
    let mut access = Access::empty();
    access.set(Access::LOCAL_WRITE, rights.local_write);
    access.set(Access::REMOTE_READ, rights.remote_read);
    access.set(Access::REMOTE_WRITE, rights.remote_write);
    access.set(Access::REMOTE_ATOMIC, rights.remote_atomic);
    access
}

/// The core, its queue pair and its memory.
pub(super) struct Subject {
    pub peer: RawPeer,
    pub qp: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    shared: Option<Arc<SharedReceiveQueue>>,
    regions: Vec<Region>,
    /// The core's first sequence number of Full Operation.
    pub core_start: SeqNumber,
}

impl Subject {
    /// Returns the core in Full Operation, and its memory for the reference.
    pub(super) fn new(setup: &Setup, rng: &mut Rng) -> (Self, Memory) {
        let config = Config { window_bytes: WINDOW_OCTETS, ..RawPeer::config() };
        let mut peer = RawPeer::with(config, setup.mtu_octets);
        let sack_permitted = rng.bool();
        let core_start = peer.accept(Options { mss: Some(setup.mss), sack_permitted, ..Options::default() });
        let completions = Arc::new(CompletionRing::new(4 * SEND_DEPTH));
        let rings = CompletionRings::shared(completions.clone());
        let depths = QueueDepths { send: SEND_DEPTH, receive: SLOTS };
        let mut qp = SharedQp::new(QP, PD, depths, rings, peer.rings.doorbells.clone());
        let shared =
            setup.shares_receives.then(|| Arc::new(SharedReceiveQueue::new(SrqNumber(0), PD, SLOTS, None)));
        if let Some(shared) = &shared {
            qp = qp.with_shared_receives(shared.clone());
        }
        let qp = Arc::new(qp);
        let memory = memory(rng);
        let regions = memory.0.iter().map(|region| Self::register(&peer, region)).collect();
        let depth = |takes: bool| if takes { IRD as u16 } else { 0 };
        let operation = FullOperation {
            markers_sent: setup.markers_sent,
            markers_received: setup.markers_received,
            crc: setup.crc,
            packing: setup.packing,
            depths: ReadDepths { ird: depth(setup.takes_requests), ord: ORD as u16 },
            ..FullOperation::new(setup.initiator)
        };
        let (connection, then) =
            (peer.accepted.unwrap(), AfterStream::FullOperation { qp: qp.clone(), operation });
        peer.command(Command::Stream { connection, octets: Box::new([]), then });
        peer.settle();
        (Self { peer, qp, completions, shared, regions, core_start }, memory)
    }

    /// Registers memory as the reference has it, between guards. Returns it with them.
    fn register(peer: &RawPeer, of: &ReferenceRegion) -> Region {
        let region = region_of(&vec![0xa5; of.octets.len() + 2 * GUARD_OCTETS]);
        assert!(region.write(GUARD_OCTETS, &of.octets));
        let part = region.part(GUARD_OCTETS, of.octets.len()).unwrap();
        let (pd, stream) = match of.association {
            Association::Domain => (PD, None),
            Association::Stream => (PD, Some(QP.0)),
            Association::Elsewhere if of.stag == OTHERS.0 => (PD, Some(QP.0 + 1)),
            Association::Elsewhere => (ProtectionDomainId(9), None),
        };
        let grant = Grant { stream, ..Grant::new(part, pd, of.base, access(of.rights)) };
        peer.command(Command::Register { stag: STag(of.stag), grant });
        region
    }

    /// Posts a receive as the reference has it.
    pub(super) fn post_receive(&self, receive: &Receive) {
        let slices: Vec<_> = receive
            .ranges
            .iter()
            .map(|range| Slice { stag: STag(range.stag), to: range.to, len: range.octets as u32 })
            .collect();
        let request = ReceiveRequest::new(receive.id, SliceList::try_from(&slices[..]).unwrap());
        match &self.shared {
            Some(shared) => shared.post(&[request]).unwrap(),
            None => self.qp.post_receive(request).unwrap(),
        }
    }

    pub(super) fn poll_completions(&self) -> Vec<Completion> {
        std::iter::from_fn(|| self.completions.poll()).collect()
    }

    /// Returns the octets of each registration, and asserts that none around it has changed.
    pub(super) fn memory(&self) -> Vec<Vec<u8>> {
        let octets = |region: &Region| {
            let mut octets = vec![0; region.len()];
            assert!(region.read(0, &mut octets));
            let after = octets.split_off(octets.len() - GUARD_OCTETS);
            let inside = octets.split_off(GUARD_OCTETS);
            assert!(octets.iter().chain(&after).all(|octet| *octet == 0xa5), "octets around a registration");
            inside
        };
        self.regions.iter().map(octets).collect()
    }

    /// The sequence number that the core expects next; `None` if the connection is gone.
    pub(super) fn next_expected(&self) -> Option<SeqNumber> {
        self.peer.core.tcp(self.peer.accepted?).map(|tcp| tcp.received().nxt())
    }
}
