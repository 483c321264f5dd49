//! Random segments in stream order, against a receiver that is written from the documents only: one check
//! after the other, in their order, on memory that is a vector.

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::ddp::DdpError;
use crate::limits;
use crate::memory::{Access, Grant, ProtectionDomainId, Region};
use crate::mpa::Framing;
use crate::mpa::contiguous::{InFrame, Marked, Unmarked};
use crate::mpa::enhanced::{ReadDepths, ReadyToReceive};
use crate::mpa::fpdu;
use crate::mpa::receiver::{FpduReceiver, Octets, Ulpdu};
use crate::qp::doorbells::Doorbells;
use crate::qp::reads::OutboundRequest;
use crate::qp::shared::{CompletionRing, CompletionRings, QpState, QueueDepths};
use crate::qp::shared_receive_queue::{SharedReceiveQueue, SrqNumber};
use crate::qp::work::{Completion, CompletionKind, QpNumber, Slice, SliceList};
use crate::rdmap::RdmapError;
use crate::wire::ddp::{Tagged, Untagged};
use fastrand::Rng;

const PD: ProtectionDomainId = ProtectionDomainId(1);
const QP: QpNumber = QpNumber(7);
/// For this end and its peer to write; for the peer to read; for the peer of this queue pair only, which may
/// invalidate it; and one that is not registered.
const BUFFERS: STag = STag::new(1, 1);
const READ_ONLY: STag = STag::new(2, 1);
const OWN: STag = STag::new(3, 1);
const MISSING: STag = STag::new(1, 2);
const OCTETS: usize = 256;
const DEPTH: usize = 4;

/// How the octets of a ULPDU lie.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// In a frame, and no Marker falls into it.
    Contiguous,
    /// In a frame, cut by Markers; the FPDU is at this position.
    Marked(u64),
    /// In frames of so many octets.
    Split(usize),
}

/// Octets in slices of the same length.
struct Slices<'a>(&'a [u8], usize);

impl Octets for Slices<'_> {
    fn for_each_slice(&self, start: usize, len: usize, f: impl FnMut(&[u8])) {
        self.0[start..start + len].chunks(self.1).for_each(f);
    }

    fn available(&self) -> usize {
        self.0.len()
    }
}

/// The receiver, and all that it works on.
struct World {
    shared: SharedQp,
    shared_receives: Option<Arc<SharedReceiveQueue>>,
    completions: Arc<CompletionRing>,
    stags: StagTable,
    region: Region,
    reads: Reads,
    receiver: Receiver,
}

impl World {
    fn new(is_shared: bool, completion_entries: usize) -> Self {
        Self::of_depth(DEPTH, is_shared, completion_entries)
    }

    /// With `depth` receives in each of its queues.
    fn of_depth(depth: usize, is_shared: bool, completion_entries: usize) -> Self {
        let completions = Arc::new(CompletionRing::new(completion_entries));
        let rings = CompletionRings::shared(completions.clone());
        let depths = QueueDepths { send: 1, receive: depth };
        let mut shared = SharedQp::new(QP, PD, depths, rings, Arc::new(Doorbells::new(8)));
        let shared_receives = is_shared.then(|| {
            let queue = SharedReceiveQueue::new(SrqNumber(1), PD, depth, None);
            Arc::new(queue)
        });
        if let Some(queue) = &shared_receives {
            shared = shared.with_shared_receives(queue.clone());
        }
        shared.set_state(QpState::ReadyToSend);
        let mut stags = StagTable::with_slots(4);
        let region = Region::heap(OCTETS).expect("memory");
        let grant = |access| Grant::new(region.clone(), PD, 0, access);
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        stags.insert(BUFFERS, grant(all)).expect("a slot");
        stags.insert(READ_ONLY, grant(Access::REMOTE_READ)).expect("a slot");
        stags.insert(OWN, Grant { stream: Some(QP.0), ..grant(all) }).expect("a slot");
        let mut reads = Reads::default();
        reads.begin(ReadDepths { ird: 1, ord: 2 }, ReadyToReceive::None);
        let receiver = Receiver::new();
        Self { shared, shared_receives, completions, stags, region, reads, receiver }
    }

