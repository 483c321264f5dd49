//! MPA startup (RFC 5044 §7.1): one Request, one Reply, and what both ends may do from then on. Octets and `now` go in;
//! frames, decisions and deadlines come out. No I/O, no clock.

use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::time::Instant;
use warpline_dataplane::wire::mpa::{Kind, Parsed, StartupError, StartupFrame};

/// Most octets of Private Data in a startup frame (MPA-7.1.1-18).
pub const PRIVATE_DATA_MAX_OCTETS: usize = StartupFrame::PRIVATE_DATA_MAX;

/// The revision we start with (MPA-7.1.1-12).
const REVISION: u8 = 1;
/// The revision of the RDMA Consortium, which we refuse (RFC 5044 appendix C.2.1).
const REVISION_RDMAC: u8 = 0;

/// More Private Data than a startup frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{octets} octets of Private Data: a startup frame holds at most 512, send the rest after the connection is up")]
pub struct PrivateDataTooLong {
    /// Octets given.
    pub octets: usize,
}

/// Why MPA startup failed at this end: MPA error 4 (RFC 5044 §8). The TCP connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupFault {
    /// What came is not the startup frame that belongs here, or contradicts itself.
    #[error("{0}")]
    Frame(#[from] StartupError),
    /// An enhanced Request (RFC 6581): this implementation knows only the unenhanced setup (MPAv2-10-04).
    #[error("the peer asks for the enhanced connection setup of RFC 6581, which is not supported: connect with MPA revision 1")]
    Enhanced,
    /// The peer closed before its startup frame was complete.
    #[error("the peer closed the connection during MPA startup")]
    Closed,
    /// The peer's startup frame did not come in time (RFC 5044 §7.1.2 rule 10).
    #[error("no complete startup frame in time: the peer may not speak MPA, or waits for one itself")]
    TimedOut,
}

impl StartupFault {
    /// MPA's error for all of these (MPA-8-06).
    pub const fn mpa_error(self) -> MpaError {
        MpaError::StartupFrame
    }

    /// A word that names the fault, for programs.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Frame(StartupError::WrongKey) => "wrong-key",
            Self::Frame(StartupError::OtherInitiator) => "other-initiator",
            Self::Frame(StartupError::Revision(_)) => "revision",
            Self::Frame(StartupError::PrivateDataLength) => "private-data-length",
            Self::Enhanced => "enhanced",
            Self::Closed => "closed",
            Self::TimedOut => "timed-out",
        }
    }
}

/// What an end asks for in its startup frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// M: the peer is to insert Markers in what it sends to us.
    pub markers: bool,
    /// C: CRCs are to be used in both directions.
    pub crc: bool,
}

/// What both ends do in Full Operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// We insert Markers: the peer's M (MPA-7.1.1-05, MPA-7.1.1-06).
    pub markers_sent: bool,
    /// We expect Markers: our own M.
    pub markers_received: bool,
    /// CRCs are generated and checked: either C (MPA-7.1.1-07, MPA-7.1.1-08).
    pub crc: bool,
}

impl Negotiated {
    const fn new(ours: Parameters, peer: Parameters) -> Self {
        Self { markers_sent: peer.markers, markers_received: ours.markers, crc: ours.crc || peer.crc }
    }
}

const fn parameters(frame: &StartupFrame<'_>) -> Parameters {
    Parameters { markers: frame.markers, crc: frame.crc }
}

fn emit(frame: &StartupFrame<'_>) -> Result<Box<[u8]>, PrivateDataTooLong> {
    let mut octets = vec![0; frame.len()];
    // MPA-7.1.1-18
    frame.emit(&mut octets).ok_or(PrivateDataTooLong { octets: frame.private_data.len() })?;
    Ok(octets.into())
}

/// Octets of a startup frame that came so far, and how long the rest may take.
#[derive(Debug)]
struct Incoming {
    expected: Kind,
    octets: Vec<u8>,
    /// The whole exchange is over by then, however slowly octets dribble in (MPA-7.1.2-25, D08-7.1.2-01).
    deadline: Instant,
}

