//! Tests of RFC 6581 and RFC 5044 appendix C in Full Operation: the ready-to-receive indication, and version
//! 0. The peer is made of frames: it sends golden vectors, and the frames it receives are compared with them.

use std::sync::Arc;

use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PD, QP, holds, region_of};
use warpline_dataplane::crc32c;
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::mpa::enhanced::{ReadDepths, ReadyToReceive, Rtr, RtrKinds};
use warpline_dataplane::mpa::fpdu::{encode, wire_len};
use warpline_dataplane::mpa::{Framing, MpaError};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QpState, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{
    Completion, CompletionKind, Operation, ReceiveRequest, SendRequest, Slice, Status,
};
use warpline_dataplane::rdmap::RdmapError;
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event, FullOperation};
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

/// Memory that the peer may write to, with the STag and Tagged Offset of the golden Write.
const WRITABLE: STag = STag(0x0102_0304);
const WRITABLE_TO: u64 = 4096;
/// Memory of receives and sends.
const LOCAL: STag = STag(0x0005_0055);
/// Where in it the buffer of the first receive is.
const INBOX_TO: u64 = 1024;

/// The octets of a golden record.
fn vector(file: &str, label: &str) -> Vec<u8> {
    let path = format!("{}/tests/vectors/{file}.hex", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let record = text.split("@ ").find(|record| record.starts_with(label)).expect("the record");
    let lines = record.lines().skip(1).filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
}

/// A core in Full Operation.
struct Target {
    peer: RawPeer,
    connection: ConnectionId,
    qp: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    writable: Region,
    inbox: Region,
    /// The position of the peer's next octet, and its acknowledgement.
    seq: SeqNumber,
    ack: SeqNumber,
}

impl Target {
    /// Opens the connection from one side or the other and brings it to Full Operation.
    fn new(operation: FullOperation) -> Self {
        Self::after(operation, &[])
    }

    /// The same, as a Responder after `streaming` octets. If there are any, the peer's window is closed.
    fn after(operation: FullOperation, streaming: &[u8]) -> Self {
        Self::prepared(operation, streaming, |_, _| {})
    }

    /// The same, where the peer does what `prepare` says before Full Operation: it has the number of the
    /// core's next octet.
    fn prepared(
        operation: FullOperation,
        streaming: &[u8],
        prepare: impl FnOnce(&mut RawPeer, SeqNumber),
    ) -> Self {
        let mut peer = RawPeer::new();
        let (connection, ack) = if operation.initiator {
            let syn = peer.connect();
            let ack = syn.header.seq + 1;
            peer.send(Flags::SYN | Flags::ACK, PEER_ISS, ack, &[]);
            peer.sent.clear();
            let connected = peer.events.iter().find_map(|event| match event {
                Event::Connected { connection, .. } => Some(*connection),
                _ => None,
            });
            (connected.expect("connected"), ack)
        } else {
            let ack = peer.accept(Options::default());
            (peer.accepted.unwrap(), ack)
        };
        let completions = Arc::new(CompletionRing::new(64));
        let rings = CompletionRings::shared(completions.clone());
        let qp = Arc::new(SharedQp::new(
            QP,
            PD,
            QueueDepths { send: 8, receive: 8 },
            rings,
            peer.rings.doorbells.clone(),
        ));
        // WRITABLE's slot is 0x0304, LOCAL's 0x0055.
        let (writable, inbox) = (region_of(&[0xa5; 64]), region_of(&[0; 4096]));
        for (stag, region, access, base_to) in [
            (WRITABLE, &writable, Access::REMOTE_WRITE, WRITABLE_TO),
            (LOCAL, &inbox, Access::LOCAL_WRITE, 0),
        ] {
            let grant = Grant::new(region.clone(), PD, base_to, access);
            peer.command(Command::Register { stag, grant });
        }
        let local = Slice { stag: LOCAL, to: INBOX_TO, len: 1024 };
        qp.post_receive(ReceiveRequest::new(1, local)).unwrap();
        prepare(&mut peer, ack);
        if operation.initiator {
            peer.command(Command::Start { connection, qp: qp.clone(), operation });
        } else {
            if !streaming.is_empty() {
                peer.send_with_window(0, PEER_ISS + 1, ack);
            }
            let then = AfterStream::FullOperation { qp: qp.clone(), operation };
            peer.command(Command::Stream { connection, octets: streaming.into(), then });
        }
        peer.core.poll_once(peer.now);
        Self { peer, connection, qp, completions, writable, inbox, seq: PEER_ISS + 1, ack }
    }

    fn responder(ready: ReadyToReceive) -> Self {
        Self::new(FullOperation { ready, ..FullOperation::new(false) })
    }

    fn initiator(ready: ReadyToReceive) -> Self {
        Self::new(FullOperation { ready, ..FullOperation::new(true) })
    }

    fn send(&mut self, octets: &[u8]) {
        self.peer.send(Flags::ACK, self.seq, self.ack, octets);
        self.seq += octets.len() as u32;
    }

    /// The data the core has sent since the last look.
    fn sent(&mut self) -> Vec<u8> {
        self.peer.settle();
        let sent: Vec<u8> = self.peer.sent.drain(..).flat_map(|sent| sent.payload).collect();
        self.ack += sent.len() as u32;
        sent
    }

    /// Posts a Send of `octets` zeros.
    fn post_send(&self, octets: u32) {
        self.post(Operation::SEND, octets);
    }

    fn post(&self, operation: Operation, octets: u32) {
        let local = Slice { stag: LOCAL, to: 0, len: octets };
        self.qp.post_send(SendRequest::new(2, operation, local)).unwrap();
    }

    #[track_caller]
    fn expect_failed(&self, error: StreamError) {
        assert_eq!(self.qp.error(), Some(error));
    }

    /// The completions, including acknowledgements of sent requests.
    fn completed(&mut self) -> Vec<(CompletionKind, u64, Status)> {
        self.send(&[]);
        core::iter::from_fn(|| self.completions.poll())
            .map(|Completion { kind, id, status, .. }| (kind, id, status))
            .collect()
    }
}

/// Frames a ULPDU by the document alone: length, ULPDU, pad, CRC.
fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
    octets.extend_from_slice(ulpdu);
    octets.resize(octets.len().next_multiple_of(4), 0);
    let crc = crc32c::checksum(&octets);
    octets.extend(crc.to_le_bytes());
    octets
}

