//! Byte streams.

use std::ffi::CStr;
use std::ptr::{from_ref, null};

use super::Handle;
use crate::byte_stream::*;
use crate::device::Device;
use crate::memory::Mr;
use crate::stream::*;

impl Handle<Device> {
    pub fn open_stream(
        &self,
        address: &CStr,
        port: u16,
        attr: Option<&StreamAttr>,
    ) -> Result<Handle<Stream>, i32> {
        Handle::made(warpline_stream_destroy, |stream| {
            let attr = attr.map_or(null(), from_ref);
            // SAFETY: the handle, the string and the attributes are good, and the place may be written.
            unsafe { warpline_stream_open(self.raw, address.as_ptr(), port, attr, stream) }
        })
    }

    pub fn listen_streams_with(&self, port: u16, attr: &StreamAttr) -> Result<Handle<StreamListener>, i32> {
        Handle::made(warpline_stream_listener_destroy, |listener| {
            // SAFETY: as above.
            unsafe { warpline_stream_listen_with(self.raw, port, attr, listener) }
        })
    }
}

impl Handle<Stream> {
    pub fn into_byte_stream(mut self, attr: Option<&ByteStreamAttr>) -> Result<Handle<ByteStream>, i32> {
        Handle::made(warpline_byte_stream_destroy, |byte_stream| {
            let stream = std::mem::replace(&mut self.raw, std::ptr::null_mut());
            // SAFETY: as above; the call has the handle now.
            unsafe { warpline_byte_stream_create(stream, attr.map_or(null(), from_ref), byte_stream) }
        })
    }
}

impl Handle<ByteStream> {
    pub fn has_rdma_option(&self) -> bool {
        // SAFETY: the handle is good.
        unsafe { warpline_byte_stream_has_rdma_option(self.raw) }
    }

    pub fn read(&self, place: &mut [u8], timeout_ms: i32) -> i32 {
        // SAFETY: the handle is good, and the place may be written.
        unsafe { warpline_byte_stream_read(self.raw, place.as_mut_ptr().cast(), place.len(), timeout_ms) }
    }

    pub fn read_part(&self, place: &mut [u8], timeout_ms: i32) -> Result<ReadPart, i32> {
        let mut part = ReadPart { rid: 0, kind: 0, length: 0, offset: 0, buffer: 0 };
        let start = place.as_mut_ptr().cast();
        // SAFETY: as above.
        let result = unsafe {
            warpline_byte_stream_read_part(self.raw, start, place.len(), timeout_ms, &raw mut part)
        };
        if result < 0 { Err(result) } else { Ok(part) }
    }

    pub fn expect(&self, rid: u64, mr: &Handle<Mr>, offset: usize, length: usize) -> i32 {
        // SAFETY: the handles are good.
        unsafe { warpline_byte_stream_expect(self.raw, rid, mr.raw, offset, length) }
    }

    pub fn read_section(&self, rid: u64, mr: &Handle<Mr>, offset: usize, length: usize, ms: i32) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_byte_stream_read_section(self.raw, rid, mr.raw, offset, length, ms) }
    }

    pub fn end_transfer(&self, rid: u64) -> i32 {
        // SAFETY: the handle is good.
        unsafe { warpline_byte_stream_end_transfer(self.raw, rid) }
    }

    pub fn copy_unsolicited(&self, buffer: u32, offset: usize, place: &mut [u8]) -> i32 {
        let (start, length) = (place.as_mut_ptr().cast(), place.len());
        // SAFETY: the handle is good, and the place may be written.
        unsafe { warpline_byte_stream_copy_unsolicited(self.raw, buffer, offset, start, length) }
    }

    /// With a length that is more than `place` has, and than any buffer.
    pub fn copy_unsolicited_length(
        &self,
        buffer: u32,
        offset: usize,
        place: &mut [u8],
        length: usize,
    ) -> i32 {
        let start = place.as_mut_ptr().cast();
        assert!(length > isize::MAX as usize / 2, "it must be refused");
        // SAFETY: the handle is good; the place is not written, as no buffer is so long.
        unsafe { warpline_byte_stream_copy_unsolicited(self.raw, buffer, offset, start, length) }
    }

    pub fn release(&self, buffer: u32) -> i32 {
        // SAFETY: the handle is good.
        unsafe { warpline_byte_stream_release(self.raw, buffer) }
    }

    pub fn cancel(&self, rid: u64, timeout_ms: i32) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_byte_stream_cancel(self.raw, rid, timeout_ms) }
    }

    pub fn write(&self, bytes: &[u8], timeout_ms: i32) -> i32 {
        // SAFETY: the handle is good, and so are the bytes.
        unsafe { warpline_byte_stream_write(self.raw, bytes.as_ptr().cast(), bytes.len(), timeout_ms) }
    }

    pub fn write_annotated(&self, annotation: &Annotated, bytes: &[u8], timeout_ms: i32) -> i32 {
        let (start, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: as above.
        unsafe { warpline_byte_stream_write_annotated(self.raw, annotation, start, length, timeout_ms) }
    }

    pub fn cork(&self, corked: bool) -> i32 {
        // SAFETY: the handle is good.
        unsafe { warpline_byte_stream_cork(self.raw, corked) }
    }

    pub fn finish(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_byte_stream_finish(self.raw) }
    }

    pub fn abort(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_byte_stream_abort(self.raw) }
    }

    pub fn wait_closed(&self, timeout_ms: i32) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_byte_stream_wait_closed(self.raw, timeout_ms) }
    }

    /// The descriptors of the reader and of the writer.
    pub fn fds(&self) -> [i32; 2] {
        // SAFETY: as above.
        unsafe { [warpline_byte_stream_read_fd(self.raw), warpline_byte_stream_write_fd(self.raw)] }
    }

    /// Arms the reader and the writer.
    pub fn arm(&self) -> [i32; 2] {
        // SAFETY: as above.
        unsafe { [warpline_byte_stream_arm_read(self.raw), warpline_byte_stream_arm_write(self.raw)] }
    }
}
