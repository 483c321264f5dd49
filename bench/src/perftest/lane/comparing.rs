//! The comparisons of a lane, a part at a time, and the pings that it finds by them: an RDMA Write has no
//! completion where it arrives, so the last byte of a ping shows that it is there.

use super::Lane;
use crate::error::BenchError;
use crate::perftest::content::Comparison;
use crate::perftest::plan::{Figure, PING_SLOTS, Verb};
use crate::perftest::verify::After;
use crate::perftest::words::Word;

impl Lane {
    /// Looks whether the ping has arrived that an RDMA Write carries: its last byte is not the one that was
    /// put there before. The memory changes only while this thread polls the core.
    #[inline]
    pub(super) fn watch_for_ping(&mut self) -> Result<(), BenchError> {
        if self.plan.figure != Figure::Latency || self.plan.verb != Verb::Write {
            return Ok(());
        }
        // The other end writes to the slot again once the ping after this one is answered.
        while !self.verification.is_idle() {
            self.compare_part()?;
            if self.verification.is_waiting() {
                return Ok(());
            }
        }
        let Some(exposed) = &self.exposed else { return Ok(()) };
        let (number, mut last) = (self.arrived, [0]);
        let offset = self.ping_offset(number) + self.plan.size as usize - 1;
        if !exposed.read(offset, &mut last) || last[0] != self.verification.content().last_byte(number) {
            return Ok(());
        }
        self.arrived += 1;
        if !self.is_sample(number) {
            self.unmark(number + u64::from(PING_SLOTS));
            return Ok(());
        }
        self.next_compared += self.plan.sample_interval();
        let sample = Comparison::new(number, 1, self.plan.size, self.ping_offset(number));
        self.verification.push(sample, After::Ping(number));
        Ok(())
    }

    const fn ping_offset(&self, number: u64) -> usize {
        (number % PING_SLOTS as u64) as usize * self.plan.size as usize
    }

    /// Puts a byte where the last one of ping `number` will come that it does not have.
    pub(super) fn unmark(&self, number: u64) {
        if let Some(exposed) = &self.exposed {
            let other = !self.verification.content().last_byte(number);
            let inside = exposed.write(self.ping_offset(number) + self.plan.size as usize - 1, &[other]);
            debug_assert!(inside, "pings lie in the region");
        }
    }

    /// Compares a part of what waits for that.
    #[inline]
    pub(super) fn compare(&mut self) -> Result<(), BenchError> {
        if let Some(stream) = &mut self.stream
            && let Some(word) = stream.compare(&mut self.verification)
        {
            self.say(word)?;
        }
        while !self.verification.is_idle() {
            self.compare_part()?;
            if !self.thorough || self.verification.is_waiting() {
                break;
            }
        }
        Ok(())
    }

    fn compare_part(&mut self) -> Result<(), BenchError> {
        let memory = match self.plan.verb {
            Verb::Send => self.receives.buffers().map(|buffers| buffers.memory().clone()),
            Verb::Write => self.exposed.clone(),
            _ => Some(self.local.clone()),
        };
        let memory =
            memory.ok_or_else(|| self.failed("it has this end compare what does not arrive here"))?;
        match self.verification.advance(&memory) {
            Some(after) => self.on_compared(after),
            None => Ok(()),
        }
    }

    fn on_compared(&mut self, after: After) -> Result<(), BenchError> {
        match (after, &mut self.stream) {
            (After::PeerSlot(slot), _) => self.say(Word::Compared(slot))?,
            (After::PeerRegion, _) => self.say(Word::Checked)?,
            (After::OwnSlot(slot), Some(stream)) => stream.free_slot(slot),
            (After::OwnRegion, Some(stream)) => stream.open_region(),
            (After::Receive(id), _) => {
                self.receives.give_back(id);
                self.receives.post(&self.qp).map_err(|what| self.failed(&what))?;
            }
            (After::Ping(number), _) => self.unmark(number + u64::from(PING_SLOTS)),
            (After::OwnSlot(_) | After::OwnRegion, _) => {}
        }
        Ok(())
    }
}
