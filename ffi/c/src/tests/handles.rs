//! Handles that tests cannot misuse: each is good for as long as it lives, is given back once, and its calls
//! get pointers that are good. What is asked of C is so kept here, and tests are safe.

mod byte_stream;
mod cm;
mod stream;

use std::ffi::{CStr, c_void};
use std::ptr::{from_ref, null, null_mut};

use crate::advertisement::*;
use crate::completion::*;
use crate::connection::*;
use crate::device::*;
use crate::error::warpline_last_error;
use crate::event::*;
use crate::memory::*;
use crate::queue_pair::*;
use crate::window::*;
use crate::work::*;

pub(super) use cm::cm_event_text;

/// A handle, and the call that returns it.
pub struct Handle<T> {
    raw: *mut T,
    give_back: unsafe extern "C" fn(*mut T),
}

// SAFETY: any thread may use any handle, says the header, and the Rust interface behind it keeps that word.
unsafe impl<T: Sync> Sync for Handle<T> {}
// SAFETY: as above; whoever has it last gives it back.
unsafe impl<T: Sync> Send for Handle<T> {}

impl<T> Handle<T> {
    /// What `make` has written, or what it has returned.
    pub fn made(
        give_back: unsafe extern "C" fn(*mut T),
        make: impl FnOnce(*mut *mut T) -> i32,
    ) -> Result<Self, i32> {
        let mut raw = null_mut();
        let result = make(&raw mut raw);
        assert_eq!(result == 0, !raw.is_null(), "a handle with success, and none without");
        if result == 0 { Ok(Self { raw, give_back }) } else { Err(result) }
    }

    pub fn raw(&self) -> *mut T {
        self.raw
    }

    /// For a call that returns the handle if it succeeds.
    pub fn lose_if_done(mut self, call: impl FnOnce(*mut T) -> i32) -> Result<(), (i32, Self)> {
        let result = call(self.raw);
        if result != 0 {
            return Err((result, self));
        }
        self.raw = null_mut();
        Ok(())
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: nobody else has it, and null is nothing.
        unsafe { (self.give_back)(self.raw) };
    }
}

impl<T> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.raw)
    }
}

/// What a call has written, or what it has returned when that is not 0.
fn written<T: Default>(call: impl FnOnce(*mut T) -> i32) -> Result<T, i32> {
    let mut place = T::default();
    match call(&raw mut place) {
        0 => Ok(place),
        error => Err(error),
    }
}

pub(super) fn raw_or_null<T>(handle: Option<&Handle<T>>) -> *mut T {
    handle.map_or(null_mut(), Handle::raw)
}

/// Words of the library, which are good for ever.
fn words(text: *const std::ffi::c_char) -> &'static CStr {
    // SAFETY: the header says that they are never null and good for ever.
    unsafe { CStr::from_ptr(text) }
}

pub(super) fn status_text(status: u32) -> &'static CStr {
    words(warpline_wc_status_text(status))
}

pub(super) fn event_text(event: u32) -> &'static CStr {
    words(warpline_event_text(event))
}

pub(super) fn last_error() -> String {
    // SAFETY: it is never null, and good until the next call of this thread.
    unsafe { CStr::from_ptr(warpline_last_error()) }.to_str().unwrap().into()
}

impl Handle<Device> {
    pub fn open_pair(
        a: &CStr,
        a_attr: Option<&DeviceAttr>,
        b: &CStr,
        b_attr: Option<&DeviceAttr>,
    ) -> Result<(Self, Self), i32> {
        let mut far = null_mut();
        let [a_attr, b_attr] = [a_attr, b_attr].map(|attr| attr.map_or(null(), from_ref));
        let near = Self::made(warpline_device_close, |near| {
            // SAFETY: the strings and attributes are good, and the places may be written.
            unsafe { warpline_device_open_pair(a.as_ptr(), a_attr, b.as_ptr(), b_attr, near, &raw mut far) }
        })?;
        assert!(!far.is_null());
        Ok((near, Self { raw: far, give_back: warpline_device_close }))
    }

    pub fn pd(&self) -> Handle<Pd> {
        // SAFETY: the handle is good, and the place may be written.
        Handle::made(warpline_pd_destroy, |pd| unsafe { warpline_pd_create(self.raw, pd) }).unwrap()
    }

    pub fn listen(&self, port: u16) -> Result<Handle<Listener>, i32> {
        self.listen_with(port, None)
    }

