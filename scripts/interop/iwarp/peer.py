"""One end of an iWARP connection over a kernel TCP socket, as a layered implementation has it (RFC 5044 §5).

:func:`start` runs the MPA startup on a :class:`Stream`; an :class:`Endpoint` then carries FPDUs both ways at
once in one loop. It judges all it receives, and answers a failure with a Terminate where the documents ask
for one.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from . import agreement, ddp, mpa, rdmap
from .agreement import Agreement, Options
from .errors import ConnectionFailed, ExchangeRule, MpaError, RdmapError, SenderRule, StartupError, TcpError

RECEIVE_OCTETS: Final = 256 * 1024
"""Asked of the socket at once."""
BATCH_OCTETS: Final = 64 * 1024
"""FPDUs handed to the socket at once when segments need not start with an FPDU."""
RTR_STAG: Final = 1
"""STag of ready-to-receive indications: some adapters fail what has STag 0, even if nothing is placed."""
INDICATED: Final = rdmap.Indicated()
DRAIN_SECONDS: Final = 2.0
"""How long a failed endpoint waits for the peer to close, so that its own Terminate is not lost to a
reset."""


class Stream:
    """A connected socket with a deadline for everything done on it."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self.socket = sock
        self._returned = b""
        self.deadline = time.monotonic() + seconds
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def wait(self, read: bool, write: bool, until: float | None = None) -> tuple[bool, bool]:
        """Wait for input if ``read`` and for room if ``write``; both false when ``until`` or the deadline
        came."""
        if read and self._returned:
            return True, False
        if time.monotonic() >= self.deadline:
            raise TcpError(TcpError.TIMEOUT, "the time allowed for the connection is over")
        limit = self.deadline if until is None else min(until, self.deadline)
        readable, writable, _ = select.select(
            [self.socket] if read else [],
            [self.socket] if write else [],
            [],
            max(limit - time.monotonic(), 0.0),
        )
        return bool(readable), bool(writable)

    def receive(self) -> bytes | None:
        """What has arrived: ``None`` for nothing, ``b""`` for FIN."""
        if self._returned:
            octets, self._returned = self._returned, b""
            return octets
        try:
            return self.socket.recv(RECEIVE_OCTETS)
        except BlockingIOError:
            return None
        except ConnectionError as error:
            raise TcpError(TcpError.RESET, f"receiving: {error}") from error

    def give_back(self, octets: bytes) -> None:
        """Octets that were received and belong to what comes next."""
        self._returned = octets + self._returned

    def send(self, octets: bytes | memoryview, end_of_record: bool = False) -> int:
        """Hand octets to TCP; how many it took."""
        try:
            return self.socket.send(octets, socket.MSG_EOR if end_of_record else 0)
        except BlockingIOError:
            return 0
        except ConnectionError as error:
            raise TcpError(TcpError.RESET, f"sending: {error}") from error

    def send_all(self, octets: bytes) -> None:
        """Hand all octets to TCP, however long that takes."""
        rest = memoryview(octets)
        while rest:
            _, writable = self.wait(read=False, write=True)
            if writable:
                rest = rest[self.send(rest) :]

    def shut_down_sending(self) -> None:
        """Send FIN after all that was handed over."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise TcpError(TcpError.RESET, f"closing: {error}") from error

    def reset(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def receive_startup(stream: Stream, key: bytes) -> tuple[mpa.StartupFrame, bytes]:
    """The peer's startup frame and the octets that came after it."""
    held = b""
    while True:
        try:
            readable, _ = stream.wait(read=True, write=False)
        except TcpError as error:  # MPA-7.1.2-25
            raise StartupError(
                StartupError.TIMEOUT, f"no whole startup frame in time, only {held.hex(' ')}"
            ) from error
        octets = stream.receive() if readable else None
        if octets is None:
            continue
        if not octets:
            raise StartupError(StartupError.CLOSED, f"closed inside the startup, after {held.hex(' ')}")
        held += octets
        parsed = mpa.parse_startup(held, key)
        if parsed is not None:
            frame, length = parsed
            return frame, held[length:]


HELLO: Final = b"Hello"
"""The Initiator's last streaming message, and the Responder's."""
HELLO_ACK: Final = b"Hello Ack"
STILL_OPEN: Final = b"still open"
"""What both ends say after a rejection in a delayed startup: TCP is theirs again (A-01)."""


def numbered(octets: int) -> bytes:
    """Octets that both ends know."""
    return bytes(index % 251 for index in range(octets))


