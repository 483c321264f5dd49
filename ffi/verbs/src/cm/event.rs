//! Events of ids, as programs take and acknowledge them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use warpline::cm::EventKind;
use warpline::{CloseReason, ConnectError, ReadDepths, StartupFault, limits};

use super::channel::{Channel, EventQueue, Waiting};
use super::id::{self, IdState};
use crate::abi::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_ERROR,
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};
use crate::adapter::{hand_over, started};
use crate::errno::{Errno, descriptor, minus_one};
use crate::object::{Kind, Object, zeroed};
use crate::tokens;

/// An event that a program has.
pub(crate) struct Event {
    /// What the parameters point to.
    _private_data: Box<[u8]>,
    /// The id that is not destroyed before the event is acknowledged: of a connection request, the listener.
    id: Arc<IdState>,
}

impl Kind for Event {
    type Public = rdma_cm_event;
    const MARK: u64 = 0x7761_7270_6576_3030;
}

/// What is said in an event: its number, status, Private Data and depths of Reads.
struct Said {
    event: u32,
    status: c_int,
    private_data: Box<[u8]>,
    depths: ReadDepths,
}

/// Depths of a peer that has said none: what this end offers by default.
const USUAL: ReadDepths = ReadDepths { ird: limits::READ_DEPTH_USUAL, ord: limits::READ_DEPTH_USUAL };

impl Said {
    fn new(event: u32) -> Self {
        Self { event, status: 0, private_data: Box::default(), depths: ReadDepths { ird: 0, ord: 0 } }
    }

    fn failed(event: u32, errno: Errno) -> Self {
        Self { status: -errno.number(), ..Self::new(event) }
    }

    /// Returns what is said of a connection that did not come about. A peer that closes or resets before its
    /// Reply has rejected it: programs know this from the kernel (siw, `cma_iw_handler`).
    fn not_connected(error: &ConnectError) -> Self {
        match error {
            ConnectError::Closed(CloseReason::Reset) | ConnectError::Startup(StartupFault::Closed) => {
                Self::failed(RDMA_CM_EVENT_REJECTED, Errno::RESET)
            }
            error => Self::failed(RDMA_CM_EVENT_CONNECT_ERROR, Errno::from(error)),
        }
    }

    /// Returns the parameters; `private_data` is to stay where it is.
    fn parameters(&self) -> rdma_conn_param {
        let depth = |depth: u16| depth.min(u8::MAX.into()) as u8;
        // SAFETY: a structure of pointers and numbers.
        let mut param: rdma_conn_param = unsafe { zeroed() };
        if !self.private_data.is_empty() {
            param.private_data = self.private_data.as_ptr().cast::<c_void>();
            param.private_data_len = self.private_data.len().min(u8::MAX.into()) as u8;
        }
        param.responder_resources = depth(self.depths.ird);
        param.initiator_depth = depth(self.depths.ord);
        param
    }
}

/// Returns an event as the program gets it; `None` for what programs have no word for.
fn hand_out(waiting: Waiting) -> Result<Option<*mut rdma_cm_event>, Errno> {
    let Waiting { id: state, kind } = waiting;
    let mut public_id = state.pointer();
    let mut listener: *mut rdma_cm_id = null_mut();
    let said = match kind {
        EventKind::AddressResolved => Said::new(RDMA_CM_EVENT_ADDR_RESOLVED),
        EventKind::RouteResolved => Said::new(RDMA_CM_EVENT_ROUTE_RESOLVED),
        EventKind::AddressError => Said::failed(RDMA_CM_EVENT_ADDR_ERROR, Errno::NO_DEVICE),
        EventKind::Established { private_data, depths } => {
            Said { private_data, depths, ..Said::new(RDMA_CM_EVENT_ESTABLISHED) }
        }
        EventKind::Rejected { private_data, .. } => {
            Said { private_data, ..Said::failed(RDMA_CM_EVENT_REJECTED, Errno::REFUSED) }
        }
        EventKind::Unreachable(error) => Said::failed(RDMA_CM_EVENT_UNREACHABLE, Errno::from(&error)),
        EventKind::ConnectError(error) => Said::not_connected(&error),
        EventKind::AcceptError(_) => Said::failed(RDMA_CM_EVENT_CONNECT_ERROR, Errno::IO),
        EventKind::Disconnected => Said::new(RDMA_CM_EVENT_DISCONNECTED),
        EventKind::TimewaitExit => Said::new(RDMA_CM_EVENT_TIMEWAIT_EXIT),
        EventKind::DeviceRemoval => Said::failed(RDMA_CM_EVENT_DEVICE_REMOVAL, Errno::NO_DEVICE),
        EventKind::ConnectRequest(request) => {
            let running = started().ok_or(Errno::NO_DEVICE)?;
            // What the peer wants of this end: as many Reads as it may have outstanding, and the reverse.
            let depths =
                request.peer_depths().map_or(USUAL, |peer| ReadDepths { ird: peer.ord, ord: peer.ird });
            let private_data: Box<[u8]> = request.private_data().into();
            listener = state.pointer();
            // SAFETY: the listener is there: its events are withdrawn before it is destroyed.
            public_id = unsafe { id::create((*listener).channel, (*listener).context)? };
            // SAFETY: just made.
            let object = unsafe { id::of(public_id)? };
            object.adopt(&running, request);
            if let Err(errno) = object.show() {
                // SAFETY: just made, and the program has no pointer to it.
                let _ = unsafe { id::destroy(public_id) };
                return Err(errno);
            }
            Said { private_data, depths, ..Said::new(RDMA_CM_EVENT_CONNECT_REQUEST) }
        }
        _ => return Ok(None),
    };
    if said.event == RDMA_CM_EVENT_ESTABLISHED {
        // SAFETY: as above.
        unsafe { id::of(public_id)? }.show()?;
    }
    if said.event == RDMA_CM_EVENT_REJECTED {
        state.fail_queue_pair();
    }
    // SAFETY: a structure of pointers and numbers.
    let mut public: rdma_cm_event = unsafe { zeroed() };
    public.id = public_id;
    public.listen_id = listener;
    public.event = said.event;
    public.status = said.status;
    public.param.conn = said.parameters();
    Ok(Some(Object::hand_out(public, Event { _private_data: said.private_data, id: state })))
}

