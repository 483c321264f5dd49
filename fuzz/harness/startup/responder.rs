//! Tests of this end as Responder: it waits for a Request and answers it.

use warpline::startup::{
    Disposition, ReadDepths, ReadsWanted, Request, Responder, StartupFault, Unacceptable,
};
use warpline_dataplane::time::Instant;

use super::input::Input;
use super::mpa_reference::startup::{Expected, Frame, Verdict, judge};
use super::peer::Heard;
use super::{DEADLINE, End, Own, UNNEGOTIATED, depths, kinds};

pub fn run(input: &mut Input<'_>, own: Own) -> End {
    let Own { offer, terms, permissive, .. } = own;
    let mut responder = Responder::new(Disposition { offer, terms, permissive }, DEADLINE);
    let mut heard = Heard::of(input, Expected::Request);
    let mut request = None;
    let mut end = End::Incomplete;
    while let Some(piece) = heard.piece(input) {
        let taken = responder.on_octets(&piece);
        let so_far = heard.so_far();
        match judge(Expected::Request, so_far) {
            Verdict::Incomplete => assert_eq!(taken, Ok(None), "{so_far:02x?}"),
            Verdict::Malformed => {
                let refusal = taken.unwrap_err();
                assert!(
                    matches!(refusal.fault, StartupFault::Frame(_)) && refusal.answer.is_none(),
                    "{refusal:?}"
                );
                return End::Malformed;
            }
            Verdict::Complete(frame) if so_far.len() > frame.octets => {
                let refusal = taken.unwrap_err();
                assert_eq!((refusal.fault, refusal.answer), (StartupFault::ExtraBytes, None), "A-03");
                return End::Extra;
            }
            Verdict::Complete(frame) if frame.revision == 0 && !permissive => {
                let refusal = taken.unwrap_err();
                assert_eq!(refusal.fault.detail(), "revision");
                let answer = whole(&refusal.answer.expect("RDMAC-C.2.1-01"));
                assert!(
                    answer.rejected && answer.revision == 1 && answer.private_data.is_empty(),
                    "{answer:?}"
                );
                return End::Revision;
            }
            Verdict::Complete(frame) => {
                let complete = taken.unwrap().expect("complete");
                check_request(&complete, &frame);
                assert_eq!(responder.on_time(DEADLINE), Ok(()), "it waits for the ULP now");
                request = Some((complete, frame));
                end = End::WeRejected;
            }
        }
    }
    let Some((request, frame)) = request else {
        assert_eq!(responder.deadline(), DEADLINE);
        assert_eq!(responder.on_time(DEADLINE), Err(StartupFault::TimedOut));
        return end;
    };
    assert_eq!(responder.deadline(), Instant::NEVER);
    let end = answer(input, own, &responder, &request, &frame);
    // Whichever the answer was, the Initiator must send nothing more.
    assert_eq!(responder.on_octets(b"x").unwrap_err().fault, StartupFault::ExtraBytes);
    end
}

/// The frame that is all of `octets`, as the Initiator will read it.
fn whole(octets: &[u8]) -> Frame {
    let Verdict::Complete(frame) = judge(Expected::Reply, octets) else { panic!("{octets:02x?}") };
    assert_eq!(frame.octets, octets.len());
    assert_eq!(octets[16] & 0x0f, 0, "reserved bits are zero");
    frame
}

fn check_request(request: &Request, frame: &Frame) {
    assert_eq!(*request.private_data, frame.private_data);
    assert_eq!((request.peer.revision, request.version()), (frame.revision, u8::from(frame.revision > 0)));
    let words = frame.enhanced.map(|words| {
        let (ird, ord) = depths(words);
        ReadDepths { ird, ord }
    });
    assert_eq!(request.peer.depths, words, "MPAv2-9.1-01");
}

