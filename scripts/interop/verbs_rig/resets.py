"""The resets of TCP that the kernels send while programs run.

The kernel has no connection for a segment that is warpline's, and would answer it by a reset unless warpline
held its ports.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from rig.cases import JUDGE_SECONDS
from rig.processes import Process, RigError

from .cases import KERNEL_PORTS
from .pair import INTERFACE, Pair

RUN_SECONDS: Final = 7200
PLAIN_HEADER: Final = 20
"""Bytes of a header of TCP without options: the kernel's answer to a segment of no connection."""
_RESET: Final = "(tcp[tcpflags] & tcp-rst != 0) or (ip6[6] == 6 and ip6[53] & 4 != 0)"
_FIELDS: Final = (
    *("frame.time_epoch", "ip.src", "ipv6.src", "tcp.srcport", "tcp.dstport", "tcp.hdr_len"),
    *("tcp.window_size_value", "tcp.seq_raw", "tcp.flags.ack"),
)


@dataclass(frozen=True)
class Reset:
    """One reset."""

    at: float
    source: str
    port: int
    to_port: int
    is_plain: bool
    """Without options and window, as a kernel answers a segment of no connection of its own. When warpline
    aborts a connection, its reset has timestamps."""
    refuses: bool
    """Answers a SYN: nobody listens at the port."""

    def __str__(self) -> str:
        kind = "refuses a connection" if self.refuses else "in a connection"
        return f"{self.source} port {self.port} to port {self.to_port}, {kind}"


class Resets:
    """A capture of all resets at both ends, while the context lasts."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._captures: list[tuple[Process, Path]] = []

    def __enter__(self) -> Self:
        for namespace in self._pair.namespaces:
            mac = Path("/sys/class/net") / INTERFACE / "address"
            words = ["ip", "netns", "exec", namespace, "cat", str(mac)]
            own = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
            # What comes in has passed by both stacks of the other end.
            wanted = f"ether dst {own} and ({_RESET})"
            self._captures.append(
                self._pair.dumpcap(f"resets-{namespace}", namespace, RUN_SECONDS, "-f", wanted)
            )
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(1)  # dumpcap writes out what it holds twice a second
        for process, _path in self._captures:
            process.stop()

    def found(self) -> list[Reset]:
        """The resets, but for those of connections of the programs that are the kernel's. Only after the
        context has ended."""
        found = [reset for _, path in self._captures for reset in _read(path)]
        ours = (reset for reset in found if not {reset.port, reset.to_port} & set(KERNEL_PORTS))
        return sorted(ours, key=lambda reset: reset.at)


def _read(capture: Path) -> Iterator[Reset]:
    fields = [word for name in _FIELDS for word in ("-e", name)]
    words = ["timeout", str(JUDGE_SECONDS), "tshark", "-r", str(capture), "-n", "-T", "fields", *fields]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"tshark: {done.stderr.strip()[-300:]}")
    for line in done.stdout.splitlines():
        at, ipv4, ipv6, port, to_port, header, window, seq, ack = line.split("\t")
        is_plain = (header, window) == (str(PLAIN_HEADER), "0")
        refuses = is_plain and seq == "0" and ack in ("1", "True")
        yield Reset(float(at), ipv4 or ipv6, int(port), int(to_port), is_plain, refuses)
