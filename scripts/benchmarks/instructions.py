"""Instructions a segment and a message at either end, counted by callgrind."""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from benchmarks.bars import RESEMBLANCE, RESEMBLANCES
from benchmarks.callgrind import Place, Profile, read_profile
from benchmarks.machine_code import Programs

TOLERANCE_PERCENT = 3.0
# An end that is excused is so until it takes so much less than it may.
EXCUSE_MARGIN = 0.05
ENDS = ("writer", "target")
# Under valgrind there are no hugepages.
PROGRAM_ARGUMENTS = ("instructions", "--eal", "--no-huge -m 256")
CALLGRIND = (
    "valgrind",
    "--tool=callgrind",
    "--separate-threads=yes",
    "--fair-sched=yes",
    "--toggle-collect=*::writer_turn",
    "--toggle-collect=*::target_turn",
    "--dump-after=*::end_of_phase",
)
# Conditional branches, and the addresses by which locked operations are found.
EVERYTHING = ("--branch-sim=yes", "--dump-instr=yes")
# A hundred thousand connections take some minutes to open.
TIMEOUT_SECONDS = 1800
# How often a case is measured again that takes too much.
TIMES_AGAIN = 2
# Instructions of a CRC are those of its functions, and those of its files where they were inlined.
CRC_FUNCTION = re.compile(r"\bcrc", re.IGNORECASE)
CRC_FILE = re.compile(r"/dataplane/src/crc32c/|/crc(32c|-fast)-[0-9][^/]*/")
# Internet checksums, where a device leaves them to the host.
SUM_FUNCTION = re.compile(r"::checksum::sum_of_words$")
COPY_FILES = "/dataplane/src/memory/"
COPY_FILE = COPY_FILES + "copy.rs"
COPY_FUNCTION = "rte_pktmbuf_copy"
LIBRARY_COPY = re.compile(r"__mem(cpy|move)_")
# What the network does to frames is done to them by no end.
NETWORK_FUNCTION = re.compile(r"::disturb_(burst|acknowledgements)\b")
# Wires between several cores find the core of each segment, as the adapter of the other end would. What a
# single wire does as well is not theirs: it is a function of its own (WireEnd).
WIRES_FUNCTION = re.compile(r"::CoreWires::(transmit|receive|has_arrivals)$|::Toeplitz::hash$")
LIBRARY_FILL = re.compile(r"__memset_")


class Unusable(Exception):
    """The counts cannot be taken, or mean nothing."""


@dataclasses.dataclass(frozen=True)
class Count:
    """Instructions for one unit at one end, by kind, and what else was counted."""

    # All but the next three: TCP, MPA, DDP, RDMAP, queues and frames.
    protocol: float
    crc: float
    sums: float
    copy: float
    # Of the protocol's: structures that the C library's memcpy has moved.
    moves: float
    # Conditional branches of the protocol's instructions, and locked operations.
    branches: float
    locked: float


@dataclasses.dataclass(frozen=True)
class Measure:
    """What a baseline has of a count."""

    name: str
    field: str
    plural: str
    # What is recorded of it, and what more of it than the tolerance is no difference.
    digits: int
    slack: float

    def of(self, count: Count) -> float:
        """Its value."""
        return float(getattr(count, self.field))

    def recorded(self, count: Count) -> float:
        """Its value as a baseline has it."""
        value = round(self.of(count), self.digits)
        return value if self.digits else int(value)


INSTRUCTIONS = Measure("instructions", "protocol", "instructions", 0, 0.0)
BRANCHES = Measure("branches", "branches", "conditional branches", 1, 0.2)
LOCKED = Measure("locked", "locked", "locked operations", 2, 0.02)
MEASURES = (INSTRUCTIONS, BRANCHES, LOCKED)


