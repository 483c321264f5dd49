"""Cases that break a rule of DDP or RDMAP: the error that is reported, the Terminate that comes, and that
nothing was touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import ddp, rdmap
from .driver import Driven
from .errors import TerminateControl
from .operation_cases import CASES, IRD, Case, require, sink_of, tagged
from .operations import Peer
from .rdmap import AtomicRequest, Opcode, ReadRequest

BEFORE: Final = b"\x5a" * 64
"""What is in the memory that an attack is after."""


def target_of(peer: Peer, *words: str) -> Driven:
    """Memory of the other end with known octets."""
    target = peer.driver.region("target", 64, *words)
    peer.driver.set(target, 0, BEFORE)
    return target


def untagged(
    qn: int,
    msn: int,
    message: bytes,
    mo: int = 0,
    control: int | None = None,
    version: int = ddp.VERSION,
    invalidate: int = 0,
    last: bool = True,
) -> bytes:
    """The ULPDU of a Send, or of what ``control`` makes it."""
    octet = rdmap.control(Opcode.SEND) if control is None else control
    return ddp.Untagged(last, octet << 32 | invalidate, qn, msn, mo, version).encode() + message


OF_ANOTHER_CORE: Final = {(1, 1, 2): (1, 1, 0), (0, 1, 3): (0, 1, 0)}
"""STag not associated, for DDP and for RDMAP, and invalid STag. Of several cores, that of the stream has only
the memory of domains with queue pairs there: it cannot know that another domain has an STag."""


def attack(
    name: str,
    control: tuple[int, int, int],
    *requirements: str,
    rights: tuple[str, ...] = ("remote-write",),
    buffers: int = 0,
    code: str | None = None,
) -> Callable[[Callable[[Peer, Driven], bytes]], None]:
    """A case whose function gives the ULPDU in error, and may send others before; ``buffers`` of 16 octets
    are posted. The target must be as before."""

    def enter(act: Callable[[Peer, Driven], bytes]) -> None:
        def play(peer: Peer) -> None:
            target = target_of(peer, *rights)
            inbox = peer.driver.region("inbox", 64, "local-write")
            for number in range(buffers):
                peer.driver.tell("receive", number, inbox.part(16 * number, 16))
            ulpdu = act(peer, target)
            peer.raw(ulpdu)
            peer.raw(tagged(target.stag, target.to, b"too late"))  # DDP-7.1-17
            is_unknown_there = "other" in rights and peer.driver.cores > 1
            expected = OF_ANOTHER_CORE.get(control, control) if is_unknown_there else control
            peer.expect_terminate(expected, ulpdu, code)
            peer.driver.expect_memory(target, BEFORE)
            peer.driver.expect_memory(inbox, bytes(64))
            for number in range(buffers):
                found = peer.driver.tell("wait", 1)
                require(found["id"] == number and found["status"] != "success", f"{found}: not flushed")

        CASES[name] = Case(name, requirements, play, captured=False)

    return enter


def read_request(peer: Peer, stag: int, to: int, size: int = 8, msn: int | None = None) -> bytes:
    """A Read Request, not sent."""
    sink = sink_of(peer)
    msn = peer.next_msn(rdmap.QN_READ_REQUEST) if msn is None else msn
    return rdmap.untagged(
        Opcode.READ_REQUEST, msn, ReadRequest(sink.stag, sink.base, size, stag, to).encode()
    )


def atomic_request(peer: Peer, stag: int, to: int, operation: int = rdmap.FETCH_ADD) -> bytes:
    """An Atomic Request, not sent."""
    request = AtomicRequest(operation, 1, stag, to, 1, 0)
    return rdmap.untagged(Opcode.ATOMIC_REQUEST, peer.next_msn(rdmap.QN_READ_REQUEST), request.encode())


# DDP, tagged (RFC 5041 §7.1, §7.2).


@attack("a-write-by-a-stale-key", (1, 1, 0), "DDP-4.2-05", "DDP-7.1-10", "DDP-8.3-05")
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag ^ 1, target.to, b"x")


@attack("a-write-to-no-region", (1, 1, 0), "DDP-7.1-10", "DDP-7.1-11")
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag ^ 0x5A5A5A00, target.to, b"x")


@attack(
    "a-write-into-another-domain", (1, 1, 2), "DDP-8.2-01", "DDP-7.1-10", rights=("remote-write", "other")
)
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to, b"x")


@attack("a-write-one-octet-before", (1, 1, 1), "DDP-7.1-12", "DDP-8.1-01")
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to - 1, b"xy")


@attack("a-write-one-octet-past", (1, 1, 1), "DDP-7.1-13", "DDP-8.1-01")
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to + 63, b"xy")


@attack("a-write-past-in-its-second-segment", (1, 1, 1), "DDP-7.1-13", "DDP-7.1-15")
def _(peer: Peer, target: Driven) -> bytes:
    peer.raw(tagged(target.stag, target.to, BEFORE[:32], last=False))
    return tagged(target.stag, target.to + 32, bytes(33))


@attack("a-write-that-wraps", (1, 1, 3), "DDP-7.1-14", "A-30")
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, 2**64 - 1, b"xy")


@attack("a-write-that-wraps-exactly", (1, 1, 3), "DDP-7.1-14", "A-14", rights=("remote-write", "zero"))
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, 2**64 - 2, b"xy")


@attack("a-write-of-another-version", (1, 1, 4), "DDP-4.1-09", "DDP-4.1-10", "A-13")
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to, b"x", version=2)


# DDP, untagged.


@attack("a-send-to-queue-4", (1, 2, 1), "DDP-7.1-01", buffers=1)
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(4, 1, b"x")


@attack("a-send-without-a-buffer", (1, 2, 2), "DDP-7.1-02", "DDP-7.1-06", "DDP-7.1-09", "A-15")
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(rdmap.QN_SEND, 1, b"x")


@attack("an-empty-send-without-a-buffer", (1, 2, 2), "DDP-7.1-02", "A-28")
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(rdmap.QN_SEND, 1, b"")


@attack("a-send-before-its-turn", (1, 2, 3), "DDP-7.1-05", "A-15", buffers=1)
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(rdmap.QN_SEND, 100, b"x")


@attack("a-send-numbered-0", (1, 2, 3), "DDP-4.3-08", "DDP-7.1-05", buffers=2)
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(rdmap.QN_SEND, 0, b"x")


@attack("a-send-that-begins-past-the-buffer", (1, 2, 4), "DDP-7.1-03", "A-30", buffers=1)
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(rdmap.QN_SEND, 1, b"x", mo=17)


@attack("a-send-too-long", (1, 2, 5), "DDP-7.1-04", "RDMAP-5.3-02", buffers=1)
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(rdmap.QN_SEND, 1, bytes(17))


@attack("a-send-of-another-version", (1, 2, 6), "DDP-4.1-10", "A-13", buffers=1)
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(rdmap.QN_SEND, 1, b"x", version=0)


@attack("a-segment-shorter-than-its-header", (1, 0, 0), "A-06", "DDP-4.4-01", code="ddp:0:0")
def _(_peer: Peer, _target: Driven) -> bytes:
    return tagged(0, 0, b"")[:13]


@attack(
    "more-reads-than-agreed",
    (1, 2, 2),
    "RDMAP-6.1-03",
    "RDMAP-5.2.2-02",
    "DDP-7.1-02",
    rights=("remote-read",),
)
def _(peer: Peer, target: Driven) -> bytes:
    for _ in range(IRD):
        peer.read(sink_of(peer), 0, 8, target)
    return read_request(peer, target.stag, target.to)


@attack("a-read-before-its-turn", (1, 2, 3), "DDP-7.1-05", "RDMAP-5.2.1-03", rights=("remote-read",))
def _(peer: Peer, target: Driven) -> bytes:
    return read_request(peer, target.stag, target.to, msn=2)


@attack("an-atomic-response-to-nothing", (1, 2, 2), "RDMAPX-5-04", "DDP-7.1-02")
def _(_peer: Peer, _target: Driven) -> bytes:
    return rdmap.untagged(Opcode.ATOMIC_RESPONSE, 1, bytes(12))


# RDMAP, protection (RFC 5040 §7.2, §4.8).


@attack(
    "a-write-without-the-right", (1, 1, 0), "DDP-8.3.1-06", "RDMAP-4.8-03", "A-31", rights=("remote-read",)
)
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to, b"x")


@attack(
    "a-read-of-no-region",
    (0, 1, 0),
    "RDMAP-5.2.1-08",
    "RDMAP-7.1-02",
    "RDMAP-7.2-05",
    rights=("remote-read",),
)
def _(peer: Peer, target: Driven) -> bytes:
    return read_request(peer, target.stag ^ 1, target.to)


@attack("a-read-one-octet-before", (0, 1, 1), "RDMAP-5.2.1-08", "RDMAP-7.2-07", rights=("remote-read",))
def _(peer: Peer, target: Driven) -> bytes:
    return read_request(peer, target.stag, target.to - 1, 2)


@attack("a-read-one-octet-past", (0, 1, 1), "RDMAP-5.2.1-08", "RDMAP-7.2-07", rights=("remote-read",))
def _(peer: Peer, target: Driven) -> bytes:
    return read_request(peer, target.stag, target.to, 65)


@attack("a-read-of-4-gib", (0, 1, 1), "RDMAP-4.4-04", "RDMAP-7.2-07", rights=("remote-read",))
def _(peer: Peer, target: Driven) -> bytes:
    return read_request(peer, target.stag, target.to, 2**32 - 1)


@attack("a-read-without-the-right", (0, 1, 2), "RDMAP-4.8-03", "RDMAP-7.1-02", rights=("remote-write",))
def _(peer: Peer, target: Driven) -> bytes:
    return read_request(peer, target.stag, target.to)


@attack("a-read-of-another-domain", (0, 1, 3), "RDMAP-7.2-06", "DDP-8.2-01", rights=("remote-read", "other"))
def _(peer: Peer, target: Driven) -> bytes:
    return read_request(peer, target.stag, target.to)


@attack("a-read-that-wraps", (0, 1, 4), "RDMAP-7.2-08", "A-14", rights=("remote-read",))
def _(peer: Peer, target: Driven) -> bytes:
    return read_request(peer, target.stag, 2**64 - 8, 8)


@attack("an-invalidation-of-nothing", (0, 1, 9), "RDMAP-5.3-08", "RDMAP-7.2-04", "A-17", buffers=1)
def _(peer: Peer, target: Driven) -> bytes:
    return next(rdmap.send(b"", 1, 1000, invalidate=target.stag ^ 1))


@attack(
    "an-invalidation-in-another-domain",
    (0, 1, 9),
    "RDMAP-7.2-04",
    "DDP-8.2-01",
    buffers=1,
    rights=("remote-write", "other"),
)
def _(peer: Peer, target: Driven) -> bytes:
    return next(rdmap.send(b"", 1, 1000, invalidate=target.stag, solicited=True))


@attack("an-invalidation-of-what-others-may-use", (0, 1, 9), "RDMAP-8.1.1-02", "RDMAP-5.3-08", buffers=1)
def _(_peer: Peer, target: Driven) -> bytes:
    return next(rdmap.send(b"", 1, 1000, invalidate=target.stag))


@attack("a-second-invalidation", (0, 1, 9), "RDMAP-5.3-08", "RDMAP-7.2-04")
def _(peer: Peer, target: Driven) -> bytes:
    once = peer.driver.region("once", 64, "remote-write", "stream")
    for number in (1, 2):
        peer.driver.tell("receive", number, once.part(0, 0))
    peer.send(b"", invalidate=once.stag)
    return next(rdmap.send(b"", 2, 1000, invalidate=once.stag))


@attack("an-atomic-on-no-region", (0, 1, 0), "RDMAPX-8-01", rights=("remote-atomic",))
def _(peer: Peer, target: Driven) -> bytes:
    return atomic_request(peer, target.stag ^ 1, target.to)


@attack("an-atomic-past-the-end", (0, 1, 1), "RDMAPX-8-01", rights=("remote-atomic",))
def _(peer: Peer, target: Driven) -> bytes:
    return atomic_request(peer, target.stag, target.to + 64)


@attack("an-atomic-without-the-right", (0, 1, 2), "RDMAPX-8-01", rights=("remote-read", "remote-write"))
def _(peer: Peer, target: Driven) -> bytes:
    return atomic_request(peer, target.stag, target.to)


@attack("an-atomic-in-another-domain", (0, 1, 3), "RDMAPX-8-01", rights=("remote-atomic", "other"))
def _(peer: Peer, target: Driven) -> bytes:
    return atomic_request(peer, target.stag, target.to)


# RDMAP, operations.


@attack("an-unaligned-atomic", (0, 2, 7), "RDMAPX-5-02", rights=("remote-atomic",))
def _(peer: Peer, target: Driven) -> bytes:
    return atomic_request(peer, target.stag, target.to + 4)


@attack("an-unaligned-compare-and-swap", (0, 2, 7), "RDMAPX-5-02", rights=("remote-atomic",))
def _(peer: Peer, target: Driven) -> bytes:
    return atomic_request(peer, target.stag, target.to + 1, rdmap.COMPARE_SWAP)


@attack("an-unknown-atomic", (0, 2, 6), "RDMAPX-8-01", rights=("remote-atomic",))
def _(peer: Peer, target: Driven) -> bytes:
    return atomic_request(peer, target.stag, target.to, 1)


@attack("a-write-of-another-rdmap", (0, 2, 5), "RDMAP-4.1-07", "RDMAP-7.2-03")
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to, b"x", rdmap.control(Opcode.WRITE, version=0))


@attack(
    "a-write-of-another-rdmap-without-the-right", (0, 2, 5), "RDMAP-7.2-03", "A-30", rights=("remote-read",)
)
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to, b"x", rdmap.control(Opcode.WRITE, version=0))


@attack(
    "a-tagged-send-without-the-right",
    (0, 2, 6),
    "RDMAP-4.1-04",
    "RDMAP-7.2-02",
    "A-30",
    rights=("remote-read",),
)
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to, b"x", rdmap.control(Opcode.SEND))


@attack("a-send-of-another-rdmap", (0, 2, 5), "RDMAP-4.1-07", "RDMAP-7.2-03", buffers=1)
def _(_peer: Peer, _target: Driven) -> bytes:
    return untagged(rdmap.QN_SEND, 1, b"x", control=rdmap.control(Opcode.SEND, version=3))


@attack("a-read-of-another-rdmap", (0, 2, 5), "RDMAP-7.2-03", rights=("remote-read",))
def _(peer: Peer, target: Driven) -> bytes:
    ulpdu = bytearray(read_request(peer, target.stag, target.to))
    ulpdu[1] ^= 0x80
    return bytes(ulpdu)


@attack("a-response-to-nothing", (0, 2, 6), "RDMAP-7.2-02", "RDMAP-4.1-05")
def _(_peer: Peer, target: Driven) -> bytes:
    return tagged(target.stag, target.to, b"x", rdmap.control(Opcode.READ_RESPONSE))


@attack("an-empty-response-to-nothing", (0, 2, 6), "RDMAP-7.2-02", "RDMAP-4.1-05")
def _(_peer: Peer, _target: Driven) -> bytes:
    return tagged(0, 0, b"", rdmap.control(Opcode.READ_RESPONSE))


for _number in (
    *range(12, 16),
    Opcode.WRITE,
    Opcode.READ_REQUEST,
    Opcode.READ_RESPONSE,
    Opcode.TERMINATE,
    Opcode.ATOMIC_REQUEST,
    Opcode.ATOMIC_RESPONSE,
):

    @attack(
        f"opcode-{_number}-on-queue-0",
        (0, 2, 6),
        "RDMAP-4.1-04",
        "RDMAP-4.1-05",
        "RDMAP-7.2-02",
        "RDMAPX-8-01",
        buffers=1,
    )
    def _(_peer: Peer, _target: Driven, number: int = _number) -> bytes:
        return untagged(rdmap.QN_SEND, 1, bytes(8), control=rdmap.control(number))


for _number in (
    *range(12, 16),
    Opcode.READ_REQUEST,
    Opcode.SEND,
    Opcode.SEND_INVALIDATE,
    Opcode.TERMINATE,
    Opcode.IMMEDIATE,
    Opcode.ATOMIC_REQUEST,
):

    @attack(
        f"opcode-{_number}-tagged", (0, 2, 6), "RDMAP-4.1-04", "RDMAP-4.1-05", "RDMAP-7.2-02", "RDMAPX-8-01"
    )
    def _(_peer: Peer, target: Driven, number: int = _number) -> bytes:
        return tagged(target.stag, target.to, b"x", rdmap.control(number))


for _octets in (0, 7, 9, 16):

    @attack(f"immediate-data-of-{_octets}-octets", (0, 2, 255), "RDMAPX-6-01", buffers=1)
    def _(_peer: Peer, _target: Driven, octets: int = _octets) -> bytes:
        return rdmap.untagged(Opcode.IMMEDIATE, 1, bytes(octets))


for _octets in (0, 27, 29):

    @attack(f"a-read-request-of-{_octets}-octets", (0, 2, 255), "RDMAP-4.4-01")
    def _(_peer: Peer, _target: Driven, octets: int = _octets) -> bytes:
        return rdmap.untagged(Opcode.READ_REQUEST, 1, bytes(octets))


# Responses that are not what was asked for.


def response_attack(
    name: str,
    change: Callable[[ReadRequest], tuple[int, int, bytes, bool]],
    expected: tuple[int, int, int] = (0, 2, 255),
) -> None:
    """The other end reads 16 octets and gets a Response that ``change`` makes: STag, TO, payload, Last.
    What passes DDP's checks is an operation error of RDMAP (A-32)."""

    def play(peer: Peer) -> None:
        sink = peer.driver.region("sink", 64, "local-write")
        peer.driver.set(sink, 0, BEFORE)
        ours = peer.memory(64)
        peer.answers = False
        peer.tell("read", 1, sink.part(8, 16), ours.stag, ours.base)
        peer.until(lambda: bool(peer.asked), "the Read")
        request = peer.asked[0]
        assert isinstance(request, ReadRequest)
        stag, to, payload, last = change(request)
        peer.raw(tagged(stag, to, payload, rdmap.control(Opcode.READ_RESPONSE), last=last))
        try:
            peer.until(lambda: False, "a Terminate")
        except rdmap.RemoteTerminate as told:
            control = told.received.control
        peer.expect_end()
        require(control == expected, f"Terminate {control}")
        peer.expect_report(f"{('rdmap', 'ddp')[control.layer]}:{control.error_type}:{control.error_code}")
        found = peer.driver.tell("wait", 1)
        require(found["id"] == 1 and found["status"] != "success", f"{found}: completed")
        content = peer.driver.get(sink)
        require(content[:8] + content[24:] == BEFORE[:8] + BEFORE[24:], "octets outside the sink of the Read")

    CASES[name] = Case(name, ("RDMAP-5.2.2-04", "DDP-7.2-01", "A-32"), play, captured=False)


