//! A core and its peer: the octets of both directions, and what the reference makes of them.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use warpline_dataplane::qp::work::{Completion, CompletionKind, Status};
use warpline_dataplane::wire::tcp::{Flags, SeqNumber};

use super::subject::{SLOTS, SOURCE, Setup, Subject};
use super::work::Work;
use crate::common::raw::{PEER_ISS, RawPeer, Sent};
use crate::reference::fields::opcode;
use crate::reference::mpa::{Liberties, Receiver, Sender, Stream};
use crate::reference::reader::{Message, Reader};
use crate::reference::target::{Code, End, Target, terminate};

/// What of a connection's two directions the judge has seen.
pub(super) struct Conversation {
    pub setup: Setup,
    pub rng: Rng,
    pub subject: Subject,
    pub target: Target,
    pub work: Work,
    /// The octets that the peer sends, and where FPDUs end in them.
    pub stream: Vec<u8>,
    pub ends: Vec<usize>,
    sender: Sender,
    /// The reference's reading of them, and how many it has read.
    receiver: Receiver,
    /// FPDUs that the reference has found valid.
    pub valid_fpdus: usize,
    pub end: Option<End>,
    /// The octets that the core has sent, as far as they are without a gap, and those beyond one.
    arrived: Vec<u8>,
    beyond: BTreeMap<usize, Vec<u8>>,
    finished: Option<usize>,
    /// Where segments began that were lost.
    lost: BTreeSet<u32>,
    /// Where its segments begin and end, where its FPDUs end, and how many octets of it have been read.
    edges: BTreeSet<usize>,
    boundaries: BTreeSet<usize>,
    decoded: usize,
    decoder: Receiver,
    reader: Reader,
    /// The longest ULPDU of the core that a whole segment has room for.
    mulpdu: usize,
    responses: usize,
    deliveries: usize,
    receives: u64,
    /// What the core's Terminate carries.
    pub terminate: Option<Vec<u8>>,
    pub messages_sent: usize,
}

/// RFC 5044 §4.5, clamped as A-04 says.
fn mulpdu(emss: usize, markers: bool) -> usize {
    let markers = if markers { 4 * emss.div_ceil(512) } else { 0 };
    (emss - (6 + markers + emss % 4)).max(128)
}

impl Conversation {
    pub(super) fn new(setup: Setup, mut rng: Rng) -> Self {
        let (subject, memory) = Subject::new(&setup, &mut rng);
        let Setup { markers_received, markers_sent, crc, .. } = setup;
        let inward = Stream { start: (PEER_ISS + 1).0, markers: markers_received, crc };
        let outward = Stream { start: subject.core_start.0, markers: markers_sent, crc };
        let mut sender = Sender::new(inward);
        sender.liberties = Liberties { pad: rng.u8(..), reserved: rng.u16(..), low_bits: rng.u8(..4) };
        let emss = usize::from(setup.mss).min(setup.mtu_octets - 40);
        Self {
            target: Target::new(memory, setup.takes_requests),
            setup,
            rng,
            subject,
            work: Work::default(),
            stream: Vec::new(),
            ends: Vec::new(),
            sender,
            receiver: Receiver::new(inward),
            valid_fpdus: 0,
            end: None,
            arrived: Vec::new(),
            beyond: BTreeMap::new(),
            finished: None,
            lost: BTreeSet::new(),
            edges: BTreeSet::new(),
            boundaries: BTreeSet::from([0]),
            decoded: 0,
            decoder: Receiver::new(outward),
            reader: Reader::new(),
            mulpdu: mulpdu(emss, markers_sent),
            responses: 0,
            deliveries: 0,
            receives: 0,
            terminate: None,
            messages_sent: 0,
        }
    }

    /// Posts receives until as many wait as there are buffers, or fewer.
    pub(super) fn post_receives(&mut self) {
        let most = self.rng.usize(..=SLOTS);
        while self.target.receives.len() + usize::from(self.target.open.is_some()) < most {
            let receive = super::plan::receive(&mut self.rng, self.receives);
            self.subject.post_receive(&receive);
            self.target.receives.push_back(receive);
            self.receives += 1;
        }
    }

    /// Posts a work request.
    pub(super) fn post(&mut self) {
        let source = self.target.memory.0.iter().find(|region| region.stag == SOURCE.0).unwrap();
        self.work.post(&mut self.rng, &self.subject, &source.octets);
    }

    /// Frames `ulpdu` at the end of what the peer sends.
    pub(super) fn frame(&mut self, ulpdu: &[u8]) {
        self.sender.frame(ulpdu, &mut self.stream);
        self.ends.push(self.stream.len());
    }

