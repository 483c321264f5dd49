//! Tests of the end of connections, queue pairs and devices.

use std::thread;
use std::time::Duration;

use crate::common::{End, FAR, NEAR, PATIENCE, PORT, Pair, config, eventually, eventually_unused, link};
use warpline::{
    Advertisement, CloseError, CloseReason, CompletionKind, ConnectConfig, Device, ListenConfig, PollThread,
    PostError, QpConfig, QpState, Status, StreamError,
};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::device::sim::{End as LinkEnd, Impairments};

/// Our FIN follows everything posted, and the peer answers with its own; ambiguity A-09.
// Requirements: MPA-3-11, MPA-7.2-02, DDP-3-09, DDP-6.2.1-01, DDP-6.2.1-02, DDP-6.2.1-05
#[test]
fn disconnect_waits_for_what_was_posted() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    near.memory.fill(3);
    for id in 0..100 {
        near.write(id, &far, 100_000);
    }
    near.qp.disconnect();
    near.qp.wait_closed(PATIENCE).unwrap();
    far.qp.wait_closed(PATIENCE).unwrap();
    for id in 0..100 {
        let completion = near.completion();
        assert_eq!((completion.id, completion.kind), (id, CompletionKind::Write));
        assert_eq!((completion.status, completion.byte_len), (Status::Success, 100_000));
    }
    assert_eq!(far.memory.to_vec(0, 100_000).unwrap(), vec![3; 100_000]);
    assert_eq!((near.qp.error(), far.qp.error()), (None, None));
    let target = far.memory.advertisement(0, 1).unwrap();
    near.qp.post_write(1, near.memory.slice(0, 1), &target, 0).unwrap();
    assert_eq!(near.completion().status, Status::Flushed);
}

/// Data that the peer sends after our FIN still arrives.
#[test]
fn a_half_that_is_kept_open_still_sends() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let near = End::new(&pair.near);
    let far = End::with(&pair.far, &QpConfig { keep_open: true, ..QpConfig::default() });
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    // Rule 4: the Responder may send once it has an FPDU.
    near.write(1, &far, 1);
    assert_eq!(near.completion().status, Status::Success);
    near.qp.disconnect();
    assert_eq!(near.qp.wait_closed(Duration::from_millis(50)), Err(CloseError::NotYet));
    far.memory.fill(9);
    far.write(2, &near, 50_000);
    assert_eq!(far.completion().status, Status::Success);
    assert_eq!(near.memory.to_vec(0, 50_000).unwrap(), vec![9; 50_000]);
    far.qp.disconnect();
    near.qp.wait_closed(PATIENCE).unwrap();
    far.qp.wait_closed(PATIENCE).unwrap();
}

/// Each end closes its half and continues to receive, and is notified when the other end has closed.
// Requirements: DDP-6.2.1-04, DDP-6.2.1-05, DDP-6.2.1-06
#[test]
fn halves_close_one_by_one() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let near = End::new(&pair.near);
    let far = End::with(&pair.far, &QpConfig { keep_open: true, ..QpConfig::default() });
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    near.write(1, &far, 1);
    assert_eq!(near.completion().status, Status::Success);
    assert_eq!(far.qp.wait_peer_closed(Duration::from_millis(10)), Err(CloseError::NotYet));
    near.qp.disconnect();
    far.qp.wait_peer_closed(PATIENCE).unwrap();
    assert!(far.qp.peer_closed() && !near.qp.peer_closed());

    // Our half is closed; a receive posted now still serves a Send of the peer.
    near.qp.post_receive(7, near.memory.slice(0, 100)).unwrap();
    far.memory.fill(6);
    far.qp.post_send(8, far.memory.slice(0, 100)).unwrap();
    let received = near.completion();
    assert_eq!((received.id, received.status, received.byte_len), (7, Status::Success, 100));
    assert_eq!(near.memory.to_vec(0, 100).unwrap(), vec![6; 100]);
    let target = far.memory.advertisement(0, 1).unwrap();
    near.qp.post_write(9, near.memory.slice(0, 1), &target, 0).unwrap();
    let late = near.completion();
    assert_eq!((late.id, late.status), (9, Status::Flushed), "nothing more can be sent");

    far.qp.disconnect();
    near.qp.wait_peer_closed(PATIENCE).unwrap();
    near.qp.wait_closed(PATIENCE).unwrap();
    far.qp.wait_closed(PATIENCE).unwrap();
    assert_eq!((near.qp.error(), far.qp.error()), (None, None));
}

