"""Every operation both ways, step by step: what a case does, and what has to come of it.

A case is given a :class:`~iwarp.operations.Peer` on a new connection.  Whatever it does not expect fails it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from . import ddp, rdmap
from .driver import Driven, Refused
from .errors import ExchangeRule
from .operations import Memory, Peer
from .rdmap import AtomicRequest, Immediate, Sent

IRD, ORD = 4, 3
"""What each end offers, as it sees it: the other end answers IRD of ours at a time and has ORD of its own."""
LONG: Final = 200_000
"""Octets of a message of many segments."""
BUFFER: Final = 4096


@dataclass(frozen=True)
class Case:
    """One connection and what happens on it."""

    name: str
    requirements: tuple[str, ...]
    act: Callable[[Peer], None]
    captured: bool
    """Whether a capture of it is worth judging."""


CASES: Final[dict[str, Case]] = {}


def case(*requirements: str) -> Callable[[Callable[[Peer], None]], Callable[[Peer], None]]:
    """Makes a function a case of its own name."""

    def enter(act: Callable[[Peer], None]) -> Callable[[Peer], None]:
        name = act.__name__.replace("_", "-")
        CASES[name] = Case(name, requirements, act, captured=True)
        return act

    return enter


def pattern(octets: int, seed: int = 1) -> bytes:
    """Octets that no shift of them equals."""
    return random.Random(seed).randbytes(octets)


def require(held: bool, what: str) -> None:
    """A rule that the other end has to keep."""
    if not held:
        raise ExchangeRule(what)


def closing_send(peer: Peer) -> None:
    """A Send to the other end, behind which everything sent before is in place (RDMAP-5.5-02)."""
    peer.driver.region("closing", 16, "local-write")
    peer.driver.tell("receive", 9999, "closing:0:16")
    peer.send(b"that was all")
    peer.completion(id=9999, kind="receive", octets=12)


# Writes.


@case("RDMAP-5.1-01", "RDMAP-5.1-02", "RDMAP-5.1-03", "DDP-5.2-04", "DDP-5.2-10")
def writes_to_the_other_end(peer: Peer) -> None:
    """Of one octet, many segments, the first and last octets of the buffer, and nothing; no completion but
    the Send's."""
    target = peer.driver.region("target", LONG, "remote-write")
    content = pattern(LONG)
    peer.write(content[:1], target.stag, target.to)
    peer.write(content[1 : LONG - 1], target.stag, target.to + 1)
    peer.write(content[LONG - 1 :], target.stag, target.to + LONG - 1)
    peer.write(b"", 0xDEADBEEF, 2**64 - 1)
    closing_send(peer)
    peer.driver.expect_memory(target, content)
    peer.close()


@case(
    "RDMAP-5.1-01", "RDMAP-5.1-04", "RDMAP-5.5-06", "RDMAP-5.5-08", "DDP-4.1-03", "DDP-4.2-08", "DDP-5.3-03"
)
def writes_from_the_other_end(peer: Peer) -> None:
    """The same from there: what they carry, in the order of posting, and one completion each."""
    source = peer.driver.region("source", LONG)
    content = pattern(LONG, 2)
    peer.driver.set(source, 0, content)
    target = peer.memory(LONG)
    cuts = [(0, 1), (1, LONG - 2), (LONG - 1, 1), (5, 0)]
    for number, (offset, octets) in enumerate(cuts):
        peer.driver.tell("write", number, source.part(offset, octets), target.stag, target.base + offset)
    for number, (_, octets) in enumerate(cuts):
        peer.completion(id=number, kind="write", octets=octets)
    peer.until(lambda: len(peer.written) == len(cuts), "the last segments of all Writes")
    require(bytes(target.content(LONG)) == content, "other octets were written")
    starts = [to for to, _ in target.written]
    require(starts == sorted(starts), "segments of a Write in another order (DDP-5.3-03)")
    peer.close()


# Sends.


