"""Another end that does as it is told: a program that takes commands, a line each, and answers each by a
line of JSON."""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from .errors import ExchangeRule

ANSWER_SECONDS: Final = 120.0
"""How long an answer may take, waiting for something included."""


class Refused(Exception):
    """The program could not do what it was told."""


class Driven(NamedTuple):
    """Memory of the other end."""

    name: str
    stag: int
    to: int
    octets: int

    def part(self, offset: int, octets: int) -> str:
        """A range of it, as commands name it."""
        return f"{self.name}:{offset}:{octets}"


class Driver:
    """The other end's program, by a pipe each way."""

    def __init__(self, commands: Path, answers: Path, cores: int = 1) -> None:
        self.cores = cores
        """Of the program's device."""
        # Both ends open the first pipe first, or neither would come through.
        self._commands = os.open(commands, os.O_WRONLY)
        self._answers = os.open(answers, os.O_RDONLY)
        self._held = b""
        self._due = 0
        """Commands that are not answered."""

    def close(self) -> None:
        """The program ends when nothing more can come. What it still answers is read to the end: without a
        reader a write would end it by SIGPIPE."""
        os.close(self._commands)
        while select.select([self._answers], [], [], ANSWER_SECONDS)[0] and os.read(self._answers, 65536):
            pass
        os.close(self._answers)

    def ask(self, *words: object) -> None:
        """Give a command, without waiting for the answer."""
        self._due += 1
        os.write(self._commands, (" ".join(map(str, words)) + "\n").encode())

    def answered(self, seconds: float) -> bool:
        """Whether the answer is there, at the latest after so long."""
        until = time.monotonic() + seconds
        while b"\n" not in self._held:
            left = until - time.monotonic()
            readable, _, _ = select.select([self._answers], [], [], max(left, 0.0))
            if not readable:
                return False
            octets = os.read(self._answers, 65536)
            if not octets:
                raise Refused("the program has ended")
            self._held += octets
        return True

    def answer(self) -> dict[str, Any]:
        """The answer to the oldest command that has none yet."""
        if not self.answered(ANSWER_SECONDS):
            raise Refused(f"no answer in {ANSWER_SECONDS} s")
        line, _, self._held = self._held.partition(b"\n")
        self._due -= 1
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer

    def forget(self) -> None:
        """Hear the answers that nobody waits for any more."""
        while self._due:
            try:
                self.answer()
            except Refused:
                if not self._held and not self.answered(0):
                    return

    def tell(self, *words: object) -> dict[str, Any]:
        """Give a command and wait for the answer."""
        self.ask(*words)
        return self.answer()

    def region(self, name: str, octets: int, *words: str) -> Driven:
        """Have it register memory; ``words`` are rights, ``other`` for a Protection Domain of its own,
        ``zero`` for TOs from zero on."""
        answer = self.tell("region", name, octets, *words)
        return Driven(name, answer["stag"], answer["to"], octets)

    def set(self, region: Driven, offset: int, octets: bytes) -> None:
        """Write its memory from within."""
        self.tell("set", region.name, offset, octets.hex())

    def get(self, region: Driven, offset: int = 0, octets: int | None = None) -> bytes:
        """Read its memory from within."""
        octets = region.octets - offset if octets is None else octets
        return bytes.fromhex(self.tell("get", region.name, offset, octets)["octets"])

    def expect_memory(self, region: Driven, content: bytes, offset: int = 0) -> None:
        """Its memory holds these octets."""
        found = self.get(region, offset, len(content))
        if found != content:
            at = next(
                place for place, pair in enumerate(zip(found, content, strict=True)) if pair[0] != pair[1]
            )
            wrong, right = (octets[at : at + 16].hex() for octets in (found, content))
            raise ExchangeRule(f"{region.name} at {offset + at}: {wrong}, not {right}")

    def refuses(self, *words: object) -> str:
        """A command that it must refuse; why it does."""
        try:
            answer = self.tell(*words)
        except Refused as refusal:
            return str(refusal)
        raise ExchangeRule(f"{' '.join(map(str, words))}: {answer}")
