"""Tests of what scripts/bench makes of runs: statistics, ratios, tables and the page."""

import dataclasses
import html.parser
import json
import pathlib
import sys
import unittest
import xml.etree.ElementTree
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from benchmarks import layers, machine, measurements, page, plots, ratios, rounds, tables
from benchmarks.callgrind import Place, Profile
from benchmarks.measurements import Measurement, Result, Setting
from benchmarks.rounds import Run, Series

SETTING = Setting(pathlib.Path("warpline-bench"), "", [0, 1], 1.0)
BEFORE = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n"
AFTER = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 105 0 0 190 0 0 0 5 0 0\ncpu1 30 0 0 60 10 0 0 0 0 0\nintr 9\n"


def measurement(name: str) -> Measurement:
    return Measurement(name, f"about {name}", lambda _: f"run {name}", lambda _: Result({}))


def taken(number: int, values: dict[str, float], doubts: list[str] | None = None) -> Run:
    times = [(0.0, 1.0), (50.0, 2.0), (99.0, 4.0), (100.0, 90.0)] if "p50_us" in values else []
    failure = None if values else "no device"
    idle = {0: 99.0, 1: 98.0}
    return Run(number, "now", 1.0, idle, idle, {0: 0.0, 1: 0.5}, doubts or [], failure, Result(values, times))


def series(name: str, *runs: Run) -> Series:
    return Series(measurement(name), f"run {name}", list(runs))


class MachineTest(unittest.TestCase):
    def test_shares_are_of_each_cpu(self) -> None:
        found = machine.shares(BEFORE, AFTER)
        self.assertEqual(found.idle, {0: 90.0, 1: 70.0})
        self.assertEqual(found.stolen, {0: 5.0, 1: 0.0})

    def test_busy_cpus_and_stolen_time_are_doubted(self) -> None:
        idle = machine.Shares({0: 99.0, 1: 99.0}, {0: 0.0, 1: 0.0})
        found = machine.shares(BEFORE, AFTER)
        self.assertEqual(machine.reasons_for_doubt([0, 1], idle, idle, idle), [])
        self.assertEqual(
            machine.reasons_for_doubt([0, 1], idle, found, idle), ["CPU 1 was 70 % idle after the run"]
        )
        self.assertEqual(machine.reasons_for_doubt([0], idle, found, idle), [])
        self.assertEqual(
            machine.reasons_for_doubt([0], idle, idle, found),
            ["the hypervisor gave 5 % of CPU 0's time to others"],
        )

    def test_cpus_are_chosen_as_warpline_bench_chooses(self) -> None:
        self.assertEqual(machine.chosen_cpus({0: 99.0, 1: 98.0}), [0, 1])
        self.assertEqual(machine.chosen_cpus({0: 60.0, 1: 99.0}), [1])
        self.assertEqual(machine.chosen_cpus({0: 0.0, 1: 3.0}), [1])
        self.assertEqual(machine.chosen_cpus({0: 60.0, 1: 99.0, 2: 5.0, 3: 97.0}), [1, 3])
        self.assertEqual(machine.chosen_cpus({7: 10.0}), [7])


