"""Plots as SVG, to stand in a page of HTML. Colours are classes, which the page's style defines."""

import dataclasses
import html
import math
from collections.abc import Callable

WIDTH = 860
# Around a plot: for the labels of the axes.
LEFT, RIGHT, TOP, BOTTOM = 64, 32, 24, 44
HEIGHT = 320
BAR = 18
NAMES = 330
COLOURS = 8


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a plot: points, and around each the least and the greatest value of its runs."""

    name: str
    points: list[tuple[float, float]]
    band: list[tuple[float, float]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar: a median, the values of all runs, and whether the median is of runs on idle CPUs."""

    name: str
    median: float
    values: list[float]
    is_quiet: bool


@dataclasses.dataclass(frozen=True)
class Stack:
    """A bar of parts."""

    name: str
    parts: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis: what it shows, where a value lies on it from 0 to 1, and the values that are labelled."""

    label: str
    place: Callable[[float], float]
    ticks: list[tuple[float, str]]


def logarithmic(label: str, least: float, most: float, base: int, text: Callable[[float], str]) -> Axis:
    """An axis of powers of a base, from the one below the least value to the one above the greatest."""
    low = math.floor(math.log(least, base) + 1e-9)
    high = max(low + 1, math.ceil(math.log(most, base) - 1e-9))
    step = max(1, round((high - low) / 12))
    values = [math.pow(base, power) for power in range(low, high + 1, step)]
    ticks = [(value, text(value)) for value in values]
    return Axis(label, lambda value: (math.log(value, base) - low) / (high - low), ticks)


def linear(label: str, most: float) -> Axis:
    """An axis from nothing to the next round number above the greatest value."""
    step = round_step(most / 6)
    count = max(1, math.ceil(most / step - 1e-9))
    return Axis(
        label,
        lambda value: value / (count * step),
        [(number * step, number_text(number * step)) for number in range(count + 1)],
    )


def nines(label: str, most_percent: float) -> Axis:
    """An axis of percentages that gives each further nine as much room as the one before."""

    def scaled(percent: float) -> float:
        return -math.log10(1 - min(percent, most_percent) / 100)

    labelled = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99]
    ticks = [(percent, f"{percent:g} %") for percent in labelled if percent <= most_percent]
    return Axis(label, lambda percent: scaled(percent) / scaled(most_percent), ticks)


def round_step(value: float) -> float:
    """The next 1, 2 or 5 of some power of ten."""
    if value <= 0:
        return 1.0
    power = math.pow(10, math.floor(math.log10(value)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))


def number_text(value: float) -> str:
    """A number as an axis shows it."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def bytes_text(value: float) -> str:
    """A number of bytes as an axis shows it."""
    for factor, unit in ((1 << 20, "M"), (1 << 10, "k")):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def svg(name: str, height: float, parts: list[str]) -> str:
    """A picture, with a name for those who do not see it."""
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{html.escape(name)}">'
    return "\n".join([head, *parts, "</svg>"])


def text(x: float, y: float, words: str, anchor: str = "start", style: str = "") -> str:
    """Words at a place."""
    style = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{html.escape(words)}</text>'


def lines(name: str, across: Axis, up: Axis, drawn: list[Line], levels: list[tuple[str, float]]) -> str:
    """A plot of lines, and of levels that go all the way across."""
    keys = [line.name for line in drawn] + [level for level, _ in levels]
    legend_rows = math.ceil(len(keys) / 3)
    height = TOP + HEIGHT + BOTTOM + 20 * legend_rows
    right, bottom = WIDTH - RIGHT, TOP + HEIGHT

    def x(value: float) -> float:
        return LEFT + across.place(value) * (right - LEFT)

    def y(value: float) -> float:
        return bottom - up.place(value) * HEIGHT

    parts = []
    for value, label in across.ticks:
        parts.append(f'<path class="grid" d="M{x(value):.1f} {TOP}V{bottom}"/>')
        parts.append(text(x(value), bottom + 16, label, "middle"))
    for value, label in up.ticks:
        parts.append(f'<path class="grid" d="M{LEFT} {y(value):.1f}H{right}"/>')
        parts.append(text(LEFT - 6, y(value) + 4, label, "end"))
    parts.append(text((LEFT + right) / 2, bottom + 34, across.label, "middle"))
    parts.append(text(LEFT, TOP - 10, up.label, "end"))
    for number, line in enumerate(drawn):
        colour = f"c{number % COLOURS}"
        if line.band:
            there = [
                f"{x(at):.1f} {y(most):.1f}"
                for (at, _), (_, most) in zip(line.points, line.band, strict=True)
            ]
            back = [
                f"{x(at):.1f} {y(least):.1f}"
                for (at, _), (least, _) in zip(line.points, line.band, strict=True)
            ]
            parts.append(f'<path class="band {colour}" d="M{"L".join(there + back[::-1])}Z"/>')
        path = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in line.points)
        parts.append(f'<path class="line {colour}" d="M{path}"/>')
        for at, value in line.points:
            title = html.escape(f"{line.name}: {value:.3g} at {number_text(at)}")
            dot = f'<circle class="dot {colour}" cx="{x(at):.1f}" cy="{y(value):.1f}" r="3">'
            parts.append(f"{dot}<title>{title}</title></circle>")
    for number, (level, value) in enumerate(levels, len(drawn)):
        title = html.escape(f"{level}: {value:.3g}")
        path = f'<path class="level c{number % COLOURS}" d="M{LEFT} {y(value):.1f}H{right}">'
        parts.append(f"{path}<title>{title}</title></path>")
    parts += legend(keys, bottom + BOTTOM, len(drawn))
    return svg(name, height, parts)


