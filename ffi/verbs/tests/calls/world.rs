//! What the program holds, and what it expects of it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use warpline_verbs::abi::*;

use super::Reached;
use super::input::Input;
use super::structures::Block;

/// What must happen takes less, unless something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// At most as many of a kind.
const MOST: usize = 6;

/// Kinds of handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Context,
    Pd,
    Mr,
    Mw,
    Cq,
    Channel,
    Srq,
    Qp,
    EventChannel,
    Id,
}

pub const KINDS: usize = 10;

/// What is known of a queue pair.
pub struct QueuePair {
    /// The id that it belongs to; null if it was made by itself.
    pub id: *mut rdma_cm_id,
    pub pd: *mut ibv_pd,
    pub queues: [*mut ibv_cq; 2],
    pub srq: *mut ibv_srq,
    pub signals_all: bool,
    /// What was posted and has not completed, by number.
    pub sends: BTreeMap<u64, Posted>,
    /// With the octets that each has room for.
    pub receives: BTreeMap<u64, u64>,
}

/// A send that was posted.
#[derive(Clone, Copy)]
pub struct Posted {
    /// Whether it must complete.
    pub signaled: bool,
    /// Whether `ibv_bind_mw` has posted it: its completion says so, whatever the call had to do for it.
    pub is_bind: bool,
}

/// Registered memory.
pub struct Memory {
    pub block: Block,
    pub may_be_written: bool,
    /// By what a peer knows its first octet.
    pub to: u64,
    pub pd: *mut ibv_pd,
}

/// What is known of a window.
pub struct Window {
    pub pd: *mut ibv_pd,
    /// What it may be bound to.
    pub mr: *mut ibv_mr,
}

/// Everything that the program holds.
pub struct World {
    handles: [Vec<*mut c_void>; KINDS],
    pub queue_pairs: HashMap<usize, QueuePair>,
    /// The receives of shared queues.
    pub shared_receives: HashMap<usize, BTreeMap<u64, u64>>,
    pub memory: HashMap<usize, Memory>,
    pub windows: HashMap<usize, Window>,
    /// Memory that was deregistered.
    retired: Vec<Memory>,
    /// By queue, what it stands on.
    pub queues: HashMap<usize, (*mut ibv_context, *mut ibv_comp_channel)>,
    /// By Protection Domain or shared receive queue, what it stands on.
    pub below: HashMap<usize, *mut c_void>,
    /// Numbers of queue pairs that were destroyed: their completions may still be polled.
    gone: Vec<u32>,
    /// Where pairs connect to, and where its events arrive.
    pub listener: *mut rdma_cm_id,
    pub events: *mut rdma_event_channel,
    /// Events of the program that it has not acknowledged.
    pub held_events: Vec<*mut rdma_cm_event>,
    /// No handles: zeros.
    garbage: Box<[u64; 256]>,
    next_wr_id: u64,
    reached: Reached,
}

