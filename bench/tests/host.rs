//! Tests of what the benchmark says about the machine around a device: its interface, and what else uses it.
//! They need root, for network namespaces.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// How many seconds a program may run: it ends one that hangs, and no other, however slow the machine.
const LIMIT: &str = "300";

/// Two network namespaces with a veth pair between them: `e1` in the peer's, `e2` in the device's.
struct Namespaces {
    peer: String,
    ours: String,
}

impl Namespaces {
    /// Returns `None`, and says so, where namespaces cannot be made.
    fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            eprintln!("skipped: needs root");
            return None;
        }
        let unique = format!("host-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let both = Self { peer: format!("{unique}-a"), ours: format!("{unique}-b") };
        ip(&["netns", "add", &both.peer]);
        ip(&["netns", "add", &both.ours]);
        ip(&[
            "-n", &both.peer, "link", "add", "e1", "type", "veth", "peer", "name", "e2", "netns", &both.ours,
        ]);
        for (namespace, interface) in [(&both.peer, "e1"), (&both.ours, "e2")] {
            ip(&["-n", namespace, "link", "set", interface, "up"]);
        }
        ip(&["-n", &both.peer, "address", "add", "198.18.0.1/24", "dev", "e1"]);
        Some(both)
    }

    /// Runs `ip` in the device's namespace.
    fn ours(&self, arguments: &str) {
        ip(&[&["-n", &self.ours], &arguments.split(' ').collect::<Vec<_>>()[..]].concat());
    }

    /// Makes a veth pair with both ends in the device's namespace: `e3` with an address of the kernel, and
    /// `e4`.
    fn pair_of_ours(&self) {
        self.ours("link add e3 type veth peer name e4");
        self.ours("link set e3 up");
        self.ours("link set e4 up");
        self.ours("address add 198.18.1.1/24 dev e3");
    }

    /// Sets offloads in the device's namespace, as `ethtool -K` takes them.
    fn set_offloads(&self, arguments: &str) {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.ours, "ethtool", "-K"]).args(arguments.split(' '));
        let output = command.output().expect("ethtool");
        assert!(output.status.success(), "ethtool -K {arguments}: {output:?}");
    }

    fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.ours, "timeout", LIMIT, env!("CARGO_BIN_EXE_warpline-bench")]);
        command.args(arguments);
        command
    }

    /// Runs a benchmark that has to fail, and returns the line that says why.
    fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.bench(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        last_line(&output)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [&self.peer, &self.ours] {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).status();
        }
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip of iproute2");
    assert!(output.status.success(), "ip {}: {output:?}", arguments.join(" "));
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.trim_end().lines().last().unwrap_or_default().to_owned()
}

/// A benchmark that runs until it is dropped.
struct Running {
    child: Child,
    /// What it prints to standard error.
    lines: Lines<BufReader<ChildStderr>>,
}

impl Running {
    /// Starts it, and returns when it has printed a line that contains `text`, with all lines until then.
    fn until(mut command: Command, text: &str) -> (Self, Vec<String>) {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut running = Self { child, lines };
        let mut said = Vec::new();
        while let Some(Ok(line)) = running.lines.next() {
            said.push(line);
            if said.last().is_some_and(|line| line.contains(text)) {
                return (running, said);
            }
        }
        panic!("no '{text}' in {said:?}");
    }

    /// Waits for a line.
    fn says(&mut self, line: &str) {
        assert_eq!(self.lines.next().map(Result::unwrap).as_deref(), Some(line));
    }

    /// Waits for a line, whatever comes before it.
    fn says_in_the_end(&mut self, line: &str) {
        let mut said = Vec::new();
        while said.last().is_none_or(|last| last != line) {
            said.push(self.lines.next().unwrap_or_else(|| panic!("no '{line}' in {said:?}")).unwrap());
        }
    }

    /// The number of the benchmark, which timeout(1) started.
    fn pid(&self) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        std::fs::read_to_string(children).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // timeout(1) passes the signal on.
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
            let _ = self.child.wait();
        }
    }
}

