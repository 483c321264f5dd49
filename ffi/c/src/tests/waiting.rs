//! What threads sleep on, and what they are told meanwhile.
#![expect(clippy::undocumented_unsafe_blocks, reason = "handles are good until their ends are dropped")]

use std::ffi::CStr;
use std::ptr::null_mut;

use super::ends::*;
use crate::completion::*;
use crate::device::*;
use crate::event::*;
use crate::work::*;

fn readable(fd: i32, timeout_ms: i32) -> bool {
    let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: it is one `pollfd`.
    unsafe { libc::poll(&raw mut asked, 1, timeout_ms) == 1 }
}

/// Verbs' steps: arm, sleep on the descriptor, clear, poll.
#[test]
fn a_completion_wakes_who_armed_for_it() {
    let (near, far) = connected();
    let fd = unsafe { warpline_cq_fd(far.cq) };
    assert!(fd >= 0, "{}", last_error());
    far.post_recv(1, 0, 64);
    far.post_recv(2, 0, 64);
    assert_eq!(unsafe { warpline_cq_arm(far.cq, true) }, 0);
    let sge = near.sge(0, 1);
    near.post_send(&request(WARPLINE_WR_SEND, &sge));
    near.completed();
    assert!(!readable(fd, 0), "that one is not solicited");
    let solicited = WARPLINE_SEND_SIGNALED | WARPLINE_SEND_SOLICITED;
    near.post_send(&SendWr { flags: solicited, ..request(WARPLINE_WR_SEND, &sge) });
    assert!(readable(fd, PATIENCE));
    assert_eq!(unsafe { warpline_cq_clear(far.cq) }, 1);
    assert_eq!(unsafe { warpline_cq_clear(far.cq) }, 0);
    let mut both = [Wc::default(); 8];
    assert_eq!(unsafe { warpline_cq_poll(far.cq, 8, both.as_mut_ptr()) }, 2);
    assert_eq!(both[..2].iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(both[2], Wc::default(), "no more is written");
    assert_eq!(unsafe { warpline_cq_poll(far.cq, 8, both.as_mut_ptr()) }, 0);

    far.post_recv(3, 0, 64);
    near.post_send(&request(WARPLINE_WR_SEND, &sge));
    while unsafe { warpline_cq_arm(far.cq, false) } == 0 {
        assert!(readable(fd, PATIENCE));
        unsafe { warpline_cq_clear(far.cq) };
    }
    assert_eq!(unsafe { warpline_cq_poll(far.cq, 1, both.as_mut_ptr()) }, 1, "there already, and said so");
    assert_eq!(both[0].wr_id, 3);
}

/// A queue that is polled has nothing to sleep on, and waiting ends when it should.
#[test]
fn a_polled_queue_has_no_descriptor() {
    let cq = made(|cq| unsafe { warpline_cq_create(4, false, cq) });
    assert_eq!(unsafe { warpline_cq_fd(cq) }, -libc::EOPNOTSUPP);
    assert_eq!(unsafe { warpline_cq_clear(cq) }, -libc::EOPNOTSUPP);
    let mut wc = Wc::default();
    assert_eq!(unsafe { warpline_cq_wait(cq, &raw mut wc, 1) }, 0);
    unsafe { warpline_cq_destroy(cq) };
}

/// An access that was not granted: the peer's refusal at this end, an event at the other.
#[test]
fn a_refused_access_is_told_at_both_ends() {
    let (near_device, far_device) = devices();
    let (near, far) = (End::new(near_device), End::new(far_device));
    connect(far_device, &near, &far);
    let sge = near.sge(0, 8);
    let read = SendWr {
        remote_stag: far.sge(0, 0).stag,
        remote_addr: far.addr(OCTETS - 7),
        ..request(WARPLINE_WR_READ, &sge)
    };
    near.post_send(&read);
    let wc = near.wc();
    let word = unsafe { CStr::from_ptr(warpline_wc_status_text(wc.status)) };
    assert_eq!((wc.wr_id, word), (read.wr_id, c"remote access error"));

    let fd = unsafe { warpline_event_fd(far_device) };
    assert!(readable(fd, PATIENCE));
    let mut event = Event::default();
    while event.event != WARPLINE_EVENT_QP_ACCESS_ERROR {
        assert_eq!(unsafe { warpline_get_event(far_device, &raw mut event, PATIENCE) }, 1, "the event");
    }
    assert_eq!(event.number, wc_number(&far));
    let word = unsafe { CStr::from_ptr(warpline_wc_status_text(event.status)) };
    assert_eq!(word, c"local access error");
    let word = unsafe { CStr::from_ptr(warpline_event_text(event.event)) };
    assert_eq!(word, c"queue pair: access error");
    assert_eq!(unsafe { warpline_post_send(near.qp, &raw const read, null_mut()) }, -libc::ENOTCONN);
    unsafe {
        warpline_close(near_device);
        warpline_close(far_device);
    }
}

fn wc_number(end: &End) -> u32 {
    unsafe { crate::queue_pair::warpline_qp_number(end.qp) }
}
