"""Instructions a segment or message by layer of the stack, from the counts of callgrind."""

import collections
import dataclasses
import re

from benchmarks import instructions
from benchmarks.callgrind import Place, Profile

# By the module of the dataplane, the first that matches; the rest of it is the core.
MODULES = (
    ("TCP and IP", ("tcp", "net", "ordered")),
    ("MPA, DDP and RDMAP", ("mpa", "ddp", "rdmap", "wire")),
    ("queue pairs", ("qp", "endpoint", "conn", "notify", "ring")),
)
CORE = "core"
FILE = re.compile(r"/dataplane/src/(\w+)")
# What a library's function does is done for the function that it is inlined into.
FUNCTION = re.compile(r"\bwarpline_dataplane::(\w+)")
OUTSIDE = (
    "device and application",
    re.compile(r"/(bench|control|ffi)/|\brte_|dpdk|warpline_(bench|control)::"),
)
CRC = "CRC"
COPY = "copies"
LIBRARIES = "Rust's and C's libraries"
ORDER = (*(name for name, _ in MODULES), CORE, OUTSIDE[0], LIBRARIES, COPY, CRC)


@dataclasses.dataclass(frozen=True)
class Cost:
    """The instructions of one end in one case, by layer, for each segment or message."""

    case: str
    end: str
    unit: str
    layers: dict[str, float]


def layer_of(place: Place) -> str:
    """The layer that code is of; a function of a library belongs to none."""
    if instructions.computes_crc(place):
        return CRC
    if place.file.endswith(instructions.COPY_FILE) or place.function == instructions.COPY_FUNCTION:
        return COPY
    for found in (FILE.search(place.file), FUNCTION.search(place.function)):
        if found:
            return next((name for name, modules in MODULES if found[1] in modules), CORE)
    name, pattern = OUTSIDE
    return name if pattern.search(place.file) or pattern.search(place.function) else LIBRARIES


def by_layer(profile: Profile) -> dict[str, int]:
    """All instructions of a profile by layer."""
    found: collections.Counter[str] = collections.Counter()
    for place, count in profile.own.items():
        found[layer_of(place)] += count
    # The library's memcpy is a copy of payload where the copies of payload call it.
    payload = sum(
        count
        for (place, called), count in profile.called.items()
        if instructions.LIBRARY_COPY.match(called) and instructions.copies_payload(place)
    )
    found[LIBRARIES] -= payload
    found[COPY] += payload
    return {layer: found[layer] for layer in ORDER}


def costs(phases: list[instructions.Phase]) -> list[Cost]:
    """The costs of each case at each end."""
    return [
        Cost(
            phase.name,
            end,
            phase.unit,
            {layer: count / phase.units(end) for layer, count in by_layer(phase.profiles[end]).items()},
        )
        for phase in phases
        for end in phase.ends
        if phase.unit != "poll"
    ]
