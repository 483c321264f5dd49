//! Parts of the command line that several commands have.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use warpline::open::{self, Eal};
use warpline::{Cidr, DeviceKind, DeviceName, parse_interface_address};
use warpline_tools::arguments::{TIMEOUT_SECONDS, parse_timeout};
use warpline_tools::host_port::HostPort;
use warpline_tools::output::{OutputFile, note};

use crate::error::BenchError;
use crate::link::Link;
use crate::placement::{self, parse_cpu};

/// Largest message of a benchmark, in bytes: a round of one message then still fits its region.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// The largest region, in bytes: an advertisement has room for it and the slots for samples of perftest's
/// tests.
pub const REGION_BYTES_MAX: u32 = 1 << 30;

/// Parses a number of bytes of a message with an optional k (1024) or M (1024 k).
pub fn parse_size(text: &str) -> Result<u32, String> {
    parse_bytes(text).filter(|bytes| (1..=MESSAGE_BYTES_MAX).contains(bytes)).ok_or_else(|| {
        format!("'{text}' is not a size: write 1 to {MESSAGE_BYTES_MAX} bytes, with k or M for units")
    })
}

/// Parses the size of a region of at least `least` bytes, written with the units of [`parse_bytes`].
pub fn parse_region(text: &str, least: &str) -> Result<u32, String> {
    parse_bytes(text)
        .filter(|bytes| *bytes <= REGION_BYTES_MAX && parse_bytes(least).is_some_and(|least| *bytes >= least))
        .ok_or_else(|| {
            format!("'{text}' is not a region: write {least} to 1024M bytes, with k, M or G for units")
        })
}

/// Parses a number of bytes with an optional k (1024), M (1024 k) or G (1024 M).
pub fn parse_bytes(text: &str) -> Option<u32> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit))
}

/// Where a command runs, and what it writes.
#[derive(Args, Debug, Clone)]
pub struct RunArguments {
    #[command(flatten)]
    pub polling: PollArguments,
    /// Write all frames to a capture in the pcapng format; - is standard output. Slows the run.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Write the results as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// How many cores a device has, and where they are polled.
#[derive(Args, Debug, Clone)]
pub struct PollArguments {
    /// Cores of each device in this process, 1 to 64, each with a loop that polls it (default 1, or those of
    /// cores= in the name of the device). Connections are placed over them in turn. What is counted is summed
    /// over all, and said for each. With fewer CPUs the loops take turns.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub cores: Option<u8>,
    /// The CPUs that poll: one for each end of each core in this process, or one for both ends. Without it,
    /// for one core the idlest two that are free, or the idlest one; for several all that this process may
    /// use, as far as they are needed.
    #[arg(long, value_name = "CPU", value_delimiter = ',', value_parser = parse_cpu)]
    pub cpus: Vec<usize>,
}

/// The cores of each device in this process, and the CPUs that poll them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polling {
    /// How many cores each device has.
    pub cores: usize,
    /// The CPUs that are asked for: none for any.
    pub cpus: Vec<usize>,
}

impl PollArguments {
    /// Returns the cores and CPUs of `device`, whose name may list them.
    ///
    /// # Errors
    ///
    /// [`CommandError::Options`](warpline_tools::error::CommandError::Options) if the name lists CPUs and
    /// options do so too; [`CommandError::Open`](warpline_tools::error::CommandError::Open) if it lists those
    /// of a NUMA node that has none.
    pub fn of(&self, device: &DeviceName) -> Result<Polling, BenchError> {
        match open::cpus(device)? {
            None => Ok(Polling { cores: self.cores.map_or(1, usize::from), cpus: self.cpus.clone() }),
            Some(cpus) if self.cores.is_none() && self.cpus.is_empty() => {
                Ok(Polling { cores: cpus.len(), cpus })
            }
            Some(_) => Err(BenchError::options(format!(
                "{device} lists the CPUs of its cores (cores=): leave that out, or --cores and --cpus"
            ))),
        }
    }
}

