"""Devices of several cores: which of them has carried what, as our end says it of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from .networks import ProgramNetwork
from .processes import RigError, require_equal

LEAST_SHARE: Final = 0.25
"""Of many connections, for each of two cores: the hash spreads them evenly, by a key that is drawn at
random."""


def judge_queues(network: ProgramNetwork, by_core: dict[str, Any]) -> list[dict[str, Any]]:
    """The device has the queues that it should, and every core has answered; what each has done."""
    require_equal("queues", network.queues.value, by_core["queues"])
    cores = list(by_core["cores"])
    require_equal("cores", network.cores, len(cores))
    if None in cores:
        raise RigError(f"core {cores.index(None)} has not answered")
    dropped = sum(core["not_handed_over"] for core in cores)
    require_equal("frames dropped between cores", 0, dropped)
    return cores


def judge_file(network: ProgramNetwork, by_core: dict[str, Any], core: int | None) -> str:
    """The one connection of an exchange was at one core, ``core`` if that was asked for; a line about it."""
    cores = judge_queues(network, by_core)
    busy = [number for number, each in enumerate(cores) if each["connections"]]
    if len(busy) != 1 or core not in (None, *busy):
        raise RigError(f"the connection was to be at core {core}: {cores}")
    [at] = busy
    silent = [each for number, each in enumerate(cores) if number != at]
    fpdus = [each["fpdus_received"] + each["fpdus_sent"] for each in silent]
    require_equal("FPDUs at other cores", 0, *fpdus)
    return f"at core {at}: {cores[at]['fpdus_received']} FPDUs received, {cores[at]['fpdus_sent']} sent"


def judge_many(network: ProgramNetwork, by_core: dict[str, Any]) -> str:
    """Every core has carried its share of many connections; a line about them."""
    cores = judge_queues(network, by_core)
    line = judge_shares([each["connections"] for each in cores])
    fpdus = ", ".join(str(each["fpdus_received"]) for each in cores)
    return f"{line}; FPDUs received {fpdus}"


def judge_clients(network: ProgramNetwork, served: list[dict[str, Any]]) -> str:
    """The same of the clients of ``warpline-bench ping``."""
    by_core = Counter(client["core"] for client in served)
    return judge_shares([by_core[core] for core in range(network.cores)])


def judge_shares(connections: list[int]) -> str:
    """Each core has at least its least share of the connections; a line about them."""
    least = LEAST_SHARE * 2 / len(connections) * sum(connections)
    line = f"connections by core {', '.join(map(str, connections))}"
    if min(connections) < least:
        raise RigError(f"{line}: too few at one of them")
    return line
