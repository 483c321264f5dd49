"""An endpoint with every operation of RDMAP, in both roles, for cases that say step by step what happens.

Reads and Atomic Operations of the other end are answered in their order when they come, or when the case says
so.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from . import ddp, rdmap
from .driver import Driven, Driver
from .errors import ConnectionFailed, ExchangeRule, RdmapError, TcpError, TerminateControl
from .peer import RTR_STAG, Endpoint
from .rdmap import AtomicRequest, Opcode, ReadRequest

STEP_SECONDS: Final = 0.01
"""How often the other end's program is looked at while the connection is quiet."""
NUDGE: Final = (RTR_STAG, 0)
"""STag and TO of a Write for nothing, which an end may get that has been silent since the other's first
FPDU."""
PATIENCE_SECONDS: Final = 120.0
"""How long anything may take that a case waits for."""


class Memory(ddp.Region):
    """A Tagged Buffer that also remembers what was written where."""

    def __init__(self, octets: int, content: bytes = b"") -> None:
        super().__init__(secrets.randbits(47) & ~7 | 8, octets)
        self.stag = secrets.randbits(32) | 1
        self.written: list[tuple[int, int]] = []
        """TO and octets of each segment, in order."""
        self.judged = 0
        """How many of them belong to Responses that are complete."""
        self.set(0, content)

    def place(self, to: int, payload: bytes) -> None:
        super().place(to, payload)
        self.written.append((to, len(payload)))

    def set(self, offset: int, octets: bytes) -> None:
        """Write it from within."""
        assert offset + len(octets) <= self.octets
        at = self.GUARD_OCTETS + offset
        self._memory[at : at + len(octets)] = octets

    def get(self, to: int, octets: int) -> bytes:
        """What a peer reads."""
        offset = to - self.base
        if offset < 0 or offset + octets > self.octets:
            raise RdmapError(
                rdmap.ProtectionCode.TYPE, rdmap.ProtectionCode.BOUNDS, f"a Read of {octets} at {to:#x}"
            )
        return bytes(self.content(self.octets)[offset : offset + octets])

    def value(self, to: int) -> int:
        """The 64-bit integer there, in this machine's order of octets."""
        return int.from_bytes(self.get(to, 8), sys.byteorder)


class Reading:
    """A Read of ours that is not answered yet."""

    def __init__(self, request: ReadRequest, sink: Memory) -> None:
        self.request = request
        self.sink = sink

    def judge(self, header: ddp.Tagged) -> None:
        """Its Response wrote what was asked for, in rising order, and nothing else (RDMAP-4.4-02,
        RDMAP-5.2.2-01)."""
        if self.request.size == 0:
            if (header.stag, header.to) != (self.request.sink_stag, self.request.sink_to):
                raise ExchangeRule(f"an empty Response to {header}, not as {self.request} asked")
            return
        to = self.request.sink_to
        for start, octets in self.sink.written[self.sink.judged :]:
            if start != to:
                raise ExchangeRule(f"a segment of a Response at {start:#x}, not {to:#x}")
            to += octets
            self.sink.judged += 1
            if to >= self.request.sink_to + self.request.size:
                break
        if to != self.request.sink_to + self.request.size or header.stag != self.request.sink_stag:
            raise ExchangeRule(f"a Response up to {to:#x} of {header.stag:#010x}: {self.request}")