/// The files that a command writes, open.
#[derive(Debug)]
pub struct RunFiles {
    /// The capture.
    pub pcap: Option<OutputFile>,
    /// The results.
    pub json: Option<OutputFile>,
}

impl RunArguments {
    /// Returns the cores and CPUs of `device`.
    ///
    /// # Errors
    ///
    /// Those of [`PollArguments::of`].
    pub fn polling(&self, device: &DeviceName) -> Result<Polling, BenchError> {
        self.polling.of(device)
    }

    /// Opens the files that the command writes.
    ///
    /// # Errors
    ///
    /// Those of [`OutputFile::open`].
    pub fn open_files(&self) -> Result<RunFiles, BenchError> {
        let [pcap, json] = [&self.pcap, &self.json].map(|path| OutputFile::open_some(path.as_deref()));
        Ok(RunFiles { pcap: pcap?, json: json? })
    }
}

/// The device that frames go through, and the end of the connections that this process is.
#[derive(Args, Debug, Clone)]
pub struct DeviceArguments {
    /// The device: ring (both ends in this process), packet:INTERFACE, tap:INTERFACE, af_packet:INTERFACE,
    /// af_xdp:INTERFACE, vhost:PATH, virtio_user:PATH, memif:PATH (same trust domain only), pci:ADDRESS or
    /// eal:PORT. Options follow after commas, as in packet:eth1,mtu=9000,address=198.18.0.1/24. Without it,
    /// the device that the environment variable WARPLINE_DEVICE names, or ring.
    #[arg(long, short, value_name = "NAME")]
    device: Option<DeviceName>,
    /// More arguments for DPDK's EAL, as one string: "--no-huge -m 512".
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    eal: String,
    /// Show what DPDK and its libraries log on standard error, as --eal "--log-level=*:info".
    #[arg(long)]
    verbose: bool,
    /// The largest IP packet in bytes, 576 to 9600 (default 1500): as mtu= of the device.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=9600))]
    mtu: Option<u16>,
    /// The address of this end with the prefix of its network: as address= of the device. With --listen it is
    /// needed only for a prefix other than 24 (IPv4) or 64 (IPv6).
    #[arg(long, value_name = "ADDR/PREFIX", value_parser = parse_interface_address)]
    address: Option<Cidr>,
    /// Wait for the other end: ADDR:PORT or HOST:PORT, an address of the device. ADDR alone has the usual
    /// port, PORT alone or 0.0.0.0:PORT is at all addresses of the device. An IPv6 address with a port is in
    /// brackets, as in `[fd00::2]:7471`.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "peer")]
    listen: Option<HostPort>,
    /// Connect to the other end: HOST:PORT, ADDR:PORT or `[IPV6]:PORT`, where HOST is a name that this
    /// machine resolves. Without a port it is the usual one, 7471 (ping: 7174).
    #[arg(value_name = "HOST:PORT")]
    peer: Option<HostPort>,
    /// The port where none is given with a host or an address.
    #[arg(long, short, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// How long the other end may be silent, in seconds, before it is given up: while it is to answer, and
    /// while a connection to it is open.
    #[arg(long, value_name = "S", value_parser = parse_timeout, default_value = TIMEOUT_SECONDS)]
    timeout: Duration,
}

/// The end of the connections that a process with one end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It connects to this address.
    Connecting(SocketAddr),
    /// It listens at this address.
    Listening(SocketAddr),
}

impl End {
    /// Returns the CPU of each core of this end, whose peer may be another process on this machine: those
    /// wanted, or else those at the end's own side of the list, so that two processes take different CPUs.
    /// Where there are fewer CPUs than cores, cores have the same one.
    ///
    /// # Errors
    ///
    /// [`BenchError::Pin`].
    pub fn cpus(self, Polling { cores, cpus: wanted }: &Polling) -> Result<Vec<usize>, BenchError> {
        placement::check(wanted)?;
        let mut cpus = wanted.clone();
        if cpus.is_empty() {
            cpus = core_affinity::get_core_ids().unwrap_or_default().iter().map(|cpu| cpu.id).collect();
            if matches!(self, Self::Listening(_)) {
                cpus.reverse();
            }
        }
        if cpus.is_empty() {
            return Err(BenchError::Pin(0));
        }
        Ok(cpus.into_iter().cycle().take(*cores).collect())
    }
}

