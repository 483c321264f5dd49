"""What scripts/bench measures: a run of warpline-bench, or of a program beside it, and the figures in it."""

import dataclasses
import json
import pathlib
import shlex
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.namespaces import Unavailable, execute

# Shares of all pings, in percent, for which a distribution has the longest time.
PERCENTS = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0)
MTUS = (1500, 9000)
# Queue pairs, or open connections, over which the cost of a message and of a connect are drawn.
MANY = (1, 10, 100, 1_000, 10_000, 100_000)
# From here on a point takes many seconds to set up: it is measured once, whatever the rounds are.
ONCE_FROM = 10_000
# Memory of a connected queue pair with its connection, both ends, with some to spare, and of the rest.
PAIR_BYTES = 24 << 10
REST_BYTES = 1536 << 20
# The slowest that connections are opened, a second.
LEAST_CONNECTS = 1_000
# Pings a second, at the least, on an idle machine.
PINGS_PER_SECOND = 40_000


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all runs have in common."""

    program: pathlib.Path
    eal: str
    # Two for the two ends, or one for both.
    cpus: list[int]
    duration: float

    @property
    def limit_seconds(self) -> float:
        """The longest that a run may take."""
        return 30 + 10 * self.duration


@dataclasses.dataclass(frozen=True)
class Result:
    """What one run gave."""

    # By figure: `gbit_per_s`, `p50_us` and so on, after a slash for one of many sizes or cases.
    values: dict[str, float]
    # Time in microseconds by percentage of all pings.
    distribution: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    # Everything that the program reported, where the values are an extract.
    reports: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One run, repeated."""

    name: str
    about: str
    # The command, as one types it.
    shown: Callable[[Setting], str]
    run: Callable[[Setting], Result]
    # The programs that it needs besides warpline-bench.
    needs: tuple[str, ...] = ()
    in_namespaces: bool = False
    # How many CPUs have to be free.
    cpus: int = 1
    # Memory that has to be free, in bytes.
    memory: int = 0
    # In how many rounds it is measured; 0 for all.
    rounds: int = 0


def unit_of(figure: str) -> str:
    """The unit of a figure, which its name ends in."""
    units = {
        "gbit_per_s": "Gb/s",
        "mmsg_per_s": "M/s",
        "mpps": "Mpps",
        "_bytes": "bytes",
        "connections_per_s": "1/s",
        "cycles_per_packet": "cycles",
        "_us": "us",
        "_ns": "ns",
    }
    name = figure.partition("/")[0]
    return next((unit for end, unit in units.items() if name.endswith(end)), "")