const LISTEN: [&str; 4] = ["write-bw", "--device", "af_packet:e2", "--listen"];

#[test]
fn an_address_that_the_kernel_has_is_refused() {
    let Some(namespaces) = Namespaces::new() else { return };
    namespaces.ours("address add 198.18.0.2/24 dev e2");
    namespaces.ours("address add fd00::2/64 dev e2 nodad");
    assert_eq!(
        namespaces.refusal(&[&LISTEN[..], &["198.18.0.2:4791"]].concat()),
        "warpline-bench: device 'af_packet:e2,address=198.18.0.2/24': the kernel has 198.18.0.2 too, on \
         'e2', and would refuse what peers send to it: give the device another address of 198.18.0.0/24, or \
         take this one from the kernel: ip address delete 198.18.0.2/24 dev e2"
    );
    assert_eq!(
        namespaces.refusal(&[&LISTEN[..], &["[fd00::2]:4791"]].concat()),
        "warpline-bench: device 'af_packet:e2,address=fd00::2/64': the kernel has fd00::2 too, on 'e2', and \
         would refuse what peers send to it: give the device another address of fd00::/64, or take this one \
         from the kernel: ip address delete fd00::2/64 dev e2"
    );
    // The kernel answers for an address of another interface, too.
    namespaces.ours("link add e3 type veth peer name e4");
    namespaces.ours("address add 198.18.0.3/24 dev e3");
    let refusal = namespaces.refusal(&[&LISTEN[..], &["198.18.0.3:4791"]].concat());
    assert!(refusal.ends_with("ip address delete 198.18.0.3/24 dev e3"), "{refusal}");
    // The remedy of the message.
    namespaces.ours("address delete 198.18.0.2/24 dev e2");
    let listening = namespaces.bench(&[&LISTEN[..], &["198.18.0.2:4791"]].concat());
    let (_running, said) = Running::until(listening, "waiting at 198.18.0.2:4791");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn an_address_on_an_interface_serves_one_process() {
    let Some(namespaces) = Namespaces::new() else { return };
    let listening = namespaces.bench(&[&LISTEN[..], &["198.18.0.2:4791"]].concat());
    let (running, _) = Running::until(listening, "waiting at");
    let pid = running.pid();
    assert_eq!(
        namespaces.refusal(&["ping", "--device", "af_packet:e2,address=198.18.0.2", "198.18.0.1:7174"]),
        format!(
            "warpline-bench: device 'af_packet:e2,address=198.18.0.2/24': process {pid} (warpline-bench) has \
             198.18.0.2 on 'e2' already: give this device another address, or end it: kill {pid}"
        )
    );
    // The kernel counts those who want the frames of all groups, and sets no flag for it.
    let wanting = |name: &str, count: u32| {
        let words = ["-d", "-n", &namespaces.ours, "link", "show", "dev", "e2"];
        let text = String::from_utf8(Command::new("ip").args(words).output().unwrap().stdout).unwrap();
        text.contains(&format!("{name} {count} ")) && !text.contains("PROMISC")
    };
    assert!(wanting("allmulti", 1) && wanting("promiscuity", 0));
    // Another address, and the same once its process has ended.
    let other = namespaces.bench(&[&LISTEN[..], &["198.18.0.3:4791"]].concat());
    drop(Running::until(other, "waiting at 198.18.0.3:4791"));
    assert!(wanting("allmulti", 1), "one that ends takes nothing from another");
    drop(running);
    assert!(wanting("allmulti", 0), "nothing is left");
    let listening = || namespaces.bench(&[&LISTEN[..], &["198.18.0.2:4791"]].concat());
    let (again, _) = Running::until(listening(), "waiting at 198.18.0.2:4791");
    // A process that was killed holds what it had until the kernel has taken its memory back.
    let killed = Command::new("kill").args(["-KILL", &again.pid().to_string()]).status().unwrap();
    assert!(killed.success());
    drop(Running::until(listening(), "waiting at 198.18.0.2:4791"));
}

#[test]
fn an_interface_that_cannot_carry_the_frames_is_refused() {
    let Some(namespaces) = Namespaces::new() else { return };
    let refusal = |device: &str| {
        let refusal = namespaces.refusal(&["write-bw", "--device", device, "--listen", "198.18.0.2:4791"]);
        let prefix = format!("warpline-bench: device '{}': ", device.replace(',', ",address=198.18.0.2/24,"));
        let plain = format!("warpline-bench: device '{device},address=198.18.0.2/24': ");
        let message = refusal.strip_prefix(&plain).or_else(|| refusal.strip_prefix(&prefix));
        message.unwrap_or_else(|| panic!("{refusal}")).to_owned()
    };
    assert_eq!(refusal("af_packet:e9"), "there is no interface 'e9'; there are lo, e2");
    assert_eq!(
        refusal("af_packet:lo"),
        "'lo' reaches no other station: use a veth pair (ip link add e1 type veth peer name e2)"
    );
    assert_eq!(
        refusal("af_packet:e2,mtu=9000"),
        "interface 'e2' carries packets of 1500 bytes, not 9000: write mtu=1500, or raise it at both ends of \
         the link: ip link set e2 mtu 9000"
    );
    namespaces.ours("link set e2 down");
    for device in ["af_packet:e2", "af_xdp:e2"] {
        assert_eq!(refusal(device), "interface 'e2' is down; bring it up: ip link set e2 up");
    }
}

#[test]
fn an_interface_without_carrier_is_a_warning() {
    let Some(namespaces) = Namespaces::new() else { return };
    ip(&["-n", &namespaces.peer, "link", "set", "e1", "down"]);
    let listening = namespaces.bench(&[&LISTEN[..], &["198.18.0.2:4791"]].concat());
    let (_running, said) = Running::until(listening, "waiting at");
    assert_eq!(
        said[0],
        "warning: interface 'e2' has no carrier: its cable, or the other end of its veth pair, is down"
    );
}

#[test]
fn addresses_of_no_single_host_are_refused() {
    let Some(namespaces) = Namespaces::new() else { return };
    for (listen, own, what) in [
        ("198.18.0.0:1", "198.18.0.0/24", "the address of the network itself"),
        ("198.18.0.255:1", "198.18.0.255/24", "the broadcast address of its network"),
        ("[fd00::]:1", "fd00::/64", "the address of the network itself"),
    ] {
        let refusal = namespaces.refusal(&[&LISTEN[..], &[listen]].concat());
        let network = if own.contains(':') { "fd00::/64" } else { "198.18.0.0/24" };
        assert_eq!(
            refusal,
            format!("warpline-bench: {own} is {what}: give the device another address of {network}")
        );
    }
}

/// Linux leaves the checksums of what it sends through a veth pair to a device that is not there.
#[test]
fn the_kernel_connects_with_the_offloads_of_its_veth_pair() {
    let Some(namespaces) = Namespaces::new() else { return };
    ip(&["-n", &namespaces.peer, "address", "add", "fd00::1/64", "dev", "e1", "nodad"]);
    for device in ["af_packet:e2", "eal:net_af_packet0,iface=e2", "eal:net_af_xdp0,iface=e2"] {
        let device = format!("{device},address=fd00::2/64,address=198.18.0.2/24");
        let listening = namespaces.bench(&["write-bw", "--device", &device, "--listen", "198.18.0.2:4791"]);
        let (_running, _) = Running::until(listening, "waiting at");
        for address in ["198.18.0.2", "fd00::2"] {
            let connect = format!(": < /dev/tcp/{address}/4791");
            let words = ["netns", "exec", &namespaces.peer, "timeout", LIMIT, "bash", "-c", &connect];
            let output = Command::new("ip").args(words).output().unwrap();
            assert!(output.status.success(), "{device}, {address}: {output:?}");
        }
    }
}

/// Where the other end of a veth pair is in the same namespace, its checksum offload can be asked for.
#[test]
fn the_kernel_connects_whether_or_not_it_leaves_checksums_to_the_other_end() {
    let Some(namespaces) = Namespaces::new() else { return };
    namespaces.pair_of_ours();
    for offloads in ["e3 tx on", "e3 tx off"] {
        namespaces.set_offloads(offloads);
        let arguments = ["write-bw", "--device", "af_packet:e4", "--listen", "198.18.1.2:4791"];
        let (_running, _) = Running::until(namespaces.bench(&arguments), "waiting at");
        let connect = ["bash", "-c", ": < /dev/tcp/198.18.1.2/4791"];
        let words = [&["netns", "exec", &namespaces.ours, "timeout", "20"], &connect[..]].concat();
        let output = Command::new("ip").args(words).output().unwrap();
        assert!(output.status.success(), "{offloads}: {output:?}");
    }
}

/// Packets that will be cut are a warning before the first one comes, where that can be known.
#[test]
fn offloads_that_make_long_packets_are_a_warning() {
    let Some(namespaces) = Namespaces::new() else { return };
    namespaces.pair_of_ours();
    let warnings = |device: &str| {
        let arguments = ["write-bw", "--device", device, "--listen", "198.18.1.2:4791"];
        let (_running, mut said) = Running::until(namespaces.bench(&arguments), "waiting at");
        said.pop();
        said
    };
    let unsegmented = "warning: the kernel leaves segmentation to 'e3', the other end of the veth pair 'e4': \
                       its packets are longer than the MTU, and are cut and dropped; ethtool -K e3 tso off, \
                       or packet:e4, or af_packet:e4,super_frames=on";
    assert_eq!(warnings("af_packet:e4"), [unsegmented]);
    assert_eq!(warnings("eal:net_af_packet0,iface=e4"), [unsegmented]);
    assert_eq!(warnings("packet:e4,super_frames=off"), [unsegmented]);
    let none: [&str; 0] = [];
    // Its program has the kernel segment what it sends there.
    assert_eq!(warnings("af_xdp:e4"), none);
    // All remedies of the message.
    assert_eq!(warnings("packet:e4"), none);
    assert_eq!(warnings("af_packet:e4,super_frames=on"), none);
    namespaces.set_offloads("e3 tso off");
    assert_eq!(warnings("af_packet:e4"), none);
    namespaces.set_offloads("e4 gro on");
    let joined = "warning: segments that arrive at 'e4' are joined to packets longer than the MTU, which are \
                  cut and dropped; ethtool -K e4 gro off, or packet:e4, or af_packet:e4,super_frames=on";
    assert_eq!(warnings("af_packet:e4"), [joined]);
    assert_eq!(warnings("af_packet:e4,super_frames=on"), none);
    // A kernel without an address there connects to nothing.
    namespaces.set_offloads("e4 gro off");
    namespaces.set_offloads("e3 tso on");
    namespaces.ours("address flush dev e3");
    assert_eq!(warnings("af_packet:e4"), none);
}

/// What is found at the interface of a device counts for one in DPDK's notation, too, whether the interface
/// stands in its name or in the arguments of the EAL.
#[test]
fn the_interface_of_a_device_in_dpdks_notation_is_looked_at() {
    let Some(namespaces) = Namespaces::new() else { return };
    namespaces.ours("address add 198.18.0.3/24 dev e2");
    let in_arguments = ["--eal", "--no-huge -m 200 --vdev=net_af_packet7,iface=e2"];
    let refusal = |device: &str, address: &str, more: &[&str]| {
        let listen = format!("{address}:4791");
        let arguments = ["write-bw", "--device", device, "--listen", &listen];
        let refusal = namespaces.refusal(&[&arguments[..], more].concat());
        let (name, options) = device
            .split_once(',')
            .map_or((device, String::new()), |(name, options)| (name, format!(",{options}")));
        let begin = format!("warpline-bench: device '{name},address={address}/24{options}': ");
        refusal.strip_prefix(&begin).unwrap_or_else(|| panic!("{refusal}")).to_owned()
    };
    let none = "there is no interface 'e9'; there are lo, e2";
    for device in ["eal:net_af_packet0,iface=e9", "eal:net_af_xdp0,iface=e9"] {
        assert_eq!(refusal(device, "198.18.0.2", &[]), none);
    }
    let taken = "the kernel has 198.18.0.3 too, on 'e2', and would refuse what peers send to it: give the \
                 device another address of 198.18.0.0/24, or take this one from the kernel: ip address \
                 delete 198.18.0.3/24 dev e2";
    for device in ["eal:net_af_packet0,iface=e2", "eal:net_af_xdp0,iface=e2", "eal:net_tap0,iface=t0"] {
        assert_eq!(refusal(device, "198.18.0.3", &[]), taken);
    }
    assert_eq!(refusal("eal:net_af_packet7", "198.18.0.3", &in_arguments), taken);
    let mtu = "interface 'e2' carries packets of 1500 bytes, not 9000: write mtu=1500, or raise it at both \
               ends of the link: ip link set e2 mtu 9000";
    assert_eq!(refusal("eal:net_af_packet7,mtu=9000", "198.18.0.2", &in_arguments), mtu);
    // Its addresses are claimed.
    let listening = ["write-bw", "--device", "eal:net_af_packet0,iface=e2", "--listen", "198.18.0.2:4791"];
    let (running, _) = Running::until(namespaces.bench(&listening), "waiting at");
    let pid = running.pid();
    let owner = format!(
        "process {pid} (warpline-bench) has 198.18.0.2 on 'e2' already: give this device another address, or \
         end it: kill {pid}"
    );
    assert_eq!(refusal("af_packet:e2", "198.18.0.2", &[]), owner);
    assert_eq!(refusal("eal:net_af_packet7", "198.18.0.2", &in_arguments), owner);
}

/// Linux leaves it to that device as well to cut what it sends into segments. A packet socket cuts the
/// packets to its buffers instead, unless it has larger ones.
#[test]
fn packets_that_are_cut_are_a_warning() {
    let Some(namespaces) = Namespaces::new() else { return };
    let send = |options: &str| {
        let device = format!("af_packet:e2{options}");
        let listening = namespaces.bench(&["write-bw", "--device", &device, "--listen", "198.18.0.2:4791"]);
        let (running, _) = Running::until(listening, "waiting at");
        let words = ["netns", "exec", &namespaces.peer, "timeout", LIMIT, "bash", "-c"];
        let zeros = "head -c 100000 /dev/zero > /dev/tcp/198.18.0.2/4791";
        Command::new("ip").args(words).arg(zeros).output().unwrap();
        running
    };
    // The kernel sends the first octets again in a packet that is not too long, which may be refused first.
    send("").says_in_the_end(
        "warning: packets of 198.18.0.1 are longer than the MTU, and are cut and dropped: its kernel leaves \
         segmentation to a device that they never pass (at the peer: ethtool -K INTERFACE tso off), or the \
         one here joins segments (ethtool -K INTERFACE gro off); or, with af_packet: super_frames=on",
    );
    let first = send(",super_frames=on").lines.next().unwrap().unwrap();
    // What came is whole, and nothing that a peer begins with.
    assert!(first.starts_with("warpline-bench: MPA startup with 198.18.0.1:"), "{first}");
}

#[test]
fn another_station_with_the_address_is_a_warning() {
    let Some(namespaces) = Namespaces::new() else { return };
    let listening = namespaces.bench(&[&LISTEN[..], &["198.18.0.2:4791"]].concat());
    let (mut running, _) = Running::until(listening, "waiting at");
    ip(&["-n", &namespaces.peer, "address", "flush", "dev", "e1"]);
    ip(&["-n", &namespaces.peer, "address", "add", "198.18.0.2/24", "dev", "e1"]);
    ip(&["-n", &namespaces.peer, "link", "set", "e1", "address", "02:00:00:00:00:77"]);
    // The kernel asks for a neighbour, and says with that who it is.
    let ask = "echo > /dev/udp/198.18.0.9/9";
    ip(&["netns", "exec", &namespaces.peer, "bash", "-c", ask]);
    running.says(
        "warning: another station, 02:00:00:00:00:77, uses 198.18.0.2, too, and peers reach now one, now the \
         other: give one of them another address",
    );
}

/// Each lacking privilege is named, with the command that grants it. DPDK's own lines stay inside the error.
#[test]
fn a_privilege_that_is_missing_is_named() {
    let Some(namespaces) = Namespaces::new() else { return };
    let program = env!("CARGO_BIN_EXE_warpline-bench");
    let without = |capabilities: &str, device: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespaces.ours, "prlimit", "--memlock=65536:65536", "setpriv"]);
        command.arg(format!("--bounding-set={capabilities}"));
        let (kind, options) = device.split_once(',').unwrap_or((device, ""));
        let options = if options.is_empty() { String::new() } else { format!(",{options}") };
        let device = format!("{kind},address=198.18.0.2/24{options}");
        command.args([program, "write-bw", "--device", &device, "--listen", "198.18.0.2:4791"]);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{capabilities} {device}");
        let text = String::from_utf8(output.stderr).unwrap();
        let text = text.trim_end().strip_prefix(&format!("warpline-bench: device '{device}': "));
        text.unwrap_or_else(|| panic!("more than one line: {output:?}", output = output.status)).to_owned()
    };
    assert_eq!(
        without("-net_raw", "af_packet:e2"),
        format!(
            "this process lacks CAP_NET_RAW: run it as root, or grant it: sudo setcap \
             cap_net_raw,cap_net_admin,cap_ipc_lock+ep {program}"
        )
    );
    assert_eq!(
        without("-ipc_lock", "af_packet:e2"),
        format!(
            "this process may lock 64 KiB of memory, and the device needs 16384: run it as root, grant it \
             CAP_IPC_LOCK: sudo setcap cap_net_raw,cap_net_admin,cap_ipc_lock+ep {program}, or raise the \
             limit: ulimit -l 16384"
        )
    );
    assert_eq!(
        without("-net_raw,-ipc_lock", "eal:net_af_packet0,iface=e2"),
        format!(
            "this process lacks CAP_NET_RAW and CAP_IPC_LOCK: run it as root, or grant it: sudo setcap \
             cap_net_raw,cap_net_admin,cap_ipc_lock+ep {program}"
        )
    );
    // The driver's own ring is shorter than the one that it is given.
    let refusal = without("-ipc_lock", "eal:net_af_packet0,iface=e2");
    let locks = "this process may lock 64 KiB of memory, and the device needs 2048: run it as root, ";
    assert!(refusal.starts_with(locks), "{refusal}");
    for device in ["af_xdp:e2", "eal:net_af_xdp0,iface=e2"] {
        assert_eq!(
            without("-net_admin,-sys_admin", device),
            format!(
                "this process lacks CAP_NET_ADMIN and CAP_SYS_ADMIN: run it as root, or grant it: sudo \
                 setcap cap_net_raw,cap_net_admin,cap_sys_admin,cap_ipc_lock+ep {program}"
            )
        );
    }
    if std::path::Path::new("/dev/net/tun").exists() {
        assert_eq!(
            without("-net_admin", "tap:t0"),
            format!(
                "this process lacks CAP_NET_ADMIN: run it as root, or grant it: sudo setcap cap_net_admin+ep \
                 {program}"
            )
        );
    }
}

