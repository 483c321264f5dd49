"""What the tables of the rigs have in common."""

import contextlib
import io
import shutil
import tempfile
import unittest
from pathlib import Path

from rig.outcomes import keep, print_columns


class OutcomesTest(unittest.TestCase):
    def test_cells_but_the_last_are_as_wide_as_their_column(self) -> None:
        rows = [("driver", "case", ""), ("a", "longer than that", "failed"), ("both", "x", "")]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            print_columns(rows)
        lines = ["", "driver  case", "a       longer than that  failed", "both    x"]
        self.assertEqual(printed.getvalue().splitlines(), lines)

    def test_all_files_are_kept(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            (place / "log").write_text("said")
            (place / "folder").mkdir()
            kept = keep(place, "test")
            try:
                self.assertEqual([file.name for file in kept.iterdir()], ["log"])
                self.assertEqual((kept / "log").read_text(), "said")
                self.assertTrue((place / "log").exists())
            finally:
                shutil.rmtree(kept)