@case("RDMAP-5.3-01", "RDMAP-5.3-03", "RDMAP-5.3-05", "RDMAP-5.3-06", "DDP-5.4-02", "RDMAPX-6-01")
def sends_to_the_other_end(peer: Peer) -> None:
    """Every kind that leaves STags alone, of any length, into buffers in pieces; each completes in its
    turn."""
    inbox = peer.driver.region("inbox", 2 * LONG, "local-write")
    content = pattern(LONG, 3)
    pieces = ",".join((inbox.part(100, 3), inbox.part(0, 50), inbox.part(1000, LONG)))
    peer.driver.tell("receive", 1, pieces)
    for number in range(2, 7):
        peer.driver.tell("receive", number, inbox.part(LONG + 2000, 64))
    peer.send(content)
    peer.send(b"", solicited=True)
    peer.immediate(0x0102030405060708)
    peer.immediate(2**64 - 1, solicited=True)
    peer.send(b"solicited", solicited=True)
    peer.send(b"")
    common = {"kind": "receive", "invalidated": None}
    peer.completion(id=1, octets=LONG, solicited=False, immediate=None, **common)
    peer.completion(id=2, octets=0, solicited=True, immediate=None, **common)
    peer.completion(id=3, solicited=False, immediate=0x0102030405060708, **common)
    peer.completion(id=4, solicited=True, immediate=2**64 - 1, **common)
    peer.completion(id=5, octets=9, solicited=True, immediate=None, **common)
    peer.completion(id=6, octets=0, solicited=False, immediate=None, **common)
    peer.driver.expect_memory(inbox, content[:3], 100)
    peer.driver.expect_memory(inbox, content[3:53], 0)
    peer.driver.expect_memory(inbox, content[53:], 1000)
    peer.driver.expect_memory(inbox, b"solicited", LONG + 2000)
    peer.close()


@case(
    "RDMAP-4.1-03", "RDMAP-5.3-03", "RDMAP-5.3-05", "RDMAP-5.3-07", "RDMAPX-4-01", "RDMAPX-6-01", "DDP-4.3-06"
)
def sends_from_the_other_end(peer: Peer) -> None:
    """Every kind of Send and of Immediate Data, from one buffer, several, and none."""
    source = peer.driver.region("source", LONG)
    content = pattern(LONG, 4)
    peer.driver.set(source, 0, content)
    for _ in range(8):
        peer.post_receive(LONG)
    peer.tell("send", 1, source.part(0, LONG))
    peer.tell(
        "send", 2, ",".join((source.part(9, 5), source.part(100, 0), source.part(3, 4000))), "solicited"
    )
    peer.tell("send", 3, source.part(7, 7), "invalidate=0xa1a2a3a4")
    peer.tell("send", 4, source.part(0, 0), "invalidate=1", "solicited")
    peer.tell("send", 5, "inline=" + content[:64].hex())
    peer.tell("immediate", 6, 7306)
    peer.tell("immediate", 7, 0xFEDCBA9876543210, "solicited")
    peer.tell("send", 8, source.part(LONG - 1, 1))
    peer.expect_message(Sent(content))
    peer.expect_message(Sent(content[9:14] + content[3:4003], solicited=True))
    peer.expect_message(Sent(content[7:14], invalidate=0xA1A2A3A4))
    peer.expect_message(Sent(b"", invalidate=1, solicited=True))
    peer.expect_message(Sent(content[:64]))
    peer.expect_message(Immediate(7306, False))
    peer.expect_message(Immediate(0xFEDCBA9876543210, True))
    peer.expect_message(Sent(content[-1:]))
    for number in range(1, 9):
        peer.completion(id=number)
    peer.close()


