//! What the startup frames mean: when they may come, how a Request is answered, and what both together agree
//! on (RFC 5044 §7.1, appendix C; RFC 6581). Octets of the frames themselves are in
//! [`wire::mpa`](crate::wire::mpa).

use super::MpaError;
use crate::wire::ddp::DDP_VERSION;
use crate::wire::mpa::{Kind, Parsed, StartupError, StartupFrame};

// MPA-8-06
impl From<StartupError> for MpaError {
    fn from(_: StartupError) -> Self {
        Self::StartupFrame
    }
}

/// What this end asks of a connection, in M and C of its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// M: the peer shall send Markers.
    pub markers: bool,
    /// C: both ends shall use CRCs. Only an administrator turns it off (MPA-4.4-03).
    pub crc: bool,
}

// MPA-1.2-02, MPA-4.4-03
impl Default for Offer {
    fn default() -> Self {
        Self { markers: false, crc: true }
    }
}

/// How a connection operates once both frames are exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// This end inserts Markers.
    pub markers_sent: bool,
    /// The peer inserts Markers.
    pub markers_received: bool,
    /// CRCs are generated and checked, in both directions, to the end of the connection.
    pub crc: bool,
    /// The version of DDP and of RDMAP: 1, or 0 with an RDMA Consortium peer. They never differ.
    pub version: u8,
}

impl Agreement {
    /// What `own`, the frame this end sent, and `peer`, the one it received, agree on.
    // Requirements: MPA-3-12, RDMAC-C.1-02, RDMAC-C.1-03, RDMAC-C.2-03, RDMAC-C.3-01
    pub const fn of(own: &StartupFrame<'_>, peer: &StartupFrame<'_>) -> Self {
        // An RDMA Consortium peer knows no choice, so it overrides ours (ambiguity A-22).
        // RDMAC-C.1-01, RDMAC-C.2-01, RDMAC-C.1-04, RDMAC-C.2.3-01, RDMAC-C.2.3-02, RDMAC-C.2.5-02
        if peer.revision == 0 {
            return Self { markers_sent: true, markers_received: true, crc: true, version: 0 };
        }
        Self {
            // Requirements: MPA-7.1.1-05, MPA-7.1.1-06
            markers_sent: peer.markers,
            markers_received: own.markers,
            // Requirements: MPA-4.4-04, MPA-4.4-07, MPA-4.4-08, MPA-7.1.1-07, MPA-7.1.1-08
            crc: own.crc || peer.crc,
            version: DDP_VERSION,
        }
    }
}

/// The Request that is all of `octets`, which the Responder has received and not answered; `None` while
/// octets are missing.
///
/// # Errors
///
/// [`StartupError`]. An Initiator sends nothing between its Request and the Reply, so octets after the frame
/// mean that its length is wrong (ambiguity A-03).
// MPA-7.1.1-17, MPA-7.1.2-03, MPA-7.1.2-04
pub fn request(octets: &[u8]) -> Result<Option<StartupFrame<'_>>, StartupError> {
    match StartupFrame::parse(Kind::Request, octets)? {
        Parsed::Incomplete => Ok(None),
        Parsed::Complete { frame, consumed } if consumed == octets.len() => Ok(Some(frame)),
        Parsed::Complete { .. } => Err(StartupError::PrivateDataLength),
    }
}

/// The Reply at the start of `octets`, which the Initiator has received, and its octets; `None` while some
/// are missing. After a rejection TCP stays open, and what follows the frame is for the ULP (ambiguity A-01).
///
/// # Errors
///
/// [`StartupError`]. A Responder that has accepted waits for the first FPDU (MPA-7.1.2-15), so octets after
/// an accepting Reply mean that its length is wrong.
// MPA-7.1.1-17, MPA-7.1.2-11, MPA-7.1.2-12, MPA-7.1.2-13
pub fn reply(octets: &[u8]) -> Result<Option<(StartupFrame<'_>, usize)>, StartupError> {
    match StartupFrame::parse(Kind::Reply, octets)? {
        Parsed::Incomplete => Ok(None),
        Parsed::Complete { frame, consumed } if frame.rejected || consumed == octets.len() => {
            Ok(Some((frame, consumed)))
        }
        Parsed::Complete { .. } => Err(StartupError::PrivateDataLength),
    }
}

/// What an Initiator makes of the revision of a Reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The connection may go on as the frames say.
    Together,
    /// The Responder does not support all that the Request asks for, and may have handed the enhanced data to
    /// its ULP as Private Data: the connection is closed, and a new one may be tried with revision 1
    /// (MPAv2-10-05).
    Older,
    /// The Reply is none that the Request allows, and an older Request would not help: the connection is
    /// closed.
    Apart,
}

