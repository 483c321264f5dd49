//! Lanes that stream beside the one that is measured.

use std::time::Instant;

use super::lane::Lane;
use super::rotation::{Pass, Rotation};
use crate::endpoint::Driver;
use crate::error::BenchError;

/// Lanes that have messages outstanding from the first to the last.
pub struct Bulk<'l>(Rotation<'l>);

impl<'l> Bulk<'l> {
    /// Returns no lane.
    pub fn none(driver: &Driver) -> Self {
        Self(Rotation::new(&mut [], driver))
    }

    /// Has `lanes` stream, and polls until a message is complete on each of them: all of them are busy then.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    pub fn start(driver: &mut Driver, lanes: &'l mut [Lane]) -> Result<Self, BenchError> {
        lanes.iter_mut().try_for_each(|lane| lane.start(None))?;
        let mut bulk = Self(Rotation::new(lanes, driver));
        bulk.poll_until(driver, |_, lanes| lanes.iter().all(|lane| lane.completed() > 0))?;
        Ok(bulk)
    }

    /// Does what there is to do on the next lanes.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    #[inline]
    pub fn turn(&mut self) -> Result<(), BenchError> {
        self.0.turn().map(drop)
    }

    /// Returns the messages that are complete.
    pub fn completed(&self) -> u64 {
        self.0.completed()
    }

    /// Sends no more, and polls until everything that was sent is complete.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    pub fn finish(mut self, driver: &mut Driver) -> Result<(), BenchError> {
        self.0.stop();
        self.poll_until(driver, |pass, _| pass.done)
    }

    /// Takes turns until a pass over all lanes `ends` it.
    fn poll_until(
        &mut self,
        driver: &mut Driver,
        ends: impl Fn(Pass, &[Lane]) -> bool,
    ) -> Result<(), BenchError> {
        let (mut completed, mut since) = (0, Instant::now());
        loop {
            if let Some(pass) = self.0.turn()? {
                if ends(pass, self.0.lanes()) {
                    return Ok(());
                }
                let completed_now = self.completed();
                if completed_now != completed {
                    (completed, since) = (completed_now, Instant::now());
                }
                if let Some(lane) = self.0.lanes().first().filter(|lane| since.elapsed() > lane.timeout()) {
                    return Err(lane.failed("the Writes beside the pings do not complete"));
                }
            }
            if !driver.poll_once() {
                driver.pause();
            }
        }
    }
}
