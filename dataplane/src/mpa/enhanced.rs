//! Enhanced connection establishment (RFC 6581): the depths of the queues of RDMA Reads, and the indication
//! that lets the Responder send first. Pure rules; the octets are [`EnhancedData`], the frames around them
//! [`startup`](super::startup)'s.

use bitflags::bitflags;

use super::MpaError;
use crate::limits;
use crate::wire::mpa::EnhancedData;

bitflags! {
    /// Kinds of ready-to-receive indication: control flags B, C and D.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct RtrKinds: u8 {
        /// B: a Send without payload.
        const SEND = 0b001;
        /// C: an RDMA Write without payload.
        const WRITE = 0b010;
        /// D: an RDMA Read Request for nothing.
        const READ = 0b100;
    }
}

impl RtrKinds {
    /// The kinds that `data` names. Outside the peer-to-peer model there are none.
    // MPAv2-9.2-09
    pub fn of(data: EnhancedData) -> Self {
        if !data.peer_to_peer {
            return Self::empty();
        }
        let flags = [(data.rtr_send, Self::SEND), (data.rtr_write, Self::WRITE), (data.rtr_read, Self::READ)];
        flags.into_iter().filter_map(|(set, kind)| set.then_some(kind)).collect()
    }

    /// The one to send of several that would do. A Write asks nothing of the Responder, a Read Request a
    /// place in its queue and an answer, a Send a buffer.
    const fn pick(self) -> Option<Rtr> {
        if self.contains(Self::WRITE) {
            Some(Rtr::Write)
        } else if self.contains(Self::READ) {
            Some(Rtr::Read)
        } else if self.contains(Self::SEND) {
            Some(Rtr::Send)
        } else {
            None
        }
    }
}

/// A ready-to-receive indication: the Initiator's first FPDU, which lets the Responder send though the
/// Initiator's ULP has nothing to send yet.
// MPAv2-9.2-10
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rtr {
    /// An RDMA Write without payload.
    Write,
    /// An RDMA Read Request for nothing. It is number 1 of its queue and is answered.
    Read,
    /// A Send without payload. It is number 1 of its queue; neither ULP sees it (ambiguity A-16).
    Send,
}

/// What a connection does about ready-to-receive indications in Full Operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadyToReceive {
    /// None is agreed: the Initiator's ULP sends first.
    #[default]
    None,
    /// The Initiator sends this before anything else.
    Send(Rtr),
    /// The Responder accepts one of these as the peer's first FPDU.
    Expect(RtrKinds),
}

/// How many RDMA Read Requests may be outstanding, in either direction (RFC 6581 §9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadDepths {
    /// IRD: inbound ones, that the peer may have outstanding here. In octets from a peer,
    /// [`UNNEGOTIATED`](Self::UNNEGOTIATED) leaves it to the ULPs.
    pub ird: u16,
    /// ORD: outbound ones, that this end may have outstanding there. As above.
    pub ord: u16,
}

impl ReadDepths {
    /// The depth that says that the ULPs see to it themselves.
    pub const UNNEGOTIATED: u16 = EnhancedData::UNNEGOTIATED;

    /// Those that `data` names.
    pub const fn of(data: EnhancedData) -> Self {
        Self { ird: data.ird, ord: data.ord }
    }
}

/// What an end brings to an enhanced connection setup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The most that this end accepts and wants, each up to [`READ_DEPTH_MAX`](limits::READ_DEPTH_MAX).
    pub depths: ReadDepths,
    /// IRD and ORD are negotiated. Otherwise this end states [`UNNEGOTIATED`](ReadDepths::UNNEGOTIATED) and
    /// uses `depths`; its ORD is still at most an IRD that the peer states, and a Responder then states that
    /// ORD.
    pub negotiated: bool,
    /// The indications that this end can send as Initiator; with none it asks for the client-server model, in
    /// which its ULP sends first. Those that it accepts as Responder; with none it accepts a Write, which
    /// costs it nothing.
    pub rtr: RtrKinds,
}

/// What an enhanced connection setup came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// This end's IRD and ORD from now on.
    pub depths: ReadDepths,
    /// What is sent first, or expected first.
    pub ready: ReadyToReceive,
}