def legend(keys: list[str], top: float, solid: int = 1000) -> list[str]:
    """The name of each colour, three in a row; from `solid` on the lines are broken."""
    parts = []
    for number, key in enumerate(keys):
        x, y = LEFT + (number % 3) * 262, top + 14 + 20 * (number // 3)
        kind = "line" if number < solid else "level"
        parts.append(f'<path class="{kind} c{number % COLOURS}" d="M{x} {y - 4}h20"/>')
        parts.append(text(x + 26, y, key))
    return parts


def bars(name: str, unit: str, drawn: list[Bar]) -> str:
    """Medians as bars, and each run as a dot."""
    axis = linear(unit, max(max(bar.median, *bar.values) for bar in drawn))
    bottom = TOP + len(drawn) * (BAR + 6)
    right = WIDTH - 70

    def x(value: float) -> float:
        return NAMES + axis.place(value) * (right - NAMES)

    parts = [f'<path class="grid" d="M{x(value):.1f} {TOP}V{bottom}"/>' for value, _ in axis.ticks]
    parts += [text(x(value), bottom + 16, label, "middle") for value, label in axis.ticks]
    parts.append(text((NAMES + right) / 2, bottom + 34, unit, "middle"))
    for number, bar in enumerate(drawn):
        y = TOP + number * (BAR + 6)
        kind = "bar c0" if bar.is_quiet else "bar busy"
        parts.append(text(NAMES - 8, y + 13, bar.name, "end"))
        width = x(bar.median) - NAMES
        parts.append(f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{width:.1f}" height="{BAR}"/>')
        parts += [
            f'<circle class="run" cx="{x(value):.1f}" cy="{y + BAR / 2}" r="2.5"/>' for value in bar.values
        ]
        median = f"{bar.median:.3g}" if bar.is_quiet else f"({bar.median:.3g})"
        parts.append(text(max(x(max(bar.values)), x(bar.median)) + 8, y + 13, median, style="value"))
    return svg(name, bottom + BOTTOM, parts)


def stacks(name: str, unit: str, drawn: list[Stack]) -> str:
    """Bars of parts, with a legend."""
    axis = linear(unit, max(sum(stack.parts.values()) for stack in drawn))
    keys = list(drawn[0].parts)
    bottom = TOP + len(drawn) * (BAR + 8)
    names, right = 190, WIDTH - 70
    parts = []
    for value, label in axis.ticks:
        x = names + axis.place(value) * (right - names)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>')
        parts.append(text(x, bottom + 16, label, "middle"))
    parts.append(text((names + right) / 2, bottom + 34, unit, "middle"))
    for number, stack in enumerate(drawn):
        y = TOP + number * (BAR + 8)
        parts.append(text(names - 8, y + 13, stack.name, "end"))
        x = float(names)
        for key, value in stack.parts.items():
            width = axis.place(value) * (right - names)
            title = html.escape(f"{stack.name}, {key}: {value:.0f}")
            box = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}"'
            colour = f"c{keys.index(key) % COLOURS}"
            parts.append(f'<rect class="bar {colour}" {box}><title>{title}</title></rect>')
            x += width
        parts.append(text(x + 8, y + 13, number_text(round(sum(stack.parts.values()))), style="value"))
    parts += legend(keys, bottom + BOTTOM)
    return svg(name, bottom + BOTTOM + 20 * math.ceil(len(keys) / 3) + 4, parts)
