"""What a hostile peer sends in Full Operation: octets built from honest parts with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from . import ddp, rdmap
from .errors import TerminateControl
from .exchange import Advertisement
from .peer import Endpoint

WRITE_OCTETS: Final = 64
"""Payload of an attacking RDMA Write."""
SEND_OCTETS: Final = 16
"""Payload of an attacking Send that fits its buffer."""
SECOND_MSN: Final = ddp.FIRST_MSN + 1
"""MSN of the message after our advertisement."""


class Then(Enum):
    """What follows the octets."""

    HOLD = auto()
    FIN = auto()
    RESET = auto()


@dataclass(frozen=True)
class Attack:
    """What to send."""

    octets: bytes
    ulpdu: bytes = b""
    """The ULPDU in error, which the Terminate has to quote."""
    then: Then = Then.HOLD


class Stage:
    """A connection on which to attack."""

    def __init__(self, endpoint: Endpoint, region: ddp.Region) -> None:
        self.endpoint = endpoint
        self.region = region
        self.target: Advertisement | None = None
        """The other end's buffer, once advertised."""

    def handle(self, event: rdmap.Event) -> None:
        """Take note of the advertisement; the rest of an honest exchange may go on."""
        if self.target is None and isinstance(event, rdmap.Sent):
            self.target = Advertisement.parse(event.message)

    def buffer(self) -> Advertisement:
        """The other end's buffer; a scenario that attacks first has to do without one."""
        return self.target or Advertisement(0, 0, 0)

    def frame(self, ulpdu: bytes) -> bytes:
        """The FPDU for ``ulpdu``."""
        return self.endpoint.writer.frame(ulpdu)


Act = Callable[[Stage], Attack]


def _write_ulpdu(at: Advertisement, octets: int = WRITE_OCTETS) -> bytes:
    """A good RDMA Write at the start of the other end's buffer."""
    return ddp.Tagged(True, rdmap.control(rdmap.Opcode.WRITE), at.stag, at.to).encode() + b"\xbd" * octets


def _send_ulpdu(msn: int, message: bytes) -> bytes:
    """A good Send."""
    return (
        ddp.Untagged(True, rdmap.control(rdmap.Opcode.SEND) << 32, rdmap.QN_SEND, msn, 0).encode() + message
    )


def write(
    stag: Callable[[Advertisement], int] = lambda at: at.stag,
    to: Callable[[Advertisement], int] = lambda at: at.to,
    version: int = ddp.VERSION,
    control: int = rdmap.control(rdmap.Opcode.WRITE),
) -> Act:
    """An RDMA Write with a header field of choice."""

    def act(stage: Stage) -> Attack:
        at = stage.buffer()
        ulpdu = ddp.Tagged(True, control, stag(at), to(at), version).encode() + b"\xbd" * WRITE_OCTETS
        return Attack(stage.frame(ulpdu), ulpdu)

    return act


def send(
    qn: int = rdmap.QN_SEND,
    msn: int = SECOND_MSN,
    mo: int = 0,
    octets: int = SEND_OCTETS,
    version: int = ddp.VERSION,
    control: int = rdmap.control(rdmap.Opcode.SEND),
) -> Act:
    """A Send with a header field of choice."""

    def act(stage: Stage) -> Attack:
        ulpdu = ddp.Untagged(True, control << 32, qn, msn, mo, version).encode() + b"\xbd" * octets
        return Attack(stage.frame(ulpdu), ulpdu)

    return act


def third_send(stage: Stage) -> Attack:
    """A done, and one Send more than buffers were posted for."""
    done = _send_ulpdu(SECOND_MSN, Advertisement(0, 0, 0).encode())
    extra = _send_ulpdu(SECOND_MSN + 1, Advertisement(0, 0, 0).encode())
    return Attack(stage.frame(done) + stage.frame(extra), extra)


def bad_crc(stage: Stage) -> Attack:
    """An FPDU whose CRC field is off by one bit, and a good one after it that must not be taken
    (MPA-8-09)."""
    bad = stage.frame(_write_ulpdu(stage.buffer()))
    good = stage.frame(_write_ulpdu(stage.buffer()))
    return Attack(bad[:-1] + bytes([bad[-1] ^ 1]) + good)


def bad_marker(stage: Stage) -> Attack:
    """An FPDU long enough to hold a Marker, whose FPDUPTR points four octets before ULPDU_Length; the CRC
    is good."""
    stage.endpoint.writer.marker_error = 4
    return Attack(stage.frame(_write_ulpdu(stage.buffer(), octets=600)))


def ulpdu_of(octets: int) -> Act:
    """An FPDU with a good CRC around a ULPDU of this length, the head of an RDMA Write as far as it fits."""

    def act(stage: Stage) -> Attack:
        ulpdu = _write_ulpdu(stage.buffer(), max(octets - ddp.TAGGED_HEADER_OCTETS, 0))[:octets]
        return Attack(stage.frame(ulpdu), ulpdu)

    return act


def half_fpdu(then: Then) -> Act:
    """The first half of a good FPDU."""

    def act(stage: Stage) -> Attack:
        fpdu = stage.frame(_write_ulpdu(stage.buffer()))
        return Attack(fpdu[: len(fpdu) // 2], then=then)

    return act


def early_fin(_stage: Stage) -> Attack:
    """FIN on an FPDU boundary, before our done."""
    return Attack(b"", then=Then.FIN)


def send_terminate(stage: Stage) -> Attack:
    """A Terminate about nothing the other end did."""
    terminate = rdmap.Terminate(
        TerminateControl(1, 1, 1), 0x40, _write_ulpdu(Advertisement(0, 0, 0), octets=0)
    )
    return Attack(stage.frame(terminate.encode()))
