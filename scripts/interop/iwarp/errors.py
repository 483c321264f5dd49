"""Every way a connection can fail, each with the code it is reported under.

A code is ``layer:numbers``: ``mpa:2`` (RFC 5044 §8), ``ddp:1:0`` (RFC 5041 §7.2: type 1, code 0),
``rdmap:2:6`` (RFC 5040 figure 9: type 2, code 6), ``startup:key``, ``tcp:reset``, ``terminated:1:1:0`` (the
peer's Terminate) , ``sender:DDP-4.1-04`` (the peer broke a rule for senders that has no error number) or
``exchange`` (the ULP's own).
"""

from __future__ import annotations

from typing import NamedTuple


class TerminateControl(NamedTuple):
    """The first 16 bits of the Terminate Control field (RDMAP-4.8-02)."""

    layer: int
    error_type: int
    error_code: int

    def __str__(self) -> str:
        return f"{self.layer}:{self.error_type}:{self.error_code}"


LAYER_RDMAP, LAYER_DDP, LAYER_MPA = 0, 1, 2


class ConnectionFailed(Exception):
    """Base of all failures of a connection."""

    code: str
    terminate: TerminateControl | None = None
    """What a Terminate about this failure says; ``None`` when the failure calls for no Terminate."""
    ulpdu: bytes = b""
    """The ULPDU in error, once it is known."""


class MpaError(ConnectionFailed):
    """RFC 5044 §8: 1 TCP closed or lost, 2 CRC mismatch, 3 Marker and ULPDU_Length disagree."""

    TCP_CLOSED, CRC, MARKER = 1, 2, 3

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.code = f"mpa:{number}"
        self.terminate = TerminateControl(LAYER_MPA, 0, number)


class DdpError(ConnectionFailed):
    """RFC 5041 §7.2 (DDP-7.2-01)."""

    def __init__(self, error_type: int, error_code: int, text: str) -> None:
        super().__init__(text)
        self.code = f"ddp:{error_type}:{error_code}"
        self.terminate = TerminateControl(LAYER_DDP, error_type, error_code)


class RdmapError(ConnectionFailed):
    """RFC 5040 figure 9 (RDMAP-4.8-03)."""

    def __init__(self, error_type: int, error_code: int, text: str) -> None:
        super().__init__(text)
        self.code = f"rdmap:{error_type}:{error_code}"
        self.terminate = TerminateControl(LAYER_RDMAP, error_type, error_code)


class StartupError(ConnectionFailed):
    """MPA error 4 (MPA-8-06), or another way not to reach Full Operation.  ``kind`` tells which."""

    KEY, REVISION, LENGTH, EXTRA = "key", "revision", "private-data-length", "private-data-extra"
    TIMEOUT, CLOSED, REJECTED = "timeout", "closed", "rejected"

    def __init__(self, kind: str, text: str, revision: int | None = None) -> None:
        super().__init__(text)
        self.code = f"startup:{kind}"
        self.revision = revision
        """The Rev that cannot be used."""


class TcpError(ConnectionFailed):
    """The TCP connection broke (``reset``), ended early (``closed``) or stood still (``timeout``)."""

    RESET, CLOSED, TIMEOUT = "reset", "closed", "timeout"

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.code = f"tcp:{kind}"


class SenderRule(ConnectionFailed):
    """The peer broke a rule for senders that receivers need not check; a judge does."""

    def __init__(self, requirement: str, text: str) -> None:
        super().__init__(f"{requirement}: {text}")
        self.code = f"sender:{requirement}"


class ExchangeRule(ConnectionFailed):
    """The peer broke the file exchange that runs on top of RDMAP."""

    code = "exchange"
