"""What the counts are to be, where they are not there yet: a table, and nothing else."""

import dataclasses

# What a case may take of the case that it resembles.
RESEMBLANCE = 1.3
# And where it is to take the same.
RESEMBLANCES = {
    "beside-10000-idle": 1.02,
    "beside-100000-idle": 1.02,
    "packed-64-2-cores": 1.02,
    "packed-64-8-cores": 1.02,
    "segment-1500-2-cores": 1.02,
    "segment-1500-8-cores": 1.02,
}
# Ends that take more, by build: their ratios are printed, and not judged.
IN_BOTH = frozenset(
    (
        # Each change of the marks is acknowledged by itself (RFC 8257 §3.2).
        ("marks-1500", "target"),
        # In each burst a segment is kept beyond a gap, reported in a SACK block, and taken out: 80 of the 141
        # instructions that the plain case lacks.
        ("sack-1500", "target"),
    )
)
# FPDUs after the first of a message are sent in a loop of their own (core/sending.rs); segments of a stream
# are chosen, read and given their headers one by one. With assertions the plain case takes more as well.
IN_RELEASE = frozenset((("bytes-1500", "writer"),))
EXCUSED: dict[str, frozenset[tuple[str, str]]] = {"release": IN_BOTH | IN_RELEASE, "test": IN_BOTH}


@dataclasses.dataclass(frozen=True)
class Bar:
    """What a figure is to be at the writer and at the target."""

    # A case, or a figure that is computed from several (figures.py); and what of it.
    row: str
    measure: str
    writer: float
    target: float | None


BARS = (
    Bar("ping-64", "instructions", 1600, 1600),
    Bar("ping-64", "branches", 200, 200),
    Bar("ping-64", "locked", 1, 1),
    Bar("packed-64", "instructions", 300, 180),
    Bar("send-packed-64", "instructions", 320, 400),
    Bar("single-64", "instructions", 600, 350),
    Bar("segment-1500", "instructions", 320, 260),
    Bar("send-1500", "instructions", 350, 300),
    Bar("read-1500", "instructions", 320, 330),
    Bar("segment-9000", "instructions", 400, 280),
    Bar("a message of 64 KiB at MTU 9000", "instructions", 3000, None),
    Bar("a Marker", "instructions", 22, 22),
    Bar("idle", "instructions", 80, 80),
    Bar("a poll beside its messages", "instructions", 1500, 1500),
    Bar("lines a message", "lines", 40, 25),
)
