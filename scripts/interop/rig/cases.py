"""The cases: file exchanges that have to succeed, hostile scenarios that have to fail as documented."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iwarp.hostile import ENHANCED, Scenario

from . import cores
from .injector import Faults, Injected
from .networks import CHECK_CAPTURE, PORT, Network, ProgramNetwork, endpoint
from .processes import Process, RigError, require_equal

EXCHANGE_SECONDS: Final = 120
HOSTILE_SECONDS: Final = 120
STARTUP_SECONDS: Final = 2
"""Our end's limit for the startup, where a scenario is about that limit. Elsewhere it must not decide."""
HOSTILE_OCTETS: Final = 1 << 20
JUDGE_SECONDS: Final = 240
FAULTS_SEED: Final = 1
CAPTURE: Final = "exchange.pcapng"
"""Name of an exchange's capture in the network's directory; it stays there when the case fails."""


@dataclass(frozen=True)
class Exchange:
    """One file exchange."""

    we_listen: bool
    """Our end is the Responder."""
    our_markers: bool
    """Whether our end asks for Markers."""
    kernel_markers: bool
    kernel_aligns: bool
    """Whether the kernel's end starts its segments with an FPDU as well as it can."""
    core: int | None = None
    """Of several, the core of ours that connects; that of what the kernel opens is by the hash of its
    addresses and ports."""

    def __str__(self) -> str:
        def on(value: bool) -> str:
            return "on" if value else "off"

        opening = "kernel connects" if self.we_listen else "we connect"
        opening += f" from core {self.core}" if self.core is not None else ""
        return (
            f"{opening}, Markers to us {on(self.our_markers)}, to the kernel {on(self.kernel_markers)}, "
            f"kernel aligned {on(self.kernel_aligns)}"
        )


def sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _start_both(
    network: Network,
    we_listen: bool,
    ours: list[str],
    kernel: list[str],
    capture: Path | None,
    seconds: float,
    ping: bool,
) -> tuple[Process, Process]:
    """Start the listening end first; our end's process and the kernel peer's."""
    if we_listen:
        our_process = network.start_ours(["--listen", network.our_listen_argument, *ours], capture, seconds)
        if ping:
            network.ping()
        kernel_process = network.start_kernel_peer(
            ["--connect", endpoint(network.our_address, PORT), *kernel], seconds
        )
    else:
        # Any address: on a tap the kernel's own comes only with our end.
        anywhere = endpoint("::" if ":" in network.kernel_address else "0.0.0.0", PORT)
        kernel_process = network.start_kernel_peer(["--listen", anywhere, *kernel], seconds)
        kernel_process.await_text("ready\n")
        our_process = network.start_ours(
            ["--connect", endpoint(network.kernel_address, PORT), *ours], capture, seconds
        )
    return our_process, kernel_process


def play_exchange(network: Network, exchange: Exchange, files: tuple[Path, Path]) -> str:
    """One exchange of ``files`` (ours, the kernel's), hashes compared, the capture judged; a line about
    it."""
    capture = network.directory / CAPTURE
    capture.unlink(missing_ok=True)
    kernel_report, line = _exchange(network, exchange, files, capture, EXCHANGE_SECONDS)
    line += f"; {_judge_capture(network, capture, kernel_report)}"
    capture.unlink()  # one that is still there belongs to a failed case
    return line


def play_uncaptured(network: Network, exchange: Exchange, files: tuple[Path, Path]) -> str:
    """One exchange of ``files``, hashes compared; a line about it.

    Who captures wants whole frames: only without it does our end leave checksums to its device; the kernel
    judges them.
    """
    return _exchange(network, exchange, files, None, EXCHANGE_SECONDS)[1]


def play_through_faults(
    network: Injected,
    exchange: Exchange,
    faults: Faults,
    files: tuple[Path, Path],
    seconds: float = EXCHANGE_SECONDS,
) -> str:
    """One exchange of ``files``, hashes compared, while the forwarder injects faults; a line about it."""
    with network.faults(faults, FAULTS_SEED, seconds + 20) as outcome:
        _, line = _exchange(network, exchange, files, None, seconds)
    ways = [outcome.counted[way] for way in ("to_right", "to_left")]
    hit = {name: sum(way[name] for way in ways) for name in ("lost", "reordered", "duplicated")}
    for asked, name in (
        (faults.loss, "lost"),
        (faults.reorder, "reordered"),
        (faults.duplicate, "duplicated"),
    ):
        if asked != "0" and not hit[name]:
            raise RigError(f"the forwarder has {name} nothing: {outcome.counted}")
    told = ", ".join(f"{count} {name}" for name, count in hit.items())
    return f"{line}; of {outcome.frames} frames {told}, {outcome.own_drops} dropped unasked"