response_attack(
    "a-response-to-another-stag",
    lambda asked: (asked.sink_stag ^ 1, asked.sink_to, bytes(16), True),
    (1, 1, 0),
)
response_attack(
    "a-response-before-its-place", lambda asked: (asked.sink_stag, asked.sink_to - 1, bytes(16), True)
)
response_attack(
    "a-response-behind-its-place", lambda asked: (asked.sink_stag, asked.sink_to + 1, bytes(15), True)
)
response_attack("a-response-too-long", lambda asked: (asked.sink_stag, asked.sink_to, bytes(17), True))
response_attack("a-response-too-short", lambda asked: (asked.sink_stag, asked.sink_to, bytes(15), True))
response_attack(
    "a-response-that-does-not-end", lambda asked: (asked.sink_stag, asked.sink_to, bytes(17), False)
)
response_attack(
    "an-empty-response-to-a-read-of-octets", lambda asked: (asked.sink_stag, asked.sink_to, b"", True)
)


# Terminates that the other end is sent.

TOLD: Final = (
    *((0, 0, code) for code in (0, 1, 255)),
    *((0, 1, code) for code in (0, 1, 2, 3, 4, 9, 255)),
    *((0, 2, code) for code in (5, 6, 7, 8, 9, 255)),
    (1, 0, 0),
    *((1, 1, code) for code in range(5)),
    *((1, 2, code) for code in range(1, 7)),
    *((2, 0, code) for code in range(1, 8)),
    (1, 3, 1),
    (15, 15, 254),
)
"""Every error of the documents, and some of none."""
CAPTURED_OF_TOLD: Final = 5
"""Every n-th of them is captured, unless tshark 4.0 takes it for malformed: it believes in a Tagged header
only where the error is DDP's about a Tagged Buffer."""