    fn post(&self, request: ReceiveRequest) -> bool {
        match &self.shared_receives {
            Some(queue) => queue.post(&[request]).is_ok(),
            None => self.shared.post_receive(request).is_ok(),
        }
    }

    /// Places a ULPDU that lies as `layout` says.
    fn place(&mut self, ulpdu: &[u8], layout: Layout, is_late: bool) -> Result<(usize, bool), Fault> {
        let Self { shared, stags, reads, receiver, .. } = self;
        let mut context = ReceiveContext { shared, stags, reads, acknowledged: SeqNumber(0) };
        let (markers, position) = match layout {
            Layout::Marked(position) => (true, position),
            Layout::Contiguous | Layout::Split(_) => (false, 0),
        };
        let framing = Framing { markers, crc: true };
        let mut octets = vec![0; fpdu::wire_len(position, ulpdu.len(), markers)];
        assert!(fpdu::encode(&mut octets, position, framing, &[], ulpdu.len(), |at, out| {
            out.copy_from_slice(&ulpdu[at..at + out.len()]);
            true
        }));
        let fpdus = FpduReceiver::at(position, framing);
        if let Layout::Split(len) = layout {
            let octets = Slices(&octets, len);
            let located = fpdus.next(&octets).expect("valid").expect("complete");
            return placed(receiver, &mut context, &located.ulpdu(&octets), is_late);
        }
        if markers {
            let fpdu = Marked::next(&fpdus, &octets).expect("valid");
            return placed(receiver, &mut context, &fpdu.ulpdu, is_late);
        }
        placed(receiver, &mut context, &Unmarked::next(&fpdus, &octets).expect("valid").ulpdu, is_late)
    }

    fn octets(&self) -> Vec<u8> {
        let mut octets = vec![0; OCTETS];
        assert!(self.region.read(0, &mut octets));
        octets
    }

    fn completed(&self) -> Vec<Completion> {
        std::iter::from_fn(|| self.completions.poll()).collect()
    }
}

fn placed<U: Ulpdu>(
    receiver: &mut Receiver,
    context: &mut ReceiveContext<'_>,
    ulpdu: &U,
    is_late: bool,
) -> Result<(usize, bool), Fault> {
    // As if its receive had been posted after it was refused.
    let is_late = is_late && ulpdu.first_octets().is_some_and(|octets: [u8; 1]| octets[0] & 0x80 == 0);
    let placed = if is_late { None } else { receiver.place(context, ulpdu) };
    let placed = match placed {
        Some(placed) => placed,
        None => match receiver.on_rare(context, ulpdu)? {
            Received::First(placed) if is_late => placed,
            received => panic!("{received:?} is no payload"),
        },
    };
    Ok((placed.octets, placed.answers_read))
}

/// What the receiver is to do.
struct Model {
    octets: Vec<u8>,
    posted: VecDeque<ReceiveRequest>,
    /// Of the message that has begun, and the octets that are placed.
    message: Option<(ReceiveRequest, u32)>,
    msn: u32,
    /// Reads of this end: where the next octet goes, and how many are left.
    reads: VecDeque<(u64, u32)>,
    own_is_valid: bool,
    completed: Vec<Completion>,
}

/// The octets that are placed, and whether they complete a Read.
type Verdict = Result<(usize, bool), StreamError>;

impl Model {
    fn new() -> Self {
        Self {
            octets: vec![0; OCTETS],
            posted: VecDeque::new(),
            message: None,
            msn: 1,
            reads: VecDeque::new(),
            own_is_valid: true,
            completed: Vec::new(),
        }
    }

