"""A machine that takes commands: what runs to its end there, and a program in the background."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from typing import Final

from rig.processes import RigError

from .machine import Guest, Outcome

SERVER_SECONDS: Final = 20
KILLED: Final = 128 + 9
"""The status of what the guest has ended, its time being over."""


class Remote(ABC):
    """The other end."""

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def run(self, shell: str, seconds: float) -> Outcome:
        """A command, to its end."""

    @abstractmethod
    def start(self, shell: str) -> None:
        """A server, which goes on running."""

    @abstractmethod
    def stop(self, signal: str = "TERM") -> None:
        """End that server."""

    def clear(self) -> str:
        """What its programs wait for and what its kernel says, where that can be asked; they are ended."""
        return ""


class Shell(Remote):
    """One that runs what it is told."""

    _pid: int | None = None
    log = ""
    """The file there with what the server has said."""

    def start(self, shell: str) -> None:
        """In the background. Its output goes to a file that mktemp makes: another user can neither foresee
        nor own it."""
        begin = f'{shell} >"$log" 2>&1 </dev/null & echo "$! $log"; sleep 1; kill -0 $! || cat "$log"'
        outcome = self.run(f"log=$(mktemp) && {{ {begin}; }}", SERVER_SECONDS)
        pid, _, log = outcome.output.strip().partition(" ")
        if outcome.status != 0 or not pid.isdigit() or "\n" in log:
            raise RigError(f"{shell}: {outcome.output.strip()}")
        self._pid, self.log = int(pid), log

    def stop(self, signal: str = "TERM") -> None:
        """By its number; what it said goes with it."""
        if self._pid is not None:
            self.run(f"kill -{signal} {self._pid}; rm -f {shlex.quote(self.log)}", SERVER_SECONDS)
            self._pid = None


class GuestShell(Shell):
    """A guest of ours."""

    def __init__(self, guest: Guest, address: str) -> None:
        super().__init__(address)
        self.guest = guest

    def run(self, shell: str, seconds: float) -> Outcome:
        outcome = self.guest.run(shell, seconds)
        if outcome.status == KILLED:
            raise RigError(
                f"{shell.strip()} did not end in {seconds} s; it said: {outcome.output.strip() or 'nothing'}"
            )
        return outcome
