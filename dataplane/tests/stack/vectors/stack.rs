//! Vectors against the stack itself: it receives the request of a vector and must put the vector's octets on
//! the wire, or it receives a vector's octets and must carry them out.

use std::sync::Arc;

use warpline_dataplane::core::Config;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, Payload, ReceiveRequest, SendRequest, Slice, SliceList};
use warpline_dataplane::ring::{Command, FullOperation};
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

use super::{Record, counting, decode, encode, load};
use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PD, QP, holds, region_of};

const HELLO: STag = STag(0x0001_0001);
const SINK: STag = STag(0x1122_3344);
const SOURCE: STag = STag(0x5566_7788);
const INVALIDATED: STag = STag(0xa1a2_a3a4);

/// A core in Full Operation as Initiator: every FPDU has a segment of its own, and the first wrong CRC is an
/// error.
struct Stack {
    peer: RawPeer,
    qp: Arc<SharedQp>,
    seq: SeqNumber,
    ack: SeqNumber,
}

impl Stack {
    fn new() -> Self {
        let config = Config { window_bytes: 1 << 18, ..RawPeer::config() };
        // With all the slots that the vectors' STags name.
        let mut peer = RawPeer::with_tables(config, 1500, Tables::default());
        let ack = peer.accept(Options { mss: Some(1460), ..Options::default() });
        let completions = Arc::new(CompletionRing::new(64));
        let rings = CompletionRings::shared(completions);
        let qp = Arc::new(SharedQp::new(
            QP,
            PD,
            QueueDepths { send: 16, receive: 16 },
            rings,
            peer.rings.doorbells.clone(),
        ));
        let operation = FullOperation {
            packing: false,
            crc_retries: 0,
            depths: ReadDepths { ird: 4, ord: 4 },
            ..FullOperation::new(true)
        };
        peer.command(Command::Start { connection: peer.accepted.unwrap(), qp: qp.clone(), operation });
        let mut this = Self { peer, qp, seq: PEER_ISS + 1, ack };
        this.register(HELLO, &region_of(b"hello"), Access::empty(), 0);
        this
    }

    fn register(&mut self, stag: STag, region: &Region, access: Access, base_to: u64) {
        let grant = Grant::new(region.clone(), PD, base_to, access);
        self.peer.command(Command::Register { stag, grant });
        self.peer.settle();
    }

    fn post(&mut self, operation: Operation, local: impl Into<Payload>) {
        self.qp.post_send(SendRequest::new(1, operation, local)).unwrap();
        self.peer.settle();
    }

    fn hear(&mut self, octets: &[u8]) {
        for part in octets.chunks(1460) {
            self.peer.send(Flags::ACK, self.seq, self.ack, part);
            self.seq += part.len() as u32;
        }
    }

    /// Octets it has sent since the last look, which are acknowledged.
    fn said(&mut self) -> Vec<u8> {
        let said: Vec<u8> = self.peer.sent.drain(..).flat_map(|sent| sent.payload).collect();
        self.ack += said.len() as u32;
        said
    }

    /// Asserts that the stack has sent the contents of these records, one after the other, and nothing else.
    #[track_caller]
    fn expect(&mut self, records: &[&Record]) {
        let octets: Vec<u8> = records.iter().flat_map(|record| record.octets.clone()).collect();
        assert_eq!(self.said(), octets, "{}", records[0].label);
    }
}

const fn hello() -> Slice {
    Slice { stag: HELLO, to: 0, len: 5 }
}

// Requirements: RDMAP-4.1-03, RDMAP-4.1-05, RDMAP-4.1-06, RDMAP-5.3-01, RDMAP-5.3-07, RDMAP-5.1-01
#[test]
fn sends_and_writes() {
    let [_, send, _, invalidating, _, soliciting, _, both] = load("rdmap-send");
    let mut stack = Stack::new();
    for (invalidate, solicited) in
        [(None, false), (Some(INVALIDATED), false), (None, true), (Some(INVALIDATED), true)]
    {
        stack.post(Operation::Send { invalidate, solicited }, hello());
    }
    stack.expect(&[&send, &invalidating, &soliciting, &both]);
    let [_, write, _, empty] = load("rdmap-write");
    stack.post(Operation::Write { stag: STag(0x0102_0304), to: 4096 }, hello());
    stack.post(Operation::Write { stag: STag(0), to: 0 }, SliceList::default());
    stack.expect(&[&write, &empty]);
}

// Requirements: RDMAP-4.4-01, RDMAP-4.4-02, RDMAP-5.2.1-01, RDMAP-5.2.1-10, RDMAP-5.2.2-01
#[test]
fn reads() {
    let [_, request, _, response, _, nothing, _, empty] = load("rdmap-read");
    let mut stack = Stack::new();
    let sink = Region::heap(65_536).unwrap();
    stack.register(SINK, &sink, Access::LOCAL_WRITE, 0x1_0000_0000);
    let local = Slice { stag: SINK, to: 0x1_0000_0000, len: 65_536 };
    stack.post(Operation::Read { stag: SOURCE, to: 0x1000 }, local);
    stack.expect(&[&request]);

    // The other end's part: a Request like the golden one for the octets of the golden Response.
    let mut stack = Stack::new();
    stack.register(SOURCE, &region_of(&counting(0, 8)), Access::REMOTE_READ, 0x1000);
    let mut asked = decode(&request.octets, 0, false, true).unwrap();
    asked[18 + 12..18 + 16].copy_from_slice(&8_u32.to_be_bytes());
    stack.hear(&encode(&asked, 0, false, true));
    stack.expect(&[&response]);

    let mut stack = Stack::new();
    stack.post(Operation::Read { stag: STag(0), to: 0 }, Slice::default());
    stack.expect(&[&nothing]);
    let mut stack = Stack::new();
    stack.hear(&nothing.octets);
    stack.expect(&[&empty]);
}

