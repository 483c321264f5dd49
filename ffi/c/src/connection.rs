//! Connections: opening and taking them.

use std::ffi::{c_char, c_int, c_void};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use warpline::{
    AcceptError, ConnectConfig, ConnectError, Connected, ConnectionRequest, ListenConfig, ReadDepths,
    ReadsWanted, Revision,
};

use crate::device::Device;
use crate::error::{Failure, guard, guard_or};
use crate::extensible::{Extensible, Flag, extensible};
use crate::pointer::{borrow, hand_out, list, patience, socket_address, take_back};
use crate::queue_pair::Qp;

/// Takes connections to a port.
pub struct Listener(pub(crate) warpline::Listener);

/// A peer that wants to connect and waits for the answer: at a listener, or on a connection in streaming
/// mode, which a rejection leaves open.
pub struct Request {
    pub(crate) request: ConnectionRequest,
}

/// The most bytes of Private Data; 4 fewer for a connection whose IRD and ORD are negotiated, as they are by
/// default.
pub const WARPLINE_MAX_PRIVATE_DATA: u32 = 512;

/// `revision` of a `warpline_conn_param`: revision 2 of MPA, in which IRD and ORD are negotiated (RFC 6581),
/// and revision 1 on a new TCP connection if the peer turns out not to know it, unless MPA starts from
/// streaming mode. With more Private Data than revision 2 has room for, revision 1 at once.
pub const WARPLINE_REVISION_USUAL: u32 = 0;
/// Revision 1 (RFC 5044).
pub const WARPLINE_REVISION_1: u32 = 1;
/// Revision 2 and nothing else.
pub const WARPLINE_REVISION_2: u32 = 2;
/// Revision 0, of the RDMA Consortium's endpoints: with Markers and CRCs, and version 0 of DDP and RDMAP.
pub const WARPLINE_REVISION_0: u32 = 3;

/// How a connection is opened or accepted. Zero is the default of everything but `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConnParam {
    /// `sizeof(struct warpline_conn_param)`.
    pub size: usize,
    /// The Private Data for the peer's application.
    pub private_data: *const c_void,
    /// The length of the Private Data in bytes.
    pub private_data_len: u32,
    /// To open: milliseconds it may take; 0 for ten seconds.
    pub timeout_ms: u32,
    /// RDMA Reads and atomics of the peer to be served at a time, and our own at the peer: at most these.
    /// Both 0 for the default, 32 each.
    pub ird: u16,
    /// See `ird`.
    pub ord: u16,
    /// To open: `WARPLINE_REVISION_*`.
    pub revision: u32,
    /// `ird` and `ord` of 0 mean none.
    pub no_reads: Flag,
    /// To open: the peer is asked to insert Markers, so that data which arrives out of order can be placed at
    /// once (RFC 5044, section 4.3). Linux siw refuses that.
    pub markers: Flag,
    /// To open: the peer may be one of the RDMA Consortium's, which answers in revision 0.
    pub permissive: Flag,
    /// To open: a peer of revision 2 that stays silent after our first message is not sent RDMA Writes
    /// without payload, which it is otherwise, three at most: Linux siw may overlook that message until more
    /// bytes come.
    pub no_nudges: Flag,
    /// To open with `warpline_connect`: our port; 0 for a free one.
    pub local_port: u16,
    /// To open with `warpline_connect`: our address; null for the one that leads to the peer.
    pub local_address: *const c_char,
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for ConnParam {
    const FIRST_SIZE: usize = 48;
}

