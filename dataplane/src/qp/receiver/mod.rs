//! The receive half of a queue pair: a verified ULPDU becomes octets in a buffer and, at Delivery, a completion.
//!
//! Three steps: everything is checked before the first octet is placed, DDP's header and buffer (RFC 5041 §7.1), then
//! RDMAP's version and opcode (RFC 5040 §7.2); the payload is placed; and the segment is delivered. In stream order they
//! follow one another. Beyond a gap the last waits for its turn (`early`).

mod early;

use std::collections::VecDeque;

use super::error::StreamError;
use super::indication::Indications;
use super::shared::SharedQp;
use super::work::{Completion, CompletionKind, ReceiveRequest, Status};
use crate::ddp::DdpError;
use crate::memory::{Access, AccessError, STag, StagTable, Target};
use crate::mpa::enhanced::ReadyToReceive;
use crate::mpa::receiver::{Located, Octets};
use crate::pool::{List, Pool};
use crate::rdmap::RdmapError;
use crate::rdmap::message::{self, SEND_QUEUE, TERMINATE_QUEUE};
use crate::wire::ddp::{DDP_VERSION, Header, Tagged, Untagged};
use crate::wire::rdmap::{Control, Opcode, Terminate};

pub use early::{Early, PlacedSend};

/// Octets of a ULPDU that headers may take: the untagged header and a Terminate's control word.
const HEADER_OCTETS: usize = Untagged::LEN + 4;

/// What a ULPDU led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Its payload is in place; `octets` were copied.
    Placed {
        /// Octets of payload.
        octets: usize,
    },
    /// It is a ready-to-receive indication, or the answer to ours: nothing for the ULP.
    Indicated,
    /// It is a ready-to-receive indication that asks for an answer: an RDMA Read Response without payload.
    Asked {
        /// To which buffer of the peer.
        stag: STag,
        /// To where in it.
        to: u64,
    },
    /// The peer has terminated the stream.
    Terminated(StreamError),
}

/// Why a ULPDU was refused, with what a Terminate says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The error for the application.
    pub error: StreamError,
    /// Octets of the DDP Segment, for the Terminate.
    pub segment_octets: u16,
    /// The header of the segment in error, as it came.
    pub header: [u8; Untagged::LEN],
    /// How much of `header` is meant: 14, 18, or 0 when it was not readable.
    pub header_octets: u8,
}

/// A message being received into a buffer.
#[derive(Clone, Copy, Debug)]
struct Current {
    request: ReceiveRequest,
    /// Octets placed: where the next segment must begin.
    placed: u32,
}

/// The receive half of a queue pair at its core.
#[derive(Debug)]
pub struct Receiver {
    /// Buffers, oldest first. At most the queue's depth.
    buffers: VecDeque<ReceiveRequest>,
    current: Option<Current>,
    /// Number of the Send expected next on queue 0 (DDP-4.3-08).
    expected_msn: u32,
    /// The version of DDP and RDMAP (RDMAC-C.1-02).
    version: u8,
    /// Ready-to-receive indications there may be.
    indications: Indications,
    /// Segments of Sends that are placed before their turn, in stream order.
    early: List,
}

/// A ULPDU whose DDP header is read.
struct Ulpdu<'a, O> {
    octets: &'a O,
    located: &'a Located,
    /// The first octets of it.
    prefix: [u8; HEADER_OCTETS],
    prefix_octets: usize,
    header: Header,
    header_octets: usize,
}

impl<'a, O: Octets> Ulpdu<'a, O> {
    fn parse(octets: &'a O, located: &'a Located) -> Result<Self, Fault> {
        let mut prefix = [0; HEADER_OCTETS];
        let prefix_octets = located.header(octets, &mut prefix);
        // too short for its header: a local catastrophic error, nothing to copy into a Terminate.
        let (header, header_octets) =
            Header::parse(&prefix[..prefix_octets], located.ulpdu_len()).map_err(|_| Fault {
                error: StreamError::Ddp(DdpError::LocalCatastrophic),
                segment_octets: located.ulpdu_len() as u16,
                header: [0; Untagged::LEN],
                header_octets: 0,
            })?;
        Ok(Self { octets, located, prefix, prefix_octets, header, header_octets })
    }

    fn payload_octets(&self) -> usize {
        self.located.ulpdu_len() - self.header_octets
    }

    /// What follows the DDP header, as far as a Terminate's control word goes.
    fn after_header(&self) -> &[u8] {
        &self.prefix[self.header_octets..self.prefix_octets]
    }

    fn fault(&self, error: StreamError) -> Fault {
        let mut header = [0; Untagged::LEN];
        header[..self.header_octets].copy_from_slice(&self.prefix[..self.header_octets]);
        let segment_octets = self.located.ulpdu_len() as u16;
        Fault { error, segment_octets, header, header_octets: self.header_octets as u8 }
    }

