//! Tests of streaming mode, and of MPA started from it: delayed startup, either end as Initiator, rejections
//! that leave TCP open, and Full Operation without startup frames.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::common::{End, FAR, NEAR, PATIENCE, PORT, Pair, eventually, eventually_unused};
use warpline::{
    Access, CloseError, CloseReason, ConnectConfig, ConnectError, Device, Direction, ListenConfig,
    ListenError, PollThread, PostError, QpState, QueuePairControl, ReadDepths, Revision, Status,
    StreamConfig, StreamError, SwitchError, TcpListenConfig, TcpStream, TcpStreamError, UnnegotiatedConfig,
};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::device::sim::{self, EndConfig, Impairments};
use warpline_dataplane::wire::mpa::StartupError;

const VERSION_1: UnnegotiatedConfig = reading(32, 32);

/// Version 1 with these RDMA Reads.
const fn reading(ird: u16, ord: u16) -> UnnegotiatedConfig {
    UnnegotiatedConfig { version: 1, depths: ReadDepths { ird, ord } }
}

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_millis(200);

/// A connection in streaming mode: near opened it.
fn streams(near: &Device, far: &Device) -> (TcpStream, TcpStream) {
    let listener = far.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
    let near = near.connect_stream(SocketAddr::from((FAR, PORT)), &StreamConfig::default()).unwrap();
    let far = listener.accept(PATIENCE).unwrap();
    (near, far)
}

/// One thread accepts and does something else: it sleeps on the listener's descriptor.
#[test]
fn a_listener_says_when_there_is_a_connection() {
    let pair = Pair::new();
    let listener = pair.far.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
    let event = listener.event_fd().unwrap();
    assert!(listener.arm() && !event.wait(NOW));
    let connect = || pair.near.connect_stream(SocketAddr::from((FAR, PORT)), &StreamConfig::default());
    let _first = connect().unwrap();
    assert!(event.wait(PATIENCE) && event.clear() && !listener.arm(), "one waits");
    let _accepted = listener.accept(NOW).unwrap();
    assert!(matches!(listener.accept(NOW), Err(TcpStreamError::TimedOut)));
    assert!(listener.arm() && !event.wait(SOON), "it was accepted");
    let _second = connect().unwrap();
    assert!(event.wait(PATIENCE));
    assert!(std::ptr::eq(event, listener.event_fd().unwrap()));
}

fn expect(stream: &TcpStream, octets: &[u8]) {
    let mut read = vec![0; octets.len()];
    stream.read_exact(&mut read, PATIENCE).unwrap();
    assert!(read == octets);
}

fn say(stream: &TcpStream, octets: &[u8]) {
    stream.write_all(octets, PATIENCE).unwrap();
}

fn numbered(octets: u32) -> Vec<u8> {
    (0..octets).map(|octet| (octet % 251) as u8).collect()
}

/// Writes 10,000 octets from one end to the other and compares them.
fn carries(from: &End, to: &End) {
    let octets = numbered(10_000);
    assert!(from.memory.write(0, &octets));
    from.write(1, to, 10_000);
    assert_eq!(from.completion().status, Status::Success);
    assert!(to.memory.to_vec(0, 10_000).unwrap() == octets);
}

fn initiating() -> ConnectConfig {
    ConnectConfig { private_data: b"please".into(), ..ConnectConfig::default() }
}

#[test]
fn octets_go_both_ways_and_each_half_closes() {
    let pair = Pair::new();
    {
        let (near, far) = streams(&pair.near, &pair.far);
        assert_eq!((near.remote(), far.remote().ip()), ((FAR, PORT).into(), NEAR.into()));
        assert_eq!(far.read(&mut [0; 8], NOW), Err(TcpStreamError::TimedOut));
        let octets = numbered(1_000_000);
        thread::scope(|scope| {
            for stream in [&near, &far] {
                scope.spawn(|| say(stream, &octets));
                scope.spawn(|| expect(stream, &octets));
            }
        });
        near.finish();
        assert_eq!(near.write(b"x", NOW), Err(TcpStreamError::Finished));
        assert_eq!(far.read(&mut [0; 8], PATIENCE), Ok(0));
        // The other half is as open as before.
        say(&far, b"farewell");
        expect(&near, b"farewell");
        far.finish();
        assert_eq!(near.read(&mut [0; 8], PATIENCE), Ok(0));
        assert_eq!((near.wait_closed(PATIENCE), far.wait_closed(PATIENCE)), (Ok(()), Ok(())));
    }
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
}