    pub fn listen_with(&self, port: u16, attr: Option<&ListenAttr>) -> Result<Handle<Listener>, i32> {
        let attr = attr.map_or(null(), from_ref);
        Handle::made(warpline_listener_destroy, |listener| {
            // SAFETY: as above; the attributes are good or null.
            unsafe { warpline_listen(self.raw, port, attr, listener) }
        })
    }

    pub fn event(&self, timeout_ms: i32) -> Option<Event> {
        let mut event = Event::default();
        // SAFETY: as above.
        let result = unsafe { warpline_get_event(self.raw, &raw mut event, timeout_ms) };
        (result == 1).then_some(event)
    }

    pub fn event_fd(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_event_fd(self.raw) }
    }
}

impl Handle<Pd> {
    pub fn allocate(&self, only: Option<&Handle<Qp>>, bytes: usize, access: u32) -> Result<Handle<Mr>, i32> {
        Handle::made(warpline_mr_destroy, |mr| {
            // SAFETY: the handles are good, and the place may be written.
            unsafe { warpline_mr_allocate(self.raw, raw_or_null(only), bytes, access, mr) }
        })
    }

    /// # Safety
    ///
    /// The memory, of C's promises, stays until it is deregistered.
    pub unsafe fn register(&self, start: *mut u8, bytes: usize, access: u32) -> Result<Handle<Mr>, i32> {
        Handle::made(warpline_mr_destroy, |mr| {
            // SAFETY: as above; the rest is the caller's promise.
            unsafe { warpline_mr_register(self.raw, null_mut(), start.cast(), bytes, access, mr) }
        })
    }

    /// # Safety
    ///
    /// As [`register`](Self::register).
    pub unsafe fn register_at(
        &self,
        start: *mut u8,
        bytes: usize,
        to: u64,
        access: u32,
    ) -> Result<Handle<Mr>, i32> {
        Handle::made(warpline_mr_destroy, |mr| {
            // SAFETY: as above; the rest is the caller's promise.
            unsafe { warpline_mr_register_at(self.raw, null_mut(), start.cast(), bytes, to, access, mr) }
        })
    }

    pub fn srq(&self, depth: u32) -> Handle<Srq> {
        // SAFETY: as above.
        Handle::made(warpline_srq_destroy, |srq| unsafe { warpline_srq_create(self.raw, depth, srq) })
            .unwrap()
    }

    pub fn qp(&self, cq: &Handle<Cq>, srq: Option<&Handle<Srq>>, attr: Option<&QpAttr>) -> Handle<Qp> {
        let (cq, attr) = (cq.raw, attr.map_or(null(), from_ref));
        Handle::made(warpline_qp_destroy, |qp| {
            // SAFETY: as above.
            unsafe { warpline_qp_create(self.raw, cq, cq, raw_or_null(srq), attr, qp) }
        })
        .unwrap()
    }

    pub fn window(&self) -> Handle<Mw> {
        // SAFETY: as above.
        Handle::made(warpline_mw_destroy, |mw| unsafe { warpline_mw_allocate(self.raw, mw) }).unwrap()
    }
}

impl Handle<Mr> {
    pub fn address(&self) -> *mut u8 {
        // SAFETY: the handle is good.
        unsafe { warpline_mr_address(self.raw) }.cast()
    }

    pub fn stag(&self) -> u32 {
        // SAFETY: as above.
        unsafe { warpline_mr_stag(self.raw) }
    }

    pub fn len(&self) -> usize {
        // SAFETY: as above.
        unsafe { warpline_mr_length(self.raw) }
    }

    pub fn is_copied(&self) -> bool {
        // SAFETY: as above.
        unsafe { warpline_mr_is_copied(self.raw) }
    }

