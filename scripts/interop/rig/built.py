"""Where cargo leaves the programs that the rig runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent.parent


def built_directory() -> Path:
    """Returns the directory of the programs: ``$WARPLINE_BUILT``, which names another build than the
    release build, or else ``release`` in cargo's target directory. A relative path starts at the current
    directory, as cargo's does."""
    if named := os.environ.get("WARPLINE_BUILT"):
        return Path(named).absolute()
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute() / "release"


BENCHMARK: Final = built_directory() / "warpline-bench"
RIGS: Final = built_directory() / "warpline-tools"
"""The programs under test; their first argument says which of their commands."""
LAUNCHER: Final = built_directory() / "warpline-run"
"""Starts a program for RDMA adapters on warpline, by the library beside it."""


def not_built(*programs: Path) -> str:
    """Returns what is not built yet and how to build it; nothing if all is there."""
    absent = [program for program in programs if not program.exists()]
    if not absent:
        return ""
    packages = " ".join(f"--package {program.name}" for program in programs)
    named = ", ".join(str(program) for program in absent)
    return f"{named}: not there: cargo build --release {packages}"