@case("RDMAP-5.3-07", "RDMAP-5.3-08", "RDMAP-7.2-04", "DDP-4.3-03", "DDP-5.4-03", "DDP-7.1-10")
def what_a_send_invalidates_is_gone(peer: Peer) -> None:
    """Both invalidating Sends; writing to what they named ends the stream, what they did not name stays."""
    regions = [peer.driver.region(f"target{number}", 64, "remote-write", "stream") for number in range(3)]
    inbox = peer.driver.region("inbox", 64, "local-write")
    for number in range(3):
        peer.driver.tell("receive", number, inbox.part(0, 64))
    peer.send(b"one", invalidate=regions[0].stag)
    peer.completion(id=0, invalidated=regions[0].stag, solicited=False, octets=3)
    peer.send(b"two", invalidate=regions[1].stag, solicited=True)
    peer.completion(id=1, invalidated=regions[1].stag, solicited=True, octets=3)
    peer.write(b"still here", regions[2].stag, regions[2].to)
    peer.send(b"")
    peer.completion(id=2)
    peer.driver.expect_memory(regions[2], b"still here")
    ulpdu = tagged(regions[0].stag, regions[0].to, b"gone")
    peer.raw(ulpdu)
    peer.expect_terminate((1, 1, 0), ulpdu)
    peer.driver.expect_memory(regions[0], bytes(64))


# Reads.


@case(
    "RDMAP-4.4-01",
    "RDMAP-4.4-02",
    "RDMAP-5.2-01",
    "RDMAP-5.2.1-02",
    "RDMAP-5.2.1-04",
    "RDMAP-5.2.1-05",
    "RDMAP-5.2.1-06",
    "RDMAP-5.2.1-07",
    "RDMAP-5.2.1-09",
    "RDMAP-5.2.1-10",
    "RDMAP-5.2.2-01",
    "RDMAP-5.2.2-06",
)
def reads_of_the_other_end(peer: Peer) -> None:
    """All of a buffer, its ends, and nothing of a buffer that does not exist; the other end's user sees
    none of it."""
    source = peer.driver.region("source", LONG, "remote-read")
    content = pattern(LONG, 5)
    peer.driver.set(source, 0, content)
    sink = peer.memory(LONG)
    for offset, octets in [(0, LONG), (0, 1), (LONG - 1, 1), (77, 4096)]:
        sink.set(0, bytes(LONG))
        peer.read(sink, offset, octets, source, offset)
        peer.answered()
        expected = bytes(offset) + content[offset : offset + octets] + bytes(LONG - offset - octets)
        require(bytes(sink.content(LONG)) == expected, f"other octets were read at {offset}")
    peer.read(sink, 0, 0, (0xDEADBEEF, 2**64 - 1))
    peer.answered()
    require(sink.octets_outside() == 0, "octets outside the sink")
    closing_send(peer)
    peer.close()


@case("RDMAP-5.2.1-03", "RDMAP-5.2.2-02", "RDMAP-5.2.2-05", "RDMAP-5.5-11", "RDMAP-6.1-02")
def as_many_reads_as_agreed(peer: Peer) -> None:
    """IRD Read Requests at once, again and again, are answered in their order."""
    source = peer.driver.region("source", 4 * BUFFER, "remote-read")
    content = pattern(4 * BUFFER, 6)
    peer.driver.set(source, 0, content)
    sink = peer.memory(4 * BUFFER)
    for _ in range(20):
        for number in range(IRD):
            peer.read(sink, number * BUFFER, BUFFER, source, number * BUFFER)
        peer.answered()
    require(bytes(sink.content(4 * BUFFER)) == content, "other octets were read")
    peer.close()


@case("RDMAP-5.5-04", "RDMAP-5.5-05", "RDMAP-5.5-09")
def a_read_sees_what_was_written_before_it(peer: Peer) -> None:
    """Write, Read, Write: the Read brings the first, wherever its Response is when the second comes; a
    Send behind completes."""
    both = peer.driver.region("both", LONG, "remote-read", "remote-write")
    sink = peer.memory(LONG)
    old, new = pattern(LONG, 7), pattern(16, 8)
    peer.write(old, both.stag, both.to)
    peer.read(sink, 0, LONG - 16, both)
    peer.write(new, both.stag, both.to + LONG - 16)
    closing_send(peer)
    peer.answered()
    require(bytes(sink.content(LONG - 16)) == old[:-16], "the Read did not see the Write before it")
    peer.driver.expect_memory(both, old[:-16] + new)
    peer.close()