impl ConnParam {
    /// Reads what the caller has filled; the defaults for null.
    ///
    /// # Safety
    ///
    /// As C promises.
    pub(crate) unsafe fn read(param: *const Self) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        unsafe { extensible(param) }
    }

    /// How a connection is opened with it.
    ///
    /// # Safety
    ///
    /// As C promises.
    pub(crate) unsafe fn connecting(&self) -> Result<ConnectConfig, Failure> {
        // SAFETY: the caller's promise.
        let private_data = unsafe { self.private_data()? }.to_vec();
        let revision = match self.revision {
            WARPLINE_REVISION_USUAL => Revision::TwoThenOne,
            WARPLINE_REVISION_2 => Revision::Two,
            WARPLINE_REVISION_1 => Revision::One,
            WARPLINE_REVISION_0 => Revision::Zero,
            _ => return Err(Failure::invalid("the revision is none of WARPLINE_REVISION_*")),
        };
        let [markers, permissive] = [self.markers.is_set(), self.permissive.is_set()];
        let nudges = !self.no_nudges.is_set();
        let mut config =
            ConnectConfig { private_data, revision, markers, permissive, nudges, ..ConnectConfig::default() };
        // SAFETY: the caller's promise.
        config.local = unsafe { self.local()? };
        if self.timeout_ms != 0 {
            config.timeout = Duration::from_millis(self.timeout_ms.into());
        }
        if let Some(depths) = self.depths() {
            config.terms.depths = depths;
        }
        Ok(config)
    }

    /// How a connection is accepted with it.
    pub(crate) fn accepting(&self) -> ReadsWanted {
        ReadsWanted { depths: self.depths(), ..ReadsWanted::default() }
    }

    /// # Safety
    ///
    /// As C promises.
    unsafe fn local(&self) -> Result<Option<SocketAddr>, Failure> {
        Ok(match (self.local_address.is_null(), self.local_port) {
            (true, 0) => None,
            (true, port) => Some((Ipv6Addr::UNSPECIFIED, port).into()),
            // SAFETY: the caller's promise.
            (false, port) => Some(unsafe { socket_address(self.local_address, port)? }),
        })
    }

    fn depths(&self) -> Option<ReadDepths> {
        let usual = self.ird == 0 && self.ord == 0 && !self.no_reads.is_set();
        (!usual).then_some(ReadDepths { ird: self.ird, ord: self.ord })
    }

    /// # Safety
    ///
    /// As C promises.
    pub(crate) unsafe fn private_data(&self) -> Result<&[u8], Failure> {
        // SAFETY: the caller's promise.
        unsafe { list(self.private_data.cast(), self.private_data_len as usize) }
    }
}

/// How connections are taken. Zero is the default of everything but `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ListenAttr {
    /// `sizeof(struct warpline_listen_attr)`.
    pub size: usize,
    /// Connections that wait for their startup or for the application, at most; 0 for 128.
    pub backlog: u32,
    /// Milliseconds that a peer has for its Request; 0 for ten seconds.
    pub startup_timeout_ms: u32,
    /// Milliseconds that a peer has for its first message, before which we may send nothing; 0 for a minute,
    /// negative for ever.
    pub first_message_timeout_ms: i32,
    /// Milliseconds that the application has to answer a connection request; 0 for a minute, negative for
    /// ever. After that the peer is rejected.
    pub decision_timeout_ms: i32,
    /// Peers are asked to insert Markers (RFC 5044, section 4.3). Linux siw refuses that.
    pub markers: Flag,
    /// Peers of the RDMA Consortium's are taken too: those of revision 0, with Markers and CRCs.
    pub permissive: Flag,
    /// Other listeners that say the same may have the same port at addresses that this one has too, as with
    /// `SO_REUSEADDR`.
    pub reuse_address: Flag,
    /// Must be 0.
    pub reserved: [u8; 5],
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for ListenAttr {
    const FIRST_SIZE: usize = 32;
}

impl ListenAttr {
    /// Reads the caller's attributes; the defaults for null.
    ///
    /// # Safety
    ///
    /// Null, or as C promises.
    pub(crate) unsafe fn config(attr: *const Self) -> Result<ListenConfig, Failure> {
        let mut config = ListenConfig::default();
        // SAFETY: the caller's promise.
        let attr = unsafe { extensible(attr)? };
        if attr.reserved != [0; 5] {
            return Err(Failure::invalid("a reserved field is not 0"));
        }
        (config.markers, config.permissive) = (attr.markers.is_set(), attr.permissive.is_set());
        config.reuse_address = attr.reuse_address.is_set();
        if attr.backlog != 0 {
            config.backlog = attr.backlog;
        }
        if attr.startup_timeout_ms != 0 {
            config.startup_timeout = Duration::from_millis(attr.startup_timeout_ms.into());
        }
        if attr.first_message_timeout_ms != 0 {
            let milliseconds = u64::try_from(attr.first_message_timeout_ms).ok();
            config.first_fpdu_timeout = milliseconds.map(Duration::from_millis);
        }
        if attr.decision_timeout_ms != 0 {
            let milliseconds = u64::try_from(attr.decision_timeout_ms).ok();
            config.decision_timeout = milliseconds.map(Duration::from_millis);
        }
        Ok(config)
    }
}