fn answer(input: &mut Input<'_>, own: Own, responder: &Responder, request: &Request, asked: &Frame) -> End {
    let ord_needed = if input.octet() & 1 == 0 { 0 } else { input.u16() % 200 };
    let wanted = ReadsWanted { ord_needed, ..ReadsWanted::default() };
    let private_data = own.private_data();
    let too_long = private_data.len() > if asked.enhanced.is_some() { 508 } else { 512 };
    if input.below(4) == 0 {
        let rejected = responder.reject(request, wanted, &private_data);
        assert_eq!(rejected.is_err(), too_long, "MPA-7.1.1-18, MPAv2-9-02");
        let Ok(octets) = rejected else { return End::OurPrivateData };
        let reply = whole(&octets);
        assert!(reply.rejected && reply.private_data == private_data, "{reply:?}");
        assert_eq!((reply.revision, reply.enhanced.is_some()), (asked.revision, asked.enhanced.is_some()));
        return End::WeRejected;
    }
    let short_of_reads = asked.enhanced.is_some_and(|words| {
        let (ird, _) = depths(words);
        ird != UNNEGOTIATED && ird.min(own.most().1) < ord_needed
    });
    let (octets, setup) = match responder.accept(request, wanted, &private_data) {
        Err(Unacceptable::InsufficientIrd { .. }) => {
            assert!(short_of_reads, "MPAv2-9.1-05");
            return End::OurReads;
        }
        Err(Unacceptable::PrivateData(_)) => {
            assert!(too_long);
            return End::OurPrivateData;
        }
        Ok(accepted) => accepted,
    };
    assert!(!short_of_reads && !too_long);
    let reply = whole(&octets);
    assert!(!reply.rejected && reply.private_data == private_data, "{reply:?}");
    assert_eq!(reply.revision, asked.revision, "MPA-7.1.1-12");
    let consortium = asked.revision == 0;
    // CRCs are used if either end requests them, and the Reply states the result.
    // Requirements: MPA-7.1.1-08
    let (markers, crc) = (own.offer.markers || consortium, own.offer.crc || asked.crc || consortium);
    assert_eq!((reply.markers, reply.crc), (markers, crc), "RDMAC-C.2.4-02");
    let agreement = setup.agreement;
    assert_eq!(agreement.markers_sent, asked.markers || consortium);
    assert_eq!((agreement.markers_received, agreement.crc), (markers, crc));
    assert_eq!(agreement.version, u8::from(!consortium));
    assert_eq!(reply.enhanced.is_some(), asked.enhanced.is_some(), "MPAv2-10-01, MPAv2-10-02");
    if let (Some(asked), Some(answered)) = (asked.enhanced, reply.enhanced) {
        check_words(own, asked, answered);
        let (their_ird, _) = depths(asked);
        assert!(their_ird == UNNEGOTIATED || setup.outcome.depths.ord <= their_ird, "MPAv2-9.1-02");
    }
    End::Accepted { version: agreement.version, enhanced: reply.enhanced.is_some() }
}

/// RFC 6581 §9.1, §9.2.
fn check_words(own: Own, asked: [u16; 2], answered: [u16; 2]) {
    let ((wants, theirs), (mirrored, ours)) = (kinds(asked), kinds(answered));
    assert_eq!(wants, mirrored, "MPAv2-9.2-03, MPAv2-9.2-09");
    if wants {
        assert!(!ours.is_empty(), "MPAv2-9.2-05");
        let common = theirs & own.terms.rtr;
        assert!(common.is_empty() || ours == common, "MPAv2-9.2-04: {ours:?}, not {common:?}");
    } else {
        assert_eq!((answered[0] | answered[1]) & 0xc000, 0, "MPAv2-9.2-09");
    }
    let ((their_ird, their_ord), (ird, ord)) = (depths(asked), depths(answered));
    match their_ird {
        UNNEGOTIATED => assert_eq!(ord, UNNEGOTIATED, "MPAv2-9.1-11"),
        most => assert!(ord <= most && ord <= own.most().1, "MPAv2-9.1-02"),
    }
    match (their_ord, own.terms.negotiated) {
        (UNNEGOTIATED, _) | (_, false) => assert_eq!(ird, UNNEGOTIATED, "MPAv2-9.1-09"),
        // One for an indication by a Read.
        // Requirements: MPAv2-9.1-03
        (_, true) => assert!(ird <= own.most().0.max(1)),
    }
}
