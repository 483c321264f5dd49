//! Where the events of ids arrive.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use warpline::cm::{Event, EventChannel, EventKind, Id, IdNumber};
use warpline::{ConnectError, ReadDepths};

use super::id::CmId;
use crate::connection::ConnReply;
use crate::device::Device;
use crate::error::{Failure, guard, guard_or};
use crate::pointer::{borrow, hand_out, list, patience, take_back};

/// Where the events of ids arrive, in the order in which they happened: `struct rdma_event_channel`. One
/// thread serves any number of ids and devices.
///
/// To connect: `warpline_cm_create_id`, `warpline_cm_resolve_addr`, then `warpline_cm_resolve_route`, then
/// `warpline_cm_connect` with a queue pair of `warpline_cm_device`, each after the event of the one before.
/// To listen: `warpline_cm_bind_addr`, `warpline_cm_listen`, then for each
/// `WARPLINE_CM_EVENT_CONNECT_REQUEST` `warpline_cm_accept` or `warpline_cm_reject`. At either end
/// `WARPLINE_CM_EVENT_ESTABLISHED`, `WARPLINE_CM_EVENT_DISCONNECTED` and `WARPLINE_CM_EVENT_TIMEWAIT_EXIT`
/// follow.
pub struct CmChannel {
    channel: EventChannel,
    ids: Arc<Ids>,
}

/// The handles of a channel's ids, by their names in events.
#[derive(Default)]
pub(crate) struct Ids(Mutex<HashMap<IdNumber, Handle>>);

/// An id that C has. Whoever finds it here may look at it while it holds the lock.
struct Handle(*mut CmId);

// SAFETY: an id is for any thread, which the compiler checks below.
unsafe impl Send for Handle {}

const _: () = {
    const fn for_any_thread<T: Send + Sync>() {}
    for_any_thread::<CmId>();
};

impl Ids {
    fn lock(&self) -> MutexGuard<'_, HashMap<IdNumber, Handle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle of the id, which events can name from now on.
    fn hand_out(self: &Arc<Self>, id: Id, context: *mut c_void) -> *mut CmId {
        let number = id.number();
        let handle =
            Box::into_raw(Box::new(CmId { id, context: AtomicPtr::new(context), ids: self.clone() }));
        self.lock().insert(number, Handle(handle));
        handle
    }

    /// Events of the id are dropped from now on.
    pub(crate) fn forget(&self, number: IdNumber) {
        self.lock().remove(&number);
    }

    /// The handle of an id and its context; `None` once the id is destroyed.
    fn find(&self, number: IdNumber) -> Option<(*mut CmId, *mut c_void)> {
        let ids = self.lock();
        let handle = ids.get(&number)?.0;
        // SAFETY: it is taken out of here before it goes, and that waits for the lock.
        let context = unsafe { &*handle }.context.load(Ordering::Acquire);
        Some((handle, context))
    }
}

/// The device that leads to the peer is known. The numbers of events are those of `enum rdma_cm_event_type`.
pub const WARPLINE_CM_EVENT_ADDR_RESOLVED: u32 = 0;
/// No device of the channel leads to the peer; another address may be tried.
pub const WARPLINE_CM_EVENT_ADDR_ERROR: u32 = 1;
/// The route to the peer is known.
pub const WARPLINE_CM_EVENT_ROUTE_RESOLVED: u32 = 2;
/// A peer wants to connect: `id` is new, and waits for `warpline_cm_accept` or `warpline_cm_reject`.
pub const WARPLINE_CM_EVENT_CONNECT_REQUEST: u32 = 4;
/// The connection could not be opened, or accepted after all.
pub const WARPLINE_CM_EVENT_CONNECT_ERROR: u32 = 6;
/// The peer did not answer in time, or the network says that it cannot be reached.
pub const WARPLINE_CM_EVENT_UNREACHABLE: u32 = 7;
/// The peer's application does not want the connection (status `-EACCES`), or no program listens there
/// (`-ECONNREFUSED`).
pub const WARPLINE_CM_EVENT_REJECTED: u32 = 8;
/// The connection is open: sends may be posted.
pub const WARPLINE_CM_EVENT_ESTABLISHED: u32 = 9;
/// The connection is being closed, by either end, or has failed. It comes once.
pub const WARPLINE_CM_EVENT_DISCONNECTED: u32 = 10;
/// The device serves no more.
pub const WARPLINE_CM_EVENT_DEVICE_REMOVAL: u32 = 11;
/// The connection is over: its queue pair has completed everything and may be given back.
pub const WARPLINE_CM_EVENT_TIMEWAIT_EXIT: u32 = 15;

