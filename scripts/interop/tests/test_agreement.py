"""Startup in every revision: what two ends agree on, what is wrong with a Reply, and the octets that pass."""

from __future__ import annotations

import socket
import unittest
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any

from iwarp import agreement, mpa, rdmap
from iwarp.agreement import Options
from iwarp.errors import ConnectionFailed, StartupError
from iwarp.exchange import Result
from iwarp.mpa import EnhancedData, Rtr, StartupFrame
from iwarp.peer import Stream, start

from .test_endpoints import EMSS, SECONDS, in_parallel, take_part
from .vectors import octets

ALL = Rtr.SEND | Rtr.WRITE | Rtr.READ
KINDS = [Rtr(bits) for bits in range(1, 8)]


def ends(initiator: Options, responder: Options, octets_each: int = 3000) -> tuple[Any, Any]:
    """A file exchange between them; a failure of either is its result."""
    one, other = socket.socketpair()
    data = bytes(index % 251 for index in range(octets_each))

    def respond() -> Result | ConnectionFailed:
        try:
            return take_part(other, False, replace(responder, emss=EMSS), data, octets_each)
        except ConnectionFailed as failure:
            return failure

    return in_parallel(
        lambda: take_part(one, True, replace(initiator, emss=EMSS), data, octets_each), respond
    )


class Revisions(unittest.TestCase):
    """Who comes to terms with whom."""

    def test_every_pair(self) -> None:
        """Figures 15 to 17 of RFC 5044 and MPAv2-6-04, MPAv2-10-01, -02, -04: two numbers are revision and
        version."""
        rdmac, permissive = Options(revision=0), Options(permissive=True)
        one, two, plain = Options(), Options(revision=2, ird=1, ord=1), Options(revision=2, enhanced=False)
        for initiator, responder, expected in (
            (rdmac, rdmac, (0, 0)),
            (rdmac, permissive, (0, 0)),
            (rdmac, one, "revision"),
            (one, rdmac, "revision"),
            (one, one, (1, 1)),
            (one, two, (1, 1)),
            (two, one, "revision"),
            (two, two, (2, 1)),
            (plain, two, (2, 1)),
            (two, rdmac, "revision"),
            (rdmac, replace(two, permissive=True), (0, 0)),
        ):
            with self.subTest(initiator=initiator, responder=responder):
                first, second = ends(initiator, responder)
                if expected == "revision":
                    self.assertIsInstance(first, ConnectionFailed)
                    self.assertEqual(second.code, "startup:revision")
                    continue
                for result in (first, second):
                    self.assertIsInstance(result, Result)
                    self.assertEqual((result.revision, result.version), expected)
                    markers = expected == (0, 0)
                    self.assertEqual((result.markers_sent, result.markers_received), (markers, markers))
                    self.assertTrue(result.crc)

    def test_markers_crcs_and_private_data_in_revision_2(self) -> None:
        """MPAv2-9-02: 508 octets beside the enhanced data."""
        for bits, data in product(range(16), (0, 1, 508)):
            ours = Options(bool(bits & 1), bool(bits & 2), bytes(data), revision=2, ird=3, ord=4)
            theirs = Options(bool(bits & 4), bool(bits & 8), revision=2, ird=5, ord=9)
            first, second = ends(ours, theirs, 600)
            self.assertEqual((first.markers_sent, second.markers_sent), (theirs.markers, ours.markers))
            self.assertEqual(first.crc, ours.crc or theirs.crc)
            self.assertEqual(second.peer_private_data, bytes(data).hex())
            self.assertEqual((first.peer_ird, first.peer_ord), (5, 3))  # MPAv2-9.1-02
            self.assertEqual((second.peer_ird, second.peer_ord), (3, 4))

    def test_rejection(self) -> None:
        """MPA-7.1.2-05, -13."""
        first, second = ends(Options(private_data=b"hello"), Options(reject=True, private_data=b"no"))
        self.assertEqual((first.code, second.code), ("startup:rejected", "startup:rejected"))
        self.assertIn("6e 6f", str(first))
        self.assertIn("68 65 6c 6c 6f", str(second))


class Delayed(unittest.TestCase):
    """RFC 5044 §7.1.3: streaming data first."""

    def test_either_way(self) -> None:
        """MPA-7.1-01, MPA-7.1.3-01."""
        for streaming in (0, 1, 5000, 1_000_000):
            for revision in (1, 2):
                options = Options(revision=revision, streaming=streaming)
                first, second = ends(options, options)
                self.assertEqual((first.revision, second.revision), (revision, revision))

    def test_a_rejection_leaves_tcp_open(self) -> None:
        """A-01, MPA-7.1.2-13."""
        first, second = ends(Options(streaming=10), Options(streaming=10, reject=True))
        self.assertEqual((first.code, second.code), ("startup:rejected", "startup:rejected"))

    def test_other_octets_than_agreed(self) -> None:
        first, second = ends(Options(streaming=10), Options(streaming=11))
        self.assertIsInstance(second, ConnectionFailed)
        self.assertIsInstance(first, ConnectionFailed)

    def test_no_startup_frames(self) -> None:
        """C00-8.1-03, C00-X-01: the first octets on the wire are the golden ones."""
        for version, streaming in ((0, None), (1, None), (0, 100)):
            options = Options(culley=version, streaming=streaming)
            first, second = ends(options, options)
            self.assertEqual((first.version, second.version), (version, version))
            self.assertTrue(first.markers_sent and second.markers_sent and first.crc)
        one, other = socket.socketpair()
        with closing(one), closing(other):
            endpoint = start(Stream(one, SECONDS), True, Options(culley=0, emss=EMSS))
            endpoint.post(rdmap.send(bytes(24), 1, EMSS))
            endpoint.finish_sending()
            self.assertEqual(other.recv(100), octets("culley00-fig5"))


