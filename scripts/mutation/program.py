"""The program with mutants in it: a copy of the source, without those that do not compile."""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from mutation.embedding import Embedded, Mutant, embed

MUTATED = "dataplane"
CHOICE = pathlib.Path(__file__).with_name("choice.rs")
# The choice of a mutant is const, as it may be in a function that is.
LIB_HEAD = "#![feature(core_intrinsics, const_eval_select)]\n#![allow(internal_features)]\n"
LIB_FOOT = "\nmod mutation;\n"
CHECK = (
    "check",
    "--package",
    "warpline-dataplane",
    "--no-default-features",
    "--features",
    "testing",
    "--lib",
)
BUILD_SECONDS = 1800
# Borrows are checked when types are right: errors come in a few rounds.
MOST_ROUNDS = 20


class Unusable(Exception):
    """The mutants cannot be had, or mean nothing."""


def run_cargo(words: Sequence[str], folder: pathlib.Path) -> list[dict[str, Any]]:
    """Runs cargo in a folder, and returns its messages. The lints of the project are not asked: most mutants
    are bad style."""
    environment = {**os.environ, "RUSTFLAGS": "--cap-lints=allow"}
    try:
        run = subprocess.run(
            ["cargo", "+nightly", *words, "--message-format=json"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unusable(f"cargo {' '.join(words)} was not done in {BUILD_SECONDS} s") from None
    if not run.stdout:
        raise Unusable(f"cargo {' '.join(words)} failed:\n{run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def errors_of(messages: Iterable[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """The file and the line of each place that errors name, and what the error is."""
    found = []
    for message in messages:
        if message["reason"] != "compiler-message":
            continue
        diagnostic = message["message"]
        if diagnostic["level"] != "error":
            continue
        spans = [span for span in diagnostic["spans"] if span["is_primary"]]
        found += [(span["file_name"], span["line_start"], diagnostic["rendered"]) for span in spans]
    return found


class Program:
    """A copy of the source with mutants in it."""

    def __init__(self, source: pathlib.Path, copy: pathlib.Path, mutants: Iterable[Mutant]) -> None:
        self.source, self.copy = source, copy
        self.mutants = {mutant.number: mutant for mutant in mutants}
        self.embedded: dict[str, Embedded] = {}

    def write_copy(self) -> None:
        """Copies the files that git knows, and none that is the same there already."""
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=self.source, capture_output=True, text=True, check=True
        )
        # Of these some may be deleted, and not yet for git.
        for name in filter(lambda name: (self.source / name).is_file(), listed.stdout.split("\0")):
            self.write(name, (self.source / name).read_bytes())
        self.write(f"{MUTATED}/src/mutation.rs", CHOICE.read_bytes())
        lib = (self.source / MUTATED / "src/lib.rs").read_text()
        # The attributes follow the comment of the crate.
        head, attribute, rest = lib.partition("\n#![")
        self.write(
            f"{MUTATED}/src/lib.rs", (head + "\n" + LIB_HEAD + attribute[1:] + rest + LIB_FOOT).encode()
        )

    def write(self, name: str, octets: bytes) -> None:
        """Writes a file of the copy, unless that is what it holds."""
        path = self.copy / name
        if path.exists() and path.read_bytes() == octets:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(octets)
        path.chmod((self.source / name).stat().st_mode if (self.source / name).exists() else 0o644)

    def write_mutants(self) -> None:
        """Writes the files that mutants change, each with those that are left."""
        by_file: dict[str, list[Mutant]] = {name: [] for name in self.embedded}
        for mutant in self.mutants.values():
            by_file.setdefault(mutant.file, []).append(mutant)
        for name, mutants in by_file.items():
            self.embedded[name] = embed((self.source / name).read_text(), mutants)
            self.write(name, self.embedded[name].text.encode())

    def leave_out_what_does_not_compile(self) -> int:
        """Takes out the mutants that the compiler refuses, and returns how many these were."""
        before = len(self.mutants)
        for _ in range(MOST_ROUNDS):
            self.write_mutants()
            errors = errors_of(run_cargo(CHECK, self.copy))
            if not errors:
                return before - len(self.mutants)
            blamed: set[int] = set()
            for name, line, rendered in errors:
                if name not in self.embedded or not (of_line := self.embedded[name].blamed(line)):
                    raise Unusable(f"an error that is due to no mutant:\n{rendered}")
                blamed.update(of_line)
            for number in blamed:
                del self.mutants[number]
        raise Unusable(f"after {MOST_ROUNDS} rounds there are mutants that do not compile")

    def build(self, test: Sequence[str]) -> pathlib.Path:
        """Builds a test, and returns its program."""
        messages = run_cargo(("test", "--no-run", "--no-default-features", *test), self.copy)
        programs = [
            message["executable"]
            for message in messages
            if message["reason"] == "compiler-artifact"
            and message["profile"]["test"]
            and message["executable"]
        ]
        if len(programs) != 1:
            errors = "\n".join(rendered for _, _, rendered in errors_of(messages))
            raise Unusable(f"cargo test {' '.join(test)} made {len(programs)} programs:\n{errors}")
        return pathlib.Path(programs[0])