/// The ends of the connections in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Both, joined by a wire in memory.
    Both(DeviceName),
    /// One, on a device that has its addresses.
    One(DeviceName, End),
}

impl DeviceArguments {
    /// Returns how long the other end may be silent.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the ends in this process; `port` is the usual one.
    ///
    /// # Errors
    ///
    /// [`CommandError::Name`](warpline_tools::error::CommandError::Name), [`BenchError::WhichEnd`],
    /// [`BenchError::RingHasBothEnds`], [`BenchError::ListenNowhere`], and those of [`HostPort::local`] and
    /// [`HostPort::peer`].
    pub fn ends(&self, port: u16) -> Result<Ends, BenchError> {
        let mut device = match &self.device {
            Some(device) => device.clone(),
            None => DeviceName::from_environment()?.map_or_else(|| "ring".parse(), Ok)?,
        };
        if let Some(mtu) = self.mtu {
            device = device.with_option("mtu", mtu)?;
        }
        if let Some(address) = self.address {
            device = device.with_option("address", address)?;
        }
        if device.kind() == DeviceKind::Ring {
            let alone = self.listen.is_none() && self.peer.is_none() && device.addresses().is_empty();
            return if alone { Ok(Ends::Both(device)) } else { Err(BenchError::RingHasBothEnds) };
        }
        let port = self.port.unwrap_or(port);
        let mut device = self.with_addresses_of_kernel(device, port)?;
        match (&self.listen, &self.peer) {
            (Some(listen), None) => {
                let local = listen.local(device.addresses(), port)?;
                if device.addresses().is_empty() {
                    if local.ip().is_unspecified() {
                        return Err(BenchError::ListenNowhere(device.to_string()));
                    }
                    device = device.with_option("address", local.ip())?;
                }
                Ok(Ends::One(device, End::Listening(local)))
            }
            (None, Some(peer)) if !device.addresses().is_empty() => {
                let peer = peer.peer(device.addresses(), port)?;
                Ok(Ends::One(device, End::Connecting(peer)))
            }
            _ => Err(BenchError::WhichEnd(device.to_string())),
        }
    }

    /// Returns the name of a device with the addresses that it shares with the kernel, if it is one that
    /// does: not where it is to listen at another address, which is its own.
    fn with_addresses_of_kernel(&self, device: DeviceName, port: u16) -> Result<DeviceName, BenchError> {
        let shared = open::resolved(&device);
        let Some(listen) = &self.listen else { return Ok(shared?) };
        let local = listen.local(device.addresses(), port)?.ip();
        match shared {
            Ok(shared) if local.is_unspecified() || has(&shared, local) => Ok(shared),
            Err(error) if local.is_unspecified() => Err(error.into()),
            _ => Ok(device),
        }
    }

    fn eal_arguments(&self) -> String {
        if self.verbose { format!("--log-level=*:info {}", self.eal) } else { self.eal.clone() }
    }

    /// Starts DPDK's EAL for both ends of a ring.
    ///
    /// # Errors
    ///
    /// [`CommandError::Open`](warpline_tools::error::CommandError::Open).
    pub fn start_eal(&self) -> Result<Eal, BenchError> {
        Ok(open::eal(&[], &self.eal_arguments())?)
    }

    /// Opens the port of `device` with a core on each of `cpus`, whose frames are captured to `capture` if
    /// there is one. Prints what may keep its frames from passing.
    ///
    /// # Errors
    ///
    /// [`CommandError::Open`](warpline_tools::error::CommandError::Open).
    pub fn open_port(
        &self,
        device: &DeviceName,
        cpus: &[usize],
        capture: Option<OutputFile>,
    ) -> Result<Link, BenchError> {
        for warning in open::inspect(device)? {
            note!("warning: {warning}");
        }
        let eal = open::eal(&[device], &beside(&self.eal_arguments(), cpus))?;
        Link::port(eal, device, cpus.len(), capture)
    }
}

