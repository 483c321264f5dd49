"""Cases in which our end is an unmodified program, rping or one of perftest, by ``warpline-run``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rig.processes import Process, RigError, command

from .cases import (
    CAPTURE,
    ENDLESS,
    RPING_SECONDS,
    SECONDS,
    SHORT_SECONDS,
    Case,
    Rig,
    judge,
    require,
    require_done,
)
from .ours import PORT
from .siw_driver import PATCHED, STOCK

PACKAGES: Final = ("rdmacm-utils", "perftest")
"""What our end runs."""
PINGS: Final = 20
RPING_SIZES: Final = (64, 4096, 65535)
SLEEP_SECONDS: Final = 40


@dataclass(frozen=True)
class Load:
    """What a program of perftest is to move."""

    sizes: tuple[int, ...]
    iterations: int
    judged: bool = False
    """Whether a capture is judged: tshark and our reassembly take their time."""

    @property
    def words(self) -> str:
        """As options."""
        size = f"-s {self.sizes[0]}" if len(self.sizes) == 1 else "-a"
        return f"{size} -n {self.iterations}"

    @property
    def what(self) -> str:
        """As the table has it."""
        first, last = self.sizes[0], self.sizes[-1]
        return f"{first} bytes" if first == last else f"{first} bytes to {last >> 20} MiB"


SMALL, LARGE = Load((64,), 100, judged=True), Load((65536,), 20, judged=True)
ALL = Load(tuple(1 << power for power in range(1, 24)), 5)
WRITE, READ_REQUEST, READ_RESPONSE, SEND = range(4)
READS: Final = frozenset({READ_REQUEST, READ_RESPONSE})
PERFTEST: Final = {
    "ib_write_bw": frozenset({WRITE}),
    "ib_send_bw": frozenset({SEND}),
    "ib_read_bw": READS,
    "ib_write_lat": frozenset({WRITE}),
    "ib_send_lat": frozenset({SEND}),
    "ib_read_lat": READS,
}
"""The programs, and the opcodes that a capture has to have."""
SERVER_SENDS_FIRST: Final = ("ib_write_lat",)
"""The server of these writes before its client does. A Responder of MPA sends nothing before the peer's first
FPDU, and siw as Initiator sends one of its own accord only with ``peer_to_peer``."""
_FIRST, _LAST = ord("A"), ord("z")


def ping_text(number: int, size: int) -> str:
    """What rping sends in a ping, up to the NUL at its end: the number, then letters of which each ping
    begins with the next."""
    head = f"rdma-ping-{number}: "
    letters = _LAST - _FIRST + 1
    return head + "".join(chr(_FIRST + (number + place) % letters) for place in range(size - len(head) - 1))


def require_pings(said: str, who: str, size: int) -> None:
    """An rping that was to show its pings (-v) has shown each, whole and in order."""
    found = re.findall(rf"^{who}ping data: (.*)$", said, re.MULTILINE)
    require(len(found) == PINGS, f"{len(found)} pings shown, not {PINGS}")
    for number, text in enumerate(found):
        require(text == ping_text(number, size), f"ping {number} arrived otherwise than it was sent")


PERFTEST_CONNECTIONS: Final = 2
"""A first, on which its two ends tell each other what they want, and the one that is measured."""


def end_of(said: str) -> str:
    """The last words of a program, in one line."""
    return " ".join(said.split())[-300:]


class TooSoon(RigError):
    """The client of a perftest has connected before its server listened."""


ATTEMPTS: Final = 10
"""A server of perftest closes its listener after a first connection and listens anew for the second, which
its client opens at once. Nothing makes the client wait, and it does not survive a refusal."""
REFUSED: Final = ("ERRNO: Connection refused", "RDMA_CM_EVENT_REJECTED; error: -111")
"""What it says then, with Debian's libraries and with ours."""


def require_measured(status: int, said: str, who: str) -> None:
    """A client of perftest has ended well."""
    if any(words in said for words in REFUSED):
        raise TooSoon(f"{who} is refused: it connects before its server listens again")
    require(status == 0, f"{who} ended with status {status}: {end_of(said)}")


def attempted(play: Callable[[Rig], str]) -> Callable[[Rig], str]:
    """A case that begins again when the client is too early, with new programs."""

    def attempt(rig: Rig) -> str:
        for number in range(1, ATTEMPTS):
            try:
                return f"{play(rig)}{f'; attempt {number}' if number > 1 else ''}"
            except TooSoon:
                rig.remote.stop("KILL")
                rig.ours.stop()
        return f"{play(rig)}; attempt {ATTEMPTS}"

    return attempt


def result(said: str, load: Load) -> str:
    """What the table of a perftest says; fails unless it has each row, of all iterations."""
    for size in load.sizes:
        row = rf"^ *{size}[ \t]+{load.iterations}[ \t]+(\S+)[ \t]+(\S+)[ \t]+(\S+)"
        rows = re.findall(row, said, re.MULTILINE)
        require(len(rows) == 1, f"no result of {size} bytes: {end_of(said)}")
    _, second, third = rows[0]
    which = f" with {load.sizes[-1] >> 20} MiB" if len(load.sizes) > 1 else ""
    return f"typical {third} us{which}" if "t_typical" in said else f"average {second} MB/s{which}"


@contextmanager
def captured(rig: Rig) -> Iterator[Path]:
    """A capture of our port, complete when the context ends."""
    file = rig.directory / CAPTURE
    dumpcap = rig.ours.capture(file, SECONDS + SHORT_SECONDS)
    yield file
    time.sleep(1)  # dumpcap writes out what it holds twice a second
    dumpcap.stop()


