//! What an application and a core share of a byte stream: a ring of octets in each direction, what is said
//! about them, and how far both have come.

use std::sync::Arc;

use crossbeam::utils::CachePadded;

use super::counters::{PublishedCounters, TransferCounters};
use super::early::EarlyRing;
use super::lazy_queue::LazyQueue;
use super::outbound::Piece;
use super::transfers::{Record, UnsolicitedPool};
use crate::limits;
use crate::memory::{Region, RegionPool};
use crate::notify::Notify;
use crate::qp::shared::Doorbells;
use crate::sync::{AtomicBool, AtomicCell, AtomicU64, Ordering, fence};
use crate::tcp::CloseReason;
use crate::wire::tcp_rdma::{Rid, RidFormat};

// The model of memory follows every place of a queue: a few do there.
const RECORDS: usize = if cfg!(loom) { 2 } else { limits::BYTE_STREAM_RECORDS };
/// The core has not replaced its ring yet.
pub(super) const NOT_REPLACED: u64 = u64::MAX;
const COMMANDS: usize = if cfg!(loom) { 2 } else { limits::BYTE_STREAM_COMMANDS };

/// Rings that begin small, and are replaced by longer ones while they are short. The application's half of
/// the stream does that, in its own thread.
#[derive(Clone, Debug)]
pub struct RingGrowth {
    /// Where the longer rings come from.
    pub pool: RegionPool,
    /// The most octets that may be written and not acknowledged.
    pub send_octets: usize,
    /// The length of the longest receive ring.
    pub receive_octets: usize,
}

/// A longer ring has so many times the octets of the one before it, at least.
const GROWTH_FACTOR: usize = 4;

impl RingGrowth {
    /// Octets that may be written while `kept` octets are not acknowledged.
    pub(super) const fn room_to_send(&self, kept: u64) -> usize {
        self.send_octets.saturating_sub(kept as usize)
    }

    /// Returns a ring that takes the place of one of `octets` octets, with room for `wanted`, but of `most`
    /// octets at most; `None` if there may be no longer one, or no memory is left for it.
    pub(super) fn longer(&self, octets: usize, wanted: usize, most: usize) -> Option<Region> {
        let wanted = wanted.checked_next_power_of_two().unwrap_or(most);
        let longer = octets.saturating_mul(GROWTH_FACTOR).max(wanted).min(most);
        if longer > octets { self.pool.take_spare(longer) } else { None }
    }
}

/// The sizes of a byte stream, and what it wakes.
#[derive(Clone)]
pub struct ByteStreamConfig {
    /// The ring of octets to be sent.
    pub send_ring: Region,
    /// The ring of octets received. Without the TCP RDMA option it is all that the window offers while it may
    /// [grow](Self::growth).
    pub receive_ring: Region,
    /// Whether the rings grow, and how far; none, and they stay as they are.
    pub growth: Option<RingGrowth>,
    /// How many pieces may wait to be acknowledged: one for each write, and one for each section of it.
    pub pieces: usize,
    /// Buffers for transfers that nobody expects; none refuses them.
    pub unsolicited: Option<UnsolicitedPool>,
    /// The format of the names of the peer's transfers.
    pub rid_format: RidFormat,
    /// Whether the beginnings of messages are reported to the reader, by the A bit.
    pub message_starts: bool,
    /// The ring of complete messages that are handed out beyond gaps; none, and they are read in their turn.
    /// The beginnings of messages are reported then.
    pub early_ring: Option<Region>,
    /// Called once after each [`ByteReader::arm`](super::ByteReader::arm).
    pub reader: Option<Arc<dyn Notify>>,
    /// Called once after each [`ByteWriter::arm`](super::ByteWriter::arm).
    pub writer: Option<Arc<dyn Notify>>,
}

impl ByteStreamConfig {
    /// Rings of these sizes, for an application that only polls.
    pub const fn new(send_ring: Region, receive_ring: Region) -> Self {
        let pieces = limits::BYTE_STREAM_PIECES;
        let rid_format = RidFormat::Opaque;
        Self {
            send_ring,
            receive_ring,
            growth: None,
            pieces,
            unsolicited: None,
            rid_format,
            message_starts: false,
            early_ring: None,
            reader: None,
            writer: None,
        }
    }
}

/// One side that may sleep until the other has done something.
pub(super) struct Sleeper {
    armed: AtomicBool,
    notify: Option<Arc<dyn Notify>>,
}

impl Sleeper {
    fn new(notify: Option<Arc<dyn Notify>>) -> Self {
        Self { armed: AtomicBool::default(), notify }
    }

    /// Has the next change notify. The caller looks once more after this, and then may sleep. Returns false
    /// if there is nobody to notify.
    pub(super) fn arm(&self) -> bool {
        self.armed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.notify.is_some()
    }

    /// Notifies, once after [`arm`](Self::arm), that something has changed.
    pub(super) fn wake(&self) {
        let Some(notify) = &self.notify else { return };
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::AcqRel) {
            notify.notify();
        }
    }
}

/// What an application asks of the core.
#[derive(Debug)]
pub(super) enum ReaderCommand {
    /// Octets of this transfer go there.
    Expect { rid: Rid, memory: Region, offset: usize, octets: usize },
    /// Nothing more is placed for this name.
    Cancel(Rid),
    /// This unsolicited buffer is free.
    Release(u16),
    /// Octets of the stream go to this ring from now on.
    ReplaceRing(Region),
}

/// What an application and a core share of a byte stream.
pub struct SharedByteStream {
    slot: u32,
    doorbells: Arc<Doorbells>,
    rung: CachePadded<AtomicBool>,