impl Incoming {
    fn new(expected: Kind, deadline: Instant) -> Self {
        Self { expected, octets: Vec::new(), deadline }
    }

    /// Takes octets; gives the frame once it is complete, and how many octets have come after it.
    fn take(&mut self, octets: &[u8]) -> Result<Option<(StartupFrame<'_>, usize)>, StartupFault> {
        // MPA-7.1.2-23: what is kept is bounded by the largest frame. An octet more is enough to know of all of them.
        let room = (StartupFrame::MAX_LEN + 1).saturating_sub(self.octets.len());
        self.octets.extend_from_slice(&octets[..octets.len().min(room)]);
        match StartupFrame::parse(self.expected, &self.octets)? {
            Parsed::Incomplete => Ok(None),
            Parsed::Complete { frame, consumed } => Ok(Some((frame, self.octets.len() - consumed))),
        }
    }

    fn on_time(&self, now: Instant) -> Result<(), StartupFault> {
        if now >= self.deadline { Err(StartupFault::TimedOut) } else { Ok(()) }
    }
}

/// The Responder's answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Full Operation follows the Reply.
    Accepted {
        /// How it runs.
        negotiated: Negotiated,
        /// The Responder's Private Data.
        private_data: Box<[u8]>,
    },
    /// The Responder's ULP does not want the connection (MPA-7.1.2-13).
    Rejected {
        /// The Responder's Private Data.
        private_data: Box<[u8]>,
    },
}

/// The end that sends the Request.
#[derive(Debug)]
pub struct Initiator {
    parameters: Parameters,
    incoming: Incoming,
}

impl Initiator {
    /// An Initiator, and the Request Frame it sends first (MPA-7.1.2-01, MPA-7.1.2-02).
    ///
    /// # Errors
    ///
    /// [`PrivateDataTooLong`].
    pub fn new(
        parameters: Parameters,
        private_data: &[u8],
        deadline: Instant,
    ) -> Result<(Self, Box<[u8]>), PrivateDataTooLong> {
        let request = emit(&StartupFrame {
            kind: Kind::Request,
            markers: parameters.markers,
            crc: parameters.crc,
            rejected: false,
            enhanced: false,
            revision: REVISION,
            private_data,
        })?;
        Ok((Self { parameters, incoming: Incoming::new(Kind::Reply, deadline) }, request))
    }

    /// Takes octets of the Reply; gives it once it is complete.
    ///
    /// # Errors
    ///
    /// [`StartupFault`]: the TCP connection is to be closed (MPA-7.1.2-12).
    pub fn on_octets(&mut self, octets: &[u8]) -> Result<Option<Reply>, StartupFault> {
        let Some((frame, extra)) = self.incoming.take(octets)? else { return Ok(None) };
        // MPA-7.1.1-13, MPA-7.1.1-14: we asked for revision 1 and know how to go on with no other.
        if frame.revision != REVISION {
            return Err(StartupError::Revision(frame.revision).into());
        }
        let private_data = frame.private_data.into();
        if frame.rejected {
            return Ok(Some(Reply::Rejected { private_data }));
        }
        // the Responder may not send before it has our first FPDU (MPA-7.1.2-15).
        if extra > 0 {
            return Err(StartupError::PrivateDataLength.into());
        }
        let negotiated = Negotiated::new(self.parameters, parameters(&frame));
        Ok(Some(Reply::Accepted { negotiated, private_data }))
    }

    /// Looks at the time.
    ///
    /// # Errors
    ///
    /// [`StartupFault::TimedOut`] once the deadline has come.
    pub fn on_time(&self, now: Instant) -> Result<(), StartupFault> {
        self.incoming.on_time(now)
    }

    /// When the Reply must be complete.
    pub const fn deadline(&self) -> Instant {
        self.incoming.deadline
    }
}

/// A Request that is complete and well-formed.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The Initiator's Private Data (MPA-7.1.1-19).
    pub private_data: Box<[u8]>,
    /// The Initiator's MPA revision (MPA-7.1.1-15).
    pub revision: u8,
    peer: Parameters,
}