/// A Send, by RFC 5041 figure 5 and RFC 5040 figure 4.
fn send(msn: u8, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0];
    ulpdu.extend_from_slice(payload);
    fpdu(&ulpdu)
}

/// A Read Request for `octets` octets with the golden one's other fields.
fn read_request(msn: u8, octets: u8) -> Vec<u8> {
    let mut ulpdu = vector("mpa-rtr", "RTR as zero-length RDMA Read Request (ULPDU)");
    (ulpdu[13], ulpdu[33]) = (msn, octets);
    fpdu(&ulpdu)
}

const RECEIVED: (CompletionKind, u64, Status) = (CompletionKind::Receive, 1, Status::Success);
const SENT: (CompletionKind, u64, Status) = (CompletionKind::Send, 2, Status::Success);

const SEND_RTR: &str = "RTR as zero-length Send (FPDU";
const WRITE_RTR: &str = "RTR as zero-length RDMA Write (FPDU";
const READ_RTR: &str = "RTR as zero-length RDMA Read Request (FPDU";

/// Linux siw's, with STag 1.
fn siw_rtr() -> Vec<u8> {
    fpdu(&[0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// Each indication allows the Responder to send, and neither ULP sees it.
// Requirements: MPAv2-9.2-10, MPA-7.1.2-15
#[test]
fn an_indication_opens_the_responder_and_is_not_seen() {
    for (rtr, first_msn) in
        [(vector("mpa-rtr", SEND_RTR), 2), (vector("mpa-rtr", WRITE_RTR), 1), (siw_rtr(), 1)]
    {
        let mut target = Target::responder(ReadyToReceive::Expect(RtrKinds::all()));
        target.post_send(4);
        assert_eq!(target.sent(), b"", "not before the peer's first FPDU");
        target.send(&rtr);
        assert_eq!(target.sent(), send(1, &[0; 4]));
        assert_eq!(target.completed(), [SENT]);
        target.send(&send(first_msn, b"hello"));
        assert_eq!(target.completed(), [RECEIVED], "the buffer was left for the ULP's first message");
        assert!(holds(&target.inbox, INBOX_TO as usize, b"hello"));
        assert_eq!(target.qp.state(), QpState::ReadyToSend);
    }
}

/// The Read for nothing is number 1 of its queue and is answered, before anything of the ULP's.
// Requirements: A-16
#[test]
fn an_indication_by_a_read_is_answered() {
    let mut target = Target::responder(ReadyToReceive::Expect(RtrKinds::all()));
    target.post_send(4);
    target.send(&vector("mpa-rtr", READ_RTR));
    // RFC 5040 §4.5: tagged, opcode 2, to the sink's STag and offset.
    let response = fpdu(&[0xc1, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(target.sent(), [response, send(1, &[0; 4])].concat());
    target.send(&send(1, b"hello"));
    assert_eq!(target.completed(), [SENT, RECEIVED]);
    assert_eq!(target.qp.error(), None);
}

/// The Response goes to the sink that the Request names.
#[test]
fn the_answer_names_the_sink_of_the_request() {
    let mut target = Target::responder(ReadyToReceive::Expect(RtrKinds::READ));
    let mut ulpdu = vector("mpa-rtr", "RTR as zero-length RDMA Read Request (ULPDU)");
    ulpdu[18..30].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    target.send(&fpdu(&ulpdu));
    assert_eq!(target.sent(), fpdu(&[0xc1, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]));
}

/// A peer that agreed to an indication and sends none is tolerated.
#[test]
fn what_is_no_indication_is_taken_for_what_it_is() {
    let mut target = Target::responder(ReadyToReceive::Expect(RtrKinds::all()));
    target.send(&send(1, b"hello"));
    assert_eq!(target.completed(), [RECEIVED]);
    // And later nothing is an indication any more.
    target.send(&send(2, b""));
    target.expect_failed(StreamError::Ddp(DdpError::NoBuffer));
    let mut target = Target::responder(ReadyToReceive::Expect(RtrKinds::all()));
    target.send(&siw_rtr());
    target.send(&send(1, b""));
    assert_eq!(target.completed(), [RECEIVED], "an empty message of the ULP's");
}

/// Linux siw, even if it was offered a Send as the only indication, sends a Write, and is tolerated.
#[test]
fn siw_sends_a_write_where_a_send_was_agreed() {
    let mut target = Target::responder(ReadyToReceive::Expect(RtrKinds::SEND));
    target.post_send(4);
    target.send(&siw_rtr());
    assert_eq!(target.sent(), send(1, &[0; 4]));
    target.send(&send(1, b"hello"));
    assert_eq!(target.completed(), [SENT, RECEIVED]);
    assert_eq!(target.qp.error(), None);
}

/// Only an agreed kind is an indication: otherwise an empty Send is a message, and a Read is a Read.
#[test]
fn what_was_not_agreed_is_no_indication() {
    for ready in [ReadyToReceive::None, ReadyToReceive::Expect(RtrKinds::WRITE | RtrKinds::READ)] {
        let mut target = Target::responder(ready);
        target.send(&vector("mpa-rtr", SEND_RTR));
        assert_eq!(target.completed(), [RECEIVED]);
    }
    for ready in [ReadyToReceive::None, ReadyToReceive::Expect(RtrKinds::WRITE | RtrKinds::SEND)] {
        let mut target = Target::responder(ready);
        target.send(&vector("mpa-rtr", READ_RTR));
        target.expect_failed(StreamError::Ddp(DdpError::NoBuffer));
    }
    // A Read with a length, or one with another number, is no indication either.
    for (request, error) in
        [(read_request(1, 1), DdpError::NoBuffer), (read_request(2, 0), DdpError::MsnRange)]
    {
        let mut target = Target::responder(ReadyToReceive::Expect(RtrKinds::all()));
        target.send(&request);
        target.expect_failed(StreamError::Ddp(error));
    }
}

/// The indication is the first FPDU, at once, and requests that the ULP posted early follow. The STag is not
/// zero: some adapters fail a tagged message to STag 0 even without payload.
// Requirements: MPAv2-5-01, MPAv2-9.2-07, MPAv2-9.2-10
#[test]
fn the_initiator_sends_its_indication_first() {
    let read = {
        let mut ulpdu = vector("mpa-rtr", "RTR as zero-length RDMA Read Request (ULPDU)");
        (ulpdu[21], ulpdu[37]) = (1, 1);
        fpdu(&ulpdu)
    };
    for (rtr, expected, first_msn) in
        [(Rtr::Send, vector("mpa-rtr", SEND_RTR), 2), (Rtr::Write, siw_rtr(), 1), (Rtr::Read, read, 1)]
    {
        for early in [false, true] {
            let mut target = Target::initiator(ReadyToReceive::Send(rtr));
            if early {
                target.post_send(4);
                assert_eq!(target.sent(), [expected.clone(), send(first_msn, &[0; 4])].concat());
            } else {
                assert_eq!(target.sent(), expected, "without anything posted");
                target.post_send(4);
                assert_eq!(target.sent(), send(first_msn, &[0; 4]));
            }
            assert_eq!(target.completed(), [SENT], "the indication itself completes nothing");
        }
    }
    let mut target = Target::initiator(ReadyToReceive::None);
    assert_eq!(target.sent(), b"", "the ULP sends first");
}

/// An indication that is a Read Request takes one of the places that the peer has for them: until it
/// is answered, there is one Read less outstanding, none with an ORD of 1.
// Requirements: RDMAP-6.1-03, A-16
#[test]
fn an_indication_by_a_read_counts_as_one() {
    for ord in [1, 2] {
        let depths = ReadDepths { ird: 4, ord };
        let ready = ReadyToReceive::Send(Rtr::Read);
        let mut target = Target::new(FullOperation { ready, depths, ..FullOperation::new(true) });
        for _ in 0..ord {
            target.post(Operation::Read { stag: WRITABLE, to: WRITABLE_TO }, 4);
        }
        let octets = read_request(1, 0).len();
        assert_eq!(target.sent().len(), usize::from(ord) * octets, "the indication is one of {ord}");
        target.send(&fpdu(&[0xc1, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(target.sent().len(), octets, "the last, in the place of the indication");
        assert_eq!(target.qp.error(), None);
    }
}

/// A peer that finishes without an answer to the indication sends no Response either: a Read fails at once,
/// whatever the ORD is, and whether it was posted before the FIN came or after it.
// Requirements: A-16
#[test]
fn a_read_does_not_wait_for_the_indication_of_a_peer_that_has_finished() {
    for (ord, posted_early) in [(1, true), (1, false), (2, true), (2, false)] {
        let depths = ReadDepths { ird: 4, ord };
        let ready = ReadyToReceive::Send(Rtr::Read);
        let mut target = Target::new(FullOperation { ready, depths, ..FullOperation::new(true) });
        let read = Operation::Read { stag: WRITABLE, to: WRITABLE_TO };
        if posted_early {
            target.post(read, 4);
        }
        target.sent();
        target.peer.send(Flags::FIN | Flags::ACK, target.seq, target.ack, &[]);
        if !posted_early {
            assert_eq!(target.qp.error(), None, "the peer may close when it likes");
            target.post(read, 4);
        }
        target.sent();
        target.expect_failed(StreamError::Mpa(MpaError::TcpClosed));
    }
}

/// An indication that is lost is sent again, the same.
#[test]
fn an_indication_is_retransmitted() {
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        let mut target = Target::initiator(ReadyToReceive::Send(rtr));
        let first = target.sent();
        target.peer.pass_s(2);
        let again = target.peer.sent.front().unwrap().payload.clone();
        assert_eq!(again, first);
    }
}

/// The answer to our Read for nothing is swallowed, once; a Response that answers nothing is none.
// Requirements: A-16
#[test]
fn the_answer_to_an_indication_is_not_seen() {
    let response = |stag, to| fpdu(&[0xc1, 0x42, 0, 0, 0, stag, 0, 0, 0, 0, 0, 0, 0, to]);
    let unexpected = StreamError::Rdmap(RdmapError::UnexpectedOpcode);
    let mut target = Target::initiator(ReadyToReceive::Send(Rtr::Read));
    target.sent();
    target.send(&response(1, 0));
    target.send(&send(1, b"hello"));
    assert_eq!(target.completed(), [RECEIVED]);
    assert_eq!(target.qp.error(), None);
    target.send(&response(1, 0));
    target.expect_failed(unexpected);
    // STag and TO of an empty Response are ignored. An adapter may echo those of the sink, those of the
    // source, or none.
    // Requirements: DDP-5.2-09
    for (stag, to) in [(0, 0), (2, 0), (1, 1)] {
        let mut target = Target::initiator(ReadyToReceive::Send(Rtr::Read));
        target.sent();
        target.send(&response(stag, to));
        target.send(&send(1, b"hello"));
        assert_eq!(target.completed(), [RECEIVED], "STag {stag}, TO {to}");
        assert_eq!(target.qp.error(), None);
        target.send(&response(stag, to));
        target.expect_failed(unexpected);
    }
    let mut target = Target::initiator(ReadyToReceive::Send(Rtr::Write));
    target.sent();
    target.send(&response(1, 0));
    target.expect_failed(unexpected);
}

/// While the indication is missing, a Send beyond the gap is not placed by its number, since the indication
/// may be number 1 and use no buffer.
// Requirements: A-16, DDP-5.3-03
#[test]
fn what_overtakes_the_indication_waits_for_it() {
    let marked = |position: u64, ulpdu: &[u8]| {
        let mut octets = vec![0; wire_len(position, ulpdu.len(), true)];
        assert!(encode(&mut octets, position, Framing { markers: true, crc: true }, ulpdu, 0, |_, _| true));
        octets
    };
    let rtr = marked(0, &vector("mpa-rtr", "RTR as zero-length Send (ULPDU)"));
    // Long enough to contain a Marker, so that it is found beyond the gap.
    let mut message = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0];
    message.extend([0x5a; 600]);
    let message = marked(rtr.len() as u64, &message);
    let ready = ReadyToReceive::Expect(RtrKinds::all());
    let operation = FullOperation { markers_received: true, ready, ..FullOperation::new(false) };
    let mut target = Target::new(operation);
    let local = Slice { stag: LOCAL, to: 2048, len: 1024 };
    target.qp.post_receive(ReceiveRequest::new(2, local)).unwrap();
    target.peer.send(Flags::ACK, target.seq + rtr.len() as u32, target.ack, &message);
    target.send(&rtr);
    assert_eq!(target.completed(), [RECEIVED]);
    assert!(holds(&target.inbox, INBOX_TO as usize, &[0x5a; 600]));
    assert!(holds(&target.inbox, 2048, &[0; 1024]), "the second buffer is for the next message");
}

/// A FIN that is requested at once still follows the indication.
#[test]
fn an_orderly_close_waits_for_the_indication() {
    let mut target = Target::initiator(ReadyToReceive::Send(Rtr::Write));
    let connection = target.connection;
    target.peer.command(Command::Close { connection });
    target.peer.settle();
    let fin = target.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::FIN));
    assert_eq!((target.sent(), fin), (siw_rtr(), true));
}

/// So does that of a Responder for the peer's first FPDU, if it has posted anything: before, it may send
/// nothing.
// Requirements: DDP-6.2.1-01, MPA-7.1.2-15
#[test]
fn an_orderly_close_waits_for_the_first_fpdu() {
    let has_finished = |target: &mut Target| {
        target.peer.settle();
        target.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::FIN))
    };
    for ready in [ReadyToReceive::None, ReadyToReceive::Expect(RtrKinds::all())] {
        let mut target = Target::responder(ready);
        let connection = target.connection;
        target.post_send(4);
        target.peer.command(Command::Disconnect { connection, within_ns: None });
        assert!(!has_finished(&mut target), "the Send would be lost");
        target.send(&siw_rtr());
        assert!(has_finished(&mut target));
        assert_eq!(target.sent(), send(1, &[0; 4]));
        // The FIN, too.
        target.ack += 1;
        assert_eq!(target.completed(), [SENT]);
    }
    // With nothing posted there is nothing to wait for.
    let mut target = Target::responder(ReadyToReceive::None);
    let connection = target.connection;
    target.peer.command(Command::Disconnect { connection, within_ns: None });
    assert!(has_finished(&mut target));
    // A peer that has finished sends no FPDU any more.
    let mut target = Target::responder(ReadyToReceive::None);
    let connection = target.connection;
    target.post_send(4);
    target.peer.command(Command::Disconnect { connection, within_ns: None });
    assert!(!has_finished(&mut target));
    target.peer.send(Flags::FIN | Flags::ACK, target.seq, target.ack, &[]);
    assert!(has_finished(&mut target));
    (target.seq, target.ack) = (target.seq + 1, target.ack + 1);
    let flushed = target.completed().into_iter().map(|(_, id, status)| (id, status));
    assert_eq!(flushed.collect::<Vec<_>>(), [(2, Status::Flushed), (1, Status::Flushed)]);
}

/// And no longer than this end waits for that FPDU anyway.
#[test]
fn a_close_does_not_wait_for_a_silent_peer() {
    let mut target =
        Target::new(FullOperation { first_fpdu_ns: Some(3 * SECOND), ..FullOperation::new(false) });
    let connection = target.connection;
    target.post_send(4);
    target.peer.command(Command::Disconnect { connection, within_ns: None });
    target.peer.settle();
    assert!(target.peer.sent.iter().all(|sent| !sent.header.flags.contains(Flags::FIN)));
    target.peer.pass_s(4);
    assert!(target.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::FIN)));
    assert_eq!(target.qp.state(), QpState::Terminate);
}

