"""Two network namespaces joined by a veth pair, and programs in them that end with the namespaces.

All traffic stays in namespaces made here, on 198.18.0.0/15, which RFC 2544 sets aside for benchmarks.
"""

import itertools
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Self

ADDRESSES = ("198.18.0.1", "198.18.0.2")
INTERFACE = "wl0"
OFFLOADS = ("tx", "rx", "tso", "gso", "gro", "sg")

_numbers = itertools.count()


class Unavailable(Exception):
    """A program cannot be run here, or gave no result; the text says why."""


def as_root() -> list[str]:
    """What runs a command as root."""
    return [] if os.geteuid() == 0 else ["sudo", "-n"]


def execute(words: list[str], seconds: float) -> str:
    """Runs a command to its end, and returns its output."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except FileNotFoundError:
        raise Unavailable(f"{words[0]} is not installed") from None
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no end after {seconds:.0f} s") from None
    finally:
        end(process)
    if process.returncode != 0:
        # As timeout(1) reports.
        late = f"no end after {seconds:.0f} s" if process.returncode == 124 else ""
        status = f"exit status {process.returncode}"
        raise Unavailable(late or reason(errors) or reason(output) or status)
    return output


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process, if it still runs. timeout(1), under which programs run, ends what it started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def reason(output: str) -> str:
    """The line in which a program says what is wrong, or else its last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if line.lower().startswith("error")), lines[-1] if lines else "")


class Server:
    """A program in a namespace that another one connects to."""

    def __init__(self, words: list[str]) -> None:
        self._output = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (closed by stop)
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, text=True
        )

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        self._output.seek(0)
        return self._output.read()

    def stop(self) -> None:
        """Ends it, if it still runs."""
        end(self._process)
        self._output.close()


class Pair:
    """Namespaces joined by a veth pair: the first is the client's, the second the server's."""

    def __init__(self, mtu: int, offloads: bool = True) -> None:
        self.mtu = mtu
        self.offloads = offloads
        unique = f"warpline-{os.getpid()}-{next(_numbers)}"
        self.namespaces = (f"{unique}-a", f"{unique}-b")
        self._made: list[str] = []
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        try:
            for namespace in self.namespaces:
                # Before it is there: an interrupt after the next line finds it in the list.
                self._made.append(namespace)
                self._ip("netns", "add", namespace)
            ours, theirs = self.namespaces
            end = ["name", INTERFACE, "mtu", str(self.mtu)]
            self._ip("-n", ours, "link", "add", *end, "type", "veth", "peer", *end, "netns", theirs)
            for namespace, address in zip(self.namespaces, ADDRESSES, strict=True):
                self._ip("-n", namespace, "address", "add", f"{address}/24", "dev", INTERFACE)
                self._ip("-n", namespace, "link", "set", "lo", "up")
                self._ip("-n", namespace, "link", "set", INTERFACE, "up")
                if not self.offloads:
                    self._without_offloads(namespace)
            for namespace in self.namespaces:
                self._await_carrier(namespace)
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean_up()

    def _ip(self, *words: str) -> None:
        execute([*as_root(), "ip", *words], 10)

    def _without_offloads(self, namespace: str) -> None:
        """Every segment is a frame of its own, with its checksums computed."""
        switches = [word for offload in OFFLOADS for word in (offload, "off")]
        execute([*self._inside(namespace), "ethtool", "-K", INTERFACE, *switches], 10)

    def _await_carrier(self, namespace: str) -> None:
        """Waits until the interface is up: UCX and libfabric see no device before."""
        until = time.monotonic() + 5
        link = [*as_root(), "ip", "-n", namespace, "-o", "link", "show", INTERFACE]
        while " state UP " not in execute(link, 10):
            if time.monotonic() > until:
                raise Unavailable(f"the veth pair is not up after 5 s in {namespace}")
            time.sleep(0.02)

    def _clean_up(self) -> None:
        for server in self._servers:
            server.stop()
        self._servers.clear()
        # The veth pair goes with its namespaces.
        for namespace in self._made:
            words = [*as_root(), "ip", "netns", "delete", namespace]
            subprocess.run(words, capture_output=True, timeout=10, check=False)
        self._made.clear()

    def _inside(self, namespace: str) -> list[str]:
        return [*as_root(), "ip", "netns", "exec", namespace]

    def server(self, words: list[str], port: int, seconds: float, at_client: bool = False) -> Server:
        """Starts a program that listens at a TCP port, in its own namespace or in the client's, and returns
        when it listens."""
        namespace = self.namespaces[0 if at_client else 1]
        server = Server([*self._inside(namespace), "timeout", "-k", "1", f"{seconds:.0f}", *words])
        self._servers.append(server)
        until = time.monotonic() + 5
        while not self._listens(namespace, port):
            if server.has_ended():
                raise Unavailable(f"{words[0]} ended before it listened: {reason(server.said())}")
            if time.monotonic() > until:
                raise Unavailable(f"{words[0]} does not listen at port {port} after 5 s")
            time.sleep(0.02)
        return server

    def server_that_says(self, words: list[str], text: str, seconds: float) -> Server:
        """Starts a program in the server's namespace that does not use the kernel's TCP, and returns when it
        has printed a text."""
        server = Server([*self._inside(self.namespaces[1]), "timeout", "-k", "1", f"{seconds:.0f}", *words])
        self._servers.append(server)
        until = time.monotonic() + 20
        while text not in (said := server.said()):
            if server.has_ended():
                raise Unavailable(f"{words[0]} ended before it was ready: {reason(said)}")
            if time.monotonic() > until:
                raise Unavailable(f"{words[0]} is not ready after 20 s")
            time.sleep(0.02)
        return server

    def _listens(self, namespace: str, port: int) -> bool:
        return bool(execute([*self._inside(namespace), "ss", "-Hltn", f"sport = :{port}"], 10))

    def client(self, words: list[str], seconds: float) -> str:
        """Runs a program to its end in the client's namespace, and returns its output."""
        bounded = ["timeout", "-k", "1", f"{seconds:.0f}", *words]
        try:
            return execute([*self._inside(self.namespaces[0]), *bounded], seconds + 10)
        except Unavailable as failure:
            said = [reason(server.said()) for server in self._servers]
            raise Unavailable("; ".join([f"{words[0]}: {failure}", *filter(None, said)])) from None


def missing() -> str | None:
    """Why there can be no namespaces, or None if there can."""
    for program in ("ip", "ss", "ethtool", "timeout", "taskset"):
        if shutil.which(program) is None and not (pathlib.Path("/usr/sbin") / program).exists():
            return f"{program} is not installed"
    try:
        with Pair(1500):
            return None
    except Unavailable as failure:
        return f"no network namespaces here ({failure})"
