//! The connection manager, as a program in rdma_cm's terms uses it.

use std::collections::HashSet;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use super::ends::*;
use super::handles::*;
use crate::cm::channel::*;
use crate::cm::id::*;
use crate::completion::*;
use crate::connection::*;
use crate::device::*;
use crate::work::*;

const LISTENER: usize = 100;
const ANY: &CStr = c"0.0.0.0";

/// The next event, which must be `event` of `id`.
fn expect(channel: &Handle<CmChannel>, event: u32, id: &Handle<CmId>) -> CmEvent {
    let happened = channel.event(PATIENCE).expect("an event");
    let seen = (cm_event_text(happened.event), happened.status);
    assert_eq!(seen.0, cm_event_text(event), "{seen:?} {}", last_error());
    let about = if event == WARPLINE_CM_EVENT_CONNECT_REQUEST { happened.listen_id } else { happened.id };
    assert_eq!(about, id.raw());
    assert_eq!(happened.listen_id.is_null(), event != WARPLINE_CM_EVENT_CONNECT_REQUEST);
    happened
}

fn succeed(channel: &Handle<CmChannel>, event: u32, id: &Handle<CmId>) -> CmEvent {
    let happened = expect(channel, event, id);
    assert_eq!(happened.status, 0, "{}", last_error());
    happened
}

fn listening(channel: &Handle<CmChannel>) -> Handle<CmId> {
    let id = channel.id(LISTENER);
    assert_eq!((id.bind_addr(FAR, PORT), id.listen()), (0, 0), "{}", last_error());
    id
}

/// An id that may connect to the far device.
fn resolved(channel: &Handle<CmChannel>, port: u16) -> Handle<CmId> {
    let id = channel.id(1);
    assert_eq!(id.resolve_addr(FAR, port), 0);
    succeed(channel, WARPLINE_CM_EVENT_ADDR_RESOLVED, &id);
    assert_eq!(id.resolve_route(), 0);
    succeed(channel, WARPLINE_CM_EVENT_ROUTE_RESOLVED, &id);
    id
}

/// Has `id` connect, and the listener be asked: what the peer asks, and its id.
fn asked(
    near: (&Handle<CmId>, &End, &ConnParam),
    far: (&Handle<CmChannel>, &Handle<CmId>),
) -> (CmEvent, Handle<CmId>) {
    let (id, end, param) = near;
    assert_eq!(id.connect(&end.qp, Some(param)), 0, "{}", last_error());
    let mut event = succeed(far.0, WARPLINE_CM_EVENT_CONNECT_REQUEST, far.1);
    let asked = event.asked();
    (event, asked)
}

fn channels(near: &Handle<Device>, far: &Handle<Device>) -> (Handle<CmChannel>, Handle<CmChannel>) {
    (Handle::on(&[near]), Handle::on(&[far]))
}

/// Each end's events come in rdma_cm's order, with Private Data and depths; what is connected so carries
/// messages both ways.
#[test]
fn a_connection_in_events() {
    let (near_device, far_device) = devices();
    let (near, far) = channels(&near_device, &far_device);
    let (near_end, far_end) = (End::new(&near_device), End::new(&far_device));
    let listener = listening(&far);
    let id = resolved(&near, PORT);
    let asks = ConnParam { ird: 3, ord: 4, ..param(b"let me in") };
    let (event, peer) = asked((&id, &near_end, &asks), (&far, &listener));
    assert_eq!((event.private_data(), event.conn.ird, event.conn.ord), (&b"let me in"[..], 3, 4));
    assert_eq!(peer.peer().unwrap().0, "198.18.0.1");
    assert_eq!(id.peer().unwrap(), ("198.18.0.2".into(), PORT));
    assert_eq!(peer.context(), LISTENER, "as the listener's");
    assert_eq!((peer.set_context(7), peer.context(), listener.context()), (0, 7, LISTENER));

    let answers = ConnParam { ird: 2, ord: 9, ..param(b"come in") };
    assert_eq!(peer.accept(&far_end.qp, Some(&answers)), 0, "{}", last_error());
    let event = succeed(&far, WARPLINE_CM_EVENT_ESTABLISHED, &peer);
    assert_eq!((event.private_data(), event.conn.ird, event.conn.ord), (&b""[..], 2, 3));
    let event = succeed(&near, WARPLINE_CM_EVENT_ESTABLISHED, &id);
    assert_eq!((event.private_data(), event.conn.ird, event.conn.ord), (&b"come in"[..], 3, 2));

    for (from, to) in [(&near_end, &far_end), (&far_end, &near_end)] {
        to.post_recv(1, 100, 64);
        from.put(0, b"message");
        from.post_send(&request(WARPLINE_WR_SEND, &from.sge(0, 7)));
        assert_eq!([from.completed().opcode, to.completed().opcode], [WARPLINE_WC_SEND, WARPLINE_WC_RECEIVE]);
        assert_eq!(to.get(100, 8), b"message\0");
    }
    assert!(near.event(0).is_none() && far.event(0).is_none());
    assert_eq!(id.disconnect(), 0);
    for (channel, id) in [(&far, &peer), (&near, &id)] {
        succeed(channel, WARPLINE_CM_EVENT_DISCONNECTED, id);
        succeed(channel, WARPLINE_CM_EVENT_TIMEWAIT_EXIT, id);
        assert_eq!(id.disconnect(), 0, "the answer to an event may come late");
    }
}

