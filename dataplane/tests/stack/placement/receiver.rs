//! A core that receives, in Full Operation, and a peer that frames its FPDUs with `reference::mpa`.

use std::sync::Arc;

use warpline_dataplane::core::tables::Usage;
use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::{SharedReceiveQueue, SrqNumber};
use warpline_dataplane::qp::work::{Completion, ReceiveRequest, Slice};
use warpline_dataplane::ring::{AfterStream, Command, FullOperation};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::tcp::Snapshot;
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PD, QP, region_of};
use crate::reference::mpa::{Sender, Stream};

pub const SINK: STag = STag::new(2, 0x2222);
const INBOX: STag = STag::new(5, 0x5555);
/// Octets the peer may write, deliberately an odd number, and the octets on either side that must not change.
pub const SINK_OCTETS: usize = 12_001;
const GUARD_OCTETS: usize = 64;
/// Buffers for Sends, and the octets of each.
pub const BUFFERS: usize = 4;
pub const BUFFER_OCTETS: usize = 4000;
const UNTOUCHED: u8 = 0xa5;

/// A ULPDU of the peer: a message of its own for each segment of the Tagged model, and whole messages of the
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ulpdu {
    /// An RDMA Write's segment, of `octets` octets to `to`.
    Write { to: usize, octets: usize },
    /// A segment of a Send: the message counts from the first of the run, its buffers likewise.
    Send { message: usize, mo: usize, octets: usize, last: bool },
    /// Anything; nothing is to be placed of it.
    Raw(Vec<u8>),
}

/// The octet that belongs at `at` of the sink, or of buffer `at / BUFFER_OCTETS`, in this run.
fn content(run: u64, at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9).wrapping_add(run * 31).wrapping_shr(8) as u8 & 0x7f
}

fn bytes(run: u64, at: usize, octets: usize) -> Vec<u8> {
    (at..at + octets).map(|at| content(run, at)).collect()
}

impl Ulpdu {
    /// The octets of the DDP segment, by RFC 5041 figures 3 and 4 and RFC 5040 figure 4 alone.
    pub fn octets(&self, run: u64, first_msn: u32) -> Vec<u8> {
        match *self {
            Self::Write { to, octets } => {
                let mut ulpdu = vec![0xc1, 0x40];
                ulpdu.extend(SINK.0.to_be_bytes());
                ulpdu.extend((to as u64).to_be_bytes());
                ulpdu.extend(bytes(run, to, octets));
                ulpdu
            }
            Self::Send { message, mo, octets, last } => {
                let mut ulpdu = vec![if last { 0x41 } else { 0x01 }, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
                ulpdu.extend((first_msn + message as u32).to_be_bytes());
                ulpdu.extend((mo as u32).to_be_bytes());
                ulpdu.extend(bytes(run, message * BUFFER_OCTETS + mo, octets));
                ulpdu
            }
            Self::Raw(ref ulpdu) => ulpdu.clone(),
        }
    }

    pub const fn payload_octets(&self) -> usize {
        match *self {
            Self::Write { octets, .. } | Self::Send { octets, .. } => octets,
            Self::Raw(_) => 0,
        }
    }
}

/// An FPDU of a run: its contents, and its position in the octets of the run.
#[derive(Clone, Debug)]
pub struct Fpdu {
    pub ulpdu: Ulpdu,
    pub start: usize,
    pub end: usize,
}

/// FPDUs and their octets.
#[derive(Clone, Debug)]
pub struct Run {
    pub number: u64,
    pub fpdus: Vec<Fpdu>,
    pub octets: Vec<u8>,
    /// Octets of stream before it since Full Operation began.
    pub position: usize,
}

pub struct Receiver {
    pub peer: RawPeer,
    pub qp: Arc<SharedQp>,
    completions: Arc<CompletionRing>,
    /// Where its buffers are posted, if not at the queue pair.
    shared: Option<Arc<SharedReceiveQueue>>,
    sink: Region,
    inbox: Region,
    pub stream: Stream,
    /// Where the next run begins.
    pub seq: SeqNumber,
    ack: SeqNumber,
    sends: u32,
    runs: u64,
    posted: u64,
}

impl Receiver {
    /// With Markers or without; CRCs are in use.
    pub fn new(markers: bool) -> Self {
        Self::with(markers, true)
    }

    pub fn with(markers: bool, crc: bool) -> Self {
        let operation = FullOperation::new(false);
        Self::in_operation(FullOperation { markers_received: markers, crc, ..operation })
    }

    pub fn in_operation(operation: FullOperation) -> Self {
        Self::at(RawPeer::new(), operation)
    }

    pub fn at(peer: RawPeer, operation: FullOperation) -> Self {
        Self::of(peer, operation, None)
    }

