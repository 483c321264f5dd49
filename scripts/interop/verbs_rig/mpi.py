"""Open MPI over libfabric's provider ``verbs;ofi_rxm``: jobs of two ranks on two hosts, of four on one.

Between the hosts, mpirun's own connections are the kernel's, at the addresses that warpline has too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rig.processes import command

from .case import CLIENT_ADDRESS, DIRECTORY, ONE_HOST, SERVER_NAMESPACE, Case
from .pair import INTERFACE, LAUNCHER, SERVER, Place

OPENMPI: Final = "openmpi-bin"
_HERE: Final = Path(__file__).resolve().parent
_SOURCE, _AGENT = _HERE / "mpi.c", _HERE / "mpi_agent"
_PROGRAM: Final = f"{DIRECTORY}/mpi"
_OVER_VERBS: Final = (
    *("--mca", "pml", "cm"),
    *("--mca", "mtl", "ofi"),
    *("--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm"),
)
"""Shared memory and TCP are no choice: the pml ``cm`` has no btl."""
_MOST_BYTES: Final = 1 << 18
_TESTS: Final = (
    ("ring", 1000),
    ("alltoall", _MOST_BYTES),
    ("latency", 8, 2000),
    ("latency", 65536, 500),
    ("bandwidth", 8, 20000),
    ("bandwidth", 1 << 20, 320),
)


def compile_program(directory: Path) -> None:
    """Leave the program of the jobs in the directory of the run."""
    command("mpicc", "-O2", "-Wall", "-o", str(directory / "mpi"), str(_SOURCE))


def mpi() -> Iterator[Case]:
    """Each test, by ranks in both places."""
    hosts, agent = f"{CLIENT_ADDRESS},{SERVER}", f"{_AGENT} {SERVER_NAMESPACE}"
    on_two = ("--host", hosts, "--mca", "plm_rsh_agent", agent)
    for place, ranks, more in ((Place.TWO_HOSTS, 2, on_two), (Place.ONE_HOST, 4, ("--oversubscribe",))):
        for kind, *numbers in _TESTS:
            yield Case(
                OPENMPI,
                (
                    *("mpirun", "--allow-run-as-root", "-np", str(ranks), *more, *_OVER_VERBS),
                    *("--mca", "orte_tmpdir_base", DIRECTORY),
                    *(str(LAUNCHER), "--device", f"packet:{INTERFACE}"),
                    *(_PROGRAM, kind, *map(str, numbers)),
                ),
                label=f"-np {ranks} {kind} {' '.join(map(str, numbers))}",
                # hwloc would look for displays of X at ports where nobody listens: the kernel resets these.
                environment=("HWLOC_COMPONENTS=-gl",),
                on_warpline=False,
                needs=("mpicc",),
                places=(place,),
                quick=ONE_HOST if (place, kind) == (Place.ONE_HOST, "alltoall") else (),
                shows=rf"^{kind}: (.*)",
                carried=least_carried(kind, ranks, numbers[0], numbers[-1]),
                seconds=60,
            )


def least_carried(kind: str, ranks: int, number: int, count: int) -> int:
    """The bytes of a test's messages between its ranks."""
    if kind == "ring":
        return 8 * number
    if kind == "alltoall":
        # 4 bytes, and 8, and so on, from each to all others.
        return ranks * (ranks - 1) * (2 * number - 4)
    return number * count * (2 if kind == "latency" else 1)