/// For want of an FPDU a stream fails once, also where streaming octets before it wait for a window.
#[test]
fn a_silent_peer_fails_the_stream_once() {
    let operation = FullOperation { first_fpdu_ns: Some(SECOND), ..FullOperation::new(false) };
    let mut target = Target::after(operation, &[7; 10_000]);
    target.peer.pass_s(3);
    assert_eq!(target.qp.error(), Some(StreamError::NoFpdu));
    let failed = |event: &&Event| matches!(event, Event::StreamFailed { .. });
    assert_eq!(target.peer.events.iter().filter(failed).count(), 1);
    assert_eq!(target.peer.core.statistics().streams_failed, 1);
}

/// Version 0: Markers and CRC, always.
fn version_0(initiator: bool) -> FullOperation {
    FullOperation { markers_sent: true, markers_received: true, version: 0, ..FullOperation::new(initiator) }
}

const V0_SEND: &str = "Send MSN=1, DV=0 RV=0";
const V0_WRITE: &str = "RDMA Write DV=0 RV=0";

/// An RDMA Consortium peer receives the golden octets.
// Requirements: RDMAC-C.2.5-02, RDMAC-C.1-01
#[test]
fn version_0_is_sent() {
    let mut target = Target::new(version_0(true));
    target.post_send(24);
    assert_eq!(target.sent(), vector("rdmac-v0", V0_SEND));
    let mut target = Target::new(version_0(true));
    assert!(target.inbox.write(0, b"hello"));
    target.post(Operation::Write { stag: WRITABLE, to: WRITABLE_TO }, 5);
    assert_eq!(target.sent(), vector("rdmac-v0", V0_WRITE));
}