    /// The reference takes what the peer sends, from `position` on.
    pub(super) fn judge_from(&mut self, position: usize) {
        for octet in &self.stream[position..] {
            let ended = match self.receiver.take(*octet) {
                Ok(None) => continue,
                Ok(Some(fpdu)) => {
                    self.valid_fpdus += 1;
                    self.target.take(&fpdu.ulpdu).err()
                }
                Err(fault) => {
                    let code = Code { layer: 2, error_type: 0, number: fault as u8 };
                    Some(End::Error { code, terminate: terminate(code, &[]) })
                }
            };
            if ended.is_some() {
                self.end = ended;
                return;
            }
        }
    }

    /// The sequence number of the octet at `position` of what the peer sends.
    fn seq(position: usize) -> SeqNumber {
        PEER_ISS + 1 + position as u32
    }

    /// How many octets of the peer the core has accepted.
    pub(super) fn accepted(&self) -> usize {
        self.subject.next_expected().map_or(self.stream.len(), |next| (next - Self::seq(0)) as usize)
    }

    fn acknowledgement(&self) -> SeqNumber {
        let finished = self.finished == Some(self.arrived.len());
        self.subject.core_start + self.arrived.len() as u32 + u32::from(finished)
    }

    /// Puts `octets` on the wire, as those from `position` on.
    pub(super) fn inject(&mut self, position: usize, octets: &[u8], damaged: bool) {
        let header = self.subject.peer.header(Flags::ACK, Self::seq(position), self.acknowledgement());
        let mut frame = RawPeer::segment(&header, octets);
        if damaged {
            *frame.last_mut().unwrap() ^= 0x10;
        }
        self.subject.peer.inject(&frame);
    }

    /// Acknowledges what has come.
    pub(super) fn acknowledge(&mut self) {
        let position = self.accepted();
        let ack = self.acknowledgement();
        self.subject.peer.send(Flags::ACK, Self::seq(position), ack, &[]);
    }

    /// The peer closes its half of a connection that has failed: nothing is under way any more.
    pub(super) fn finish(&mut self) {
        let (position, ack) = (self.accepted(), self.acknowledgement());
        self.subject.peer.send(Flags::ACK | Flags::FIN, Self::seq(position), ack, &[]);
    }

    /// Lets the core work and reads what it sends. One of `losses` segments is lost, if that is not 0.
    pub(super) fn hear(&mut self, losses: u32) {
        self.subject.peer.settle();
        let sent: Vec<_> = self.subject.peer.sent.drain(..).collect();
        for segment in sent {
            assert!(!segment.header.flags.contains(Flags::RST), "reset");
            // Each place once: after three timeouts in a row TCP would suspect a smaller path MTU.
            let lost = losses > 0 && self.rng.u32(..losses) == 0 && self.lost.insert(segment.header.seq.0);
            if !lost {
                self.hear_segment(&segment);
            }
        }
        while let Some(entry) = self.beyond.first_entry() {
            if *entry.key() > self.arrived.len() {
                break;
            }
            let (from, octets) = entry.remove_entry();
            self.extend(from, &octets);
        }
        self.decode();
    }

    fn hear_segment(&mut self, segment: &Sent) {
        let from = segment.header.seq - self.subject.core_start;
        let octets = &segment.payload;
        if from < 0 {
            assert!(octets.is_empty(), "a keepalive");
            return;
        }
        let (from, to) = (from as usize, from as usize + octets.len());
        if segment.header.flags.contains(Flags::FIN) {
            self.finished = Some(to);
        }
        if octets.is_empty() {
            return;
        }
        assert!(octets.len() <= usize::from(self.setup.mss), "{} octets in a segment", octets.len());
        assert!(self.setup.initiator || self.valid_fpdus > 0, "rule 4: nothing before the first FPDU");
        self.edges.extend([from, to]);
        if from <= self.arrived.len() {
            self.extend(from, octets);
        } else {
            self.beyond.insert(from, octets.clone());
        }
    }

    /// Adds octets that may have come before: then they are the same.
    fn extend(&mut self, from: usize, octets: &[u8]) {
        let known = (self.arrived.len() - from).min(octets.len());
        assert!(self.arrived[from..from + known] == octets[..known], "the same octets again");
        self.arrived.extend(&octets[known..]);
    }

    fn decode(&mut self) {
        for position in self.decoded..self.arrived.len() {
            let fpdu = match self.decoder.take(self.arrived[position]) {
                Ok(Some(fpdu)) => fpdu,
                Ok(None) => continue,
                Err(fault) => panic!("an FPDU of the core: {fault:?}"),
            };
            let begin = *self.boundaries.last().unwrap();
            self.boundaries.insert(position + 1);
            let read = self.reader.take(&fpdu.ulpdu).unwrap_or_else(|rule| panic!("{rule}: {fpdu:02x?}"));
            self.check_size(begin, position + 1, fpdu.ulpdu.len(), read.last);
            if let Some(message) = read.message {
                self.judge_message(message);
            }
        }
        self.decoded = self.arrived.len();
    }

