//! Segments that arrive in a burst: whatever it has among them, the connection, the frames that answer it and
//! the counters are the same whether each step takes its first branch or its cold one.

use std::sync::Arc;

use crate::common::raw::{PEER_ISS, RawPeer, Sent};
use crate::common::{PD, PORT, holds, pattern, region_of};
use crate::reference::mpa::{Sender, Stream};
use warpline_dataplane::core::Config;
use warpline_dataplane::core::testing::checksums_computed;
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::work::{Operation, QpNumber, SendRequest, Slice};
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event, FullOperation};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::testing::ColdBranches;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ethernet;
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber, Timestamps};

const SINK: STag = STag::new(2, 0x2222);
const SINK_OCTETS: usize = 1 << 20;
const SOURCE: STag = STag::new(3, 0x3333);
const SOURCE_OCTETS: usize = 5000;
const MARKERS: bool = false;
const CODE_POINT_ECT: u8 = 0b10;
const CODE_POINT_CE: u8 = 0b11;

/// Writes that the core posts at most.
const WRITES: usize = 512;

/// The peer of a core that writes to it.
struct Writer {
    peer: RawPeer,
    connection: ConnectionId,
    qp: Arc<SharedQp>,
    sink: Region,
    /// What its segments acknowledge, and up to where the core has sent.
    ack: SeqNumber,
    sent_to: SeqNumber,
    /// The first sequence number of FPDUs.
    start: SeqNumber,
    timestamps: Option<Timestamps>,
}

/// A segment as the peer sends it.
#[derive(Clone, Debug, PartialEq)]
struct Segment {
    /// Where it begins, and its octets.
    seq: SeqNumber,
    payload: Vec<u8>,
    flags: Flags,
    window: u16,
    ecn: u8,
    clock: u32,
    /// Its timestamp is that of before.
    old: bool,
    /// An octet changes on the way.
    damaged: bool,
}

/// What a core shows after a burst.
#[derive(Debug, PartialEq)]
struct Shown {
    connection: String,
    sent: Vec<Sent>,
    events: String,
    error: Option<StreamError>,
    statistics: Statistics,
}

impl Writer {
    fn new(timestamps: bool, window_octets: u32) -> Self {
        let config = Config { window_bytes: window_octets, ..RawPeer::config() };
        let mut peer = RawPeer::with(config, 1500);
        let sink = region_of(&vec![0; SINK_OCTETS]);
        let grant = Grant::new(sink.clone(), PD, 0, Access::REMOTE_WRITE);
        peer.command(Command::Register { stag: SINK, grant });
        let source = region_of(&[7; SOURCE_OCTETS]);
        peer.command(Command::Register { stag: SOURCE, grant: Grant::new(source, PD, 0, Access::empty()) });
        peer.command(Command::Listen { address: None, port: PORT, backlog: 1, tcp: None });
        let mut timestamps = timestamps.then_some(Timestamps { value: 1000, echo: 0 });
        let options = Options { sack_permitted: true, timestamps, ..Options::default() };
        let flags = Flags::SYN | Flags::ECE | Flags::CWR;
        let syn = Header { options, ..peer.header(flags, PEER_ISS, SeqNumber(0)) };
        peer.inject(&RawPeer::segment(&syn, &[]));
        peer.settle();
        let answer = peer.expect_one().header;
        let (start, ack) = (PEER_ISS + 1, answer.seq + 1);
        timestamps = answer.options.timestamps.map(|clock| Timestamps { value: 1000, echo: clock.value });
        let options = Options { timestamps, ..Options::default() };
        peer.inject(&RawPeer::segment(&Header { options, ..peer.header(Flags::ACK, start, ack) }, &[]));
        peer.settle();
        let connection = peer.events.drain(..).find_map(|event| match event {
            Event::Accepted { connection, .. } => Some(connection),
            _ => None,
        });
        let connection = connection.expect("a connection");
        let rings = CompletionRings::shared(Arc::new(CompletionRing::new(WRITES)));
        let depths = QueueDepths { send: WRITES, receive: 1 };
        let qp = Arc::new(SharedQp::new(QpNumber(1), PD, depths, rings, peer.rings.doorbells.clone()));
        let operation = FullOperation { markers_received: MARKERS, ..FullOperation::new(false) };
        let then = AfterStream::FullOperation { qp: qp.clone(), operation };
        peer.command(Command::Stream { connection, octets: Box::new([]), then });
        peer.come_to_rest();
        Self { peer, connection, qp, sink, ack, sent_to: ack, start, timestamps }
    }

    /// Has the core write `octets` octets in the next turn.
    fn post(&self, octets: u32) {
        let local = Slice { stag: SOURCE, to: 0, len: octets };
        self.qp.post_send(SendRequest::new(1, Operation::Write { stag: SINK, to: 0 }, local)).unwrap();
    }

