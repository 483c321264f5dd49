//! MPA startup (RFC 5044 §7.1, RFC 6581): one Request, one Reply, and their results for both ends. Octets and
//! `now` go in; frames, decisions and deadlines come out. No I/O, no clock.
//!
//! `mpa::startup` and `mpa::enhanced` are the rules, without octets or time: what M, C and the revisions of a
//! Request and a Reply come to, and what IRD, ORD and the flags of RFC 6581 do. `control::engine::startup`
//! holds the two ends of the exchange: octets go in, frames come out. An Initiator asks by revision 2 by
//! default, because Linux siw reads only from peers that negotiate. A peer that closes or resets without a
//! word, or answers by revision 1, is asked again by revision 1 on a new connection, within the same time
//! limit; silence, a rejection, or octets that are no Reply end the attempt. What a Reply asks for and cannot
//! be met is answered by a Terminate as the only FPDU, which control frames itself: no queue pair is bound
//! yet. A Responder may send nothing before the peer's first FPDU, so it says what it needs in a rejection.

use arrayvec::ArrayVec;
use warpline_dataplane::mpa::MpaError;
pub use warpline_dataplane::mpa::enhanced::Outcome;
use warpline_dataplane::mpa::startup as rules;
use warpline_dataplane::qp::terminate;
use warpline_dataplane::time::Instant;
use warpline_dataplane::wire::mpa::{EnhancedData, Kind, Parsed, StartupError, StartupFrame};

pub use warpline_dataplane::mpa::startup::{Agreement, Offer};

pub use crate::vocabulary::startup::{
    ENHANCED_PRIVATE_DATA_MAX_BYTES, PRIVATE_DATA_MAX_BYTES, Peer, PrivateDataTooLong, ReadDepths,
    ReadsWanted, RtrKinds, StartupFault, Terms, Unacceptable,
};

/// Returns the octets of `frame` with its enhanced data, if any, and the ULP's Private Data after them.
fn emit(
    frame: &StartupFrame<'_>,
    enhanced: Option<EnhancedData>,
    private_data: &[u8],
) -> Result<Box<[u8]>, PrivateDataTooLong> {
    let most_octets =
        if enhanced.is_some() { ENHANCED_PRIVATE_DATA_MAX_BYTES } else { PRIVATE_DATA_MAX_BYTES };
    let too_long = || PrivateDataTooLong { len: private_data.len(), max_len: most_octets };
    let mut all = ArrayVec::<u8, PRIVATE_DATA_MAX_BYTES>::new();
    if let Some(data) = enhanced {
        // Requirements: MPAv2-6-05
        let mut octets = [0; EnhancedData::LEN];
        data.emit(&mut octets);
        all.extend(octets);
    }
    // Requirements: MPA-7.1.1-18, MPAv2-9-02
    all.try_extend_from_slice(private_data).map_err(|_| too_long())?;
    let frame = StartupFrame { enhanced: enhanced.is_some(), private_data: &all, ..*frame };
    let mut octets = vec![0; frame.len()];
    frame.emit(&mut octets).ok_or_else(too_long)?;
    Ok(octets.into())
}

/// Returns a frame without its Private Data.
const fn bare(frame: StartupFrame<'_>) -> StartupFrame<'static> {
    let StartupFrame { kind, markers, crc, rejected, enhanced, revision, private_data: _ } = frame;
    StartupFrame { kind, markers, crc, rejected, enhanced, revision, private_data: &[] }
}

/// Returns the enhanced data of a frame, if it has them, and the ULP's Private Data.
fn split<'a>(frame: &StartupFrame<'a>) -> (Option<EnhancedData>, &'a [u8]) {
    match frame.enhanced_data() {
        Some((data, private_data)) => (Some(data), private_data),
        None => (None, frame.private_data),
    }
}

/// Returns the properties of the peer that its frame states.
fn peer_of(frame: &StartupFrame<'_>) -> Peer {
    let depths = split(frame).0.map(ReadDepths::of);
    Peer { revision: frame.revision, depths }
}

/// How a connection is to run, now that both frames are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// What M, C and the revisions come to.
    pub agreement: Agreement,
    /// What the enhanced data come to.
    pub outcome: Outcome,
}