/// The peer's reason arrives (MPA-7.1.2-18); an id that is given back unanswered rejects too, and nobody's
/// listening is another thing.
#[test]
fn rejections_arrive() {
    let (near_device, far_device) = devices();
    let (near, far) = channels(&near_device, &far_device);
    let end = End::new(&near_device);
    let listener = listening(&far);
    for reason in [Some(&b"full up"[..]), None] {
        let id = resolved(&near, PORT);
        let (_, peer) = asked((&id, &end, &param(b"")), (&far, &listener));
        match reason {
            Some(reason) => {
                assert_eq!(peer.reject(&[0; 513]), -libc::EINVAL);
                assert_eq!((peer.reject(reason), peer.reject(reason)), (0, -libc::EINVAL));
            }
            None => drop(peer),
        }
        let event = expect(&near, WARPLINE_CM_EVENT_REJECTED, &id);
        assert_eq!((event.status, event.private_data()), (-libc::EACCES, reason.unwrap_or_default()));
    }
    let id = resolved(&near, PORT + 1);
    assert_eq!(id.connect(&end.qp, None), 0);
    let event = expect(&near, WARPLINE_CM_EVENT_REJECTED, &id);
    assert_eq!((event.status, event.private_data()), (-libc::ECONNREFUSED, &b""[..]));
    assert!(last_error().contains("refused"), "{}", last_error());
}

/// No device leads there; no neighbour answers there.
#[test]
fn peers_that_are_not_there() {
    let (near_device, _far_device) = devices();
    let near = Handle::on(&[&near_device]);
    let id = near.id(1);
    assert_eq!(id.resolve_addr(c"192.0.2.1", PORT), 0);
    let event = expect(&near, WARPLINE_CM_EVENT_ADDR_ERROR, &id);
    assert_eq!((event.status, id.device().unwrap_err()), (-libc::ENETUNREACH, -libc::ENODEV));
    assert_eq!((id.resolve_addr(c"198.18.0.77", PORT), id.resolve_addr(FAR, PORT)), (0, -libc::EINVAL));
    succeed(&near, WARPLINE_CM_EVENT_ADDR_RESOLVED, &id);
    assert_eq!(id.resolve_route(), 0);
    succeed(&near, WARPLINE_CM_EVENT_ROUTE_RESOLVED, &id);
    let end = End::new(&id.device().unwrap());
    let soon = ConnParam { timeout_ms: 50, ..param(b"") };
    assert_eq!(id.connect(&end.qp, Some(&soon)), 0, "{}", last_error());
    let event = expect(&near, WARPLINE_CM_EVENT_UNREACHABLE, &id);
    assert!([-libc::ETIMEDOUT, -libc::EHOSTUNREACH].contains(&event.status), "{}", event.status);
}

/// One that comes at a wrong time, or asks for what there is not, changes nothing.
#[test]
fn calls_that_are_refused() {
    let (near_device, far_device) = devices();
    let channel = Handle::on(&[&near_device, &far_device]);
    let (near_end, far_end) = (End::new(&near_device), End::new(&far_device));
    let id = channel.id(1);
    let early = [
        id.resolve_route(),
        id.connect(&near_end.qp, None),
        id.listen(),
        id.accept(&near_end.qp, None),
        id.reject(b""),
        id.disconnect(),
        id.bind_addr(c"far", 0),
    ];
    assert_eq!(early, [-libc::EINVAL; 7]);
    assert_eq!(id.bind_addr(c"198.18.0.9", PORT), -libc::EADDRNOTAVAIL);
    let listener = listening(&channel);
    let other = channel.id(2);
    assert_eq!((other.bind_addr(ANY, PORT), other.listen()), (0, -libc::EADDRINUSE));

    let id = resolved(&channel, PORT);
    assert_eq!(id.connect(&far_end.qp, None), -libc::EINVAL, "another device's");
    let (_, peer) = asked((&id, &near_end, &param(b"")), (&channel, &listener));
    assert_eq!(peer.accept(&near_end.qp, None), -libc::EINVAL, "another device's");
    assert_eq!(peer.accept(&far_end.qp, Some(&param(&[0; 509]))), -libc::EINVAL);
    assert_eq!(peer.accept(&far_end.qp, None), 0, "it still waited: {}", last_error());
    let established: HashSet<_> = (0..2)
        .map(|_| channel.event(PATIENCE).expect("an event"))
        .inspect(|event| assert_eq!(event.event, WARPLINE_CM_EVENT_ESTABLISHED))
        .map(|event| event.id)
        .collect();
    assert_eq!(established, HashSet::from([id.raw(), peer.raw()]));
}

