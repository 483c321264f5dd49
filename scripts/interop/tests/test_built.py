"""Where the rig looks for programs, and where their logs go."""

from __future__ import annotations

import os
import shlex
import subprocess
import unittest
from pathlib import Path
from unittest import mock

from guest_rig.machine import Outcome
from guest_rig.remote import Shell
from rig.built import ROOT, built_directory


class Built(unittest.TestCase):
    def directory(self, **variables: str) -> Path:
        with mock.patch.dict(os.environ, variables):
            for name in {"CARGO_TARGET_DIR", "WARPLINE_BUILT"} - variables.keys():
                os.environ.pop(name, None)
            return built_directory()

    def test_release_build_in_cargos_target_directory(self) -> None:
        self.assertEqual(self.directory(), ROOT / "target/release")
        self.assertEqual(self.directory(CARGO_TARGET_DIR="/elsewhere"), Path("/elsewhere/release"))
        self.assertEqual(self.directory(CARGO_TARGET_DIR="near"), Path.cwd() / "near/release")
        self.assertEqual(
            self.directory(CARGO_TARGET_DIR=""), ROOT / "target/release", "cargo ignores an empty one too"
        )

    def test_another_build(self) -> None:
        self.assertEqual(
            self.directory(CARGO_TARGET_DIR="/elsewhere", WARPLINE_BUILT="/t/debug"), Path("/t/debug")
        )

    def test_every_program_is_there(self) -> None:
        """No module names a directory of its own."""
        listing = (
            "import rig.built, rig.injector, rig.networks, rig.pings; "
            "print(rig.built.BENCHMARK, rig.injector.RIGS, rig.networks.RIGS, "
            "rig.pings.BENCHMARK, sep='\\n')"
        )
        environment = {**os.environ, "CARGO_TARGET_DIR": "/elsewhere"}
        environment.pop("WARPLINE_BUILT", None)
        folder = ROOT / "scripts/interop"
        said = subprocess.run(
            ["python3", "-c", listing],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        self.assertEqual(len(said.stdout.split()), 4)
        for program in said.stdout.split():
            self.assertTrue(program.startswith("/elsewhere/release/"), program)


class Here(Shell):
    """A shell of this machine."""

    def run(self, shell: str, seconds: float) -> Outcome:
        done = subprocess.run(
            ["sh", "-c", shell], capture_output=True, text=True, timeout=seconds, check=False
        )
        return Outcome(done.returncode, done.stdout + done.stderr)


class Logs(unittest.TestCase):
    def test_each_server_has_a_log_that_only_its_user_reads(self) -> None:
        servers = [Here("198.18.0.1"), Here("198.18.0.1")]
        logs = []
        for server in servers:
            server.start(f"sh -c {shlex.quote('echo said; exec sleep 20')}")
            self.addCleanup(server.stop)
            logs.append(Path(server.log))
        self.assertNotEqual(*logs)
        for server, log in zip(servers, logs, strict=True):
            self.assertEqual(log.stat().st_mode & 0o777, 0o600)
            self.assertEqual(log.read_text(), "said\n")
            server.stop()
            self.assertFalse(log.exists())


if __name__ == "__main__":
    unittest.main()