    /// Returns a receiver whose queue pair takes its buffers from a shared receive queue.
    pub fn sharing(markers: bool) -> Self {
        let operation = FullOperation { markers_received: markers, ..FullOperation::new(false) };
        let shared = SharedReceiveQueue::new(SrqNumber(0), PD, 64, None);
        Self::of(RawPeer::new(), operation, Some(Arc::new(shared)))
    }

    fn of(mut peer: RawPeer, operation: FullOperation, shared: Option<Arc<SharedReceiveQueue>>) -> Self {
        let ack = peer.accept(Options { sack_permitted: true, ..Options::default() });
        let completions = Arc::new(CompletionRing::new(64));
        let rings = CompletionRings::shared(completions.clone());
        let mut qp =
            SharedQp::new(QP, PD, QueueDepths { send: 8, receive: 64 }, rings, peer.rings.doorbells.clone());
        if let Some(shared) = &shared {
            qp = qp.with_shared_receives(shared.clone());
        }
        let qp = Arc::new(qp);
        let sink = region_of(&[UNTOUCHED; SINK_OCTETS + 2 * GUARD_OCTETS]);
        let inbox = region_of(&[UNTOUCHED; BUFFERS * BUFFER_OCTETS + 2 * GUARD_OCTETS]);
        let grants = [
            (SINK, sink.part(GUARD_OCTETS, SINK_OCTETS), Access::REMOTE_WRITE),
            (INBOX, inbox.part(GUARD_OCTETS, BUFFERS * BUFFER_OCTETS), Access::LOCAL_WRITE),
        ];
        for (stag, region, access) in grants {
            let grant = Grant::new(region.unwrap(), PD, 0, access);
            peer.command(Command::Register { stag, grant });
        }
        let connection = peer.accepted.unwrap();
        let then = AfterStream::FullOperation { qp: qp.clone(), operation };
        peer.command(Command::Stream { connection, octets: Box::new([]), then });
        peer.settle();
        let seq = PEER_ISS + 1;
        let (markers, crc) = (operation.markers_received, operation.crc);
        let stream = Stream { start: seq.0, markers, crc };
        Self { peer, qp, completions, shared, sink, inbox, stream, seq, ack, sends: 0, runs: 0, posted: 0 }
    }

    /// Octets of stream since Full Operation began.
    pub fn position(&self) -> usize {
        (self.seq - SeqNumber(self.stream.start)) as usize
    }

    /// Clears all memory, posts a buffer for each Send of `ulpdus`, and frames them.
    pub fn begin(&mut self, ulpdus: &[Ulpdu]) -> Run {
        self.runs += 1;
        assert!(self.sink.write(0, &[UNTOUCHED; SINK_OCTETS + 2 * GUARD_OCTETS]));
        assert!(self.inbox.write(0, &[UNTOUCHED; BUFFERS * BUFFER_OCTETS + 2 * GUARD_OCTETS]));
        let messages = ulpdus.iter().filter(|ulpdu| matches!(ulpdu, Ulpdu::Send { last: true, .. })).count();
        for message in 0..messages {
            self.post(message);
        }
        let run = self.framed(ulpdus);
        self.sends += messages as u32;
        run
    }

    /// Posts buffer `message` for the next Send that has none.
    pub fn post(&mut self, message: usize) {
        let to = (message * BUFFER_OCTETS) as u64;
        let local = Slice { stag: INBOX, to, len: BUFFER_OCTETS as u32 };
        let request = ReceiveRequest::new(self.posted, local);
        match &self.shared {
            Some(shared) => shared.post(&[request]).unwrap(),
            None => self.qp.post_receive(request).unwrap(),
        }
        self.posted += 1;
    }

    /// Frames `ulpdus` as they would come next.
    pub fn framed(&self, ulpdus: &[Ulpdu]) -> Run {
        let mut sender = Sender::new(self.stream);
        sender.seq = self.seq.0;
        let mut octets = Vec::new();
        let mut fpdus = Vec::new();
        for ulpdu in ulpdus {
            let start = octets.len();
            sender.frame(&ulpdu.octets(self.runs, self.sends + 1), &mut octets);
            fpdus.push(Fpdu { ulpdu: ulpdu.clone(), start, end: octets.len() });
        }
        Run { number: self.runs, fpdus, octets, position: self.position() }
    }

