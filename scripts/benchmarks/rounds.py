"""Repeats of measurements in turn, and what is known of each run: its figures, and how busy the CPUs were."""

import dataclasses
import datetime
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks import machine
from benchmarks.machine import Shares
from benchmarks.measurements import Measurement, Result, Setting
from benchmarks.namespaces import Unavailable

# So many failures, and no result, end the repeats of a measurement.
MOST_FAILURES = 2


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a measurement."""

    round: int
    started: str
    seconds: float
    idle_before: dict[int, float]
    idle_after: dict[int, float]
    stolen: dict[int, float]
    # Why it is not counted; empty for a run on idle CPUs.
    doubts: list[str]
    # Why there is no result, or None.
    failure: str | None
    result: Result


@dataclasses.dataclass(frozen=True)
class Summary:
    """A figure over the runs that count, or over all where none counts."""

    counted: int
    runs: int
    median: float
    least: float
    most: float
    quartiles: tuple[float, float]

    @property
    def is_quiet(self) -> bool:
        """Whether the runs on idle CPUs are summarized."""
        return self.counted > 0

    @property
    def spread_percent(self) -> float:
        """How far the least and the greatest are apart, in percent of the median."""
        return 100 * (self.most - self.least) / self.median if self.median else 0.0


@dataclasses.dataclass
class Series:
    """All runs of a measurement."""

    measurement: Measurement
    command: str
    runs: list[Run] = dataclasses.field(default_factory=list)

    def figures(self) -> list[str]:
        """The names of the figures, in the order in which the program reports them."""
        return list(dict.fromkeys(figure for run in self.runs for figure in run.result.values))

    def summary(self, figure: str) -> Summary | None:
        """The summary of a figure, or None if no run has it."""
        having = [run for run in self.runs if figure in run.result.values]
        quiet = [run for run in having if not run.doubts]
        return summarize([run.result.values[figure] for run in quiet or having], len(quiet), len(having))


def summarize(values: list[float], counted: int, runs: int) -> Summary | None:
    """Median and spread of values."""
    if not values:
        return None
    first, _, third = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    )
    return Summary(counted, runs, statistics.median(values), min(values), max(values), (first, third))


def interleaved(
    measurements: list[Measurement],
    setting: Setting,
    repeats: int,
    patience: float,
    tell: Callable[[str], None],
    take: Callable[..., Run] | None = None,
) -> list[Series]:
    """Runs each measurement once a round, so that a change of the machine's speed meets all of them. Some
    take so long that they are in fewer rounds."""
    take = take or measure
    series = [Series(measurement, measurement.shown(setting)) for measurement in measurements]
    for number in range(1, repeats + 1):
        for one in series:
            if len(one.runs) >= MOST_FAILURES and all(run.failure for run in one.runs):
                continue
            if 0 < one.measurement.rounds < number:
                continue
            run = take(one.measurement, setting, number, patience)
            one.runs.append(run)
            tell(line_of(one, run, repeats))
    return series


def measure(measurement: Measurement, setting: Setting, number: int, patience: float) -> Run:
    """Runs a measurement once, when the CPUs are idle or patience has ended."""
    before = idle_cpus(setting.cpus, patience)
    stat = machine.STAT.read_text()
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    start = time.monotonic()
    failure = None
    result = Result({})
    try:
        result = measurement.run(setting)
    except Unavailable as reason:
        failure = str(reason)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # A report in another form must not end the runs of all others.
        failure = f"its report cannot be read: {error!r}"
    if failure is None and not result.values:
        failure = "it reported nothing"
    seconds = time.monotonic() - start
    during = machine.shares(stat, machine.STAT.read_text())
    after = machine.watch()
    doubts = machine.reasons_for_doubt(setting.cpus, before, after, during)
    return Run(number, started, seconds, before.idle, after.idle, during.stolen, doubts, failure, result)


def idle_cpus(cpus: list[int], patience: float) -> Shares:
    """The shares of time just before a run, which begins when the CPUs are idle or patience has ended."""
    until = time.monotonic() + patience
    while True:
        measured = machine.watch()
        busy = any(measured.idle.get(cpu, 100.0) < machine.LEAST_IDLE_PERCENT for cpu in cpus)
        if not busy or time.monotonic() >= until:
            return measured


def line_of(series: Series, run: Run, repeats: int) -> str:
    """What is printed of a run."""
    name = f"{run.round}/{repeats}  {series.measurement.name:<33}"
    if run.failure:
        return f"{name}  failed: {run.failure}"
    values = run.result.values
    figure = next(
        (name for name in ("message_ns", "gbit_per_s", "p50_us", "p50_ns") if name in values),
        next(iter(values)),
    )
    return f"{name}  {figure} {values[figure]:.2f}" + (
        f"  (busy: {'; '.join(run.doubts)})" if run.doubts else ""
    )


def as_json(series: list[Series]) -> list[dict[str, Any]]:
    """All runs and their summaries."""
    return [
        {
            "name": one.measurement.name,
            "about": one.measurement.about,
            "command": one.command,
            "figures": {
                figure: {**dataclasses.asdict(summary), "spread_percent": summary.spread_percent}
                for figure in one.figures()
                if (summary := one.summary(figure))
            },
            "runs": [dataclasses.asdict(run) for run in one.runs],
        }
        for one in series
    ]