def serve(rig: Rig, words: list[str]) -> Process:
    """Start a server of ours; return when its port is held."""
    server = rig.ours.run(words, SECONDS)
    until = time.monotonic() + SHORT_SECONDS
    namespace = rig.ours.place.namespace
    assert namespace
    while f":{PORT:04X} 00000000:0000 0A" not in command(
        *("ip", "netns", "exec", namespace, "cat", "/proc/net/tcp")
    ):
        require(server.running, f"our server ended: {server.output} {server.errors}")
        require(time.monotonic() < until, f"our server does not listen: {server.output} {server.errors}")
        time.sleep(0.05)
    return server


def require_ended(process: Process) -> str:
    """A program of ours has ended well; what it said."""
    status = process.wait()
    said = process.output
    require(status == 0, f"{process.name} ended with status {status}: {end_of(f'{said} {process.errors}')}")
    return said


def rping_pings_us(size: int) -> Callable[[Rig], str]:
    """rping in the guest is the client of ours."""

    def play(rig: Rig) -> str:
        with captured(rig) as capture:
            server = serve(rig, f"rping -s -v -V -a {rig.ours.place.address} -p {PORT} -S {size}".split())
            status, output = rig.client(size, PINGS)
            require_done(status, output, "the guest's rping")
            require_pings(require_ended(server), "server ", size)
        return f"{PINGS} pings; {judge(rig, capture, 1, crc=None)}"

    return play


def rping_of_ours(size: int) -> Callable[[Rig], str]:
    """Our rping is the client of the guest's."""

    def play(rig: Rig) -> str:
        rig.start_server(size)
        with captured(rig) as capture:
            line = f"rping -c -v -V -a {rig.remote.address} -p {PORT} -S {size} -C {PINGS}"
            require_pings(require_ended(rig.ours.run(line.split(), RPING_SECONDS)), "", size)
        return f"{PINGS} pings; {judge(rig, capture, 1, crc=None)}"

    return play


def rping_sleeps(rig: Rig) -> str:
    """The guest's client is stopped for longer than we wait for a peer that answers no probe. Its kernel
    answers them, so nothing ends."""
    server = serve(rig, f"rping -s -v -a {rig.ours.place.address} -p {PORT} -S 64".split())
    rig.remote.start(rig.client_line(64, ENDLESS))
    for signal, seconds in (("STOP", SLEEP_SECONDS), ("CONT", 2)):
        rig.remote.run(f"killall -{signal} rping", SHORT_SECONDS)
        time.sleep(seconds)
        require(server.running, f"our server has ended by {seconds} s after SIG{signal}: {server.errors}")
    rig.remote.stop("KILL")
    return f"{require_ended(server).count('ping data: ')} pings, and none lost"


@contextmanager
def captured_if(judged: bool, rig: Rig, opcodes: frozenset[int]) -> Iterator[list[str]]:
    """A capture that is judged when the context ends; what was found joins the list."""
    found: list[str] = []
    if not judged:
        yield found
        return
    with captured(rig) as capture:
        yield found
    # perftest destroys queue pairs that are connected, without rdma_disconnect() before: that is an RST.
    found.append(judge(rig, capture, PERFTEST_CONNECTIONS, None, opcodes, closed=False))


def they_measure(program: str, load: Load) -> Callable[[Rig], str]:
    """A client in the guest, a server of ours."""

    def play(rig: Rig) -> str:
        line = f"{program} -R -F -p {PORT} {load.words}"
        with captured_if(load.judged, rig, PERFTEST[program]) as found:
            server = serve(rig, line.split())
            status, output = rig.remote.run(f"{line} {rig.ours.place.address}", RPING_SECONDS)
            require_measured(status, output, f"the guest's {program}")
            found.append(result(output, load))
            require_ended(server)
        return "; ".join(found)

    return attempted(play)


def we_measure(program: str, load: Load) -> Callable[[Rig], str]:
    """A client of ours, a server in the guest."""

    def play(rig: Rig) -> str:
        line = f"{program} -R -F -p {PORT} {load.words}"
        rig.remote.start(line)
        rig.await_listener(program)
        with captured_if(load.judged, rig, PERFTEST[program]) as found:
            client = rig.ours.run([*line.split(), rig.remote.address], RPING_SECONDS)
            status = client.wait()
            require_measured(status, f"{client.output} {client.errors}", f"our {program}")
            found.append(result(client.output, load))
        return "; ".join(found)

    return attempted(play)


def program_cases() -> list[Case]:
    """In the order of the table."""
    cases = []
    for size in RPING_SIZES:
        what = f"rping, {size} bytes"
        cases.append(Case("our server", what, rping_pings_us(size)))
        cases.append(Case("our client", what, rping_of_ours(size)))
    cases.append(Case("our server", f"rping, the client stops for {SLEEP_SECONDS} s", rping_sleeps))
    for program in PERFTEST:
        for load in (SMALL, LARGE, ALL):
            what = f"{program}, {load.what}"
            driver = (PATCHED, "peer_to_peer=1") if program in SERVER_SENDS_FIRST else (STOCK,)
            cases.append(Case("our server", what, they_measure(program, load), driver))
            cases.append(Case("our client", what, we_measure(program, load)))
    return sorted(cases, key=lambda case: case.driver, reverse=True)
