"""Where rping runs: in the guest, on a host that ssh reaches, or on one where the user types."""

from __future__ import annotations

import shlex
import subprocess
from typing import Final

from guest_rig.machine import Outcome
from guest_rig.remote import GuestShell, Remote, Shell
from rig.processes import RigError

LOOK_SECONDS: Final = 60


class GuestRemote(GuestShell):
    """The guest with siw."""

    def clear(self) -> str:
        try:
            return self.guest.run("look kill", LOOK_SECONDS).output
        except RigError as error:
            return str(error)


class SshRemote(Shell):
    """A host that lets us in without a question."""

    def __init__(self, destination: str, address: str) -> None:
        super().__init__(address)
        self.destination = destination

    def run(self, shell: str, seconds: float) -> Outcome:
        bounded = f"timeout -s KILL {int(seconds)} sh -c {shlex.quote(shell)}"
        words = ["ssh", "-o", "BatchMode=yes", self.destination, bounded]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 30, check=False)
        except subprocess.TimeoutExpired as error:
            raise RigError(f"{self.destination} does not answer {shell!r}") from error
        return Outcome(done.returncode, done.stdout + done.stderr)


class ByHand(Remote):
    """The user, who types what we print."""

    def run(self, shell: str, seconds: float) -> Outcome:
        print(f"\non {self.address}, run:\n\n    {shell}\n", flush=True)
        answer = input("Enter when it has ended well, its status if not: ").strip()
        print("What it said, then an empty line:", flush=True)
        said = "\n".join(iter(input, ""))
        return Outcome(int(answer) if answer.isdigit() else 0, said)

    def start(self, shell: str) -> None:
        print(f"\non {self.address}, start, and leave running:\n\n    {shell}\n", flush=True)
        input("Enter when it runs: ")

    def stop(self, signal: str = "TERM") -> None:
        print(
            f"on {self.address}, end it ({'Ctrl-C' if signal == 'TERM' else 'kill -' + signal})", flush=True
        )