    pub fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len());
        // SAFETY: they lie inside; as a device does, which tests look at only when it is done.
        unsafe { self.address().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    pub fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= self.len());
        let mut copy = vec![0; bytes];
        // SAFETY: as above.
        unsafe { self.address().add(offset).copy_to_nonoverlapping(copy.as_mut_ptr(), bytes) };
        copy
    }

    /// All of it.
    pub fn bytes(&self) -> Vec<u8> {
        self.get(0, self.len())
    }

    pub fn advertisement(&self, offset: usize, bytes: u32) -> Result<Advertisement, i32> {
        // SAFETY: the handle is good, and the place may be written.
        written(|place| unsafe { warpline_mr_advertisement(self.raw, offset, bytes, place) })
    }

    /// `range` is the first byte and how many.
    pub fn fast_registration(&self, range: (usize, usize), access: u32, one_stream: bool) -> Grant {
        let (offset, bytes) = range;
        written(|grant| {
            // SAFETY: as above.
            unsafe { warpline_mr_fast_registration(self.raw, offset, bytes, access, one_stream, grant) }
        })
        .unwrap()
    }

    /// Tries in vain to give the memory back while something needs it, whatever time the core needs to say
    /// so: the handle, and why not.
    pub fn deregister_in_vain(self) -> (Self, String) {
        let (mut mr, mut timeout_ms) = (self, 1);
        loop {
            let (error, kept) = mr.deregister(timeout_ms).expect_err("it is needed");
            assert_eq!(error, -libc::EBUSY);
            let words = last_error();
            if !words.contains("did not answer") {
                return (kept, words);
            }
            (mr, timeout_ms) = (kept, timeout_ms * 2);
        }
    }

    /// The handle again if it fails.
    pub fn deregister(self, timeout_ms: i32) -> Result<(), (i32, Self)> {
        // SAFETY: the handle is good, and forgotten when it is gone.
        self.lose_if_done(|mr| unsafe { warpline_mr_deregister(mr, timeout_ms) })
    }
}

impl Handle<Mw> {
    pub fn stag(&self) -> u32 {
        // SAFETY: the handle is good.
        unsafe { warpline_mw_stag(self.raw) }
    }

    pub fn advertisement(&self, offset: u64, bytes: u32) -> Result<Advertisement, i32> {
        // SAFETY: as above, and the place may be written.
        written(|place| unsafe { warpline_mw_advertisement(self.raw, offset, bytes, place) })
    }

    /// `range` is the first byte and how many.
    pub fn binding(&self, memory: &Handle<Mr>, range: (usize, usize), access: u32) -> Result<Grant, i32> {
        // SAFETY: as above.
        written(|grant| unsafe { warpline_mw_binding(self.raw, memory.raw, range.0, range.1, access, grant) })
    }

    /// The same, under `key`.
    pub fn binding_with_key(
        &self,
        key: u16,
        memory: &Handle<Mr>,
        range: (usize, usize),
        access: u32,
    ) -> Result<Grant, i32> {
        // SAFETY: as above.
        written(|grant| unsafe {
            warpline_mw_binding_with_key(self.raw, memory.raw, key, range.0, range.1, access, grant)
        })
    }

    pub fn deallocate(self, timeout_ms: i32) -> Result<(), (i32, Self)> {
        // SAFETY: the handle is good, and forgotten when it is gone.
        self.lose_if_done(|mw| unsafe { warpline_mw_deallocate(mw, timeout_ms) })
    }
}

/// The message with an advertisement.
pub(super) fn encoded(advertisement: &Advertisement) -> [u8; WARPLINE_ADVERTISEMENT_BYTES as usize] {
    let mut message = [0; WARPLINE_ADVERTISEMENT_BYTES as usize];
    // SAFETY: there are as many bytes as the header asks for.
    let result = unsafe { warpline_advertisement_encode(advertisement, message.as_mut_ptr().cast()) };
    assert_eq!(result, 0, "{}", last_error());
    message
}

pub(super) fn decoded(message: &[u8]) -> Result<Advertisement, i32> {
    let (start, bytes) = (message.as_ptr().cast(), message.len());
    // SAFETY: there are as many bytes, and the place may be written.
    written(|place| unsafe { warpline_advertisement_decode(start, bytes, place) })
}

impl Handle<Cq> {
    pub fn new(capacity: u32, sleepable: bool) -> Self {
        // SAFETY: the place may be written.
        Self::made(warpline_cq_destroy, |cq| unsafe { warpline_cq_create(capacity, sleepable, cq) }).unwrap()
    }

    pub fn with(attr: &CqAttr) -> Result<Self, i32> {
        // SAFETY: the structure is as long as it says, and the place may be written.
        Self::made(warpline_cq_destroy, |cq| unsafe { warpline_cq_create_with(attr, cq) })
    }

    pub fn poll(&self, places: &mut [Wc]) -> i32 {
        // SAFETY: the handle is good, and there are as many places.
        unsafe { warpline_cq_poll(self.raw, places.len() as u32, places.as_mut_ptr()) }
    }

    pub fn wait(&self, timeout_ms: i32) -> Option<Wc> {
        let mut wc = Wc::default();
        // SAFETY: as above.
        let result = unsafe { warpline_cq_wait(self.raw, &raw mut wc, timeout_ms) };
        (result == 1).then_some(wc)
    }

