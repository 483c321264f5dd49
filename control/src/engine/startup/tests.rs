//! Tests of the startup frames of revision 1, and of the rules that both roles follow.

mod enhanced;

use std::path::Path;

use super::*;

const DEADLINE: Instant = Instant::from_nanos(1_000);
const BARE: Offer = Offer { markers: false, crc: false };
const CRC: Offer = Offer { markers: false, crc: true };
const BOTH: Offer = Offer { markers: true, crc: true };

/// The record of a vector file whose label contains `label`.
fn vector(file: &str, label: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataplane/tests/vectors").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut octets = None;
    for line in text.lines() {
        if line.starts_with('@') {
            if octets.is_some() {
                break;
            }
            octets = line.contains(label).then(Vec::new);
        } else if let Some(octets) = octets.as_mut().filter(|_| !line.starts_with('#')) {
            octets.extend(line.split_whitespace().map(|octet| u8::from_str_radix(octet, 16).unwrap()));
        }
    }
    octets.unwrap_or_else(|| panic!("no record \"{label}\" in {file}"))
}

/// Revision 1.
const fn proposal(offer: Offer) -> Proposal {
    Proposal { offer, revision: 1, terms: Terms::initiator(), permissive: false }
}

/// Revision 2, which asks for these depths and indications.
fn enhanced(ird: u16, ord: u16, rtr: RtrKinds) -> Proposal {
    let terms = Terms { depths: ReadDepths { ird, ord }, negotiated: true, rtr };
    Proposal { revision: 2, terms, ..proposal(CRC) }
}

fn asking(proposal: Proposal) -> (Initiator, Box<[u8]>) {
    Initiator::new(proposal, &[], DEADLINE).unwrap()
}

fn initiator(offer: Offer) -> Initiator {
    asking(proposal(offer)).0
}

fn disposed(offer: Offer, permissive: bool) -> Responder {
    Responder::new(Disposition { offer, terms: Terms::responder(), permissive }, DEADLINE)
}

fn responder(offer: Offer) -> Responder {
    disposed(offer, false)
}

const ANY_READS: ReadsWanted = ReadsWanted { depths: None, ord_needed: 0 };

fn request(octets: &[u8]) -> Result<Option<Request>, Refusal> {
    responder(CRC).on_octets(octets)
}

const REV0: &str = "mpa-startup-rev0.hex";
const REV1: &str = "mpa-startup-rev1.hex";
const REV2: &str = "mpa-startup-rev2.hex";

/// Nothing of an enhanced frame, unless revision 2 is asked for.
// Requirements: MPA-7.1.1-01, MPA-7.1.1-12, MPA-7.1.2-01, MPA-7.1.2-02, MPAv2-6-03, MPAv2-10-03
#[test]
fn requests_are_the_golden_octets() {
    let sent =
        |offer, private_data: &[u8]| Initiator::new(proposal(offer), private_data, DEADLINE).unwrap().1;
    assert_eq!(*sent(CRC, &[]), vector(REV1, "Request M=0 C=1 Rev=1 no Private Data"));
    assert_eq!(*sent(BOTH, b"hello"), vector(REV1, "Request M=1 C=1 Rev=1 Private Data \"hello\""));
    assert_eq!(*sent(BARE, &[]), vector(REV1, "Request M=0 C=0"));
}

// Requirements: MPA-7.1.1-03, MPA-7.1.1-10, MPA-7.1.2-05, MPA-7.1.2-06, MPA-7.1.2-08, MPA-7.1.2-09
#[test]
fn replies_are_the_golden_octets() {
    let asked = vector(REV1, "Request M=0 C=1 Rev=1 no Private Data");
    let answer = |offer| {
        let mut responder = responder(offer);
        let request = responder.on_octets(&asked).unwrap().unwrap();
        (responder, request)
    };
    let (both, asked_both) = answer(BOTH);
    assert_eq!(*both.accept(&asked_both, ANY_READS, &[]).unwrap().0, vector(REV1, "Reply accept M=1 C=1"));
    let (crc, asked_crc) = answer(CRC);
    assert_eq!(
        *crc.accept(&asked_crc, ANY_READS, &[0, 1, 2, 3]).unwrap().0,
        vector(REV1, "Reply accept M=0 C=1")
    );
    assert_eq!(*crc.reject(&asked_crc, ANY_READS, b"no").unwrap(), vector(REV1, "Reply reject"));
}

