"""The figures of scripts/demo: how idle the machine is, and the closing table.

demo_report.py idle        percentage of idle time of all cores over one second
demo_report.py table DIR   the table from DIR/{sweep,warpline,floor,iperf3}.json, DIR/{idle,idle-after}, and
                           the first lines of /proc/stat at the start and at the end: DIR/{stat,stat-after}
"""

import pathlib
import sys
import time
from typing import Any

from benchmarks.machine import (
    LEAST_IDLE_PERCENT,
    MOST_STOLEN_PERCENT,
    idle_percentage,
    stolen_percentage,
)
from benchmarks.measurements import read_reports


def reasons_for_doubt(idle: float, idle_after: float, stolen: float, cpus: list[int]) -> list[str]:
    """Why the figures say little about an idle machine, each reason as a clause."""
    reasons = []
    if min(idle, idle_after) < LEAST_IDLE_PERCENT:
        told = f"{idle:.0f} % of the machine was idle before the start, {idle_after:.0f} % after the end"
        reasons.append(f"other processes ran: {told}")
    if stolen > MOST_STOLEN_PERCENT:
        reasons.append(f"the hypervisor gave {stolen:.0f} % of this machine's time to others")
    if len(cpus) == 1:
        reasons.append(
            f"one CPU was free and polled both ends (CPU {cpus[0]}); with two, each end has its own"
        )
    return reasons


def iperf3_gbit_per_s(report: dict[str, Any]) -> float | None:
    """The median in a report of scripts/bench on iperf3, or None if iperf3 was left out or failed."""
    for measurement in report["measurements"]:
        for summary in measurement["figures"].values():
            return float(summary["median"])
    return None


def ratio(value: float, reference: float) -> str:
    """`value` over `reference`, to print."""
    return f"{value / reference:.2f}" if reference else "-"


def table(directory: pathlib.Path) -> tuple[list[tuple[str, str]], bool, list[str]]:
    """The closing table, whether anything arrived wrong in any run, and the reasons to doubt the figures."""
    runs = read_reports((directory / "sweep.json").read_text()) + read_reports(
        (directory / "warpline.json").read_text()
    )
    measured = read_reports((directory / "warpline.json").read_text())[-1]
    floor = read_reports((directory / "floor.json").read_text())[-1]["gbit_per_s"]
    warpline = measured["gbit_per_s"]
    idle, idle_after = (float((directory / name).read_text()) for name in ("idle", "idle-after"))
    stolen = stolen_percentage(*((directory / name).read_text() for name in ("stat", "stat-after")))
    corrupt = sum(run["corrupt_bytes"] for run in runs)
    compared = sum(run["compared_bytes"] for run in runs)
    unverified = [run["size"] for run in runs if not run["compared_bytes"]]

    lines = [
        ("warpline, Gb/s", f"{warpline:.2f}"),
        ("floor (CRC pass and copy pass), Gb/s", f"{floor:.2f}"),
        ("warpline / floor", ratio(warpline, floor)),
    ]
    path = directory / "iperf3.json"
    reference = iperf3_gbit_per_s(read_reports(path.read_text())[-1]) if path.exists() else None
    if reference is not None:
        lines += [
            ("iperf3 over veth, Gb/s", f"{reference:.2f}"),
            ("warpline / iperf3", ratio(warpline, reference)),
        ]
    else:
        lines += [("iperf3 over veth, Gb/s", "not measured")]
    lines += [
        ("idle before the start, %", f"{idle:.0f}"),
        ("idle after the end, %", f"{idle_after:.0f}"),
        ("stolen by the hypervisor, %", f"{stolen:.0f}"),
        ("CPUs that polled", " ".join(map(str, measured["cpus"]))),
        ("compared, % of all bytes", ratio(100 * compared, sum(run["bytes"] for run in runs))),
        ("a sample of each size compared", f"no: sizes {unverified}" if unverified else "yes"),
        ("corrupt_bytes", str(corrupt)),
    ]
    return lines, bool(corrupt or unverified), reasons_for_doubt(idle, idle_after, stolen, measured["cpus"])


def main(arguments: list[str]) -> int:
    if arguments == ["idle"]:
        readings = []
        for pause in (1, 0):
            with open("/proc/stat", encoding="ascii") as stat:
                readings.append(stat.readline())
            time.sleep(pause)
        print(f"{idle_percentage(*readings):.0f}")
        return 0
    if len(arguments) == 2 and arguments[0] == "table":
        lines, wrong, doubts = table(pathlib.Path(arguments[1]))
        if doubts:
            print("These figures mean little:", "; ".join(doubts), end=".\n\n")
        for name, value in lines:
            print(f"{name:<40} {value:>12}")
        return 1 if wrong else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
