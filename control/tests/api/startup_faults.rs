//! Tests of peers that break the rules of MPA startup: each connection ends as documented, and the
//! application receives the reason.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::common::raw::RawPeer;
use crate::common::{End, FAR, NEAR, PATIENCE, PORT, config, eventually_unused, link};
use warpline::{
    AcceptError, AnswerError, ConnectConfig, ConnectError, Device, ListenConfig, Listener, Peer, PollThread,
    QpState, Revision, StartupFault,
};
use warpline_dataplane::device::sim::SimDevice;
use warpline_dataplane::wire::mpa::StartupError;

const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// A startup frame, or something like it.
fn frame(key: &[u8; 16], flags: u8, revision: u8, pd_length: u16, rest: &[u8]) -> Vec<u8> {
    [key, &[flags, revision][..], &pd_length.to_be_bytes(), rest].concat()
}

/// The name of a violation, the octets that the peer sends, and the expected fault.
type Case = (&'static str, Vec<u8>, StartupFault);

/// Violations that either startup frame can contain.
fn cases(key: &[u8; 16], other_key: (&[u8; 16], StartupError)) -> Vec<Case> {
    let lower_case = key.map(|octet| if octet == b'F' { b'f' } else { octet });
    vec![
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec(), StartupError::WrongKey.into()),
        ("a lower-case f", frame(&lower_case, 0x40, 1, 0, &[]), StartupError::WrongKey.into()),
        ("the other frame", frame(other_key.0, 0x40, 1, 0, &[]), other_key.1.into()),
        ("revision 3", frame(key, 0x40, 3, 0, &[]), StartupError::Revision(3).into()),
        ("PD_Length 513", frame(key, 0x40, 1, 513, &[0]), StartupError::PrivateDataLength.into()),
        ("PD_Length 65535", frame(key, 0x40, 1, u16::MAX, &[]), StartupError::PrivateDataLength.into()),
        ("PD_Length 4 with 8 octets", frame(key, 0x40, 1, 4, &[0; 8]), StartupFault::ExtraBytes),
    ]
}

fn revision_1(private_data: &[u8]) -> ConnectConfig {
    ConnectConfig { private_data: private_data.into(), revision: Revision::One, ..ConnectConfig::default() }
}

fn listen(device: SimDevice, config_of: &ListenConfig) -> (Device, Listener) {
    let far = Device::start(device, &config(FAR), PollThread::default()).unwrap();
    let listener = far.listen(PORT, config_of).unwrap();
    (far, listener)
}

fn startup_fault(listener: &Listener) -> StartupFault {
    match listener.accept(PATIENCE) {
        Err(AcceptError::Startup { remote, fault }) if remote.ip() == NEAR => fault,
        other => panic!("{other:?}"),
    }
}

/// Sends `octets` to a Responder; returns its error, and the peer after the connection was closed.
fn tell_responder(octets: &[u8]) -> (StartupFault, RawPeer) {
    let (near, far) = link();
    let mut peer = RawPeer::new(near, NEAR);
    let (far, listener) = listen(far, &ListenConfig::default());
    peer.connect(SocketAddr::new(FAR.into(), PORT));
    peer.send(octets);
    peer.until("the Responder closes", |peer| peer.finished || peer.closed.is_some());
    if peer.closed.is_none() {
        peer.finish();
        peer.until("both ends are closed", |peer| peer.closed.is_some());
    }
    let fault = startup_fault(&listener);
    drop(listener);
    eventually_unused(&far);
    (fault, peer)
}

/// Closed at once, without an octet; ambiguity A-03.
// Requirements: MPA-7.1.1-13, MPA-7.1.2-03, MPA-7.1.2-22, MPA-7.1.3-01, MPA-8-06, MPA-8-07
#[test]
fn a_responder_closes_on_a_malformed_request() {
    for (what, octets, expected) in cases(REQUEST, (REPLY, StartupError::WrongKey)) {
        let (fault, peer) = tell_responder(&octets);
        assert_eq!((fault, &peer.received[..]), (expected, &[][..]), "{what}");
        assert_eq!(fault.mpa_error().code(), 4);
    }
}

