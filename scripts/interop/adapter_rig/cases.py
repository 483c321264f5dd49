"""What each adapter has to do, against Linux's TCP and against our own stack at the other end of its link."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from guest_rig.machine import INTERFACE, Guest
from guest_rig.remote import GuestShell
from rig.built import BENCHMARK
from rig.cases import sha256
from rig.cores import judge_shares
from rig.crowds import CROWD as CROWD_PROGRAM
from rig.networks import PEER, PORT, Queues, eal_memory
from rig.pings import RPING
from rig.processes import NotHere, Process, RigError, command, require_equal

from .adapters import Adapter

OUTSIDE, INSIDE, PREFIX_LENGTH = "198.18.0.1", "198.18.0.2", 24
SECONDS: Final = 90
"""For a program: emulation is slow, and slower where there is other work."""
START_SECONDS: Final = 60
MTU, JUMBO_MTU = 1500, 9000
QUEUES: Final = 4
PINGS: Final = 200
PING_OCTETS: Final = 30_000
"""More than a segment, and no multiple of one."""
FILE_OCTETS: Final = (4 << 20) + 4321
WRITE_OCTETS: Final = 65_536
WRITES: Final = 300
PULLED_SECONDS: Final = 2.0
CORES: Final = 2
"""Of our device, where it has several: a guest has as many CPUs."""
CROWD: Final = 100
"""Connections at once to a device of several cores."""
CROWD_OCTETS: Final = 1000
CONNECTIONS: Final = 10
"""Of ours, one after the other, from each of several cores, which do so at the same time."""
STREAM_SECONDS: Final = 10
"""How long Writes go on while the cable is pulled."""
_RESULT: Final = "/tmp/result.json"


@dataclass
class Rig:
    """The guest with the adapter, and the other end of its link."""

    guest: Guest
    adapter: Adapter
    directory: Path
    port: dict[str, Any] = field(default_factory=dict)
    """What the first case has learnt."""
    _started: int = 0
    _processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shell = GuestShell(self.guest, INSIDE)
        self.address = ""

    def bind(self) -> None:
        """Give the adapter to our programs."""
        said = self.run("bind-adapters")
        lines = said.splitlines()
        if len(lines) != 1 or not lines[0].split():
            raise RigError(f"the guest has not bound one adapter: {said.strip() or 'none'}")
        self.address = lines[0].split()[0]

    def device(self, mtu: int = MTU, super_frames: bool = False, cores: int = 1) -> str:
        """Our device in the guest."""
        options = ",super_frames=on" if super_frames else ""
        options += f",cores=0-{cores - 1}" if cores > 1 else ""
        return f"pci:{self.address},mtu={mtu},address={INSIDE}/{PREFIX_LENGTH}{options}"

    def run(self, line: str, seconds: float = SECONDS) -> str:
        """A command in the guest that has to end well; its output."""
        status, output = self.shell.run(line, seconds)
        if status != 0:
            raise RigError(f"{line.split()[0]} in the guest: status {status}: {output.strip()[-600:]}")
        return output

    def results(self) -> list[dict[str, Any]]:
        """What the benchmark in the guest has written."""
        return all_parsed(self.run(f"cat {_RESULT} && rm {_RESULT}"), "the benchmark in the guest")

    def start_reporting(self, line: str) -> None:
        """The benchmark in the guest, of whose result nothing is there yet."""
        self.run(f"rm -f {_RESULT}")
        self.shell.start(f"warpline-bench {line} --json {_RESULT}")

    def start_listening(self, line: str) -> None:
        """The same, until it listens, and this end's kernel reaches it."""
        self.start_reporting(line)
        self.run(f"until grep -q 'waiting at' {self.shell.log}; do sleep 0.2; done", START_SECONDS)
        # The link of some comes up later than that.
        command(*f"ip netns exec {self.guest.namespace} ping -n -c 1 -w {START_SECONDS} {INSIDE}".split())

    def await_results(self) -> list[dict[str, Any]]:
        """What the benchmark has written once it is through."""
        self.run(f"until [ -s {_RESULT} ]; do sleep 0.1; done")
        return self.results()

    def result(self) -> dict[str, Any]:
        """The same, where it is about one thing."""
        return self.results()[0]

    def start(self, words: list[str]) -> Process:
        """A program at the other end of the link."""
        self._started += 1
        name = f"{self._started}-{Path(words[0]).name}"
        process = Process(name, self.guest.namespace, words, SECONDS, self.directory)
        self._processes.append(process)
        return process

    def start_ours(self, test: str, mtu: int, words: list[str], super_frames: bool = False) -> Process:
        """Our own stack there. With virtio's headers, super-frames come to it whole."""
        eal = f"{eal_memory(0)} --no-pci --file-prefix={self.guest.namespace} --log-level=warning"
        device = f"af_packet:{INTERFACE},mtu={mtu},address={OUTSIDE}/{PREFIX_LENGTH}"
        device += ",super_frames=on" if super_frames else ""
        return self.start([str(BENCHMARK), test, "--device", device, "--eal", eal, *words])

    def give_link_to_kernel(self, mtu: int, owns_address: bool) -> None:
        """Whose the address of the outer end is: the kernel's, or that of what opens the interface."""
        space = self.guest.namespace
        command(*f"ip -n {space} addr flush dev {INTERFACE}".split())
        command(*f"ip -n {space} link set {INTERFACE} mtu {mtu}".split())
        if owns_address:
            command(*f"ip -n {space} addr add {OUTSIDE}/{PREFIX_LENGTH} dev {INTERFACE}".split())

    def counter(self, protocol: str, name: str) -> int:
        """A counter of the kernel's in the namespace of the outer end."""
        text = command(*f"ip netns exec {self.guest.namespace} cat /proc/net/snmp".split())
        return kernel_counter(text, protocol, name)

    def stop(self) -> None:
        """End what still runs at either end. A guest that does not answer any more ends with its machine."""
        while self._processes:
            self._processes.pop().stop()
        with contextlib.suppress(RigError):
            self.shell.stop("KILL")