    fn frame(&self, segment: &Segment) -> Vec<u8> {
        let mut header =
            Header { window: segment.window, ..self.peer.header(segment.flags, segment.seq, self.ack) };
        header.destination_port = PORT;
        header.options.timestamps = self
            .timestamps
            .map(|clock| Timestamps { value: clock.value + segment.clock - u32::from(segment.old), ..clock });
        let mut frame = RawPeer::segment(&header, &segment.payload);
        let ip = &mut frame[ethernet::Header::LEN..][..20];
        ip[1] = segment.ecn;
        ip[10..12].fill(0);
        let sum = checksum::sum(ip).finish();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        if segment.damaged {
            *frame.last_mut().expect("an octet") ^= 0x10;
        }
        frame
    }

    /// Has the segments of a burst arrive together. The checksum of each is computed once, whatever way it
    /// goes, unless it is wrong.
    fn take(&mut self, burst: &[Segment]) -> Shown {
        for segment in burst {
            let frame = self.frame(segment);
            self.peer.inject(&frame);
        }
        let before = checksums_computed();
        self.peer.settle();
        let (computed, segments) = (checksums_computed() - before, burst.len() as u64);
        let damaged = burst.iter().filter(|segment| segment.damaged).count() as u64;
        assert!((segments..=segments + 2 * damaged).contains(&computed), "{computed} sums: {burst:#?}");
        let sent: Vec<_> = self.peer.sent.drain(..).collect();
        for sent in &sent {
            let end = sent.header.seq + sent.payload.len() as u32;
            self.sent_to = if end > self.sent_to { end } else { self.sent_to };
        }
        let mut statistics = self.peer.core.statistics();
        // Only first branches count here, and only cold ones take steps in trees.
        (statistics.segments_predicted, statistics.nodes_visited) = (0, 0);
        Shown {
            connection: format!("{:?}", self.peer.core.tcp(self.connection)),
            sent,
            events: format!("{:?}", std::mem::take(&mut self.peer.events)),
            error: self.qp.error(),
            statistics,
        }
    }
}

/// Returns FPDUs of RDMA Writes of `data`, in order: mostly of one length, some short ones.
fn fpdus(rng: &mut fastrand::Rng, start: SeqNumber, data: &[u8]) -> Vec<Vec<u8>> {
    let mut sender = Sender::new(Stream { start: start.0, markers: MARKERS, crc: true });
    let mut fpdus = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let octets = if rng.u8(..8) > 0 { 1400 } else { rng.usize(1..1400) }.min(data.len() - at);
        let mut ulpdu = vec![0xc1, 0x40];
        ulpdu.extend(SINK.0.to_be_bytes());
        ulpdu.extend((at as u64).to_be_bytes());
        ulpdu.extend(&data[at..at + octets]);
        let mut fpdu = Vec::new();
        sender.frame(&ulpdu, &mut fpdu);
        fpdus.push(fpdu);
        at += octets;
    }
    fpdus
}

/// Returns the segments of a stream: FPDUs mostly whole, each in one, some of them with an odd header.
fn segments(rng: &mut fastrand::Rng, start: SeqNumber, fpdus: &[Vec<u8>]) -> Vec<Segment> {
    let (mut seq, mut window, mut clock) = (start, 0xffff, 0);
    let mut segments = Vec::new();
    for fpdu in fpdus {
        let cut = if rng.u8(..12) == 0 { rng.usize(1..fpdu.len()) } else { fpdu.len() };
        let (first, rest) = fpdu.split_at(cut);
        for payload in [first, rest].into_iter().filter(|part| !part.is_empty()) {
            window = if rng.u8(..20) == 0 { rng.u16(1000..) } else { window };
            clock += u32::from(rng.u8(..20) == 0);
            segments.push(Segment {
                seq,
                payload: payload.to_vec(),
                flags: if rng.u8(..6) == 0 { Flags::ACK | Flags::PSH } else { Flags::ACK },
                window,
                ecn: match rng.u8(..30) {
                    0 => CODE_POINT_CE,
                    1 => CODE_POINT_ECT,
                    _ => 0,
                },
                clock,
                old: false,
                damaged: false,
            });
            seq += payload.len() as u32;
        }
    }
    segments
}

/// Returns the segments of a burst as they arrive: mostly as they are, or one of them is lost, damaged or too
/// old, comes twice or later.
fn on_the_way(rng: &mut fastrand::Rng, burst: &[Segment]) -> Vec<Segment> {
    let mut burst = burst.to_vec();
    let at = rng.usize(..burst.len());
    match rng.u8(..10) {
        0 => drop(burst.remove(at)),
        1 => burst[at].damaged = true,
        2 => burst[at].old = true,
        3 => burst.insert(at, burst[at].clone()),
        4 => {
            let late = burst.remove(at);
            burst.insert(rng.usize(at..=burst.len()), late);
        }
        _ => {}
    }
    burst
}

