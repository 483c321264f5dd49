"""Two ends that are joined only through our fault-injecting forwarder, which has a network namespace of
its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .built import RIGS
from .networks import PREFIX_LENGTH, ProgramNetwork, without_offloads
from .processes import Process, RigError, command

LINUX_ADDRESS: Final = "198.18.0.3"
"""Of the kernel at our end, which takes the program's place when Linux talks to Linux."""

FORWARDER_MEMORY: Final = "--no-huge -m 160 --log-level=warning"
"""Two pools of buffers.  Ordinary memory: the ends may need what hugepages there are."""


def real_time() -> list[str]:
    """Runs a program before all others: one that polls adds delays that nobody asked for when it waits for
    the CPU."""
    return ["chrt", "-f", "1"] if shutil.which("chrt") else []


@dataclass(frozen=True)
class Faults:
    """What the forwarder does to frames, both ways, in the words of its command line."""

    loss: str = "0"
    delay: str = "0us"
    reorder: str = "0"
    reorder_delay: str = "500us"
    duplicate: str = "0"

    def words(self) -> list[str]:
        """As options."""
        return [word for name, value in vars(self).items() for word in (f"--{name.replace('_', '-')}", value)]

    def __str__(self) -> str:
        named = {
            "loss": self.loss,
            "delay": self.delay,
            "reordering": self.reorder,
            "duplication": self.duplicate,
        }
        return ", ".join(
            f"{value} {name}" for name, value in named.items() if value not in ("0", "0%", "0us")
        )


@dataclass
class Outcome:
    """What the forwarder tells at its end, and what the interfaces around it say."""

    counted: dict[str, Any] = field(default_factory=dict)
    own_drops: int = 0
    """Frames that went astray on the way into the forwarder, out of it, or because a queue of its was
    full."""

    @property
    def frames(self) -> int:
        """Frames that came in, both ways."""
        return int(self.counted["to_right"]["received"] + self.counted["to_left"]["received"])


class Injected(ProgramNetwork):
    """net_af_packet at MTU 1500 at our end, the kernel at the other, the forwarder in between."""

    name, mtu = "through faults", 1500

    def __init__(self, directory: Path, ipv6: bool = False) -> None:
        super().__init__(directory, ipv6)
        self.between = f"wl-between-{os.getpid()}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (*super().namespaces, self.between)

    def device(self) -> str:
        return "af_packet:wl1"

    def wire(self) -> None:
        for namespace, near, far in ((self.kernel, "wl0", "left"), (self.ours, "wl1", "right")):
            command(
                *f"ip link add {near} netns {namespace} mtu {self.mtu} type veth peer name {far} "
                f"netns {self.between} mtu {self.mtu}".split()
            )
            without_offloads(namespace, near)
            without_offloads(self.between, far)
            # The kernel between has no part in this.
            command(*f"ip netns exec {self.between} sysctl -qw net.ipv6.conf.{far}.disable_ipv6=1".split())
            command(*f"ip -n {self.between} link set {far} up".split())
            # Nothing learnt from one transfer helps the next.
            command(*f"ip netns exec {namespace} sysctl -qw net.ipv4.tcp_no_metrics_save=1".split())
        self._configure_kernel_end("wl0")
        command(*f"ip -n {self.ours} addr add {LINUX_ADDRESS}/{PREFIX_LENGTH} dev wl1".split())
        # It has no part in IPv6: neither an address of its own nor an answer for ours.
        command(*f"ip netns exec {self.ours} sysctl -qw net.ipv6.conf.wl1.disable_ipv6=1".split())
        command(*f"ip -n {self.ours} link set wl1 up".split())

    @contextmanager
    def faults(self, faults: Faults, seed: int, seconds: float) -> Iterator[Outcome]:
        """Forward with these faults; what came of it is known afterwards."""
        counters = self.directory / "forwarder.json"
        counters.unlink(missing_ok=True)
        words = [
            *(*real_time(), str(RIGS), "impair", "--eal", FORWARDER_MEMORY, "--mtu", str(self.mtu)),
            *("--left", "af_packet:left", "--right", "af_packet:right"),
            *("--seed", str(seed), "--json", str(counters), *faults.words()),
        ]
        # Not among the network's own processes: it is there until both ends have ended.
        forwarder = Process("forwarder", self.between, words, seconds, self.directory, fed=True)
        outcome = Outcome()
        try:
            forwarder.await_text("ready\n")
            before = self._counted_by_interfaces()
            yield outcome
            forwarder.end_input()
            status = forwarder.wait()
        finally:
            forwarder.stop()
        if status != 0:
            raise RigError(f"the forwarder ended with status {status}: {forwarder.errors}")
        after = self._counted_by_interfaces()
        outcome.counted = json.loads(counters.read_text())
        ways = outcome.counted["to_right"], outcome.counted["to_left"]
        queues = sum(way["queue_full"] + way["oversize"] for way in ways) + outcome.counted["not_delivered"]
        sent = after[0] - before[0] - sum(way["received"] for way in ways)
        arrived = sum(way["delivered"] for way in ways) - (after[1] - before[1])
        outcome.own_drops = queues + max(sent, 0) + max(arrived, 0)

    def _counted_by_interfaces(self) -> tuple[int, int]:
        """Frames that both ends have sent, and that both have received."""
        sent = received = 0
        for namespace, interface in ((self.kernel, "wl0"), (self.ours, "wl1")):
            (link,) = json.loads(command("ip", "-n", namespace, "-j", "-s", "link", "show", interface))
            sent += link["stats64"]["tx"]["packets"]
            received += link["stats64"]["rx"]["packets"]
        return sent, received
