//! Two devices with a link between them, and a connection over it.

use std::ffi::{CStr, c_void};
use std::net::Ipv4Addr;
use std::ptr::null;
use std::thread;

use warpline::link::boxed;
use warpline::link::sim::{self, EndConfig, Network};
use warpline::{DeviceConfig, PollThread};

use super::handles::*;
use crate::completion::*;
use crate::connection::*;
use crate::device::*;
use crate::error::Failure;
use crate::extensible::Flag;
use crate::memory::*;
use crate::pointer::hand_out;
use crate::queue_pair::*;
use crate::work::*;

/// Milliseconds that anything may take before a test fails. No test waits that long unless something is
/// wrong.
pub(super) const PATIENCE: i32 = 120_000;
pub(super) const FAR: &CStr = c"198.18.0.2";
pub(super) const PORT: u16 = 4711;
pub(super) const BYTES: usize = 4096;

pub(super) const NEAR_DEVICE: &CStr = c"ring,mtu=9000,address=198.18.0.1/24";
pub(super) const FAR_DEVICE: &CStr = c"ring,mtu=9000,address=198.18.0.2/24";

/// The attributes that a null pointer stands for.
pub(super) const ATTR: DeviceAttr =
    DeviceAttr { size: size_of::<DeviceAttr>(), eal: null(), flags: 0, lcore: 0, window: 0, reserved: 0 };

pub(super) const LISTEN_ATTR: ListenAttr = ListenAttr {
    size: size_of::<ListenAttr>(),
    backlog: 0,
    startup_timeout_ms: 0,
    first_message_timeout_ms: 0,
    decision_timeout_ms: 0,
    markers: Flag::CLEAR,
    permissive: Flag::CLEAR,
    reuse_address: Flag::CLEAR,
    reserved: [0; 5],
};

pub(super) const QP_ATTR: QpAttr = QpAttr {
    size: size_of::<QpAttr>(),
    send_depth: 0,
    recv_depth: 0,
    rnr_timeout_ms: 0,
    disconnect_timeout_ms: 0,
    keep_open: Flag::CLEAR,
    single_threaded: Flag::CLEAR,
    weight: 0,
    reserved: [0; 5],
    user_timeout_ms: 0,
    keepalive_idle_ms: 0,
    keepalive_interval_ms: 0,
    keepalive_probes: 0,
    rate_limit: 0,
};

pub(super) const CQ_ATTR: CqAttr = CqAttr {
    size: size_of::<CqAttr>(),
    capacity: 256,
    sleepable: Flag::CLEAR,
    single_threaded: Flag::CLEAR,
    reserved: [0; 2],
};

pub(super) fn devices() -> (Handle<Device>, Handle<Device>) {
    Handle::open_pair(NEAR_DEVICE, None, FAR_DEVICE, None).unwrap()
}

/// Two devices as those of [`devices`], and the link between them, whose frames a test may lose. The first
/// device is its end A.
pub(super) fn watched_devices() -> (Handle<Device>, Handle<Device>, Network) {
    let (near, far) = sim::link(0, EndConfig::a(), EndConfig::b());
    let network = near.network();
    let start = |device, last| {
        let config = DeviceConfig::new(Ipv4Addr::new(198, 18, 0, last), 24);
        Handle::made(warpline_device_close, |place| {
            let start =
                || Ok(Device(warpline::Device::start(boxed(device), &config, PollThread::default())?));
            // SAFETY: the place may be written.
            unsafe { hand_out(place, start) }.map_or_else(Failure::report, |()| 0)
        })
        .unwrap()
    };
    (start(near, 1), start(far, 2), network)
}

/// One end of a connection, with memory of its own and all rights to it. Its handles are given back in this
/// order, which is none that anything asks for.
pub(super) struct End {
    pub pd: Handle<Pd>,
    pub cq: Handle<Cq>,
    pub mr: Handle<Mr>,
    pub qp: Handle<Qp>,
}

impl End {
    pub(super) fn new(device: &Handle<Device>) -> Self {
        Self::of(device.pd(), None)
    }

    pub(super) fn of(pd: Handle<Pd>, srq: Option<&Handle<Srq>>) -> Self {
        let cq = Handle::new(256, true);
        let qp = pd.qp(&cq, srq, None);
        let access = WARPLINE_ACCESS_LOCAL_WRITE
            | WARPLINE_ACCESS_REMOTE_READ
            | WARPLINE_ACCESS_REMOTE_WRITE
            | WARPLINE_ACCESS_REMOTE_ATOMIC;
        let mr = pd.allocate(None, BYTES, access).unwrap();
        Self { pd, cq, mr, qp }
    }

