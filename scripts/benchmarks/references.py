"""Programs that warpline is compared with: iperf3, sockperf, UCX, libfabric and nginx over the kernel's TCP.

They run on the CPUs that warpline's ends have: iperf3 where the kernel places it among them, the others,
which poll, with a CPU for each end. Where a single CPU is free, which polls both ends of warpline, the kernel
places all of them on any.
"""

import json
import pathlib
import re
import shlex
from collections.abc import Callable

from benchmarks.fresh_connections import fresh_measurements
from benchmarks.machine import text_of
from benchmarks.measurements import MTUS, Measurement, Result, Setting
from benchmarks.namespaces import ADDRESSES, INTERFACE, Pair, Unavailable

PAIR_MTU = 1500
# Iterations a second on an idle machine, for the programs that count instead of timing.
UCX_PINGS_PER_SECOND = 100_000
UCX_MESSAGES_PER_SECOND = 20_000
LIBFABRIC_PINGS_PER_SECOND = 50_000
LIBFABRIC_LARGE_PINGS_PER_SECOND = 10_000
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def iperf3_figures(output: str) -> Result:
    """What the receiver of an iperf3 run got."""
    try:
        report = json.loads(output)
        received = report["end"]["sum_received"]["bits_per_second"]
    except (ValueError, KeyError):
        raise Unavailable("iperf3 printed no result") from None
    return Result({"gbit_per_s": float(received) / 1e9})


def sockperf_figures(output: str) -> Result:
    """The times of a sockperf ping-pong, which are halves of round trips, in microseconds."""
    output = ESCAPE.sub("", output)
    mean = re.search(r"avg-latency=\s*([\d.]+)", output)
    found = {name: re.search(rf"{text}\s*=\s*([\d.]+)", output) for name, text in SOCKPERF_TIMES.items()}
    if mean is None or None in found.values():
        raise Unavailable("sockperf printed no result")
    values = {name: float(match[1]) for name, match in found.items() if match}
    times = sorted((percent, values[name]) for name, percent in SOCKPERF_PERCENTS.items())
    return Result({"mean_us": float(mean[1]), **values}, times)


SOCKPERF_TIMES = {
    "min_us": "<MIN> observation",
    "p50_us": r"percentile 50\.000",
    "p90_us": r"percentile 90\.000",
    "p99_us": r"percentile 99\.000",
    "p999_us": r"percentile 99\.900",
    "max_us": "<MAX> observation",
}
SOCKPERF_PERCENTS = {
    "min_us": 0.0,
    "p50_us": 50.0,
    "p90_us": 90.0,
    "p99_us": 99.0,
    "p999_us": 99.9,
    "max_us": 100.0,
}


def ucx_columns(output: str) -> list[float]:
    """The last line of ucx_perftest: iterations; median, mean of the last second and of all, in microseconds;
    two bandwidths in MiB/s; two message rates."""
    for line in output.splitlines():
        if line.startswith("Final:"):
            columns = [float(word) for word in line.split()[1:]]
            if len(columns) == 8:
                return columns
    raise Unavailable("ucx_perftest printed no result")


def ucx_latency_figures(output: str) -> Result:
    """The times of tag_lat, which are halves of round trips."""
    columns = ucx_columns(output)
    return Result({"p50_us": columns[1], "mean_us": columns[3]})


def ucx_bandwidth_figures(output: str) -> Result:
    """The bandwidth of tag_bw over all of the run."""
    return Result({"gbit_per_s": ucx_columns(output)[5] * 8 * (1 << 20) / 1e9})


def libfabric_columns(output: str) -> list[str]:
    """The line of fi_pingpong: bytes, sent, acknowledged, total, time, MB/s, us a transfer, rate."""
    for line in output.splitlines():
        words = line.split()
        if len(words) == 8 and words[0][0].isdigit():
            return words
    raise Unavailable("fi_pingpong printed no result")


def libfabric_latency_figures(output: str) -> Result:
    """The mean time of a transfer, half of a round trip. fi_pingpong prints no other."""
    return Result({"mean_us": float(libfabric_columns(output)[6])})


def libfabric_bandwidth_figures(output: str) -> Result:
    """The bandwidth of one message at a time, in turn each way."""
    return Result({"gbit_per_s": float(libfabric_columns(output)[5]) * 8e6 / 1e9})


def placed(setting: Setting, end: int) -> list[str]:
    """What puts the client (0) or the server (1) on its CPU."""
    return ["taskset", "-c", str(setting.cpus[end])] if len(setting.cpus) > 1 else []


def among(setting: Setting) -> list[str]:
    """What keeps a program on the CPUs of both ends."""
    cpus = ",".join(map(str, setting.cpus))
    return ["taskset", "-c", cpus] if len(setting.cpus) > 1 else []