class Peer:
    """Our end of a connection, and the other end's program."""

    def __init__(self, endpoint: Endpoint, driver: Driver | None = None) -> None:
        """Without a ``driver`` the other end has a mind of its own."""
        self.endpoint = endpoint
        self._driver = driver
        receiver = endpoint.receiver
        receiver.opcodes = frozenset(Opcode)
        receiver.sink.queues[rdmap.QN_ATOMIC_RESPONSE] = ddp.Queue()
        endpoint.reads = True
        self.received: deque[rdmap.Sent | rdmap.Immediate] = deque()
        self.written: deque[rdmap.Written] = deque()
        self.asked: deque[ReadRequest | AtomicRequest] = deque()
        """What the other end asked and was not answered."""
        self.answers = True
        """Whether that is answered when it comes."""
        self.readings: deque[Reading] = deque()
        self.atomics: deque[AtomicRequest] = deque()
        self.values: list[int] = []
        """Original values, as they came back."""
        self.reads_answered = 0
        """Reads of the other end that we have answered."""
        self._next_msn = {
            rdmap.QN_SEND: endpoint.first_msn,
            rdmap.QN_READ_REQUEST: 1,
            rdmap.QN_ATOMIC_RESPONSE: 1,
        }
        self._identifier = secrets.randbits(32)
        self.ended = False
        """The connection is no more; the other end's program still answers."""
        self.ird = endpoint.agreed.ird or 0
        requests = receiver.sink.queues[rdmap.QN_READ_REQUEST].posted
        # RDMAP-6.1-03: one more than agreed finds no buffer.
        requests.extend([rdmap.ATOMIC_REQUEST_OCTETS] * self.ird)

    @property
    def driver(self) -> Driver:
        """What tells the other end's program what to do."""
        assert self._driver is not None
        return self._driver

    # What we have.

    def memory(self, octets: int, content: bytes = b"") -> Memory:
        """New memory, which the other end may reach."""
        memory = Memory(octets, content)
        self.endpoint.receiver.register(memory.stag, memory)
        return memory

    def post_receive(self, octets: int) -> None:
        """A buffer for a Send or Immediate Data."""
        self.endpoint.receiver.post_receive(octets)

    # What we send.

    def next_msn(self, qn: int) -> int:
        """The next number on a queue; it counts as used."""
        msn = self._next_msn[qn]
        self._next_msn[qn] = (msn + 1) % (1 << 32)
        return msn

    def send(self, message: bytes, invalidate: int | None = None, solicited: bool = False) -> None:
        """A Send, of any kind."""
        msn = self.next_msn(rdmap.QN_SEND)
        self.endpoint.post(rdmap.send(message, msn, self.endpoint.mulpdu, invalidate, solicited))

    def write(self, message: bytes, stag: int, to: int) -> None:
        """An RDMA Write."""
        self.endpoint.post(rdmap.write(message, stag, to, self.endpoint.mulpdu))

    def immediate(self, value: int, solicited: bool = False) -> None:
        """Immediate Data."""
        opcode = Opcode.IMMEDIATE_SOLICITED if solicited else Opcode.IMMEDIATE
        self.raw(rdmap.untagged(opcode, self.next_msn(rdmap.QN_SEND), value.to_bytes(8, "big")))

    def read(
        self, sink: Memory, offset: int, size: int, source: Driven | tuple[int, int], at: int = 0
    ) -> bytes:
        """An RDMA Read; its ULPDU."""
        stag, to = (source.stag, source.to) if isinstance(source, Driven) else source
        request = ReadRequest(sink.stag, sink.base + offset, size, stag, to + at)
        ulpdu = rdmap.untagged(Opcode.READ_REQUEST, self.next_msn(rdmap.QN_READ_REQUEST), request.encode())
        self.readings.append(Reading(request, sink))
        self.raw(ulpdu)
        return ulpdu

    def atomic(
        self,
        operation: int,
        stag: int,
        to: int,
        data: int,
        mask: int,
        compare: int = 0,
        compare_mask: int = 2**64 - 1,
    ) -> bytes:
        """An Atomic Request; its ULPDU."""
        self._identifier = (self._identifier + 1) % (1 << 32)
        request = AtomicRequest(operation, self._identifier, stag, to, data, mask, compare, compare_mask)
        self.endpoint.receiver.sink.queues[rdmap.QN_ATOMIC_RESPONSE].posted.append(
            rdmap.ATOMIC_RESPONSE_OCTETS
        )
        self.atomics.append(request)
        ulpdu = rdmap.untagged(Opcode.ATOMIC_REQUEST, self.next_msn(rdmap.QN_READ_REQUEST), request.encode())
        self.raw(ulpdu)
        return ulpdu

    def raw(self, *ulpdus: bytes) -> None:
        """ULPDUs as they are."""
        self.endpoint.post(iter(ulpdus), as_they_are=True)

    # What we receive.

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Send and receive until ``done``."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not done():
            if time.monotonic() > give_up:
                raise ExchangeRule(f"in {PATIENCE_SECONDS} s not: {what}")
            if self.ended:
                time.sleep(STEP_SECONDS)
                continue
            for event in self.endpoint.step(time.monotonic() + STEP_SECONDS):
                self._handle(event)
            if self.endpoint.peer_closed and not done():
                raise TcpError(TcpError.CLOSED, f"the other end has closed before: {what}")

    def settle(self) -> None:
        """Hand everything to TCP."""
        self.until(lambda: not self.endpoint.sending, "everything is sent")

    def tell(self, *words: object) -> dict[str, Any]:
        """A command that takes its time: we go on sending and receiving until it is answered."""
        self.driver.ask(*words)
        self.until(lambda: self.driver.answered(0), " ".join(map(str, words)))
        return self.driver.answer()

    def completion(self, **expected: object) -> dict[str, Any]:
        """The other end's next completion, which must be as expected; a success unless said otherwise."""
        found = self.tell("wait", PATIENCE_SECONDS / 2)
        for name, value in {"status": "success", **expected}.items():
            if found.get(name) != value:
                raise ExchangeRule(f"completion {found}, but {name} should be {value}")
        return found

    def message(self) -> rdmap.Sent | rdmap.Immediate:
        """The other end's next Send or Immediate Data."""
        self.until(lambda: bool(self.received), "a message")
        return self.received.popleft()

    def expect_message(self, expected: rdmap.Sent | rdmap.Immediate) -> None:
        """The other end's next message is this one."""
        if (found := self.message()) != expected:
            raise ExchangeRule(f"{found}, not {expected}")

    def answered(self) -> None:
        """Wait until all our Reads and Atomic Operations are answered."""
        self.until(lambda: not self.readings and not self.atomics, "answers to all our requests")

    def _handle(self, event: rdmap.Event) -> None:
        if isinstance(event, rdmap.Sent | rdmap.Immediate):
            self.received.append(event)
        elif isinstance(event, rdmap.Written):
            if (event.header.stag, event.header.to) != NUDGE:
                self.written.append(event)
        elif isinstance(event, rdmap.Asked | rdmap.AtomicAsked):
            kind = ReadRequest if isinstance(event, rdmap.Asked) else AtomicRequest
            self.asked.append(kind.parse(event.message))
            while self.answers and self.asked:
                self.answer()
        elif isinstance(event, rdmap.Answered):
            if not self.readings:
                raise RdmapError(
                    rdmap.OperationCode.TYPE, rdmap.OperationCode.OPCODE, "a Read Response to no Read"
                )
            self.readings.popleft().judge(event.header)  # RDMAP-5.2.2-05: in the order of the Requests
        elif isinstance(event, rdmap.AtomicAnswered):
            if not self.atomics or event.identifier != self.atomics[0].identifier:
                raise ExchangeRule(f"an Atomic Response {event.identifier:#x}, not to the oldest Request")
            self.atomics.popleft()
            self.values.append(event.value)

    def answer(self) -> None:
        """Answer the oldest question."""
        request = self.asked.popleft()
        self.endpoint.receiver.sink.queues[rdmap.QN_READ_REQUEST].posted.append(rdmap.ATOMIC_REQUEST_OCTETS)
        if isinstance(request, ReadRequest):
            octets = (
                self._memory(request.source_stag).get(request.source_to, request.size)
                if request.size
                else b""
            )
            self.endpoint.post(rdmap.response(octets, request, self.endpoint.mulpdu))
            self.reads_answered += 1
            return
        memory = self._memory(request.stag)
        value = memory.value(request.to)
        memory.set(request.to - memory.base, request.result(value).to_bytes(8, sys.byteorder))
        content = request.identifier.to_bytes(4, "big") + value.to_bytes(8, "big")
        self.raw(rdmap.untagged(Opcode.ATOMIC_RESPONSE, self.next_msn(rdmap.QN_ATOMIC_RESPONSE), content))

    def _memory(self, stag: int) -> Memory:
        region = self.endpoint.receiver.sink.regions.get(stag)
        if not isinstance(region, Memory):
            raise RdmapError(
                rdmap.ProtectionCode.TYPE, rdmap.ProtectionCode.INVALID_STAG, f"STag {stag:#010x}"
            )
        return region

    # How it ends.

    def close(self) -> None:
        """FIN from both ends; the other end reports no error."""
        self.settle()
        self.endpoint.stream.shut_down_sending()
        self.until(lambda: self.endpoint.peer_closed, "FIN")
        self.ended = True
        answer = self.tell("ended", PATIENCE_SECONDS / 2)
        if answer.get("error_code") is not None:
            raise ExchangeRule(f"the other end reports {answer}")
        self.endpoint.stream.socket.close()

    def expect_terminate(
        self,
        control: tuple[int, int, int],
        ulpdu: bytes,
        code: str | None = None,
        quoted: bytes | None = None,
    ) -> rdmap.Terminate:
        """The other end terminates the stream because of ``ulpdu``, with the headers that RFC 5040 figure
        10 asks for, sends nothing more and reports ``code``."""
        try:
            self.until(lambda: False, f"a Terminate {control}")
        except rdmap.RemoteTerminate as told:
            found = told.received
        self.expect_end()
        wanted = rdmap.Terminate.about(_Told(TerminateControl(*control)), ulpdu)
        if wanted is not None and quoted is not None:
            wanted = rdmap.Terminate(wanted.control, wanted.segment_length, wanted.ddp_header, quoted)
        if found != wanted:
            raise ExchangeRule(f"{found}, not {wanted}")
        self.expect_report(code or f"{('rdmap', 'ddp', 'mpa')[control[0]]}:{control[1]}:{control[2]}")
        return found

    def expect_report(self, code: str) -> None:
        """The other end's program reports that its connection has failed in this way, and no octet is out
        of place."""
        answer = self.driver.tell("ended", PATIENCE_SECONDS / 2)
        if answer.get("error_code") != code:
            raise ExchangeRule(f"the other end reports {answer}, not {code}")
        outside = self.driver.tell("outside")["octets_outside"]
        if outside:
            raise ExchangeRule(f"{outside} octets outside the other end's memory have changed")

    def expect_silence(self) -> None:
        """The other end closes without another octet, as who is told of an error does."""
        self.until(lambda: self.endpoint.peer_closed, "FIN")
        self.endpoint.stream.socket.close()
        self.ended = True

    def expect_end(self) -> None:
        """RDMAP-5.4-04: the end of the connection, and nothing before it."""
        stream = self.endpoint.stream
        if self.endpoint.reader.incomplete_octets:
            raise ExchangeRule("RDMAP-5.4-04: octets after the Terminate")
        try:
            while (octets := stream.receive()) != b"":
                if octets:
                    raise ExchangeRule("RDMAP-5.4-04: octets after the Terminate")
                stream.wait(read=True, write=False)
        except TcpError as error:
            if error.code != "tcp:reset":
                raise
        stream.socket.close()
        self.ended = True


class _Told(ConnectionFailed):
    """A failure known only by the Terminate about it."""

    def __init__(self, control: TerminateControl) -> None:
        super().__init__(str(control))
        self.terminate = control
