"""iwarp.crowd: many connections at once to a server of ours, over the loopback interface."""

from __future__ import annotations

import resource
import socket
import threading
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from iwarp.agreement import Options
from iwarp.crowd import OTHER_DESCRIPTORS, Crowd, CrowdError, raise_descriptor_limit
from iwarp.errors import ConnectionFailed
from iwarp.peer import Stream, start
from iwarp.rping import GO_AHEAD, Rping

SECONDS = 20.0
CONNECTIONS = 40
OCTETS = 3000


class Serving(Rping):
    """A server of one client, whose content may hold any octet."""

    def serve_once(self, change: Callable[[bytes], bytes]) -> None:
        """One ping, and the close; ``change`` is applied to what is written back."""
        buffer = self.peer.memory(self.octets)
        source = self._next_source()
        if source is None:
            return  # the client has given up because of another connection
        self.peer.read(buffer, 0, source.length, (source.stag, source.to))
        self.peer.answered()
        text = bytes(buffer.content(source.length))
        self.peer.send(GO_AHEAD)
        sink = self._next_source()
        assert sink is not None
        self.peer.write(change(text), sink.stag, sink.to)
        self.peer.send(GO_AHEAD)
        self.peer.settle()
        self.peer.until(lambda: self.peer.endpoint.peer_closed, "FIN")
        self.peer.endpoint.stream.shut_down_sending()


def serve(sock: socket.socket, change: Callable[[bytes], bytes]) -> None:
    """Serve one client; its faults are for the client to report."""
    try:
        endpoint = start(Stream(sock, SECONDS), False, Options(revision=2, ird=1, ord=1))
        Serving(endpoint, OCTETS).serve_once(change)
    except ConnectionFailed:
        pass
    finally:
        sock.close()


def run(change: Callable[[bytes], bytes] = bytes, served: int = CONNECTIONS, seconds: float = SECONDS) -> Any:
    """The result of a crowd; the server takes the first ``served`` connections."""
    threads: list[threading.Thread] = []

    def accept(listener: socket.socket) -> None:
        for _ in range(served):
            sock, _ = listener.accept()
            threads.append(threading.Thread(target=serve, args=(sock, change)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS) as listener:
        accepting = threading.Thread(target=accept, args=(listener,))
        accepting.start()
        try:
            with Crowd(listener.getsockname(), CONNECTIONS, OCTETS, 8, seconds) as crowd:
                return crowd.run()
        finally:
            accepting.join()
            for thread in threads:
                thread.join()


class Connections(unittest.TestCase):
    """Crowd."""

    def test_all_are_open_at_once_and_every_ping_comes_back(self) -> None:
        # No thread of the server answers before all connections are in Full Operation.
        together = threading.Barrier(CONNECTIONS)

        def change(text: bytes) -> bytes:
            together.wait(SECONDS)
            return text

        result = run(change)
        self.assertEqual(result["connections"], CONNECTIONS)
        self.assertGreater(result["octets"], CONNECTIONS)

    def test_a_wrong_octet_is_found_and_its_connection_named(self) -> None:
        with self.assertRaisesRegex(CrowdError, r"connection \d+, waiting .* to write: exchange: "):
            run(lambda text: text[:-1] + bytes([text[-1] ^ 1]))

    def test_an_octet_too_few_is_found(self) -> None:
        with self.assertRaisesRegex(CrowdError, r"octet \d+ of \d+ is 0x00"):
            run(lambda text: text[:-1])

    def test_what_does_not_open_in_time_is_counted(self) -> None:
        with self.assertRaisesRegex(CrowdError, r"not all are open after 1 s: of 40 .* in MPA startup"):
            run(served=CONNECTIONS - 1, seconds=1)

    def test_a_port_where_nobody_listens_is_named_as_such(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
        with self.assertRaisesRegex(CrowdError, "refused"), Crowd(address, 1, 1, 1, SECONDS) as crowd:
            crowd.run()


class DescriptorLimit(unittest.TestCase):
    """raise_descriptor_limit."""

    def test_a_limit_that_suffices_stays(self) -> None:
        with (
            mock.patch.object(resource, "getrlimit", return_value=(1024, 4096)),
            mock.patch.object(resource, "setrlimit") as changed,
        ):
            raise_descriptor_limit(1024 - OTHER_DESCRIPTORS)
        changed.assert_not_called()

    def test_it_is_raised_as_far_as_needed(self) -> None:
        with (
            mock.patch.object(resource, "getrlimit", return_value=(1024, 1 << 20)),
            mock.patch.object(resource, "setrlimit") as changed,
        ):
            raise_descriptor_limit(5000)
        changed.assert_called_once_with(resource.RLIMIT_NOFILE, (5000 + OTHER_DESCRIPTORS, 1 << 20))

    def test_a_hard_limit_that_is_too_low_is_an_error(self) -> None:
        with (
            mock.patch.object(resource, "getrlimit", return_value=(1024, 4096)),
            self.assertRaisesRegex(CrowdError, "need 5064 file descriptors, the limit is 4096"),
        ):
            raise_descriptor_limit(5000)


if __name__ == "__main__":
    unittest.main()