/// Something that happened to an id.
#[repr(C)]
pub struct CmEvent {
    /// The id. Of `WARPLINE_CM_EVENT_CONNECT_REQUEST` a new one, with the context of the one that listens: it
    /// belongs to the program that has taken the event, and is given back with `warpline_cm_destroy_id`.
    pub id: *mut CmId,
    /// Of `WARPLINE_CM_EVENT_CONNECT_REQUEST`, the id that listens; else null.
    pub listen_id: *mut CmId,
    /// `WARPLINE_CM_EVENT_*`.
    pub event: u32,
    /// 0, or why it failed, as the negative of a number of errno.h: `warpline_last_error` then has the words.
    pub status: c_int,
    /// The peer's reply: with a request, an acceptance, a rejection. `ird` and `ord` are as agreed; with
    /// `WARPLINE_CM_EVENT_CONNECT_REQUEST` they are the peer's own, 0 if its Request has none.
    pub conn: ConnReply,
}

const NO_READS: ReadDepths = ReadDepths { ird: 0, ord: 0 };

impl CmChannel {
    /// The event as C has it; `None` when its id was given back.
    fn event(&self, event: Event) -> Option<CmEvent> {
        let (id, context) = self.ids.find(event.id)?;
        let plain = |event| (event, ConnReply::new(&[], NO_READS));
        let failed = |event, failure: Failure| CmEvent {
            id,
            listen_id: null_mut(),
            event,
            status: failure.report(),
            conn: ConnReply::new(&[], NO_READS),
        };
        let (event, conn) = match event.kind {
            EventKind::AddressResolved => plain(WARPLINE_CM_EVENT_ADDR_RESOLVED),
            EventKind::RouteResolved => plain(WARPLINE_CM_EVENT_ROUTE_RESOLVED),
            EventKind::Disconnected => plain(WARPLINE_CM_EVENT_DISCONNECTED),
            EventKind::TimewaitExit => plain(WARPLINE_CM_EVENT_TIMEWAIT_EXIT),
            EventKind::Established { private_data, depths } => {
                (WARPLINE_CM_EVENT_ESTABLISHED, ConnReply::new(&private_data, depths))
            }
            EventKind::ConnectRequest(asked) => {
                let conn = ConnReply::new(asked.private_data(), asked.peer_depths().unwrap_or(NO_READS));
                let (listen_id, id) = (id, self.ids.hand_out(asked, context));
                let event = WARPLINE_CM_EVENT_CONNECT_REQUEST;
                return Some(CmEvent { id, listen_id, event, status: 0, conn });
            }
            EventKind::Rejected { private_data, peer } => {
                let conn = ConnReply::new(&private_data, NO_READS);
                let error =
                    peer.map_or(ConnectError::Refused, |peer| ConnectError::Rejected { private_data, peer });
                return Some(CmEvent { conn, ..failed(WARPLINE_CM_EVENT_REJECTED, error.into()) });
            }
            EventKind::AddressError => {
                let failure = Failure::new(libc::ENETUNREACH, "no device of the channel leads to the peer");
                return Some(failed(WARPLINE_CM_EVENT_ADDR_ERROR, failure));
            }
            EventKind::Unreachable(error) => {
                return Some(failed(WARPLINE_CM_EVENT_UNREACHABLE, error.into()));
            }
            EventKind::ConnectError(error) => {
                return Some(failed(WARPLINE_CM_EVENT_CONNECT_ERROR, error.into()));
            }
            EventKind::AcceptError(error) => {
                return Some(failed(WARPLINE_CM_EVENT_CONNECT_ERROR, error.into()));
            }
            EventKind::DeviceRemoval => {
                let failure = Failure::new(libc::ENODEV, "the device serves no more");
                return Some(failed(WARPLINE_CM_EVENT_DEVICE_REMOVAL, failure));
            }
            _ => return None,
        };
        Some(CmEvent { id, listen_id: null_mut(), event, status: 0, conn })
    }
}

