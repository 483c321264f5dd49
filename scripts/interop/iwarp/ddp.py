"""DDP: segment headers, segmentation, placement and Delivery (RFC 5041).

The sink works on an ordered stream, so a message is complete when its last segment has been placed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .errors import DdpError, SenderRule

VERSION: Final = 1
"""DV (DDP-4.1-09)."""
TAGGED_HEADER_OCTETS: Final = 14
UNTAGGED_HEADER_OCTETS: Final = 18
FIRST_MSN: Final = 1
"""DDP-4.3-08."""

_TAGGED, _LAST, _VERSION_MASK = 0x80, 0x40, 0x03
_WRAP32: Final = 1 << 32
_WRAP64: Final = 1 << 64


class Type:
    """DDP error types (RFC 5041 §7.2)."""

    LOCAL, TAGGED, UNTAGGED = 0, 1, 2


class TaggedCode:
    """Error codes of type 1."""

    INVALID_STAG, BOUNDS, NOT_ASSOCIATED, TO_WRAP, VERSION = 0, 1, 2, 3, 4


class UntaggedCode:
    """Error codes of type 2."""

    INVALID_QN, NO_BUFFER, MSN_RANGE, INVALID_MO, TOO_LONG, VERSION = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class Tagged:
    """Header of a Tagged segment (DDP-4.2-01)."""

    last: bool
    rsvdulp: int
    """8 bits that belong to the ULP: the RDMAP control octet."""
    stag: int
    to: int
    version: int = VERSION

    def encode(self) -> bytes:
        """The 14 octets."""
        control = _TAGGED | (_LAST if self.last else 0) | self.version
        return struct.pack(">BBIQ", control, self.rsvdulp, self.stag, self.to)


@dataclass(frozen=True)
class Untagged:
    """Header of an Untagged segment (DDP-4.3-01)."""

    last: bool
    rsvdulp: int
    """40 bits that belong to the ULP: the RDMAP control octet and the Invalidate STag."""
    qn: int
    msn: int
    mo: int
    version: int = VERSION

    def encode(self) -> bytes:
        """The 18 octets."""
        control = (_LAST if self.last else 0) | self.version
        return struct.pack(
            ">BBIIII", control, self.rsvdulp >> 32, self.rsvdulp % _WRAP32, self.qn, self.msn, self.mo
        )


Header = Tagged | Untagged


def header_octets(ulpdu: bytes) -> int:
    """Length of the header that the first octet of ``ulpdu`` announces."""
    return TAGGED_HEADER_OCTETS if ulpdu[0] & _TAGGED else UNTAGGED_HEADER_OCTETS


def parse(ulpdu: bytes) -> tuple[Header, bytes]:
    """Header and payload of a DDP segment; the version is not judged here."""
    if not ulpdu or len(ulpdu) < header_octets(ulpdu):
        raise DdpError(Type.LOCAL, 0, f"a ULPDU of {len(ulpdu)} octets is shorter than its DDP header")
    last, version = (
        bool(ulpdu[0] & _LAST),
        ulpdu[0] & _VERSION_MASK,
    )  # DDP-4.1-08: reserved bits are not checked
    if ulpdu[0] & _TAGGED:
        _, rsvdulp, stag, to = struct.unpack_from(">BBIQ", ulpdu)
        return Tagged(last, rsvdulp, stag, to, version), ulpdu[TAGGED_HEADER_OCTETS:]
    _, high, low, qn, msn, mo = struct.unpack_from(">BBIIII", ulpdu)
    return Untagged(last, high << 32 | low, qn, msn, mo, version), ulpdu[UNTAGGED_HEADER_OCTETS:]


def _pieces(message: bytes | memoryview, room: int) -> Iterator[tuple[int, bytes, bool]]:
    """``(offset, octets, last)`` of each segment; an empty message has one segment (DDP-5.2-08)."""
    for offset in range(0, max(len(message), 1), room):
        yield offset, bytes(message[offset : offset + room]), offset + room >= len(message)


def segment_tagged(
    message: bytes | memoryview, rsvdulp: int, stag: int, to: int, mulpdu: int
) -> Iterator[bytes]:
    """ULPDUs of one Tagged message (DDP-5.2-01, -07)."""
    for offset, octets, last in _pieces(message, mulpdu - TAGGED_HEADER_OCTETS):
        yield Tagged(last, rsvdulp, stag, to + offset).encode() + octets


def segment_untagged(message: bytes, rsvdulp: int, qn: int, msn: int, mulpdu: int) -> Iterator[bytes]:
    """ULPDUs of one Untagged message (DDP-5.2-01, -05)."""
    for offset, octets, last in _pieces(message, mulpdu - UNTAGGED_HEADER_OCTETS):
        yield Untagged(last, rsvdulp, qn, msn, offset).encode() + octets


class Region:
    """A Tagged Buffer of ``octets`` from TO ``base`` on, with a guard area on either side."""

    GUARD_OCTETS: Final = 4096
    GUARD_VALUE: Final = 0xA5

    def __init__(self, base: int, octets: int) -> None:
        self.base = base
        self.octets = octets
        self.placed_octets = 0
        guard = bytes([self.GUARD_VALUE]) * self.GUARD_OCTETS
        self._memory = bytearray().join((guard, bytes(octets), guard))

    def place(self, to: int, payload: bytes) -> None:
        """Check bounds to the octet, then place (DDP-7.1-12..15; order of checks A-30)."""
        end = to + len(payload)
        if end >= _WRAP64:  # a sum of exactly 2^64 wraps too
            raise DdpError(Type.TAGGED, TaggedCode.TO_WRAP, f"TO {to:#x} plus {len(payload)} wraps")
        if to < self.base or end > self.base + self.octets:
            raise DdpError(
                Type.TAGGED,
                TaggedCode.BOUNDS,
                f"TO {to:#x} plus {len(payload)} leaves [{self.base:#x}, {self.base + self.octets:#x})",
            )
        offset = self.GUARD_OCTETS + to - self.base
        self._memory[offset : offset + len(payload)] = payload
        self.placed_octets += len(payload)

    def content(self, octets: int) -> memoryview:
        """The first ``octets`` of the buffer."""
        return memoryview(self._memory)[self.GUARD_OCTETS : self.GUARD_OCTETS + octets]

    def octets_outside(self) -> int:
        """How many guard octets have changed (DDP-8.1-01)."""
        end = self.GUARD_OCTETS + self.octets
        guards = self._memory[: self.GUARD_OCTETS] + self._memory[end:]
        changed = len(guards) - guards.count(self.GUARD_VALUE)
        return changed + abs(len(guards) - 2 * self.GUARD_OCTETS)


class Queue:
    """An Untagged queue with its posted buffers, used in order of MSN."""

    def __init__(self) -> None:
        self.posted: deque[int] = deque()
        """Sizes in octets of the buffers posted, for MSN ``msn`` on."""
        self.msn = FIRST_MSN
        self._message = bytearray()

    def place(self, header: Untagged, payload: bytes) -> bytes | None:
        """Place one segment; the message if this completed it (checks in the order of A-30, also when
        empty: A-28)."""
        if header.msn != self.msn:  # the window of an in-order receiver is one MSN
            raise DdpError(Type.UNTAGGED, UntaggedCode.MSN_RANGE, f"MSN {header.msn}, expected {self.msn}")
        if not self.posted:
            raise DdpError(
                Type.UNTAGGED, UntaggedCode.NO_BUFFER, f"no buffer for MSN {header.msn} on QN {header.qn}"
            )
        size = self.posted[0]
        if header.mo > size:
            raise DdpError(
                Type.UNTAGGED, UntaggedCode.INVALID_MO, f"MO {header.mo} is past a buffer of {size}"
            )
        if header.mo + len(payload) > size:
            raise DdpError(
                Type.UNTAGGED,
                UntaggedCode.TOO_LONG,
                f"MO {header.mo} plus {len(payload)} overruns a buffer of {size}",
            )
        if header.mo != len(self._message):
            raise SenderRule("DDP-5.2-05", f"MO {header.mo} after {len(self._message)} octets of the message")
        self._message += payload
        if not header.last:
            return None
        message, self._message = bytes(self._message), bytearray()
        self.posted.popleft()
        self.msn = (self.msn + 1) % _WRAP32  # DDP-4.3-07, -09
        return message


@dataclass(frozen=True)
class Delivery:
    """A message that is complete."""

    header: Header
    """Header of its last segment."""
    message: bytes
    """Content of an Untagged message; empty for a Tagged one, whose content is in its Region."""


class Sink:
    """The receiving half of a DDP stream."""

    def __init__(self) -> None:
        self.regions: dict[int, Region] = {}
        """Tagged Buffers by STag."""
        self.queues: dict[int, Queue] = {}
        """Untagged queues by QN."""
        self.version = VERSION
        """DV that every segment has to have."""
        self.final_qn: int | None = None
        """A queue whose message may cut an incomplete one short, because nothing follows it."""
        self._open: Header | None = None
        """Header of the latest segment while its message is incomplete."""
        self._open_payload = 0

    def receive(self, header: Header, payload: bytes) -> Delivery | None:
        """Validate and place one segment; what it Delivers, if its message is complete."""
        if header.version != self.version:  # DDP-4.1-09, -10; A-13
            if isinstance(header, Tagged):
                raise DdpError(Type.TAGGED, TaggedCode.VERSION, f"DV {header.version} in a Tagged segment")
            raise DdpError(Type.UNTAGGED, UntaggedCode.VERSION, f"DV {header.version} in an Untagged segment")
        message: bytes | None = b""
        if isinstance(header, Tagged):
            if payload:  # DDP-5.2-10: STag and TO of an empty segment are not checked
                region = self.regions.get(header.stag)
                if region is None:  # DDP-7.1-10
                    raise DdpError(
                        Type.TAGGED, TaggedCode.INVALID_STAG, f"STag {header.stag:#010x} is not valid"
                    )
                region.place(header.to, payload)
        else:
            queue = self.queues.get(header.qn)
            if queue is None:  # DDP-7.1-01
                raise DdpError(Type.UNTAGGED, UntaggedCode.INVALID_QN, f"QN {header.qn} is not valid")
            message = queue.place(header, payload)
        self._judge_sequence(header, len(payload))
        return Delivery(header, message or b"") if header.last else None

    def _judge_sequence(self, header: Header, payload: int) -> None:
        """Rules for the sender over the segments of one message."""
        before = self._open
        final = isinstance(header, Untagged) and header.qn == self.final_qn
        if before is not None and not final:
            if isinstance(before, Tagged):
                if not isinstance(header, Tagged):
                    raise SenderRule(
                        "DDP-5.3-02", "an Untagged segment inside a Tagged message: its Last flag is missing"
                    )
                if (header.stag, header.rsvdulp) != (before.stag, before.rsvdulp):
                    raise SenderRule("DDP-4.2-08", "STag or RsvdULP changes inside a Tagged message")
                if header.to != before.to + self._open_payload:
                    raise SenderRule(
                        "DDP-5.2-07",
                        f"TO {header.to:#x} does not follow {before.to:#x} + {self._open_payload}",
                    )
            else:
                if not isinstance(header, Untagged):
                    raise SenderRule(
                        "DDP-5.3-02", "a Tagged segment inside an Untagged message: its Last flag is missing"
                    )
                if (header.qn, header.rsvdulp) != (before.qn, before.rsvdulp):
                    raise SenderRule("DDP-4.3-06", "QN or RsvdULP changes inside an Untagged message")
        self._open, self._open_payload = (None, 0) if header.last else (header, payload)