    fn take(&mut self, ulpdu: &[u8]) -> Verdict {
        let number = |at: usize| u32::from_be_bytes(ulpdu[at..at + 4].try_into().expect("four"));
        let is_tagged = ulpdu.first().is_some_and(|control| control & 0x80 != 0);
        let header_octets = if is_tagged { 14 } else { 18 };
        if ulpdu.len() < header_octets {
            return Err(StreamError::Ddp(DdpError::LocalCatastrophic));
        }
        let (last, ddp_version) = (ulpdu[0] & 0x40 != 0, ulpdu[0] & 3);
        let (rdmap_version, opcode) = (ulpdu[1] >> 6, ulpdu[1] & 15);
        let payload = &ulpdu[header_octets..];
        if is_tagged {
            let to = u64::from_be_bytes(ulpdu[6..14].try_into().expect("eight"));
            return self.take_tagged((ddp_version, rdmap_version, opcode), last, (number(2), to), payload);
        }
        let (queue, msn, mo) = (number(6), number(10), number(14));
        if ddp_version != 1 {
            return Err(StreamError::Ddp(DdpError::UntaggedVersion));
        }
        if queue > 3 {
            return Err(StreamError::Ddp(DdpError::InvalidQueue));
        }
        assert_eq!(queue, 0, "the other queues are tested elsewhere");
        self.dequeue_send((rdmap_version, opcode), last, (msn, mo), number(2), payload)
    }

    /// RFC 5041 §7.1 for the Tagged Buffer Model, then RFC 5040 §7.2.
    // Requirements: DDP-7.1-10 to DDP-7.1-15
    fn take_tagged(
        &mut self,
        (ddp_version, rdmap_version, opcode): (u8, u8, u8),
        last: bool,
        (stag, to): (u32, u64),
        payload: &[u8],
    ) -> Verdict {
        if ddp_version != 1 {
            return Err(StreamError::Ddp(DdpError::TaggedVersion));
        }
        let is_response = opcode == 2;
        let mut has_right = true;
        if !payload.is_empty() {
            let is_registered =
                [BUFFERS, READ_ONLY].contains(&STag(stag)) || self.own_is_valid && OWN.0 == stag;
            if !is_registered {
                return Err(StreamError::Ddp(DdpError::InvalidStag));
            }
            match to.checked_add(payload.len() as u64) {
                Some(end) if end <= OCTETS as u64 => {}
                Some(_) => return Err(StreamError::Ddp(DdpError::BaseOrBounds)),
                None => return Err(StreamError::Ddp(DdpError::ToWrap)),
            }
            has_right = READ_ONLY.0 != stag;
        }
        if rdmap_version != 1 {
            return Err(StreamError::Rdmap(RdmapError::InvalidVersion));
        }
        if ![0, 2].contains(&opcode) {
            return Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode));
        }
        if is_response {
            let Some((next, left)) = self.reads.front_mut() else {
                return Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode));
            };
            let octets = payload.len() as u32;
            let is_next = octets == 0 || stag == BUFFERS.0 && to == *next;
            if !is_next || octets > *left || last != (octets == *left) {
                return Err(StreamError::Rdmap(RdmapError::UnspecifiedOperation));
            }
            (*next, *left) = (*next + u64::from(octets), *left - octets);
        }
        if !has_right {
            return Err(StreamError::Ddp(DdpError::AccessRights));
        }
        let octets = payload.len();
        if octets > 0 {
            self.octets[to as usize..][..octets].copy_from_slice(payload);
        }
        if is_response && last {
            self.reads.pop_front();
            return Ok((octets, true));
        }
        Ok((octets, false))
    }

    /// RFC 5041 §7.1 for the Untagged Buffer Model, then RFC 5040 §7.2, and RFC 7306 §6 for Immediate Data.
    // Requirements: DDP-7.1-02 to DDP-7.1-05
    fn dequeue_send(
        &mut self,
        (rdmap_version, opcode): (u8, u8),
        last: bool,
        (msn, mo): (u32, u32),
        invalidated: u32,
        payload: &[u8],
    ) -> Verdict {
        let (ddp, rdmap) = (|error| Err(StreamError::Ddp(error)), |error| Err(StreamError::Rdmap(error)));
        if msn != self.msn {
            return ddp(DdpError::MsnRange);
        }
        let is_immediate = [8, 9].contains(&opcode);
        if is_immediate && self.message.is_some() {
            return ddp(DdpError::InvalidOffset);
        }
        let begun = self.message.or_else(|| self.posted.front().map(|request| (*request, 0)));
        let Some((request, placed)) = begun else { return ddp(DdpError::NoBuffer) };
        let room = request.local.byte_len();
        if mo != placed || !is_immediate && u64::from(mo) > room {
            return ddp(DdpError::InvalidOffset);
        }
        let octets = payload.len();
        let ranges: Vec<usize> = request
            .local
            .as_slice()
            .iter()
            .filter(|_| !is_immediate)
            .flat_map(|slice| (slice.to as usize..).take(slice.len as usize))
            .skip(placed as usize)
            .take(octets)
            .collect();
        if !is_immediate {
            if u64::from(mo) + octets as u64 > room {
                return ddp(DdpError::TooLong);
            }
            // The ranges that the payload goes to.
            for (_, part) in request.local.pieces(mo.into(), octets) {
                if part.stag != BUFFERS || part.to + u64::from(part.len) > OCTETS as u64 {
                    return ddp(DdpError::LocalCatastrophic);
                }
            }
        }
        if rdmap_version != 1 {
            return rdmap(RdmapError::InvalidVersion);
        }
        if is_immediate && (octets != 8 || !last) {
            return rdmap(RdmapError::UnspecifiedOperation);
        }
        if !is_immediate && !(3..=6).contains(&opcode) {
            return rdmap(RdmapError::UnexpectedOpcode);
        }
        if self.message.is_none() {
            self.posted.pop_front();
        }
        for (at, octet) in ranges.into_iter().zip(payload) {
            self.octets[at] = *octet;
        }
        self.message = Some((request, placed));
        let invalidated = ([4, 6].contains(&opcode) && last).then_some(STag(invalidated));
        if let Some(stag) = invalidated {
            if stag != OWN || !self.own_is_valid {
                return rdmap(RdmapError::CannotInvalidate);
            }
            self.own_is_valid = false;
        }
        if !last {
            self.message = Some((request, placed + octets as u32));
            return Ok((octets, false));
        }
        self.message = None;
        self.msn += 1;
        let byte_len = if is_immediate { 0 } else { placed + octets as u32 };
        let success = Completion::new(QP, request.id, CompletionKind::Receive, Status::Success, byte_len);
        let immediate = is_immediate.then(|| u64::from_be_bytes(payload.try_into().expect("Immediate Data")));
        let solicited = [5, 6, 9].contains(&opcode);
        self.completed.push(Completion { immediate, invalidated, solicited, ..success });
        Ok((octets, false))
    }
}

