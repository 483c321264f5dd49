"""Processes in network namespaces, each bounded in time and ended by its own pid."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any


class RigError(Exception):
    """A step of the rig failed; the text says which and how."""


class NotHere(RigError):
    """This machine's kernel lacks what the case is about."""


def require_equal(what: str, *values: object) -> None:
    """Fails unless all the values are the same."""
    if len(set(values)) != 1:
        raise RigError(f"{what}: {' / '.join(map(str, values))}")


def command(*words: str, seconds: float = 120) -> str:
    """Run a short command to its end; its output."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise RigError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip() or done.returncode}")
    return done.stdout


class Process:
    """A program in a namespace, under ``timeout``."""

    def __init__(
        self,
        name: str,
        namespace: str | None,
        words: list[str],
        seconds: float,
        directory: Path,
        fed: bool = False,
        grace: float = 5,
    ) -> None:
        """``fed``: its standard input stays open until :meth:`end_input`. No ``namespace``: this one.
        ``grace``: the seconds it has to end in when it is told to."""
        self.name = name
        self._out, self._err = (directory / f"{name}.{kind}" for kind in ("stdout", "stderr"))
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        bounded = [*inside, "timeout", "-k", str(grace), str(seconds), *words]
        self._seconds, self._grace = seconds, grace
        with self._out.open("wb") as out, self._err.open("wb") as err:
            source = subprocess.PIPE if fed else subprocess.DEVNULL
            self._process = subprocess.Popen(bounded, stdin=source, stdout=out, stderr=err)

    def end_input(self) -> None:
        """End its standard input."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def errors(self) -> str:
        """The end of its error output."""
        return self._err.read_text(errors="replace").strip()[-600:]

    @property
    def output(self) -> str:
        """Its standard output so far."""
        return self._out.read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def await_text(self, text: str, seconds: float = 120) -> None:
        """Wait until it has said ``text`` on standard error."""
        until = time.monotonic() + seconds
        while text not in self._err.read_text(errors="replace"):
            if self._process.poll() is not None:
                raise RigError(f"{self.name} ended with status {self._process.returncode}: {self.errors}")
            if time.monotonic() > until:
                raise RigError(f"{self.name} did not say {text!r} in {seconds} s: {self.errors}")
            time.sleep(0.02)

    def wait(self) -> int:
        """Its exit status, at the latest when its time is over."""
        return self._process.wait(self._seconds + self._grace + 5)

    def report(self) -> dict[str, Any]:
        """Wait for success; the last line of output, as JSON."""
        status = self.wait()
        lines = self._out.read_text(errors="replace").strip().splitlines()
        if status != 0:
            raise RigError(f"{self.name} ended with status {status}: {self.errors} {' '.join(lines[-1:])}")
        try:
            return dict(json.loads(lines[-1]))
        except (IndexError, ValueError) as error:
            raise RigError(f"{self.name} printed no JSON line: {error}") from error

    def signal(self, number: int) -> None:
        """Send it a signal: to the group that ``timeout`` has made, for not every signal is passed on."""
        os.killpg(self._process.pid, number)

    def lines(self) -> list[dict[str, Any]]:
        """Its output, each line as JSON."""
        return [dict(json.loads(line)) for line in self._out.read_text(errors="replace").splitlines()]

    def stop(self) -> None:
        """End it if it still runs."""
        self.end_input()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                # What does not heed it is killed by timeout, without which it would go on.
                self._process.wait(self._grace + 5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(5)
