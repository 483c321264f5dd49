"""Tests of what scripts/soak makes of the memory of a process that opens and closes connections."""

import argparse
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest
from typing import Any
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import connect_soak
from benchmarks.namespaces import Unavailable
from connect_soak import AT_AN_END, BOUND_KIB, WARM_UP_SECONDS, Growth, Sample, growth

# As warpline-bench is called: it holds memory until that has been seen, and says that it is done.
PROGRAM = """#!/usr/bin/env python3
import json, os, sys, time
if {fails}:
    sys.exit("Error: no connection was opened or closed in 10 s")
held = b"x" * (32 << 20)
while not os.path.exists(__file__ + ".seen"):
    time.sleep(0.01)
with open(sys.argv[sys.argv.index("--json") + 1], "w") as report:
    json.dump({{"connections": 5000, "per_s": 2500.0}}, report)
"""


def steady(count: int, resident_kib: int = 1000, descriptors: int = 20) -> list[Sample]:
    """Samples of each second after the warm-up."""
    return [Sample(WARM_UP_SECONDS + second, resident_kib, descriptors) for second in range(count)]


class GrowthTest(unittest.TestCase):
    def test_what_grows_while_tables_fill_is_not_counted(self) -> None:
        filling = [Sample(second, 100 * second, second) for second in range(WARM_UP_SECONDS)]
        self.assertEqual(growth(filling + steady(100, 50_000)), Growth(50_000, 0, 0))

    def test_steady_growth_is_found(self) -> None:
        rising = [Sample(WARM_UP_SECONDS + second, 1000 + 50 * second, 20) for second in range(200)]
        found = growth(rising)
        self.assertEqual(found.grown_kib, 50 * (200 - AT_AN_END))
        self.assertIn("resident memory grew by 9500 KiB", found.faults()[0])

    def test_a_single_peak_is_none(self) -> None:
        samples = steady(100)
        samples[-2] = Sample(samples[-2].seconds, 1000 + 10 * BOUND_KIB, 20)
        self.assertEqual(growth(samples).faults(), [])

    def test_growth_up_to_the_bound_passes(self) -> None:
        self.assertEqual(Growth(1, BOUND_KIB, 0).faults(), [])
        self.assertEqual(len(Growth(1, BOUND_KIB + 1, 0).faults()), 1)

    def test_a_descriptor_that_stays_open_is_found(self) -> None:
        samples = steady(60) + [Sample(WARM_UP_SECONDS + 60 + second, 1000, 21) for second in range(60)]
        self.assertIn("1 more file descriptors", growth(samples).faults()[0])

    def test_too_few_samples_are_no_result(self) -> None:
        with self.assertRaisesRegex(Unavailable, "only 19 times"):
            growth(steady(2 * AT_AN_END - 1))

    def test_status_without_memory_is_of_a_process_that_has_ended(self) -> None:
        self.assertEqual(connect_soak.resident_kib("Name:\tx\nVmRSS:\t  2048 kB\nThreads:\t1\n"), 2048)
        self.assertIsNone(connect_soak.resident_kib("Name:\tx\nState:\tZ (zombie)\n"))

    def test_a_time_without_anything_after_the_warm_up_is_refused(self) -> None:
        self.assertEqual(connect_soak.parsed_seconds("600"), 600)
        for text in ("179", "601"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "from 180"):
                connect_soak.parsed_seconds(text)


class SoakTest(unittest.TestCase):
    def soak(self, fails: bool) -> tuple[dict[str, Any], list[Sample]]:
        look = connect_soak.look
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(connect_soak, "SAMPLE_SECONDS", 0.05):
            program = pathlib.Path(folder) / "warpline-bench"
            program.write_text(PROGRAM.format(fails=fails))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

            def seen(pid: int, seconds: float) -> Sample | None:
                sample = look(pid, seconds)
                if sample is not None and sample.resident_kib > 32 << 10:
                    pathlib.Path(f"{program}.seen").touch()
                return sample

            with mock.patch("builtins.print"), mock.patch.object(connect_soak, "look", seen):
                return connect_soak.soak(program, 180)

    def test_a_process_is_looked_at_until_it_ends(self) -> None:
        report, samples = self.soak(fails=False)
        self.assertEqual(report["per_s"], 2500)
        self.assertGreater(max(sample.resident_kib for sample in samples), 32 << 10)
        self.assertGreaterEqual(max(sample.descriptors for sample in samples), 3)

    def test_an_error_of_the_bench_is_told(self) -> None:
        with self.assertRaisesRegex(Unavailable, "Error: no connection was opened"):
            self.soak(fails=True)

    def test_a_process_that_has_ended_has_no_sample(self) -> None:
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        self.assertIsNone(connect_soak.look(process.pid, 0))
        self.assertIsNotNone(connect_soak.look(os.getpid(), 0))


if __name__ == "__main__":
    unittest.main()
