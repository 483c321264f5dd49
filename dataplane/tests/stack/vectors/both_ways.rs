//! Every record that is a frame of MPA, valid and invalid, read and written by two implementations: the data
//! plane's, and `reference::mpa`. The tables name each file, so that a new one cannot be forgotten.

use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::wire::mpa::{EnhancedData, Kind, Parsed, StartupFrame};

use super::{Record, decode, directory, encode, records};
use crate::reference::mpa::startup::{self, Expected, Verdict};
use crate::reference::mpa::{Receiver, Sender, Stream};

/// How an FPDU is to be read: its position in the stream, whether that has Markers and CRCs.
#[derive(Clone, Copy)]
struct Where(u64, bool, bool);

/// The expected result for a record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// A ULPDU of this length, which both implementations write as the same octets again.
    Ulpdu(usize),
    /// A ULPDU of this length, which both write differently: receivers accept values that senders do not use.
    Borne(usize),
    /// An error with this code.
    Error(u8),
    /// The record is no FPDU but a ULPDU, that of the record after it.
    NotFramed,
}

use Fate::{Borne, Error, NotFramed, Ulpdu};

const ON: Where = Where(0, true, true);
const OFF: Where = Where(0, false, true);

/// The files of FPDUs, record by record.
const FPDUS: [(&str, &[(Where, Fate)]); 15] = [
    ("culley00-fig5", &[(ON, Ulpdu(42))]),
    ("culley00-fig6", &[(Where(0x1ec, true, true), Ulpdu(42))]),
    ("mpa-fig5-crcoff", &[(Where(0, false, false), Borne(42))]),
    ("mpa-fig5-nomarkers", &[(OFF, Ulpdu(42))]),
    ("mpa-marker-before-crc", &[(Where(480, true, true), Ulpdu(30))]),
    ("mpa-marker-between", &[(ON, Ulpdu(0x1f6)), (Where(512, true, true), Ulpdu(16))]),
    (
        "mpa-negative",
        &[
            (ON, Error(2)),
            (Where(0x1ec, true, true), Error(3)),
            (Where(0x1ec, true, true), Borne(42)),
            (Where(0x1ec, true, true), Borne(42)),
        ],
    ),
    (
        "mpa-padding",
        &[
            (ON, Ulpdu(18)),
            (Where(28, true, true), Ulpdu(19)),
            (Where(56, true, true), Ulpdu(20)),
            (Where(84, true, true), Ulpdu(21)),
            (Where(112, true, true), Ulpdu(14)),
            (Where(132, true, true), Ulpdu(128)),
            (Where(268, true, true), Ulpdu(1)),
            (Where(276, true, true), Ulpdu(64)),
        ],
    ),
    (
        "mpa-rtr",
        &[
            (OFF, NotFramed),
            (OFF, Ulpdu(18)),
            (OFF, NotFramed),
            (OFF, Ulpdu(14)),
            (OFF, NotFramed),
            (OFF, Ulpdu(46)),
        ],
    ),
    ("mpa-stream-fig6", &[(ON, Ulpdu(482)), (Where(0x1ec, true, true), Ulpdu(42))]),
    ("mpa-three-markers", &[(ON, Ulpdu(1442))]),
    ("rdmac-v0", &[(ON, Ulpdu(42)), (ON, Ulpdu(19))]),
    ("rfc5044-fig4", &[(Where(500, true, true), Ulpdu(16))]),
    ("rfc5044-fig5", &[(ON, Ulpdu(42))]),
    ("rfc5044-fig6", &[(Where(0x1ec, true, true), Ulpdu(42))]),
];

use Expected::{Reply, Request};

/// The files of startup frames: the expected frame of each record, and whether it is valid.
const STARTUP: [(&str, &[(Expected, bool)]); 4] = [
    (
        "mpa-startup-negative",
        &[
            (Request, false),
            (Request, false),
            (Request, false),
            (Request, false),
            // The frame holds; that more octets follow it is for the rules.
            (Request, true),
            (Request, true),
            (Request, false),
        ],
    ),
    ("mpa-startup-rev0", &[(Request, true), (Reply, true), (Reply, true), (Reply, true)]),
    (
        "mpa-startup-rev1",
        &[
            (Request, true),
            (Request, true),
            (Request, true),
            (Reply, true),
            (Reply, true),
            (Reply, true),
            (Request, true),
        ],
    ),
    (
        "mpa-startup-rev2",
        &[
            (Request, true),
            (Request, true),
            (Reply, true),
            (Reply, true),
            (Reply, true),
            (Request, true),
            (Request, true),
            (Request, true),
        ],
    ),
];

/// Files of other things, which tests beside this one read.
const OTHERS: [&str; 13] = [
    "crc32c-basic",
    "ddp-msn-wrap",
    "ddp-tagged-2048",
    "ddp-untagged-2048",
    "rdmap-7306",
    "rdmap-read",
    "rdmap-send",
    "rdmap-terminate",
    "rdmap-write",
    "tro-formats",
    "tro-rids",
    "tro-table1",
    "tro-table2",
];

