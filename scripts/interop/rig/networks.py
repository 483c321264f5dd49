"""How our end and the kernel's end are wired together.

Every network has the kernel's end, 198.18.0.1 or fd00::1, in a namespace of its own. Ours, 198.18.0.2 or
fd00::2, is the program under test on a DPDK device, or, to prove the rig itself, a second kernel peer.
"""

from __future__ import annotations

import enum
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Self

from .built import RIGS
from .processes import NotHere, Process, RigError, command
from .tagging import put_into_vlan

KERNEL_ADDRESS: Final = "198.18.0.1"
OUR_ADDRESS: Final = "198.18.0.2"
PREFIX_LENGTH: Final = 24
PORT: Final = 18515

_HERE: Final = Path(__file__).resolve().parent.parent
PEER: Final = _HERE / "peer"
BULK: Final = _HERE / "bulk"
CHECK_CAPTURE: Final = _HERE / "check_capture"

HUGE_OCTETS_WANTED: Final = 512 << 20


def eal_memory(buffers_mib: int) -> str:
    """EAL options for memory: hugepages that leave no files, or none at all where too few are free.
    ``buffers_mib`` is what the program needs for its files beyond what is always wanted."""
    wanted = HUGE_OCTETS_WANTED + (buffers_mib << 20)
    values = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(values["HugePages_Free"]) * int(values["Hugepagesize"].split()[0]) << 10
    return "--in-memory" if free >= wanted else f"--no-huge -m {wanted >> 20}"


def cpu_list(cores: int) -> str:
    """A CPU for each of so many cores, as ``cores=`` takes them."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < cores:
        raise NotHere(f"{cores} cores want a CPU each, and this process may use {len(cpus)}")
    return "+".join(map(str, cpus[:cores]))


def without_offloads(namespace: str, interface: str) -> None:
    """Every frame whole, with its checksums, and one segment to a frame."""
    command(*f"ip netns exec {namespace} ethtool -K {interface} tx off tso off gso off gro off".split())


def endpoint(address: str, port: int) -> str:
    """``ADDR:PORT``; an IPv6 address stands in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Network(ABC):
    """A wired pair of ends; a context manager that leaves nothing behind."""

    name: str
    mtu: int
    aligned = True
    """Whether our segments have to begin with an FPDU."""
    kernel_address, our_address, prefix_length = KERNEL_ADDRESS, OUR_ADDRESS, PREFIX_LENGTH
    buffers_mib = 0
    """What our end needs for its files, where they are large."""
    vlan: int | None = None
    """The VLAN that both ends talk in; none is untagged frames."""
    clean = True
    """Whether our TCP has to show nothing needless or wrong in a capture."""
    our_listen_argument = str(PORT)
    """What our end's ``--listen`` takes; the program has its address from another option."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kernel = f"wl-kernel-{os.getpid()}"
        self.ours = f"wl-ours-{os.getpid()}"
        self._processes: list[Process] = []
        self._started = 0

    def __enter__(self) -> Self:
        try:
            for namespace in self.namespaces:
                command("ip", "netns", "add", namespace)
                command("ip", "-n", namespace, "link", "set", "lo", "up")
            self.wire()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()
        existing = command("ip", "netns", "list").split()
        for namespace in self.namespaces:
            if namespace in existing:
                command("ip", "netns", "del", namespace)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those made for it."""
        return self.kernel, self.ours

    def stop_all(self) -> None:
        """End every process started here that still runs."""
        for process in reversed(self._processes):
            process.stop()
        self._processes.clear()

    def last_words(self) -> str:
        """What the processes have said on standard error, of those that still run too."""
        return "; ".join(f"{process.name}: {process.errors}" for process in self._processes)

    def start(self, name: str, namespace: str, words: list[str], seconds: float) -> Process:
        """Start a program in a namespace."""
        self._started += 1
        process = Process(f"{self._started}-{name}", namespace, words, seconds, self.directory)
        self._processes.append(process)
        return process

    def start_kernel_peer(self, words: list[str], seconds: float) -> Process:
        """The Python peer on the kernel's end."""
        return self.start("peer", self.kernel, [str(PEER), *words], seconds)

    def ping(self) -> None:
        """Our end answers three echo requests."""
        command(*f"ip netns exec {self.kernel} ping -n -c 3 -i 0.2 -W 60 {self.our_address}".split())

    @abstractmethod
    def wire(self) -> None:
        """Make what exists before our end runs."""

    @abstractmethod
    def start_ours(
        self, words: list[str], capture: Path | None, seconds: float, before: list[str] | None = None
    ) -> Process:
        """Start our end, by the command ``before`` if there is one, and return when it is ready."""

    def finish_capture(self) -> None:  # noqa: B027 (most networks have nothing to do)
        """Make sure that the capture is complete on disk."""

    def _wire_veth(self, has_offloads: bool = False) -> None:
        """A veth pair, ``wl0`` on the kernel's end and ``wl1`` on ours, with whole checksums and no
        offloads, or with all that the kernel gives it."""
        command(
            *f"ip link add wl0 netns {self.kernel} mtu {self.mtu} type veth peer name wl1 netns {self.ours} "
            f"mtu {self.mtu}".split()
        )
        for namespace, interface in ((self.kernel, "wl0"), (self.ours, "wl1")):
            if interface == "wl1" or ":" not in self.kernel_address:
                command(
                    *f"ip netns exec {namespace} sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1".split()
                )
            if not has_offloads:
                without_offloads(namespace, interface)
        command(*f"ip -n {self.ours} link set wl1 up".split())
        self._configure_kernel_end("wl0")

    def _configure_kernel_end(self, interface: str) -> None:
        if self.vlan is not None:
            put_into_vlan(self.kernel, interface, self.vlan, self.directory)
        address = f"{self.kernel_address}/{self.prefix_length}"
        at_once = "nodad" if ":" in address else ""
        command(*f"ip -n {self.kernel} addr add {address} dev {interface} {at_once}".split())
        command(*f"ip -n {self.kernel} link set {interface} up".split())


