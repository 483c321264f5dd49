//! The packet rate of a virtual device that does nothing (`net_null`): what DPDK's own calls and pools allow.

use std::time::{Duration, Instant};

use dpdk::{Eal, Mempool, MempoolConfig, Port, PortConfig, QueuePair};
use serde::Serialize;
use warpline::open::OpenError;
use warpline_tools::interrupt;

use crate::error::BenchError;

/// Bytes of the frames.
const FRAME_BYTES: usize = 64;
const BURST: usize = 32;
const NAME: &str = "net_null_floor";

/// Millions of frames a second, of one core.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct PacketRates {
    pub device: &'static str,
    pub frame_bytes: usize,
    /// Allocated, sent and freed.
    pub transmit_mpps: f64,
    /// Received and freed.
    pub receive_mpps: f64,
}

/// Measures each direction for about `duration`, on the CPU of this thread.
///
/// # Errors
///
/// [`CommandError::Open`](warpline_tools::error::CommandError::Open), [`BenchError::Setup`].
pub fn measure(eal: Eal, duration: Duration) -> Result<PacketRates, BenchError> {
    eal.add_vdev(&format!("{NAME},size={FRAME_BYTES}"))
        .map_err(|error| BenchError::Setup(error.to_string()))?;
    let pool = Mempool::new(eal, MempoolConfig { mbufs: 2047, ..MempoolConfig::default() })
        .map_err(OpenError::from)?;
    let port = Port::open(eal, NAME).map_err(OpenError::from)?;
    let started = port.start(&PortConfig::default(), std::slice::from_ref(&pool));
    let (_port, queues) = started.map_err(OpenError::from)?;
    let Some(mut queues) = queues.into_iter().next() else {
        return Err(OpenError::NoQueue(NAME.into()).into());
    };
    Ok(PacketRates {
        device: "net_null",
        frame_bytes: FRAME_BYTES,
        transmit_mpps: repeat(duration, || transmit(&mut queues, &pool)),
        receive_mpps: {
            let mut frames = Vec::with_capacity(BURST);
            repeat(duration, || {
                frames.clear();
                queues.receive.receive(&mut frames, BURST)
            })
        },
    })
}

fn transmit(queues: &mut QueuePair, pool: &Mempool) -> usize {
    let mut frames = Vec::with_capacity(BURST);
    let mut burst = Vec::with_capacity(BURST);
    if pool.allocate_many(&mut burst, BURST) {
        for frame in &mut burst {
            frame.append(FRAME_BYTES);
        }
        frames.extend(burst);
    }
    queues.transmit.transmit(&mut frames)
}

/// Returns the millions of frames a second that `burst` moves.
fn repeat(duration: Duration, mut burst: impl FnMut() -> usize) -> f64 {
    /// Bursts between two readings of the clock.
    const BURSTS: u32 = 256;
    let (start, mut frames) = (Instant::now(), 0);
    while interrupt::goes_on(start, duration) {
        frames += (0..BURSTS).map(|_| burst()).sum::<usize>();
    }
    frames as f64 / start.elapsed().as_secs_f64() / 1e6
}
