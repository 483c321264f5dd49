"""Reads the output of callgrind, whose format is specified in valgrind's manual."""

import collections
import dataclasses
import re
from collections.abc import Collection, Iterable

# A function, a source file or an object, by a number that stands for its name from its first use on.
NAMED = re.compile(r"(fn|fl|fi|fe|ob|cfn|cfi|cfl|cob|calls)=(.*)")
REFERENCE = re.compile(r"\((\d+)\)(?: (.*))?")
# The position of a line, relative to the one before or not, and how often each event happened there, but for
# those that did not at the end of the list.
COST = re.compile(r"[-+*\d]\S* (\d[\d ]*)")
# Kinds of names that share one numbering.
NUMBERING = {"fn": "fn", "cfn": "fn", "ob": "ob", "cob": "ob"}


@dataclasses.dataclass(frozen=True)
class Place:
    """Code of a source file, in the function that it was compiled into."""

    function: str
    file: str


@dataclasses.dataclass
class Profile:
    """Instructions, or other events, by place, and those of calls by the place of the caller and the function
    called."""

    own: collections.Counter[Place] = dataclasses.field(default_factory=collections.Counter)
    called: collections.Counter[tuple[Place, str]] = dataclasses.field(default_factory=collections.Counter)

    def total(self) -> int:
        """All instructions that were counted."""
        return self.own.total()

    def by_function(self) -> dict[str, tuple[int, int]]:
        """For each function, its instructions with those of what it calls, and without."""
        own: collections.Counter[str] = collections.Counter()
        inclusive: collections.Counter[str] = collections.Counter()
        for place, instructions in self.own.items():
            own[place.function] += instructions
        inclusive.update(own)
        for (place, _), instructions in self.called.items():
            inclusive[place.function] += instructions
        return {function: (inclusive[function], own[function]) for function in inclusive}


def read_profile(lines: Iterable[str], events: Collection[str] = ("Ir",)) -> Profile:
    """The profile of these events together in the lines of one file of callgrind's."""
    profile = Profile()
    columns: list[int] = []
    names: dict[tuple[str, str], str] = {}

    def resolved(kind: str, text: str) -> str:
        reference = REFERENCE.fullmatch(text)
        if reference is None:
            return text
        number, name = reference.groups()
        key = (NUMBERING.get(kind, "file"), number)
        if name is not None:
            names[key] = name
        return names[key]

    function = file = called = ""
    calling = False
    for line in lines:
        if named := NAMED.fullmatch(line.rstrip("\n")):
            kind, text = named.groups()
            match kind:
                case "fn":
                    function = resolved(kind, text)
                case "fl" | "fi" | "fe":
                    file = resolved(kind, text)
                case "cfn":
                    called = resolved(kind, text)
                case "calls":
                    calling = True
                case _:
                    resolved(kind, text)
        elif line.startswith("events:"):
            columns = [column for column, event in enumerate(line.split()[1:]) if event in events]
        elif cost := COST.fullmatch(line.rstrip("\n")):
            counts = cost[1].split()
            happened = sum(int(counts[column]) for column in columns if column < len(counts))
            place = Place(function, file)
            if calling:
                profile.called[place, called] += happened
            else:
                profile.own[place] += happened
            calling = False
    return profile
