"""Thousands of connections at once, from one process over the kernel's TCP to ``warpline-bench ping``."""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

from . import cores
from .built import BENCHMARK
from .networks import CHECK_CAPTURE, PORT, ProgramNetwork, endpoint
from .processes import RigError

CROWD: Final = CHECK_CAPTURE.parent / "crowd"
CONNECTIONS: Final = 5000
NAME: Final = f"{CONNECTIONS} kernel connections at once ping us"
SECONDS: Final = 180
"""For opening, pinging and closing all of them, which takes some four where both CPUs are free."""
OCTETS: Final = 1000
"""Of the longest ping."""


def play(network: ProgramNetwork, connections: int = CONNECTIONS) -> str:
    """All connections, judged by both ends; a line about them."""
    report = network.directory / "crowd.json"
    words = [
        *(str(BENCHMARK), "ping", "--device", network.addressed_device(), "--eal", network.eal()),
        *("--listen", endpoint(network.our_address, PORT), "--clients", str(connections)),
        *("--size", str(OCTETS), "--json", str(report)),
        # The first to connect say nothing until the last have.
        *("--timeout", str(SECONDS)),
        # Loops on all CPUs would leave none to the kernel's end.
        *(("--events",) if network.cores > 1 else ()),
    ]
    try:
        ours = network.start("ping", network.program_namespace, words, SECONDS + 30)
        ours.await_text("waiting at")
        words = [str(CROWD), "--connect", endpoint(network.our_address, PORT)]
        words += ["--connections", str(connections), "--size", str(OCTETS), "--timeout", str(SECONDS)]
        told = network.start("crowd", network.kernel, words, SECONDS + 10).report()
        if (status := ours.wait()) != 0:
            raise RigError(f"our end ended with status {status}: {ours.errors}")
    finally:
        network.stop_all()
    served = json.loads(report.read_text())
    ends = Counter(client["ended"] for client in served)
    if ends != {"closed": connections}:
        raise RigError(f"our end says that connections ended so: {dict(ends)}")
    octets = sum(client["bytes"] for client in served)
    if octets != told["octets"] or any(client["pings"] != 1 for client in served):
        raise RigError(f"our end wrote {octets} octets, the kernel's end received {told['octets']}")
    seconds = ", ".join(f"{name} {value} s" for name, value in told["seconds"].items())
    line = f"{connections} pings of {octets} octets in all, each compared; {seconds}"
    return f"{line}; {cores.judge_clients(network, served)}" if network.cores > 1 else line
