//! The state of loss recovery: its phase, and what is needed to undo a spurious reduction.

use arrayvec::ArrayVec;

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

/// Retransmissions that the peer has not reported as duplicates yet, if they are few. With many, a spurious
/// recovery is unlikely.
#[derive(Clone, Copy, Debug)]
struct Resent {
    /// The first `count` of them: a segment sent again twice stands here twice.
    blocks: [Block; 3],
    /// The end of the last of those that have no place here.
    others_end: SeqNumber,
    count: u8,
    has_others: bool,
}

impl Resent {
    const fn new() -> Self {
        Self {
            blocks: [(SeqNumber(0), SeqNumber(0)); 3],
            others_end: SeqNumber(0),
            count: 0,
            has_others: false,
        }
    }

    const fn is_empty(&self) -> bool {
        self.count == 0 && !self.has_others
    }

    fn add(&mut self, block: Block) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.count)) {
            *place = block;
            self.count += 1;
        } else {
            let is_last = !self.has_others || block.1 > self.others_end;
            self.others_end = if is_last { block.1 } else { self.others_end };
            self.has_others = true;
        }
    }

    /// Keeps the blocks for which `keep` returns true.
    fn retain(&mut self, mut keep: impl FnMut(Block) -> bool) {
        let mut kept = 0;
        for number in 0..usize::from(self.count) {
            let block = self.blocks[number];
            if keep(block) {
                self.blocks[kept] = block;
                kept += 1;
            }
        }
        self.count = kept as u8;
    }

    /// Forgets what is acknowledged, up to `una`.
    fn forget_acknowledged(&mut self, una: SeqNumber) {
        self.retain(|block| block.1 > una);
        self.has_others &= self.others_end > una;
    }

    /// Records that the peer received `block` twice. Returns true if it has now received a duplicate for
    /// every retransmission.
    ///
    /// Example: of 1:1001 and 1001:2001, sent again, both copies arrive together, and the peer reports 1:2001
    /// (RFC 2883 §4: a contiguous sequence is one block). That answers both. A segment sent again twice needs
    /// two reports: three copies of which two arrived are a loss.
    fn answered_by(&mut self, duplicate: Block) -> bool {
        let was_empty = self.count == 0;
        let mut answered: ArrayVec<Block, 3> = ArrayVec::new();
        self.retain(|block| {
            let is_inside = duplicate.0 <= block.0 && block.1 <= duplicate.1;
            let is_again = answered.iter().any(|one| block.0 < one.1 && one.0 < block.1);
            if is_inside && !is_again {
                answered.push(block);
            }
            !is_inside || is_again
        });
        !was_empty && self.is_empty()
    }

    /// Whether octets of `block` may be among those retransmitted.
    fn may_have(&self, block: Block) -> bool {
        let known = &self.blocks[..usize::from(self.count)];
        self.has_others || known.iter().any(|one| block.0 < one.1 && one.0 < block.1)
    }
}

/// What a recovery has retransmitted: what tells whether an acknowledgement is for a first transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repaired {
    Nothing,
    /// One segment that had been sent once.
    One,
    /// More, so that the first one does not show that the others had arrived, or a segment that a probe or an
    /// earlier recovery had sent again.
    More,
}

/// The loss recovery of one connection. It begins with what says whether there is anything to recover, which
/// each segment needs, to `has_undo`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Recovery {
    pub(super) phase: Phase,
    pub(super) tail_probe: Option<TailProbe>,
    /// Duplicate acknowledgements, counted if there are no selective ones.
    pub(super) duplicate_acks: u32,
    pub(super) tail_probe_owed: bool,
    /// Whether the last reduction may be undone.
    has_undo: bool,
    repaired: Repaired,
    /// Only the last reduction for a loss has answered the marks before [`ecn_until`](Self::ecn_until).
    is_sole_answer: bool,
    pub(super) rack: Rack,
    /// SND.NXT when the last recovery began: the recovery ends when this is acknowledged (RFC 6582
    /// `recover`).
    pub(super) until: SeqNumber,
    /// No further reduction for marked packets before this is acknowledged: one a round trip (RFC 3168
    /// §6.1.2).
    pub(super) ecn_until: SeqNumber,
    /// The first octet of the recovery whose reduction may be undone.
    undo_from: SeqNumber,
    /// Our timestamp clock when that recovery retransmitted its first segment.
    repaired_clock: u32,
    resent: Resent,
}