@dataclasses.dataclass(frozen=True)
class Phase:
    """A case, or the idle polls after it."""

    name: str
    unit: str
    # What is in one unit, as the report says it.
    facts: dict[str, Any]
    profiles: dict[str, Profile]

    @property
    def ends(self) -> list[str]:
        """The ends that have a core; a writer without a target is both ends."""
        return [end for end in ENDS if self.facts[end] is not None]

    @property
    def resembles(self) -> str | None:
        """The case that this one differs from in one thing."""
        name: str | None = self.facts.get("resembles")
        return name

    def units(self, end: str) -> int:
        """How many segments, messages or polls the end had."""
        counts = self.facts[end]
        match self.unit, end:
            case "segment", "writer":
                units = counts["data_segments_sent"]
            case "segment", _:
                units = counts["frames_received"]
            case "message", "writer":
                units = counts["messages"]
            case "message", _:
                units = counts["fpdus"]
            case "ping", _:
                units = counts["messages"]
            case _:
                units = counts["idle_polls"]
        return int(units)

    def count(self, end: str) -> Count:
        """The instructions of the end."""
        profile, units = self.profiles[end], self.units(end)
        kinds = instructions_by_kind(profile)
        return Count(*(kinds[field.name] / units for field in dataclasses.fields(Count)))

    def instructions(self) -> float:
        """The protocol's instructions of all its ends."""
        return sum(self.count(end).protocol for end in self.ends)


def instructions_by_kind(profile: Profile) -> dict[str, int]:
    """Sorts the instructions of a profile by the fields of a count."""
    crc = sums = copy = moved = 0
    for place, instructions in profile.own.items():
        if computes_crc(place):
            crc += instructions
        elif SUM_FUNCTION.search(place.function):
            sums += instructions
        elif place.file.endswith(COPY_FILE) or place.function == COPY_FUNCTION:
            copy += instructions
        elif LIBRARY_COPY.match(place.function):
            moved += instructions
    # The library copies payload only for what copies payload.
    payload = sum(
        instructions
        for (place, called), instructions in profile.called.items()
        if LIBRARY_COPY.match(called) and copies_payload(place)
    )
    moved -= payload
    copy += payload
    network = sum(count for place, count in profile.own.items() if is_of_network(place))
    network += sum(
        count
        for (place, called), count in profile.called.items()
        if is_of_network(place) and LIBRARY_FILL.match(called)
    )
    branches = sum(count for place, count in profile.branches.items() if is_of_protocol(place))
    return {
        "protocol": profile.total() - crc - sums - copy - network,
        "crc": crc,
        "sums": sums,
        "copy": copy,
        "moves": moved,
        "branches": branches,
        "locked": profile.locked.total(),
    }


def is_of_network(place: Place) -> bool:
    """Whether code at a place is the network's between the ends."""
    return bool(WIRES_FUNCTION.search(place.function) or NETWORK_FUNCTION.search(place.function))


def is_of_protocol(place: Place) -> bool:
    """Whether code at a place is neither a CRC's nor a checksum's nor a copy's nor the network's."""
    copies = LIBRARY_COPY.match(place.function) or place.file.endswith(COPY_FILE)
    copies = copies or place.function == COPY_FUNCTION
    sums = SUM_FUNCTION.search(place.function)
    return not (copies or sums or computes_crc(place) or is_of_network(place))


def computes_crc(place: Place) -> bool:
    """Whether code at a place computes a CRC."""
    return bool(CRC_FUNCTION.search(place.function) or CRC_FILE.search(place.file))


def copies_payload(place: Place) -> bool:
    """Whether code at a place copies between frames and memory of users."""
    return COPY_FILES in place.file or place.function == COPY_FUNCTION


