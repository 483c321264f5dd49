"""Bulk transfers over loopback, the other end an ordinary file exchange."""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import unittest
from collections.abc import Callable
from typing import Any

from iwarp import bulk
from iwarp.addresses import endpoint_address
from iwarp.agreement import Options
from iwarp.errors import ExchangeRule, MpaError
from iwarp.exchange import FileExchange, Result
from iwarp.peer import Endpoint, Stream, start

from tests.test_endpoints import in_parallel

SECONDS = 120.0


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        connecting = socket.create_connection(listener.getsockname(), timeout=SECONDS)
        accepted = listener.accept()[0]
    accepted.settimeout(SECONDS)
    return accepted, connecting


def exchange(sock: socket.socket, data: bytes, receive_octets: int) -> Result:
    endpoint = start(Stream(sock, SECONDS), True, Options(emss=1448))
    return FileExchange(endpoint, data, receive_octets).run()


class Bulk(unittest.TestCase):
    """Both directions, plain and over MPA."""

    def play(
        self, ours: Callable[[socket.socket], Any], theirs: Callable[[socket.socket], Any]
    ) -> tuple[Any, Any]:
        accepted, connecting = connected()
        with accepted, connecting:
            return in_parallel(lambda: ours(accepted), lambda: theirs(connecting))

    def test_plain(self) -> None:
        data = os.urandom(3_000_000)
        received, sent = self.play(
            lambda sock: bulk.receive_plain(sock, len(data)), lambda sock: bulk.send_plain(sock, data)
        )
        self.assertEqual((received.octets, received.sha256), (len(data), hashlib.sha256(data).hexdigest()))
        self.assertEqual(received.sha256, sent.sha256)
        self.assertGreater(received.seconds, 0)
        self.assertGreater(sent.seconds, 0)

    def test_more_than_expected_is_refused(self) -> None:
        accepted, connecting = connected()
        with accepted, connecting:
            connecting.sendall(bytes(11))
            self.assertRaises(ExchangeRule, bulk.receive_plain, accepted, 10)

    def test_receiving_over_mpa(self) -> None:
        data = os.urandom(3_000_001)
        received, result = self.play(
            lambda sock: bulk.receive_file(sock, len(data), SECONDS), lambda sock: exchange(sock, data, 1)
        )
        self.assertEqual((received.octets, received.sha256), (len(data), hashlib.sha256(data).hexdigest()))
        self.assertEqual((result.sent_octets, result.received_octets), (len(data), 0))

    def test_sending_over_mpa(self) -> None:
        data = os.urandom(3_000_001)
        sent, result = self.play(
            lambda sock: bulk.send_file(sock, data, SECONDS), lambda sock: exchange(sock, b"", len(data))
        )
        self.assertEqual((result.received_octets, result.received_sha256), (len(data), sent.sha256))
        self.assertTrue(result.crc)

    def test_what_arrives_is_judged_after_the_transfer(self) -> None:
        """A damaged FPDU is found although the clock has stopped by then."""
        data = os.urandom(100_000)

        def damaged(sock: socket.socket) -> None:
            endpoint = start(Stream(sock, SECONDS), True, Options(emss=1448))
            exchange = FileExchange(endpoint, data, 1)
            exchange.advertise()
            while exchange.theirs is None or endpoint.sending:
                self.corrupt_last(endpoint)
                for event in endpoint.step():
                    exchange.handle(event)
            endpoint.stream.shut_down_sending()
            while not endpoint.peer_closed:
                endpoint.step()

        received, _ = self.play(lambda sock: bulk.receive_file(sock, len(data), SECONDS), damaged)
        self.assertIsInstance(received, MpaError)
        self.assertEqual(received.code, "mpa:2")

    @staticmethod
    def corrupt_last(endpoint: Endpoint) -> None:
        """Inverts a bit of the CRC of a long FPDU that waits to be sent."""
        endpoint._refill()
        for at, pending in enumerate(endpoint._pending):
            if len(pending) > 1000:
                endpoint._pending[at] = memoryview(bytes(pending[:-1]) + bytes([pending[-1] ^ 1]))


class Addresses(unittest.TestCase):
    """ADDR:PORT on the command line."""

    def test_both_families(self) -> None:
        self.assertEqual(endpoint_address("198.18.0.1:18515"), ("198.18.0.1", 18515))
        self.assertEqual(endpoint_address("[fd00::1]:18515"), ("fd00::1", 18515))
        for wrong in (
            "198.18.0.1",
            "fd00::1:18515",
            "[198.18.0.1]:18515",
            "[fd00::1]:0",
            ":1",
            "[]:1",
            "a:x",
        ):
            with self.assertRaises(argparse.ArgumentTypeError, msg=wrong):
                endpoint_address(wrong)


if __name__ == "__main__":
    unittest.main()