/// A message ends at 2^32 - 1 octets even in a longer receive: the octet after is refused, wherever the
/// octets of its segment lie, and nothing of that segment is placed.
// Requirements: DDP-5.2-02, DDP-7.1-04
#[test]
fn no_message_outgrows_its_offsets() {
    let slices =
        [(BUFFERS, OCTETS as u32), (MISSING, u32::MAX)].map(|(stag, len)| Slice { stag, to: 0, len });
    for layout in [Layout::Contiguous, Layout::Marked(500), Layout::Split(7)] {
        for (octets, expected) in [(4, Ok((4, false))), (5, Err(StreamError::Ddp(DdpError::TooLong)))] {
            let mut world = World::new(false, 8);
            let mo = u32::MAX - 4;
            let message = &mut world.receiver.message;
            message.request = ReceiveRequest::new(7, SliceList::try_from(&slices[..]).expect("two fit"));
            (message.begun, message.placed) = (true, mo);
            let header =
                Untagged { last: false, version: 1, rsvd_ulp: [0x43, 0, 0, 0, 0], queue: 0, msn: 1, mo };
            let mut ulpdu = vec![0; Untagged::LEN];
            header.emit(&mut ulpdu);
            ulpdu.resize(Untagged::LEN + octets, 0xa5);
            let placed = world.place(&ulpdu, layout, false).map_err(|fault| fault.error);
            assert_eq!(placed, expected, "{octets} octets, {layout:?}");
            let written = if expected.is_ok() { octets } else { 0 };
            let memory = world.octets();
            let (placed, others) = memory.split_at(written);
            assert!(placed.iter().all(|octet| *octet == 0xa5) && others.iter().all(|octet| *octet == 0));
        }
    }
}