    /// Copies the payload to `at` octets into `target`: the one copy of received data.
    fn place(&self, target: &Target<'_>, at: usize) {
        self.located.payload(self.octets, self.header_octets, |offset, slice| {
            let fits = target.write(at + offset, slice);
            debug_assert!(fits, "the whole segment was checked before");
        });
    }
}

impl Receiver {
    /// A receiver for up to `depth` buffers.
    pub fn new(depth: usize) -> Self {
        Self {
            buffers: VecDeque::with_capacity(depth),
            current: None,
            expected_msn: 1,
            version: DDP_VERSION,
            indications: Indications::default(),
            early: List::new(),
        }
    }

    /// The stream begins.
    pub fn begin(&mut self, version: u8, ready: ReadyToReceive) {
        self.version = version;
        self.indications = Indications::of(ready);
    }

    /// Takes what was posted.
    pub fn take_posted(&mut self, shared: &SharedQp) {
        while self.buffers.len() < shared.receive_depth() {
            let Some(request) = shared.take_receive() else { return };
            self.buffers.push_back(request);
        }
    }

    /// Takes one ULPDU, verified by MPA, in stream order.
    ///
    /// # Errors
    ///
    /// [`Fault`] when a check fails; nothing was placed then.
    pub fn on_ulpdu(
        &mut self,
        shared: &SharedQp,
        stags: &StagTable,
        octets: &impl Octets,
        located: &Located,
    ) -> Result<Received, Fault> {
        let ulpdu = Ulpdu::parse(octets, located)?;
        let payload_octets = ulpdu.payload_octets();
        if let Some(received) = self.indications.take(self.version, &ulpdu.header, octets, located) {
            if let (Received::Indicated, Header::Untagged(_)) = (received, ulpdu.header) {
                // a Send for which the provider has the buffer.
                self.expected_msn = self.expected_msn.wrapping_add(1);
            }
            return Ok(received);
        }
        match ulpdu.header {
            Header::Tagged(header) => {
                let target =
                    self.tagged_target(&header, payload_octets, shared, stags).map_err(|e| ulpdu.fault(e))?;
                if let Some(target) = target {
                    ulpdu.place(&target, 0);
                }
            }
            Header::Untagged(header) if header.queue == TERMINATE_QUEUE => {
                if header.version != self.version {
                    return Err(ulpdu.fault(StreamError::Ddp(DdpError::UntaggedVersion)));
                }
                check_rdmap(self.version, header.rsvd_ulp[0], false).map_err(|e| ulpdu.fault(e))?;
                let terminate = Terminate::parse(ulpdu.after_header())
                    .map_err(|_| ulpdu.fault(StreamError::Ddp(DdpError::LocalCatastrophic)))?;
                return Ok(Received::Terminated(StreamError::Terminated {
                    layer: terminate.layer,
                    error_type: terminate.error_type,
                    code: terminate.code,
                }));
            }
            Header::Untagged(header) => {
                self.take_posted(shared);
                let (current, target) = self
                    .untagged_target(&header, payload_octets, shared, stags)
                    .map_err(|e| ulpdu.fault(e))?;
                if let Some(target) = target {
                    ulpdu.place(&target, header.mo as usize);
                }
                self.deliver(shared, current, header.last, payload_octets);
            }
        }
        Ok(Received::Placed { octets: payload_octets })
    }