    pub fn arm(&self, solicited_only: bool) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cq_arm(self.raw, solicited_only) }
    }

    pub fn fd(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cq_fd(self.raw) }
    }

    pub fn clear(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cq_clear(self.raw) }
    }
}

/// Requests point to what tests keep until they are posted.
impl Handle<Qp> {
    pub fn number(&self) -> u32 {
        // SAFETY: the handle is good.
        unsafe { warpline_qp_number(self.raw) }
    }

    pub fn state(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_qp_state(self.raw) }
    }

    pub fn disconnect(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_disconnect(self.raw) }
    }

    pub fn abort(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_abort(self.raw) }
    }

    pub fn wait_closed(&self, timeout_ms: i32) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_wait_closed(self.raw, timeout_ms) }
    }

    pub fn wait_peer_closed(&self, timeout_ms: i32) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_wait_peer_closed(self.raw, timeout_ms) }
    }

    /// What it returns, and the request that it names.
    pub fn post_send(&self, first: &SendWr) -> (i32, *const SendWr) {
        let mut bad = null();
        // SAFETY: as above, and so is what the requests point to.
        let result = unsafe { warpline_post_send(self.raw, first, &raw mut bad) };
        (result, bad)
    }

    /// As above.
    pub fn post_recv(&self, first: &RecvWr) -> (i32, *const RecvWr) {
        let mut bad = null();
        // SAFETY: as above.
        let result = unsafe { warpline_post_recv(self.raw, first, &raw mut bad) };
        (result, bad)
    }

    /// What it returns, and what it has written.
    pub fn connect(&self, address: &CStr, port: u16, param: Option<&ConnParam>) -> (i32, ConnReply) {
        let (mut reply, param) = (no_reply(), param.map_or(null(), from_ref));
        // SAFETY: as above.
        let result = unsafe { warpline_connect(self.raw, address.as_ptr(), port, param, &raw mut reply) };
        (result, reply)
    }
}

impl Handle<Srq> {
    pub fn number(&self) -> u32 {
        // SAFETY: the handle is good.
        unsafe { warpline_srq_number(self.raw) }
    }

    pub fn arm_limit(&self, limit: u32) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_srq_arm_limit(self.raw, limit) }
    }

    pub fn post(&self, first: &RecvWr) -> i32 {
        // SAFETY: as above, and so is what the requests point to, which tests keep until they are posted.
        unsafe { warpline_srq_post(self.raw, first, null_mut()) }
    }
}

/// A request is answered for good, or kept until the test ends.
impl Handle<Listener> {
    pub fn request(&self, timeout_ms: i32) -> Result<Asked, i32> {
        let mut request = null_mut();
        // SAFETY: the handle is good, and the place may be written.
        let result = unsafe { warpline_get_request(self.raw, timeout_ms, &raw mut request) };
        assert_eq!(result == 0, !request.is_null());
        if result == 0 { Ok(Asked(request)) } else { Err(result) }
    }
}

/// What a listener is made with.
pub(super) fn config(attr: Option<&ListenAttr>) -> warpline::ListenConfig {
    // SAFETY: null, or good.
    unsafe { ListenAttr::config(attr.map_or(null(), from_ref)) }
        .unwrap_or_else(|_| panic!("the attributes are good"))
}

/// A peer that wants to connect. It must be answered.
#[derive(Debug)]
pub struct Asked(*mut Request);

impl Asked {
    pub fn raw(&self) -> *mut Request {
        self.0
    }

    pub fn private_data(&self) -> Vec<u8> {
        let mut bytes = 0;
        // SAFETY: the request is not answered yet, so it is there, and so is its Private Data.
        unsafe {
            let start = warpline_request_private_data(self.0, &raw mut bytes);
            std::slice::from_raw_parts(start.cast::<u8>(), bytes).to_vec()
        }
    }

    pub fn accept(self, qp: &Handle<Qp>, param: &ConnParam) -> i32 {
        // SAFETY: the handles are good, and this one is gone with the call.
        unsafe { warpline_accept(self.0, qp.raw, param) }
    }

    pub fn reject(self, private_data: &[u8]) -> i32 {
        // SAFETY: as above; there are as many bytes.
        unsafe { warpline_reject(self.0, private_data.as_ptr().cast::<c_void>(), private_data.len() as u32) }
    }
}

/// What is not written shows.
pub(super) fn no_reply() -> ConnReply {
    ConnReply { private_data: [0xee; 512], private_data_len: u32::MAX, ird: u16::MAX, ord: u16::MAX }
}
