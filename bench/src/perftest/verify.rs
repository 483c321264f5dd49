//! The comparison of what arrived, a part at a time between polls, and its outcome.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpline::MemoryRegion;

use super::content::{CHUNK_BYTES, Comparison, Content};
use super::plan::{Figure, Plan, SAMPLE_SLOTS, Verb, Verify};

/// What a comparison permits when it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The other end may write to this slot for samples again.
    PeerSlot(u8),
    /// The other end may write to the region again.
    PeerRegion,
    /// This end may read into this slot for samples again.
    OwnSlot(u8),
    /// This end may read into the region again.
    OwnRegion,
    /// The buffer of this receive may be posted again.
    Receive(u64),
    /// The place of this ping may be prepared for the next one there.
    Ping(u64),
}

/// Comparisons to make, and the outcome of those made.
pub struct Verification {
    content: Arc<Content>,
    queue: VecDeque<(Comparison, After)>,
    /// A copy of the part that is being compared.
    chunk: Box<[u8]>,
    /// Comparisons before the one whose bytes are damaged on purpose.
    damage_after: Option<u64>,
    /// How long bytes may take to become right: those of RDMA Writes that fill a gap may arrive after the
    /// last one.
    patience: Duration,
    /// The end of this time for the comparison that found wrong bytes.
    give_up_at: Option<Instant>,
    /// Wrong bytes of the comparison that is under way.
    corrupt: u64,
    /// Bytes compared.
    pub compared_bytes: u64,
    /// Bytes of them that were wrong.
    pub corrupt_bytes: u64,
}

impl Verification {
    /// Returns a verification that damages the bytes of comparison `damage`, counted from 1.
    pub fn new(content: Arc<Content>, damage: Option<u64>, patience: Duration, room: usize) -> Self {
        Self {
            content,
            queue: VecDeque::with_capacity(room),
            chunk: vec![0; CHUNK_BYTES].into(),
            damage_after: damage.map(|number| number.saturating_sub(1)),
            patience,
            give_up_at: None,
            corrupt: 0,
            compared_bytes: 0,
            corrupt_bytes: 0,
        }
    }

    /// Returns the expected bytes.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Adds a comparison.
    pub fn push(&mut self, comparison: Comparison, after: After) {
        self.queue.push_back((comparison, after));
    }

    /// Adds a comparison that the other end asks for, after which `after` is said to it. A slot or the region
    /// is written again only when it has been compared, so at most one comparison of each is queued. More are
    /// refused: their words take no receive, so nothing else would bound them.
    ///
    /// # Errors
    ///
    /// The reason why the other end may not ask for it, in words.
    pub fn push_for_peer(
        &mut self,
        plan: &Plan,
        comparison: Comparison,
        after: After,
    ) -> Result<(), &'static str> {
        let streams_writes = plan.verb == Verb::Write && plan.figure == Figure::Bandwidth;
        let (verify, twice) = match after {
            After::PeerSlot(slot) if usize::from(slot) >= SAMPLE_SLOTS => {
                return Err("it has a sample in a slot that does not exist");
            }
            After::PeerSlot(_) => {
                (Verify::Sample, "it wrote a sample to a slot that is still to be compared")
            }
            _ => (Verify::All, "it asks for a comparison of the region before the last one is complete"),
        };
        if !streams_writes || plan.verify != verify {
            return Err("it asks for a comparison that the test does not have");
        }
        if self.queue.iter().any(|(_, queued)| *queued == after) {
            return Err(twice);
        }
        self.push(comparison, after);
        Ok(())
    }

    /// Returns true if there is nothing to compare.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if bytes were wrong that may become right when more arrives.
    #[inline]
    pub const fn is_waiting(&self) -> bool {
        self.give_up_at.is_some()
    }

    /// Compares the next part of `memory`. Returns what the comparison permits, if it is complete.
    pub fn advance(&mut self, memory: &MemoryRegion) -> Option<After> {
        let (comparison, after) = self.queue.front_mut()?;
        let after = *after;
        if comparison.is_new() && self.give_up_at.is_none() && take_turn(&mut self.damage_after) {
            invert_bit(memory, comparison.offset());
        }
        self.corrupt += comparison.advance(&self.content, memory, &mut self.chunk);
        if !comparison.is_done() {
            return None;
        }
        if self.corrupt > 0 && !self.patience.is_zero() {
            let patience = self.patience;
            if Instant::now() < *self.give_up_at.get_or_insert_with(|| Instant::now() + patience) {
                comparison.restart();
                self.corrupt = 0;
                return None;
            }
        }
        self.compared_bytes += comparison.bytes();
        self.corrupt_bytes += core::mem::take(&mut self.corrupt);
        self.give_up_at = None;
        self.queue.pop_front();
        Some(after)
    }

    /// Compares the result of an Atomic Operation.
    pub fn compare_value(&mut self, got: [u8; 8], expected: u64) {
        let expected = if take_turn(&mut self.damage_after) { expected ^ 1 } else { expected }.to_ne_bytes();
        self.compared_bytes += expected.len() as u64;
        self.corrupt_bytes +=
            got.iter().zip(expected).filter(|(got, expected)| *got != expected).count() as u64;
    }
}

