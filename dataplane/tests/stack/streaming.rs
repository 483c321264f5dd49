//! Tests of streaming mode at a core that holds streaming octets until control has consumed them, and of the
//! change to Full Operation at any octet and in either direction. The peer is made of frames.

use std::sync::Arc;

use crate::common::raw::{PEER_ISS, RawPeer, Sent};
use crate::common::{PD, QP, WINDOW_OCTETS, holds, region_of};
use warpline_dataplane::core::Config;
use warpline_dataplane::crc32c;
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::mpa::fpdu::{encode, wire_len};
use warpline_dataplane::mpa::{Framing, MpaError};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QpState, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, ReceiveRequest, SendRequest, Slice, Status};
use warpline_dataplane::rdmap::RdmapError;
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Direction, Event, FullOperation};
use warpline_dataplane::tcp::{CloseReason, State};
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

/// The shift with which the core's window fits its field.
const WINDOW_SCALE: u32 = 3;

/// The read depths that both ends of a stream without startup frames use.
const USUAL: ReadDepths = ReadDepths { ird: 32, ord: 32 };

const MEMORY: STag = STag::new(2, 0x2222);
const MEMORY_OCTETS: usize = 4096;
/// Where the octets that are sent begin; those received go to the start.
const OUTBOX: u64 = 2048;

/// RFC 5044 figure 5: the first FPDU of a stream with Markers and CRCs, a Send of 24 zero octets.
fn figure_5() -> Vec<u8> {
    octets(include_str!("../vectors/rfc5044-fig5.hex"))
}

/// The octets of a vector file.
fn octets(text: &str) -> Vec<u8> {
    let octets = text.lines().filter(|line| !line.starts_with(['#', '@']));
    octets.flat_map(str::split_whitespace).map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
}