/// The state of TCP, with each number under its name, until the connection is over.
#[test]
fn a_stream_reports_on_its_connection() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    say(&near, &numbered(100_000));
    expect(&far, &numbered(100_000));
    eventually("all is acknowledged", || {
        near.tcp().unwrap().is_some_and(|tcp| tcp.outstanding_bytes == 0 && tcp.smoothed_rtt_ns.is_some())
    });
    let tcp = near.tcp().unwrap().unwrap();
    assert!(tcp.counters.data_segments_sent > 11, "{tcp:?}");
    let value = |name: &str| tcp.named().into_iter().find(|value| value.name == name).unwrap().value;
    assert_eq!(value("data_segments_sent"), tcp.counters.data_segments_sent);
    assert_eq!(value("smoothed_rtt_ns"), tcp.smoothed_rtt_ns.unwrap());
    assert_eq!((value("emss_bytes"), value("sack")), (u64::from(tcp.emss_bytes), 1));
    near.abort();
    assert_eq!(near.wait_closed(PATIENCE), Err(TcpStreamError::Closed(CloseReason::Aborted)));
    assert_eq!(near.tcp(), Ok(None));
}

#[test]
fn an_abort_and_a_drop_are_told_apart() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    near.abort();
    assert_eq!(far.read(&mut [0], PATIENCE), Err(TcpStreamError::Closed(CloseReason::Reset)));
    assert_eq!(near.wait_closed(PATIENCE), Err(TcpStreamError::Closed(CloseReason::Aborted)));
    assert_eq!(far.write(&[0], NOW), Err(TcpStreamError::Closed(CloseReason::Reset)));
    let (near, far) = streams(&pair.near, &pair.far);
    say(&far, b"nobody will read this");
    say(&near, b"last");
    drop(near);
    expect(&far, b"last");
    assert_eq!(far.read(&mut [0], PATIENCE), Ok(0));
    drop(far);
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
}

/// When a core is no longer polled, its streams end.
#[test]
fn a_stopped_device_says_so() {
    let (near, far) = crate::common::link();
    let (near, mut driver) = Device::start_manual(near, &crate::common::config(NEAR)).unwrap();
    let far = Device::start(far, &crate::common::config(FAR), PollThread::default()).unwrap();
    let listener = far.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
    let config = StreamConfig::default();
    let stream = driver.run(|| near.connect_stream((FAR, PORT).into(), &config)).unwrap();
    listener.accept(PATIENCE).unwrap();
    drop(driver);
    assert!(matches!(stream.wait_closed(PATIENCE), Err(TcpStreamError::Stopped(_))));
    assert!(matches!(stream.write(b"hello", NOW), Err(TcpStreamError::Stopped(_))));
    assert!(matches!(near.connect_stream((FAR, PORT).into(), &config), Err(ConnectError::Stopped(_))));
}

/// If the application does not read, the peer fills the buffers of both ends and then waits; nothing is lost.
// Requirements: DDP-A-03
#[test]
fn an_application_that_never_reads_is_sent_no_more_than_the_window() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let octets = numbered(1 << 16);
    let mut written = 0;
    loop {
        match near.write(&octets[written % octets.len()..], SOON) {
            Ok(more) => written += more,
            Err(error) => {
                assert_eq!(error, TcpStreamError::TimedOut);
                break;
            }
        }
        let window = pair.far.config().window_bytes as usize;
        assert!(
            written <= window + octets.len(),
            "{written} octets are kept for an application that never reads"
        );
    }
    assert!(far.available() <= octets.len());
    let mut read = 0;
    let mut out = vec![0; 10_000];
    near.finish();
    loop {
        let more = far.read(&mut out, PATIENCE).unwrap();
        if more == 0 {
            break;
        }
        let right = (0..more).all(|at| out[at] == octets[(read + at) % octets.len()]);
        assert!(right, "octet {read} and on");
        read += more;
    }
    assert_eq!(read, written);
}

