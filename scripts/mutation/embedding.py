"""Embeds mutants in the source: one build then has all of them, and a run chooses one by its number."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

# What a line comment, a block comment, a string, a raw string or a character hides from a search for braces.
HIDDEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|r(?P<hashes>#*)\".*?\"(?P=hashes)|\"(?:\\.|[^\"\\])*\"|'(?:\\[^']+|[^'\\])'",
    re.DOTALL,
)
OPENING, CLOSING = "([{<", ")]}>"


class NoBody(Exception):
    """A function whose body is not found."""


@dataclasses.dataclass(frozen=True)
class Span:
    """Characters of a source file, as offsets."""

    begin: int
    end: int

    def of(self, text: str) -> str:
        """The characters."""
        return text[self.begin : self.end]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change to a function."""

    # From one on, in the order in which they were drawn.
    number: int
    name: str
    file: str
    # What it replaces, and the whole function with its signature.
    change: Span
    function: Span
    replacement: str


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of the embedded source, from the first on, that belong to mutants."""

    first: int
    last: int
    mutants: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Embedded:
    """The source of a file with its mutants, and whose lines are whose: an error in one of them is theirs."""

    text: str
    lines: list[Lines]

    def blamed(self, line: int) -> tuple[int, ...]:
        """The mutants that an error in a line of this source is due to: of nested lines, those of the
        fewest."""
        around = [lines for lines in self.lines if lines.first <= line <= lines.last]
        return min(around, key=lambda lines: lines.last - lines.first).mutants if around else ()


def offset_of(text: str, position: dict[str, int]) -> int:
    """The offset of a position, whose line and column are counted from one, the column in characters."""
    begin = 0
    for _ in range(position["line"] - 1):
        begin = text.index("\n", begin) + 1
    return begin + position["column"] - 1


def read_mutant(number: int, listed: dict[str, Any], text: str) -> Mutant:
    """A mutant as cargo-mutants lists it, of a file that has this text."""

    def span(of: dict[str, Any]) -> Span:
        return Span(offset_of(text, of["start"]), offset_of(text, of["end"]))

    return Mutant(
        number,
        listed["name"],
        listed["file"],
        span(listed["span"]),
        span(listed["function"]["span"]),
        listed["replacement"],
    )


def body_of(text: str, function: Span) -> Span:
    """What stands between the braces of a function's body."""
    visible = HIDDEN.sub(lambda hidden: " " * len(hidden.group()), function.of(text))
    nesting = 0
    for offset, character in enumerate(visible):
        if character == "{" and nesting == 0:
            return Span(function.begin + offset + 1, function.end - 1)
        # A const argument has braces too, between angle brackets; an arrow has half of these.
        is_arrow = character == ">" and visible[offset - 1] in "-="
        nesting += (character in OPENING) - (character in CLOSING and not is_arrow)
    raise NoBody(function.of(text).partition("\n")[0])


def is_conditional(text: str, function: Span) -> bool:
    """Whether a function is there in some builds only, by an attribute of its own."""
    before = text[: function.begin].rsplit("\n\n", 1)[-1].splitlines()
    own: list[str] = []
    for line in reversed([line.strip() for line in before]):
        if line and not line.startswith(("#[", "//")):
            break
        own.append(line)
    signature = function.of(text).partition("fn ")[0]
    return any("#[cfg(" in line for line in [*own, signature])


def is_nested(function: Span, others: Iterable[Span]) -> bool:
    """Whether a function lies in one of others, or one of them in it."""
    return any(
        function != other and function.begin < other.end and other.begin < function.end for other in others
    )


def embed(text: str, mutants: Iterable[Mutant]) -> Embedded:
    """The source of a file in which each function asks which of its mutants it is to be, and is itself if it
    is none of them."""
    by_function: dict[Span, list[Mutant]] = {}
    for mutant in mutants:
        by_function.setdefault(mutant.function, []).append(mutant)
    parts: list[str] = []
    lines: list[Lines] = []
    line, copied = 1, 0

    def add(part: str) -> None:
        nonlocal line
        parts.append(part)
        line += part.count("\n")

    for function, of_function in sorted(by_function.items(), key=lambda item: item[0].begin):
        body = body_of(text, function)
        if body.begin < copied:
            raise NoBody(f"{of_function[0].name} is in a function that has mutants too")
        add(text[copied : body.begin])
        first = line
        for mutant in of_function:
            add(f" if crate::mutation::is_chosen({mutant.number}) {{\n")
            first_of_mutant = line
            add(text[body.begin : mutant.change.begin])
            add(mutant.replacement)
            add(text[mutant.change.end : body.end])
            lines.append(Lines(first_of_mutant, line, (mutant.number,)))
            add("\n} else")
        add(" {")
        add(body.of(text))
        add("}")
        lines.append(Lines(first, line, tuple(mutant.number for mutant in of_function)))
        copied = body.end
    add(text[copied:])
    return Embedded("".join(parts), lines)