    /// RFC 5044 §4.5: a ULPDU is no longer than MULPDU, which may grow with the room that fewer Markers leave
    /// (MPA-4.5-03); those that do not end their message are as long as they can be (MPA-4.5-05).
    fn check_size(&self, begin: usize, end: usize, ulpdu_octets: usize, last: bool) {
        let fits = end - begin <= usize::from(self.setup.mss) || ulpdu_octets <= 128;
        assert!(fits, "an FPDU of {} octets", end - begin);
        if !self.setup.packing && !last {
            assert!(ulpdu_octets + 8 > self.mulpdu, "{ulpdu_octets} octets of {}", self.mulpdu);
        }
    }

    fn judge_message(&mut self, message: Message) {
        self.messages_sent += 1;
        match message.opcode {
            opcode::READ_RESPONSE | opcode::ATOMIC_RESPONSE => {
                let due = self.target.responses.get(self.responses);
                assert_eq!(due, Some(&message), "response {}", self.responses);
                self.responses += 1;
            }
            opcode::TERMINATE => self.terminate = Some(message.octets),
            _ => self.work.sent(&message, &mut self.target),
        }
    }

    /// Brings the core to rest: it has sent all that it may, and all of that is acknowledged. Loses some of
    /// it first.
    pub(super) fn rest(&mut self) {
        for round in 0..200 {
            let (before, gaps) = (self.arrived.len(), self.beyond.len());
            self.hear(if round < 4 { 12 } else { 0 });
            self.acknowledge();
            if self.arrived.len() > before || self.beyond.len() > gaps {
                continue;
            }
            if self.is_quiet() {
                self.hear(0);
                self.check_edges();
                return;
            }
            let deadline = self.subject.peer.core.next_deadline();
            self.subject.peer.now = self.subject.peer.now.max(deadline);
        }
        panic!("the core does not come to rest: {:?}", self.work);
    }

    /// Returns true if the core owes nothing.
    fn is_quiet(&self) -> bool {
        let may_send = self.setup.initiator || self.valid_fpdus > 0;
        let finished = self.finished == Some(self.arrived.len());
        match &self.end {
            _ if !self.beyond.is_empty() => false,
            None if !may_send => true,
            None => {
                let answered = self.responses == self.target.responses.len();
                answered && self.work.all_sent(&self.target) && !self.reader.inside()
            }
            Some(End::Error { .. }) if may_send => self.terminate.is_some() && finished,
            Some(_) => finished,
        }
    }

    /// RFC 5044 §5.1: segments begin and end with FPDUs; without packing, each is one.
    fn check_edges(&mut self) {
        if mulpdu(usize::from(self.setup.mss), self.setup.markers_sent) > 128 {
            let torn = self.edges.iter().find(|edge| !self.boundaries.contains(edge));
            assert_eq!(torn, None, "a segment's edge inside an FPDU");
        }
        if !self.setup.packing {
            assert!(self.boundaries.iter().all(|end| *end == 0 || self.edges.contains(end)), "packed");
        }
    }

    /// Takes completions: those of receives and those of sends, each in order.
    pub(super) fn completions(&self) -> [Vec<Completion>; 2] {
        let all = self.subject.poll_completions();
        all.into_iter().partition(|completion| completion.kind == CompletionKind::Receive).into()
    }

    /// Compares completions and memory with those of the reference, at rest.
    pub(super) fn compare(&mut self) {
        let [receives, sends] = self.completions();
        self.compare_deliveries(&receives);
        self.work.complete(&sends, &self.target);
        assert_eq!(self.subject.qp.error(), None);
        let memory = self.subject.memory();
        for (region, octets) in self.target.memory.0.iter().zip(&memory) {
            let differs = region.octets.iter().zip(octets).position(|(expected, octet)| expected != octet);
            assert_eq!(differs, None, "STag {:#x}, from that octet on", region.stag);
        }
    }

    /// Compares the messages that were received with those of the reference; returns the other completions.
    pub(super) fn compare_deliveries<'c>(&mut self, receives: &'c [Completion]) -> &'c [Completion] {
        let due = &self.target.deliveries[self.deliveries..];
        assert!(receives.len() >= due.len(), "{due:?} are due, {receives:?} came");
        let (done, rest) = receives.split_at(due.len());
        for (completion, due) in done.iter().zip(due) {
            assert_eq!((completion.id, completion.status), (due.id, Status::Success));
            assert_eq!(completion.byte_len as usize, due.octets);
            assert_eq!(completion.immediate, due.immediate);
            assert_eq!(completion.invalidated.map(|stag| stag.0), due.invalidated);
            assert_eq!(completion.solicited, due.solicited);
        }
        self.deliveries = self.target.deliveries.len();
        rest
    }
}
