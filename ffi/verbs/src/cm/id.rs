//! Ids: what is to become a connection or a listener, and is one.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use warpline::cm::{EventKind, Id};

use super::channel::{self, Channel, EventQueue, Waiting};
use super::{event, sockaddr};
use crate::abi::{
    IBV_QPT_RC, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_PS_IB, RDMA_PS_TCP,
    ibv_qp_init_attr, rdma_cm_id, rdma_event_channel, rdma_port_space, sockaddr as CSockaddr,
};
use crate::acks::Acks;
use crate::adapter::{running, started};
use crate::errno::{Errno, minus_one, unsupported};
use crate::object::{Kind, Object, zeroed};
use crate::registry::ReportsConnections;
use crate::registry::Running;
use crate::verbs::qp::QpState;
use crate::verbs::{open, pd};

/// An id of a program.
pub(crate) struct CmId {
    pub(crate) state: Arc<IdState>,
    /// There once it is bound, resolved, or asked for a connection.
    id: OnceLock<Id>,
    /// Whether calls wait for what comes of them: the id has a channel of its own.
    waits: AtomicBool,
    pub(crate) reuses_address: AtomicBool,
    /// How queue pairs of connections are made that an endpoint takes.
    pub(crate) endpoint: Mutex<Option<ibv_qp_init_attr>>,
}

// SAFETY: the pointers in the attributes are the program's, which are handed back to it alone.
unsafe impl Send for CmId {}
// SAFETY: as for `Send`.
unsafe impl Sync for CmId {}

impl Kind for CmId {
    type Public = rdma_cm_id;
    const MARK: u64 = 0x7761_7270_6964_3030;
}

/// What of an id takes part in events.
pub(crate) struct IdState {
    /// Where its events arrive now; nowhere from when it is destroyed.
    queue: Mutex<Option<Arc<EventQueue>>>,
    pointer: OnceLock<usize>,
    /// Events that the program has to acknowledge.
    pub(crate) acks: Acks,
    /// Whether a connection has come about, or will not any more: a number of errno(3) then.
    outcome: AtomicI32,
    /// The queue pair of the id that is being connected, which the program may destroy meanwhile.
    connecting: Mutex<Weak<QpState>>,
}

/// Not yet.
const PENDING: i32 = -1;

impl ReportsConnections for IdState {
    fn report(self: Arc<Self>, kind: EventKind) {
        match &kind {
            EventKind::Established { .. } => self.outcome.store(0, Ordering::Release),
            EventKind::AcceptError(_) | EventKind::DeviceRemoval => {
                self.outcome.store(Errno::IO.number(), Ordering::Release);
            }
            _ => {}
        }
        // Under the lock: an event does not pass an id that moves to another channel, or leaves.
        let place = self.place();
        if let Some(queue) = &*place {
            queue.push(Waiting { id: self.clone(), kind });
        }
    }
}

impl IdState {
    fn new(queue: Arc<EventQueue>) -> Self {
        Self {
            queue: Mutex::new(Some(queue)),
            pointer: OnceLock::new(),
            acks: Acks::default(),
            outcome: AtomicI32::new(PENDING),
            connecting: Mutex::default(),
        }
    }

    /// Notes the queue pair of the id that is to be connected; `None` if it is the program's own.
    pub(crate) fn connects(&self, qp: Option<&Arc<QpState>>) {
        let qp = qp.map_or_else(Weak::new, Arc::downgrade);
        *self.connecting.lock().unwrap_or_else(PoisonError::into_inner) = qp;
    }

    /// Ends the queue pair of the id, whose connection is rejected, as librdmacm does: programs wait until
    /// its receives are flushed.
    pub(crate) fn fail_queue_pair(&self) {
        let qp = self.connecting.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(qp) = qp {
            qp.fail();
        }
    }

    fn place(&self) -> MutexGuard<'_, Option<Arc<EventQueue>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the program's pointer.
    pub(crate) fn pointer(&self) -> *mut rdma_cm_id {
        self.pointer.get().map_or(null_mut(), |pointer| std::ptr::with_exposed_provenance_mut(*pointer))
    }

    /// Returns where its events arrive.
    pub(crate) fn queue(&self) -> Result<Arc<EventQueue>, Errno> {
        self.place().clone().ok_or(Errno::INVALID)
    }

    /// Has no event arrive any more, and takes back those that the program has not taken: they would name an
    /// id that is gone.
    fn leave(self: &Arc<Self>) {
        let queue = self.place().take();
        drop(queue.map(|queue| queue.withdraw(self)));
    }

    /// Returns what has become of a connection that is being accepted; `None` if that is not known yet.
    pub(crate) fn outcome(&self) -> Option<i32> {
        Some(self.outcome.load(Ordering::Acquire)).filter(|outcome| *outcome != PENDING)
    }
}