/// How `reply` fits the Request `asked`, of an Initiator that talks to RDMA Consortium peers when
/// `permissive`.
// MPA-7.1.1-13, MPA-7.1.1-14, RDMAC-C.1-05, RDMAC-C.2.2-01, RDMAC-C.2.3-01, MPAv2-10-05
pub const fn fit(asked: &StartupFrame<'_>, reply: &StartupFrame<'_>, permissive: bool) -> Fit {
    match (asked.revision, reply.revision) {
        (0, 0) | (1, 1) => Fit::Together,
        (1, 0) if permissive => Fit::Together,
        // A Responder accepts an enhanced Request with an enhanced Reply, and any other with a Reply that is
        // not enhanced (MPAv2-10-01). A Reply that rejects may be either.
        (2, 2) if asked.enhanced == reply.enhanced || reply.rejected => Fit::Together,
        (2, 2) if asked.enhanced => Fit::Older,
        (2, 1) => Fit::Older,
        (2, 0) if permissive => Fit::Older,
        _ => Fit::Apart,
    }
}

/// The answer to a Request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The Reply, accepting unless it must not, for the caller to add Private Data or the rejection of its
    /// ULP. An enhanced one needs its enhanced data before it can be emitted.
    pub reply: StartupFrame<'static>,
    /// After the Reply the connection is to be closed gracefully and the error reported locally.
    pub close: bool,
}

/// The answer to `request` of a Responder that asks for `offer`, and talks to RDMA Consortium peers when
/// `permissive`.
pub const fn answer(request: &StartupFrame<'_>, offer: Offer, permissive: bool) -> Answer {
    let mut reply = StartupFrame {
        kind: Kind::Reply,
        markers: offer.markers,
        // MPA-7.1.1-08: the Request's C settles it. It is repeated because Linux siw, if set to insist on
        // CRCs, looks for it in the Reply only.
        crc: offer.crc || request.crc,
        rejected: false,
        enhanced: request.enhanced,
        // MPA-7.1.1-12, MPAv2-6-04, MPAv2-10-01, MPAv2-10-02, A-11
        revision: request.revision,
        private_data: &[],
    };
    if request.revision != 0 {
        return Answer { reply, close: false };
    }
    if permissive {
        // RDMAC-C.2.3-03, RDMAC-C.2.4-02: such a peer accepts nothing else.
        (reply.markers, reply.crc) = (true, true);
        return Answer { reply, close: false };
    }
    // RDMAC-C.2.1-01, RDMAC-C.2-02, A-12: the peer learns why before the connection closes.
    (reply.revision, reply.rejected) = (1, true);
    Answer { reply, close: true }
}

#[cfg(test)]
mod appendix_c;

#[cfg(test)]
mod tests {
    use super::*;

