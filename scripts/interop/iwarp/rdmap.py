"""RDMAP: control octet, Write, Send and Terminate (RFC 5040), on a DDP sink."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from . import ddp
from .errors import LAYER_DDP, LAYER_RDMAP, ConnectionFailed, RdmapError, SenderRule, TerminateControl

VERSION: Final = 1
"""RV (RDMAP-4.1-07)."""
QN_SEND, QN_READ_REQUEST, QN_TERMINATE = 0, 1, 2
"""RDMAP-3.1-01."""

TERMINATE_BUFFER_OCTETS: Final = 4 + 2 + ddp.UNTAGGED_HEADER_OCTETS + 28
"""Longest Terminate: control, segment length, DDP header, Read Request header (RDMAP-4.8-01)."""

_M, _D, _R = 0x8000, 0x4000, 0x2000


READ_REQUEST_OCTETS: Final = 28
"""Sink STag and TO, size, source STag and TO (RDMAP-4.4-01)."""


class Opcode(IntEnum):
    """RDMAP-4.1-05, as far as this endpoint uses them: Reads only as ready-to-receive indications."""

    WRITE = 0
    READ_REQUEST = 1
    READ_RESPONSE = 2
    SEND = 3
    TERMINATE = 7


class OperationCode:
    """Error codes of type 2, Remote Operation Error (RDMAP-4.8-03)."""

    TYPE = 2
    VERSION, OPCODE = 5, 6


_CARRIAGE: Final = {
    Opcode.WRITE: None,
    Opcode.READ_REQUEST: QN_READ_REQUEST,
    Opcode.READ_RESPONSE: None,
    Opcode.SEND: QN_SEND,
    Opcode.TERMINATE: QN_TERMINATE,
}
"""The queue each opcode travels on; ``None`` for Tagged (RDMAP-4.1-04, RDMAP-3.1-01)."""


def control(opcode: int, version: int = VERSION) -> int:
    """The control octet: RV, two reserved bits, opcode (RDMAP-4.1-02)."""
    return version << 6 | opcode


def write(message: bytes | memoryview, stag: int, to: int, mulpdu: int) -> Iterator[bytes]:
    """ULPDUs of an RDMA Write (RDMAP-5.1-01)."""
    return ddp.segment_tagged(message, control(Opcode.WRITE), stag, to, mulpdu)


def send(message: bytes, msn: int, mulpdu: int) -> Iterator[bytes]:
    """ULPDUs of a Send (RDMAP-5.3-01); the Invalidate STag field is zero (RDMAP-4.1-09)."""
    return ddp.segment_untagged(message, control(Opcode.SEND) << 32, QN_SEND, msn, mulpdu)


def read_request(stag: int) -> bytes:
    """The ULPDU of a Read Request of zero length (MPAv2-9.2-10); the STags are not checked (RDMAP-5.2.1-10)."""
    header = ddp.Untagged(True, control(Opcode.READ_REQUEST) << 32, QN_READ_REQUEST, ddp.FIRST_MSN, 0)
    return header.encode() + struct.pack(">IQIIQ", stag, 0, 0, stag, 0)


def read_response(request: bytes) -> bytes:
    """The ULPDU that answers a Read Request of zero length (RDMAP-5.2.2-01)."""
    stag, to, size, _, _ = struct.unpack(">IQIIQ", request)
    if size:
        raise SenderRule("MPAv2-9.2-10", f"a Read of {size} octets as ready-to-receive indication")
    return ddp.Tagged(True, control(Opcode.READ_RESPONSE), stag, to).encode()


def in_version(ulpdu: bytes, version: int) -> bytes:
    """``ulpdu`` with other versions in DV and RV (RDMAC-C.1-02)."""
    return bytes((ulpdu[0] & ~3 | version, ulpdu[1] & 0x3F | version << 6)) + ulpdu[2:]


@dataclass(frozen=True)
class Terminate:
    """A Terminate message (RFC 5040 §4.8)."""

    control: TerminateControl
    segment_length: int | None = None
    """Octets of the DDP segment in error, its header included; ``None`` when M is clear."""
    ddp_header: bytes = b""
    """Header of the segment in error; empty when D is clear."""
    read_request_header: bytes = b""
    """Empty when R is clear."""

    def encode(self) -> bytes:
        """The ULPDU; fields whose flag is clear are left out (A-18)."""
        layer, error_type, error_code = self.control
        flags = (
            (_M if self.segment_length is not None else 0)
            | (_D if self.ddp_header else 0)
            | (_R if self.read_request_header else 0)
        )
        message = struct.pack(">BBH", layer << 4 | error_type, error_code, flags)
        if self.segment_length is not None:
            message += self.segment_length.to_bytes(2, "big")
        message += self.ddp_header + self.read_request_header
        header = ddp.Untagged(True, control(Opcode.TERMINATE) << 32, QN_TERMINATE, ddp.FIRST_MSN, 0)
        return header.encode() + message

    @classmethod
    def parse(cls, message: bytes) -> Terminate:
        """The content of a Terminate; trailing octets are ignored (A-18, RDMAP-4.8-05..08)."""
        if len(message) < 4:
            raise SenderRule("RDMAP-4.8-01", f"a Terminate of {len(message)} octets")
        first, error_code, flags = struct.unpack_from(">BBH", message)
        at, segment_length, header, read_request = 4, None, b"", b""
        if flags & _M:
            segment_length = int.from_bytes(message[at : at + 2], "big")
        if flags & (_M | _D):
            at += 2
        if flags & _D:
            octets = ddp.header_octets(message[at : at + 1] or b"\0")
            header = message[at : at + octets]
            at += octets
            if len(header) != octets:
                raise SenderRule("RDMAP-4.8-07", "D is set in a Terminate that ends inside the DDP header")
        if flags & _R:
            read_request = message[at : at + 28]
            if len(read_request) != 28:
                raise SenderRule("RDMAP-4.8-08", "R is set in a Terminate that ends inside the Read Request header")
        return cls(TerminateControl(first >> 4, first & 0xF, error_code), segment_length, header, read_request)

    @classmethod
    def about(cls, failure: ConnectionFailed, ulpdu: bytes) -> Terminate | None:
        """The Terminate that answers ``failure`` on the segment ``ulpdu``, with the flags of figure 10."""
        if failure.terminate is None:
            return None
        layer, error_type, _ = failure.terminate
        with_header = layer in (LAYER_RDMAP, LAYER_DDP) and error_type != ddp.Type.LOCAL
        if not with_header:
            return cls(failure.terminate)
        return cls(failure.terminate, len(ulpdu), ulpdu[: ddp.header_octets(ulpdu)])


class RemoteTerminate(ConnectionFailed):
    """The peer sent a Terminate (RDMAP-5.4-03)."""

    def __init__(self, received: Terminate) -> None:
        super().__init__(f"the peer sent a Terminate {received.control}")
        self.code = f"terminated:{received.control}"
        self.received = received


@dataclass(frozen=True)
class Sent:
    """A Send that was Delivered."""

    message: bytes


@dataclass(frozen=True)
class Written:
    """The last segment of an RDMA Write was placed; for the judge only, the ULP is not told (RDMAP-5.1-02)."""

    header: ddp.Tagged


@dataclass(frozen=True)
class Asked:
    """A Read Request."""

    message: bytes


@dataclass(frozen=True)
class Answered:
    """The last segment of a Read Response was placed."""


@dataclass(frozen=True)
class Indicated:
    """The peer is ready to receive: its first FPDU said nothing else (RFC 6581 §9.2)."""


Event = Sent | Written | Asked | Answered | Indicated | Terminate


class Receiver:
    """The receiving half of an RDMAP stream."""

    def __init__(self, version: int = VERSION) -> None:
        self.version = version
        """DV and RV that every segment has to have."""
        self.sink = ddp.Sink()
        self.sink.version = version
        self.sink.queues = {QN_SEND: ddp.Queue(), QN_READ_REQUEST: ddp.Queue(), QN_TERMINATE: ddp.Queue()}
        self.sink.queues[QN_TERMINATE].posted.append(TERMINATE_BUFFER_OCTETS)  # RDMAP-5.4-02
        self.sink.final_qn = QN_TERMINATE  # RDMAP-5.4-04
        self._terminated = False

    def post_receive(self, octets: int) -> None:
        """Post a buffer for one Send."""
        self.sink.queues[QN_SEND].posted.append(octets)

    def register(self, stag: int, region: ddp.Region) -> None:
        """Let the peer write into ``region`` by ``stag``."""
        self.sink.regions[stag] = region

    def receive(self, ulpdu: bytes) -> Event | None:
        """Validate and place one ULPDU; the event it completes, if any."""
        if self._terminated:
            raise SenderRule("RDMAP-5.4-04", "a segment after the Terminate")
        header, payload = ddp.parse(ulpdu)
        delivery = self.sink.receive(header, payload)
        opcode = _judge_control(header, self.version)
        if delivery is None:
            return None
        if isinstance(header, ddp.Tagged):
            return Written(header) if opcode is Opcode.WRITE else Answered()
        if opcode is Opcode.SEND:
            return Sent(delivery.message)
        if opcode is Opcode.READ_REQUEST:
            return Asked(delivery.message)
        self._terminated = True
        return Terminate.parse(delivery.message)


def _judge_control(header: ddp.Header, wanted: int) -> Opcode:
    """RV, opcode, and that the opcode travels as RDMAP-4.1-04 and RDMAP-3.1-01 say."""
    if isinstance(header, ddp.Tagged):
        octet, qn, where = header.rsvdulp, None, "a Tagged segment"
    else:
        octet, qn, where = header.rsvdulp >> 32, header.qn, f"QN {header.qn}"
    version, number = octet >> 6, octet & 0xF  # RDMAP-4.1-08: reserved bits are ignored
    if version != wanted:  # RDMAP-7.2-03
        raise RdmapError(OperationCode.TYPE, OperationCode.VERSION, f"RV {version}")
    if number not in _CARRIAGE or _CARRIAGE[Opcode(number)] != qn:  # RDMAP-7.2-02
        raise RdmapError(OperationCode.TYPE, OperationCode.OPCODE, f"opcode {number} on {where}")
    return Opcode(number)
