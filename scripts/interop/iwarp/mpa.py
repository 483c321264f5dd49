"""MPA: FPDUs, Markers and CRC (RFC 5044 §4), FPDU size (§4.5), startup frames (§7.1).

Positions are counted in octets from the start of Full Operation in one direction (A-20), so a Marker stands
at every multiple of 512 (MPA-4.3-06).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Flag, auto
from typing import ClassVar, Final, NamedTuple

from .crc32c import crc32c, crc_field
from .errors import MpaError, StartupError

MARKER_INTERVAL: Final = 512
MARKER_OCTETS: Final = 4
CRC_OCTETS: Final = 4
LENGTH_OCTETS: Final = 2
MIN_MULPDU: Final = 128
MAX_ULPDU: Final = 64768
"""Longest ULPDU (MPA-3-04, MPA-3-05)."""

MAX_FPDU_OCTETS: Final = 2 + 65535 + 3 + CRC_OCTETS + MARKER_OCTETS * 131
"""Longest FPDU that any ULPDU_Length can announce."""

_CONTENT_PER_INTERVAL: Final = MARKER_INTERVAL - MARKER_OCTETS


def mulpdu(emss: int, markers: bool) -> int:
    """Largest ULPDU whose FPDU fits in a segment of ``emss`` octets (MPA-4.5-01, -02, -06; A-04)."""
    overhead = 6 + emss % 4
    if markers:
        overhead += 4 * -(-emss // 512)
    return min(max(emss - overhead, MIN_MULPDU), MAX_ULPDU)


def pad_octets(ulpdu_length: int) -> int:
    """PAD that makes ULPDU_Length, ULPDU and PAD a multiple of four (MPA-4.1-03)."""
    return -(LENGTH_OCTETS + ulpdu_length) % 4


def fpdu_octets(position: int, ulpdu_length: int, markers: bool) -> int:
    """Octets of the FPDU that starts at ``position``, its Markers included."""
    content = LENGTH_OCTETS + ulpdu_length + pad_octets(ulpdu_length) + CRC_OCTETS
    if not markers:
        return content
    before_first_marker = -position % MARKER_INTERVAL
    if content <= before_first_marker:
        return content
    count = -(-(content - before_first_marker) // _CONTENT_PER_INTERVAL)
    return content + MARKER_OCTETS * count


class FpduWriter:
    """Frames ULPDUs for one direction of a connection."""

    def __init__(self, markers: bool, crc: bool, position: int = 0) -> None:
        self.markers = markers
        self.crc = crc
        self.position = position
        self.marker_error = 0
        """Added to the FPDUPTR of every Marker: a fault to inject, zero in honest use."""

    def frame(self, ulpdu: bytes) -> bytes:
        """The FPDU for ``ulpdu`` at the current position, which moves past it."""
        body = b"".join(
            (len(ulpdu).to_bytes(2, "big"), ulpdu, bytes(pad_octets(len(ulpdu))))
        )  # MPA-4.1-01, -04
        covered = self._with_markers(body) if self.markers else body
        # MPA-4.4-10: the field is there even when CRCs are not in use; zero then.
        fpdu = covered + (crc_field(covered) if self.crc else bytes(CRC_OCTETS))
        self.position += len(fpdu)
        return fpdu

    def _with_markers(self, body: bytes) -> bytes:
        """``body`` and its Markers, with one that falls before the CRC field (MPA-4.4-12, -13)."""
        at = self.position
        header = at + MARKER_OCTETS if at % MARKER_INTERVAL == 0 else at
        pieces: list[bytes] = []
        taken = 0
        while True:
            if at % MARKER_INTERVAL == 0:
                # MPA-4.3-03, -05: distance from ULPDU_Length, zero for a Marker in front of the FPDU.
                # It fits 16 bits up to MAX_ULPDU; only a hostile FPDU is longer.
                pointer = max(at - header, 0) + self.marker_error
                pieces.append(struct.pack(">HH", 0, pointer & 0xFFFF))
                at += MARKER_OCTETS
            if taken == len(body):
                return b"".join(pieces)
            piece = body[taken : taken + MARKER_INTERVAL - at % MARKER_INTERVAL]
            pieces.append(piece)
            taken += len(piece)
            at += len(piece)


class Fpdu(NamedTuple):
    """One FPDU as received."""

    start: int
    """Position of its first octet (of its leading Marker, if it has one)."""
    octets: int
    """Length with Markers and CRC."""
    ulpdu: bytes


class FpduReader:
    """Finds and verifies FPDUs in the octets of one direction (RFC 5044 §5.2, §6)."""

    def __init__(self, markers: bool, crc: bool, position: int = 0) -> None:
        self.markers = markers
        self.crc = crc
        self.position = position
        self._held = bytearray()
        self._used = 0

    def feed(self, octets: bytes | memoryview) -> None:
        """Append received octets."""
        if self._used:
            del self._held[: self._used]
            self._used = 0
        self._held += octets

    @property
    def incomplete_octets(self) -> int:
        """Octets held that do not make a complete FPDU."""
        return len(self._held) - self._used

    def read(self) -> Fpdu | None:
        """The next FPDU, verified, or ``None`` while it is incomplete (MPA-5.2-01, MPA-6-05)."""
        leading = MARKER_OCTETS if self.markers and self.position % MARKER_INTERVAL == 0 else 0
        header = self._used + leading
        if len(self._held) < header + LENGTH_OCTETS:
            return None
        length = self._held[header] << 8 | self._held[header + 1]
        octets = fpdu_octets(self.position, length, self.markers)
        if self.incomplete_octets < octets:
            return None
        fpdu = bytes(memoryview(self._held)[self._used : self._used + octets])
        # MPA-4.4-15: the CRC before anything else.
        if self.crc and crc_field(fpdu[:-CRC_OCTETS]) != fpdu[-CRC_OCTETS:]:
            wanted = crc32c(fpdu[:-CRC_OCTETS]).to_bytes(4, "little").hex()
            raise MpaError(
                MpaError.CRC,
                f"FPDU at {self.position}: CRC field {fpdu[-CRC_OCTETS:].hex()}, computed {wanted}",
            )
        if length > MAX_ULPDU:
            raise MpaError(
                MpaError.MARKER, f"FPDU at {self.position}: ULPDU_Length {length} exceeds {MAX_ULPDU}"
            )
        body = self._without_markers(fpdu) if self.markers else fpdu
        received = Fpdu(self.position, octets, body[LENGTH_OCTETS : LENGTH_OCTETS + length])
        self.position += octets
        self._used += octets
        return received

    def _without_markers(self, fpdu: bytes) -> bytes:
        """Check every Marker of the FPDU and cut it out (MPA-4.3-07, MPA-4.3-10, MPA-8-03)."""
        first = -self.position % MARKER_INTERVAL
        header = MARKER_OCTETS if first == 0 else 0
        pieces = [fpdu[:first]]
        for marker in range(first, len(fpdu), MARKER_INTERVAL):
            _reserved, pointer = struct.unpack_from(
                ">HH", fpdu, marker
            )  # MPA-4.2-02: reserved bits are ignored
            pointer &= ~3  # MPA-4.2-04
            expected = max(marker - header, 0)
            if pointer != expected:
                raise MpaError(
                    MpaError.MARKER,
                    f"FPDU at {self.position}: Marker at {self.position + marker} has FPDUPTR {pointer}, "
                    f"not {expected}",
                )
            pieces.append(fpdu[marker + MARKER_OCTETS : marker + MARKER_INTERVAL])
        return b"".join(pieces)


REQUEST_KEY: Final = b"MPA ID Req Frame"
"""MPA-7.1.1-01."""
REPLY_KEY: Final = b"MPA ID Rep Frame"
"""MPA-7.1.1-03."""
STARTUP_HEADER_OCTETS: Final = 20
MAX_PRIVATE_DATA: Final = 512
REVISION: Final = 1
REVISION_RDMAC, REVISION_ENHANCED = 0, 2

FLAGS_OFFSET: Final = len(REQUEST_KEY)
FLAG_MARKERS, FLAG_CRC, FLAG_REJECTED, FLAG_ENHANCED = 0x80, 0x40, 0x20, 0x10


class Rtr(Flag):
    """Kinds of ready-to-receive indication (RFC 6581 §9.2)."""

    NONE = 0
    SEND, WRITE, READ = auto(), auto(), auto()


NOT_NEGOTIATED: Final = 0x3FFF
"""A depth that leaves the matter to the ULP (MPAv2-9.1-09..12)."""


@dataclass(frozen=True)
class EnhancedData:
    """The word in front of the Private Data of an enhanced frame (RFC 6581 §9)."""

    ird: int
    ord: int
    peer_to_peer: bool = False
    """A."""
    rtr: Rtr = Rtr.NONE
    """B, C and D; no meaning without A (MPAv2-9.2-09)."""

    OCTETS: ClassVar[int] = 4

    def encode(self) -> bytes:
        """The four octets (MPAv2-9-01)."""
        rtr = self.rtr if self.peer_to_peer else Rtr.NONE
        inbound = self.peer_to_peer << 15 | bool(rtr & Rtr.SEND) << 14 | self.ird
        outbound = bool(rtr & Rtr.WRITE) << 15 | bool(rtr & Rtr.READ) << 14 | self.ord
        return struct.pack(">HH", inbound, outbound)

    @classmethod
    def parse(cls, octets: bytes) -> EnhancedData:
        """From the four octets."""
        inbound, outbound = struct.unpack(">HH", octets)
        peer_to_peer, rtr = bool(inbound & 0x8000), Rtr.NONE
        if peer_to_peer:
            rtr |= Rtr.SEND if inbound & 0x4000 else Rtr.NONE
            rtr |= Rtr.WRITE if outbound & 0x8000 else Rtr.NONE
            rtr |= Rtr.READ if outbound & 0x4000 else Rtr.NONE
        return cls(inbound & NOT_NEGOTIATED, outbound & NOT_NEGOTIATED, peer_to_peer, rtr)


@dataclass(frozen=True)
class StartupFrame:
    """An MPA Request or Reply Frame (RFC 5044 §7.1.1, RFC 6581 §6)."""

    key: bytes
    markers: bool
    """M: the sender of this frame wants to receive Markers (MPA-7.1.1-05)."""
    crc: bool
    rejected: bool = False
    revision: int = REVISION
    private_data: bytes = b""
    """The ULP's: without the enhanced data."""
    enhanced: EnhancedData | None = None
    """S, and what it announces (MPAv2-6-01)."""

    def encode(self) -> bytes:
        """The frame's octets."""
        flags = (
            (FLAG_MARKERS if self.markers else 0)
            | (FLAG_CRC if self.crc else 0)
            | (FLAG_REJECTED if self.rejected else 0)
            | (FLAG_ENHANCED if self.enhanced else 0)
        )
        data = (self.enhanced.encode() if self.enhanced else b"") + self.private_data  # MPAv2-6-05
        return self.key + struct.pack(">BBH", flags, self.revision, len(data)) + data