def read_reports(text: str) -> list[dict[str, Any]]:
    """The reports in a text that holds one JSON object, a list of them, or one a line."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = [json.loads(line) for line in text.splitlines() if line.strip()]
    return value if isinstance(value, list) else [value]


def distribution(histogram: list[list[float]]) -> list[tuple[float, float]]:
    """The times below which shares of all pings are, from times with their counts."""
    total = sum(count for _, count in histogram)
    found = []
    counted = 0.0
    rest = iter(histogram)
    time = 0.0
    for percent in PERCENTS:
        while counted < max(1, total * percent / 100):
            value = next(rest, None)
            if value is None:
                break
            time = value[0]
            counted += value[1]
        found.append((percent, time))
    return found if total else []


def figures_of_tests(reports: list[dict[str, Any]]) -> Result:
    """The figures of write-bw, write-lat, ping and their like; by size where there are several."""
    values: dict[str, float] = {}
    times: list[tuple[float, float]] = []
    for report in reports:
        suffix = f"/{report['size']}" if len(reports) > 1 else ""
        if "p50_us" in report:
            for figure in ("min_us", "p50_us", "mean_us", "p99_us", "p999_us", "max_us"):
                values[figure + suffix] = float(report[figure])
            times = distribution(report["histogram"]) if report.get("histogram") else percentiles(report)
        else:
            for figure in ("gbit_per_s", "mmsg_per_s"):
                values[figure + suffix] = float(report[figure])
    kept = [{key: report[key] for key in report if key != "histogram"} for report in reports]
    return Result(values, times, kept)


def percentiles(report: dict[str, Any]) -> list[tuple[float, float]]:
    """The distribution as far as a report without a histogram has it."""
    named = {"min_us": 0.0, "p50_us": 50.0, "p90_us": 90.0, "p99_us": 99.0, "p999_us": 99.9, "max_us": 100.0}
    return [(percent, float(report[name])) for name, percent in named.items() if name in report]


def figures_of_pairs(reports: list[dict[str, Any]]) -> Result:
    """The figures of write-bw with one size, and what a message costs: time of the slower end."""
    (report,) = reports
    rate = float(report["mmsg_per_s"])
    values = {"gbit_per_s": float(report["gbit_per_s"]), "mmsg_per_s": rate, "message_ns": 1e3 / rate}
    return Result(values, reports=reports)


def figures_of_connects(reports: list[dict[str, Any]]) -> Result:
    """What it costs to open one of the connections of connect-rate, and what an open one takes."""
    (report,) = reports
    values = {"connect_us": 1e6 / float(report["per_s"])}
    if (taken := report["resident_bytes_per_connection"]) is not None:
        values["connection_bytes"] = float(taken)
    return Result(values, reports=reports)


def figures_of_floor(reports: list[dict[str, Any]]) -> Result:
    """The figures of floor, each kind by MTU, region and CRC."""
    report = reports[-1]
    values: dict[str, float] = {}
    for figure in report["figures"]:
        case = floor_case(figure["kind"], figure["mtu"], figure["region_bytes"], figure["crc"])
        values[f"gbit_per_s/{case}"] = float(figure["gbit_per_s"])
    if times := report.get("half_round_trip"):
        values["half_round_trip_ns"] = float(times["median_ns"])
    if rates := report.get("packet_rate"):
        values["transmit_mpps"] = float(rates["transmit_mpps"])
        values["receive_mpps"] = float(rates["receive_mpps"])
    return Result(values, reports=reports)


def floor_case(kind: str, mtu: int, region_bytes: int, crc: bool) -> str:
    """How a case of floor is named here."""
    return f"{kind} {mtu} {region_bytes >> 20}M crc-{'on' if crc else 'off'}"


def figures_of_cache_line(reports: list[dict[str, Any]]) -> Result:
    """The figures of cache-line."""
    report = reports[-1]
    return Result({figure: float(report[figure]) for figure in ("min_ns", "p50_ns")}, reports=reports)


def figures_of_cores(reports: list[dict[str, Any]]) -> Result:
    """The ratios of cores, and its times where it has measured some."""
    (report,) = reports
    values: dict[str, float] = {}
    for row in report["scale"]:
        for figure in ("mmsg_per_s", "gbit_per_s"):
            values[f"{figure}/{row['share']} shared"] = float(row[figure])
        values[f"ratio/{row['share']} shared"] = float(row["ratio"]["median"])
    if stall := report["stall"]:
        values["ratio/beside a stalled core"] = float(stall["ratio"]["median"])
    if times := report["deregister"]:
        for figure in ("deregister_p50_us", "deregister_p99_us"):
            values[figure] = float(times[figure])
    if hand_over := report["hand_over"]:
        values["hand_over_beyond_ns"] = float(hand_over["beyond_ns"]["median"])
    return Result(values, reports=reports)


def figures_of_line_rate(reports: list[dict[str, Any]]) -> Result:
    """The figures of line-rate by direction, MTU and size."""
    values: dict[str, float] = {}
    for row in reports:
        case = line_rate_case(row["direction"], row["mtu"], row["size"])
        for figure in ("mpps", "gbit_per_s", "cycles_per_packet"):
            values[f"{figure}/{case}"] = float(row[figure])
    return Result(values, reports=reports)


def line_rate_case(direction: str, mtu: int, size: int) -> str:
    """How a row of line-rate is named here."""
    return f"{direction} {mtu} {size}"


def figures_of_streams(reports: list[dict[str, Any]]) -> Result:
    """The figures of tcp-rdma, which has one row."""
    (row,) = reports
    figures = ("gbit_per_s", "copies_received", "copies_sent")
    return Result({figure: float(row[figure]) for figure in figures}, reports=reports)


def ours(
    name: str,
    about: str,
    words: Callable[[Setting], list[str]],
    figures: Callable[[list[dict[str, Any]]], Result] = figures_of_tests,
    eal: bool = True,
    cpus: int = 1,
    connections: int = 1,
) -> Measurement:
    """A run of warpline-bench, both ends in one process, with so many connections."""

    def command(setting: Setting) -> list[str]:
        placed = ["--cpus", ",".join(map(str, setting.cpus))]
        if name == "line-rate":
            placed = ["--cpus", str(setting.cpus[0])]
        memory = ["--eal", setting.eal] if eal and setting.eal else []
        return [str(setting.program), *words(setting), *placed, *memory]

    def run(setting: Setting) -> Result:
        with tempfile.TemporaryDirectory(prefix="warpline-bench-") as folder:
            path = pathlib.Path(folder) / "report.json"
            limit = setting.limit_seconds
            # Many sizes or cases, each as long as the others.
            if name.startswith(("sweep-", "floor", "line-rate")):
                limit *= 10
            limit += connections / LEAST_CONNECTS
            execute(
                ["timeout", "-k", "1", f"{limit:.0f}", *command(setting), "--json", str(path)], limit + 10
            )
            try:
                return figures(read_reports(path.read_text()))
            except (OSError, KeyError, ValueError) as error:
                raise Unavailable(f"no usable report: {error!r}") from None

    return Measurement(
        name,
        about,
        lambda setting: shlex.join(command(setting)),
        run,
        cpus=cpus,
        memory=REST_BYTES + connections * PAIR_BYTES if connections >= ONCE_FROM else 0,
        rounds=1 if connections >= ONCE_FROM else 0,
    )


def bandwidth(test: str, size: str, mtu: int, *options: str) -> Callable[[Setting], list[str]]:
    """The words of a bandwidth test."""
    return lambda setting: [
        *(test, "--mtu", str(mtu), "--size", size, "--duration", f"{setting.duration:g}", *options)
    ]


def stream(mtu: int, option: str) -> Callable[[Setting], list[str]]:
    """The words of tcp-rdma in one case."""
    return lambda setting: [
        *("tcp-rdma", "--mtu", str(mtu), "--option", option, "--size", "64k"),
        *("--duration", f"{setting.duration:g}"),
    ]


def sweep(test: str, mtu: int) -> Callable[[Setting], list[str]]:
    """The words of a bandwidth test over all sizes, a second each: the shortest time there is."""
    return lambda _: [test, "--mtu", str(mtu), "--all", "--duration", "1"]


def own_measurements() -> list[Measurement]:
    """All of warpline-bench's."""
    found = [
        ours(
            "cache-line",
            "A cache line to the other CPU and back",
            cache_line,
            figures_of_cache_line,
            eal=False,
            cpus=2,
        ),
        ours("floor", "What one core, two cores and a bare ring can do", floor, figures_of_floor),
        ours(
            "cores-64",
            "Cores of one device beside devices of one core, 64 bytes; a stalled core and more",
            cores("64", "128"),
            figures_of_cores,
            cpus=2,
        ),
        ours(
            "cores-64k",
            "Cores of one device beside devices of one core, 64 KiB",
            cores("64k", "8", "--only", "scale,stall"),
            figures_of_cores,
            cpus=2,
        ),
        ours("line-rate", "One core alone, into and out of a null device", line_rate, figures_of_line_rate),
    ]
    for mtu in MTUS:
        for test, about in (("write", "RDMA Write"), ("read", "RDMA Read"), ("send", "Send")):
            at = f"64 KiB, MTU {mtu}"
            found.append(ours(f"{test}-bw-64k-{mtu}", f"{about}, {at}", bandwidth(f"{test}-bw", "64k", mtu)))
        write = (
            ("256M", "into 256 MiB", "--region", "256M"),
            ("markers", "Markers on", "--markers", "on"),
            ("no-crc", "CRC off", "--crc", "off"),
            ("super-frames", "segments joined", "--device", "ring,super_frames=on"),
        )
        for suffix, about, *options in write:
            words = bandwidth("write-bw", "64k", mtu, *options)
            found.append(
                ours(f"write-bw-64k-{mtu}-{suffix}", f"RDMA Write, 64 KiB, MTU {mtu}, {about}", words)
            )
        for option, how in (("on", "with the TCP RDMA option"), ("off", "without an option")):
            about = f"TCP stream of 64 KiB transfers, {how}, MTU {mtu}"
            found.append(
                ours(f"stream-64k-{mtu}-option-{option}", about, stream(mtu, option), figures_of_streams)
            )
    for test, about in (("write", "RDMA Write"), ("send", "Send")):
        for packing, how in (("on", "packed"), ("off", "a frame each")):
            words = bandwidth(f"{test}-bw", "64", 1500, "--packing", packing)
            name = f"{test}-bw-64-packing-{packing}"
            found.append(ours(name, f"{about}, 64 bytes, MTU 1500, {how}", words))
    for test, about in (("write", "RDMA Write"), ("read", "RDMA Read"), ("send", "Send")):
        found.append(ours(f"{test}-lat-64", f"{about}, 64 bytes, latency", latency(f"{test}-lat")))
    found.append(ours("ping", "rping's exchange, 64 bytes", ping))
    for mtu in MTUS:
        for test, about in (("write", "RDMA Write"), ("read", "RDMA Read"), ("send", "Send")):
            words = sweep(f"{test}-bw", mtu)
            found.append(ours(f"sweep-{test}-{mtu}", f"{about} by size, MTU {mtu}", words))
    return found + many_measurements()