/// The name of every file, in order.
pub fn files() -> Vec<&'static str> {
    let fpdus = FPDUS.iter().map(|(file, _)| *file);
    let mut files: Vec<_> = fpdus.chain(STARTUP.map(|(file, _)| file)).chain(OTHERS).collect();
    files.sort_unstable();
    files
}

fn read(file: &str) -> Vec<Record> {
    let text = std::fs::read_to_string(directory().join(file).with_extension("hex")).expect(file);
    records(&text).expect(file)
}

// Requirements: MPA-4.1-01, MPA-4.1-06, MPA-4.4-12, MPA-8-02, MPA-8-03, D08-X-02
#[test]
fn every_fpdu_both_ways() {
    for (file, expected) in &FPDUS {
        let records = read(file);
        assert_eq!(records.len(), expected.len(), "{file}");
        for (index, (Where(position, markers, crc), fate)) in expected.iter().enumerate() {
            let octets = &records[index].octets[..];
            // A stream whose sequence numbers wrap directly after the record.
            let start = 0_u32.wrapping_sub(*position as u32).wrapping_sub(octets.len() as u32);
            let stream = Stream { start, markers: *markers, crc: *crc };
            let what = &records[index].label;
            if *fate == NotFramed {
                assert_eq!(
                    decode(&records[index + 1].octets, 0, false, true).as_deref(),
                    Ok(octets),
                    "{what}"
                );
                continue;
            }
            let ours = decode(octets, *position, *markers, *crc).map_err(MpaError::code);
            assert_eq!(ours, judged(stream, *position, octets), "{what}");
            match (ours, *fate) {
                (Err(code), Error(expected)) => assert_eq!(code, expected, "{what}"),
                (Ok(ulpdu), Ulpdu(len) | Borne(len)) => {
                    assert_eq!(ulpdu.len(), len, "{what}");
                    let again = encode(&ulpdu, *position, *markers, *crc);
                    let mut theirs = Vec::new();
                    let mut sender = Sender::new(stream);
                    sender.seq = start.wrapping_add(*position as u32);
                    sender.frame(&ulpdu, &mut theirs);
                    assert_eq!(again, theirs, "{what}");
                    assert_eq!(again == octets, *fate == Ulpdu(len), "{what}");
                }
                (ours, fate) => panic!("{what}: {ours:?}, not {fate:?}"),
            }
        }
    }
}

/// The ULPDU of the FPDU that is all of `octets`, as the oracle reads it.
fn judged(stream: Stream, position: u64, octets: &[u8]) -> Result<Vec<u8>, u8> {
    let mut receiver = Receiver::at(stream, stream.start.wrapping_add(position as u32));
    let mut done = None;
    for octet in octets {
        assert!(done.is_none(), "octets are left over");
        done = receiver.take(*octet).map_err(|fault| fault as u8)?;
    }
    Ok(done.expect("complete").ulpdu)
}

// Requirements: MPA-7.1.1-01 to MPA-7.1.1-04, MPA-7.1.1-17, D08-7.1.1-01
#[test]
fn every_startup_frame_both_ways() {
    for (file, expected) in STARTUP {
        let records = read(file);
        assert_eq!(records.len(), expected.len(), "{file}");
        for (Record { label, octets }, (expected, holds)) in records.iter().zip(expected) {
            let kind = match expected {
                Request => Kind::Request,
                Reply => Kind::Reply,
            };
            // However little of it has come.
            for len in 0..=octets.len() {
                let ours = StartupFrame::parse(kind, &octets[..len]);
                let same = match (&ours, startup::judge(*expected, &octets[..len])) {
                    (Err(_), Verdict::Malformed) | (Ok(Parsed::Incomplete), Verdict::Incomplete) => true,
                    (Ok(Parsed::Complete { frame, consumed }), Verdict::Complete(judged)) => {
                        *consumed == judged.octets && same_frame(frame, &judged)
                    }
                    _ => false,
                };
                assert!(same, "{label}: {len} octets: {ours:?}");
                if len == octets.len() {
                    assert_eq!(ours.is_ok(), *holds, "{label}");
                }
                if let Ok(Parsed::Complete { frame, consumed }) = ours
                    && !label.contains("reserved bits")
                {
                    let mut out = vec![0xee; consumed];
                    assert_eq!(frame.emit(&mut out), Some(consumed));
                    assert_eq!(out, octets[..consumed], "{label}");
                }
            }
        }
    }
}

fn same_frame(frame: &StartupFrame<'_>, judged: &startup::Frame) -> bool {
    let words = frame.enhanced_data().map(|(data, _)| {
        let mut octets = [0; EnhancedData::LEN];
        data.emit(&mut octets);
        [u16::from_be_bytes([octets[0], octets[1]]), u16::from_be_bytes([octets[2], octets[3]])]
    });
    let private_data = frame.enhanced_data().map_or(frame.private_data, |(_, rest)| rest);
    (frame.markers, frame.crc, frame.rejected) == (judged.markers, judged.crc, judged.rejected)
        && frame.revision == judged.revision
        && words == judged.enhanced
        && private_data == judged.private_data
}
