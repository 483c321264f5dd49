"""rping's exchange between two ends of ours, over the loopback interface."""

from __future__ import annotations

import socket
import threading
import unittest
from typing import Any
from unittest import mock

from iwarp.agreement import Options
from iwarp.errors import ConnectionFailed
from iwarp.peer import Stream, start
from iwarp.rping import Rping

SECONDS = 20.0


def exchange(client_octets: int, server_octets: int, markers: bool, damage: bool = False) -> list[Any]:
    """What both ends have to say, the client first."""
    results: list[Any] = [None, None]
    options = Options(markers=markers, revision=2, ird=1, ord=1)

    def end(sock: socket.socket, client: bool) -> None:
        try:
            endpoint = start(Stream(sock, SECONDS), client, options)
            rping = Rping(endpoint, client_octets if client else server_octets)
            write = rping.peer.write

            def damaged(message: bytes, stag: int, to: int) -> None:
                write(bytes([message[0] ^ 1]) + message[1:], stag, to)

            with mock.patch.object(rping.peer, "write", damaged if damage and not client else write):
                results[not client] = rping.ping(5) if client else rping.serve()
        except ConnectionFailed as failure:
            results[not client] = failure
        finally:
            sock.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    threads = [
        threading.Thread(target=end, args=(sock, which)) for sock, which in ((client, True), (server, False))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Exchange(unittest.TestCase):
    """iwarp.rping."""

    def test_every_ping_comes_back(self) -> None:
        for octets, markers in ((64, False), (1, False), (70_000, True)):
            with self.subTest(f"{octets} octets"):
                told = {"pings": 5, "octets": 5 * octets}
                self.assertEqual(exchange(octets, 70_000, markers), [told, told])

    def test_a_wrong_octet_is_found(self) -> None:
        client, _ = exchange(64, 64, markers=False, damage=True)
        self.assertIn("came back otherwise", str(client))

    def test_a_buffer_too_small_is_found(self) -> None:
        _, server = exchange(65, 64, markers=False)
        self.assertIn("a source of 65 octets", str(server))


if __name__ == "__main__":
    unittest.main()
