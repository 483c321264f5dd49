"""The resets of TCP that the kernels send while programs run, by the kernels' own count.

The kernel has no connection for a segment that is warpline's, and would answer it by a reset unless warpline
held its ports.
"""

from __future__ import annotations

import subprocess

from .pair import Pair


def sent_by_kernels(pair: Pair) -> int:
    """How many resets the kernels of both namespaces have sent since these were made."""
    return sum(map(_sent, pair.namespaces))


def _sent(namespace: str) -> int:
    words = ["ip", "netns", "exec", namespace, "cat", "/proc/net/snmp"]
    text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("OutRsts")])
