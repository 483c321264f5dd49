//! Pings: one message at a time, and the time until it is answered.
//!
//! An RDMA Write and a Send are answered by a message of the same size; half of the time of both is the
//! latency. An RDMA Read and an Atomic Operation are answered by their result: the whole time is the latency,
//! as in perftest.

use std::time::{Duration, Instant};

use warpline_tools::error::CommandError;
use warpline_tools::interrupt;

use super::bulk::Bulk;
use super::client::{Measured, Run};
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

/// Pings alone, before others streamed beside them.
#[derive(Debug, Default)]
pub struct Alone {
    /// The distribution of their latencies.
    pub times: Times,
    /// Messages of the others, which were complete while pings were made beside them.
    pub messages_beside: u64,
}

/// Makes pings, and if there are lanes `beside` makes as many again while those stream: the result is that of
/// the second time.
///
/// # Errors
///
/// [`BenchError::Peer`].
pub fn measure(
    driver: &mut Driver,
    lane: &mut Lane,
    beside: &mut [Lane],
    run: &Run,
) -> Result<Measured, BenchError> {
    let alone = ping_all(driver, lane, &mut Bulk::none(driver), run)?;
    if !run.has_beside {
        return Ok(alone);
    }
    meet(driver, run, 1, &mut Bulk::none(driver))?;
    if interrupt::is_requested() {
        return Err(BenchError::interrupted());
    }
    let mut bulk = Bulk::start(driver, beside)?;
    let before = bulk.completed();
    let measured = ping_all(driver, lane, &mut bulk, run)?;
    let messages_beside = bulk.completed() - before;
    meet(driver, run, 2, &mut bulk)?;
    bulk.finish(driver)?;
    let times = alone.pings.unwrap_or_default().times;
    Ok(Measured { alone: Some(Alone { times, messages_beside }), ..measured })
}

/// Polls until all cores have come to the meeting point `number`, while `bulk` streams: nothing streams while
/// another core pings alone, and everything does while one pings beside it.
fn meet(driver: &mut Driver, run: &Run, number: usize, bulk: &mut Bulk<'_>) -> Result<(), BenchError> {
    run.progress.arrive();
    while !run.progress.have_met(number) && !run.progress.has_failed() && !interrupt::is_requested() {
        bulk.turn()?;
        if !driver.poll_once() {
            driver.pause();
        }
    }
    Ok(())
}

/// Makes pings until the time or the messages are used up, while `bulk` streams.
fn ping_all(
    driver: &mut Driver,
    lane: &mut Lane,
    bulk: &mut Bulk<'_>,
    run: &Run,
) -> Result<Measured, BenchError> {
    let mut pings = Pings::default();
    let parts = if run.plan.verb.is_answered_by_message() { 2 } else { 1 };
    if let (true, Some(messages)) = (run.keeps_times, run.messages) {
        pings.in_order.reserve_exact(messages as usize);
    }
    let start = Instant::now();
    let first = answered(lane, run.plan.verb);
    let mut number = 0;
    while run.messages.is_none_or(|messages| number < messages) && !run.is_over(start.elapsed()) {
        let latency = match ping(driver, lane, bulk, first + number, run.plan.verb) {
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
            lane.step_on()?;
            bulk.turn()?;
            driver.poll_once();
        }
    }
    Ok(Measured { active: start.elapsed(), messages: number, pings: Some(pings), ..Measured::default() })
}

/// Returns the number of pings that were answered.
fn answered(lane: &Lane, verb: Verb) -> u64 {
    if verb.is_answered_by_message() { lane.arrived() } else { lane.completed() }
}

/// Makes ping `number` while `bulk` streams. Returns the time until its answer was there.
fn ping(
    driver: &mut Driver,
    lane: &mut Lane,
    bulk: &mut Bulk<'_>,
    number: u64,
    verb: Verb,
) -> Result<Duration, BenchError> {
    let mut polls = 0u32;
    let start = Instant::now();
    lane.allow(number + 1);
    loop {
        lane.step_on()?;
        if answered(lane, verb) > number {
            return Ok(start.elapsed());
        }
        bulk.turn()?;
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
