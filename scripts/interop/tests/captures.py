"""Builds captures: one MPA connection between two addresses, segment by segment, as pcapng."""

from __future__ import annotations

import ipaddress
import os
import shutil
import struct
import unittest
from dataclasses import dataclass, field
from pathlib import Path

from iwarp import mpa, rdmap

needs_tshark = unittest.skipIf(
    shutil.which("tshark") is None or bool(os.environ.get("WARPLINE_QUICK")),
    "tshark is not installed, or scripts/test --quick leaves out what starts it a hundred times",
)

INITIATOR, RESPONDER = ("198.18.0.1", 40000), ("198.18.0.2", 18515)
INITIATOR_V6, RESPONDER_V6 = ("fd00::1", 40000), ("fd00::2", 18515)
SYN, ACK, FIN = 0x02, 0x10, 0x01


def _sum16(octets: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    padded = octets + bytes(len(octets) % 2)
    total = sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet_frame(
    source: tuple[str, int],
    destination: tuple[str, int],
    sequence: int,
    flags: int,
    payload: bytes,
    acknowledgment: int = 0,
) -> bytearray:
    """A frame with good checksums."""
    hosts = b"".join(ipaddress.ip_address(host).packed for host, _ in (source, destination))
    ports = source[1], destination[1]
    header = struct.pack(
        ">HHIIBBHHH", *ports, sequence % 2**32, acknowledgment % 2**32, 5 << 4, flags, 65535, 0, 0
    )
    pseudo = hosts + struct.pack(">HH", 6, len(header) + len(payload))
    checksum = struct.pack(">H", _sum16(pseudo + header + payload))
    tcp = header[:16] + checksum + header[18:] + payload
    if len(hosts) == 32:
        return bytearray(
            bytes(12) + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64) + hosts + tcp
        )
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + hosts
    ip = ip[:10] + struct.pack(">H", _sum16(ip)) + ip[12:]
    return bytearray(bytes(12) + b"\x08\x00" + ip + tcp)


@dataclass
class End:
    """One end's stream."""

    address: tuple[str, int]
    peer: tuple[str, int]
    sequence: int
    stream: bytes = b""
    sent: int = 0


@dataclass
class Session:
    """Frames of one connection, to be altered before they are written."""

    markers: bool
    ipv6: bool = False
    revision: int = 1
    private_data: bytes = b""
    enhanced: mpa.EnhancedData | None = None
    """Of both startup frames."""
    frames: list[bytearray] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The Initiator's sequence numbers wrap within the session.
        initiator, responder = (INITIATOR_V6, RESPONDER_V6) if self.ipv6 else (INITIATOR, RESPONDER)
        self.initiator = End(initiator, responder, 2**32 - 3000)
        self.responder = End(responder, initiator, 77)
        for end in (self.initiator, self.responder):
            self.frames.append(ethernet_frame(end.address, end.peer, end.sequence - 1, SYN, b""))
        for end, key in ((self.initiator, mpa.REQUEST_KEY), (self.responder, mpa.REPLY_KEY)):
            frame = mpa.StartupFrame(
                key, self.markers, True, False, self.revision, self.private_data, self.enhanced
            )
            self.send(end, frame.encode())

    def segment(self, end: End, offset: int, payload: bytes) -> bytearray:
        """A segment of ``end``'s stream; it acknowledges what the other end has sent by now."""
        return self._frame(end, end.sequence + offset, ACK, payload)

    def _frame(self, end: End, sequence: int, flags: int, payload: bytes) -> bytearray:
        other = self.responder if end is self.initiator else self.initiator
        return ethernet_frame(end.address, end.peer, sequence, flags, payload, other.sequence + other.sent)

    def send(self, end: End, payload: bytes) -> None:
        """The next segment of ``end``'s stream."""
        self.frames.append(self.segment(end, end.sent, payload))
        end.sent += len(payload)
        end.stream += payload

    def write_file(self, mulpdu: int = 1430, aligned: bool = True) -> None:
        """Both ends send one message and 40 000 octets by RDMA Write, then FIN."""
        for end in (self.initiator, self.responder):
            writer = mpa.FpduWriter(self.markers, crc=True)
            ulpdus = [*rdmap.send(bytes(16), 1, mulpdu), *rdmap.write(bytes(40_000), 0x1234, 0x10000, mulpdu)]
            fpdus = [writer.frame(ulpdu) for ulpdu in ulpdus]
            stream = b"".join(fpdus)
            pieces = fpdus if aligned else [stream[at : at + 999] for at in range(0, len(stream), 999)]
            for piece in pieces:
                self.send(end, piece)
        for end in (self.initiator, self.responder):
            self.frames.append(self._frame(end, end.sequence + end.sent, ACK | FIN, b""))

    def tag(self, vlan: int) -> None:
        """Puts all frames so far into a VLAN (IEEE 802.1Q)."""
        for frame in self.frames:
            frame[12:12] = struct.pack(">HH", 0x8100, vlan)

    def write(self, path: Path) -> None:
        """As a pcapng file."""
        blocks = [struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)]
        blocks.append(struct.pack("<IIHHII", 1, 20, 1, 0, 0, 20))
        for number, frame in enumerate(self.frames):
            padded = bytes(frame) + bytes(-len(frame) % 4)
            length = 32 + len(padded)
            head = struct.pack("<IIIIIII", 6, length, 0, 0, number, len(frame), len(frame))
            blocks.append(head + padded + struct.pack("<I", length))
        path.write_bytes(b"".join(blocks))