/// Octets of a startup frame that came so far, and how long the rest may take.
#[derive(Debug)]
struct Incoming {
    octets: Vec<u8>,
    /// The whole exchange is over by then, however slowly octets arrive.
    // Requirements: MPA-7.1.2-25, D08-7.1.2-01
    deadline: Instant,
}

impl Incoming {
    const fn new(deadline: Instant) -> Self {
        Self { octets: Vec::new(), deadline }
    }

    fn accept(&mut self, octets: &[u8]) {
        // The kept octets are bounded by the largest frame. One octet more is enough to detect any surplus.
        // Requirements: MPA-7.1.2-23
        let room = (StartupFrame::MAX_LEN + 1).saturating_sub(self.octets.len());
        self.octets.extend_from_slice(&octets[..octets.len().min(room)]);
    }

    /// Returns the fault that the rules find in the octets, and whether it is in those after the frame.
    fn fault(&self, expected: Kind, error: StartupError) -> StartupFault {
        match StartupFrame::parse(expected, &self.octets) {
            Ok(Parsed::Complete { .. }) => StartupFault::ExtraBytes,
            _ => error.into(),
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
        setup: Setup,
        /// The Responder's Private Data.
        private_data: Box<[u8]>,
        /// What the Reply said of it.
        peer: Peer,
    },
    /// The Responder's ULP does not want the connection.
    // Requirements: MPA-7.1.2-13
    Rejected {
        /// The Responder's Private Data.
        private_data: Box<[u8]>,
        /// What the Reply said of it.
        peer: Peer,
    },
    /// The Responder accepts, but on terms that this end cannot meet. It is to receive a Terminate, and the
    /// connection is to be closed.
    Unmet {
        /// What is missing.
        error: MpaError,
        /// The Terminate, as the only FPDU of the connection.
        terminate: Box<[u8]>,
        /// What the Reply said of it.
        peer: Peer,
    },
}

/// How an Initiator starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// M and C.
    pub offer: Offer,
    /// The revision of MPA. 2 is enhanced (RFC 6581) if `terms` have something to say; 0 is that of the RDMA
    /// Consortium's endpoints, always with M and C.
    pub revision: u8,
    /// What an enhanced Request asks for.
    pub terms: Terms,
    /// Whether a Responder of the RDMA Consortium's may answer a Request of revision 1 (RFC 5044 appendix C).
    pub permissive: bool,
}

/// The end that sends the Request.
#[derive(Debug)]
pub struct Initiator {
    asked: StartupFrame<'static>,
    terms: Terms,
    permissive: bool,
    incoming: Incoming,
    octets_after: usize,
}

impl Initiator {
    /// Returns an Initiator, and the Request Frame it sends first.
    ///
    /// # Errors
    ///
    /// [`PrivateDataTooLong`].
    // Requirements: MPA-7.1.2-02, RDMAC-C.2.4-01, RDMAC-C.2.5-01, MPAv2-6-02, MPAv2-6-03, MPAv2-10-03
    pub fn new(
        proposal: Proposal,
        private_data: &[u8],
        deadline: Instant,
    ) -> Result<(Self, Box<[u8]>), PrivateDataTooLong> {
        let Proposal { offer, revision, terms, permissive } = proposal;
        let consortium = revision == 0;
        let asked = StartupFrame {
            kind: Kind::Request,
            markers: offer.markers || consortium,
            crc: offer.crc || consortium,
            rejected: false,
            enhanced: revision == 2 && terms.enhances(),
            revision,
            private_data: &[],
        };
        let octets = emit(&asked, asked.enhanced.then(|| terms.request()), private_data)?;
        Ok((Self { asked, terms, permissive, incoming: Incoming::new(deadline), octets_after: 0 }, octets))
    }

