"""What a machine is, and how busy it is: CPUs, caches, and the shares of time in /proc/stat (proc(5))."""

import dataclasses
import os
import pathlib
import platform
import time
from typing import Any

# From here on the rest of the machine takes time that the measurements needed.
LEAST_IDLE_PERCENT = 90
MOST_STOLEN_PERCENT = 2
# A CPU that is less idle than this does not get an end of its own, as in warpline-bench.
FREE_PERCENT = 80
WATCHED_SECONDS = 0.25
# Fewer free pages than this hold no packet pool.
LEAST_HUGEPAGES = 256

CPUS = pathlib.Path("/sys/devices/system/cpu")
STAT = pathlib.Path("/proc/stat")


def ticks_between(before: str, after: str) -> list[int]:
    """Ticks of each kind between two readings of one line of /proc/stat."""
    both = zip(before.split()[1:9], after.split()[1:9], strict=True)
    return [int(later) - int(earlier) for earlier, later in both]


def idle_percentage(before: str, after: str) -> float:
    """Idle share, in percent, between two readings of one line of /proc/stat."""
    ticks = ticks_between(before, after)
    # Fields 3 and 4 are idle and iowait (proc(5)).
    return 100 * (ticks[3] + ticks[4]) / max(1, sum(ticks))


def stolen_percentage(before: str, after: str) -> float:
    """Share that the hypervisor gave to other machines (steal), in percent, between two such readings."""
    ticks = ticks_between(before, after)
    return 100 * ticks[7] / max(1, sum(ticks))


def cpu_lines(text: str) -> dict[int, str]:
    """The line of each CPU in the text of /proc/stat."""
    found = {}
    for line in text.splitlines():
        name = line.split(" ", 1)[0]
        if name.startswith("cpu") and name[3:].isdigit():
            found[int(name[3:])] = line
    return found


@dataclasses.dataclass(frozen=True)
class Shares:
    """Shares of each CPU's time between two readings, in percent."""

    idle: dict[int, float]
    stolen: dict[int, float]


def shares(before: str, after: str) -> Shares:
    """The shares between two readings of the whole text of /proc/stat."""
    earlier, later = cpu_lines(before), cpu_lines(after)
    both = sorted(earlier.keys() & later.keys())
    return Shares(
        {cpu: idle_percentage(earlier[cpu], later[cpu]) for cpu in both},
        {cpu: stolen_percentage(earlier[cpu], later[cpu]) for cpu in both},
    )


def watch(seconds: float = WATCHED_SECONDS) -> Shares:
    """The shares over some time from now on."""
    before = STAT.read_text()
    time.sleep(seconds)
    return shares(before, STAT.read_text())


def reasons_for_doubt(cpus: list[int], before: Shares, after: Shares, during: Shares) -> list[str]:
    """Why a run on `cpus` says little about an idle machine, each reason as a clause."""
    reasons = []
    for when, measured in (("before", before), ("after", after)):
        for cpu in cpus:
            if measured.idle.get(cpu, 100.0) < LEAST_IDLE_PERCENT:
                reasons.append(f"CPU {cpu} was {measured.idle[cpu]:.0f} % idle {when} the run")
    for cpu in cpus:
        if during.stolen.get(cpu, 0.0) > MOST_STOLEN_PERCENT:
            reasons.append(f"the hypervisor gave {during.stolen[cpu]:.0f} % of CPU {cpu}'s time to others")
    return reasons


def chosen_cpus(idle: dict[int, float]) -> list[int]:
    """The CPUs for the two ends: the first two that are free, or else the idlest one for both."""
    # Free CPUs are alike, whatever their last percents.
    ranked = sorted(idle, key=lambda cpu: (-min(idle[cpu], FREE_PERCENT), cpu))
    if len(ranked) > 1 and idle[ranked[1]] >= FREE_PERCENT:
        return ranked[:2]
    return ranked[:1]


def choose_cpus(patience: float) -> list[int]:
    """Chooses among the CPUs that this process may use, when two are free or patience has ended."""
    until = time.monotonic() + patience
    while True:
        idle = watch().idle
        chosen = chosen_cpus({cpu: idle.get(cpu, 100.0) for cpu in os.sched_getaffinity(0)})
        if len(chosen) == 2 or time.monotonic() >= until:
            return chosen


def text_of(path: pathlib.Path) -> str | None:
    """The text of a file of the kernel's, or None where the kernel has no such file."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def caches(cpus: pathlib.Path = CPUS) -> list[dict[str, str]]:
    """Every cache of the machine once, with the CPUs that share it."""
    found = []
    for path in sorted(cpus.glob("cpu[0-9]*/cache/index[0-9]*")):
        cache = {
            field: text_of(path / name) or "?"
            for field, name in (
                ("level", "level"),
                ("type", "type"),
                ("size", "size"),
                ("cpus", "shared_cpu_list"),
            )
        }
        if cache not in found:
            found.append(cache)
    return found


def model(cpuinfo: str) -> str:
    """The name of the processor in the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def facts() -> dict[str, Any]:
    """What decides about the figures of a machine."""
    memory = dict(line.split(":", 1) for line in (text_of(pathlib.Path("/proc/meminfo")) or "").splitlines())
    cpuinfo = text_of(pathlib.Path("/proc/cpuinfo")) or ""
    online = sorted(os.sched_getaffinity(0))
    return {
        "model": model(cpuinfo),
        "cpus": online,
        "share_a_core": sorted(
            {text_of(CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in online}
        ),
        "caches": caches(),
        "governor": text_of(CPUS / "cpu0/cpufreq/scaling_governor"),
        "virtual_machine": "hypervisor" in cpuinfo.split(),
        "kernel": platform.release(),
        "hugepages": int(memory.get("HugePages_Total", "0")),
        "hugepages_free": int(memory.get("HugePages_Free", "0")),
        "memory_available": int(memory.get("MemAvailable", "0").split()[0]) << 10,
    }


def eal_words() -> str:
    """The arguments for EAL. The program decides by itself when there are hugepages."""
    return "" if facts()["hugepages_free"] >= LEAST_HUGEPAGES else "--no-huge -m 1024"
