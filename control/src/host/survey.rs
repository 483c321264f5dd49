//! A survey of the interface under a device, before it is opened.

use std::net::IpAddr;

use warpline_dataplane::net::addresses::{Cidr, Presence};

use super::arrivals::{Arrivals, LongPackets};
use super::claim::{AddressKey, Claim, Owner, claim};
use super::interfaces::{self, Interface};
use super::offloads::Ethtool;
use crate::vocabulary::device_name::{DeviceKind, DeviceName};

/// Why a device on an interface of the kernel could not work.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFault {
    /// The kernel has no such interface.
    #[error("there is no interface '{interface}'; there are {existing}")]
    NoInterface {
        /// The name asked for.
        interface: String,
        /// The interfaces of this network namespace.
        existing: String,
    },
    /// Nothing but this machine is at the other end of a loopback interface.
    #[error(
        "'{interface}' reaches no other station: use a veth pair (ip link add e1 type veth peer name e2)"
    )]
    Loopback {
        /// The interface.
        interface: String,
    },
    /// The interface is down.
    #[error("interface '{interface}' is down; bring it up: ip link set {interface} up")]
    InterfaceDown {
        /// The interface.
        interface: String,
    },
    /// The device's packets are larger than those of the interface.
    #[error(
        "interface '{interface}' carries packets of {carries} bytes, not {asked}: write mtu={carries}, or \
         raise it at both ends of the link: ip link set {interface} mtu {asked}"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU, in bytes.
        carries: u32,
        /// The device's, in bytes.
        asked: u16,
    },
    /// The kernel has the device's address, too, and would refuse connections to it.
    #[error(
        "the kernel has {} too, on '{interface}', and would refuse what peers send to it: give the device \
         another address of {}, or take this one from the kernel: ip address delete {address} dev \
         {interface}",
        .address.address,
        .address.network()
    )]
    KernelHasAddress {
        /// The interface with the address.
        interface: String,
        /// The address.
        address: Cidr,
    },
    /// The device is to share an address of the kernel, which has none on the interface.
    #[error(
        "the kernel has no address on '{interface}' to share: give the device one of its own, \
         packet:{interface},address=198.18.0.2/24, or the interface: ip address add 198.18.0.2/24 dev \
         {interface}"
    )]
    NoKernelAddress {
        /// The interface.
        interface: String,
    },
    /// The device is to share an address that the kernel does not have on the interface.
    #[error(
        "the kernel does not have {address} on '{interface}': without presence=shared it is the device's own"
    )]
    NotTheKernels {
        /// The interface.
        interface: String,
        /// The address.
        address: IpAddr,
    },
    /// Another device has the address on the same interface.
    #[error("{owner} has {address} on '{interface}' already: {}", remedy(.owner))]
    AddressInUse {
        /// The interface.
        interface: String,
        /// The address.
        address: IpAddr,
        /// What has it.
        owner: Owner,
    },
}

/// What may keep a device from working, though it can be opened.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostWarning {
    /// The interface is up, but not what it is attached to.
    #[error("interface '{interface}' has no carrier: its cable, or the other end of its veth pair, is down")]
    NoCarrier {
        /// The interface.
        interface: String,
    },
    /// The kernel sends packets longer than the MTU through the other end of a veth pair, which leaves them
    /// so.
    #[error(
        "the kernel leaves segmentation to '{other_end}', the other end of the veth pair '{interface}': its \
         packets are longer than the MTU, and are cut and dropped; ethtool -K {other_end} tso off, or \
         packet:{interface}, or af_packet:{interface},super_frames=on"
    )]
    Unsegmented {
        /// The interface.
        interface: String,
        /// The other end of the veth pair.
        other_end: String,
    },
    /// Segments that arrive are joined to packets longer than the MTU.
    #[error(
        "segments that arrive at '{joining}' are joined to packets longer than the MTU, which are cut and \
         dropped; ethtool -K {joining} {options}, or packet:{interface}, or \
         af_packet:{interface},super_frames=on"
    )]
    Joined {
        /// The interface.
        interface: String,
        /// The interface that joins: the same, or one beneath it.
        joining: String,
        /// What turns that off, as `ethtool -K` takes it.
        options: String,
    },
    /// The port has one queue, so that one core receives for all.
    #[error("the port '{port}' has one queue for {cores} cores: the first core receives and sends for all")]
    OneQueue {
        /// The name of the port.
        port: String,
        /// Cores of the device.
        cores: usize,
    },
    /// The interface has more channels than the device has queues.
    #[error(
        "the interface '{interface}' has {channels} channels, and the device queues for {queues}: what comes \
         to the others is the kernel's, and its flows are lost; ethtool -L {interface} combined {queues}"
    )]
    OtherChannels {
        /// The interface.
        interface: String,
        /// Its channels.
        channels: usize,
        /// Queues of the device.
        queues: usize,
    },
    /// What the peer of a memif can do to this process.
    #[error(
        "memif is for processes that trust each other: if the peer leaves during a transfer, DPDK's driver \
         may end this process (SIGSEGV); vhost and virtio_user survive that"
    )]
    SharedMemory,
}

