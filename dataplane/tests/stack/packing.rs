//! Tests of FPDUs that share a segment (RFC 5044 §4.5, App. A.1, A.2), checked on the wire by a parser of
//! their own.

mod cut_short_messages;

use std::sync::Arc;

use crate::common::raw::{PEER_ISS, RawPeer, Sent};
use crate::common::{PD, QP, region_of};
use warpline_dataplane::memory::{Access, Grant, STag};
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, SliceList, Status};
use warpline_dataplane::ring::{Command, FullOperation};
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

const ACK: Flags = Flags::ACK;
const SOURCE: STag = STag::new(2, 0x22);
const SINK: STag = STag::new(7, 0x77);
const REGION_OCTETS: usize = 1 << 16;
const EMSS: u16 = 1460;

/// A core in Full Operation as Initiator, whose segments a test inspects.
struct Writer {
    peer: RawPeer,
    qp: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    data: Vec<u8>,
    /// The sequence number at which Full Operation begins.
    start: SeqNumber,
    markers: bool,
    next_to: u64,
}

/// The contents of one FPDU.
#[derive(Debug, PartialEq, Eq)]
struct Write {
    last: bool,
    to: u64,
    payload: Vec<u8>,
}

impl Writer {
    fn new(operation: FullOperation, tcp: Behaviour) -> Self {
        let config = warpline_dataplane::core::Config { tcp, ..RawPeer::config() };
        let mut peer = RawPeer::with(config, 1500);
        let start = peer.accept(Options { mss: Some(EMSS), ..Options::default() });
        let completions = Arc::new(CompletionRing::new(512));
        let rings = CompletionRings::shared(completions.clone());
        let qp = Arc::new(SharedQp::new(
            QP,
            PD,
            QueueDepths { send: 256, receive: 1 },
            rings,
            peer.rings.doorbells.clone(),
        ));
        let data: Vec<u8> = (0..REGION_OCTETS).map(|at| (at * 7 + at / 256) as u8).collect();
        let grant = Grant::new(region_of(&data), PD, 0, Access::empty());
        peer.command(Command::Register { stag: SOURCE, grant });
        peer.command(Command::Start { connection: peer.accepted.unwrap(), qp: qp.clone(), operation });
        peer.settle();
        Self { peer, qp, completions, data, start, markers: operation.markers_sent, next_to: 0 }
    }

    fn with(packing: bool, markers: bool) -> Self {
        let operation = FullOperation { packing, markers_sent: markers, ..FullOperation::new(true) };
        Self::new(operation, Behaviour::default())
    }

    /// Posts a Write of the octets after those of the last.
    fn post(&mut self, octets: u32) {
        self.post_from(SOURCE, octets);
    }

    fn post_from(&mut self, stag: STag, octets: u32) {
        let local = Slice { stag, to: self.next_to, len: octets };
        let operation = Operation::Write { stag: SINK, to: self.next_to };
        self.qp.post_send(SendRequest::new(self.next_to, operation, local)).unwrap();
        self.next_to += u64::from(octets);
    }

    /// The segments with data sent since the last look, each as the FPDUs it holds.
    fn segments(&mut self) -> Vec<Vec<Write>> {
        let sent: Vec<Sent> = self.peer.sent.drain(..).filter(|sent| !sent.payload.is_empty()).collect();
        sent.iter().map(|sent| self.walk(sent)).collect()
    }

    /// The FPDUs of a segment, which begins with one and ends with one (MPA-A.1-01).
    fn walk(&self, sent: &Sent) -> Vec<Write> {
        assert!(sent.payload.len() <= usize::from(EMSS), "{} octets", sent.payload.len());
        let mut position = (sent.header.seq - self.start) as u32 as usize;
        let (mut at, mut writes) = (0, Vec::new());
        while at < sent.payload.len() {
            let octets = self.fpdu(&sent.payload[at..], position, &mut writes);
            at += octets;
            position += octets;
        }
        assert_eq!(at, sent.payload.len(), "a part of an FPDU");
        writes
    }

