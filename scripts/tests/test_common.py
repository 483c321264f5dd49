"""Tests of what the shell scripts share, and of where they look for programs."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent


class TargetDirectoryTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("cargo"), "cargo is not on PATH")
    def test_is_cargos(self) -> None:
        for named, expected in [("/elsewhere", "/elsewhere"), ("near", str(SCRIPTS.parent / "near"))]:
            said = subprocess.run(
                ["bash", "-c", ". scripts/common.sh; target_directory"],
                cwd=SCRIPTS.parent,
                env={**os.environ, "CARGO_TARGET_DIR": named},
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            self.assertEqual(said.stdout.strip(), expected)

    def test_no_script_looks_for_programs_elsewhere(self) -> None:
        """Cargo's target directory is named in one place for the shell and one for Python."""
        for path in SCRIPTS.rglob("[!.]*"):
            if path.is_file() and path.suffix in ("", ".sh", ".py") and "tests" not in path.parts:
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    self.assertIsNone(
                        re.search(r"(?<![\w$])target/(release|debug)\b", line), f"{path}:{number}"
                    )


class UsageTest(unittest.TestCase):
    def test_every_shell_script_refuses_unknown_options(self) -> None:
        """Whatever folder it is called from: nothing is installed, built or removed then."""
        scripts = [
            path
            for path in SCRIPTS.iterdir()
            if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env bash")
        ]
        self.assertGreater(len(scripts), 5)
        for path in scripts:
            run = subprocess.run(
                [f"./{path.name}", "--bogus"],
                cwd=SCRIPTS,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            self.assertEqual((run.returncode, run.stdout), (2, ""), path.name)
            head = path.read_text().splitlines()[1].removeprefix("# ")
            self.assertTrue(run.stderr.startswith(head), f"{path.name}: {run.stderr}")


class TestScriptTest(unittest.TestCase):
    def run_test(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPTS / "test", *arguments], capture_output=True, text=True, check=False, timeout=60
        )

    def test_help_and_wrong_arguments(self) -> None:
        told = self.run_test("--help")
        self.assertEqual(told.returncode, 0)
        self.assertIn("--quick", told.stdout)
        wrong = self.run_test("--slow")
        self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))
        self.assertIn("--quick", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
