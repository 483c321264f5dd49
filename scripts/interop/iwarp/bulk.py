"""One end of a bulk transfer that is not what limits it: the benchmark's kernel end, and both ends of Linux
to Linux.

A transfer is a file in one direction. ``plain`` sends its octets as they are. Over MPA it is a file exchange
(see ``exchange``) in which the other file is empty; all FPDUs are framed, CRC included, before the clock
starts, and all that arrives is judged, FPDU by FPDU, after it stops.

The receiver's clock runs from the first octet of the stream to the last; the sender's from the first octet
handed over until the receiver has closed, which it does once it has everything.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import struct
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from . import ddp, rdmap
from .agreement import Options
from .errors import ExchangeRule, TcpError
from .exchange import MESSAGE_LAYOUT, MESSAGE_OCTETS, Advertisement
from .peer import Endpoint, Stream, start

CHUNK_OCTETS: Final = 1 << 20
_TOTAL_RETRANSMITS_AT: Final = 100
"""Offset of tcpi_total_retrans in struct tcp_info (linux/tcp.h)."""


@dataclass(frozen=True)
class Transfer:
    """What this end can tell afterwards."""

    octets: int
    sha256: str
    seconds: float
    """By this end's clock."""
    retransmitted_segments: int
    """By this end's TCP."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def retransmitted(sock: socket.socket) -> int:
    """Segments this end's TCP has sent again."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("=I", info, _TOTAL_RETRANSMITS_AT)[0])


def _receive_all(sock: socket.socket, expected: int) -> tuple[memoryview, float]:
    """Everything up to FIN, and the seconds from the first octet to the last; more than ``expected`` is
    refused."""
    buffer = memoryview(bytearray(expected + 1))
    octets, first, last = 0, 0.0, 0.0
    while count := sock.recv_into(buffer[octets : octets + CHUNK_OCTETS]):
        last = time.monotonic()
        first = first or last
        octets += count
        if octets > expected:
            raise ExchangeRule(f"more than {expected} octets")
    return buffer[:octets], last - first


def receive_plain(sock: socket.socket, octets: int) -> Transfer:
    """The receiving end of a plain transfer."""
    data, seconds = _receive_all(sock, octets)
    again = retransmitted(sock)
    sock.close()  # at once: the sender's clock runs until then
    return Transfer(len(data), hashlib.sha256(data).hexdigest(), seconds, again)


def send_plain(sock: socket.socket, data: bytes) -> Transfer:
    """The sending end of a plain transfer."""
    started = time.monotonic()
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    if sock.recv(1):
        raise TcpError(TcpError.CLOSED, "the receiver of a plain transfer says something")
    seconds = time.monotonic() - started
    return Transfer(len(data), hashlib.sha256(data).hexdigest(), seconds, retransmitted(sock))


def _full_operation(sock: socket.socket, seconds: float) -> tuple[Endpoint, Advertisement]:
    """MPA startup as the Responder, up to the Initiator's advertisement."""
    endpoint = start(Stream(sock, seconds), False, Options(revision=2))
    for _ in ("advertisement", "done"):
        endpoint.receiver.post_receive(MESSAGE_LAYOUT.size)
    while True:
        for event in endpoint.step():
            if isinstance(event, rdmap.Sent):
                sock.settimeout(seconds)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)  # as in a plain transfer
                return endpoint, Advertisement.parse(event.message)


def receive_file(sock: socket.socket, octets: int, seconds: float) -> Transfer:
    """The receiving end over MPA: the Responder, with nothing to send."""
    endpoint, _ = _full_operation(sock, seconds)
    region, stag = ddp.Region(secrets.randbits(47) | 1, octets), secrets.randbits(32) | 1
    endpoint.receiver.register(stag, region)
    ours = Advertisement(region.base, stag, octets).encode(), Advertisement(0, 0, 0).encode()
    ulpdus = (
        ulpdu for msn, message in enumerate(ours, 1) for ulpdu in rdmap.send(message, msn, endpoint.mulpdu)
    )
    sock.sendall(b"".join(map(endpoint.writer.frame, ulpdus)))
    # An FPDU of the shortest ULPDU there is, MULPDU 128, carries 114 octets in 136.
    stream, elapsed = _receive_all(sock, octets * 136 // 114 + 4096)
    again = retransmitted(sock)
    sock.close()
    endpoint.reader.feed(stream)
    done: Advertisement | None = None
    while (fpdu := endpoint.reader.read()) is not None:
        event = endpoint.receiver.receive(fpdu.ulpdu)
        if isinstance(event, rdmap.Sent):
            done = Advertisement.parse(event.message)
    if endpoint.reader.incomplete_octets or done is None or done != (0, 0, region.placed_octets):
        raise ExchangeRule(
            f"{region.placed_octets} octets placed, done says {done}, "
            f"{endpoint.reader.incomplete_octets} octets of an FPDU left"
        )
    if region.octets_outside():
        raise ExchangeRule(f"{region.octets_outside()} octets changed outside the buffer")
    return Transfer(done.length, hashlib.sha256(region.content(done.length)).hexdigest(), elapsed, again)


def send_file(sock: socket.socket, data: bytes, seconds: float) -> Transfer:
    """The sending end over MPA: the Responder, with an empty buffer."""
    endpoint, theirs = _full_operation(sock, seconds)
    if theirs.length < len(data):
        raise ExchangeRule(f"the peer's buffer has {theirs.length} octets, our file {len(data)}")
    mulpdu, frame = endpoint.mulpdu, endpoint.writer.frame
    empty = Advertisement(secrets.randbits(47) | 1, secrets.randbits(32) | 1, 0)
    sock.sendall(b"".join(map(frame, rdmap.send(empty.encode(), 1, mulpdu))))
    view = memoryview(data)
    messages = range(0, len(data), MESSAGE_OCTETS)
    pieces = [
        b"".join(map(frame, rdmap.write(view[at : at + MESSAGE_OCTETS], theirs.stag, theirs.to + at, mulpdu)))
        for at in messages
    ]
    done = Advertisement(0, 0, len(data)).encode()
    pieces.append(b"".join(map(frame, rdmap.send(done, 2, mulpdu))))
    started = time.monotonic()
    for piece in pieces:
        sock.sendall(piece)
    last = b""
    while octets := sock.recv(CHUNK_OCTETS):
        last += octets
    elapsed = time.monotonic() - started
    again = retransmitted(sock)
    sock.close()
    endpoint.reader.feed(last)
    while (fpdu := endpoint.reader.read()) is not None:
        endpoint.receiver.receive(fpdu.ulpdu)
    return Transfer(len(data), hashlib.sha256(data).hexdigest(), elapsed, again)
