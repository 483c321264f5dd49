//! The receiving side of DDP and RDMAP: what each ULPDU changes in memory, completes, causes to be answered,
//! or is refused for. ULPDUs come in the order of the stream.
//!
//! The order of the checks is that of A-30: version of DDP; the STag with its range, or queue, MSN, buffer,
//! offset and length; version and opcode of RDMAP; what the opcode asks for; the right to the memory.

use std::collections::VecDeque;

use super::fields::{AtomicRequest, AtomicResponse, Model, ReadRequest, Segment, opcode};
use super::memory::{Memory, Place, Refusal, Wish};
use super::reader::Message;

/// What a Terminate says of an error (RFC 5040 figures 8 and 9, RFC 5041 §7.2, RFC 5044 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    pub layer: u8,
    pub error_type: u8,
    pub number: u8,
}

const fn rdmap(error_type: u8, number: u8) -> Code {
    Code { layer: 0, error_type, number }
}

const fn ddp(error_type: u8, number: u8) -> Code {
    Code { layer: 1, error_type, number }
}

const LOCAL_CATASTROPHIC: Code = ddp(0, 0x00);
const DDP_INVALID_STAG: Code = ddp(1, 0x00);
const DDP_BOUNDS: Code = ddp(1, 0x01);
const DDP_NOT_ASSOCIATED: Code = ddp(1, 0x02);
const DDP_WRAP: Code = ddp(1, 0x03);
const TAGGED_VERSION: Code = ddp(1, 0x04);
const INVALID_QUEUE: Code = ddp(2, 0x01);
const NO_BUFFER: Code = ddp(2, 0x02);
const MSN_RANGE: Code = ddp(2, 0x03);
const INVALID_OFFSET: Code = ddp(2, 0x04);
const TOO_LONG: Code = ddp(2, 0x05);
const UNTAGGED_VERSION: Code = ddp(2, 0x06);
const INVALID_STAG: Code = rdmap(1, 0x00);
const BOUNDS: Code = rdmap(1, 0x01);
const ACCESS_RIGHTS: Code = rdmap(1, 0x02);
const NOT_ASSOCIATED: Code = rdmap(1, 0x03);
const WRAP: Code = rdmap(1, 0x04);
const CANNOT_INVALIDATE: Code = rdmap(1, 0x09);
const RDMAP_VERSION: Code = rdmap(2, 0x05);
const UNEXPECTED_OPCODE: Code = rdmap(2, 0x06);
const CATASTROPHIC_STREAM: Code = rdmap(2, 0x07);
const UNSPECIFIED_OPERATION: Code = rdmap(2, 0xff);

/// The end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// This end found an error, and says so in a Terminate with this payload.
    Error { code: Code, terminate: Vec<u8> },
    /// The peer has sent a Terminate.
    Terminated(Code),
}

/// A buffer of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receive {
    pub id: u64,
    /// STag, Tagged Offset and octets of each range.
    pub ranges: Vec<Range>,
}

/// A range of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub stag: u32,
    pub to: u64,
    pub octets: usize,
}

impl Receive {
    pub fn octets(&self) -> usize {
        self.ranges.iter().map(|range| range.octets).sum()
    }

    /// The places of its octets, from `offset` on.
    pub fn octets_from(&self, memory: &Memory, offset: usize) -> impl Iterator<Item = Place> {
        let place = |range: &Range, n: usize| {
            let place = memory.check(range.stag, range.to + n as u64, 1, Wish::LocalWrite);
            place.expect("a buffer to write to")
        };
        let ranges = self.ranges.iter();
        ranges.flat_map(move |range| (0..range.octets).map(move |n| place(range, n))).skip(offset)
    }
}

/// A message that has arrived for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub id: u64,
    pub octets: usize,
    pub immediate: Option<u64>,
    pub invalidated: Option<u32>,
    pub solicited: bool,
}

/// A request of this end that has no response yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outstanding {
    Read {
        sink: Range,
        /// Octets that have come.
        delivered: usize,
    },
    Atomic {
        identifier: u32,
        target: Range,
    },
}

/// The receiving side of a stream.
#[derive(Clone, Debug)]
pub struct Target {
    pub memory: Memory,
    /// Buffers without a message, oldest first.
    pub receives: VecDeque<Receive>,
    /// The message on queue 0 that has begun, its buffer, and the octets that are in it.
    pub open: Option<(Receive, usize)>,
    /// The MSN that each queue expects.
    msn: [u32; 4],
    /// Whether the peer may ask anything: IRD is not zero.
    pub takes_requests: bool,
    /// Requests of this end, oldest first.
    pub outstanding: VecDeque<Outstanding>,
    /// How many of them have been answered.
    pub answered: usize,
    pub deliveries: Vec<Delivery>,
    /// The responses that this end owes, in the order of the requests.
    pub responses: Vec<Message>,
}

