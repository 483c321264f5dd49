//! The receive half of a queue pair: a verified ULPDU becomes octets in a buffer and, at Delivery, a completion.
//!
//! Everything is checked before the first octet is placed: DDP's header and buffer (RFC 5041 §7.1), then RDMAP's version
//! and opcode (RFC 5040 §7.2).

use std::collections::VecDeque;

use super::error::StreamError;
use super::indication::Indications;
use super::shared::SharedQp;
use super::work::{Completion, CompletionKind, ReceiveRequest, Status};
use crate::ddp::DdpError;
use crate::memory::{Access, AccessError, STag, StagTable, Target};
use crate::mpa::enhanced::ReadyToReceive;
use crate::mpa::receiver::{Located, Octets};
use crate::rdmap::RdmapError;
use crate::rdmap::message::{self, SEND_QUEUE, TERMINATE_QUEUE};
use crate::wire::ddp::{DDP_VERSION, Header, Tagged, Untagged};
use crate::wire::rdmap::{Control, Opcode, Terminate};

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
        let mut prefix = [0; HEADER_OCTETS];
        let prefix_octets = located.header(octets, &mut prefix);
        let prefix = &prefix[..prefix_octets];
        let segment_octets = located.ulpdu_len() as u16;
        // too short for its header: a local catastrophic error, nothing to copy into a Terminate.
        let (header, header_octets) = Header::parse(prefix, located.ulpdu_len()).map_err(|_| Fault {
            error: StreamError::Ddp(DdpError::LocalCatastrophic),
            segment_octets,
            header: [0; Untagged::LEN],
            header_octets: 0,
        })?;
        let fault = |error| {
            let mut header = [0; Untagged::LEN];
            header[..header_octets].copy_from_slice(&prefix[..header_octets]);
            Fault { error, segment_octets, header, header_octets: header_octets as u8 }
        };
        let payload_octets = located.ulpdu_len() - header_octets;
        if let Some(received) = self.indications.take(self.version, &header, octets, located) {
            if let (Received::Indicated, Header::Untagged(_)) = (received, header) {
                // a Send for which the provider has the buffer.
                self.expected_msn = self.expected_msn.wrapping_add(1);
            }
            return Ok(received);
        }
        match header {
            Header::Tagged(header) => {
                let target =
                    tagged_target(self.version, &header, payload_octets, shared, stags).map_err(fault)?;
                check_rdmap(self.version, header.rsvd_ulp, true).map_err(|e| fault(StreamError::Rdmap(e)))?;
                if let Some(target) = target {
                    place(&target, 0, octets, located, header_octets);
                }
                Ok(Received::Placed { octets: payload_octets })
            }
            Header::Untagged(header) if header.queue == TERMINATE_QUEUE => {
                if header.version != self.version {
                    return Err(fault(StreamError::Ddp(DdpError::UntaggedVersion)));
                }
                check_rdmap(self.version, header.rsvd_ulp[0], false)
                    .map_err(|e| fault(StreamError::Rdmap(e)))?;
                let terminate = Terminate::parse(&prefix[header_octets..]);
                terminate.map_or(Err(fault(StreamError::Ddp(DdpError::LocalCatastrophic))), |terminate| {
                    Ok(Received::Terminated(StreamError::Terminated {
                        layer: terminate.layer,
                        error_type: terminate.error_type,
                        code: terminate.code,
                    }))
                })
            }
            Header::Untagged(header) => {
                self.take_posted(shared);
                let current = self
                    .untagged_buffer(&header, payload_octets, shared, stags)
                    .map_err(|e| fault(StreamError::Ddp(e)))?;
                check_rdmap(self.version, header.rsvd_ulp[0], false)
                    .map_err(|e| fault(StreamError::Rdmap(e)))?;
                self.place_untagged(current, &header, payload_octets, shared, stags, octets, located);
                Ok(Received::Placed { octets: payload_octets })
            }
        }
    }

    /// The buffer for an untagged segment. Segments come in stream order, so the window of acceptable MSNs is the one
    /// expected.
    fn untagged_buffer(
        &mut self,
        header: &Untagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &StagTable,
    ) -> Result<Current, DdpError> {
        // DDP-4.1-09, A-13, A-30: version, then queue, number, offset, length.
        if header.version != self.version {
            return Err(DdpError::UntaggedVersion);
        }
        match header.queue {
            SEND_QUEUE => {}
            // Reads are not accepted: the number of Read Requests we have buffers for (IRD) is zero.
            message::READ_REQUEST_QUEUE => return Err(DdpError::NoBuffer),
            _ => return Err(DdpError::InvalidQueue),
        }
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
        if payload_octets > 0 {
            // The application's own buffer is no good: not the peer's fault, but it has none to receive into.
            stags
                .check(local.stag, shared.pd, Access::LOCAL_WRITE, local.to, local.octets as usize)
                .map_err(|_| DdpError::LocalCatastrophic)?;
        }
        Ok(current)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one segment and of the place it goes to")]
    fn place_untagged(
        &mut self,
        mut current: Current,
        header: &Untagged,
        payload_octets: usize,
        shared: &SharedQp,
        stags: &StagTable,
        octets: &impl Octets,
        located: &Located,
    ) {
        let local = current.request.local;
        if self.current.is_none() {
            self.buffers.pop_front();
        }
        if payload_octets > 0
            && let Ok(target) =
                stags.check(local.stag, shared.pd, Access::LOCAL_WRITE, local.to, local.octets as usize)
        {
            place(&target, header.mo as usize, octets, located, Untagged::LEN);
        }
        current.placed += payload_octets as u32;
        if !header.last {
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
    pub fn flush(&mut self, shared: &SharedQp, error: Option<StreamError>) {
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

/// The memory a tagged segment goes to; `None` for an empty one, whose STag and offset are not looked at (DDP-5.2-10).
fn tagged_target<'t>(
    version: u8,
    header: &Tagged,
    payload_octets: usize,
    shared: &SharedQp,
    stags: &'t StagTable,
) -> Result<Option<Target<'t>>, StreamError> {
    // the version first, also of an empty segment.
    if header.version != version {
        return Err(StreamError::Ddp(DdpError::TaggedVersion));
    }
    if payload_octets == 0 {
        return Ok(None);
    }
    // DDP-7.1-10 to DDP-7.1-14.
    let target = stags.check(header.stag, shared.pd, Access::REMOTE_WRITE, header.to, payload_octets);
    target.map(Some).map_err(|error| match error {
        AccessError::InvalidStag => StreamError::Ddp(DdpError::InvalidStag),
        AccessError::NotAssociated => StreamError::Ddp(DdpError::NotAssociated),
        // DDP has no number for it; RDMAP has (RFC 5040 §4.8).
        AccessError::Rights => StreamError::Rdmap(RdmapError::AccessRights),
        AccessError::Wrap => StreamError::Ddp(DdpError::ToWrap),
        AccessError::Bounds => StreamError::Ddp(DdpError::BaseOrBounds),
    })
}

/// RFC 5040 §7.2: the version, and an opcode that may come this way. Read Responses answer nothing: we do not read.
fn check_rdmap(version: u8, control: u8, tagged: bool) -> Result<(), RdmapError> {
    let control = Control::from_octet(control);
    if control.version != version {
        return Err(RdmapError::InvalidVersion);
    }
    // RDMAP-4.1-04.
    match (control.opcode, tagged) {
        (Opcode::Write, true)
        | (Opcode::Send | Opcode::SendWithSolicitedEvent | Opcode::Terminate, false) => Ok(()),
        _ => Err(RdmapError::UnexpectedOpcode),
    }
}

/// Copies a segment's payload to `at` octets into `target`: the one copy of received data.
fn place(target: &Target<'_>, at: usize, octets: &impl Octets, located: &Located, header_octets: usize) {
    located.payload(octets, header_octets, |offset, slice| {
        let fits = target.write(at + offset, slice);
        debug_assert!(fits, "the whole segment was checked before");
    });
}