    /// Takes octets of the Reply. Returns the Reply once it is complete.
    ///
    /// # Errors
    ///
    /// [`StartupFault`]: the TCP connection is to be closed, and another may be [tried](Self::may_fall_back).
    // Requirements: MPA-7.1.2-12
    pub fn on_octets(&mut self, octets: &[u8]) -> Result<Option<Reply>, StartupFault> {
        let all = self.incoming.octets.len() + octets.len();
        self.incoming.accept(octets);
        let reply = rules::reply(&self.incoming.octets);
        let Some((answer, octets)) = reply.map_err(|error| self.incoming.fault(Kind::Reply, error))? else {
            return Ok(None);
        };
        self.octets_after = all - octets;
        // Requirements: MPA-7.1.1-13, MPA-7.1.1-14
        if rules::fit(&self.asked, &answer, self.permissive) != rules::Fit::Together {
            return Err(match answer.revision {
                2 if self.asked.enhanced => StartupFault::NotEnhanced,
                2 if answer.enhanced => StartupFault::Enhanced,
                revision => StartupError::Revision(revision).into(),
            });
        }
        let peer = peer_of(&answer);
        let (data, private_data) = split(&answer);
        if answer.rejected {
            return Ok(Some(Reply::Rejected { private_data: private_data.into(), peer }));
        }
        let agreement = Agreement::of(&self.asked, &answer);
        let outcome = data.map_or_else(|| Ok(self.terms.unnegotiated()), |data| self.terms.conclude(data));
        Ok(Some(match outcome {
            Ok(outcome) => {
                let setup = Setup { agreement, outcome };
                Reply::Accepted { setup, private_data: private_data.into(), peer }
            }
            Err(error) => {
                Reply::Unmet { error, terminate: terminate::only_fpdu(error, agreement)[..].into(), peer }
            }
        }))
    }

    /// Returns how many of the octets of the last call follow the Reply. After one that rejects they are
    /// streaming octets.
    // Requirements: A-03
    pub const fn octets_after(&self) -> usize {
        self.octets_after
    }

    /// Returns true if `fault` is the reaction of a peer that does not understand enhanced Requests: then an
    /// unenhanced Request may succeed, on a new TCP connection. Such a peer takes the Request for malformed
    /// and closes without a reply, or replies with its own revision. Silence, and octets that are no Reply,
    /// do not count as such a reaction.
    // Requirements: MPAv2-10-04, MPAv2-10-05
    pub fn may_fall_back(&self, fault: StartupFault) -> bool {
        self.asked.enhanced
            && match fault {
                StartupFault::Closed => self.incoming.octets.is_empty(),
                StartupFault::NotEnhanced => true,
                StartupFault::Frame(StartupError::Revision(revision)) => {
                    revision == 1 || revision == 0 && self.permissive
                }
                StartupFault::Frame(_)
                | StartupFault::ExtraBytes
                | StartupFault::Enhanced
                | StartupFault::TimedOut => false,
            }
    }

    /// Looks at the time.
    ///
    /// # Errors
    ///
    /// [`StartupFault::TimedOut`] once the deadline has come.
    pub fn on_time(&self, now: Instant) -> Result<(), StartupFault> {
        self.incoming.on_time(now)
    }

    /// Returns the time by which the Reply must be complete.
    pub const fn deadline(&self) -> Instant {
        self.incoming.deadline
    }
}

/// A Request that is complete and well-formed.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The Initiator's Private Data.
    // Requirements: MPA-7.1.1-19
    pub private_data: Box<[u8]>,
    /// What it said of the Initiator.
    pub peer: Peer,
    /// The Initiator's frame, without its Private Data.
    asked: StartupFrame<'static>,
    /// Its enhanced data.
    data: Option<EnhancedData>,
}

impl Request {
    /// Returns the version of DDP and RDMAP that a connection would have.
    // Requirements: RDMAC-C.2.4-03
    pub const fn version(&self) -> u8 {
        if self.asked.revision == 0 { 0 } else { 1 }
    }

    /// Returns the most octets of Private Data that the Reply can carry.
    pub const fn private_data_max_octets(&self) -> usize {
        if self.data.is_some() { ENHANCED_PRIVATE_DATA_MAX_BYTES } else { PRIVATE_DATA_MAX_BYTES }
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

/// How a Responder answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// M and C.
    pub offer: Offer,
    /// The content of the Reply to an enhanced Request.
    pub terms: Terms,
    /// Whether Initiators of the RDMA Consortium's are answered in their revision (RFC 5044 appendix C).
    pub permissive: bool,
}

/// The end that waits for the Request and answers it.
// Requirements: MPA-7.1.2-03
#[derive(Debug)]
pub struct Responder {
    disposition: Disposition,
    incoming: Incoming,
    complete: bool,
}

impl Responder {
    /// Returns a Responder whose Request must be complete by `deadline`.
    pub const fn new(disposition: Disposition, deadline: Instant) -> Self {
        Self { disposition, incoming: Incoming::new(deadline), complete: false }
    }

