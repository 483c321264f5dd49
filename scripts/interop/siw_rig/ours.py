"""Our end: ``warpline-bench ping`` on one device, or an RDMA program that ``warpline-run`` starts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from guest_rig.machine import INTERFACE
from rig.networks import cpu_list
from rig.processes import Process, RigError

PORT: Final = 7174
START_SECONDS: Final = 60
MANY: Final = 20
"""Connections, of which the hash brings some to each of two cores: by chance it fails once in 500,000."""
GRACE_SECONDS: Final = 30
"""More than the program waits for the other end before it ends, its capture written out."""


@dataclass(frozen=True)
class Place:
    """The device, and where in the network it is."""

    namespace: str | None
    device: str
    """Its name, without addresses."""
    eal: str
    mtu: int
    address: str
    prefix_length: int
    cores: int = 1
    """Of the device: each on a CPU of its own."""

    def named(self) -> str:
        """The device's name with its cores. They have one queue, whose captures are in order, where there is
        a choice."""
        if self.cores == 1:
            return self.device
        one = ",queues=one" if self.device.startswith("af_packet:") else ""
        return f"{self.device},cores={cpu_list(self.cores)}{one}"


class Ours:
    """Starts the program and tells what it found; a context manager that leaves nothing running."""

    def __init__(self, place: Place, directory: Path, program: Path) -> None:
        self.place = place
        self.directory = directory
        self.program = program
        self._started = 0
        self._processes: list[Process] = []
        self.connections = [0] * place.cores
        """Those that the program has reported, by the core that had them."""

    def __enter__(self) -> Ours:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, words: list[str], seconds: float, capture: Path | None = None) -> Process:
        """Start it."""
        self._started += 1
        place = self.place
        line = [
            *("nice", "-n", "5", str(self.program), "ping", "--device", place.named(), "--eal", place.eal),
            *("--mtu", str(place.mtu), "--address", f"{place.address}/{place.prefix_length}"),
            *("--json", str(self._json(f"{self._started}-ping"))),
            # Loops on all CPUs would leave none to the guest.
            *(("--events",) if place.cores > 1 else ()),
            *(("--pcap", str(capture)) if capture else ()),
            *words,
        ]
        process = Process(
            f"{self._started}-ping", place.namespace, line, seconds, self.directory, grace=GRACE_SECONDS
        )
        self._processes.append(process)
        return process

    def run(self, words: list[str], seconds: float) -> Process:
        """Start an RDMA program by ``warpline-run``, which is ``program`` then."""
        self._started += 1
        line = ["nice", "-n", "5", str(self.program), "--device", self.place.device, *words]
        name = f"{self._started}-{words[0]}"
        process = Process(name, self.place.namespace, line, seconds, self.directory)
        self._processes.append(process)
        return process

    def capture(self, file: Path, seconds: float) -> Process:
        """Start dumpcap on the guest's link, for frames of our port."""
        self._started += 1
        words = ["dumpcap", "-q", "-i", INTERFACE, "-B", "64", "-f", f"tcp port {PORT}", "-w", str(file)]
        process = Process(f"{self._started}-dumpcap", self.place.namespace, words, seconds, self.directory)
        self._processes.append(process)
        process.await_text("File:")
        return process

    def stop(self) -> None:
        """End what still runs: the next is to have the device and the address for itself."""
        while self._processes:
            self._processes.pop().stop()

    def connect(self, words: list[str], seconds: float, capture: Path | None = None) -> Process:
        """Start it as a client: of several cores each connects in turn."""
        of_core = ["--core", str(self._started % self.place.cores)] if self.place.cores > 1 else []
        return self.start([*words, *of_core], seconds, capture)

    def serve(self, words: list[str], seconds: float, capture: Path | None = None) -> Process:
        """Start it as a server; return when it listens."""
        listen = ["--listen", f"{self.place.address}:{PORT}"]
        server = self.start([*listen, *words], seconds, capture)
        server.await_text("waiting at", START_SECONDS)
        return server

    def _json(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def results(self, process: Process) -> list[dict[str, Any]]:
        """What it wrote when it ended well."""
        status = process.wait()
        if status != 0:
            raise RigError(f"our end ended with status {status}: {process.errors}")
        return self.written(process)

    def written(self, process: Process) -> list[dict[str, Any]]:
        """What it wrote, however it ended."""
        found = json.loads(self._json(process.name).read_text())
        found = found if isinstance(found, list) else [found]
        self._count(found)
        return found

    def _count(self, found: list[dict[str, Any]]) -> None:
        for each in found:
            for part in each.get("by_core", []):
                self.connections[part["core"]] += part["connections"]
            if "core" in each:
                self.connections[each["core"]] += 1

    def by_core(self) -> str:
        """Which cores have had connections; fails if one of several has had none of many."""
        line = f"connections by core: {', '.join(map(str, self.connections))}"
        if len(self.connections) > 1 and sum(self.connections) >= MANY and not all(self.connections):
            raise RigError(f"{line}: none at one of them")
        return line
