//! The most that two cores can do: one copies payload from the source into frames and sums it, a ring of
//! pointers carries the frames in batches, the other sums the payload, copies it to the destination and
//! returns the frames. By reference, the first only sums its source, and the other sums and copies from
//! there.
//!
//! Nothing else is done: no headers, no protocol, no completions. The frames are few and used last in, first
//! out; payload begins on a cache line; the number of frames, the batch and the prefetch are those that turn
//! out to be best.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dpdk::{HandoffReceiver, HandoffSender, Mbuf, Mempool, handoff, prefetch, prefetch_for_write};
use serde::Serialize;
use warpline::Region;
use warpline_dataplane::crc32c;
use warpline_tools::interrupt;

use super::rates::{REPEATS, Rates, gbit_per_s};
use crate::error::BenchError;
use crate::placement::pin_to;

/// The most frames in flight that are tried.
pub const FRAMES_MAX: usize = 256;
/// Bytes of a frame that say where its payload is.
const NOTE_BYTES: usize = size_of::<usize>();
/// Bytes that are compared after a run.
const COMPARED_BYTES_MAX: usize = 16 << 20;
/// How long each tuning is tried.
const TRIAL: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of payload in a frame.
    pub payload_bytes: usize,
    pub crc: bool,
    /// Frames say only where the payload is.
    pub by_reference: bool,
}

/// What the result may depend on.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Tuning {
    /// Frames in flight.
    pub frames: usize,
    /// Frames handed over at a time.
    pub batch: usize,
    /// Cache lines of a frame's payload that either core fetches while it works on the frame before.
    pub prefetched_lines: usize,
}

/// Returns the tunings that are tried.
fn tunings() -> impl Iterator<Item = Tuning> {
    [64, FRAMES_MAX].into_iter().flat_map(|frames| {
        [8, 32].into_iter().flat_map(move |batch| {
            [0, 8, 24, 140].into_iter().map(move |prefetched_lines| Tuning {
                frames,
                batch,
                prefetched_lines,
            })
        })
    })
}

/// The memory at both ends, and the CPUs.
#[derive(Clone, Copy)]
pub struct Place<'p> {
    /// Constant.
    pub source: &'p Region,
    pub destination: &'p Region,
    /// The CPU of the core that sends, and of the one that receives.
    pub cpus: [usize; 2],
}

impl Place<'_> {
    /// Compares the start of the destination with that of the source, after `octets` octets were handed over:
    /// payload lies in both at the same places.
    fn verify(&self, octets: u64, payload_bytes: usize) -> Result<(), BenchError> {
        let whole = self.source.len() / payload_bytes * payload_bytes;
        let placed = usize::try_from(octets).unwrap_or(whole).min(whole).min(COMPARED_BYTES_MAX);
        let source = self.source.constant().unwrap_or_default();
        let mut chunk = vec![0; payload_bytes];
        let corrupt = (0..placed).step_by(payload_bytes).filter(|&at| {
            !self.destination.read(at, &mut chunk) || source.get(at..at + payload_bytes) != Some(&chunk[..])
        });
        match corrupt.count() as u64 * payload_bytes as u64 {
            0 => Ok(()),
            corrupt => Err(BenchError::Corrupt(corrupt)),
        }
    }
}

/// Finds the best tuning, and measures with it for about `duration`.
///
/// # Errors
///
/// [`BenchError::Pin`], [`BenchError::Memory`], [`BenchError::Corrupt`].
pub fn measure(
    shape: Shape,
    place: Place<'_>,
    pool: &Mempool,
    duration: Duration,
) -> Result<(Rates, Tuning), BenchError> {
    let trial = TRIAL.min(duration);
    let mut best = None;
    for tuning in tunings() {
        let rate = Rates::of(run(shape, tuning, place, pool, trial, 1)?).median;
        if best.is_none_or(|(fastest, _)| rate > fastest) {
            best = Some((rate, tuning));
        }
    }
    let Some((_, tuning)) = best else { return Err(BenchError::Setup("no tuning".into())) };
    Ok((Rates::of(run(shape, tuning, place, pool, duration / REPEATS, REPEATS)?), tuning))
}

/// Runs both cores, and returns the rates of `repeats` periods of `period`, as the receiver measures them.
fn run(
    shape: Shape,
    tuning: Tuning,
    place: Place<'_>,
    pool: &Mempool,
    period: Duration,
    repeats: u32,
) -> Result<Vec<f64>, BenchError> {
    let mut frames = Vec::with_capacity(tuning.frames);
    let mut allocated = pool.allocate_many(&mut frames, tuning.frames);
    allocated &= frames.iter_mut().all(|frame| frame.append(shape.payload_bytes).is_some());
    if !allocated {
        return Err(BenchError::Memory(format!("no {} frames", tuning.frames)));
    }
    let (there, arriving) = handoff(tuning.frames);
    let (back, returning) = handoff(tuning.frames);
    let stop = AtomicBool::new(false);
    let core = Core { shape, tuning, place };
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin_to(place.cpus[0])?;
            core.send(there, returning, frames, &stop);
            Ok(())
        });
        let receiver = scope.spawn(|| {
            let received = pin_to(place.cpus[1]).map(|()| core.receive(arriving, back, period, repeats));
            stop.store(true, Ordering::Relaxed);
            let (rates, octets) = received?;
            place.verify(octets, shape.payload_bytes).map(|()| rates)
        });
        let rates = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(rates)
    })
}

