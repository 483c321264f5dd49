"""rping's exchange (librdmacm), as client and as server, on an endpoint over a kernel TCP socket.

1. The client advertises its source by a Send of 16 octets, big-endian: TO 8, STag 4, length 4.
2. The server reads all of it by an RDMA Read and sends 16 octets that mean nothing.
3. The client advertises its sink; the server writes what it read there by an RDMA Write, and sends 16 octets
   again.
4. The client compares, and begins again; or it closes.
"""

from __future__ import annotations

import random
from typing import Any, Final

from . import rdmap
from .errors import ExchangeRule
from .exchange import MESSAGE_LAYOUT, Advertisement
from .operations import Memory, Peer
from .peer import Endpoint

GO_AHEAD: Final = bytes(MESSAGE_LAYOUT.size)
UNWRITTEN: Final = 0xFF


class Rping:
    """One end of it."""

    def __init__(self, endpoint: Endpoint, octets: int) -> None:
        self.peer = Peer(endpoint)
        self.octets = octets
        # Unlike rping, one more than its exchange can use: a Send without a buffer would end the stream.
        for _ in range(2):
            self.peer.post_receive(MESSAGE_LAYOUT.size)

    def _message(self) -> bytes:
        """The other end's next message."""
        found = self.peer.message()
        if not isinstance(found, rdmap.Sent) or len(found.message) != MESSAGE_LAYOUT.size:
            raise ExchangeRule(f"{found}, not a Send of {MESSAGE_LAYOUT.size} octets")
        self.peer.post_receive(MESSAGE_LAYOUT.size)
        return found.message

    def _advertise(self, memory: Memory) -> None:
        self.peer.send(Advertisement(memory.base, memory.stag, memory.octets).encode())

    def ping(self, pings: int) -> dict[str, Any]:
        """The client's part, closing included."""
        source, sink = self.peer.memory(self.octets), self.peer.memory(self.octets)
        for number in range(pings):
            # As rping has it: a text, of this ping alone, with a NUL at its end.
            text = bytes(random.Random(number).choices(range(33, 127), k=self.octets - 1)) + b"\0"
            source.set(0, text)
            sink.set(0, bytes([UNWRITTEN]) * self.octets)
            self._advertise(source)
            self._message()
            read = self.peer.reads_answered
            if read != number + 1:
                raise ExchangeRule(f"{read} Reads answered in {number + 1} pings")
            self._advertise(sink)
            self._message()
            if sink.content(self.octets) != text:
                raise ExchangeRule(f"ping {number} came back otherwise than it went")
        self.peer.settle()
        self.peer.endpoint.stream.shut_down_sending()
        self.peer.until(lambda: self.peer.endpoint.peer_closed, "FIN")
        if source.octets_outside() + sink.octets_outside():
            raise ExchangeRule("octets outside the buffers have changed")
        return {"pings": pings, "octets": pings * self.octets}

    def serve(self) -> dict[str, Any]:
        """The server's part, until the client closes."""
        buffer = self.peer.memory(self.octets)
        pings = octets = 0
        while (source := self._next_source()) is not None:
            if source.length > self.octets:
                raise ExchangeRule(f"a source of {source.length} octets, our buffer has {self.octets}")
            self.peer.read(buffer, 0, source.length, (source.stag, source.to))
            self.peer.answered()
            text = bytes(buffer.content(source.length))
            self.peer.send(GO_AHEAD)
            sink = Advertisement.parse(self._message())
            # No more than rping would: up to the NUL.
            written = text[: text.index(0) + 1]
            if (sink.length, len(written)) != (source.length, source.length):
                raise ExchangeRule(
                    f"a text of {len(written)} octets and a sink of {sink.length}, source {source.length}"
                )
            self.peer.write(written, sink.stag, sink.to)
            self.peer.send(GO_AHEAD)
            pings, octets = pings + 1, octets + len(written)
        self.peer.endpoint.stream.shut_down_sending()
        return {"pings": pings, "octets": octets}

    def _next_source(self) -> Advertisement | None:
        """The client's source; nothing when it has closed."""
        endpoint = self.peer.endpoint
        self.peer.until(lambda: bool(self.peer.received) or endpoint.peer_closed, "a source or FIN")
        return Advertisement.parse(self._message()) if self.peer.received else None