impl Recovery {
    /// How many octets, the first ones, say whether anything is to be recovered: what each segment needs.
    #[cfg(test)]
    pub(super) const HOT_OCTETS: usize = core::mem::offset_of!(Self, has_undo) + size_of::<bool>();

    pub(super) const fn new(start: SeqNumber) -> Self {
        Self {
            phase: Phase::Open,
            rack: Rack::new(start),
            until: SeqNumber(start.0.wrapping_sub(1)),
            ecn_until: start,
            tail_probe: None,
            tail_probe_owed: false,
            duplicate_acks: 0,
            has_undo: false,
            repaired: Repaired::Nothing,
            is_sole_answer: false,
            repaired_clock: 0,
            undo_from: start,
            resent: Resent::new(),
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
        self.tail_probe.is_some() || self.has_undo
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

    /// Forgets retransmissions before `una`, unless their duplicates are awaited.
    pub(super) fn forget_acknowledged(&mut self, una: SeqNumber) {
        if !self.has_undo {
            self.resent.forget_acknowledged(una);
        }
    }

    /// Records that the octets `block` were retransmitted at clock value `clock`, all before `una` being
    /// acknowledged.
    pub(super) fn on_resent(&mut self, clock: u32, block: Block, una: SeqNumber) {
        self.forget_acknowledged(una);
        if self.has_undo {
            let is_first = self.repaired == Repaired::Nothing && !self.resent.may_have(block);
            self.repaired = if is_first { Repaired::One } else { Repaired::More };
            self.repaired_clock = if is_first { clock } else { self.repaired_clock };
        }
        self.resent.add(block);
    }

    /// Records that the peer received the octets `block` twice. Returns true if that holds for every
    /// retransmission: then nothing was lost (RFC 3708 §2). Octets that only the network duplicated do not
    /// count.
    pub(super) fn on_duplicate_delivery(&mut self, block: Block) -> bool {
        self.has_undo && self.resent.answered_by(block)
    }

    /// Whether an acknowledgement up to `ack` with the timestamp echo `echo` is for the first transmission of
    /// the first retransmitted segment: the echo is older than its retransmission (RFC 3522).
    pub(super) fn answers_first_sending(&self, ack: SeqNumber, echo: u32) -> bool {
        self.has_undo
            && self.repaired == Repaired::One
            && ack > self.undo_from
            && super::timestamps::is_before(echo, self.repaired_clock)
    }

    /// A reduction for a loss answers the marks of the segments from `una` up to `nxt` as well (RFC 3168
    /// §6.1.2).
    pub(super) fn answer_marks(&mut self, una: SeqNumber, nxt: SeqNumber) {
        self.is_sole_answer = una >= self.ecn_until;
        self.ecn_until = nxt;
    }

    /// The reduction was undone, and with it the answer to marks that nothing before has answered.
    pub(super) fn forget_answer(&mut self, una: SeqNumber) {
        if self.is_sole_answer {
            self.ecn_until = una - 1;
        }
    }

    pub(super) const fn forget_undo(&mut self) {
        self.has_undo = false;
    }

    /// Records where a recovery begins: it repairs the segments outstanding now, from `una` up to `nxt`. What
    /// was sent again before, as a tail probe or in a recovery that this one follows, and may yet arrive,
    /// counts with what it sends again.
    pub(super) fn on_reduction(&mut self, una: SeqNumber, nxt: SeqNumber) {
        self.until = nxt;
        self.has_undo = true;
        self.undo_from = una;
        self.repaired = Repaired::Nothing;
        self.resent.forget_acknowledged(una);
    }
}
