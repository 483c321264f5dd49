//! Devices.

use std::ffi::{c_char, c_int};

use warpline::{Cidr, CrcPolicy, DeviceConfig, Idle, PollThread, Route};
use warpline_dataplane::device::sim::{self, EndConfig};

use crate::error::{Failure, guard};
use crate::pointer::{borrow, hand_out, take_back, text};

/// A core on a NIC, polled by a thread of its own. It serves until it is closed and everything made from it is given
/// back, in whichever order.
pub struct Device(pub(crate) warpline::Device);

/// `lcore` of a `warpline_device_attr` counts.
pub const WARPLINE_DEVICE_PIN: u32 = 1;
/// The thread polls without a pause, for a CPU of its own, of which it takes all. Without, it sleeps when there has been nothing to
/// do for 50 microseconds, until there is.
pub const WARPLINE_DEVICE_SPIN: u32 = 2;
/// No CRCs with peers that want none either. What is damaged below TCP's checksum then goes unnoticed: not without end-to-end
/// protection at least as strong, such as IPsec (RFC 5044, section 4.4).
pub const WARPLINE_DEVICE_NO_CRC: u32 = 4;

/// How a device is set up. Zero is the usual for everything but the addresses.
#[repr(C)]
pub struct DeviceAttr {
    /// Its addresses with the prefixes of their networks, separated by blanks: `"198.18.0.1/24 fd00::1/64"`.
    pub addresses: *const c_char,
    /// Who forwards to other networks: `"NETWORK/PREFIX GATEWAY"`, more of them separated by commas. Null for nobody.
    pub routes: *const c_char,
    /// Octets of the largest IP packet; 0 for 1500.
    pub mtu: u16,
    /// The VLAN of all frames, 1 to 4094; 0 for frames without a tag.
    pub vlan: u16,
    /// `WARPLINE_DEVICE_*`.
    pub flags: u32,
    /// With `WARPLINE_DEVICE_PIN`, the CPU of the thread that polls.
    pub lcore: u32,
    /// Octets a peer may have in flight on one connection; 0 for 2 MiB.
    pub window: u32,
}

impl DeviceAttr {
    fn mtu_octets(&self) -> u16 {
        if self.mtu == 0 { 1500 } else { self.mtu }
    }

    fn poll_thread(&self) -> PollThread {
        let spin = self.flags & WARPLINE_DEVICE_SPIN != 0;
        PollThread {
            lcore: (self.flags & WARPLINE_DEVICE_PIN != 0).then_some(self.lcore as usize),
            idle: if spin { Idle::Spin } else { Idle::Sleep },
        }
    }

    /// # Safety
    ///
    /// The strings are as C promises.
    unsafe fn config(&self) -> Result<DeviceConfig, Failure> {
        if self.flags & !(WARPLINE_DEVICE_PIN | WARPLINE_DEVICE_SPIN | WARPLINE_DEVICE_NO_CRC) != 0 {
            return Err(Failure::invalid("a flag is none of WARPLINE_DEVICE_*"));
        }
        // SAFETY: the caller's promise.
        let (addresses, routes) = unsafe { (text(self.addresses)?, text(self.routes)?) };
        let addresses =
            addresses.unwrap_or_default().split_whitespace().map(cidr).collect::<Result<_, _>>()?;
        let routes = routes.unwrap_or_default().split(',').filter(|route| !route.trim().is_empty());
        let mut config = DeviceConfig {
            addresses,
            routes: routes.map(route).collect::<Result<_, _>>()?,
            vlan: (self.vlan != 0).then_some(self.vlan),
            // Its address is replaced.
            ..DeviceConfig::new(std::net::Ipv4Addr::UNSPECIFIED, 0)
        };
        if self.window != 0 {
            config.window_octets = self.window;
        }
        if self.flags & WARPLINE_DEVICE_NO_CRC != 0 {
            config.crc = CrcPolicy::OffIfPeerAgrees;
        }
        Ok(config)
    }
}

fn cidr(text: &str) -> Result<Cidr, Failure> {
    text.parse().map_err(|error| Failure::of(libc::EINVAL, &error))
}