class Queues(enum.Enum):
    """The queues of a device of several cores, as our end says it."""

    ONE = "one"
    """The first core hands over what is others'."""
    SORTED = "one for each core, which sorts it"
    """The kernel fills them by a hash of its own."""
    EACH = "one for each core"
    """An adapter in software, before the port, fills them by RSS."""


class ProgramNetwork(Network):
    """Our end is the program under test."""

    cores = 1
    """Of its device."""
    queues = Queues.ONE
    """Of several cores."""

    def __init__(self, directory: Path, ipv6: bool = False, vlan: int | None = None) -> None:
        super().__init__(directory)
        if ipv6:
            self.name += " IPv6"
            self.kernel_address, self.our_address, self.prefix_length = "fd00::1", "fd00::2", 64
        if vlan is not None:
            self.vlan = vlan
            self.name += f" VLAN {vlan}"

    def on_cores(self, cores: int, queues: Queues) -> Self:
        """The same, with a device of several cores, each on a CPU of its own."""
        self.cores, self.queues = cores, queues
        self.name += f", {cores} cores, queues: {queues.value}"
        return self

    @abstractmethod
    def device(self) -> str:
        """The name of our end's device, without addresses."""

    def addressed_device(self) -> str:
        """The name of our end's device, with its address and VLAN."""
        options = [f"mtu={self.mtu}", f"address={self.our_address}/{self.prefix_length}"]
        options += [f"vlan={self.vlan}"] if self.vlan is not None else []
        if self.cores > 1:
            options.append(f"cores={cpu_list(self.cores)}")
            options += ["queues=one"] if self.queues is Queues.ONE else []
        return ",".join([self.device(), *options])

    def eal(self) -> str:
        """Arguments for DPDK's EAL."""
        return f"{eal_memory(self.buffers_mib)} --no-pci --file-prefix={self.ours} --log-level=warning"

    @property
    def program_namespace(self) -> str:
        """Where the program runs."""
        return self.ours

    def start_ours(
        self,
        words: list[str],
        capture: Path | None,
        seconds: float,
        before: list[str] | None = None,
        program_command: str = "exchange",
    ) -> Process:
        words = [
            *(*(before or []), str(RIGS), program_command),
            *("--device", self.addressed_device(), "--eal", self.eal()),
            *(("--queue-per-core",) if self.queues is Queues.EACH else ()),
            *words,
            *(("--pcap", str(capture)) if capture else ()),
        ]
        process = self.start(program_command, self.program_namespace, words, seconds)
        process.await_text("ready\n")
        self.after_start()
        return process

    def after_start(self) -> None:
        """What can only be done once the device exists."""


class Tap(ProgramNetwork):
    """net_tap at MTU 1500: the program makes the interface, in the kernel's namespace."""

    name, mtu = "net_tap", 1500

    @property
    def program_namespace(self) -> str:
        return self.kernel

    def device(self) -> str:
        return "tap:wl0"

    def wire(self) -> None:
        """The interface comes and goes with the program."""

    def after_start(self) -> None:
        until = time.monotonic() + 60
        while "wl0" not in command("ip", "-n", self.kernel, "-o", "link"):
            if time.monotonic() > until:
                raise RigError("the program is ready, but its tap interface wl0 is not there")
            time.sleep(0.02)
        self._configure_kernel_end("wl0")


class AfPacket(ProgramNetwork):
    """net_af_packet on one end of a veth pair at MTU 9000."""

    name, mtu = "net_af_packet", 9000

    def device(self) -> str:
        return "af_packet:wl1"

    def wire(self) -> None:
        self._wire_veth()


class Packet(ProgramNetwork):
    """A packet socket without DPDK's driver on one end of a veth pair at MTU 1500. The kernel leaves
    checksums and segmentation to the pair, and so does our end."""

    name, mtu = "packet socket", 1500

    def device(self) -> str:
        return "packet:wl1"

    def wire(self) -> None:
        self._wire_veth(has_offloads=True)


class TwoPeers(Network):
    """A second kernel peer in place of our end: proves the rig and both judges without the program."""

    aligned = clean = False
    our_listen_argument = f"{OUR_ADDRESS}:{PORT}"

    def __init__(self, directory: Path, mtu: int) -> None:
        super().__init__(directory)
        self.name, self.mtu = "two peers", mtu
        self._dumpcap: Process | None = None

    def wire(self) -> None:
        self._wire_veth()
        command(*f"ip -n {self.ours} addr add {OUR_ADDRESS}/{PREFIX_LENGTH} dev wl1".split())

    def start_ours(
        self, words: list[str], capture: Path | None, seconds: float, before: list[str] | None = None
    ) -> Process:
        if capture:
            options = ["-q", "-i", "wl1", "-B", "64", "-w", str(capture)]
            self._dumpcap = self.start("dumpcap", self.ours, ["dumpcap", *options], seconds)
            self._dumpcap.await_text("File:")
        process = self.start("second-peer", self.ours, [*(before or []), str(PEER), *words], seconds)
        process.await_text("ready\n")
        return process

    def finish_capture(self) -> None:
        assert self._dumpcap is not None
        time.sleep(1)  # dumpcap writes out what it holds twice a second
        self._dumpcap.stop()
