//! Random transfers both ways between two ends, through loss, reordering, duplication, resegmentation and
//! middleboxes that strip, split, replicate and alter the option, for many seeds. `WARPLINE_SEEDS` says how
//! many, and `WARPLINE_FIRST_SEED` which is the first.
//!
//! The stream is the truth: whatever happens to options, what a reader is told, octet after octet, is
//! what the other end has written, and no octet outside of a buffer changes, nor one inside after its
//! transfer is over. As long as nothing changes options, every transfer whose total is known completes once,
//! and none of its octets is copied through the ring.

use super::{attach_host, connect, with_option};
use crate::common::Pair;
use crate::stream_oracle::bell::Bell;
use crate::stream_oracle::plan::{Kind, Plan};
use crate::stream_oracle::receiver::{self, Receiver};
use crate::stream_oracle::sender::Sender;
use warpline_dataplane::byte_stream::TransferCounters;
use warpline_dataplane::device::sim::{EndConfig, Impairments, OptionFaults};
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::time::SECOND;

/// How a path treats frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Perfect,
    /// Losses, reordering, duplicates.
    Lossy,
    /// The same, and segments are cut and joined.
    Resegmenting,
    /// The same, and the option is stripped, split, replicated and altered.
    Changing,
}

impl Path {
    const ALL: [Self; 4] = [Self::Perfect, Self::Lossy, Self::Resegmenting, Self::Changing];

    fn impairments(self, rng: &mut fastrand::Rng) -> Impairments {
        let chance = |rng: &mut fastrand::Rng| [0.0, 0.02, 0.1][rng.usize(..3)];
        let lossy = Impairments {
            loss: chance(rng),
            reorder: chance(rng),
            duplicate: chance(rng),
            delay_max_ns: rng.u64(1000..200_000),
            ..Impairments::default()
        };
        match self {
            Self::Perfect => Impairments::default(),
            Self::Lossy => lossy,
            Self::Resegmenting => Impairments { resegment: 0.2, ..lossy },
            Self::Changing => {
                let rdma_option = OptionFaults {
                    strip: chance(rng),
                    split: chance(rng),
                    replicate: chance(rng),
                    alter: [0.05, 0.2, 0.8][rng.usize(..3)],
                };
                Impairments { resegment: chance(rng), rdma_option, ..lossy }
            }
        }
    }

    /// Whether the option arrives as it was sent.
    fn is_faithful(self) -> bool {
        matches!(self, Self::Perfect | Self::Lossy)
    }
}

/// What happened over all seeds.
#[derive(Debug, Default)]
struct Seen {
    complete: [usize; 3],
    cancelled: usize,
    dropped_readers: usize,
    handed_out: usize,
    octets_placed: u64,
    counters: TransferCounters,
}

/// One direction.
struct Way {
    sender: Sender,
    receiver: Receiver,
}

impl Way {
    fn new(
        plan: Plan,
        (writer, reader): (super::ByteWriter, super::ByteReader),
        bell: Bell,
        arena: receiver::Arena,
    ) -> Self {
        Self { sender: Sender::new(plan.clone(), writer, bell), receiver: Receiver::new(plan, reader, arena) }
    }

    fn act(&mut self, rng: &mut fastrand::Rng) {
        if rng.u8(..3) == 0 {
            self.sender.act(rng, &mut self.receiver.gates);
        }
        if rng.u8(..3) == 0 {
            self.receiver.act(rng, &self.sender.written);
        }
    }

    fn is_over(&self) -> bool {
        self.sender.is_finished() && self.receiver.is_finished(self.sender.written.len())
    }
}

