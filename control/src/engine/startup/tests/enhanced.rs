//! Tests of enhanced startup frames (RFC 6581), and of those of the RDMA Consortium's endpoints (RFC 5044
//! appendix C).

use super::*;
use warpline_dataplane::mpa::enhanced::{ReadyToReceive, Rtr};

const ANY: u16 = ReadDepths::UNNEGOTIATED;

const fn depths(ird: u16, ord: u16) -> ReadDepths {
    ReadDepths { ird, ord }
}

/// A Reply that accepts, of revision 2, with these enhanced data.
fn reply(word: [u8; 4]) -> Vec<u8> {
    [&b"MPA ID Rep Frame"[..], &[0x50, 2, 0, 4], &word].concat()
}

fn concluded(proposal: Proposal, octets: &[u8]) -> Reply {
    asking(proposal).0.on_octets(octets).unwrap().unwrap()
}

fn accepted(proposal: Proposal, octets: &[u8]) -> (Setup, Peer) {
    match concluded(proposal, octets) {
        Reply::Accepted { setup, peer, .. } => (setup, peer),
        other => panic!("{other:?}"),
    }
}

/// Returns a Responder that has received `octets`, and the Request it read.
fn asked(octets: &[u8]) -> (Responder, Request) {
    let mut responder = responder(CRC);
    let request = responder.on_octets(octets).unwrap().unwrap();
    (responder, request)
}

fn wanted(ird: u16, ord: u16) -> ReadsWanted {
    ReadsWanted { depths: Some(depths(ird, ord)), ord_needed: 0 }
}

// Requirements: MPAv2-6-01, MPAv2-6-02, MPAv2-9-01, MPAv2-9.2-01, MPAv2-9.2-09
#[test]
fn enhanced_requests_are_the_golden_octets() {
    let sent = |proposal: Proposal| asking(proposal).1;
    assert_eq!(
        *sent(enhanced(16, 16, RtrKinds::all())),
        vector(REV2, "Enhanced Request C=1 S=1 A=1 B=1 C=1 D=1")
    );
    assert_eq!(*sent(enhanced(1, 1, RtrKinds::empty())), vector(REV2, "Enhanced Request client-server"));
    let (_, with_data) = Initiator::new(enhanced(4, 8, RtrKinds::READ), b"abcd", DEADLINE).unwrap();
    assert_eq!(*with_data, vector(REV2, "Enhanced Request + ULP Private Data"));
}

/// Terms that leave the depths to the ULPs.
fn unnegotiated(rtr: RtrKinds) -> Proposal {
    let proposal = enhanced(16, 16, rtr);
    Proposal { terms: Terms { negotiated: false, ..proposal.terms }, ..proposal }
}

/// RFC 6581 §10, MPAv2-10-03, A-35: a Request sets S=1 only if it carries enhanced content. Depths of 0x3FFF
/// carry none; an indication does. The Reply to a Request without S has no enhanced data either
/// (MPAv2-10-02).
#[test]
fn a_request_with_nothing_enhanced_to_say_is_not_enhanced() {
    let octets =
        |flags, data: &[u8]| [&b"MPA ID Req Frame"[..], &[flags, 2, 0, data.len() as u8], data].concat();
    assert_eq!(*asking(unnegotiated(RtrKinds::empty())).1, octets(0x40, b""));
    assert_eq!(*asking(unnegotiated(RtrKinds::WRITE)).1, octets(0x50, &[0xbf, 0xff, 0xbf, 0xff]));
    assert_eq!(*asking(enhanced(0, 0, RtrKinds::empty())).1, octets(0x50, &[0; 4]));
    // All 512 octets are the ULP's.
    let proposal = unnegotiated(RtrKinds::empty());
    assert!(Initiator::new(proposal, &[7; 512], DEADLINE).is_ok());
    let bare = [&b"MPA ID Rep Frame"[..], &[0x40, 2, 0, 0]].concat();
    let (setup, peer) = accepted(proposal, &bare);
    assert_eq!((peer, setup.outcome.depths), (Peer { revision: 2, depths: None }, depths(16, 16)));
    let (mut initiator, _) = asking(proposal);
    assert_eq!(initiator.on_octets(&reply([0, 1, 0, 1])), Err(StartupFault::Enhanced));
    assert!(!initiator.may_fall_back(StartupFault::Enhanced));
}

