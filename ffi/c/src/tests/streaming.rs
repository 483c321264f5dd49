//! Streaming mode, and MPA started from it.

use std::ptr::{null, null_mut};
use std::thread;

use super::ends::*;
use super::handles::*;
use crate::completion::*;
use crate::connection::*;
use crate::device::*;
use crate::stream::*;
use crate::work::*;

pub(super) type Ends<T> = (Handle<T>, Handle<T>);

/// A connection in streaming mode: near opened it.
pub(super) fn streams(near: &Handle<Device>, far: &Handle<Device>) -> Ends<Stream> {
    let listener = far.listen_streams(PORT).unwrap();
    assert_eq!(listener.accept(1).unwrap_err(), -libc::ETIMEDOUT);
    let near = near.connect_stream(FAR, PORT).unwrap();
    (near, listener.accept(PATIENCE).unwrap())
}

#[test]
fn a_thread_sleeps_until_there_is_a_connection() {
    let (near, far) = devices();
    let listener = far.listen_streams(PORT).unwrap();
    let fd = listener.fd();
    assert!(fd > 0 && listener.arm() == 1 && !readable(fd, 1));
    let first = near.connect_stream(FAR, PORT).unwrap();
    assert!(readable(fd, PATIENCE));
    assert_eq!(listener.arm(), 0, "one waits");
    drop((listener.accept(0).unwrap(), first));
    assert_eq!(listener.accept(0).unwrap_err(), -libc::ETIMEDOUT);
    assert!(listener.arm() == 1 && !readable(fd, 1));
}

pub(super) fn say(stream: &Handle<Stream>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = stream.write(bytes, PATIENCE);
        assert!(written > 0, "{written} {}", last_error());
        bytes = &bytes[written as usize..];
    }
}

pub(super) fn expect(stream: &Handle<Stream>, bytes: &[u8]) {
    let (mut read, mut filled) = (vec![0; bytes.len()], 0);
    while filled < bytes.len() {
        let more = stream.read(&mut read[filled..], PATIENCE);
        assert!(more > 0, "{more} {}", last_error());
        filled += more as usize;
    }
    assert!(read == bytes);
}

fn numbered(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|byte| (byte % 251) as u8).collect()
}

/// A Send goes from one end to the other, with its bytes.
fn carries(from: &End, to: &End) {
    to.post_recv(1, 100, 64);
    from.put(0, b"message");
    from.post_send(&request(WARPLINE_WR_SEND, &from.sge(0, 7)));
    assert_eq!([from.completed().opcode, to.completed().opcode], [WARPLINE_WC_SEND, WARPLINE_WC_RECEIVE]);
    assert_eq!(to.get(100, 8), b"message\0");
}

/// More than any queue holds goes both ways, then each half is closed on its own.
#[test]
fn bytes_go_both_ways_and_each_half_closes() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    drop((near_device, far_device));
    assert_eq!(far.read(&mut [0; 8], 0), -libc::ETIMEDOUT);
    let bytes = numbered(500_000);
    thread::scope(|scope| {
        for stream in [&near, &far] {
            scope.spawn(|| say(stream, &bytes));
            scope.spawn(|| expect(stream, &bytes));
        }
    });
    assert_eq!((near.finish(), near.write(b"x", 0)), (0, -libc::EPIPE));
    assert_eq!(far.read(&mut [0; 8], PATIENCE), 0);
    assert_eq!(near.wait_closed(0), -libc::ETIMEDOUT);
    say(&far, b"farewell");
    expect(&near, b"farewell");
    assert_eq!((far.finish(), near.read(&mut [0; 8], PATIENCE)), (0, 0));
    assert_eq!((near.wait_closed(PATIENCE), far.wait_closed(PATIENCE)), (0, 0));
}

/// A reset is told; a handle that is given back closes in an orderly way; who waits for a listener that goes
/// is closed.
#[test]
fn ends_are_told_apart() {
    let (near_device, far_device) = devices();
    assert_eq!(near_device.connect_stream(FAR, PORT).unwrap_err(), -libc::ECONNREFUSED);
    assert_eq!(near_device.connect_stream(c"192.0.2.1", PORT).unwrap_err(), -libc::ENETUNREACH);
    assert_eq!(near_device.connect_stream(c"far", PORT).unwrap_err(), -libc::EINVAL);
    let (near, far) = streams(&near_device, &far_device);
    assert_eq!((near.abort(), far.read(&mut [0], PATIENCE)), (0, -libc::ECONNRESET));
    assert_eq!((near.wait_closed(PATIENCE), far.write(&[0], 0)), (-libc::ECONNRESET, -libc::ECONNRESET));
    let (near, far) = streams(&near_device, &far_device);
    say(&near, b"last");
    drop(near);
    expect(&far, b"last");
    assert_eq!(far.read(&mut [0], PATIENCE), 0);

    let listener = far_device.listen(PORT).unwrap();
    assert_eq!(far_device.listen_streams(PORT).unwrap_err(), -libc::EADDRINUSE);
    drop(listener);
    let listener = far_device.listen_streams(PORT).unwrap();
    let near = near_device.connect_stream(FAR, PORT).unwrap();
    drop(listener);
    assert!([0, -libc::ECONNRESET].contains(&near.read(&mut [0], PATIENCE)));
}

