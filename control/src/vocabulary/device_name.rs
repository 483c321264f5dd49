//! Device names: how users say which device frames go through, on a command line, in C and in the
//! environment.

mod kind;

use std::env;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use warpline_dataplane::limits;
use warpline_dataplane::net::addresses::{Cidr, NotCidr, Presence, Route};

use super::cpu_list::{CpuList, NotCpuList};
use kind::Target;

pub use kind::DeviceKind;

/// The environment variable that names a device where nothing else does.
pub const DEVICE_VARIABLE: &str = "WARPLINE_DEVICE";

/// A device as users name it: a kind, what the kind opens, and options.
///
/// | name | device |
/// |---|---|
/// | `ring` | a wire in memory; both ends are in this process |
/// | `packet:INTERFACE` | an interface of the kernel, through a packet socket of our own; the only kind that needs no DPDK |
/// | `tap:INTERFACE` | a TAP interface of the kernel, which appears with the device |
/// | `af_packet:INTERFACE` | an interface of the kernel, through a packet socket of DPDK's |
/// | `af_xdp:INTERFACE` | an interface of the kernel, through an AF_XDP socket |
/// | `memif:PATH` | memory shared with another process, set up over the socket at `PATH`; same trust domain only: either process can end or corrupt the other |
/// | `vhost:PATH` | the host's end of a vhost-user socket, which survives its peer |
/// | `virtio_user:PATH` | the guest's end of a vhost-user socket, which survives its peer; needs hugepages |
/// | `pci:ADDRESS` | a PCI device that is bound to vfio-pci |
/// | `eal:PORT` | a DPDK device in DPDK's own notation: `eal:net_null0,size=64` |
///
/// Options follow after commas. Every kind has these:
///
/// | option | meaning |
/// |---|---|
/// | `address=ADDRESS/PREFIX` | an address of the device; without `/PREFIX`, 24 bits for IPv4 and 64 for IPv6. Repeatable |
/// | `gateway=ADDRESS` | the default gateway, one for each family |
/// | `route=NETWORK/PREFIX@GATEWAY` | the gateway to a network. Repeatable |
/// | `mtu=BYTES` | the largest IP packet, 576 to 9600 bytes; 1500 without it |
/// | `vlan=NUMBER` | the VLAN of all frames, 1 to 4094 |
/// | `connections=NUMBER` | room for connections, and as many queue pairs; 65,536 without it |
/// | `cores=LIST` | the CPUs whose threads poll the device, one core on each: `2-5`, `2+4+7`, or `node0` for all of a NUMA node that the process may use; at most 64. One core without it |
///
/// A device of kind `packet` without an address shares those of the kernel on its interface, and has the
/// kernel's routes and the interface's MTU ([`open::resolved`](crate::open::resolved)); with
/// `presence=shared` it shares those that its name has.
///
/// [`DeviceKind::options`] lists those that one kind adds. `pci` and `eal` hand every other option to the
/// driver.
///
/// ```
/// use warpline::{DeviceKind, DeviceName};
///
/// let name: DeviceName = "af_packet:eth1,mtu=9000,address=198.18.0.1".parse()?;
/// assert_eq!((name.kind(), name.target(), name.mtu()), (DeviceKind::AfPacket, "eth1", 9000));
/// assert_eq!(name.to_string(), "af_packet:eth1,address=198.18.0.1/24,mtu=9000");
///
/// let error = "afpacket:eth1".parse::<DeviceName>().unwrap_err();
/// assert!(error.to_string().contains("af_packet:INTERFACE"));
/// # Ok::<(), warpline::DeviceNameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    kind: DeviceKind,
    target: String,
    addresses: Vec<Cidr>,
    routes: Vec<Route>,
    mtu: Option<u16>,
    vlan: Option<u16>,
    connections: Option<usize>,
    cores: Option<CpuList>,
    /// Options of the kind, in the order in which they were written.
    driver_options: Vec<(String, String)>,
}

/// A text that names no device, and why.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("device '{name}': {fault}")]
#[non_exhaustive]
pub struct DeviceNameError {
    name: String,
    fault: DeviceNameFault,
}

impl DeviceNameError {
    /// Returns what is wrong with the name.
    pub fn fault(&self) -> &DeviceNameFault {
        &self.fault
    }
}