fn route(text: &str) -> Result<Route, Failure> {
    let mut words = text.split_whitespace();
    let (Some(destination), Some(gateway), None) = (words.next(), words.next(), words.next()) else {
        return Err(Failure::invalid("a route is not \"NETWORK/PREFIX GATEWAY\""));
    };
    let gateway = gateway.parse().map_err(|error| Failure::of(libc::EINVAL, &error))?;
    Ok(Route { destination: cidr(destination)?, gateway })
}

/// Starts a device on the DPDK port `port`, such as `"net_tap0"` or a PCI address.
///
/// DPDK's EAL is started by the first call, with `eal` for its command line, such as `"--vdev=net_tap0,iface=tap0"`; a
/// process has one, so later calls pass null and name another port of the same command line.
///
/// - `-EINVAL`: an argument is wrong
/// - `-EALREADY`: the EAL runs, and `eal` is not null
/// - `-ENODEV`: the EAL or the port does not start
/// - `-ENOMEM`: a thread, a file descriptor or memory is lacking
/// - `-ENOSYS`: the library was built without DPDK
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_open(
    eal: *const c_char,
    port: *const c_char,
    attr: *const DeviceAttr,
    device: *mut *mut Device,
) -> c_int {
    guard(|| {
        // SAFETY: what C promises for every call (crate documentation).
        unsafe {
            let (eal, port, attr) = (text(eal)?, text(port)?.ok_or(Failure::NULL)?, borrow(attr)?);
            let config = attr.config()?;
            hand_out(device, || start_on_port(eal, port, attr, config))?;
        }
        Ok(0)
    })
}

#[cfg(feature = "dpdk")]
fn start_on_port(
    eal: Option<&str>,
    port: &str,
    attr: &DeviceAttr,
    mut config: DeviceConfig,
) -> Result<Device, Failure> {
    use dpdk::{Eal, EalError};
    use warpline::open::{self, OpenError};

    let failed = |error: OpenError| {
        let code = match error {
            OpenError::Argument(_) => libc::EINVAL,
            OpenError::Eal(EalError::AlreadyInitialised) => libc::EALREADY,
            OpenError::Mempool(_) | OpenError::PoolTooSmall(_) => libc::ENOMEM,
            _ => libc::ENODEV,
        };
        Failure::of(code, &error)
    };
    let eal = match (eal, Eal::current()) {
        (None, Some(running)) => running,
        (arguments, _) => open::eal(arguments.unwrap_or_default()).map_err(failed)?,
    };
    config.memory = open::hugepages(eal);
    let port = open::port(eal, port, attr.mtu_octets()).map_err(failed)?;
    Ok(Device(warpline::Device::start(port, &config, attr.poll_thread())?))
}

#[cfg(not(feature = "dpdk"))]
fn start_on_port(_: Option<&str>, _: &str, _: &DeviceAttr, _: DeviceConfig) -> Result<Device, Failure> {
    Err(Failure::new(libc::ENOSYS, "this build of warpline has no DPDK: build it with the feature dpdk"))
}

/// Starts two devices with a link in memory between them: for tests and for trying things out, without DPDK.
///
/// Fails as `warpline_open` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_open_pair(
    a_attr: *const DeviceAttr,
    b_attr: *const DeviceAttr,
    a: *mut *mut Device,
    b: *mut *mut Device,
) -> c_int {
    guard(|| {
        // SAFETY: what C promises for every call.
        unsafe {
            let (a_attr, b_attr) = (borrow(a_attr)?, borrow(b_attr)?);
            let (a_config, b_config) = (a_attr.config()?, b_attr.config()?);
            let end = |attr: &DeviceAttr, end| EndConfig { mtu_octets: attr.mtu_octets().into(), ..end };
            // Nothing is left to chance on a link that harms nothing.
            let (a_end, b_end) = sim::link(0, end(a_attr, EndConfig::a()), end(b_attr, EndConfig::b()));
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

/// Gives a device back. What was made from it goes on until it is given back too. Null is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_close(device: *mut Device) {
    // SAFETY: what C promises for every call.
    crate::error::guard_or((), || drop(unsafe { take_back(device) }));
}