/// Returns a receive of none to four ranges, some of which may not be written.
fn receive(rng: &mut Rng, id: u64) -> ReceiveRequest {
    let mut slices = [Slice::default(); 4];
    let count = [1, 1, 1, 1, 2, 2, 2, 3, 4][rng.usize(..9)] * usize::from(rng.u8(..60) > 0);
    for slice in &mut slices[..count] {
        let to = rng.u32(..200);
        *slice = Slice { stag: BUFFERS, to: to.into(), len: rng.u32(30..=OCTETS as u32 - to) };
        match rng.u8(..100) {
            0 => slice.stag = MISSING,
            1 => slice.stag = READ_ONLY,
            2 => slice.len = OCTETS as u32 + 1,
            _ => {}
        }
    }
    ReceiveRequest::new(id, SliceList::try_from(&slices[..count]).expect("four fit"))
}

/// Returns the segment of a Write, of the Read Response that is next, or of the next message for a receive,
/// which may differ from a valid one in a field.
fn segment(rng: &mut Rng, model: &Model) -> Vec<u8> {
    let mut ulpdu = vec![0; 18];
    let payload_octets = match rng.u8(..12) {
        0 => 0,
        1 => 8,
        _ => rng.usize(1..40),
    };
    let payload: Vec<u8> = (0..payload_octets).map(|_| rng.u8(1..)).collect();
    let read = model.reads.front().filter(|_| rng.u8(..4) == 0);
    if read.is_some() || rng.u8(..4) == 0 {
        let mut header = Tagged {
            last: rng.bool(),
            version: 1,
            rsvd_ulp: 0x40,
            stag: if model.own_is_valid && rng.bool() { OWN } else { BUFFERS },
            to: rng.u64(..200),
        };
        let mut octets = payload_octets;
        if let Some(&(to, left)) = read {
            octets = octets.min(left as usize);
            header = Tagged { last: octets == left as usize, rsvd_ulp: 0x42, stag: BUFFERS, to, ..header };
        }
        match rng.u8(..80) {
            0 => header.version = 2,
            1 => header.rsvd_ulp ^= 0x80,
            2 => header.rsvd_ulp = 0x40 | rng.u8(..16),
            3 => header.stag = [READ_ONLY, MISSING, STag(0), OWN][rng.usize(..4)],
            4 => header.to = [240, u64::MAX - 5, u64::MAX][rng.usize(..3)],
            5 => header.last ^= true,
            _ => {}
        }
        let header_octets = header.emit(&mut ulpdu);
        ulpdu.truncate(header_octets);
        ulpdu.extend(&payload[..octets]);
    } else {
        let placed = model.message.map_or(0, |(_, placed)| placed);
        // An STag is invalidated once, and Immediate Data begins a message.
        let opcode = match rng.u8(..9) {
            0..2 if model.own_is_valid || rng.u8(..20) == 0 => [4, 6][rng.usize(..2)],
            2..4 if placed == 0 || rng.u8(..20) == 0 => [8, 9][rng.usize(..2)],
            4 => 5,
            _ => 3,
        };
        let mut header = Untagged {
            last: opcode >= 8 || rng.u8(..3) > 0,
            version: 1,
            rsvd_ulp: [0x40 | opcode, 0, 0, 0, 0],
            queue: 0,
            msn: model.msn,
            mo: placed,
        };
        header.rsvd_ulp[1..].copy_from_slice(&if rng.u8(..20) > 0 { OWN.0 } else { BUFFERS.0 }.to_be_bytes());
        match rng.u8(..80) {
            0 => header.version = 0,
            1 => header.rsvd_ulp[0] ^= 0xc0,
            2 => header.rsvd_ulp[0] = 0x40 | rng.u8(..16),
            3 => header.queue = rng.u32(4..6),
            4 => header.msn = rng.u32(..4),
            5 => header.mo = [placed + 1, u32::MAX][rng.usize(..2)],
            6 => header.last ^= true,
            _ => {}
        }
        header.emit(&mut ulpdu);
        ulpdu.extend(if opcode >= 8 && rng.u8(..10) > 0 { &[9, 8, 7, 6, 5, 4, 3, 2][..] } else { &payload });
    }
    if rng.u8(..100) == 0 {
        ulpdu.truncate(rng.usize(..20));
    }
    ulpdu
}