#[test]
fn ports_of_both_kinds_of_listeners_are_told_apart() {
    let pair = Pair::new();
    let streams = pair.far.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
    let busy = ListenError::PortInUse(PORT);
    assert_eq!(pair.far.listen(PORT, &ListenConfig::default()).unwrap_err(), busy);
    assert_eq!(pair.far.listen_streams(PORT, &TcpListenConfig::default()).unwrap_err(), busy);
    // A stream that waits to be accepted is closed with its listener.
    let near = pair.near.connect_stream((FAR, PORT).into(), &StreamConfig::default()).unwrap();
    say(&near, b"hello");
    drop(streams);
    assert!(matches!(near.read(&mut [0], PATIENCE), Ok(0) | Err(TcpStreamError::Closed(CloseReason::Reset))));
    let refused = pair.near.connect_stream((FAR, PORT).into(), &StreamConfig::default());
    assert_eq!(refused.unwrap_err(), ConnectError::Refused);
}

/// Delayed startup: streaming octets both ways, the last streaming message, then MPA. Returns both ends in
/// Full Operation.
fn delayed(
    initiator: (&Device, &TcpStream),
    responder: (&Device, &TcpStream),
    revision: Revision,
) -> (End, End) {
    let ends = (End::new(initiator.0), End::new(responder.0));
    let (initiator, responder) = (initiator.1, responder.1);
    let initiating_qp = ends.0.control();
    thread::scope(|scope| {
        scope.spawn(|| {
            say(initiator, &numbered(30_000));
            say(initiator, b"Hello");
            expect(initiator, &numbered(20_000));
            expect(initiator, b"Hello Ack");
            let config = ConnectConfig { revision, ..initiating() };
            let connected = initiator.initiate(initiating_qp, &config).unwrap();
            assert_eq!(*connected.private_data, *b"with pleasure");
        });
        say(responder, &numbered(20_000));
        expect(responder, &numbered(30_000));
        expect(responder, b"Hello");
        let request = responder.respond(b"Hello Ack", &ListenConfig::default()).unwrap();
        assert_eq!(request.private_data(), b"please");
        request.accept(&ends.1.qp, b"with pleasure").unwrap();
    });
    // Neither end is in streaming mode any more.
    for stream in [initiator, responder] {
        assert_eq!(stream.read(&mut [0], NOW), Err(TcpStreamError::NotStreaming));
        assert_eq!(stream.write(&[0], NOW), Err(TcpStreamError::NotStreaming));
    }
    ends
}

/// RFC 5044 figure 9, whichever end opened the connection.
// Requirements: MPA-7.1-03, MPA-7.1-06, MPA-7.1.2-10, MPA-7.1.2-11, MPA-7.1.2-14, MPA-7.1.5-02
#[test]
fn startup_is_delayed_and_either_end_is_the_initiator() {
    let pair = Pair::new();
    for (revision, swapped) in
        [(Revision::One, false), (Revision::One, true), (Revision::Two, false), (Revision::Two, true)]
    {
        let (near, far) = streams(&pair.near, &pair.far);
        let (near, far) = ((&pair.near, &near), (&pair.far, &far));
        let (initiator, responder) =
            if swapped { delayed(far, near, revision) } else { delayed(near, far, revision) };
        carries(&initiator, &responder);
        carries(&responder, &initiator);
        initiator.qp.disconnect();
        assert_eq!(responder.qp.wait_closed(PATIENCE), Ok(()));
    }
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
}