/// The second FPDU of such a stream: a Send of `octets`, with the message's number.
fn second_fpdu(octets: &[u8]) -> Vec<u8> {
    let mut fpdu = (18 + octets.len() as u16).to_be_bytes().to_vec();
    fpdu.extend([0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    fpdu.extend(octets);
    fpdu.resize(fpdu.len().next_multiple_of(4), 0);
    let crc = crc32c::checksum(&fpdu);
    fpdu.extend(crc.to_le_bytes());
    fpdu
}

/// A core with a queue pair and an open connection in streaming mode.
struct Streaming {
    peer: RawPeer,
    connection: ConnectionId,
    qp: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    memory: Region,
    /// The position of the peer's next octet, its acknowledgement, and the highest possible acknowledgement.
    seq: SeqNumber,
    ack: SeqNumber,
    heard: SeqNumber,
}

impl Streaming {
    fn new() -> Self {
        let config = Config { holds_stream: true, ..RawPeer::config() };
        let mut peer = RawPeer::with(config, 1500);
        let options = Options { mss: Some(1460), window_scale: Some(7), ..Options::default() };
        let ack = peer.accept(options);
        let completions = Arc::new(CompletionRing::new(64));
        let rings = CompletionRings::shared(completions.clone());
        let qp = Arc::new(SharedQp::new(
            QP,
            PD,
            QueueDepths { send: 8, receive: 8 },
            rings,
            peer.rings.doorbells.clone(),
        ));
        let memory = region_of(&[0; MEMORY_OCTETS]);
        let grant = Grant::new(memory.clone(), PD, 0, Access::LOCAL_WRITE);
        peer.command(Command::Register { stag: MEMORY, grant });
        for id in 1..=2 {
            let local = Slice { stag: MEMORY, to: 64 * (id - 1), len: 64 };
            qp.post_receive(ReceiveRequest::new(id, local)).unwrap();
        }
        peer.settle();
        peer.events.clear();
        let connection = peer.accepted.unwrap();
        Self { peer, connection, qp, completions, memory, seq: PEER_ISS + 1, ack, heard: ack }
    }

    /// The peer sends `octets`.
    fn receive(&mut self, octets: &[u8]) {
        for part in octets.chunks(1460) {
            self.peer.send(Flags::ACK, self.seq, self.ack, part);
            self.seq += part.len() as u32;
        }
    }

    fn finish(&mut self) {
        self.peer.send(Flags::ACK | Flags::FIN, self.seq, self.ack, &[]);
        self.seq += 1;
    }

    /// The peer acknowledges everything so far.
    fn acknowledge(&mut self) {
        self.sent();
        self.ack = self.heard;
        self.peer.send(Flags::ACK, self.seq, self.ack, &[]);
    }

    fn command(&mut self, command: Command) {
        self.peer.command(command);
        self.peer.settle();
    }

    fn stream(&mut self, octets: &[u8]) {
        let connection = self.connection;
        self.command(Command::Stream { connection, octets: octets.into(), then: AfterStream::Stay });
    }

    fn take(&mut self, octets: usize) {
        self.command(Command::ConsumeStream { connection: self.connection, octets: octets as u32 });
    }

    fn start(&mut self, direction: Direction) {
        self.start_version(direction, 1);
    }

    fn start_version(&mut self, direction: Direction, version: u8) {
        let operation = FullOperation::unnegotiated(version, USUAL);
        let (connection, qp) = (self.connection, self.qp.clone());
        self.command(Command::StartUnnegotiated { connection, qp, operation, direction });
    }

    /// Takes the octets that were copied to control since the last call.
    fn copied(&mut self) -> Vec<u8> {
        let mut octets = Vec::new();
        self.peer.events.retain(|event| match event {
            Event::Stream { octets: more, .. } => {
                octets.extend_from_slice(more);
                false
            }
            _ => true,
        });
        octets
    }

    /// Returns the number of octets of our stream that the core has reported as acknowledged since the last
    /// call.
    fn acknowledged(&mut self) -> u32 {
        let events = self.peer.events.drain(..);
        events
            .map(|event| match event {
                Event::StreamAcknowledged { octets, .. } => octets,
                event => panic!("{event:?}"),
            })
            .sum()
    }

    /// Returns the octets that the core has sent since the last call.
    fn sent(&mut self) -> Vec<u8> {
        let mut data = Vec::new();
        for Sent { header, payload, .. } in self.peer.sent.drain(..) {
            assert!(!header.flags.contains(Flags::RST), "not reset");
            let fin = u32::from(header.flags.contains(Flags::FIN));
            self.heard = self.heard.later(header.seq + payload.len() as u32 + fin);
            data.extend(payload);
        }
        data
    }

    /// The window last advertised to the peer, in octets.
    fn window(&self) -> usize {
        let sent = self.peer.sent.back().expect("an acknowledgement");
        usize::from(sent.header.window) << WINDOW_SCALE
    }

    fn send(&self, id: u64, octets: u32) {
        let local = Slice { stag: MEMORY, to: OUTBOX, len: octets };
        self.qp.post_send(SendRequest::new(id, Operation::SEND, local)).unwrap();
    }
}

/// Unread octets occupy TCP's window, which opens again when the application reads them.
#[test]
fn octets_that_are_not_taken_close_the_window() {
    let mut streaming = Streaming::new();
    let spoken: Vec<u8> = (0..4 * 1460_u32).map(|octet| octet as u8).collect();
    streaming.receive(&spoken);
    let untaken = streaming.window();
    assert_eq!(streaming.copied(), spoken);
    assert!(untaken <= WINDOW_OCTETS as usize - 3 * 1460, "{untaken}");
    streaming.take(1460);
    streaming.receive(b"more");
    assert_eq!(streaming.copied(), b"more", "nothing is copied twice");
    streaming.take(spoken.len() - 1460 + 4);
    // More than was copied is not consumed.
    streaming.take(1000);
    streaming.receive(&[0; 1460]);
    streaming.receive(&[0; 1460]);
    assert!(streaming.window() > untaken);
    assert_eq!(streaming.copied(), [0; 2 * 1460]);
}

/// Control has copies of no more than [`limits::STREAM_UNCONSUMED_BYTES`]; the peer fills the window, and no
/// more.
#[test]
fn an_application_that_never_reads_is_sent_a_window() {
    let mut streaming = Streaming::new();
    let sent = WINDOW_OCTETS as usize / 1460 * 1460;
    streaming.receive(&vec![7; sent]);
    streaming.peer.pass_ms(100);
    assert!(streaming.window() < 1460, "{}", streaming.window());
    assert_eq!(streaming.copied().len(), limits::STREAM_UNCONSUMED_BYTES);
    // Octets beyond the window are refused, however long the peer retries.
    for _ in 0..8 {
        streaming.peer.send(Flags::ACK, streaming.seq + 4096, streaming.ack, &[8; 1460]);
    }
    streaming.take(1000);
    assert_eq!(streaming.copied(), [7; 1000], "as much again as was consumed");
    // Everything arrives in the end.
    let mut copied = limits::STREAM_UNCONSUMED_BYTES + 1000;
    while copied < sent {
        streaming.take(limits::STREAM_UNCONSUMED_BYTES);
        let more = streaming.copied().len();
        assert!(more > 0, "{copied} of {sent}");
        copied += more;
    }
    streaming.take(limits::STREAM_UNCONSUMED_BYTES);
    streaming.receive(&[7; 2 * 1460]);
    assert!(streaming.window() >= WINDOW_OCTETS as usize - 2 * 1460, "all of the window again");
}

/// Acknowledged octets reach control after both ends have finished, in order: octets, the peer's end, the
/// end.
#[test]
fn what_was_acknowledged_outlives_the_connection() {
    let mut streaming = Streaming::new();
    let octets = limits::STREAM_UNCONSUMED_BYTES + 3000;
    streaming.receive(&vec![9; octets]);
    streaming.finish();
    streaming.command(Command::Close { connection: streaming.connection });
    streaming.acknowledge();
    assert_eq!(streaming.copied().len(), limits::STREAM_UNCONSUMED_BYTES);
    assert!(streaming.peer.events.is_empty(), "the end is behind octets: {:?}", streaming.peer.events);
    streaming.take(4000);
    assert_eq!(streaming.copied().len(), 3000);
    assert!(
        matches!(
            streaming.peer.events[..],
            [Event::PeerFinished { .. }, Event::Closed { reason: CloseReason::Finished, .. }]
        ),
        "{:?}",
        streaming.peer.events
    );
    streaming.peer.pass_ms(10);
    assert!(streaming.peer.core.tcp(streaming.connection).is_none(), "nothing is left of it");
}

/// RFC 9293 §3.10.7.4, eighth: the peer's FIN, sent again, begins TIME-WAIT anew, also while octets are left
/// that control has no room for.
#[test]
fn a_fin_again_begins_the_wait_of_an_unread_connection_anew() {
    let mut streaming = Streaming::new();
    streaming.receive(&vec![9; limits::STREAM_UNCONSUMED_BYTES + 3000]);
    streaming.command(Command::Close { connection: streaming.connection });
    streaming.acknowledge();
    streaming.finish();
    let state = |streaming: &Streaming| streaming.peer.core.tcp(streaming.connection).unwrap().state();
    assert_eq!(state(&streaming), State::TimeWait);
    streaming.peer.pass_s(50);
    streaming.seq = streaming.seq - 1;
    streaming.finish();
    streaming.peer.pass_s(50);
    assert_eq!(state(&streaming), State::TimeWait, "100 s after the first, 50 s after the second");
    streaming.peer.pass_s(20);
    assert_eq!(state(&streaming), State::Closed);
}

/// Octets that control has copied and not consumed do not keep a connection that is over.
#[test]
fn unread_octets_do_not_hold_a_connection_in_time_wait() {
    let mut streaming = Streaming::new();
    streaming.command(Command::Close { connection: streaming.connection });
    streaming.acknowledge();
    streaming.receive(b"read me when you like");
    streaming.finish();
    assert_eq!(streaming.copied(), b"read me when you like");
    assert!(
        matches!(streaming.peer.events[..], [Event::PeerFinished { .. }, Event::Closed { .. }]),
        "{:?}",
        streaming.peer.events
    );
    streaming.peer.pass_ms(10);
    assert!(streaming.peer.core.tcp(streaming.connection).is_none(), "only its four numbers rest");
    streaming.take(21);
}

/// An abort removes such a connection.
#[test]
fn an_abort_ends_a_connection_that_waits_for_its_reader() {
    let mut streaming = Streaming::new();
    streaming.receive(&vec![9; limits::STREAM_UNCONSUMED_BYTES + 3000]);
    streaming.finish();
    streaming.command(Command::Close { connection: streaming.connection });
    streaming.acknowledge();
    streaming.copied();
    streaming.command(Command::Abort { connection: streaming.connection });
    assert!(matches!(streaming.peer.events[..], [Event::Closed { .. }]), "{:?}", streaming.peer.events);
    assert!(streaming.peer.core.tcp(streaming.connection).is_none());
}

/// The send buffer is bounded and freed as it is acknowledged; control is notified for whole pieces.
#[test]
fn what_is_sent_is_freed_as_it_is_acknowledged() {
    let mut streaming = Streaming::new();
    let mut received = Vec::new();
    for round in 0..4_u8 {
        let pieces = [3000, limits::STREAM_SEND_BYTES - 3001, 1];
        for octets in pieces {
            streaming.stream(&vec![round; octets]);
        }
        let mut acknowledged = 0;
        while acknowledged < limits::STREAM_SEND_BYTES as u32 {
            received.extend(streaming.peer.sent.iter().flat_map(|sent| sent.payload.clone()));
            streaming.acknowledge();
            acknowledged += streaming.acknowledged();
            streaming.peer.pass_ms(1);
        }
    }
    let expected: Vec<u8> = (0..4).flat_map(|round| vec![round; limits::STREAM_SEND_BYTES]).collect();
    assert!(received == expected, "each octet once, in order");
    // One octet more than the bound: control is at fault, the connection of no use.
    streaming.stream(&vec![0; limits::STREAM_SEND_BYTES]);
    streaming.peer.sent.clear();
    streaming.stream(&[0]);
    assert!(streaming.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::RST)));
}

