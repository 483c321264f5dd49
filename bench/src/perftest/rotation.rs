//! Lanes that take turns: a few of them are looked at between two polls of the core.

use super::lane::{Lane, lanes_per_turn};
use crate::endpoint::Driver;
use crate::error::BenchError;

/// Lanes of the end that connects, in turns.
pub struct Rotation<'l> {
    lanes: &'l mut [Lane],
    per_turn: usize,
    next: usize,
    pass: Pass,
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
        Self { lanes, per_turn, next: 0, pass: Pass::BEGUN }
    }

    /// Returns the number of turns in which each lane has one.
    pub fn turns(&self) -> u32 {
        self.lanes.len().div_ceil(self.per_turn.max(1)) as u32
    }

    /// Does what there is to do on the next lanes. Returns what holds for all of them after the last ones.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    #[inline]
    pub fn turn(&mut self) -> Result<Option<Pass>, BenchError> {
        let Self { lanes, per_turn, next, pass } = self;
        let end = lanes.len().min(*next + *per_turn);
        for lane in &mut lanes[*next..end] {
            lane.step_on()?;
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

    /// Returns the lanes.
    pub const fn lanes(&self) -> &[Lane] {
        self.lanes
    }

    /// Returns the messages that are complete on all lanes.
    pub fn completed(&self) -> u64 {
        self.lanes.iter().map(Lane::completed).sum()
    }

    /// Has all lanes send no more.
    pub fn stop(&mut self) {
        self.lanes.iter_mut().for_each(Lane::stop);
    }
}
