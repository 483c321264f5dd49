//! Tests of revisions 2 and 0 through the API: with peers that are scripted octet by octet, and between two
//! devices.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::common::raw::RawPeer;
use crate::common::{End, FAR, NEAR, PATIENCE, PORT, Pair, config, link};
use warpline::{
    AnswerError, ConnectConfig, ConnectError, Connected, ConnectionRequest, Device, DeviceConfig,
    ListenConfig, Listener, Peer, PollThread, ReadDepths, ReadsWanted, Revision, RtrKinds, StartupFault,
    Status, Terms,
};
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::wire::mpa::StartupError;

const fn depths(ird: u16, ord: u16) -> ReadDepths {
    ReadDepths { ird, ord }
}

/// The octets of a golden record.
fn vector(file: &str, label: &str) -> Vec<u8> {
    let path = format!("{}/../dataplane/tests/vectors/{file}.hex", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let record = text.split("@ ").find(|record| record.starts_with(label)).expect("the record");
    let lines = record.lines().skip(1).filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
}

fn request(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let pd_length = private_data.len() as u8;
    [&b"MPA ID Req Frame"[..], &[flags, revision, 0, pd_length], private_data].concat()
}

fn reply(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let mut octets = request(flags, revision, private_data);
    octets[9] = b'p';
    octets
}

/// The enhanced Request that the usual configuration sends.
fn usual_request() -> Vec<u8> {
    request(0x50, 2, &[0, 32, 0, 32])
}

/// Runs an Initiator with `config` against a scripted Responder.
fn initiator<T>(
    wish: &ConnectConfig,
    script: impl FnOnce(&mut RawPeer) -> T,
) -> (Result<Connected, ConnectError>, T, RawPeer) {
    let (near, far) = link();
    let mut peer = RawPeer::new(far, FAR);
    peer.listen(PORT);
    let near = Device::start(near, &config(NEAR), PollThread::default()).unwrap();
    let end = End::new(&near);
    thread::scope(|scope| {
        let connecting = scope.spawn(end.connecting_with(wish));
        peer.accept();
        let said = script(&mut peer);
        while !connecting.is_finished() {
            peer.step();
            thread::yield_now();
        }
        let connected = connecting.join().unwrap();
        if connected.is_err() {
            peer.until("the Initiator closes", |peer| peer.finished || peer.closed.is_some());
            if peer.closed.is_none() {
                peer.finish();
                peer.until("both ends are closed", |peer| peer.closed.is_some());
            }
        }
        (connected, said, peer)
    })
}

fn until_received(peer: &mut RawPeer, octets: usize) {
    peer.until("octets", |peer| peer.received.len() >= octets);
}

fn revision(revision: Revision) -> ConnectConfig {
    ConnectConfig { revision, ..ConnectConfig::default() }
}

/// How an old peer refuses an enhanced Request.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Fin,
    Reset,
    Reply(u8, u8),
}

const REFUSALS: [Refusal; 5] =
    [Refusal::Fin, Refusal::Reset, Refusal::Reply(0x40, 1), Refusal::Reply(0x60, 1), Refusal::Reply(0x40, 2)];

fn refuse(peer: &mut RawPeer, refusal: Refusal) {
    match refusal {
        Refusal::Fin => peer.finish(),
        Refusal::Reset => peer.abort(),
        Refusal::Reply(flags, revision) => peer.send(&reply(flags, revision, b"")),
    }
}

/// After a peer that does not support enhanced Requests refuses one, the Initiator sends an unenhanced
/// Request on a new connection.
// Requirements: MPAv2-10-04, MPAv2-10-05
#[test]
fn an_old_peer_is_asked_again_by_revision_1() {
    for refusal in REFUSALS {
        let (connected, first, peer) = initiator(&ConnectConfig::default(), |peer| {
            until_received(peer, 24);
            refuse(peer, refusal);
            let first = peer.turn_to_next();
            until_received(peer, 20);
            peer.send(&reply(0x40, 1, b"old"));
            first
        });
        assert_eq!((first, &*peer.received), (usual_request(), &*request(0x40, 1, b"")), "{refusal:?}");
        let connected = connected.unwrap();
        assert_eq!((&*connected.private_data, connected.version), (&b"old"[..], 1));
        assert_eq!(connected.peer, Peer { revision: 1, depths: None });
        assert_eq!(connected.depths, depths(32, 32), "for the ULP to see to");
    }
}