/// Messages of such a peer are accepted.
// Requirements: RDMAC-C.1-02
#[test]
fn version_0_is_received() {
    let mut target = Target::new(version_0(false));
    target.send(&vector("rdmac-v0", V0_SEND));
    assert_eq!(target.completed(), [RECEIVED]);
    let mut target = Target::new(version_0(false));
    target.send(&vector("rdmac-v0", V0_WRITE));
    assert!(holds(&target.writable, 0, b"hello"));
    assert_eq!(target.qp.error(), None);
}

/// A version other than the connection's, of DDP or of RDMAP, is the documented error, whichever it is; and
/// the Terminate has the connection's own version.
// Requirements: RDMAC-C.1-02, RDMAC-C.1-03
#[test]
fn versions_do_not_mix() {
    let tagged = StreamError::Ddp(DdpError::TaggedVersion);
    let untagged = StreamError::Ddp(DdpError::UntaggedVersion);
    let rdmap = StreamError::Rdmap(RdmapError::InvalidVersion);
    for version in [0, 1] {
        let other = 1 - version;
        for (ddp, rdmap_version, is_tagged, error) in [
            (other, version, true, tagged),
            (other, other, true, tagged),
            (other, version, false, untagged),
            (version, other, true, rdmap),
            (version, other, false, rdmap),
        ] {
            let mut target = Target::new(FullOperation { version, ..FullOperation::new(false) });
            let write = |ddp: u8, rdmap: u8| {
                fpdu(&[0xc0 | ddp, rdmap << 6, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x10, 0, b'!'])
            };
            target.send(&write(version, version));
            assert_eq!(target.qp.error(), None);
            let bad = if is_tagged {
                write(ddp, rdmap_version)
            } else {
                let mut ulpdu = [0; 18];
                (ulpdu[0], ulpdu[1], ulpdu[13]) = (0x40 | ddp, rdmap_version << 6 | 3, 1);
                fpdu(&ulpdu)
            };
            target.send(&bad);
            target.expect_failed(error);
            let sent = target.sent();
            assert_eq!(sent[2..4], [0x40 | version, version << 6 | 7], "{error}");
        }
        // A Terminate of the other version is refused too.
        let mut target = Target::new(FullOperation { version, ..FullOperation::new(false) });
        let mut ulpdu = [0; 22];
        (ulpdu[0], ulpdu[1], ulpdu[9], ulpdu[13]) = (0x40 | other, other << 6 | 7, 2, 1);
        target.send(&fpdu(&ulpdu));
        target.expect_failed(untagged);
    }
}

