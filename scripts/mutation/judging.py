"""Runs a test on mutants, and says of each what came of it."""

import concurrent.futures
import dataclasses
import enum
import functools
import math
import os
import pathlib
import queue
import resource
import signal
import subprocess
from collections.abc import Iterable, Mapping

from mutation.program import Unusable

REACHED = "the mutant is reached"
# A mutant that takes so many times the processor's time that the program takes, or so much memory, is caught.
SLOWER = 5
LEAST_SECONDS = 30
MOST_SECONDS = 1800
MEMORY_BYTES = 6 << 30
# On the clock, of the processor's time: for a mutant that waits for ever. Other work on the machine must not
# make a mutant slow.
WAITS = 10


class Outcome(enum.Enum):
    """What came of a mutant."""

    FAILED = "the test failed"
    HUNG = "the test took far too long"
    PASSED = "the test passed"
    NOT_REACHED = "the test never came to it"

    @property
    def is_caught(self) -> bool:
        """Whether the test noticed the mutant."""
        return self in (Outcome.FAILED, Outcome.HUNG)


@dataclasses.dataclass(frozen=True)
class Judge:
    """A test: its program, from where it runs, and what it is run with, in steps. A mutant that a short step
    catches is not judged by the longer one after it."""

    program: pathlib.Path
    folder: pathlib.Path
    steps: tuple[tuple[tuple[str, ...], Mapping[str, str]], ...]

    def run(self, mutant: int, cpu: int, limits: Iterable[int]) -> Outcome:
        """Runs the test on a mutant, on one processor. Each step may take so many seconds of it."""
        reached = False
        for (arguments, environment), limit in zip(self.steps, limits, strict=True):
            try:
                run = subprocess.run(
                    [str(self.program), *arguments],
                    cwd=self.folder,
                    env={**os.environ, **environment, "WARPLINE_MUTANT": str(mutant)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    timeout=WAITS * limit,
                    check=False,
                    preexec_fn=functools.partial(confine, cpu, limit),
                )
            except subprocess.TimeoutExpired:
                return Outcome.HUNG
            reached |= REACHED in run.stderr
            if run.returncode == -signal.SIGXCPU:
                return Outcome.HUNG
            if run.returncode != 0:
                return Outcome.FAILED
        return Outcome.PASSED if reached else Outcome.NOT_REACHED

    def limits(self, cpu: int) -> list[int]:
        """How many seconds of a processor each step may take: so many times what it takes with no mutant."""
        limits = []
        for step in self.steps:
            alone = dataclasses.replace(self, steps=(step,))
            begun = seconds_of_children()
            if alone.run(0, cpu, [MOST_SECONDS]) is not Outcome.NOT_REACHED:
                raise Unusable(f"{self.program} fails with no mutant")
            limits.append(max(LEAST_SECONDS, math.ceil(SLOWER * (seconds_of_children() - begun))))
        return limits


def seconds_of_children() -> float:
    """The processor's time that ended children of this process have taken."""
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken.ru_utime + taken.ru_stime


def confine(cpu: int, seconds: int) -> None:
    """Confines this process to one processor, to so many seconds of it, and to a bounded memory."""
    os.sched_setaffinity(0, {cpu})
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def judge_all(judge: Judge, mutants: Iterable[int]) -> Iterable[tuple[int, Outcome]]:
    """Judges mutants, as many at a time as there are processors; yields each as it is done."""
    cpus = sorted(os.sched_getaffinity(0))
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for cpu in cpus:
        free.put(cpu)
    limits = judge.limits(cpus[0])

    def outcome(mutant: int) -> tuple[int, Outcome]:
        cpu = free.get()
        try:
            return mutant, judge.run(mutant, cpu, limits)
        finally:
            free.put(cpu)

    with concurrent.futures.ThreadPoolExecutor(len(cpus)) as pool:
        running = [pool.submit(outcome, mutant) for mutant in mutants]
        for done in concurrent.futures.as_completed(running):
            yield done.result()
