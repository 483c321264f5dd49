"""Reads which tests ran and passed from what their runners printed."""

import json
import pathlib
import re
import subprocess
import sys

from .rust import Target

# "Running unittests src/lib.rs (TARGET/debug/deps/warpline-0123456789abcdef)"
BINARY = re.compile(r"\s*Running (?:unittests )?(\S+) \((?:.*/)?([^/()]+)-[0-9a-f]{16}(?:\.exe)?\)")
OUTCOME = re.compile(r"test (\S+)(?: - should panic\S*(?: \S+)*?)? \.\.\. (ok|FAILED)\b")
# "ok    operations: a-write-that-wraps: 0.1 s", "FAIL  tap 1500: hostile crc: ..."
INTEROP = re.compile(r"(ok  |FAIL)  (?:operations|[^:]+): (?:hostile )?([a-z0-9-]+): ")

# Prints the cases of the interoperation rig as JSON: the name of each and the requirements that it proves.
INTEROP_CASES = """
import json
from iwarp import hostile, operation_attacks, operation_cases
cases = [*operation_cases.CASES.values(), *hostile.SCENARIOS.values()]
print(json.dumps({case.name: list(case.requirements) for case in cases}))
"""


class Results:
    """The named tests that ran, and whether each passed. A test that failed in one run has not passed."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[Target | str, str], bool] = {}

    def read(self, text: str) -> None:
        """Takes in the output of `cargo test`, of scripts/interop/run, or of several runs of these."""
        target = None
        for line in text.splitlines():
            if match := BINARY.match(line):
                target = Target(match[1], match[2])
            elif line.lstrip().startswith("Doc-tests "):
                target = None
            elif target and (match := OUTCOME.match(line)):
                self.note((target, match.group(1)), match.group(2) == "ok")
            elif match := INTEROP.match(line):
                self.note(("interop", match.group(2)), match.group(1) == "ok  ")

    def note(self, test: tuple[Target | str, str], passed: bool) -> None:
        """Takes in one outcome of one test."""
        self.outcomes[test] = self.outcomes.get(test, True) and passed

    def passed(self, target: Target | str, name: str) -> bool:
        """Returns whether a test of a target ran and passed."""
        return self.outcomes.get((target, name), False)


def interop_cases(root: pathlib.Path) -> dict[str, list[str]]:
    """Returns the requirements that each case of the interoperation rig names, by the name of the case."""
    folder = root / "scripts/interop"
    if not (folder / "iwarp").is_dir():
        return {}
    done = subprocess.run(
        [sys.executable, "-B", "-c", INTEROP_CASES], cwd=folder, capture_output=True, text=True, check=True
    )
    cases: dict[str, list[str]] = json.loads(done.stdout)
    return cases
