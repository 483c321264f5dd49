"""Captures: reading pcapng, putting TCP streams together again, and finding the FPDUs in them."""

from __future__ import annotations

import bisect
import ipaddress
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from . import ddp, mpa
from .errors import ConnectionFailed

LINK_TYPE_ETHERNET: Final = 1
_SECTION, _INTERFACE, _SIMPLE_PACKET, _ENHANCED_PACKET = 0x0A0D0D0A, 1, 3, 6
_BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D
_FIN, _SYN, _RST = 0x01, 0x02, 0x04
_IPV4, _IPV6, _TAGGED = b"\x08\x00", b"\x86\xdd", b"\x81\x00"
_TCP = 6
_TCP_FRAGMENT = bytes((44, _TCP))
"""The next header in the IPv6 header, and the one in the Fragment header behind it."""


class CaptureError(Exception):
    """The capture cannot be judged, or what it shows is wrong."""


class NotACapture(CaptureError):
    """The file is not a pcapng capture of Ethernet frames."""


def read_pcapng(path: Path) -> Iterator[tuple[int, bytes]]:
    """Frame number (from 1) and octets of every packet."""
    data = path.read_bytes()
    at, number, order = 0, 0, "<"
    if data[:4] != _SECTION.to_bytes(4, "little"):
        raise NotACapture(f"{path} is not a pcapng file")
    while at < len(data):
        if len(data) - at < 12:
            raise CaptureError(f"{path}: {len(data) - at} octets after the last block")
        block = int.from_bytes(data[at : at + 4], "little")
        if block == _SECTION:
            order = "<" if data[at + 8 : at + 12] == _BYTE_ORDER_MAGIC.to_bytes(4, "little") else ">"
        block, length = struct.unpack_from(order + "II", data, at)
        if length < 12 or length % 4 or at + length > len(data):
            raise CaptureError(f"{path}: a block of {length} octets at {at}")
        if block == _INTERFACE:
            (link_type,) = struct.unpack_from(order + "H", data, at + 8)
            if link_type != LINK_TYPE_ETHERNET:
                raise NotACapture(f"{path}: link type {link_type}, not Ethernet")
        elif block == _ENHANCED_PACKET:
            captured, original = struct.unpack_from(order + "II", data, at + 20)
            number += 1
            if captured != original:
                raise CaptureError(f"{path}: frame {number} was cut from {original} to {captured} octets")
            yield number, data[at + 28 : at + 28 + captured]
        elif block == _SIMPLE_PACKET:
            raise NotACapture(f"{path}: Simple Packet Blocks are not supported")
        at += length