/// Octets after the last consumed streaming octet are FPDUs, though they arrived in its segment and control
/// has a copy of them; our first FPDU follows our last streaming octet.
// Requirements: MPA-7.1-01, MPA-7.1-05, MPA-7.1.5-04, A-20
#[test]
fn full_operation_begins_at_an_octet_not_at_a_time() {
    let mut streaming = Streaming::new();
    let last = b"last words";
    streaming.receive(&[&last[..], &figure_5()].concat());
    assert_eq!(streaming.copied(), [&last[..], &figure_5()].concat());
    streaming.take(last.len());
    let operation = FullOperation { markers_sent: true, markers_received: true, ..FullOperation::new(false) };
    let then = AfterStream::FullOperation { qp: streaming.qp.clone(), operation };
    let connection = streaming.connection;
    streaming.peer.sent.clear();
    streaming.command(Command::Stream { connection, octets: Box::new(*b"our last words"), then });
    let received = streaming.completions.poll().expect("a Send");
    assert_eq!((received.status, received.byte_len), (Status::Success, 24));
    streaming.send(5, 24);
    streaming.peer.settle();
    assert_eq!(streaming.sent(), [b"our last words".as_slice(), &figure_5()].concat());
    // A late Take of octets that turned out to be FPDUs does no harm.
    streaming.take(100);
    streaming.receive(&second_fpdu(b"and on"));
    assert_eq!(streaming.completions.poll().map(|completion| completion.byte_len), Some(6));
    assert!(holds(&streaming.memory, 64, b"and on"));
}

