"""DDP and RDMAP against the golden vectors, and every error a sink can report."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import ClassVar

from iwarp import ddp, rdmap
from iwarp.errors import ConnectionFailed, SenderRule, TerminateControl

from .vectors import octets, records

STAG, BASE, OCTETS = 0x01020304, 4096, 64


def receiver() -> rdmap.Receiver:
    """A receiver with one region and two buffers of 16 octets."""
    made = rdmap.Receiver()
    made.register(STAG, ddp.Region(BASE, OCTETS))
    made.post_receive(16)
    made.post_receive(16)
    return made


def write(
    to: int = BASE, payload: bytes = b"x", stag: int = STAG, last: bool = True, version: int = 1
) -> bytes:
    return ddp.Tagged(last, 0x40, stag, to, version).encode() + payload


def send(
    msn: int = 1,
    mo: int = 0,
    payload: bytes = b"x",
    qn: int = 0,
    last: bool = True,
    control: int = 0x43,
    version: int = 1,
) -> bytes:
    return ddp.Untagged(last, control << 32, qn, msn, mo, version).encode() + payload


class Segmentation(unittest.TestCase):
    """RFC 5041 §5.2."""

    def test_untagged_2048(self) -> None:
        """DDP-5.2-01, -05: 1482 octets at MO 0, 566 at MO 1482."""
        vectors = [record.octets for record in records("ddp-untagged-2048")]
        message = bytes(i % 256 for i in range(2048))
        self.assertEqual(list(rdmap.send(message, msn=1, mulpdu=1500)), vectors)
        made = rdmap.Receiver()
        made.post_receive(2048)
        self.assertIsNone(made.receive(vectors[0]))
        self.assertEqual(made.receive(vectors[1]), rdmap.Sent(message))

    def test_tagged_2048(self) -> None:
        """DDP-5.2-07: 1486 octets at TO 16384, 562 at TO 17870."""
        vectors = [record.octets for record in records("ddp-tagged-2048")]
        message = bytes(i % 256 for i in range(2048))
        self.assertEqual(list(rdmap.write(message, STAG, 16384, mulpdu=1500)), vectors)
        made, region = rdmap.Receiver(), ddp.Region(16384, 2048)
        made.register(STAG, region)
        self.assertIsNone(made.receive(vectors[0]))
        self.assertIsInstance(made.receive(vectors[1]), rdmap.Written)
        self.assertEqual(bytes(region.content(2048)), message)
        self.assertEqual(region.octets_outside(), 0)

    def test_empty_message_has_one_segment(self) -> None:
        """DDP-5.2-08."""
        self.assertEqual(list(rdmap.send(b"", msn=1, mulpdu=1500)), [octets("mpa-rtr", 1)])
        self.assertEqual(len(list(rdmap.write(b"", STAG, 0, mulpdu=1500))), 1)

    def test_msn_wraps(self) -> None:
        """DDP-4.3-09."""
        queue = ddp.Queue()
        queue.posted.extend([1, 1, 1])
        queue.msn = 0xFFFFFFFF
        for record in records("ddp-msn-wrap"):
            header, payload = ddp.parse(record.octets)
            assert isinstance(header, ddp.Untagged)
            self.assertEqual(header.encode() + payload, record.octets)
            self.assertIsNotNone(queue.place(header, payload))
        self.assertEqual(queue.msn, 2)


class Messages(unittest.TestCase):
    """RFC 5040 §4."""

    def test_write(self) -> None:
        """RDMAP-5.1-01, -03; an empty Write's STag is not looked at (DDP-5.2-10)."""
        hello, empty = octets("rdmap-write", 1), octets("rdmap-write", 3)
        self.assertEqual(list(rdmap.write(b"hello", STAG, 4096, mulpdu=1500)), [hello])
        made = receiver()
        self.assertIsInstance(made.receive(hello), rdmap.Written)
        self.assertEqual(bytes(made.sink.regions[STAG].content(5)), b"hello")
        del made.sink.regions[STAG]
        self.assertIsInstance(made.receive(empty), rdmap.Written)

    def test_send(self) -> None:
        """RDMAP-5.3-01; the other three Sends are not part of this peer's exchange (RDMAP-7.2-02)."""
        hello = octets("rdmap-send", 1)
        self.assertEqual(list(rdmap.send(b"hello", msn=1, mulpdu=1500)), [hello])
        self.assertEqual(receiver().receive(hello), rdmap.Sent(b"hello"))
        for number in (3, 5, 7):
            ulpdu, made = octets("rdmap-send", number), receiver()
            header, _ = ddp.parse(ulpdu)
            assert isinstance(header, ddp.Untagged)
            made.sink.queues[0].msn = header.msn
            with self.assertRaises(ConnectionFailed) as caught:
                made.receive(ulpdu)
            self.assertEqual(caught.exception.code, "rdmap:2:6")

    def test_terminate(self) -> None:
        """RDMAP-4.8-01..08: parsed and encoded again to the same octets."""
        for record in records("rdmap-terminate")[::2]:
            with self.subTest(record.label):
                event = receiver().receive(record.octets)
                assert isinstance(event, rdmap.Terminate)
                self.assertEqual(event.encode(), record.octets)

    def test_terminate_about_a_segment(self) -> None:
        """RDMAP-4.8-04 against the vectors for the same errors."""
        segment = write(to=0x2000, stag=0xDEADBEEF, payload=bytes(1486))
        failure = ConnectionFailed("bounds")
        failure.terminate = TerminateControl(1, 1, 1)
        about = rdmap.Terminate.about(failure, segment)
        assert about is not None
        self.assertEqual(about.encode(), octets("rdmap-terminate", 3))
        failure.terminate = TerminateControl(2, 0, 2)
        about = rdmap.Terminate.about(failure, b"")
        assert about is not None
        self.assertEqual(about.encode(), octets("rdmap-terminate", 1))

    def test_nothing_after_a_terminate(self) -> None:
        """RDMAP-5.4-04."""
        made = receiver()
        made.receive(octets("rdmap-terminate", 1))
        with self.assertRaises(SenderRule):
            made.receive(send())

    def test_terminate_may_cut_a_message_short(self) -> None:
        made = receiver()
        made.receive(write(last=False))
        self.assertIsInstance(made.receive(octets("rdmap-terminate", 1)), rdmap.Terminate)

    def test_version_0(self) -> None:
        """DDP-4.1-09: what an RDMA Consortium peer sends is not for this one."""
        for record, code in zip(records("rdmac-v0"), ("ddp:2:6", "ddp:1:4"), strict=True):
            with self.assertRaises(ConnectionFailed) as caught:
                receiver().receive(record.octets[6 : 6 + record.octets[5]])
            self.assertEqual(caught.exception.code, code)