def many_measurements() -> list[Measurement]:
    """What messages and connects cost where there are many connections."""
    found = []
    for size, mtu, options, how in (
        ("64k", 1500, [], ""),
        ("64k", 9000, [], ""),
        ("64", 1500, ["--packing", "off"], ", a frame each"),
    ):
        for count in MANY:
            about = f"RDMA Write, {size}, MTU {mtu}{how}, {count:,} queue pair{plural(count)}"
            words = bandwidth(
                *("write-bw", size, mtu, "--qps", str(count), "--depth", "4", "--region", "1M"),
                *("--one-region", "--verify", "off", *room(count), *options),
            )
            name = pairs_name(size, mtu, count)
            found.append(ours(name, about, words, figures_of_pairs, connections=count))
    for count in MANY:
        about = f"Connects, until as many are open: {count:,}"
        found.append(
            ours(connects_name(count), about, connects(count), figures_of_connects, connections=count)
        )
    return found


def plural(count: int) -> str:
    """The end of a noun that is counted."""
    return "" if count == 1 else "s"


def pairs_name(size: str, mtu: int, count: int) -> str:
    """How a measurement of messages over many queue pairs is named here."""
    return f"pairs-{size}-{mtu}-{count}"


def connects_name(count: int) -> str:
    """How a measurement of connects is named here."""
    return f"connects-{count}"


