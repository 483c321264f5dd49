//! What a frame costs that one core receives for another, on a port with one queue, beside the bare ring
//! between two cores.
//!
//! A few frames go round. The first core takes them from its queue, which is the ring on which the second one
//! returns them, and hands them over: by [`spread`](spread()), which finds the owner of each by its addresses
//! and ports, or by a ring of pointers and nothing else. Neither core looks at more of a frame than that
//! takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use dpdk::{HandoffReceiver, Mbuf, Mempool, MempoolConfig, handoff};
use serde::Serialize;
use warpline::MacAddress;
use warpline::link::{Capabilities, Device};
use warpline::open::{Eal, OpenError};
use warpline::time::Instant as PollTime;
use warpline_dataplane::device::spread::{Queues, Spread, spread};
use warpline_dataplane::limits;
use warpline_dataplane::steering::Steering;
use warpline_tools::interrupt;

use super::comparison::Quartiles;
use super::course::SLICE;
use crate::endpoint::PATIENCE;
use crate::error::BenchError;
use crate::pattern::shifted_bytes;
use crate::placement::pin_to;

/// Frames that go round.
const FRAMES: usize = 128;
/// Frames that a core takes at a time.
const BURST: usize = limits::RECEIVE_BURST_FRAMES;
/// Bytes of a frame: all headers of a TCP segment with timestamps.
const FRAME_BYTES: usize = 66;
/// Frame buffers that the device says it has: their part for a ring between cores holds all that go round.
const BUFFERS: usize = 4096;
const _: () = assert!(FRAMES <= limits::FRAMES_BETWEEN_CORES && FRAMES <= BUFFERS / 4);
/// The core that owns the flows of all frames.
const OWNER: u8 = 1;

/// What a frame costs.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct HandOverReport {
    /// Pairs of slices, of 50 ms each.
    pairs: usize,
    /// The time that passes for each frame, handed over and on the bare ring.
    hand_over_ns: f64,
    bare_ns: f64,
    /// What the first takes beyond the second.
    beyond_ns: Quartiles,
}

impl HandOverReport {
    /// Returns the report in words.
    pub fn line(&self) -> String {
        let Self { pairs, hand_over_ns, bare_ns, beyond_ns } = self;
        let Quartiles { median, lower_quartile, upper_quartile } = beyond_ns;
        format!(
            "hand-over: {hand_over_ns:.1} ns a frame beside {bare_ns:.1} on a bare ring, {median:.1} beyond \
             it ({lower_quartile:.1} to {upper_quartile:.1}), {pairs} pairs of slices"
        )
    }
}

/// Measures `pairs` pairs of slices.
///
/// # Errors
///
/// [`BenchError`]; [`BenchError::Peer`] if a frame stays at the first core, or is lost.
pub fn measure(eal: Eal, pairs: u32, cpus: [usize; 2]) -> Result<HandOverReport, BenchError> {
    let config = MempoolConfig { mbufs: 4 * FRAMES as u32 - 1, ..MempoolConfig::default() };
    let pool = Mempool::new(eal, config).map_err(OpenError::from)?;
    let steering = steering();
    let (mut over, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        over.push(by_spread(&pool, &steering, cpus)?);
        bare.push(by_bare_ring(&pool, &steering, cpus)?);
        if interrupt::is_requested() {
            // A signal has cut the last slice short, which is a rate all the same.
            break;
        }
    }
    let beyond = over.iter().zip(&bare).map(|(over, bare)| over - bare).collect();
    Ok(HandOverReport {
        pairs: over.len(),
        hand_over_ns: Quartiles::of(over).median,
        bare_ns: Quartiles::of(bare).median,
        beyond_ns: Quartiles::of(beyond),
    })
}

/// Returns a steering among two cores. Its key is always the same: nobody sends to it.
fn steering() -> Arc<Steering> {
    let bytes = shifted_bytes(0);
    let mut key = [0; 40];
    key.copy_from_slice(&bytes[..40]);
    Arc::new(Steering::with_key(2, 512, key))
}