    pub(super) growth: Option<RingGrowth>,
    /// The first one.
    pub(super) send_ring: Region,
    /// Written by the application, accepted by the core.
    pub(super) pieces: LazyQueue<Piece>,
    /// Pieces that the core may accept: a message appears as a whole.
    pub(super) committed: CachePadded<AtomicU64>,
    /// Octets of the send ring that are free again, since the beginning.
    pub(super) released_octets: CachePadded<AtomicU64>,
    /// Pieces whose memory the core holds no more, since the beginning.
    pub(super) released_pieces: AtomicU64,
    /// The application sends nothing after its last piece.
    pub(super) finished: AtomicBool,

    /// The first one.
    pub(super) receive_ring: Region,
    /// Octets put into rings before the one that the core fills; [`NOT_REPLACED`] from when the application
    /// has asked for a longer one until the core has it.
    pub(super) ring_from: AtomicU64,
    /// Octets that the core has put into the ring, since the beginning.
    pub(super) filled: CachePadded<AtomicU64>,
    /// Octets that the application has consumed from it.
    pub(super) consumed: CachePadded<AtomicU64>,
    /// What is in the stream beside the octets of the ring.
    pub(super) records: LazyQueue<Record>,
    pub(super) commands: LazyQueue<ReaderCommand>,
    /// Names that the reader has asked the core to expect, and the core does not.
    pub(super) not_expected: LazyQueue<Rid>,
    /// Commands that the core has carried out, since the beginning.
    pub(super) commands_done: AtomicU64,
    /// The core waits for room in the ring or among the records.
    pub(super) stalled: AtomicBool,
    pub(super) unsolicited: Option<UnsolicitedPool>,
    pub(super) transfer_counters: PublishedCounters,
    pub(super) rid_format: RidFormat,
    pub(super) message_starts: bool,
    pub(super) early: Option<EarlyRing>,

    /// The ends have agreed on the TCP RDMA option.
    pub(super) rdma: AtomicBool,
    /// The peer sends nothing after what is in the ring and the records.
    pub(super) peer_finished: AtomicBool,
    end: AtomicCell<Option<CloseReason>>,
    /// The application reads no more.
    pub(super) abandoned: AtomicBool,
    /// It has left without octets of a record that its reader has dequeued.
    pub(super) left_unread: AtomicBool,
    pub(super) reader: Sleeper,
    pub(super) writer: Sleeper,
}

impl SharedByteStream {
    /// A stream of the connection that has `slot` at the core of `doorbells`.
    pub fn new(slot: u32, doorbells: Arc<Doorbells>, config: ByteStreamConfig) -> Self {
        Self {
            slot,
            doorbells,
            rung: CachePadded::new(AtomicBool::new(false)),
            growth: config.growth,
            send_ring: config.send_ring,
            pieces: LazyQueue::new(config.pieces.clamp(1, limits::BYTE_STREAM_PIECES)),
            committed: CachePadded::new(AtomicU64::new(0)),
            released_octets: CachePadded::new(AtomicU64::new(0)),
            released_pieces: AtomicU64::new(0),
            finished: AtomicBool::new(false),
            receive_ring: config.receive_ring,
            ring_from: AtomicU64::new(0),
            filled: CachePadded::new(AtomicU64::new(0)),
            consumed: CachePadded::new(AtomicU64::new(0)),
            records: LazyQueue::new(RECORDS),
            commands: LazyQueue::new(COMMANDS),
            not_expected: LazyQueue::new(COMMANDS),
            commands_done: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            unsolicited: config.unsolicited,
            rid_format: config.rid_format,
            message_starts: config.message_starts || config.early_ring.is_some(),
            early: config.early_ring.map(EarlyRing::new),
            transfer_counters: PublishedCounters::default(),
            rdma: AtomicBool::new(false),
            peer_finished: AtomicBool::new(false),
            end: AtomicCell::new(None),
            abandoned: AtomicBool::new(false),
            left_unread: AtomicBool::new(false),
            reader: Sleeper::new(config.reader),
            writer: Sleeper::new(config.writer),
        }
    }

    /// Records whether the ends have agreed on the TCP RDMA option.
    pub fn set_rdma_option(&self, agreed: bool) {
        self.rdma.store(agreed, Ordering::Release);
    }

    /// Whether the ends have agreed on the TCP RDMA option. Known as soon as the core has the stream.
    pub fn has_rdma_option(&self) -> bool {
        self.rdma.load(Ordering::Acquire)
    }

    /// Returns the octets that its ring of received ones holds, or the longest that there may be.
    pub fn receive_bytes(&self) -> usize {
        let longest = self.growth.as_ref().map_or(0, |growth| growth.receive_octets);
        longest.max(self.receive_ring.len())
    }

    /// Returns what became of the segments with the TCP RDMA option that this end has received so far.
    pub fn transfer_counters(&self) -> TransferCounters {
        self.transfer_counters.read()
    }

    /// Why the connection is closed; `None` while it is open.
    pub fn end(&self) -> Option<CloseReason> {
        self.end.load()
    }

    /// Tells the core that there is work: octets to be sent, room for octets received, a command.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.doorbells.ring_byte_stream(self.slot);
        }
    }

    /// Clears the bell: the core looks for work after this.
    pub fn clear_bell(&self) {
        // A swap, not a store: either the application's swap comes first and the core sees its work, or it
        // comes later and rings again.
        self.rung.swap(false, Ordering::AcqRel);
    }

    /// Tells the application that the connection is closed.
    pub fn set_end(&self, reason: CloseReason) {
        self.end.store(Some(reason));
        self.reader.wake();
        self.writer.wake();
    }
}

impl std::fmt::Debug for SharedByteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedByteStream").field("slot", &self.slot).finish_non_exhaustive()
    }
}