def all_parsed(text: str, who: str) -> list[dict[str, Any]]:
    """The reports that a program has printed, as JSON: a list that is not empty, or a single one."""
    try:
        found = json.loads(text)
        reports = [dict(each) for each in (found if isinstance(found, list) else [found])]
    except (ValueError, TypeError) as error:
        raise RigError(f"{who} has printed no report: {error}: {text.strip()[-600:] or 'nothing'}") from error
    if not reports:
        raise RigError(f"{who} has printed no report: an empty list")
    return reports


def parsed(text: str, who: str) -> dict[str, Any]:
    """The only one, or the first."""
    return all_parsed(text, who)[0]


def last_line(text: str) -> str:
    """The last line of an output, or nothing."""
    return "".join(text.splitlines()[-1:])


def kernel_counter(text: str, protocol: str, name: str) -> int:
    """A counter in the format of /proc/net/snmp: a line of names, then one of numbers, for each protocol."""
    lines = [line.split() for line in text.splitlines() if line.startswith(f"{protocol}:")]
    if len(lines) != 2 or name not in lines[0]:
        raise RigError(f"the kernel has no counter {name} of {protocol}")
    return int(lines[1][lines[0].index(name)])


def offers(port: dict[str, Any]) -> str:
    """What a port said of itself, in a line."""
    offered, started, link = port["offered"], port["started"], port["link"]
    checksums = [
        name
        for name, there in (
            ("receive IP and TCP", started["receive_checksums"]),
            ("send TCP", started["transmit_checksums"]),
            ("send IP", started["transmit_ip_checksums"]),
        )
        if there
    ]
    speed = link["megabits_per_second"]
    table = port["table_entries"]
    return "; ".join(
        [
            f"{offered['queues']} queue pairs, started with {started['queues']}, "
            + (f"RSS table of {table}" if table else "no RSS"),
            f"MTU up to {offered['mtu']}",
            f"checksums: {', '.join(checksums) or 'none'}",
            f"gather {_on(started['gather'])}, TSO {_on(offered['segmentation'])}, "
            f"LRO {_on(offered['joins_received'])}",
            f"{port['interrupts']} receive interrupts, multicast {port['multicast']}",
            f"link {'up' if link['up'] else 'DOWN'}"
            + (f" at {speed} Mb/s" if speed else "")
            + f" after {port['link_seconds']:.2f} s",
            f"opened {port['opened_again']} times more",
        ]
    )


