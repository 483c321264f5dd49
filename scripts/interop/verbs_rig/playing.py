"""Plays a case: starts its programs, waits for them, and judges how they ended."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Final

from rig.cases import JUDGE_SECONDS
from rig.networks import CHECK_CAPTURE
from rig.processes import RigError

from . import counters
from .case import CLIENT_ADDRESS, DIRECTORY, SERVER_NAMESPACE, Case, Ending, Expected
from .pair import Pair, Place, Program

PASSED, SKIPPED, FAILED, UNSUPPORTED = "pass", "skip", "FAIL", "not supported"
WATCH_SECONDS: Final = 1.0
"""How long a program that waits for a signal runs."""
BETWEEN_CLIENTS_SECONDS: Final = 0.3
"""A server of rping that clients ask at once may mistake one for the other, on adapters too."""
SKIP_SECONDS: Final = 2
"""A server that says that there is no such thing does so before its client, or this much later at most."""
CARRIED_LEAST: Final = 300
"""The bytes of a connection that exchanges next to nothing."""
SHOWN_LINES: Final = 20
"""Of the output of a program that failed."""
TIMED_OUT: Final = 124
"""The status of timeout(1)."""
SAYS_NOT_SUPPORTED: Final = re.compile(r"warpline: .*")


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    case: Case
    place: Place
    outcome: str
    detail: str
    seconds: float
    resets: int
    """How many resets of TCP the kernels have sent while all programs ran."""
    output: str = ""
    """What the programs have printed, if it failed."""

    @property
    def is_wrong(self) -> bool:
        """Whether it is a failure of the whole run."""
        return self.outcome == FAILED


def play(pair: Pair, case: Case) -> Result:
    """One case."""
    programs: list[tuple[str, Program]] = []
    started = time.monotonic()
    detail, dumpcap, capture, resets, skips = "", None, None, 0, False
    try:
        if case.connections is not None:
            pair.set_offloads(False)
            dumpcap, capture = pair.dumpcap("case", pair.server, case.seconds + 60)
        resets_before, carried_before = counters.resets(pair), counters.carried(pair)
        _start(pair, case, programs)
        resets = _sent_until_first_end(pair, programs, resets_before) - resets_before
        if skips := _skips(case, programs):
            fault = ""
        else:
            fault = _finish(pair, case, programs)
            detail = reported(case, programs[-1][1].output)
        if not fault and not skips:
            fault = too_little(case, counters.carried(pair) - carried_before)
        if dumpcap is not None and case.connections is not None and not fault:
            time.sleep(1)  # dumpcap writes out what it holds twice a second
            dumpcap.stop()
            detail = _judge(str(capture), case.connections, pair.place)
    except RigError as error:
        fault = str(error)
    finally:
        pair.stop_programs()
        if dumpcap is not None:
            dumpcap.stop()
        if case.connections is not None:
            pair.set_offloads(True)
    seconds = time.monotonic() - started
    output = "\n".join(_output(name, program) for name, program in programs)
    outcome, detail = (SKIPPED, "") if skips else judge(case, fault, detail, output)
    if capture is not None and outcome != FAILED:
        capture.unlink(missing_ok=True)  # what failed is kept with the outputs of its programs
    return Result(case, pair.place, outcome, detail, seconds, resets, output if outcome == FAILED else "")


def reported(case: Case, output: str) -> str:
    """What is to be reported of the output of a program."""
    found = re.search(case.shows, output, re.MULTILINE)
    return str(found[1]).strip() if found and found.re.groups else ""


def too_little(case: Case, carried: int) -> str:
    """What is wrong with the number of bytes that warpline has carried, or nothing."""
    least = case.carried or (CARRIED_LEAST if case.server else 0)
    return f"warpline has carried {carried} bytes, not {least}" if least and carried < least else ""


def judge(case: Case, fault: str, detail: str, output: str) -> tuple[str, str]:
    """The outcome of a case and words about it, from what is wrong with its programs and what they print."""
    if case.expected is Expected.PASS:
        return (FAILED, fault) if fault else (PASSED, detail)
    if not fault:
        return PASSED, f"{detail} (expected: {case.expected.value})".strip()
    said = SAYS_NOT_SUPPORTED.search(output)
    if case.expected is Expected.UNSUPPORTED:
        if said is None:
            return FAILED, f"{fault}; the library says nothing of it"
        return UNSUPPORTED, case.reason
    return UNSUPPORTED, f"{fault}; {case.reason}"


def _output(name: str, program: Program) -> str:
    lines = program.output.splitlines()
    cut = [f"({len(lines) - SHOWN_LINES} lines before)"] if len(lines) > SHOWN_LINES else []
    return "\n".join(f"    {name}: {line}" for line in [*cut, *lines[-SHOWN_LINES:]])


def _start(pair: Pair, case: Case, programs: list[tuple[str, Program]]) -> None:
    """Start the server and then the clients."""
    if case.server:
        # It has to outlive the client.
        server = pair.start(pair.server, case.server, case.seconds + 10)
        programs.append(("server", server))
        pair.await_listener(server, case.port)
    words = case.client
    for name, text in (
        (DIRECTORY, str(pair.directory)),
        (SERVER_NAMESPACE, pair.server),
        (CLIENT_ADDRESS, pair.client_address),
    ):
        words = tuple(word.replace(name, text) for word in words)
    for number in range(case.clients):
        time.sleep(BETWEEN_CLIENTS_SECONDS if number else 0)
        name = "client" if case.server else "program"
        name += f" {number}" if case.clients > 1 else ""
        programs.append((name, _start_client(pair, case, words)))
    if case.interrupted:
        time.sleep(WATCH_SECONDS)
        programs[-1][1].process.signal(signal.SIGINT)


def _start_client(pair: Pair, case: Case, words: tuple[str, ...]) -> Program:
    before = ("env", *case.environment) if case.environment else ()
    return pair.start(pair.client, (*before, *words), case.seconds, case.on_warpline)


def _sent_until_first_end(pair: Pair, programs: list[tuple[str, Program]], sent: int) -> int:
    """Wait until one of the programs has ended; the resets that the kernels had sent while all of them ran,
    of which ``sent`` were sent before. A program that has ended leaves its connections to its kernel."""
    while True:
        for _ in range(10):
            if not all(program.is_running for _, program in programs):
                return sent
            time.sleep(0.02)
        counted = counters.resets(pair)
        if all(program.is_running for _, program in programs):
            sent = counted


def _skips(case: Case, programs: list[tuple[str, Program]]) -> bool:
    """Whether all programs end by saying that there is no such thing here."""
    if not case.skips:
        return False
    statuses = {program.process.wait() for name, program in programs if name != "server"}
    until = time.monotonic() + SKIP_SECONDS
    server = programs[0][1]
    while server.is_running and statuses <= case.skips and time.monotonic() < until:
        time.sleep(0.02)
    return not server.is_running and {server.process.wait(), *statuses} in ({one} for one in case.skips)


def _finish(pair: Pair, case: Case, programs: list[tuple[str, Program]]) -> str:
    """Wait for the programs; what is wrong with them, or nothing."""
    server = programs[0][1] if case.server else None
    faults = [_client_fault(name, client, case) for name, client in programs if client is not server]
    if server and case.ending is Ending.BY_ITSELF and not any(faults):
        faults.append(_ended("server", server, case, 0))
    if server and case.ending is Ending.STOPPED and not server.is_running:
        faults.append("the server has ended before it was stopped")
    pair.stop_programs()
    if server and not any(faults) and not re.search(case.server_shows, server.output, re.MULTILINE):
        faults.append(f"the server does not print {case.server_shows!r}")
    return "; ".join(filter(None, faults))


def _client_fault(name: str, client: Program, case: Case) -> str:
    """Wait for a client; what is wrong with it, or nothing."""
    if fault := _ended(name, client, case, case.status):
        return fault
    if not re.search(case.shows, client.output, re.MULTILINE):
        return f"the {name} does not print {case.shows!r}"
    return ""


def _ended(name: str, program: Program, case: Case, expected: int) -> str:
    """Wait for a program that should end with the status ``expected``; what is wrong with it, or nothing."""
    status = program.process.wait()
    by_signal = status in (-signal.SIGINT, 128 + signal.SIGINT)
    if status == TIMED_OUT:
        return f"the {name} does not end in {case.seconds:.0f} s"
    if status != expected and not (case.interrupted and by_signal):
        return f"the {name} ends with status {status}"
    if case.fails_with and (found := re.search(case.fails_with, program.output)):
        return f"the {name} prints {found[0]!r}"
    return ""


def _judge(capture: str, connections: int, place: Place) -> str:
    """tshark and our own reassembly on the capture; a line about it."""
    words = ["timeout", str(JUDGE_SECONDS), str(CHECK_CAPTURE), capture, "--connections", str(connections)]
    words += ["--loopback"] if place is Place.ONE_HOST else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"capture: {done.stderr.strip()[-800:] or done.returncode}")
    verdict = json.loads(done.stdout)
    fpdus = sum(direction["fpdus_by_tshark"] for direction in verdict["directions"])
    return f"{verdict['frames']} frames, {fpdus} FPDUs good"