/// Returns frames of as many flows, all of core [`OWNER`].
fn frames(pool: &Mempool, steering: &Steering) -> Result<Vec<Mbuf>, BenchError> {
    let memory = || BenchError::Memory(format!("no {FRAMES} frames"));
    let mut frames = Vec::with_capacity(FRAMES);
    for port in 0..=u16::MAX {
        if frames.len() == FRAMES {
            break;
        }
        let octets = segment(port);
        if steering.owner_of_frame(&octets) == Some(OWNER) {
            let mut frame = pool.allocate().ok_or_else(memory)?;
            frame.append(FRAME_BYTES).ok_or_else(memory)?.copy_from_slice(&octets);
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// Returns the headers of a TCP segment over IPv4, from a port, as far as its flow is concerned.
fn segment(port: u16) -> [u8; FRAME_BYTES] {
    let mut octets = [0; FRAME_BYTES];
    octets[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    octets[16..18].copy_from_slice(&(FRAME_BYTES as u16 - 14).to_be_bytes());
    octets[23] = 6;
    octets[26..34].copy_from_slice(&[198, 18, 0, 2, 198, 18, 0, 1]);
    octets[34..36].copy_from_slice(&port.to_be_bytes());
    octets[36..38].copy_from_slice(&7471_u16.to_be_bytes());
    octets
}

/// A port whose only queue is a ring that frames return on. The other core has none.
struct Returned(Option<HandoffReceiver>);

impl Device for Returned {
    type Frame = Mbuf;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu_bytes: 1500,
            transmit_checksums: true,
            transmit_ip_checksums: true,
            gather: false,
            super_frame_bytes: 1500,
            super_frame_pieces: 1,
            frames: BUFFERS,
            frame_bytes: 2048,
        }
    }

    fn mac(&self) -> MacAddress {
        MacAddress([2, 0, 0, 0, 0, 1])
    }

    fn receive(&mut self, _: PollTime, frames: &mut Vec<Mbuf>, limit: usize) -> usize {
        self.0.as_mut().map_or(0, |returning| returning.receive(frames, limit))
    }

    fn allocate(&mut self) -> Option<Mbuf> {
        None
    }

    fn transmit(&mut self, _: PollTime, _: &mut Vec<Mbuf>) -> usize {
        0
    }
}

fn by_spread(pool: &Mempool, steering: &Arc<Steering>, cpus: [usize; 2]) -> Result<f64, BenchError> {
    let mut going_round = frames(pool, steering)?;
    let (mut back, returning) = handoff(FRAMES);
    back.send(&mut going_round);
    let mut devices: Vec<Spread<_>> =
        spread(vec![Returned(Some(returning)), Returned(None)], Queues::One, steering);
    let (Some(mut owner), Some(mut receiver)) = (devices.pop(), devices.pop()) else {
        return Err(BenchError::Setup("there are not two cores".into()));
    };
    let (mut own, mut taken) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
    let mut kept = 0;
    let hand_over = || kept += receiver.receive(PollTime::ZERO, &mut own, BURST);
    let take = || {
        let count = owner.receive(PollTime::ZERO, &mut taken, BURST);
        back.send(&mut taken);
        count
    };
    let time = time_per_frame(cpus, hand_over, take)?;
    // All of them are the other core's.
    if kept > 0 {
        return Err(BenchError::Peer(format!("{kept} frames stayed at the core that received them")));
    }
    check_round(pool)?;
    Ok(time)
}

/// Checks that all frames still go round: a ring that is full drops one.
fn check_round(pool: &Mempool) -> Result<(), BenchError> {
    let going_round = pool.capacity() - pool.available();
    if going_round == FRAMES {
        return Ok(());
    }
    Err(BenchError::Peer(format!("of {FRAMES} frames that went round, {going_round} are left")))
}

fn by_bare_ring(pool: &Mempool, steering: &Steering, cpus: [usize; 2]) -> Result<f64, BenchError> {
    let mut going_round = frames(pool, steering)?;
    let (mut back, mut returning) = handoff(FRAMES);
    back.send(&mut going_round);
    let (mut there, mut arriving) = handoff(FRAMES);
    let (mut given, mut taken) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
    let give = || {
        returning.receive(&mut given, BURST);
        there.send(&mut given);
    };
    let take = || {
        let count = arriving.receive(&mut taken, BURST);
        back.send(&mut taken);
        count
    };
    let time = time_per_frame(cpus, give, take)?;
    check_round(pool)?;
    Ok(time)
}

/// Has the two CPUs give and take for a slice, and returns the time that passes for each frame that is taken,
/// in nanoseconds.
fn time_per_frame(
    cpus: [usize; 2],
    mut give: impl FnMut() + Send,
    mut take: impl FnMut() -> usize + Send,
) -> Result<f64, BenchError> {
    /// Bursts between two readings of the clock.
    const BURSTS: usize = 64;
    let stop = AtomicBool::new(false);
    let (taken, time) = thread::scope(|scope| {
        let giver = scope.spawn(|| {
            pin_to(cpus[0])?;
            while !stop.load(Ordering::Relaxed) {
                give();
            }
            Ok(())
        });
        let taker = scope.spawn(|| {
            let taken = pin_to(cpus[1]).map(|()| {
                let (start, mut taken) = (Instant::now(), 0);
                while taken == 0 || interrupt::goes_on(start, SLICE) {
                    taken += (0..BURSTS).map(|_| take()).sum::<usize>();
                    if start.elapsed() > PATIENCE {
                        break;
                    }
                }
                (taken, start.elapsed())
            });
            stop.store(true, Ordering::Relaxed);
            taken
        });
        let taken = taker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        giver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(taken)
    })?;
    if taken == 0 {
        return Err(BenchError::Setup("no frame was handed over".into()));
    }
    Ok(time.as_secs_f64() * 1e9 / taken as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames that go round have flows, and enough ports lead to the core that is to own them.
    #[test]
    fn frames_are_of_the_owner() {
        let steering = steering();
        let owners: Vec<_> = (0..1000).map(|port| steering.owner_of_frame(&segment(port))).collect();
        assert!(owners.iter().all(Option::is_some));
        assert!(owners.iter().filter(|owner| **owner == Some(OWNER)).count() > 2 * FRAMES);
    }
}
