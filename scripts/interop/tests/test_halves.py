"""The two halves of the rig's cases are all of them, each once."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import io
import tempfile
import unittest
from argparse import Namespace
from pathlib import Path
from unittest import mock

from rig.built import ROOT
from rig.injector import Injected
from rig.networks import AfPacket, Tap

LOADER = importlib.machinery.SourceFileLoader("rig_run", str(ROOT / "scripts/interop/run"))
SPEC = importlib.util.spec_from_loader("rig_run", LOADER)
assert SPEC is not None
run = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(run)

CHILD = """
import sys
only = [word for option, word in zip(sys.argv, sys.argv[1:]) if option == "--only"]
print("ok  ", only[0], flush=True)
print("{line}")
sys.exit({status})
"""


class Halves(unittest.TestCase):
    def test_every_group_of_cases_is_in_one(self) -> None:
        here = Path(".")
        networks = [
            kind(here, ipv6=ipv6, vlan=vlan)
            for kind in (Tap, AfPacket)
            for ipv6 in (False, True)
            for vlan in (None, 7)
        ]
        names = [network.name for network in [*networks, Injected(here), Injected(here, True)]]
        for name in [*names, run.OPERATIONS, run.PINGS, run.CROWD, run.STARTUP, run.HTTP]:
            holding = [half for half in run.HALVES if any(only in name for only in half)]
            self.assertEqual(len(holding), 1, name)

    def play(self, line: str, status: int) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as directory:
            child = Path(directory) / "child"
            child.write_text(CHILD.format(line=line, status=status))
            arguments = Namespace(size=2, quick=True, keep=None)
            with (
                mock.patch.object(run, "__file__", str(child)),
                contextlib.redirect_stdout(io.StringIO()) as said,
            ):
                return run.play_halves(arguments), said.getvalue()

    def test_their_counts_are_added(self) -> None:
        status, said = self.play("7 passed, 1 failed, 2 not run, 5 s", 1)
        self.assertEqual(status, 1)
        self.assertEqual(sorted(said.splitlines()[:2]), ["ok   net_", "ok   operations"])
        self.assertRegex(said.splitlines()[2], r"^14 passed, 2 failed, 4 not run, \d+ s$")
        self.assertEqual(len(said.splitlines()), 3)

    def test_a_half_without_a_count_cannot_pass(self) -> None:
        self.assertEqual(self.play("interrupted", 0)[0], run.EXIT_CANNOT_RUN)


if __name__ == "__main__":
    unittest.main()
