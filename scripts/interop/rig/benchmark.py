"""Goodput of one flow through faults: Linux to Linux, us to Linux, Linux to us."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .cases import sha256
from .injector import Faults, Injected, Outcome
from .networks import BULK, KERNEL_ADDRESS, PORT
from .processes import Process, RigError, require_equal

CONGESTION_CONTROL: Final = "cubic"
MSS_OCTETS: Final = 1448
SECONDS_LIMIT: Final = 180
"""For one transfer: far more than any should take."""
CEILING_BITS: Final = 400e6
"""Rate for which the clean case's files are made."""


@dataclass(frozen=True)
class Case:
    """One setting of the faults."""

    faults: Faults
    loss: float
    """The probability that ``faults`` names."""
    round_trip_seconds: float

    def octets(self, seconds: float) -> int:
        """Of a file that takes about ``seconds``, by the response function of Reno, which CUBIC has in
        small networks (RFC 9438 §4.3): MSS/RTT times the square root of 1.5/p."""
        rate = CEILING_BITS / 8
        if self.loss:
            rate = min(rate, MSS_OCTETS / self.round_trip_seconds * math.sqrt(1.5 / self.loss))
        return max(int(rate * seconds), 1 << 20)


def _case(loss_percent: float, delay_ms: int, **more: str) -> Case:
    faults = Faults(loss=f"{loss_percent:g}%", delay=f"{delay_ms}ms", **more)
    return Case(faults, loss_percent / 100, 2 * delay_ms / 1000)


CLEAN: Final = _case(0, 1)
BENCHMARKS: Final = (
    *(_case(loss, delay) for delay in (1, 10) for loss in (0.1, 1, 3)),
    _case(0.1, 1, reorder="2%", reorder_delay="500us", duplicate="1%"),
)


@dataclass
class Measured:
    """One transfer."""

    bits_per_second: float
    retransmitted: int
    own_drops: int
    late_polls: int
    idle: float
    """Part of the machine's time that was idle meanwhile."""


KINDS: Final = ("Linux to Linux", "us to Linux", "Linux to us")


