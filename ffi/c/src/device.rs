//! Devices.

use std::ffi::{c_char, c_int};

use warpline::link::boxed;
use warpline::link::sim::{self, EndConfig};
#[cfg(feature = "dpdk")]
use warpline::open::{EalError, SocketFault};
use warpline::open::{HostFault, HostWarning, OpenError};
use warpline::{CrcPolicy, DeviceConfig, DeviceKind, DeviceName, Idle, PollThread, open};

use crate::error::{Failure, guard};
use crate::extensible::{Extensible, extensible};
use crate::pointer::{borrow, hand_out, take_back, text};

/// One core or several on a NIC, each polled by a thread of its own. It serves until it is closed and
/// everything made from it is given back, in whichever order.
pub struct Device(pub(crate) warpline::Device);

/// `lcore` of a `warpline_device_attr` counts.
pub const WARPLINE_DEVICE_PIN: u32 = 1;
/// The thread polls without a pause, for a CPU of its own, of which it takes all. Without, it sleeps when
/// there has been nothing to do for 50 microseconds (at once where the process has one CPU), until there is.
/// Frames wake it on a ring and at the kinds `packet`, `tap` and `virtio_user`; at `af_packet`, `af_xdp`,
/// `memif` and `vhost` it looks for them from time to time, at last every millisecond.
pub const WARPLINE_DEVICE_SPIN: u32 = 2;
/// No CRCs with peers that want none either. What is damaged below TCP's checksum then goes unnoticed: not
/// without end-to-end protection at least as strong, such as IPsec (RFC 5044, section 4.4).
pub const WARPLINE_DEVICE_NO_CRC: u32 = 4;

/// How a device is opened. Zero is the default of everything but `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttr {
    /// `sizeof(struct warpline_device_attr)`.
    pub size: usize,
    /// More arguments for DPDK's EAL, such as `"--no-huge -m 512"`; null for none. A process has one EAL:
    /// only the call that starts it may have arguments.
    pub eal: *const c_char,
    /// `WARPLINE_DEVICE_*`.
    pub flags: u32,
    /// With `WARPLINE_DEVICE_PIN`, the CPU of the thread that polls.
    pub lcore: u32,
    /// Bytes a peer may have in flight on one connection; 0 for 2 MiB.
    pub window: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for DeviceAttr {
    const FIRST_SIZE: usize = 32;
}

impl DeviceAttr {
    fn poll_thread(&self) -> PollThread {
        let spin = self.flags & WARPLINE_DEVICE_SPIN != 0;
        PollThread {
            lcore: (self.flags & WARPLINE_DEVICE_PIN != 0).then_some(self.lcore as usize),
            idle: if spin { Idle::Spin } else { Idle::Sleep },
        }
    }

    fn config(&self, name: &DeviceName) -> Result<DeviceConfig, Failure> {
        if self.flags & !(WARPLINE_DEVICE_PIN | WARPLINE_DEVICE_SPIN | WARPLINE_DEVICE_NO_CRC) != 0 {
            return Err(Failure::invalid("a flag is none of WARPLINE_DEVICE_*"));
        }
        if self.reserved != 0 {
            return Err(Failure::invalid("a reserved field is not 0"));
        }
        let mut config = name.config();
        if self.window != 0 {
            config.window_bytes = self.window;
        }
        if self.flags & WARPLINE_DEVICE_NO_CRC != 0 {
            config.crc = CrcPolicy::OffIfPeerAgrees;
        }
        Ok(config)
    }
}

/// Returns the device that `name` names; if null, that of the environment variable `WARPLINE_DEVICE`.
///
/// # Safety
///
/// The string is as C promises.
unsafe fn device_name(name: *const c_char) -> Result<DeviceName, Failure> {
    let wrong = |error| Failure::of(libc::EINVAL, &error);
    // SAFETY: the caller's promise.
    match unsafe { text(name)? } {
        Some(name) => name.parse().map_err(wrong),
        None => DeviceName::from_environment()
            .map_err(wrong)?
            .ok_or(Failure::invalid("no device is named: pass its name, or set WARPLINE_DEVICE")),
    }
}

