"""Reads docs/requirements.md and docs/exceptions.md, and finds citations of requirements in text."""

import dataclasses
import re
from collections.abc import Iterator

LEVEL = re.compile(
    r"(MUST|SHOULD)( NOT)?|(NOT )?(REQUIRED|RECOMMENDED)|MAY|OPTIONAL|INFO|must|should|may|n/a"
)
# The levels of RFC 2119 that oblige: REQUIRED is MUST, RECOMMENDED is SHOULD; NOT REQUIRED leaves the choice.
OBLIGING = re.compile(r"(MUST|SHOULD)( NOT)?|REQUIRED|(NOT )?RECOMMENDED")
ROW_ID = re.compile(r"([A-Za-z][A-Za-z0-9]*)-([A-Z0-9]+(?:\.[0-9]+)*)-([0-9]{2,})")
# A range may be broken over two lines of comment.
RANGE_LINK = r"\s+(?:(?://[/!]?|#)\s+)?to\s+(?:(?://[/!]?|#)\s+)?"
NOT_BUILT_HEADING = "## Not yet built"


class RangeError(Exception):
    """A range of IDs that is none."""


@dataclasses.dataclass(frozen=True)
class Requirement:
    """One row of docs/requirements.md."""

    prefix: str
    level: str

    @property
    def obliges(self) -> bool:
        """Whether the row must be proven or excepted."""
        return OBLIGING.fullmatch(self.level) is not None


def table_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the cells of every table row with the number of its line, header and ruler rows included."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            yield number, [cell.strip() for cell in cells]


def is_header(cells: list[str]) -> bool:
    """Returns whether a row names columns or rules them off."""
    return cells[0] == "ID" or set("".join(cells)) <= set("-: ")


def read_requirements(text: str) -> tuple[dict[str, Requirement], list[str]]:
    """Returns the requirements by ID, in their order, and the problems found."""
    requirements: dict[str, Requirement] = {}
    problems: list[str] = []
    for number, cells in table_rows(text):
        match = ROW_ID.fullmatch(cells[0])
        # Other tables of the document have other first columns.
        if match is None:
            if re.match(r"[A-Za-z0-9]+-.*-", cells[0]) and not is_header(cells):
                problems.append(f"requirements line {number}: malformed ID {cells[0]!r}")
            continue
        level = cells[1] if len(cells) > 1 else ""
        if len(cells) != 4 or not all(cells):
            problems.append(f"requirements line {number}: {cells[0]} needs four filled cells")
        elif LEVEL.fullmatch(level) is None:
            problems.append(f"requirements line {number}: {cells[0]} has the unknown level {level!r}")
        if cells[0] in requirements:
            problems.append(f"requirements line {number}: {cells[0]} stands twice")
        requirements[cells[0]] = Requirement(match.group(1), level)
    return requirements, problems


def citation_pattern(requirements: dict[str, Requirement]) -> re.Pattern[str]:
    """Returns a pattern of one ID of a known prefix, or of a range of two."""
    # The longest first: one may begin like another.
    prefixes = sorted(sorted({row.prefix for row in requirements.values()}), key=len, reverse=True)
    one = "(?:" + "|".join(map(re.escape, prefixes)) + r")-[A-Z0-9]+(?:\.[0-9]+)*-[0-9]{2,}"
    return re.compile(rf"(?<![\w-])({one})(?![\w])(?:{RANGE_LINK}({one})(?![\w]))?")


def expand(first: str, last: str | None) -> list[str]:
    """Returns the IDs of a range, or the one ID when there is no last."""
    if last is None:
        return [first]
    stem, start = first.rsplit("-", 1)
    last_stem, end = last.rsplit("-", 1)
    if stem != last_stem or int(start) >= int(end):
        raise RangeError(f"{first} to {last} is no range")
    return [f"{stem}-{number:0{len(start)}}" for number in range(int(start), int(end) + 1)]


def read_exceptions(
    text: str, requirements: dict[str, Requirement], pattern: re.Pattern[str]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Returns the excepted IDs, those not yet built, and the problems found."""
    excepted: dict[str, str] = {}
    not_built: dict[str, str] = {}
    problems: list[str] = []
    heading = text.find(NOT_BUILT_HEADING)
    first_not_built = text.count("\n", 0, heading) + 1 if heading >= 0 else len(text)
    for number, cells in table_rows(text):
        if is_header(cells):
            continue
        match = pattern.fullmatch(cells[0])
        if match is None or len(cells) != 2:
            problems.append(f"exceptions line {number}: malformed row {' | '.join(cells)!r}")
            continue
        if not cells[1]:
            problems.append(f"exceptions line {number}: {cells[0]} has no reason")
        try:
            names = expand(match[1], match[2])
        except RangeError as problem:
            problems.append(f"exceptions line {number}: {problem}")
            continue
        for name in names:
            if name not in requirements:
                problems.append(f"exceptions line {number}: {name} does not exist")
            if name in excepted or name in not_built:
                problems.append(f"exceptions line {number}: {name} stands twice")
            (not_built if number > first_not_built else excepted)[name] = cells[1]
    return excepted, not_built, problems