def cubic() -> list[str]:
    """CUBIC for iperf3, where the kernel has it: other congestion control may pace what veth carries."""
    available = text_of(pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")) or ""
    return ["-C", "cubic"] if "cubic" in available.split() else []


def reference(
    name: str,
    about: str,
    needs: str,
    server: Callable[[Setting], list[str]],
    client: Callable[[Setting], list[str]],
    port: int,
    figures: Callable[[str], Result],
    mtu: int = PAIR_MTU,
    offloads: bool = True,
    over_lo: bool = False,
    polls: bool = True,
) -> Measurement:
    """A client and a server over a veth pair of an MTU, or over lo."""

    def both(setting: Setting) -> tuple[list[str], list[str]]:
        at_client, at_server = (placed(setting, end) if polls else among(setting) for end in (0, 1))
        return [*at_client, *client(setting)], [*at_server, *server(setting)]

    def shown(setting: Setting) -> str:
        wire = "lo of a namespace" if over_lo else f"veth, MTU {mtu}, offloads {'on' if offloads else 'off'}"
        at_client, at_server = both(setting)
        return f"({wire}) {shlex.join(at_server)} & {shlex.join(at_client)}"

    def run(setting: Setting) -> Result:
        limit = setting.limit_seconds
        at_client, at_server = both(setting)
        with Pair(mtu, offloads) as pair:
            pair.server(at_server, port, limit + 10, at_client=over_lo)
            return figures(pair.client(at_client, limit))

    return Measurement(name, about, shown, run, (needs,), in_namespaces=True)


def iperf3(name: str, about: str, mtu: int, offloads: bool = True, over_lo: bool = False) -> Measurement:
    """iperf3, one stream."""
    address = ADDRESSES[0] if over_lo else ADDRESSES[1]
    return reference(
        name,
        about,
        "iperf3",
        lambda _: ["iperf3", "-s", "-1", "-B", address],
        lambda setting: [
            *("iperf3", "-c", address, "-J", "-t", str(max(1, round(setting.duration)))),
            *cubic(),
        ],
        5201,
        iperf3_figures,
        mtu,
        offloads,
        over_lo,
        polls=False,
    )


def sockperf() -> Measurement:
    """sockperf's ping-pong over TCP, polling sockets that do not block."""
    address, port = ADDRESSES[1], 11111
    words = ["--tcp", "-i", address, "-p", str(port), "--nonblocked", "--timeout", "0"]
    return reference(
        "sockperf-tcp-64",
        "sockperf ping-pong over TCP on veth, 64 bytes",
        "sockperf",
        lambda _: ["sockperf", "server", *words],
        lambda setting: [
            *("sockperf", "ping-pong", *words, "-m", "64", "-t", str(max(1, round(setting.duration))))
        ],
        port,
        sockperf_figures,
    )


def ucx(test: str, size: int, mtu: int) -> Measurement:
    """ucx_perftest over tcp, tag matching."""
    environment = ["env", "UCX_TLS=tcp", f"UCX_NET_DEVICES={INTERFACE}"]
    is_latency = test == "tag_lat"
    rate = UCX_PINGS_PER_SECOND if is_latency else UCX_MESSAGES_PER_SECOND
    what = "64 bytes, latency" if is_latency else f"64 KiB, MTU {mtu}"
    return reference(
        "ucx-tcp-lat-64" if is_latency else f"ucx-tcp-bw-64k-{mtu}",
        f"UCX over tcp on veth, {what}",
        "ucx_perftest",
        lambda _: [*environment, "ucx_perftest"],
        lambda setting: [
            *(*environment, "ucx_perftest", ADDRESSES[1], "-t", test, "-s", str(size), "-w", "1000"),
            *("-n", str(max(1000, int(rate * setting.duration)))),
        ],
        13337,
        ucx_latency_figures if is_latency else ucx_bandwidth_figures,
        mtu,
    )


def libfabric(size: int, mtu: int) -> Measurement:
    """fi_pingpong of libfabric's tcp provider, on connected endpoints."""
    is_latency = size == 64
    rate = LIBFABRIC_PINGS_PER_SECOND if is_latency else LIBFABRIC_LARGE_PINGS_PER_SECOND

    def words(setting: Setting) -> list[str]:
        # The server counts as the client does.
        count = str(max(1000, int(rate * setting.duration)))
        return ["fi_pingpong", "-p", "tcp", "-e", "msg", "-S", str(size), "-I", count]

    name = "libfabric-tcp-lat-64" if is_latency else f"libfabric-tcp-bw-64k-{mtu}"
    what = "64 bytes, latency" if is_latency else f"64 KiB, one message at a time, MTU {mtu}"
    return reference(
        name,
        f"libfabric over tcp on veth, {what}",
        "fi_pingpong",
        words,
        lambda setting: [*words(setting), ADDRESSES[1]],
        47592,
        libfabric_latency_figures if is_latency else libfabric_bandwidth_figures,
        mtu,
    )


def reference_measurements() -> list[Measurement]:
    """All programs that run beside warpline."""
    found = []
    for mtu in MTUS:
        found.append(iperf3(f"iperf3-veth-{mtu}", f"iperf3 over veth, MTU {mtu}, offloads on", mtu))
        off = f"iperf3 over veth, MTU {mtu}, offloads off"
        found.append(iperf3(f"iperf3-veth-{mtu}-no-offloads", off, mtu, offloads=False))
    found.append(iperf3("iperf3-lo", "iperf3 over lo", PAIR_MTU, over_lo=True))
    found += [sockperf(), ucx("tag_lat", 64, PAIR_MTU), libfabric(64, PAIR_MTU)]
    for mtu in MTUS:
        found += [ucx("tag_bw", 65536, mtu), libfabric(65536, mtu)]
    return found + fresh_measurements()