/// If fallback is disabled, the failure is an error, and no other connection is opened.
#[test]
fn revision_2_alone_does_not_fall_back() {
    for (refusal, expected) in REFUSALS.into_iter().zip([
        ConnectError::Startup(StartupFault::Closed),
        ConnectError::Closed(warpline::CloseReason::Reset),
        ConnectError::Startup(StartupError::Revision(1).into()),
        ConnectError::Startup(StartupError::Revision(1).into()),
        ConnectError::Startup(StartupFault::NotEnhanced),
    ]) {
        let (connected, (), mut peer) = initiator(&revision(Revision::Two), |peer| {
            until_received(peer, 24);
            refuse(peer, refusal);
        });
        assert_eq!(connected, Err(expected), "{refusal:?}");
        peer.rest(Duration::from_millis(20));
        assert_eq!(peer.received, usual_request());
    }
}

/// Returns the outcome of an Initiator whose Request has arrived and is not answered.
fn after_silence() -> Result<Connected, ConnectError> {
    let mut timeout = Duration::from_millis(50);
    loop {
        let (near, far) = link();
        let mut peer = RawPeer::new(far, FAR);
        peer.listen(PORT);
        let near = Device::start(near, &config(NEAR), PollThread::default()).unwrap();
        let (end, short) = (End::new(&near), ConnectConfig { timeout, ..ConnectConfig::default() });
        let connected = thread::scope(|scope| {
            let connecting = scope.spawn(end.connecting_with(&short));
            while !connecting.is_finished() {
                peer.step();
                thread::yield_now();
            }
            connecting.join().unwrap()
        });
        if peer.received == usual_request() {
            return connected;
        }
        // A slow machine needs more time for the Request to arrive.
        assert!(peer.received.is_empty() && timeout < PATIENCE, "{:?}", peer.received);
        timeout *= 2;
    }
}

/// Failures that no old peer causes are not retried: silence, another protocol, half a Reply, a rejection.
#[test]
fn other_faults_do_not_fall_back() {
    assert_eq!(after_silence(), Err(ConnectError::Startup(StartupFault::TimedOut)));
    let (connected, (), _) = initiator(&ConnectConfig::default(), |peer| peer.send(b"HTTP/1.1 400"));
    assert_eq!(connected, Err(ConnectError::Startup(StartupError::WrongKey.into())));
    let (connected, (), _) = initiator(&ConnectConfig::default(), |peer| {
        peer.send(b"MPA ID");
        peer.finish();
    });
    assert_eq!(connected, Err(ConnectError::Startup(StartupFault::Closed)));
    let (connected, (), _) =
        initiator(&ConnectConfig::default(), |peer| peer.send(&reply(0x70, 2, &[0, 1, 0, 64])));
    let peer = Peer { revision: 2, depths: Some(depths(1, 64)) };
    assert_eq!(connected, Err(ConnectError::Rejected { private_data: Box::default(), peer }), "MPAv2-9.1-08");
}

/// If this end cannot meet the peer's terms, it sends the golden Terminate and a FIN.
// Requirements: MPAv2-9.1-07, MPAv2-9.2-08, MPAv2-8-01
#[test]
fn unmet_terms_end_in_a_terminate() {
    for (rtr, word, error, label) in [
        (RtrKinds::empty(), [0, 4, 0, 33], MpaError::InsufficientIrd, "MPA insufficient IRD"),
        (RtrKinds::SEND, [0x80, 4, 0x80, 4], MpaError::NoMatchingRtr, "MPA no matching RTR option"),
    ] {
        let wish = ConnectConfig { terms: Terms { rtr, ..Terms::initiator() }, ..ConnectConfig::default() };
        let (connected, (), peer) = initiator(&wish, |peer| {
            until_received(peer, 24);
            peer.send(&reply(0x50, 2, &word));
        });
        assert!(matches!(connected, Err(ConnectError::Unmet { error: told, .. }) if told == error));
        assert!(peer.finished, "an orderly end");
        let fpdu = format!("{label} (RFC 6581): layer 2, type 0, code {} (FPDU", error.code());
        assert_eq!(peer.received[24..], vector("rdmap-terminate", &fpdu), "{error}");
    }
}

