//! Random work of every kind in both directions of one connection.

use fastrand::Rng;
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::{InlineData, Operation, Slice};

use crate::common::{Host, Pair, all_succeeded, pattern, region_of};

/// Open to the peer in every way, at both ends.
pub const SHARED: STag = STag::new(1, 0x1111);
/// For this end alone: the source of what it sends, and the sink of messages and responses.
pub const OWN: STag = STag::new(2, 0x2222);
/// Nothing writes to it, so that a device may transmit it by reference.
pub const CONSTANT: STag = STag::new(3, 0x3333);

const REGION_OCTETS: u32 = 1 << 17;
/// Octets of the longest Send, and of each receive.
const MESSAGE_OCTETS: u32 = 6000;
const RECEIVES: u64 = 60;

/// Registers the memory of both ends.
pub fn register(pair: &Pair) {
    for (host, seed) in [(&pair.a, 10), (&pair.b, 20)] {
        let region = |seed| region_of(&pattern(seed, REGION_OCTETS as usize));
        let open = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::LOCAL_WRITE;
        host.register(SHARED, &region(seed), open);
        host.register(OWN, &region(seed + 1), Access::LOCAL_WRITE);
        let Ok(constant) = Region::freeze(region(seed + 2)) else { panic!("the region has one owner") };
        host.register(CONSTANT, &constant, Access::empty());
    }
}

/// Work of one end: posted and completed requests.
#[derive(Default)]
struct Work {
    posted: usize,
    completed: usize,
}

/// Posts `count` requests of chance at both ends, and runs until all of them are complete.
pub fn run(pair: &mut Pair, seed: u64, count: u64) {
    let mut rng = Rng::with_seed(seed);
    for host in [&pair.a, &pair.b] {
        for id in 0..RECEIVES {
            host.receive(1000 + id, Slice { stag: OWN, to: 8 * id, len: MESSAGE_OCTETS });
        }
    }
    let mut work = [Work::default(), Work::default()];
    // The Responder sends nothing before it has an FPDU (RFC 5044 §7.1.2).
    pair.a.write(0, Slice { stag: OWN, to: 0, len: 0 }, SHARED, 0);
    work[0].posted = 1;
    let mut messages = [0; 2];
    for id in 1..=count {
        let side = rng.usize(..2);
        let host = if side == 0 { &pair.a } else { &pair.b };
        let may_send = messages[side] < RECEIVES;
        work[side].posted += 1;
        messages[side] += u64::from(post(host, &mut rng, id, pair.reads > 0, may_send));
        if rng.u32(..3) == 0 {
            for _ in 0..rng.u32(..40) {
                pair.step();
                count_completions(pair, &mut work);
            }
        }
    }
    let done = pair.run_until(600, |pair| {
        count_completions(pair, &mut work);
        work.iter().all(|work| work.completed == work.posted)
    });
    assert!(done, "requests of seed {seed} stay incomplete: {:?} {:?}", pair.a.qp.error(), pair.b.qp.error());
}

/// Counts the completions of requests; receives have higher ids.
fn count_completions(pair: &Pair, work: &mut [Work; 2]) {
    for (host, work) in [&pair.a, &pair.b].into_iter().zip(work) {
        let completions = host.poll_completions();
        assert!(all_succeeded(&completions), "{completions:?}");
        work.completed += completions.iter().filter(|done| done.id < 1000).count();
    }
}

/// Posts one request of chance; returns true if it consumes a receive of the peer.
fn post(host: &Host, rng: &mut Rng, id: u64, may_read: bool, may_send: bool) -> bool {
    let octets = match rng.u32(..4) {
        0 => rng.u32(..64),
        1 | 2 => rng.u32(..MESSAGE_OCTETS),
        _ => rng.u32(..40_000),
    };
    let source = if rng.bool() { OWN } else { CONSTANT };
    let local = Slice { stag: source, to: rng.u64(..8000), len: octets };
    let message = Slice { len: octets.min(MESSAGE_OCTETS), ..local };
    let sink = Slice { stag: OWN, to: 65_536 + rng.u64(..8000), len: octets };
    let eight = Slice { len: 8, ..sink };
    let (stag, to) = (SHARED, rng.u64(..8000));
    let integer = 90_000 + 8 * rng.u64(..100);
    let (immediate, solicited) = (rng.u64(..), rng.bool());
    let choices = if may_read { 10 } else { 6 };
    match rng.u32(..choices) {
        0 if may_send => host.post(id, Operation::Send { invalidate: None, solicited }, message),
        1 if may_send => {
            let octets = pattern(id, octets as usize % 65);
            host.post(id, Operation::SEND, InlineData::try_from(&octets[..]).unwrap());
        }
        2 if may_send => {
            host.post(id, Operation::WriteWithImmediate { stag, to, immediate, solicited }, local);
        }
        3 if may_send => {
            host.post(id, Operation::Immediate { immediate, solicited }, Slice { len: 0, ..local });
        }
        6 => {
            host.post(id, Operation::Read { stag, to }, sink);
            return false;
        }
        7 => {
            host.post(id, Operation::FetchAdd { stag, to: integer, add: 3, mask: 0 }, eight);
            return false;
        }
        8 => {
            let (compare, swap) = (rng.u64(..), rng.u64(..));
            let (compare_mask, swap_mask) = (0xff, u64::MAX);
            let operation =
                Operation::CompareSwap { stag, to: integer, compare, compare_mask, swap, swap_mask };
            host.post(id, operation, eight);
            return false;
        }
        9 => {
            host.post(id, Operation::Swap { stag, to: integer, swap: immediate, mask: u64::MAX }, eight);
            return false;
        }
        _ => {
            host.post(id, Operation::Write { stag, to }, local);
            return false;
        }
    }
    true
}