impl Terms {
    const fn usual(rtr: RtrKinds) -> Self {
        let depths = ReadDepths { ird: limits::READ_DEPTH_USUAL, ord: limits::READ_DEPTH_USUAL };
        Self { depths, negotiated: true, rtr }
    }

    /// The usual for an Initiator: depths that all peers bear, negotiated, and the client-server model.
    pub const fn initiator() -> Self {
        Self::usual(RtrKinds::empty())
    }

    /// The usual for a Responder: depths that all peers bear, negotiated, and any indication.
    pub const fn responder() -> Self {
        Self::usual(RtrKinds::all())
    }

    /// What this end stands by without negotiation, as with a peer that does not know of it.
    pub fn unnegotiated(self) -> Outcome {
        Outcome { depths: self.most(), ready: ReadyToReceive::None }
    }

    fn most(self) -> ReadDepths {
        let bounded = |depth: u16| depth.min(limits::READ_DEPTH_MAX);
        ReadDepths { ird: bounded(self.depths.ird), ord: bounded(self.depths.ord) }
    }

    /// Whether a Request has something to say that only an enhanced one can. RFC 6581 §10: otherwise it is
    /// not enhanced. Depths that are left to the ULPs say nothing (ambiguity A-35).
    // Requirements: MPAv2-10-03
    pub const fn enhances(self) -> bool {
        self.negotiated || !self.rtr.is_empty()
    }

    /// What the Initiator asks for.
    // MPAv2-5-02, MPAv2-9.2-01, MPAv2-9.2-09
    pub fn request(self) -> EnhancedData {
        let depths = if self.negotiated { self.most() } else { UNNEGOTIATED };
        data(!self.rtr.is_empty(), self.rtr, depths)
    }

    /// What the Responder answers when it accepts, and what that means for itself.
    ///
    /// # Errors
    ///
    /// [`MpaError::InsufficientIrd`] when its ULP needs an ORD of `ord_needed` and the Initiator's IRD does
    /// not allow it. It may not send a Terminate before the Initiator's first FPDU; the
    /// [rejection](Self::rejection) says why instead (ambiguity A-07).
    // MPAv2-9.1-04, MPAv2-9.1-05, MPAv2-10-01
    pub fn answer(self, asked: EnhancedData, ord_needed: u16) -> Result<(EnhancedData, Outcome), MpaError> {
        let kinds = self.kinds_for(asked);
        let (ird, own_ird) = self.ird_for(asked, kinds);
        let (ord, own_ord) = self.ord_for(asked);
        if own_ord < ord_needed && ord != ReadDepths::UNNEGOTIATED {
            return Err(MpaError::InsufficientIrd);
        }
        let ready = if asked.peer_to_peer { ReadyToReceive::Expect(kinds) } else { ReadyToReceive::None };
        // MPAv2-9.2-03, MPAv2-9.2-09: the model is the Initiator's.
        let reply = data(asked.peer_to_peer, kinds, ReadDepths { ird, ord });
        Ok((reply, Outcome { depths: ReadDepths { ird: own_ird, ord: own_ord }, ready }))
    }

    /// What the Responder says when it rejects: as in an acceptance, but with the ORD that its ULP needs.
    // MPAv2-9.1-04, MPAv2-10-01
    pub fn rejection(self, asked: EnhancedData, ord_needed: u16) -> EnhancedData {
        let kinds = self.kinds_for(asked);
        let (ird, _) = self.ird_for(asked, kinds);
        let ord = match self.ord_for(asked) {
            (ReadDepths::UNNEGOTIATED, _) => ReadDepths::UNNEGOTIATED,
            (ord, _) => ord.max(ord_needed).min(ReadDepths::UNNEGOTIATED - 1),
        };
        data(asked.peer_to_peer, kinds, ReadDepths { ird, ord })
    }

    /// The indications that the Responder names: of those it has, the ones the Initiator has too; if there
    /// are none, its own, and it is for the Initiator to end the connection.
    // MPAv2-9.2-02, MPAv2-9.2-04, MPAv2-9.2-05, MPAv2-9.2-06
    fn kinds_for(self, asked: EnhancedData) -> RtrKinds {
        let own = if self.rtr.is_empty() { RtrKinds::WRITE } else { self.rtr };
        let common = RtrKinds::of(asked) & own;
        if common.is_empty() { own } else { common }
    }