/// A rejecting Reply of revision 1, then FIN.
// Requirements: A-12, RDMAC-C.2.1-01
#[test]
fn a_responder_tells_revision_0_its_own() {
    let (fault, peer) = tell_responder(&frame(REQUEST, 0xc0, 0, 0, &[]));
    assert_eq!(fault, StartupError::Revision(0).into());
    assert_eq!(peer.received, frame(REPLY, 0x60, 1, 0, &[]));
    assert!(peer.finished, "an orderly end");
}

/// A Request that ends too early.
// Requirements: MPA-7.1.2-24, A-03
#[test]
fn a_fin_inside_the_request_is_a_fault() {
    let (near, far) = link();
    let mut peer = RawPeer::new(near, NEAR);
    let (_far, listener) = listen(far, &ListenConfig::default());
    peer.connect(SocketAddr::new(FAR.into(), PORT));
    peer.send(&frame(REQUEST, 0x40, 1, 4, &[1, 2]));
    peer.finish();
    peer.until("closed", |peer| peer.closed.is_some());
    assert_eq!((startup_fault(&listener), peer.received), (StartupFault::Closed, vec![]));
}

/// Silence, and an octet now and then, end at the same deadline.
// Requirements: MPA-7.1.2-21, MPA-7.1.2-25
#[test]
fn a_responder_does_not_wait_for_ever() {
    let config = ListenConfig { startup_timeout: Duration::from_millis(50), ..ListenConfig::default() };
    let request = frame(REQUEST, 0x40, 1, 512, &[0; 512]);
    for dribble in [false, true] {
        let (near, far) = link();
        let mut peer = RawPeer::new(near, NEAR);
        let (_far, listener) = listen(far, &config);
        peer.connect(SocketAddr::new(FAR.into(), PORT));
        let mut octets = request.chunks(1);
        while peer.closed.is_none() {
            if dribble && !peer.finished {
                peer.send(octets.next().expect("the deadline comes before the last octet"));
            }
            peer.rest(Duration::from_millis(20));
        }
        assert_eq!((startup_fault(&listener), &peer.received[..]), (StartupFault::TimedOut, &[][..]));
    }
}

/// Octets after the Request, while the application has not decided yet, and an Initiator that leaves.
// Requirements: A-03
#[test]
fn a_request_can_be_too_old_to_accept() {
    for leaves in [false, true] {
        let (near, far) = link();
        let mut peer = RawPeer::new(near, NEAR);
        let (far, listener) = listen(far, &ListenConfig::default());
        peer.connect(SocketAddr::new(FAR.into(), PORT));
        peer.send(&frame(REQUEST, 0x40, 1, 2, b"hi"));
        let mut request = None;
        while request.is_none() {
            peer.step();
            request = listener.accept(Duration::ZERO).ok();
        }
        let expected = if leaves {
            peer.finish();
            StartupFault::Closed
        } else {
            peer.send(b"impatient");
            StartupFault::ExtraBytes
        };
        peer.until("the Responder closes", |peer| peer.finished || peer.closed.is_some());
        let end = End::new(&far);
        assert_eq!(request.unwrap().accept(&end.qp, b""), Err(AnswerError::Startup(expected)));
        assert_eq!((end.qp.state(), &peer.received[..]), (QpState::Idle, &[][..]));
    }
}

