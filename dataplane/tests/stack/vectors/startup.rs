//! Vectors of startup frames.

use warpline_dataplane::mpa::startup;
use warpline_dataplane::wire::mpa::{EnhancedData, Kind, Parsed, StartupError, StartupFrame};

use super::{Record, counting, load};

/// The frame that is all of a record, which encodes to the same octets again.
fn frame(record: &Record, kind: Kind) -> StartupFrame<'_> {
    let parsed = StartupFrame::parse(kind, &record.octets);
    let Ok(Parsed::Complete { frame, consumed }) = parsed else { panic!("{}: {parsed:?}", record.label) };
    assert_eq!(consumed, record.octets.len());
    let mut out = vec![0xee; frame.len()];
    assert_eq!(frame.emit(&mut out), Some(out.len()));
    assert_eq!(out, record.octets, "{}", record.label);
    frame
}

// Requirements: RDMAC-C.2.4-01, RDMAC-C.2.4-02, RDMAC-C.2.1-01
#[test]
fn mpa_startup_rev0() {
    let [request, answer, reply, refusal] = load("mpa-startup-rev0");
    let request = frame(&request, Kind::Request);
    assert_eq!((request.markers, request.crc, request.revision), (true, true, 0));
    let offer = startup::Offer::default();
    assert_eq!(startup::answer(&request, offer, true).reply, frame(&answer, Kind::Reply));
    assert_eq!(startup::answer(&request, offer, false).reply, frame(&refusal, Kind::Reply));
    assert_eq!(frame(&reply, Kind::Reply).revision, 0);
}

// Requirements: MPA-7.1-05, MPA-7.1.1-10, MPA-7.1.1-12, MPA-7.1.1-16, MPA-7.1.2-06, D08-X-01
#[test]
fn mpa_startup_rev1() {
    let records = load::<7>("mpa-startup-rev1");
    let long = counting(0, 512);
    let expected: [(Kind, bool, bool, bool, &[u8]); 7] = [
        (Kind::Request, false, true, false, b""),
        (Kind::Request, true, true, false, b"hello"),
        (Kind::Request, false, false, false, b""),
        (Kind::Reply, true, true, false, b""),
        (Kind::Reply, false, true, false, &[0, 1, 2, 3]),
        (Kind::Reply, false, true, true, b"no"),
        (Kind::Request, false, true, false, &long),
    ];
    for (record, (kind, markers, crc, rejected, private_data)) in records.iter().zip(expected) {
        let expected =
            StartupFrame { kind, markers, crc, rejected, enhanced: false, revision: 1, private_data };
        assert_eq!(frame(record, kind), expected, "{}", record.label);
    }
}

// Requirements: MPAv2-6-01, MPAv2-6-02, MPAv2-6-05, MPAv2-9-01, MPAv2-9.2-01, MPAv2-9.2-09
#[test]
fn mpa_startup_rev2() {
    let [all, with_data, write, read, reject, client_server, unnegotiated, plain] = load("mpa-startup-rev2");
    let data = |kinds: [bool; 4], ird, ord| {
        let [peer_to_peer, rtr_send, rtr_write, rtr_read] = kinds;
        EnhancedData { peer_to_peer, rtr_send, rtr_write, rtr_read, ird, ord }
    };
    for (record, kind, expected) in [
        (all, Kind::Request, data([true; 4], 16, 16)),
        (with_data, Kind::Request, data([true, false, false, true], 4, 8)),
        (write, Kind::Reply, data([true, false, true, false], 16, 16)),
        (read, Kind::Reply, data([true, false, false, true], 8, 4)),
        (reject, Kind::Reply, data([false; 4], 16, 32)),
        (client_server, Kind::Request, data([false; 4], 1, 1)),
        (unnegotiated, Kind::Request, data([false; 4], 0x3fff, 0x3fff)),
    ] {
        let frame = frame(&record, kind);
        let (enhanced, private_data) = frame.enhanced_data().expect("enhanced");
        assert_eq!(enhanced, expected, "{}", record.label);
        assert_eq!(private_data.is_empty(), !record.label.contains("abcd"));
        assert_eq!(frame.rejected, record.label.contains("reject"));
        let mut out = [0; EnhancedData::LEN];
        enhanced.emit(&mut out);
        assert_eq!(out, frame.private_data[..4]);
    }
    let plain = frame(&plain, Kind::Request);
    assert_eq!((plain.revision, plain.enhanced), (2, false));
}

// Requirements: MPA-7.1.1-02, MPA-7.1.1-11, MPA-7.1.1-14, MPA-7.1.1-17, MPAv2-6-05, D08-7.1.1-01
#[test]
fn mpa_startup_negative() {
    let [draft_key, reply_key, long, revision, surplus, reserved, short] = load("mpa-startup-negative");
    let refused = |record: &Record| startup::request(&record.octets).unwrap_err();
    assert_eq!(refused(&draft_key), StartupError::WrongKey);
    assert_eq!(refused(&reply_key), StartupError::WrongKey);
    assert_eq!(refused(&long), StartupError::PrivateDataLength);
    assert_eq!(refused(&revision), StartupError::Revision(3));
    assert_eq!(refused(&surplus), StartupError::PrivateDataLength);
    assert_eq!(refused(&short), StartupError::PrivateDataLength);
    let accepted = startup::request(&reserved.octets).unwrap().expect("complete");
    assert_eq!(
        (accepted.markers, accepted.crc, accepted.rejected, accepted.enhanced),
        (false, true, false, false)
    );
}
