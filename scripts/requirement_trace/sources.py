"""Finds what cites which requirement: production code, a named test, or neither."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

from . import rust
from .documents import RangeError, expand

MOST_IDS_IN_A_TAG = 6
SUFFIXES = {".rs", ".py", ".script", ".sh", ".c", ".h", ".toml"}
# Build products, and the tests of this program with their invented IDs.
SKIPPED_FOLDERS = {"target", ".git", "__pycache__"}
SKIPPED_PATHS = ("scripts/compliance", "scripts/requirement_trace", "scripts/tests")
# The packages whose src folders are what users get. Benchmarks, fuzz targets and examples are not.
PRODUCTION = ("dataplane", "control", "ffi/c", "ffi/dpdk", "ffi/dpdk-sys", "ffi/packet", "ffi/verbs")
# Tests of what judges the tests: an oracle or a script language that is right proves nothing about warpline.
HARNESS = (
    "dataplane/tests/reference",
    "dataplane/tests/stack/packet_scripts",
    "dataplane/tests/stack/packet_scripts.rs",
)
# The packet scripts, and the test that plays those of one folder.
SCRIPTS = re.compile(r"dataplane/tests/scripts/(\w+)/\w+\.script")
SCRIPT_TARGET = rust.Target("tests/stack/main.rs", "stack")
SCRIPT_TEST = "packet_scripts::{}"


# A test: the binary that it is in, and its name.
Proof = tuple[rust.Target, str]
# A file of a target, and the target.
Place = tuple[rust.Target, rust.Source]


@dataclasses.dataclass(frozen=True)
class Citation:
    """One ID where it is cited."""

    name: str
    path: str
    line: int
    production: bool
    # The tests that it stands at, as (target, name).
    tests: tuple[Proof, ...]


def is_under(path: str, folders: Iterable[str]) -> bool:
    """Returns whether a path is one of the folders or lies in one."""
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def source_files(root: pathlib.Path) -> Iterator[str]:
    """Yields the files that may cite requirements, as strings relative to the root."""
    folders = [root]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            relative = str(path.relative_to(root))
            if path.is_symlink() or is_under(relative, SKIPPED_PATHS):
                continue
            if path.is_dir():
                if path.name not in SKIPPED_FOLDERS:
                    folders.append(path)
            elif path.suffix in SUFFIXES or (not path.suffix and relative.startswith(("scripts/", ".ci/"))):
                yield relative


def rust_sources(root: pathlib.Path) -> dict[str, list[Place]]:
    """Returns, for every file of a package's targets, the targets it belongs to with its place in each."""
    found: dict[str, list[Place]] = {}
    base = root.resolve()
    for manifest in sorted(root.rglob("Cargo.toml")):
        if "target" in manifest.relative_to(root).parts:
            continue
        for target, root_file, test_only in rust.targets(manifest.parent):
            for source in rust.read_target(root_file, test_only):
                if source.path.is_relative_to(base):
                    found.setdefault(str(source.path.relative_to(base)), []).append((target, source))
    return found


def place(path: str, line: int, places: Sequence[Place]) -> tuple[bool, tuple[Proof, ...]]:
    """Returns whether a line is production code, and the tests that it stands at."""
    if match := SCRIPTS.fullmatch(path):
        return False, ((SCRIPT_TARGET, SCRIPT_TEST.format(match.group(1))),)
    tests: set[Proof] = set()
    if not is_under(path, HARNESS):
        tests = {(target, name) for target, source in places for name in source.tests_at(line)}
    in_package = is_under(path, [f"{package}/src" for package in PRODUCTION])
    production = in_package and any(source.is_production(line) for _, source in places)
    return production, tuple(sorted(tests, key=str))


def citations(
    path: str, text: str, pattern: re.Pattern[str], places: Sequence[Place]
) -> tuple[list[Citation], list[str]]:
    """Returns the citations of a file and the problems in them."""
    found: list[Citation] = []
    problems: list[str] = []
    for match in pattern.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        production, tests = place(path, line, places)
        try:
            found += [Citation(name, path, line, production, tests) for name in expand(match[1], match[2])]
        except RangeError as problem:
            problems.append(f"{path}:{line}: {problem}")
    return found, problems


def comment_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yields the first and last line of every run of comment lines."""
    first = None
    lines = text.splitlines()
    for number, line in enumerate([*lines, ""], 1):
        if re.match(r"\s*(//|#(?!!?\[)|--)", line):
            first = number if first is None else first
        elif first is not None:
            yield first, number - 1
            first = None


def overfull_tags(path: str, text: str, found: list[Citation]) -> list[str]:
    """Returns a problem for every comment that names more IDs than one comment can prove."""
    problems = []
    for first, last in comment_blocks(text):
        names = {citation.name for citation in found if first <= citation.line <= last}
        if len(names) > MOST_IDS_IN_A_TAG:
            problems.append(f"{path}:{first}: {len(names)} IDs in one comment, more than {MOST_IDS_IN_A_TAG}")
    return problems
