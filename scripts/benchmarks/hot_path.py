"""What the hot path must not do: allocate, lock, or call the operating system."""

import collections
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from benchmarks.callgrind import Profile
from benchmarks.instructions import Phase, Unusable
from benchmarks.measurements import Setting
from benchmarks.namespaces import end

# Seconds before the watch, in which connections are made and memory is first touched.
SETTLING_SECONDS = 3.0
# A thread that polls uses its CPU all the time; the others sleep nearly all of it.
POLLING_PERCENT = 20.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Functions of the C library and of DPDK, as callgrind names them: a recursion has a number.
LIBRARY_CALL = re.compile(
    r"(malloc|calloc|realloc|free|posix_memalign|aligned_alloc|memalign|mmap|munmap|madvise"
    r"|rte_(z|re)?malloc\w*|rte_calloc\w*|rte_free"
    r"|(pthread_(mutex|rwlock|spin|cond)|sem|rte_(rw|spin|ticket)lock)_\w+"
    r"|syscall|ioctl|sched_yield|(clock_)?nanosleep|p?poll|epoll_p?wait|p?select"
    r"|p?(read|write)v?(64)?|(recv|send)(from|to|m?msg)?)(@.*)?('\d+)?"
)
# Locks that were inlined are known by their source files.
LOCK_FILE = re.compile(r"/std/src/(sys/)?sync/(poison/)?(mutex|rwlock|condvar)|/rte_(spin|rw|ticket)lock\.h$")
# A line of strace -f: the thread, and the call that it begins.
CALL = re.compile(r"(\d+) +(\w+)\(")


@dataclasses.dataclass(frozen=True)
class Thread:
    """What a thread did while it was watched."""

    name: str
    cpu_percent: float
    calls: collections.Counter[str]

    @property
    def polls(self) -> bool:
        """Whether it is one of those that carry the traffic."""
        return self.cpu_percent >= POLLING_PERCENT


def library_calls(profile: Profile) -> list[str]:
    """The functions and files in a profile that no hot path may enter."""
    functions = {place.function for place in profile.own} | {called for _, called in profile.called}
    files = {place.file for place in profile.own}
    return sorted(filter(LIBRARY_CALL.fullmatch, functions)) + sorted(filter(LOCK_FILE.search, files))


def faults(measured: list[Phase]) -> list[str]:
    """What the counted polls did that they must not, a sentence each."""
    return [
        f"{phase.name}: the {name} enters {', '.join(found)}"
        for phase in measured
        for name in phase.profiles
        if (found := library_calls(phase.profiles[name]))
    ]


def calls_by_thread(lines: list[str]) -> dict[int, collections.Counter[str]]:
    """The system calls in the output of strace -f."""
    found: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for line in lines:
        if call := CALL.match(line):
            found[int(call[1])][call[2]] += 1
    return found


def cpu_ticks(task: pathlib.Path) -> int:
    """The CPU time that a thread has used (proc(5): utime and stime behind the name)."""
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def watch(setting: Setting, seconds: float) -> tuple[str, list[Thread]]:
    """Runs a stream of Writes, and watches its threads in the middle; the command and what they did."""
    words = [str(setting.program), "write-bw", "--mtu", "9000", "--size", "64k"]
    words += ["--cpus", ",".join(map(str, setting.cpus))]
    words += ["--duration", f"{seconds + 2 * SETTLING_SECONDS:g}"]
    words += ["--eal", setting.eal] if setting.eal else []
    with tempfile.TemporaryFile("w+") as output:
        program = subprocess.Popen(words, stdout=output, stderr=output, text=True)
        try:
            time.sleep(SETTLING_SECONDS)
            threads = watch_process(program.pid, seconds)
            status = program.wait(2 * SETTLING_SECONDS + 30)
        except subprocess.TimeoutExpired:
            raise Unusable("write-bw did not end") from None
        finally:
            end(program)
        if status != 0:
            output.seek(0)
            raise Unusable(f"write-bw failed:\n{output.read()}")
    return " ".join(words), threads


def watch_process(pid: int, seconds: float) -> list[Thread]:
    """Watches the threads of a process with strace."""
    tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    with tempfile.TemporaryDirectory(prefix="warpline-strace-") as folder:
        trace = pathlib.Path(folder) / "trace"
        words = ["strace", "-f", "-qq", "-p", str(pid), "-o", str(trace)]
        try:
            strace = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        except FileNotFoundError:
            raise Unusable("strace is not installed") from None
        try:
            before = {task: cpu_ticks(task) for task in tasks}
            began = time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - began
            used = {task: cpu_ticks(task) - before[task] for task in tasks}
            if strace.poll() is not None:
                raise Unusable(f"strace ended: {strace.communicate()[1]}")
            strace.send_signal(signal.SIGINT)
            strace.wait(10)
        except FileNotFoundError:
            raise Unusable("write-bw ended before its time") from None
        finally:
            end(strace)
        calls = calls_by_thread(trace.read_text().splitlines())
        return [
            Thread(
                (task / "comm").read_text().strip(),
                100 * used[task] / TICKS_PER_SECOND / passed,
                calls.get(int(task.name), collections.Counter()),
            )
            for task in sorted(tasks, key=lambda task: int(task.name))
        ]


def calls_of_polling_threads(threads: list[Thread]) -> list[str]:
    """What the threads that poll did that they must not, a sentence each."""
    if not any(thread.polls for thread in threads):
        return ["no thread polled"]
    return [
        f"a polling thread called the system: {shown(thread.calls)}"
        for thread in threads
        if thread.polls and thread.calls
    ]


def shown(calls: collections.Counter[str]) -> str:
    """Calls with their numbers, most first."""
    return ", ".join(f"{name} {number}" for name, number in calls.most_common()) or "none"


def print_threads(threads: list[Thread], seconds: float) -> None:
    """Prints what each thread did."""
    print(f"{'thread':<18}{'CPU':>6}   system calls in {seconds:g} s")
    for thread in threads:
        print(f"{thread.name:<18}{thread.cpu_percent:>4.0f} %   {shown(thread.calls)}")