/// What either core works with.
#[derive(Clone, Copy)]
struct Core<'p> {
    shape: Shape,
    tuning: Tuning,
    place: Place<'p>,
}

impl Core<'_> {
    /// Sends until `stop`.
    fn send(
        &self,
        mut there: HandoffSender,
        mut returning: HandoffReceiver,
        mut free: Vec<Mbuf>,
        stop: &AtomicBool,
    ) {
        let Self { shape, tuning, place } = *self;
        let mut ready: Vec<Mbuf> = Vec::with_capacity(tuning.frames);
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            returning.receive(&mut free, tuning.frames);
            if free.len() < tuning.batch {
                std::hint::spin_loop();
                continue;
            }
            // The frames that came back last are the ones in a cache.
            ready.extend(free.drain(free.len() - tuning.batch..));
            for number in 0..ready.len() {
                if let Some(next) = ready.get_mut(number + 1) {
                    prefetch_for_write(next.first_mut(), tuning.prefetched_lines);
                }
                let frame = &mut ready[number];
                if at + shape.payload_bytes > place.source.len() {
                    at = 0;
                }
                if shape.by_reference {
                    self.refer(at, frame);
                } else {
                    self.fill(at, frame);
                }
                at += shape.payload_bytes;
            }
            // The ring has room for every frame there is.
            there.send(&mut ready);
        }
    }

    /// Copies payload into a frame, and sums it there.
    #[inline]
    fn fill(&self, at: usize, frame: &mut Mbuf) {
        let payload = frame.first_mut();
        black_box(self.place.source.read(at, payload));
        if self.shape.crc {
            black_box(crc32c::checksum(payload));
        }
    }

    /// Sums payload where it is, and notes the place in a frame.
    #[inline]
    fn refer(&self, at: usize, frame: &mut Mbuf) {
        if self.shape.crc {
            black_box(crc32c::checksum(self.source(at)));
        }
        frame.first_mut()[..NOTE_BYTES].copy_from_slice(&at.to_ne_bytes());
    }

    /// Returns the payload at `at` of the source.
    #[inline]
    fn source(&self, at: usize) -> &[u8] {
        let octets = self.place.source.constant();
        octets.and_then(|octets| octets.get(at..at + self.shape.payload_bytes)).unwrap_or_default()
    }

    /// Returns the payload of a frame, wherever it is.
    #[inline]
    fn payload<'f>(&'f self, frame: &'f Mbuf) -> &'f [u8] {
        if !self.shape.by_reference {
            return frame.first();
        }
        let mut note = [0; NOTE_BYTES];
        note.copy_from_slice(&frame.first()[..NOTE_BYTES]);
        self.source(usize::from_ne_bytes(note))
    }

    /// Receives, and returns the rates and the octets that were received in all.
    fn receive(
        &self,
        mut arriving: HandoffReceiver,
        mut back: HandoffSender,
        period: Duration,
        repeats: u32,
    ) -> (Vec<f64>, u64) {
        /// Looks at the ring between two readings of the clock.
        const LOOKS: u32 = 64;
        let mut frames = Vec::with_capacity(self.tuning.frames);
        let (mut at, mut all) = (0, 0);
        let mut repeat = || {
            let (start, mut octets) = (Instant::now(), 0);
            while interrupt::goes_on(start, period) {
                for _ in 0..LOOKS {
                    if arriving.receive(&mut frames, self.tuning.batch) == 0 {
                        std::hint::spin_loop();
                        continue;
                    }
                    for number in 0..frames.len() {
                        self.prefetch(&frames[number + 1..]);
                        at = self.place_payload(at, self.payload(&frames[number]));
                    }
                    octets += (frames.len() * self.shape.payload_bytes) as u64;
                    back.send(&mut frames);
                }
            }
            all += octets;
            gbit_per_s(octets, start.elapsed().as_secs_f64())
        };
        let rates = (0..repeats).map(|_| repeat()).collect();
        (rates, all)
    }

    /// Has the payload of the next frame fetched, and the start of the one after it.
    #[inline]
    fn prefetch(&self, next: &[Mbuf]) {
        let lines = self.tuning.prefetched_lines;
        if lines == 0 {
            return;
        }
        if let Some(frame) = next.first() {
            prefetch(self.payload(frame), lines);
        }
        if let Some(frame) = next.get(1) {
            prefetch(frame.first(), 1);
        }
        if let Some(frame) = next.get(2) {
            frame.prefetch();
        }
    }

    /// Sums payload and copies it to `at`, or to the start of the destination. Returns the place after it.
    #[inline]
    fn place_payload(&self, at: usize, payload: &[u8]) -> usize {
        if self.shape.crc {
            black_box(crc32c::checksum(payload));
        }
        let destination = self.place.destination;
        let at = if at + payload.len() > destination.len() { 0 } else { at };
        black_box(destination.write(at, payload));
        at + payload.len()
    }
}
