//! The stack against `reference`, the second implementation: random bursts of every kind of message, over a
//! path that loses, repeats, reorders, damages and cuts, with Markers and without, with CRCs and without,
//! some with a field, a CRC or a Marker that is wrong; and random work requests, whose frames the reference
//! reads. Memory, completions, responses and the error with its Terminate are those of the reference, and
//! after an error nothing changes.

mod bursts;
mod conversation;
mod faults;
mod plan;
mod subject;
mod work;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use warpline_dataplane::testing::ColdBranches;

use crate::reference::target::Code;
use conversation::Conversation;
use subject::Setup;

const SEEDS: u64 = 600;

/// What the runs have reached.
#[derive(Debug, Default)]
struct Reached {
    errors: BTreeMap<Code, u64>,
    terminated: u64,
    deliveries: u64,
    responses: u64,
    sent: u64,
    placed_beyond_gaps: u64,
}

impl Reached {
    /// Every number that the documents give an error which a peer can cause in one stream.
    fn expect_everything(&self) {
        let rdmap = [(1, 0x00), (1, 0x01), (1, 0x02), (1, 0x03), (1, 0x04), (1, 0x09)];
        let operation = [(2, 0x05), (2, 0x06), (2, 0x07), (2, 0xff)];
        let ddp = [(0, 0x00), (1, 0x00), (1, 0x01), (1, 0x02), (1, 0x03), (1, 0x04)];
        let queues = [(2, 0x01), (2, 0x02), (2, 0x03), (2, 0x04), (2, 0x05), (2, 0x06)];
        let layers = [(0, &rdmap[..]), (0, &operation[..]), (1, &ddp), (1, &queues), (2, &[(0, 2), (0, 3)])];
        for (layer, errors) in layers {
            for (error_type, number) in errors.iter().copied() {
                let code = Code { layer, error_type, number };
                assert!(self.errors.contains_key(&code), "{code:?} is not among {self:?}");
            }
        }
        assert!(self.terminated > 0 && self.placed_beyond_gaps > 100, "{self:?}");
        assert!(self.deliveries > 1000 && self.responses > 500 && self.sent > 5000, "{self:?}");
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect(name))
}

/// One connection. Half of them take cold branches by coin.
fn run(seed: u64, reached: &mut Reached) {
    let mut rng = Rng::with_seed(seed);
    let setup = Setup::choose(&mut rng);
    println!("seed {seed}: {setup:?}");
    let _cold = rng.bool().then(|| ColdBranches::by_coin(rng.u16(..=256), seed));
    let mut conversation = Conversation::new(setup, rng);
    conversation.run();
    conversation.note(reached);
}

// Requirements: MPA-5.2-01, MPA-6-01, DDP-7.1-01
#[test]
fn the_stack_does_what_the_documents_say() {
    let first = from_environment("WARPLINE_REFERENCE_FIRST", 0);
    let seeds = from_environment("WARPLINE_REFERENCE_SEEDS", SEEDS);
    // Each number of an error is to be reached, in either direction.
    // Requirements: RDMAP-7.2-05 to RDMAP-7.2-08
    let mut reached = Reached::default();
    let mut failures = Vec::new();
    for seed in first..first + seeds {
        // Segments are placed, or refused by the first check that they fail.
        // Requirements: DDP-7.1-02 to DDP-7.1-05
        if catch_unwind(AssertUnwindSafe(|| run(seed, &mut reached))).is_err() {
            failures.push(seed);
        }
    }
    // Whatever fails is told in a Terminate, octet for octet.
    // Requirements: DDP-7.1-10 to DDP-7.1-15
    assert!(failures.is_empty(), "seeds that failed: {failures:?}; see WARPLINE_REFERENCE_FIRST and _SEEDS");
    println!("{seeds} seeds from {first}: {reached:?}");
    // Nothing is placed after an error.
    // Requirements: DDP-7.1-16, DDP-7.1-17, RDMAP-7.1-02, RDMAP-7.1-03
    if seeds >= SEEDS {
        // Requirements: RDMAP-7.2-01 to RDMAP-7.2-04
        reached.expect_everything();
    }
}
