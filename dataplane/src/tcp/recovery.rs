//! The state of loss recovery: its phase, and what is needed to undo a spurious reduction.

use crate::wire::tcp::SeqNumber;

use super::prr::Prr;
use super::rack::Rack;
use super::sack_blocks::Block;
use super::send_queue::SendQueue;

/// Segments selectively acknowledged beyond a hole, or duplicate acknowledgements, that make a loss certain.
pub(super) const DUPLICATE_THRESHOLD: u32 = 3;

/// The phase of loss recovery.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// No loss is known.
    Open,
    /// Fast recovery: losses are repaired without a timeout.
    Fast(Prr),
    /// Losses are repaired after a retransmission timeout.
    Timeout {
        /// What tells whether the timeout was spurious.
        frto: Frto,
    },
}

/// Which acknowledgement after a timeout is awaited to tell whether it was spurious.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frto {
    /// The first (step 2).
    First,
    /// The second (step 3): meanwhile so many new segments may be sent, and no lost ones.
    Second { segments_left: u8 },
    /// None: recovery is the conventional one.
    Over,
}

impl Frto {
    /// Begins with the timeout if it `may_tell`.
    pub(super) const fn new(may_tell: bool) -> Self {
        if may_tell { Self::First } else { Self::Over }
    }
}

/// A tail loss probe: a segment sent to learn whether the last segments have arrived (RFC 8985 §7.3).
#[derive(Clone, Copy, Debug)]
pub(super) struct TailProbe {
    /// SND.NXT after it.
    pub(super) end: SeqNumber,
    /// It was sent before.
    pub(super) retransmission: bool,
}

/// The segments that a recovery has retransmitted, if they are few. With many, a spurious recovery is
/// unlikely.
#[derive(Clone, Copy, Debug)]
struct Resent {
    /// The first `count` of them.
    blocks: [Block; 3],
    count: u8,
    too_many: bool,
}

impl Resent {
    const fn new() -> Self {
        Self { blocks: [(SeqNumber(0), SeqNumber(0)); 3], count: 0, too_many: false }
    }

    fn add(&mut self, block: Block) {
        match self.blocks.get_mut(usize::from(self.count)) {
            Some(place) if !self.too_many => {
                *place = block;
                self.count += 1;
            }
            _ => self.too_many = true,
        }
    }

    /// Records that the peer received `block` twice. Returns true if it has now received every retransmitted
    /// segment twice.
    ///
    /// Example: of 1:1001 and 1001:2001, sent again, both copies arrive together, and the peer reports 1:2001
    /// (RFC 2883 §4: a contiguous sequence is one block). That answers both.
    fn answered_by(&mut self, block: Block) -> bool {
        let before = self.count;
        let mut left = 0;
        for number in 0..usize::from(before) {
            let resent = self.blocks[number];
            if resent.0 < block.0 || block.1 < resent.1 {
                self.blocks[left] = resent;
                left += 1;
            }
        }
        self.count = left as u8;
        self.count == 0 && before > 0 && !self.too_many
    }
}

/// The state needed to undo a reduction.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Undo {
    /// Our timestamp clock when the first segment was retransmitted.
    clock: Option<u32>,
    /// The first octet retransmitted.
    from: SeqNumber,
    /// Segments retransmitted that the peer has not reported as duplicates yet.
    resent: Resent,
}

/// The loss recovery of one connection. It begins with what says whether there is anything to recover, which
/// each segment needs; the first octets of `undo` are part of that.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Recovery {
    pub(super) phase: Phase,
    pub(super) tail_probe: Option<TailProbe>,
    /// Duplicate acknowledgements, counted if there are no selective ones.
    pub(super) duplicate_acks: u32,
    pub(super) tail_probe_owed: bool,
    undo: Option<Undo>,
    pub(super) rack: Rack,
    /// SND.NXT when the last recovery began: the recovery ends when this is acknowledged (RFC 6582
    /// `recover`).
    pub(super) until: SeqNumber,
    /// No further reduction for marked packets before this is acknowledged: one a round trip (RFC 3168
    /// §6.1.2).
    pub(super) ecn_until: SeqNumber,
}

impl Recovery {
    /// How many octets, the first ones, say whether anything is to be recovered: what each segment needs.
    #[cfg(test)]
    pub(super) const HOT_OCTETS: usize = core::mem::offset_of!(Self, undo) + size_of::<u32>();

    pub(super) const fn new(start: SeqNumber) -> Self {
        Self {
            phase: Phase::Open,
            rack: Rack::new(start),
            until: start,
            ecn_until: start,
            tail_probe: None,
            tail_probe_owed: false,
            duplicate_acks: 0,
            undo: None,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether no loss is known, and nothing that was done about one could still be undone.
    #[inline]
    pub(super) const fn is_at_rest(&self) -> bool {
        self.is_open() && !self.may_be_undone()
    }

    /// Whether a tail probe is outstanding, or what was done about a loss could still be undone.
    #[inline]
    pub(super) const fn may_be_undone(&self) -> bool {
        self.tail_probe.is_some() || self.undo.is_some()
    }

    /// Octets that have left the network according to duplicate acknowledgements.
    fn left_octets(&self, emss_octets: u32) -> u32 {
        self.duplicate_acks.saturating_mul(emss_octets)
    }

    /// Octets of `queue` believed to be in flight. Without selective acknowledgements, each duplicate
    /// acknowledgement stands for one segment that has left the network (RFC 5681 §3.2).
    pub(super) fn pipe_octets(&self, queue: &SendQueue, emss_octets: u32) -> u32 {
        queue.in_flight_octets().saturating_sub(self.left_octets(emss_octets))
    }

    /// Records that the octets `block` were retransmitted at clock value `clock`.
    pub(super) fn on_resent(&mut self, clock: u32, block: Block) {
        if let Some(undo) = &mut self.undo {
            undo.resent.add(block);
            if undo.clock.is_none() {
                undo.clock = Some(clock);
            }
        }
    }

    /// Records that the peer received the octets `block` twice. Returns true if that holds for every
    /// retransmitted segment: then nothing was lost (RFC 3708 §2). Octets that only the network duplicated do
    /// not count.
    pub(super) fn on_duplicate_delivery(&mut self, block: Block) -> bool {
        self.undo.as_mut().is_some_and(|undo| undo.resent.answered_by(block))
    }

    /// Whether an acknowledgement up to `ack` with the timestamp echo `echo` is for the first transmission of
    /// the first retransmitted segment: the echo is older than its retransmission (RFC 3522).
    pub(super) fn answers_first_sending(&self, ack: SeqNumber, echo: u32) -> bool {
        self.undo.is_some_and(|undo| {
            // If more segments were retransmitted, the first one does not show that the others had arrived.
            let is_sole = undo.resent.count <= 1 && !undo.resent.too_many;
            is_sole
                && ack > undo.from
                && undo.clock.is_some_and(|clock| super::timestamps::is_before(echo, clock))
        })
    }

    pub(super) const fn forget_undo(&mut self) {
        self.undo = None;
    }

    /// Records where a recovery begins: it repairs the segments outstanding now, from `una` up to `nxt`.
    pub(super) const fn on_reduction(&mut self, una: SeqNumber, nxt: SeqNumber) {
        self.until = nxt;
        self.undo = Some(Undo { from: una, clock: None, resent: Resent::new() });
    }
}