def _on(value: bool) -> str:
    return "yes" if value else "no"


def look(rig: Rig) -> str:
    """Probe, start with several queues, the link, close, and open again in the same process."""
    words = f"--queues {QUEUES} --again 2 --device {rig.device()}"
    rig.port = parsed(last_line(rig.run(f"warpline-tools port {words}")), "warpline-tools port")
    if not rig.port["link"]["up"]:
        raise RigError(f"the link stays down: {offers(rig.port)}")
    return offers(rig.port)


def ping_kernel(rig: Rig) -> str:
    """Our pings of rping's exchange, answered by a Python program on a socket."""
    rig.give_link_to_kernel(MTU, owns_address=True)
    words = ["--size", str(PING_OCTETS), "--timeout", str(SECONDS)]
    server = rig.start([str(RPING), "--listen", f"{OUTSIDE}:{PORT}", *words])
    server.await_text("ready\n", START_SECONDS)
    line = f"--size {PING_OCTETS} --count {PINGS} --device {rig.device()} --json {_RESULT}"
    rig.run(f"warpline-bench ping {OUTSIDE}:{PORT} {line}")
    require_pings(server.report()["pings"], rig.result()["pings"])
    return f"{PINGS} pings of {PING_OCTETS} bytes, compared"


def kernel_pings(rig: Rig) -> str:
    """The same the other way: we listen in the guest."""
    rig.give_link_to_kernel(MTU, owns_address=True)
    line = f"--listen {INSIDE}:{PORT} --size {PING_OCTETS} --clients 1 --device {rig.device()}"
    rig.start_listening(f"ping {line}")
    words = ["--size", str(PING_OCTETS), "--count", str(PINGS), "--timeout", str(SECONDS)]
    client = rig.start([str(RPING), "--connect", f"{INSIDE}:{PORT}", *words])
    made = client.report()["pings"]
    require_pings(made, rig.await_results()[0]["pings"])
    return f"{PINGS} pings of {PING_OCTETS} bytes, compared"


def require_pings(*counts: int) -> None:
    """Both ends have counted all of them."""
    if set(counts) != {PINGS}:
        raise RigError(f"not {PINGS} pings at both ends: {counts}")


def files(mtu: int, super_frames: bool = False, by_reference: bool = False) -> Callable[[Rig], str]:
    """A file each way at the same time, with a Python program on a socket; hashes compared. ``by_reference``:
    the adapter reads ours from where it is."""

    def play(rig: Rig) -> str:
        if super_frames and not rig.port["offered"]["segmentation"]:
            raise NotHere("the port offers no TSO")
        if by_reference and not (rig.port["started"]["gather"] and rig.port["started"]["transmit_checksums"]):
            raise NotHere("the port does not gather and fill in checksums: payload is copied")
        option = "--by-reference" if by_reference else ""
        our = exchange_files(rig, option, rig.device(mtu, super_frames), mtu)
        copied = our["bytes_copied_tx"]
        if by_reference and copied > FILE_OCTETS:
            raise RigError(f"not by reference: {copied} bytes copied to send")
        segments, frames = our["data_segments_sent"], our["frames_sent"]
        if super_frames and frames >= segments:
            raise RigError(f"no super-frames: {segments} segments with data in {frames} frames")
        return (
            f"{FILE_OCTETS} bytes each way, {copied} copied to send, {segments} segments with data in "
            f"{frames} frames; hashes equal, no checksum wrong"
        )

    return play


def exchange_files(rig: Rig, option: str, device: str, mtu: int = MTU) -> dict[str, Any]:
    """One exchange of files; our end's report."""
    rig.give_link_to_kernel(mtu, owns_address=True)
    bad = rig.counter("Tcp", "InCsumErrors")
    file, received = rig.directory / "file", rig.directory / "received"
    file.write_bytes(os.urandom(FILE_OCTETS))
    words = ["--send", str(file), "--receive", str(received), "--receive-octets", str(FILE_OCTETS)]
    peer = rig.start([str(PEER), "--listen", f"{OUTSIDE}:{PORT}", *words, "--timeout", str(SECONDS)])
    peer.await_text("ready\n", START_SECONDS)
    line = f"--send /tmp/file --receive /tmp/received --receive-octets {FILE_OCTETS} --markers off {option}"
    rig.run(f"head -c {FILE_OCTETS} /dev/urandom >/tmp/file")
    said = rig.run(f"warpline-tools exchange --connect {OUTSIDE}:{PORT} --device {device} {line}")
    # A warning may stand after the report.
    reports = [text for text in said.splitlines() if text.startswith("{")]
    told, our = peer.report(), parsed("".join(reports[-1:]), "warpline-tools exchange")
    require_equal("what we sent", our["sent_sha256"], told["received_sha256"], sha256(received))
    require_equal("what we received", sha256(file), told["sent_sha256"], our["received_sha256"])
    require_equal("bad checksums of TCP", 0, rig.counter("Tcp", "InCsumErrors") - bad)
    return our


