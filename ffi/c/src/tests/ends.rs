//! Two devices with a link between them, and a connection over it.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::thread;

use crate::advertisement::*;
use crate::completion::*;
use crate::connection::*;
use crate::device::*;
use crate::error::warpline_last_error;
use crate::memory::*;
use crate::queue_pair::*;
use crate::window::*;
use crate::work::*;

/// Milliseconds that anything may take before a test fails. No test waits that long unless something is wrong.
pub const PATIENCE: i32 = 30_000;
pub const FAR: &CStr = c"198.18.0.2";
pub const PORT: u16 = 4711;
pub const OCTETS: usize = 4096;

/// What a call wrote a handle to, or the reason why not.
pub fn made<T>(make: impl FnOnce(*mut *mut T) -> i32) -> *mut T {
    let mut handle = null_mut();
    let result = make(&raw mut handle);
    assert_eq!((result, handle.is_null()), (0, false), "{}", last_error());
    handle
}

pub fn last_error() -> String {
    // SAFETY: it is never null, and good until the next call of this thread.
    unsafe { CStr::from_ptr(warpline_last_error()) }.to_str().unwrap().into()
}

/// A handle from one thread that another uses, as the header allows.
#[derive(Clone, Copy)]
pub struct Sent<T>(pub *mut T);

// SAFETY: the things behind handles are for all threads: the Rust interface is, and each test's compiler checks nothing less.
unsafe impl<T: Sync> Send for Sent<T> {}

impl<T> Sent<T> {
    pub fn get(self) -> *mut T {
        self.0
    }
}

pub fn attr(addresses: &'static CStr) -> DeviceAttr {
    DeviceAttr {
        addresses: addresses.as_ptr(),
        routes: null(),
        mtu: 9000,
        vlan: 0,
        flags: 0,
        lcore: 0,
        window: 0,
    }
}

pub fn devices() -> (*mut Device, *mut Device) {
    let (a, b) = (attr(c"198.18.0.1/24"), attr(c"198.18.0.2/24"));
    let mut far = null_mut();
    // SAFETY: the pointers are good.
    let near = made(|near| unsafe { warpline_open_pair(&raw const a, &raw const b, near, &raw mut far) });
    assert!(!far.is_null());
    (near, far)
}

/// One end of a connection, with memory of its own and all rights to it.
pub struct End {
    pub pd: *mut Pd,
    pub cq: *mut Cq,
    pub qp: *mut Qp,
    pub mr: *mut Mr,
}

#[expect(clippy::undocumented_unsafe_blocks, reason = "every handle is good until the end is dropped")]
impl End {
    pub fn new(device: *mut Device) -> Self {
        Self::with(device, null_mut())
    }

    pub fn with(device: *mut Device, srq: *mut Srq) -> Self {
        let pd = made(|pd| unsafe { warpline_pd_create(device, pd) });
        Self::of(pd, srq)
    }

    pub fn of(pd: *mut Pd, srq: *mut Srq) -> Self {
        let cq = made(|cq| unsafe { warpline_cq_create(256, true, cq) });
        let qp = made(|qp| unsafe { warpline_qp_create(pd, cq, cq, srq, null(), qp) });
        let access = WARPLINE_ACCESS_LOCAL_WRITE
            | WARPLINE_ACCESS_REMOTE_READ
            | WARPLINE_ACCESS_REMOTE_WRITE
            | WARPLINE_ACCESS_REMOTE_ATOMIC;
        let mr = made(|mr| unsafe { warpline_mr_allocate(pd, null_mut(), OCTETS, access, mr) });
        Self { pd, cq, qp, mr }
    }

    /// A range of its memory.
    pub fn sge(&self, offset: usize, octets: u32) -> Sge {
        Sge { addr: self.addr(offset), octets, stag: unsafe { warpline_mr_stag(self.mr) } }
    }

    pub fn addr(&self, offset: usize) -> u64 {
        let start = unsafe { warpline_mr_address(self.mr) };
        start as u64 + offset as u64
    }

    pub fn put(&self, offset: usize, octets: &[u8]) {
        assert!(offset + octets.len() <= OCTETS);
        unsafe {
            let start = warpline_mr_address(self.mr).cast::<u8>().add(offset);
            start.copy_from_nonoverlapping(octets.as_ptr(), octets.len());
        }
    }

