"""The file exchange: each end writes a file into the other's buffer, both at the same time.

1. Each end registers a buffer and advertises it by a Send of 16 octets, big-endian: TO 8, STag 4, length 4.
   The Initiator goes first; the Responder follows once it has received one FPDU (MPA-7.1.2-15).
2. On the peer's advertisement each end writes its whole file into the peer's buffer, from its TO on, by RDMA
   Writes of up to 1 MiB, and then sends "done": TO 0, STag 0, length the octets written.
3. Who has sent its done and received the peer's closes: the Initiator by FIN at once, the Responder on seeing
   that FIN.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from . import ddp, rdmap
from .errors import ExchangeRule, TcpError
from .peer import Endpoint

MESSAGE_OCTETS: Final = 1 << 20
"""Longest RDMA Write."""

MESSAGE_LAYOUT: Final = struct.Struct(">QII")
"""TO, STag and length of an :class:`Advertisement`."""


class Advertisement(NamedTuple):
    """The exchange's only message: a buffer, or (with TO and STag 0) how much was written into the peer's."""

    to: int
    stag: int
    length: int

    def encode(self) -> bytes:
        """Its 16 octets."""
        return MESSAGE_LAYOUT.pack(*self)

    @classmethod
    def parse(cls, message: bytes) -> Advertisement:
        """From the 16 octets of a Send."""
        if len(message) != MESSAGE_LAYOUT.size:
            raise ExchangeRule(f"a Send of {len(message)} octets, not {MESSAGE_LAYOUT.size}")
        return cls(*MESSAGE_LAYOUT.unpack(message))


@dataclass(frozen=True)
class Result:
    """What one end can tell afterwards."""

    role: str
    sent_sha256: str
    received_sha256: str
    sent_octets: int
    received_octets: int
    octets_outside: int
    emss: int
    mulpdu: int
    markers_sent: bool
    markers_received: bool
    crc: bool
    fpdus_sent: int
    fpdus_received: int
    peer_private_data: str
    revision: int | None
    version: int
    """Of DDP and RDMAP."""
    peer_ird: int | None
    peer_ord: int | None
    indication: str
    """The kind of ready-to-receive indication that passed, or nothing."""
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class FileExchange:
    """One end of the exchange on an endpoint in Full Operation."""

    def __init__(self, endpoint: Endpoint, data: bytes, receive_octets: int) -> None:
        self.endpoint = endpoint
        self.data = data
        # Neither TO nor STag is a round number, so that taking one for zero shows.
        self.region = ddp.Region(secrets.randbits(47) | 1, receive_octets)
        self.stag = secrets.randbits(32) | 1
        self.theirs: Advertisement | None = None
        """The peer's buffer, once advertised."""
        self.received_octets: int | None = None
        """What the peer's done said, once it has come."""
        self._advertised = False
        endpoint.receiver.register(self.stag, self.region)
        endpoint.receiver.post_receive(MESSAGE_LAYOUT.size)
        endpoint.receiver.post_receive(MESSAGE_LAYOUT.size)

    def advertise(self) -> None:
        """Send our advertisement, our first message (MSN 1)."""
        ours = Advertisement(self.region.base, self.stag, self.region.octets)
        self.endpoint.post(rdmap.send(ours.encode(), self.endpoint.first_msn, self.endpoint.mulpdu))
        self._advertised = True

    def handle(self, event: rdmap.Event) -> None:
        """Take one event from the endpoint."""
        if not self._advertised:
            self.advertise()
        if isinstance(event, rdmap.Written):
            if self.received_octets is not None:
                raise ExchangeRule("an RDMA Write after the done")
        elif isinstance(event, rdmap.Sent):
            self._handle_message(Advertisement.parse(event.message))

    def _handle_message(self, message: Advertisement) -> None:
        if self.theirs is None:
            if message.length < len(self.data):
                raise ExchangeRule(
                    f"the peer's buffer has {message.length} octets, our file {len(self.data)}"
                )
            self.theirs = message
            self.endpoint.post(self._file_ulpdus(message))
            return
        if (message.to, message.stag) != (0, 0):
            raise ExchangeRule(f"a done with TO {message.to:#x}, STag {message.stag:#x}")
        if message.length != self.region.placed_octets:
            raise ExchangeRule(f"done says {message.length} octets, {self.region.placed_octets} were written")
        self.received_octets = message.length

    def _file_ulpdus(self, target: Advertisement) -> Iterator[bytes]:
        """The whole file as RDMA Writes, then the done (MSN 2)."""
        file = memoryview(self.data)
        for offset in range(0, len(file), MESSAGE_OCTETS):
            message = file[offset : offset + MESSAGE_OCTETS]
            yield from rdmap.write(message, target.stag, target.to + offset, self.endpoint.mulpdu)
        done = Advertisement(0, 0, len(file))
        yield from rdmap.send(done.encode(), self.endpoint.first_msn + 1, self.endpoint.mulpdu)

    @property
    def complete(self) -> bool:
        """Both dones have passed."""
        return self.theirs is not None and self.received_octets is not None and not self.endpoint.sending

    def run(self) -> Result:
        """The whole exchange, closing included."""
        endpoint = self.endpoint
        started = time.monotonic()
        mulpdu = endpoint.mulpdu
        if endpoint.initiator:
            self.advertise()
        while not self.complete:
            for event in endpoint.step():
                self.handle(event)
            if (
                endpoint.peer_closed
                and not self.complete
                and (endpoint.initiator or self.received_octets is None)
            ):
                raise TcpError(TcpError.CLOSED, "the peer closed before the exchange was over")
        seconds = time.monotonic() - started
        if endpoint.initiator:
            endpoint.stream.shut_down_sending()
        while not endpoint.peer_closed:
            for event in endpoint.step():
                self.handle(event)
        if not endpoint.initiator:
            endpoint.stream.shut_down_sending()
        received = self.received_octets or 0
        return Result(
            role="initiator" if endpoint.initiator else "responder",
            sent_sha256=hashlib.sha256(self.data).hexdigest(),
            received_sha256=hashlib.sha256(self.region.content(received)).hexdigest(),
            sent_octets=len(self.data),
            received_octets=received,
            octets_outside=self.region.octets_outside(),
            emss=endpoint.emss,
            mulpdu=mulpdu,
            markers_sent=endpoint.writer.markers,
            markers_received=endpoint.reader.markers,
            crc=endpoint.writer.crc,
            fpdus_sent=endpoint.fpdus_sent,
            fpdus_received=endpoint.fpdus_received,
            peer_private_data=endpoint.theirs.private_data.hex(),
            revision=endpoint.agreed.revision,
            version=endpoint.agreed.version,
            peer_ird=endpoint.theirs.enhanced.ird if endpoint.theirs.enhanced else None,
            peer_ord=endpoint.theirs.enhanced.ord if endpoint.theirs.enhanced else None,
            indication=(endpoint.indication.name or "").lower() if endpoint.indication else "",
            seconds=round(seconds, 3),
        )
