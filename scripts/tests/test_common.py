"""Tests of what the shell scripts share, and of where they look for programs."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
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
        for path in SCRIPTS.rglob("*"):
            parts = path.relative_to(SCRIPTS).parts
            # Folders that begin with a dot are caches of linters.
            if "tests" in parts or any(part.startswith(".") for part in parts):
                continue
            if path.is_file() and path.suffix in ("", ".sh", ".py"):
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


class HelpTest(unittest.TestCase):
    def test_every_script_explains_itself(self) -> None:
        """Every program under scripts/, in Python or for the shell, and none does anything else then."""
        programs = [
            path
            for folder in (SCRIPTS, SCRIPTS / "interop")
            for path in sorted(folder.iterdir())
            if path.is_file() and os.access(path, os.X_OK)
        ]
        self.assertGreater(len(programs), 18)
        for path in programs:
            for option in ("--help", "-h"):
                run = subprocess.run([path, option], capture_output=True, text=True, check=False, timeout=60)
                self.assertEqual((run.returncode, run.stderr), (0, ""), f"{path.name} {option}")
                self.assertGreater(len(run.stdout), 40, f"{path.name} {option}")


class NeedCargoTest(unittest.TestCase):
    def need_cargo(self, version: str | None, rustup: str | None = None) -> tuple[int, str]:
        """The exit status and the last line of need_cargo, with a cargo of this version on PATH."""
        with tempfile.TemporaryDirectory() as folder:
            for name, said in [("path", version), ("rustup/bin", rustup)]:
                programs = pathlib.Path(folder, name)
                programs.mkdir(parents=True)
                if said is not None:
                    cargo = programs / "cargo"
                    cargo.write_text(f"#!/bin/sh\necho 'cargo {said} (0123456789 2026-01-01)'\n")
                    cargo.chmod(0o755)
            run = subprocess.run(
                ["bash", "-c", ". scripts/common.sh; need_cargo; cargo --version"],
                cwd=SCRIPTS.parent,
                env={"PATH": f"{folder}/path:/usr/bin:/bin", "CARGO_HOME": f"{folder}/rustup"},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        lines = (run.stdout + run.stderr).splitlines()
        return run.returncode, lines[-1]

    def test_a_cargo_that_is_old_is_named(self) -> None:
        manifest = (SCRIPTS.parent / "Cargo.toml").read_text()
        match = re.search(r'^rust-version = "(\d+)\.(\d+)"$', manifest, re.MULTILINE)
        assert match is not None
        needed, older = ".".join(match.groups()), f"{match[1]}.{int(match[2]) - 1}.9"
        for version in (f"{needed}.0", f"{match[1]}.{int(match[2]) + 10}.1-nightly", f"{needed}.0-beta.3"):
            self.assertEqual(self.need_cargo(version)[0], 0, version)
        expected = (
            f"cargo {older} (0123456789 2026-01-01) is too old: warpline needs Rust {needed} or newer "
            "(rustup update, see https://rustup.rs)"
        )
        self.assertEqual(self.need_cargo(older), (1, expected))
        self.assertEqual(self.need_cargo("1.63.0"), (1, expected.replace(older, "1.63.0")))
        self.assertEqual(self.need_cargo("1.63.0", f"{needed}.1")[0], 0, "rustup's is taken instead")

    def test_the_documents_name_the_version(self) -> None:
        manifest = (SCRIPTS.parent / "Cargo.toml").read_text()
        needed = re.search(r'^rust-version = "(.*)"$', manifest, re.MULTILINE)
        assert needed is not None
        for document in ("README.md", "CONTRIBUTING.md", "docs/tutorial.md"):
            text = (SCRIPTS.parent / document).read_text()
            self.assertIn(f"Rust {needed[1]} or newer", text, document)


class WhatFailedTest(unittest.TestCase):
    def what_failed(self, log: str) -> list[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
            file.write(log)
            file.flush()
            said = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", f". scripts/common.sh; what_failed {file.name}"],
                cwd=SCRIPTS.parent,
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
        return said.stdout.splitlines()

    def test_the_failure_is_found_in_a_long_log(self) -> None:
        """As cargo, unittest and the rigs print theirs."""
        for failure in (
            "---- cm::a_port_is_free stdout ----\nthread 'main' panicked at control/src/lib.rs:1:\nwhy",
            "error[E0308]: mismatched types\n --> control/src/lib.rs:1:1",
            "FAIL: test_a_port (test_ports.PortTest)\nTraceback",
            "FAIL  net_tap 1500: kernel connects: no answer",
        ):
            around = "test one ... ok\n" * 300
            said = self.what_failed(f"{around}{failure}\n{around}")
            self.assertEqual(said[: len(failure.splitlines())], failure.splitlines())
            self.assertLess(len(said), 20)

    def test_a_log_without_any_shows_its_end(self) -> None:
        self.assertEqual(self.what_failed("one\ntwo\n"), ["one", "two"])
        self.assertEqual(self.what_failed("line\n" * 100 + "last\n")[-2:], ["line", "last"])
        self.assertEqual(self.what_failed(""), [""])


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