/// A channel for connections on `count` devices. It keeps them going.
///
/// - `-EMFILE`: the system has no file descriptor left
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_channel_create(
    devices: *const *mut Device,
    count: u32,
    channel: *mut *mut CmChannel,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let devices = list(devices, count as usize)?.iter();
            let devices: Vec<warpline::Device> =
                devices.map(|&device| Ok(borrow(device)?.0.clone())).collect::<Result<_, Failure>>()?;
            hand_out(channel, || {
                let channel =
                    EventChannel::new(devices).map_err(|error| Failure::of(libc::EMFILE, &error))?;
                Ok(CmChannel { channel, ids: Arc::default() })
            })?;
        }
        Ok(0)
    })
}

/// Destroys a channel. Its ids stay, and their events are lost. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_channel_destroy(channel: *mut CmChannel) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(channel) }));
}

/// The file descriptor for poll(2) or an epoll set, readable while there may be an event. Then call
/// `warpline_cm_get_event` with no time to wait until it returns 0. It belongs to the channel: do not read or
/// close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_fd(channel: *const CmChannel) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        Ok(unsafe { borrow(channel)? }.channel.as_raw_fd())
    })
}

/// The oldest event; waits for it for `timeout_ms` milliseconds, or for ever if that is negative. Returns 1
/// when `event` is written, 0 when there was none in time. There is nothing to acknowledge.
///
/// Events of destroyed ids are left out. If other threads destroy ids, they and the caller must agree on
/// which ids are still in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_get_event(
    channel: *mut CmChannel,
    event: *mut CmEvent,
    timeout_ms: i32,
) -> c_int {
    guard(|| {
        let (start, timeout) = (Instant::now(), patience(timeout_ms));
        // SAFETY: the caller keeps C's contract.
        let channel = unsafe { borrow(channel)? };
        if event.is_null() {
            return Err(Failure::NULL);
        }
        while let Some(happened) = channel.channel.wait(timeout.saturating_sub(start.elapsed())) {
            if let Some(happened) = channel.event(happened) {
                // SAFETY: not null, so it may be written, by C's contract.
                unsafe { event.write(happened) };
                return Ok(1);
            }
        }
        Ok(0)
    })
}

/// Creates an id, whose events arrive on the channel. `context` is the caller's: `warpline_cm_context`
/// returns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_cm_create_id(
    channel: *mut CmChannel,
    context: *mut c_void,
    id: *mut *mut CmId,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let channel = unsafe { borrow(channel)? };
        if id.is_null() {
            return Err(Failure::NULL);
        }
        let handle = channel.ids.hand_out(channel.channel.create_id(), context);
        // SAFETY: not null, so it may be written, by C's contract.
        unsafe { id.write(handle) };
        Ok(0)
    })
}

/// What an event of a channel is called. Never null; good for ever.
#[unsafe(no_mangle)]
pub extern "C" fn warpline_cm_event_text(event: u32) -> *const c_char {
    match event {
        WARPLINE_CM_EVENT_ADDR_RESOLVED => c"address resolved",
        WARPLINE_CM_EVENT_ADDR_ERROR => c"address error",
        WARPLINE_CM_EVENT_ROUTE_RESOLVED => c"route resolved",
        WARPLINE_CM_EVENT_CONNECT_REQUEST => c"connect request",
        WARPLINE_CM_EVENT_CONNECT_ERROR => c"connect error",
        WARPLINE_CM_EVENT_UNREACHABLE => c"unreachable",
        WARPLINE_CM_EVENT_REJECTED => c"rejected",
        WARPLINE_CM_EVENT_ESTABLISHED => c"established",
        WARPLINE_CM_EVENT_DISCONNECTED => c"disconnected",
        WARPLINE_CM_EVENT_DEVICE_REMOVAL => c"device removal",
        WARPLINE_CM_EVENT_TIMEWAIT_EXIT => c"timewait exit",
        _ => c"unknown event",
    }
    .as_ptr()
}