/// Returns true if it is this comparison's turn to be damaged.
fn take_turn(damage_after: &mut Option<u64>) -> bool {
    match damage_after {
        Some(0) => {
            *damage_after = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

fn invert_bit(memory: &MemoryRegion, offset: usize) {
    let mut byte = [0];
    let inverted = memory.read(offset, &mut byte) && memory.write(offset, &[byte[0] ^ 1]);
    debug_assert!(inverted, "comparisons lie inside the memory, which is not constant");
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        verb: Verb::Write,
        figure: Figure::Bandwidth,
        verify: Verify::Sample,
        bidirectional: false,
        inline: false,
        last: true,
        one_region: false,
        beside: false,
        size: 4096,
        region: 1 << 20,
        depth: 128,
        completion_each: 1,
        post_list: 0,
        core: None,
    };

    fn verification() -> Verification {
        Verification::new(Arc::new(Content::new(PLAN.size)), None, Duration::ZERO, 4)
    }

    fn ask(verification: &mut Verification, plan: &Plan, after: After) -> Result<(), &'static str> {
        verification.push_for_peer(plan, Comparison::new(0, 1, plan.size, 0), after)
    }

    #[test]
    fn a_peer_has_one_sample_in_each_slot() {
        let mut verification = verification();
        assert_eq!(ask(&mut verification, &PLAN, After::PeerSlot(0)), Ok(()));
        assert_eq!(ask(&mut verification, &PLAN, After::PeerSlot(1)), Ok(()));
        for slot in [0, 1] {
            let error = ask(&mut verification, &PLAN, After::PeerSlot(slot)).unwrap_err();
            assert!(error.contains("still to be compared"), "{error}");
        }
        for slot in [SAMPLE_SLOTS as u8, 255] {
            let error = ask(&mut verification, &PLAN, After::PeerSlot(slot)).unwrap_err();
            assert!(error.contains("does not exist"), "{error}");
        }
        assert_eq!(verification.queue.len(), SAMPLE_SLOTS);
        verification.queue.pop_front();
        assert_eq!(ask(&mut verification, &PLAN, After::PeerSlot(0)), Ok(()), "slot 0 is free again");
    }

    #[test]
    fn a_peer_has_one_comparison_of_the_region() {
        let plan = Plan { verify: Verify::All, ..PLAN };
        let mut verification = verification();
        assert_eq!(ask(&mut verification, &plan, After::PeerRegion), Ok(()));
        let error = ask(&mut verification, &plan, After::PeerRegion).unwrap_err();
        assert!(error.contains("before the last one is complete"), "{error}");
        verification.queue.pop_front();
        assert_eq!(ask(&mut verification, &plan, After::PeerRegion), Ok(()));
    }

    #[test]
    fn a_peer_asks_for_the_comparisons_of_its_plan() {
        let mut verification = verification();
        for (plan, after) in [
            (Plan { verify: Verify::Off, ..PLAN }, After::PeerSlot(0)),
            (Plan { verify: Verify::Off, ..PLAN }, After::PeerRegion),
            (Plan { verify: Verify::All, ..PLAN }, After::PeerSlot(0)),
            (PLAN, After::PeerRegion),
            (Plan { verb: Verb::Send, ..PLAN }, After::PeerSlot(0)),
            (Plan { figure: Figure::Latency, ..PLAN }, After::PeerSlot(0)),
        ] {
            let error = ask(&mut verification, &plan, after).unwrap_err();
            assert!(error.contains("does not have"), "{error}");
        }
        assert!(verification.is_idle());
    }
}
