"""Reads the output of callgrind, whose format is specified in valgrind's manual."""

import collections
import dataclasses
import re
from collections.abc import Callable, Collection, Iterable

# A function, a source file or an object, by a number that stands for its name from its first use on.
NAMED = re.compile(r"(fn|fl|fi|fe|ob|cfn|cfi|cfl|cob|calls)=(.*)")
REFERENCE = re.compile(r"\((\d+)\)(?: (.*))?")
# A line of costs: the address of the code, if addresses were asked for, and its line in the source, each
# relative to the line before or not; and how often each event happened there, but for those that did not at
# the end of the list.
COST = re.compile(r"[-+*\d]\S*( [-+*\d]\S*)*")
# The event of a conditional branch.
BRANCHES = "Bc"
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
    called; and conditional branches and locked operations by place, if they were counted."""

    own: collections.Counter[Place] = dataclasses.field(default_factory=collections.Counter)
    called: collections.Counter[tuple[Place, str]] = dataclasses.field(default_factory=collections.Counter)
    branches: collections.Counter[Place] = dataclasses.field(default_factory=collections.Counter)
    locked: collections.Counter[Place] = dataclasses.field(default_factory=collections.Counter)

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


class Names:
    """Names by number, which stand for them from their first use on."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], str] = {}

    def resolved(self, kind: str, text: str) -> str:
        """The name that a field of this kind means."""
        reference = REFERENCE.fullmatch(text)
        if reference is None:
            return text
        number, name = reference.groups()
        key = (NUMBERING.get(kind, "file"), number)
        if name is not None:
            self.names[key] = name
        return self.names[key]


class Costs:
    """The lines of costs: their columns, and the address of the last."""

    def __init__(self, events: Collection[str]) -> None:
        self.wanted = events
        self.positions = 1
        self.columns: list[int] = []
        self.branches: int | None = None
        self.address = 0

    def header(self, line: str) -> None:
        """Takes a line that says what the columns are, or another."""
        name, _, words = line.partition(": ")
        if name == "positions":
            self.positions = len(words.split())
        elif name == "events":
            names = words.split()
            self.columns = [column for column, event in enumerate(names) if event in self.wanted]
            self.branches = names.index(BRANCHES) if BRANCHES in names else None

    def read(self, line: str) -> tuple[int, int]:
        """The events of a line that are wanted, and its conditional branches."""
        words = line.split()
        counts = words[self.positions :]
        if self.positions > 1:
            position = words[0]
            if position[0] in "+-":
                self.address += int(position)
            elif position != "*":
                self.address = int(position, 0)
        happened = sum(int(counts[column]) for column in self.columns if column < len(counts))
        jumps = self.branches is not None and self.branches < len(counts) and int(counts[self.branches])
        return happened, int(jumps)


def read_profile(
    lines: Iterable[str],
    events: Collection[str] = ("Ir",),
    locks: Callable[[str, int], bool] | None = None,
) -> Profile:
    """The profile of these events together in the lines of one file of callgrind's. `locks` says whether the
    instruction at an address of a program is a locked operation."""
    profile = Profile()
    names, costs = Names(), Costs(events)
    function = file = called = program = ""
    calling = False
    for line in map(str.rstrip, lines):
        if named := NAMED.fullmatch(line):
            kind, text = named.groups()
            match kind:
                case "fn":
                    function = names.resolved(kind, text)
                case "fl" | "fi" | "fe":
                    file = names.resolved(kind, text)
                case "ob":
                    program = names.resolved(kind, text)
                case "cfn":
                    called = names.resolved(kind, text)
                case "calls":
                    calling = True
                case _:
                    names.resolved(kind, text)
        elif COST.fullmatch(line):
            happened, jumps = costs.read(line)
            place = Place(function, file)
            if calling:
                profile.called[place, called] += happened
            else:
                profile.own[place] += happened
                profile.branches[place] += jumps
                if locks is not None and locks(program, costs.address):
                    profile.locked[place] += happened
            calling = False
        else:
            costs.header(line)
    return profile