/// Sixteen combinations, and both ends conclude the same.
// Requirements: MPA-7.1.1-05 to MPA-7.1.1-08, MPA-4.4-04
#[test]
fn markers_are_the_receivers_choice_and_one_crc_is_enough() {
    for bits in 0..16_u8 {
        let a = Offer { markers: bits & 1 != 0, crc: bits & 2 != 0 };
        let b = Offer { markers: bits & 4 != 0, crc: bits & 8 != 0 };
        let (mut initiator, asked) = asking(proposal(a));
        let mut responder = responder(b);
        let request = responder.on_octets(&asked).unwrap().unwrap();
        let (reply, at_b) = responder.accept(&request, ANY_READS, &[]).unwrap();
        let Ok(Some(Reply::Accepted { setup: at_a, .. })) = initiator.on_octets(&reply) else {
            panic!("{a:?} {b:?}");
        };
        let crc = a.crc || b.crc;
        let agreed =
            |markers_sent, markers_received| Agreement { markers_sent, markers_received, crc, version: 1 };
        assert_eq!(at_a.agreement, agreed(b.markers, a.markers));
        assert_eq!(at_b.agreement, agreed(a.markers, b.markers));
    }
}

/// None, some and all of the Private Data, octet by octet, both ways.
// Requirements: MPA-7.1.1-15, MPA-7.1.1-18, MPA-7.1.1-19
#[test]
fn private_data_arrives_however_it_is_cut() {
    for octets in [0, 1, 512] {
        let data: Vec<u8> = (0..octets).map(|index| index as u8).collect();
        let (mut initiator, asked) = Initiator::new(proposal(CRC), &data, DEADLINE).unwrap();
        let mut responder = responder(CRC);
        let mut request = None;
        for octet in asked.chunks(1) {
            assert_eq!(request, None, "complete before its last octet");
            request = responder.on_octets(octet).unwrap();
        }
        let request = request.unwrap();
        assert_eq!((&*request.private_data, request.peer.revision), (&*data, 1));

        let (reply, _) = responder.accept(&request, ANY_READS, &data).unwrap();
        let mut answer = None;
        for octet in reply.chunks(1) {
            assert_eq!(answer, None, "complete before its last octet");
            answer = initiator.on_octets(octet).unwrap();
        }
        assert!(matches!(answer, Some(Reply::Accepted { private_data, .. }) if *private_data == *data));
    }
    assert_eq!(vector(REV1, "512 octets").len(), 532);
    assert!(request(&vector(REV1, "512 octets")).unwrap().is_some());
}

/// 513 octets are refused before anything is sent.
// Requirements: MPA-7.1.1-18
#[test]
fn too_much_private_data_is_refused_locally() {
    let too_long = PrivateDataTooLong { len: 513, max_len: 512 };
    assert_eq!(Initiator::new(proposal(CRC), &[0; 513], DEADLINE).map(|(_, frame)| frame), Err(too_long));
    let mut responder = responder(CRC);
    let asked = responder.on_octets(&vector(REV1, "Request M=0 C=0")).unwrap().unwrap();
    assert_eq!(responder.accept(&asked, ANY_READS, &[0; 513]).map(|(frame, _)| frame), Err(too_long.into()));
    assert_eq!(responder.reject(&asked, ANY_READS, &[0; 513]), Err(too_long));
}

/// The ULP receives the rejection and its reason.
// Requirements: MPA-7.1.2-13
#[test]
fn a_rejection_carries_its_reason() {
    let reply = initiator(CRC).on_octets(&vector(REV1, "Reply reject"));
    let peer = Peer { revision: 1, depths: None };
    assert_eq!(reply, Ok(Some(Reply::Rejected { private_data: (*b"no").into(), peer })));
}

/// Ambiguity A-03.
// Requirements: MPA-7.1.1-02, MPA-7.1.1-11, MPA-7.1.1-14, MPA-7.1.1-17, MPA-7.1.2-22, MPA-7.1.2-24
#[test]
fn malformed_requests_are_refused_without_an_answer() {
    const FILE: &str = "mpa-startup-negative.hex";
    let refused: [(&str, StartupFault); 6] = [
        ("Request key with lower-case f", StartupError::WrongKey.into()),
        ("Reply key where a Request is expected", StartupError::WrongKey.into()),
        ("PD_Length 513", StartupError::PrivateDataLength.into()),
        ("Rev 3", StartupError::Revision(3).into()),
        ("PD_Length 4 followed by 8 octets", StartupFault::ExtraBytes),
        ("Rev 2 S=1 with only 2 octets", StartupError::PrivateDataLength.into()),
    ];
    for (label, fault) in refused {
        let refusal = request(&vector(FILE, label)).unwrap_err();
        assert_eq!(refusal, Refusal { fault, answer: None }, "{label}");
        assert_eq!(fault.mpa_error().code(), 4, "MPA-8-06");
    }
    assert!(request(&vector(FILE, "reserved bits (and R) set: ACCEPT")).unwrap().is_some());
}