def talk(stream: Stream, ours: bytes, theirs: bytes) -> None:
    """Say ``ours`` and hear ``theirs`` in streaming mode, both at the same time."""
    rest, heard = memoryview(ours), b""
    while rest or len(heard) < len(theirs):
        readable, writable = stream.wait(len(heard) < len(theirs), bool(rest))
        if writable:
            rest = rest[stream.send(rest) :]
        octets = stream.receive() if readable else None
        if octets == b"":
            raise TcpError(
                TcpError.CLOSED, f"closed in streaming mode, after {len(heard)} of {len(theirs)} octets"
            )
        heard += octets or b""
        if heard[: len(theirs)] != theirs[: len(heard)]:  # MPA-7.1-01: no octet is taken in the wrong mode
            raise ExchangeRule(f"streaming octets {heard[-32:].hex(' ')}")
    stream.give_back(heard[len(theirs) :])


def start(stream: Stream, initiator: bool, options: Options) -> Endpoint:
    """MPA startup (RFC 5044 §7.1.2, RFC 6581), at once or delayed (§7.1.3); the endpoint in Full
    Operation."""
    if options.streaming is not None:
        talk(stream, numbered(options.streaming), numbered(options.streaming))
        if initiator:
            talk(stream, HELLO, HELLO_ACK)
        else:
            talk(stream, b"", HELLO)
            stream.send_all(HELLO_ACK)
    if options.culley is not None:
        nothing = mpa.StartupFrame(b"", markers=True, crc=True)
        return Endpoint(
            stream, initiator, options, nothing, Agreement(True, True, True, options.culley, None)
        )
    try:
        return _initiate(stream, options) if initiator else _respond(stream, options)
    except StartupError as error:
        if error.code == f"startup:{StartupError.REJECTED}" and options.streaming is not None:
            talk(stream, STILL_OPEN, STILL_OPEN)
        raise


def _initiate(stream: Stream, options: Options) -> Endpoint:
    ours = agreement.request(options)
    stream.send_all(ours.encode())  # MPA-7.1.2-01
    theirs, extra = receive_startup(stream, mpa.REPLY_KEY)
    try:
        agreement.judge_reply(ours, theirs)
        agreed = None if theirs.rejected else agreement.agree(options, ours, theirs, initiator=True)
    except agreement.Unmatched as failure:  # the Responder is in Full Operation and can be told
        markers, crc = theirs.markers, ours.crc or theirs.crc
        told = Endpoint(
            stream, True, options, theirs, Agreement(markers, ours.markers, crc, 1, theirs.revision)
        )
        told.close_after(failure)
        raise
    if agreed is None:  # MPA-7.1.2-13
        stream.give_back(extra)
        raise StartupError(StartupError.REJECTED, f"rejected, Private Data {theirs.private_data.hex(' ')}")
    if extra:  # MPA-7.1.2-15, A-03
        raise SenderRule("MPA-7.1.2-15", f"{len(extra)} octets glued to the Reply, before our first FPDU")
    return Endpoint(stream, True, options, theirs, agreed)


def _respond(stream: Stream, options: Options) -> Endpoint:
    theirs, extra = receive_startup(stream, mpa.REQUEST_KEY)  # MPA-7.1.2-03
    try:
        agreement.judge_request(options, theirs)
    except StartupError as error:
        if error.revision == 0:  # tell an RDMA Consortium peer what we speak, then close
            refusal = mpa.StartupFrame(mpa.REPLY_KEY, options.markers, options.crc, rejected=True)
            stream.send_all(refusal.encode())
            stream.shut_down_sending()
        raise
    extra += stream.receive() or b""
    if extra:
        raise StartupError(StartupError.EXTRA, f"{len(extra)} octets after the Request, before the Reply")
    ours = agreement.reply(options, theirs)
    stream.send_all(ours.encode())  # MPA-7.1.2-08
    if ours.rejected:
        raise StartupError(
            StartupError.REJECTED, f"we rejected, their Private Data {theirs.private_data.hex(' ')}"
        )
    return Endpoint(stream, False, options, theirs, agreement.agree(options, ours, theirs, initiator=False))


