//! Queue pairs and shared receive queues.

use std::ffi::c_int;
use std::num::NonZeroU8;
use std::ops::Deref;
use std::time::Duration;

use warpline::{
    Keepalive, QpConfig, QpState, QueuePair, QueuePairControl, RnrPolicy, SharedQueuePair,
    SharedReceiveQueue, limits,
};

use crate::completion::Cq;
use crate::error::{Failure, guard, guard_or};
use crate::extensible::{Extensible, Flag, extensible};
use crate::memory::Pd;
use crate::pointer::{borrow, hand_out, patience, take_back};

/// A queue pair: an endpoint that serves one connection. Any thread may post to it; see `single_threaded` of
/// `warpline_qp_attr`.
pub struct Qp(Posting);

enum Posting {
    /// Any thread posts, by a lock.
    Locked(SharedQueuePair),
    /// One thread at a time posts: the program's promise.
    Single(QueuePair),
}

// SAFETY: a program that has made it as `Single` promises that one thread at a time posts. All else is of
// `QueuePairControl`, which is `Sync`.
unsafe impl Sync for Qp {}

impl Qp {
    fn new(qp: QueuePair, single_threaded: bool) -> Self {
        Self(if single_threaded { Posting::Single(qp) } else { Posting::Locked(qp.into()) })
    }

    /// Calls `post` with the queue pair, in this thread's turn.
    pub(crate) fn post<T>(&self, post: impl FnOnce(&QueuePair) -> T) -> T {
        match &self.0 {
            Posting::Locked(qp) => post(&qp.lock()),
            Posting::Single(qp) => post(qp),
        }
    }
}

impl Deref for Qp {
    type Target = QueuePairControl;

    fn deref(&self) -> &QueuePairControl {
        match &self.0 {
            Posting::Locked(qp) => qp,
            Posting::Single(qp) => qp,
        }
    }
}

/// Receives that many queue pairs share.
pub struct Srq(pub(crate) SharedReceiveQueue);

/// No connection yet; receives may be posted.
pub const WARPLINE_QP_IDLE: c_int = 0;
/// Connected: sends may be posted.
pub const WARPLINE_QP_READY_TO_SEND: c_int = 1;
/// An end has closed; requests posted before are still executed.
pub const WARPLINE_QP_CLOSING: c_int = 2;
/// The stream has failed, and the connection is being closed.
pub const WARPLINE_QP_TERMINATE: c_int = 3;
/// Over: everything posted is completed.
pub const WARPLINE_QP_ERROR: c_int = 4;

/// How a queue pair is made. Zero is the default of everything but `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QpAttr {
    /// `sizeof(struct warpline_qp_attr)`.
    pub size: usize,
    /// Send work requests that may be outstanding, 32768 at most; 0 for 128.
    pub send_depth: u32,
    /// The same of receives. With a shared receive queue, receives of it held at a time.
    pub recv_depth: u32,
    /// Milliseconds that a message of the peer which finds no receive waits for one; all that the peer sends
    /// after it waits too. 0: such a message ends the stream at once.
    pub rnr_timeout_ms: u32,
    /// Milliseconds after `warpline_disconnect` without a byte of the peer or an acknowledgement of ours,
    /// after which the connection is reset; 0 for 60000, `UINT32_MAX` for no limit.
    pub disconnect_timeout_ms: u32,
    /// When the peer closes its half of the connection, ours stays open for sends until
    /// `warpline_disconnect`: see `warpline_wait_peer_closed`.
    pub keep_open: Flag,
    /// One thread at a time posts to the queue pair: a promise of the program, for which posting takes no
    /// lock (as with a thread domain of verbs). Without, any thread may post at any time. All other calls are
    /// for any thread either way.
    pub single_threaded: Flag,
    /// The share in what the device sends while several connections have much to send: one of weight 32 may
    /// send twice as many bytes as one of 16; 0 for 16.
    pub weight: u8,
    /// Must be 0.
    pub reserved: [u8; 5],
    /// Milliseconds that bytes of ours may go unacknowledged before the connection fails with `-ETIMEDOUT`
    /// (RFC 9293, section 3.9.1); 0 for as long as TCP retransmits, some five minutes.
    pub user_timeout_ms: u32,
    /// Milliseconds of silence, while nothing of ours waits for an acknowledgement, after which the peer is
    /// probed (RFC 9293, section 3.8.4); 0 for no probes.
    pub keepalive_idle_ms: u32,
    /// Milliseconds between probes; 0 for a third of the idle time.
    pub keepalive_interval_ms: u32,
    /// Probes without an answer after which the connection fails with `-ETIMEDOUT`, 255 at most; 0 for 3.
    pub keepalive_probes: u32,
    /// Bytes of TCP payload that may be sent in a second, in whole kilobytes (1000 bytes): segments leave at
    /// that pace. 0 for no limit.
    pub rate_limit: u64,
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for QpAttr {
    const FIRST_SIZE: usize = 32;
}