class Indications(unittest.TestCase):
    """RFC 6581 §9.2."""

    def test_every_pair_of_kinds(self) -> None:
        """MPAv2-9.2-01..08: seven by seven."""
        for ours, theirs in product(KINDS, KINDS):
            with self.subTest(ours=ours, theirs=theirs):
                first, second = ends(Options(revision=2, rtr=ours), Options(revision=2, rtr=theirs))
                if not ours & theirs:
                    self.assertEqual((first.code, second.code), ("mpa:7", "terminated:2:0:7"))
                    continue
                self.assertEqual(first.indication, second.indication)
                self.assertTrue(Rtr[first.indication.upper()] & ours & theirs)

    def test_octets(self) -> None:
        """The first FPDU of the Initiator is the golden one (MPAv2-9.2-10, A-16), and a Read is answered."""
        for kind, record in ((Rtr.SEND, 2), (Rtr.WRITE, 4), (Rtr.READ, 6)):
            one, other = socket.socketpair()
            word = EnhancedData(8, 8, True, kind)
            other.sendall(StartupFrame(mpa.REPLY_KEY, False, True, revision=2, enhanced=word).encode())
            with closing(one), closing(other), self.subTest(kind):
                endpoint = start(
                    Stream(one, SECONDS), True, Options(revision=2, ird=8, ord=8, rtr=ALL, emss=EMSS)
                )
                endpoint.finish_sending()
                self.assertEqual(
                    other.recv(24),
                    StartupFrame(
                        mpa.REQUEST_KEY, False, True, revision=2, enhanced=EnhancedData(8, 8, True, ALL)
                    ).encode(),
                )
                reader = mpa.FpduReader(False, True)
                reader.feed(other.recv(100))
                fpdu, golden = reader.read(), octets("mpa-rtr", record)[2:-4]
                assert fpdu is not None
                # Our STags are not zero, as some adapters want it; the vectors' are.
                ulpdu = bytearray(fpdu.ulpdu)
                for at in {Rtr.SEND: (), Rtr.WRITE: (2,), Rtr.READ: (18, 34)}[kind]:
                    self.assertEqual(ulpdu[at : at + 4], bytes((0, 0, 0, 1)))
                    ulpdu[at : at + 4] = bytes(4)
                self.assertEqual(ulpdu, golden)

    def test_a_responder_wants_an_agreed_one_first(self) -> None:
        """MPAv2-9.2-07."""
        write, read, send = (
            next(rdmap.write(b"", 1, 0, EMSS)),
            rdmap.read_request(1),
            next(rdmap.send(b"", 1, EMSS)),
        )
        for kind, ulpdu in (
            (Rtr.SEND, write),
            (Rtr.WRITE, write + b"x"),
            (Rtr.WRITE, read),
            (Rtr.READ, send),
        ):
            one, other = socket.socketpair()
            asked = StartupFrame(
                mpa.REQUEST_KEY, False, True, revision=2, enhanced=EnhancedData(0, 0, True, kind)
            )
            other.sendall(asked.encode())
            with closing(one), closing(other), self.subTest(kind), self.assertRaises(ConnectionFailed):
                endpoint = start(Stream(one, SECONDS), False, Options(revision=2, rtr=kind, emss=EMSS))
                other.sendall(mpa.FpduWriter(False, True).frame(ulpdu))
                while not endpoint.fpdus_received:
                    endpoint.step()


class Replies(unittest.TestCase):
    """Every rule on a Reply is one that a Reply can break."""

    ASKED = StartupFrame(
        mpa.REQUEST_KEY, False, True, revision=2, enhanced=EnhancedData(4, 8, True, Rtr.READ)
    )

    def judged(self, asked: StartupFrame, **changed: Any) -> str:
        good = agreement.reply(Options(revision=2, ird=8, ord=4, rtr=ALL), asked)
        agreement.judge_reply(asked, good)
        with self.assertRaises(ConnectionFailed) as caught:
            agreement.judge_reply(asked, replace(good, **changed))
        return caught.exception.code

    def test_faults(self) -> None:
        word, rest = EnhancedData(8, 4, True, Rtr.READ), mpa.NOT_NEGOTIATED
        self.assertEqual(self.judged(self.ASKED, revision=1), "startup:revision")
        self.assertEqual(self.judged(self.ASKED, enhanced=None), "sender:MPAv2-10-01")
        self.assertEqual(
            self.judged(self.ASKED, enhanced=replace(word, peer_to_peer=False)), "sender:MPAv2-9.2-03"
        )
        self.assertEqual(self.judged(self.ASKED, enhanced=replace(word, rtr=Rtr.NONE)), "sender:MPAv2-9.2-05")
        self.assertEqual(self.judged(self.ASKED, enhanced=replace(word, ord=5)), "mpa:6")
        plain = replace(self.ASKED, enhanced=EnhancedData(4, 8))
        self.assertEqual(self.judged(plain, enhanced=word), "sender:MPAv2-9.2-09")
        open_ended = replace(self.ASKED, enhanced=EnhancedData(rest, rest))
        self.assertEqual(self.judged(open_ended, enhanced=EnhancedData(rest, 4)), "sender:MPAv2-9.1-11")
        self.assertEqual(self.judged(open_ended, enhanced=EnhancedData(8, rest)), "sender:MPAv2-9.1-09")
        unenhanced = replace(self.ASKED, enhanced=None)
        self.assertEqual(self.judged(unenhanced, enhanced=word), "sender:MPAv2-10-02")

    def test_an_old_responder(self) -> None:
        """MPAv2-10-04."""
        with self.assertRaises(StartupError):
            agreement.judge_request(Options(), self.ASKED)


if __name__ == "__main__":
    unittest.main()