@dataclass
class Row:
    """A case and its measurements."""

    case: Case
    measured: dict[str, list[Measured]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def median(self, kind: str) -> float:
        """Goodput in Mb/s."""
        return statistics.median(one.bits_per_second for one in self.measured[kind]) / 1e6

    @staticmethod
    def heading() -> str:
        """Of the table."""
        columns = "".join(f" | {kind + ', Mb/s':>28}" for kind in KINDS)
        return f"{'faults, each way':44}{columns} | own drops | late polls | idle"

    def line(self) -> str:
        """Medians, with the least and the greatest."""
        cells = ""
        for kind in KINDS:
            rates = sorted(one.bits_per_second / 1e6 for one in self.measured[kind])
            part = "" if kind == KINDS[0] else f" {self.median(kind) / self.median(KINDS[0]):4.2f}x"
            cells += f" | {f'{self.median(kind):.1f}{part} ({rates[0]:.1f} to {rates[-1]:.1f})':>28}"
        every = [one for ones in self.measured.values() for one in ones]
        idle = statistics.median(one.idle for one in every)
        drops, late = sum(one.own_drops for one in every), sum(one.late_polls for one in every)
        return f"{self.case.faults!s:44}{cells} | {drops:9} | {late:10} | {idle:3.0%}"

    def last(self) -> str:
        """The last round."""
        cells = []
        for kind in KINDS:
            one = self.measured[kind][-1]
            cells.append(f"{kind} {one.bits_per_second / 1e6:.1f} Mb/s, {one.retransmitted} again")
        return f"{self.case.faults}: {'; '.join(cells)}"

    def as_json(self) -> dict[str, Any]:
        """Everything."""
        return {
            "faults": vars(self.case.faults),
            "measured": {kind: [vars(one) for one in ones] for kind, ones in self.measured.items()},
        }


def _cpu_times() -> tuple[int, int]:
    """Idle and all ticks of all CPUs."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def play_round(network: Injected, row: Row, seed: int, seconds: float) -> None:
    """The same file once in each of the three ways, with the same seed."""
    file = network.directory / "file"
    file.write_bytes(os.urandom(row.case.octets(seconds)))
    ways: dict[str, Callable[[Injected, Path], dict[str, Any]]] = {
        "Linux to Linux": _linux_to_linux,
        "us to Linux": _us_to_linux,
        "Linux to us": _linux_to_us,
    }
    for kind, transfer in ways.items():
        before = _cpu_times()
        try:
            with network.faults(row.case.faults, seed, SECONDS_LIMIT + 10) as outcome:
                report = transfer(network, file)
        except RigError as error:
            raise RigError(f"{row.case.faults}: {kind}: {error} {network.last_words()}") from error
        finally:
            network.stop_all()
        after = _cpu_times()
        idle = (after[0] - before[0]) / max(after[1] - before[1], 1)
        require_equal(f"{row.case.faults}: {kind}", sha256(file), report["sha256"])
        row.measured[kind].append(_measured(report, outcome, idle))


def _measured(report: dict[str, Any], outcome: Outcome, idle: float) -> Measured:
    rate = report["octets"] * 8 / report["seconds"]
    return Measured(
        rate, report["retransmitted_segments"], outcome.own_drops, outcome.counted["late_polls"], idle
    )


def _bulk(network: Injected, namespace: str, *words: str) -> Process:
    """A kernel end. Its TCP runs where the forwarder hands frames over, so it goes before all else, as
    ours does."""
    words = ("nice", "-n", "-10", str(BULK), "--congestion-control", CONGESTION_CONTROL, *words)
    process = network.start("bulk", namespace, [*words, "--timeout", str(SECONDS_LIMIT)], SECONDS_LIMIT)
    process.await_text("ready\n")
    return process


def _linux_to_linux(network: Injected, file: Path) -> dict[str, Any]:
    """The receiver's clock counts, as when we send."""
    octets = str(file.stat().st_size)
    sink = _bulk(
        network, network.kernel, "--plain", "--listen", f"{KERNEL_ADDRESS}:{PORT}", "--receive-octets", octets
    )
    source = _bulk(
        network, network.ours, "--plain", "--connect", f"{KERNEL_ADDRESS}:{PORT}", "--send", str(file)
    )
    sent, received = source.report(), sink.report()
    return _told(received, sent)


def _ours(network: Injected, file: Path, receive_octets: int) -> Process:
    words = ["--connect", f"{KERNEL_ADDRESS}:{PORT}", "--send", str(file), "--timeout", str(SECONDS_LIMIT)]
    words += ["--receive", str(network.directory / "received"), "--receive-octets", str(receive_octets)]
    return network.start_ours(words, None, SECONDS_LIMIT, before=["nice", "-n", "-10"])


def _us_to_linux(network: Injected, file: Path) -> dict[str, Any]:
    """The receiver's clock counts."""
    octets = str(file.stat().st_size)
    sink = _bulk(network, network.kernel, "--listen", f"{KERNEL_ADDRESS}:{PORT}", "--receive-octets", octets)
    ours = _ours(network, file, 1)
    received, sent = sink.report(), ours.report()
    return _told(received, sent)


def _linux_to_us(network: Injected, file: Path) -> dict[str, Any]:
    """The sender's clock counts, until we have closed."""
    nothing = network.directory / "nothing"
    nothing.touch()
    source = _bulk(network, network.kernel, "--listen", f"{KERNEL_ADDRESS}:{PORT}", "--send", str(file))
    ours = _ours(network, nothing, file.stat().st_size)
    sent, received = source.report(), ours.report()
    require_equal("what was sent and what we received", sent["sha256"], received["received_sha256"])
    return _told(sent, sent)


def _told(timed: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """Of the end whose clock counts, with the sender's retransmissions."""
    return {**timed, "retransmitted_segments": sent["retransmitted_segments"]}