/// An Initiator that sends its first nudge 200 ms after its first FPDU.
fn nudging() -> Target {
    Target::new(FullOperation { nudges: true, ..FullOperation::new(true) })
}

/// A peer that overlooks the first FPDU until more octets come, as Linux siw may, gets some: Writes for
/// nothing, ever more rarely, and in the end no more.
// Requirements: RDMAP-5.1-03
#[test]
fn a_peer_that_stays_silent_is_nudged() {
    let mut target = nudging();
    target.peer.pass_s(10);
    assert_eq!(target.sent(), b"", "nothing was sent that it could have overlooked");
    target.post_send(4);
    assert_eq!(target.sent(), send(1, &[0; 4]));
    assert_eq!(target.completed(), [SENT]);
    for wait_ms in [200, 400, 800] {
        target.peer.pass_ms(wait_ms - 20);
        assert_eq!(target.sent(), b"", "not before {wait_ms} ms");
        target.peer.pass_ms(20);
        assert_eq!(target.sent(), siw_rtr(), "after {wait_ms} ms");
        target.send(&[]);
    }
    target.peer.pass_s(60);
    assert_eq!(target.sent(), b"");
    assert_eq!(target.peer.core.statistics().nudges_sent, 3);
    // The application does not see it.
    target.send(&send(1, b"hello"));
    assert_eq!(target.completed(), [RECEIVED]);
    assert_eq!(target.qp.error(), None);
}