def require_success(server: Process) -> None:
    """Our stack outside has ended well."""
    if server.wait() != 0:
        raise RigError(f"the other end failed: {server.errors}")


def ping_ours(rig: Rig) -> str:
    """Pings of our stack outside."""
    rig.give_link_to_kernel(MTU, owns_address=False)
    server = rig.start_ours("ping", MTU, ["--listen", f"{OUTSIDE}:{PORT}", "--clients", "1"])
    server.await_text("waiting at", START_SECONDS)
    line = f"--size {PING_OCTETS} --count {PINGS} --device {rig.device()} --json {_RESULT}"
    rig.run(f"warpline-bench ping {OUTSIDE}:{PORT} {line}")
    found = rig.result()
    require_success(server)
    require_pings(found["pings"])
    return f"{PINGS} pings of {PING_OCTETS} bytes, compared"


def writes(*more: str, super_frames: bool = False) -> Callable[[Rig], str]:
    """RDMA Writes both ways at the same time, every byte compared at either end."""

    def play(rig: Rig) -> str:
        if super_frames and not rig.port["offered"]["segmentation"]:
            raise NotHere("the port offers no TSO")
        rig.give_link_to_kernel(MTU, owns_address=False)
        server = _start_target(rig, super_frames)
        line = f"{_WRITES_LINE} --iters {WRITES} --bidirectional {' '.join(more)}"
        line += f" --device {rig.device(MTU, super_frames)} --json {_RESULT}"
        rig.run(f"warpline-bench write-bw {OUTSIDE}:{PORT} {line}")
        return _compared(server, rig.result())

    return play


_WRITES_LINE: Final = f"--size {WRITE_OCTETS} --verify all"


def _start_target(rig: Rig, super_frames: bool = False) -> Process:
    server = rig.start_ours("write-bw", MTU, ["--listen", f"{OUTSIDE}:{PORT}"], super_frames)
    server.await_text("waiting at", START_SECONDS)
    return server


def _compared(server: Process, ours: dict[str, Any]) -> str:
    require_success(server)
    return verified(ours)


def verified(result: dict[str, Any]) -> str:
    """What a run of Writes came to, in a line; every byte has to have been compared and right."""
    if not result["verified"] or result["corrupt_bytes"] or result["compared_bytes"] != result["bytes"]:
        raise RigError(f"not every byte was compared and right: {result}")
    again = result["retransmitted_segments"]
    return (
        f"{result['bytes']} bytes in {result['messages']} Writes, all compared; {again} segments sent again"
    )


def pulled(rig: Rig) -> str:
    """The cable is pulled while Writes are under way, and connected again: the connection has to go on."""
    rig.give_link_to_kernel(MTU, owns_address=False)
    server = _start_target(rig)
    line = f"{_WRITES_LINE} --duration {STREAM_SECONDS} --device {rig.device()}"
    rig.start_reporting(f"write-bw {OUTSIDE}:{PORT} {line}")
    time.sleep(STREAM_SECONDS / 3)
    rig.guest.set_link(up=False)
    time.sleep(PULLED_SECONDS)
    rig.guest.set_link(up=True)
    return f"down for {PULLED_SECONDS:.0f} s: {_compared(server, rig.await_results()[0])}"


