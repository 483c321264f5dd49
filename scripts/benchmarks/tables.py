"""The results of scripts/bench as text and as CSV."""

import csv
import io

from benchmarks.measurements import unit_of
from benchmarks.ratios import Ratio
from benchmarks.rounds import Series, Summary

# Of the many figures of one measurement, those that the table on the terminal leaves out.
MINOR = ("min_us", "max_us", "min_ns")


def is_minor(figure: str) -> bool:
    """Whether a figure is only in the files."""
    return figure.partition("/")[0] in MINOR or figure.partition("/")[2].isdigit()


def median_text(summary: Summary) -> str:
    """The median; in parentheses if no run on idle CPUs is in it."""
    text = f"{summary.median:.2f}"
    return text if summary.is_quiet else f"({text})"


def figures_table(series: list[Series]) -> list[str]:
    """A line for each figure."""
    lines = [
        f"{'':<34}{'':<34}{'median':>12} {'':<5}{'least':>10}{'greatest':>10}  runs counted",
    ]
    for one in series:
        for figure in one.figures():
            summary = one.summary(figure)
            if summary is None or is_minor(figure):
                continue
            lines.append(
                f"{one.measurement.name:<34}{figure:<34}{median_text(summary):>12} {unit_of(figure):<5}"
                f"{summary.least:>10.2f}{summary.most:>10.2f}  {summary.counted} of {summary.runs}"
            )
        for run in one.runs:
            if run.failure:
                lines.append(f"{one.measurement.name:<34}failed: {run.failure}")
    return lines


def ratios_table(ratios: list[Ratio]) -> list[str]:
    """A line for each ratio."""
    return [
        f"{one.comparison.about:<66}{median_text(one.value):>12} /{median_text(one.reference):>12}"
        f" ={one.ratio:>8.2f}"
        for one in ratios
    ]


def as_csv(series: list[Series]) -> str:
    """A line for each figure of each run."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = ["measurement", "figure", "unit", "round", "value", "counted", "why_not"]
    writer.writerow(
        [*columns, "least_idle_percent_before", "least_idle_percent_after", "most_stolen_percent"]
    )
    for one in series:
        for run in one.runs:
            idle = [min(shares.values(), default=100.0) for shares in (run.idle_before, run.idle_after)]
            stolen = max(run.stolen.values(), default=0.0)
            machine = [f"{share:.1f}" for share in (*idle, stolen)]
            if run.failure:
                writer.writerow(
                    [one.measurement.name, "", "", run.round, "", "no", f"failed: {run.failure}", *machine]
                )
            for figure, value in run.result.values.items():
                counted = ["no" if run.doubts else "yes", "; ".join(run.doubts)]
                row = [one.measurement.name, figure, unit_of(figure), run.round, f"{value:.6g}"]
                writer.writerow([*row, *counted, *machine])
    return out.getvalue()