/// The payload of a Terminate. It names a segment by its length and its header, unless the error is of the
/// lower layer or a local catastrophe (RFC 5040 figure 10); A-18: what is not there is left out.
pub fn terminate(code: Code, ulpdu: &[u8]) -> Vec<u8> {
    let Code { layer, error_type, number } = code;
    let mut payload = vec![layer << 4 | error_type, number, 0, 0];
    let header_octets = if ulpdu.first().is_some_and(|control| control & 0x80 != 0) { 14 } else { 18 };
    if layer == 2 || error_type == 0 || ulpdu.len() < header_octets {
        return payload;
    }
    payload[2] |= 0xc0;
    payload.extend((ulpdu.len() as u16).to_be_bytes());
    payload.extend(&ulpdu[..header_octets]);
    // RDMAP names the whole header of a Read Request, whatever is wrong with it.
    let request = header_octets == 18 && ulpdu[1] & 0x0f == opcode::READ_REQUEST && ulpdu[9] == 1;
    if layer == 0 && request && ulpdu.len() >= 18 + ReadRequest::OCTETS {
        payload[2] |= 0x20;
        payload.extend(&ulpdu[18..18 + ReadRequest::OCTETS]);
    }
    payload
}

/// The error of DDP for a Tagged segment that is refused its memory; the right is checked later.
fn ddp_error(refusal: Refusal) -> Code {
    match refusal {
        // a right that is missing has the number of an invalid STag.
        Refusal::InvalidStag | Refusal::Rights => DDP_INVALID_STAG,
        Refusal::NotAssociated => DDP_NOT_ASSOCIATED,
        Refusal::Wrap => DDP_WRAP,
        Refusal::Bounds => DDP_BOUNDS,
    }
}

/// The error of RDMAP for a request that is refused its memory.
fn rdmap_error(refusal: Refusal) -> Code {
    match refusal {
        Refusal::InvalidStag => INVALID_STAG,
        Refusal::NotAssociated => NOT_ASSOCIATED,
        Refusal::Wrap => WRAP,
        Refusal::Bounds => BOUNDS,
        Refusal::Rights => ACCESS_RIGHTS,
    }
}

fn check(holds: bool, code: Code) -> Result<(), Code> {
    if holds { Ok(()) } else { Err(code) }
}

/// The header of an Untagged segment, without what the segment has itself.
#[derive(Clone, Copy)]
struct Untagged {
    invalidate: u32,
    msn: u32,
    mo: usize,
}

impl Target {
    pub fn new(memory: Memory, takes_requests: bool) -> Self {
        Self {
            memory,
            receives: VecDeque::new(),
            open: None,
            msn: [1; 4],
            takes_requests,
            outstanding: VecDeque::new(),
            answered: 0,
            deliveries: Vec::new(),
            responses: Vec::new(),
        }
    }

    /// The MSN of the next message of `queue`.
    pub fn next_msn(&self, queue: usize) -> u32 {
        self.msn[queue]
    }

    /// Takes the next ULPDU.
    ///
    /// # Errors
    ///
    /// How the stream ends.
    // Requirements: DDP-7.1-16, DDP-7.1-17, RDMAP-7.1-02, RDMAP-7.1-03
    pub fn take(&mut self, ulpdu: &[u8]) -> Result<(), End> {
        let error = |code| End::Error { code, terminate: terminate(code, ulpdu) };
        //
        let segment = Segment::parse(ulpdu).ok_or_else(|| error(LOCAL_CATASTROPHIC))?;
        let Model::Untagged { invalidate, queue, msn, mo } = segment.model else {
            return self.take_tagged(&segment).map_err(error);
        };
        check(segment.version == 1, UNTAGGED_VERSION).map_err(error)?;
        check(queue <= 3, INVALID_QUEUE).map_err(error)?;
        check(msn == self.msn[queue as usize], MSN_RANGE).map_err(error)?;
        let header = Untagged { invalidate, msn, mo: mo as usize };
        match queue {
            0 => self.dequeue_send(&segment, header).map_err(error),
            1 => self.take_request(&segment, header).map_err(error),
            2 => Err(Self::take_terminate(&segment, header).map_or_else(error, End::Terminated)),
            _ => self.take_atomic_response(&segment, header).map_err(error),
        }
    }

