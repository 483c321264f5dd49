//! Threads that sleep: completion channels, and the events that wake them.

use super::ends::*;
use super::handles::*;
use crate::completion::*;
use crate::event::*;
use crate::work::*;

/// Verbs' steps: arm, sleep on the descriptor, clear, poll.
#[test]
fn a_completion_wakes_who_armed_for_it() {
    let (near, far) = connected();
    let fd = far.cq.fd();
    assert!(fd >= 0, "{}", last_error());
    far.post_recv(1, 0, 64);
    far.post_recv(2, 0, 64);
    assert_eq!(far.cq.arm(true), 0);
    let sge = near.sge(0, 1);
    near.post_send(&request(WARPLINE_WR_SEND, &sge));
    near.completed();
    assert!(!readable(fd, 0), "that one is not solicited");
    let solicited = WARPLINE_SEND_SIGNALED | WARPLINE_SEND_SOLICITED;
    near.post_send(&SendWr { flags: solicited, ..request(WARPLINE_WR_SEND, &sge) });
    assert!(readable(fd, PATIENCE));
    assert_eq!(far.cq.clear(), 1);
    assert_eq!(far.cq.clear(), 0);
    let mut both = [Wc::default(); 8];
    assert_eq!(far.cq.poll(&mut both), 2);
    assert_eq!(both[..2].iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(both[2], Wc::default(), "no more is written");
    assert_eq!(far.cq.poll(&mut both), 0);

    far.post_recv(3, 0, 64);
    near.post_send(&request(WARPLINE_WR_SEND, &sge));
    while far.cq.arm(false) == 0 {
        assert!(readable(fd, PATIENCE));
        far.cq.clear();
    }
    assert_eq!(far.cq.poll(&mut both[..1]), 1, "there already, and said so");
    assert_eq!(both[0].wr_id, 3);
}

/// A queue that is polled has nothing to sleep on, and waiting ends when it should.
#[test]
fn a_polled_queue_has_no_descriptor() {
    let cq = Handle::new(4, false);
    assert_eq!((cq.fd(), cq.clear()), (-libc::EOPNOTSUPP, -libc::EOPNOTSUPP));
    assert_eq!(cq.wait(1), None);
}

/// An access that was not granted: the peer's refusal at this end, an event at the other.
#[test]
fn a_refused_access_is_told_at_both_ends() {
    let (near_device, far_device) = devices();
    let (near, far) = (End::new(&near_device), End::new(&far_device));
    connect(&far_device, &near, &far);
    let sge = near.sge(0, 8);
    let read = SendWr {
        remote_stag: far.sge(0, 0).stag,
        remote_addr: far.addr(BYTES - 7),
        ..request(WARPLINE_WR_READ, &sge)
    };
    near.post_send(&read);
    let wc = near.wc();
    assert_eq!((wc.wr_id, status_text(wc.status)), (read.wr_id, c"remote access error"));

    assert!(readable(far_device.event_fd(), PATIENCE));
    let event = loop {
        let event = far_device.event(PATIENCE).expect("the event");
        if event.event == WARPLINE_EVENT_QP_ACCESS_ERROR {
            break event;
        }
    };
    assert_eq!(event.number, far.qp.number());
    assert_eq!(status_text(event.status), c"local access error");
    assert_eq!(event_text(event.event), c"queue pair: access error");
    assert_eq!(near.qp.post_send(&read).0, 0, "accepted, and flushed");
    assert_eq!(status_text(near.wc().status), c"work request flushed");
}