@case(
    "RDMAP-5.2-01",
    "RDMAP-5.2.2-03",
    "RDMAP-5.2.2-04",
    "RDMAP-5.5-03",
    "RDMAP-5.5-10",
    "DDP-4.2-03",
    "DDP-4.2-07",
)
def reads_by_the_other_end(peer: Peer) -> None:
    """Of one octet, many segments and nothing: completed by their Responses, and into the sink alone."""
    sink = peer.driver.region("sink", LONG, "local-write")
    content = pattern(LONG, 9)
    source = peer.memory(LONG, content)
    for number, (offset, octets) in enumerate([(0, LONG), (5, 1), (LONG - 1, 1), (0, 0)]):
        peer.driver.set(sink, 0, bytes(LONG))
        peer.tell("read", number, sink.part(offset, octets), source.stag, source.base + offset)
        peer.completion(id=number, kind="read", octets=octets)
        expected = bytes(offset) + content[offset : offset + octets] + bytes(LONG - offset - octets)
        peer.driver.expect_memory(sink, expected)
    require(not peer.received, "a Read is no message")
    peer.close()


@case("RDMAP-6.1-02", "RDMAP-6.1-03", "RDMAP-5.2.1-03", "RDMAP-5.5-08", "RDMAP-5.5-11", "RDMAPX-5-04")
def the_other_end_keeps_to_its_ord(peer: Peer) -> None:
    """More Reads and Atomic Operations than may be outstanding wait there; each answer lets one out; all
    complete in order, and a Send posted behind them too, though it comes here before."""
    sink = peer.driver.region("sink", 64 * BUFFER, "local-write")
    content = pattern(BUFFER, 10)
    source = peer.memory(BUFFER, content)
    peer.answers = False
    count = 3 * ORD + 1
    for number in range(count):
        if number % 3 == 2:
            peer.tell("add", number, sink.part(number * BUFFER, 8), source.stag, source.base + 2000, 1, 0)
        else:
            peer.tell("read", number, sink.part(number * BUFFER, 100), source.stag, source.base + number)
    for answered in range(count):
        expected = min(ORD, count - answered)
        peer.until(lambda: len(peer.asked) == expected, f"{expected} requests")
        for _ in range(20):  # RDMAP-6.1-03: another would find no buffer here, and fail the case
            peer.endpoint.step(0)
        peer.answer()
        peer.completion(id=answered, kind="fetch-add" if answered % 3 == 2 else "read")
    peer.driver.expect_memory(sink, content[3:103], 3 * BUFFER)
    peer.close()


@case("RDMAP-5.5-10", "RDMAP-5.5-08")
def a_fence_waits_for_reads(peer: Peer) -> None:
    """A Send without a fence comes before the Response is there, one with a fence behind it; completions
    keep the order of posting."""
    sink = peer.driver.region("sink", 64, "local-write")
    source = peer.memory(64, pattern(64, 11))
    for _ in range(2):
        peer.post_receive(64)
    peer.answers = False
    peer.tell("read", 1, sink.part(0, 64), source.stag, source.base)
    peer.tell("send", 2, "inline=" + b"at once".hex())
    peer.tell("send", 3, sink.part(0, 64), "fenced")
    peer.expect_message(Sent(b"at once"))
    peer.until(lambda: len(peer.asked) == 1, "the Read")
    for _ in range(20):
        peer.endpoint.step(0)
    require(not peer.received, "a fenced Send before the Response")
    require(peer.tell("wait", 0).get("timeout") is True, "a completion before that of the Read")
    peer.answer()
    peer.expect_message(Sent(pattern(64, 11)))
    peer.completion(id=1, kind="read")
    peer.completion(id=2, kind="send")
    peer.completion(id=3, kind="send")
    peer.close()


@case("RDMAP-5.5-07")
def what_is_not_signaled_is_silent(peer: Peer) -> None:
    """Operations of every kind without completions, and one with."""
    memory = peer.driver.region("memory", 64, "local-write")
    ours = peer.memory(64, pattern(64, 12))
    peer.post_receive(64)
    peer.post_receive(64)
    peer.tell("read", 1, memory.part(0, 8), ours.stag, ours.base, "unsignaled")
    peer.tell("add", 2, memory.part(8, 8), ours.stag, ours.base, 5, 0, "unsignaled")
    peer.tell("write", 3, memory.part(0, 8), ours.stag, ours.base + 32, "unsignaled")
    peer.tell("send", 4, memory.part(0, 8), "unsignaled")
    peer.tell("send", 5, memory.part(0, 0))
    peer.completion(id=5)
    require(peer.tell("wait", 0).get("timeout") is True, "another completion")
    peer.close()