    /// An RDMA Write or a Read Response.
    // Requirements: DDP-7.1-10 to DDP-7.1-15
    fn take_tagged(&mut self, segment: &Segment) -> Result<(), Code> {
        let Model::Tagged { stag, to } = segment.model else { return Ok(()) };
        check(segment.version == 1, TAGGED_VERSION)?;
        let response = segment.opcode == opcode::READ_RESPONSE;
        let octets = segment.payload.len();
        let wish = if response { Wish::LocalWrite } else { Wish::RemoteWrite };
        // DDP-5.2-10: STag and TO of an empty segment are not looked at.
        let place = match self.memory.check(stag, to, octets, wish) {
            _ if octets == 0 => Ok(None),
            Ok(place) => Ok(Some(place)),
            Err(Refusal::Rights) => Err(DDP_INVALID_STAG),
            Err(refusal) => return Err(ddp_error(refusal)),
        };
        check(segment.rdmap_version == 1, RDMAP_VERSION)?;
        check(response || segment.opcode == opcode::WRITE, UNEXPECTED_OPCODE)?;
        if response {
            self.check_response(segment, stag, to)?;
        }
        if let Some(place) = place? {
            self.memory.write(place, &segment.payload);
        }
        if !response {
            return Ok(());
        }
        if let Some(Outstanding::Read { delivered, .. }) = self.outstanding.front_mut() {
            *delivered += octets;
        }
        if segment.last {
            self.outstanding.pop_front();
            self.answered += 1;
        }
        Ok(())
    }

    /// The Response is to the oldest request, continues where it was, and is as long as was asked for.
    fn check_response(&self, segment: &Segment, stag: u32, to: u64) -> Result<(), Code> {
        let Some(Outstanding::Read { sink, delivered }) = self.outstanding.front() else {
            return Err(UNEXPECTED_OPCODE);
        };
        let octets = segment.payload.len();
        let due = (sink.stag, sink.to + *delivered as u64);
        check(octets == 0 || (stag, to) == due, UNSPECIFIED_OPERATION)?;
        check(delivered + octets <= sink.octets, UNSPECIFIED_OPERATION)?;
        check(segment.last == (delivered + octets == sink.octets), UNSPECIFIED_OPERATION)
    }

    /// A message for a buffer of the application.
    // Requirements: DDP-7.1-02 to DDP-7.1-05
    fn dequeue_send(&mut self, segment: &Segment, header: Untagged) -> Result<(), Code> {
        let immediate = matches!(segment.opcode, opcode::IMMEDIATE | opcode::IMMEDIATE_SOLICITED);
        let begun = self.open.is_some();
        let open = self.open.clone().or_else(|| self.receives.front().map(|receive| (receive.clone(), 0)));
        let (receive, placed) = open.ok_or(NO_BUFFER)?;
        if immediate {
            return self.take_immediate(segment, header, begun, receive.id);
        }
        check(header.mo == placed && header.mo <= receive.octets(), INVALID_OFFSET)?;
        check(header.mo + segment.payload.len() <= receive.octets(), TOO_LONG)?;
        check(segment.rdmap_version == 1, RDMAP_VERSION)?;
        let send = opcode::SEND..=opcode::SEND_SOLICITED_INVALIDATE;
        check(send.contains(&segment.opcode), UNEXPECTED_OPCODE)?;
        let places: Vec<_> = receive.octets_from(&self.memory, header.mo).collect();
        for (place, octet) in places.into_iter().zip(&segment.payload) {
            self.memory.write(place, &[*octet]);
        }
        if !begun {
            self.receives.pop_front();
        }
        let placed = placed + segment.payload.len();
        if !segment.last {
            self.open = Some((receive, placed));
            return Ok(());
        }
        // DDP-4.3-03: RsvdULP of the last segment counts.
        let invalidates =
            matches!(segment.opcode, opcode::SEND_INVALIDATE | opcode::SEND_SOLICITED_INVALIDATE);
        if invalidates && !self.memory.invalidate(header.invalidate) {
            self.open = Some((receive, placed));
            return Err(CANNOT_INVALIDATE);
        }
        self.open = None;
        self.msn[0] = header.msn.wrapping_add(1);
        self.deliveries.push(Delivery {
            id: receive.id,
            octets: placed,
            immediate: None,
            invalidated: invalidates.then_some(header.invalidate),
            solicited: segment.opcode >= opcode::SEND_SOLICITED,
        });
        Ok(())
    }

    /// Immediate Data completes a receive and leaves its buffer alone; it is one segment of eight octets.
    fn take_immediate(
        &mut self,
        segment: &Segment,
        header: Untagged,
        begun: bool,
        id: u64,
    ) -> Result<(), Code> {
        check(!begun && header.mo == 0, INVALID_OFFSET)?;
        check(segment.rdmap_version == 1, RDMAP_VERSION)?;
        check(segment.payload.len() == 8 && segment.last, UNSPECIFIED_OPERATION)?;
        self.receives.pop_front();
        self.msn[0] = header.msn.wrapping_add(1);
        self.deliveries.push(Delivery {
            id,
            octets: 0,
            immediate: Some(super::fields::number(&segment.payload, 0, 8)),
            invalidated: None,
            solicited: segment.opcode == opcode::IMMEDIATE_SOLICITED,
        });
        Ok(())
    }