/// A Responder of the RDMA Consortium's.
// Requirements: RDMAC-C.2.5-01, RDMAC-C.2.5-02, RDMAC-C.2.2-01
#[test]
fn a_permissive_initiator_finds_version_0() {
    let golden = vector("mpa-startup-rev0", "RDMAC Reply");
    let permissive = ConnectConfig { permissive: true, ..ConnectConfig::default() };
    let (connected, first, peer) = initiator(&permissive, |peer| {
        until_received(peer, 24);
        peer.send(&golden);
        let first = peer.turn_to_next();
        until_received(peer, 20);
        peer.send(&golden);
        first
    });
    assert_eq!((first, &*peer.received), (usual_request(), &*request(0x40, 1, b"")));
    let connected = connected.unwrap();
    assert_eq!((connected.version, connected.peer.revision), (0, 0));
    let (connected, (), _) = initiator(&ConnectConfig::default(), |peer| {
        until_received(peer, 24);
        peer.send(&golden);
    });
    assert_eq!(connected, Err(ConnectError::Startup(StartupError::Revision(0).into())));
}

/// A Responder, and a scripted Initiator whose Request is `octets`.
struct Asked {
    peer: RawPeer,
    _listener: Listener,
    end: End,
}

impl Asked {
    fn new(listen: &ListenConfig, octets: &[u8]) -> (Self, ConnectionRequest) {
        Self::with(&config(FAR), listen, octets)
    }

    fn with(device: &DeviceConfig, listen: &ListenConfig, octets: &[u8]) -> (Self, ConnectionRequest) {
        let (near, far) = link();
        let mut peer = RawPeer::new(near, NEAR);
        let far = Device::start(far, device, PollThread::default()).unwrap();
        let listener = far.listen(PORT, listen).unwrap();
        peer.connect(SocketAddr::new(FAR.into(), PORT));
        peer.send(octets);
        let mut request = None;
        while request.is_none() {
            peer.step();
            request = listener.accept(Duration::ZERO).ok();
        }
        let end = End::new(&far);
        (Self { peer, _listener: listener, end }, request.unwrap())
    }

    /// Waits for `octets` more octets than were received before, and returns all new ones.
    fn received(&mut self, octets: usize) -> Vec<u8> {
        until_received(&mut self.peer, octets);
        core::mem::take(&mut self.peer.received)
    }

    fn completion(&mut self) -> (u64, Status) {
        let mut completion = None;
        while completion.is_none() {
            self.peer.step();
            completion = self.end.completions.poll();
        }
        completion.map(|completion| (completion.id, completion.status)).unwrap()
    }
}

/// Linux siw in its peer-to-peer mode, as observed: it accepts nothing before its first FPDU, and always
/// sends a Write without payload to STag 1, whichever indication the ends agree on.
// Requirements: MPAv2-9.1-01, MPAv2-9.2-03, MPAv2-10-01, MPA-7.1.2-15
#[test]
fn siw_as_initiator() {
    let (mut asked, request) =
        Asked::new(&ListenConfig::default(), &request(0x10, 2, &[0x80, 0x01, 0xc0, 0x01]));
    assert_eq!((request.revision(), request.version()), (2, 1));
    assert_eq!(request.peer_depths(), Some(depths(1, 1)));
    let accepted = request.accept(&asked.end.qp, b"").unwrap();
    assert_eq!((accepted.version, accepted.depths), (1, depths(1, 1)));
    asked.end.qp.post_send(7, asked.end.memory.slice(0, 4)).unwrap();
    assert_eq!(asked.received(24), reply(0x50, 2, &[0x80, 0x01, 0xc0, 0x01]));
    asked.peer.rest(Duration::from_millis(20));
    assert_eq!(asked.peer.received, b"", "octets after the Reply are answered by a reset");
    let mut rtr = vector("mpa-rtr", "RTR as zero-length RDMA Write (FPDU");
    rtr[7] = 1;
    let crc = warpline_dataplane::crc32c::checksum(&rtr[..16]).to_le_bytes();
    rtr[16..].copy_from_slice(&crc);
    asked.peer.send(&rtr);
    assert_eq!(asked.received(28)[..6], [0, 22, 0x41, 0x43, 0, 0]);
    assert_eq!(asked.completion(), (7, Status::Success));
}