    /// Reads the FPDU at the front of `octets`, octet by octet; returns its length on the wire.
    fn fpdu(&self, octets: &[u8], position: usize, writes: &mut Vec<Write>) -> usize {
        let (mut at, mut unmarked) = (0, Vec::new());
        let mut length = usize::MAX;
        while unmarked.len() < length {
            if self.markers && (position + at).is_multiple_of(512) {
                at += 4;
                continue;
            }
            unmarked.push(octets[at]);
            at += 1;
            if unmarked.len() == 2 {
                let ulpdu = usize::from(u16::from_be_bytes([unmarked[0], unmarked[1]]));
                length = (2 + ulpdu).next_multiple_of(4) + 4;
            }
        }
        let crc = crc32c::crc32c(&octets[..at - 4]);
        assert_eq!(octets[at - 4..at], crc.to_le_bytes(), "CRC");
        let ulpdu = &unmarked[2..2 + usize::from(u16::from_be_bytes([unmarked[0], unmarked[1]]))];
        assert_eq!((ulpdu[0] & 0xbf, ulpdu[1]), (0x81, 0x40), "a tagged segment of an RDMA Write");
        writes.push(Write {
            last: ulpdu[0] & 0x40 != 0,
            to: u64::from_be_bytes(ulpdu[6..14].try_into().unwrap()),
            payload: ulpdu[14..].to_vec(),
        });
        at
    }

    /// Asserts that the FPDUs are the data from Tagged Offset `from` on, without gaps; returns the offset at
    /// which they end.
    fn judge(&self, segments: &[Vec<Write>], from: u64) -> u64 {
        segments.iter().flatten().fold(from, |to, write| {
            assert_eq!(write.to, to);
            let end = to + write.payload.len() as u64;
            assert_eq!(write.payload, self.data[to as usize..end as usize]);
            end
        })
    }

    /// Takes all segments from now on, of at most `limit` octets once the earlier ones have arrived,
    /// acknowledges them and advertises a window of `window` octets; returns the FPDUs in them.
    fn all_of_the_stream(&mut self, window: u16, limit: usize) -> Vec<Write> {
        let mut stream: Vec<u8> = Vec::new();
        for round in 0..200 {
            for sent in std::mem::take(&mut self.peer.sent) {
                assert!(round == 0 || sent.payload.len() <= limit, "{} octets", sent.payload.len());
                let at = (sent.header.seq - self.start) as usize;
                if at <= stream.len() && at + sent.payload.len() > stream.len() {
                    let new = stream.len() - at;
                    stream.extend(&sent.payload[new..]);
                }
            }
            let next = self.start + stream.len() as u32;
            self.peer.send_with_window(window, PEER_ISS + 1, next);
            self.peer.pass_ms(200);
        }
        let (mut at, mut writes) = (0, Vec::new());
        while at < stream.len() {
            at += self.fpdu(&stream[at..], at, &mut writes);
        }
        writes
    }

    fn acknowledge(&mut self, octets: u32) {
        self.peer.send(ACK, PEER_ISS + 1, self.start + octets, &[]);
    }
}

/// Small FPDUs that wait at the same time share segments, whole.
// Requirements: MPA-5.1-04, MPA-A.1-01, MPA-A.2-01
#[test]
fn small_fpdus_share_a_segment() {
    for markers in [false, true] {
        let mut writer = Writer::with(true, markers);
        (0..100).for_each(|_| writer.post(64));
        writer.peer.settle();
        let segments = writer.segments();
        assert_eq!(writer.judge(&segments, 0), 6400);
        // 2 + 14 + 64 + 4 octets each, and Markers.
        assert_eq!(segments.len(), 6);
        assert!(segments[..5].iter().all(|segment| segment.len() >= 16), "{markers}");
        assert!(segments.iter().flatten().all(|write| write.last && write.payload.len() <= 64));
    }
}

