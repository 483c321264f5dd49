"""Thousands of connections at once, in one process: rping's client on each, over the kernel's TCP.

All are opened, a few at a time in startup; when the last is open, each makes one ping as ``rping`` describes
it, all of them side by side; when every ping has come back, all are closed.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final

from . import agreement, mpa, rdmap
from .agreement import Options
from .errors import ConnectionFailed, ExchangeRule, TcpError
from .exchange import MESSAGE_LAYOUT, Advertisement
from .operations import Memory

RECEIVE_OCTETS: Final = 64 * 1024
"""Asked of a socket at once."""
OTHER_DESCRIPTORS: Final = 64
"""Descriptors that the process has beside its connections."""
OPTIONS: Final = Options(markers=False, crc=True, revision=2, ird=1, ord=1)


class CrowdError(Exception):
    """A connection failed, or not all came as far as they should in time; the text says which and how."""


class State(Enum):
    """How far a connection has come. The values are for people."""

    CONNECTING = "in TCP's handshake"
    STARTING = "in MPA startup"
    OPERATING = "open"
    READ_AWAITED = "waiting for the server to read"
    WRITE_AWAITED = "waiting for the server to write"
    ANSWERED = "pinged"
    CLOSING = "closing"
    CLOSED = "closed"


def raise_descriptor_limit(connections: int) -> None:
    """Make room for so many sockets in this process."""
    wanted = connections + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise CrowdError(
                f"{connections} connections need {wanted} file descriptors, the limit is {hard}: raise it by "
                f"ulimit -Hn {wanted}, or make fewer connections"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Caller:
    """One connection, whose functions never wait."""

    def __init__(self, address: tuple[str, int], number: int, octets: int) -> None:
        """``number`` seeds what is sent; ``octets`` is the longest ping."""
        self.number = number
        self.state = State.CONNECTING
        random_of = random.Random(number)
        self.text = random_of.randbytes(random_of.randint(1, octets))
        self.socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        status = self.socket.connect_ex(address)
        if status not in (0, errno.EINPROGRESS):
            self.socket.close()
            raise TcpError(TcpError.CLOSED, os.strerror(status))
        self._request = agreement.request(OPTIONS)
        self._pending = bytearray()
        self._held = b""
        self._msn = 1
        self._reads = 0

    @property
    def wants_to_write(self) -> bool:
        """Whether it waits for the handshake, or for room."""
        return self.state is State.CONNECTING or bool(self._pending)

    def on_writable(self) -> None:
        """The handshake has ended, or there is room."""
        if self.state is State.CONNECTING:
            if status := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise TcpError(TcpError.CLOSED, os.strerror(status))
            self.state = State.STARTING
            self._pending += self._request.encode()
        self._send()

    def on_readable(self) -> None:
        """Octets, or FIN, have arrived."""
        try:
            octets = self.socket.recv(RECEIVE_OCTETS)
        except BlockingIOError:
            return
        except ConnectionError as error:
            raise TcpError(TcpError.RESET, f"receiving: {error}") from error
        if not octets:
            if self.state is not State.CLOSING or self._reader.incomplete_octets:
                raise TcpError(TcpError.CLOSED, "the server has closed")
            self.state = State.CLOSED
        elif self.state is State.STARTING:
            self._take_reply(octets)
        else:
            self._reader.feed(octets)
            while (fpdu := self._reader.read()) is not None:
                self._take(self._receiver.receive(fpdu.ulpdu))
            self._send()

    def ping(self) -> None:
        """Advertise what the server is to read."""
        assert self.state is State.OPERATING
        self._source, self._sink = Memory(len(self.text), self.text), Memory(len(self.text))
        self._receiver.register(self._sink.stag, self._sink)
        self.state = State.READ_AWAITED
        self._advertise(self._source)
        self._send()

    def close(self) -> None:
        """Send FIN."""
        assert self.state is State.ANSWERED and not self._pending
        self.state = State.CLOSING
        self.socket.shutdown(socket.SHUT_WR)

    def _take_reply(self, octets: bytes) -> None:
        self._held += octets
        parsed = mpa.parse_startup(self._held, mpa.REPLY_KEY)
        if parsed is None:
            return
        reply, length = parsed
        if reply.rejected or length != len(self._held):
            raise ExchangeRule(f"the Reply is {reply}, with {len(self._held) - length} octets after it")
        agreement.judge_reply(self._request, reply)
        agreed = agreement.agree(OPTIONS, self._request, reply, initiator=True)
        self._writer = mpa.FpduWriter(agreed.markers_sent, agreed.crc)
        self._reader = mpa.FpduReader(agreed.markers_received, agreed.crc)
        emss = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        self._mulpdu = mpa.mulpdu(emss, agreed.markers_sent)
        self._receiver = rdmap.Receiver(agreed.version)
        self._receiver.sink.queues[rdmap.QN_READ_REQUEST].posted.append(rdmap.READ_REQUEST_OCTETS)
        for _ in range(2):
            self._receiver.post_receive(MESSAGE_LAYOUT.size)
        self.state = State.OPERATING

    def _take(self, event: rdmap.Event | None) -> None:
        """Go on after an event."""
        if event is None:
            return
        if isinstance(event, rdmap.Terminate):
            raise rdmap.RemoteTerminate(event)
        if isinstance(event, rdmap.Asked) and self.state is State.READ_AWAITED and not self._reads:
            request = rdmap.ReadRequest.parse(event.message)
            if request.source_stag != self._source.stag:
                raise ExchangeRule(f"a Read of STag {request.source_stag:#010x}, which was not advertised")
            content = self._source.get(request.source_to, request.size)
            self._reads += 1
            self._post(rdmap.response(content, request, self._mulpdu))
        elif isinstance(event, rdmap.Sent) and self.state is State.READ_AWAITED and self._reads:
            self.state = State.WRITE_AWAITED
            self._advertise(self._sink)
        elif isinstance(event, rdmap.Sent) and self.state is State.WRITE_AWAITED:
            self._compare()
            self.state = State.ANSWERED
        elif not (isinstance(event, rdmap.Written) and self.state is State.WRITE_AWAITED):
            raise ExchangeRule(f"{event} out of place")

    def _compare(self) -> None:
        found = bytes(self._sink.content(len(self.text)))
        if found != self.text:
            at = next(at for at, octet in enumerate(found) if octet != self.text[at])
            what = f"{found[at]:#04x}, not {self.text[at]:#04x}"
            raise ExchangeRule(f"octet {at} of {len(self.text)} is {what}")
        if self._source.octets_outside() + self._sink.octets_outside():
            raise ExchangeRule("octets outside the buffers have changed")

    def _advertise(self, memory: Memory) -> None:
        message = Advertisement(memory.base, memory.stag, memory.octets).encode()
        self._post(rdmap.send(message, self._msn, self._mulpdu))
        self._msn += 1

    def _post(self, ulpdus: Iterator[bytes]) -> None:
        for ulpdu in ulpdus:
            self._pending += self._writer.frame(ulpdu)

    def _send(self) -> None:
        while self._pending:
            try:
                del self._pending[: self.socket.send(self._pending)]
            except BlockingIOError:
                return
            except ConnectionError as error:
                raise TcpError(TcpError.RESET, f"sending: {error}") from error


class Crowd:
    """All connections to one server, and the loop that serves them. A context manager that closes them."""

    def __init__(
        self, address: tuple[str, int], connections: int, octets: int, opening: int, seconds: float
    ) -> None:
        """At most ``opening`` connections are being opened at a time, and everything takes at most
        ``seconds``."""
        self._address = address
        self._connections = connections
        self._octets = octets
        self._opening = opening
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._selector = selectors.DefaultSelector()
        self._callers: list[Caller] = []
        self._states: Counter[State] = Counter()
        """How many connections are in each state."""

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for caller in self._callers:
            caller.socket.close()
        self._selector.close()

    def run(self) -> dict[str, Any]:
        """Open all, ping on all, close all; how long each took, and how many octets came back."""
        seconds = {}
        begun = time.monotonic()
        self._until(State.OPERATING, self._open_more)
        seconds["open"] = time.monotonic() - begun
        for action, state in ((Caller.ping, State.ANSWERED), (Caller.close, State.CLOSED)):
            begun = time.monotonic()
            for caller in self._callers:
                self._do(caller, action)
            self._until(state)
            seconds[action.__name__] = time.monotonic() - begun
        octets = sum(len(caller.text) for caller in self._callers)
        rounded = {name: round(value, 2) for name, value in seconds.items()}
        return {"connections": self._connections, "octets": octets, "seconds": rounded}

    def _open_more(self) -> None:
        """Open connections, as many as may be in startup at a time."""
        while len(self._callers) < self._connections:
            if self._states[State.CONNECTING] + self._states[State.STARTING] >= self._opening:
                return
            try:
                caller = Caller(self._address, len(self._callers), self._octets)
            except (ConnectionFailed, OSError) as error:
                raise CrowdError(f"connection {len(self._callers)} cannot be opened: {error}") from error
            self._callers.append(caller)
            self._states[caller.state] += 1
            self._selector.register(caller.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, caller)

    def _until(self, state: State, more: Callable[[], None] = lambda: None) -> None:
        """Serve connections until all are in ``state``."""
        more()
        while self._states[state] < self._connections:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise CrowdError(f"not all are {state.value} after {self._seconds} s: {self._summary()}")
            for key, events in self._selector.select(left):
                if events & selectors.EVENT_WRITE:
                    self._do(key.data, Caller.on_writable)
                if events & selectors.EVENT_READ:
                    self._do(key.data, Caller.on_readable)
            more()

    def _do(self, caller: Caller, action: Callable[[Caller], None]) -> None:
        """Let a connection act, and note what it waits for then."""
        before, wrote = caller.state, caller.wants_to_write
        try:
            action(caller)
        except (ConnectionFailed, OSError) as error:
            code = getattr(error, "code", type(error).__name__)
            raise CrowdError(
                f"connection {caller.number}, {before.value}: {code}: {error}; {self._summary()}"
            ) from error
        if caller.state is not before:
            self._states[before] -= 1
            self._states[caller.state] += 1
        if caller.state is State.CLOSED:
            self._selector.unregister(caller.socket)
            caller.socket.close()
        elif caller.wants_to_write != wrote:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.wants_to_write else 0)
            self._selector.modify(caller.socket, events, caller)

    def _summary(self) -> str:
        """How far the connections have come."""
        counts = [f"{count} {state.value}" for state, count in self._states.items() if count]
        return f"of {self._connections} connections: {', '.join(counts) or 'none begun'}"
