"""What the kernels of the namespaces count while programs run: the resets of TCP that they have sent, and the
bytes that went between the ends past them."""

from __future__ import annotations

import subprocess
from typing import Final

from .pair import Pair

_FILES: Final = ("snmp", "netstat", "snmp6", "dev")
"""Of ``/proc/net``."""
_SENT_BYTES: Final = 8
"""The column of ``/proc/net/dev``, after the name of the interface."""


def resets(pair: Pair) -> int:
    """How many resets of TCP the kernels have sent since the namespaces were made. A kernel has no
    connection for a segment that is warpline's, and would reset it unless warpline held its port."""
    return sum(sent_resets(_counted(namespace)) for namespace in pair.namespaces)


def carried(pair: Pair) -> int:
    """How many bytes programs on warpline have sent to the other end since the namespaces were made: those
    that left by the interface between the ends, without the packets of IP that the kernels have sent."""
    ends = dict.fromkeys((pair.server, pair.client))
    return sum(past_the_kernel(_counted(namespace), pair.carrier) for namespace in ends)


def _counted(namespace: str) -> str:
    words = ["ip", "netns", "exec", namespace, "cat", *(f"/proc/net/{name}" for name in _FILES)]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout


def sent_resets(text: str) -> int:
    """The resets in files of ``/proc/net``."""
    return _value(text, "Tcp", "OutRsts")


def past_the_kernel(text: str, interface: str) -> int:
    """The bytes in files of ``/proc/net`` that the interface has sent, without those of the kernel's IP."""
    sent = next(line for line in text.splitlines() if line.strip().startswith(f"{interface}:"))
    whole = int(sent.split(":")[1].split()[_SENT_BYTES])
    ipv6 = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Ip6OutOctets"))
    return whole - _value(text, "IpExt", "OutOctets") - ipv6


def _value(text: str, group: str, name: str) -> int:
    names, values = (line.split() for line in text.splitlines() if line.startswith(f"{group}:"))
    return int(values[names.index(name)])