/// Without startup frames, a zero Marker and the first FPDU are the first octets after TCP's handshake;
/// neither end waits for the other.
// Requirements: C00-8.1-03, C00-8.1-04, C00-8.1-06, C00-7.1-05, C00-7.2-02, C00-X-01
#[test]
fn an_unnegotiated_stream_begins_with_a_marker() {
    let figures = [octets(include_str!("../vectors/culley00-fig5.hex")), figure_5()];
    for (version, figure) in [0, 1].into_iter().zip(figures) {
        let mut streaming = Streaming::new();
        streaming.start_version(Direction::Both, version);
        streaming.send(5, 24);
        streaming.peer.settle();
        assert_eq!(streaming.sent(), figure);
        streaming.receive(&figure);
        assert_eq!(streaming.completions.poll().map(|completion| completion.byte_len), Some(24));
        streaming.acknowledge();
        assert_eq!(streaming.completions.poll().map(|completion| completion.id), Some(5));
    }
}

/// FPDUs that wait together leave each in a segment of its own, and so do retransmissions.
// Requirements: C00-7.3-01, C00-7.3-02, C00-7.3-03, C00-7.3-07
#[test]
fn an_unnegotiated_stream_packs_nothing() {
    let mut streaming = Streaming::new();
    streaming.start(Direction::Both);
    for id in 5..9 {
        streaming.send(id, 24);
    }
    streaming.peer.settle();
    let sent = |streaming: &mut Streaming| -> Vec<Vec<u8>> {
        let payloads = streaming.peer.sent.drain(..).map(|sent| sent.payload);
        payloads.filter(|payload| !payload.is_empty()).collect()
    };
    let first = sent(&mut streaming);
    assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [52, 48, 48, 48]);
    streaming.peer.pass_s(2);
    for again in sent(&mut streaming) {
        assert!(first.contains(&again), "a segment sent again has the boundaries it had");
    }
}