/// Makes reading from a descriptor return at once.
pub fn do_not_wait(fd: c_int) {
    // SAFETY: a descriptor that is open.
    unsafe { assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK), 0) };
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl World {
    /// A context with a Protection Domain, a queue and a channel, and a listener.
    pub fn new() -> Self {
        let mut world = Self {
            handles: Default::default(),
            queue_pairs: HashMap::new(),
            shared_receives: HashMap::new(),
            memory: HashMap::new(),
            windows: HashMap::new(),
            retired: Vec::new(),
            queues: HashMap::new(),
            below: HashMap::new(),
            gone: Vec::new(),
            listener: null_mut(),
            events: null_mut(),
            held_events: Vec::new(),
            garbage: Box::new([0; 256]),
            next_wr_id: 1,
            reached: Reached::default(),
        };
        // SAFETY: the handles are good, and the places may be written.
        unsafe {
            let mut count = 0;
            let list = ibv_get_device_list(&raw mut count);
            assert_eq!(count, 1);
            let context = ibv_open_device(*list);
            ibv_free_device_list(list);
            assert!(!context.is_null());
            do_not_wait((*context).async_fd);
            world.add(Kind::Context, context);
            world.events = rdma_create_event_channel();
            do_not_wait((*world.events).fd);
            let ps = rdma_port_space::from(RDMA_PS_TCP);
            assert_eq!(rdma_create_id(world.events, &raw mut world.listener, null_mut(), ps), 0);
            let mut address = super::structures::Address::of([198, 18, 0, 1], 0);
            assert_eq!(rdma_bind_addr(world.listener, address.raw()), 0);
            assert_eq!(rdma_listen(world.listener, 0), 0);
        }
        world
    }

    /// Returns a handle of the kind, in one of sixteen cases each null, one of another kind, or none at all.
    pub fn any<T>(&self, kind: Kind, input: &mut Input<'_>) -> *mut T {
        let choice = input.octet();
        match choice & 15 {
            15 => null_mut(),
            14 => {
                let other = &self.handles[usize::from(choice >> 4) % KINDS];
                let is_other = kind as usize != usize::from(choice >> 4) % KINDS;
                other.last().filter(|_| is_other).map_or(null_mut(), |other| other.cast())
            }
            13 => {
                let middle = (&raw const self.garbage[128]).cast_mut();
                // Some are not aligned.
                middle.wrapping_byte_add(usize::from(choice >> 4) & 9).cast()
            }
            _ => self.nth(kind, choice),
        }
    }

    /// Returns a handle of the kind that is good; null if there is none.
    pub fn good<T>(&self, kind: Kind, input: &mut Input<'_>) -> *mut T {
        self.nth(kind, input.octet())
    }

    fn nth<T>(&self, kind: Kind, choice: u8) -> *mut T {
        let handles = &self.handles[kind as usize];
        match handles.len() {
            0 => null_mut(),
            count => handles[usize::from(choice) % count].cast(),
        }
    }

    /// Returns all handles of a kind.
    pub fn all<T>(&self, kind: Kind) -> Vec<*mut T> {
        self.handles[kind as usize].iter().map(|handle| handle.cast()).collect()
    }

    /// Returns true if a handle is one of the kind.
    pub fn is<T>(&self, kind: Kind, handle: *mut T) -> bool {
        self.handles[kind as usize].contains(&handle.cast())
    }

    /// Returns true if there is room for one more of the kind.
    pub fn has_room(&self, kind: Kind) -> bool {
        self.handles[kind as usize].len() < MOST
    }

    pub fn add<T>(&mut self, kind: Kind, handle: *mut T) {
        assert!(!handle.is_null() && !self.is(kind, handle));
        self.handles[kind as usize].push(handle.cast());
    }

    pub fn remove<T>(&mut self, kind: Kind, handle: *mut T) {
        self.handles[kind as usize].retain(|held| *held != handle.cast());
    }

    /// Adds a queue pair, of `id` unless that is null.
    pub fn add_queue_pair(&mut self, qp: *mut ibv_qp, id: *mut rdma_cm_id, signals_all: bool) {
        // SAFETY: the handle is good.
        let ibv_qp { pd, send_cq, recv_cq, srq, qp_num, .. } = unsafe { qp.read() };
        self.gone.retain(|gone| *gone != qp_num);
        let queues = [send_cq, recv_cq];
        let (sends, receives) = (BTreeMap::new(), BTreeMap::new());
        let model = QueuePair { id, pd, queues, srq, signals_all, sends, receives };
        self.queue_pairs.insert(qp.expose_provenance(), model);
        self.add(Kind::Qp, qp);
    }

    /// Returns the number of the next work request.
    pub fn wr_id(&mut self) -> u64 {
        self.next_wr_id += 1;
        self.next_wr_id
    }

    /// Notes what a call returned that returns 0 or a number of errno(3).
    pub fn record(&mut self, name: &'static str, result: c_int) -> c_int {
        // EIO is a panic: a failure of the library's own.
        assert!((0..134).contains(&result) && result != libc::EIO, "{name}: {result}");
        *self.reached.calls.entry((name, result)).or_default() += 1;
        result
    }

    /// Notes what a call returned that returns 0, or -1 with `errno`. Returns the number.
    pub fn record_minus_one(&mut self, name: &'static str, result: c_int) -> c_int {
        let number = errno();
        assert!(result == 0 || result == -1, "{name}: {result}");
        self.record(name, if result == 0 { 0 } else { number })
    }

    /// Notes what a call returned that returns a pointer, or null with `errno`.
    pub fn record_pointer<T>(&mut self, name: &'static str, pointer: *mut T) -> *mut T {
        let number = errno();
        self.record(name, if pointer.is_null() { number } else { 0 });
        pointer
    }

    /// Polls a queue, and checks what completes.
    pub fn poll(&mut self, cq: *mut ibv_cq) -> usize {
        // SAFETY: the queue is good, and there is room for as many completions.
        let (polled, completions) = unsafe {
            let mut completions: [ibv_wc; 8] = std::mem::zeroed();
            let poll = (*(*cq).context).ops.poll_cq.expect("a function");
            (poll(cq, 8, (&raw mut completions).cast()), completions)
        };
        assert!((0..=8).contains(&polled), "{polled} completions");
        for completion in &completions[..polled as usize] {
            self.completed(completion);
        }
        polled as usize
    }

    /// Checks a completion against what was posted.
    pub fn completed(&mut self, completion: &ibv_wc) {
        let &ibv_wc { wr_id, status, opcode, byte_len, qp_num, .. } = completion;
        *self.reached.completions.entry(status).or_default() += 1;
        if self.gone.contains(&qp_num) {
            return;
        }
        // SAFETY: the handles are good.
        let of = self.all::<ibv_qp>(Kind::Qp).into_iter().find(|qp| unsafe { (**qp).qp_num == qp_num });
        let qp = of.expect("a completion is one of a queue pair").addr();
        let model = self.queue_pairs.get_mut(&qp).expect("it is known");
        if status == IBV_WC_SUCCESS {
            *self.reached.operations.entry(opcode).or_default() += 1;
        }
        if let Some(posted) = model.sends.get(&wr_id) {
            assert!(!posted.is_bind || opcode == IBV_WC_BIND_MW, "{wr_id} is a bind, not {opcode}");
            assert!(status != IBV_WC_SUCCESS || posted.signaled, "{wr_id} is not signaled");
            model.sends.remove(&wr_id);
            let passed_over = model.sends.range(..wr_id).find(|(_, posted)| posted.signaled);
            let earlier = passed_over.map(|send| send.0);
            assert_eq!(earlier, None, "operation {opcode} {wr_id} completes first, with status {status}");
            return;
        }
        let receives = if model.srq.is_null() {
            &mut model.receives
        } else {
            self.shared_receives.get_mut(&model.srq.addr()).expect("it is known")
        };
        let room = receives.remove(&wr_id).unwrap_or_else(|| panic!("{wr_id} was not posted"));
        assert!(status != IBV_WC_SUCCESS || u64::from(byte_len) <= room, "{byte_len} octets for {room}");
    }

    /// Polls all queues, those that belong to ids too.
    pub fn poll_all(&mut self) -> usize {
        let mut queues = self.all(Kind::Cq);
        for qp in self.queue_pairs.values() {
            for cq in qp.queues {
                if !queues.contains(&cq) {
                    queues.push(cq);
                }
            }
        }
        queues.into_iter().map(|cq| self.poll(cq)).sum()
    }

    /// Posts a send that is flushed after everything else, as programs do that drain a queue pair.
    fn post_marker(&mut self, qp: *mut ibv_qp) {
        let wr_id = self.wr_id();
        let mut bad = null_mut();
        let start = Instant::now();
        loop {
            // SAFETY: a structure of numbers and pointers; the handle is good.
            let result = unsafe {
                let mut marker: ibv_send_wr = std::mem::zeroed();
                (marker.wr_id, marker.opcode) = (wr_id, IBV_WR_SEND);
                marker.send_flags = IBV_SEND_SIGNALED;
                let post = (*(*qp).context).ops.post_send.expect("a function");
                post(qp, &raw mut marker, &raw mut bad)
            };
            let model = self.queue_pairs.get_mut(&qp.addr()).expect("it is known");
            match result {
                0 => {
                    model.sends.insert(wr_id, Posted { signaled: true, is_bind: false });
                    return;
                }
                // There is room once others have completed.
                _ => _ = self.poll_all(),
            }
            assert!(result == libc::ENOMEM && start.elapsed() < PATIENCE, "a marker is not posted: {result}");
        }
    }

    /// Polls until everything that was posted has completed.
    fn drain(&mut self) {
        let start = Instant::now();
        while let Some(pending) = self.pending() {
            if self.poll_all() == 0 {
                thread::sleep(Duration::from_micros(20));
            }
            assert!(start.elapsed() < PATIENCE, "not completed in {PATIENCE:?}: {pending}");
        }
    }

    /// Returns a queue pair with work that has to complete, in words.
    fn pending(&self) -> Option<String> {
        self.queue_pairs.iter().find_map(|(qp, model)| {
            let sends: Vec<_> =
                model.sends.iter().filter(|(_, send)| send.signaled).map(|send| send.0).collect();
            let receives: Vec<_> = model.receives.keys().filter(|_| model.srq.is_null()).collect();
            if sends.is_empty() && receives.is_empty() {
                return None;
            }
            // SAFETY: the handle is good, and the place may be written.
            let state = unsafe {
                let mut attr: ibv_qp_attr = std::mem::zeroed();
                let qp = std::ptr::with_exposed_provenance_mut(*qp);
                ibv_query_qp(qp, &raw mut attr, IBV_QP_STATE as c_int, null_mut());
                attr.qp_state
            };
            Some(format!("sends {sends:?}, receives {receives:?}, state {state}"))
        })
    }

    /// Acknowledges all events that the program has taken: what is destroyed waits for that.
    pub fn acknowledge_all(&mut self) {
        for event in std::mem::take(&mut self.held_events) {
            // SAFETY: an event that was taken.
            assert_eq!(unsafe { rdma_ack_cm_event(event) }, 0);
        }
    }

    /// Returns true if something stands on the handle.
    pub fn is_used(&self, kind: Kind, handle: *mut c_void) -> bool {
        let mut queue_pairs = self.queue_pairs.values();
        match kind {
            Kind::Context => {
                let on_it = |other: &*mut c_void| *other == handle;
                let of_channel = |channel: &*mut ibv_comp_channel| {
                    // SAFETY: the handles are good.
                    unsafe { (**channel).context.cast() == handle }
                };
                self.below.values().any(on_it)
                    || self.queues.values().any(|(context, _)| context.cast() == handle)
                    || self.all(Kind::Channel).iter().any(of_channel)
            }
            Kind::Pd => {
                queue_pairs.any(|qp| qp.pd.cast() == handle)
                    || self.memory.values().any(|memory| memory.pd.cast() == handle)
                    || self.windows.values().any(|window| window.pd.cast() == handle)
                    || self.below.values().any(|below| *below == handle)
            }
            Kind::Cq => queue_pairs.any(|qp| qp.queues.contains(&handle.cast())),
            Kind::Channel => self.queues.values().any(|(_, channel)| channel.cast() == handle),
            Kind::Srq => queue_pairs.any(|qp| qp.srq.cast() == handle),
            Kind::Mr | Kind::Mw | Kind::Qp | Kind::EventChannel | Kind::Id => false,
        }
    }

    /// Destroys one handle, which is forgotten if that succeeds: it must, unless something stands on it.
    pub fn destroy(&mut self, kind: Kind, handle: *mut c_void) {
        self.acknowledge_all();
        let is_known = self.is(kind, handle);
        let is_used = self.is_used(kind, handle);
        if is_known && kind == Kind::Qp {
            let model = &self.queue_pairs[&handle.addr()];
            // SAFETY: the handle is good.
            let number = unsafe { (*handle.cast::<ibv_qp>()).qp_num };
            let id = model.id;
            self.gone.push(number);
            if !id.is_null() {
                // SAFETY: the id is good; its queue pair is destroyed by it.
                unsafe { rdma_destroy_qp(id) };
                // SAFETY: as above.
                assert!(unsafe { (*id).qp.is_null() }, "the queue pair of an id is destroyed");
                self.record("rdma_destroy_qp", 0);
                self.forget(kind, handle);
                return;
            }
        }
        if is_known && kind == Kind::Id {
            // SAFETY: the handle is good.
            let qp: *mut c_void = unsafe { (*handle.cast::<rdma_cm_id>()).qp.cast() };
            if !qp.is_null() {
                self.destroy(Kind::Qp, qp);
            }
        }
        // SAFETY: the handles are good, or such that the library knows them for none.
        let (name, result) = unsafe {
            match kind {
                Kind::Context => ("ibv_close_device", ibv_close_device(handle.cast())),
                Kind::Pd => ("ibv_dealloc_pd", ibv_dealloc_pd(handle.cast())),
                Kind::Mr => ("ibv_dereg_mr", ibv_dereg_mr(handle.cast())),
                Kind::Mw => {
                    let context = self.all::<ibv_context>(Kind::Context)[0];
                    ("ibv_dealloc_mw", (*context).ops.dealloc_mw.expect("a function")(handle.cast()))
                }
                Kind::Cq => ("ibv_destroy_cq", ibv_destroy_cq(handle.cast())),
                Kind::Channel => ("ibv_destroy_comp_channel", ibv_destroy_comp_channel(handle.cast())),
                Kind::Srq => ("ibv_destroy_srq", ibv_destroy_srq(handle.cast())),
                Kind::Qp => ("ibv_destroy_qp", ibv_destroy_qp(handle.cast())),
                Kind::EventChannel => {
                    rdma_destroy_event_channel(handle.cast());
                    ("rdma_destroy_event_channel", 0)
                }
                Kind::Id => ("rdma_destroy_id", rdma_destroy_id(handle.cast())),
            }
        };
        let result =
            if kind == Kind::Id { self.record_minus_one(name, result) } else { self.record(name, result) };
        match (is_known, is_used) {
            (false, _) => assert!(kind == Kind::EventChannel || result == libc::EINVAL, "{name}: {result}"),
            (true, true) => assert_eq!(result, libc::EBUSY, "{name}: it is used"),
            // A window may be in use by a peer for longer than the call waits, and memory stays while a
            // window may be bound to it.
            (true, false) if kind == Kind::Mw && result == libc::EBUSY => {}
            (true, false) if kind == Kind::Mr && result == libc::EBUSY => {
                let may_be_bound = self.windows.values().any(|window| window.mr.cast() == handle);
                assert!(may_be_bound, "{name}: no window is bound to the memory");
            }
            (true, false) => {
                assert_eq!(result, 0, "{name}: nothing stands on it");
                self.forget(kind, handle);
            }
        }
    }

    /// Forgets a handle that was destroyed.
    fn forget(&mut self, kind: Kind, handle: *mut c_void) {
        self.remove(kind, handle);
        self.below.remove(&handle.addr());
        match kind {
            Kind::Mr => {
                let mut memory = self.memory.remove(&handle.addr()).expect("it is known");
                memory.block.check(memory.may_be_written);
                // Half of it is freed: AddressSanitizer notices who still reads it. The rest is looked at in
                // the end, for tests without it.
                if memory.block.len() & 1 == 0 {
                    memory.block.keep();
                    self.retired.push(memory);
                }
            }
            Kind::Mw => _ = self.windows.remove(&handle.addr()),
            Kind::Pd => self.forget_domain(handle.cast()),
            Kind::Cq => _ = self.queues.remove(&handle.addr()),
            Kind::Srq => _ = self.shared_receives.remove(&handle.addr()),
            Kind::Qp => _ = self.queue_pairs.remove(&handle.addr()),
            _ => {}
        }
    }

    /// Has no id name a domain any more that was given back: an id keeps that of its last queue pair.
    fn forget_domain(&self, pd: *mut ibv_pd) {
        for id in self.all::<rdma_cm_id>(Kind::Id) {
            // SAFETY: the handle is good, and the field the program's.
            unsafe {
                if (*id).pd == pd {
                    (*id).pd = null_mut();
                }
            }
        }
    }

    /// Ends all connections, waits for everything that was posted, and destroys everything.
    pub fn finish(mut self) -> Reached {
        for qp in self.all::<ibv_qp>(Kind::Qp) {
            // SAFETY: the handle is good, and a structure of numbers.
            unsafe {
                let mut attr: ibv_qp_attr = std::mem::zeroed();
                attr.qp_state = IBV_QPS_ERR;
                assert_eq!(ibv_modify_qp(qp, &raw mut attr, IBV_QP_STATE as c_int), 0);
            }
            self.post_marker(qp);
        }
        self.drain();
        self.acknowledge_all();
        // SAFETY: the listener is the world's own.
        assert_eq!(unsafe { rdma_destroy_id(self.listener) }, 0);
        let order = [
            Kind::Qp,
            Kind::Id,
            Kind::Mw,
            Kind::Mr,
            Kind::Srq,
            Kind::Cq,
            Kind::Channel,
            Kind::Pd,
            Kind::EventChannel,
            Kind::Context,
        ];
        for kind in order {
            for handle in self.all(kind) {
                let start = Instant::now();
                while self.is(kind, handle) {
                    self.destroy(kind, handle);
                    // A response to the peer may be on its way, until the connection of a destroyed queue
                    // pair is given up.
                    let may_wait = kind == Kind::Mw && start.elapsed() < PATIENCE;
                    assert!(!self.is(kind, handle) || may_wait, "{kind:?} is destroyed in the end");
                }
            }
        }
        // SAFETY: the channel is the world's own.
        unsafe { rdma_destroy_event_channel(self.events) };
        for memory in &self.retired {
            memory.block.check(true);
        }
        std::mem::take(&mut self.reached)
    }
}