/// "30 wanted against an IRD of 5": the Reply and the connection have an ORD of 5, though this end leaves the
/// depths to the ULPs.
// Requirements: MPAv2-9.1-02, A-36
#[test]
fn an_ord_without_negotiation_keeps_to_the_peers_ird() {
    let octets = [&b"MPA ID Req Frame"[..], &[0x50, 2, 0, 4, 0, 5, 0, 5]].concat();
    let (mut responder, request) = asked(&octets);
    responder.disposition.terms.negotiated = false;
    let (octets, setup) = responder.accept(&request, wanted(20, 30), &[]).unwrap();
    assert_eq!(*octets, reply([0x3f, 0xff, 0, 5]));
    assert_eq!(setup.outcome.depths, depths(20, 5));
}

// Requirements: MPAv2-9.1-01, MPAv2-9.1-04, MPAv2-9.1-09, MPAv2-9.1-11, MPAv2-9.2-03, MPAv2-10-01
#[test]
fn enhanced_requests_get_the_golden_replies() {
    let (mut responder, request) = asked(&vector(REV2, "Enhanced Request C=1 S=1 A=1 B=1 C=1 D=1"));
    assert_eq!(request.peer, Peer { revision: 2, depths: Some(depths(16, 16)) });
    responder.disposition.terms.rtr = RtrKinds::WRITE;
    let (octets, setup) = responder.accept(&request, ANY_READS, &[]).unwrap();
    assert_eq!(*octets, vector(REV2, "Enhanced Reply accept A=1 C=1"));
    assert_eq!(setup.outcome.depths, depths(16, 16));
    assert_eq!(setup.outcome.ready, ReadyToReceive::Expect(RtrKinds::WRITE));

    let (responder, request) = asked(&vector(REV2, "Enhanced Request + ULP Private Data"));
    assert_eq!((&*request.private_data, request.peer.depths), (&b"abcd"[..], Some(depths(4, 8))));
    let (octets, _) = responder.accept(&request, wanted(8, 4), &[]).unwrap();
    assert_eq!(*octets, vector(REV2, "Enhanced Reply accept A=1 D=1"));

    let (responder, request) = asked(&vector(REV2, "Enhanced Request with IRD=ORD=0x3fff"));
    let (octets, setup) = responder.accept(&request, wanted(7, 9), &[]).unwrap();
    assert_eq!(*octets, reply([0x3f, 0xff, 0x3f, 0xff]));
    assert_eq!(setup.outcome.depths, depths(7, 9));
}

/// If the Initiator's IRD does not allow the Responder's ORD, the Responder asks for a larger one in the
/// golden rejecting Reply. No Reply leaves before the application has decided.
// Requirements: MPAv2-9.1-04, MPAv2-9.1-05, A-07
#[test]
fn too_small_an_ird_is_rejected_with_the_golden_reply() {
    let octets = [&b"MPA ID Req Frame"[..], &[0x50, 2, 0, 4, 0, 16, 0, 16]].concat();
    let (responder, request) = asked(&octets);
    let wanted = ReadsWanted { depths: Some(depths(16, 32)), ord_needed: 32 };
    let refused = responder.accept(&request, wanted, &[]).unwrap_err();
    assert_eq!(refused, Unacceptable::InsufficientIrd { offered: 16, needed: 32 });
    let octets = responder.reject(&request, wanted, &[]).unwrap();
    assert_eq!(*octets, vector(REV2, "Enhanced Reply reject R=1, required ORD=32"));
    // The Initiator's ULP gets to see it (MPAv2-9.1-08).
    let peer = Peer { revision: 2, depths: Some(depths(16, 32)) };
    let rejected = Reply::Rejected { private_data: Box::default(), peer };
    assert_eq!(concluded(enhanced(16, 16, RtrKinds::empty()), &octets), rejected);
}

