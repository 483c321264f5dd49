"""Two endpoints on a socket pair: file exchanges, every hostile scenario, and the judging of reactions."""

from __future__ import annotations

import socket
import threading
import unittest
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any
from unittest import mock

from iwarp import ddp, hostile, mpa, rdmap
from iwarp.agreement import Options
from iwarp.errors import ConnectionFailed, TerminateControl
from iwarp.exchange import Advertisement, FileExchange, Result
from iwarp.peer import Stream, start

EMSS = 1448
SECONDS = 120.0
STARTUP_SECONDS = 0.3


def in_parallel(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
    """Results of both; an exception of the first is its result."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(first())
        except ConnectionFailed as failure:
            outcome.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        result = second()
    finally:
        thread.join()
    return outcome[0], result


def take_part(
    sock: socket.socket,
    initiator: bool,
    options: Options,
    data: bytes,
    receive_octets: int,
    startup: float = SECONDS,
) -> Result:
    """An honest end, which answers failures as the command does; ``startup`` is how long it waits for the
    other's frame."""
    endpoint = None
    try:
        endpoint = start(Stream(sock, startup), initiator, options)
        endpoint.stream = Stream(sock, SECONDS)
        return FileExchange(endpoint, data, receive_octets).run()
    except ConnectionFailed as failure:
        if endpoint is not None:
            endpoint.close_after(failure)
        raise
    finally:
        sock.close()


class Exchanges(unittest.TestCase):
    """Honest ends."""

    def exchange(self, left: Options, right: Options, sizes: tuple[int, int]) -> tuple[Result, Result]:
        one, other = socket.socketpair()
        data = [bytes(i * 7 % 251 for i in range(size)) for size in sizes]
        first, second = in_parallel(
            lambda: take_part(one, True, left, data[0], max(sizes)),
            lambda: take_part(other, False, right, data[1], max(sizes)),
        )
        self.assertIsInstance(first, Result)
        self.assertEqual(
            (first.sent_sha256, first.received_sha256), (second.received_sha256, second.sent_sha256)
        )
        self.assertEqual((first.sent_octets, first.received_octets), sizes)
        return first, second

    def test_every_marker_and_crc_setting(self) -> None:
        """MPA-7.1.1-05..08: Markers per direction, CRC unless neither end wants it."""
        for bits in range(16):
            ours = Options(markers=bool(bits & 1), crc=bool(bits & 2), emss=EMSS)
            theirs = Options(markers=bool(bits & 4), crc=bool(bits & 8), emss=EMSS)
            with self.subTest(ours=ours, theirs=theirs):
                first, second = self.exchange(ours, theirs, (100_000, 70_001))
                self.assertEqual((first.markers_sent, second.markers_sent), (theirs.markers, ours.markers))
                self.assertEqual(first.crc, ours.crc or theirs.crc)

    def test_sizes(self) -> None:
        """Nothing at all, one octet, around the length of a message."""
        options = Options(emss=EMSS)
        for sizes in ((0, 0), (1, 0), (1 << 20, (1 << 20) + 1), (3, (2 << 20) - 1)):
            self.exchange(options, options, sizes)

    def test_private_data_reaches_the_other_end(self) -> None:
        """MPA-7.1.1-18."""
        first, second = self.exchange(
            Options(private_data=bytes(512), emss=EMSS), Options(private_data=b"ok", emss=EMSS), (10, 10)
        )
        self.assertEqual((first.peer_private_data, second.peer_private_data), (b"ok".hex(), bytes(512).hex()))


class Hostile(unittest.TestCase):
    """The peer's own receiving half against every scenario of its hostile half."""

    # No octets are under way on a socket pair, so there is nothing to wait for.
    @mock.patch("iwarp.peer.DRAIN_SECONDS", 0.2)
    def test_every_scenario(self) -> None:
        for scenario in hostile.SCENARIOS.values():
            with self.subTest(scenario.name):
                bad, good = socket.socketpair()
                options = hostile.ENHANCED if scenario.enhanced else Options()
                options = replace(options, markers=scenario.markers, emss=EMSS)
                # Only who is to run into the timeout has a short one.
                startup = STARTUP_SECONDS if "startup:timeout" in scenario.error_codes else SECONDS
                with closing(bad):
                    failure, verdict = in_parallel(
                        lambda: take_part(good, not scenario.initiator, options, bytes(5000), 4096, startup),
                        lambda: hostile.play(scenario, Stream(bad, SECONDS), Options(emss=EMSS), 8192),
                    )
                self.assertTrue(verdict.as_documented, f"{verdict.reaction}; {failure}")
                self.assertIn(failure.code, scenario.error_codes)

    def test_requirements_are_named(self) -> None:
        for scenario in hostile.SCENARIOS.values():
            self.assertTrue(scenario.requirements and scenario.error_codes, scenario.name)


class Judging(unittest.TestCase):
    """Reactions that are not as documented are seen."""

    SEGMENT = ddp.Tagged(True, 0x40, 1, 2).encode() + b"x"

    def judge(self, **reaction: Any) -> bool:
        expected = hostile.terminate((1, 1, 0))
        return hostile.judge(expected, hostile.Reaction(**reaction), self.SEGMENT)

    def test_terminate(self) -> None:
        right = rdmap.Terminate(TerminateControl(1, 1, 0), len(self.SEGMENT), self.SEGMENT[:14])
        self.assertTrue(self.judge(ending="fin", terminate=right))
        self.assertTrue(self.judge(ending="rst", terminate=right))
        self.assertFalse(self.judge(ending="nothing", terminate=right))
        self.assertFalse(self.judge(ending="fin"))
        self.assertFalse(self.judge(ending="fin", terminate=right, fault="octets after the Terminate"))
        wrong = (
            rdmap.Terminate(TerminateControl(1, 1, 1), len(self.SEGMENT), self.SEGMENT[:14]),
            rdmap.Terminate(TerminateControl(1, 1, 0)),
            rdmap.Terminate(TerminateControl(1, 1, 0), 1, self.SEGMENT[:14]),
            rdmap.Terminate(TerminateControl(1, 1, 0), len(self.SEGMENT), bytes(14)),
        )
        for terminate in wrong:
            self.assertFalse(self.judge(ending="fin", terminate=terminate))

    def test_silence(self) -> None:
        self.assertTrue(hostile.judge(hostile.CLOSE_SILENTLY, hostile.Reaction("rst"), b""))
        self.assertFalse(hostile.judge(hostile.CLOSE_SILENTLY, hostile.Reaction("fin", octets=1), b""))
        self.assertFalse(hostile.judge(hostile.REJECT_AND_CLOSE, hostile.Reaction("fin"), b""))

    def test_a_responder_must_wait(self) -> None:
        """MPA-7.1.2-15: octets glued to the Reply are noticed."""
        one, other = socket.socketpair()
        reply = mpa.StartupFrame(mpa.REPLY_KEY, markers=False, crc=True).encode()
        early = mpa.FpduWriter(markers=False, crc=True).frame(next(rdmap.send(bytes(16), 1, 1442)))
        other.sendall(reply + early)
        with closing(one), closing(other), self.assertRaises(ConnectionFailed) as caught:
            start(Stream(one, SECONDS), True, Options(emss=EMSS))
        self.assertEqual(caught.exception.code, "sender:MPA-7.1.2-15")

    def test_wrong_dones(self) -> None:
        """The exchange's own rules: length of the messages, the done's zeros, the octets it claims."""
        for message in (Advertisement(1, 0, 0).encode(), Advertisement(0, 0, 1).encode(), bytes(15)):
            one, other = socket.socketpair()

            def play() -> None:
                endpoint = start(Stream(other, SECONDS), True, Options(emss=EMSS))
                endpoint.receiver.post_receive(16)
                endpoint.receiver.post_receive(16)
                endpoint.post(rdmap.send(Advertisement(0, 1, 100).encode(), 1, 1442))
                endpoint.post(rdmap.send(message, 2, 1442))
                endpoint.finish_sending()
                other.close()

            with closing(other):
                failure, _ = in_parallel(lambda: take_part(one, False, Options(emss=EMSS), b"", 100), play)
            self.assertEqual(failure.code, "exchange")


if __name__ == "__main__":
    unittest.main()
