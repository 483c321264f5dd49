//! Tests of the negotiation of enhanced startup: read depths and indications (RFC 6581).

use super::*;
use crate::wire::mpa::EnhancedData;

const ANY: u16 = 0x3fff;

fn terms(ird: u16, ord: u16, rtr: RtrKinds) -> Terms {
    Terms { depths: ReadDepths { ird, ord }, negotiated: true, rtr }
}

fn depths(ird: u16, ord: u16) -> ReadDepths {
    ReadDepths { ird, ord }
}

/// The octets of figure 9's word for these flags and depths.
fn word(flags: [bool; 4], ird: u16, ord: u16) -> EnhancedData {
    let bit = |at: usize, bit: u32| if flags[at] { bit } else { 0 };
    let flags = bit(0, 0x8000_0000) | bit(1, 0x4000_0000) | bit(2, 0x8000) | bit(3, 0x4000);
    EnhancedData::parse((flags | u32::from(ird) << 16 | u32::from(ord)).to_be_bytes())
}

fn client_server(ird: u16, ord: u16) -> EnhancedData {
    word([false; 4], ird, ord)
}

fn kinds() -> impl Iterator<Item = RtrKinds> {
    (1..8).map(RtrKinds::from_bits_truncate)
}

fn flags(kinds: RtrKinds) -> [bool; 4] {
    [true, kinds.contains(RtrKinds::SEND), kinds.contains(RtrKinds::WRITE), kinds.contains(RtrKinds::READ)]
}

/// The kind as a set.
fn kind(rtr: Rtr) -> RtrKinds {
    match rtr {
        Rtr::Write => RtrKinds::WRITE,
        Rtr::Read => RtrKinds::READ,
        Rtr::Send => RtrKinds::SEND,
    }
}

/// After a setup neither end may have more Reads outstanding than the other accepts, whatever values they
/// began with.
// Requirements: MPAv2-9.1-02, MPAv2-9.1-06
#[test]
fn neither_end_overruns_the_other() {
    let some = [0, 1, 4, 16, 127, 128, 1000, 0x3ffe];
    for initiator in some.iter().flat_map(|ird| some.map(|ord| terms(*ird, ord, RtrKinds::empty()))) {
        for responder in some.iter().flat_map(|ird| some.map(|ord| terms(*ird, ord, RtrKinds::all()))) {
            let (reply, there) = responder.answer(initiator.request(), 0).unwrap();
            let here = initiator.conclude(reply).unwrap();
            let (here, there) = (here.depths, there.depths);
            assert!(here.ord <= there.ird && there.ord <= here.ird, "{initiator:?} {responder:?}");
            // And no less than both request.
            assert_eq!(here.ord, initiator.depths.ord.min(responder.depths.ird).min(128));
            assert_eq!(there.ord, responder.depths.ord.min(initiator.depths.ird).min(128));
            assert_eq!((reply.ird, reply.ord), (there.ird, there.ord), "it says what it has");
        }
    }
}

/// An Initiator that reads nothing may still send an indication by a Read.
// Requirements: MPAv2-9.1-03
#[test]
fn a_read_indication_has_a_place() {
    let asked = word(flags(RtrKinds::READ), 0, 0);
    let (reply, outcome) = terms(0, 0, RtrKinds::all()).answer(asked, 0).unwrap();
    assert_eq!((reply.ird, outcome.depths.ird), (1, 1));
    let (reply, _) = terms(0, 0, RtrKinds::all()).answer(client_server(0, 0), 0).unwrap();
    assert_eq!((reply.ird, reply.ord), (0, 0), "perftest's own values are taken as they are");
    let reads = terms(4, 4, RtrKinds::READ);
    assert_eq!(reads.conclude(word(flags(RtrKinds::READ), 0, 0)), Err(MpaError::NoMatchingRtr));
    assert!(reads.conclude(word(flags(RtrKinds::READ), 1, 0)).is_ok());
    assert!(reads.conclude(word(flags(RtrKinds::READ), ANY, 0)).is_ok());
}