/// Opens the device `name` and starts a thread that polls it. A name is a kind, what the kind opens, and
/// options after commas, such as the addresses of the device:
/// `"packet:eth1,mtu=9000,address=198.18.0.1/24"`. The kinds are `packet:INTERFACE`, which needs no DPDK,
/// `tap:INTERFACE`, `af_packet:INTERFACE`, `af_xdp:INTERFACE`, `vhost:PATH`, `virtio_user:PATH`, `memif:PATH`
/// (same trust domain only), `pci:ADDRESS` and `eal:PORT`, a device in DPDK's notation. One of kind `packet`
/// without an address shares those of the kernel on its interface: the kernel answers for them, and other
/// programs have other ports.
///
/// Options of all kinds are `address=ADDRESS/PREFIX`, `gateway=ADDRESS`, `route=NETWORK/PREFIX@GATEWAY`,
/// `mtu=BYTES`, `vlan=NUMBER`, `connections=NUMBER` and `cores=LIST`, the CPUs that poll the device, one core
/// on each: `2-5`, `2+4+7`, or `node0` for those of a NUMA node; the CPU of `attr` is ignored then. With
/// several cores the port has a queue for each where it has so many (`queues=one`: it has one); `vhost` and
/// `virtio_user` have if both ends say `queues=each`. A null `name` stands for the value of the environment
/// variable `WARPLINE_DEVICE`; `attr` may be null for the defaults.
///
/// The first call for another kind than `packet` starts DPDK's EAL. If a process opens several devices, the
/// first of those must be the one of kind `pci` or `virtio_user`, because the EAL must know of these when it
/// starts; others can be added at any time.
///
/// - `-EINVAL`: an argument is wrong
/// - `-E2BIG`: `attr` has fields that this library does not know
/// - `-EALREADY`: the EAL runs, and `attr` has arguments for it
/// - `-EPERM`: this process lacks a privilege; `warpline_last_error` names the command that grants it
/// - `-EADDRINUSE`: the kernel or another process has an address of the device, or its socket; or the kernel
///   does not leave it ports: 128 at each address that they share, a file descriptor each (raise `ulimit -n`)
/// - `-ENODEV`: the EAL or the device does not start
/// - `-ENOMEM`: a thread, a file descriptor or memory is lacking
/// - `-ENOSYS`: the device needs DPDK, and the library was built without it
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_device_open(
    name: *const c_char,
    attr: *const DeviceAttr,
    device: *mut *mut Device,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract (crate documentation).
        unsafe {
            let (name, attr) = (resolved(&device_name(name)?)?, extensible(attr)?);
            let (eal, config) = (text(attr.eal)?.unwrap_or_default(), attr.config(&name)?);
            hand_out(device, || start_on_port(&name, eal, config, attr.poll_thread()))?;
        }
        Ok(0)
    })
}

fn resolved(name: &DeviceName) -> Result<DeviceName, Failure> {
    open::resolved(name).map_err(|error| not_opened(&error))
}

fn start_on_port(
    name: &DeviceName,
    eal: &str,
    config: DeviceConfig,
    poll: PollThread,
) -> Result<Device, Failure> {
    match open_device(name, eal, config, poll) {
        Ok(device) => Ok(Device(device)),
        Err(OpenError::Start(error)) => Err(error.into()),
        Err(error) => Err(not_opened(&error)),
    }
}

#[cfg(feature = "dpdk")]
fn open_device(
    name: &DeviceName,
    eal: &str,
    config: DeviceConfig,
    poll: PollThread,
) -> Result<warpline::Device, OpenError> {
    if name.kind() == DeviceKind::Packet {
        return warpline::Device::open_with(name, config, poll);
    }
    open::device(open::eal(&[name], eal)?, name, config, poll)
}

#[cfg(not(feature = "dpdk"))]
fn open_device(
    name: &DeviceName,
    _: &str,
    config: DeviceConfig,
    poll: PollThread,
) -> Result<warpline::Device, OpenError> {
    warpline::Device::open_with(name, config, poll)
}

fn not_opened(error: &OpenError) -> Failure {
    let code = match error {
        #[cfg(feature = "dpdk")]
        OpenError::Argument(_)
        | OpenError::RingIsAPair
        | OpenError::Eal(EalError::Argument(_) | EalError::EndsProcess(_)) => libc::EINVAL,
        #[cfg(feature = "dpdk")]
        OpenError::Eal(EalError::AlreadyInitialised) => libc::EALREADY,
        #[cfg(feature = "dpdk")]
        OpenError::Socket { fault: SocketFault::InUse { .. }, .. } => libc::EADDRINUSE,
        #[cfg(feature = "dpdk")]
        OpenError::Mempool(_) | OpenError::PoolTooSmall(_) => libc::ENOMEM,
        #[cfg(not(feature = "dpdk"))]
        OpenError::WithoutDpdk(_) => libc::ENOSYS,
        OpenError::Missing { .. } => libc::EPERM,
        OpenError::Host {
            fault: HostFault::KernelHasAddress { .. } | HostFault::AddressInUse { .. },
            ..
        } => libc::EADDRINUSE,
        _ => libc::ENODEV,
    };
    Failure::of(code, error)
}

