"""Figures that follow from the counts of several cases, and all figures beside their bars."""

import dataclasses
from collections.abc import Callable, Iterable

from benchmarks.bars import BARS, Bar
from benchmarks.instructions import ENDS, MEASURES, Phase

# Octets of the stream from one Marker to the next, and of the Marker among them (RFC 5044 §4.3).
MARKER_INTERVAL = 512
MARKER_OCTETS = 4
# Octets of the FPDU of a Write beside its payload: ULPDU_Length, the header of DDP and RDMAP, and the CRC.
FPDU_OCTETS = 2 + 14 + 4

# Of a kind of count and an end.
Value = Callable[[str, str], float]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure, by measure and end."""

    name: str
    values: dict[str, dict[str, float]]


def figure(name: str, value: Value) -> Figure:
    """The figure with the values that a function returns for each kind of count and end."""
    return Figure(
        name, {measure.name: {end: value(measure.field, end) for end in ENDS} for measure in MEASURES}
    )


def each(phase: Phase, field: str, end: str) -> float:
    """What a unit of a case takes."""
    return float(getattr(phase.count(end), field))


def altogether(phase: Phase, field: str, end: str) -> float:
    """What all units of a case took."""
    return each(phase, field, end) * phase.units(end)


def of_message(phase: Phase) -> Figure:
    """A message of many segments, at either end."""
    messages = phase.facts["writer"]["messages"]
    name = f"a message of {phase.facts['size'] >> 10} KiB at MTU {phase.facts['mtu']}"
    return figure(name, lambda field, end: altogether(phase, field, end) / messages)


def markers_a_segment(phase: Phase) -> float:
    """The Markers in a segment of Writes."""
    counts = phase.facts["writer"]
    octets = counts["messages"] * phase.facts["size"] + counts["fpdus"] * FPDU_OCTETS
    return float(octets / (MARKER_INTERVAL - MARKER_OCTETS) / counts["data_segments_sent"])


def of_marker(with_markers: Phase, without: Phase) -> Figure:
    """What a Marker adds to its segment."""
    markers = markers_a_segment(with_markers)
    return figure(
        "a Marker",
        lambda field, end: (each(with_markers, field, end) - each(without, field, end)) / markers,
    )


def of_poll(many: Phase, few: Phase) -> list[Figure]:
    """A poll beside its messages, for a frame and an acknowledgement, and a message beside its poll: the line
    through polls with many messages and with few."""

    def messages(phase: Phase) -> float:
        counts = phase.facts["writer"]
        return float(counts["messages"] / counts["polls"])

    def poll(phase: Phase, field: str, end: str) -> float:
        return altogether(phase, field, end) / float(phase.facts[end]["polls"])

    def slope(field: str, end: str) -> float:
        return (poll(many, field, end) - poll(few, field, end)) / (messages(many) - messages(few))

    def rest(field: str, end: str) -> float:
        return poll(many, field, end) - messages(many) * slope(field, end)

    return [figure("a poll beside its messages", rest), figure("a message beside its poll", slope)]


def derived(measured: Iterable[Phase]) -> list[Figure]:
    """The figures that follow from the cases that were measured."""
    cases = {phase.name: phase for phase in measured}
    return [
        of_message(cases["segment-9000"]),
        of_marker(cases["markers-9000"], cases["segment-9000"]),
        *of_poll(cases["packed-64"], cases["packed-64-halves"]),
    ]


def of_cases(measured: Iterable[Phase]) -> list[Figure]:
    """The figures that are cases."""
    return [
        Figure(
            phase.name,
            {
                measure.name: {end: each(phase, measure.field, end) for end in phase.ends}
                for measure in MEASURES
            },
        )
        for phase in measured
    ]


def print_derived(figures: Iterable[Figure]) -> None:
    """Prints figures that are no cases."""
    print(f"\n{'':<33}{'':<7}{'protocol':>9}{'branches':>10}{'locked':>8}")
    for one in figures:
        for end in ENDS:
            instructions, branches, locked = (one.values[measure.name][end] for measure in MEASURES)
            print(f"{one.name:<33}{end:<7}{instructions:>9.0f}{branches:>10.1f}{locked:>8.2f}")


def print_bars(figures: Iterable[Figure], bars: Iterable[Bar] = BARS) -> None:
    """Prints figures beside their bars, writer and target."""
    found = {(one.name, measure): values for one in figures for measure, values in one.values.items()}
    print(f"\n{'figure':<33}{'':<14}{'writer':>9}{'bar':>7}{'target':>9}{'bar':>7}")
    for bar in bars:
        values = found.get((bar.row, bar.measure), {})
        sides = zip(ENDS, (bar.writer, bar.target), strict=True)
        columns = "".join(side(values.get(end), most) for end, most in sides)
        print(f"{bar.row:<33}{bar.measure:<14}{columns}".rstrip())


def side(value: float | None, bar: float | None) -> str:
    """A figure and its bar at one end, if it has one there."""
    if value is None or bar is None:
        return f"{'-':>9}{'-':>7}" if bar is None else f"{'-':>9}{bar:>7g}"
    digits = 1 if value < 100 else 0
    return f"{value:>9.{digits}f}{bar:>7g}"