/// A Responder states the depths that it needs in a rejection, as golden record 5 does.
// Requirements: MPAv2-9.1-04, MPAv2-9.1-05, A-07
#[test]
fn too_small_an_ird_is_rejected_with_what_is_needed() {
    let responder = terms(16, 32, RtrKinds::all());
    let asked = client_server(16, 16);
    assert_eq!(responder.answer(asked, 17), Err(MpaError::InsufficientIrd));
    assert_eq!(responder.rejection(asked, 32), client_server(16, 32));
    assert!(responder.answer(asked, 16).is_ok());
    let unnegotiated = responder.answer(client_server(ANY, ANY), 32);
    assert!(unnegotiated.is_ok(), "the ULPs see to it");
    assert_eq!(responder.rejection(client_server(ANY, ANY), 32), client_server(ANY, ANY));
    let asked = word(flags(RtrKinds::READ), 1, 1);
    assert!(responder.rejection(asked, 2).peer_to_peer, "MPAv2-9.2-03");
}

/// The Responder's ORD must fit our IRD.
// Requirements: MPAv2-9.1-07
#[test]
fn a_responder_that_exceeds_our_ird_is_terminated() {
    let initiator = terms(4, 4, RtrKinds::empty());
    for (ord, expected) in [(4, Ok(depths(4, 4))), (5, Err(MpaError::InsufficientIrd))] {
        let outcome = initiator.conclude(client_server(9, ord));
        assert_eq!(outcome.map(|outcome| outcome.depths), expected);
    }
    // Leaving it to the ULPs does not make room either.
    let unnegotiated = Terms { negotiated: false, ..initiator };
    assert_eq!(unnegotiated.conclude(client_server(9, 5)), Err(MpaError::InsufficientIrd));
}

/// Each value on its own, at either end.
// Requirements: MPAv2-9.1-09 to MPAv2-9.1-12
#[test]
fn all_ones_leave_a_depth_to_the_ulps() {
    let responder = terms(20, 30, RtrKinds::all());
    for (ird, ord, said, has) in [
        (ANY, ANY, (ANY, ANY), depths(20, 30)),
        (ANY, 5, (5, ANY), depths(5, 30)),
        (5, ANY, (ANY, 5), depths(20, 5)),
    ] {
        let (reply, outcome) = responder.answer(client_server(ird, ord), 0).unwrap();
        assert_eq!(((reply.ird, reply.ord), outcome.depths), (said, has));
    }
    let unnegotiated = Terms { negotiated: false, ..responder };
    let (reply, outcome) = unnegotiated.answer(client_server(5, 5), 0).unwrap();
    assert_eq!(((reply.ird, reply.ord), outcome.depths), ((ANY, 5), depths(20, 5)), "MPAv2-9.1-02, A-36");
    assert_eq!(unnegotiated.answer(client_server(5, 5), 6), Err(MpaError::InsufficientIrd));

    let initiator = terms(20, 30, RtrKinds::empty());
    let concluded = |ird, ord| initiator.conclude(client_server(ird, ord)).unwrap().depths;
    assert_eq!(concluded(ANY, ANY), depths(20, 30));
    assert_eq!(concluded(5, ANY), depths(20, 5));
    assert_eq!(concluded(ANY, 5), depths(20, 30));
    let unnegotiated = Terms { negotiated: false, ..initiator };
    assert_eq!(unnegotiated.request(), client_server(ANY, ANY));
    assert_eq!(unnegotiated.unnegotiated().depths, depths(20, 30));
}

/// The Initiator's kinds of indication against the Responder's kinds, all 49 pairs.
// Requirements: MPAv2-9.2-02, MPAv2-9.2-06
#[test]
fn indications_are_agreed_where_both_have_one() {
    for (here, there) in kinds().flat_map(|here| kinds().map(move |there| (here, there))) {
        let (initiator, responder) = (terms(1, 1, here), terms(1, 1, there));
        let asked = initiator.request();
        assert!(asked.peer_to_peer && RtrKinds::of(asked) == here, "MPAv2-9.2-01");
        let (reply, outcome) = responder.answer(asked, 0).unwrap();
        assert!(reply.peer_to_peer, "MPAv2-9.2-03");
        let named = RtrKinds::of(reply);
        assert!(there.contains(named) && !named.is_empty(), "MPAv2-9.2-05: only what it has, and something");
        assert_eq!(outcome.ready, ReadyToReceive::Expect(named));
        let sent = initiator.conclude(reply).map(|outcome| outcome.ready);
        if (here & there).is_empty() {
            assert_eq!((named, sent), (there, Err(MpaError::NoMatchingRtr)), "MPAv2-9.2-08");
        } else {
            assert_eq!(named, here & there, "MPAv2-9.2-04");
            let Ok(ReadyToReceive::Send(rtr)) = sent else { panic!("{here:?} {there:?}: {sent:?}") };
            assert!(named.contains(kind(rtr)), "MPAv2-9.2-07");
        }
    }
}

