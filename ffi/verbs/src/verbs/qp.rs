//! Queue pairs.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use warpline::{
    Access, MemoryRegion, ProtectionDomain, QpConfig, QpNumber, QueuePair, SharedQueuePair, limits,
};

pub(crate) use super::built::INLINE_MAX;
use super::built::Posting;
use super::context::Events;
use super::cq::{self, Cq};
use super::pd::Pd;
use super::srq::{self, Srq};
use crate::abi::{
    IBV_QP_AV, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
    IBV_QPT_RC, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::acks::Acks;
use crate::adapter::{queue_pair_config, running, started, turn};
use crate::errno::{Errno, number, pointer, unsupported};
use crate::object::{Kind, Object, Use, zeroed};
use crate::registry::{ListedQueuePair, Reports};

/// What is added to warpline's numbers of queue pairs: programs take 0 and 1 for InfiniBand's own.
const FIRST_NUMBER: u32 = 256;
/// How long a queue pair without a connection is waited for that is to end, and between looks.
const FAIL_WAIT: Duration = Duration::from_secs(1);
const FAIL_PAUSE: Duration = Duration::from_micros(50);

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) state: Arc<QpState>,
    /// Where inline data of more than a work request holds lies until it is sent.
    pub(crate) inline: Option<InlineArea>,
    pub(crate) signals_all: bool,
    /// For sends that are built call by call, if the program has asked for that.
    pub(crate) posting: Option<Posting>,
    pub(crate) caps: ibv_qp_cap,
    pub(crate) pd: Use<Pd>,
    send_cq: Use<Cq>,
    receive_cq: Use<Cq>,
    _srq: Option<Use<Srq>>,
}

impl Kind for Qp {
    /// The larger structure, of which programs see the first part.
    type Public = ibv_qp_ex;
    const MARK: u64 = 0x7761_7270_7170_3030;
}

/// What of a queue pair takes part in events.
pub(crate) struct QpState {
    pub(crate) queue_pair: SharedQueuePair,
    pub(crate) acks: Arc<Acks>,
    context: Arc<Events>,
    pointer: OnceLock<usize>,
    /// The state that the program has asked for before there was a connection.
    asked: AtomicU32,
}

impl Reports for QpState {
    fn report(&self, kind: u32) {
        if let Some(pointer) = self.pointer.get() {
            self.context.report_of(*pointer, kind, &self.acks);
        }
    }
}

impl QpState {
    /// Returns the state in the words of verbs.
    fn verbs_state(&self) -> u32 {
        match self.queue_pair.state() {
            warpline::QpState::Idle => self.asked.load(Ordering::Relaxed),
            warpline::QpState::ReadyToSend => IBV_QPS_RTS,
            warpline::QpState::Closing => IBV_QPS_SQD,
            warpline::QpState::Terminate | warpline::QpState::Error => IBV_QPS_ERR,
        }
    }

    /// Ends the queue pair, connected or not: what is posted is flushed. One without a connection refuses
    /// sends until it has ended, which takes a moment: programs may post one when this returns.
    pub(crate) fn fail(&self) {
        self.asked.store(IBV_QPS_ERR, Ordering::Relaxed);
        self.queue_pair.abort();
        let start = Instant::now();
        while self.queue_pair.state() == warpline::QpState::Idle && start.elapsed() < FAIL_WAIT {
            if !turn() {
                thread::sleep(FAIL_PAUSE);
            }
        }
    }
}

/// Memory of a queue pair for inline data: a place for each send that may be outstanding, and one.
pub(crate) struct InlineArea {
    pub(crate) region: MemoryRegion,
    places: usize,
    next: AtomicUsize,
}

impl InlineArea {
    /// Returns where the next send has its data. With all others outstanding the send before that one is
    /// done. For the thread that holds the lock of the queue pair.
    pub(crate) fn offset(&self) -> usize {
        self.next.load(Ordering::Relaxed) % self.places * INLINE_MAX
    }

