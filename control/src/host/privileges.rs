//! What this process may do, and what a device needs of it. Asked once a device did not open: DPDK's drivers
//! say "operation not permitted" at best, and not what would permit it.

use std::env;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::vocabulary::device_name::DeviceKind;

/// A right or a resource that a device needs and that this process does not have.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// Capabilities (capabilities(7)).
    #[error("this process lacks {}: run it as root, or grant it: {}", listed(.missing), setcap(.needed))]
    Capabilities {
        /// Those it lacks.
        missing: Vec<Capability>,
        /// All that the device needs.
        needed: Vec<Capability>,
    },
    /// Memory that may be locked (RLIMIT_MEMLOCK of getrlimit(2)).
    #[error(
        "this process may lock {may_kib} KiB of memory, and the device needs {needed_kib}: run it as root, \
         grant it CAP_IPC_LOCK: {}, or raise the limit: ulimit -l {needed_kib}",
        setcap(.needed)
    )]
    LockedMemory {
        /// What it may lock, in KiB.
        may_kib: u64,
        /// What the device needs, in KiB.
        needed_kib: u64,
        /// The capabilities that the device needs.
        needed: Vec<Capability>,
    },
    /// The kernel has no TUN/TAP driver here.
    #[error(
        "there is no {path}: load the driver (sudo modprobe tun), or pass it to the container (--device \
         {path})"
    )]
    NoTun {
        /// Where it should be.
        path: String,
    },
    /// A file of the kernel that this user may not open.
    #[error("this process may not open {path}: run it as root, or grant it: sudo chown $USER {path}")]
    File {
        /// The file.
        path: String,
    },
    /// There is no such PCI device.
    #[error("there is no PCI device {address}; lspci -D lists them")]
    NoPciDevice {
        /// The address.
        address: String,
    },
    /// The PCI device belongs to a driver of the kernel, or to none.
    #[error(
        "PCI device {address} is bound to {}, not to vfio-pci; bind it, after which the kernel has no such \
         interface: sudo modprobe vfio-pci && sudo dpdk-devbind.py --bind=vfio-pci {address}",
        .driver.as_deref().unwrap_or("no driver")
    )]
    NotBoundToVfio {
        /// The address.
        address: String,
        /// Its driver.
        driver: Option<String>,
    },
}

/// A capability that devices need (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Capability {
    /// `CAP_NET_ADMIN`.
    NetAdmin,
    /// `CAP_NET_RAW`.
    NetRaw,
    /// `CAP_IPC_LOCK`.
    IpcLock,
    /// `CAP_SYS_ADMIN`.
    SysAdmin,
}

impl Capability {
    /// Its bit in a set of the kernel's.
    const fn bit(self) -> u64 {
        1 << match self {
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
            Self::IpcLock => 14,
            Self::SysAdmin => 21,
        }
    }

    /// Returns its name as setcap(8) takes it.
    const fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "cap_net_admin",
            Self::NetRaw => "cap_net_raw",
            Self::IpcLock => "cap_ipc_lock",
            Self::SysAdmin => "cap_sys_admin",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_ascii_uppercase())
    }
}

