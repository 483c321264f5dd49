//! MPA startup (RFC 5044 §7.1): one Request, one Reply, and what both ends may do from then on. Octets and `now` go in;
//! frames, decisions and deadlines come out. No I/O, no clock.

use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::mpa::startup as rules;
use warpline_dataplane::time::Instant;
use warpline_dataplane::wire::mpa::{Kind, StartupError, StartupFrame};

pub use warpline_dataplane::mpa::startup::{Agreement, Offer};

/// Most octets of Private Data in a startup frame (MPA-7.1.1-18).
pub const PRIVATE_DATA_MAX_OCTETS: usize = StartupFrame::PRIVATE_DATA_MAX;

/// The revision we start with (MPA-7.1.1-12).
const REVISION: u8 = 1;

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

/// A frame of this implementation, without Private Data.
const fn frame(kind: Kind, offer: Offer) -> StartupFrame<'static> {
    StartupFrame {
        kind,
        markers: offer.markers,
        crc: offer.crc,
        rejected: false,
        enhanced: false,
        revision: REVISION,
        private_data: &[],
    }
}

fn emit(frame: &StartupFrame<'_>, private_data: &[u8]) -> Result<Box<[u8]>, PrivateDataTooLong> {
    let frame = StartupFrame { private_data, ..*frame };
    let mut octets = vec![0; frame.len()];
    // MPA-7.1.1-18
    frame.emit(&mut octets).ok_or(PrivateDataTooLong { octets: private_data.len() })?;
    Ok(octets.into())
}

/// Octets of a startup frame that came so far, and how long the rest may take.
#[derive(Debug)]
struct Incoming {
    octets: Vec<u8>,
    /// The whole exchange is over by then, however slowly octets dribble in (MPA-7.1.2-25, D08-7.1.2-01).
    deadline: Instant,
}

impl Incoming {
    const fn new(deadline: Instant) -> Self {
        Self { octets: Vec::new(), deadline }
    }

    fn take(&mut self, octets: &[u8]) -> &[u8] {
        // MPA-7.1.2-23: what is kept is bounded by the largest frame. An octet more is enough to know of all of them.
        let room = (StartupFrame::MAX_LEN + 1).saturating_sub(self.octets.len());
        self.octets.extend_from_slice(&octets[..octets.len().min(room)]);
        &self.octets
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
        agreement: Agreement,
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
    asked: StartupFrame<'static>,
    incoming: Incoming,
}

impl Initiator {
    /// An Initiator, and the Request Frame it sends first (MPA-7.1.2-01, MPA-7.1.2-02).
    ///
    /// # Errors
    ///
    /// [`PrivateDataTooLong`].
    pub fn new(
        offer: Offer,
        private_data: &[u8],
        deadline: Instant,
    ) -> Result<(Self, Box<[u8]>), PrivateDataTooLong> {
        let asked = frame(Kind::Request, offer);
        let octets = emit(&asked, private_data)?;
        Ok((Self { asked, incoming: Incoming::new(deadline) }, octets))
    }

    /// Takes octets of the Reply; gives it once it is complete.
    ///
    /// # Errors
    ///
    /// [`StartupFault`]: the TCP connection is to be closed (MPA-7.1.2-12).
    pub fn on_octets(&mut self, octets: &[u8]) -> Result<Option<Reply>, StartupFault> {
        let Some((answer, _)) = rules::reply(self.incoming.take(octets))? else { return Ok(None) };
        // MPA-7.1.1-13, MPA-7.1.1-14: we asked for revision 1 and know how to go on with no other.
        if answer.revision != REVISION {
            return Err(StartupError::Revision(answer.revision).into());
        }
        let private_data = answer.private_data.into();
        Ok(Some(if answer.rejected {
            Reply::Rejected { private_data }
        } else {
            Reply::Accepted { agreement: Agreement::of(&self.asked, &answer), private_data }
        }))
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
    /// The Initiator's frame, without its Private Data.
    asked: StartupFrame<'static>,
}

impl Request {
    /// The Initiator's MPA revision (MPA-7.1.1-15).
    pub const fn revision(&self) -> u8 {
        self.asked.revision
    }
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
    offer: Offer,
    incoming: Incoming,
    complete: bool,
}

impl Responder {
    /// A Responder that gives the Request until `deadline`.
    pub const fn new(offer: Offer, deadline: Instant) -> Self {
        Self { offer, incoming: Incoming::new(deadline), complete: false }
    }

    /// Takes octets of the Request; gives it once it is complete.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: its answer is to be sent, if it has one, and the TCP connection closed (MPA-7.1.2-04). Also when
    /// octets come between the Request and our Reply.
    pub fn on_octets(&mut self, octets: &[u8]) -> Result<Option<Request>, Refusal> {
        let Some(asked) = rules::request(self.incoming.take(octets))? else { return Ok(None) };
        let answer = rules::answer(&asked, self.offer, false);
        if answer.close {
            // the peer of revision 0 learns ours, then the connection closes (RDMAC-C.2.1-01).
            let fault = StartupError::Revision(asked.revision).into();
            return Err(Refusal { fault, answer: emit(&answer.reply, &[]).ok() });
        }
        if asked.enhanced {
            // MPAv2-10-04
            return Err(StartupFault::Enhanced.into());
        }
        self.complete = true;
        let private_data = asked.private_data.into();
        Ok(Some(Request { private_data, asked: StartupFrame { private_data: &[], ..asked } }))
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
    ) -> Result<(Box<[u8]>, Agreement), PrivateDataTooLong> {
        let reply = rules::answer(&request.asked, self.offer, false).reply;
        Ok((emit(&reply, private_data)?, Agreement::of(&reply, &request.asked)))
    }

    /// The rejecting Reply (MPA-7.1.2-05, MPA-7.1.2-06).
    ///
    /// # Errors
    ///
    /// [`PrivateDataTooLong`].
    pub fn reject(&self, request: &Request, private_data: &[u8]) -> Result<Box<[u8]>, PrivateDataTooLong> {
        let reply = rules::answer(&request.asked, self.offer, false).reply;
        emit(&StartupFrame { rejected: true, ..reply }, private_data)
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

#[cfg(test)]
#[path = "startup_tests.rs"]
mod tests;