/// If the application does not decide about a Request, the Request is rejected at the deadline, and its place
/// in the backlog is free for another. The application sees the rejection when it decides.
#[test]
fn a_request_does_not_wait_for_ever_for_a_decision() {
    let config = ListenConfig {
        backlog: 1,
        decision_timeout: Some(Duration::from_millis(50)),
        ..ListenConfig::default()
    };
    let (near, far) = link();
    let mut peer = RawPeer::new(near, NEAR);
    let (far, listener) = listen(far, &config);
    let end = End::new(&far);
    for _ in 0..2 {
        peer.connect(SocketAddr::new(FAR.into(), PORT));
        peer.send(&frame(REQUEST, 0x40, 1, 2, b"hi"));
        peer.until("the Responder rejects", |peer| peer.finished);
        assert_eq!(peer.received, frame(REPLY, 0x60, 1, 0, &[]), "an orderly rejection");
        peer.finish();
        peer.until("both ends are closed", |peer| peer.closed.is_some());
        peer.received.clear();
        let request = listener.accept(PATIENCE).unwrap();
        assert_eq!(request.accept(&end.qp, b""), Err(AnswerError::TimedOut));
        assert_eq!(end.qp.state(), QpState::Idle);
    }
    drop((listener, end));
    eventually_unused(&far);
}

/// Sends `octets` to an Initiator whose Request is complete; returns its error.
fn tell_initiator(octets: &[u8]) -> ConnectError {
    let (near, far) = link();
    let mut peer = RawPeer::new(far, FAR);
    peer.listen(PORT);
    let near = Device::start(near, &config(NEAR), PollThread::default()).unwrap();
    let end = End::new(&near);
    let error = thread::scope(|scope| {
        let connecting = scope.spawn(end.connecting_with(&revision_1(b"hello")));
        peer.accept();
        peer.until("the Request", |peer| peer.received.len() == 25);
        assert_eq!(peer.received, frame(REQUEST, 0x40, 1, 5, b"hello"));
        peer.send(octets);
        peer.until("the Initiator closes", |peer| peer.finished || peer.closed.is_some());
        if peer.closed.is_none() {
            peer.finish();
            peer.until("both ends are closed", |peer| peer.closed.is_some());
        }
        connecting.join().unwrap().unwrap_err()
    });
    assert_eq!((end.qp.state(), peer.received.len()), (QpState::Idle, 25));
    drop(end);
    eventually_unused(&near);
    error
}

/// Closed at once, without another octet.
// Requirements: MPA-7.1.1-04, MPA-7.1.2-12, MPA-7.1.2-16, MPA-7.1.2-20, MPA-8-06, MPA-8-07
#[test]
fn an_initiator_closes_on_a_malformed_reply() {
    let mut cases = cases(REPLY, (REQUEST, StartupError::OtherInitiator));
    cases.push(("revision 0", frame(REPLY, 0xc0, 0, 0, &[]), StartupError::Revision(0).into()));
    cases.push(("revision 2", frame(REPLY, 0x40, 2, 0, &[]), StartupError::Revision(2).into()));
    for (what, octets, expected) in cases {
        assert_eq!(tell_initiator(&octets), ConnectError::Startup(expected), "{what}");
    }
}

/// Octets after a rejecting Reply are not a fault.
// Requirements: MPA-7.1.2-13
#[test]
fn a_rejection_is_no_fault() {
    let error = tell_initiator(&frame(REPLY, 0x60, 1, 2, b"nothank you"));
    let peer = Peer { revision: 1, depths: None };
    assert_eq!(error, ConnectError::Rejected { private_data: (*b"no").into(), peer });
}

/// A peer that hangs up instead of replying.
// Requirements: MPA-7.1.2-12
#[test]
fn a_fin_instead_of_a_reply_is_a_fault() {
    let (near, far) = link();
    let mut peer = RawPeer::new(far, FAR);
    peer.listen(PORT);
    let near = Device::start(near, &config(NEAR), PollThread::default()).unwrap();
    let end = End::new(&near);
    thread::scope(|scope| {
        let connecting = scope.spawn(end.connecting_with(&revision_1(b"")));
        peer.accept();
        peer.finish();
        peer.until("closed", |peer| peer.closed.is_some());
        assert_eq!(connecting.join().unwrap(), Err(ConnectError::Startup(StartupFault::Closed)));
    });
}