/// The error in a device name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameFault {
    /// No kind has this name.
    #[error("there is no kind '{0}'; the kinds are {kinds}", kinds = kinds())]
    Kind(String),
    /// What the kind opens is missing or impossible.
    #[error("write {form}: {rule}", form = .kind.form(), rule = .kind.target().rule())]
    Target {
        /// The kind.
        kind: DeviceKind,
    },
    /// Text after a comma that is not `OPTION=VALUE`.
    #[error("'{0}' is not an option; write OPTION=VALUE")]
    OptionForm(String),
    /// The kind has no such option.
    #[error("{kind} has no option '{option}'; its options are {}", listed(.kind.all_options()))]
    UnknownOption {
        /// The kind.
        kind: DeviceKind,
        /// The option.
        option: String,
    },
    /// An option is present twice that may be present once.
    #[error("the option '{0}' is given twice")]
    Repeated(String),
    /// The value of an option is impossible.
    #[error("'{value}' is no value of the option '{option}': {rule}")]
    Value {
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// What the value must be.
        rule: &'static str,
    },
}

/// The least and the largest MTU of a device, in bytes.
const MTU: std::ops::RangeInclusive<u16> = 576..=9600;
/// The MTU of a device whose name has none.
const DEFAULT_MTU: u16 = 1500;
/// Parses an address of a device. Without a prefix the network has the usual size: 24 bits for IPv4, 64 for
/// IPv6.
///
/// # Errors
///
/// [`NotCidr`].
pub fn parse_interface_address(text: &str) -> Result<Cidr, NotCidr> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Cidr::new(address, if address.is_ipv4() { 24 } else { 64 })),
        Err(_) => text.parse(),
    }
}

impl DeviceName {
    /// Returns the device that the environment variable [`DEVICE_VARIABLE`] names; `None` if it is not set.
    ///
    /// # Errors
    ///
    /// [`DeviceNameError`] if its value names no device.
    pub fn from_environment() -> Result<Option<Self>, DeviceNameError> {
        env::var_os(DEVICE_VARIABLE).map(|name| name.to_string_lossy().parse()).transpose()
    }

    /// Returns the kind.
    pub const fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Returns what the kind opens: an interface, a path, an address; empty for `ring`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the addresses of the device.
    pub fn addresses(&self) -> &[Cidr] {
        &self.addresses
    }

    /// Returns the routes, those of `gateway` included.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Returns the largest IP packet in bytes: 1500 unless the name says otherwise.
    pub fn mtu(&self) -> u16 {
        self.mtu.unwrap_or(DEFAULT_MTU)
    }

    /// Returns true if the device is to carry super-frames, as far as it can: frames of up to 64 KiB, which
    /// hold the segments of a turn (`super_frames=on`). A packet socket does so without the option, for the
    /// kernel hands it such frames.
    pub fn has_super_frames(&self) -> bool {
        let option = self.driver_options.iter().find(|(option, _)| option == "super_frames");
        option.map_or(self.kind == DeviceKind::Packet, |(_, value)| value == "on")
    }

    /// Returns true if the port of the device is to have a queue for each core, if it has so many, also where
    /// it is not known what comes to which (`queues=each`; `queues=one` if not). Without the option so are
    /// those of the kernel's interfaces and PCI devices, and not those where a peer would have to have as
    /// many.
    pub fn has_queue_each(&self) -> bool {
        let option = || self.driver_options.iter().find(|(option, _)| option == "queues");
        match self.kind {
            DeviceKind::Packet
            | DeviceKind::Tap
            | DeviceKind::AfPacket
            | DeviceKind::AfXdp
            | DeviceKind::Pci => option().is_none_or(|(_, value)| value == "each"),
            DeviceKind::Vhost | DeviceKind::VirtioUser => option().is_some_and(|(_, value)| value == "each"),
            DeviceKind::Eal => !self.target.starts_with("net_"),
            DeviceKind::Ring | DeviceKind::Memif => false,
        }
    }

    /// Returns whose the addresses are: those of the kernel of this machine for a packet socket that says so
    /// (`presence=shared`).
    pub fn presence(&self) -> Presence {
        match self.driver_options.iter().find(|(option, _)| option == "presence") {
            Some((_, value)) if self.kind == DeviceKind::Packet && value == "shared" => Presence::Shared,
            _ => Presence::Own,
        }
    }

    /// Returns true if the addresses of the kernel are to be those of the device: a packet socket whose name
    /// has none.
    pub(crate) fn lacks_addresses(&self) -> bool {
        let is_own = self.driver_options.iter().any(|(option, value)| option == "presence" && value == "own");
        self.kind == DeviceKind::Packet && self.addresses.is_empty() && !is_own
    }

    /// Returns this name with addresses that the device shares with the kernel, which has these routes, and
    /// the MTU `mtu` unless the name says another.
    pub(crate) fn sharing(&self, addresses: Vec<Cidr>, routes: Vec<Route>, mtu: u16) -> Self {
        let mut name = Self { addresses, ..self.clone() };
        name.routes.extend(routes);
        name.mtu = name.mtu.or(Some(mtu));
        name.driver_options.retain(|(option, _)| option != "presence");
        name.driver_options.push(("presence".into(), "shared".into()));
        name
    }