/// Returns capabilities as a sentence lists them.
fn listed(capabilities: &[Capability]) -> String {
    let names: Vec<String> = capabilities.iter().map(ToString::to_string).collect();
    match &names[..] {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// Returns the command that grants capabilities to this program.
fn setcap(capabilities: &[Capability]) -> String {
    let names: Vec<&str> = capabilities.iter().map(|capability| capability.name()).collect();
    let program = env::current_exe().unwrap_or_else(|_| "PROGRAM".into());
    format!("sudo setcap {}+ep {}", names.join(","), program.display())
}

/// What a device needs.
struct Needs {
    capabilities: &'static [Capability],
    /// Memory that its sockets lock, unless the process has `CAP_IPC_LOCK`, in KiB.
    locked_kib: u64,
}

/// Memory of the buffers of a port, which an AF_XDP socket locks, in KiB: rounded up.
const BUFFERS_KIB: u64 = 64 << 10;

impl Needs {
    fn of(kind: DeviceKind, locked_kib: u64) -> Self {
        use Capability::{IpcLock, NetAdmin, NetRaw, SysAdmin};
        match kind {
            DeviceKind::Packet => Self { capabilities: &[NetRaw], locked_kib: 0 },
            // The driver sets the flags of the interface, which is for administrators.
            DeviceKind::AfPacket => Self { capabilities: &[NetRaw, NetAdmin, IpcLock], locked_kib },
            // libxdp finds the loaded program by its number, which is for CAP_SYS_ADMIN.
            DeviceKind::AfXdp => {
                Self { capabilities: &[NetRaw, NetAdmin, SysAdmin, IpcLock], locked_kib: BUFFERS_KIB }
            }
            DeviceKind::Tap => Self { capabilities: &[NetAdmin], locked_kib: 0 },
            _ => Self { capabilities: &[], locked_kib: 0 },
        }
    }
}

/// What a process may do.
struct Rights {
    /// Its effective capabilities, as the kernel's set of bits.
    capabilities: u64,
    /// `None` without a limit.
    locked_kib: Option<u64>,
}

impl Rights {
    /// Returns those of this process; `None` if the kernel does not tell.
    fn of_this_process() -> Option<Self> {
        let status = fs::read_to_string("/proc/thread-self/status").ok()?;
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let locked = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        Some(Self {
            capabilities: u64::from_str_radix(set.trim(), 16).ok()?,
            locked_kib: locked.map(|bytes| bytes >> 10),
        })
    }

    fn has(&self, capability: Capability) -> bool {
        self.capabilities & capability.bit() != 0
    }

    /// Returns what these rights lack of what a device needs.
    fn lack(&self, needs: &Needs) -> Option<Missing> {
        let needed = needs.capabilities.to_vec();
        // The limit may do in place of this one.
        let may_lock = self.locked_kib.is_none_or(|may| may >= needs.locked_kib);
        let lacks = |capability: &Capability| {
            !(self.has(*capability) || *capability == Capability::IpcLock && may_lock)
        };
        let missing: Vec<Capability> = needed.iter().copied().filter(lacks).collect();
        match &missing[..] {
            [] => None,
            [Capability::IpcLock] => Some(Missing::LockedMemory {
                may_kib: self.locked_kib.unwrap_or(u64::MAX),
                needed_kib: needs.locked_kib,
                needed,
            }),
            _ => Some(Missing::Capabilities { missing, needed }),
        }
    }
}

/// Returns what this process lacks for a device of the kind `kind`, which did not open and locks `locked_kib`
/// KiB of memory; `None` if the reason is another one.
pub(crate) fn missing(kind: DeviceKind, locked_kib: u64) -> Option<Missing> {
    if kind == DeviceKind::Tap
        && let Some(missing) = tun(Path::new("/dev/net/tun"))
    {
        return Some(missing);
    }
    Rights::of_this_process()?.lack(&Needs::of(kind, locked_kib))
}

/// Returns what keeps this process from the kernel's TUN/TAP driver.
fn tun(path: &Path) -> Option<Missing> {
    let name = path.display().to_string();
    match OpenOptions::new().read(true).write(true).open(path).map_err(|error| error.kind()) {
        Err(io::ErrorKind::NotFound) => Some(Missing::NoTun { path: name }),
        Err(io::ErrorKind::PermissionDenied) => Some(Missing::File { path: name }),
        _ => None,
    }
}

/// Returns what keeps this process from the PCI device at `address`. `root` is that of the file system.
pub(crate) fn missing_for_pci(root: &Path, address: &str) -> Option<Missing> {
    /// Drivers that share an adapter with DPDK, or that hand it over without VFIO.
    const SHARING: [&str; 5] = ["mlx4_core", "mlx5_core", "mana", "uio_pci_generic", "igb_uio"];
    let device = root.join("sys/bus/pci/devices").join(address);
    if !root.join("sys/bus/pci/devices").exists() {
        return None;
    }
    let address = address.to_owned();
    if !device.exists() {
        return Some(Missing::NoPciDevice { address });
    }
    let driver = last_of_link(device.join("driver"));
    match driver.as_deref() {
        Some("vfio-pci") => {}
        Some(driver) if SHARING.contains(&driver) => return None,
        _ => return Some(Missing::NotBoundToVfio { address, driver }),
    }
    let group = last_of_link(device.join("iommu_group"))?;
    ["vfio".into(), group].into_iter().find_map(|file| {
        let path = root.join("dev/vfio").join(file);
        let opened = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| error.kind());
        matches!(opened, Err(io::ErrorKind::PermissionDenied))
            .then(|| Missing::File { path: path.display().to_string() })
    })
}

/// Returns the name of what a link of sysfs leads to.
fn last_of_link(link: PathBuf) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn lack(kind: DeviceKind, capabilities: &[Capability], locked_kib: Option<u64>) -> Option<String> {
        let capabilities = capabilities.iter().fold(0, |set, capability| set | capability.bit());
        let lack = Rights { capabilities, locked_kib }.lack(&Needs::of(kind, 16_384));
        lack.map(|lack| lack.to_string().replace(&*env::current_exe().unwrap().to_string_lossy(), "PROGRAM"))
    }

    #[test]
    fn what_is_lacking_is_named_with_the_command_that_grants_it() {
        use Capability::{IpcLock, NetAdmin, NetRaw, SysAdmin};
        assert_eq!(lack(DeviceKind::AfPacket, &[NetRaw, NetAdmin, IpcLock], Some(64)), None);
        assert_eq!(lack(DeviceKind::AfPacket, &[NetRaw, NetAdmin], Some(16_384)), None);
        assert_eq!(lack(DeviceKind::AfPacket, &[NetRaw, NetAdmin], None), None);
        assert_eq!(lack(DeviceKind::Memif, &[], Some(0)), None);
        assert_eq!(lack(DeviceKind::Packet, &[NetRaw], Some(0)), None);
        let expected = "this process lacks CAP_NET_RAW and CAP_NET_ADMIN: run it as root, or grant it: sudo \
                        setcap cap_net_raw,cap_net_admin,cap_ipc_lock+ep PROGRAM";
        assert_eq!(lack(DeviceKind::AfPacket, &[], None).as_deref(), Some(expected));
        let expected = "this process may lock 8192 KiB of memory, and the device needs 16384: run it as \
                        root, grant it CAP_IPC_LOCK: sudo setcap \
                        cap_net_raw,cap_net_admin,cap_ipc_lock+ep PROGRAM, or raise the limit: ulimit -l \
                        16384";
        assert_eq!(lack(DeviceKind::AfPacket, &[NetRaw, NetAdmin], Some(8192)).as_deref(), Some(expected));
        let expected = "this process lacks CAP_SYS_ADMIN and CAP_IPC_LOCK: run it as root, or grant it: sudo \
                        setcap cap_net_raw,cap_net_admin,cap_sys_admin,cap_ipc_lock+ep PROGRAM";
        assert_eq!(lack(DeviceKind::AfXdp, &[NetRaw, NetAdmin], Some(8192)).as_deref(), Some(expected));
        let expected = "this process lacks CAP_NET_ADMIN: run it as root, or grant it: sudo setcap \
                        cap_net_admin+ep PROGRAM";
        assert_eq!(lack(DeviceKind::Tap, &[NetRaw, SysAdmin], None).as_deref(), Some(expected));
    }

    #[test]
    fn the_driver_of_a_pci_device_is_looked_at() {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("sys/bus/pci/devices");
        let missing =
            |address: &str| missing_for_pci(root.path(), address).map(|missing| missing.to_string());
        assert_eq!(missing("0000:01:00.0"), None, "no PCI at all: DPDK says so");
        let bound = [("0000:01:00.0", "ixgbe"), ("0000:02:00.0", "mlx5_core"), ("0000:03:00.0", "vfio-pci")];
        for (address, driver) in bound {
            fs::create_dir_all(devices.join(address)).unwrap();
            symlink(format!("../../drivers/{driver}"), devices.join(address).join("driver")).unwrap();
        }
        fs::create_dir_all(devices.join("0000:04:00.0")).unwrap();
        let unbound = |address: &str, driver: &str| {
            format!(
                "PCI device {address} is bound to {driver}, not to vfio-pci; bind it, after which the kernel \
                 has no such interface: sudo modprobe vfio-pci && sudo dpdk-devbind.py --bind=vfio-pci \
                 {address}"
            )
        };
        for (address, expected) in [
            ("0000:01:00.0", Some(unbound("0000:01:00.0", "ixgbe"))),
            ("0000:02:00.0", None),
            ("0000:03:00.0", None),
            ("0000:04:00.0", Some(unbound("0000:04:00.0", "no driver"))),
            ("0000:05:00.0", Some("there is no PCI device 0000:05:00.0; lspci -D lists them".into())),
        ] {
            assert_eq!(missing(address), expected, "{address}");
        }
    }

    #[test]
    fn a_driver_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tun");
        let missing = tun(&path).unwrap().to_string();
        let path = path.display();
        assert_eq!(
            missing,
            format!(
                "there is no {path}: load the driver (sudo modprobe tun), or pass it to the container \
                 (--device {path})"
            )
        );
    }
}