fn run(seed: u64, seen: &mut Seen) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rng = &mut rng;
    let path = Path::ALL[(seed % 4) as usize];
    let mtu_bytes = [400, 1500, 1500, 9000][rng.usize(..4)];
    let mut end = |config: EndConfig| EndConfig { mtu_bytes, outbound: path.impairments(rng), ..config };
    let mut pair = Pair::new(seed, end(EndConfig::a()), end(EndConfig::b()));
    let behaviour = Behaviour { timestamps: rng.bool(), sack: rng.u8(..4) > 0, ..with_option() };
    connect(&mut pair, [behaviour; 2]);
    let plans = [Plan::random(rng), Plan::random(rng)];
    let arenas = [receiver::Arena::new(rng, &plans[1]), receiver::Arena::new(rng, &plans[0])];
    let (writer_a, reader_a) = attach_host(&pair.a, arenas[0].config(rng));
    let (writer_b, reader_b) = attach_host(&pair.b, arenas[1].config(rng));
    let [bell_a, bell_b] = arenas.each_ref().map(|arena| arena.writer.clone());
    let [plan_a, plan_b] = plans;
    let [arena_a, arena_b] = arenas;
    let mut ways = [
        Way::new(plan_a, (writer_a, reader_b), bell_a, arena_b),
        Way::new(plan_b, (writer_b, reader_a), bell_b, arena_a),
    ];
    for way in &mut ways {
        way.receiver.is_faithful = path.is_faithful();
    }
    // Small rings take many polls, and an idle one takes up to a second.
    let end = pair.now + 200_000 * SECOND;
    while !ways.iter().all(Way::is_over) {
        // Often, as time goes: a peer gives up if nothing of it finds room for long.
        for _ in 0..8 {
            for way in &mut ways {
                way.act(rng);
            }
            pair.a.core.poll_once(pair.now);
            pair.b.core.poll_once(pair.now);
        }
        pair.step();
        assert!(
            pair.now < end,
            "{path:?} does not end: {:?} {:?} {:?}",
            ways.each_ref().map(|way| (way.sender.state(), way.receiver.state())),
            pair.a.events,
            pair.b.events
        );
    }
    for (way, host) in ways.iter().zip([&pair.b, &pair.a]) {
        let counters = host.core.transfer_counters();
        way.receiver.check_memory(path.is_faithful());
        if path.is_faithful() {
            check_faithful(way, &counters);
        }
        seen.counters.add(&counters);
        for transfer in &way.receiver.transfers {
            seen.complete[transfer.plan.kind as usize] += transfer.complete;
        }
        seen.cancelled += way.receiver.cancelled;
        seen.dropped_readers += usize::from(way.receiver.is_dropped());
        seen.handed_out += way.receiver.handed_out;
        seen.octets_placed += way.receiver.octets_placed;
    }
}

/// Nothing but the bounds of the receiver may have kept octets from being placed.
fn check_faithful(way: &Way, counters: &TransferCounters) {
    if way.receiver.is_dropped() || way.receiver.plain {
        // Nobody ends its transfers.
        return;
    }
    let TransferCounters { outside_payload, out_of_bounds, total_changed, .. } = *counters;
    assert_eq!([outside_payload, out_of_bounds, total_changed], [0; 3], "{counters:?}");
    if counters.too_scattered > 0 {
        return;
    }
    assert_eq!((counters.overlapping, counters.placements_revoked), (0, 0), "{counters:?}");
    for transfer in &way.receiver.transfers {
        let placed = match transfer.plan.kind {
            Kind::Expected => transfer.was_ready && !transfer.cancelled,
            // Those beyond the quota are copied.
            Kind::Unsolicited => counters.over_quota == 0,
            Kind::Unknown => false,
        };
        if !placed || !transfer.was_sent {
            continue;
        }
        assert_eq!(transfer.copied, 0, "octets copied of {transfer:?} {counters:?}");
        assert_eq!(transfer.complete, usize::from(transfer.plan.total_known), "{transfer:?} {counters:?}");
    }
}

#[test]
fn readers_are_told_the_stream() {
    let number = |name| std::env::var(name).ok().and_then(|number: String| number.parse::<u64>().ok());
    let (first, seeds) =
        (number("WARPLINE_FIRST_SEED").unwrap_or(0), number("WARPLINE_SEEDS").unwrap_or(400));
    let mut seen = Seen::default();
    for seed in first..first + seeds {
        println!("seed {seed}");
        run(seed, &mut seen);
    }
    println!("{seen:?}");
    if seeds >= 200 {
        let counters = &seen.counters;
        for (what, count) in [
            ("expected complete", seen.complete[Kind::Expected as usize] as u64),
            ("unsolicited complete", seen.complete[Kind::Unsolicited as usize] as u64),
            ("cancelled", seen.cancelled as u64),
            ("dropped readers", seen.dropped_readers as u64),
            ("beyond gaps", counters.segments_placed_out_of_order),
            ("messages early", counters.messages_early),
            ("handed out", seen.handed_out as u64),
            ("messages without room", counters.messages_early_refused),
            ("outside of payloads", counters.outside_payload),
            ("unknown", counters.unknown_rid),
            ("out of bounds", counters.out_of_bounds),
            ("totals changed", counters.total_changed),
            ("overlapping", counters.overlapping),
            ("over quota", counters.over_quota),
            ("revoked", counters.placements_revoked),
        ] {
            assert!(count > 1, "{what}: {seen:?}");
        }
    }
}