impl QpAttr {
    pub(crate) fn config(self) -> Result<QpConfig, Failure> {
        if self.reserved != [0; 5] {
            return Err(Failure::invalid("a reserved field is not 0"));
        }
        let usual = QpConfig::default();
        let or = |depth: u32, usual| if depth == 0 { usual } else { depth as usize };
        let keepalive = self.keepalive()?;
        Ok(QpConfig {
            send_depth: or(self.send_depth, usual.send_depth),
            receive_depth: or(self.recv_depth, usual.receive_depth),
            keep_open: self.keep_open.is_set(),
            rnr: match self.rnr_timeout_ms {
                0 => RnrPolicy::Terminate,
                ms => RnrPolicy::Wait { timeout: Duration::from_millis(ms.into()) },
            },
            disconnect_timeout: match self.disconnect_timeout_ms {
                0 => usual.disconnect_timeout,
                u32::MAX => None,
                ms => Some(Duration::from_millis(ms.into())),
            },
            user_timeout: match self.user_timeout_ms {
                0 => usual.user_timeout,
                ms => Some(Duration::from_millis(ms.into())),
            },
            keepalive,
            rate_limit: (self.rate_limit > 0).then_some(self.rate_limit),
            weight: NonZeroU8::new(self.weight).unwrap_or(usual.weight),
            ..usual
        })
    }

    fn keepalive(&self) -> Result<Option<Keepalive>, Failure> {
        let idle_ms = self.keepalive_idle_ms;
        let or = |given: u32, usual| if given == 0 { usual } else { given };
        let probes = u8::try_from(or(self.keepalive_probes, 3));
        let probes = probes.map_err(|_| Failure::invalid("there are more than 255 keepalive probes"))?;
        let interval_ms = or(self.keepalive_interval_ms, (idle_ms / 3).max(1));
        Ok((idle_ms > 0).then_some(Keepalive { idle_ms, interval_ms, probes }))
    }
}

/// Makes a queue pair that reports to `send_cq` and `recv_cq`, which may be the same. `srq` is null or where
/// it takes its receives from; `attr` may be null for the defaults.
///
/// - `-EINVAL`: a pointer is null, `srq` is of another Protection Domain, or a queue would be too deep
/// - `-ENOSPC`: the device serves as many as it can, or the Protection Domain has as many as it may
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_qp_create(
    pd: *mut Pd,
    send_cq: *mut Cq,
    recv_cq: *mut Cq,
    srq: *mut Srq,
    attr: *const QpAttr,
    qp: *mut *mut Qp,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (pd, send_cq, recv_cq) = (borrow(pd)?, borrow(send_cq)?, borrow(recv_cq)?);
            let attr = extensible(attr)?;
            let config = attr.config()?;
            hand_out(qp, || {
                let qp = match srq.as_ref() {
                    Some(srq) => pd.domain.queue_pair_sharing(&srq.0, &config, send_cq, recv_cq),
                    None => pd.domain.queue_pair(&config, send_cq, recv_cq),
                };
                Ok(Qp::new(qp?, attr.single_threaded.is_set()))
            })?;
        }
        Ok(0)
    })
}