/// The same through loss, reordering and duplication, which no change of modes gets in the way of.
// Requirements: MPA-7.1.5-03, MPA-7.1.5-04
#[test]
fn what_is_lost_around_the_switch_is_recovered() {
    let bad = Impairments { loss: 0.1, duplicate: 0.05, reorder: 0.1, ..Impairments::default() };
    for seed in 1..4 {
        let (near, far) = sim::link(
            seed,
            EndConfig { outbound: bad, ..EndConfig::a() },
            EndConfig { outbound: bad, ..EndConfig::b() },
        );
        let start = |device, address| {
            Device::start(device, &crate::common::config(address), PollThread::default()).unwrap()
        };
        let (near, far) = (start(near, NEAR), start(far, FAR));
        let (near_stream, far_stream) = streams(&near, &far);
        let (initiator, responder) = delayed((&far, &far_stream), (&near, &near_stream), Revision::One);
        carries(&initiator, &responder);
        carries(&responder, &initiator);
    }
}

/// A rejection leaves TCP open at both ends, at once: octets that the Responder sends directly after its
/// Reply are streaming data. The same connection may try again.
// Requirements: MPA-7.1.2-07, MPA-7.1.2-13, MPA-7.1.2-18, A-01, A-03
#[test]
fn a_rejection_leaves_the_connection_open() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let ends = (End::new(&pair.near), End::new(&pair.far));
    let reason = [7; 300];
    for (initiator, responder, qp) in [(&near, &far, ends.0.control()), (&far, &near, ends.1.control())] {
        thread::scope(|scope| {
            let asking = scope.spawn(|| initiator.initiate(qp, &initiating()));
            responder.respond(b"", &ListenConfig::default()).unwrap().reject(&reason).unwrap();
            say(responder, &numbered(5000));
            match asking.join().unwrap().unwrap_err() {
                ConnectError::Rejected { private_data, .. } => assert_eq!(*private_data, reason),
                error => panic!("{error}"),
            }
        });
        expect(initiator, &numbered(5000));
        say(initiator, b"never mind");
        expect(responder, b"never mind");
        assert_eq!(qp.state(), QpState::Idle);
    }
    // Dropping a request rejects it, and so does accepting with a queue pair that is in use.
    thread::scope(|scope| {
        let qp = ends.0.control();
        let asking = scope.spawn(|| near.initiate(qp, &initiating()));
        drop(far.respond(b"", &ListenConfig::default()).unwrap());
        assert!(matches!(asking.join().unwrap(), Err(ConnectError::Rejected { .. })));
        say(&far, b"Hello");
        expect(&near, b"Hello");
        let qp = ends.0.control();
        let asking = scope.spawn(|| near.initiate(qp, &initiating()));
        far.respond(b"", &ListenConfig::default()).unwrap().accept(&ends.1.qp, b"").unwrap();
        asking.join().unwrap().unwrap();
    });
    carries(&ends.0, &ends.1);
}

/// A listener's application may keep the connection that it rejects.
// Requirements: A-01
#[test]
fn a_listener_keeps_the_connection_it_rejects() {
    let pair = Pair::new();
    let listener = pair.far.listen(PORT, &ListenConfig { backlog: 1, ..ListenConfig::default() }).unwrap();
    let near = pair.near.connect_stream((FAR, PORT).into(), &StreamConfig::default()).unwrap();
    let end = End::new(&pair.near);
    let far = thread::scope(|scope| {
        let qp = end.control();
        let asking = scope.spawn(|| near.initiate(qp, &initiating()));
        let far = listener.accept(PATIENCE).unwrap().reject_to_stream(b"not like this").unwrap();
        assert!(matches!(asking.join().unwrap(), Err(ConnectError::Rejected { .. })));
        far
    });
    say(&near, b"like this?");
    expect(&far, b"like this?");
    // It does not block other connections any more.
    let other = End::new(&pair.near);
    thread::scope(|scope| {
        let asking = scope.spawn(other.connecting(b""));
        listener.accept(PATIENCE).unwrap().reject(b"").unwrap();
        assert!(matches!(asking.join().unwrap(), Err(ConnectError::Rejected { .. })));
    });
    say(&far, b"yes");
    expect(&near, b"yes");
}

