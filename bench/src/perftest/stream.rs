//! The messages that an end sends on a queue pair: as many are outstanding as its plan says, from the first
//! to the last.

use warpline::{
    Advertisement, InlineData, MemoryRegion, Operation, Payload, QueuePair, SendBatch, SendRequest,
};

use super::content::{Comparison, Content, Offsets};
use super::plan::{ATOMIC_BYTES, ATOMIC_WORDS, Figure, Plan, SAMPLE_SLOTS, Verb, Verify};
use super::verify::{After, Verification};
use super::words::Word;

/// Messages posted together, unless the plan has their number.
const BATCH: u64 = 16;
const _: () = assert!(BATCH as usize <= SendBatch::CAPACITY);
/// Messages posted between two polls of the core, the last list whole: half of those that are outstanding by
/// default, so that the other end works on some while this one posts others. With all of them, each end waits
/// for the other in turn.
const POSTED_PER_TURN: u64 = 64;

/// A slot for a message that is compared while others go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// The next sample may go to it.
    Free,
    /// This message is on its way to it.
    Sent(u64),
    /// Its message is being compared.
    Compared,
}

/// The messages that an end sends on a queue pair.
pub struct Stream {
    plan: Plan,
    /// The other end's memory, for all but Sends.
    sink: Advertisement,
    /// Messages to send in all.
    limit: u64,
    posted: u64,
    completed: u64,
    /// Messages posted since the last one with a completion.
    without_completion: u32,
    /// Messages that were compared with their whole region.
    checked: u64,
    /// Messages until the region has to be compared, if the plan compares all of it.
    round: Option<u64>,
    /// The region is being compared.
    checking: bool,
    offsets: Offsets,
    /// The next place in the region.
    place: u32,
    /// The next message that is a sample, if this end chooses them.
    next_sample: u64,
    sample_interval: u64,
    slots: [Slot; SAMPLE_SLOTS],
}

impl Stream {
    /// Returns a stream that may send nothing yet, to `sink`.
    pub fn new(plan: &Plan, content: &Content, sink: Advertisement) -> Self {
        let one_sided = matches!(plan.verb, Verb::Write | Verb::Read);
        let pings = plan.figure == Figure::Latency;
        let round = (plan.verify == Verify::All && one_sided && !pings).then(|| plan.slots());
        // The receiver of a Send, or of a ping, chooses the samples.
        let chooses = plan.verb == Verb::Read || plan.verb == Verb::Write && !pings;
        let samples = chooses && round.is_none() && plan.verify != Verify::Off;
        Self {
            plan: *plan,
            sink,
            limit: 0,
            posted: 0,
            completed: 0,
            without_completion: 0,
            checked: 0,
            round,
            checking: false,
            offsets: content.offsets(),
            place: 0,
            next_sample: if samples { 0 } else { u64::MAX },
            sample_interval: plan.sample_interval(),
            slots: [Slot::Free; SAMPLE_SLOTS],
        }
    }

    /// Lets it send `limit` messages in all.
    #[inline]
    pub const fn allow(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Lets it send no more than it has posted, and what is needed for a last completion.
    pub fn stop(&mut self) {
        let each = self.plan.completion_each;
        let more = if self.without_completion == 0 { 0 } else { each - self.without_completion };
        self.limit = self.limit.min((self.posted + u64::from(more)).min(self.end_of_round()));
    }

    /// Messages sent and acknowledged, or answered.
    #[inline]
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns true if everything it may send is complete, and compared if that needs a pause.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.completed == self.limit && (self.round.is_none() || self.checked == self.completed)
    }

    /// Returns true if nothing is on its way because the region is being compared.
    pub const fn is_paused(&self) -> bool {
        self.checking
    }

    /// Returns true if no sample is on its way or being compared.
    pub fn has_no_samples(&self) -> bool {
        self.slots.iter().all(|slot| *slot == Slot::Free)
    }

