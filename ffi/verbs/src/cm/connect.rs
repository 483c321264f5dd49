//! From an address to a connection, and back.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use warpline::{
    ConnectConfig, ListenConfig, ReadDepths, ReadsWanted, RtrKinds, SharedQueuePair, Terms, limits,
};

use super::id::{self, CmId};
use crate::abi::{
    IBV_QP_STATE, ibv_context, ibv_qp_attr, rdma_cm_id, rdma_conn_param, sockaddr as CSockaddr,
};
use crate::adapter::turn;
use crate::errno::{Errno, minus_one, pointer};
use crate::object::Object;
use crate::verbs::qp::QpState;
use crate::verbs::{open, qp};

/// Connections that wait for a listener, at least and by default: programs say less and mean "some".
const BACKLOG_MIN: c_int = 128;
const BACKLOG_USUAL: c_int = 1024;
/// How long a peer that refuses is asked again. perftest's client connects to the same port a second time, at
/// which its server listens again a moment later: adapters take longer to resolve the address.
const REFUSED_PATIENCE: Duration = Duration::from_millis(200);
/// How long the call that accepts waits for the point from which on sends may be posted. A peer that takes
/// longer holds up no server: the event says when the connection is established.
const ACCEPT_WAIT: Duration = Duration::from_secs(1);
/// How long it is looked for without rest, and between looks then.
const ACCEPT_SPIN: Duration = Duration::from_micros(50);
const ACCEPT_PAUSE: Duration = Duration::from_micros(50);

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut CSockaddr) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    minus_one(|| unsafe { bind(id::of(id)?, address) })
}

/// Chooses the local address, and the port if it names none: programs tell it to peers before they listen.
///
/// # Safety
///
/// The address is as the ABI has it.
pub(crate) unsafe fn bind(object: &Object<CmId>, address: *const CSockaddr) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let address = unsafe { id::address(address)? };
    object.id()?.bind_port(address, object.inner().reuses_address.load(Ordering::Relaxed))?;
    object.show()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut CSockaddr,
    destination: *mut CSockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    minus_one(|| unsafe { resolve_addr(id::of(id)?, source, destination) })
}

/// Finds the device that leads to an address.
///
/// # Safety
///
/// The addresses are as the ABI has them; the source may be null.
pub(crate) unsafe fn resolve_addr(
    object: &Object<CmId>,
    source: *const CSockaddr,
    destination: *const CSockaddr,
) -> Result<(), Errno> {
    let id = object.id()?;
    // SAFETY: the caller's promise.
    unsafe {
        if !source.is_null() && id.local().is_none() {
            id.bind_addr(id::address(source)?)?;
        }
        id.resolve_addr(id::address(destination)?)?;
    }
    object.show()?;
    object.complete()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    minus_one(|| resolve_route(unsafe { id::of(id)? }))
}

/// Finds the route.
pub(crate) fn resolve_route(object: &Object<CmId>) -> Result<(), Errno> {
    object.id()?.resolve_route()?;
    object.complete()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { id::of(id)? };
        let id = object.id()?;
        if id.local().is_none() {
            id.bind_addr(([0; 4], 0).into())?;
        }
        let backlog = if backlog <= 0 { BACKLOG_USUAL } else { backlog.max(BACKLOG_MIN) };
        id.listen(&ListenConfig {
            backlog: (backlog as u32).min(limits::BACKLOG_MAX),
            // Programs often have one peer.
            peer_shares: false,
            // A client of siw may have nothing to say for as long as it likes.
            first_fpdu_timeout: None,
            reuse_address: object.inner().reuses_address.load(Ordering::Relaxed),
            ..ListenConfig::default()
        })?;
        object.show()
    })
}

/// Returns the queue pair of an id, if it has one.
unsafe fn own_queue_pair(object: &Object<CmId>) -> Result<Option<Arc<QpState>>, Errno> {
    // SAFETY: the structure is the program's, which does not touch it during the call.
    let own = unsafe { (*object.pointer()).qp };
    if own.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller keeps the contract of the ABI.
    Ok(Some(unsafe { qp::of(own)? }.inner().state.clone()))
}

/// Returns the queue pair of a connection: the id's, or the one that the parameters name.
unsafe fn queue_pair(
    object: &Object<CmId>,
    param: Option<&rdma_conn_param>,
) -> Result<SharedQueuePair, Errno> {
    // SAFETY: the caller keeps the contract of the ABI.
    match unsafe { own_queue_pair(object)? } {
        Some(own) => Ok(own.queue_pair.clone()),
        None => qp::numbered(param.ok_or(Errno::INVALID)?.qp_num),
    }
}