/// Looks at the machine around the device `name` before it is opened, and writes to `warnings` what may keep
/// it from working though it can be opened, a sentence a line: that its interface has no carrier, that
/// packets longer than the MTU arrive there, or what the peer of a memif can do to this process.
/// `warpline_device_open` tells nobody of that, but `warpline_device_warnings` does afterwards. `name` may be
/// null, as there.
///
/// There is room for `room` bytes, with a zero byte at the end; `warnings` may be null if that is 0. Returns
/// how many bytes all of them have without the zero byte: 0 if there is nothing to warn of, and `room` or
/// more if they are cut.
///
/// Fails as `warpline_device_open` does for what the machine refuses; a device that is open already has its
/// own address (`-EADDRINUSE`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_device_inspect(
    name: *const c_char,
    warnings: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| {
        check_room(warnings, room)?;
        // SAFETY: the caller keeps C's contract.
        let text = inspected(&resolved(&unsafe { device_name(name)? })?)?;
        // SAFETY: C's contract, and not null if `room` is not 0.
        Ok(unsafe { write_text(&text, warnings, room) })
    })
}

/// Writes to `warnings` what was found when the device was opened by `warpline_device_open`, as
/// `warpline_device_inspect` does before, and that the port has too few queues for the device's cores, so
/// that one core receives and sends for all. The room and the result are as there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_device_warnings(
    device: *const Device,
    warnings: *mut c_char,
    room: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        let device = unsafe { borrow(device)? };
        check_room(warnings, room)?;
        // SAFETY: C's contract, and not null if `room` is not 0.
        Ok(unsafe { write_text(&lines(device.0.warnings()), warnings, room) })
    })
}

/// Refuses a null pointer to `room` bytes, unless that is 0.
fn check_room(out: *mut c_char, room: usize) -> Result<(), Failure> {
    if out.is_null() && room > 0 { Err(Failure::NULL) } else { Ok(()) }
}

/// Writes `text`, or as much of it as `room` bytes take, with a zero byte at its end. Returns its length.
///
/// # Safety
///
/// There are `room` bytes at `out` that can be written; it may be null if that is 0.
unsafe fn write_text(text: &str, out: *mut c_char, room: usize) -> c_int {
    if let Some(most) = room.checked_sub(1) {
        let written = text.len().min(most);
        // SAFETY: there is room for as many and the zero byte, as the caller promises; `text` is Rust's own
        // and elsewhere.
        unsafe {
            out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), written);
            out.add(written).write(0);
        }
    }
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

/// Returns warnings, a line each.
fn lines(warnings: &[HostWarning]) -> String {
    warnings.iter().flat_map(|warning| [warning.to_string(), "\n".into()]).collect()
}

/// Returns the warnings of the host, a line each.
fn inspected(name: &DeviceName) -> Result<String, Failure> {
    Ok(lines(&open::inspect(name).map_err(|error| not_opened(&error))?))
}

/// Opens two devices with a link in memory between them, without DPDK: for tests, and to try things out. Both
/// names are of the kind `ring`, such as `"ring,address=198.18.0.1/24"`. Each `attr` may be null for the
/// defaults.
///
/// Fails as `warpline_device_open` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_device_open_pair(
    a_name: *const c_char,
    a_attr: *const DeviceAttr,
    b_name: *const c_char,
    b_attr: *const DeviceAttr,
    a: *mut *mut Device,
    b: *mut *mut Device,
) -> c_int {
    guard(|| {
        // SAFETY: the caller keeps C's contract.
        unsafe {
            let (a_name, b_name) = (ring_name(a_name)?, ring_name(b_name)?);
            let (a_attr, b_attr) = (extensible(a_attr)?, extensible(b_attr)?);
            let (a_config, b_config) = (a_attr.config(&a_name)?, b_attr.config(&b_name)?);
            let end = |name: &DeviceName, end| EndConfig { mtu_bytes: name.mtu().into(), ..end };
            // Nothing is left to chance on a link that harms nothing.
            let (a_end, b_end) = sim::link(0, end(&a_name, EndConfig::a()), end(&b_name, EndConfig::b()));
            // The poll loop is compiled once for all simulated devices.
            let (a_end, b_end) = (boxed(a_end), boxed(b_end));
            let b_device = warpline::Device::start(b_end, &b_config, b_attr.poll_thread())?;
            if b.is_null() {
                return Err(Failure::NULL);
            }
            hand_out(a, || Ok(Device(warpline::Device::start(a_end, &a_config, a_attr.poll_thread())?)))?;
            hand_out(b, || Ok(Device(b_device)))?;
        }
        Ok(0)
    })
}

/// Returns the name of an end of a ring.
///
/// # Safety
///
/// The string is as C promises.
unsafe fn ring_name(name: *const c_char) -> Result<DeviceName, Failure> {
    if name.is_null() {
        return Err(Failure::NULL);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { device_name(name)? };
    match name.kind() {
        DeviceKind::Ring => Ok(name),
        _ => Err(Failure::invalid("a pair is two devices of the kind ring")),
    }
}

/// Returns a device to the library. What was made from it goes on until it is given back too. Does nothing
/// for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_device_close(device: *mut Device) {
    // SAFETY: the caller keeps C's contract.
    crate::error::guard_or((), || drop(unsafe { take_back(device) }));
}