# Atomic Operations and Immediate Data with a Write (RFC 7306).

ATOMICS: Final = (
    (rdmap.FETCH_ADD, 41, 1, 0, 0, 2**64 - 1),
    (rdmap.FETCH_ADD, 2**64 - 1, 2, 0, 0, 2**64 - 1),
    (rdmap.FETCH_ADD, 0x00FF00FF_FFFFFFFF, 0x00010001_00000001, 0x80008000_80000000, 0, 2**64 - 1),
    (rdmap.FETCH_ADD, 0xFFFFFFFF_FFFFFFFF, 0xFFFFFFFF_FFFFFFFF, 2**64 - 1, 0, 2**64 - 1),
    (rdmap.COMPARE_SWAP, 7, 9, 2**64 - 1, 7, 2**64 - 1),
    (rdmap.COMPARE_SWAP, 7, 9, 2**64 - 1, 8, 2**64 - 1),
    (rdmap.COMPARE_SWAP, 0x1122334455667788, 0xAABBCCDDEEFF0011, 0xFF00FF00_FF00FF00, 0x99, 0),
    (
        rdmap.COMPARE_SWAP,
        0x1122334455667788,
        0xAABBCCDDEEFF0011,
        0x0000FFFF_00000000,
        0x55667788,
        0xFFFFFFFF,
    ),
)
"""Operation, value before, data, mask, comparand and its mask."""


@case("RDMAPX-4-01", "RDMAPX-5-01", "RDMAPX-5-03", "RDMAPX-5-04", "RDMAP-5.2.1-03")
def atomics_on_the_other_end(peer: Peer) -> None:
    """Additions and exchanges with masks of all sorts: the value before comes back, the result is there."""
    target = peer.driver.region("target", 64, "remote-atomic")
    for operation, before, data, mask, compare, compare_mask in ATOMICS:
        peer.driver.set(target, 16, before.to_bytes(8, "little"))
        peer.atomic(operation, target.stag, target.to + 16, data, mask, compare, compare_mask)
        request = peer.atomics[0]
        peer.answered()
        require(peer.values.pop() == before, f"{request}: another value before")
        peer.driver.expect_memory(target, request.result(before).to_bytes(8, "little"), 16)
    for number in range(IRD):  # as many as agreed, at once
        peer.atomic(rdmap.FETCH_ADD, target.stag, target.to, 1 << 8 * number, 0)
    peer.answered()
    require(peer.values == [0, 0x1, 0x101, 0x10101][:IRD], f"Responses {peer.values}")
    peer.close()


@case("RDMAPX-4-01", "RDMAPX-5-01", "RDMAPX-5-03", "RDMAPX-5-04")
def atomics_by_the_other_end(peer: Peer) -> None:
    """The same from there, and the exchange without comparison."""
    result = peer.driver.region("result", 64, "local-write")
    ours = peer.memory(64)
    for number, (operation, before, data, mask, compare, compare_mask) in enumerate(ATOMICS):
        ours.set(24, before.to_bytes(8, "little"))
        where = (result.part(8, 8), ours.stag, ours.base + 24)
        if operation == rdmap.FETCH_ADD:
            peer.tell("add", number, *where, data, mask)
        else:
            peer.tell("compare-swap", number, *where, compare, compare_mask, data, mask)
        peer.completion(id=number, octets=8)
        wanted = AtomicRequest(operation, 0, 0, 0, data, mask, compare, compare_mask).result(before)
        require(ours.value(ours.base + 24) == wanted, f"{ATOMICS[number]}: {ours.value(ours.base + 24):#x}")
        peer.driver.expect_memory(result, before.to_bytes(8, "little"), 8)
    ours.set(24, (0x1111).to_bytes(8, "little"))
    peer.tell("swap", 99, result.part(8, 8), ours.stag, ours.base + 24, 0x2222, 2**64 - 1)
    peer.completion(id=99, octets=8)
    require(ours.value(ours.base + 24) == 0x2222, "not exchanged")
    peer.driver.expect_memory(result, (0x1111).to_bytes(8, "little"), 8)
    peer.close()