    /// Counts a send that was posted.
    pub(crate) fn posted(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back the last sends that were counted, which were not posted after all.
    pub(crate) fn not_posted(&self, sends: usize) {
        self.next.fetch_sub(sends, Ordering::Relaxed);
    }
}

/// Returns the number by which programs know a queue pair.
pub(crate) const fn number_of(qp: QpNumber) -> u32 {
    qp.0.wrapping_add(FIRST_NUMBER)
}

/// Returns the queue pair that a program's number is of.
pub(crate) fn numbered(number: u32) -> Result<SharedQueuePair, Errno> {
    let number = QpNumber(number.wrapping_sub(FIRST_NUMBER));
    let running = started().ok_or(Errno::INVALID)?;
    let objects = running.registry.lock();
    objects.queue_pairs.get(&number).map(|listed| listed.queue_pair.clone()).ok_or(Errno::INVALID)
}

/// Borrows a queue pair of a program.
///
/// # Safety
///
/// As for [`Object::of`].
pub(crate) unsafe fn of<'a>(qp: *mut ibv_qp) -> Result<&'a Object<Qp>, Errno> {
    // SAFETY: the caller's promise.
    unsafe { Object::of(qp.cast()) }
}

/// Checks what is asked for; returns it as the queue pair has it.
fn granted(cap: &ibv_qp_cap) -> Result<ibv_qp_cap, Errno> {
    let (depth_max, ranges) =
        (limits::WORK_REQUESTS_PER_QUEUE as u32, limits::SCATTER_GATHER_ELEMENTS as u32);
    if cap.max_send_wr > depth_max
        || cap.max_recv_wr > depth_max
        || cap.max_send_sge > ranges
        || cap.max_recv_sge > ranges
        || cap.max_inline_data as usize > INLINE_MAX
    {
        return Err(Errno::INVALID);
    }
    let inline_bytes = limits::INLINE_BYTES as u32;
    let inline_bytes = if cap.max_inline_data > inline_bytes { INLINE_MAX as u32 } else { inline_bytes };
    Ok(ibv_qp_cap {
        max_send_wr: cap.max_send_wr.max(1),
        max_recv_wr: cap.max_recv_wr.max(1),
        max_send_sge: ranges,
        max_recv_sge: ranges,
        max_inline_data: inline_bytes,
    })
}

/// How sends are posted to a queue pair.
#[derive(Clone, Copy)]
pub(crate) enum Sends {
    /// By `ibv_post_send`.
    Posted,
    /// Built call by call too, by functions to which this sets the pointers of the structure.
    Built(fn(&mut ibv_qp_ex)),
}

/// Makes the queue pair itself, with the completion queues of sends and of receives.
fn queue_pair(
    domain: &ProtectionDomain,
    caps: &ibv_qp_cap,
    cqs: [&Object<Cq>; 2],
    srq: Option<&Object<Srq>>,
) -> Result<QueuePair, Errno> {
    let config = QpConfig {
        send_depth: caps.max_send_wr as usize,
        receive_depth: caps.max_recv_wr as usize,
        ..queue_pair_config()
    };
    let [send_queue, receive_queue] = cqs.map(|cq| &cq.inner().queue);
    let made = match srq {
        // Each may hold as many of the shared receives as there are.
        Some(srq) => {
            let receive_depth = srq.inner().queue.depth().min(limits::WORK_REQUESTS_PER_QUEUE);
            let config = QpConfig { receive_depth, ..config };
            domain.queue_pair_sharing(&srq.inner().queue, &config, send_queue, receive_queue)?
        }
        None => domain.queue_pair(&config, send_queue, receive_queue)?,
    };
    Ok(made)
}

/// Makes the area for inline data that is longer than what work requests hold, if `caps` has such.
fn inline_area(domain: &ProtectionDomain, caps: &ibv_qp_cap) -> Result<Option<InlineArea>, Errno> {
    if caps.max_inline_data as usize <= limits::INLINE_BYTES {
        return Ok(None);
    }
    let places = (caps.max_send_wr as usize).next_power_of_two() + 1;
    let region = domain.allocate(places * INLINE_MAX, Access::empty())?;
    Ok(Some(InlineArea { region, places, next: AtomicUsize::new(0) }))
}

/// Makes a queue pair, and writes what it has to `attr`.
///
/// # Safety
///
/// As for [`Object::of`], of all pointers.
pub(crate) unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    sends: Sends,
) -> Result<*mut ibv_qp, Errno> {
    if attr.qp_type != IBV_QPT_RC {
        return Err(unsupported!(
            "iWARP has reliable connections alone (IBV_QPT_RC): no datagrams, no raw packets, no XRC"
        ));
    }
    // SAFETY: the caller's promise.
    let (pd, send_cq, receive_cq) =
        unsafe { (Object::<Pd>::of(pd)?, cq::of(attr.send_cq)?, cq::of(attr.recv_cq)?) };
    // SAFETY: as above.
    let srq = if attr.srq.is_null() { None } else { Some(unsafe { srq::of(attr.srq)? }) };
    let caps = granted(&attr.cap)?;
    let domain = &pd.inner().domain;
    let queue_pair = queue_pair(domain, &caps, [send_cq, receive_cq], srq)?;
    let inline = inline_area(domain, &caps)?;
    let number = queue_pair.number();
    let left_out = running()?.registry.lock().left_out.remove(&number);
    for queue in left_out.iter().flatten().filter_map(Weak::upgrade) {
        queue.admit(number);
    }
    let state = Arc::new(QpState {
        queue_pair: SharedQueuePair::new(queue_pair),
        acks: Arc::default(),
        context: pd.inner().context.inner().events.clone(),
        pointer: OnceLock::new(),
        asked: AtomicU32::new(IBV_QPS_RESET),
    });
    // SAFETY: a structure of C's, of pointers, numbers and POSIX locks.
    let mut extended: ibv_qp_ex = unsafe { zeroed() };
    let posting = match sends {
        Sends::Posted => None,
        Sends::Built(offer) => {
            offer(&mut extended);
            Some(Posting::default())
        }
    };
    let public = &mut extended.qp_base;
    public.context = pd.inner().context.context_pointer();
    public.qp_context = attr.qp_context;
    public.pd = pd.pointer();
    public.send_cq = attr.send_cq;
    public.recv_cq = attr.recv_cq;
    public.srq = attr.srq;
    public.handle = number.0;
    public.qp_num = number_of(number);
    public.state = IBV_QPS_RESET;
    public.qp_type = IBV_QPT_RC;
    attr.cap = caps;
    let inner = Qp {
        state: state.clone(),
        inline,
        signals_all: attr.sq_sig_all != 0,
        posting,
        caps,
        pd: pd.used(),
        send_cq: send_cq.used(),
        receive_cq: receive_cq.used(),
        _srq: srq.map(Object::used),
    };
    let qp: *mut ibv_qp = Object::hand_out(extended, inner).cast();
    let _ = state.pointer.set(qp.expose_provenance());
    let listed = ListedQueuePair::new(state.queue_pair.clone(), state);
    running()?.registry.lock().queue_pairs.insert(number, listed);
    Ok(qp)
}