    pub fn get(&self, offset: usize, octets: usize) -> Vec<u8> {
        assert!(offset + octets <= OCTETS);
        let mut copy = vec![0; octets];
        unsafe {
            let start = warpline_mr_address(self.mr).cast::<u8>().add(offset);
            start.copy_to_nonoverlapping(copy.as_mut_ptr(), octets);
        }
        copy
    }

    pub fn post_recv(&self, wr_id: u64, offset: usize, octets: u32) {
        let sge = self.sge(offset, octets);
        let wr = RecvWr { wr_id, next: null(), sg_list: &raw const sge, num_sge: 1 };
        let result = unsafe { warpline_post_recv(self.qp, &raw const wr, null_mut()) };
        assert_eq!(result, 0, "{}", last_error());
    }

    pub fn post_send(&self, wr: &SendWr) {
        assert_eq!(self.try_send(wr), 0, "{}", last_error());
    }

    /// What [`warpline_post_send`] says.
    pub fn try_send(&self, wr: &SendWr) -> i32 {
        unsafe { warpline_post_send(self.qp, wr, null_mut()) }
    }

    pub fn wc(&self) -> Wc {
        let mut wc = Wc::default();
        let result = unsafe { warpline_cq_wait(self.cq, &raw mut wc, PATIENCE) };
        assert_eq!(result, 1, "a completion");
        wc
    }

    pub fn completed(&self) -> Wc {
        let wc = self.wc();
        assert_eq!(wc.status, 0, "{wc:?}");
        wc
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: the end is the only one that has them.
        unsafe {
            // The order is free.
            warpline_pd_destroy(self.pd);
            warpline_cq_destroy(self.cq);
            warpline_mr_destroy(self.mr);
            warpline_qp_destroy(self.qp);
        }
    }
}

/// Memory of an end beside its usual.
pub struct Memory(*mut Mr);

impl Memory {
    pub fn new(end: &End, octets: usize, access: u32) -> Self {
        // SAFETY: the end's handle is good until it is dropped.
        Self(made(|mr| unsafe { warpline_mr_allocate(end.pd, null_mut(), octets, access, mr) }))
    }

    pub fn stag(&self) -> u32 {
        // SAFETY: the handle is good until it is given back with `self`.
        unsafe { warpline_mr_stag(self.0) }
    }

    pub fn octets(&self) -> Vec<u8> {
        // SAFETY: as above; there are as many octets, which nobody changes while a test looks at them.
        unsafe {
            let start = warpline_mr_address(self.0).cast::<u8>();
            std::slice::from_raw_parts(start, warpline_mr_octets(self.0)).to_vec()
        }
    }

    pub fn advertisement(&self, offset: usize, octets: u32) -> Result<Advertisement, i32> {
        let mut place = Advertisement::default();
        // SAFETY: as above; `place` may be written.
        let result = unsafe { warpline_mr_advertisement(self.0, offset, octets, &raw mut place) };
        if result == 0 { Ok(place) } else { Err(result) }
    }

    /// `range` is the first octet and how many.
    pub fn fast_registration(&self, range: (usize, usize), access: u32, one_stream: bool) -> Grant {
        let mut grant = Grant::default();
        // SAFETY: as above; `grant` may be written.
        let result = unsafe {
            warpline_mr_fast_registration(self.0, range.0, range.1, access, one_stream, &raw mut grant)
        };
        assert_eq!(result, 0, "{}", last_error());
        grant
    }

    /// What [`warpline_mr_deregister`] says; with 0 the handle is gone.
    pub fn deregister(&mut self, timeout_ms: i32) -> i32 {
        // SAFETY: as above.
        let result = unsafe { warpline_mr_deregister(self.0, timeout_ms) };
        if result == 0 {
            self.0 = null_mut();
        }
        result
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; null is nothing.
        unsafe { warpline_mr_destroy(self.0) };
    }
}

/// A window of an end.
pub struct Window(*mut Mw);

impl Window {
    pub fn new(end: &End) -> Self {
        // SAFETY: the end's handle is good until it is dropped.
        Self(made(|mw| unsafe { warpline_mw_allocate(end.pd, mw) }))
    }

    pub fn stag(&self) -> u32 {
        // SAFETY: the handle is good until it is given back with `self`.
        unsafe { warpline_mw_stag(self.0) }
    }