    /// Returns the VLAN of all frames.
    pub const fn vlan(&self) -> Option<u16> {
        self.vlan
    }

    /// Returns how many connections the device has room for, and as many queue pairs, if the name says so.
    pub const fn connections(&self) -> Option<usize> {
        self.connections
    }

    /// Returns the CPUs with a core each, if the name lists them.
    pub const fn cores(&self) -> Option<&CpuList> {
        self.cores.as_ref()
    }

    /// Returns the options that the driver gets.
    pub fn driver_options(&self) -> &[(String, String)] {
        &self.driver_options
    }

    /// Returns this name with one more option.
    ///
    /// # Errors
    ///
    /// [`DeviceNameError`], as if the option stood at the end of the name.
    pub fn with_option(&self, option: &str, value: impl fmt::Display) -> Result<Self, DeviceNameError> {
        format!("{self},{option}={value}").parse()
    }

    /// Returns the name that a device in DPDK's notation has as one of its own kind, if it is on an interface
    /// of the kernel: `eal:net_tap0,iface=t0` is `tap:t0`. `otherwise` is the interface of a name without
    /// one.
    pub(crate) fn in_own_kind(&self, otherwise: Option<&str>) -> Option<Self> {
        const DRIVERS: [(&str, DeviceKind); 3] = [
            ("net_af_packet", DeviceKind::AfPacket),
            ("net_af_xdp", DeviceKind::AfXdp),
            ("net_tap", DeviceKind::Tap),
        ];
        let is_driver = |(driver, _): &(&str, DeviceKind)| self.target.starts_with(driver);
        let (_, kind) = DRIVERS.into_iter().find(|pair| self.kind == DeviceKind::Eal && is_driver(pair))?;
        let given = self.driver_options.iter().find(|(option, _)| option == "iface");
        let target = given.map(|(_, value)| value.as_str()).or(otherwise);
        let mut name = Self { kind, target: kind.target().parse(Some(target?))?, ..self.clone() };
        // What is ours alone: in DPDK's notation its driver has no such frames.
        name.driver_options
            .retain(|(option, _)| !["iface", "super_frames", "queues"].contains(&option.as_str()));
        Some(name)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), DeviceNameFault> {
        let wrong = |rule| DeviceNameFault::Value { option: option.into(), value: value.into(), rule };
        match option {
            "address" => {
                let rule = "write an address with its prefix, as in 198.18.0.1/24 or fd00::1/64";
                self.addresses.push(parse_interface_address(value).map_err(|_| wrong(rule))?);
            }
            "gateway" => {
                let gateway = value.parse().map_err(|_| wrong("write an address, as in 198.18.0.254"))?;
                self.add_route(option, Route::default_by(gateway))?;
            }
            "route" => {
                let rule = "write NETWORK/PREFIX@GATEWAY, as in 10.0.0.0/8@198.18.0.254";
                self.add_route(option, parse_route(value).ok_or_else(|| wrong(rule))?)?;
            }
            "mtu" => {
                let mtu = value.parse().ok().filter(|mtu| MTU.contains(mtu));
                let mtu = mtu.ok_or_else(|| wrong("it is 576 to 9600 bytes"))?;
                set_once(&mut self.mtu, mtu, option)?;
            }
            "vlan" => {
                let vlan = value.parse().ok().filter(|vlan| (1..=4094).contains(vlan));
                set_once(&mut self.vlan, vlan.ok_or_else(|| wrong("it is 1 to 4094"))?, option)?;
            }
            "connections" => {
                let connections =
                    value.parse().ok().filter(|count| (1..=limits::CONNECTIONS_MAX).contains(count));
                let connections = connections.ok_or_else(|| wrong("it is 1 to 16777216"))?;
                set_once(&mut self.connections, connections, option)?;
            }
            "cores" => {
                let cores = value.parse().map_err(|fault: NotCpuList| wrong(fault.rule()))?;
                set_once(&mut self.cores, cores, option)?;
            }
            _ => self.set_driver_option(option, value)?,
        }
        Ok(())
    }

    /// Adds a route. A family has one default gateway.
    fn add_route(&mut self, option: &str, route: Route) -> Result<(), DeviceNameFault> {
        let is_default = |route: &Route| route.destination.prefix_bits == 0;
        let same = |before: &Route| before.destination.contains(route.destination.address);
        if is_default(&route) && self.routes.iter().any(|before| is_default(before) && same(before)) {
            return Err(DeviceNameFault::Repeated(option.into()));
        }
        self.routes.push(route);
        Ok(())
    }