/// Every segment does what the model says, wherever its octets and its receive lie. A fault is the first of
/// the documents, and nothing of the segment is delivered then.
// Requirements: RDMAP-7.2-01 to RDMAP-7.2-04
#[test]
fn every_segment_does_what_the_documents_say() {
    let (mut placed, mut faults) = (0, std::collections::BTreeMap::<String, u32>::new());
    for seed in 0..2500 {
        let mut rng = Rng::with_seed(seed);
        let (mut world, mut model) = (World::new(rng.bool(), 64), Model::new());
        for id in 0..60 {
            while rng.u8(..5) > 0 {
                let request = receive(&mut rng, id);
                if world.post(request) {
                    model.posted.push_back(request);
                }
            }
            if model.reads.is_empty() && rng.u8(..8) == 0 {
                let sink = Slice { stag: BUFFERS, to: rng.u64(..100), len: rng.u32(..120) };
                world.reads.outbound.push(OutboundRequest::Read { sink, delivered: 0 });
                model.reads.push_back((sink.to, sink.len));
            }
            let ulpdu = segment(&mut rng, &model);
            let layout = match rng.u8(..3) {
                0 => Layout::Contiguous,
                1 => Layout::Marked(rng.u64(..128) * 4),
                _ => Layout::Split(rng.usize(1..40)),
            };
            let what = format!("seed {seed}: {layout:?} {ulpdu:x?}");
            let expected = model.take(&ulpdu);
            let found = world.place(&ulpdu, layout, rng.u8(..4) == 0);
            assert_eq!(found.map_err(|fault| fault.error), expected, "{what}");
            assert_eq!(world.octets(), model.octets, "{what}");
            assert_eq!(world.completed(), std::mem::take(&mut model.completed), "{what}");
            if let Err(fault) = found {
                *faults.entry(format!("{:?}", fault.error)).or_default() += 1;
                let header = &ulpdu[..usize::from(fault.header_octets)];
                assert_eq!(&fault.header[..header.len()], header, "{what}");
                assert_eq!(usize::from(fault.segment_octets), ulpdu.len(), "{what}");
                end_after(&mut world, &model, &fault, &what);
                break;
            }
            placed += 1;
        }
    }
    assert!(placed > 15_000, "{placed} segments: {faults:#?}");
    assert!(faults.len() == 16 && faults.values().all(|&count| count >= 5), "{faults:#?}");
}

/// Flushes the receives of a stream that has failed: the message that has begun fails, or the receive that
/// could not be written does; those after it are flushed, in the order of posting. A shared receive queue
/// keeps what is not dequeued.
fn end_after(world: &mut World, model: &Model, fault: &Fault, what: &str) {
    world.receiver.flush(&world.shared, &mut OrderedPool::new(1), Some(fault.error));
    let completed = world.completed();
    let begun = model.message.map(|(request, _)| request.id);
    let all: Vec<u64> = begun.into_iter().chain(model.posted.iter().map(|request| request.id)).collect();
    let ids: Vec<u64> = completed.iter().map(|completion| completion.id).collect();
    match &world.shared_receives {
        None => assert_eq!(ids, all, "{what}"),
        Some(queue) => {
            assert_eq!(ids, all[..ids.len()], "{what}");
            assert_eq!(ids.len() + queue.len(), all.len(), "{what}");
            assert!(ids.len() <= 1, "{what}");
        }
    }
    // A ULPDU too short for its header is a local catastrophic error, too.
    let is_bad_buffer =
        fault.error == StreamError::Ddp(DdpError::LocalCatastrophic) && fault.header_octets > 0;
    let first = match begun {
        _ if is_bad_buffer => Status::LocalProtection,
        Some(_) => Status::Failed(fault.error),
        None => Status::Flushed,
    };
    assert!(completed.first().is_none_or(|completion| completion.status == first), "{what}");
    assert!(!is_bad_buffer || !completed.is_empty(), "{what}");
    assert!(completed.iter().skip(1).all(|completion| completion.status == Status::Flushed), "{what}");
    assert_eq!(world.shared.receives_outstanding(), 0, "{what}");
}

