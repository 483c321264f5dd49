//! MPA startup under arbitrary octets in arbitrary pieces, in every revision and either role. An independent
//! oracle (`mpa_reference`), which reads the frames octet by octet, and the rules of the documents,
//! implemented again here, determine the expected result.
//!
//! [`run`] takes one input; libFuzzer drives it from `fuzz/`, the tests replay seeds and regressions.
#![allow(dead_code, reason = "the judge of FPDUs is used in part")]

mod initiator;
#[path = "../receive/input.rs"]
mod input;
#[path = "../../../dataplane/tests/reference/mpa/mod.rs"]
mod mpa_reference;
mod peer;
mod responder;

use input::Input;
use warpline::startup::{Offer, ReadDepths, RtrKinds, Terms};
use warpline_dataplane::limits;
use warpline_dataplane::time::Instant;

/// When the peer's frame must be complete.
const DEADLINE: Instant = Instant::from_nanos(1_000_000);
/// Words that leave the depths to the ULPs.
const UNNEGOTIATED: u16 = 0x3fff;

/// The end of a run, for tests that check the coverage of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// The peer's octets are no frame yet.
    Incomplete,
    /// They never will be.
    Malformed,
    /// Octets follow a frame that nothing may follow.
    Extra,
    /// The frame is of a revision that does not fit.
    Revision,
    /// This end cannot send its own Private Data.
    OurPrivateData,
    /// This end requires more RDMA Reads than the peer accepts.
    OurReads,
    /// We rejected.
    WeRejected,
    /// The peer rejected.
    Rejected,
    /// The peer accepted on terms that cannot be met.
    Unmet,
    /// Full Operation may begin.
    Accepted { version: u8, enhanced: bool },
}

/// How this end is set up.
#[derive(Clone, Copy, Debug)]
struct Own {
    offer: Offer,
    terms: Terms,
    permissive: bool,
    revision: u8,
    private_data_octets: usize,
}

impl Own {
    fn of(input: &mut Input<'_>) -> Self {
        let (how, more) = (input.octet(), input.octet());
        let depths = ReadDepths { ird: input.u16() & UNNEGOTIATED, ord: input.u16() & UNNEGOTIATED };
        Self {
            offer: Offer { markers: how & 1 != 0, crc: how & 2 != 0 },
            terms: Terms { depths, negotiated: how & 4 == 0, rtr: RtrKinds::from_bits_truncate(how >> 3) },
            permissive: how & 0x40 != 0,
            revision: more % 3,
            private_data_octets: [0, 1, 4, 508, 509, 512, 513, 600][usize::from(more >> 3) % 8],
        }
    }

    fn private_data(&self) -> Vec<u8> {
        (0..self.private_data_octets).map(|at| at as u8 ^ 0x6b).collect()
    }

    /// Whether our Request is enhanced (RFC 6581 §10, MPAv2-10-03).
    fn enhances(&self) -> bool {
        self.revision == 2 && (self.terms.negotiated || !self.terms.rtr.is_empty())
    }

    /// The depths of this end.
    fn most(&self) -> (u16, u16) {
        let ReadDepths { ird, ord } = self.terms.depths;
        (ird.min(limits::READ_DEPTH_MAX), ord.min(limits::READ_DEPTH_MAX))
    }
}

/// Whether A is set in the words of a frame, and the kinds of indication it then names: B, C and D.
fn kinds(words: [u16; 2]) -> (bool, RtrKinds) {
    let peer_to_peer = words[0] & 0x8000 != 0;
    let mut kinds = RtrKinds::empty();
    if peer_to_peer {
        kinds.set(RtrKinds::SEND, words[0] & 0x4000 != 0);
        kinds.set(RtrKinds::WRITE, words[1] & 0x8000 != 0);
        kinds.set(RtrKinds::READ, words[1] & 0x4000 != 0);
    }
    (peer_to_peer, kinds)
}

/// IRD and ORD.
fn depths(words: [u16; 2]) -> (u16, u16) {
    (words[0] & UNNEGOTIATED, words[1] & UNNEGOTIATED)
}

/// Runs one input.
///
/// # Panics
///
/// If startup and the oracle reach different ends.
pub fn run(octets: &[u8]) -> End {
    let mut input = Input::new(octets);
    let own = Own::of(&mut input);
    if input.octet() & 1 == 0 { responder::run(&mut input, own) } else { initiator::run(&mut input, own) }
}