fn remedy(owner: &Owner) -> String {
    let other = "give this device another address";
    if owner.is_this_process() { other.into() } else { format!("{other}, or end it: kill {}", owner.pid) }
}

/// What is known of the interface under a device that may be opened.
#[derive(Debug)]
pub(crate) struct Survey {
    /// The kind of the device: of one in DPDK's notation, that of its driver.
    pub(crate) kind: DeviceKind,
    /// The number of the interface, if there is one yet.
    pub(crate) interface: Option<u32>,
    /// The claims to the device's addresses: they belong to the device.
    pub(crate) claims: Vec<Claim>,
    /// TCP segments may arrive intact with partial checksums.
    pub(crate) has_partial_checksums: bool,
    pub(crate) warnings: Vec<HostWarning>,
}

impl Survey {
    /// The survey of a device of which nothing is known.
    fn of_nothing(kind: DeviceKind) -> Self {
        Self { kind, interface: None, claims: Vec::new(), has_partial_checksums: false, warnings: Vec::new() }
    }
}

/// Looks at the interface under `device`, and claims the device's addresses on it. `under_port` is the number
/// of the interface, if DPDK has the port already and says.
///
/// # Errors
///
/// [`HostFault`]. Where the kernel does not list its interfaces, all that fails is the device itself.
pub(crate) fn survey(device: &DeviceName, under_port: Option<u32>) -> Result<Survey, HostFault> {
    let listed = interfaces::list();
    let interfaces = listed.as_deref().unwrap_or_default();
    let under_port = interfaces.iter().find(|one| Some(one.index) == under_port);
    let named = device.in_own_kind(under_port.map(|one| one.name.as_str()));
    let device = named.as_ref().unwrap_or(device);
    let nothing = Survey::of_nothing(device.kind());
    if !matches!(
        device.kind(),
        DeviceKind::Packet | DeviceKind::AfPacket | DeviceKind::AfXdp | DeviceKind::Tap
    ) {
        let is_memif = device.kind() == DeviceKind::Memif
            || device.kind() == DeviceKind::Eal && device.target().starts_with("net_memif");
        return Ok(Survey {
            warnings: is_memif.then_some(HostWarning::SharedMemory).into_iter().collect(),
            ..nothing
        });
    }
    if listed.is_err() {
        return Ok(nothing);
    }
    check(device, interfaces)?;
    // A tap that does not exist yet comes with the device.
    let Some(interface) = interfaces.iter().find(|one| one.name == device.target()) else {
        return Ok(nothing);
    };
    let ethtool = Ethtool::open().ok();
    let offloads = |index| ethtool.as_ref()?.offloads(index).ok();
    let arrivals = Arrivals { interfaces, offloads: &offloads };
    Ok(Survey {
        interface: Some(interface.index),
        claims: claims(device, interface)?,
        has_partial_checksums: device.kind() != DeviceKind::Tap && arrivals.have_partial_checksums(interface),
        warnings: warnings(device, interface, &arrivals),
        ..nothing
    })
}