/// Borrows an id of a program.
///
/// # Safety
///
/// As for [`Object::of`].
pub(crate) unsafe fn of<'a>(id: *mut rdma_cm_id) -> Result<&'a Object<CmId>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Object::of(id) }
}

/// Makes an id whose events arrive at `channel`; with null it has one of its own, and its calls wait.
///
/// # Safety
///
/// As for [`Object::of`], of the channel.
pub(crate) unsafe fn create(
    channel: *mut rdma_event_channel,
    user: *mut c_void,
) -> Result<*mut rdma_cm_id, Errno> {
    let waits = channel.is_null();
    let channel = if waits { channel::create()? } else { channel };
    // SAFETY: the caller's promise, or just made.
    let queue = unsafe { Object::<Channel>::of(channel)? }.inner().queue.clone();
    let state = Arc::new(IdState::new(queue));
    // SAFETY: a structure of C's, of pointers, numbers and addresses.
    let mut public: rdma_cm_id = unsafe { zeroed() };
    public.channel = channel;
    public.context = user;
    public.ps = RDMA_PS_TCP;
    public.qp_type = IBV_QPT_RC;
    let inner = CmId {
        state: state.clone(),
        id: OnceLock::new(),
        waits: AtomicBool::new(waits),
        reuses_address: AtomicBool::new(false),
        endpoint: Mutex::default(),
    };
    let id = Object::hand_out(public, inner);
    let _ = state.pointer.set(id.expose_provenance());
    Ok(id)
}

impl Object<CmId> {
    /// Returns warpline's id, which is made with the first call that needs it.
    pub(crate) fn id(&self) -> Result<&Id, Errno> {
        if let Some(id) = self.inner().id.get() {
            return Ok(id);
        }
        let running = running()?;
        Ok(self.adopt(&running, running.ids.create_id()))
    }

    /// Takes `id` as warpline's.
    pub(crate) fn adopt(&self, running: &Running, id: Id) -> &Id {
        let number = id.number();
        let id = self.inner().id.get_or_init(|| id);
        if id.number() == number {
            running.registry.lock().ids.insert(number, self.inner().state.clone());
        }
        id
    }

    /// Returns warpline's id if there is one.
    pub(crate) fn id_if_any(&self) -> Option<&Id> {
        self.inner().id.get()
    }

    /// Writes the device, and the addresses as far as they are known, to the structure of the program.
    pub(crate) fn show(&self) -> Result<(), Errno> {
        let id = self.id()?;
        let public = self.pointer();
        let bound = id.local().is_some_and(|local| !local.ip().is_unspecified());
        // SAFETY: the structure is the program's, which does not touch it during the call.
        unsafe {
            if id.device().is_some() || bound {
                (*public).verbs = open::shared()?.context_pointer();
                (*public).port_num = 1;
                if (*public).pd.is_null() {
                    (*public).pd = pd::shared(open::shared()?)?;
                }
            }
            let route = &mut (*public).route.addr;
            if let Some(local) = id.local() {
                route.__bindgen_anon_1.src_storage = sockaddr::stored(local).0;
            }
            if let Some(remote) = id.remote() {
                route.__bindgen_anon_2.dst_storage = sockaddr::stored(remote).0;
            }
        }
        Ok(())
    }

    /// Waits for the event that says what has come of a call, if the id is one whose calls wait. The event is
    /// the id's until the next one.
    pub(crate) fn complete(&self) -> Result<(), Errno> {
        if !self.inner().waits.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.release_event();
        let queue = self.inner().state.queue()?;
        let event = event::wait(&queue)?;
        // SAFETY: the structure is the program's, which does not touch it during the call; the event is new.
        unsafe {
            (*self.pointer()).event = event;
            event::outcome(event)
        }
    }

    /// Whether calls wait for what comes of them.
    pub(crate) fn waits(&self) -> bool {
        self.inner().waits.load(Ordering::Relaxed)
    }

    /// Acknowledges the event that the id has kept for the program.
    pub(crate) fn release_event(&self) {
        let public = self.pointer();
        // SAFETY: the structure is the program's, which does not touch it during the call.
        unsafe {
            let event = std::mem::replace(&mut (*public).event, null_mut());
            if !event.is_null() {
                let _ = event::acknowledge(event);
            }
        }
    }

