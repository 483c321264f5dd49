"""A case: a program with its arguments, where it is played, and what has to come of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from .pair import Place

TWO_HOSTS: Final = (Place.TWO_HOSTS,)
ONE_HOST: Final = (Place.ONE_HOST,)
BOTH: Final = (*TWO_HOSTS, *ONE_HOST)
DIRECTORY, SERVER_NAMESPACE, CLIENT_ADDRESS = "DIRECTORY", "SERVER_NAMESPACE", "CLIENT_ADDRESS"
"""In the words of programs: the directory of the run, the namespace of the server, the client's address."""


class Expected(enum.Enum):
    """What has to come of a case."""

    PASS = "pass"
    UNSUPPORTED = "not supported"
    """iWARP or warpline has no such thing, and says so: the program has to fail."""
    MEASURED = "measured"
    """How far the program comes is reported; no result of it is a failure."""


class Ending(enum.Enum):
    """How the server ends."""

    BY_ITSELF = "by itself"
    STOPPED = "stopped"
    """It serves client after client until it is ended by a signal."""


@dataclass(frozen=True)
class Case:
    """A server and its client, or one program alone."""

    package: str
    client: tuple[str, ...]
    """The program of the client, or the program that runs alone, and its arguments."""
    server: tuple[str, ...] = ()
    """Empty for a program that runs alone."""
    label: str = ""
    """What distinguishes it, if its arguments are many."""
    environment: tuple[str, ...] = ()
    """Of the client: ``NAME=VALUE``."""
    on_warpline: bool = True
    """Or else the client is a program that starts others on warpline."""
    needs: tuple[str, ...] = ()
    """Programs that have to be installed beside its own."""
    places: tuple[Place, ...] = BOTH
    """Where it is played."""
    quick: tuple[Place, ...] = ()
    """Where it is one of the quick cases."""
    shows: str = ""
    """A regular expression that is in the output of the client if it has done its work. What its first group
    matches is reported."""
    server_shows: str = ""
    fails_with: str = ""
    """A regular expression that is in no output: the program fails, but its exit status is 0."""
    status: int = 0
    """The exit status of the client, or of the program that runs alone."""
    skips: frozenset[int] = frozenset()
    """The exit statuses by which both ends say that there is no such thing here."""
    carried: int = 0
    """The bytes that warpline has to have carried between the ends at least."""
    seconds: float = 30
    ending: Ending = Ending.BY_ITSELF
    clients: int = 1
    """Clients that run at the same time, each started a moment after the one before."""
    port: int = 0
    """The port at which the server listens first."""
    interrupted: bool = False
    """The program that runs alone waits for a signal."""
    connections: int | None = None
    """With a number the case is captured, and has to have so many MPA connections."""
    expected: Expected = Expected.PASS
    reason: str = ""
    """Why it is not supported."""

    @property
    def arguments(self) -> str:
        """What distinguishes it from other cases of the program."""
        if self.label:
            return self.label
        return " ".join(self.client[1:]) + (f" ({self.clients} clients)" if self.clients > 1 else "")

    def __str__(self) -> str:
        return f"{self.package}: {self.client[0]} {self.arguments}"
