//! The kinds of devices: the word that each has in a name, what it opens, and the options that it adds.

use std::fmt;

/// The kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A wire in memory.
    Ring,
    /// A packet socket.
    Packet,
    /// A TAP interface.
    Tap,
    /// A packet socket of DPDK's.
    AfPacket,
    /// An AF_XDP socket.
    AfXdp,
    /// Memory shared with another process.
    Memif,
    /// The host's end of a vhost-user socket.
    Vhost,
    /// The guest's end of a vhost-user socket.
    VirtioUser,
    /// A PCI device.
    Pci,
    /// A device in DPDK's notation.
    Eal,
}

/// The text between the colon and the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Nothing,
    Interface,
    SocketPath,
    PciAddress,
    Port,
}

/// Options of every kind.
const COMMON_OPTIONS: [&str; 7] = ["address", "gateway", "route", "mtu", "vlan", "connections", "cores"];
/// The longest name of an interface (`IFNAMSIZ` less the NUL), in bytes.
const INTERFACE_NAME_MAX: usize = 15;
/// The longest path of a socket (unix(7): `sun_path` less the NUL), in bytes.
pub(super) const SOCKET_PATH_MAX: usize = 107;

impl DeviceKind {
    /// All kinds, in the order in which documents list them.
    pub const ALL: [Self; 10] = [
        Self::Ring,
        Self::Packet,
        Self::Tap,
        Self::AfPacket,
        Self::AfXdp,
        Self::Memif,
        Self::Vhost,
        Self::VirtioUser,
        Self::Pci,
        Self::Eal,
    ];

    /// Returns the word before the colon.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Packet => "packet",
            Self::Tap => "tap",
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Memif => "memif",
            Self::Vhost => "vhost",
            Self::VirtioUser => "virtio_user",
            Self::Pci => "pci",
            Self::Eal => "eal",
        }
    }

    /// Returns how a name of this kind is written, options aside: `tap:INTERFACE`.
    pub fn form(self) -> String {
        match self.target() {
            Target::Nothing => self.word().into(),
            Target::Interface => format!("{self}:INTERFACE"),
            Target::SocketPath => format!("{self}:PATH"),
            Target::PciAddress => format!("{self}:ADDRESS"),
            Target::Port => format!("{self}:PORT"),
        }
    }

    /// Returns the options that this kind adds to those of every kind; `None` if its driver takes any.
    pub const fn options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Ring => Some(&["super_frames"]),
            Self::Packet => Some(&["presence", "super_frames", "queues"]),
            Self::Tap => Some(&["mac", "queues"]),
            Self::AfPacket => Some(&["framesz", "blocksz", "framecnt", "super_frames", "queues"]),
            Self::AfXdp => Some(&["start_queue", "force_copy", "busy_budget", "queues"]),
            Self::Memif => Some(&["role", "mac", "id", "secret", "bsize", "rsize"]),
            Self::Vhost => Some(&["client", "tso", "super_frames", "queues"]),
            Self::VirtioUser => Some(&["mac", "server", "queue_size", "super_frames", "queues"]),
            Self::Pci | Self::Eal => None,
        }
    }

    pub(super) fn all_options(self) -> Vec<&'static str> {
        COMMON_OPTIONS.into_iter().chain(self.options().unwrap_or_default().iter().copied()).collect()
    }

    pub(super) const fn target(self) -> Target {
        match self {
            Self::Ring => Target::Nothing,
            Self::Packet | Self::Tap | Self::AfPacket | Self::AfXdp => Target::Interface,
            Self::Memif | Self::Vhost | Self::VirtioUser => Target::SocketPath,
            Self::Pci => Target::PciAddress,
            Self::Eal => Target::Port,
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Target {
    /// Says what a target must be.
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Self::Nothing => "a ring has nothing to open",
            Self::Interface => "the name of a network interface, 1 to 15 bytes, as `ip link` lists it",
            Self::SocketPath => "the path of a Unix socket, 1 to 107 bytes, without a comma",
            Self::PciAddress => "the address of a PCI device, as in pci:0000:01:00.0 (`lspci -D` lists them)",
            Self::Port => "a device in DPDK's notation, as in eal:net_null0,size=64",
        }
    }

    /// Returns the target as it is kept; `None` if it is impossible.
    pub(super) fn parse(self, text: Option<&str>) -> Option<String> {
        let printable = |text: &&str| !text.is_empty() && !text.contains(char::is_control);
        match self {
            Self::Nothing => text.is_none().then(String::new),
            Self::Interface => text
                .filter(printable)
                .filter(|name| name.len() <= INTERFACE_NAME_MAX)
                .filter(|name| !name.contains(|c: char| c.is_whitespace() || c == '/' || c == ':'))
                .map(str::to_owned),
            Self::SocketPath => {
                text.filter(printable).filter(|path| path.len() <= SOCKET_PATH_MAX).map(str::to_owned)
            }
            Self::PciAddress => text.and_then(pci_address),
            Self::Port => {
                text.filter(printable).filter(|port| !port.contains(char::is_whitespace)).map(str::to_owned)
            }
        }
    }
}

/// Returns the address of a PCI device with its domain, `0000:01:00.0`, from a text with or without a domain.
fn pci_address(text: &str) -> Option<String> {
    let hex = |text: &str, digits: usize| {
        (text.len() == digits).then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let (place, function) = text.rsplit_once('.')?;
    let parts: Vec<&str> = place.split(':').collect();
    let (domain, bus, slot) = match parts[..] {
        [bus, slot] => ("0000", bus, slot),
        [domain, bus, slot] => (domain, bus, slot),
        _ => return None,
    };
    let (domain, bus, slot) = (hex(domain, 4)?, hex(bus, 2)?, hex(slot, 2)?);
    let function = hex(function, 1).filter(|function| *function < 8)?;
    (slot < 32).then(|| format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}"))
}