def parse_startup(octets: bytes, key: bytes) -> tuple[StartupFrame, int] | None:
    """The startup frame at the head of ``octets`` and its length, or ``None`` while it is incomplete.

    Each field is judged as soon as it is there, so a wrong key fails at its first wrong octet. Whether the
    revision can be used is for the caller to say.
    """
    if octets[: len(key)] != key[: len(octets)]:  # MPA-7.1.1-02, -04; MPA-7.1.2-20
        raise StartupError(StartupError.KEY, f"startup frame begins {octets[:16].hex(' ')}")
    if len(octets) < STARTUP_HEADER_OCTETS:
        return None
    flags, revision, length = struct.unpack_from(">BBH", octets, len(key))
    if revision > REVISION_ENHANCED:  # MPA-7.1.1-13, -14
        raise StartupError(StartupError.REVISION, f"startup frame has Rev {revision}", revision)
    if length > MAX_PRIVATE_DATA:  # MPA-7.1.1-17
        raise StartupError(StartupError.LENGTH, f"PD_Length {length} exceeds {MAX_PRIVATE_DATA}")
    has_word = revision == REVISION_ENHANCED and bool(flags & FLAG_ENHANCED)
    if has_word and length < EnhancedData.OCTETS:  # MPAv2-6-05
        raise StartupError(StartupError.LENGTH, f"PD_Length {length} has no room for the enhanced data")
    total = STARTUP_HEADER_OCTETS + length
    if len(octets) < total:
        return None
    data = bytes(octets[STARTUP_HEADER_OCTETS:total])
    word = EnhancedData.OCTETS if has_word else 0
    frame = StartupFrame(
        key=key,
        markers=bool(flags & FLAG_MARKERS),
        crc=bool(flags & FLAG_CRC),
        # MPA-7.1.1-10: R has no meaning in a Request.  MPA-7.1.1-11: the reserved bits are not checked.
        rejected=key == REPLY_KEY and bool(flags & FLAG_REJECTED),
        revision=revision,
        private_data=data[word:],
        enhanced=EnhancedData.parse(data[:word]) if has_word else None,
    )
    return frame, total
