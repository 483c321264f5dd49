"""rping's exchange between the kernel's end, in Python, and ``warpline-bench ping``."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .built import BENCHMARK
from .cases import CAPTURE, JUDGE_SECONDS
from .networks import CHECK_CAPTURE, PORT, ProgramNetwork, endpoint
from .processes import Process, RigError

RPING: Final = CHECK_CAPTURE.parent / "rping"
SECONDS: Final = 180
PINGS: Final = 100
OCTETS: Final = 30_000
"""Of a ping: more than a segment, by Read and by Write."""


@dataclass(frozen=True)
class Pings:
    """One setting."""

    we_listen: bool
    our_markers: bool
    kernel_markers: bool
    crc: bool

    def __str__(self) -> str:
        def on(value: bool) -> str:
            return "on" if value else "off"

        who = "the kernel pings us" if self.we_listen else "we ping the kernel"
        return (
            f"{who}, Markers to us {on(self.our_markers)}, to the kernel {on(self.kernel_markers)}, "
            f"CRC {on(self.crc)}"
        )


CASES: Final = (
    Pings(we_listen=True, our_markers=False, kernel_markers=False, crc=True),
    Pings(we_listen=False, our_markers=False, kernel_markers=False, crc=True),
    Pings(we_listen=True, our_markers=False, kernel_markers=True, crc=False),
    Pings(we_listen=False, our_markers=True, kernel_markers=False, crc=False),
)
"""As Linux siw has it, and with Markers as the client asks."""


def _start_ours(network: ProgramNetwork, words: list[str], capture: Path) -> Process:
    line = [
        *(str(BENCHMARK), "ping", "--device", network.addressed_device(), "--eal", network.eal()),
        *("--pcap", str(capture), *words),
    ]
    return network.start("ping", network.program_namespace, line, SECONDS)


def play(network: ProgramNetwork, case: Pings) -> str:
    """One setting, its capture judged; a line about it."""
    capture, report = network.directory / CAPTURE, network.directory / "ping.json"
    crc = "on" if case.crc else "off"
    ours = ["--crc", crc, "--markers", "on" if case.our_markers else "off", "--json", str(report)]
    kernel = ["--crc", crc, "--markers", "on" if case.kernel_markers else "off", "--size", str(OCTETS)]
    try:
        if case.we_listen:
            our = _start_ours(
                network, ["--listen", endpoint(network.our_address, PORT), "--clients", "1", *ours], capture
            )
            our.await_text("waiting at")
            words = ["--connect", endpoint(network.our_address, PORT), "--count", str(PINGS), *kernel]
            peer = network.start("rping", network.kernel, [str(RPING), *words], SECONDS)
        else:
            words = ["--listen", endpoint(network.kernel_address, PORT), *kernel]
            peer = network.start("rping", network.kernel, [str(RPING), *words], SECONDS)
            peer.await_text("ready\n")
            words = [
                endpoint(network.kernel_address, PORT),
                "--size",
                str(OCTETS),
                "--count",
                str(PINGS),
                *ours,
            ]
            our = _start_ours(network, words, capture)
        told = peer.report()
        if (status := our.wait()) != 0:
            raise RigError(f"our end ended with status {status}: {our.errors}")
    finally:
        network.stop_all()
    found = json.loads(report.read_text())
    found = found[0] if case.we_listen else found
    if (told["pings"], found["pings"], found["revision"]) != (PINGS, PINGS, 2):
        raise RigError(f"not {PINGS} pings: {told}, {found}")
    if case.we_listen and found["agreed"] != {"ird": 1, "ord": 1}:
        raise RigError(f"depths {found}")
    return f"{PINGS} pings of {OCTETS} octets; {_judge(network, capture)}"


def _judge(network: ProgramNetwork, capture: Path) -> str:
    words = [
        "timeout",
        str(JUDGE_SECONDS),
        str(CHECK_CAPTURE),
        str(capture),
        "--aligned",
        network.our_address,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"capture: {done.stderr.strip()[-500:] or done.returncode}")
    verdict = json.loads(done.stdout)
    fpdus = sum(direction["fpdus_by_tshark"] for direction in verdict["directions"])
    return f"{verdict['frames']} frames good, {fpdus} FPDUs as tshark sees them"