/// Checks that `device` can work on its interface.
fn check(device: &DeviceName, interfaces: &[Interface]) -> Result<(), HostFault> {
    if device.kind() != DeviceKind::Tap {
        check_interface(device, interfaces)?;
    }
    if device.presence() == Presence::Shared {
        return check_shared(device, interfaces);
    }
    // The kernel answers for an address of its own on whichever interface a packet comes.
    let taken = interfaces.iter().find_map(|interface| {
        let is_own = |has: &&Cidr| device.addresses().iter().any(|own| own.address == has.address);
        interface.addresses.iter().find(is_own).map(|address| (interface.name.clone(), *address))
    });
    match taken {
        Some((interface, address)) => Err(HostFault::KernelHasAddress { interface, address }),
        None => Ok(()),
    }
}

/// Checks that the addresses which `device` shares are the kernel's on its interface.
fn check_shared(device: &DeviceName, interfaces: &[Interface]) -> Result<(), HostFault> {
    let interface = interfaces.iter().find(|one| one.name == device.target());
    let is_there =
        |own: &&Cidr| interface.is_some_and(|one| one.addresses.iter().any(|has| has.address == own.address));
    match device.addresses().iter().find(|own| !is_there(own)) {
        Some(own) => {
            let interface = device.target().to_owned();
            Err(HostFault::NotTheKernels { interface, address: own.address })
        }
        None => Ok(()),
    }
}

/// Checks the interface of a device that does not make it, nor bring it up.
pub(super) fn check_interface(device: &DeviceName, interfaces: &[Interface]) -> Result<(), HostFault> {
    let name = || device.target().to_owned();
    let Some(interface) = interfaces.iter().find(|one| one.name == device.target()) else {
        let existing: Vec<&str> = interfaces.iter().map(|one| one.name.as_str()).collect();
        return Err(HostFault::NoInterface { interface: name(), existing: existing.join(", ") });
    };
    if interface.is_loopback {
        return Err(HostFault::Loopback { interface: name() });
    }
    if !interface.is_up {
        return Err(HostFault::InterfaceDown { interface: name() });
    }
    if u32::from(device.mtu()) > interface.mtu {
        return Err(HostFault::Mtu { interface: name(), carries: interface.mtu, asked: device.mtu() });
    }
    Ok(())
}

fn claims(device: &DeviceName, interface: &Interface) -> Result<Vec<Claim>, HostFault> {
    let mut claims = Vec::new();
    // Shared addresses have any number of devices: the kernel gives each its ports.
    if device.presence() == Presence::Shared {
        return Ok(claims);
    }
    for own in device.addresses() {
        let address = own.address;
        let key = AddressKey { interface: interface.index, vlan: device.vlan(), address };
        let claim = claim(key).map_err(|owner| HostFault::AddressInUse {
            interface: interface.name.clone(),
            address,
            owner,
        })?;
        claims.extend(claim);
    }
    Ok(claims)
}

fn warnings(device: &DeviceName, interface: &Interface, arrivals: &Arrivals<'_>) -> Vec<HostWarning> {
    let mut warnings = Vec::new();
    if device.kind() != DeviceKind::Tap && !interface.has_carrier {
        warnings.push(HostWarning::NoCarrier { interface: interface.name.clone() });
    }
    // An XDP program comes before what joins, and has the kernel segment what it sends through a veth pair.
    if matches!(device.kind(), DeviceKind::Packet | DeviceKind::AfPacket) && !device.has_super_frames() {
        let name = interface.name.clone();
        warnings.extend(arrivals.long_packets(interface).map(|why| match why {
            LongPackets::Unsegmented { other_end } => HostWarning::Unsegmented { interface: name, other_end },
            LongPackets::Joined { interface: joining, by } => {
                let options: Vec<String> = by.iter().map(|offload| format!("{offload} off")).collect();
                HostWarning::Joined { interface: name, joining, options: options.join(" ") }
            }
        }));
    }
    warnings
}