/// FPDUs one way and streaming octets the other, then both ways.
// Requirements: C00-8.1-01, C00-8.1-02, C00-8.1-05
#[test]
fn each_half_connection_changes_over_on_its_own() {
    for first in [Direction::Send, Direction::Receive] {
        let mut streaming = Streaming::new();
        streaming.receive(b"let us begin");
        streaming.take(12);
        streaming.stream(b"yes");
        assert_eq!((streaming.copied(), streaming.sent()), (b"let us begin".to_vec(), b"yes".to_vec()));
        streaming.acknowledge();
        streaming.start(first);
        assert_eq!(streaming.qp.state(), QpState::ReadyToSend);
        streaming.send(5, 24);
        streaming.peer.settle();
        if first == Direction::Send {
            assert_eq!(streaming.sent(), figure_5());
            streaming.receive(b"still talking");
            assert_eq!(streaming.copied(), b"still talking");
            streaming.take(13);
            streaming.start(Direction::Receive);
            streaming.receive(&figure_5());
        } else {
            streaming.receive(&figure_5());
            streaming.stream(b"still talking");
            assert_eq!(streaming.sent(), b"still talking", "what was posted waits");
            streaming.start(Direction::Send);
            assert_eq!(streaming.sent(), figure_5());
        }
        streaming.acknowledge();
        let mut completed: Vec<u64> =
            std::iter::from_fn(|| streaming.completions.poll()).map(|c| c.id).collect();
        completed.sort_unstable();
        assert_eq!(completed, [1, 5], "{first:?} first");
        assert_eq!(streaming.qp.error(), None);
    }
}

/// The same octets without Markers are an error in this mode, and nothing is delivered.
// Requirements: C00-7.1-01, C00-9-01
#[test]
fn an_unnegotiated_stream_without_markers_is_refused() {
    let mut streaming = Streaming::new();
    streaming.start(Direction::Both);
    // A wrong CRC may be an accident until it has come again (C00-9-04).
    for _ in 0..=limits::CRC_RETRIES {
        assert_eq!(streaming.qp.error(), None);
        streaming.peer.send(Flags::ACK, streaming.seq, streaming.ack, &figure_5()[4..]);
    }
    assert_eq!(streaming.qp.error(), Some(StreamError::Mpa(MpaError::Crc)));
    streaming.receive(&figure_5());
    assert!(streaming.completions.poll().is_some_and(|completion| completion.status != Status::Success));
}

/// After an error nothing more is delivered on that half connection, and TCP stays open: the other half
/// continues unchanged.
// Requirements: C00-9-01, C00-9-05, C00-9-06
#[test]
fn an_error_on_one_half_leaves_the_other_open() {
    let mut streaming = Streaming::new();
    streaming.start(Direction::Receive);
    let mut wrong = figure_5();
    wrong[50] ^= 1;
    for _ in 0..=limits::CRC_RETRIES {
        streaming.peer.send(Flags::ACK, streaming.seq, streaming.ack, &wrong);
    }
    assert_eq!(streaming.qp.error(), Some(StreamError::Mpa(MpaError::Crc)));
    streaming.receive(&figure_5());
    streaming.receive(&figure_5());
    streaming.peer.pass_s(10);
    while let Some(completion) = streaming.completions.poll() {
        assert_ne!(completion.status, Status::Success);
    }
    streaming.peer.sent.clear();
    streaming.stream(b"something went wrong");
    assert!(streaming.peer.sent.iter().all(|sent| !sent.header.flags.intersects(Flags::FIN | Flags::RST)));
    assert_eq!(streaming.sent(), b"something went wrong");
}