    /// The memory a tagged segment goes to; `None` for an empty one, whose STag and offset are not looked at (DDP-5.2-10).
    fn tagged_target<'t>(
        &self,
        header: &Tagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> Result<Option<Target<'t>>, StreamError> {
        // the version first, also of an empty segment.
        if header.version != self.version {
            return Err(StreamError::Ddp(DdpError::TaggedVersion));
        }
        if payload_octets == 0 {
            return check_rdmap(self.version, header.rsvd_ulp, true).map(|()| None);
        }
        // DDP-7.1-10 to DDP-7.1-14.
        let target = stags.check(header.stag, shared.pd, Access::REMOTE_WRITE, header.to, payload_octets);
        let target = target.map_err(|error| match error {
            AccessError::InvalidStag => StreamError::Ddp(DdpError::InvalidStag),
            AccessError::NotAssociated => StreamError::Ddp(DdpError::NotAssociated),
            // DDP has no number for it; RDMAP has (RFC 5040 §4.8).
            AccessError::Rights => StreamError::Rdmap(RdmapError::AccessRights),
            AccessError::Wrap => StreamError::Ddp(DdpError::ToWrap),
            AccessError::Bounds => StreamError::Ddp(DdpError::BaseOrBounds),
        })?;
        check_rdmap(self.version, header.rsvd_ulp, true)?;
        Ok(Some(target))
    }

    /// DDP-4.1-09, A-13, A-30: version, then queue; number, offset and length come after.
    fn check_queue(&self, header: &Untagged) -> Result<(), DdpError> {
        if header.version != self.version {
            return Err(DdpError::UntaggedVersion);
        }
        match header.queue {
            SEND_QUEUE => Ok(()),
            // Reads are not accepted: the number of Read Requests we have buffers for (IRD) is zero.
            message::READ_REQUEST_QUEUE => Err(DdpError::NoBuffer),
            _ => Err(DdpError::InvalidQueue),
        }
    }

    /// The buffer for an untagged segment whose turn it is, and its memory, unless the segment is empty.
    fn untagged_target<'t>(
        &self,
        header: &Untagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &'t StagTable,
    ) -> Result<(Current, Option<Target<'t>>), StreamError> {
        self.check_queue(header).map_err(StreamError::Ddp)?;
        let current = self.in_turn(header, payload_octets).map_err(StreamError::Ddp)?;
        let target = memory_of(&current.request, payload_octets, shared, stags).map_err(StreamError::Ddp)?;
        check_rdmap(self.version, header.rsvd_ulp[0], false)?;
        Ok((current, target))
    }

    /// The message that an untagged segment continues or begins. In stream order the window of acceptable MSNs is the one
    /// expected.
    fn in_turn(&self, header: &Untagged, payload_octets: usize) -> Result<Current, DdpError> {
        // DDP-7.1-05.
        if header.msn != self.expected_msn {
            return Err(DdpError::MsnRange);
        }
        // DDP-7.1-02.
        let current = match self.current {
            Some(current) => current,
            None => match self.buffers.front() {
                Some(&request) => Current { request, placed: 0 },
                None => return Err(DdpError::NoBuffer),
            },
        };
        // DDP-7.1-03, DDP-7.1-04. The sender sends offsets in order and the stream keeps the order, so another offset
        // than the next is as wrong as one outside.
        let local = current.request.local;
        if header.mo > local.octets || header.mo != current.placed {
            return Err(DdpError::InvalidOffset);
        }
        if payload_octets > (local.octets - header.mo) as usize {
            return Err(DdpError::TooLong);
        }
        Ok(current)
    }

    /// Delivers an untagged segment that is placed: everything before it is placed and delivered (DDP-5.4-01, DDP-5.3-06,
    /// DDP-5.3-07).
    fn deliver(&mut self, shared: &SharedQp, mut current: Current, last: bool, payload_octets: usize) {
        if self.current.is_none() {
            self.buffers.pop_front();
        }
        current.placed += payload_octets as u32;
        if !last {
            self.current = Some(current);
            return;
        }
        // DDP-5.4-01: in stream order, the last segment of the oldest message is its Delivery. DDP-5.4-02.
        self.current = None;
        self.expected_msn = self.expected_msn.wrapping_add(1);
        shared.complete_receive(Completion {
            id: current.request.id,
            qp: shared.number,
            kind: CompletionKind::Receive,
            status: Status::Success,
            octets: current.placed,
        });
    }

    /// Ends every receive: the stream is over.
    pub fn flush(&mut self, shared: &SharedQp, early: &mut Pool<PlacedSend>, error: Option<StreamError>) {
        early.clear(&mut self.early);
        let mut status = error.map_or(Status::Flushed, Status::Failed);
        let current = self.current.take().map(|current| current.request);
        if current.is_none() {
            status = Status::Flushed;
        }
        let mut flush = |request: ReceiveRequest| {
            shared.complete_receive(Completion {
                id: request.id,
                qp: shared.number,
                kind: CompletionKind::Receive,
                status,
                octets: 0,
            });
            status = Status::Flushed;
        };
        current.into_iter().for_each(&mut flush);
        self.buffers.drain(..).for_each(&mut flush);
        while let Some(request) = shared.take_receive() {
            flush(request);
        }
    }
}

/// The memory of a posted buffer, for a segment with payload. That the application's own buffer is no good is not the peer's
/// fault, but it has none to receive into.
fn memory_of<'t>(
    request: &ReceiveRequest,
    payload_octets: usize,
    shared: &SharedQp,
    stags: &'t StagTable,
) -> Result<Option<Target<'t>>, DdpError> {
    if payload_octets == 0 {
        return Ok(None);
    }
    let local = request.local;
    let target = stags.check(local.stag, shared.pd, Access::LOCAL_WRITE, local.to, local.octets as usize);
    target.map(Some).map_err(|_| DdpError::LocalCatastrophic)
}

/// RFC 5040 §7.2: the version, and an opcode that may come this way. Read Responses answer nothing: we do not read.
fn check_rdmap(version: u8, control: u8, tagged: bool) -> Result<(), StreamError> {
    let control = Control::from_octet(control);
    if control.version != version {
        return Err(StreamError::Rdmap(RdmapError::InvalidVersion));
    }
    // RDMAP-4.1-04.
    match (control.opcode, tagged) {
        (Opcode::Write, true)
        | (Opcode::Send | Opcode::SendWithSolicitedEvent | Opcode::Terminate, false) => Ok(()),
        _ => Err(StreamError::Rdmap(RdmapError::UnexpectedOpcode)),
    }
}