    fn set_driver_option(&mut self, option: &str, value: &str) -> Result<(), DeviceNameFault> {
        let kind = self.kind;
        if kind.options().is_some_and(|options| !options.contains(&option)) {
            return Err(DeviceNameFault::UnknownOption { kind, option: option.into() });
        }
        if self.driver_options.iter().any(|(set, _)| set == option) {
            return Err(DeviceNameFault::Repeated(option.into()));
        }
        let rule = match (kind.options(), option) {
            (_, "presence") if kind == DeviceKind::Packet => {
                (!["own", "shared"].contains(&value)).then_some("it is own or shared")
            }
            (_, "super_frames") => (!["on", "off"].contains(&value)).then_some("it is on or off"),
            (_, "queues") if kind != DeviceKind::Eal => {
                (!["one", "each"].contains(&value)).then_some("it is one or each")
            }
            (None, _) | (_, "mac" | "secret") => None,
            (_, "role") => (!["server", "client"].contains(&value)).then_some("it is server or client"),
            (_, _) => (!is_number(value)).then_some("it is a number"),
        };
        if let Some(rule) = rule {
            return Err(DeviceNameFault::Value { option: option.into(), value: value.into(), rule });
        }
        self.driver_options.push((option.into(), value.into()));
        Ok(())
    }
}

fn set_once<T>(place: &mut Option<T>, value: T, option: &str) -> Result<(), DeviceNameFault> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(DeviceNameFault::Repeated(option.into())),
    }
}

/// Returns true if drivers read `text` as a number: digits alone.
fn is_number(text: &str) -> bool {
    text.bytes().all(|octet| octet.is_ascii_digit()) && text.parse::<u32>().is_ok()
}

fn parse_route(text: &str) -> Option<Route> {
    let (destination, gateway) = text.split_once('@')?;
    Some(Route { destination: destination.parse().ok()?, gateway: gateway.parse().ok()? })
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        parse(text).map_err(|fault| DeviceNameError { name: text.into(), fault })
    }
}

fn parse(text: &str) -> Result<DeviceName, DeviceNameFault> {
    let (device, options) = match text.split_once(',') {
        Some((device, options)) => (device, Some(options)),
        None => (text, None),
    };
    let (word, target) = match device.split_once(':') {
        Some((word, target)) => (word, Some(target)),
        None => (device, None),
    };
    let kind = DeviceKind::ALL.into_iter().find(|kind| kind.word() == word);
    let kind = kind.ok_or_else(|| DeviceNameFault::Kind(word.into()))?;
    let target = kind.target().parse(target).ok_or(DeviceNameFault::Target { kind })?;
    let mut name = DeviceName {
        kind,
        target,
        addresses: Vec::new(),
        routes: Vec::new(),
        mtu: None,
        vlan: None,
        connections: None,
        cores: None,
        driver_options: Vec::new(),
    };
    for option in options.into_iter().flat_map(|options| options.split(',')) {
        let (key, value) = option
            .split_once('=')
            .filter(|(key, value)| !key.is_empty() && !value.is_empty() && !option.contains(char::is_control))
            .ok_or_else(|| DeviceNameFault::OptionForm(option.into()))?;
        name.set(key, value)?;
    }
    Ok(name)
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if self.kind.target() != Target::Nothing {
            write!(f, ":{}", self.target)?;
        }
        for address in &self.addresses {
            write!(f, ",address={address}")?;
        }
        for route in &self.routes {
            if *route == Route::default_by(route.gateway) {
                write!(f, ",gateway={}", route.gateway)?;
            } else {
                write!(f, ",route={}@{}", route.destination, route.gateway)?;
            }
        }
        if let Some(mtu) = self.mtu {
            write!(f, ",mtu={mtu}")?;
        }
        if let Some(vlan) = self.vlan {
            write!(f, ",vlan={vlan}")?;
        }
        if let Some(connections) = self.connections {
            write!(f, ",connections={connections}")?;
        }
        if let Some(cores) = &self.cores {
            write!(f, ",cores={cores}")?;
        }
        self.driver_options.iter().try_for_each(|(option, value)| write!(f, ",{option}={value}"))
    }
}

/// Returns the forms of all kinds, as a sentence lists them.
fn kinds() -> String {
    listed(DeviceKind::ALL.map(DeviceKind::form))
}

/// Returns words as a sentence lists them: `a, b and c`.
fn listed<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let words: Vec<W> = words.into_iter().collect();
    match &words[..] {
        [] => String::new(),
        [only] => only.as_ref().into(),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", first.join(", "), last.as_ref())
        }
    }
}

#[cfg(test)]
mod tests;