/// Bytes, the last message, then MPA, whoever opened the connection; from then on messages.
// Requirements: MPA-7.1-06, MPA-7.1.5-02
#[test]
fn mpa_starts_behind_the_last_byte() {
    for swapped in [false, true] {
        let (near_device, far_device) = devices();
        let (near, far) = streams(&near_device, &far_device);
        let (near_end, far_end) = (End::new(&near_device), End::new(&far_device));
        let (initiator, responder) = if swapped {
            ((&far, &far_end), (&near, &near_end))
        } else {
            ((&near, &near_end), (&far, &far_end))
        };
        thread::scope(|scope| {
            let initiating = scope.spawn(|| {
                say(initiator.0, b"Hello");
                expect(initiator.0, b"Hello Ack");
                initiator.0.initiate(&initiator.1.qp, Some(&param(b"please")))
            });
            expect(responder.0, b"Hello");
            let asked = responder.0.respond(b"Hello Ack").unwrap();
            assert_eq!(asked.private_data(), b"please");
            assert_eq!(asked.accept(&responder.1.qp, &param(b"with pleasure")), 0, "{}", last_error());
            let (result, reply) = initiating.join().unwrap();
            assert_eq!(result, 0, "{}", last_error());
            assert_eq!(&reply.private_data[..reply.private_data_len as usize], b"with pleasure");
        });
        for stream in [&near, &far] {
            assert_eq!((stream.read(&mut [0], 0), stream.write(&[0], 0)), (-libc::EINVAL, -libc::EINVAL));
        }
        carries(initiator.1, responder.1);
        // The connection is the queue pairs' now.
        drop((near, far));
        carries(&near_end, &far_end);
        carries(&far_end, &near_end);
    }
}

/// A rejection leaves TCP open at both ends, also where the listener expected MPA.
// Requirements: MPA-7.1.2-07, MPA-7.1.2-13
#[test]
fn a_rejection_leaves_the_connection_open() {
    let (near_device, far_device) = devices();
    let end = End::new(&near_device);
    let reason = |(result, reply): (i32, ConnReply)| {
        assert_eq!(result, -libc::EACCES, "{}", last_error());
        reply.private_data[..reply.private_data_len as usize].to_vec()
    };
    let (near, far) = streams(&near_device, &far_device);
    thread::scope(|scope| {
        let asking = scope.spawn(|| near.initiate(&end.qp, None));
        assert_eq!(far.respond(b"").unwrap().reject(b"not now"), 0, "{}", last_error());
        assert_eq!(reason(asking.join().unwrap()), b"not now");
    });
    say(&near, b"never mind");
    expect(&far, b"never mind");

    let listener = far_device.listen(PORT).unwrap();
    let near = near_device.connect_stream(FAR, PORT).unwrap();
    let far = thread::scope(|scope| {
        let asking = scope.spawn(|| near.initiate(&end.qp, None));
        let far = listener.request(PATIENCE).unwrap().reject_to_stream(b"not like this").unwrap();
        assert_eq!(reason(asking.join().unwrap()), b"not like this");
        far
    });
    say(&near, b"like this?");
    expect(&far, b"like this?");
    say(&far, b"yes");
    expect(&near, b"yes");
}

