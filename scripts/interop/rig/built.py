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
"""The program under test; its first argument says which of its commands."""