def judge_cores(rig: Rig, by_core: dict[str, Any], connections: list[int]) -> str:
    """Our device had a queue for each core if the port has as many, filled as expected if the port has a
    table for that; each core had so many connections; a line about them."""
    expected = Queues.SORTED if rig.adapter.fills_otherwise else Queues.ONE
    expected = Queues.EACH if rig.port["table_entries"] else expected
    require_equal("queues", expected.value, by_core["queues"])
    if None in by_core["cores"]:
        raise RigError(f"a core has not answered: {by_core['cores']}")
    found = [core["connections"] for core in by_core["cores"]]
    require_equal("connections by core", str(connections), str(found))
    # An emulated CPU that the machine gives no time to takes no frames, and TCP sends them again.
    dropped = sum(core["not_handed_over"] for core in by_core["cores"])
    return f"queues: {by_core['queues']}" + (f", {dropped} frames dropped between cores" if dropped else "")


def files_of_cores(rig: Rig) -> str:
    """A file each way at the same time from each core of ours, with a Python program on a socket."""
    lines = []
    for core in range(CORES):
        report = exchange_files(rig, f"--core {core}", rig.device(cores=CORES))
        line = judge_cores(rig, report["by_core"], [int(core == each) for each in range(CORES)])
        lines.append(f"core {core}: {line}")
    return f"{FILE_OCTETS} bytes each way from each core, hashes equal, no checksum wrong; {'; '.join(lines)}"


def crowd_of_cores(rig: Rig) -> str:
    """Many connections at once from a Python program: each comes to the core of its addresses and ports."""
    rig.give_link_to_kernel(MTU, owns_address=True)
    line = f"--listen {INSIDE}:{PORT} --size {CROWD_OCTETS} --clients {CROWD}"
    # The first to connect say nothing until the last have.
    line += f" --timeout {SECONDS} --events"
    rig.start_listening(f"ping {line} --device {rig.device(cores=CORES)}")
    words = [str(CROWD_PROGRAM), "--connect", f"{INSIDE}:{PORT}", "--connections", str(CROWD)]
    words += ["--size", str(CROWD_OCTETS), "--timeout", str(SECONDS)]
    told = rig.start(words).report()
    served = rig.await_results()
    require_equal("pings", CROWD, sum(client["pings"] for client in served))
    require_equal("bytes", told["octets"], sum(client["bytes"] for client in served))
    by_core = Counter(client["core"] for client in served)
    return f"{CROWD} pings, compared; {judge_shares([by_core[core] for core in range(CORES)])}"


def pings_of_cores(rig: Rig) -> str:
    """Connections of ours from each core, to our stack outside."""
    rig.give_link_to_kernel(MTU, owns_address=False)
    clients = str(CORES * CONNECTIONS)
    server = rig.start_ours("ping", MTU, ["--listen", f"{OUTSIDE}:{PORT}", "--clients", clients])
    server.await_text("waiting at", START_SECONDS)
    line = f"--size {PING_OCTETS} --count {PINGS // CORES // CONNECTIONS} --connections {CONNECTIONS}"
    device = rig.device(cores=CORES)
    rig.run(f"warpline-bench ping {OUTSIDE}:{PORT} {line} --events --device {device} --json {_RESULT}")
    found = rig.result()
    require_success(server)
    require_pings(found["pings"])
    shares = judge_shares([part["connections"] for part in found["by_core"]])
    return f"{PINGS} pings of {PING_OCTETS} bytes, compared; {shares}"


@dataclass(frozen=True)
class Case:
    """One case."""

    what: str
    play: Callable[[Rig], str]


CASES: Final = (
    Case("port", look),
    Case("Linux: we ping", ping_kernel),
    Case("Linux: it pings us", kernel_pings),
    Case("Linux: files", files(MTU)),
    Case("Linux: files, MTU 9000", files(JUMBO_MTU)),
    Case("Linux: files, by reference", files(MTU, by_reference=True)),
    Case("Linux: files, super-frames", files(MTU, super_frames=True)),
    Case("Linux: files, two cores", files_of_cores),
    Case("Linux: many pings, two cores", crowd_of_cores),
    Case("ours: ping", ping_ours),
    Case("ours: pings, two cores", pings_of_cores),
    Case("ours: Writes", writes()),
    Case("ours: Writes, super-frames", writes(super_frames=True)),
    Case("ours: Writes, sleeping", writes("--events")),
    Case("ours: Writes, cable pulled", pulled),
)
"""The first tells the others what the port offers."""