/// The peer's Private Data, and the agreed depths.
#[repr(C)]
pub struct ConnReply {
    /// The peer's Private Data.
    pub private_data: [u8; 512],
    /// The length of the Private Data in bytes.
    pub private_data_len: u32,
    /// RDMA Reads and atomics of the peer that are served at a time.
    pub ird: u16,
    /// Our own that may be outstanding.
    pub ord: u16,
}

impl ConnReply {
    pub(crate) fn new(bytes: &[u8], depths: ReadDepths) -> Self {
        let mut private_data = [0; 512];
        let count = bytes.len().min(private_data.len());
        private_data[..count].copy_from_slice(&bytes[..count]);
        Self { private_data, private_data_len: count as u32, ird: depths.ird, ord: depths.ord }
    }

    /// Returns the result of a call that connects, and writes the peer's reply.
    ///
    /// # Safety
    ///
    /// `place` is null or may be written.
    pub(crate) unsafe fn write_outcome(
        place: *mut Self,
        outcome: Result<Connected, ConnectError>,
    ) -> Result<c_int, Failure> {
        let reply = match &outcome {
            Ok(connected) => Some(Self::new(&connected.private_data, connected.depths)),
            Err(ConnectError::Rejected { private_data, .. }) => {
                Some(Self::new(private_data, ReadDepths { ird: 0, ord: 0 }))
            }
            Err(_) => None,
        };
        if let Some(reply) = reply.filter(|_| !place.is_null()) {
            // SAFETY: not null, so it may be written: the caller's promise.
            unsafe { place.write(reply) };
        }
        outcome?;
        Ok(0)
    }
}

/// Connects `qp` to `address`, an IPv4 or IPv6 address such as `"198.18.0.2"`, and `port`. Returns when sends
/// may be posted. `param` may be null for the defaults; `reply` may be null, else it is written on success,
/// and on `-EACCES` with the peer's reason.
///
/// - `-ECONNREFUSED`: no listener is there
/// - `-EACCES`: the peer's application rejected the connection
/// - `-ETIMEDOUT`, `-EHOSTUNREACH`, `-ENETUNREACH`: the peer cannot be reached, or the core has not answered
/// - `-EISCONN`: the queue pair has or had a connection
/// - `-EPROTO`, `-ECONNRESET`: the connection failed while it was opened
/// - `-EADDRNOTAVAIL`: no local port is left, the one asked for is in use, or the address is none of the
///   device's
/// - `-ENOSPC`: the device has as many connections as it can
/// - `-EINVAL`: an argument is wrong
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_connect(
    qp: *mut Qp,
    address: *const c_char,
    port: u16,
    param: *const ConnParam,
    reply: *mut ConnReply,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let (qp, remote, config) =
            unsafe { (borrow(qp)?, socket_address(address, port)?, ConnParam::read(param)?.connecting()?) };
        // SAFETY: as above.
        unsafe { ConnReply::write_outcome(reply, qp.connect(remote, &config)) }
    })
}