    /// A range of its memory.
    pub(super) fn sge(&self, offset: usize, bytes: u32) -> Sge {
        Sge { addr: self.addr(offset), length: bytes, stag: self.mr.stag() }
    }

    pub(super) fn addr(&self, offset: usize) -> u64 {
        self.mr.address() as u64 + offset as u64
    }

    pub(super) fn put(&self, offset: usize, bytes: &[u8]) {
        self.mr.put(offset, bytes);
    }

    pub(super) fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        self.mr.get(offset, bytes)
    }

    pub(super) fn post_recv(&self, wr_id: u64, offset: usize, bytes: u32) {
        let sge = self.sge(offset, bytes);
        let wr = receive(wr_id, &sge);
        assert_eq!(self.qp.post_recv(&wr), (0, null()), "{}", last_error());
    }

    pub(super) fn post_send(&self, wr: &SendWr) {
        assert_eq!(self.qp.post_send(wr), (0, null()), "{}", last_error());
    }

    pub(super) fn wc(&self) -> Wc {
        self.cq.wait(PATIENCE).expect("a completion")
    }

    pub(super) fn completed(&self) -> Wc {
        let wc = self.wc();
        assert_eq!(wc.status, 0, "{wc:?}");
        wc
    }
}

/// Whether a file descriptor becomes readable in time.
pub(super) fn readable(fd: i32, timeout_ms: i32) -> bool {
    let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: it is one `pollfd`.
    unsafe { libc::poll(&raw mut asked, 1, timeout_ms) == 1 }
}

/// A receive into one range of memory.
pub(super) fn receive(wr_id: u64, sge: &Sge) -> RecvWr {
    RecvWr { size: size_of::<RecvWr>(), wr_id, next: null(), sg_list: sge, num_sge: 1, reserved: 0 }
}

/// A signaled request of `opcode` with no memory.
pub(super) fn bare(opcode: u32) -> SendWr {
    SendWr { sg_list: null(), num_sge: 0, ..request(opcode, &Sge::default()) }
}

/// A signaled request of `opcode` with one range of memory.
pub(super) fn request(opcode: u32, sge: &Sge) -> SendWr {
    SendWr {
        size: size_of::<SendWr>(),
        wr_id: u64::from(opcode) + 1000,
        next: null(),
        sg_list: sge,
        num_sge: 1,
        opcode,
        flags: WARPLINE_SEND_SIGNALED,
        remote_stag: 0,
        remote_addr: 0,
        immediate: 0,
        compare_add: 0,
        swap: 0,
        compare_add_mask: 0,
        swap_mask: 0,
        grant: null(),
    }
}

pub(super) fn param(private_data: &[u8]) -> ConnParam {
    ConnParam {
        size: size_of::<ConnParam>(),
        private_data: private_data.as_ptr().cast::<c_void>(),
        private_data_len: private_data.len() as u32,
        timeout_ms: 0,
        ird: 0,
        ord: 0,
        revision: WARPLINE_REVISION_USUAL,
        no_reads: Flag::CLEAR,
        markers: Flag::CLEAR,
        permissive: Flag::CLEAR,
        no_nudges: Flag::CLEAR,
        local_port: 0,
        local_address: null(),
    }
}

/// Connects two ends with the calls of C; returns the reply that the near end received.
pub(super) fn connect(far_device: &Handle<Device>, near: &End, far: &End) -> ConnReply {
    let listener = far_device.listen(PORT).unwrap();
    thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let (result, reply) = near.qp.connect(FAR, PORT, Some(&param(b"let me in")));
            assert_eq!(result, 0, "{}", last_error());
            reply
        });
        let asked = listener.request(PATIENCE).unwrap();
        assert_eq!(asked.private_data(), b"let me in");
        assert_eq!(asked.accept(&far.qp, &param(b"come in")), 0, "{}", last_error());
        connecting.join().unwrap()
    })
}

/// Two devices and a connection. The devices are given back at once: the ends keep them.
pub(super) fn connected() -> (End, End) {
    let (near_device, far_device) = devices();
    let (near, far) = (End::new(&near_device), End::new(&far_device));
    connect(&far_device, &near, &far);
    (near, far)
}