def told(control: tuple[int, int, int], number: int) -> None:
    """The other end is told of an error, with headers and without; it reports it and flushes its work."""

    def play(peer: Peer) -> None:
        inbox = peer.driver.region("inbox", 64, "local-write")
        peer.driver.tell("receive", 7, inbox.part(0, 64))
        segment = read_request(peer, 1, 2) if number % 3 == 2 else tagged(1, 2, b"x")
        headers = [(None, b"", b""), (15, segment[:14], b""), (46, segment[:18], segment[18:])][number % 3]
        peer.raw(rdmap.Terminate(TerminateControl(*control), *headers).encode())
        peer.settle()
        peer.expect_silence()
        peer.expect_report("terminated:" + ":".join(map(str, control)))
        found = peer.driver.tell("wait", 1)
        require(found["id"] == 7 and found["status"] != "success", f"{found}: not flushed")

    name = "terminate-" + "-".join(map(str, control))
    captured = number % CAPTURED_OF_TOLD == 0 and not (number % 3 == 1 and control[:2] != (1, 1))
    CASES[name] = Case(
        name, ("RDMAP-4.8-03", "RDMAP-5.4-02", "RDMAP-5.4-03", "RDMAP-6.2.1-02"), play, captured
    )


for _number, _control in enumerate(TOLD):
    told(_control, _number)
