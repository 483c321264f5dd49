//! Transfers over a path that loses segments and becomes narrower on the way: what was queued for the wide
//! path is cut, so pieces are many and small, and nearly all octets are placed all the same.

use std::sync::{Arc, Mutex};

use super::wire::Capture;
use super::{attach_host, config, connect, of_section, rid, with_option};
use crate::common::{Pair, holds, pattern, too_big};
use warpline_dataplane::byte_stream::{ReadItem, Section, TransferCounters};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::device::sim::{End, EndConfig, Impairments, Verdict};
use warpline_dataplane::memory::Region;
use warpline_dataplane::time::MILLISECOND;

/// Octets of all transfers together.
const OCTETS: usize = 4 << 20;

/// How the path becomes narrower.
#[derive(Clone, Copy, Debug)]
struct Narrowing {
    /// How many transfers there are.
    transfers: usize,
    /// The largest packets, before and after.
    mtu_bytes: [usize; 2],
    /// The chance that a segment is lost from then on.
    loss: f64,
    /// A router says so, instead of only dropping what is too large.
    reported: bool,
}

/// What became of the octets of all transfers.
#[derive(Debug)]
struct Outcome {
    placed: usize,
    complete: usize,
    counters: TransferCounters,
}

/// Sends all transfers, of which the path takes a quarter before it becomes narrower.
fn run(path: Narrowing) -> Outcome {
    let Narrowing { transfers, mtu_bytes: [wide, narrow], loss, reported } = path;
    let delay_ns = MILLISECOND;
    let outbound = Impairments { delay_min_ns: delay_ns, delay_max_ns: delay_ns, ..Impairments::default() };
    let end = |config: EndConfig| EndConfig { mtu_bytes: wide, outbound, ..config };
    let mut pair =
        Pair::with_config(1, end(EndConfig::a()), end(EndConfig::b()), Tables::default(), |config| {
            config.window_bytes = 2 << 20;
        });
    connect(&mut pair, [with_option(); 2]);
    let (mut octets_seen, mut chance) = (0, fastrand::Rng::with_seed(1));
    let message = Arc::new(Mutex::new(None));
    let quoted = message.clone();
    let _capture = Capture::start(&pair.network, End::A, move |segment, frame| {
        octets_seen += segment.payload.len();
        if octets_seen < OCTETS / 4 {
            return Verdict::Pass;
        }
        if segment.packet_len <= narrow {
            return if chance.f64() < loss { Verdict::Drop } else { Verdict::Pass };
        }
        *quoted.lock().unwrap() = reported.then(|| too_big(frame, narrow as u16));
        Verdict::Drop
    });
    pair.network.set_filter(End::B, move |_, _| match message.lock().unwrap().take() {
        Some(answer) => Verdict::Replace(answer),
        None => Verdict::Pass,
    });
    let (mut writer, _reader) = attach_host(&pair.a, config(OCTETS, 64));
    let (_writer, mut reader) = attach_host(&pair.b, config(64, 1 << 20));
    let memory = Region::heap(OCTETS).unwrap();
    let octets = pattern(1, OCTETS);
    let each = OCTETS / transfers;
    for (number, transfer) in octets.chunks(each).enumerate() {
        assert!(reader.expect(rid(number as u64), &memory, number * each, each));
        let section = Section::solicited(rid(number as u64), Some(each as u32));
        assert_eq!(writer.write_annotated(of_section(section, 0), transfer), each);
    }
    assert!(pair.run_until(1, |_| reader.has_settled()));
    writer.commit();
    let (mut placed, mut complete, mut read, mut out) = (0, 0, 0, vec![0; 1 << 20]);
    let done = pair.run_until(3000, |_| {
        loop {
            match reader.read(&mut out, usize::MAX) {
                ReadItem::Octets(plain) => {
                    assert!(out[..plain] == octets[read..read + plain], "the stream is another");
                    read += plain;
                }
                ReadItem::Placed { octets: some, .. } => {
                    assert!(holds(&memory, read, &octets[read..read + some as usize]), "another place");
                    placed += some as usize;
                    read += some as usize;
                }
                ReadItem::Complete { .. } => complete += 1,
                _ => break,
            }
        }
        read == octets.len()
    });
    assert!(done, "{path:?}: {read} octets");
    Outcome { placed, complete, counters: pair.b.core.transfer_counters() }
}

/// A window of octets is under way when the path becomes narrower, so a burst of losses leaves many gaps. A
/// gap that stays, as its octets found no place, costs no more than those octets.
#[test]
fn nearly_all_octets_are_placed_through_a_path_that_narrows() {
    for (transfers, mtu_bytes, loss) in [
        (1, [9000, 576], 0.2),
        (1, [1500, 576], 0.1),
        (1, [1500, 576], 0.3),
        (1, [1500, 1500], 0.3),
        (16, [9000, 1500], 0.2),
        (64, [1500, 576], 0.2),
    ] {
        for reported in [true, false] {
            let path = Narrowing { transfers, mtu_bytes, loss, reported };
            let Outcome { placed, complete, counters } = run(path);
            let found_no_place = OCTETS - placed;
            assert!(found_no_place < OCTETS / 25, "{path:?}: {placed} octets placed, {counters:?}");
            assert_eq!(counters.placements_revoked, 0, "{path:?}: {counters:?}");
            if found_no_place == 0 {
                assert_eq!(complete, transfers, "{path:?}");
            }
            // What is not placed has a cause.
            assert_eq!(found_no_place > 0, counters.too_scattered > 0, "{path:?}: {counters:?}");
        }
    }
}