/// One core takes first branches, the other tosses a coin for each step: they show the same after every
/// burst.
#[test]
fn a_burst_is_taken_the_same_in_cold_branches() {
    let seeds = std::env::var("WARPLINE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let data = pattern(3, 400_000);
    let mut sent_octets = 0;
    for seed in 0..seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let timestamps = rng.bool();
        let window_octets = [65_535, 30_000][seed as usize % 2];
        let mut writers = [0, 1].map(|_| Writer::new(timestamps, window_octets));
        let start = writers[0].start;
        let sends_from = writers[0].sent_to;
        let fpdus = fpdus(&mut rng, start, &data);
        let segments = segments(&mut rng, start, &fpdus);
        let mut choice = rng.fork();
        let mut take = |burst: &[Segment]| {
            let octets = (choice.u8(..4) == 0).then(|| choice.u32(1..SOURCE_OCTETS as u32));
            let acknowledges = choice.u8(..3) == 0;
            for writer in &mut writers {
                octets.inspect(|octets| writer.post(*octets));
                writer.ack = if acknowledges { writer.sent_to } else { writer.ack };
            }
            let [first, cold] = &mut writers;
            let shown = first.take(burst);
            let _cold = ColdBranches::by_coin(128, choice.u64(..));
            assert_eq!(shown, cold.take(burst), "seed {seed}, {timestamps}: {burst:#?}");
            shown.sent.last().map(|sent| sent.header.ack)
        };
        let mut rest = &segments[..];
        while !rest.is_empty() {
            let (burst, after) = rest.split_at(rng.usize(1..30).min(rest.len()));
            rest = after;
            let arriving = on_the_way(&mut rng, burst);
            let mut acknowledged = take(&arriving);
            // The window may have been too small for all of it. An acknowledgement may be delayed.
            let last = burst.last().expect("a segment");
            let end = last.seq + last.payload.len() as u32;
            for _ in 0..5 {
                if acknowledged == Some(end) || acknowledged.is_none() && arriving == burst {
                    break;
                }
                acknowledged = take(burst);
            }
        }
        let predicted = writers[0].peer.core.statistics().segments_predicted as usize;
        assert!(predicted > segments.len() / 2, "seed {seed}: {predicted} of {}", segments.len());
        for writer in &writers {
            assert_eq!(writer.qp.error(), None, "seed {seed}");
            assert!(holds(&writer.sink, 0, &data), "seed {seed}");
        }
        sent_octets += i64::from(writers[0].sent_to - sends_from);
    }
    assert!(sent_octets > 10_000 * i64::from(seeds as u32), "{sent_octets} octets the other way");
}

/// A segment that comes late opens a gap and fills it: all segments of the burst are consumed in their frames
/// still, and in their order.
#[test]
fn a_gap_does_not_end_a_burst() {
    const SEGMENTS: usize = 8;
    let data = pattern(5, SEGMENTS * 1400);
    for (late, after) in (0..SEGMENTS).flat_map(|late| (late + 1..SEGMENTS).map(move |after| (late, after))) {
        let mut writer = Writer::new(true, 65_535);
        let mut sender = Sender::new(Stream { start: writer.start.0, markers: MARKERS, crc: true });
        let mut seq = writer.start;
        let mut burst: Vec<_> = (0..SEGMENTS)
            .map(|number| {
                let at = number * 1400;
                let mut ulpdu = vec![0xc1, 0x40];
                ulpdu.extend(SINK.0.to_be_bytes());
                ulpdu.extend((at as u64).to_be_bytes());
                ulpdu.extend(&data[at..at + 1400]);
                let mut payload = Vec::new();
                sender.frame(&ulpdu, &mut payload);
                let segment = Segment {
                    seq,
                    payload,
                    flags: Flags::ACK,
                    window: 0xffff,
                    ecn: 0,
                    clock: 0,
                    old: false,
                    damaged: false,
                };
                seq += segment.payload.len() as u32;
                segment
            })
            .collect();
        let segment = burst.remove(late);
        burst.insert(after, segment);
        let shown = writer.take(&burst);
        let statistics = writer.peer.core.statistics();
        assert_eq!(statistics.tcp.out_of_order_segments as usize, after - late);
        assert_eq!(statistics.segments_predicted as usize, SEGMENTS, "{late} after {after}");
        assert_eq!(shown.sent.last().map(|sent| sent.header.ack), Some(seq));
        assert!(holds(&writer.sink, 0, &data));
    }
}
