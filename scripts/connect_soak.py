"""Opens and closes connections at full rate for minutes, and fails if the process grows meanwhile.

connect_soak.py [--seconds N] [--program FILE]

Runs `warpline-bench connect-rate`, both ends on a ring, and looks every second at its resident memory and
its file descriptors. While the tables of connections in TIME-WAIT fill, memory grows: that is the warm-up. A
leak of a few bytes a connection exceeds the bound in the minutes after it. Prints the rate and the growth.
"""

import argparse
import dataclasses
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.building import built_program
from benchmarks.machine import eal_words
from benchmarks.measurements import read_reports
from benchmarks.namespaces import Unavailable, end, reason

WARM_UP_SECONDS = 90
"""TIME-WAIT, which is a minute, and time for the allocators to come to rest after it."""
LEAST_SECONDS = 2 * WARM_UP_SECONDS
MOST_SECONDS = 600
"""The longest that connect-rate runs."""
BOUND_KIB = 4096
"""How much resident memory may grow after the warm-up."""
SAMPLE_SECONDS = 1.0
AT_AN_END = 10
"""Samples whose median stands for the beginning, and for the end: allocators give memory back at times."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a process holds at a time."""

    seconds: float
    resident_kib: int
    descriptors: int


@dataclasses.dataclass(frozen=True)
class Growth:
    """How a process has grown after its warm-up."""

    resident_kib: float
    grown_kib: float
    grown_descriptors: int

    def faults(self) -> list[str]:
        """What is above its bound, each as a sentence."""
        found = []
        if self.grown_kib > BOUND_KIB:
            found.append(
                f"resident memory grew by {self.grown_kib:.0f} KiB after the warm-up, more than {BOUND_KIB}"
            )
        if self.grown_descriptors > 0:
            found.append(f"{self.grown_descriptors} more file descriptors are open than after the warm-up")
        return found


def growth(samples: list[Sample]) -> Growth:
    """The growth from the end of the warm-up to the last samples."""
    warm = [sample for sample in samples if sample.seconds >= WARM_UP_SECONDS]
    if len(warm) < 2 * AT_AN_END:
        raise Unavailable(f"it was looked at only {len(warm)} times after its warm-up")
    first, last = warm[:AT_AN_END], warm[-AT_AN_END:]
    before, after = (statistics.median(sample.resident_kib for sample in part) for part in (first, last))
    most = max(sample.descriptors for sample in warm[AT_AN_END:])
    return Growth(after, after - before, most - max(sample.descriptors for sample in first))


def resident_kib(status: str) -> int | None:
    """VmRSS of a /proc/PID/status (proc(5)); None for a process that has ended."""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return None


def look(pid: int, seconds: float) -> Sample | None:
    """What a process holds now; None if it has ended."""
    process = pathlib.Path("/proc") / str(pid)
    try:
        resident = resident_kib((process / "status").read_text())
        descriptors = len(os.listdir(process / "fd"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Sample(seconds, resident, descriptors) if resident is not None else None


def samples_of(process: subprocess.Popen[str]) -> Iterator[Sample]:
    """Looks at a process until it ends."""
    started = time.monotonic()
    while True:
        try:
            process.wait(SAMPLE_SECONDS)
        except subprocess.TimeoutExpired:
            sample = look(process.pid, time.monotonic() - started)
            if sample is not None:
                yield sample
        else:
            return


def soak(program: pathlib.Path, seconds: int) -> tuple[dict[str, Any], list[Sample]]:
    """Runs the test; its report, and what the process held."""
    with tempfile.TemporaryDirectory(prefix="warpline-soak-") as folder:
        report, errors = (pathlib.Path(folder) / name for name in ("report.json", "errors"))
        words = [str(program), "connect-rate", "--duration", str(seconds), "--json", str(report)]
        if memory := eal_words():
            words += ["--eal", memory]
        print(" ".join(words), flush=True)
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, text=True
            )
            try:
                samples = list(samples_of(process))
            finally:
                end(process)
        if process.returncode != 0:
            raise Unavailable(reason(errors.read_text()) or f"exit status {process.returncode}")
        (found,) = read_reports(report.read_text())
        return found, samples


def parsed_seconds(text: str) -> int:
    """A time that leaves something after the warm-up."""
    seconds = int(text)
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text} is not from {LEAST_SECONDS}, twice the warm-up, to {MOST_SECONDS}"
        )
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=parsed_seconds, default=MOST_SECONDS, metavar="N")
    parser.add_argument("--program", type=pathlib.Path, metavar="FILE", help="a warpline-bench that is built")
    arguments = parser.parse_args()
    # The test ends with this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        report, samples = soak(arguments.program or built_program(), arguments.seconds)
        grown = growth(samples)
    except Unavailable as why:
        print(f"connects: {why}", file=sys.stderr)
        return 1
    print(
        f"{report['connections']:.0f} connections opened and closed, {report['per_s']:.0f} a second; "
        f"{grown.resident_kib / 1024:.0f} MiB resident, grown by {grown.grown_kib:.0f} KiB since "
        f"{WARM_UP_SECONDS} s after the start (bound {BOUND_KIB}), file descriptors by "
        f"{grown.grown_descriptors}"
    )
    for fault in grown.faults():
        print(f"connects: {fault}", file=sys.stderr)
    return 1 if grown.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
