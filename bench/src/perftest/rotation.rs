//! Lanes that take turns: those that have completions, and a few others, are looked at between two polls of
//! the core.

use warpline::{Completion, QpNumber, SharedCompletionQueue};

use super::lane::{BATCH, Lane, lanes_per_turn};
use crate::endpoint::Driver;
use crate::error::BenchError;

/// Lanes of the end that connects, in turns.
pub struct Rotation<'l> {
    lanes: &'l mut [Lane],
    per_turn: usize,
    next: usize,
    pass: Pass,
    /// Messages that are complete on all lanes. The lanes have their own counts, but with thousands of them
    /// to add those up takes longer than what the core does.
    completed: u64,
    /// Where they report completions together; none if each has a queue of its own.
    completions: Vec<SharedCompletionQueue>,
    polled: Vec<Completion>,
}

/// What holds for every lane, as each was found at its last turn.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Its messages are complete.
    pub done: bool,
    /// Nothing of it is on its way because its region is being compared.
    pub paused: bool,
}

impl Pass {
    const BEGUN: Self = Self { done: true, paused: true };
}

impl<'l> Rotation<'l> {
    /// Returns the turns of `lanes` between the polls of `driver`: all of them before it sleeps.
    pub fn new(lanes: &'l mut [Lane], driver: &Driver) -> Self {
        let count = lanes.len();
        let per_turn = if driver.sleeps() { count } else { lanes_per_turn(lanes.first(), count) };
        let mut completions: Vec<_> =
            lanes.iter().filter_map(Lane::shared_completions).map(|queue| (queue.number(), queue)).collect();
        completions.dedup_by_key(|(number, _)| *number);
        let completions = completions.into_iter().map(|(_, queue)| queue.clone()).collect();
        let completed = lanes.iter().map(Lane::completed).sum();
        let polled = Vec::with_capacity(BATCH);
        Self { lanes, per_turn, next: 0, pass: Pass::BEGUN, completed, completions, polled }
    }

    /// Returns the number of turns in which all messages that are complete are counted.
    pub fn turns(&self) -> u32 {
        let of_all = self.lanes.len().div_ceil(self.per_turn.max(1)) as u32;
        if self.completions.is_empty() { of_all } else { 1 }
    }

    /// Does what there is to do on the lanes that have completions, and on the next ones. Returns what holds
    /// for all lanes after the last ones.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    #[inline]
    pub fn turn(&mut self) -> Result<Option<Pass>, BenchError> {
        self.serve_completions()?;
        let Self { lanes, per_turn, next, pass, completed, .. } = self;
        let end = lanes.len().min(*next + *per_turn);
        for lane in &mut lanes[*next..end] {
            let before = lane.completed();
            lane.step_on()?;
            *completed += lane.completed() - before;
            pass.done &= lane.is_done();
            pass.paused &= lane.is_paused();
        }
        *next = end;
        if end < lanes.len() {
            return Ok(None);
        }
        *next = 0;
        Ok(Some(core::mem::replace(pass, Pass::BEGUN)))
    }

    /// Handles the completions of all lanes, a batch at most from each queue, and has the lanes that they are
    /// of go on.
    #[inline]
    fn serve_completions(&mut self) -> Result<(), BenchError> {
        for queue in 0..self.completions.len() {
            self.completions[queue].lock().poll_into(&mut self.polled);
            self.serve_polled()?;
        }
        Ok(())
    }

    #[inline]
    fn serve_polled(&mut self) -> Result<(), BenchError> {
        let mut polled = self.polled.drain(..).peekable();
        while let Some(completion) = polled.next() {
            let Some(lane) = lane_of(self.lanes, completion.qp) else { continue };
            let before = lane.completed();
            lane.complete(&completion)?;
            self.completed += lane.completed() - before;
            // Those of one lane often come together.
            if polled.peek().is_none_or(|next| next.qp != completion.qp) {
                lane.go_on()?;
            }
        }
        Ok(())
    }

    /// Returns the lanes.
    pub const fn lanes(&self) -> &[Lane] {
        self.lanes
    }

    /// Returns the messages that are complete on all lanes.
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// Has all lanes send no more.
    pub fn stop(&mut self) {
        self.lanes.iter_mut().for_each(Lane::stop);
    }
}

/// Returns the lane whose queue pair has this number. Most have numbers in a row.
fn lane_of(lanes: &mut [Lane], number: QpNumber) -> Option<&mut Lane> {
    let is_of = |lane: &Lane| lane.qp.number() == number;
    let first = lanes.first()?.qp.number();
    let guess = number.0.wrapping_sub(first.0) as usize;
    let index = if lanes.get(guess).is_some_and(is_of) { guess } else { lanes.iter().position(is_of)? };
    lanes.get_mut(index)
}
