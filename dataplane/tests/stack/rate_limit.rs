//! Tests of connections with a rate limit.

use core::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use crate::common::{Pair, Setup, holds, pattern, region_of};
use warpline_dataplane::device::sim::{End, EndConfig, Impairments, Verdict};
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::Slice;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

const SOURCE: STag = STag::new(1, 11);
const SINK: STag = STag::new(2, 22);
const LIMIT_KBPS: u32 = 10_000;
const OCTETS_PER_SECOND: u64 = LIMIT_KBPS as u64 * 1000;
const OCTETS: usize = 2 << 20;
/// The least limit there is.
const LEAST_KBPS: u32 = 1;

const WITH_CRC: Setup = Setup { markers: false, crc: true };
const WITH_MARKERS: Setup = Setup { markers: true, crc: true };

/// A transfer under the limit.
#[derive(Clone, Copy)]
struct Transfer {
    seed: u64,
    limit_kbps: u32,
    octets: usize,
    setup: Setup,
    /// Octets of a message.
    message: usize,
    super_frame_bytes: usize,
    /// Probability that a frame vanishes.
    loss: f64,
}

const USUAL: Transfer = Transfer {
    seed: 3,
    limit_kbps: LIMIT_KBPS,
    octets: OCTETS,
    setup: WITH_CRC,
    message: 100_000,
    super_frame_bytes: 0,
    loss: 0.0,
};

impl Transfer {
    /// Transfers `octets` octets by Writes. Returns how long that took, and the frames that were sent: each
    /// with its time and its length.
    fn run(self) -> (u64, Vec<(Instant, usize)>) {
        let Self { seed, limit_kbps, octets, setup, message, super_frame_bytes, loss } = self;
        let impairments = Impairments { loss, ..Impairments::default() };
        let end = |config: EndConfig| EndConfig { super_frame_bytes, outbound: impairments, ..config };
        let mut pair = Pair::new(seed, end(EndConfig::a()), end(EndConfig::b()));
        pair.rate_limit_kbps = NonZeroU32::new(limit_kbps);
        let data = pattern(seed, octets);
        let sink = Region::heap(octets).unwrap();
        pair.a.register(SOURCE, &region_of(&data), Access::empty());
        pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
        pair.establish(setup);
        let frames: Arc<Mutex<Vec<(Instant, usize)>>> = Arc::default();
        let seen = frames.clone();
        pair.network.set_filter(End::A, move |now, frame| {
            seen.lock().unwrap().push((now, frame.len()));
            Verdict::Pass
        });
        let begin = pair.now;
        let (mut next, mut under_way) = (0, 0);
        while next < octets || under_way > 0 {
            while next < octets && under_way < 64 {
                let len = message.min(octets - next);
                let local = Slice { stag: SOURCE, to: next as u64, len: len as u32 };
                pair.a.write(next as u64, local, SINK, next as u64);
                (next, under_way) = (next + len, under_way + 1);
            }
            pair.step();
            under_way -= pair.a.poll_completions().len();
            assert!(pair.now < begin + 100 * SECOND, "it never ends");
        }
        assert!(holds(&sink, 0, &data));
        let frames = frames.lock().unwrap().clone();
        (pair.now - begin, frames)
    }
}

/// Returns the octets of payload in `frames`: ARP's have none.
fn payload_of<'a>(frames: impl IntoIterator<Item = &'a (Instant, usize)>) -> usize {
    frames.into_iter().map(|(_, octets)| octets.saturating_sub(66)).sum()
}

/// Whatever a message is made of, a transfer takes as long as the limit says, to two percent, and in no ten
/// milliseconds is more sent than that, and what may leave at once.
#[test]
fn a_transfer_takes_as_long_as_its_limit_says() {
    let small = Transfer { message: 64, ..USUAL };
    for (name, transfer) in [
        ("large messages", USUAL),
        ("Markers", Transfer { setup: WITH_MARKERS, ..USUAL }),
        ("super-frames", Transfer { super_frame_bytes: 60_000, ..USUAL }),
        ("small messages", small),
    ] {
        let (took_ns, frames) = transfer.run();
        let payload = payload_of(&frames);
        let expected_ns = payload as u64 * SECOND / OCTETS_PER_SECOND;
        let difference_ns = took_ns.abs_diff(expected_ns);
        assert!(difference_ns < expected_ns / 50, "{name}: {took_ns} ns, expected {expected_ns}");
        let span_ns = 10 * MILLISECOND;
        // The burst, and a segment before it is noticed that there is no more room.
        let most = OCTETS_PER_SECOND * (span_ns + limits::PACED_BURST_NS) / SECOND + 2 * 1500;
        for (index, (begin, _)) in frames.iter().enumerate() {
            let span = frames[index..].iter().take_while(|(at, _)| *at < *begin + span_ns);
            let sent = payload_of(span);
            assert!(sent as u64 <= most, "{name}: {sent} octets from {begin:?} on, {most} at most");
        }
    }
}

/// What is lost is sent again within the limit.
#[test]
fn retransmissions_are_within_the_limit() {
    let (took_ns, frames) = Transfer { loss: 0.01, ..USUAL }.run();
    let payload = payload_of(&frames);
    assert!(payload > OCTETS + OCTETS / 200, "nothing was sent again");
    let burst_ns = limits::PACED_BURST_NS;
    assert!(took_ns + burst_ns >= payload as u64 * SECOND / OCTETS_PER_SECOND, "{took_ns} ns for {payload}");
}

/// The least limit leaves time between two segments in which a lost one times out several times: the transfer
/// ends nevertheless.
#[test]
fn the_least_limit_survives_losses() {
    let mut all = 0;
    for seed in 0..10 {
        let slow =
            Transfer { seed, limit_kbps: LEAST_KBPS, octets: 30_000, message: 3000, loss: 0.05, ..USUAL };
        let (took_ns, frames) = slow.run();
        let payload = payload_of(&frames);
        all += payload;
        // A segment may leave at once, and another when its time has come.
        let paced = payload.saturating_sub(2 * 1448) as u64;
        assert!(took_ns >= paced * SECOND / (u64::from(LEAST_KBPS) * 1000), "seed {seed}: {took_ns}");
    }
    assert!(all >= 10 * 30_000 + 2 * 1448, "nothing was sent again");
}