/// Unread streaming data is not parsed as a startup frame.
// Requirements: MPA-7.1.5-01
#[test]
fn pending_streaming_data_is_noticed() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    say(&far, b"wait");
    say(&near, b"wait");
    eventually("both have come", || near.available() + far.available() == 8);
    let pending = near.initiate(&near_end.qp, &initiating());
    assert_eq!(pending.unwrap_err(), ConnectError::PendingStreamData { len: 4 });
    let pending = far.respond(b"ready", &ListenConfig::default());
    assert_eq!(pending.unwrap_err(), SwitchError::PendingStreamData { len: 4 });
    // Nothing has changed.
    expect(&near, b"wait");
    expect(&far, b"wait");
    thread::scope(|scope| {
        let qp = near_end.control();
        let asking = scope.spawn(|| {
            expect(&near, b"ready");
            near.initiate(qp, &initiating())
        });
        far.respond(b"ready", &ListenConfig::default()).unwrap().accept(&far_end.qp, b"").unwrap();
        asking.join().unwrap().unwrap();
    });
    carries(&near_end, &far_end);
}

/// Two Initiators recognise each other by the key, and both close.
// Requirements: MPA-7.1.2-16, MPA-7.1.2-20
#[test]
fn two_initiators_recognise_each_other() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    thread::scope(|scope| {
        let qp = far_end.control();
        let other = scope.spawn(|| far.initiate(qp, &initiating()));
        let errors =
            [near.initiate(&near_end.qp, &initiating()), other.join().unwrap()].map(Result::unwrap_err);
        // The later end either finds the Request before it sends its own, or finds the connection closed.
        let recognised = errors.iter().any(|error| {
            *error == ConnectError::Startup(StartupError::OtherInitiator.into())
                || matches!(error, ConnectError::PendingStreamData { .. })
        });
        assert!(recognised, "{errors:?}");
    });
}

/// Two Responders time out.
// Requirements: MPA-7.1.2-21
#[test]
fn two_responders_time_out() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let config = ListenConfig { startup_timeout: SOON, ..ListenConfig::default() };
    thread::scope(|scope| {
        let other = scope.spawn(|| far.respond(b"", &config).err());
        let errors = [near.respond(b"", &config).err(), other.join().unwrap()];
        let timed_out = Some(SwitchError::Startup(warpline::StartupFault::TimedOut));
        assert!(errors.contains(&timed_out), "{errors:?}");
        assert!(errors.iter().all(Option::is_some));
    });
    assert!(matches!(near.read(&mut [0], NOW), Err(TcpStreamError::Closed(_))));
    drop((near, far));
    eventually_unused(&pair.near);
    eventually_unused(&pair.far);
}

/// An Initiator that is accepted and never sends an FPDU is closed, and the Responder's posted requests are
/// flushed. An Initiator that sends is not closed.
// Requirements: MPA-7.1.2-15, MPA-7.1.2-26
#[test]
fn an_initiator_that_sends_no_fpdu_is_given_up() {
    let pair = Pair::new();
    for silent in [true, false] {
        let (near, far) = streams(&pair.near, &pair.far);
        let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
        let config = ListenConfig { first_fpdu_timeout: Some(SOON), ..ListenConfig::default() };
        let asked = ConnectConfig { revision: Revision::One, ..initiating() };
        thread::scope(|scope| {
            let qp = near_end.control();
            let asking = scope.spawn(|| near.initiate(qp, &asked));
            far.respond(b"", &config).unwrap().accept(&far_end.qp, b"").unwrap();
            if !silent {
                // As soon as it may: within the time limit, or the machine is too slow for a verdict.
                asking.join().unwrap().unwrap();
                near_end.write(7, &far_end, 4);
                let status = near_end.completion().status;
                if status == Status::Success {
                    far_end.write(8, &near_end, 4);
                    assert_eq!(far_end.completion().status, Status::Success);
                    thread::sleep(2 * SOON);
                    assert_eq!(far_end.qp.error(), None);
                }
                return;
            }
            far_end.write(8, &near_end, 4);
            assert_ne!(far_end.completion().status, Status::Success);
            assert_eq!(far_end.qp.error(), Some(StreamError::NoFpdu));
            asking.join().unwrap().unwrap();
        });
        if silent {
            assert_eq!(far_end.qp.wait_closed(PATIENCE), Err(CloseError::Failed(StreamError::NoFpdu)));
        }
    }
}