// Requirements: MPAv2-9.1-06, MPAv2-9.1-08, MPAv2-9.1-10, MPAv2-9.1-12, MPAv2-9.2-07
#[test]
fn the_initiator_keeps_to_the_reply() {
    let proposal = enhanced(16, 16, RtrKinds::all());
    let (setup, peer) = accepted(proposal, &vector(REV2, "Enhanced Reply accept A=1 C=1"));
    assert_eq!(peer, Peer { revision: 2, depths: Some(depths(16, 16)) });
    assert_eq!(setup.outcome, Outcome { depths: depths(16, 16), ready: ReadyToReceive::Send(Rtr::Write) });
    let (setup, peer) = accepted(proposal, &vector(REV2, "Enhanced Reply accept A=1 D=1"));
    assert_eq!(peer.depths, Some(depths(8, 4)));
    assert_eq!(setup.outcome, Outcome { depths: depths(16, 8), ready: ReadyToReceive::Send(Rtr::Read) });
    let (setup, peer) = accepted(enhanced(3, 5, RtrKinds::empty()), &reply([0x3f, 0xff, 0x3f, 0xff]));
    assert_eq!((peer.depths, setup.outcome.depths), (Some(depths(ANY, ANY)), depths(3, 5)));
    assert_eq!(setup.agreement.version, 1);
}

/// An end that cannot meet the peer's terms answers with the golden Terminates, preceded by a Marker if the
/// Responder asked for Markers.
// Requirements: MPAv2-8-01, MPAv2-9.1-05, MPAv2-9.1-07, MPAv2-9.2-08
#[test]
fn unmet_terms_are_terminated_with_the_golden_octets() {
    const FILE: &str = "rdmap-terminate.hex";
    let (ird, rtr) = (
        "MPA insufficient IRD (RFC 6581): layer 2, type 0, code 6 (FPDU",
        "MPA no matching RTR option (RFC 6581): layer 2, type 0, code 7 (FPDU",
    );
    for (proposal, word, expected, label) in [
        (enhanced(4, 4, RtrKinds::empty()), [0, 4, 0, 5], MpaError::InsufficientIrd, ird),
        (enhanced(4, 4, RtrKinds::SEND), [0x80, 4, 0x80, 4], MpaError::NoMatchingRtr, rtr),
        (enhanced(4, 4, RtrKinds::all()), [0, 4, 0, 4], MpaError::NoMatchingRtr, rtr),
    ] {
        let Reply::Unmet { error, terminate, peer } = concluded(proposal, &reply(word)) else {
            panic!("{word:?}")
        };
        assert_eq!((error, &*terminate), (expected, &*vector(FILE, label)));
        assert_eq!(peer.revision, 2);
        let mut marked = reply(word);
        marked[16] |= 0x80;
        let Reply::Unmet { terminate, .. } = concluded(proposal, &marked) else { panic!("{word:?}") };
        assert_eq!(terminate[..4], [0; 4], "the Marker");
        assert_eq!(terminate[4..28], vector(FILE, label)[..24]);
        let crc = warpline_dataplane::crc32c::checksum(&terminate[..28]).to_le_bytes();
        assert_eq!(terminate[28..], crc, "MPA-4.4-13");
    }
    // The third of the codes.
    // Requirements: MPAv2-9.3-01
    let agreement = Agreement { markers_sent: false, markers_received: false, crc: true, version: 1 };
    let octets = terminate::only_fpdu(MpaError::LocalCatastrophic, agreement);
    assert_eq!(octets[20..24], [0x20, 5, 0, 0]);
}

/// 508 octets of Private Data and no more, both ways, in acceptance and rejection.
// Requirements: MPAv2-9-02, A-19
#[test]
fn enhanced_frames_hold_508_octets() {
    let proposal = enhanced(1, 1, RtrKinds::empty());
    let too_long = PrivateDataTooLong { len: 509, max_len: 508 };
    let refused = Initiator::new(proposal, &[7; 509], DEADLINE).map(|(_, frame)| frame);
    assert_eq!(refused, Err(too_long));
    let (mut initiator, octets) = Initiator::new(proposal, &[7; 508], DEADLINE).unwrap();
    assert_eq!((octets.len(), &octets[18..20]), (532, &[2, 0][..]));
    let (responder, request) = asked(&octets);
    assert_eq!((&*request.private_data, request.private_data_max_octets()), (&[7; 508][..], 508));
    assert_eq!(responder.accept(&request, ANY_READS, &[8; 509]).unwrap_err(), too_long.into());
    assert_eq!(responder.reject(&request, ANY_READS, &[8; 509]).unwrap_err(), too_long);
    let (octets, _) = responder.accept(&request, ANY_READS, &[8; 508]).unwrap();
    let Ok(Some(Reply::Accepted { private_data, .. })) = initiator.on_octets(&octets) else { panic!() };
    assert_eq!(*private_data, [8; 508]);
    let octets = responder.reject(&request, ANY_READS, &[8; 508]).unwrap();
    let Reply::Rejected { private_data, .. } = concluded(proposal, &octets) else { panic!() };
    assert_eq!(*private_data, [8; 508]);
}