/// Without packing every FPDU has a segment of its own.
// Requirements: MPA-3-01, MPA-5.1-03, C00-5.1-01, C00-7.3-02, C00-7.3-03
#[test]
fn without_packing_each_fpdu_has_its_segment() {
    let mut writer = Writer::with(false, true);
    (0..8).for_each(|_| writer.post(64));
    writer.peer.settle();
    let segments = writer.segments();
    assert_eq!(writer.judge(&segments, 0), 512);
    assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [1; 8]);
}

/// A message after a small one begins in the rest of its segment. Its other FPDUs keep their full size, and
/// are all of one size, as segmentation by a device needs them.
// Requirements: MPA-3-03, MPA-4.5-03, MPA-4.5-04, MPA-4.5-05, C00-7.3.1-02
#[test]
fn a_large_message_uses_the_room_behind_a_small_one() {
    let mut writer = Writer::with(true, false);
    writer.post(100);
    writer.post(10_000);
    writer.peer.settle();
    let segments = writer.segments();
    assert_eq!(writer.judge(&segments, 0), 10_100);
    let sizes: Vec<Vec<usize>> =
        segments.iter().map(|segment| segment.iter().map(|write| write.payload.len()).collect()).collect();
    // 120 octets for the first, 1340 for the second: less 20 of headers and CRC.
    assert_eq!(sizes[0], [100, 1320]);
    assert!(sizes[1..7].iter().all(|sizes| sizes[..] == [1440]), "{sizes:?}");
    assert_eq!(sizes[7], [10_000 - 1320 - 6 * 1440]);
}

/// If less than a quarter of the segment is left, and so no room for an FPDU of 128 octets of ULPDU, a larger
/// message waits for the next segment; a small one that fits does not.
// Requirements: MPA-4.5-07
#[test]
fn no_fpdu_is_cut_below_128_octets() {
    for (first, second, shared) in [(1310, 1000, 1), (1310, 100, 2), (1090, 1000, 1), (1060, 1000, 2)] {
        let mut writer = Writer::with(true, false);
        writer.post(first);
        writer.post(second);
        writer.peer.settle();
        let segments = writer.segments();
        assert_eq!(writer.judge(&segments, 0), u64::from(first + second));
        assert_eq!(segments[0].len(), shared, "{first} and {second}");
        for write in segments.iter().flatten().filter(|write| !write.last) {
            assert!(write.payload.len() + 14 >= 128);
        }
    }
}

/// A retransmission has the same boundaries, though requests were posted since. No buffer is returned before
/// its whole segment is acknowledged, since the segment may have to be built again from it.
// Requirements: MPA-A.1-04, C00-7.3-07
#[test]
fn a_lost_segment_is_built_again_as_it_was() {
    for markers in [false, true] {
        let mut writer = Writer::with(true, markers);
        for octets in [64, 0, 300, 64, 700] {
            writer.post(octets);
        }
        writer.peer.settle();
        let first = writer.peer.sent.iter().find(|sent| !sent.payload.is_empty()).unwrap().clone();
        assert_eq!(writer.segments().len(), 1);
        writer.post(64);
        writer.peer.settle();
        writer.peer.sent.clear();
        // A middlebox has cut it: some of its FPDUs have arrived.
        writer.acknowledge(100);
        assert_eq!(writer.completions.poll(), None);
        writer.peer.pass_s(2);
        let again = writer.peer.sent.iter().find(|sent| sent.header.seq == first.header.seq).unwrap();
        assert_eq!(again.payload, first.payload);
        writer.acknowledge(first.payload.len() as u32);
        let done: Vec<_> = std::iter::from_fn(|| writer.completions.poll()).collect();
        assert_eq!(done.iter().map(|done| done.byte_len).collect::<Vec<_>>(), [64, 0, 300, 64, 700]);
        assert!(done.iter().all(|done| done.status == Status::Success));
    }
}