    /// Counts the messages up to `number` as complete. Results of Atomic Operations in `local` are compared.
    pub fn on_completion(&mut self, number: u64, local: &MemoryRegion, verification: &mut Verification) {
        debug_assert!((self.completed..self.posted).contains(&number), "completions come in order");
        if self.plan.verb.is_atomic() && self.plan.verify != Verify::Off {
            self.compare_results(self.completed..=number, local, verification);
        }
        self.completed = number + 1;
    }

    fn compare_results(
        &self,
        numbers: impl Iterator<Item = u64>,
        local: &MemoryRegion,
        verification: &mut Verification,
    ) {
        for number in numbers.filter(|number| number % self.sample_interval == 0) {
            let mut value = [0; ATOMIC_BYTES as usize];
            let inside = local.read(self.result_offset(number), &mut value);
            debug_assert!(inside, "each message outstanding has a result");
            verification.compare_value(value, number / ATOMIC_WORDS);
        }
    }

    /// Frees the slot of a sample that has been compared.
    pub fn free_slot(&mut self, slot: u8) {
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            *slot = Slot::Free;
        }
    }

    /// Goes on after the region has been compared.
    pub const fn open_region(&mut self) {
        self.checked = self.completed;
        self.checking = false;
        self.place = 0;
    }

    /// Has samples compared that have arrived at this end, and the region where it is full. Returns the word
    /// to send if the other end is to compare it.
    pub fn compare(&mut self, verification: &mut Verification) -> Option<Word> {
        if self.plan.verb == Verb::Read && self.next_sample != u64::MAX {
            for (index, slot) in self.slots.iter_mut().enumerate() {
                if let Slot::Sent(number) = *slot
                    && number < self.completed
                {
                    let offset = self.plan.sample_offset(index);
                    let sample = Comparison::new(number, 1, self.plan.size, offset);
                    verification.push(sample, After::OwnSlot(index as u8));
                    *slot = Slot::Compared;
                }
            }
        }
        let is_full = self.round.is_some()
            && !self.checking
            && self.completed > self.checked
            && self.completed == self.posted
            && self.posted == self.limit.min(self.end_of_round());
        if !is_full {
            return None;
        }
        self.checking = true;
        let messages = self.completed - self.checked;
        if self.plan.verb == Verb::Write {
            return Some(Word::Check(messages));
        }
        verification.push(Comparison::new(self.checked, messages, self.plan.size, 0), After::OwnRegion);
        None
    }

    fn end_of_round(&self) -> u64 {
        self.round.map_or(u64::MAX, |messages| self.checked + messages)
    }

    /// Posts messages to `qp` as far as the plan allows; `local` has their bytes, or takes the answers.
    ///
    /// # Errors
    ///
    /// The reason why they were not taken, in words.
    #[inline]
    pub fn post(&mut self, qp: &QueuePair, local: &MemoryRegion, content: &Content) -> Result<(), String> {
        let enough = self.posted + POSTED_PER_TURN;
        while self.posted < enough && self.post_together(qp, local, content)? {}
        Ok(())
    }

    /// Posts the next messages together. Returns false if there is no room, or nothing to post.
    #[inline]
    fn post_together(
        &mut self,
        qp: &QueuePair,
        local: &MemoryRegion,
        content: &Content,
    ) -> Result<bool, String> {
        let room = u64::from(self.plan.depth) - (self.posted - self.completed);
        let end = self.limit.min(self.end_of_round());
        let together = match self.plan.post_list {
            0 => BATCH.min(room),
            list if u64::from(list) <= room => list.into(),
            _ => return Ok(false),
        };
        let until = end.min(self.posted + together);
        if until <= self.posted || self.checking {
            return Ok(false);
        }
        let mut batch = qp.batch();
        for number in self.posted..until {
            self.without_completion += 1;
            let signaled = self.without_completion == self.plan.completion_each || number + 1 == end;
            if signaled {
                self.without_completion = 0;
            }
            // Most that are measured are Writes or Sends of registered memory. Such a one becomes the short
            // form at once if it is built where it is pushed.
            let pushed = match self.plan.verb {
                Verb::Write if !self.plan.inline && number < self.next_sample => {
                    let (stag, to) = (self.sink.stag, self.sink.to + u64::from(self.next_place()));
                    let payload = local.slice(self.offsets.advance(), self.plan.size);
                    let operation = Operation::Write { stag, to };
                    batch.push(SendRequest { signaled, ..SendRequest::new(number, operation, payload) })
                }
                Verb::Send if !self.plan.inline => {
                    let payload = local.slice(self.offsets.advance(), self.plan.size);
                    batch.push(SendRequest { signaled, ..SendRequest::new(number, Operation::SEND, payload) })
                }
                _ => batch.push(SendRequest { signaled, ..self.request(number, local, content) }),
            };
            pushed.map_err(|error| error.to_string())?;
        }
        self.posted = until;
        batch.commit().map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Returns the request of message `number`, the next.
    #[inline]
    fn request(&mut self, number: u64, local: &MemoryRegion, content: &Content) -> SendRequest {
        let (size, stag) = (self.plan.size, self.sink.stag);
        match self.plan.verb {
            Verb::Write => {
                let payload = self.payload(local, content);
                let operation = match self.sample_slot(number) {
                    Some(slot) => Operation::WriteWithImmediate {
                        stag,
                        to: self.sink.to + self.plan.sample_offset(slot) as u64,
                        immediate: Word::Sample { slot: slot as u8, number }.encode(),
                        solicited: false,
                    },
                    None => Operation::Write { stag, to: self.sink.to + u64::from(self.next_place()) },
                };
                SendRequest::new(number, operation, payload)
            }
            Verb::Read => {
                let to = self.sink.to + self.offsets.advance() as u64;
                let offset = match self.sample_slot(number) {
                    Some(slot) => self.plan.sample_offset(slot),
                    None => self.next_place() as usize,
                };
                SendRequest::new(number, Operation::Read { stag, to }, local.slice(offset, size))
            }
            Verb::Send => SendRequest::new(number, Operation::SEND, self.payload(local, content)),
            Verb::FetchAdd | Verb::CompareSwap => {
                let to = self.sink.to + number % ATOMIC_WORDS * u64::from(ATOMIC_BYTES);
                let operation = if self.plan.verb == Verb::FetchAdd {
                    Operation::FetchAdd { stag, to, add: 1, mask: 0 }
                } else {
                    let (compare, all) = (number / ATOMIC_WORDS, u64::MAX);
                    let swap = compare + 1;
                    Operation::CompareSwap { stag, to, compare, compare_mask: all, swap, swap_mask: all }
                };
                SendRequest::new(number, operation, local.slice(self.result_offset(number), ATOMIC_BYTES))
            }
        }
    }

    #[inline]
    fn payload(&mut self, local: &MemoryRegion, content: &Content) -> Payload {
        let offset = self.offsets.advance();
        if self.plan.inline
            && let Ok(data) = InlineData::try_from(&content.bytes()[offset..][..self.plan.size as usize])
        {
            return data.into();
        }
        local.slice(offset, self.plan.size).into()
    }

    /// Returns the slot for message `number` if it is to be a sample.
    #[inline]
    fn sample_slot(&mut self, number: u64) -> Option<usize> {
        if number < self.next_sample {
            return None;
        }
        let slot = self.slots.iter().position(|slot| *slot == Slot::Free)?;
        self.slots[slot] = Slot::Sent(number);
        // With --verify all a ping's answer is a sample each time.
        self.next_sample = number + self.sample_interval;
        Some(slot)
    }

    /// Returns the place in the region of the next message.
    #[inline]
    const fn next_place(&mut self) -> u32 {
        let place = self.place;
        let end = place + self.plan.size;
        self.place = if end + self.plan.size > self.plan.region { 0 } else { end };
        place
    }

    /// Returns the offset of the result of Atomic Operation `number`.
    const fn result_offset(&self, number: u64) -> usize {
        (number % self.plan.depth as u64) as usize * ATOMIC_BYTES as usize
    }
}