    /// Brings the stream to `phase` octets after a Marker position, by FPDUs that arrive in order. With
    /// Markers none ends directly after one.
    pub fn go_to_phase(&mut self, phase: usize) {
        loop {
            let ahead = (phase + 512 - self.position() % 512) % 512;
            if ahead == 0 {
                return;
            }
            // Which length ends there is tried out: beside its payload an FPDU has 20 octets, up to 3 of PAD,
            // and up to 3 Markers.
            let around = |length: usize| length.saturating_sub(35)..length.saturating_sub(19);
            let lengths = around(ahead).chain(around(ahead + 512)).filter(|octets| *octets > 0);
            let fitting = lengths.map(|octets| Ulpdu::Write { to: 0, octets }).find(|ulpdu| {
                let octets = self.framed(core::slice::from_ref(ulpdu)).octets.len();
                octets % 512 == ahead
            });
            let run = self.begin(&[fitting.unwrap_or(Ulpdu::Write { to: 0, octets: 1 })]);
            self.arrive(&run, 0, run.octets.len());
            self.finish(&run);
        }
    }

    /// Octets `from..to` of the run arrive in one segment.
    pub fn arrive(&mut self, run: &Run, from: usize, to: usize) {
        self.arrive_as(from, &run.octets[from..to]);
    }

    /// `octets` arrive in one segment, `from` octets after the beginning of the run.
    pub fn arrive_as(&mut self, from: usize, octets: &[u8]) {
        self.peer.send(Flags::ACK, self.seq + from as u32, self.ack, octets);
        self.peer.sent.clear();
    }

    /// The last segment of the run arrives with a FIN.
    pub fn arrive_with_fin(&mut self, run: &Run, from: usize) {
        self.peer.send(Flags::ACK | Flags::FIN, self.seq + from as u32, self.ack, &run.octets[from..]);
    }

    /// Ends the run: the next one begins after it.
    pub fn finish(&mut self, run: &Run) {
        self.seq += run.octets.len() as u32;
    }

    pub fn polled(&self) -> Vec<Completion> {
        std::iter::from_fn(|| self.completions.poll()).collect()
    }

    /// The place that the core expects next.
    pub fn next_expected(&self) -> SeqNumber {
        self.peer.core.tcp(self.peer.accepted.unwrap()).unwrap().received().nxt()
    }

    /// The peer's acknowledgement number.
    pub const fn ack(&self) -> SeqNumber {
        self.ack
    }

    pub fn error(&self) -> Option<StreamError> {
        self.qp.error()
    }

    pub fn usage(&self) -> Usage {
        self.peer.core.usage()
    }

    pub fn statistics(&self) -> Statistics {
        self.peer.core.statistics()
    }

    pub fn snapshot(&self) -> Snapshot {
        self.peer.core.tcp(self.peer.accepted.unwrap()).unwrap().snapshot()
    }

    /// Asserts that memory holds the FPDUs of `run` for which `placed` returns true, and is otherwise
    /// unchanged.
    #[track_caller]
    pub fn expect_memory(&self, run: &Run, placed: impl Fn(&Fpdu) -> bool) {
        let mut sink = vec![UNTOUCHED; SINK_OCTETS + 2 * GUARD_OCTETS];
        let mut inbox = vec![UNTOUCHED; BUFFERS * BUFFER_OCTETS + 2 * GUARD_OCTETS];
        for fpdu in run.fpdus.iter().filter(|fpdu| placed(fpdu)) {
            match fpdu.ulpdu {
                Ulpdu::Write { to, octets } => {
                    sink[GUARD_OCTETS + to..][..octets].copy_from_slice(&bytes(run.number, to, octets));
                }
                Ulpdu::Send { message, mo, octets, .. } => {
                    let at = message * BUFFER_OCTETS + mo;
                    inbox[GUARD_OCTETS + at..][..octets].copy_from_slice(&bytes(run.number, at, octets));
                }
                Ulpdu::Raw(_) => {}
            }
        }
        for (region, expected, name) in [(&self.sink, sink, "sink"), (&self.inbox, inbox, "inbox")] {
            let mut got = vec![0; expected.len()];
            assert!(region.read(0, &mut got));
            let differs = || got.iter().zip(&expected).position(|(got, expected)| got != expected);
            assert!(got == expected, "the {name} differs at {:?}", differs());
        }
    }

    /// Whether all of `fpdu` is in its place, and nothing else looked at.
    pub fn holds(&self, run: &Run, fpdu: &Fpdu) -> bool {
        let (region, at) = match fpdu.ulpdu {
            Ulpdu::Write { to, .. } => (&self.sink, to),
            Ulpdu::Send { message, mo, .. } => (&self.inbox, message * BUFFER_OCTETS + mo),
            Ulpdu::Raw(_) => return true,
        };
        let expected = bytes(run.number, at, fpdu.ulpdu.payload_octets());
        let mut got = vec![0; expected.len()];
        region.read(GUARD_OCTETS + at, &mut got) && got == expected
    }
}
