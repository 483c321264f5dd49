"""RDMAP: the messages of RFC 5040 and of RFC 7306, on a DDP sink."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from . import ddp
from .errors import LAYER_DDP, LAYER_RDMAP, ConnectionFailed, RdmapError, SenderRule, TerminateControl

VERSION: Final = 1
"""RV (RDMAP-4.1-07)."""
QN_SEND, QN_READ_REQUEST, QN_TERMINATE, QN_ATOMIC_RESPONSE = 0, 1, 2, 3
"""RDMAP-3.1-01, RDMAPX-4-01."""

TERMINATE_BUFFER_OCTETS: Final = 4 + 2 + ddp.UNTAGGED_HEADER_OCTETS + 28
"""Longest Terminate: control, segment length, DDP header, Read Request header (RDMAP-4.8-01)."""

_M, _D, _R = 0x8000, 0x4000, 0x2000


READ_REQUEST_OCTETS: Final = 28
"""Sink STag and TO, size, source STag and TO (RDMAP-4.4-01)."""
ATOMIC_REQUEST_OCTETS, ATOMIC_RESPONSE_OCTETS, IMMEDIATE_OCTETS = 52, 12, 8
"""RDMAPX-5-03 (A-26), RDMAPX-6-01."""


class Opcode(IntEnum):
    """RDMAP-4.1-05, RDMAPX-4-01."""

    WRITE = 0
    READ_REQUEST = 1
    READ_RESPONSE = 2
    SEND = 3
    SEND_INVALIDATE = 4
    SEND_SOLICITED = 5
    SEND_SOLICITED_INVALIDATE = 6
    TERMINATE = 7
    IMMEDIATE = 8
    IMMEDIATE_SOLICITED = 9
    ATOMIC_REQUEST = 10
    ATOMIC_RESPONSE = 11

    @property
    def invalidates(self) -> bool:
        """Whether the message names an STag to invalidate."""
        return self in (Opcode.SEND_INVALIDATE, Opcode.SEND_SOLICITED_INVALIDATE)

    @property
    def solicits(self) -> bool:
        """Whether the message asks for an event."""
        return self in (Opcode.SEND_SOLICITED, Opcode.SEND_SOLICITED_INVALIDATE, Opcode.IMMEDIATE_SOLICITED)


IN_EXCHANGE: Final = frozenset(
    (Opcode.WRITE, Opcode.READ_REQUEST, Opcode.READ_RESPONSE, Opcode.SEND, Opcode.TERMINATE)
)
"""What a file exchange knows: Reads only as ready-to-receive indications."""


class OperationCode:
    """Error codes of type 2, Remote Operation Error (RDMAP-4.8-03)."""

    TYPE = 2
    VERSION, OPCODE, CATASTROPHIC_STREAM = 5, 6, 7


class ProtectionCode:
    """Error codes of type 1, Remote Protection Error (RDMAP-4.8-03)."""

    TYPE = 1
    INVALID_STAG, BOUNDS, RIGHTS, NOT_ASSOCIATED, TO_WRAP, CANNOT_INVALIDATE = 0, 1, 2, 3, 4, 9


_CARRIAGE: Final = {
    Opcode.WRITE: None,
    Opcode.READ_REQUEST: QN_READ_REQUEST,
    Opcode.READ_RESPONSE: None,
    Opcode.SEND: QN_SEND,
    Opcode.SEND_INVALIDATE: QN_SEND,
    Opcode.SEND_SOLICITED: QN_SEND,
    Opcode.SEND_SOLICITED_INVALIDATE: QN_SEND,
    Opcode.TERMINATE: QN_TERMINATE,
    Opcode.IMMEDIATE: QN_SEND,
    Opcode.IMMEDIATE_SOLICITED: QN_SEND,
    Opcode.ATOMIC_REQUEST: QN_READ_REQUEST,
    Opcode.ATOMIC_RESPONSE: QN_ATOMIC_RESPONSE,
}
"""The queue each opcode travels on; ``None`` for Tagged (RDMAP-4.1-04, RDMAP-3.1-01)."""


def control(opcode: int, version: int = VERSION) -> int:
    """The control octet: RV, two reserved bits, opcode (RDMAP-4.1-02)."""
    return version << 6 | opcode


def write(message: bytes | memoryview, stag: int, to: int, mulpdu: int) -> Iterator[bytes]:
    """ULPDUs of an RDMA Write (RDMAP-5.1-01)."""
    return ddp.segment_tagged(message, control(Opcode.WRITE), stag, to, mulpdu)


def send(
    message: bytes, msn: int, mulpdu: int, invalidate: int | None = None, solicited: bool = False
) -> Iterator[bytes]:
    """ULPDUs of a Send (RDMAP-5.3-01); the Invalidate STag field is zero where none belongs
    (RDMAP-4.1-09)."""
    kinds = (
        (Opcode.SEND, Opcode.SEND_SOLICITED),
        (Opcode.SEND_INVALIDATE, Opcode.SEND_SOLICITED_INVALIDATE),
    )
    opcode = kinds[invalidate is not None][solicited]
    return ddp.segment_untagged(message, control(opcode) << 32 | (invalidate or 0), QN_SEND, msn, mulpdu)


def untagged(opcode: Opcode, msn: int, message: bytes) -> bytes:
    """The ULPDU of a message of one segment on the queue of its opcode."""
    qn = _CARRIAGE[opcode]
    assert qn is not None
    return ddp.Untagged(True, control(opcode) << 32, qn, msn, 0).encode() + message


class ReadRequest(NamedTuple):
    """The content of a Read Request (RDMAP-4.4-01)."""

    sink_stag: int
    sink_to: int
    size: int
    source_stag: int
    source_to: int

    def encode(self) -> bytes:
        """Its 28 octets."""
        return struct.pack(">IQIIQ", *self)

    @classmethod
    def parse(cls, message: bytes) -> ReadRequest:
        """From the message."""
        if len(message) != READ_REQUEST_OCTETS:
            raise SenderRule("RDMAP-4.4-01", f"a Read Request of {len(message)} octets")
        return cls(*struct.unpack(">IQIIQ", message))


FETCH_ADD: Final = 0
COMPARE_SWAP: Final = 2
"""Atomic Operation Codes (RFC 7306 §5.2.1)."""


class AtomicRequest(NamedTuple):
    """The content of an Atomic Request (RFC 7306 figure 4); the names are those of both operations."""

    operation: int
    identifier: int
    stag: int
    to: int
    data: int
    mask: int
    compare: int = 0
    compare_mask: int = 2**64 - 1

    def encode(self) -> bytes:
        """Its 52 octets."""
        return struct.pack(">IIIQQQQQ", *self)

    @classmethod
    def parse(cls, message: bytes) -> AtomicRequest:
        """From the message."""
        if len(message) != ATOMIC_REQUEST_OCTETS:
            raise SenderRule("RDMAPX-5-03", f"an Atomic Request of {len(message)} octets")
        request = cls(*struct.unpack(">IIIQQQQQ", message))
        if request.operation not in (FETCH_ADD, COMPARE_SWAP):
            raise SenderRule("RDMAPX-5-01", f"Atomic Operation Code and reserved bits {request.operation:#x}")
        return request

    def result(self, value: int) -> int:
        """What becomes of ``value``, bit by bit as RFC 7306 §5.1.1 and §5.1.2 spell it out."""
        if self.operation == COMPARE_SWAP:
            if (self.compare ^ value) & self.compare_mask:
                return value
            return value & ~self.mask | self.data & self.mask
        carry = added = 0
        for bit in range(64):
            both = carry + (value >> bit & 1) + (self.data >> bit & 1)
            added |= (both & 1) << bit
            carry = both >> 1 if not self.mask >> bit & 1 else 0
        return added


def read_request(stag: int) -> bytes:
    """The ULPDU of a Read Request of zero length (MPAv2-9.2-10); the STags are not checked
    (RDMAP-5.2.1-10)."""
    return untagged(Opcode.READ_REQUEST, ddp.FIRST_MSN, ReadRequest(stag, 0, 0, stag, 0).encode())


def read_response(request: bytes) -> bytes:
    """The ULPDU that answers a Read Request of zero length (RDMAP-5.2.2-01)."""
    asked = ReadRequest.parse(request)
    if asked.size:
        raise SenderRule("MPAv2-9.2-10", f"a Read of {asked.size} octets as ready-to-receive indication")
    return ddp.Tagged(True, control(Opcode.READ_RESPONSE), asked.sink_stag, asked.sink_to).encode()


def response(message: bytes, request: ReadRequest, mulpdu: int) -> Iterator[bytes]:
    """ULPDUs of the answer to a Read Request (RDMAP-5.2.2-01, RDMAP-4.4-02)."""
    return ddp.segment_tagged(
        message, control(Opcode.READ_RESPONSE), request.sink_stag, request.sink_to, mulpdu
    )


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
                raise SenderRule(
                    "RDMAP-4.8-08", "R is set in a Terminate that ends inside the Read Request header"
                )
        return cls(
            TerminateControl(first >> 4, first & 0xF, error_code), segment_length, header, read_request
        )

    @classmethod
    def about(cls, failure: ConnectionFailed, ulpdu: bytes) -> Terminate | None:
        """The Terminate that answers ``failure`` on the segment ``ulpdu``, with the headers of RFC 5040
        §7.1: that of a Read Request with every error of RDMAP, if it came whole (A-33)."""
        if failure.terminate is None:
            return None
        layer, error_type, _ = failure.terminate
        with_header = layer in (LAYER_RDMAP, LAYER_DDP) and error_type != ddp.Type.LOCAL
        if not with_header:
            return cls(failure.terminate)
        octets = ddp.header_octets(ulpdu)
        request = ulpdu[octets : octets + 28]
        read = ulpdu[1] & 0xF == Opcode.READ_REQUEST and ulpdu[6:10] == QN_READ_REQUEST.to_bytes(4)
        asked = layer == LAYER_RDMAP and read and len(request) == 28
        return cls(failure.terminate, len(ulpdu), ulpdu[:octets], request if asked else b"")


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
    invalidate: int | None = None
    solicited: bool = False


@dataclass(frozen=True)
class Immediate:
    """Immediate Data that was Delivered."""

    value: int
    solicited: bool


@dataclass(frozen=True)
class Written:
    """The last segment of an RDMA Write was placed; for the judge only, the ULP is not told
    (RDMAP-5.1-02)."""

    header: ddp.Tagged


@dataclass(frozen=True)
class Asked:
    """A Read Request."""

    message: bytes


@dataclass(frozen=True)
class AtomicAsked:
    """An Atomic Request."""

    message: bytes


@dataclass(frozen=True)
class Answered:
    """The last segment of a Read Response was placed."""

    header: ddp.Tagged


@dataclass(frozen=True)
class AtomicAnswered:
    """An Atomic Response."""

    identifier: int
    value: int


@dataclass(frozen=True)
class Indicated:
    """The peer is ready to receive: its first FPDU said nothing else (RFC 6581 §9.2)."""


Event = Sent | Immediate | Written | Asked | AtomicAsked | Answered | AtomicAnswered | Indicated | Terminate


class Receiver:
    """The receiving half of an RDMAP stream."""

    def __init__(self, version: int = VERSION, opcodes: frozenset[Opcode] = IN_EXCHANGE) -> None:
        self.version = version
        """DV and RV that every segment has to have."""
        self.opcodes = opcodes
        """What may come."""
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
        opcode = _judge_control(header, self.version, self.opcodes)
        if delivery is None:
            return None
        if isinstance(header, ddp.Tagged):
            return Written(header) if opcode is Opcode.WRITE else Answered(header)
        if opcode is Opcode.TERMINATE:
            self._terminated = True
            return Terminate.parse(delivery.message)
        return _untagged_event(header, opcode, delivery.message)


def _untagged_event(header: ddp.Untagged, opcode: Opcode, message: bytes) -> Event:
    """What a message on a queue of ours says."""
    stag = header.rsvdulp % (1 << 32)
    if stag and not opcode.invalidates:
        raise SenderRule(
            "RDMAP-4.1-09", f"Invalidate STag {stag:#010x} in a message that invalidates nothing"
        )
    if opcode is Opcode.READ_REQUEST:
        return Asked(message)
    if opcode is Opcode.ATOMIC_REQUEST:
        return AtomicAsked(message)
    if opcode is Opcode.ATOMIC_RESPONSE:
        if len(message) != ATOMIC_RESPONSE_OCTETS:
            raise SenderRule("RDMAPX-5-03", f"an Atomic Response of {len(message)} octets")
        return AtomicAnswered(*struct.unpack(">IQ", message))
    if opcode in (Opcode.IMMEDIATE, Opcode.IMMEDIATE_SOLICITED):
        if len(message) != IMMEDIATE_OCTETS:
            raise SenderRule("RDMAPX-6-01", f"Immediate Data of {len(message)} octets")
        return Immediate(int.from_bytes(message, "big"), opcode.solicits)
    return Sent(message, stag if opcode.invalidates else None, opcode.solicits)


def _judge_control(header: ddp.Header, wanted: int, opcodes: frozenset[Opcode]) -> Opcode:
    """RV, opcode, and that the opcode travels as RDMAP-4.1-04 and RDMAP-3.1-01 say."""
    if isinstance(header, ddp.Tagged):
        octet, qn, where = header.rsvdulp, None, "a Tagged segment"
    else:
        octet, qn, where = header.rsvdulp >> 32, header.qn, f"QN {header.qn}"
    version, number = octet >> 6, octet & 0xF  # RDMAP-4.1-08: reserved bits are ignored
    if version != wanted:  # RDMAP-7.2-03
        raise RdmapError(OperationCode.TYPE, OperationCode.VERSION, f"RV {version}")
    if number not in opcodes or _CARRIAGE[Opcode(number)] != qn:  # RDMAP-7.2-02
        raise RdmapError(OperationCode.TYPE, OperationCode.OPCODE, f"opcode {number} on {where}")
    return Opcode(number)