def all_opcodes() -> rdmap.Receiver:
    """A receiver for every message, with a buffer on every queue."""
    made = rdmap.Receiver(opcodes=frozenset(rdmap.Opcode))
    made.sink.queues[rdmap.QN_ATOMIC_RESPONSE] = ddp.Queue()
    for queue in made.sink.queues.values():
        queue.posted.append(2048)
    return made


def one(ulpdus: Iterator[bytes]) -> bytes:
    """The ULPDU of a message that has only one."""
    (ulpdu,) = ulpdus
    return ulpdu


class Operations(unittest.TestCase):
    """Every message of RFC 5040 and RFC 7306 against the golden vectors, built and read."""

    def test_every_send(self) -> None:
        """RDMAP-4.1-03, RDMAP-5.3-07."""
        invalidate = 0xA1A2A3A4
        kinds = [(None, False), (invalidate, False), (None, True), (invalidate, True)]
        for number, (stag, solicited) in enumerate(kinds):
            vector, made = octets("rdmap-send", 2 * number + 1), all_opcodes()
            self.assertEqual(one(rdmap.send(b"hello", number + 1, 1500, stag, solicited)), vector)
            made.sink.queues[rdmap.QN_SEND].msn = number + 1
            self.assertEqual(made.receive(vector), rdmap.Sent(b"hello", stag, solicited))

    def test_read(self) -> None:
        """RDMAP-4.4-01, RDMAP-4.4-02, RDMAP-5.2.2-01."""
        asked = rdmap.ReadRequest(0x11223344, 0x100000000, 65536, 0x55667788, 0x1000)
        self.assertEqual(
            rdmap.untagged(rdmap.Opcode.READ_REQUEST, 1, asked.encode()), octets("rdmap-read", 1)
        )
        event = all_opcodes().receive(octets("rdmap-read", 1))
        assert isinstance(event, rdmap.Asked)
        self.assertEqual(rdmap.ReadRequest.parse(event.message), asked)
        self.assertEqual(one(rdmap.response(bytes(range(8)), asked, 1500)), octets("rdmap-read", 3))
        nothing = rdmap.ReadRequest(0, 0, 0, 0, 0)
        self.assertEqual(
            rdmap.untagged(rdmap.Opcode.READ_REQUEST, 1, nothing.encode()), octets("rdmap-read", 5)
        )
        self.assertEqual(one(rdmap.response(b"", nothing, 1500)), octets("rdmap-read", 7))
        self.assertIsInstance(all_opcodes().receive(octets("rdmap-read", 7)), rdmap.Answered)

    def test_7306(self) -> None:
        """RDMAPX-4-01, RDMAPX-5-03, RDMAPX-6-01."""
        value = 0x0102030405060708
        messages = [
            (rdmap.Opcode.IMMEDIATE, 1, value.to_bytes(8, "big"), rdmap.Immediate(value, False)),
            (rdmap.Opcode.IMMEDIATE_SOLICITED, 2, value.to_bytes(8, "big"), rdmap.Immediate(value, True)),
            (
                rdmap.Opcode.ATOMIC_REQUEST,
                1,
                rdmap.AtomicRequest(0, 7, 0x55667788, 0x1000, 1, 0).encode(),
                None,
            ),
            (
                rdmap.Opcode.ATOMIC_REQUEST,
                2,
                rdmap.AtomicRequest(2, 8, 0x55667788, 0x1008, 2, 2**64 - 1, 1, 2**64 - 1).encode(),
                None,
            ),
            (
                rdmap.Opcode.ATOMIC_RESPONSE,
                1,
                (7).to_bytes(4, "big") + (41).to_bytes(8, "big"),
                rdmap.AtomicAnswered(7, 41),
            ),
        ]
        for number, (opcode, msn, content, expected) in enumerate(messages):
            vector, made = octets("rdmap-7306", 2 * number + 1), all_opcodes()
            self.assertEqual(rdmap.untagged(opcode, msn, content), vector)
            for queue in made.sink.queues.values():
                queue.msn = msn
            event = made.receive(vector)
            self.assertEqual(event, expected or rdmap.AtomicAsked(content))
            if isinstance(event, rdmap.AtomicAsked):
                self.assertEqual(rdmap.AtomicRequest.parse(event.message).encode(), content)

    def test_atomic_results(self) -> None:
        """RFC 7306 §5.1: plain and in fields; what does not compare changes nothing."""
        most = 2**64 - 1

        def add(value: int, data: int, mask: int) -> int:
            return rdmap.AtomicRequest(0, 0, 0, 0, data, mask).result(value)

        def swap(value: int, compare: int, compare_mask: int, data: int, mask: int) -> int:
            return rdmap.AtomicRequest(2, 0, 0, 0, data, mask, compare, compare_mask).result(value)

        self.assertEqual(add(41, 1, 0), 42)
        self.assertEqual(add(most, 1, 0), 0)
        self.assertEqual(add(0xFFFFFFFF, 1, 1 << 31), 0)
        self.assertEqual(add(0x00FF00FF, 0x00010001, 0x00800080), 0)
        self.assertEqual(add(5, 3, most), 6)  # every bit a field of its own
        self.assertEqual(swap(7, 7, most, 9, most), 9)
        self.assertEqual(swap(7, 8, most, 9, most), 7)
        self.assertEqual(swap(0xABCD, 0xCD, 0xFF, 0x1200, 0xFF00), 0x12CD)

    def test_a_terminate_about_a_read(self) -> None:
        """RDMAP-4.8-04, RDMAP-7.1-02, A-33: with the Read Request header for each error of RDMAP, without
        for those of DDP."""
        vector = rdmap.Terminate.parse(octets("rdmap-terminate", 7)[18:])
        failure = ConnectionFailed("rights")
        failure.terminate = TerminateControl(0, 1, 2)
        self.assertEqual(vector.control, failure.terminate)
        segment = vector.ddp_header + vector.read_request_header
        self.assertEqual(rdmap.Terminate.about(failure, segment), vector)
        failure.terminate = TerminateControl(0, 2, 5)
        about = rdmap.Terminate.about(failure, segment)
        assert about is not None
        self.assertEqual(about.read_request_header, vector.read_request_header)
        for control, quoted in (((1, 2, 2), segment), ((0, 2, 255), segment[:-1])):
            failure.terminate = TerminateControl(*control)
            about = rdmap.Terminate.about(failure, quoted)
            assert about is not None
            self.assertEqual(about.read_request_header, b"")

    def test_what_senders_must_not_do(self) -> None:
        """RDMAP-4.1-09, RDMAPX-5-03, RDMAPX-6-01."""
        wrong = {
            "sender:RDMAP-4.1-09": ddp.Untagged(True, 0x43 << 32 | 1, 0, 1, 0).encode(),
            "sender:RDMAPX-6-01": rdmap.untagged(rdmap.Opcode.IMMEDIATE, 1, bytes(7)),
            "sender:RDMAPX-5-03": rdmap.untagged(rdmap.Opcode.ATOMIC_RESPONSE, 1, bytes(16)),
        }
        for code, ulpdu in wrong.items():
            with self.subTest(code), self.assertRaises(SenderRule) as caught:
                all_opcodes().receive(ulpdu)
            self.assertEqual(caught.exception.code, code)


