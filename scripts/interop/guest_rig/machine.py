"""The guest as it runs: QEMU, emulating, on a tap in a network namespace; commands for it, and for QEMU."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from rig.processes import Process, RigError, command

from .image import Image

BOOT_SECONDS: Final = 120
"""Emulation on a busy machine is slow. It is always emulation: not every machine that has a /dev/kvm can
use it."""
KERNEL_ARGUMENTS: Final = (
    "console=ttyS0 quiet oops=panic panic=-1 mitigations=off tsc=nowatchdog "
    # On a busy machine the kernel takes the emulated timer for one that does not work, and panics.
    "no_timer_check"
)
INTERFACE: Final = "wl0"
"""The tap: the guest at one end, whatever opens it at the other."""
LINK: Final = "link"
"""The adapter's name for QEMU's monitor."""


@dataclass(frozen=True)
class Machine:
    """What QEMU emulates."""

    adapter: str
    """The network adapter, as ``-device`` takes it, without its ``netdev`` and identifier."""
    netdev: str = ""
    """Further options of the tap, each after a comma."""
    tap_queues: int = 1
    memory_mib: int = 512
    cpus: int = 1
    kernel_arguments: str = ""
    before: tuple[str, ...] = ()
    """Words that come before the adapter."""
    program: tuple[str, ...] = ("qemu-system-x86_64",)
    """QEMU, with what it needs to find its files."""

    def words(self, image: Image, console: Path) -> list[str]:
        """QEMU's command line, without the channel and the monitor."""
        return [
            *(*self.program, "-nodefaults", "-no-reboot", "-display", "none"),
            # With one possible CPU, QEMU 7.2 emulates without memory barriers, and virtio stalls now and
            # then.
            *("-accel", "tcg,thread=multi", "-smp", f"{self.cpus},maxcpus={max(self.cpus, 2)}"),
            *("-machine", "q35", "-m", str(self.memory_mib)),
            *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
            *("-append", f"{KERNEL_ARGUMENTS} {self.kernel_arguments}".rstrip()),
            *self.before,
            *("-netdev", f"tap,id=net,ifname={INTERFACE},script=no,downscript=no{self.netdev}"),
            *("-device", f"{self.adapter},netdev=net,id={LINK}"),
            *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=channel,nr=1"),
            *("-serial", f"file:{console}"),
        ]


MONITOR_SECONDS: Final = 30


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    output: str


def require_done(lines: Iterable[str], order: str) -> None:
    """Read QMP's answer to an order; what happened meanwhile, and the greeting, are passed over."""
    for line in lines:
        answer = json.loads(line)
        if "error" in answer:
            raise RigError(f"QEMU refuses {order}: {answer['error'].get('desc')}")
        if "return" in answer:
            return
    raise RigError(f"QEMU has ended before its answer to {order}")


class Guest:
    """One guest; a context manager that leaves nothing behind."""

    def __init__(
        self, image: Image, machine: Machine, namespace: str, directory: Path, seconds: float
    ) -> None:
        self.image = image
        self.machine = machine
        self.namespace = namespace
        self.directory = directory
        self.seconds = seconds
        self._boots = 0
        self._requests = 0
        self._process: Process | None = None
        self._channel: socket.socket | None = None
        self._heard = b""

    def __enter__(self) -> Guest:
        try:
            queues = "multi_queue" if self.machine.tap_queues > 1 else ""
            command(*f"ip -n {self.namespace} tuntap add dev {INTERFACE} mode tap {queues}".split())
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
        channel = self.directory / f"channel-{self._boots}"
        words = [
            *("nice", "-n", "10", *self.machine.words(self.image, self.console)),
            *("-chardev", f"socket,id=channel,path={channel},server=on,wait=off"),
            *("-qmp", f"unix:{self._monitor},server=on,wait=off"),
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
    def _monitor(self) -> Path:
        return self.directory / f"monitor-{self._boots}"

    def set_link(self, up: bool) -> None:
        """Connect the adapter's cable, or pull it."""
        self._tell_qemu("set_link", {"name": LINK, "up": up})

    def _tell_qemu(self, order: str, arguments: dict[str, Any]) -> None:
        """One order to QEMU's monitor, by QMP."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(MONITOR_SECONDS)
            connection.connect(str(self._monitor))
            with connection.makefile("rw") as lines:
                for name, values in (("qmp_capabilities", {}), (order, arguments)):
                    lines.write(json.dumps({"execute": name, "arguments": values}) + "\n")
                    lines.flush()
                    require_done(lines, name)

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
