//! Time of CRCs and copies by length, for every engine of this processor, with the data in the first cache.
//!
//! `cargo bench -p warpline-dataplane --no-default-features --bench crc32c`. In the rows named "result" each
//! CRC continues the one before and so waits for its result. In the others the processor may overlap calls.

use std::hint::black_box;
use std::time::{Duration, Instant};

use warpline_dataplane::crc32c::{Digest, Engine, EngineKind};
use warpline_dataplane::memory::Region;

const LENS: [usize; 11] = [16, 40, 64, 128, 256, 512, 1024, 1428, 4096, 8928, 65_536];

/// Rounds of each measurement. The fastest counts, as nothing makes a round faster than it is.
const ROUNDS: usize = 15;

struct Settings {
    round: Duration,
    rounds: usize,
}

/// Returns the nanoseconds of one call.
fn time(settings: &Settings, len: usize, mut call: impl FnMut()) -> f64 {
    let calls = (settings.round.as_nanos() as usize / (5 + len / 30)).max(1);
    let mut least = f64::INFINITY;
    for _ in 0..settings.rounds {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        least = least.min(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    least
}

fn print_row(name: &str, mut ns: impl FnMut(usize) -> f64) {
    print!("{name:28}");
    for len in LENS {
        let ns = ns(len);
        print!(" {ns:8.1} {:6.1}", len as f64 / ns);
    }
    println!();
}

fn main() {
    // Without `--bench`, as in `cargo test --all-targets`, it only shows that all of it runs.
    let settings = if std::env::args().any(|argument| argument == "--bench") {
        Settings { round: Duration::from_millis(2), rounds: ROUNDS }
    } else {
        Settings { round: Duration::ZERO, rounds: 1 }
    };
    let region = Region::heap(1 << 17).expect("memory");
    let source: Vec<u8> = (0..1 << 17).map(|at: u32| (at * 7 + at / 251) as u8).collect();
    // Payload begins 18 bytes after a multiple of 64 in a frame.
    let source = &source[source.as_ptr().align_offset(64) + 18..];
    let mut target = vec![0_u8; (1 << 17) + 64];
    let start = target.as_ptr().align_offset(64) + 18;
    let target = &mut target[start..];

    print!("{:28}", "ns, GB/s; bytes:");
    for len in LENS {
        print!(" {len:15}");
    }
    println!();
    for kind in EngineKind::ALL {
        let Some(engine) = Engine::new(kind) else {
            println!("{kind:?}: not supported by this processor");
            continue;
        };
        let mut crc = 1;
        print_row(&format!("{kind:?}: result"), |len| {
            time(&settings, len, || crc = engine.append(black_box(crc), black_box(&source[..len])))
        });
        print_row(&format!("{kind:?}: begun anew"), |len| {
            time(&settings, len, || {
                black_box(engine.append(0, black_box(&source[..len])));
            })
        });
        print_row(&format!("{kind:?}: continued"), |len| {
            time(&settings, len, || {
                black_box(engine.append(1, black_box(&source[..len])));
            })
        });
        print_row(&format!("{kind:?}: copied"), |len| {
            time(&settings, len, || {
                black_box(engine.copy_and_append(
                    1,
                    black_box(&source[..len]),
                    black_box(&mut target[..len]),
                ));
            })
        });
    }
    print_row("crc32c crate", |len| {
        time(&settings, len, || {
            black_box(crc32c::crc32c_append(1, black_box(&source[..len])));
        })
    });
    print_row("memcpy", |len| {
        time(&settings, len, || black_box(&mut target[..len]).copy_from_slice(black_box(&source[..len])))
    });
    print_row("Region::read", |len| {
        time(&settings, len, || {
            black_box(region.read(0, black_box(&mut target[..len])));
        })
    });
    print_row("Region::read_summed", |len| {
        let mut digest = Digest::new();
        time(&settings, len, || {
            black_box(region.read_summed(0, black_box(&mut target[..len]), &mut digest));
        })
    });
}