/// Brings a queue pair that was just made to INIT, as if the program had asked for it.
///
/// # Safety
///
/// As for [`Object::of`].
pub(crate) unsafe fn begin(qp: *mut ibv_qp) -> Result<(), Errno> {
    // SAFETY: the caller's promise; no program has the structure yet.
    unsafe {
        of(qp)?.inner().state.asked.store(IBV_QPS_INIT, Ordering::Relaxed);
        (*qp).state = IBV_QPS_INIT;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller keeps the contract of the ABI.
    pointer(|| unsafe { create(pd, attr.as_mut().ok_or(Errno::INVALID)?, Sends::Posted) })
}

/// Returns what the extended attributes have of the plain ones.
pub(crate) const fn without_extensions(attr: &ibv_qp_init_attr_ex) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    }
}

/// Changes the state: what a connection manager does on InfiniBand is remembered, and the connection has a
/// state of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let (object, attr) = unsafe { (of(qp)?, attr.as_ref().ok_or(Errno::INVALID)?) };
        let mask = mask as u32;
        if mask & IBV_QP_AV != 0 {
            return Err(unsupported!(
                "iWARP queue pairs are connected by the connection manager (rdma_connect): use the option of \
                 the program for that, such as -R"
            ));
        }
        if mask & IBV_QP_STATE == 0 {
            return Ok(());
        }
        let state = &object.inner().state;
        match attr.qp_state {
            IBV_QPS_RESET | IBV_QPS_INIT | IBV_QPS_RTR | IBV_QPS_RTS => {
                state.asked.store(attr.qp_state, Ordering::Relaxed);
            }
            IBV_QPS_SQD => state.queue_pair.disconnect(),
            IBV_QPS_ERR => state.fail(),
            _ => return Err(Errno::INVALID),
        }
        // SAFETY: as above; the field is for programs, and nothing here reads it.
        unsafe { (*qp).state = attr.qp_state };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    number(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe {
            let Qp { state, caps, signals_all, .. } = of(qp)?.inner();
            if let Some(attr) = attr.as_mut() {
                *attr = zeroed();
                attr.qp_state = state.verbs_state();
                attr.cur_qp_state = attr.qp_state;
                attr.cap = *caps;
                attr.port_num = 1;
            }
            if let Some(init_attr) = init_attr.as_mut() {
                *init_attr = ibv_qp_init_attr {
                    qp_context: (*qp).qp_context,
                    send_cq: (*qp).send_cq,
                    recv_cq: (*qp).recv_cq,
                    srq: (*qp).srq,
                    cap: *caps,
                    qp_type: IBV_QPT_RC,
                    sq_sig_all: (*signals_all).into(),
                };
            }
        }
        Ok(())
    })
}

/// Destroys a queue pair. Its connection is closed after what was posted, if that reaches the peer within 50
/// ms: perftest destroys queue pairs before it disconnects. No work request uses memory when this returns.
///
/// # Safety
///
/// As for [`Object::take_back`].
pub(crate) unsafe fn destroy(qp: *mut ibv_qp) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { of(qp)? };
    if object.is_used() {
        return Err(Errno::BUSY);
    }
    let Qp { state, pd, send_cq, receive_cq, .. } = object.inner();
    if let Some(running) = started() {
        let number = state.queue_pair.number();
        let queues = [&send_cq.inner().polled, &receive_cq.inner().polled];
        for queue in queues {
            queue.leave_out(number);
        }
        let mut objects = running.registry.lock();
        objects.queue_pairs.remove(&number);
        objects.left_out.insert(number, queues.map(Arc::downgrade));
    }
    state.queue_pair.disconnect();
    state.queue_pair.fence_drop();
    pd.inner().context.inner().events.withdraw(qp.addr());
    state.acks.wait();
    // SAFETY: as above, once.
    drop(unsafe { Object::<Qp>::take_back(qp.cast())? });
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller keeps the contract of the ABI.
    number(|| unsafe { destroy(qp) })
}