/// Bytes that nobody has read are not taken for a startup frame; nor does MPA start twice, or on what is no
/// connection of the device.
// Requirements: MPA-7.1.5-01
#[test]
fn what_does_not_start() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    let (near_end, far_end) = (End::new(&near_device), End::new(&far_device));
    say(&near, b"wait");
    let begun = std::time::Instant::now();
    while far.available() < 4 {
        assert!(begun.elapsed().as_millis() < PATIENCE as u128, "the bytes do not come");
        thread::yield_now();
    }
    assert_eq!(far.initiate(&far_end.qp, None).0, -libc::EBUSY);
    assert_eq!(far.respond(b"ready").unwrap_err(), -libc::EBUSY);
    assert_eq!(far.initiate(&near_end.qp, None).0, -libc::EINVAL, "another device's");
    assert_eq!(far.initiate(&far_end.qp, Some(&param(&[0; 513]))).0, -libc::EINVAL);
    expect(&far, b"wait");
    for (directions, version) in [(0, 1), (4, 1), (WARPLINE_STREAM_SEND, 2)] {
        assert_eq!(near.start_unnegotiated(&near_end.qp, directions, version), -libc::EINVAL);
    }
    assert_eq!(near.start_unnegotiated(&far_end.qp, WARPLINE_STREAM_SEND, 1), -libc::EINVAL);
    say(&near, b"this is no MPA Request");
    assert_eq!(far.respond(b"").unwrap_err(), -libc::EPROTO);
}

/// Each direction starts by itself, after what was written and read so far, without startup frames.
// Requirements: C00-8.1-01
#[test]
fn directions_start_one_by_one() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    let (near_end, far_end) = (End::new(&near_device), End::new(&far_device));
    say(&near, b"bytes");
    expect(&far, b"bytes");
    assert_eq!(near.start_unnegotiated(&near_end.qp, WARPLINE_STREAM_SEND, 1), 0, "{}", last_error());
    assert_eq!(far.start_unnegotiated(&far_end.qp, WARPLINE_STREAM_RECEIVE, 1), 0, "{}", last_error());
    say(&far, b"still bytes");
    expect(&near, b"still bytes");
    carries(&near_end, &far_end);
    assert_eq!(far.start_unnegotiated(&far_end.qp, WARPLINE_STREAM_SEND, 1), 0, "{}", last_error());
    assert_eq!(near.start_unnegotiated(&near_end.qp, WARPLINE_STREAM_RECEIVE, 1), 0, "{}", last_error());
    carries(&far_end, &near_end);
    carries(&near_end, &far_end);
}

/// Null where the header does not allow it is an error in each call, and null is given back as nothing.
#[test]
fn null_is_told() {
    let (mut stream, mut listener, mut asked, mut byte) = (null_mut(), null_mut(), null_mut(), 0_u8);
    let byte = (&raw mut byte).cast();
    let (near_device, far_device) = devices();
    let (near, _far) = streams(&near_device, &far_device);
    // SAFETY: what is not null is good, and null is what the header tells of.
    let results = unsafe {
        [
            warpline_stream_connect(null_mut(), FAR.as_ptr(), PORT, 0, &raw mut stream),
            warpline_stream_connect(near_device.raw(), null(), PORT, 0, &raw mut stream),
            warpline_stream_listen(null_mut(), PORT, 0, &raw mut listener),
            warpline_stream_listen(near_device.raw(), PORT, 0, null_mut()),
            warpline_stream_accept(null_mut(), 0, &raw mut stream),
            warpline_stream_listener_fd(null_mut()),
            warpline_stream_listener_arm(null_mut()),
            warpline_stream_read(null_mut(), byte, 1, 0),
            warpline_stream_read(near.raw(), null_mut(), 1, 0),
            warpline_stream_write(null_mut(), byte, 1, 0),
            warpline_stream_write(near.raw(), null(), 1, 0),
            warpline_stream_finish(null_mut()),
            warpline_stream_abort(null_mut()),
            warpline_stream_wait_closed(null_mut(), 0),
            warpline_stream_initiate(null_mut(), null_mut(), null(), null_mut()),
            warpline_stream_initiate(near.raw(), null_mut(), null(), null_mut()),
            warpline_stream_respond(null_mut(), null(), 0, null(), &raw mut asked),
            warpline_stream_respond(near.raw(), null(), 1, null(), &raw mut asked),
            warpline_stream_respond(near.raw(), null(), 0, null(), null_mut()),
            warpline_reject_to_stream(null_mut(), null(), 0, &raw mut stream),
            warpline_stream_start_unnegotiated(null_mut(), null_mut(), WARPLINE_STREAM_SEND, 1, 32, 32),
        ]
    };
    assert!(results.iter().all(|&result| result == -libc::EINVAL), "{results:?}");
    assert!(stream.is_null() && listener.is_null() && asked.is_null());
    // SAFETY: as above.
    unsafe {
        assert_eq!(warpline_stream_available(null()), 0);
        warpline_stream_destroy(null_mut());
        warpline_stream_listener_destroy(null_mut());
    }
}