#[test]
fn dpdk_writes_lines_of_its_own_only_if_asked() {
    let run = |device: &str, eal: &str, verbose: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-bench"));
        command.args(["write-bw", "--device", device, "--eal", eal, "--listen", "198.18.0.2:1"]);
        let output = command.args(verbose).output().unwrap();
        assert!(!output.status.success());
        assert!(!verbose.is_empty() || output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let refused = |verbose: &[&str]| run("eal:net_nonesuch0,address=198.18.0.2", "--no-huge -m 160", verbose);
    let expected = "warpline-bench: device 'eal:net_nonesuch0,address=198.18.0.2/24': DPDK has no driver for \
                    `net_nonesuch0`: install its plug-in (librte-net-nonesuch23 in Debian 12), or write the \
                    name of another driver with a number (net_tap0)\n";
    assert_eq!(refused(&[]), expected);
    let verbose = refused(&["--verbose"]);
    assert!(verbose.contains("EAL: ") && verbose.ends_with(expected), "{verbose}");
    // EAL prints these to standard error past its log, and its usage to standard output.
    for (arguments, says) in [
        ("--nonsense", "EAL: Invalid 'command line' arguments.; warpline: unrecognized option '--nonsense'"),
        ("--lcores=bad", "EAL: invalid parameter for --lcores; EAL: Invalid 'command line' arguments."),
        (
            "--no-huge -d /nonexistent.so",
            "EAL: /nonexistent.so: cannot open shared object file: No such file or directory; EAL: Cannot \
             init plugins",
        ),
    ] {
        let refused = run("eal:net_null0,address=198.18.0.2", arguments, &[]);
        let lines: Vec<&str> = refused.lines().collect();
        let [line] = lines[..] else { panic!("{refused}") };
        assert!(line.starts_with("warpline-bench: the EAL did not start: Invalid argument"), "{line}");
        assert!(line.ends_with(&format!("; DPDK says: {says}")), "{line}");
    }
    let verbose = run("eal:net_null0,address=198.18.0.2", "--nonsense", &["--verbose"]);
    assert!(verbose.contains("\nEAL: FATAL: Invalid 'command line' arguments.\n"), "{verbose}");
}

/// libbpf and libxdp print to standard error what they do, when a device is opened and when it is closed.
#[test]
fn libraries_of_dpdk_write_lines_of_their_own_only_if_asked() {
    let Some(namespaces) = Namespaces::new() else { return };
    let run = |verbose: &[&str]| {
        let listening = ["write-bw", "--device", "af_xdp:e2", "--listen", "198.18.0.2:4791"];
        let command = namespaces.bench(&[&listening[..], verbose].concat());
        let (mut running, mut said) = Running::until(command, "waiting at");
        let interrupted = Command::new("kill").args(["-INT", &running.pid().to_string()]).status().unwrap();
        assert!(interrupted.success());
        said.extend(running.lines.by_ref().map(Result::unwrap));
        said
    };
    assert_eq!(run(&[]), ["waiting at 198.18.0.2:4791"]);
    let verbose = run(&["--verbose"]);
    assert!(verbose.iter().any(|line| line.starts_with("libbpf: ")), "{verbose:?}");
}

/// A socket that a killed process has left behind is replaced, and one in use is not.
#[test]
fn a_socket_left_behind_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    for kind in ["memif", "vhost"] {
        let device = format!("{kind}:{}", path.display());
        let listen = || {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", LIMIT, env!("CARGO_BIN_EXE_warpline-bench"), "write-bw", "--device"]);
            command.args([&device, "--listen", "198.18.0.2:4791", "--eal", "--no-huge -m 200"]);
            command
        };
        let (mut running, said) = Running::until(listen(), "waiting at");
        // What the peer can do is said before.
        assert_eq!(
            said[0].starts_with("warning: memif is for processes that trust each other"),
            kind == "memif"
        );
        let pid = running.pid();
        let output = listen().output().unwrap();
        let text = last_line(&output);
        let expected = format!("process {pid} (warpline-bench) listens at {} already: ", path.display());
        assert!(!output.status.success() && text.contains(&expected), "{text}");
        let kill = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
        assert!(kill.success() && running.child.wait().is_ok() && path.exists(), "{kind}: nothing is left");
        drop(Running::until(listen(), "waiting at"));
        let _ = std::fs::remove_file(&path);
    }
}
