"""DDP and RDMAP against the golden vectors, and every error a sink can report."""

from __future__ import annotations

import unittest

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


def write(to: int = BASE, payload: bytes = b"x", stag: int = STAG, last: bool = True, version: int = 1) -> bytes:
    return ddp.Tagged(last, 0x40, stag, to, version).encode() + payload


def send(msn: int = 1, mo: int = 0, payload: bytes = b"x", qn: int = 0, last: bool = True, control: int = 0x43,
         version: int = 1) -> bytes:  # fmt: skip
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


class Errors(unittest.TestCase):
    """RFC 5041 §7, RFC 5040 §7: one case per number."""

    CASES: dict[str, list[bytes]] = {
        "ddp:0:0": [b"", b"\xc1", write(payload=b"")[:13], send(payload=b"")[:17]],
        "ddp:1:0": [write(stag=STAG ^ 1)],
        "ddp:1:1": [write(to=BASE - 1), write(to=BASE + OCTETS), write(payload=bytes(OCTETS + 1))],
        "ddp:1:3": [write(to=2**64 - 1, payload=b"xx"), write(to=2**64 - 1), write(to=2**64 - 8, payload=bytes(8))],
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
                with self.subTest(code=code, segment=segment.hex()), self.assertRaises(ConnectionFailed) as caught:
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