/// Takes connections to `port` at every address of the device, as `warpline_listen_at` does for `"::"`.
/// `attr` may be null for the usual.
///
/// - `-EADDRINUSE`: the port has a listener
/// - `-EINVAL`: a pointer but `attr` is null
/// - `-ENOSPC`: the device has as many listeners as it can
/// - `-ENOMEM`: the kernel, whose addresses the device shares, does not leave the port (below 1024 without
///   `CAP_NET_BIND_SERVICE`), or no file descriptor is left; `warpline_last_error` has the kernel's error
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_listen(
    device: *mut Device,
    port: u16,
    attr: *const ListenAttr,
    listener: *mut *mut Listener,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (device, config) = (borrow(device)?, ListenAttr::config(attr)?);
            hand_out(listener, || Ok(Listener(device.0.listen(port, &config)?)))?;
        }
        Ok(0)
    })
}

/// Stops listening. Peers that wait are rejected. Does nothing for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_listener_destroy(listener: *mut Listener) {
    // SAFETY: the caller keeps C's contract.
    guard_or((), || drop(unsafe { take_back(listener) }));
}

/// Takes the next peer that wants to connect; waits for it for `timeout_ms` milliseconds, or for ever if that
/// is negative. Peers that fail before they have asked are passed over. `warpline_accept` or
/// `warpline_reject` answers it.
///
/// - `-ETIMEDOUT`: no peer came
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_get_request(
    listener: *mut Listener,
    timeout_ms: i32,
    request: *mut *mut Request,
) -> c_int {
    guard(|| {
        let (start, timeout) = (Instant::now(), patience(timeout_ms));
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let listener = borrow(listener)?;
            hand_out(request, || {
                loop {
                    match listener.0.accept(timeout.saturating_sub(start.elapsed())) {
                        Ok(request) => return Ok(Request { request }),
                        Err(AcceptError::Startup { .. }) => {}
                        Err(AcceptError::Stopped(error)) => return Err(error.into()),
                        Err(error) => return Err(Failure::of(libc::ETIMEDOUT, &error)),
                    }
                }
            })?;
        }
        Ok(0)
    })
}

/// The peer's Private Data, valid until the request is answered; its length is written to `length`. Null, and
/// 0, for a null `request`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_request_private_data(
    request: *const Request,
    length: *mut usize,
) -> *const c_void {
    // SAFETY: the caller keeps C's contract.
    let data = unsafe { request.as_ref() }.map(|request| request.request.private_data());
    if !length.is_null() {
        // SAFETY: as above.
        unsafe { length.write(data.map_or(0, <[u8]>::len)) };
    }
    data.map_or(std::ptr::null(), |data| data.as_ptr().cast())
}

/// Accepts: `qp` serves the connection from now on. What it sends leaves after the peer's first message. The
/// request is gone, whatever this returns, and with a failure the connection is closed. `param` may be null
/// for the defaults.
///
/// - `-EISCONN`: the queue pair has or had a connection
/// - `-EINVAL`: an argument is wrong, or the queue pair is of another device
/// - `-EPROTO`, `-ECONNRESET`: the connection failed meanwhile
/// - `-ETIMEDOUT`: the peer was rejected after `decision_timeout_ms`, or the core of the connection has not
///   answered
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_accept(
    request: *mut Request,
    qp: *mut Qp,
    param: *const ConnParam,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let request = unsafe { take_back(request) }.ok_or(Failure::NULL)?;
        // SAFETY: as above.
        let (qp, param) = unsafe { (borrow(qp)?, ConnParam::read(param)?) };
        // SAFETY: as above.
        request.request.accept_with(qp, param.accepting(), unsafe { param.private_data()? })?;
        Ok(0)
    })
}

/// Rejects: the peer gets `length` bytes of `private_data`. The request is gone, whatever this returns.
///
/// - `-EINVAL`: a pointer is null, or there is more Private Data than a Reply holds
/// - `-EPROTO`, `-ECONNRESET`: the connection failed meanwhile
/// - `-ETIMEDOUT`: the peer was rejected after `decision_timeout_ms`, or the core of the connection has not
///   answered
/// - `-ENODEV`: the device has stopped
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_reject(
    request: *mut Request,
    private_data: *const c_void,
    length: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let request = unsafe { take_back(request) }.ok_or(Failure::NULL)?;
        // SAFETY: as above.
        request.request.reject(unsafe { list(private_data.cast::<u8>(), length as usize)? })?;
        Ok(0)
    })
}