class StatisticsTest(unittest.TestCase):
    def test_only_runs_on_idle_cpus_are_counted(self) -> None:
        values = [10.0, 30.0, 20.0, 500.0]
        runs = [
            taken(number, {"gbit_per_s": value}, ["busy"] if value == 500 else [])
            for number, value in enumerate(values)
        ]
        found = series("x", *runs).summary("gbit_per_s")
        assert found is not None
        self.assertEqual((found.counted, found.runs), (3, 4))
        self.assertEqual((found.median, found.least, found.most), (20.0, 10.0, 30.0))
        self.assertEqual(found.quartiles, (15.0, 25.0))
        self.assertEqual(found.spread_percent, 100.0)

    def test_without_a_quiet_run_all_are_summarized_and_marked(self) -> None:
        found = series("x", taken(1, {"p50_us": 2.0}, ["busy"]), taken(2, {})).summary("p50_us")
        assert found is not None
        self.assertEqual((found.counted, found.runs, found.median), (0, 1, 2.0))
        self.assertEqual(tables.median_text(found), "(2.00)")
        self.assertIsNone(series("x", taken(1, {})).summary("p50_us"))

    def test_rounds_go_through_all_measurements(self) -> None:
        order = []

        def take(one: Measurement, _: Setting, number: int, __: float) -> Run:
            order.append((one.name, number))
            return taken(number, {} if one.name == "c" else {"gbit_per_s": 1.0})

        said: list[str] = []
        named = [measurement(name) for name in "abc"]
        found = rounds.interleaved(named, SETTING, 3, 0, said.append, take)
        self.assertEqual(order[:4], [("a", 1), ("b", 1), ("c", 1), ("a", 2)])
        self.assertEqual([len(one.runs) for one in found], [3, 3, 2], "what failed twice is given up")
        self.assertIn("failed: no device", said[2])

    def test_what_takes_long_is_in_fewer_rounds(self) -> None:
        once = dataclasses.replace(measurement("once"), rounds=1)
        found = rounds.interleaved(
            [once, measurement("all")],
            SETTING,
            3,
            0,
            lambda _: None,
            lambda _, __, n, ___: taken(n, {"x": 1.0}),
        )
        self.assertEqual([len(one.runs) for one in found], [1, 3])


class StrangeReportsTest(unittest.TestCase):
    """A report in another form is a failure of its run, and not the end of all."""

    def failure(self, result: Callable[[Setting], Result]) -> str | None:
        measurement = Measurement("strange", "", lambda _: "", result)
        return rounds.measure(measurement, SETTING, 1, 0).failure

    def test_a_report_that_cannot_be_read(self) -> None:
        def result(_: Setting) -> Result:
            return Result({"gbit_per_s": json.loads('{"end": null}')["end"]["bits"]})

        self.assertIn("cannot be read", self.failure(result) or "")

    def test_a_report_of_nothing(self) -> None:
        self.assertEqual(self.failure(lambda _: Result({})), "it reported nothing")


class LineRateTest(unittest.TestCase):
    def test_rows_are_named_by_direction_mtu_and_size(self) -> None:
        row = {
            "direction": "receive",
            "mtu": 1500,
            "size": 64,
            "mpps": 0.5,
            "gbit_per_s": 4,
            "cycles_per_packet": 900,
        }
        found = measurements.figures_of_line_rate([row, {**row, "direction": "transmit", "mpps": 1}])
        self.assertEqual(found.values["cycles_per_packet/receive 1500 64"], 900)
        self.assertEqual(found.values["mpps/transmit 1500 64"], 1)
        self.assertEqual(len(found.values), 6)
        self.assertEqual(measurements.unit_of("cycles_per_packet/receive 1500 64"), "cycles")


class ManyTest(unittest.TestCase):
    """Measurements over numbers of queue pairs and connections."""

    def test_costs_follow_from_rates(self) -> None:
        report = {"gbit_per_s": 1.024, "mmsg_per_s": 2.0}
        self.assertEqual(measurements.figures_of_pairs([report]).values["message_ns"], 500)
        opened = {"per_s": 50_000.0, "resident_bytes_per_connection": 13_000}
        found = measurements.figures_of_connects([opened]).values
        self.assertEqual(found, {"connect_us": 20, "connection_bytes": 13_000})
        unknown = {**opened, "resident_bytes_per_connection": None}
        self.assertEqual(measurements.figures_of_connects([unknown]).values, {"connect_us": 20})
        self.assertEqual(measurements.unit_of("message_ns"), "ns")
        self.assertEqual(measurements.unit_of("connection_bytes"), "bytes")

    def test_the_device_has_room_where_it_usually_has_none(self) -> None:
        self.assertEqual(measurements.room(1 << 15), [])
        self.assertEqual(measurements.room(100_000), ["--device", "ring,connections=200000"])

    def test_large_numbers_are_measured_once_and_want_memory(self) -> None:
        found = {one.name: one for one in measurements.own_measurements()}
        few, many = found["pairs-64k-1500-1000"], found["pairs-64k-1500-100000"]
        self.assertEqual((few.rounds, few.memory), (0, 0))
        self.assertEqual(many.rounds, 1)
        self.assertGreater(many.memory, 100_000 * 8192)
        self.assertIn("--qps 100000 --depth 4", many.shown(SETTING))
        self.assertIn("--open 100000", found["connects-100000"].shown(SETTING))