/// Streaming octets that control has a copy of, or will have, are its own after an error on the other half.
// Requirements: C00-9-05, C00-9-06
#[test]
fn an_error_on_the_sending_half_leaves_what_is_received() {
    let mut streaming = Streaming::new();
    streaming.start(Direction::Send);
    streaming.receive(b"abc");
    assert_eq!(streaming.copied(), b"abc");
    let nowhere = Slice { stag: STag::new(9, 0x99), to: 0, len: 24 };
    streaming.qp.post_send(SendRequest::new(5, Operation::SEND, nowhere)).unwrap();
    streaming.peer.settle();
    assert_eq!(streaming.qp.error(), Some(StreamError::Rdmap(RdmapError::LocalCatastrophic)));
    streaming.take(3);
    streaming.receive(b"def");
    assert_eq!(streaming.copied(), b"def");
    streaming.take(3);
    streaming.finish();
    streaming.acknowledge();
    assert!(
        streaming.peer.events.iter().any(|event| matches!(event, Event::PeerFinished { .. })),
        "{:?}",
        streaming.peer.events
    );
}

/// RFC 5040 §5.4, RFC 5041 §7.1: after an error or the peer's Terminate no message goes out, not even one
/// that was posted before, for a half connection that control starts after it. The connection closes then, as
/// one that sent FPDUs before.
// Requirements: DDP-7.1-17, RDMAP-5.4-05, C00-9-06
#[test]
fn a_half_that_starts_after_an_error_sends_no_fpdu() {
    // DDP's invalid STag, of no header.
    let terminate = [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x11, 0, 0, 0];
    let framing = Framing { markers: true, crc: true };
    let mut terminate_fpdu = vec![0; wire_len(0, terminate.len(), true)];
    assert!(encode(&mut terminate_fpdu, 0, framing, &terminate, 0, |_, _| true));
    let mut wrong = figure_5();
    wrong[50] ^= 1;
    let crc = StreamError::Mpa(MpaError::Crc);
    let stag = StreamError::Terminated { layer: 1, error_type: 1, code: 0 };
    for (octets, times, error) in [(wrong, 1 + limits::CRC_RETRIES, crc), (terminate_fpdu, 1, stag)] {
        let mut streaming = Streaming::new();
        streaming.start(Direction::Receive);
        streaming.send(5, 24);
        for _ in 0..times {
            streaming.peer.send(Flags::ACK, streaming.seq, streaming.ack, &octets);
        }
        assert_eq!((streaming.qp.state(), streaming.qp.error()), (QpState::Terminate, Some(error)));
        streaming.seq += octets.len() as u32;
        streaming.peer.sent.clear();
        streaming.start(Direction::Send);
        streaming.peer.pass_ms(10);
        let has_finished = streaming.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::FIN));
        assert_eq!(streaming.sent(), b"", "only a Terminate may go");
        assert!(has_finished, "the connection closes");
        streaming.acknowledge();
        streaming.finish();
        let ended: Vec<_> =
            std::iter::from_fn(|| streaming.completions.poll()).map(|done| (done.id, done.status)).collect();
        assert!(ended.contains(&(5, Status::Failed(error))), "{ended:?}");
    }
}

/// A peer that sends and sends to a control that reads nothing has so many octets copied and no more,
/// whatever its window: half of the ring of events, each with a segment of octets in a box.
#[test]
fn events_that_control_does_not_read_bound_what_is_copied() {
    let mut peer = RawPeer::new();
    let ack = peer.accept(Options { mss: Some(1460), ..Options::default() });
    let mut seq = PEER_ISS + 1;
    for _ in 0..2 * limits::EVENTS {
        let segment = RawPeer::segment(&peer.header(Flags::ACK, seq, ack), &[7; 1460]);
        peer.inject(&segment);
        peer.now += 1000;
        peer.core.poll_once(peer.now);
        seq += 1460;
    }
    assert_eq!(peer.core.usage().events_waiting, 0);
    let mut octets = Vec::new();
    while let Some(event) = peer.rings.events.pop() {
        let Event::Stream { octets: copied, .. } = event else { panic!("{event:?}") };
        octets.push(copied.len());
    }
    assert_eq!(octets.len(), limits::EVENTS / 2);
    assert!(octets.iter().all(|octets| *octets <= limits::STREAM_EVENT_BYTES));
}