/// Gives a queue pair back, which ends its connection: after `warpline_disconnect` in the orderly way that
/// has begun, else with a reset. No work request uses memory once this returns, unless the thread of its core
/// stands still for two seconds; on a device that the caller polls itself, 50 milliseconds of polling later.
/// What was posted has as long to reach the peer. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_qp_destroy(qp: *mut Qp) {
    guard_or((), || {
        // SAFETY: the caller keeps C's contract.
        if let Some(qp) = unsafe { take_back(qp) } {
            qp.fence_drop();
        }
    });
}

/// Its number, as completions and events carry it; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_qp_number(qp: *const Qp) -> u32 {
    // SAFETY: the caller keeps C's contract.
    unsafe { qp.as_ref() }.map_or(0, |qp| qp.number().0)
}

/// Its state, which of `WARPLINE_QP_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_qp_state(qp: *const Qp) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        Ok(match unsafe { borrow(qp)? }.state() {
            QpState::Idle => WARPLINE_QP_IDLE,
            QpState::ReadyToSend => WARPLINE_QP_READY_TO_SEND,
            QpState::Closing => WARPLINE_QP_CLOSING,
            QpState::Terminate => WARPLINE_QP_TERMINATE,
            QpState::Error => WARPLINE_QP_ERROR,
        })
    })
}

/// Closes our half of the connection after everything posted; requests posted later are flushed. The peer's
/// half stays open until the peer closes it. A peer that is silent for `disconnect_timeout_ms` is given up:
/// `warpline_wait_closed` then returns `-ECONNABORTED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_disconnect(qp: *mut Qp) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(qp)? }.disconnect();
        Ok(0)
    })
}

/// Resets the connection: outstanding requests are flushed, the peer sees an error. Without a connection
/// receives that were posted are flushed, an attempt to connect is given up, and the queue pair serves no
/// connection any more. `warpline_wait_closed` then returns `-ECONNABORTED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_abort(qp: *mut Qp) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(qp)? }.abort();
        Ok(0)
    })
}

/// Waits until the peer has closed its half of the connection: everything that it has sent is received then.
/// With `keep_open` ours is still open.
///
/// - `-ETIMEDOUT`: it has not, after `timeout_ms` milliseconds
/// - `-ECONNABORTED`: the connection ended otherwise; `warpline_last_error` says how
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_wait_peer_closed(qp: *mut Qp, timeout_ms: i32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(qp)? }.wait_peer_closed(patience(timeout_ms))?;
        Ok(0)
    })
}

/// Waits until the connection is closed by both ends.
///
/// - `-ETIMEDOUT`: it is not yet, after `timeout_ms` milliseconds
/// - `-ECONNABORTED`: it ended otherwise; `warpline_last_error` says how
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_wait_closed(qp: *mut Qp, timeout_ms: i32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(qp)? }.wait_closed(patience(timeout_ms))?;
        Ok(0)
    })
}

/// Makes a queue of `depth` receives that queue pairs of `pd` can share.
///
/// - `-EINVAL`: a pointer is null, or `depth` is 0 or more than 262144
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_srq_create(pd: *mut Pd, depth: u32, srq: *mut *mut Srq) -> c_int {
    guard(|| {
        if !(1..=limits::RECEIVES_PER_SHARED_QUEUE).contains(&(depth as usize)) {
            return Err(Failure::invalid("a shared receive queue has room for 1 to 262144 receives"));
        }
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let pd = borrow(pd)?;
            hand_out(srq, || Ok(Srq(pd.domain.shared_receive_queue(depth as usize))))?;
        }
        Ok(0)
    })
}

/// Asks for one event `WARPLINE_EVENT_SRQ_LIMIT` when fewer than `limit` receives are left, at once if they
/// are already; 0 asks for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_srq_arm_limit(srq: *mut Srq, limit: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe { borrow(srq)? }.0.arm_limit(limit);
        Ok(0)
    })
}

/// Its number in asynchronous events; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_srq_number(srq: *const Srq) -> u32 {
    // SAFETY: the caller keeps C's contract.
    unsafe { srq.as_ref() }.map_or(0, |srq| srq.0.number().0)
}

/// Returns a shared receive queue to the library. It stays for queue pairs that take from it. Does nothing
/// for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_srq_destroy(srq: *mut Srq) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(srq) }));
}
