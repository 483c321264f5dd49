"""The end of a program that is driven by pipes."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from iwarp.driver import Driver

# Answers a command only when nothing more can come.
PROGRAM = "import sys; lines = sys.stdin.readlines(); print('{}' * len(lines), flush=True)"


class Closing(unittest.TestCase):
    def test_a_program_that_still_answers_ends_by_itself(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            commands, answers = (Path(directory) / name for name in ("commands", "answers"))
            for pipe in (commands, answers):
                os.mkfifo(pipe)
            between = 'exec "$1" -c "$2" <"$3" >"$4"'
            words = ["sh", "-c", between, "sh", sys.executable, PROGRAM, str(commands), str(answers)]
            with subprocess.Popen(words) as program:
                driver = Driver(commands, answers)
                driver.ask("wait", 1)
                driver.close()
                self.assertEqual(program.wait(60), 0)