/// Linux siw as rping's client runs it: the client-server model, IRD and ORD 1, and no CRCs unless this end
/// requests them.
#[test]
fn siw_as_rping_client() {
    let (mut asked, request) = Asked::new(&ListenConfig::default(), &request(0x10, 2, &[0, 1, 0, 1]));
    let memory = asked.end.memory.slice(0, 64);
    asked.end.qp.post_receive(3, memory).unwrap();
    request.accept(&asked.end.qp, b"").unwrap();
    assert_eq!(asked.received(24), reply(0x50, 2, &[0, 1, 0, 1]));
    asked.peer.send(&vector("mpa-rtr", "RTR as zero-length Send (FPDU"));
    assert_eq!(
        asked.completion(),
        (3, Status::Success),
        "an empty message of its ULP's: no indication was agreed"
    );
}

/// The Responder rejects with the golden Reply and sends no Terminate.
// Requirements: MPAv2-9.1-04, MPAv2-9.1-05, A-07
#[test]
fn an_initiator_that_offers_too_few_reads_is_told_how_many() {
    let listen = ListenConfig {
        terms: Terms { depths: depths(16, 32), ..Terms::responder() },
        ..ListenConfig::default()
    };
    let (mut asked, request) = Asked::new(&listen, &request(0x50, 2, &[0, 16, 0, 16]));
    let reads = ReadsWanted { ord_needed: 32, ..ReadsWanted::default() };
    let error = request.accept_with(&asked.end.qp, reads, b"").unwrap_err();
    assert_eq!(error, AnswerError::InsufficientIrd { offered: 16, needed: 32 });
    asked.peer.until("closed", |peer| peer.finished);
    assert_eq!(asked.peer.received, vector("mpa-startup-rev2", "Enhanced Reply reject R=1, required ORD=32"));
}

/// An Initiator of the RDMA Consortium: its messages have version 0, and so do those sent to it.
// Requirements: RDMAC-C.2.4-01, RDMAC-C.2.4-02, RDMAC-C.2.4-03, RDMAC-C.1-02
#[test]
fn an_initiator_of_revision_0_finds_version_0() {
    let listen = ListenConfig { permissive: true, ..ListenConfig::default() };
    let (mut asked, request) = Asked::new(&listen, &vector("mpa-startup-rev0", "RDMAC Request"));
    assert_eq!((request.revision(), request.version(), request.peer_depths()), (0, 0, None));
    asked.end.qp.post_receive(3, asked.end.memory.slice(64, 64)).unwrap();
    assert_eq!(request.accept(&asked.end.qp, b"").unwrap().version, 0);
    assert_eq!(asked.received(20), vector("mpa-startup-rev0", "Permissive Responder answer"));
    asked.end.qp.post_send(7, asked.end.memory.slice(0, 24)).unwrap();
    let message = vector("rdmac-v0", "Send MSN=1");
    asked.peer.send(&message);
    assert_eq!(asked.completion(), (3, Status::Success));
    assert_eq!(asked.received(52), message, "24 zeros, framed as the peer's");
}

/// Connects two devices; returns both ends and the terms that each was given.
fn connected(
    pair: &Pair,
    ends: (&End, &End),
    wish: &ConnectConfig,
    listen: &ListenConfig,
) -> (Connected, warpline::Accepted) {
    let listener = pair.far.listen(PORT, listen).unwrap();
    thread::scope(|scope| {
        let connecting = scope.spawn(ends.0.connecting_with(wish));
        let accepted = listener.accept(PATIENCE).unwrap().accept(&ends.1.qp, b"").unwrap();
        (connecting.join().unwrap().unwrap(), accepted)
    })
}