/// A request with an invalid buffer puts nothing on the wire, wherever in a segment it would have been.
/// Earlier requests are sent; then a Terminate instead of it, and nothing more (RDMAP-7.1-01, RDMAP-7.1-02):
/// a later message could refer to octets that the peer never received.
#[test]
fn nothing_follows_a_bad_request() {
    let mut writer = Writer::with(true, false);
    writer.post(64);
    writer.post_from(STag::new(9, 0x99), 64);
    writer.post(64);
    writer.peer.settle();
    let mut sent: Vec<Sent> = writer.peer.sent.drain(..).filter(|sent| !sent.payload.is_empty()).collect();
    let terminate = sent.pop().unwrap().payload;
    assert_eq!((terminate.len(), &terminate[2..4]), (28, &[0x41, 0x47][..]), "alone");
    assert_eq!(terminate[20..24], [0, 0, 0, 0], "local catastrophic, and no headers");
    let segments: Vec<_> = sent.iter().map(|sent| writer.walk(sent)).collect();
    assert_eq!(writer.judge(&segments, 0), 64);
    writer.acknowledge(84 + 28);
    // The peer does not close; the connection ends nevertheless.
    writer.peer.pass_ms(6000);
    let statuses: Vec<_> = std::iter::from_fn(|| writer.completions.poll()).map(|done| done.status).collect();
    assert_eq!(statuses, [Status::Success, Status::LocalProtection, Status::Flushed]);
}

/// Nagle's algorithm is an option of the connection. Waiting requests gather until their segment is full, and
/// are sent when the octets in flight have been acknowledged.
// Requirements: MPA-A.2-01, MPA-5.1-03, C00-7.3-04
#[test]
fn nagle_gathers_what_comes_meanwhile() {
    for nagle in [false, true] {
        let tcp = Behaviour { nagle, ..Behaviour::default() };
        let mut writer = Writer::new(FullOperation::new(true), tcp);
        let mut segments = Vec::new();
        for _ in 0..30 {
            writer.post(64);
            writer.peer.settle();
            segments.append(&mut writer.segments());
        }
        if nagle {
            // One goes at once; 17 fill a segment; twelve wait.
            assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [1, 17]);
            writer.acknowledge(18 * 84);
            segments.append(&mut writer.segments());
            assert_eq!(segments[2].len(), 12);
        } else {
            assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [1; 30]);
        }
        assert_eq!(writer.judge(&segments, 0), 30 * 64);
    }
}

/// A Write or a Send of few octets from one range takes a shorter way through the stack than one that gathers
/// them from two. Whatever waits together, is cut by the end of a segment, is lost or acknowledged in part:
/// both put the same octets on the wire, in the same segments, and complete at the same time.
#[test]
fn short_messages_go_out_like_gathered_ones() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (packing, markers) = (rng.u8(..4) > 0, rng.u8(..4) == 0);
        let mut writers = [Writer::with(packing, markers), Writer::with(packing, markers)];
        let (mut id, mut acknowledged) = (0, 0);
        for _ in 0..40 {
            for _ in 0..rng.u64(..30) {
                let octets = if rng.bool() { rng.u32(..80) } else { rng.u32(..600) };
                let to = rng.u64(..1 << 15);
                let local =
                    |from: u32, to_: u32| Slice { stag: SOURCE, to: to + u64::from(from), len: to_ - from };
                let cut = rng.u32(..=octets);
                let gathered = [local(0, cut), local(cut, octets)];
                let payloads =
                    [SliceList::from(local(0, octets)), SliceList::try_from(&gathered[..]).unwrap()];
                let operation = match rng.u8(..5) {
                    0 => Operation::Send { invalidate: None, solicited: true },
                    1 => Operation::Send { invalidate: (rng.u8(..4) == 0).then_some(SINK), solicited: false },
                    _ => Operation::Write { stag: SINK, to: id << 33 },
                };
                let (signaled, fenced) = (rng.u8(..3) > 0, rng.u8(..20) == 0);
                for (writer, payload) in writers.iter_mut().zip(payloads) {
                    let request =
                        SendRequest { signaled, fenced, ..SendRequest::new(id, operation, payload) };
                    // Both queues are full at the same time.
                    let _ = writer.qp.post_send(request);
                }
                id += 1;
            }
            let loses = rng.u8(..8) == 0;
            let sent = writers.each_mut().map(|writer| {
                writer.peer.settle();
                if loses {
                    writer.peer.pass_s(2);
                }
                let sent: Vec<_> = writer.peer.sent.drain(..).collect();
                sent.into_iter()
                    .map(|sent| (sent.header.seq, sent.header.flags, sent.payload))
                    .collect::<Vec<_>>()
            });
            assert_eq!(sent[0], sent[1], "seed {seed}");
            let end = sent[0].iter().map(|(seq, _, payload)| *seq + payload.len() as u32 - writers[0].start);
            let end = end.max().unwrap_or(acknowledged).max(acknowledged);
            acknowledged = if rng.bool() { end } else { rng.i32(acknowledged..=end) };
            let done = writers.each_mut().map(|writer| {
                writer.acknowledge(acknowledged as u32);
                std::iter::from_fn(|| writer.completions.poll()).collect::<Vec<_>>()
            });
            assert_eq!(done[0], done[1], "seed {seed}");
        }
        assert!(acknowledged > 0, "seed {seed}: nothing was sent");
    }
}