/// A malformed Request ends the connection, and with it the stream.
// Requirements: MPA-7.1.1-02, MPA-7.1.2-04, MPA-8-07
#[test]
fn a_malformed_request_ends_the_stream() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    say(&near, b"this is no MPA Request");
    let fault = far.respond(b"", &ListenConfig::default()).err();
    assert_eq!(fault, Some(SwitchError::Startup(StartupError::WrongKey.into())));
    assert_eq!(far.read(&mut [0], NOW), Err(TcpStreamError::Closed(CloseReason::Aborted)));
    assert_eq!(near.read(&mut [0], PATIENCE), Ok(0), "closed");
    assert!(far.write(&[0], NOW).is_err());
}

/// An Initiator that rejects the accepted terms closes at once, without an FPDU. The Responder's posted work,
/// which rule 4 has held back, is flushed (MPA-7.1.2-15, MPA-7.2-01).
// Requirements: MPA-7.1.2-17
#[test]
fn an_initiator_may_close_when_it_has_seen_the_private_data() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    thread::scope(|scope| {
        let qp = near_end.control();
        let asking = scope.spawn(|| {
            let connected = near.initiate(qp, &initiating()).unwrap();
            assert_eq!(*connected.private_data, *b"on these terms");
        });
        let request = far.respond(b"", &ListenConfig::default()).unwrap();
        request.accept(&far_end.qp, b"on these terms").unwrap();
        asking.join().unwrap();
    });
    far_end.write(9, &near_end, 100);
    near_end.qp.disconnect();
    assert_eq!(far_end.completion().status, Status::Flushed);
    assert_eq!((far_end.qp.wait_closed(PATIENCE), near_end.qp.wait_closed(PATIENCE)), (Ok(()), Ok(())));
    assert_eq!(near_end.memory.to_vec(0, 100).unwrap(), [0; 100]);
}

/// A queue pair that serves one direction continues when the application drops the stream of the other.
#[test]
fn a_dropped_stream_leaves_the_direction_in_full_operation() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    near.start_unnegotiated(&near_end.qp, Direction::Send, &VERSION_1).unwrap();
    far.start_unnegotiated(&far_end.qp, Direction::Receive, &VERSION_1).unwrap();
    drop(near);
    // More than the buffers could hold if the data waited for a reader.
    say(&far, &numbered(3_000_000));
    carries(&near_end, &far_end);
    far.finish();
    // Only TCP informs the queue pair that the peer has finished.
    near_end.qp.wait_peer_closed(PATIENCE).unwrap();
    assert_eq!(near_end.qp.wait_closed(PATIENCE), Ok(()));
}

/// So it does when the stream has ended before, which only the stream was told.
#[test]
fn a_stream_that_is_dropped_after_its_end_ends_the_connection() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    near.start_unnegotiated(&near_end.qp, Direction::Send, &VERSION_1).unwrap();
    far.start_unnegotiated(&far_end.qp, Direction::Receive, &VERSION_1).unwrap();
    far.finish();
    assert_eq!(near.read(&mut [0], PATIENCE), Ok(0));
    carries(&near_end, &far_end);
    assert!(!near_end.qp.peer_closed(), "the stream is the application's");
    drop(near);
    near_end.qp.wait_peer_closed(PATIENCE).unwrap();
    assert_eq!(near_end.qp.wait_closed(PATIENCE), Ok(()));
}

