"""The report of scripts/bench as one page of HTML, with its plots inside and no scripts."""

import html
import re
from collections.abc import Callable
from typing import Any

from benchmarks import plots
from benchmarks.measurements import MANY, MTUS, connects_name, floor_case, pairs_name, unit_of
from benchmarks.plots import Bar, Line, Stack

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --paper: #fff; --faint: #d9dee6; --soft: #5c6675;
  --c0: #2563b8; --c1: #d1661a; --c2: #2b8a4b; --c3: #a1379c; --c4: #b3272d; --c5: #0f8a94; --c6: #8a7a12;
  --c7: #6b6f78; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #14181f; --faint: #333b47;
  --soft: #9aa5b4; --c0: #6aa5f0; --c1: #f0985a; --c2: #63c486; --c3: #d984d4; --c4: #ee767b; --c5: #4fc7d1;
  --c6: #cdbb4c; --c7: #a9aeb8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: left; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; }
td.n, th.n { text-align: right; } .busy { color: var(--soft); }
.wide { overflow-x: auto; } code { font-size: .85em; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--ink); }
svg .grid { stroke: var(--faint); fill: none; } svg .line { stroke-width: 2; fill: none; }
svg .level { stroke-width: 1.5; stroke-dasharray: 6 4; fill: none; } svg .band { opacity: .16; stroke: none; }
svg .run { fill: var(--ink); opacity: .55; } svg rect.busy { fill: var(--soft); opacity: .45; }
""" + "".join(
    f"svg .line.c{n}, svg .level.c{n} {{ stroke: var(--c{n}); }} "
    f"svg .dot.c{n}, svg .band.c{n}, svg .bar.c{n} {{ fill: var(--c{n}); }}\n"
    for n in range(plots.COLOURS)
)
SWEPT = (("write", "RDMA Write"), ("read", "RDMA Read"), ("send", "Send"))
TIMED = (
    ("write-lat-64", "RDMA Write"),
    ("read-lat-64", "RDMA Read (whole round trip)"),
    ("send-lat-64", "Send"),
    ("ping", "ping: six messages"),
    ("sockperf-tcp-64", "sockperf over TCP"),
)
PAIRS = (
    ("64k", 1500, "64 KiB, MTU 1500"),
    ("64k", 9000, "64 KiB, MTU 9000"),
    ("64", 1500, "64 bytes, a frame each"),
)
# The last part of a distribution is of single pings.
MOST_PERCENT = 99.99


def page(report: dict[str, Any]) -> str:
    """The page of a report as results.json has it."""
    by_name = {one["name"]: one for one in report["measurements"]}
    sections = [machine(report, by_name)]
    for mtu in MTUS:
        sections.append(compared(by_name, mtu))
    for mtu in MTUS:
        sections.append(by_size(by_name, mtu))
    sections += [
        times(by_name),
        by_pairs(by_name),
        by_connections(by_name),
        layers(report),
        ratios(report),
        figures(report),
        runs(report),
        left_out(report),
    ]
    body = "\n".join(section for section in sections if section)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>warpline: measurements</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def pictures(page: str) -> dict[str, str]:
    """The plots of a page as pictures of their own, by the names of files."""
    found = {}
    plot = re.compile(r'<svg (viewBox="[^"]*" role="img" aria-label="([^"]*)")>(.*?)</svg>', re.S)
    for match in plot.finditer(page):
        attributes, name, content = match.groups()
        file = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {attributes} font-family="sans-serif">'
        back = '<rect width="100%" height="100%" style="fill: var(--paper)"/>'
        found[f"{file}.svg"] = f"{head}\n<style>{STYLE}</style>\n{back}{content}</svg>\n"
    return found


def escaped(value: Any) -> str:
    """A value as text of HTML."""
    return html.escape(str(value))


def section(heading: str, note: str, content: str) -> str:
    """A part of the page."""
    paragraph = f"<p>{escaped(note)}</p>\n" if note else ""
    return f"<section><h2>{escaped(heading)}</h2>\n{paragraph}{content}</section>"


def table(head: list[str], rows: list[list[str]], numbers: tuple[int, ...] = ()) -> str:
    """A table of cells that are HTML already."""

    def row(cells: list[str], tag: str) -> str:
        marked = [
            f"<{tag}{' class=n' if column in numbers else ''}>{cell}</{tag}>"
            for column, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(marked)}</tr>"

    lines = [row(head, "th"), *(row(cells, "td") for cells in rows)]
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"


def machine(report: dict[str, Any], by_name: dict[str, Any]) -> str:
    """What was measured, where and how."""
    facts = report["machine"]
    caches = [
        f"L{cache['level']} {cache['type']} {cache['size']} of CPU {cache['cpus']}"
        for cache in facts["caches"]
    ]
    line = by_name.get("cache-line", {"figures": {}})["figures"].get("p50_ns")
    sharing = [f"CPU {cpus}" for cpus in facts["share_a_core"]]
    rows = [
        ["Processor", escaped(facts["model"])],
        ["CPUs", escaped(f"{len(facts['cpus'])}; of one core each: {', '.join(sharing)}")],
        ["CPUs of the two ends", escaped(" and ".join(map(str, report["polling_cpus"])))],
        *(
            [["Busy with a loop", f"CPU {report['busy_loop_cpu']}"]]
            if report["busy_loop_cpu"] is not None
            else []
        ),
        ["Caches", "<br>".join(map(escaped, caches))],
        ["A cache line to the other CPU and back", f"{line['median']:.0f} ns" if line else "not measured"],
        ["Virtual machine", "yes" if facts["virtual_machine"] else "no"],
        ["Frequency governor", escaped(facts["governor"] or "unknown")],
        ["Kernel", escaped(facts["kernel"])],
        ["Hugepages of 2 MB", escaped(facts["hugepages"])],
        *([escaped(tool), escaped(version)] for tool, version in facts["tools"].items()),
        ["Revision", escaped(report["revision"])],
        ["Started", escaped(report["started"])],
        ["Repeats", escaped(f"{report['repeats']}, of {report['duration_s']} s each, in turn")],
    ]
    note = (
        "Medians are of the runs whose CPUs were idle before and after, and lost no time to the hypervisor. "
        "Without such a run, the median of all is in parentheses, and its bar is grey. A dot is one run."
    )
    return f"<h1>warpline: measurements</h1>\n<p>{note}</p>\n{table(['', ''], rows)}"


def bar(by_name: dict[str, Any], measurement: str, figure: str, label: str) -> Bar | None:
    """A bar of a figure, or None where it was not measured."""
    summary = by_name.get(measurement, {"figures": {}})["figures"].get(figure)
    if summary is None:
        return None
    values = [
        run["result"]["values"][figure]
        for run in by_name[measurement]["runs"]
        if figure in run["result"]["values"]
    ]
    return Bar(label, summary["median"], values, summary["counted"] > 0)


def compared(by_name: dict[str, Any], mtu: int) -> str:
    """Bandwidth beside the floor and other programs."""
    rate = "gbit_per_s"
    names = [
        (f"write-bw-64k-{mtu}", "RDMA Write"),
        (f"write-bw-64k-{mtu}-256M", "RDMA Write into 256 MiB"),
        (f"write-bw-64k-{mtu}-markers", "RDMA Write, Markers on"),
        (f"write-bw-64k-{mtu}-no-crc", "RDMA Write, CRC off"),
        (f"read-bw-64k-{mtu}", "RDMA Read"),
        (f"send-bw-64k-{mtu}", "Send"),
        (f"stream-64k-{mtu}-option-on", "TCP stream, TCP RDMA option on"),
        (f"stream-64k-{mtu}-option-off", "TCP stream, option off"),
        (f"iperf3-veth-{mtu}", "iperf3 over veth, offloads on"),
        (f"iperf3-veth-{mtu}-no-offloads", "iperf3 over veth, offloads off"),
        ("iperf3-lo", "iperf3 over lo"),
        (f"ucx-tcp-bw-64k-{mtu}", "UCX over tcp"),
        (f"libfabric-tcp-bw-64k-{mtu}", "libfabric over tcp, one at a time"),
    ]
    drawn = [bar(by_name, name, rate, label) for name, label in names]
    for kind, label in (
        ("hand-off", "floor: hand-off between two cores"),
        ("by-reference", "floor: the same by reference"),
    ):
        for region in (1, 256):
            case = floor_case(kind, mtu, region << 20, True)
            drawn.append(bar(by_name, "floor", f"{rate}/{case}", f"{label}, {region} MiB"))
    found = [one for one in drawn if one]
    heading = f"64 KiB at MTU {mtu}"
    return section(heading, "", plots.bars(heading, "Gb/s", found)) if found else ""


def by_size(by_name: dict[str, Any], mtu: int) -> str:
    """Throughput by the size of a message."""
    drawn = []
    for test, label in SWEPT:
        sizes = {
            int(figure.partition("/")[2]): summary
            for figure, summary in by_name.get(f"sweep-{test}-{mtu}", {"figures": {}})["figures"].items()
            if figure.startswith("gbit_per_s/") and summary["median"] > 0
        }
        if sizes:
            points = [(float(size), sizes[size]["median"]) for size in sorted(sizes)]
            band = [(max(sizes[size]["least"], 1e-3), sizes[size]["most"]) for size in sorted(sizes)]
            drawn.append(Line(label, points, band))
    if not drawn:
        return ""
    levels = []
    hand_off = f"gbit_per_s/{floor_case('hand-off', mtu, 1 << 20, True)}"
    for name, figure, label in (
        ("floor", hand_off, "hand-off floor"),
        (f"iperf3-veth-{mtu}", "gbit_per_s", "iperf3 over veth, offloads on"),
        (f"iperf3-veth-{mtu}-no-offloads", "gbit_per_s", "iperf3 over veth, offloads off"),
    ):
        if summary := by_name.get(name, {"figures": {}})["figures"].get(figure):
            levels.append((label, summary["median"]))
    values = [value for line in drawn for pair in line.band for value in pair] + [
        value for _, value in levels
    ]
    at = [size for line in drawn for size, _ in line.points]
    across = plots.logarithmic("bytes of a message", min(at), max(at), 2, plots.bytes_text)
    up = plots.logarithmic("Gb/s", min(values), max(values), 10, plots.number_text)
    heading = f"Throughput by size, MTU {mtu}"
    note = "The band is from the least to the greatest run that counts."
    return section(heading, note, plots.lines(heading, across, up, drawn, levels))


def times(by_name: dict[str, Any]) -> str:
    """How long pings take."""
    drawn = []
    for name, label in TIMED:
        points = typical_distribution(by_name.get(name))
        if points:
            drawn.append(Line(label, points))
    if not drawn:
        return ""
    values = [value for line in drawn for _, value in line.points]
    across = plots.nines("share of all pings that took at most this time", MOST_PERCENT)
    up = plots.logarithmic("us", min(values), max(values), 10, plots.number_text)
    heading = "Latency of 64 bytes"
    note = (
        "Half of a round trip, but where the name says otherwise. Of the run whose median is in the middle."
    )
    return section(heading, note, plots.lines(heading, across, up, drawn, []))


def over_counts(by_name: dict[str, Any], label: str, figure: str, named: Callable[[int], str]) -> list[Line]:
    """The line of a figure over numbers of connections, by the names of the measurements; none where nothing
    was measured."""
    found = {
        count: summary
        for count in MANY
        if (summary := by_name.get(named(count), {"figures": {}})["figures"].get(figure))
        and summary["median"] > 0
    }
    if not found:
        return []
    points = [(float(count), summary["median"]) for count, summary in found.items()]
    return [Line(label, points, [(summary["least"], summary["most"]) for summary in found.values()])]


def plot_over_counts(heading: str, note: str, across: str, up: str, drawn: list[Line]) -> str:
    """A plot over numbers of connections, and its table."""
    if not drawn:
        return ""
    values = [value for line in drawn for pair in line.band for value in pair]
    counts = sorted({count for line in drawn for count, _ in line.points})
    horizontal = plots.logarithmic(across, MANY[0], MANY[-1], 10, plots.number_text)
    vertical = plots.logarithmic(up, min(values), max(values), 10, plots.number_text)
    rows = []
    for count in counts:
        of_lines = [dict(line.points).get(count) for line in drawn]
        cells = ["" if value is None else f"{value:,.1f}" for value in of_lines]
        rows.append([f"{count:,.0f}", *cells])
    head = [across, *(escaped(f"{line.name}, {up}") for line in drawn)]
    numbers = tuple(range(len(head)))
    return section(
        heading, note, plots.lines(heading, horizontal, vertical, drawn, []) + table(head, rows, numbers)
    )


def by_pairs(by_name: dict[str, Any]) -> str:
    """What a message costs by the number of queue pairs that take turns."""
    drawn = []
    for size, mtu, label in PAIRS:
        drawn += over_counts(by_name, label, "message_ns", lambda count: pairs_name(size, mtu, count))
    note = (
        "Four messages under way on each queue pair, all of them to one region of 1 MiB. With a CPU for each "
        "end it is the time of the slower one. The band is from the least to the greatest run that counts."
    )
    return plot_over_counts("Cost of a message by queue pairs", note, "queue pairs", "ns", drawn)


def by_connections(by_name: dict[str, Any]) -> str:
    """What a connect costs by the number of connections that are opened."""
    drawn = over_counts(by_name, "a connect, MPA startup included", "connect_us", connects_name)
    note = "The mean over all connects until so many connections are open, 64 of them at a time."
    return plot_over_counts("Cost of a connect by open connections", note, "open connections", "us", drawn)


def typical_distribution(one: dict[str, Any] | None) -> list[tuple[float, float]]:
    """The distribution of the run in the middle, of those that count where some do."""
    having = [run for run in (one or {"runs": []})["runs"] if run["result"]["distribution"]]
    quiet = [run for run in having if not run["doubts"]] or having
    ranked = sorted(quiet, key=lambda run: float(run["result"]["values"].get("p50_us", 0)))
    if not ranked:
        return []
    points = ranked[(len(ranked) - 1) // 2]["result"]["distribution"]
    return [(percent, time) for percent, time in points if percent <= MOST_PERCENT and time > 0]


def layers(report: dict[str, Any]) -> str:
    """Instructions by layer."""
    costs = report.get("instructions", [])
    if not costs:
        return ""
    drawn = [Stack(f"{cost['case']}, {cost['end']}", cost["layers"]) for cost in costs]
    heading = "Cost by layer"
    note = (
        "Instructions a segment (of 1500 or 9000 bytes) or a message (of 64 bytes), counted by callgrind. "
        "They do not depend on the load of the machine."
    )
    return section(heading, note, plots.stacks(heading, "instructions", drawn))


def ratios(report: dict[str, Any]) -> str:
    """The ratios."""
    if not report["ratios"]:
        return ""
    rows = []
    for one in report["ratios"]:
        ratio = (
            f"{one['ratio']:.2f}" if one["idle_cpus"] else f'<span class="busy">({one["ratio"]:.2f})</span>'
        )
        medians = [f"{one[side]['median']:.2f}" for side in ("value", "reference")]
        rows.append([escaped(one["about"]), *medians, ratio])
    note = "Of medians. Of latency, less is better."
    return section("Ratios", note, table(["", "first", "second", "ratio"], rows, (1, 2, 3)))


def figures(report: dict[str, Any]) -> str:
    """All figures."""
    rows = []
    for one in report["measurements"]:
        for figure, summary in one["figures"].items():
            median = f"{summary['median']:.2f}"
            if not summary["counted"]:
                median = f'<span class="busy">({median})</span>'
            rows.append(
                [
                    *(escaped(one["name"]), escaped(figure), median, escaped(unit_of(figure))),
                    *(f"{summary[key]:.2f}" for key in ("least", "most")),
                    *(f"{quartile:.2f}" for quartile in summary["quartiles"]),
                    f"{summary['counted']} of {summary['runs']}",
                ]
            )
    head = [
        "measurement",
        "figure",
        "median",
        "",
        "least",
        "greatest",
        "1st quartile",
        "3rd quartile",
        "counted",
    ]
    commands = [
        [escaped(one["name"]), f"<code>{escaped(one['command'])}</code>"] for one in report["measurements"]
    ]
    return section("Figures", "", table(head, rows, (2, 4, 5, 6, 7))) + section(
        "Commands", "", table(["measurement", "command"], commands)
    )


def runs(report: dict[str, Any]) -> str:
    """Every run, and how busy its CPUs were."""
    rows = []
    for one in report["measurements"]:
        for run in one["runs"]:
            values = list(run["result"]["values"].items())
            first = f"{values[0][0]} {values[0][1]:.2f}" if values else f"failed: {run['failure']}"
            idle = [
                " ".join(f"{share:.0f}" for share in run[when].values())
                for when in ("idle_before", "idle_after")
            ]
            stolen = " ".join(f"{share:.1f}" for share in run["stolen"].values())
            doubts = escaped("; ".join(run["doubts"]))
            rows.append([escaped(one["name"]), str(run["round"]), escaped(first), *idle, stolen, doubts])
    head = [
        "measurement",
        "round",
        "first figure",
        "idle before, %",
        "idle after, %",
        "stolen, %",
        "not counted",
    ]
    content = f"<details><summary>{len(rows)} runs</summary>{table(head, rows)}</details>"
    return section("Runs", "Shares of time are of each CPU in turn.", content)


def left_out(report: dict[str, Any]) -> str:
    """What could not be measured."""
    rows = [[escaped(name), escaped(reason)] for name, reason in report["left_out"].items()]
    return section("Left out", "", table(["measurement", "reason"], rows)) if rows else ""
