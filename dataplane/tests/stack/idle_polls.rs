//! Tests of polls that find nothing: a core that asks for little in them does all that it would do by the
//! clock if it asked for everything, and not later.

use std::net::SocketAddr;

use crate::common::{Host, PORT, Pair, Setup, address, pattern, region_of};
use warpline_dataplane::core::Config;
use warpline_dataplane::core::tables::{Tables, Usage};
use warpline_dataplane::device::path::Impairments;
use warpline_dataplane::device::sim::EndConfig;
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::{Completion, Slice};
use warpline_dataplane::ring::{Command, Event};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::testing::ColdBranches;
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};

const SOURCE: STag = STag::new(1, 11);
const SINK: STag = STag::new(2, 22);
const OCTETS: usize = 20_000;
/// From one poll to the next: within a tick of the timers there are several.
const POLL_NS: u64 = 300_000;
const WRITES: u64 = 20;

/// What a core has done by a time.
#[derive(Debug, PartialEq)]
struct Done {
    at: Instant,
    statistics: Statistics,
    usage: Usage,
    completions: Vec<Completion>,
    /// In text: events have no comparison.
    events: String,
}

/// Two cores that are polled again and again, and what they have done.
struct Life {
    pair: Pair,
    done: [Vec<Done>; 2],
}

impl Life {
    /// Polls both for as long, and records what changes.
    fn pass(&mut self, ns: u64) {
        let end = self.pair.now + ns;
        while self.pair.now < end {
            self.pair.now += POLL_NS;
            let Self { pair: Pair { a, b, now, .. }, done: [done_a, done_b] } = self;
            a.core.poll_run_to_completion(*now);
            b.core.poll_once(*now);
            record(*now, a, done_a);
            record(*now, b, done_b);
        }
    }
}

fn record(at: Instant, host: &mut Host, done: &mut Vec<Done>) {
    let completions = host.poll_completions();
    let events: Vec<Event> = std::iter::from_fn(|| host.rings.events.pop()).collect();
    let mut statistics = host.statistics();
    // They change in each poll; these with how a segment is received.
    (statistics.polls, statistics.idle_polls) = (0, 0);
    (statistics.segments_predicted, statistics.nodes_visited) = (0, 0);
    let usage = host.core.usage();
    let last = done.last().map(|last| (&last.statistics, &last.usage));
    if last != Some((&statistics, &usage)) || !completions.is_empty() || !events.is_empty() {
        done.push(Done { at, statistics, usage, completions, events: format!("{events:?}") });
    }
}

/// Has two cores begin to use their addresses, look for a neighbour that is not there, write over a path that
/// loses, and close.
fn live(seed: u64) -> Life {
    let lossy = Impairments { loss: 0.05, ..Impairments::default() };
    let ends = [EndConfig::a(), EndConfig::b()];
    let [a, b] = ends.map(|end| EndConfig { outbound: lossy, ..end });
    let pair = Pair::with_config(seed, a, b, Tables::default(), |config: &mut Config| {
        config.duplicate_address_detection = true;
    });
    let data = pattern(seed, OCTETS);
    for host in [&pair.a, &pair.b] {
        host.register(SOURCE, &region_of(&data), Access::empty());
        host.register(SINK, &Region::heap(OCTETS).unwrap(), Access::REMOTE_WRITE);
    }
    let mut life = Life { pair, done: [Vec::new(), Vec::new()] };
    // Duplicate address detection.
    life.pass(3 * SECOND);
    life.pair.establish(Setup { markers: false, crc: true });
    life.pair.a.command(Command::Connect {
        token: 2,
        local: None,
        remote: SocketAddr::new(address(9).into(), PORT),
        timeout_ns: 10 * SECOND,
        tcp: None,
        octets: Box::default(),
    });
    for id in 0..WRITES {
        life.pair.a.write(id, Slice { stag: SOURCE, to: 0, len: OCTETS as u32 }, SINK, 0);
        life.pass(50 * MILLISECOND);
    }
    life.pass(15 * SECOND);
    life.pair.a.command(Command::Close { connection: life.pair.a.connection.unwrap() });
    life.pass(5 * SECOND);
    life.pair.b.command(Command::Close { connection: life.pair.b.connection.unwrap() });
    life.pass(limits::LINGER_NS + 20 * SECOND);
    life
}

#[test]
fn an_idle_core_does_in_time_what_a_busy_one_does() {
    for seed in 0..3 {
        let idle = live(seed);
        let busy = {
            let _cold = ColdBranches::begin();
            live(seed)
        };
        for (end, (idle_end, busy_end)) in idle.done.iter().zip(&busy.done).enumerate() {
            for (one, other) in idle_end.iter().zip(busy_end) {
                assert_eq!(one, other, "seed {seed}, end {end}");
            }
            assert_eq!(idle_end.len(), busy_end.len(), "seed {seed}, end {end}");
        }
        let [a, b] = [&idle.pair.a, &idle.pair.b];
        assert!(a.statistics().tcp.retransmitted_segments > 0, "seed {seed}: nothing was lost");
        for host in [a, b] {
            let counts = host.statistics();
            assert!(counts.idle_polls * 10 > counts.polls * 9, "seed {seed}: hardly a poll is idle");
            assert_eq!((host.core.usage().connections, host.core.usage().time_waits), (0, 0), "seed {seed}");
        }
    }
}