def _exchange(
    network: Network, exchange: Exchange, files: tuple[Path, Path], capture: Path | None, seconds: float
) -> tuple[dict[str, Any], str]:
    """One exchange, hashes compared; the kernel peer's report and a line about it."""
    octets = max(path.stat().st_size for path in files)
    received = (network.directory / "received-by-us", network.directory / "received-by-kernel")

    def words(mine: int, markers: bool) -> list[str]:
        return [
            *("--send", str(files[mine]), "--receive", str(received[mine]), "--receive-octets", str(octets)),
            *("--markers", "on" if markers else "off", "--crc", "on", "--timeout", str(seconds - 10)),
        ]

    our_words = words(0, exchange.our_markers)
    our_words += ["--core", str(exchange.core)] if exchange.core is not None else []
    kernel_words = [*words(1, exchange.kernel_markers), "--align", "on" if exchange.kernel_aligns else "off"]
    if not exchange.we_listen:
        kernel_words += ["--revision", "2"]  # whichever our end asks for
    try:
        our_process, kernel_process = _start_both(
            network,
            exchange.we_listen,
            our_words,
            kernel_words,
            capture,
            seconds,
            ping=True,
        )
        kernel_report, our_report = kernel_process.report(), our_process.report()
        if capture:
            network.finish_capture()
    finally:
        network.stop_all()
    hashes = (sha256(files[0]), sha256(files[1]))
    require_equal(
        "our end's file",
        hashes[0],
        our_report["sent_sha256"],
        kernel_report["received_sha256"],
        sha256(received[1]),
    )
    require_equal(
        "the kernel's file",
        hashes[1],
        kernel_report["sent_sha256"],
        our_report["received_sha256"],
        sha256(received[0]),
    )
    require_equal("Markers to us", exchange.our_markers, kernel_report["markers_sent"])
    require_equal("Markers to the kernel", exchange.kernel_markers, kernel_report["markers_received"])
    require_equal("CRC in use", True, kernel_report["crc"])
    rate = octets / kernel_report["seconds"] / 1e6
    line = f"{octets >> 20} MiB each way in {kernel_report['seconds']:.1f} s, {rate:.0f} MB/s each way"
    if isinstance(network, ProgramNetwork) and network.cores > 1:
        line += f"; {cores.judge_file(network, our_report['by_core'], exchange.core)}"
    return kernel_report, line


def _judge_capture(network: Network, capture: Path, kernel_report: dict[str, Any]) -> str:
    """tshark and our own reassembly on the capture; it has to hold what the kernel peer sent and received."""
    words = ["timeout", str(JUDGE_SECONDS), str(CHECK_CAPTURE), str(capture)]
    words += ["--aligned", network.our_address] if network.aligned else []
    words += ["--clean", network.our_address] if network.clean else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"capture: {done.stderr.strip()[-800:] or done.returncode}")
    verdict = json.loads(done.stdout)
    by_host = {direction["host"]: direction for direction in verdict["directions"]}
    require_equal("FPDUs of our end", by_host[network.our_address]["fpdus"], kernel_report["fpdus_received"])
    require_equal(
        "FPDUs of the kernel's end", by_host[network.kernel_address]["fpdus"], kernel_report["fpdus_sent"]
    )
    by_tshark = sum(direction["fpdus_by_tshark"] for direction in by_host.values())
    left_out = sum(direction["fpdus_left_out_for_tshark"] for direction in by_host.values())
    return (
        f"capture of {verdict['frames']} frames good, {verdict['retransmissions']} of ours sent again, "
        f"{by_tshark} FPDUs by tshark, {left_out} by us alone, {verdict['seconds']:.0f} s"
    )


def play_hostile(network: Network, scenario: Scenario, file: Path) -> str:
    """One scenario against our end, which has to fail as documented; a line about it."""
    times_out = "startup:timeout" in scenario.error_codes
    ours = [
        *("--send", str(file), "--receive", str(network.directory / "received"), "--expect-error"),
        *(
            "--receive-octets",
            str(HOSTILE_OCTETS),
            "--markers",
            "on" if scenario.markers else "off",
            "--crc",
            "on",
        ),
        *("--startup-timeout", str(STARTUP_SECONDS if times_out else HOSTILE_SECONDS)),
        *("--timeout", str(HOSTILE_SECONDS)),
    ]
    if scenario.enhanced:
        ours += ["--revision", str(ENHANCED.revision), "--rtr", "write"]
        ours += ["--ird", str(ENHANCED.ird), "--ord", str(ENHANCED.ord)]
    kernel = [
        "--hostile",
        scenario.name,
        "--receive-octets",
        str(HOSTILE_OCTETS),
        "--timeout",
        str(HOSTILE_SECONDS),
    ]
    our_process, kernel_process = _start_both(
        network, scenario.initiator, ours, kernel, None, HOSTILE_SECONDS + 5, ping=False
    )
    try:
        verdict, failure = kernel_process.report(), our_process.report()
    finally:
        network.stop_all()
    if failure["error_code"] not in scenario.error_codes:
        raise RigError(
            f"reported as {failure['error_code']}, not {' or '.join(scenario.error_codes)}: {failure}"
        )
    require_equal("octets placed outside the buffer", 0, failure["octets_outside"])
    return f"{verdict['reaction']}; reported as {failure['error_code']}"