/// A Request that is refused without asking the ULP.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub fault: StartupFault,
    /// What to send before closing.
    pub answer: Option<Box<[u8]>>,
}

impl<F: Into<StartupFault>> From<F> for Refusal {
    fn from(fault: F) -> Self {
        Self { fault: fault.into(), answer: None }
    }
}

/// The end that waits for the Request (MPA-7.1.2-03) and answers it.
#[derive(Debug)]
pub struct Responder {
    parameters: Parameters,
    incoming: Incoming,
    complete: bool,
}

impl Responder {
    /// A Responder that gives the Request until `deadline`.
    pub fn new(parameters: Parameters, deadline: Instant) -> Self {
        Self { parameters, incoming: Incoming::new(Kind::Request, deadline), complete: false }
    }

    /// Takes octets of the Request; gives it once it is complete.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: its answer is to be sent, if it has one, and the TCP connection closed (MPA-7.1.2-04). Also when
    /// octets come between the Request and our Reply.
    pub fn on_octets(&mut self, octets: &[u8]) -> Result<Option<Request>, Refusal> {
        if self.complete {
            return Err(StartupError::PrivateDataLength.into());
        }
        let Some((frame, extra)) = self.incoming.take(octets)? else { return Ok(None) };
        if frame.revision == REVISION_RDMAC {
            // the RDMA Consortium's endpoint learns our revision, then the connection closes (RDMAC-C.2.1-01).
            let fault = StartupError::Revision(frame.revision).into();
            let answer = reply(REVISION, true, Parameters { markers: false, crc: true }, &[]).ok();
            return Err(Refusal { fault, answer });
        }
        if frame.enhanced {
            // MPAv2-10-04
            return Err(StartupFault::Enhanced.into());
        }
        if extra > 0 {
            // MPA-7.1.1-17, A-03
            return Err(StartupError::PrivateDataLength.into());
        }
        let request = Request {
            private_data: frame.private_data.into(),
            revision: frame.revision,
            peer: parameters(&frame),
        };
        self.complete = true;
        Ok(Some(request))
    }

    /// The accepting Reply, after which Full Operation begins (MPA-7.1.2-08, MPA-7.1.2-09).
    ///
    /// # Errors
    ///
    /// [`PrivateDataTooLong`].
    pub fn accept(
        &self,
        request: &Request,
        private_data: &[u8],
    ) -> Result<(Box<[u8]>, Negotiated), PrivateDataTooLong> {
        let octets = reply(request.revision, false, self.parameters, private_data)?;
        Ok((octets, Negotiated::new(self.parameters, request.peer)))
    }

    /// The rejecting Reply (MPA-7.1.2-05, MPA-7.1.2-06).
    ///
    /// # Errors
    ///
    /// [`PrivateDataTooLong`].
    pub fn reject(&self, request: &Request, private_data: &[u8]) -> Result<Box<[u8]>, PrivateDataTooLong> {
        reply(request.revision, true, self.parameters, private_data)
    }

    /// Looks at the time. A Request that is complete waits for the ULP, not for the peer.
    ///
    /// # Errors
    ///
    /// [`StartupFault::TimedOut`] once the deadline has come and the Request has not (MPA-7.1.2-21).
    pub fn on_time(&self, now: Instant) -> Result<(), StartupFault> {
        if self.complete { Ok(()) } else { self.incoming.on_time(now) }
    }

    /// When the Request must be complete.
    pub const fn deadline(&self) -> Instant {
        if self.complete { Instant::NEVER } else { self.incoming.deadline }
    }
}

/// A Reply of `revision`: that of the Request.
fn reply(
    revision: u8,
    rejected: bool,
    ours: Parameters,
    private_data: &[u8],
) -> Result<Box<[u8]>, PrivateDataTooLong> {
    emit(&StartupFrame {
        kind: Kind::Reply,
        markers: ours.markers,
        crc: ours.crc,
        rejected,
        enhanced: false,
        revision,
        private_data,
    })
}

#[cfg(test)]
#[path = "startup_tests.rs"]
mod tests;