/// A peer that never closes its half is given up after the time that the queue pair is configured with, and
/// the reported reason is the peer, not this end.
#[test]
fn a_disconnect_has_a_deadline() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let disconnect_timeout = Some(Duration::from_millis(300));
    let near = End::with(&pair.near, &QpConfig { disconnect_timeout, ..QpConfig::default() });
    let far = End::with(&pair.far, &QpConfig { keep_open: true, ..QpConfig::default() });
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    near.write(1, &far, 1);
    assert_eq!(near.completion().status, Status::Success);
    near.qp.disconnect();
    let given_up = Err(CloseError::Failed(StreamError::Tcp(CloseReason::TimedOut)));
    assert_eq!(near.qp.wait_closed(PATIENCE), given_up);
    assert_eq!(far.qp.wait_closed(PATIENCE), Err(CloseError::Failed(StreamError::Tcp(CloseReason::Reset))));
}

/// A peer that is gone without a word is given up in the time that the queue pair is configured with: by the
/// end whose bytes nobody acknowledges, and by the end that only waits (RFC 9293 §3.9.1, §3.8.4). Between
/// living ends the same timeouts end nothing.
#[test]
fn a_peer_that_is_gone_is_given_up() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    // Longer than a busy machine keeps a thread from running.
    let silence = Duration::from_secs(3);
    let config = QpConfig::default().give_up_after(silence);
    let (near, far) = (End::with(&pair.near, &config), End::with(&pair.far, &config));
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    near.write(1, &far, 1);
    assert_eq!(near.completion().status, Status::Success);
    thread::sleep(2 * silence);
    assert_eq!((near.qp.state(), far.qp.state()), (QpState::ReadyToSend, QpState::ReadyToSend));
    near.write(2, &far, 1);
    assert_eq!(near.completion().status, Status::Success, "they have been idle, and are there");

    for end in [LinkEnd::A, LinkEnd::B] {
        pair.network.set_impairments(end, Impairments { loss: 1.0, ..Impairments::default() });
    }
    near.write(3, &far, 1);
    let gone = Err(CloseError::Failed(StreamError::Tcp(CloseReason::TimedOut)));
    assert_eq!((near.qp.wait_closed(PATIENCE), far.qp.wait_closed(PATIENCE)), (gone, gone));
    let status = near.completion().status;
    assert_eq!(status, Status::Failed(StreamError::Tcp(CloseReason::TimedOut)));
}

/// Both ends close at once.
#[test]
fn both_halves_close_at_once() {
    for _ in 0..20 {
        let pair = Pair::new();
        let (near, far) = pair.connect();
        near.qp.disconnect();
        far.qp.disconnect();
        for end in [&near, &far] {
            end.qp.wait_closed(PATIENCE).unwrap();
            end.qp.wait_peer_closed(PATIENCE).unwrap();
        }
    }
}

/// A peer that resets has not closed.
#[test]
fn a_reset_is_no_close() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    far.qp.abort();
    let failed = Err(CloseError::Failed(StreamError::Tcp(CloseReason::Reset)));
    assert_eq!(near.qp.wait_peer_closed(PATIENCE), failed);
    assert!(!near.qp.peer_closed());
}

/// An abort is a failure at both ends, and everything outstanding is flushed.
// Requirements: MPA-8-01, DDP-3-03, DDP-6.2.2-02
#[test]
fn an_abort_resets() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    for id in 0..3 {
        near.qp.post_receive(id, near.memory.slice(0, 16)).unwrap();
    }
    near.qp.abort();
    let aborted = StreamError::Tcp(CloseReason::Aborted);
    assert_eq!(near.qp.wait_closed(PATIENCE), Err(CloseError::Failed(aborted)));
    assert_eq!(far.qp.wait_closed(PATIENCE), Err(CloseError::Failed(StreamError::Tcp(CloseReason::Reset))));
    for _ in 0..3 {
        assert_ne!(near.completion().status, Status::Success);
    }
    assert_eq!((near.qp.state(), far.qp.state()), (QpState::Error, QpState::Error));
}

