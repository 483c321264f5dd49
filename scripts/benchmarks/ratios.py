"""Which figures are compared with which: warpline with the floor, with other programs, and with itself."""

import dataclasses
from typing import Any

from benchmarks.fresh_connections import CLIENTS
from benchmarks.measurements import MTUS, floor_case
from benchmarks.rounds import Series, Summary

SWITCHES = (
    ("256M", "into 256 MiB"),
    ("markers", "Markers on"),
    ("no-crc", "CRC off"),
    ("super-frames", "segments joined in super-frames"),
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A figure over another one, by the names of measurement and figure."""

    about: str
    value: tuple[str, str]
    reference: tuple[str, str]
    # Units of the value in one of the reference.
    scale: float = 1


@dataclasses.dataclass(frozen=True)
class Ratio:
    """What came of a comparison."""

    comparison: Comparison
    value: Summary
    reference: Summary

    @property
    def ratio(self) -> float:
        return self.value.median / (self.reference.median * self.comparison.scale)

    @property
    def is_quiet(self) -> bool:
        """Whether both sides are of runs on idle CPUs."""
        return self.value.is_quiet and self.reference.is_quiet


def comparisons() -> list[Comparison]:
    """All comparisons, those of bandwidth first."""
    return [*of_bandwidth(), *of_itself(), *of_latency(), *of_fresh_connections()]


def of_bandwidth() -> list[Comparison]:
    """RDMA Writes, and the others, beside the floor and other programs."""
    rate = "gbit_per_s"
    found = []
    for mtu in MTUS:
        for region, suffix in ((1, ""), (256, "-256M")):
            for kind in ("hand-off", "by-reference"):
                floor = ("floor", f"{rate}/{floor_case(kind, mtu, region << 20, True)}")
                about = f"MTU {mtu}, into {region} MiB: RDMA Write / {kind} floor"
                found.append(Comparison(about, (f"write-bw-64k-{mtu}{suffix}", rate), floor))
        others = {
            f"iperf3-veth-{mtu}": "iperf3 over veth, offloads on",
            f"iperf3-veth-{mtu}-no-offloads": "iperf3 over veth, offloads off",
            "iperf3-lo": "iperf3 over lo",
            f"ucx-tcp-bw-64k-{mtu}": "UCX over tcp",
            f"libfabric-tcp-bw-64k-{mtu}": "libfabric over tcp, one message at a time",
        }
        for test, about in (("write", "RDMA Write"), ("read", "RDMA Read"), ("send", "Send")):
            ours = (f"{test}-bw-64k-{mtu}", rate)
            for name, other in others.items():
                found.append(Comparison(f"MTU {mtu}: {about} / {other}", ours, (name, rate)))
        packet = (f"write-bw-64k-{mtu}-veth-packet", rate)
        for name, other in (
            (f"iperf3-veth-{mtu}", "iperf3 over veth, offloads on"),
            (f"write-bw-64k-{mtu}-veth-af-packet", "the same through net_af_packet"),
        ):
            about = f"MTU {mtu}: RDMA Write over veth, packet sockets / {other}"
            found.append(Comparison(about, packet, (name, rate)))
        for option in ("on", "off"):
            streams = (f"stream-64k-{mtu}-option-{option}", rate)
            about = f"MTU {mtu}: TCP stream, option {option} / iperf3 over veth, offloads on"
            found.append(Comparison(about, streams, (f"iperf3-veth-{mtu}", rate)))
        options = [(f"stream-64k-{mtu}-option-{option}", rate) for option in ("on", "off")]
        found.append(Comparison(f"MTU {mtu}: TCP stream, option on / off", options[0], options[1]))
    for name, other in (
        ("iperf3-veth-1500", "iperf3 over veth, offloads on"),
        ("iperf3-lo", "iperf3 over lo"),
    ):
        about = f"MTU 1500: RDMA Write, super-frames / {other}"
        found.append(Comparison(about, ("write-bw-64k-1500-super-frames", rate), (name, rate)))
    return found


def of_itself() -> list[Comparison]:
    """Tests and settings beside the RDMA Write of 64 KiB."""
    rate = "gbit_per_s"
    found = []
    for mtu in MTUS:
        write = (f"write-bw-64k-{mtu}", rate)
        for test, about in (("read", "RDMA Read"), ("send", "Send")):
            found.append(
                Comparison(f"MTU {mtu}: {about} / RDMA Write", (f"{test}-bw-64k-{mtu}", rate), write)
            )
        for suffix, how in SWITCHES:
            found.append(
                Comparison(f"MTU {mtu}: RDMA Write, {how} / plain", (f"{write[0]}-{suffix}", rate), write)
            )
    for test, about in (("write", "RDMA Write"), ("send", "Send")):
        packed, single = ((f"{test}-bw-64-packing-{packing}", "mmsg_per_s") for packing in ("on", "off"))
        found.append(Comparison(f"{about}, 64 bytes: packed / a frame each", packed, single))
    return found


def of_latency() -> list[Comparison]:
    """Latency of 64 bytes, where less is better."""
    found = []
    for test, about in (("write", "RDMA Write"), ("send", "Send")):
        median = (f"{test}-lat-64", "p50_us")
        ring = ("floor", "half_round_trip_ns")
        found.append(Comparison(f"latency, 64 bytes: {about} / bare ring, median", median, ring, 1e-3))
        late = (f"{test}-lat-64", "p99_us")
        found.append(Comparison(f"latency, 64 bytes: {about}, 99 % / median", late, median))
        for name, statistic, other in (
            ("ucx-tcp-lat-64", "p50_us", "UCX over tcp, median"),
            ("libfabric-tcp-lat-64", "mean_us", "libfabric over tcp, mean"),
            ("sockperf-tcp-64", "p50_us", "sockperf over TCP, median"),
        ):
            ours = (f"{test}-lat-64", statistic)
            found.append(Comparison(f"latency, 64 bytes: {about} / {other}", ours, (name, statistic)))
    return found


def of_fresh_connections() -> list[Comparison]:
    """The example server of HTTP beside nginx."""
    rate = "connections_per_s"
    return [
        Comparison(
            f"fresh HTTP connections, {clients} clients: warpline / nginx over the kernel",
            (f"http-fresh-{clients}-warpline", rate),
            (f"http-fresh-{clients}-nginx", rate),
        )
        for clients in CLIENTS
    ]


def ratios(series: list[Series]) -> list[Ratio]:
    """The comparisons both of whose figures were measured, the second of them above 0."""
    by_name = {one.measurement.name: one for one in series}

    def summary(side: tuple[str, str]) -> Summary | None:
        one = by_name.get(side[0])
        return one.summary(side[1]) if one else None

    return [
        Ratio(comparison, value, reference)
        for comparison in comparisons()
        if (value := summary(comparison.value))
        and (reference := summary(comparison.reference))
        and reference.median
    ]


def as_json(found: list[Ratio]) -> list[dict[str, Any]]:
    """The ratios as a report."""
    return [
        {
            "about": one.comparison.about,
            "value": {"figure": "/".join(one.comparison.value), "median": one.value.median},
            "reference": {"figure": "/".join(one.comparison.reference), "median": one.reference.median},
            "ratio": one.ratio,
            "idle_cpus": one.is_quiet,
        }
        for one in found
    ]