/// The segment that completes TCP's handshake may carry the Request.
// Requirements: MPA-7.1.4-02
#[test]
fn the_handshake_may_end_with_the_request() {
    for holds_stream in [false, true] {
        let mut peer = RawPeer::with(Config { holds_stream, ..RawPeer::config() }, 1500);
        peer.command(Command::Listen { address: None, port: crate::common::PORT, backlog: 1, tcp: None });
        let syn = RawPeer::segment(&peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)), &[]);
        peer.inject(&syn);
        peer.settle();
        let next = peer.expect_one().header.seq + 1;
        peer.send(Flags::ACK, PEER_ISS + 1, next, crate::common::REQUEST);
        assert!(
            matches!(
                &peer.events[..],
                [Event::Accepted { .. }, Event::Stream { octets, .. }]
                    if octets[..] == *crate::common::REQUEST
            ),
            "{:?}",
            peer.events
        );
    }
}

/// No Full Operation without a queue pair: one that was destroyed is none.
// Requirements: MPA-7.1-04
#[test]
fn a_stream_without_a_queue_pair_cannot_start() {
    let mut streaming = Streaming::new();
    let (connection, qp) = (streaming.connection, streaming.qp.clone());
    streaming.command(Command::DestroyQp(qp.clone()));
    assert!(streaming.peer.sent.is_empty());
    let operation = FullOperation::unnegotiated(1, USUAL);
    streaming.command(Command::StartUnnegotiated { connection, qp, operation, direction: Direction::Both });
    assert!(streaming.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::RST)));
}

/// A Responder whose peer never sends an FPDU sends none either, even if requests are posted, reports it in
/// time and closes without a Terminate.
// Requirements: MPA-7.1.2-15, MPA-7.1.2-26, A-07
#[test]
fn a_responder_does_not_wait_for_its_first_fpdu_for_ever() {
    for comes in [false, true] {
        let mut streaming = Streaming::new();
        let first_fpdu_ns = Some(SECOND);
        let operation = FullOperation { first_fpdu_ns, ..FullOperation::new(false) };
        let operation = FullOperation { markers_sent: true, markers_received: true, ..operation };
        let (connection, qp) = (streaming.connection, streaming.qp.clone());
        streaming.command(Command::Start { connection, qp, operation });
        streaming.send(5, 24);
        streaming.peer.pass_ms(900);
        assert_eq!(streaming.sent(), b"", "before the first FPDU");
        if comes {
            // Half an FPDU does not count as one; the other half arrives in time.
            let (half, rest) = (figure_5()[..30].to_vec(), figure_5()[30..].to_vec());
            streaming.receive(&half);
            assert_eq!(streaming.sent(), b"");
            streaming.receive(&rest);
            assert_eq!(streaming.sent(), figure_5());
            streaming.acknowledge();
        }
        streaming.peer.pass_ms(200);
        let (error, fin) = (
            streaming.qp.error(),
            streaming.peer.sent.iter().any(|sent| sent.header.flags.contains(Flags::FIN)),
        );
        if comes {
            assert_eq!((error, fin), (None, false));
        } else {
            assert_eq!((error, fin), (Some(StreamError::NoFpdu), true));
            assert_eq!(streaming.sent(), b"");
            let told =
                |event: &Event| matches!(event, Event::StreamFailed { error: StreamError::NoFpdu, .. });
            assert!(streaming.peer.events.iter().any(told));
        }
    }
}

/// The octets of startup frames are consumed as Full Operation begins, without a command of their own. Those
/// after them are FPDUs.
#[test]
fn full_operation_consumes_the_startup_before_it() {
    let mut streaming = Streaming::new();
    let startup = b"what came first";
    streaming.receive(&[&startup[..], &figure_5()].concat());
    let startup_octets = startup.len() as u32;
    let operation = FullOperation { startup_octets, ..FullOperation::new(true) };
    let operation = FullOperation { markers_sent: true, markers_received: true, ..operation };
    let (connection, qp) = (streaming.connection, streaming.qp.clone());
    streaming.command(Command::Start { connection, qp, operation });
    let completion = streaming.completions.poll().expect("a message");
    assert_eq!((completion.id, completion.status), (1, Status::Success));
    assert_eq!(streaming.qp.error(), None);
}

