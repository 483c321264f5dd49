//! Those of streaming mode.

use std::ffi::CStr;
use std::ptr::{from_ref, null};

use super::*;
use crate::stream::*;

impl Handle<Device> {
    pub fn connect_stream(&self, address: &CStr, port: u16) -> Result<Handle<Stream>, i32> {
        Handle::made(warpline_stream_destroy, |stream| {
            // SAFETY: the handle is good, and the place may be written.
            unsafe { warpline_stream_connect(self.raw, address.as_ptr(), port, 0, stream) }
        })
    }

    pub fn listen_streams(&self, port: u16) -> Result<Handle<StreamListener>, i32> {
        Handle::made(warpline_stream_listener_destroy, |listener| {
            // SAFETY: as above.
            unsafe { warpline_stream_listen(self.raw, port, 0, listener) }
        })
    }
}

impl Handle<StreamListener> {
    pub fn accept(&self, timeout_ms: i32) -> Result<Handle<Stream>, i32> {
        Handle::made(warpline_stream_destroy, |stream| {
            // SAFETY: the handle is good, and the place may be written.
            unsafe { warpline_stream_accept(self.raw, timeout_ms, stream) }
        })
    }

    pub fn fd(&self) -> i32 {
        // SAFETY: the handle is good.
        unsafe { warpline_stream_listener_fd(self.raw) }
    }

    pub fn arm(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_stream_listener_arm(self.raw) }
    }
}

impl Handle<Stream> {
    pub fn available(&self) -> usize {
        // SAFETY: the handle is good.
        unsafe { warpline_stream_available(self.raw) }
    }

    pub fn read(&self, place: &mut [u8], timeout_ms: i32) -> i32 {
        // SAFETY: as above, and there are as many bytes.
        unsafe { warpline_stream_read(self.raw, place.as_mut_ptr().cast(), place.len(), timeout_ms) }
    }

    pub fn write(&self, bytes: &[u8], timeout_ms: i32) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_stream_write(self.raw, bytes.as_ptr().cast(), bytes.len(), timeout_ms) }
    }

    pub fn finish(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_stream_finish(self.raw) }
    }

    pub fn abort(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_stream_abort(self.raw) }
    }

    pub fn wait_closed(&self, timeout_ms: i32) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_stream_wait_closed(self.raw, timeout_ms) }
    }

    /// What it returns, and what it has written.
    pub fn initiate(&self, qp: &Handle<Qp>, param: Option<&ConnParam>) -> (i32, ConnReply) {
        let (mut reply, param) = (no_reply(), param.map_or(null(), from_ref));
        // SAFETY: as above.
        let result = unsafe { warpline_stream_initiate(self.raw, qp.raw, param, &raw mut reply) };
        (result, reply)
    }

    pub fn respond(&self, last_message: &[u8]) -> Result<Asked, i32> {
        self.respond_with(last_message, None)
    }

    pub fn respond_with(&self, last_message: &[u8], attr: Option<&ListenAttr>) -> Result<Asked, i32> {
        let attr = attr.map_or(null(), from_ref);
        let (start, bytes) = (last_message.as_ptr().cast(), last_message.len());
        let mut request = null_mut();
        // SAFETY: as above.
        let result = unsafe { warpline_stream_respond(self.raw, start, bytes, attr, &raw mut request) };
        if result == 0 { Ok(Asked(request)) } else { Err(result) }
    }

    pub fn start_unnegotiated(&self, qp: &Handle<Qp>, directions: u32, version: u8) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_stream_start_unnegotiated(self.raw, qp.raw, directions, version, 32, 32) }
    }
}

impl Asked {
    pub fn reject_to_stream(self, private_data: &[u8]) -> Result<Handle<Stream>, i32> {
        let (start, bytes) = (private_data.as_ptr().cast(), private_data.len() as u32);
        Handle::made(warpline_stream_destroy, |stream| {
            // SAFETY: the request is good, and gone with the call.
            unsafe { warpline_reject_to_stream(self.0, start, bytes, stream) }
        })
    }
}