/// Returns true if `address` is one of those of `device`.
fn has(device: &DeviceName, address: IpAddr) -> bool {
    device.addresses().iter().any(|own| own.address == address)
}

/// Returns the EAL's arguments with its own threads kept off `cpus`, unless the arguments place its lcores.
/// When the peer of a memif leaves, one of these threads unmaps the rings; where it has interrupted the
/// thread that polls in the midst of a burst, the driver of DPDK 22.11 then reads memory that is unmapped.
fn beside(eal: &str, cpus: &[usize]) -> String {
    let placed = eal.split_whitespace().any(|word| word == "--lcores" || word.starts_with("--lcores="));
    match cpus {
        _ if placed => eal.into(),
        [cpu] => format!("--lcores=0@{cpu} {eal}"),
        cpus => {
            let cpus: Vec<_> = cpus.iter().map(usize::to_string).collect();
            format!("--lcores=0@({}) {eal}", cpus.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        device: DeviceArguments,
    }

    fn ends(line: &[&str]) -> Result<Ends, String> {
        let line = Line::try_parse_from([&["x"], line].concat()).map_err(|error| error.to_string())?;
        line.device.ends(7471).map_err(|error| error.to_string())
    }

    fn one(device: &str, end: End) -> Ends {
        Ends::One(device.parse().unwrap(), end)
    }

    #[test]
    fn sizes_have_units_and_bounds() {
        assert_eq!(parse_size("64k"), Ok(65_536));
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        assert_eq!(parse_size("64"), Ok(64));
        for wrong in ["", "0", "k", "-1", "65M", "5000000000", "4096k1"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!([parse_bytes("1G"), parse_bytes("3g")], [Some(1 << 30), Some(3 << 30)]);
        assert_eq!([parse_bytes("4G"), parse_bytes("G")], [None, None]);
    }

    #[test]
    fn threads_of_eal_keep_off_the_core() {
        assert_eq!(beside("-m 8 --no-huge", &[3]), "--lcores=0@3 -m 8 --no-huge");
        assert_eq!(beside("-m 8", &[3, 5]), "--lcores=0@(3,5) -m 8");
        assert_eq!(beside("--lcores 0@1,1@2 -m 8", &[3]), "--lcores 0@1,1@2 -m 8");
    }

    /// The name lists CPUs, or the options do.
    #[test]
    fn cores_are_those_of_the_name_or_of_the_options() {
        let polling = |device: &str, cores, cpus: &[usize]| {
            let polling = PollArguments { cores, cpus: cpus.to_vec() };
            let device = device.parse().map_err(BenchError::from);
            device.and_then(|device| polling.of(&device)).map_err(|error| error.to_string())
        };
        let found = |cores, cpus: &[usize]| Ok(Polling { cores, cpus: cpus.to_vec() });
        assert_eq!(polling("ring", None, &[]), found(1, &[]));
        assert_eq!(polling("ring", Some(3), &[7]), found(3, &[7]));
        assert_eq!(polling("ring,cores=4+2", None, &[]), found(2, &[4, 2]));
        for (cores, cpus) in [(Some(2), &[][..]), (None, &[4])] {
            let error = polling("ring,cores=4+2", cores, cpus).unwrap_err();
            assert!(error.contains("leave that out, or --cores and --cpus"), "{error}");
        }
    }

    #[test]
    fn an_end_has_a_cpu_for_each_core() {
        let all: Vec<_> = core_affinity::get_core_ids().unwrap().iter().map(|cpu| cpu.id).collect();
        let end = |end: fn(SocketAddr) -> End| end(SocketAddr::from(([198, 18, 0, 1], 7)));
        let cpus =
            |end: End, cores, cpus: &[usize]| end.cpus(&Polling { cores, cpus: cpus.to_vec() }).unwrap();
        let (connecting, listening) = (end(End::Connecting), end(End::Listening));
        assert_eq!(cpus(connecting, all.len(), &[]), all);
        assert_eq!(cpus(listening, 1, &[]), all[all.len() - 1..]);
        assert_eq!(cpus(listening, 3, &all[..1]), [all[0]; 3]);
    }

    #[test]
    fn a_ring_has_both_ends() {
        let ring = ends(&["--device", "ring,mtu=9000"]).unwrap();
        assert_eq!(ring, Ends::Both("ring,mtu=9000".parse().unwrap()));
        assert_eq!(ends(&["--device", "ring", "--mtu", "9000"]).unwrap(), ring);
        for line in [&["--listen", "198.18.0.1:1"][..], &["198.18.0.1:1"], &["--address", "198.18.0.1/24"]] {
            let line = [&["--device", "ring"], line].concat();
            assert!(ends(&line).unwrap_err().contains("leave out --listen"));
        }
    }

    #[test]
    fn addresses_are_in_the_name_or_beside_it() {
        let peer = "198.18.0.2:7".parse().unwrap();
        let expected = one("tap:t,address=198.18.0.1/15", End::Connecting(peer));
        assert_eq!(
            ends(&["--device", "tap:t,address=198.18.0.1/15", "198.18.0.2:7"]).as_ref(),
            Ok(&expected)
        );
        assert_eq!(ends(&["--device", "tap:t", "--address", "198.18.0.1/15", "198.18.0.2:7"]), Ok(expected));
        assert!(ends(&["--device", "tap:t", "198.18.0.2:7"]).unwrap_err().contains("--listen ADDR:PORT"));
        assert!(ends(&["--device", "tap:t"]).unwrap_err().contains("--listen ADDR:PORT"));
        let usual = one("tap:t,address=198.18.0.1/15", End::Connecting("198.18.0.2:7471".parse().unwrap()));
        let named = |more: &[&str]| ends(&[&["-d", "tap:t,address=198.18.0.1/15"], more].concat());
        assert_eq!(named(&["198.18.0.2"]), Ok(usual));
        let other = one("tap:t,address=198.18.0.1/15", End::Connecting("198.18.0.2:9".parse().unwrap()));
        assert_eq!(named(&["198.18.0.2", "-p", "9"]), Ok(other));
        let error = named(&["no-such-host.invalid:7"]).unwrap_err();
        assert!(error.starts_with("no-such-host.invalid: "), "{error}");
        assert!(named(&["0.0.0.0:7"]).unwrap_err().contains("connect to a host"));
    }

    #[test]
    fn the_address_to_listen_at_is_one_of_the_device() {
        let end = End::Listening("198.18.0.2:7".parse().unwrap());
        let listening = |device| ends(&["--device", device, "--listen", "198.18.0.2:7"]);
        assert_eq!(listening("tap:t"), Ok(one("tap:t,address=198.18.0.2/24", end)));
        assert_eq!(listening("tap:t,address=198.18.0.2/15"), Ok(one("tap:t,address=198.18.0.2/15", end)));
        assert!(listening("tap:t,address=198.18.0.9").unwrap_err().contains("no address of the device"));
        let any = one("tap:t,address=198.18.0.2/24", End::Listening("0.0.0.0:7471".parse().unwrap()));
        for listen in ["0.0.0.0", "0.0.0.0:7471", "7471", ":7471"] {
            assert_eq!(ends(&["-d", "tap:t,address=198.18.0.2/24", "--listen", listen]).as_ref(), Ok(&any));
            let nowhere = ends(&["-d", "tap:t", "--listen", listen]).unwrap_err();
            assert!(nowhere.contains("give it address=ADDR/PREFIX"), "{nowhere}");
        }
        let end = End::Listening("[fd00::2]:7".parse().unwrap());
        assert_eq!(
            ends(&["--device", "tap:t", "--listen", "[fd00::2]:7"]),
            Ok(one("tap:t,address=fd00::2/64", end))
        );
    }
}
