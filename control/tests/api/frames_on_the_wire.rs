//! Startup frames and FPDUs of a device with its default configuration, checked against the text of RFC 5044
//! by a peer that shares no code with MPA.

use std::cell::Cell;
use std::thread;

use crate::common::raw::RawPeer;
use crate::common::{End, FAR, NEAR, PATIENCE, PORT, config, link};
use warpline::{ConnectConfig, Device, ListenConfig, PollThread, Revision, Status};

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
/// Octets of a startup frame without Private Data.
const FRAME: usize = 20;
/// The first FPDU of the peer: an empty RDMA Write, without Markers.
const EMPTY_WRITE: [u8; 20] = [0, 14, 0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x05, 0x72, 0xab];
const OCTETS: u32 = 3000;

fn frame(key: &[u8; 16], flags: u8) -> Vec<u8> {
    [&key[..], &[flags, 1, 0, 0]].concat()
}

/// Writes [`OCTETS`] bytes to a peer whose startup frame carries `flags`. Returns the flags of our startup
/// frame, and our stream after it.
fn transmit(initiator: bool, flags: u8) -> (u8, Vec<u8>) {
    let (ours, theirs) = link();
    let mut peer = RawPeer::new(theirs, FAR);
    let device = Device::start(ours, &config(NEAR), PollThread::default()).unwrap();
    let end = End::new(&device);
    thread::scope(|scope| {
        if initiator {
            peer.listen(PORT);
            let wish = ConnectConfig { revision: Revision::One, ..ConnectConfig::default() };
            let connecting = scope.spawn(end.connecting_with(&wish));
            peer.accept();
            peer.until("the Request", |peer| peer.received.len() >= FRAME);
            peer.send(&frame(b"MPA ID Rep Frame", flags));
            while !connecting.is_finished() {
                peer.step();
                thread::yield_now();
            }
            connecting.join().unwrap().unwrap();
        } else {
            let listener = device.listen(PORT, &ListenConfig::default()).unwrap();
            peer.connect((NEAR, PORT).into());
            peer.send(&frame(b"MPA ID Req Frame", flags));
            let qp = end.control();
            let accepting =
                scope.spawn(move || listener.accept(PATIENCE).unwrap().accept(qp, b"").map(|_| ()));
            peer.until("the Reply", |peer| peer.received.len() >= FRAME);
            while !accepting.is_finished() {
                peer.step();
                thread::yield_now();
            }
            accepting.join().unwrap().unwrap();
            peer.send(&EMPTY_WRITE);
        }
    });
    end.memory.fill(0x5a);
    let target = warpline::Advertisement { stag: warpline::STag(0x77), to: 0, len: OCTETS };
    end.qp.post_write(1, end.memory.slice(0, OCTETS), &target, 0).unwrap();
    let done = Cell::new(None);
    peer.until("the Write is acknowledged", |_| {
        done.set(end.completions.poll());
        done.get().is_some()
    });
    assert_eq!(done.get().unwrap().status, Status::Success);
    (peer.received[16], peer.received[FRAME..].to_vec())
}

/// Removes the Markers from `stream`, which is one FPDU. RFC 5044 §4.3: a Marker stands at each multiple of
/// 512, and counts from ULPDU_Length; a Marker before ULPDU_Length is 0.
#[track_caller]
fn without_markers(stream: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    for (n, interval) in stream.chunks(512).enumerate() {
        // The first Marker takes four octets, then comes ULPDU_Length.
        let distance = (n * 512).saturating_sub(4) as u16;
        assert_eq!(interval[..4], [&[0, 0][..], &distance.to_be_bytes()].concat(), "Marker {n}");
        rest.extend_from_slice(&interval[4..]);
    }
    rest
}

/// As Initiator and as Responder the device inserts Markers if and only if the peer asks for them.
// Requirements: MPA-4.3-01, MPA-7.1.1-05, MPA-7.1.1-06
#[test]
fn a_peer_gets_the_markers_it_asks_for() {
    for initiator in [true, false] {
        for markers in [true, false] {
            let flags = if markers { MARKERS | CRC } else { CRC };
            let (_, stream) = transmit(initiator, flags);
            let fpdu = if markers { without_markers(&stream) } else { stream };
            assert_eq!(fpdu[..4], [&(14 + OCTETS as u16).to_be_bytes()[..], &[0xc1, 0x40]].concat());
            assert_eq!(fpdu[16..16 + OCTETS as usize], [0x5a; OCTETS as usize]);
        }
    }
}

/// With the default configuration CRCs are declared and generated, also towards a peer that declares C=0:
/// only an administrator can turn them off.
// Requirements: MPA-1.2-02, MPA-4.4-03, MPA-4.4-05, MPA-4.4-07
#[test]
fn crcs_are_on_where_nobody_has_turned_them_off() {
    for initiator in [true, false] {
        for flags in [CRC, 0] {
            let (said, fpdu) = transmit(initiator, flags);
            assert_eq!(said & CRC, CRC, "we declare them");
            let (covered, field) = fpdu.split_at(fpdu.len() - 4);
            assert_eq!(crc32c_of(covered).to_le_bytes(), field, "we generate them");
        }
    }
}

/// Computes CRC32c bit by bit (RFC 5044 §4.4).
fn crc32c_of(octets: &[u8]) -> u32 {
    !octets.iter().fold(!0_u32, |crc, octet| {
        (0..8).fold(
            crc ^ u32::from(*octet),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 },
        )
    })
}
