"""What the rig makes of the program that judges operations: of its lines and of its exit status."""

from __future__ import annotations

import json
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from rig import operations
from rig.networks import AfPacket
from rig.processes import Process, RigError

GOOD = {"case": "a Write", "fault": "", "seconds": 0.1}
BAD = {"case": "a Read", "fault": "bytes differ", "seconds": 0.2}


class StubNetwork(AfPacket):
    """Programs in this namespace: a judge that prints lines and ends in a way, and our end, which ends."""

    def __init__(self, directory: Path, lines: list[dict[str, Any]], ending: str) -> None:
        super().__init__(directory)
        printing = "".join(f"print({json.dumps(line)!r}, flush=True);" for line in lines)
        self.judge = [sys.executable, "-c", f"import os, sys; {printing} {ending}"]

    def start(self, name: str, namespace: str, words: list[str], seconds: float) -> Process:
        words = self.judge if namespace == self.kernel else ["sh", "-c", "echo ready >&2"]
        process = Process(name + namespace, None, words, seconds, self.directory)
        self._processes.append(process)
        return process


class Play(unittest.TestCase):
    def play(self, lines: list[dict[str, Any]], ending: str) -> list[dict[str, Any]]:
        with (
            tempfile.TemporaryDirectory() as directory,
            mock.patch("rig.networks.eal_memory", return_value=""),
        ):
            return operations.play(StubNetwork(Path(directory), lines, ending), captured=False, every=1)

    def test_lines_are_kept_of_a_judge_that_has_judged_all(self) -> None:
        told: dict[str, Any] = {"by_core": {"queues": "one", "cores": []}}
        for lines, status in (([GOOD], 0), ([GOOD, told], 0), ([GOOD, BAD, GOOD], 2)):
            self.assertEqual(self.play(lines, f"sys.exit({status})"), lines)

    def test_a_judge_that_dies_midway_has_not_passed(self) -> None:
        for lines, ending, status in (
            ([GOOD], "sys.exit('no route')", 1),
            ([GOOD, BAD], "sys.exit('no route')", 1),
            ([GOOD], "os.kill(os.getpid(), 9)", -9),
            ([GOOD], "sys.exit(124)", 124),
            ([GOOD], "sys.exit(2)", 2),
            ([BAD], "sys.exit(0)", 0),
        ):
            with self.assertRaisesRegex(RigError, f"the judge ended with status {status}: ", msg=ending):
                self.play(lines, ending)

    def test_a_judge_without_lines_says_why(self) -> None:
        with self.assertRaisesRegex(RigError, "no case was played: no route"):
            self.play([], "sys.exit('no route')")


if __name__ == "__main__":
    unittest.main()
