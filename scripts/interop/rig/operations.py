"""Every operation between the kernel's end and our end, which does as it is told
(``warpline-tools operations``)."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from typing import Any, Final

from .built import ROOT
from .cases import CAPTURE, JUDGE_SECONDS
from .networks import CHECK_CAPTURE, PORT, ProgramNetwork, endpoint
from .processes import RigError

CASES: Final = ROOT / "scripts/interop/operations"
SECONDS: Final = 300
JUDGED: Final = 2
"""Its exit status if a case has failed, as its line then says."""
QUICK_EVERY: Final = 4
"""With --quick every n-th case is played."""
KERNEL_PORT: Final = PORT + 1
PIPES: Final = 'commands=$1; answers=$2; shift 2; exec "$@" <"$commands" >"$answers"'
"""Runs a program between two pipes."""


def play(network: ProgramNetwork, captured: bool, every: int) -> list[dict[str, Any]]:
    """Play the cases worth a capture, or the others; what is said of each."""
    pipes = [network.directory / name for name in ("commands", "answers")]
    for pipe in pipes:
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
    capture = network.directory / CAPTURE if captured else None
    words = [
        *(
            "--program",
            endpoint(network.our_address, PORT),
            "--listen",
            endpoint(network.kernel_address, KERNEL_PORT),
        ),
        *("--commands", str(pipes[0]), "--answers", str(pipes[1])),
        *("--captured", "yes" if captured else "no", "--every", str(every)),
    ]
    words += ["--cores", str(network.cores)]
    try:
        judge = network.start("operations", network.kernel, [str(CASES), *words], SECONDS)
        before = ["sh", "-c", PIPES, "sh", *map(str, pipes)]
        ours = network.start_ours(["--listen", str(PORT)], capture, SECONDS, before, "operations")
        status = judge.wait()
        lines = judge.lines()
        if not lines:
            raise RigError(f"no case was played: {judge.errors}; {ours.errors}")
        # One that ends with any other has not played all of them.
        if status != (JUDGED if any(line.get("fault") for line in lines) else 0):
            raise RigError(f"the judge ended with status {status}: {judge.errors}; {ours.errors}")
        if (status := ours.wait()) != 0:
            raise RigError(f"our end ended with status {status}: {ours.errors}")
        network.finish_capture()
    finally:
        network.stop_all()
    return lines


def judge_capture(network: ProgramNetwork, connections: int) -> str:
    """tshark and our own reassembly on the capture of so many connections; a line about it."""
    capture = network.directory / CAPTURE
    words = [
        "timeout",
        str(JUDGE_SECONDS),
        str(CHECK_CAPTURE),
        str(capture),
        "--connections",
        str(connections),
    ]
    words += ["--aligned", network.our_address]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"capture: {done.stderr.strip()[-800:] or done.returncode}")
    verdict = json.loads(done.stdout)
    by_host: dict[str, Counter[str]] = {}
    for direction in verdict["directions"]:
        by_host.setdefault(direction["host"], Counter()).update(direction["opcodes"])
    missing = [
        f"{opcode} of {host}"
        for host in (network.our_address, network.kernel_address)
        for opcode in range(12)
        if not by_host[host][str(opcode)]
    ]
    if missing:
        raise RigError(f"not in the capture: opcodes {', '.join(missing)}")
    seen = sum(direction["fpdus_by_tshark"] for direction in verdict["directions"])
    told = ", ".join(f"{number}: {by_host[network.our_address][str(number)]}" for number in range(12))
    return f"{verdict['frames']} frames good, {seen} FPDUs as tshark sees them, opcodes of ours {told}"


def by_core(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What our end says of its cores, taken from the lines."""
    if not lines or "by_core" not in lines[-1]:
        raise RigError("our end has said nothing of its cores")
    return dict(lines.pop()["by_core"])


def outcome(line: dict[str, Any]) -> str:
    """A line about a case; fails if it has failed."""
    if line["fault"]:
        raise RigError(line["fault"])
    return f"{line['seconds']} s"