@contextlib.contextmanager
def callgrind_run(
    program: pathlib.Path, options: Iterable[str] = (), arguments: Iterable[str] = ()
) -> Iterator[tuple[list[dict[str, Any]], pathlib.Path]]:
    """Runs the program under callgrind with `options`. Yields the program's reports and the folder with
    callgrind's counts."""
    with tempfile.TemporaryDirectory(prefix="warpline-instructions-") as name:
        folder = pathlib.Path(name)
        report, counts = folder / "report.json", folder / "counts"
        command = [*CALLGRIND, *options, f"--callgrind-out-file={counts}", str(program)]
        command += [*PROGRAM_ARGUMENTS, "--json", str(report), *arguments]
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except FileNotFoundError:
            raise Unusable("valgrind is not installed (scripts/setup installs it)") from None
        except subprocess.TimeoutExpired:
            raise Unusable(f"no end after {TIMEOUT_SECONDS} s under callgrind") from None
        if run.returncode != 0 or not report.exists():
            raise Unusable(f"{' '.join(command)} failed:\n{run.stderr}")
        yield json.loads(report.read_text()), folder


def cases(program: pathlib.Path) -> list[str]:
    """The names of the program's cases, in order."""
    words = [str(program), "instructions", "--list"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if run.returncode != 0:
        raise Unusable(f"{' '.join(words)} failed:\n{run.stderr}")
    return run.stdout.split()


def measure(program: pathlib.Path, wanted: Collection[str] = ()) -> list[Phase]:
    """Runs the program's cases, or those that are wanted, under callgrind, and returns what each of its
    phases took. Counts are not of time: on two processors two halves of the cases run at once."""

    def part(names: list[str]) -> list[Phase]:
        with callgrind_run(program, EVERYTHING, ("--cases", ",".join(names))) as (reports, folder):
            return phases(reports, folder)

    names = list(wanted) or cases(program)
    halves = [half for half in (names[::2], names[1::2]) if half]
    with concurrent.futures.ThreadPoolExecutor(min(len(halves), len(os.sched_getaffinity(0)))) as pool:
        found = [pair for half in pool.map(part, halves) for pair in zip(half[::2], half[1::2], strict=True)]
    # A case, and the idle polls after it.
    found.sort(key=lambda pair: names.index(pair[0].name))
    return [phase for pair in found for phase in pair]


def measure_again(
    program: pathlib.Path, measured: list[Phase], faults: Callable[[list[Phase]], list[str]]
) -> list[Phase]:
    """Measures those cases again, beside those that they resemble, of which `faults` has sentences that begin
    with their name. Returns all, each as it took least.

    Ends connect in real time. How their threads ran then decides where acknowledgements fall among the bursts
    of a case, and by that a segment takes 4 % more in one run of ten on a busy machine; and whether anything
    but polls that find nothing falls among the idle ones, which are measured again with the first case."""
    for _ in range(TIMES_AGAIN):
        found = {sentence.partition(":")[0] for sentence in faults(measured)}
        cases = [phase for phase in measured if phase.unit != "poll"]
        wanted = {name for phase in cases if phase.name in found for name in (phase.name, phase.resembles)}
        if any(phase.name in found for phase in measured if phase.unit == "poll"):
            wanted.add(cases[0].name)
        names = [phase.name for phase in cases if phase.name in wanted]
        if not names:
            break
        again = {phase.name: phase for phase in selected(measure(program, names))}
        measured = [min(phase, again.get(phase.name, phase), key=Phase.instructions) for phase in measured]
    return measured


def phases(
    reports: list[dict[str, Any]], folder: pathlib.Path, events: Collection[str] = ("Ir",)
) -> list[Phase]:
    """Joins the program's reports with callgrind's: each phase has a part of each end's thread, in order."""
    found = []
    programs = Programs()
    for number, facts in enumerate(reports):
        phase = Phase(facts["name"], facts["unit"], facts, {})
        for offset, end in enumerate(ENDS):
            part = 2 * number + offset + 1
            files = list(folder.glob(f"counts.{part}-*"))
            if len(files) != 1:
                raise Unusable(f"callgrind wrote {len(files)} files for part {part}")
            if end in phase.ends:
                lines = files[0].read_text().splitlines()
                phase.profiles[end] = read_profile(lines, events, programs.locks)
        validate(phase)
        found.append(phase)
    return found


def validate(phase: Phase) -> None:
    """Refuses counts that are not those of steady polls."""
    for end in phase.ends:
        counts = phase.facts[end]
        if counts["retransmitted_segments"]:
            raise Unusable(f"{phase.name}: {end} sent segments again")
        if phase.unit != "poll" and counts["idle_polls"]:
            raise Unusable(f"{phase.name}: {end} had {counts['idle_polls']} polls with nothing to do")
        if phase.units(end) == 0:
            raise Unusable(f"{phase.name}: {end} had no {phase.unit}")
        if phase.count(end).protocol <= 0:
            raise Unusable(f"{phase.name}: no instructions were counted at the {end}")
        # Both turns and nothing else are counted, each in its own thread.
        functions = {called for _, called in phase.profiles[end].called}
        if not any(function.endswith(f"::{end}_turn") for function in functions):
            raise Unusable(f"{phase.name}: callgrind's part for the {end} has no {end}_turn")


def selected(measured: list[Phase]) -> list[Phase]:
    """Every case, and the idle polls of the first: those of the others are the same."""
    idle = [phase for phase in measured if phase.unit == "poll"][:1]
    return [phase for phase in measured if phase.unit != "poll"] + idle


def baseline_of(measured: list[Phase]) -> dict[str, Any]:
    """What a baseline says of counts: the protocol's, which depend on no processor."""
    return {
        phase.name: {
            "unit": phase.unit,
            **{
                end: {measure.name: measure.recorded(phase.count(end)) for measure in MEASURES}
                for end in phase.ends
            },
        }
        for phase in measured
    }


def difference_percent(count: float, baseline: float) -> float:
    """How much more than the baseline a count is."""
    return 100 * (count - baseline) / baseline if baseline else 0.0


def is_more(measure: Measure, count: float, baseline: float) -> bool:
    """Whether a count is above the baseline by more than the tolerance."""
    return count > baseline * (1 + TOLERANCE_PERCENT / 100) + measure.slack


def regressions(measured: list[Phase], baseline: dict[str, Any]) -> list[str]:
    """What is above the baseline by more than the tolerance, or on one side only, a sentence each."""
    found = []
    for phase in measured:
        before = baseline.get(phase.name)
        if before is None:
            found.append(f"{phase.name} is not in the baseline")
            continue
        if before["unit"] != phase.unit:
            found.append(f"{phase.name}: the baseline counts a {before['unit']}")
        for end in phase.ends:
            for measure in MEASURES:
                count, recorded = measure.of(phase.count(end)), before[end][measure.name]
                if is_more(measure, count, recorded):
                    found.append(
                        f"{phase.name}: the {end} takes {count:.{measure.digits}f} {measure.plural} "
                        f"a {phase.unit}, {difference_percent(count, recorded):.1f} % more than {recorded}"
                    )
    names = {phase.name for phase in measured}
    return found + [f"{name} was not measured" for name in baseline if name not in names]


def is_below(measured: list[Phase], baseline: dict[str, Any]) -> bool:
    """Whether some count is so far below the baseline that a new one should be recorded."""
    return any(
        is_more(measure, baseline[phase.name][end][measure.name], measure.of(phase.count(end)))
        for phase in measured
        for end in phase.ends
        for measure in MEASURES
        if phase.name in baseline
    )


def ratio(phase: Phase, end: str, measured: list[Phase]) -> float | None:
    """The instructions of an end beside those of the case that its case resembles; of both ends together, if
    they are on one core."""
    resembled = next((other for other in measured if other.name == phase.resembles), None)
    if resembled is None:
        return None
    ends = [end] if len(phase.ends) > 1 else resembled.ends
    return phase.count(end).protocol / sum(resembled.count(end).protocol for end in ends)


def cliffs(measured: list[Phase], excused: Collection[tuple[str, str]]) -> list[str]:
    """What takes too much beside the case that it resembles, or is excused and need not be."""
    found = []
    for phase in measured:
        for end in phase.ends:
            share = ratio(phase, end, measured)
            if share is None:
                continue
            is_excused = (phase.name, end) in excused
            bar = RESEMBLANCES.get(phase.name, RESEMBLANCE)
            if share > bar and not is_excused:
                found.append(
                    f"{phase.name}: the {end} takes {share:.4g} of the instructions of {phase.resembles}, "
                    f"more than {bar}"
                )
            elif share <= bar - EXCUSE_MARGIN and is_excused:
                found.append(
                    f"{phase.name}: the {end} takes {share:.2f} of the instructions of {phase.resembles}: "
                    f"excuse it no more (scripts/benchmarks/bars.py)"
                )
    return found


def print_table(measured: list[Phase], baseline: dict[str, Any]) -> None:
    """Prints the counts beside the baseline, and beside those of the cases that they resemble."""
    print(
        f"{'':<21}{'':<7}{'protocol':>9}{'baseline':>10}{'':>8}{'CRC':>7}{'sums':>6}{'copies':>8}{'memcpy':>8}"
        f"{'branches':>10}{'locked':>8}"
    )
    for phase in measured:
        for end in phase.ends:
            count = phase.count(end)
            before = baseline.get(phase.name, {}).get(end, {}).get(INSTRUCTIONS.name)
            compared = f"{'-':>10}{'':>8}"
            if before:
                compared = f"{before:>10}{difference_percent(count.protocol, before):>+7.1f}%"
            share = ratio(phase, end, measured)
            beside = f", {share:.4g} of {phase.resembles}" if share is not None else ""
            print(
                f"{phase.name:<21}{end if len(phase.ends) > 1 else 'both':<7}{count.protocol:>9.0f}{compared}"
                f"{count.crc:>7.0f}{count.sums:>6.0f}{count.copy:>8.0f}{count.moves:>8.0f}{count.branches:>10.1f}"
                f"{count.locked:>8.2f}  a {phase.unit}{beside}"
            )


def require_counted(measured: list[Phase], names: Collection[str]) -> None:
    """Refuses names of phases that were not measured."""
    if unknown := set(names) - {phase.name for phase in measured}:
        raise Unusable(f"not counted: {', '.join(sorted(unknown))}")


def print_functions(measured: list[Phase], names: Collection[str], rows: int = 40) -> None:
    """Prints the functions that take most of the named phases, at each end."""
    for phase in measured:
        for end in phase.ends if phase.name in names else ():
            units = phase.units(end)
            functions = phase.profiles[end].by_function()
            print(
                f"\n{phase.name}, {end}: instructions a {phase.unit}, with and without what a function calls"
            )
            for function, (inclusive, own) in sorted(functions.items(), key=lambda row: -row[1][1])[:rows]:
                print(f"{inclusive / units:>9.1f}{own / units:>9.1f}  {function}")


def as_json(measured: list[Phase]) -> list[dict[str, Any]]:
    """The counts as a report."""
    return [
        {
            "test": "instructions",
            "case": phase.name,
            "unit": phase.unit,
            "size": phase.facts["size"],
            "mtu": phase.facts["mtu"],
            "packing": phase.facts["packing"],
            "resembles": phase.resembles,
            **{
                end: {"units": phase.units(end), **dataclasses.asdict(phase.count(end))} for end in phase.ends
            },
        }
        for phase in measured
    ]


def warn_of_other_tools(baseline: dict[str, Any], tools: dict[str, str]) -> None:
    """Says where the baseline was made with other tools, whose code differs."""
    for tool, version in tools.items():
        if (before := baseline.get("tools", {}).get(tool)) not in (None, version):
            print(f"note: the baseline was made with {tool} {before}, this is {version}", file=sys.stderr)