    /// Takes octets of the Request. Returns the Request once it is complete.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: its answer is to be sent, if it has one, and the TCP connection closed. Also when octets
    /// come between the Request and our Reply.
    // Requirements: MPA-7.1.2-04, A-03, MPAv2-6-04
    pub fn on_octets(&mut self, octets: &[u8]) -> Result<Option<Request>, Refusal> {
        self.incoming.accept(octets);
        let request = rules::request(&self.incoming.octets);
        let Some(asked) = request.map_err(|error| self.incoming.fault(Kind::Request, error))? else {
            return Ok(None);
        };
        let answer = self.answer(&asked);
        if answer.close {
            // The peer of revision 0 learns ours, then the connection closes.
            // Requirements: A-12, RDMAC-C.2.1-01
            let fault = StartupError::Revision(asked.revision).into();
            return Err(Refusal { fault, answer: emit(&answer.reply, None, &[]).ok() });
        }
        self.complete = true;
        let (data, private_data) = split(&asked);
        let (private_data, peer) = (private_data.into(), peer_of(&asked));
        Ok(Some(Request { private_data, peer, asked: bare(asked), data }))
    }

    const fn answer(&self, asked: &StartupFrame<'_>) -> rules::Answer {
        rules::answer(asked, self.disposition.offer, self.disposition.permissive)
    }

    fn terms(&self, wanted: ReadsWanted) -> Terms {
        let Terms { depths, negotiated, rtr } = self.disposition.terms;
        Terms { depths: wanted.depths.unwrap_or(depths), negotiated, rtr }
    }

    /// Returns the accepting Reply, after which Full Operation begins.
    ///
    /// # Errors
    ///
    /// [`Unacceptable`]: it is to be [rejected](Self::reject) instead.
    // Requirements: MPA-7.1.2-08, MPA-7.1.2-09, A-07, MPAv2-9.1-04, MPAv2-10-01, MPAv2-10-02
    pub fn accept(
        &self,
        request: &Request,
        wanted: ReadsWanted,
        private_data: &[u8],
    ) -> Result<(Box<[u8]>, Setup), Unacceptable> {
        let terms = self.terms(wanted);
        let (data, outcome) = match request.data {
            None => (None, terms.unnegotiated()),
            Some(asked) => {
                let insufficient =
                    |_| Unacceptable::InsufficientIrd { offered: asked.ird, needed: wanted.ord_needed };
                let (data, outcome) = terms.answer(asked, wanted.ord_needed).map_err(insufficient)?;
                (Some(data), outcome)
            }
        };
        let reply = self.answer(&request.asked).reply;
        let octets = emit(&reply, data, private_data)?;
        Ok((octets, Setup { agreement: Agreement::of(&reply, &request.asked), outcome }))
    }

    /// Returns the rejecting Reply. An enhanced one states what the application wants of RDMA Reads, if it
    /// has decided that.
    ///
    /// # Errors
    ///
    /// [`PrivateDataTooLong`].
    // Requirements: MPA-7.1.2-05, MPA-7.1.2-06
    pub fn reject(
        &self,
        request: &Request,
        wanted: ReadsWanted,
        private_data: &[u8],
    ) -> Result<Box<[u8]>, PrivateDataTooLong> {
        let data = request.data.map(|asked| self.terms(wanted).rejection(asked, wanted.ord_needed));
        let reply = self.answer(&request.asked).reply;
        emit(&StartupFrame { rejected: true, ..reply }, data, private_data)
    }

    /// Looks at the time. A Request that is complete waits for the ULP, not for the peer.
    ///
    /// # Errors
    ///
    /// [`StartupFault::TimedOut`] once the deadline has come and the Request has not.
    // Requirements: MPA-7.1.2-21
    pub fn on_time(&self, now: Instant) -> Result<(), StartupFault> {
        if self.complete { Ok(()) } else { self.incoming.on_time(now) }
    }

    /// Returns the time by which the Request must be complete.
    pub const fn deadline(&self) -> Instant {
        if self.complete { Instant::NEVER } else { self.incoming.deadline }
    }
}

#[cfg(test)]
mod tests;
