"""Two network namespaces with a veth pair between them, and programs on warpline in one or in both."""

from __future__ import annotations

import enum
import os
import time
from pathlib import Path
from typing import Final, Self

from rig.built import built_directory
from rig.networks import without_offloads
from rig.processes import Process, RigError, command

SUBNET: Final = "198.18.40"
SERVER, CLIENT = f"{SUBNET}.1", f"{SUBNET}.2"
SERVER_IPV6, CLIENT_IPV6 = "fd00:40::1", "fd00:40::2"
INTERFACE: Final = "wl0"
INTERFACES: Final = ("lo", INTERFACE)
LAUNCHER: Final = built_directory() / "warpline-run"
LIBRARIES: Final = tuple(
    built_directory() / path for path in ("libwarpline_verbs.so", "deps/libwarpline_verbs.so")
)
"""Where the launcher finds the library, which a build for tests leaves in the second place."""
READY_SECONDS: Final = 20
LISTEN_SECONDS: Final = 0.1
"""From the time at which warpline holds the port of a listener to that at which it listens, at most."""


class Place(enum.Enum):
    """Where the two ends of a case run."""

    TWO_HOSTS = "two hosts"
    """Each end in a namespace and at an address of its own. Frames cross the veth pair."""
    ONE_HOST = "one host"
    """Both ends in one namespace, at one address of one interface. Frames cross ``lo``; the other end of the
    veth pair is in a namespace without programs, for a carrier."""


class Program:
    """A program of a package, in a namespace."""

    def __init__(self, process: Process, directory: Path, name: str) -> None:
        self.process = process
        self._files = (directory / f"{name}.stdout", directory / f"{name}.stderr")

    @property
    def output(self) -> str:
        """All that it has printed."""
        return "\n".join(file.read_text(errors="replace").strip() for file in self._files).strip()

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self.process.is_running


class Pair:
    """The namespaces; a context manager that leaves nothing behind. The addresses of both ends are the
    kernel's, and warpline's too."""

    def __init__(self, directory: Path, place: Place) -> None:
        self.directory = directory
        self.place = place
        self.server, self._other = (f"wl-verbs-{end}-{os.getpid()}" for end in ("server", "other"))
        self._processes: list[Process] = []
        self._captures: list[Process] = []
        self._started = 0

    @property
    def namespaces(self) -> tuple[str, str]:
        """Those made for it."""
        return self.server, self._other

    @property
    def client(self) -> str:
        """The namespace of the client."""
        return self.server if self.place is Place.ONE_HOST else self._other

    @property
    def client_address(self) -> str:
        """The IPv4 address of the client."""
        return SERVER if self.place is Place.ONE_HOST else CLIENT

    @property
    def carrier(self) -> str:
        """The interface that frames between the two ends cross."""
        return "lo" if self.place is Place.ONE_HOST else INTERFACE

    def __enter__(self) -> Self:
        try:
            for namespace in self.namespaces:
                command("ip", "netns", "add", namespace)
            command(
                *f"ip link add {INTERFACE} netns {self.server} type veth peer name {INTERFACE} netns "
                f"{self._other}".split()
            )
            for namespace, *addresses in (
                (self.server, f"{SERVER}/24", f"{SERVER_IPV6}/64"),
                (self._other, f"{CLIENT}/24", f"{CLIENT_IPV6}/64"),
            ):
                for interface in INTERFACES:
                    command("ip", "-n", namespace, "link", "set", interface, "up")
                for address in addresses:
                    at_once = ("nodad",) if ":" in address else ()
                    command("ip", "-n", namespace, "addr", "add", address, "dev", INTERFACE, *at_once)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()
        existing = command("ip", "netns", "list").split()
        for namespace in self.namespaces:
            if namespace in existing:
                command("ip", "netns", "del", namespace)

    def stop_all(self) -> None:
        """End every process started here that still runs."""
        self.stop_programs()
        for process in self._captures:
            process.stop()
        self._captures.clear()

    def stop_programs(self) -> None:
        """End every program that still runs, but no capture."""
        for process in reversed(self._processes):
            process.stop()
        self._processes.clear()

    def set_offloads(self, on: bool) -> None:
        """Has the kernel leave checksums and segmentation to the interfaces, as by default; or has frames of
        one segment, for captures, with whole checksums on the veth pair: ``lo`` never has any."""
        for namespace in self.namespaces:
            for interface in INTERFACES:
                if on:
                    words = f"ip netns exec {namespace} ethtool -K {interface} tx on tso on gso on gro on"
                    command(*words.split())
                else:
                    without_offloads(namespace, interface)

    def start(
        self, namespace: str, words: tuple[str, ...], seconds: float, on_warpline: bool = True
    ) -> Program:
        """Start a program, on warpline or as it is."""
        launcher = [str(LAUNCHER), "--device", f"packet:{INTERFACE}"] if on_warpline else []
        name = f"{self._next_name()}-{words[0]}"
        process = Process(name, namespace, [*launcher, *words], seconds, self.directory, grace=2)
        self._processes.append(process)
        return Program(process, self.directory, name)

    def _next_name(self) -> str:
        self._started += 1
        return f"{self.place.value.replace(' ', '-')}-{self._started}"

    def dumpcap(self, name: str, namespace: str, seconds: float, *options: str) -> tuple[Process, Path]:
        """Start a capture; the process and the file, which no later capture writes over."""
        started = self._next_name()
        path = self.directory / f"{started}-{name}.pcapng"
        words = ["dumpcap", "-q", "-i", self.carrier, "-B", "16", "-w", str(path), *options]
        process = Process(f"{started}-dumpcap", namespace, words, seconds, self.directory)
        self._captures.append(process)
        process.await_text("File:")
        return process, path

    def await_listener(self, program: Program, port: int) -> None:
        """Wait until a server can be connected to, or has ended. The kernel lists a port at which warpline
        listens too, because warpline holds it."""
        until = time.monotonic() + READY_SECONDS
        while program.is_running:
            if f":{port} " in command("ip", "netns", "exec", self.server, "ss", "-ltn"):
                time.sleep(LISTEN_SECONDS)
                return
            if time.monotonic() > until:
                raise RigError(f"nobody listens at port {port} after {READY_SECONDS} s")
            time.sleep(0.05)
