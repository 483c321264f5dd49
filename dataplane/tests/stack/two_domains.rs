//! Tests of two streams at one core whose owners do not trust each other (RFC 5042, RFC 5041 §8.3, RFC 5040
//! §8.1). Each has its own protection domain, completion queue and request queue. Neither owner nor its peer
//! can access resources of the other; only the commands of the control thread can.

use std::sync::Arc;

use warpline_dataplane::memory::{
    Access, Binding, FastRegistration, Grant, ProtectionDomainId, Region, STag,
};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{
    Operation, Payload, QpNumber, ReceiveRequest, SendRequest, Slice, Status,
};
use warpline_dataplane::ring::{AfterStream, Command, Event, FullOperation};
use warpline_dataplane::wire::tcp::{Flags, Header, SeqNumber};

use crate::common::raw::{PEER_ISS, PEER_PORT, RawPeer};
use crate::common::{PORT, holds, region_of};
use crate::errors::target::{fpdu, send, untagged, write};

const OCTETS: usize = 64;
const DEPTHS: ReadDepths = ReadDepths { ird: 2, ord: 2 };

/// One of the two streams, with memory that its peer may read and write and that its owner receives into.
struct Stream {
    port: u16,
    qp: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    stag: STag,
    memory: Region,
    seq: SeqNumber,
    ack: SeqNumber,
}

/// Opens a connection from a port of its own, for queue pair `number` of the domain with the same number.
fn open(peer: &mut RawPeer, number: u32) -> Stream {
    let port = PEER_PORT + number as u16;
    let segment = |peer: &RawPeer, flags, seq, ack| {
        let header = Header { source_port: port, ..peer.header(flags, seq, ack) };
        RawPeer::segment(&header, &[])
    };
    let syn = segment(peer, Flags::SYN, PEER_ISS, SeqNumber(0));
    peer.inject(&syn);
    peer.settle();
    let ack = peer.sent.pop_back().unwrap().header.seq + 1;
    peer.sent.clear();
    let acknowledged = segment(peer, Flags::ACK, PEER_ISS + 1, ack);
    peer.inject(&acknowledged);
    peer.settle();
    let Some(Event::Accepted { connection, .. }) = peer.events.pop() else { panic!("not accepted") };

    let domain = ProtectionDomainId(number);
    let completions = Arc::new(CompletionRing::new(8));
    let rings = CompletionRings::shared(completions.clone());
    let qp = Arc::new(SharedQp::new(
        QpNumber(number),
        domain,
        QueueDepths { send: 4, receive: 4 },
        rings,
        peer.rings.doorbells.clone(),
    ));
    let stag = STag::new(number as u16, 0x1111);
    let memory = region_of(&[number as u8; OCTETS]);
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::LOCAL_WRITE | Access::WINDOW_BIND;
    peer.command(Command::Register { stag, grant: Grant::new(memory.clone(), domain, 0, access) });
    let operation = FullOperation { depths: DEPTHS, ..FullOperation::new(false) };
    let then = AfterStream::FullOperation { qp: qp.clone(), operation };
    peer.command(Command::Stream { connection, octets: Box::new([]), then });
    peer.settle();
    let mut stream = Stream { port, qp, completions, stag, memory, seq: PEER_ISS + 1, ack };
    // RFC 5044 §7.1.2: the core sends nothing before it has received a valid FPDU.
    stream.send(peer, &write(STag(0), 0, b""));
    stream
}

fn two_streams() -> (RawPeer, Stream, Stream) {
    let mut peer = RawPeer::new();
    peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
    peer.settle();
    peer.core_port = PORT;
    let (first, second) = (open(&mut peer, 2), open(&mut peer, 3));
    (peer, first, second)
}

impl Stream {
    /// Sends the FPDU of `ulpdu` from the peer, with the current acknowledgement.
    fn send(&mut self, peer: &mut RawPeer, ulpdu: &[u8]) {
        let octets = fpdu(ulpdu);
        let header = Header { source_port: self.port, ..peer.header(Flags::ACK, self.seq, self.ack) };
        peer.inject(&RawPeer::segment(&header, &octets));
        peer.settle();
        self.seq += octets.len() as u32;
    }