    const fn frame(kind: Kind, markers: bool, crc: bool, revision: u8) -> StartupFrame<'static> {
        StartupFrame { kind, markers, crc, rejected: false, enhanced: false, revision, private_data: b"data" }
    }

    fn octets(frame: &StartupFrame<'_>, more: &[u8]) -> Vec<u8> {
        let mut octets = vec![0; frame.len()];
        frame.emit(&mut octets).unwrap();
        octets.extend(more);
        octets
    }

    /// CRCs are on unless the administrator disables them.
    // Requirements: MPA-1.2-02, MPA-4.4-02, MPA-4.4-03, MPA-4.4-05
    #[test]
    fn crcs_are_on_by_default() {
        assert!(Offer::default().crc);
    }

    /// All sixteen combinations.
    // Requirements: MPA-4.4-04, MPA-7.1.1-05, MPA-7.1.1-07, MPA-7.1.1-08, RDMAC-C.2-03
    #[test]
    fn each_end_asks_for_the_markers_it_receives_and_either_for_crcs() {
        for bits in 0..16 {
            let bit = |index: u32| bits >> index & 1 == 1;
            let own = frame(Kind::Request, bit(0), bit(1), 1);
            let peer = frame(Kind::Reply, bit(2), bit(3), 1);
            let agreement = Agreement::of(&own, &peer);
            assert_eq!(agreement.markers_received, bit(0));
            assert_eq!(agreement.markers_sent, bit(2));
            assert_eq!(agreement.crc, bit(1) || bit(3));
            assert_eq!(agreement.version, 1);
            let other = Agreement::of(&peer, &own);
            assert_eq!((other.markers_sent, other.markers_received), (bit(0), bit(2)));
            assert_eq!(other.crc, agreement.crc);
        }
    }

    // Requirements: RDMAC-C.1-01, RDMAC-C.1-04, RDMAC-C.2.3-02, RDMAC-C.2.5-02, A-22
    #[test]
    fn an_rdma_consortium_peer_has_it_its_way() {
        let peer = frame(Kind::Reply, true, true, 0);
        for markers in [false, true] {
            let agreement = Agreement::of(&frame(Kind::Request, markers, false, 1), &peer);
            let expected = Agreement { markers_sent: true, markers_received: true, crc: true, version: 0 };
            assert_eq!(agreement, expected);
        }
    }

    // Requirements: MPA-7.1.1-17, A-03
    #[test]
    fn octets_behind_a_frame_are_judged_by_who_may_send_them() {
        let asked = frame(Kind::Request, true, true, 1);
        assert_eq!(request(&octets(&asked, b"")), Ok(Some(asked)));
        assert_eq!(request(&octets(&asked, b"x")), Err(StartupError::PrivateDataLength));
        assert_eq!(request(&octets(&asked, b"")[..23]), Ok(None));
        let accepted = frame(Kind::Reply, true, true, 1);
        assert_eq!(reply(&octets(&accepted, b"")), Ok(Some((accepted, 24))));
        assert_eq!(reply(&octets(&accepted, b"x")), Err(StartupError::PrivateDataLength));
        assert_eq!(reply(&octets(&accepted, b"")[..23]), Ok(None));
        let rejected = StartupFrame { rejected: true, ..accepted };
        assert_eq!(reply(&octets(&rejected, b"x")), Ok(Some((rejected, 24))));
    }

    // Requirements: MPA-8-06
    #[test]
    fn a_bad_frame_is_error_4() {
        let error = request(b"GET / HTTP/1.1").unwrap_err();
        assert_eq!(MpaError::from(error).code(), 4);
    }

    /// M is this end's own choice; C is set if either end requests CRCs.
    // Requirements: MPA-7.1.2-08, MPA-7.1.1-08, MPAv2-6-04, MPAv2-10-01, MPAv2-10-02, A-11
    #[test]
    fn the_reply_has_the_revision_of_the_request() {
        let offer = Offer { markers: true, crc: false };
        for (revision, enhanced, crc) in [(1, false, true), (2, false, false), (2, true, true)] {
            let asked = StartupFrame { enhanced, ..frame(Kind::Request, false, crc, revision) };
            let Answer { reply, close } = answer(&asked, offer, true);
            assert!(!close && !reply.rejected && reply.markers && reply.crc == crc);
            assert_eq!((reply.kind, reply.revision, reply.enhanced), (Kind::Reply, revision, enhanced));
            assert_eq!(reply.emit(&mut [0; 20]).is_none(), enhanced, "enhanced data is missing");
        }
    }

    // Requirements: RDMAC-C.2.1-01, RDMAC-C.2.3-03, RDMAC-C.2.4-02, A-12
    #[test]
    fn revision_0_is_for_the_permissive() {
        let asked = frame(Kind::Request, true, true, 0);
        let offer = Offer { markers: false, crc: false };
        let Answer { reply, close } = answer(&asked, offer, true);
        assert!(!close && !reply.rejected && reply.markers && reply.crc);
        assert_eq!(reply.revision, 0);
        let Answer { reply, close } = answer(&asked, offer, false);
        assert!(close && reply.rejected);
        assert_eq!(reply.revision, 1);
    }

    /// Every revision asked and answered, enhanced and not, accepting and rejecting.
    // Requirements: MPAv2-10-01, MPAv2-10-05, MPA-7.1.1-13
    #[test]
    fn a_reply_fits_its_request_or_not() {
        for case in 0..32 {
            let bit = |index: u32| case >> index & 1 == 1;
            let (permissive, rejected) = (bit(0), bit(1));
            for (asked_revision, reply_revision) in
                (0..3).flat_map(|asked| (0..3).map(move |reply| (asked, reply)))
            {
                let asked =
                    StartupFrame { enhanced: bit(2), ..frame(Kind::Request, false, true, asked_revision) };
                let reply = StartupFrame {
                    enhanced: bit(3) && reply_revision == 2,
                    rejected,
                    ..frame(Kind::Reply, false, true, reply_revision)
                };
                let expected = match (asked_revision, reply_revision) {
                    (0, 0) | (1, 1) => Fit::Together,
                    (1, 0) if permissive => Fit::Together,
                    (2, 2) if rejected || asked.enhanced == reply.enhanced => Fit::Together,
                    (2, 2) if reply.enhanced => Fit::Apart,
                    (2, 0) if !permissive => Fit::Apart,
                    (2, _) => Fit::Older,
                    _ => Fit::Apart,
                };
                assert_eq!(fit(&asked, &reply, permissive), expected, "{asked:?} {reply:?} {permissive}");
            }
        }
    }
}