    pub fn advertisement(&self, offset: u64, octets: u32) -> Result<Advertisement, i32> {
        let mut place = Advertisement::default();
        // SAFETY: as above; `place` may be written.
        let result = unsafe { warpline_mw_advertisement(self.0, offset, octets, &raw mut place) };
        if result == 0 { Ok(place) } else { Err(result) }
    }

    /// `range` is the first octet and how many.
    pub fn binding(&self, memory: &Memory, range: (usize, usize), access: u32) -> Result<Grant, i32> {
        let mut grant = Grant::default();
        // SAFETY: as above; `grant` may be written.
        let result =
            unsafe { warpline_mw_binding(self.0, memory.0, range.0, range.1, access, &raw mut grant) };
        if result == 0 { Ok(grant) } else { Err(result) }
    }

    pub fn deallocate(mut self) -> i32 {
        // SAFETY: as above.
        let result = unsafe { warpline_mw_deallocate(self.0, PATIENCE) };
        if result == 0 {
            self.0 = null_mut();
        }
        result
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; null is nothing.
        unsafe { warpline_mw_destroy(self.0) };
    }
}

/// The message with an advertisement.
pub fn encoded(advertisement: &Advertisement) -> [u8; WARPLINE_ADVERTISEMENT_OCTETS as usize] {
    let mut message = [0; WARPLINE_ADVERTISEMENT_OCTETS as usize];
    // SAFETY: there are as many octets as the header asks for.
    let result = unsafe { warpline_advertisement_encode(advertisement, message.as_mut_ptr().cast()) };
    assert_eq!(result, 0, "{}", last_error());
    message
}

pub fn decoded(message: &[u8]) -> Result<Advertisement, i32> {
    let mut place = Advertisement::default();
    // SAFETY: there are as many octets; `place` may be written.
    let result =
        unsafe { warpline_advertisement_decode(message.as_ptr().cast(), message.len(), &raw mut place) };
    if result == 0 { Ok(place) } else { Err(result) }
}

/// A signaled request of `opcode` with no memory.
pub fn bare(opcode: u32) -> SendWr {
    SendWr { sg_list: null(), num_sge: 0, ..request(opcode, &Sge::default()) }
}

/// A signaled request of `opcode` with one range of memory.
pub fn request(opcode: u32, sge: &Sge) -> SendWr {
    SendWr {
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

pub fn param(private_data: &[u8]) -> ConnParam {
    ConnParam {
        private_data: private_data.as_ptr().cast::<c_void>(),
        private_data_octets: private_data.len() as u32,
        timeout_ms: 0,
        ird: 0,
        ord: 0,
        no_reads: false,
    }
}

pub fn no_reply() -> ConnReply {
    ConnReply { private_data: [0xee; 512], private_data_octets: u32::MAX, ird: u16::MAX, ord: u16::MAX }
}

/// Connects two ends by what C has for it; gives what the near one was told.
pub fn connect(far_device: *mut Device, near: &End, far: &End) -> ConnReply {
    // SAFETY: the handles are good, and so are the pointers to what this function has.
    unsafe {
        let listener = made(|listener| warpline_listen(far_device, PORT, 0, listener));
        let near_qp = Sent(near.qp);
        let connecting = thread::spawn(move || {
            let (mut reply, asks) = (no_reply(), param(b"let me in"));
            let result = warpline_connect(near_qp.get(), FAR.as_ptr(), PORT, &raw const asks, &raw mut reply);
            assert_eq!(result, 0, "{}", last_error());
            reply
        });
        let request = made(|request| warpline_get_request(listener, PATIENCE, request));
        let mut octets = 0;
        let asked = warpline_request_private_data(request, &raw mut octets);
        assert_eq!(std::slice::from_raw_parts(asked.cast::<u8>(), octets), b"let me in");
        let answer = param(b"come in");
        assert_eq!(warpline_accept(request, far.qp, &raw const answer), 0, "{}", last_error());
        warpline_listener_destroy(listener);
        connecting.join().unwrap()
    }
}

/// Two devices and a connection. The devices are given back at once: the ends keep them.
pub fn connected() -> (End, End) {
    let (near_device, far_device) = devices();
    let (near, far) = (End::new(near_device), End::new(far_device));
    connect(far_device, &near, &far);
    // SAFETY: nobody uses them any more.
    unsafe {
        warpline_close(near_device);
        warpline_close(far_device);
    }
    (near, far)
}
