"""How the program that is measured is built."""

import enum
import json
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Build(enum.StrEnum):
    """What the program is built for."""

    RELEASE = "release"
    # With assertions, and the hooks of tests.
    TEST = "test"


def cargo() -> str:
    """Cargo, where rustup puts it as well."""
    rustup = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo")) / "bin" / "cargo"
    found = shutil.which("cargo") or (str(rustup) if rustup.exists() else None)
    if found is None:
        raise SystemExit("cargo is not on PATH: install a Rust toolchain, see https://rustup.rs")
    return found


def arguments(build: Build) -> list[str]:
    """Cargo's arguments that build the program.

    That of the tests is the one that all tests together build: features of the whole workspace, those of its
    tests among them, and the profile of tests. One test that starts it suffices for that.
    """
    match build:
        case Build.RELEASE:
            return ["build", "--quiet", "--release", "--package", "warpline-bench"]
        case Build.TEST:
            return ["test", "--quiet", "--workspace", "--no-run", "--test", "instructions"]


def built_program(build: Build = Build.RELEASE) -> pathlib.Path:
    """Builds the benchmark, and returns its path."""
    subprocess.run([cargo(), *arguments(build)], cwd=ROOT, check=True)
    metadata = subprocess.run(
        [cargo(), "metadata", "--format-version", "1", "--no-deps", "--offline"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    folder = "release" if build is Build.RELEASE else "debug"
    return pathlib.Path(json.loads(metadata.stdout)["target_directory"]) / folder / "warpline-bench"