class RatioTest(unittest.TestCase):
    def test_ratios_are_of_medians(self) -> None:
        found = ratios.ratios(
            [
                series("write-bw-64k-9000", taken(1, {"gbit_per_s": 30.0})),
                series("iperf3-veth-9000", taken(1, {"gbit_per_s": 10.0}, ["busy"])),
                series("write-lat-64", taken(1, {"p50_us": 1.0, "mean_us": 1.5})),
                series("libfabric-tcp-lat-64", taken(1, {"mean_us": 6.0})),
            ]
        )
        said = {one.comparison.about: (one.ratio, one.is_quiet) for one in found}
        self.assertEqual(
            said,
            {
                "MTU 9000: RDMA Write / iperf3 over veth, offloads on": (3.0, False),
                "latency, 64 bytes: RDMA Write / libfabric over tcp, mean": (0.25, True),
            },
        )

    def test_nothing_is_compared_with_zero(self) -> None:
        found = ratios.ratios(
            [
                series("write-bw-64k-9000", taken(1, {"gbit_per_s": 30.0})),
                series("iperf3-lo", taken(1, {"gbit_per_s": 0.0})),
            ]
        )
        self.assertEqual(found, [])

    def test_units_are_converted(self) -> None:
        """A bare ring takes nanoseconds, an RDMA Write microseconds."""
        found = ratios.ratios(
            [
                series("floor", taken(1, {"half_round_trip_ns": 300.0})),
                series("write-lat-64", taken(1, {"p50_us": 0.75, "p99_us": 1.5})),
            ]
        )
        said = {one.comparison.about: round(one.ratio, 6) for one in found}
        self.assertEqual(
            said,
            {
                "latency, 64 bytes: RDMA Write / bare ring, median": 2.5,
                "latency, 64 bytes: RDMA Write, 99 % / median": 2.0,
            },
        )

    def test_what_is_compared_exists(self) -> None:
        """A name that no measurement has would be left out without a word."""
        from benchmarks.measurements import own_measurements
        from benchmarks.over_veth import veth_measurements
        from benchmarks.references import reference_measurements

        every = own_measurements() + veth_measurements() + reference_measurements()
        names = [one.name for one in every]
        self.assertEqual(len(names), len(set(names)))
        compared = {side[0] for one in ratios.comparisons() for side in (one.value, one.reference)}
        self.assertEqual(compared - set(names), set())
        drawn = {name for name, _ in page.TIMED}
        self.assertEqual(drawn - set(names), set())


class LayersTest(unittest.TestCase):
    def test_instructions_are_sorted_by_module_and_none_is_lost(self) -> None:
        profile = Profile()
        places = {
            Place("warpline_dataplane::tcp::send", "/x/dataplane/src/tcp/send.rs"): 10,
            Place("warpline_dataplane::core::poll", "/x/dataplane/src/tcp/send.rs"): 20,
            Place("warpline_dataplane::qp::post", "/rustc/1/library/core/src/slice.rs"): 40,
            Place("warpline_dataplane::core::poll", "/x/dataplane/src/core/mod.rs"): 80,
            Place("warpline_dataplane::crc32c::update", "/x/dataplane/src/crc32c/mod.rs"): 160,
            Place("malloc", "./malloc/malloc.c"): 320,
            Place("rte_ring_enqueue", "/usr/include/rte_ring.h"): 640,
            Place("__memcpy_avx", "./string/memmove.S"): 1280,
        }
        profile.own.update(places)
        caller = Place("warpline_dataplane::memory::copy", "/x/dataplane/src/memory/copy.rs")
        profile.called[caller, "__memcpy_avx"] = 1000
        found = layers.by_layer(profile)
        self.assertEqual(
            found,
            {
                "TCP and IP": 30,
                "MPA, DDP and RDMAP": 0,
                "queue pairs": 40,
                "core": 80,
                "device and application": 640,
                "Rust's and C's libraries": 600,
                "copies": 1000,
                "CRC": 160,
            },
        )
        self.assertEqual(sum(found.values()), profile.total())


