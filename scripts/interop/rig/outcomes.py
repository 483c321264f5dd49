"""What the tables of the rigs have in common: their columns, and what is kept of a case that failed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Rows of a table, all cells but the last as wide as the longest of their column."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    print()
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]).rstrip())


def keep(directory: Path, rig: str) -> Path:
    """Put everything by that was written, so that who looks for the cause finds it; where."""
    kept = Path(tempfile.mkdtemp(prefix=f"warpline-{rig}-failed-"))
    for file in filter(Path.is_file, directory.iterdir()):
        shutil.copy(file, kept)
    return kept