/// In the peer-to-peer model the Responder sends first, by whichever indication, and the Initiator's first
/// message arrives as its first.
// Requirements: MPAv2-5-02, MPAv2-9.1-01, MPAv2-9.1-08, MPAv2-9.2-07
#[test]
fn the_responder_may_send_first() {
    for rtr in [RtrKinds::WRITE, RtrKinds::READ, RtrKinds::SEND] {
        for markers in [false, true] {
            let pair = Pair::new();
            let (near, far) = (End::new(&pair.near), End::new(&pair.far));
            near.qp.post_receive(1, near.memory.slice(0, 16)).unwrap();
            far.qp.post_receive(2, far.memory.slice(0, 16)).unwrap();
            let terms = Terms { depths: depths(5, 6), rtr, ..Terms::initiator() };
            let wish = ConnectConfig { terms, markers, ..ConnectConfig::default() };
            let listen = ListenConfig { markers, ..ListenConfig::default() };
            let (connected, accepted) = connected(&pair, (&near, &far), &wish, &listen);
            assert_eq!((connected.depths, accepted.depths), (depths(5, 6), depths(6, 5)));
            assert_eq!(connected.peer, Peer { revision: 2, depths: Some(depths(6, 5)) });
            far.qp.post_send(3, far.memory.slice(100, 5)).unwrap();
            let received = near.completion();
            assert_eq!((received.id, received.status, received.byte_len), (1, Status::Success, 5));
            near.qp.post_send(4, near.memory.slice(100, 7)).unwrap();
            let mut at_far = [far.completion(), far.completion()];
            at_far.sort_by_key(|completion| completion.id);
            assert_eq!(at_far.map(|completion| (completion.id, completion.byte_len)), [(2, 7), (3, 5)]);
            near.qp.disconnect();
            far.qp.wait_closed(PATIENCE).unwrap();
            near.qp.wait_closed(PATIENCE).unwrap();
        }
    }
}

/// Version 0 between two ends of this stack: both report it, and data flows both ways.
// Requirements: RDMAC-C.2-01, RDMAC-C.1-01
#[test]
fn version_0_end_to_end() {
    let pair = Pair::new();
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    near.qp.post_receive(1, near.memory.slice(0, 16)).unwrap();
    let listen = ListenConfig { permissive: true, ..ListenConfig::default() };
    let (connected, accepted) = connected(&pair, (&near, &far), &revision(Revision::Zero), &listen);
    assert_eq!((connected.version, connected.peer.revision, accepted.version), (0, 0, 0));
    assert!(near.memory.write(0, &vec![0x5a; 50_000]));
    near.write(9, &far, 50_000);
    assert_eq!(near.completion().status, Status::Success);
    assert_eq!(far.memory.to_vec(0, 50_000).unwrap(), vec![0x5a; 50_000]);
    far.qp.post_send(3, far.memory.slice(0, 16)).unwrap();
    assert_eq!((near.completion().id, far.completion().id), (1, 3));
    near.qp.disconnect();
    far.qp.wait_closed(PATIENCE).unwrap();
}

/// With an end that is not permissive there is no connection.
// Requirements: RDMAC-C.2.1-01, A-12
#[test]
fn revision_0_is_refused_by_default() {
    let pair = Pair::new();
    let _listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let near = End::new(&pair.near);
    let refused = near.connect_with(&revision(Revision::Zero));
    assert_eq!(refused, Err(ConnectError::Startup(StartupError::Revision(1).into())));
}

// Requirements: MPAv2-9-02, A-19
#[test]
fn enhanced_private_data_is_checked_before_anything_is_sent() {
    let pair = Pair::new();
    let near = End::new(&pair.near);
    let wish = ConnectConfig { private_data: vec![0; 509], ..revision(Revision::Two) };
    assert!(matches!(near.connect_with(&wish), Err(ConnectError::PrivateDataTooLong(_))));
}

/// CRCs are off only where both ends' administrators disable them, at any revision. The applications neither
/// request this nor are informed of it.
// Requirements: MPA-4.4-02, MPA-4.4-04, MPA-4.4-06
#[test]
fn crcs_are_the_administrators() {
    use warpline::CrcPolicy::{Always, OffIfPeerAgrees};
    for (policy, crc) in [(Always, true), (OffIfPeerAgrees, false)] {
        let (near, far) = link();
        let mut peer = RawPeer::new(far, FAR);
        peer.listen(PORT);
        let device_config = DeviceConfig { crc: policy, ..config(NEAR) };
        let near = Device::start(near, &device_config, PollThread::default()).unwrap();
        let end = End::new(&near);
        thread::scope(|scope| {
            let terms = Terms { rtr: RtrKinds::WRITE, ..Terms::initiator() };
            let wish = ConnectConfig { terms, ..ConnectConfig::default() };
            let end = &end;
            let connecting = scope.spawn(end.connecting_with(&wish));
            peer.accept();
            until_received(&mut peer, 24);
            assert_eq!(peer.received[16], if crc { 0x50 } else { 0x10 });
            peer.send(&reply(0x10, 2, &[0x80, 0x01, 0x80, 0x01]));
            until_received(&mut peer, 24 + 20);
            connecting.join().unwrap().unwrap();
        });
        assert_eq!(peer.received[40..44] == [0; 4], !crc, "the field of the indication's CRC");
    }
}