/// Takes the oldest event; `None` if it was withdrawn, or programs have no word for it.
fn take(queue: &EventQueue) -> Result<Option<*mut rdma_cm_event>, Errno> {
    let Some(waiting) = queue.pop() else { return Ok(None) };
    let id = waiting.id.clone();
    let event = hand_out(waiting);
    if !matches!(event, Ok(Some(_))) {
        // The program has nothing to acknowledge.
        id.acks.acknowledged(1);
    }
    event
}

/// Waits for an event. No thread is cancelled in here.
pub(crate) fn wait(queue: &EventQueue) -> Result<*mut rdma_cm_event, Errno> {
    loop {
        hand_over();
        queue.tokens.wait();
        if let Some(event) = take(queue)? {
            return Ok(event);
        }
    }
}

/// Returns what an event says of a call that waited for it: that the peer refused, however it rejected the
/// connection, as librdmacm does.
///
/// # Safety
///
/// It is an event that is not acknowledged.
pub(crate) unsafe fn outcome(event: *mut rdma_cm_event) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (kind, status) = unsafe { ((*event).event, (*event).status) };
    match status {
        0 => Ok(()),
        _ if kind == RDMA_CM_EVENT_REJECTED => Err(Errno::REFUSED),
        status => Err(Errno::of(-status)),
    }
}

/// Waits for an event; -1 if there is none and the descriptor does not wait.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    target: *mut *mut rdma_cm_event,
) -> c_int {
    loop {
        // SAFETY: the caller keeps the contract of the ABI: the channel, with its descriptor, stays.
        unsafe {
            let fd = descriptor(|| Ok(Object::<Channel>::of(channel)?.inner().queue.tokens.fd()));
            hand_over();
            if fd < 0 || !tokens::wait(fd) {
                return -1;
            }
            match write_next(channel, target) {
                1 => {}
                result => return result,
            }
        }
    }
}

/// Writes the oldest event; returns 1 if there is none after all.
unsafe fn write_next(channel: *mut rdma_event_channel, target: *mut *mut rdma_cm_event) -> c_int {
    let mut again = false;
    let result = minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let channel = unsafe { Object::<Channel>::of(channel)? };
        match take(&channel.inner().queue)? {
            // SAFETY: as above.
            Some(event) => unsafe { target.write(event) },
            None => again = true,
        }
        Ok(())
    });
    if again { 1 } else { result }
}

/// Acknowledges an event, and frees it.
///
/// # Safety
///
/// It is null, or an event that is not acknowledged.
pub(crate) unsafe fn acknowledge(event: *mut rdma_cm_event) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { Object::<Event>::take_back(event)? };
    let state = object.inner().id.clone();
    drop(object);
    state.acks.acknowledged(1);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    minus_one(|| unsafe { acknowledge(event) })
}

#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: u32) -> *const c_char {
    const TEXTS: [&CStr; 16] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    TEXTS.get(event as usize).copied().unwrap_or(c"UNKNOWN EVENT").as_ptr()
}

/// An event that a program would have to say: on iWARP there is none.
#[unsafe(no_mangle)]
extern "C" fn rdma_notify(_id: *mut rdma_cm_id, _event: u32) -> c_int {
    0
}
