//! Pings: one message at a time, and the time until it is answered.
//!
//! An RDMA Write and a Send are answered by a message of the same size; half of the time of both is the
//! latency. An RDMA Read and an Atomic Operation are answered by their result: the whole time is the latency,
//! as in perftest.

use std::time::{Duration, Instant};

use warpline_tools::error::CommandError;
use warpline_tools::interrupt;

use super::client::{Measured, Run, step};
use super::lane::Lane;
use super::plan::Verb;
use crate::endpoint::Driver;
use crate::error::BenchError;
use crate::times::Times;

/// Polls between two looks at the clock.
const POLLS: u32 = 4096;

/// The times of pings.
#[derive(Debug, Default)]
pub struct Pings {
    /// The distribution of the latencies.
    pub times: Times,
    /// The latencies in the order of the pings, in nanoseconds, if they are kept.
    pub in_order: Vec<u64>,
}

/// Makes pings until the time or the messages are used up.
///
/// # Errors
///
/// [`BenchError::Peer`].
pub fn ping_all(driver: &mut Driver, lane: &mut Lane, run: &Run) -> Result<Measured, BenchError> {
    let mut pings = Pings::default();
    let parts = if answered_by_message(run.plan.verb) { 2 } else { 1 };
    if let (true, Some(messages)) = (run.keeps_times, run.messages) {
        pings.in_order.reserve_exact(messages as usize);
    }
    let start = Instant::now();
    let mut number = 0;
    while run.messages.is_none_or(|messages| number < messages) && !run.is_over(start.elapsed()) {
        let latency = match ping(driver, lane, number, run.plan.verb) {
            // The pings before it count.
            Err(BenchError::Command(CommandError::Interrupted)) if number > 0 => break,
            latency => latency? / parts,
        };
        pings.times.record(latency);
        if run.keeps_times {
            pings.in_order.push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        }
        number += 1;
        // What is compared is compared outside the times.
        while !lane.is_compared() {
            step(lane)?;
            driver.poll_once();
        }
    }
    Ok(Measured { active: start.elapsed(), messages: number, pings: Some(pings), ..Measured::default() })
}

/// Returns true if a ping is answered by a message, and not by its result.
pub const fn answered_by_message(verb: Verb) -> bool {
    matches!(verb, Verb::Write | Verb::Send)
}

/// Makes ping `number`. Returns the time until its answer was there.
fn ping(driver: &mut Driver, lane: &mut Lane, number: u64, verb: Verb) -> Result<Duration, BenchError> {
    let by_message = answered_by_message(verb);
    let mut polls = 0u32;
    let start = Instant::now();
    lane.allow(number + 1);
    loop {
        step(lane)?;
        let answered = if by_message { lane.arrived() } else { lane.completed() };
        if answered > number {
            return Ok(start.elapsed());
        }
        if !driver.poll_once() {
            driver.pause();
        }
        polls += 1;
        if polls.is_multiple_of(POLLS) && interrupt::is_requested() {
            return Err(BenchError::interrupted());
        }
        if polls.is_multiple_of(POLLS) && start.elapsed() > lane.timeout() {
            return Err(lane.failed(&format!("no answer in time to ping {number}")));
        }
    }
}