/// A connection that the application has taken in streaming mode makes room in the backlog.
#[test]
fn an_admitted_connection_leaves_the_backlog() {
    let mut streaming = Streaming::new();
    streaming.command(Command::Listen { address: None, port: crate::common::PORT, backlog: 1, tcp: None });
    let syn = |peer: &mut RawPeer, port| {
        let header = peer.header(Flags::SYN, PEER_ISS, SeqNumber(0));
        let header = warpline_dataplane::wire::tcp::Header { source_port: port, ..header };
        peer.sent.clear();
        peer.inject(&RawPeer::segment(&header, &[]));
        peer.settle();
        peer.sent.iter().any(|sent| sent.header.destination_port == port)
    };
    assert!(!syn(&mut streaming.peer, 50_000), "the backlog is full");
    streaming.command(Command::Admit { connection: streaming.connection });
    assert!(syn(&mut streaming.peer, 50_001));
    // Twice is as once.
    streaming.command(Command::Admit { connection: streaming.connection });
    streaming.receive(b"hello");
    assert_eq!(streaming.copied(), b"hello");
}

/// Segments cut anywhere, in any order and sent twice around the octet where FPDUs begin; the application
/// reads at arbitrary times. No octet is lost, doubled or read in the wrong mode.
// Requirements: MPA-7.1-01, MPA-7.1.5-03, MPA-7.1.5-04
#[test]
fn the_switch_is_at_its_octet_whatever_arrives_when() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut streaming = Streaming::new();
        let spoken = crate::common::pattern(seed, rng.usize(..6000));
        let whole = [&spoken[..], &figure_5(), &second_fpdu(b"and on")].concat();
        let start = streaming.seq;
        let mut cuts: Vec<usize> = (0..rng.usize(1..20)).map(|_| rng.usize(..whole.len())).collect();
        cuts.extend((0..whole.len()).step_by(1460));
        cuts.push(whole.len());
        cuts.sort_unstable();
        let parts = || cuts.windows(2).map(|cut| (cut[0], cut[1]));
        let mut segments: Vec<(usize, usize)> = parts().chain(parts()).collect();
        rng.shuffle(&mut segments);
        // In the end all octets have arrived in order.
        segments.extend(parts());
        let (mut heard, mut taken, mut started) = (Vec::new(), 0, false);
        for (from, to) in segments {
            streaming.peer.send(Flags::ACK, start + from as u32, streaming.ack, &whole[from..to]);
            heard.extend(streaming.copied());
            assert!(whole.starts_with(&heard), "seed {seed}: in order, each once");
            let readable = heard.len().min(spoken.len()) - taken;
            let octets = if rng.bool() { readable } else { rng.usize(..=readable) };
            streaming.take(octets);
            taken += octets;
            if taken == spoken.len() && !started && rng.bool() {
                streaming.start(Direction::Receive);
                started = true;
            }
        }
        heard.extend(streaming.copied());
        streaming.take(spoken.len() - taken);
        if !started {
            streaming.start(Direction::Receive);
        }
        let sends: Vec<u32> =
            std::iter::from_fn(|| streaming.completions.poll()).map(|c| c.byte_len).collect();
        assert_eq!((sends, streaming.qp.error()), (vec![24, 6], None), "seed {seed}");
        assert!(heard.len() >= spoken.len() && holds(&streaming.memory, 64, b"and on"), "seed {seed}");
    }
}

/// A middlebox cuts a segment, and its second part is lost: the peer acknowledges the first alone. The octets
/// of both were given by two commands; the segment is still sent again as a whole.
#[test]
fn a_segment_that_is_acknowledged_in_part_can_be_sent_again() {
    let mut streaming = Streaming::new();
    let connection = streaming.connection;
    for octets in [&[1; 100][..], &[2; 1000]] {
        let stream = Command::Stream { connection, octets: octets.into(), then: AfterStream::Stay };
        streaming.peer.command(stream);
    }
    streaming.peer.settle();
    let sent = streaming.sent();
    assert_eq!(sent.len(), 1100);
    assert_eq!(streaming.heard, streaming.ack + 1100, "in one segment");
    streaming.ack += 500;
    streaming.peer.send(Flags::ACK, streaming.seq, streaming.ack, &[]);
    streaming.peer.pass_s(3);
    let again = streaming.sent();
    let rest = &sent[500..];
    assert!(again.windows(rest.len()).any(|part| part == rest), "{} octets were sent again", again.len());
    streaming.acknowledge();
    assert_eq!(streaming.acknowledged(), 1100);
}