/// A Reply with S=1 and no enhanced data crashes Linux siw's kernel. No Reply has that form, whether it
/// accepts or rejects, with Private Data or without.
#[test]
fn no_reply_is_enhanced_without_enhanced_data() {
    // As rping sends it.
    let (responder, request) = asked(&[&b"MPA ID Req Frame"[..], &[0x10, 2, 0, 4, 0, 1, 0, 1]].concat());
    assert_eq!(request.peer.depths, Some(depths(1, 1)));
    for private_data in [&b""[..], b"x"] {
        let accepted = responder.accept(&request, ANY_READS, private_data).unwrap().0;
        let rejected = responder.reject(&request, ANY_READS, private_data).unwrap();
        for (octets, r) in [(accepted, 0), (rejected, 0x20)] {
            assert_eq!(octets[16..20], [0x50 | r, 2, 0, 4 + private_data.len() as u8]);
            assert_eq!(octets[20], 0, "no more Reads than siw asked for");
            assert_eq!(octets[24..], *private_data);
        }
    }
    // Perftest's depths of zero are taken, and answered, as they are.
    let (responder, request) = asked(&[&b"MPA ID Req Frame"[..], &[0x10, 2, 0, 4, 0, 0, 0, 0]].concat());
    let (octets, setup) = responder.accept(&request, ANY_READS, &[]).unwrap();
    assert_eq!((&octets[20..], setup.outcome.depths), (&[0; 4][..], depths(0, 0)));
}

/// The bit 0x08 of the flags is private to Linux siw, which builds longer FPDUs when both ends set it: it is
/// tolerated and never set (MPA-7.1.1-11).
#[test]
fn the_private_bit_of_siw_is_tolerated_and_not_set() {
    let (responder, request) = asked(&[&b"MPA ID Req Frame"[..], &[0x18, 2, 0, 4, 0, 1, 0, 1]].concat());
    let octets = responder.accept(&request, ANY_READS, &[]).unwrap().0;
    assert_eq!(octets[16], 0x50);
    let proposal = enhanced(1, 1, RtrKinds::empty());
    assert_eq!(asking(proposal).1[16], 0x50);
    let mut answer = reply([0, 1, 0, 1]);
    answer[16] |= 0x08;
    assert_eq!(accepted(proposal, &answer).1.depths, Some(depths(1, 1)));
}

/// Reactions of an old peer to an enhanced Request, and reactions that no old peer shows.
// Requirements: MPAv2-10-05
#[test]
fn old_peers_are_told_from_broken_ones() {
    let proposal = enhanced(1, 1, RtrKinds::empty());
    let bare = |flags, revision| [&b"MPA ID Rep Frame"[..], &[flags, revision, 0, 0]].concat();
    let falls_back = |proposal: Proposal, octets: &[u8]| {
        let mut initiator = asking(proposal).0;
        let fault = initiator.on_octets(octets).unwrap_err();
        (initiator.may_fall_back(fault), fault)
    };
    let revision = |revision| StartupFault::Frame(StartupError::Revision(revision));
    let permissive = Proposal { permissive: true, ..proposal };
    // It answers as it always does, accepting or not.
    assert_eq!(falls_back(proposal, &bare(0x40, 1)), (true, revision(1)));
    assert_eq!(falls_back(proposal, &bare(0x60, 1)), (true, revision(1)));
    assert_eq!(falls_back(proposal, &bare(0x40, 2)), (true, StartupFault::NotEnhanced));
    assert_eq!(falls_back(permissive, &bare(0xc0, 0)), (true, revision(0)));
    assert_eq!(falls_back(proposal, &bare(0xc0, 0)), (false, revision(0)));
    assert_eq!(falls_back(proposal, &bare(0x40, 3)), (false, revision(3)));
    assert_eq!(falls_back(proposal, b"HTTP"), (false, StartupError::WrongKey.into()));
    assert_eq!(falls_back(Proposal { revision: 1, ..proposal }, &bare(0x40, 2)), (false, revision(2)));
    // It closes without a word; in the middle of one, or in silence, it is something else.
    let mut initiator = asking(proposal).0;
    assert!(initiator.may_fall_back(StartupFault::Closed));
    assert!(!initiator.may_fall_back(StartupFault::TimedOut));
    assert_eq!(initiator.on_octets(b"MPA"), Ok(None));
    assert!(!initiator.may_fall_back(StartupFault::Closed));
    assert!(!super::initiator(CRC).may_fall_back(StartupFault::Closed));
    // A rejection is final, also one without enhanced data.
    assert!(matches!(concluded(proposal, &bare(0x60, 2)), Reply::Rejected { .. }));
}