class Address(NamedTuple):
    """An IP address, as tshark writes it, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Segment(NamedTuple):
    """A TCP segment."""

    frame: int
    source: Address
    destination: Address
    sequence: int
    flags: int
    payload: bytes


def parse_segment(frame: int, octets: bytes) -> Segment | None:
    """The TCP segment in an Ethernet frame, tagged or not, if there is one.

    Over IPv6 it has to follow the IPv6 header at once: neither end sends extension headers.
    """
    packet = octets[18:] if octets[12:14] == _TAGGED else octets[14:]
    ethertype = octets[len(octets) - len(packet) - 2 :][:2]
    if ethertype == _IPV4 and len(packet) >= 20 and packet[9] == _TCP:
        header, end = 4 * (packet[0] & 0xF), int.from_bytes(packet[2:4], "big")
        fragment = bool(int.from_bytes(packet[6:8], "big") & 0x3FFF)
        hosts = [str(ipaddress.IPv4Address(packet[at : at + 4])) for at in (12, 16)]
    elif ethertype == _IPV6 and len(packet) > 40 and (packet[6] == _TCP or packet[6:41:34] == _TCP_FRAGMENT):
        header, end = 40, 40 + int.from_bytes(packet[4:6], "big")
        fragment = packet[6] != _TCP
        hosts = [str(ipaddress.IPv6Address(packet[at : at + 16])) for at in (8, 24)]
    else:
        return None
    if fragment:
        raise CaptureError(f"frame {frame} is an IP fragment")
    source, destination, sequence = struct.unpack_from(">HHI", packet, header)
    payload = packet[header + 4 * (packet[header + 12] >> 4) : end]
    return Segment(
        frame,
        Address(hosts[0], source),
        Address(hosts[1], destination),
        sequence,
        packet[header + 13],
        payload,
    )


class Placed(NamedTuple):
    """Where the payload of a segment stands in its stream."""

    offset: int
    octets: int
    frame: int


@dataclass
class Stream:
    """One direction of a TCP connection, up to 4 GiB."""

    source: Address
    destination: Address
    first: int
    """Sequence number of its first octet."""
    octets: bytearray = field(default_factory=bytearray)
    segments: list[Placed] = field(default_factory=list)
    """All segments with payload, retransmissions too, in order of capture."""
    finished: bool = False
    reset: bool = False
    _waiting: dict[int, Segment] = field(default_factory=dict)

    def add(self, segment: Segment) -> None:
        """Take one segment; what is out of order waits for the gap to close."""
        self.finished |= bool(segment.flags & _FIN)
        self.reset |= bool(segment.flags & _RST)
        if not segment.payload:
            return
        offset = (segment.sequence - self.first) % (1 << 32)
        self.segments.append(Placed(offset, len(segment.payload), segment.frame))
        self._waiting[offset] = max(segment, self._waiting.get(offset, segment), key=lambda s: len(s.payload))
        while (ready := next((at for at in self._waiting if at <= len(self.octets)), None)) is not None:
            self._append(ready, self._waiting.pop(ready))

    def _append(self, offset: int, segment: Segment) -> None:
        known = self.octets[offset : offset + len(segment.payload)]
        if known != segment.payload[: len(known)]:
            raise CaptureError(f"frame {segment.frame} retransmits other octets than were sent before")
        self.octets += segment.payload[len(known) :]

    @property
    def gap(self) -> str:
        """Why the stream is incomplete; empty if it is not."""
        if not self._waiting:
            return ""
        return f"{self.source} to {self.destination}: octets from {len(self.octets)} on are missing"


def streams(path: Path) -> dict[tuple[Address, Address], Stream]:
    """Both directions of every TCP connection of which the SYN was captured."""
    found: dict[tuple[Address, Address], Stream] = {}
    for frame, octets in read_pcapng(path):
        segment = parse_segment(frame, octets)
        if segment is None:
            continue
        key = (segment.source, segment.destination)
        if segment.flags & _SYN:
            first = (segment.sequence + 1) % (1 << 32)
            if key not in found or found[key].first != first:
                found[key] = Stream(*key, first)
        elif key in found:
            found[key].add(segment)
    return found


@dataclass
class Direction:
    """One direction of an MPA connection."""

    stream: Stream
    startup: mpa.StartupFrame
    startup_octets: int
    markers: bool
    """Whether its FPDUs carry Markers: what the other direction's startup frame asked for."""
    crc: bool
    fpdus: list[mpa.Fpdu] = field(default_factory=list)

    def walk(self) -> None:
        """Find and verify every FPDU; nothing else may be in the stream (RDMAP-6.1-01)."""
        reader = mpa.FpduReader(self.markers, self.crc)
        reader.feed(memoryview(self.stream.octets)[self.startup_octets :])
        try:
            while (fpdu := reader.read()) is not None:
                self.fpdus.append(fpdu)
                ddp.parse(fpdu.ulpdu)
        except ConnectionFailed as failure:
            raise CaptureError(f"from {self.stream.source}: {failure.code}: {failure}") from failure
        if reader.incomplete_octets:
            raise CaptureError(
                f"from {self.stream.source}: {reader.incomplete_octets} octets after the last FPDU"
            )

    def octets_of(self, fpdu: mpa.Fpdu) -> bytes:
        """The FPDU as it was on the wire."""
        start = self.startup_octets + fpdu.start
        return bytes(self.stream.octets[start : start + fpdu.octets])

    def unaligned_frames(self) -> list[int]:
        """Frames whose payload does not begin with an FPDU, its leading Marker included (MPA-A.1-01)."""
        starts = {self.startup_octets + fpdu.start for fpdu in self.fpdus}
        return [
            at.frame
            for at in self.stream.segments
            if at.offset >= self.startup_octets and at.offset not in starts
        ]

    def completion_frames(self) -> list[int]:
        """For each FPDU the frame with which the stream had been captured up to the FPDU's end."""
        placed = sorted(self.stream.segments)
        offsets = [at.offset for at in placed]
        complete_at = list(itertools.accumulate((at.frame for at in placed), max))
        ends = (self.startup_octets + fpdu.start + fpdu.octets for fpdu in self.fpdus)
        return [complete_at[bisect.bisect_left(offsets, end) - 1] for end in ends]


@dataclass
class Connection:
    """An MPA connection as captured, from the startup to the end."""

    initiator: Direction
    responder: Direction

    @property
    def directions(self) -> tuple[Direction, Direction]:
        """Initiator to Responder, then Responder to Initiator."""
        return self.initiator, self.responder


def connections(path: Path) -> list[Connection]:
    """Every accepted MPA connection in the capture, with its FPDUs found and verified."""
    found = []
    by_key = streams(path)
    for (source, destination), forward in by_key.items():
        backward = by_key.get((destination, source))
        if backward is None or not forward.octets.startswith(mpa.REQUEST_KEY):
            continue
        for stream in (forward, backward):
            if stream.gap:
                raise CaptureError(stream.gap)
        request = mpa.parse_startup(bytes(forward.octets[:532]), mpa.REQUEST_KEY)
        reply = mpa.parse_startup(bytes(backward.octets[:532]), mpa.REPLY_KEY)
        if request is None or reply is None or reply[0].rejected:
            continue
        crc = request[0].crc or reply[0].crc  # MPA-7.1.1-08
        connection = Connection(
            Direction(forward, *request, markers=reply[0].markers, crc=crc),  # MPA-7.1.1-05
            Direction(backward, *reply, markers=request[0].markers, crc=crc),
        )
        for direction in connection.directions:
            direction.walk()
        found.append(connection)
    return found