    /// The Responder's IRD: what it says, and what it has.
    fn ird_for(self, asked: EnhancedData, kinds: RtrKinds) -> (u16, u16) {
        let most = self.most().ird;
        // MPAv2-9.1-09
        if asked.ord == ReadDepths::UNNEGOTIATED || !self.negotiated {
            return (ReadDepths::UNNEGOTIATED, most);
        }
        // MPAv2-9.1-03: an indication by a Read has a place in the queue like any other.
        let least = u16::from(asked.peer_to_peer && kinds.contains(RtrKinds::READ));
        let ird = asked.ord.min(most).max(least);
        (ird, ird)
    }

    /// The Responder's ORD: what it says, and what it has. RFC 6581 §9.1: at most the Initiator's IRD, also
    /// when the Responder's ULP sees to the depths itself (ambiguity A-36). Example: 30 Reads wanted and an
    /// IRD of 5 make an ORD of 5.
    // Requirements: MPAv2-9.1-02, MPAv2-9.1-11
    fn ord_for(self, asked: EnhancedData) -> (u16, u16) {
        let most = self.most().ord;
        if asked.ird == ReadDepths::UNNEGOTIATED {
            return (ReadDepths::UNNEGOTIATED, most);
        }
        let ord = asked.ird.min(most);
        (ord, ord)
    }

    /// What the Initiator concludes from an accepting Reply.
    ///
    /// # Errors
    ///
    /// The caller reports them by a Terminate: [`MpaError::InsufficientIrd`] if the Responder's ORD exceeds
    /// our IRD, [`MpaError::NoMatchingRtr`] if it accepts none of the indications that we can send, or has
    /// not agreed to the peer-to-peer model that we asked for.
    pub fn conclude(self, reply: EnhancedData) -> Result<Outcome, MpaError> {
        let most = self.most();
        // MPAv2-9.1-06, MPAv2-9.1-10
        let ord = match reply.ird {
            ReadDepths::UNNEGOTIATED => most.ord,
            ird => ird.min(most.ord),
        };
        // MPAv2-9.1-06, MPAv2-9.1-07, MPAv2-9.1-12
        if reply.ord != ReadDepths::UNNEGOTIATED && reply.ord > most.ird {
            return Err(MpaError::InsufficientIrd);
        }
        let depths = ReadDepths { ird: most.ird, ord };
        let ready = match self.rtr_for(reply)? {
            Some(rtr) => ReadyToReceive::Send(rtr),
            None => ReadyToReceive::None,
        };
        Ok(Outcome { depths, ready })
    }

    /// The indication that the Initiator sends after `reply`: one that both have, not simply the one it would
    /// like best.
    // MPAv2-9.2-07, MPAv2-9.2-08, MPAv2-12-01
    fn rtr_for(self, reply: EnhancedData) -> Result<Option<Rtr>, MpaError> {
        if !reply.peer_to_peer {
            // The Responder must echo A. Without it nothing is agreed that would let it send.
            return if self.rtr.is_empty() { Ok(None) } else { Err(MpaError::NoMatchingRtr) };
        }
        // One that was not asked for binds us all the same, and then any is as good.
        let own = if self.rtr.is_empty() { RtrKinds::all() } else { self.rtr };
        let mut kinds = RtrKinds::of(reply) & own;
        if reply.ird == 0 {
            // There is no place for a Read Request, whatever the flag says.
            kinds -= RtrKinds::READ;
        }
        kinds.pick().map(Some).ok_or(MpaError::NoMatchingRtr)
    }
}

const UNNEGOTIATED: ReadDepths = ReadDepths { ird: ReadDepths::UNNEGOTIATED, ord: ReadDepths::UNNEGOTIATED };

const fn data(peer_to_peer: bool, kinds: RtrKinds, depths: ReadDepths) -> EnhancedData {
    EnhancedData {
        peer_to_peer,
        rtr_send: peer_to_peer && kinds.contains(RtrKinds::SEND),
        rtr_write: peer_to_peer && kinds.contains(RtrKinds::WRITE),
        rtr_read: peer_to_peer && kinds.contains(RtrKinds::READ),
        ird: depths.ird,
        ord: depths.ord,
    }
}

#[cfg(test)]
mod tests;