@case("RDMAPX-6-01", "RDMAPX-4-01", "RDMAP-5.5-06")
def a_write_with_immediate_is_a_write_and_a_message(peer: Peer) -> None:
    """The Write comes before the Immediate Data, and there is one completion."""
    source = peer.driver.region("source", LONG)
    content = pattern(LONG, 13)
    peer.driver.set(source, 0, content)
    target = peer.memory(LONG)
    for _ in range(3):
        peer.post_receive(8)
    peer.tell("write-immediate", 1, source.part(0, LONG), target.stag, target.base, 77)
    peer.tell("write-immediate", 2, source.part(0, 0), target.stag, target.base, 78, "solicited")
    peer.tell("immediate", 3, 79)
    peer.expect_message(Immediate(77, False))
    require(bytes(target.content(LONG)) == content, "the Immediate Data came before the Write")
    peer.expect_message(Immediate(78, True))
    peer.expect_message(Immediate(79, False))
    peer.completion(id=1, kind="write", octets=LONG)
    peer.completion(id=2, kind="write", octets=0)
    peer.completion(id=3)
    peer.close()


@case("DDP-8.3.1-07")
def a_local_invalidation_shuts_the_peer_out(peer: Peer) -> None:
    """An STag that its own end has invalidated by a work request."""
    target = peer.driver.region("target", 64, "remote-write")
    peer.write(b"before", target.stag, target.to)
    closing_send(peer)
    peer.tell("invalidate", 1, target.stag)
    peer.completion(id=1, kind="local-invalidate")
    ulpdu = tagged(target.stag, target.to, b"behind")
    peer.raw(ulpdu)
    peer.expect_terminate((1, 1, 0), ulpdu)
    peer.driver.expect_memory(target, b"before")


def bad_buffer(name: str, post: Callable[[Peer, Driven, Memory], object]) -> None:
    """A request on memory of the other end that is not there, or lacks the right, ends the stream: what it
    would have sent is replaced by a Terminate (RFC 5040 §7.1)."""

    def play(peer: Peer) -> None:
        memory = peer.driver.region("memory", 64)
        ours = peer.memory(64)
        peer.post_receive(64)
        peer.driver.tell("send", 1, memory.part(0, 8))
        post(peer, memory, ours)
        try:
            peer.driver.tell("send", 3, memory.part(0, 8))
            third = True
        except Refused:  # it was quick
            third = False
        peer.expect_message(Sent(bytes(8)))
        peer.expect_terminate((0, 0, 0), b"")
        peer.completion(id=1)
        peer.completion(id=2, status="local-protection")
        if third:
            peer.completion(id=3, status="flushed")
        require(not peer.asked and not peer.written, "something of the bad request was sent")

    CASES[name] = Case(name, ("RDMAP-7.1-01", "RDMAP-7.1-02"), play, captured=False)


bad_buffer("a-send-of-too-much", lambda peer, memory, _: peer.driver.tell("send", 2, memory.part(60, 5)))
bad_buffer(
    "a-write-from-nowhere",
    lambda peer, _, ours: peer.driver.tell("write", 2, "0x12345678:0:4", ours.stag, ours.base),
)
bad_buffer(
    "a-read-into-what-is-only-read",
    lambda peer, memory, ours: peer.driver.tell("read", 2, memory.part(0, 8), ours.stag, ours.base),
)


def tagged(
    stag: int,
    to: int,
    payload: bytes,
    control: int | None = None,
    version: int = ddp.VERSION,
    last: bool = True,
) -> bytes:
    """The ULPDU of an RDMA Write, or of what ``control`` makes it."""
    octet = rdmap.control(rdmap.Opcode.WRITE) if control is None else control
    return ddp.Tagged(last, octet, stag, to, version).encode() + payload


def sink_of(peer: Peer) -> Memory:
    """Memory for a Response that must not come."""
    return peer.memory(BUFFER)