/// Without an entry for its completion, a message fails before anything of it is placed, and its receive
/// stays for others.
// Requirements: RDMAP-8.1.1-05
#[test]
fn a_message_without_an_entry_for_its_completion_changes_nothing() {
    for layout in [Layout::Contiguous, Layout::Split(7)] {
        let mut world = World::new(true, 1);
        let range = Slice { stag: BUFFERS, to: 0, len: 64 };
        assert!(world.post(ReceiveRequest::new(1, range)) && world.post(ReceiveRequest::new(2, range)));
        let send = |msn| {
            let mut ulpdu = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0];
            ulpdu.extend([msn; 40]);
            ulpdu
        };
        assert_eq!(world.place(&send(1), layout, false), Ok((40, false)));
        let before = world.octets();
        let refused = world.place(&send(2), layout, false).map_err(|fault| fault.error);
        assert_eq!(refused, Err(StreamError::CompletionQueueOverflow));
        assert_eq!((world.octets(), world.completions.has_overflowed()), (before, true));
        let queue = world.shared_receives.clone().expect("it is shared");
        assert_eq!((queue.len(), world.shared.receives_outstanding()), (1, 0));
    }
}

/// A segment far beyond a gap moves no receive of a shared receive queue if its header is not valid, and a
/// bounded number if it is: one frame does not take what other queue pairs need, nor the time of their core.
#[test]
fn a_segment_beyond_a_gap_moves_few_receives() {
    const DEPTH: usize = 4096;
    let mut world = World::of_depth(DEPTH, true, DEPTH);
    let range = Slice { stag: BUFFERS, to: 0, len: 64 };
    for id in 0..DEPTH as u64 {
        assert!(world.post(ReceiveRequest::new(id, range)));
    }
    let World { shared, shared_receives, stags, reads, receiver, .. } = &mut world;
    let queue = shared_receives.clone().expect("it is shared");
    let mut moved_by = |version, control, ahead| {
        let (rsvd_ulp, msn) = ([control, 0, 0, 0, 0], receiver.expected_msn + ahead);
        let header = Untagged { last: true, version, rsvd_ulp, queue: SEND_QUEUE, msn, mo: 0 };
        let mut ulpdu = [0; Untagged::LEN + 4];
        header.emit(&mut ulpdu);
        let before = queue.dequeued();
        let placed = receiver.check_out_of_order(shared, stags, &reads.outbound, &&ulpdu[..]);
        (queue.dequeued() - before, placed)
    };
    // A wrong version of DDP, one of RDMAP, and the opcodes of a Write and of Immediate Data.
    for (version, control) in [(0, 0x43), (1, 0x83), (1, 0x40), (1, 0x48)] {
        assert_eq!(moved_by(version, control, 4000), (0, None), "{version}, {control:#x}");
    }
    // The first segment of a message waits where more receives are missing than it may move. Each moves some,
    // so that later ones find theirs.
    let most = limits::RECEIVES_MOVED_PER_SEGMENT as u64;
    assert_eq!(moved_by(1, 0x43, 4000), (most, None));
    assert_eq!(moved_by(1, 0x43, 2 * most as u32 - 1), (most, Some(OutOfOrder::AwaitsDelivery)));
    assert_eq!(moved_by(1, 0x43, 1), (0, Some(OutOfOrder::AwaitsDelivery)));
    assert_eq!(moved_by(1, 0x43, 2 * most as u32), (1, Some(OutOfOrder::AwaitsDelivery)));
}