/// A peer that answers, has finished, or is known to overlook nothing, is not nudged.
#[test]
fn a_peer_that_is_not_silent_is_not_nudged() {
    let mut answering = nudging();
    answering.post_send(4);
    assert_eq!(answering.sent(), send(1, &[0; 4]));
    answering.send(&send(1, b"hello"));
    let mut unnegotiated = Target::initiator(ReadyToReceive::None);
    unnegotiated.post_send(4);
    let mut responder = Target::new(FullOperation { nudges: true, ..FullOperation::new(false) });
    responder.send(&send(1, b"hello"));
    responder.post_send(4);
    for target in [&mut answering, &mut unnegotiated, &mut responder] {
        target.sent();
        target.send(&[]);
        target.peer.pass_s(10);
        assert_eq!(target.sent(), b"");
        assert_eq!(target.peer.core.statistics().nudges_sent, 0);
    }
    let mut finished = nudging();
    finished.post_send(4);
    finished.sent();
    finished.peer.send(Flags::FIN | Flags::ACK, finished.seq, finished.ack, &[]);
    finished.sent();
    finished.peer.pass_s(10);
    assert_eq!(finished.peer.core.statistics().nudges_sent, 0);
}

/// A message in progress is not interrupted. Its own octets replace a nudge.
// Requirements: DDP-5.3-03
#[test]
fn a_nudge_does_not_cut_a_message() {
    let mut target = nudging();
    // The peer's window holds no more than a part.
    target.peer.send_with_window(2000, target.seq, target.ack);
    target.post(Operation::Write { stag: WRITABLE, to: 0 }, 4096);
    let first = target.sent();
    assert!(!first.is_empty() && first.len() <= 2000, "{} octets", first.len());
    target.peer.send_with_window(0, target.seq, target.ack);
    target.peer.pass_ms(1500);
    assert_eq!(target.peer.core.statistics().nudges_sent, 0);
}

/// A peer that has finished before Full Operation begins, while control still had its octets, answers no
/// indication: a Read that waits for its turn after the indication fails.
#[test]
fn no_read_waits_for_a_peer_that_had_finished() {
    for is_early in [true, false] {
        let operation = FullOperation {
            ready: ReadyToReceive::Send(Rtr::Read),
            depths: ReadDepths { ird: 1, ord: 1 },
            ..FullOperation::new(true)
        };
        let finish = |peer: &mut RawPeer, ack| peer.send(Flags::FIN | Flags::ACK, PEER_ISS + 1, ack, &[]);
        let mut target = Target::prepared(operation, &[], |peer, ack| {
            if is_early {
                finish(peer, ack);
            }
        });
        if !is_early {
            finish(&mut target.peer, target.ack);
        }
        target.post(Operation::Read { stag: WRITABLE, to: WRITABLE_TO }, 8);
        target.peer.pass_s(1);
        target.expect_failed(StreamError::Mpa(MpaError::TcpClosed));
    }
}