/// Returns the depths of Reads that the program asks for; those that the device has without parameters.
fn depths(param: Option<&rdma_conn_param>) -> ReadDepths {
    let most = ReadDepths { ird: limits::READ_DEPTH_MAX, ord: limits::READ_DEPTH_MAX };
    param.map_or(most, |param| ReadDepths {
        ird: u16::from(param.responder_resources).min(limits::READ_DEPTH_MAX),
        ord: u16::from(param.initiator_depth).min(limits::READ_DEPTH_MAX),
    })
}

/// Returns the Private Data.
///
/// # Safety
///
/// As the ABI has it: as long as it says.
unsafe fn private_data<'a>(start: *const c_void, len: u8) -> Result<&'a [u8], Errno> {
    match (start.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::INVALID),
        // SAFETY: the caller's promise.
        (false, len) => Ok(unsafe { slice::from_raw_parts(start.cast(), len.into()) }),
    }
}

/// Returns the queue pair of a connection, and the Private Data of its parameters.
///
/// # Safety
///
/// All is as the ABI has it.
unsafe fn asked<'a>(
    object: &Object<CmId>,
    param: Option<&'a rdma_conn_param>,
) -> Result<(SharedQueuePair, &'a [u8]), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let private_data = match param {
            Some(param) => private_data(param.private_data, param.private_data_len)?,
            None => &[],
        };
        Ok((queue_pair(object, param)?, private_data))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (object, param) = unsafe { (id::of(id)?, param.as_ref()) };
        // SAFETY: as above.
        let (qp, private_data) = unsafe { asked(object, param)? };
        // Either end may send first, as on InfiniBand, if the peer knows of it.
        let terms = Terms { depths: depths(param), rtr: RtrKinds::all(), ..Terms::initiator() };
        let config = ConnectConfig {
            private_data: private_data.into(),
            terms,
            refused_patience: REFUSED_PATIENCE,
            ..ConnectConfig::default()
        };
        let id = object.id()?;
        // SAFETY: as above.
        object.inner().state.connects(unsafe { own_queue_pair(object)? }.as_ref());
        id.connect(&qp, &config)?;
        object.complete()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (object, param) = unsafe { (id::of(id)?, param.as_ref()) };
        // SAFETY: as above.
        let (qp, private_data) = unsafe { asked(object, param)? };
        let reads = ReadsWanted { depths: param.map(|_| depths(param)), ..ReadsWanted::default() };
        object.id()?.accept(&qp, reads, private_data)?;
        if object.waits() {
            return object.complete();
        }
        accepted(object)
    })
}

/// Waits until sends may be posted on a connection that is being accepted: programs post when the call
/// returns.
fn accepted(object: &Object<CmId>) -> Result<(), Errno> {
    let start = Instant::now();
    loop {
        match object.inner().state.outcome() {
            Some(0) => return Ok(()),
            Some(errno) => return Err(Errno::of(errno)),
            None if start.elapsed() > ACCEPT_WAIT => return Ok(()),
            None if turn() => {}
            None if start.elapsed() > ACCEPT_SPIN => thread::sleep(ACCEPT_PAUSE),
            None => std::hint::spin_loop(),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, start: *const c_void, len: u8) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (object, private_data) = unsafe { (id::of(id)?, private_data(start, len)?) };
        Ok(object.id()?.reject(private_data)?)
    })
}

/// Connections of queue pairs that the manager does not know are open when they are established here.
#[unsafe(no_mangle)]
extern "C" fn rdma_establish(_id: *mut rdma_cm_id) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { id::of(id)? };
        object.id()?.disconnect()?;
        object.complete()
    })
}

/// What `ibv_modify_qp` is to be asked for: the state, which is all there is on iWARP.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            id::of(id)?;
            if attr.is_null() || mask.is_null() {
                return Err(Errno::INVALID);
            }
            mask.write(IBV_QP_STATE as c_int);
        }
        Ok(())
    })
}

/// Returns the open devices, with a null behind the last.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    pointer(|| {
        let context = open::shared()?.context_pointer();
        // SAFETY: memory for two pointers, which `rdma_free_devices` gives back.
        let list: *mut *mut ibv_context = unsafe { libc::calloc(2, size_of::<usize>()) }.cast();
        if list.is_null() {
            return Err(Errno::NO_MEMORY);
        }
        // SAFETY: the list has room for it, and the caller for the number unless it is null.
        unsafe {
            *list = context;
            if !count.is_null() {
                *count = 1;
            }
        }
        Ok(list)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: it is from `rdma_get_devices`, or null.
    unsafe { libc::free(list.cast()) };
}