def room(pairs: int) -> list[str]:
    """The device for so many queue pairs: usually there is room for 65,536 connections, and one peer may
    have half of them."""
    return ["--device", f"ring,connections={2 * pairs}"] if 2 * pairs > 1 << 16 else []


def connects(count: int) -> Callable[[Setting], list[str]]:
    """The words of connect-rate for connections that stay open."""
    return lambda _: ["connect-rate", "--open", str(count)]


def latency(test: str) -> Callable[[Setting], list[str]]:
    """The words of a latency test."""
    return lambda setting: [
        *(test, "--size", "64", "--duration", f"{setting.duration:g}", "--report-histogram")
    ]


def ping(setting: Setting) -> list[str]:
    """The words of ping, which counts instead of timing."""
    return ["ping", "--size", "64", "--count", str(max(100, int(PINGS_PER_SECOND * setting.duration)))]


def floor(setting: Setting) -> list[str]:
    """The words of floor, which measures many cases."""
    cases = ["--mtu", "1500,9000", "--region", "1M,256M", "--crc", "on,off"]
    return ["floor", *cases, "--duration", f"{max(setting.duration / 5, 0.1):g}"]


def line_rate(setting: Setting) -> list[str]:
    """The words of line-rate, which measures many cases on one CPU."""
    return ["line-rate", "--duration", f"{max(setting.duration / 4, 0.1):g}"]


def cores(size: str, depth: str, *options: str) -> Callable[[Setting], list[str]]:
    """The words of cores with Writes of one size."""
    return lambda setting: [
        *("cores", "--size", size, "--depth", depth, "--duration", f"{setting.duration:g}", *options)
    ]


def cache_line(setting: Setting) -> list[str]:
    """The words of cache-line."""
    return ["cache-line", "--duration", f"{max(1, int(setting.duration / 2))}"]
