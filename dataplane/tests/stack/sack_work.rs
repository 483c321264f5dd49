//! Tests of a peer that makes selective acknowledgements expensive: tiny segments, many holes, a flood of
//! blocks (the manner of CVE-2019-11477 to CVE-2019-11479). The work in one poll is bounded, and no
//! connection loses data.

use std::sync::Arc;

use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PD, QP, region_of};
use warpline_dataplane::memory::{Access, Grant, STag};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, Status};
use warpline_dataplane::ring::{Command, FullOperation};
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

const SOURCE: STag = STag::new(2, 0x22);
const OCTETS: usize = 600_000;

struct Flooded {
    peer: RawPeer,
    completions: Arc<CompletionRing>,
    start: SeqNumber,
    /// Octets that the peer has received.
    have: Vec<bool>,
}

impl Flooded {
    /// A core that writes [`OCTETS`] octets in segments of 64 to a peer whose window has room for all of
    /// them.
    fn new() -> Self {
        let tcp = Behaviour { pacing: false, ..Behaviour::default() };
        let mut peer = RawPeer::with(warpline_dataplane::core::Config { tcp, ..RawPeer::config() }, 1500);
        let options =
            Options { mss: Some(64), window_scale: Some(6), sack_permitted: true, ..Options::default() };
        let start = peer.accept(options);
        let completions = Arc::new(CompletionRing::new(4));
        let rings = CompletionRings::shared(completions.clone());
        let qp = Arc::new(SharedQp::new(
            QP,
            PD,
            QueueDepths { send: 4, receive: 1 },
            rings,
            peer.rings.doorbells.clone(),
        ));
        let grant = Grant::new(region_of(&vec![7; OCTETS]), PD, 0, Access::empty());
        peer.command(Command::Register { stag: SOURCE, grant });
        let operation = FullOperation::new(true);
        peer.command(Command::Start { connection: peer.accepted.unwrap(), qp: qp.clone(), operation });
        peer.settle();
        let local = Slice { stag: SOURCE, to: 0, len: OCTETS as u32 };
        let operation = Operation::Write { stag: STag(9), to: 0 };
        qp.post_send(SendRequest::new(1, operation, local)).unwrap();
        peer.settle();
        Self { peer, completions, start, have: Vec::new() }
    }

    /// Takes the segments that have arrived, except those for whose number `loses` returns true.
    fn take(&mut self, loses: impl Fn(usize) -> bool) {
        for sent in std::mem::take(&mut self.peer.sent) {
            let at = (sent.header.seq - self.start) as usize;
            let end = at + sent.payload.len();
            self.have.resize(self.have.len().max(end), false);
            if !loses(at / 64) {
                self.have[at..end].fill(true);
            }
        }
    }

    /// Acknowledges each of the segments that have come, so that the window doubles.
    fn grow(&mut self) {
        let mut ends: Vec<SeqNumber> =
            self.peer.sent.iter().map(|sent| sent.header.seq + sent.payload.len() as u32).collect();
        ends.dedup();
        self.take(|_| false);
        for end in ends {
            let header = self.peer.header(Flags::ACK, PEER_ISS + 1, end);
            self.peer.inject(&RawPeer::segment(&header, &[]));
        }
        self.peer.pass_ms(10);
    }

    fn in_order(&self) -> u32 {
        self.have.iter().position(|have| !have).unwrap_or(self.have.len()) as u32
    }

    /// Runs of octets the peer has beyond the first hole.
    fn runs(&self) -> Vec<(SeqNumber, SeqNumber)> {
        let mut runs = Vec::new();
        let mut at = self.in_order() as usize;
        while at < self.have.len() {
            let begin = at;
            let same = self.have[begin..].iter().take_while(|have| **have == self.have[begin]).count();
            at += same;
            if self.have[begin] {
                runs.push((self.start + begin as u32, self.start + at as u32));
            }
        }
        runs
    }

    fn acknowledgement(&self, blocks: &[(SeqNumber, SeqNumber)]) -> Vec<u8> {
        let mut header = self.peer.header(Flags::ACK, PEER_ISS + 1, self.start + self.in_order());
        header.options.sack = blocks.iter().copied().collect();
        RawPeer::segment(&header, &[])
    }

    fn acknowledge(&mut self, blocks: &[(SeqNumber, SeqNumber)]) {
        let frame = self.acknowledgement(blocks);
        self.peer.inject(&frame);
        self.peer.settle();
    }
}

/// RFC 8985 §6, RFC 6675: each block that shows a hole causes a search of the send queue. A poll does a
/// bounded amount of that, counts the rest, and still every loss is repaired.
#[test]
fn the_search_for_holes_is_bounded() {
    let mut flooded = Flooded::new();
    while flooded.have.len() < OCTETS / 3 {
        flooded.grow();
    }
    // From here on every second segment is lost.
    flooded.take(|number| number % 2 == 1);
    let runs = flooded.runs();
    assert!(runs.len() > 400, "{} runs", runs.len());
    // All at once, a new block in each.
    let before = flooded.peer.core.statistics().searches_refused;
    for blocks in runs.rchunks(1).take(400) {
        let frame = flooded.acknowledgement(blocks);
        flooded.peer.inject(&frame);
    }
    flooded.peer.pass_ms(1);
    assert!(flooded.peer.core.statistics().searches_refused > before);
    // Then the peer is honest.
    let mut turns = 0;
    let done = loop {
        flooded.take(|_| false);
        let runs = flooded.runs();
        flooded.acknowledge(&runs[..runs.len().min(3)]);
        flooded.peer.pass_ms(5);
        if let Some(done) = flooded.completions.poll() {
            break done;
        }
        turns += 1;
        assert!(turns < 10_000, "it does not come to an end");
    };
    assert_eq!(done.status, Status::Success);
}
