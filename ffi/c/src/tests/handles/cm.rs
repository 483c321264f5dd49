//! Those of the connection manager.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::{from_ref, null, without_provenance, without_provenance_mut};

use super::*;
use crate::cm::channel::*;
use crate::cm::id::*;
use crate::pointer::WARPLINE_MAX_ADDRESS;

pub(crate) fn cm_event_text(event: u32) -> &'static CStr {
    words(warpline_cm_event_text(event))
}

impl Handle<CmChannel> {
    pub fn on(devices: &[&Handle<Device>]) -> Self {
        let devices: Vec<_> = devices.iter().map(|device| device.raw).collect();
        Self::made(warpline_cm_channel_destroy, |channel| {
            // SAFETY: the handles are good, and the place may be written.
            unsafe { warpline_cm_channel_create(devices.as_ptr(), devices.len() as u32, channel) }
        })
        .unwrap()
    }

    /// An id whose context is a number.
    pub fn id(&self, context: usize) -> Handle<CmId> {
        Handle::made(warpline_cm_destroy_id, |id| {
            // SAFETY: as above; nobody follows the context.
            unsafe { warpline_cm_create_id(self.raw, without_provenance_mut(context), id) }
        })
        .unwrap()
    }

    pub fn event(&self, timeout_ms: i32) -> Option<CmEvent> {
        let mut event = MaybeUninit::uninit();
        // SAFETY: as above.
        let result = unsafe { warpline_cm_get_event(self.raw, event.as_mut_ptr(), timeout_ms) };
        // SAFETY: with 1 it is written.
        (result == 1).then(|| unsafe { event.assume_init() })
    }

    pub fn fd(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_fd(self.raw) }
    }
}

impl CmEvent {
    /// The id of a peer that wants to connect, which comes with the event and is taken out of it.
    pub fn asked(&mut self) -> Handle<CmId> {
        assert_eq!(self.event, WARPLINE_CM_EVENT_CONNECT_REQUEST);
        Handle { raw: std::mem::replace(&mut self.id, null_mut()), give_back: warpline_cm_destroy_id }
    }

    /// What the peer said.
    pub fn private_data(&self) -> &[u8] {
        &self.conn.private_data[..self.conn.private_data_len as usize]
    }
}

impl Handle<CmId> {
    pub fn context(&self) -> usize {
        // SAFETY: the handle is good.
        unsafe { warpline_cm_context(self.raw) }.addr()
    }

    pub fn set_context(&self, context: usize) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_set_context(self.raw, without_provenance::<c_void>(context).cast_mut()) }
    }

    pub fn device(&self) -> Result<Handle<Device>, i32> {
        // SAFETY: as above, and the place may be written.
        Handle::made(warpline_device_close, |device| unsafe { warpline_cm_device(self.raw, device) })
    }

    /// The address and the port.
    pub fn peer(&self) -> Result<(String, u16), i32> {
        let (mut address, mut port) = ([0_u8; WARPLINE_MAX_ADDRESS as usize], 0);
        // SAFETY: as above.
        match unsafe { warpline_cm_peer(self.raw, address.as_mut_ptr().cast(), &raw mut port) } {
            0 => Ok((CStr::from_bytes_until_nul(&address).unwrap().to_str().unwrap().into(), port)),
            error => Err(error),
        }
    }

    pub fn bind_addr(&self, address: &CStr, port: u16) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_bind_addr(self.raw, address.as_ptr(), port) }
    }

    pub fn resolve_addr(&self, address: &CStr, port: u16) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_resolve_addr(self.raw, address.as_ptr(), port) }
    }

    pub fn resolve_route(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_resolve_route(self.raw) }
    }

    pub fn connect(&self, qp: &Handle<Qp>, param: Option<&ConnParam>) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_connect(self.raw, qp.raw, param.map_or(null(), from_ref)) }
    }

    pub fn listen(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_listen(self.raw, null()) }
    }

    pub fn accept(&self, qp: &Handle<Qp>, param: Option<&ConnParam>) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_accept(self.raw, qp.raw, param.map_or(null(), from_ref)) }
    }

    pub fn reject(&self, private_data: &[u8]) -> i32 {
        // SAFETY: as above; there are as many bytes.
        unsafe { warpline_cm_reject(self.raw, private_data.as_ptr().cast(), private_data.len() as u32) }
    }

    pub fn disconnect(&self) -> i32 {
        // SAFETY: as above.
        unsafe { warpline_cm_disconnect(self.raw) }
    }
}
