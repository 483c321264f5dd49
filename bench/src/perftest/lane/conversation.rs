//! The words that a lane says to the other end, and what it does for each word that arrives from there.

use warpline::{Operation, Payload, SendRequest};

use super::{Lane, Role, WORD};
use crate::error::BenchError;
use crate::perftest::content::Comparison;
use crate::perftest::plan::{Figure, Verb};
use crate::perftest::stream::Stream;
use crate::perftest::supplies::Supplies;
use crate::perftest::verify::After;
use crate::perftest::words::Word;

impl Lane {
    pub(super) fn on_word(&mut self, word: Word) -> Result<(), BenchError> {
        match word {
            Word::Start(messages) => {
                self.started = true;
                self.wanted = messages;
                if self.plan.bidirectional {
                    self.allow(if messages == 0 { u64::MAX } else { messages });
                }
            }
            Word::Sample { slot, number } => {
                let offset = self.plan.sample_offset(usize::from(slot));
                let sample = Comparison::new(number, 1, self.plan.size, offset);
                self.compare_for_peer(sample, After::PeerSlot(slot))?;
            }
            Word::Check(messages) => {
                if messages == 0 || messages > self.plan.slots() {
                    return Err(self.failed("it asks for a comparison of more than the region"));
                }
                let region = Comparison::new(self.checked, messages, self.plan.size, 0);
                self.compare_for_peer(region, After::PeerRegion)?;
                self.checked += messages;
            }
            Word::Compared(slot) => {
                if let Some(stream) = &mut self.stream {
                    stream.free_slot(slot);
                }
            }
            Word::Checked => {
                if let Some(stream) = &mut self.stream {
                    stream.open_region();
                }
            }
            Word::Sent => self.peer_sent = true,
            Word::Finish => {
                self.sent_at_finish = Some(self.completed());
                self.stop();
            }
            Word::Messages(count) => self.report.messages = count,
            Word::Arrived(count) => self.report.arrived = Some(count),
            Word::ComparedBytes(bytes) => self.report.compared_bytes = bytes,
            Word::CorruptBytes(bytes) => self.report.corrupt_bytes = bytes,
            Word::Reported => self.report.complete = true,
        }
        Ok(())
    }

    fn compare_for_peer(&mut self, comparison: Comparison, after: After) -> Result<(), BenchError> {
        let queued = self.verification.push_for_peer(&self.plan, comparison, after);
        queued.map_err(|what| self.failed(what))
    }

    /// Says what the listening end owes: that its messages are sent, and its report.
    #[inline]
    pub(super) fn say_what_is_due(&mut self) -> Result<(), BenchError> {
        if self.role == Role::Connecting {
            return Ok(());
        }
        let sent = self.stream.as_ref().is_none_or(Stream::is_done);
        if self.plan.bidirectional && self.wanted > 0 && sent && !self.said_sent {
            self.said_sent = true;
            self.say(Word::Sent)?;
        }
        let Some(messages) = self.sent_at_finish else { return Ok(()) };
        if self.said_report || !sent || !self.is_compared() {
            return Ok(());
        }
        self.said_report = true;
        self.say(Word::Messages(messages))?;
        if let Some(arrived) = self.count_of_arrived() {
            self.say(Word::Arrived(arrived))?;
        }
        let (compared, corrupt) = self.compared();
        self.say(Word::ComparedBytes(compared))?;
        self.say(Word::CorruptBytes(corrupt))?;
        self.say(Word::Reported)
    }

    fn count_of_arrived(&self) -> Option<u64> {
        match (self.plan.verb, &self.exposed) {
            (Verb::Send, _) => Some(self.arrived),
            (Verb::FetchAdd | Verb::CompareSwap, Some(words)) => Some(Supplies::sum_of_words(words)),
            (Verb::Write, _) if self.plan.figure == Figure::Latency => Some(self.arrived),
            _ => None,
        }
    }

    pub(super) fn say(&self, word: Word) -> Result<(), BenchError> {
        let operation = Operation::Immediate { immediate: word.encode(), solicited: false };
        let posted = self.qp.post(SendRequest::new(WORD, operation, Payload::EMPTY));
        posted.map_err(|error| self.failed(&error.to_string()))
    }
}