/// The target reports the fault, its peer receives a Terminate, and nothing is written outside the region.
// Requirements: DDP-7.1-13, DDP-7.1-15, RDMAP-5.4-03, RDMAP-6.2.1-01, RDMAP-7-01
#[test]
fn a_write_out_of_bounds_ends_the_stream_at_both_ends() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let beyond = Advertisement { len: u32::MAX, ..far.memory.advertisement(0, 1).unwrap() };
    let last = End::OCTETS as u64;
    near.memory.fill(0xee);
    near.qp.post_write(1, near.memory.slice(0, 2), &beyond, last - 1).unwrap();
    let Err(CloseError::Failed(at_far)) = far.qp.wait_closed(PATIENCE) else {
        panic!("the far end is content")
    };
    assert_eq!(at_far, StreamError::Ddp(DdpError::BaseOrBounds));
    let Err(CloseError::Failed(at_near)) = near.qp.wait_closed(PATIENCE) else { panic!("no Terminate") };
    assert_eq!(at_near, StreamError::Terminated { layer: 1, error_type: 1, code: 1 });
    assert_eq!(far.memory.to_vec(0, End::OCTETS).unwrap(), vec![0; End::OCTETS]);
    let inside = far.memory.advertisement(0, 10).unwrap();
    let outside = near.qp.post_write(2, near.memory.slice(0, 2), &inside, 9);
    assert_eq!(outside, Err(PostError::OutsideAdvertisement { advertised: 10 }));
}

/// Destroying a queue pair while its connection is open resets the connection; its number and all other
/// resources are freed.
#[test]
fn a_dropped_queue_pair_resets_its_connection() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    drop(near);
    assert_eq!(far.qp.wait_closed(PATIENCE), Err(CloseError::Failed(StreamError::Tcp(CloseReason::Reset))));
    drop(far);
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
}

/// After `disconnect` the owner may drop the queue pair: posted requests still arrive, and the connection
/// closes in an orderly way.
#[test]
fn a_disconnected_queue_pair_finishes_alone() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    near.memory.fill(5);
    for id in 0..100 {
        near.write(id, &far, 100_000);
    }
    near.qp.disconnect();
    drop(near);
    far.qp.wait_closed(PATIENCE).unwrap();
    assert_eq!(far.memory.to_vec(0, 100_000).unwrap(), vec![5; 100_000]);
    eventually_unused(&pair.near);
}

/// Every handle keeps its dependencies alive, so that any order of dropping is valid.
#[test]
fn the_order_of_dropping_does_not_matter() {
    for rotation in 0..5 {
        let pair = Pair::new();
        let (near, far) = pair.connect();
        near.write(1, &far, 1000);
        let Pair { near: device, far: far_device, network: _network } = pair;
        let End { qp, completions, memory, domain } = near;
        let mut parts: Vec<Box<dyn FnOnce()>> = vec![
            Box::new(move || drop(device)),
            Box::new(move || drop(qp)),
            Box::new(move || drop(completions)),
            Box::new(move || drop(memory)),
            Box::new(move || drop(domain)),
        ];
        parts.rotate_left(rotation);
        for part in parts {
            part();
        }
        let closed = far.qp.wait_closed(PATIENCE);
        assert!(
            matches!(closed, Err(CloseError::Failed(StreamError::Tcp(CloseReason::Reset)))),
            "{closed:?}"
        );
        drop(far);
        eventually_unused(&far_device);
    }
}

/// Without a thread that polls the core, calls fail and queue pairs end; no call blocks forever.
#[test]
fn a_driver_that_goes_takes_the_device_along() {
    let (near, far) = link();
    let (device, mut driver) = Device::start_manual(near, &config(NEAR)).unwrap();
    let far = Device::start(far, &config(FAR), PollThread::default()).unwrap();
    let listener = far.listen(PORT, &ListenConfig::default()).unwrap();
    let far_end = End::new(&far);
    let far_qp = far_end.control();
    let near_end = driver.run(|| {
        let end = End::new(&device);
        thread::scope(|scope| {
            let connecting = scope.spawn(end.connecting(b""));
            listener.accept(PATIENCE).unwrap().accept(far_qp, b"").unwrap();
            connecting.join().unwrap().unwrap();
        });
        end
    });
    near_end.qp.post_receive(1, near_end.memory.slice(0, 16)).unwrap();
    drop(driver);
    assert_eq!(
        near_end.qp.wait_closed(PATIENCE),
        Err(CloseError::Failed(StreamError::Tcp(CloseReason::Aborted)))
    );
    assert_eq!(near_end.qp.state(), QpState::Error);
    eventually("the device has stopped", || device.usage().is_err());
    assert!(device.statistics().is_err());
    assert!(near_end.domain.allocate(1, warpline::Access::empty()).is_err());
    let retry = near_end.connect_with(&ConnectConfig::default());
    assert!(retry.is_err());
}