class Endpoint:
    """A connection in Full Operation."""

    def __init__(
        self, stream: Stream, initiator: bool, options: Options, theirs: mpa.StartupFrame, agreed: Agreement
    ) -> None:
        self.stream = stream
        self.initiator = initiator
        self.options = options
        self.theirs = theirs
        self.agreed = agreed
        self.writer = mpa.FpduWriter(agreed.markers_sent, agreed.crc)
        self.reader = mpa.FpduReader(agreed.markers_received, agreed.crc)
        self.receiver = rdmap.Receiver(agreed.version)
        self.first_msn = ddp.FIRST_MSN
        """MSN of the ULP's first Send: a ready-to-receive Send takes one (A-16)."""
        self.fpdus_sent = 0
        self.fpdus_received = 0
        self.peer_closed = False
        """The peer's FIN has come."""
        self.indication = mpa.Rtr.NONE
        """The ready-to-receive indication that was sent or received."""
        self._messages: deque[tuple[Iterator[bytes], bool]] = deque()
        """ULPDUs of messages, and whether they are sent as they are."""
        self._pending: deque[memoryview] = deque()
        self._unanswered = False
        """A ready-to-receive Read waits for its answer."""
        self.reads = False
        """The ULP reads, and judges the Responses."""
        self._failure: ConnectionFailed | None = None
        """What the connection has failed of, when something before it was received in the same step."""
        if initiator:
            self._indicate()
        else:
            self._expect_indication()

    @property
    def emss(self) -> int:
        """Effective maximum segment size now (MPA-5.1-01)."""
        return self.options.emss or self.stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)

    @property
    def mulpdu(self) -> int:
        """MULPDU now (MPA-3-02), or the user's lower limit."""
        return min(mpa.mulpdu(self.emss, self.writer.markers), self.options.ulpdu_octets)

    @property
    def may_send(self) -> bool:
        """Rule 4: a Responder waits for one valid FPDU (MPA-7.1.2-15; valid for MPA, A-08)."""
        return self.initiator or self.fpdus_received > 0

    @property
    def sending(self) -> bool:
        """Whether something is yet to be handed to TCP."""
        return bool(self._messages or self._pending)

    def _indicate(self) -> None:
        """Queue the ready-to-receive indication, before anything else (MPAv2-5-01, MPAv2-9.2-07)."""
        self.indication = self.agreed.rtr
        if self.indication is mpa.Rtr.SEND:
            self.post(rdmap.send(b"", ddp.FIRST_MSN, mpa.MIN_MULPDU))
            self.first_msn += 1
        elif self.indication is mpa.Rtr.WRITE:
            self.post(rdmap.write(b"", RTR_STAG, 0, mpa.MIN_MULPDU))
        elif self.indication is mpa.Rtr.READ:
            self.post(iter((rdmap.read_request(RTR_STAG),)))
            self._unanswered = True

    def _expect_indication(self) -> None:
        """Buffers of the provider for what may come (A-16)."""
        if self.agreed.rtr & mpa.Rtr.SEND:
            self.receiver.post_receive(0)
        if self.agreed.rtr & mpa.Rtr.READ:
            self.receiver.sink.queues[rdmap.QN_READ_REQUEST].posted.append(rdmap.READ_REQUEST_OCTETS)

    def _take_indication(self, event: rdmap.Event | None) -> None:
        """The first FPDU has to be an indication that was agreed (MPAv2-9.2-07)."""
        kinds = {rdmap.Sent: mpa.Rtr.SEND, rdmap.Written: mpa.Rtr.WRITE, rdmap.Asked: mpa.Rtr.READ}
        kind = kinds.get(type(event), mpa.Rtr.NONE)
        if not kind & self.agreed.rtr:
            raise SenderRule("MPAv2-9.2-07", f"the first FPDU is {event}, agreed was {self.agreed.rtr}")
        if isinstance(event, rdmap.Sent) and event.message:
            raise SenderRule("MPAv2-9.2-10", f"a ready-to-receive Send of {len(event.message)} octets")
        if isinstance(event, rdmap.Asked):
            self.post(iter((rdmap.read_response(event.message),)))
        elif self.agreed.rtr & mpa.Rtr.SEND and kind is not mpa.Rtr.SEND:
            self.receiver.sink.queues[rdmap.QN_SEND].posted.popleft()  # the provider takes its buffer back
        self.indication = kind

    def _judge_event(self, event: rdmap.Event | None) -> rdmap.Event | None:
        """The event for the ULP; ``None`` for what is the provider's."""
        if isinstance(event, rdmap.Terminate):
            return event
        if not self.initiator and self.agreed.rtr and not self.indication:
            self._take_indication(event)
            return INDICATED
        if isinstance(event, rdmap.Answered) and not (self.reads and not self._unanswered):
            if not self._unanswered:
                raise RdmapError(
                    rdmap.OperationCode.TYPE, rdmap.OperationCode.OPCODE, "a Read Response to no Read"
                )
            self._unanswered = False
            return None
        return event

    def post(self, ulpdus: Iterator[bytes], as_they_are: bool = False) -> None:
        """Queue the ULPDUs of a message, or of several; they get the stream's versions unless sent as they
        are."""
        self._messages.append((ulpdus, as_they_are))

    def post_octets(self, octets: bytes) -> None:
        """Queue octets as they are, after all FPDUs queued before; the queue of messages must be empty."""
        assert not self._messages
        if octets:
            self._pending.append(memoryview(octets))

    def step(self, until: float | None = None) -> list[rdmap.Event]:
        """Send and receive what is possible, waiting for one of them if need be; what was received."""
        if self._failure is not None:
            raise self._failure
        readable, writable = self.stream.wait(not self.peer_closed, self.sending, until)
        # Input first: what the peer said before it reset the connection is still there to be read.
        events = self._receive_some() if readable else []
        if writable:
            self._send_some()
        return events

    def finish_sending(self) -> list[rdmap.Event]:
        """Step until everything is handed to TCP; what was received meanwhile."""
        events: list[rdmap.Event] = []
        while self.sending:
            events += self.step()
        return events

    def close_after(self, failure: ConnectionFailed) -> None:
        """Answer a failure: Terminate where due, then FIN, then wait a little for the peer to close too."""
        self._messages.clear()
        terminate = rdmap.Terminate.about(failure, failure.ulpdu)
        try:
            if terminate is not None and self.may_send:
                self.post(iter((terminate.encode(),)))
            self._discard_until(lambda: not self.sending)
            self.stream.shut_down_sending()  # RDMAP-5.4-04: nothing follows
            self._discard_until(lambda: self.peer_closed)
        except TcpError:
            pass  # the peer was quicker; there is nobody left to tell
        self.stream.socket.close()

    def _discard_until(self, done: Callable[[], bool]) -> None:
        until = min(self.stream.deadline, time.monotonic() + DRAIN_SECONDS)
        while not done() and time.monotonic() < until:
            readable, writable = self.stream.wait(not self.peer_closed, self.sending, until)
            if writable:
                self._send_some()
            if readable:
                self.peer_closed = self.stream.receive() == b""  # MPA-8-09, DDP-7.1-17: dropped unread

    def _refill(self) -> None:
        """Frame the next ULPDUs: one if segments are to start with it, else a batch."""
        batch: list[bytes] = []
        octets = 0
        while self._messages and octets < (1 if self.options.align else BATCH_OCTETS):
            ulpdus, as_they_are = self._messages[0]
            ulpdu = next(ulpdus, None)
            if ulpdu is None:
                self._messages.popleft()
                continue
            batch.append(
                self.writer.frame(ulpdu if as_they_are else rdmap.in_version(ulpdu, self.agreed.version))
            )
            octets += len(batch[-1])
            self.fpdus_sent += 1
        if batch:
            self._pending.append(memoryview(b"".join(batch)))

    def _send_some(self) -> None:
        budget = BATCH_OCTETS
        while budget > 0:
            if not self._pending:
                self._refill()
            if not self._pending:
                return
            sent = self.stream.send(self._pending[0], end_of_record=self.options.align)
            if sent == 0:
                return
            budget -= sent
            self._pending[0] = self._pending[0][sent:]
            if not self._pending[0]:
                self._pending.popleft()

    def _receive_some(self) -> list[rdmap.Event]:
        octets = self.stream.receive()
        if octets is None:
            return []
        if not octets:
            self.peer_closed = True
            if self.reader.incomplete_octets:
                raise MpaError(
                    MpaError.TCP_CLOSED, f"FIN after {self.reader.incomplete_octets} octets of an FPDU"
                )
            return []
        self.reader.feed(octets)
        events: list[rdmap.Event] = []
        while (fpdu := self.reader.read()) is not None:
            self.fpdus_received += 1
            try:
                event = self._judge_event(self.receiver.receive(fpdu.ulpdu))
                if isinstance(event, rdmap.Terminate):
                    raise rdmap.RemoteTerminate(event)
            except ConnectionFailed as failure:
                failure.ulpdu = failure.ulpdu or fpdu.ulpdu
                if not events:
                    raise
                self._failure = failure
                return events
            if event is not None:
                events.append(event)
        return events