/// No segment holds more FPDUs than are built again in one go.
#[test]
fn the_fpdus_of_a_segment_are_bounded() {
    let mut writer = Writer::with(true, false);
    (0..200).for_each(|_| writer.post(0));
    writer.peer.settle();
    let segments = writer.segments();
    // 20 octets each: 73 would fit.
    assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 64, 8]);
}

/// Segments that became too long for the path are cut; the FPDUs in them stay as they were, and the peer gets
/// each octet.
// Requirements: MPA-A.1-03, MPA-4.5-08, C00-7.3-05, C00-7.3-06
#[test]
fn a_packed_segment_is_cut_when_the_window_shrinks() {
    let mut writer = Writer::with(true, false);
    // The peer repeatedly advertises a window of 300 octets.
    writer.peer.send_with_window(300, PEER_ISS + 1, writer.start);
    for octets in [64, 200, 64, 500, 64] {
        writer.post(octets);
    }
    let writes = writer.all_of_the_stream(300, usize::from(EMSS));
    assert_eq!(writer.judge(&[writes], 0), 892);
    let done: Vec<_> = std::iter::from_fn(|| writer.completions.poll()).collect();
    assert_eq!(done.len(), 5, "{done:?}");
}

/// A path that becomes narrower while many requests wait. FPDUs that are queued stay as they are, in smaller
/// segments; those that follow are cut for the MULPDU of the path as it is now.
// Requirements: DDP-3-01, DDP-3-02, MPA-3-02
#[test]
fn a_narrower_path_needs_no_new_fpdus_for_what_is_queued() {
    const WRITES: u64 = 40;
    // ULPDU_Length, the tagged header and the CRC, and the octets that PAD may use.
    const NARROW: usize = 1000 - 40 - 2 - 14 - 4;
    let mut writer = Writer::with(false, false);
    for _ in 0..WRITES {
        writer.post(1400);
    }
    writer.peer.settle();
    let first = writer.peer.sent[0].clone();
    writer.peer.say_too_big(&first, 1000);
    let writes = writer.all_of_the_stream(u16::MAX, 960);
    let as_queued = writes.iter().take_while(|write| write.payload.len() == 1400).count();
    assert!(as_queued > 0 && writes.len() > WRITES as usize, "{as_queued} of {}", writes.len());
    let longest = writes[as_queued..].iter().map(|write| write.payload.len()).max();
    assert!(longest.is_some_and(|octets| octets <= NARROW && octets + 4 > NARROW), "{longest:?}");
    assert_eq!(writer.judge(&[writes], 0), WRITES * 1400);
    let done: Vec<_> = std::iter::from_fn(|| writer.completions.poll()).collect();
    assert!(done.len() == WRITES as usize && done.iter().all(|done| done.status == Status::Success));
}
