"""Where the commands listen and connect to: IPv4 and IPv6 alike."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Iterator


def endpoint_address(text: str) -> tuple[str, int]:
    """``ADDR:PORT``; an IPv6 address stands in brackets."""
    address, _, port = text.rpartition(":")
    bracketed = address.startswith("[") and address.endswith("]")
    address = address[1:-1] if bracketed else address
    if not address or bracketed != (":" in address) or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDR:PORT")
    return address, int(port)


def open_socket(
    listen: tuple[str, int] | None,
    connect: tuple[str, int] | None,
    seconds: float,
    congestion_control: str = "",
) -> socket.socket:
    """The connected socket; says "ready" on standard error once the listener is there."""
    return next(open_sockets(listen, connect, seconds, congestion_control))


def open_sockets(
    listen: tuple[str, int] | None,
    connect: tuple[str, int] | None,
    seconds: float,
    congestion_control: str = "",
) -> Iterator[socket.socket]:
    """As :func:`open_socket`; who listens may take one connection after another."""
    address = connect or listen
    assert address is not None
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    handed_over = False
    try:
        sock.settimeout(seconds)
        if congestion_control:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        if connect:
            print("ready", file=sys.stderr, flush=True)
            sock.connect(connect)
            handed_over = True
            yield sock
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1)
        print("ready", file=sys.stderr, flush=True)
        while True:
            accepted = sock.accept()[0]
            accepted.settimeout(seconds)
            yield accepted
    finally:
        if not handed_over:
            sock.close()