    /// A Read Request or an Atomic Request.
    // Requirements: RDMAP-7.2-01 to RDMAP-7.2-06
    fn take_request(&mut self, segment: &Segment, header: Untagged) -> Result<(), Code> {
        check(self.takes_requests, NO_BUFFER)?;
        check(header.mo == 0, INVALID_OFFSET)?;
        check(segment.payload.len() <= AtomicRequest::OCTETS, TOO_LONG)?;
        check(segment.rdmap_version == 1, RDMAP_VERSION)?;
        let expected = match segment.opcode {
            opcode::READ_REQUEST => ReadRequest::OCTETS,
            opcode::ATOMIC_REQUEST => AtomicRequest::OCTETS,
            _ => return Err(UNEXPECTED_OPCODE),
        };
        check(segment.payload.len() == expected && segment.last, UNSPECIFIED_OPERATION)?;
        let response = if segment.opcode == opcode::READ_REQUEST {
            self.read(&ReadRequest::parse(&segment.payload))?
        } else {
            self.operate(&AtomicRequest::parse(&segment.payload))?
        };
        self.responses.push(response);
        self.msn[1] = header.msn.wrapping_add(1);
        Ok(())
    }

    /// The source of a Read for no octets is not checked (RDMAP-5.2.1-09).
    fn read(&self, request: &ReadRequest) -> Result<Message, Code> {
        let size = request.size as usize;
        let octets = if size == 0 {
            Vec::new()
        } else {
            let source = self.memory.check(request.source_stag, request.source_to, size, Wish::RemoteRead);
            self.memory.read(source.map_err(rdmap_error)?, size)
        };
        let (stag, to) = (request.sink_stag, request.sink_to);
        Ok(Message { opcode: opcode::READ_RESPONSE, stag, to, octets })
    }

    /// RFC 7306 §5.1: the value is an integer in the byte order of this machine, aligned to its eight octets.
    fn operate(&mut self, request: &AtomicRequest) -> Result<Message, Code> {
        check(request.apply(0).is_some(), UNEXPECTED_OPCODE)?;
        let place = self.memory.check(request.stag, request.to, 8, Wish::RemoteAtomic);
        let place = place.map_err(rdmap_error)?;
        check(place.at.is_multiple_of(8), CATASTROPHIC_STREAM)?;
        let octets = self.memory.read(place, 8);
        let original = u64::from_ne_bytes(octets.try_into().expect("eight octets"));
        let value = request.apply(original).expect("a code that there is");
        self.memory.write(place, &value.to_ne_bytes());
        let response = AtomicResponse { identifier: request.identifier, original };
        Ok(Message { opcode: opcode::ATOMIC_RESPONSE, stag: 0, to: 0, octets: response.octets() })
    }

    /// The one Terminate of the peer: returns what it says.
    // Requirements: RDMAP-7.2-07, RDMAP-7.2-08
    fn take_terminate(segment: &Segment, header: Untagged) -> Result<Code, Code> {
        check(header.mo == 0, INVALID_OFFSET)?;
        let octets = &segment.payload;
        check(octets.len() <= 4 + 2 + 18 + ReadRequest::OCTETS, TOO_LONG)?;
        check(segment.rdmap_version == 1, RDMAP_VERSION)?;
        check(segment.opcode == opcode::TERMINATE, UNEXPECTED_OPCODE)?;
        // the fields that its flags announce are for information.
        check(segment.last && octets.len() >= 4, UNSPECIFIED_OPERATION)?;
        Ok(Code { layer: octets[0] >> 4, error_type: octets[0] & 0x0f, number: octets[1] })
    }

    /// The response to the oldest request, which is an Atomic Operation.
    fn take_atomic_response(&mut self, segment: &Segment, header: Untagged) -> Result<(), Code> {
        let Some(Outstanding::Atomic { identifier, target }) = self.outstanding.front().copied() else {
            return Err(NO_BUFFER);
        };
        check(header.mo == 0, INVALID_OFFSET)?;
        check(segment.payload.len() <= AtomicResponse::OCTETS, TOO_LONG)?;
        check(segment.rdmap_version == 1, RDMAP_VERSION)?;
        check(segment.opcode == opcode::ATOMIC_RESPONSE, UNEXPECTED_OPCODE)?;
        check(segment.last && segment.payload.len() == AtomicResponse::OCTETS, UNSPECIFIED_OPERATION)?;
        let response = AtomicResponse::parse(&segment.payload);
        check(response.identifier == identifier, UNSPECIFIED_OPERATION)?;
        let place = self.memory.check(target.stag, target.to, 8, Wish::LocalWrite);
        self.memory.write(place.expect("memory of this end"), &response.original.to_ne_bytes());
        self.outstanding.pop_front();
        self.answered += 1;
        self.msn[3] = header.msn.wrapping_add(1);
        Ok(())
    }
}