/// What waits on the channel for an id goes with the id: no event names what is not there any more.
#[test]
fn ids_that_were_given_back_are_heard_of_no_more() {
    let (near_device, far_device) = devices();
    let (near, far) = channels(&near_device, &far_device);
    let is_readable = || readable(near.fd(), 0);
    assert!(!is_readable());
    let (first, second) = (near.id(1), near.id(2));
    assert_eq!((first.resolve_addr(FAR, PORT), second.resolve_addr(FAR, PORT)), (0, 0));
    drop(first);
    assert!(is_readable());
    succeed(&near, WARPLINE_CM_EVENT_ADDR_RESOLVED, &second);
    assert!(near.event(0).is_none() && !is_readable());

    // A peer that asks a listener which is gone is rejected; the order in which things go is free.
    let listener = listening(&far);
    let end = End::new(&near_device);
    let id = resolved(&near, PORT);
    drop((near_device, far_device));
    assert_eq!(id.connect(&end.qp, None), 0);
    assert!(readable(far.fd(), PATIENCE), "the request has come");
    drop(listener);
    assert!(far.event(0).is_none());
    expect(&near, WARPLINE_CM_EVENT_REJECTED, &id);
    drop(near);
    assert_eq!(id.context(), 1);
}

/// A connection that fails is over as well, for both; so is one whose queue pair is given back.
#[test]
fn failures_are_events() {
    for by_destroying in [true, false] {
        let (near_device, far_device) = devices();
        let (near, far) = channels(&near_device, &far_device);
        let (near_end, far_end) = (End::new(&near_device), End::new(&far_device));
        let (listener, id) = (listening(&far), resolved(&near, PORT));
        let (_, peer) = asked((&id, &near_end, &param(b"")), (&far, &listener));
        assert_eq!(peer.accept(&far_end.qp, None), 0);
        succeed(&far, WARPLINE_CM_EVENT_ESTABLISHED, &peer);
        succeed(&near, WARPLINE_CM_EVENT_ESTABLISHED, &id);
        if by_destroying {
            drop(near_end);
        } else {
            assert_eq!(near_end.qp.abort(), 0);
            succeed(&near, WARPLINE_CM_EVENT_DISCONNECTED, &id);
            succeed(&near, WARPLINE_CM_EVENT_TIMEWAIT_EXIT, &id);
        }
        succeed(&far, WARPLINE_CM_EVENT_DISCONNECTED, &peer);
        succeed(&far, WARPLINE_CM_EVENT_TIMEWAIT_EXIT, &peer);
    }
}

/// Null where the header does not allow it is an error in each call, and null is given back as nothing.
#[test]
fn null_is_told() {
    let (none, mut device) = (null_mut(), null_mut());
    let (mut channel, mut id, mut event) = (null_mut(), null_mut(), MaybeUninit::uninit());
    // SAFETY: what is not null is good, and null is what the header tells of.
    let results = unsafe {
        [
            warpline_cm_channel_create(null(), 1, &raw mut channel),
            warpline_cm_channel_create(&raw const none, 1, &raw mut channel),
            warpline_cm_channel_create(null(), 0, null_mut()),
            warpline_cm_fd(null()),
            warpline_cm_get_event(null_mut(), event.as_mut_ptr(), 0),
            warpline_cm_create_id(null_mut(), null_mut(), &raw mut id),
            warpline_cm_set_context(null_mut(), null_mut()),
            warpline_cm_device(null(), &raw mut device),
            warpline_cm_peer(null(), null_mut(), null_mut()),
            warpline_cm_bind_addr(null_mut(), FAR.as_ptr(), PORT),
            warpline_cm_resolve_addr(null_mut(), FAR.as_ptr(), PORT),
            warpline_cm_resolve_route(null_mut()),
            warpline_cm_connect(null_mut(), null_mut(), null()),
            warpline_cm_listen(null_mut(), null()),
            warpline_cm_accept(null_mut(), null_mut(), null()),
            warpline_cm_reject(null_mut(), null(), 0),
            warpline_cm_disconnect(null_mut()),
        ]
    };
    assert!(results.iter().all(|&result| result == -libc::EINVAL), "{results:?}");
    assert!(channel.is_null() && id.is_null() && device.is_null());
    // SAFETY: as above.
    unsafe {
        assert!(warpline_cm_context(null()).is_null());
        warpline_cm_channel_destroy(null_mut());
        warpline_cm_destroy_id(null_mut());
        let channel = Handle::<CmChannel>::on(&[]);
        assert_eq!(warpline_cm_get_event(channel.raw(), null_mut(), 0), -libc::EINVAL);
        assert_eq!(warpline_cm_create_id(channel.raw(), null_mut(), null_mut()), -libc::EINVAL);
        let id = channel.id(0);
        assert_eq!(warpline_cm_bind_addr(id.raw(), null(), PORT), -libc::EINVAL);
        assert_eq!(warpline_cm_resolve_addr(id.raw(), null(), PORT), -libc::EINVAL);
    }
}

/// The numbers are rdma_cm's, and each has words of its own.
#[test]
fn events_have_words() {
    let known: Vec<u32> = (0..32).filter(|&event| cm_event_text(event) != c"unknown event").collect();
    assert_eq!(known, [0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 15]);
    let words: HashSet<_> = known.iter().map(|&event| cm_event_text(event)).collect();
    assert_eq!(words.len(), known.len());
}
