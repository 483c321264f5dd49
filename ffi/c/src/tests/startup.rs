//! What is asked of a connection is in MPA's startup frames, which the far end reads in streaming mode, byte
//! by byte.

use std::thread;
use std::time::Duration;

use super::ends::*;
use super::handles::*;
use crate::connection::*;
use crate::device::*;
use crate::extensible::Flag;
use crate::stream::*;

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
/// Flags of a startup frame.
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const ENHANCED: u8 = 0x10;

fn read(stream: &Handle<Stream>, bytes: usize) -> Vec<u8> {
    let (mut read, mut filled) = (vec![0; bytes], 0);
    while filled < bytes {
        let more = stream.read(&mut read[filled..], PATIENCE);
        assert!(more > 0, "{more} {}", last_error());
        filled += more as usize;
    }
    read
}

fn wanting(revision: u32, markers: bool) -> ConnParam {
    ConnParam { revision, markers: markers.into(), ..param(b"") }
}

/// Flags and revision of the Request that a connection begins with.
fn asked(revision: u32, markers: bool, flags: u32) -> (u8, u8) {
    let near_attr = DeviceAttr { flags, ..ATTR };
    let (near_device, far_device) =
        Handle::open_pair(NEAR_DEVICE, Some(&near_attr), FAR_DEVICE, None).unwrap();
    let listener = far_device.listen_streams(PORT).unwrap();
    let near = End::new(&near_device);
    thread::scope(|scope| {
        let connecting = scope.spawn(|| near.qp.connect(FAR, PORT, Some(&wanting(revision, markers))).0);
        let stream = listener.accept(PATIENCE).unwrap();
        let frame = read(&stream, 20);
        assert_eq!(&frame[..16], REQUEST_KEY);
        // Nor is another connection taken, for an older revision.
        drop(listener);
        assert_eq!(stream.abort(), 0);
        assert!(connecting.join().unwrap() < 0);
        (frame[16], frame[17])
    })
}

/// Markers, CRC and the revision are as the application wants them.
// Requirements: MPA-7.1.1-01, MPA-4.4-03
#[test]
fn a_request_asks_for_what_was_wanted() {
    assert_eq!(asked(WARPLINE_REVISION_USUAL, false, 0), (CRC | ENHANCED, 2));
    assert_eq!(asked(WARPLINE_REVISION_USUAL, true, 0), (MARKERS | CRC | ENHANCED, 2));
    assert_eq!(asked(WARPLINE_REVISION_2, false, 0), (CRC | ENHANCED, 2));
    assert_eq!(asked(WARPLINE_REVISION_1, true, 0), (MARKERS | CRC, 1));
    assert_eq!(asked(WARPLINE_REVISION_0, false, 0), (MARKERS | CRC, 0));
    assert_eq!(asked(WARPLINE_REVISION_1, false, WARPLINE_DEVICE_NO_CRC), (0, 1));
    let (near, _far) = devices();
    let unknown = End::new(&near).qp.connect(FAR, PORT, Some(&wanting(4, false))).0;
    assert_eq!((unknown, last_error().contains("WARPLINE_REVISION_")), (-libc::EINVAL, true));
}

/// A silent peer is nudged unless the application does without.
#[test]
fn nudges_are_as_was_wanted() {
    for no_nudges in [false, true] {
        let param = ConnParam { no_nudges: no_nudges.into(), ..param(b"") };
        // SAFETY: there is no Private Data.
        let config = unsafe { param.connecting() }.ok().unwrap();
        assert_eq!(config.nudges, !no_nudges);
    }
}

/// Flags and revision of the Reply to a Request with these.
fn answered(listening: Option<&ListenAttr>, flags: u8, revision: u8) -> (u8, u8) {
    let (near_device, far_device) = devices();
    let listener = far_device.listen_with(PORT, listening).unwrap();
    let stream = near_device.connect_stream(FAR, PORT).unwrap();
    let request = [&REQUEST_KEY[..], &[flags, revision, 0, 0]].concat();
    assert_eq!(stream.write(&request, PATIENCE), 20);
    let far = End::new(&far_device);
    assert_eq!(listener.request(PATIENCE).unwrap().accept(&far.qp, &param(b"")), 0);
    let frame = read(&stream, 20);
    assert_eq!(&frame[..16], REPLY_KEY);
    (frame[16], frame[17])
}

/// So is it where connections are taken. CRC is on when either end wants it.
// Requirements: MPA-7.1.1-03, MPA-7.1.1-08
#[test]
fn a_reply_asks_for_what_was_wanted() {
    let attr = |markers: bool, permissive: bool| ListenAttr {
        backlog: 3,
        markers: markers.into(),
        permissive: permissive.into(),
        ..LISTEN_ATTR
    };
    assert_eq!(answered(None, CRC, 1), (CRC, 1));
    assert_eq!(answered(Some(&attr(false, false)), 0, 1), (CRC, 1));
    assert_eq!(answered(Some(&attr(true, false)), CRC, 1), (MARKERS | CRC, 1));
    assert_eq!(answered(Some(&attr(false, true)), MARKERS | CRC, 0), (MARKERS | CRC, 0));
}

/// The same from streaming mode.
#[test]
fn a_stream_replies_as_was_wanted() {
    let (near_device, far_device) = devices();
    let listener = far_device.listen_streams(PORT).unwrap();
    let near = near_device.connect_stream(FAR, PORT).unwrap();
    let far = listener.accept(PATIENCE).unwrap();
    assert_eq!(near.write(&[&REQUEST_KEY[..], &[CRC, 1, 0, 0]].concat(), PATIENCE), 20);
    let attr = ListenAttr { markers: Flag::SET, ..LISTEN_ATTR };
    let request = far.respond_with(b"", Some(&attr));
    let end = End::new(&far_device);
    assert_eq!(request.unwrap().accept(&end.qp, &param(b"")), 0);
    assert_eq!(read(&near, 20)[16..18], [MARKERS | CRC, 1]);
}

/// Zero is the usual; the rest is what the Rust interface has for it.
#[test]
fn listeners_are_as_they_were_asked_for() {
    let attr = |first_message_timeout_ms| ListenAttr {
        backlog: 5,
        startup_timeout_ms: 70,
        first_message_timeout_ms,
        decision_timeout_ms: 2 * first_message_timeout_ms,
        markers: Flag::SET,
        permissive: Flag::SET,
        reuse_address: Flag::SET,
        ..LISTEN_ATTR
    };
    let usual = warpline::ListenConfig::default();
    let zero = LISTEN_ATTR;
    assert_eq!((config(None), config(Some(&zero))), (usual, usual));
    let made = config(Some(&attr(90)));
    assert_eq!((made.backlog, made.markers, made.permissive, made.reuse_address), (5, true, true, true));
    assert_eq!(made.startup_timeout, Duration::from_millis(70));
    assert_eq!(made.first_fpdu_timeout, Some(Duration::from_millis(90)));
    assert_eq!(made.decision_timeout, Some(Duration::from_millis(180)));
    let endless = config(Some(&attr(-1)));
    assert_eq!((endless.first_fpdu_timeout, endless.decision_timeout), (None, None));
}