// Requirements: RDMAPX-4-01, RDMAPX-5-01, RDMAPX-5-03, RDMAPX-6-01
#[test]
fn atomics_and_immediate_data() {
    let [_, immediate, _, soliciting, add, add_fpdu, swap, swap_fpdu, _, response] = load("rdmap-7306");
    let mut stack = Stack::new();
    for solicited in [false, true] {
        let operation = Operation::Immediate { immediate: 0x0102_0304_0506_0708, solicited };
        stack.post(operation, SliceList::default());
    }
    stack.expect(&[&immediate, &soliciting]);

    // The requester chooses the identifier (RFC 7306 §5.2.1); everything else follows the document.
    let mut stack = Stack::new();
    stack.register(SINK, &Region::heap(8).unwrap(), Access::LOCAL_WRITE, 0);
    let local = Slice { stag: SINK, to: 0, len: 8 };
    let operations = [
        Operation::FetchAdd { stag: SOURCE, to: 0x1000, add: 1, mask: 0 },
        Operation::CompareSwap {
            stag: SOURCE,
            to: 0x1008,
            compare: 1,
            compare_mask: u64::MAX,
            swap: 2,
            swap_mask: u64::MAX,
        },
    ];
    for (operation, golden) in operations.into_iter().zip([&add, &swap]) {
        stack.post(operation, local);
        let said = decode(&stack.said(), 0, false, true).unwrap();
        let mut expected = golden.octets.clone();
        expected[22..26].copy_from_slice(&said[22..26]);
        assert_eq!(said, expected, "{}", golden.label);
    }

    // The other end's part: the golden Requests, carried out and answered by the golden Response.
    let mut stack = Stack::new();
    let memory = region_of(&[41_u64.to_ne_bytes(), 1_u64.to_ne_bytes()].concat());
    stack.register(SOURCE, &memory, Access::REMOTE_ATOMIC, 0x1000);
    stack.hear(&add_fpdu.octets);
    stack.expect(&[&response]);
    stack.hear(&swap_fpdu.octets);
    let answer = decode(&stack.said(), 0, false, true).unwrap();
    assert_eq!(answer[18..], [&8_u32.to_be_bytes()[..], &1_u64.to_be_bytes()].concat());
    assert!(holds(&memory, 0, &[42_u64.to_ne_bytes(), 2_u64.to_ne_bytes()].concat()));
}

/// The segments that golden Terminates quote cause these Terminates.
// Requirements: RDMAP-4.8-01 to RDMAP-4.8-04, RDMAP-5.4-01, RDMAP-7.1-02
#[test]
fn terminates() {
    let [_, crc, bounds, bounds_fpdu, buffer, buffer_fpdu, rights, rights_fpdu, _, _, _, local, ..] =
        load::<16>("rdmap-terminate");
    let mut stack = Stack::new();
    let mut wrong = encode(&counting(0xc1, 100), 0, false, true);
    wrong[50] ^= 1;
    stack.hear(&wrong);
    stack.expect(&[&crc]);

    let segment = |quoting: &Record, octets: usize| {
        let mut segment = quoting.octets[24..].to_vec();
        segment.resize(octets, 0);
        encode(&segment, 0, false, true)
    };
    let mut stack = Stack::new();
    let one_page = Region::heap(4096).unwrap();
    stack.register(STag(0xdead_beef), &one_page, Access::REMOTE_WRITE, 0x1000);
    stack.hear(&segment(&bounds, 1500));
    stack.expect(&[&bounds_fpdu]);

    let mut stack = Stack::new();
    for number in 1..9_u32 {
        stack.qp.post_receive(ReceiveRequest::new(1, SliceList::default())).unwrap();
        let mut send = buffer.octets[24..].to_vec();
        send[10..14].copy_from_slice(&number.to_be_bytes());
        stack.hear(&encode(&send, 0, false, true));
    }
    stack.hear(&segment(&buffer, 42));
    stack.expect(&[&buffer_fpdu]);

    let mut stack = Stack::new();
    // All that the Request asks for is there; only the right is not.
    let enough = Region::heap(64 * 1024).unwrap();
    stack.register(SOURCE, &enough, Access::REMOTE_WRITE, 0x1000);
    for number in 1..3_u32 {
        let mut nothing = rights.octets[24..].to_vec();
        nothing[10..14].copy_from_slice(&number.to_be_bytes());
        nothing[18 + 12..18 + 16].fill(0);
        stack.hear(&encode(&nothing, 0, false, true));
    }
    stack.said();
    stack.hear(&segment(&rights, 46));
    stack.expect(&[&rights_fpdu]);

    let mut stack = Stack::new();
    stack.post(Operation::SEND, Slice { stag: SINK, to: 0, len: 1 });
    stack.expect(&[&local]);
}