    /// Returns the data that the core has sent on this stream since the last call.
    fn sent(&self, peer: &mut RawPeer) -> Vec<u8> {
        let mut octets = Vec::new();
        peer.sent.retain(|sent| {
            let ours = sent.header.destination_port == self.port;
            if ours {
                octets.extend_from_slice(&sent.payload);
            }
            !ours
        });
        octets
    }

    /// Reads `octets` bytes of this stream's memory from its peer, which must succeed.
    #[track_caller]
    fn expect_read(&mut self, peer: &mut RawPeer, msn: u32, octets: u32) {
        self.send(peer, &read_request(msn, self.stag, octets));
        let answer = self.sent(peer);
        assert!(answer.len() > 16 + octets as usize, "request {msn} is answered: {answer:02x?}");
        self.ack += answer.len() as u32;
    }

    /// Writes this stream's memory from its peer, which must succeed.
    #[track_caller]
    fn expect_writable(&mut self, peer: &mut RawPeer, octet: u8) {
        self.send(peer, &write(self.stag, 0, &[octet; OCTETS]));
        assert_eq!(self.qp.error(), None);
        assert!(holds(&self.memory, 0, &[octet; OCTETS]));
    }
}

/// Builds a Read Request by figure 8 of RFC 5040.
fn read_request(msn: u32, stag: STag, octets: u32) -> Vec<u8> {
    let header = [
        &0xabcd_ef01_u32.to_be_bytes()[..],
        &7_u64.to_be_bytes(),
        &octets.to_be_bytes(),
        &stag.0.to_be_bytes(),
        &0_u64.to_be_bytes(),
    ]
    .concat();
    untagged([0x41, 0x41], 1, msn, 0, &header)
}

/// A peer that fills the request queue of its stream, and then exceeds it, uses no place of another stream.
// Requirements: RDMAP-8.1.2-04, RDMAP-8.1.1-06, RDMAP-8.1-01
#[test]
fn requests_fill_the_queue_of_their_stream_alone() {
    let (mut peer, mut greedy, mut other) = two_streams();
    // The peer never acknowledges the two answers: the queue stays full.
    for msn in 1..3 {
        greedy.send(&mut peer, &read_request(msn, greedy.stag, 8));
    }
    for msn in 1..9 {
        other.expect_read(&mut peer, msn, 8);
    }
    assert_eq!((greedy.qp.error(), other.qp.error()), (None, None));
    greedy.send(&mut peer, &read_request(3, greedy.stag, 8));
    assert!(greedy.qp.error().is_some(), "one too many");
    for msn in 9..12 {
        other.expect_read(&mut peer, msn, 8);
    }
    assert_eq!(other.qp.error(), None);
}

