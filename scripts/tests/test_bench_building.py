"""Tests of how scripts/bench builds the program that it measures."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
from typing import Any
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from benchmarks import building
from benchmarks.building import Build


def units(arguments: list[str]) -> list[Any]:
    """What cargo would compile."""
    planned = subprocess.run(
        [building.cargo(), *arguments, "--offline", "--unit-graph", "-Zunstable-options"],
        cwd=building.ROOT,
        # The graph is for nightly toolchains alone, but the same on others.
        env={**os.environ, "RUSTC_BOOTSTRAP": "1"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    found: list[Any] = json.loads(planned.stdout)["units"]
    return found


def programs(arguments: list[str]) -> list[Any]:
    """What cargo would compile the program from: its profile, and the features of every crate in it."""
    every = units(arguments)

    def plan(index: int) -> list[Any]:
        unit = every[index]
        needed = sorted(plan(dependency["index"]) for dependency in unit["dependencies"])
        profile = {key: value for key, value in unit["profile"].items() if key != "name"}
        return [unit["pkg_id"], unit["target"]["name"], unit["features"], json.dumps(profile), needed]

    return [
        plan(index)
        for index, unit in enumerate(every)
        if unit["target"]["name"] == "warpline-bench" and unit["mode"] == "build"
    ]


class BuildingTest(unittest.TestCase):
    def test_each_build_has_its_program(self) -> None:
        """The counts of one build are compared with the baseline of the same."""
        metadata = mock.Mock(stdout=json.dumps({"target_directory": "/target"}))
        for build, verb, path in [
            (Build.RELEASE, "build", "/target/release/warpline-bench"),
            (Build.TEST, "test", "/target/debug/warpline-bench"),
        ]:
            with (
                mock.patch.object(building, "cargo", return_value="cargo"),
                mock.patch("subprocess.run", return_value=metadata) as run,
            ):
                self.assertEqual(building.built_program(build), pathlib.Path(path))
            self.assertEqual(run.call_args_list[0].args[0][:2], ["cargo", verb])

    @unittest.skipIf(
        shutil.which("cargo") is None or bool(os.environ.get("WARPLINE_QUICK")),
        "needs cargo and every dependency: the whole of scripts/test",
    )
    def test_the_program_of_tests_is_the_one_that_all_tests_build(self) -> None:
        """scripts/test counts the instructions of that, and its counts are the baseline."""
        of_all = programs(["test", "--workspace", "--no-run"])
        self.assertEqual(len(of_all), 1)
        self.assertEqual(programs(building.arguments(Build.TEST)), of_all)
        self.assertNotEqual(programs(building.arguments(Build.RELEASE)), of_all)

    @unittest.skipIf(
        shutil.which("cargo") is None or bool(os.environ.get("WARPLINE_QUICK")),
        "needs cargo and every dependency: the whole of scripts/test",
    )
    def test_the_rigs_are_of_what_the_benchmark_is_of(self) -> None:
        """Whoever builds both programs compiles no crate of ours twice."""

        def libraries(package: str) -> set[str]:
            build = ["build", "--release", "--package", package]
            return {
                json.dumps([unit["pkg_id"], unit["features"], unit["profile"]])
                for unit in units(build)
                if unit["mode"] == "build"
                and unit["target"]["kind"] == ["lib"]
                and unit["target"]["name"].startswith(("warpline", "dpdk"))
            }

        of_rigs = libraries("warpline-tools")
        self.assertGreaterEqual(len(of_rigs), 4)
        self.assertEqual(of_rigs, libraries("warpline-bench"))


if __name__ == "__main__":
    unittest.main()