class Errors(unittest.TestCase):
    """RFC 5041 §7, RFC 5040 §7: one case per number."""

    CASES: ClassVar[dict[str, list[bytes]]] = {
        "ddp:0:0": [b"", b"\xc1", write(payload=b"")[:13], send(payload=b"")[:17]],
        "ddp:1:0": [write(stag=STAG ^ 1)],
        "ddp:1:1": [write(to=BASE - 1), write(to=BASE + OCTETS), write(payload=bytes(OCTETS + 1))],
        "ddp:1:3": [
            write(to=2**64 - 1, payload=b"xx"),
            write(to=2**64 - 1),
            write(to=2**64 - 8, payload=bytes(8)),
        ],
        "ddp:1:4": [write(version=0), write(version=2), write(version=0, payload=b"")],
        "ddp:2:1": [send(qn=3), send(qn=0xFFFFFFFF), send(qn=3, payload=b"")],
        "ddp:2:2": [send(qn=1, control=0x41, payload=bytes(28))],
        "ddp:2:3": [send(msn=0), send(msn=2), send(msn=0xFFFFFFFF), send(msn=2, payload=b"")],
        "ddp:2:4": [send(mo=17), send(mo=0xFFFFFFFF)],
        "ddp:2:5": [send(payload=bytes(17)), send(mo=16)],
        "ddp:2:6": [send(version=0), send(version=3)],
        "rdmap:2:5": [send(control=0x03), send(control=0x83)],
        "rdmap:2:6": [send(control=0x49), send(control=0x4F), send(control=0x40), send(control=0x47)],
        "sender:DDP-5.2-05": [send(mo=1)],
    }

    def test_numbers(self) -> None:
        for code, segments in self.CASES.items():
            for segment in segments:
                made = receiver()
                with (
                    self.subTest(code=code, segment=segment.hex()),
                    self.assertRaises(ConnectionFailed) as caught,
                ):
                    made.receive(segment)
                self.assertEqual(caught.exception.code, code)
                self.assertEqual(made.sink.regions[STAG].octets_outside(), 0)
                self.assertEqual(made.sink.regions[STAG].placed_octets, 0)

    def test_edges_that_are_allowed(self) -> None:
        """DDP-7.1-13, DDP-7.1-04: up to the last octet; RDMAP-4.1-08, DDP-4.1-08: reserved bits."""
        reserved = bytearray(send(payload=bytes(16), control=0x73))
        reserved[0] |= 0x3C
        for segment in (write(to=BASE + OCTETS - 1), write(payload=bytes(OCTETS)), bytes(reserved)):
            self.assertIsNotNone(receiver().receive(segment))

    def test_sender_rules_over_a_message(self) -> None:
        pairs = {
            "DDP-5.3-02": (write(last=False), send()),
            "DDP-4.2-08": (write(last=False), ddp.Tagged(True, 0x42, STAG, BASE + 1).encode() + b"x"),
            "DDP-5.2-07": (write(last=False), write(to=BASE + 2)),
            "DDP-5.2-05": (send(last=False), send(mo=2)),
        }
        for rule, (first, second) in pairs.items():
            made = receiver()
            self.assertIsNone(made.receive(first))
            with self.subTest(rule), self.assertRaises(SenderRule) as caught:
                made.receive(second)
            self.assertEqual(caught.exception.code, f"sender:{rule}")

    def test_guard_octets_are_counted(self) -> None:
        """A region that was overrun says so."""
        region = ddp.Region(0, 8)
        region.octets = 16  # what a faulty bounds check would let through
        region.place(6, bytes(4))
        region.octets = 8
        self.assertEqual(region.octets_outside(), 2)


if __name__ == "__main__":
    unittest.main()
