//! Two hosts in Full Operation, each with memory whose STags both hold.

use warpline_dataplane::device::sim::{EndConfig, Impairments};
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::{Completion, Slice};

use crate::common::{Pair, Setup, pattern, region_of};

/// Open to the peer in every way, at both ends.
pub const SHARED: STag = STag::new(1, 0x1111);
/// For this end alone: the source of its messages, and the sink of messages and responses.
pub const OWN: STag = STag::new(2, 0x2222);
pub const REGION_OCTETS: usize = 1 << 18;

pub struct Bench {
    pub pair: Pair,
    /// The memory of `a` and of `b`: the regions that [`SHARED`] and [`OWN`] name.
    pub a: [Region; 2],
    pub b: [Region; 2],
}

impl Bench {
    pub fn new(reads: u16, setup: Setup) -> Self {
        Self::with(1, Impairments::default(), reads, setup)
    }

    pub fn with(seed: u64, outbound: Impairments, reads: u16, setup: Setup) -> Self {
        let (a, b) = (EndConfig { outbound, ..EndConfig::a() }, EndConfig { outbound, ..EndConfig::b() });
        let mut pair = Pair::new(seed, a, b);
        pair.reads = reads;
        let region = |seed| region_of(&pattern(seed, REGION_OCTETS));
        let (a, b) = ([region(1), region(2)], [region(3), region(4)]);
        for (host, [shared, own]) in [(&pair.a, &a), (&pair.b, &b)] {
            let open = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            host.register(SHARED, shared, open | Access::LOCAL_WRITE);
            host.register(OWN, own, Access::LOCAL_WRITE);
        }
        pair.establish(setup);
        Self { pair, a, b }
    }

    /// Runs until `a` has `count` more completions, and returns them.
    pub fn completions_of_a(&mut self, count: usize) -> Vec<Completion> {
        let mut completions = Vec::new();
        let done = self.pair.run_until(30, |pair| {
            completions.extend(pair.a.poll_completions());
            completions.len() >= count
        });
        assert!(done, "{} of {count}: {completions:?}; {:?}", completions.len(), self.pair.a.qp.error());
        completions
    }

    /// As above of `b`.
    pub fn completions_of_b(&mut self, count: usize) -> Vec<Completion> {
        let mut completions = Vec::new();
        let done = self.pair.run_until(30, |pair| {
            completions.extend(pair.b.poll_completions());
            completions.len() >= count
        });
        assert!(done, "{} of {count}: {completions:?}; {:?}", completions.len(), self.pair.b.qp.error());
        completions
    }
}

/// With and without Markers and CRCs.
pub const SETUPS: [Setup; 2] = [Setup { markers: false, crc: true }, Setup { markers: true, crc: true }];

pub fn own(to: u64, octets: u32) -> Slice {
    Slice { stag: OWN, to, len: octets }
}

/// The octets of `region` from `offset` on.
pub fn octets_of(region: &Region, offset: usize, octets: usize) -> Vec<u8> {
    let mut copy = vec![0; octets];
    assert!(region.read(offset, &mut copy));
    copy
}
