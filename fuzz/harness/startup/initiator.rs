//! Tests of this end as Initiator: it sends a Request and waits for the Reply.

use warpline::startup::{Agreement, Initiator, Proposal, Reply, RtrKinds, StartupFault};
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::mpa::enhanced::{ReadyToReceive, Rtr};
use warpline_dataplane::wire::mpa::StartupError;

use super::input::Input;
use super::mpa_reference::startup::{Expected, Frame, Verdict, judge};
use super::mpa_reference::{Receiver, Stream};
use super::peer::Heard;
use super::{DEADLINE, End, Own, UNNEGOTIATED, depths, kinds};

pub fn run(input: &mut Input<'_>, own: Own) -> End {
    let Own { offer, terms, permissive, revision, .. } = own;
    let private_data = own.private_data();
    let too_long = private_data.len() > if own.enhances() { 508 } else { 512 };
    let made = Initiator::new(Proposal { offer, revision, terms, permissive }, &private_data, DEADLINE);
    assert_eq!(made.is_err(), too_long, "MPA-7.1.1-18, MPAv2-9-02");
    let Ok((mut initiator, octets)) = made else { return End::OurPrivateData };
    let asked = check_request(own, &octets, &private_data);
    let mut heard = Heard::of(input, Expected::Reply);
    while let Some(piece) = heard.piece(input) {
        let taken = initiator.on_octets(&piece);
        let so_far = heard.so_far();
        let (fault, end) = match judge(Expected::Reply, so_far) {
            Verdict::Incomplete => {
                assert_eq!(taken, Ok(None), "{so_far:02x?}");
                continue;
            }
            Verdict::Malformed => {
                let fault = taken.unwrap_err();
                assert!(matches!(fault, StartupFault::Frame(_)), "{fault:?}");
                (fault, End::Malformed)
            }
            Verdict::Complete(frame) if so_far.len() > frame.octets && !frame.rejected => {
                assert_eq!(taken, Err(StartupFault::ExtraBytes), "MPA-7.1.2-15");
                (StartupFault::ExtraBytes, End::Extra)
            }
            Verdict::Complete(frame) if !fits(own, &frame) => {
                let fault = taken.unwrap_err();
                let detail = match (own.enhances(), frame.revision, frame.enhanced) {
                    (true, 2, _) => "not-enhanced",
                    (false, 2, Some(_)) => "enhanced",
                    _ => "revision",
                };
                assert_eq!(fault.detail(), detail);
                (fault, End::Revision)
            }
            Verdict::Complete(frame) => {
                return check_reply(own, &asked, &frame, taken.unwrap().expect("complete"));
            }
        };
        assert_eq!(initiator.may_fall_back(fault), falls_back(own, fault), "MPAv2-10-05: {fault:?}");
        return end;
    }
    assert_eq!(initiator.on_time(DEADLINE), Err(StartupFault::TimedOut));
    assert_eq!(initiator.may_fall_back(StartupFault::Closed), own.enhances() && heard.so_far().is_empty());
    End::Incomplete
}

fn check_request(own: Own, octets: &[u8], private_data: &[u8]) -> Frame {
    let Verdict::Complete(asked) = judge(Expected::Request, octets) else { panic!("{octets:02x?}") };
    assert_eq!((asked.octets, octets[16] & 0x2f), (octets.len(), 0), "R and the reserved bits are zero");
    let consortium = own.revision == 0;
    assert_eq!(asked.markers, own.offer.markers || consortium);
    assert_eq!(asked.crc, own.offer.crc || consortium);
    assert_eq!((asked.revision, &asked.private_data[..]), (own.revision, private_data));
    assert_eq!(asked.enhanced.is_some(), own.enhances());
    if let Some(words) = asked.enhanced {
        assert_eq!(kinds(words), (!own.terms.rtr.is_empty(), own.terms.rtr), "MPAv2-9.2-01");
        let wanted = if own.terms.negotiated { own.most() } else { (UNNEGOTIATED, UNNEGOTIATED) };
        assert_eq!(depths(words), wanted);
    }
    asked
}

/// RFC 5044 §7.1.1, figures 15 to 17, and RFC 6581 §10: returns true if a connection can result from the
/// Reply's revision.
fn fits(own: Own, frame: &Frame) -> bool {
    match own.revision {
        2 => frame.revision == 2 && (frame.enhanced.is_some() == own.enhances() || frame.rejected),
        1 => frame.revision == 1 || frame.revision == 0 && own.permissive,
        _ => frame.revision == 0,
    }
}

