"""The guest as it runs: QEMU, emulating, on a tap in a network namespace, and commands for it."""

from __future__ import annotations

import base64
import socket
import time
from pathlib import Path
from typing import Final, NamedTuple

from rig.processes import Process, RigError, command

from .image import Image

MEMORY_MIB: Final = 512
BOOT_SECONDS: Final = 120
"""Emulation on a busy machine is slow. It is always emulation: not every machine that has a /dev/kvm can
use it."""
INTERFACE: Final = "wl0"
"""The tap: the guest at one end, whatever opens it at the other."""
_NO_OFFLOADS: Final = ",".join(
    f"{name}=off"
    for name in (
        *("csum", "gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo"),
        *("guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo", "mrg_rxbuf"),
    )
)
"""Every frame whole, with its checksums, and no longer than the MTU."""


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    output: str


class Guest:
    """One guest; a context manager that leaves nothing behind."""

    def __init__(self, image: Image, namespace: str, address: str, directory: Path, seconds: float) -> None:
        self.image = image
        self.namespace = namespace
        self.address = address
        self.directory = directory
        self.seconds = seconds
        self._boots = 0
        self._requests = 0
        self._process: Process | None = None
        self._channel: socket.socket | None = None
        self._heard = b""

    def __enter__(self) -> Guest:
        try:
            command(*f"ip -n {self.namespace} tuntap add dev {INTERFACE} mode tap".split())
            command(
                *f"ip netns exec {self.namespace} sysctl -qw net.ipv6.conf.{INTERFACE}.disable_ipv6=1".split()
            )
            command(*f"ip -n {self.namespace} link set {INTERFACE} up".split())
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.stop()
            self._process = None

    def boot(self) -> None:
        """Start it, afresh if it runs."""
        Guest.__exit__(self)
        self._boots += 1
        channel, console = self.directory / f"channel-{self._boots}", self.console
        # With one possible CPU, QEMU 7.2 emulates without memory barriers, and virtio stalls now and then.
        words = [
            *("nice", "-n", "10", "qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none"),
            *("-accel", "tcg,thread=multi", "-machine", "q35", "-smp", "1,maxcpus=2", "-m", str(MEMORY_MIB)),
            *("-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd)),
            *(
                "-append",
                f"console=ttyS0 quiet oops=panic panic=-1 mitigations=off tsc=nowatchdog "
                f"warpline.address={self.address}",
            ),
            *("-netdev", f"tap,id=net,ifname={INTERFACE},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=net,mac=52:54:00:12:00:01,romfile=,{_NO_OFFLOADS}"),
            *("-chardev", f"socket,id=channel,path={channel},server=on,wait=off"),
            *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=channel,nr=1"),
            *("-serial", f"file:{console}"),
        ]
        self._process = Process(f"guest-{self._boots}", self.namespace, words, self.seconds, self.directory)
        self._channel = self._connect(channel)
        self._heard = b""
        self._await_start()

    def _connect(self, channel: Path) -> socket.socket:
        until = time.monotonic() + 20
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(channel))
                return connection
            except OSError as error:
                connection.close()
                assert self._process is not None
                if time.monotonic() > until:
                    raise RigError(f"QEMU does not run: {error}; {self._process.errors}") from error
                time.sleep(0.05)

    @property
    def console(self) -> Path:
        """What its kernel says."""
        return self.directory / f"console-{self._boots}"

    def last_words(self) -> str:
        """The end of the console."""
        return self.console.read_text(errors="replace")[-600:].strip() if self.console.exists() else ""

    def run(self, shell: str, seconds: float = 60) -> Outcome:
        """Run a shell command to its end; the guest kills it after ``seconds``.

        What it leaves in the background goes on; its output must be sent elsewhere.
        """
        answer = self._ask(shell, seconds, again=False)
        if answer is None:
            raise RigError(f"the guest does not answer {shell!r}; console: {self.last_words()}")
        return answer

    def _await_start(self) -> None:
        """Wait until it answers: what is said before its end of the channel is open is lost."""
        until = time.monotonic() + BOOT_SECONDS
        while self._ask("true", 1, again=True) is None:
            if time.monotonic() > until:
                raise RigError(f"the guest did not start in {BOOT_SECONDS} s; console: {self.last_words()}")

    def _ask(self, shell: str, seconds: float, again: bool) -> Outcome | None:
        """One request; its answer, if it came in time.  ``again``: soon, for it will be repeated."""
        assert self._channel is not None
        self._requests += 1
        line = f"{self._requests} {int(seconds)} {base64.b64encode(shell.encode()).decode()}\n"
        until = time.monotonic() + (seconds if again else seconds + 30)
        try:
            self._channel.sendall(line.encode())
            while True:
                while b"\n" not in self._heard:
                    self._channel.settimeout(max(until - time.monotonic(), 0.001))
                    octets = self._channel.recv(65536)
                    if not octets:
                        raise ConnectionResetError
                    self._heard += octets
                answer, _, self._heard = self._heard.partition(b"\n")
                number, status, *output = answer.decode().split()
                if int(number) == self._requests:
                    text = base64.b64decode(output[0]).decode(errors="replace") if output else ""
                    return Outcome(int(status), text)
        except TimeoutError:
            return None
        except ConnectionError as error:
            raise RigError(f"the guest has died in {shell!r}; console: {self.last_words()}") from error