/// An end that disables CRCs still generates and checks them, up to the last FPDU, if the peer has declared
/// C=1, and declares C=1 in its own frame. If the peer has declared C=0 too, it checks no CRC from the first
/// FPDU on.
// Requirements: MPA-4.4-04, MPA-4.4-07, MPA-4.4-08
#[test]
fn one_end_that_wants_crcs_is_enough() {
    let without = DeviceConfig { crc: warpline::CrcPolicy::OffIfPeerAgrees, ..config(FAR) };
    let good = vector("mpa-rtr", "RTR as zero-length RDMA Write (FPDU");
    let mut bad = good.clone();
    bad[19] ^= 1;
    for flags in [0x50, 0x10] {
        let (mut asked, request) =
            Asked::with(&without, &ListenConfig::default(), &request(flags, 2, &[0, 1, 0, 1]));
        request.accept(&asked.end.qp, b"").unwrap();
        assert_eq!(asked.received(24)[16], flags, "we declare what the peer wants");
        if flags == 0x10 {
            asked.peer.send(&bad);
        } else {
            // A thousand good ones.
            for _ in 0..10 {
                asked.peer.send(&good.repeat(100));
            }
        }
        // Its first octets are acknowledged before the wrong one comes, so it is no loss that TCP could
        // repair.
        asked.peer.send(&bad[..8]);
        asked.peer.until_acknowledged();
        asked.peer.send(&bad[8..]);
        asked.end.qp.post_send(7, asked.end.memory.slice(0, 4)).unwrap_or_default();
        if flags == 0x10 {
            assert_eq!(asked.completion(), (7, Status::Success));
            assert_eq!(asked.end.qp.error(), None);
        } else {
            asked.peer.until("the stream fails", |peer| peer.finished || peer.closed.is_some());
            assert_eq!(asked.end.qp.error(), Some(warpline::StreamError::Mpa(MpaError::Crc)));
        }
    }
}

/// A peer that negotiates indications may be Linux siw, which may overlook our first message: this end nudges
/// it while it is silent. A peer of revision 1 is not nudged, nor one whose application disables it.
#[test]
fn a_silent_peer_of_revision_2_is_nudged() {
    let quiet = ConnectConfig { nudges: false, ..revision(Revision::Two) };
    let pairs = [quiet, revision(Revision::One), revision(Revision::Two)].map(|config| {
        let pair = Pair::new();
        let (near, far) = (End::new(&pair.near), End::new(&pair.far));
        connected(&pair, (&near, &far), &config, &ListenConfig::default());
        near.write(1, &far, 5);
        assert_eq!(near.completion().status, Status::Success);
        (pair, near, far)
    });
    let [quiet, one, two] = &pairs;
    let nudges = |device: &Device| device.statistics().unwrap().nudges_sent;
    crate::common::eventually("all nudges", || nudges(&two.0.near) == 3);
    // Those connections are the older ones: their time has passed too.
    assert_eq!(nudges(&one.0.near), 0);
    assert_eq!(nudges(&quiet.0.near), 0, "it was told not to");
    assert_eq!([nudges(&one.0.far), nudges(&two.0.far)], [0, 0], "a Responder waits for the Initiator");
    near_receives(two);
}

/// A message in the other direction still arrives.
fn near_receives((_, near, far): &(Pair, End, End)) {
    near.qp.post_receive(2, near.memory.slice(0, 16)).unwrap();
    far.qp.post_send(3, far.memory.slice(0, 5)).unwrap();
    let received = near.completion();
    assert_eq!((received.id, received.status, received.byte_len), (2, Status::Success, 5));
}