    /// Moves the id, with what has happened to it, to another channel.
    ///
    /// # Safety
    ///
    /// As for [`Object::of`], of the channel.
    pub(crate) unsafe fn migrate(&self, channel: *mut rdma_event_channel) -> Result<(), Errno> {
        let waits = channel.is_null();
        let target = if waits { channel::create()? } else { channel };
        // SAFETY: the caller's promise, or just made.
        let to = unsafe { Object::<Channel>::of(target)? }.inner().queue.clone();
        self.release_event();
        let state = &self.inner().state;
        let mut place = state.place();
        let from = place.as_ref().ok_or(Errno::INVALID)?;
        for waiting in from.withdraw(state) {
            to.push(waiting);
        }
        *place = Some(to);
        drop(place);
        let waited = self.inner().waits.swap(waits, Ordering::Relaxed);
        // SAFETY: the structure is the program's, which does not touch it during the call.
        let before = unsafe { std::mem::replace(&mut (*self.pointer()).channel, target) };
        if waited {
            // SAFETY: it was the id's own.
            drop(unsafe { Object::<Channel>::take_back(before)? });
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    user: *mut c_void,
    port_space: rdma_port_space,
) -> c_int {
    minus_one(|| {
        match port_space {
            RDMA_PS_TCP => {}
            // librdmacm's own sockets try it first.
            RDMA_PS_IB => return Err(Errno::NOT_SUPPORTED),
            _ => return Err(unsupported!("iWARP has connections alone (RDMA_PS_TCP): no datagrams")),
        }
        crate::adapter::adapter().ok_or(Errno::NO_DEVICE)?;
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { id.write(create(channel, user)?) };
        Ok(())
    })
}

/// Destroys an id: it listens no more, and a peer that waits for its answer is rejected.
///
/// # Safety
///
/// As for [`Object::take_back`].
pub(crate) unsafe fn destroy(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { of(id)? };
    object.release_event();
    let state = object.inner().state.clone();
    if let (Some(running), Some(id)) = (started(), object.id_if_any()) {
        running.registry.lock().ids.remove(&id.number());
    }
    state.leave();
    state.acks.wait();
    let (waits, channel) = (object.waits(), {
        // SAFETY: the structure is the program's, which does not touch it during the call.
        unsafe { (*id).channel }
    });
    // SAFETY: the caller's promise.
    drop(unsafe { Object::<CmId>::take_back(id)? });
    if waits {
        // SAFETY: it was the id's own.
        drop(unsafe { Object::<Channel>::take_back(channel)? });
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    minus_one(|| unsafe { destroy(id) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    minus_one(|| unsafe { of(id)?.migrate(channel) })
}

/// Reads an option that is on or off.
///
/// # Safety
///
/// `value` is null, or has `len` octets.
unsafe fn flag(value: *const c_void, len: usize) -> Result<bool, Errno> {
    if value.is_null() || len != size_of::<c_int>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { value.cast::<c_int>().read_unaligned() } != 0)
}

/// Options that act are those of the address; the others are InfiniBand's, and stored by nobody.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { of(id)? };
        // SAFETY: as above: an integer.
        let set = || unsafe { flag(value, len) };
        match (level as u32, option as u32) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
                object.inner().reuses_address.store(set()?, Ordering::Relaxed);
            }
            // A listener at `::` takes peers of IPv4 too. A program that wants them apart has to know.
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) if set()? => return Err(Errno::NO_FUNCTION),
            _ => {}
        }
        Ok(())
    })
}

/// Reads an address that a program means, as one of the device.
///
/// # Safety
///
/// As for [`sockaddr::read`].
pub(crate) unsafe fn address(of: *const CSockaddr) -> Result<SocketAddr, Errno> {
    // SAFETY: the caller's promise.
    let address = unsafe { sockaddr::read(of)? };
    Ok(sockaddr::of_device(address, &running()?.device.config().addresses))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { of(id) }
        .ok()
        .and_then(|object| object.id_if_any()?.local())
        .map_or(0, |local| local.port().to_be())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe { of(id) }
        .ok()
        .and_then(|object| object.id_if_any()?.remote())
        .map_or(0, |remote| remote.port().to_be())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to an id that is being destroyed reaches nobody: the program would see an id that is
    /// gone, and id and event would keep each other.
    #[test]
    fn an_id_that_leaves_has_no_events() {
        let queue = Arc::new(EventQueue::new().unwrap());
        let [leaving, staying] = [(); 2].map(|()| Arc::new(IdState::new(queue.clone())));
        for state in [&leaving, &staying, &leaving] {
            state.clone().report(EventKind::AddressResolved);
        }
        leaving.leave();
        leaving.clone().report(EventKind::Disconnected);
        assert_eq!(Arc::strong_count(&leaving), 1, "events hold it");
        assert!(queue.pop().is_some_and(|waiting| Arc::ptr_eq(&waiting.id, &staying)));
        assert!(queue.pop().is_none());
        assert!(matches!(leaving.queue(), Err(Errno::INVALID)));
    }
}
