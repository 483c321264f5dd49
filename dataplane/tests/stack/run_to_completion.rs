//! Tests of a core whose application works between the polls, on the same thread: what has arrived is
//! acknowledged by what the application answers.

use crate::common::{Host, Pair, Setup, pattern, region_of};
use warpline_dataplane::device::sim::EndConfig;
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::Slice;
use warpline_dataplane::time::MILLISECOND;

const SOURCE: STag = STag::new(1, 11);
const SINK: STag = STag::new(2, 22);
const LONG: STag = STag::new(3, 33);
const OCTETS: usize = 64;
/// Two hundred of these are more than any window.
const LONG_OCTETS: usize = 8192;

/// Two ends in Full Operation, each with a region to write from and one to be written to.
struct Pings {
    pair: Pair,
    data: Vec<u8>,
    /// That of `a`, and that of `b`.
    sinks: [Region; 2],
}

impl Pings {
    fn new() -> Self {
        let mut pair = Pair::new(7, EndConfig::a(), EndConfig::b());
        let data = pattern(7, OCTETS);
        let sinks = [0, 1].map(|_| Region::heap(OCTETS).unwrap());
        for (host, sink) in [(&pair.a, &sinks[0]), (&pair.b, &sinks[1])] {
            host.register(SOURCE, &region_of(&data), Access::empty());
            host.register(SINK, sink, Access::REMOTE_WRITE);
            host.register(LONG, &Region::heap(LONG_OCTETS).unwrap(), Access::REMOTE_WRITE);
        }
        pair.establish(Setup { markers: false, crc: true });
        let mut this = Self { pair, data, sinks };
        write(&this.pair.a, 0);
        // The Responder may send after the first FPDU, and nothing is outstanding at the end of this.
        this.pair.run_for(2);
        assert_eq!(this.pair.a.poll_completions().len(), 1);
        this.sinks.iter().for_each(|sink| assert!(sink.write(0, &[0; OCTETS])));
        this
    }

    /// Has `a` write to `b`, whose core is polled run to completion until the Write is placed.
    fn arrive(&mut self, id: u64) {
        write(&self.pair.a, id);
        self.pair.a.core.poll_once(self.pair.now);
        for _ in 0..100 {
            self.pair.now += MILLISECOND;
            self.pair.b.core.poll_run_to_completion(self.pair.now);
            if self.holds(1) {
                return;
            }
        }
        panic!("the Write does not arrive");
    }

    fn holds(&self, sink: usize) -> bool {
        let mut found = [0; OCTETS];
        self.sinks[sink].read(0, &mut found) && found[..] == self.data[..]
    }

    fn poll_b(&mut self) -> bool {
        self.pair.b.core.poll_run_to_completion(self.pair.now)
    }

    fn sent_by_b(&self) -> u64 {
        self.pair.b.statistics().frames_sent
    }
}

fn write(host: &Host, id: u64) {
    host.write(id, Slice { stag: SOURCE, to: 0, len: OCTETS as u32 }, SINK, 0);
}

#[test]
fn an_answer_carries_the_acknowledgement() {
    let mut pings = Pings::new();
    let before = pings.sent_by_b();
    pings.arrive(1);
    assert_eq!(pings.sent_by_b(), before, "the application has its turn first");
    write(&pings.pair.b, 1);
    assert!(pings.poll_b());
    assert_eq!(pings.sent_by_b(), before + 1, "one segment has the answer and the acknowledgement");
    assert!(!pings.poll_b(), "nothing is left to send");
    let answered = pings.pair.run_until(1, |pair| !pair.a.poll_completions().is_empty());
    assert!(answered && pings.holds(0), "the Write is acknowledged, the answer is placed");
}

#[test]
fn what_is_not_answered_is_acknowledged_by_the_next_poll() {
    let mut pings = Pings::new();
    let before = pings.sent_by_b();
    pings.arrive(1);
    assert!(pings.pair.b.core.has_scheduled(), "the next poll is to come at once");
    assert!(pings.poll_b());
    assert_eq!(pings.sent_by_b(), before + 1);
    assert!(!pings.pair.b.core.has_scheduled() && !pings.poll_b());
    assert!(pings.pair.run_until(1, |pair| !pair.a.poll_completions().is_empty()));
}

/// An acknowledgement lets more go: that needs no answer of the application.
#[test]
fn what_an_acknowledgement_lets_go_leaves_in_the_same_poll() {
    let mut pings = Pings::new();
    let now = pings.pair.now;
    for id in 0..200 {
        pings.pair.a.write(id, Slice { stag: SOURCE, to: 0, len: OCTETS as u32 }, SINK, 0);
        pings.pair.a.write(id, Slice { stag: LONG, to: 0, len: LONG_OCTETS as u32 }, LONG, 0);
    }
    pings.pair.a.core.poll_run_to_completion(now);
    while pings.pair.a.core.has_scheduled() {
        pings.pair.a.core.poll_run_to_completion(now);
    }
    let window = pings.pair.a.statistics().frames_sent;
    pings.pair.now = now + 100 * MILLISECOND;
    pings.pair.b.core.poll_once(pings.pair.now);
    pings.pair.now += 100 * MILLISECOND;
    assert!(pings.pair.a.core.poll_run_to_completion(pings.pair.now));
    assert!(pings.pair.a.statistics().frames_sent > window, "the window has moved");
}

/// A poll that finds work and a frame sends before it receives.
#[test]
fn what_was_posted_leaves_before_what_has_arrived_is_taken() {
    let mut pings = Pings::new();
    let before = pings.sent_by_b();
    write(&pings.pair.a, 1);
    pings.pair.a.core.poll_once(pings.pair.now);
    pings.pair.now += 100 * MILLISECOND;
    write(&pings.pair.b, 1);
    assert!(pings.poll_b());
    assert!(pings.holds(1) && pings.pair.b.core.has_scheduled(), "taken, and not acknowledged yet");
    assert_eq!(pings.sent_by_b(), before + 1, "the Write");
    assert!(pings.poll_b());
    assert_eq!(pings.sent_by_b(), before + 2, "the acknowledgement");
}