/// A permissive Responder answers revision 0 with the golden Reply, and reports version 0 to its ULP.
// Requirements: RDMAC-C.2.4-01, RDMAC-C.2.4-02, RDMAC-C.2.4-03
#[test]
fn a_permissive_responder_speaks_version_0() {
    for offer in [BARE, CRC, BOTH] {
        let mut responder = disposed(offer, true);
        let request = responder.on_octets(&vector(REV0, "RDMAC Request")).unwrap().unwrap();
        assert_eq!((request.version(), request.peer), (0, Peer { revision: 0, depths: None }));
        let (octets, setup) = responder.accept(&request, ANY_READS, &[]).unwrap();
        assert_eq!(*octets, vector(REV0, "Permissive Responder answer"));
        let expected = Agreement { markers_sent: true, markers_received: true, crc: true, version: 0 };
        assert_eq!(setup.agreement, expected);
        let octets = responder.reject(&request, ANY_READS, b"no").unwrap();
        assert_eq!(octets[16..], [0xe0, 0, 0, 2, b'n', b'o']);
    }
    let (_, request) = asked(&vector(REV1, "Request M=0 C=0"));
    assert_eq!(request.version(), 1);
}

/// A permissive Initiator begins with revision 1 and accepts a Reply of revision 0, whichever options it
/// requested.
// Requirements: RDMAC-C.2.2-01, RDMAC-C.2.5-01, RDMAC-C.2.5-02, A-22
#[test]
fn a_permissive_initiator_goes_along_with_revision_0() {
    let octets = vector(REV0, "RDMAC Reply");
    for offer in [BARE, CRC, BOTH] {
        let permissive = Proposal { permissive: true, ..proposal(offer) };
        assert_eq!(asking(permissive).1[17], 1);
        let (setup, peer) = accepted(permissive, &octets);
        assert_eq!((setup.agreement.version, peer.revision), (0, 0));
        assert!(setup.agreement.markers_sent && setup.agreement.markers_received && setup.agreement.crc);
        let refused = asking(proposal(offer)).0.on_octets(&octets);
        assert_eq!(refused, Err(StartupFault::Frame(StartupError::Revision(0))));
    }
}

/// An RDMA Consortium endpoint sends the golden Request, and accepts only a Reply of the same kind.
// Requirements: RDMAC-C.2-01, RDMAC-C.2-02, RDMAC-C.2.4-01
#[test]
fn an_initiator_of_revision_0() {
    let consortium = Proposal { revision: 0, ..proposal(BARE) };
    let (_, octets) = asking(consortium);
    assert_eq!(*octets, vector(REV0, "RDMAC Request"));
    assert_eq!(accepted(consortium, &vector(REV0, "Permissive Responder answer")).0.agreement.version, 0);
    let refused = asking(consortium).0.on_octets(&vector(REV0, "Non-permissive Responder answer"));
    assert_eq!(refused, Err(StartupFault::Frame(StartupError::Revision(1))));
}

/// Both of our own ends, octet by octet, in all pairs of some depths.
// Requirements: MPAv2-9.1-02, MPAv2-9.1-06
#[test]
fn both_ends_agree_on_depths() {
    for (ird, ord) in [(0, 0), (1, 1), (32, 4), (128, 128)] {
        for (their_ird, their_ord) in [(0, 0), (1, 16), (128, 128)] {
            let (mut initiator, octets) = asking(enhanced(ird, ord, RtrKinds::all()));
            let (responder, request) = asked(&octets);
            let (octets, there) = responder.accept(&request, wanted(their_ird, their_ord), &[]).unwrap();
            let Ok(Some(Reply::Accepted { setup: here, .. })) = initiator.on_octets(&octets) else {
                panic!()
            };
            assert!(here.outcome.depths.ord <= there.outcome.depths.ird);
            assert!(there.outcome.depths.ord <= here.outcome.depths.ird);
            assert_eq!(here.outcome.ready, ReadyToReceive::Send(Rtr::Write));
        }
    }
}