/// A name, a work request that is given the STag of the other domain, and whether it also uses that as
/// memory.
type Intrusion = (&'static str, fn(STag) -> Operation, bool);

/// Work requests reach the core without a check by the control thread, so none may reach another domain:
/// neither its memory nor its STags. Commands of the control thread reach both domains.
// Requirements: DDP-8.3-06, DDP-8.3.2-02, DDP-8.3.1-02, RDMAP-8.1-01, RDMAP-8.1.2-01
#[test]
fn work_requests_stay_in_their_domain() {
    let nothing = Payload::from(Slice { stag: STag(0), to: 0, len: 0 });
    let cases: [Intrusion; 7] = [
        ("invalidate", |stag| Operation::LocalInvalidate { stag }, false),
        (
            "register anew",
            |stag| {
                let stag = STag(stag.0 ^ 1);
                let access = Access::REMOTE_WRITE;
                let octets = OCTETS as u64;
                Operation::Register(FastRegistration {
                    stag,
                    offset: 0,
                    len: octets,
                    base_to: 0,
                    access,
                    all_streams: true,
                })
            },
            false,
        ),
        (
            "bind a window on it",
            |stag| {
                let access = Access::REMOTE_WRITE;
                let (window, octets) = (STag::new(9, 0x22), OCTETS as u64);
                Operation::Bind(Binding {
                    window,
                    registration: stag,
                    to: 0,
                    len: octets,
                    access,
                    zero_based: true,
                })
            },
            false,
        ),
        ("send it", |_| Operation::SEND, true),
        ("write from it", |_| Operation::Write { stag: STag(0x77), to: 0 }, true),
        ("read into it", |_| Operation::Read { stag: STag(0x77), to: 0 }, true),
        ("fetch into it", |_| Operation::FetchAdd { stag: STag(0x77), to: 0, add: 1, mask: 0 }, true),
    ];
    for (what, operation, uses_memory) in cases {
        let (mut peer, stranger, mut owner) = two_streams();
        peer.command(Command::AllocateWindow { stag: STag::new(9, 0x11), pd: ProtectionDomainId(2) });
        peer.settle();
        peer.sent.clear();
        let local =
            if uses_memory { Payload::from(Slice { stag: owner.stag, to: 0, len: 8 }) } else { nothing };
        stranger.qp.post_send(SendRequest::new(1, operation(owner.stag), local)).unwrap();
        peer.settle();
        assert!(stranger.qp.error().is_some(), "{what}");
        while let Some(done) = stranger.completions.poll() {
            assert!(done.status != Status::Success, "{what}: {done:?}");
        }
        let sent = stranger.sent(&mut peer);
        assert!(!sent.windows(8).any(|octets| octets == [3; 8]), "{what}: none of its octets goes out");
        assert!(holds(&owner.memory, 0, &[3; OCTETS]), "{what}");
        owner.expect_writable(&mut peer, 7);
        owner.expect_read(&mut peer, 1, 8);
    }
    // A receive buffer in the other domain.
    let (mut peer, mut stranger, mut owner) = two_streams();
    let local = Slice { stag: owner.stag, to: 0, len: 8 };
    stranger.qp.post_receive(ReceiveRequest::new(1, local)).unwrap();
    stranger.send(&mut peer, &send(1, 0, b"intruder"));
    assert!(holds(&owner.memory, 0, &[3; OCTETS]));
    owner.expect_writable(&mut peer, 7);
    // A command revokes the memory.
    peer.command(Command::Deregister { stag: owner.stag });
    peer.settle();
    owner.send(&mut peer, &write(owner.stag, 0, b"gone"));
    assert!(owner.qp.error().is_some());
    assert!(holds(&owner.memory, 0, &[7; OCTETS]));
}

/// Completions are posted to the queue of their own stream. A queue that is not polled, and a stream that
/// fails, do not stop other streams.
// Requirements: RDMAP-8.1.1-04, RDMAP-8.1.1-05, RDMAP-8.1-01
#[test]
fn completions_go_to_their_own_queue() {
    let (mut peer, mut idle, mut busy) = two_streams();
    let own = |stream: &Stream| Slice { stag: stream.stag, to: 0, len: 8 };
    for id in 0..4 {
        idle.qp.post_receive(ReceiveRequest::new(100 + id, own(&idle))).unwrap();
    }
    for msn in 1..4 {
        idle.send(&mut peer, &send(msn, 0, b"nobody"));
    }
    for msn in 1..50 {
        busy.qp.post_receive(ReceiveRequest::new(u64::from(msn), own(&busy))).unwrap();
        busy.send(&mut peer, &send(msn, 0, b"polled"));
        let done = busy.completions.poll().unwrap();
        assert_eq!((done.id, done.status, done.byte_len), (u64::from(msn), Status::Success, 6));
        assert_eq!(busy.completions.poll(), None);
    }
    // The first stream fails: its flushed receive follows the completions that are not polled yet.
    idle.send(&mut peer, &write(STag(0xdead), 0, b"x"));
    assert!(idle.qp.error().is_some());
    let ids: Vec<_> =
        std::iter::from_fn(|| idle.completions.poll()).map(|done| (done.id, done.status)).collect();
    assert_eq!(ids[..3], [100, 101, 102].map(|id| (id, Status::Success)));
    assert_eq!((ids.len(), ids[3].0), (4, 103));
    assert_eq!((busy.completions.poll(), busy.qp.error()), (None, None));
}