/// Returns true if the fault shows that the peer does not support enhanced setup.
fn falls_back(own: Own, fault: StartupFault) -> bool {
    own.enhances()
        && match fault {
            StartupFault::NotEnhanced | StartupFault::Frame(StartupError::Revision(1)) => true,
            StartupFault::Frame(StartupError::Revision(0)) => own.permissive,
            _ => false,
        }
}

fn check_reply(own: Own, asked: &Frame, frame: &Frame, reply: Reply) -> End {
    match reply {
        Reply::Rejected { private_data, peer } => {
            assert!(frame.rejected, "{frame:?}");
            assert_eq!((&private_data[..], peer.revision), (&frame.private_data[..], frame.revision));
            End::Rejected
        }
        Reply::Accepted { setup, private_data, peer } => {
            assert!(!frame.rejected, "{frame:?}");
            assert_eq!((&private_data[..], peer.revision), (&frame.private_data[..], frame.revision));
            assert_eq!(setup.agreement, agreement(asked, frame));
            let most = own.most();
            if let Some(words) = frame.enhanced {
                let Ok(allowed) = indications(own, words) else { panic!("no indication is agreed") };
                let sent = match setup.outcome.ready {
                    ReadyToReceive::None => RtrKinds::empty(),
                    ReadyToReceive::Send(Rtr::Send) => RtrKinds::SEND,
                    ReadyToReceive::Send(Rtr::Write) => RtrKinds::WRITE,
                    ReadyToReceive::Send(Rtr::Read) => RtrKinds::READ,
                    ReadyToReceive::Expect(kinds) => panic!("an Initiator expects {kinds:?}"),
                };
                assert!(allowed.contains(sent) && sent.is_empty() == allowed.is_empty(), "MPAv2-9.2-07");
                let (their_ird, their_ord) = depths(words);
                let ord = if their_ird == UNNEGOTIATED { most.1 } else { their_ird.min(most.1) };
                assert_eq!(
                    (setup.outcome.depths.ird, setup.outcome.depths.ord),
                    (most.0, ord),
                    "MPAv2-9.1-06"
                );
                assert!(their_ord == UNNEGOTIATED || their_ord <= most.0);
            }
            End::Accepted { version: setup.agreement.version, enhanced: frame.enhanced.is_some() }
        }
        Reply::Unmet { error, terminate, .. } => {
            let words = frame.enhanced.expect("only an enhanced Reply has terms");
            let (_, their_ord) = depths(words);
            let expected = if their_ord != UNNEGOTIATED && their_ord > own.most().0 {
                MpaError::InsufficientIrd
            } else {
                assert_eq!(indications(own, words), Err(()));
                MpaError::NoMatchingRtr
            };
            assert_eq!(error, expected, "MPAv2-9.1-07, MPAv2-9.2-08");
            check_terminate(agreement(asked, frame), &terminate, error.code());
            End::Unmet
        }
    }
}

/// RFC 5044 §7.1.1 and appendix C, from both frames.
fn agreement(asked: &Frame, frame: &Frame) -> Agreement {
    if frame.revision == 0 {
        return Agreement { markers_sent: true, markers_received: true, crc: true, version: 0 };
    }
    Agreement {
        markers_sent: frame.markers,
        markers_received: asked.markers,
        crc: asked.crc || frame.crc,
        version: 1,
    }
}

/// The kinds of indication that may be sent after a Reply with `words`; an error when one must be and none
/// may.
fn indications(own: Own, words: [u16; 2]) -> Result<RtrKinds, ()> {
    let (peer_to_peer, mut agreed) = kinds(words);
    if !peer_to_peer {
        return if own.terms.rtr.is_empty() { Ok(RtrKinds::empty()) } else { Err(()) };
    }
    if !own.terms.rtr.is_empty() {
        agreed &= own.terms.rtr;
    }
    if depths(words).0 == 0 {
        agreed -= RtrKinds::READ;
    }
    if agreed.is_empty() { Err(()) } else { Ok(agreed) }
}

/// A Terminate of layer 2, type 0, as the first and only FPDU (RFC 5040 §4.8, RFC 6581 §8).
fn check_terminate(agreement: Agreement, octets: &[u8], code: u8) {
    let stream = Stream { start: 0, markers: agreement.markers_sent, crc: agreement.crc };
    let mut receiver = Receiver::new(stream);
    let mut ulpdus = octets.iter().filter_map(|octet| receiver.take(*octet).unwrap());
    let ulpdu = ulpdus.next().expect("an FPDU").ulpdu;
    assert!(ulpdus.next().is_none() && !receiver.inside(), "more than one FPDU: {octets:02x?}");
    let header = [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(ulpdu[..18], header);
    assert_eq!(ulpdu[18..], [0x20, code, 0, 0]);
}