/// A connection that is in Full Operation after startup frames is never a stream again: who waits for its end
/// learns so, at either end.
#[test]
fn nobody_waits_for_the_end_of_a_stream_that_mpa_has() {
    let pair = Pair::new();
    let (near, far) = streams(&pair.near, &pair.far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    thread::scope(|scope| {
        let waiting = [&near, &far].map(|stream| scope.spawn(|| stream.wait_closed(PATIENCE)));
        let qp = near_end.control();
        let asking = scope.spawn(|| near.initiate(qp, &initiating()).unwrap());
        far.respond(b"", &ListenConfig::default()).unwrap().accept(&far_end.qp, b"").unwrap();
        asking.join().unwrap();
        for end in waiting {
            assert_eq!(end.join().unwrap(), Err(TcpStreamError::NotStreaming));
        }
    });
    for stream in [&near, &far] {
        assert_eq!(stream.wait_closed(NOW), Err(TcpStreamError::NotStreaming));
        assert_eq!(stream.read(&mut [0], NOW), Err(TcpStreamError::NotStreaming));
        assert_eq!(stream.write(&[0], NOW), Err(TcpStreamError::NotStreaming));
    }
    carries(&near_end, &far_end);
}

/// A peer that finishes in streaming mode can neither ask nor answer.
#[test]
fn a_peer_that_has_finished_starts_nothing() {
    let pair = Pair::new();
    for responds in [false, true] {
        let (near, far) = streams(&pair.near, &pair.far);
        let end = End::new(&pair.far);
        near.finish();
        assert_eq!(far.read(&mut [0], PATIENCE), Ok(0));
        if responds {
            let closed = SwitchError::Startup(warpline::StartupFault::Closed);
            assert_eq!(far.respond(b"", &ListenConfig::default()).err(), Some(closed));
        } else {
            let closed = ConnectError::Startup(warpline::StartupFault::Closed);
            assert_eq!(far.initiate(&end.qp, &initiating()), Err(closed));
        }
        let end = End::new(&pair.near);
        assert_eq!(near.initiate(&end.qp, &initiating()), Err(ConnectError::NotStreaming));
        assert!(matches!(near.respond(b"", &ListenConfig::default()), Err(SwitchError::NotStreaming)));
    }
}

/// Full Operation at an agreed octet without startup frames, at once and after streaming octets, and one half
/// connection before the other; a graceful close is reported as ever.
// Requirements: C00-8.1-02, C00-8.1-03, C00-8.1-05, C00-8.1-06, C00-8.2-01, C00-5.1-06
#[test]
fn full_operation_needs_no_startup_frames() {
    let pair = Pair::new();
    // At once, in both versions of DDP and RDMAP.
    for version in [0, 1] {
        let config = UnnegotiatedConfig { version, ..VERSION_1 };
        let (near, far) = streams(&pair.near, &pair.far);
        let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
        near.start_unnegotiated(&near_end.qp, Direction::Both, &config).unwrap();
        // Data of the near end may arrive before the far end starts.
        near_end.write(1, &far_end, 100);
        far.start_unnegotiated(&far_end.qp, Direction::Both, &config).unwrap();
        assert_eq!(near_end.completion().status, Status::Success);
        carries(&far_end, &near_end);
        near_end.qp.disconnect();
        assert_eq!(far_end.qp.wait_closed(PATIENCE), Ok(()));
    }
    // After an agreement, one direction first.
    let (near, far) = streams(&pair.near, &pair.far);
    let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
    say(&near, b"from here on");
    near.start_unnegotiated(&near_end.qp, Direction::Send, &VERSION_1).unwrap();
    near_end.write(1, &far_end, 100);
    assert_eq!(near.write(&[0], NOW), Err(TcpStreamError::NotStreaming));
    expect(&far, b"from here on");
    far.start_unnegotiated(&far_end.qp, Direction::Receive, &VERSION_1).unwrap();
    assert_eq!(near_end.completion().status, Status::Success);
    assert_eq!(far.read(&mut [0], NOW), Err(TcpStreamError::NotStreaming));
    // The other direction continues unchanged.
    say(&far, &numbered(100_000));
    expect(&near, &numbered(100_000));
    let twice = far.start_unnegotiated(&far_end.qp, Direction::Receive, &VERSION_1);
    assert_eq!(twice, Err(SwitchError::NotStreaming));
    far.start_unnegotiated(&far_end.qp, Direction::Send, &VERSION_1).unwrap();
    near.start_unnegotiated(&near_end.qp, Direction::Receive, &VERSION_1).unwrap();
    carries(&far_end, &near_end);
    carries(&near_end, &far_end);
    near_end.qp.disconnect();
    assert_eq!(far_end.qp.wait_closed(PATIENCE), Ok(()));
}

/// Without startup frames the applications set how many Reads may be outstanding. At most ORD are sent, none
/// if it is 0, and a peer whose ORD exceeds our IRD is refused.
// Requirements: RDMAP-6.1-02, RDMAP-6.1-03
#[test]
fn applications_set_the_reads_of_a_stream_without_startup_frames() {
    const READS: u64 = 8;
    for (ird, ord) in [(1, 1), (3, 3), (0, 8), (8, 0)] {
        let pair = Pair::new();
        let (near, far) = streams(&pair.near, &pair.far);
        let (near_end, far_end) = (End::new(&pair.near), End::new(&pair.far));
        let source = far_end.domain.allocate(64 * 1024, Access::REMOTE_READ).unwrap();
        let advertisement = source.advertisement(0, 64 * 1024).unwrap();
        far.start_unnegotiated(&far_end.qp, Direction::Both, &reading(ird, 0)).unwrap();
        near.start_unnegotiated(&near_end.qp, Direction::Both, &reading(0, ord)).unwrap();
        let read = |id| near_end.qp.post_read(id, near_end.memory.slice(0, 1024), &advertisement, 0);
        if ord == 0 {
            assert_eq!(read(0), Err(PostError::NoReads));
            continue;
        }
        if ird == 0 {
            read(0).unwrap();
            let error = StreamError::Ddp(DdpError::NoBuffer);
            assert_eq!(far_end.qp.wait_closed(PATIENCE), Err(CloseError::Failed(error)));
            continue;
        }
        (0..READS).for_each(|id| read(id).unwrap());
        for id in 0..READS {
            let done = near_end.completion();
            assert_eq!((done.id, done.status), (id, Status::Success), "IRD {ird}, ORD {ord}");
        }
        assert_eq!(far_end.qp.error(), None);
    }
}

/// Peers that connect and stay silent fill the backlog of their port until their time is up. Other ports and
/// connections are not affected.
#[test]
fn a_flood_without_requests_is_bounded_and_passes() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let config = ListenConfig { backlog: 4, startup_timeout: SOON, ..ListenConfig::default() };
    let listener = pair.far.listen(PORT + 1, &config).unwrap();
    let brief = StreamConfig { timeout: Duration::from_millis(50), ..StreamConfig::default() };
    for _ in 0..3 {
        let silent: Vec<_> =
            (0..12).filter_map(|_| pair.near.connect_stream((FAR, PORT + 1).into(), &brief).ok()).collect();
        assert!(pair.far.usage().unwrap().connections <= 1 + 2 * 4, "twice the backlog at most");
        carries(&near, &far);
        drop(silent);
    }
    // Each silent peer is reported, and then the port serves a peer that sends data.
    let reported = std::iter::from_fn(|| listener.accept(PATIENCE).err()).next();
    assert!(reported.is_some());
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    thread::scope(|scope| {
        let qp: &QueuePairControl = &near.qp;
        let asking = scope.spawn(move || qp.connect((FAR, PORT + 1).into(), &initiating()));
        let request = loop {
            match listener.accept(PATIENCE) {
                Ok(request) => break request,
                Err(error) => assert!(matches!(error, warpline::AcceptError::Startup { .. }), "{error}"),
            }
        };
        request.accept(&far.qp, b"").unwrap();
        asking.join().unwrap().unwrap();
    });
    carries(&near, &far);
}
