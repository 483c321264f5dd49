"""Finds what the tests of a Rust package are called and where each of them stands.

The modules of a target are followed from its root file through `mod` declarations, so that a test is known by
the name that its runner prints. This is no parser of Rust: it sees comments, strings, braces, attributes,
`mod` and `fn`.
"""

import bisect
import dataclasses
import pathlib
import re
import tomllib
from collections.abc import Iterator

LEXEME = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>b?r(?P<hashes>\#*)".*?"(?P=hashes)|[bc]?"(?:\\.|[^"\\])*")
    |(?P<char>b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\\n])')""",
    re.S | re.X,
)
STEP = re.compile(r"#!?\[|\bmod\s+(?P<module>\w+)|\bfn\s+(?P<function>\w+)|[{}();\[\]]")
CFG_TEST = re.compile(r"#!?\[cfg\((?:all\()?(?:.*,\s*)?test\b")
PATH_ATTRIBUTE = re.compile(r'#\[path\s*=\s*"([^"]+)"\]')
TEST_ATTRIBUTE = re.compile(r"#\[(?:\w+::)*test\]")


@dataclasses.dataclass(frozen=True)
class Target:
    """One binary of tests, as cargo names it: the root file within its package, and the binary's name."""

    root: str
    binary: str


@dataclasses.dataclass
class Test:
    """A test function: its lines in the file, those of the comment directly above it included."""

    name: str
    first: int
    last: int


@dataclasses.dataclass
class Source:
    """One file of a target."""

    path: pathlib.Path
    module: tuple[str, ...]
    # Compiled for tests only: everything in it.
    test_only: bool
    tests: list[Test] = dataclasses.field(default_factory=list)
    # Lines that are compiled for tests only, as pairs of first and last.
    test_lines: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    # The modules in files of their own: name, path attribute, whether for tests only, inline modules around.
    children: list[tuple[str, str | None, bool, tuple[str, ...]]] = dataclasses.field(default_factory=list)

    def is_production(self, line: int) -> bool:
        """Returns whether a line is compiled into what users get."""
        return not self.test_only and not any(first <= line <= last for first, last in self.test_lines)

    def tests_at(self, line: int) -> list[str]:
        """Returns the names of the tests that a line stands at."""
        return [test.name for test in self.tests if test.first <= line <= test.last]