class AxisTest(unittest.TestCase):
    def test_powers(self) -> None:
        axis = plots.logarithmic("bytes", 2, 8 << 20, 2, plots.bytes_text)
        self.assertEqual((axis.place(2), axis.place(8 << 20)), (0.0, 1.0))
        self.assertEqual([plots.bytes_text(value) for value in (64, 2048, 8 << 20)], ["64", "2k", "8M"])

    def test_each_nine_has_the_same_room(self) -> None:
        axis = plots.nines("share", 99.99)
        for number, percent in enumerate((0.0, 90.0, 99.0, 99.9, 99.99)):
            self.assertAlmostEqual(axis.place(percent), number / 4)

    def test_round_numbers(self) -> None:
        axis = plots.linear("Gb/s", 47.0)
        self.assertEqual([value for value, _ in axis.ticks], [0, 10, 20, 30, 40, 50])


class Collector(html.parser.HTMLParser):
    """What a page refers to, and whether every element ends."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: set[str] = set()
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.outside += [name for name, _ in attributes if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


class PageTest(unittest.TestCase):
    @staticmethod
    def report(change: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
        sweep = {f"gbit_per_s/{2**power}": 0.01 * 2**power for power in range(1, 12)}
        measured = [
            series("cache-line", taken(1, {"min_ns": 60.0, "p50_ns": 72.0})),
            series("floor", taken(1, {"gbit_per_s/hand-off 9000 1M crc-on": 60.0})),
            series("write-bw-64k-9000", taken(1, {"gbit_per_s": 40.0}), taken(2, {"gbit_per_s": 44.0})),
            series("iperf3-veth-9000", taken(1, {"gbit_per_s": 20.0}, ["CPU 0 was 3 % idle"])),
            series("sweep-write-9000", taken(1, sweep), taken(2, sweep)),
            series("write-lat-64", taken(1, {"p50_us": 2.0, "mean_us": 2.5})),
            series("sockperf-tcp-64", taken(1, {})),
        ]
        cache = {"level": "2", "type": "Unified", "size": "2048K", "cpus": "0"}
        report = {
            "started": "2026-01-01T00:00:00+00:00",
            "revision": "abc<def",
            "machine": {
                "model": "A & B",
                "cpus": [0, 1],
                "share_a_core": ["0", "1"],
                "caches": [cache],
                "governor": None,
                "virtual_machine": True,
                "kernel": "6.1",
                "hugepages": 512,
                "tools": {"rustc": "1.95.0"},
            },
            "polling_cpus": [0, 1],
            "busy_loop_cpu": None,
            "repeats": 2,
            "duration_s": 1,
            "left_out": {"ucx-tcp-lat-64": "ucx_perftest is not installed"},
            "measurements": rounds.as_json(measured),
            "ratios": ratios.as_json(ratios.ratios(measured)),
            "instructions": [
                dataclasses.asdict(
                    layers.Cost("segment-1500", "writer", "segment", {"core": 100.0, "CRC": 50.0})
                )
            ],
        }
        change(report)
        # As it is in results.json.
        return dict(json.loads(json.dumps(report)))

    def test_stands_alone(self) -> None:
        made = page.page(self.report())
        collector = Collector()
        collector.feed(made)
        self.assertEqual(collector.open, [])
        self.assertEqual(collector.outside, [])
        self.assertNotIn("script", collector.found)
        self.assertNotIn("url(", made)

    def test_costs_are_drawn_over_numbers_of_connections(self) -> None:
        def change(report: dict[str, Any]) -> None:
            report["measurements"] += rounds.as_json(
                [
                    series("pairs-64-1500-1", taken(1, {"message_ns": 300.0})),
                    series("pairs-64-1500-100000", taken(1, {"message_ns": 900.0})),
                    series("pairs-64k-9000-10", taken(1, {"message_ns": 7000.0})),
                    series("connects-10", taken(1, {"connect_us": 15.0})),
                    series("connects-100", taken(1, {})),
                ]
            )

        made = page.page(self.report(change))
        self.assertIn("64 bytes, a frame each: 900 at 100,000", made)
        # A number that one line has and the other has not.
        self.assertIn("<tr><td class=n>10</td><td class=n>7,000.0</td><td class=n></td></tr>", made)
        self.assertIn("<tr><td class=n>10</td><td class=n>15.0</td></tr>", made)
        found = page.pictures(made)
        self.assertIn("cost-of-a-message-by-queue-pairs.svg", found)
        self.assertIn("cost-of-a-connect-by-open-connections.svg", found)
        for picture in found.values():
            xml.etree.ElementTree.fromstring(picture)

    def test_plots_are_well_formed(self) -> None:
        made = page.page(self.report())
        found = [part.split("</svg>")[0] for part in made.split("<svg ")[1:]]
        self.assertEqual(len(found), 4, "bars, throughput by size, latency, layers")
        for part in found:
            picture = xml.etree.ElementTree.fromstring(f"<svg {part}</svg>")
            for shape in picture.iter():
                for name in ("cx", "cy", "x", "y", "width"):
                    value = float(shape.get(name, "0"))
                    self.assertTrue(0 <= value <= 1000, (shape.tag, name, value))

    def test_plots_are_files_too(self) -> None:
        made = page.page(self.report())
        pictures = page.pictures(made)
        self.assertEqual(len(pictures), made.count("<svg"))
        for name, picture in pictures.items():
            self.assertRegex(name, r"^[a-z0-9-]+\.svg$")
            root = xml.etree.ElementTree.fromstring(picture)
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            self.assertGreater(len(root), 2)

    def test_says_what_was_measured(self) -> None:
        made = page.page(self.report())
        for words in (
            "A &amp; B",
            "abc&lt;def",
            "L2 Unified 2048K of CPU 0",
            "72 ns",
            "run write-bw-64k-9000",
            "CPU 0 was 3 % idle",
            "ucx_perftest is not installed",
            "failed: no device",
            '<span class="busy">(20.00)</span>',
            '<rect class="bar busy"',
        ):
            self.assertIn(words, made)

    def test_without_measurements(self) -> None:
        def nothing(report: dict[str, Any]) -> None:
            report.update(measurements=[], ratios=[], instructions=[], left_out={})

        self.assertNotIn("<svg", page.page(self.report(nothing)))


class TablesTest(unittest.TestCase):
    MEASURED = (
        series("write-bw-64k-9000", taken(1, {"gbit_per_s": 40.0}), taken(2, {"gbit_per_s": 9.0}, ["a, b"])),
        series("sockperf-tcp-64", taken(1, {})),
    )

    def test_csv_has_every_run(self) -> None:
        self.assertEqual(
            tables.as_csv(list(self.MEASURED)).splitlines()[1:],
            [
                "write-bw-64k-9000,gbit_per_s,Gb/s,1,40,yes,,98.0,98.0,0.5",
                'write-bw-64k-9000,gbit_per_s,Gb/s,2,9,no,"a, b",98.0,98.0,0.5',
                "sockperf-tcp-64,,,1,,no,failed: no device,98.0,98.0,0.5",
            ],
        )

    def test_the_table_counts_runs(self) -> None:
        lines = tables.figures_table(list(self.MEASURED))
        self.assertEqual(
            lines[1].split(),
            ["write-bw-64k-9000", "gbit_per_s", "40.00", *["Gb/s", "40.00", "40.00", "1", "of", "2"]],
        )
        self.assertIn("failed: no device", lines[2])


if __name__ == "__main__":
    unittest.main()