/// Every revision there could be.
// Requirements: MPA-7.1.1-13
#[test]
fn only_revisions_1_and_2_are_usable() {
    let mut asked = vector(REV1, "Request M=0 C=1 Rev=1 no Private Data");
    for revision in 0..=u8::MAX {
        asked[17] = revision;
        match request(&asked) {
            Ok(Some(request)) => assert!(matches!(revision, 1 | 2) && request.peer.revision == revision),
            refused => {
                let fault = refused.unwrap_err().fault;
                assert_eq!(fault, StartupFault::Frame(StartupError::Revision(revision)));
            }
        }
    }
    let mut reply = vector(REV1, "Reply accept M=1 C=1");
    for revision in (0..=u8::MAX).filter(|revision| *revision != 1) {
        reply[17] = revision;
        let refused = initiator(CRC).on_octets(&reply);
        assert_eq!(refused, Err(StartupFault::Frame(StartupError::Revision(revision))));
    }
}

/// The golden Reply to revision 0.
// Requirements: A-12, RDMAC-C.2.1-01
#[test]
fn revision_0_is_told_ours_and_refused() {
    let refusal = request(&vector(REV0, "RDMAC Request")).unwrap_err();
    assert_eq!(refusal.fault, StartupFault::Frame(StartupError::Revision(0)));
    assert_eq!(refusal.answer.as_deref(), Some(&*vector(REV0, "Non-permissive Responder answer")));
}

/// Revision 2 that is not enhanced is answered in kind.
// Requirements: A-11, MPAv2-10-02
#[test]
fn revision_2_is_echoed() {
    let mut responder = responder(CRC);
    let asked = responder.on_octets(&vector(REV2, "Rev=2 Request with S=0")).unwrap().unwrap();
    assert_eq!(asked.peer, Peer { revision: 2, depths: None });
    let (reply, setup) = responder.accept(&asked, ANY_READS, &[]).unwrap();
    assert_eq!(reply[16..], [0x40, 2, 0, 0]);
    assert_eq!(setup.outcome, Terms::responder().unnegotiated());
}

/// Rule 8.
// Requirements: MPA-7.1.2-20
#[test]
fn two_initiators_fail() {
    let (_, asked) = asking(proposal(CRC));
    let refused = initiator(CRC).on_octets(&asked);
    assert_eq!(refused, Err(StartupFault::Frame(StartupError::OtherInitiator)));
}

/// Any octet of the key.
// Requirements: MPA-7.1.1-04, MPA-7.1.2-12, MPA-7.1.2-16
#[test]
fn a_reply_with_another_key_fails() {
    let reply = vector(REV1, "Reply accept M=1 C=1");
    for at in 0..16 {
        let mut octets = reply.clone();
        octets[at] ^= 0x80;
        let refused = initiator(CRC).on_octets(&octets);
        assert_eq!(refused, Err(StartupFault::Frame(StartupError::WrongKey)));
    }
}

/// The Initiator must send nothing before our Reply, and the Responder nothing before the Initiator's first
/// FPDU.
// Requirements: A-03
#[test]
fn octets_between_the_frames_and_full_operation_are_a_violation() {
    let mut responder = responder(CRC);
    assert!(responder.on_octets(&vector(REV1, "Request M=0 C=0")).unwrap().is_some());
    let refusal = responder.on_octets(&[0]).unwrap_err();
    assert_eq!(refusal.fault, StartupFault::ExtraBytes);

    let glued = [vector(REV1, "Reply accept M=1 C=1"), vec![0]].concat();
    let refused = initiator(CRC).on_octets(&glued);
    assert_eq!(refused, Err(StartupFault::ExtraBytes));

    // After a rejecting Reply they are the ULP's.
    let glued = [vector(REV1, "Reply reject"), vec![0]].concat();
    assert!(matches!(initiator(CRC).on_octets(&glued), Ok(Some(Reply::Rejected { .. }))));
}

/// A dribbling peer gains no time, and a complete Request waits for the ULP alone.
// Requirements: MPA-7.1.2-21, MPA-7.1.2-25, D08-7.1.2-01
#[test]
fn one_deadline_covers_the_exchange() {
    let (before, at) = (Instant::from_nanos(999), DEADLINE);
    let asked = vector(REV1, "Request M=0 C=0");
    let mut responder = responder(CRC);
    assert_eq!(responder.on_octets(&asked[..19]).unwrap(), None);
    assert_eq!(responder.deadline(), DEADLINE);
    assert_eq!(responder.on_time(before), Ok(()));
    assert_eq!(responder.on_time(at), Err(StartupFault::TimedOut));
    assert!(responder.on_octets(&asked[19..]).unwrap().is_some());
    assert_eq!((responder.on_time(at), responder.deadline()), (Ok(()), Instant::NEVER));

    let mut initiator = initiator(CRC);
    assert_eq!(initiator.on_octets(b"MPA ID Re").unwrap(), None);
    assert_eq!((initiator.on_time(before), initiator.deadline()), (Ok(()), DEADLINE));
    assert_eq!(initiator.on_time(at), Err(StartupFault::TimedOut));
}