/// A Responder may name more kinds than were requested. The Initiator sends a kind that both have: an adapter
/// that prefers a Read and is answered with a Write sends the Write.
// Requirements: MPAv2-9.2-06, MPAv2-9.2-07
#[test]
fn the_negotiated_indication_is_sent_and_not_the_favourite() {
    for (here, there, sent) in [
        (RtrKinds::READ | RtrKinds::WRITE, RtrKinds::READ, Rtr::Read),
        (RtrKinds::READ | RtrKinds::WRITE, RtrKinds::all(), Rtr::Write),
        (RtrKinds::SEND, RtrKinds::all(), Rtr::Send),
        (RtrKinds::READ | RtrKinds::SEND, RtrKinds::all(), Rtr::Read),
    ] {
        let outcome = terms(1, 1, here).conclude(word(flags(there), 1, 1)).unwrap();
        assert_eq!(outcome.ready, ReadyToReceive::Send(sent));
    }
}

/// Replies that are invalid from a Responder.
// Requirements: MPAv2-9.2-03, MPAv2-9.2-08, MPAv2-9.2-09, MPAv2-12-01
#[test]
fn another_model_than_asked_for() {
    // A is not echoed: nothing lets the Responder send.
    let peer_to_peer = terms(1, 1, RtrKinds::all());
    assert_eq!(peer_to_peer.conclude(client_server(1, 1)), Err(MpaError::NoMatchingRtr));
    assert_eq!(peer_to_peer.conclude(word([true, false, false, false], 1, 1)), Err(MpaError::NoMatchingRtr));
    // A came unasked: an indication must follow it, and any will do.
    let client = terms(1, 1, RtrKinds::empty());
    for named in kinds() {
        let Ok(Outcome { ready: ReadyToReceive::Send(rtr), .. }) = client.conclude(word(flags(named), 1, 1))
        else {
            panic!("{named:?}")
        };
        assert!(named.contains(kind(rtr)));
    }
    assert_eq!(client.conclude(word([true, false, false, false], 1, 1)), Err(MpaError::NoMatchingRtr));
    // B, C and D mean nothing without A, at either end.
    let outcome = client.conclude(word([false, true, true, true], 1, 1)).unwrap();
    assert_eq!(outcome.ready, ReadyToReceive::None);
    let (reply, outcome) =
        terms(1, 1, RtrKinds::all()).answer(word([false, true, true, true], 1, 1), 0).unwrap();
    assert_eq!((reply, outcome.ready), (client_server(1, 1), ReadyToReceive::None));
}

/// A Responder without any indication has one all the same. MPAv2-12-01: nor does a Request that names none
/// get an answer with none.
// Requirements: MPAv2-9.2-02
#[test]
fn a_responder_always_has_an_indication() {
    for asked in kinds().map(flags).chain([[true, false, false, false]]) {
        let (reply, _) = terms(1, 1, RtrKinds::empty()).answer(word(asked, 1, 1), 0).unwrap();
        assert_eq!(RtrKinds::of(reply), RtrKinds::WRITE);
    }
}

/// Linux siw, as it starts: depths of 0, of 1, and of 128, and its peer-to-peer words.
#[test]
fn siw_is_understood() {
    let responder = Terms::responder();
    for depth in [0, 1, 128] {
        let (reply, outcome) = responder.answer(client_server(depth, depth), 0).unwrap();
        let most = depth.min(limits::READ_DEPTH_USUAL);
        assert_eq!((reply, outcome.depths), (client_server(most, most), depths(most, most)));
    }
    let words = |octets| EnhancedData::parse(octets);
    let (reply, _) = responder.answer(words([0x80, 0x01, 0xc0, 0x01]), 0).unwrap();
    let mut octets = [0; 4];
    reply.emit(&mut octets);
    assert_eq!(octets, [0x80, 0x01, 0xc0, 0x01], "A is echoed, C and D are there to choose from");
    let initiator = Terms { rtr: RtrKinds::WRITE | RtrKinds::READ, ..Terms::initiator() };
    let outcome = initiator.conclude(words([0x80, 0x01, 0x80, 0x01])).unwrap();
    assert_eq!(outcome, Outcome { depths: depths(32, 1), ready: ReadyToReceive::Send(Rtr::Write) });
}
