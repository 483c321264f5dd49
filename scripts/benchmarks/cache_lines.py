"""Cache lines that a message fetches where many connections take turns, by callgrind's model of caches."""

import dataclasses
import pathlib
from typing import Any

from benchmarks.figures import Figure
from benchmarks.instructions import ENDS, TOLERANCE_PERCENT, callgrind_run, difference_percent, phases

# What each connection needs has left the first-level cache when its next turn comes.
CASE = "spread-64"
# The caches of a core: 32 KiB, and 512 KiB as the last that the model knows.
CACHES = ("--cache-sim=yes", "--D1=32768,8,64", "--LL=524288,8,64")
FIRST_LEVEL = ("D1mr", "D1mw")
SECOND_LEVEL = ("DLmr", "DLmw")


@dataclasses.dataclass(frozen=True)
class Lines:
    """Cache lines that a message fetches at one end, and functions with what they fetch themselves."""

    end: str
    beyond_first: float
    beyond_second: float
    by_function: list[tuple[float, str]]


def measure(program: pathlib.Path) -> list[Lines]:
    """Runs the program under callgrind, and returns what a message fetches at each end."""
    with callgrind_run(program, CACHES, ("--cases", CASE)) as (reports, folder):
        first = phases(reports, folder, FIRST_LEVEL)[0]
        second = phases(reports, folder, SECOND_LEVEL)[0]
    # The target counts no messages: what the writer has completed is what has arrived there.
    messages = first.units("writer")
    return [
        Lines(
            end,
            first.profiles[end].total() / messages,
            second.profiles[end].total() / messages,
            sorted(
                ((own / messages, name) for name, (_, own) in first.profiles[end].by_function().items()),
                reverse=True,
            ),
        )
        for end in ENDS
    ]


def print_lines(measured: list[Lines], functions: int) -> None:
    """Prints what a message fetches at each end, and the functions that fetch most."""
    for lines in measured:
        print(
            f"{lines.end:<8}{lines.beyond_first:>7.1f} lines a message from beyond 32 KiB, "
            f"{lines.beyond_second:.1f} of them from beyond 512 KiB"
        )
        for count, name in lines.by_function[:functions]:
            print(f"{count:>15.2f}  {name}")


def as_figure(measured: list[Lines]) -> Figure:
    """The lines from beyond the first cache, beside the counts of instructions."""
    return Figure("lines a message", {"lines": {lines.end: lines.beyond_first for lines in measured}})


def baseline_of(measured: list[Lines]) -> dict[str, Any]:
    """What a baseline says of lines."""
    return {
        lines.end: {
            "beyond_first": round(lines.beyond_first, 1),
            "beyond_second": round(lines.beyond_second, 1),
        }
        for lines in measured
    }


def regressions(measured: list[Lines], baseline: dict[str, Any]) -> list[str]:
    """What is above the baseline by more than the tolerance, a sentence each. Lines from beyond the second
    cache depend on where the memory lies: they are printed, and not judged."""
    found = []
    for lines in measured:
        recorded = baseline.get(lines.end, {}).get("beyond_first")
        if recorded is None:
            found.append(f"the {lines.end} is not in the baseline")
            continue
        more = difference_percent(lines.beyond_first, recorded)
        if more > TOLERANCE_PERCENT:
            found.append(
                f"the {lines.end} fetches {lines.beyond_first:.1f} lines a message, {more:.1f} % more than "
                f"{recorded}"
            )
    return found


def is_below(measured: list[Lines], baseline: dict[str, Any]) -> bool:
    """Whether a new baseline should be recorded."""
    return any(
        difference_percent(lines.beyond_first, baseline[lines.end]["beyond_first"]) < -TOLERANCE_PERCENT
        for lines in measured
        if lines.end in baseline
    )