class Lines:
    """Which line an offset is on, and which lines hold nothing but comment."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.texts = text.split("\n")

    def of(self, offset: int) -> int:
        return bisect.bisect_right(self.starts, offset)

    def is_comment(self, line: int) -> bool:
        text = self.texts[line - 1].lstrip()
        return text.startswith("//") and not text.startswith("//!")


def without_comments_and_strings(text: str) -> str:
    """Returns the text with comments, strings and characters blanked out, offsets unchanged."""
    return LEXEME.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def closing_bracket(code: str, start: int) -> int:
    """Returns the offset behind the bracket that closes the first one after start."""
    depth = 0
    for offset in range(start, len(code)):
        depth += (code[offset] == "[") - (code[offset] == "]")
        if depth == 0 and code[offset] == "]":
            return offset + 1
    return len(code)


@dataclasses.dataclass
class Scope:
    """A pair of braces: what it belongs to, and the first line of that with its comment and attributes."""

    kind: str
    name: str
    first: int
    test_only: bool
    is_test: bool


def scan(source: Source, text: str) -> None:
    """Fills in the tests, test-only lines and child modules of a file."""
    code, lines = without_comments_and_strings(text), Lines(text)
    scopes: list[Scope] = []
    attributes: list[str] = []
    item_start: int | None = None
    pending: tuple[str, str] | None = None
    depth = 0
    offset = 0
    while match := STEP.search(code, offset):
        token, offset = match.group(), match.end()
        if token in ("#[", "#!["):
            offset = closing_bracket(code, match.end() - 1)
            attribute = text[match.start() : offset]
            if token == "#![":
                source.test_only |= not scopes and CFG_TEST.match(attribute) is not None
            else:
                attributes.append(attribute)
                item_start = match.start() if item_start is None else item_start
        elif match.group("module") or match.group("function"):
            kind = "mod" if match.group("module") else "fn"
            pending = (kind, match.group("module") or match.group("function"))
            item_start = match.start() if item_start is None else item_start
        elif token in "([":
            depth += 1
        elif token in ")]":
            depth -= 1
        elif depth:
            continue
        else:
            inline = tuple(scope.name for scope in scopes if scope.kind == "mod")
            inside_tests = any(scope.test_only for scope in scopes)
            test_only = any(CFG_TEST.match(attribute) for attribute in attributes)
            if token == "{":
                kind, name = pending or ("other", "")
                first = lines.of(match.start() if item_start is None else item_start)
                while first > 1 and lines.is_comment(first - 1):
                    first -= 1
                is_test = kind == "fn" and any(TEST_ATTRIBUTE.match(attribute) for attribute in attributes)
                scopes.append(Scope(kind, name, first, test_only or is_test, is_test))
            elif token == "}" and scopes:
                scope = scopes.pop()
                last = lines.of(match.start())
                if scope.is_test:
                    outer = tuple(scope.name for scope in scopes if scope.kind == "mod")
                    name = "::".join((*source.module, *outer, scope.name))
                    source.tests.append(Test(name, scope.first, last))
                if scope.test_only:
                    source.test_lines.append((scope.first, last))
            elif token == ";" and pending and pending[0] == "mod":
                places = [PATH_ATTRIBUTE.match(attribute) for attribute in attributes]
                place = next((place.group(1) for place in places if place), None)
                source.children.append((pending[1], place, test_only or inside_tests, inline))
            attributes, item_start, pending = [], None, None


def child_path(
    source: Source, name: str, place: str | None, inline: tuple[str, ...], is_root: bool
) -> pathlib.Path | None:
    """Returns the file of a module declared in another, or None."""
    folder = source.path.parent
    own_folder = folder if is_root or source.path.name == "mod.rs" else folder / source.path.stem
    if place is not None:
        # A path attribute counts from the folder of the file, inside inline modules from that of the modules.
        candidates = [(own_folder.joinpath(*inline) if inline else folder) / place]
    else:
        inside = own_folder.joinpath(*inline)
        candidates = [inside / f"{name}.rs", inside / name / "mod.rs"]
    return next((path.resolve() for path in candidates if path.is_file()), None)


def read_target(root_file: pathlib.Path, test_only: bool) -> Iterator[Source]:
    """Yields every file of a target as a Source."""
    waiting: list[tuple[pathlib.Path, tuple[str, ...], bool, bool]] = [
        (root_file.resolve(), (), test_only, True)
    ]
    while waiting:
        path, module, test_only, is_root = waiting.pop()
        source = Source(path, module, test_only)
        scan(source, path.read_text(errors="replace"))
        for name, place, child_test_only, inline in source.children:
            child = child_path(source, name, place, inline, is_root)
            if child is not None:
                waiting.append((child, (*module, *inline, name), source.test_only or child_test_only, False))
        yield source


def targets(package: pathlib.Path) -> Iterator[tuple[Target, pathlib.Path, bool]]:
    """Yields the targets of a package: what a runner calls each, its root file, whether it is tests only."""
    manifest = tomllib.loads((package / "Cargo.toml").read_text())
    if "package" not in manifest:
        return
    name = manifest["package"]["name"].replace("-", "_")
    library = manifest.get("lib", {})
    roots = {library.get("path", "src/lib.rs"): (library.get("name", name), False)}
    roots["src/main.rs"] = (name, False)
    for binary in manifest.get("bin", []):
        path = binary.get("path", f"src/bin/{binary['name']}.rs")
        roots[path] = (binary["name"].replace("-", "_"), False)
    for path in sorted(package.glob("tests/*.rs")) + sorted(package.glob("tests/*/main.rs")):
        binary = path.stem if path.name != "main.rs" else path.parent.name
        roots[str(path.relative_to(package))] = (binary, True)
    for test in manifest.get("test", []):
        roots[test.get("path", f"tests/{test['name']}.rs")] = (test["name"], True)
    for root, (binary, test_only) in roots.items():
        if (package / root).is_file():
            yield Target(root, binary), package / root, test_only
