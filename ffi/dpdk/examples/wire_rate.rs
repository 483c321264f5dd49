//! How many frames a wire in memory carries: allocate, fill in the headers, send, receive, free.

use std::error::Error;
use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use dpdk::{
    Eal, ExternalBuffer, ExternalPieces, HugeRegion, Mempool, MempoolConfig, WireConfig, WireEnd, wire,
};

const BURST: usize = 32;
const HEADER_OCTETS: usize = 54;

/// Where the octets after the headers come from.
#[derive(Clone, Copy)]
enum Payload {
    /// The buffer, as it is.
    Buffer,
    /// Memory of the sender, by reference.
    Reference,
}

struct Sender<'s> {
    end: WireEnd,
    pool: &'s Mempool,
    memory: &'s ExternalBuffer,
    frames: Vec<dpdk::Mbuf>,
}

impl Sender<'_> {
    fn burst(&mut self, octets: usize, payload: Payload) {
        while self.frames.len() < BURST {
            let Some(mut frame) = self.pool.allocate() else {
                break;
            };
            let fits = match payload {
                Payload::Buffer => frame.append(octets).is_some(),
                Payload::Reference => {
                    frame.append(HEADER_OCTETS).is_some()
                        && frame.append_external(self.memory, 0, octets - HEADER_OCTETS)
                }
            };
            if !fits {
                break;
            }
            frame.first_mut()[..HEADER_OCTETS].fill(1);
            self.frames.push(frame);
        }
        self.end.transmit(&mut self.frames);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let eal = Eal::builder().init()?;
    println!("memory: {}", eal.memory_mode());
    let pool = Mempool::new(
        eal,
        MempoolConfig { mbufs: 4095, data_octets: 9216, cache_mbufs: 512, ..MempoolConfig::default() },
    )?;
    // Left alone, the scheduler may put both threads on one core. A pinned thread no longer sees the other
    // cores.
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let other = cores.get(1).copied();
    if let Some(core) = cores.first() {
        core_affinity::set_for_current(*core);
    }
    let memory = ExternalBuffer::of_region(HugeRegion::new(eal, 1 << 20)?);
    for (octets, payload, external_pieces, what) in [
        (64, Payload::Buffer, ExternalPieces::Copied, "in the buffer"),
        (9000, Payload::Buffer, ExternalPieces::Copied, "in the buffer"),
        (9000, Payload::Reference, ExternalPieces::Shared, "by reference, shared"),
        (9000, Payload::Reference, ExternalPieces::Copied, "by reference, copied"),
    ] {
        let config = WireConfig { mtu_bytes: 9000, external_pieces, ..WireConfig::default() };
        let (a, b) = wire(eal, &config, [&pool, &pool])?;
        let sender = Sender { end: a, pool: &pool, memory: &memory, frames: Vec::new() };
        let (sender, b) = one_thread(sender, b, octets, payload, what);
        two_threads(eal, other, sender, b, octets, payload, what)?;
    }
    Ok(())
}

fn report(threads: u32, octets: usize, what: &str, frames: u64, time: Duration) {
    let seconds = time.as_secs_f64();
    let (millions, nanos) = (frames as f64 / seconds / 1e6, seconds * 1e9 / frames as f64);
    let gigabits = (frames * octets as u64 * 8) as f64 / seconds / 1e9;
    println!(
        "{threads} thread(s), {octets:4} octets {what:22} {millions:7.2} M/s {nanos:7.1} ns {gigabits:8.1} \
        Gb/s"
    );
}

fn one_thread<'s>(
    mut sender: Sender<'s>,
    mut end: WireEnd,
    octets: usize,
    payload: Payload,
    what: &str,
) -> (Sender<'s>, WireEnd) {
    let mut frames = Vec::with_capacity(BURST);
    let (start, before) = (Instant::now(), end.statistics().received_frames);
    while start.elapsed() < Duration::from_secs(1) {
        for _ in 0..100 {
            sender.burst(octets, payload);
            end.receive(&mut frames, BURST);
            frames.clear();
        }
    }
    report(1, octets, what, end.statistics().received_frames - before, start.elapsed());
    (sender, end)
}

fn two_threads(
    eal: Eal,
    other: Option<CoreId>,
    mut sender: Sender<'_>,
    mut end: WireEnd,
    octets: usize,
    payload: Payload,
    what: &str,
) -> Result<(), Box<dyn Error>> {
    let stop = AtomicBool::new(false);
    let _main = eal.register_thread()?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let _registered = eal.register_thread();
            other.map(core_affinity::set_for_current);
            while !stop.load(Ordering::Relaxed) {
                sender.burst(octets, payload);
            }
        });
        let mut frames = Vec::with_capacity(BURST);
        let (start, before) = (Instant::now(), end.statistics().received_frames);
        while start.elapsed() < Duration::from_secs(1) {
            for _ in 0..100 {
                if end.receive(&mut frames, BURST) == 0 {
                    hint::spin_loop();
                }
                frames.clear();
            }
        }
        report(2, octets, what, end.statistics().received_frames - before, start.elapsed());
        stop.store(true, Ordering::Relaxed);
    });
    Ok(())
}
