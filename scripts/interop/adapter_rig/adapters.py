"""The adapters that QEMU emulates and DPDK drives, and the machine that each is in."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from guest_rig.machine import Machine
from rig.processes import RigError

PROBE_SECONDS: Final = 60
SLOT: Final = 5
"""The adapter's place on the guest's PCI bus."""
MEMORY_MIB: Final = 1024
HUGEPAGES: Final = 220
"""Of 2 MiB: what the programs take at MTU 9000, with some to spare."""
_MAC: Final = "52:54:00:12:00:02"
# An address of 48 bits, for DPDK's default is that devices see the program's own addresses.
_IOMMU: Final = ("-cpu", "max", "-device", "intel-iommu,intremap=on,aw-bits=48")


@dataclass(frozen=True)
class Adapter:
    """One adapter."""

    name: str
    device: str
    """QEMU's device, without what all have."""
    netdev: str = ",vnet_hdr=off"
    """Options of its tap. Without headers of virtio, QEMU computes the checksums and cuts the super-frames
    that it was asked for, as an adapter does; with them the host's kernel completes them."""
    queues: int = 1
    """Of the tap."""
    fills_otherwise: bool = False
    """It fills several queues in a way that is not known."""

    @property
    def model(self) -> str:
        """QEMU's name for it."""
        return self.device.partition(",")[0]

    def machine(self, program: tuple[str, ...]) -> Machine:
        """The machine with this adapter behind an IOMMU."""
        queues = f",queues={self.queues}" if self.queues > 1 else ""
        return Machine(
            adapter=f"{self.device},mac={_MAC},romfile=,addr={SLOT:#x}",
            netdev=self.netdev + queues,
            tap_queues=self.queues,
            memory_mib=MEMORY_MIB,
            cpus=2,
            kernel_arguments=f"intel_iommu=on hugepages={HUGEPAGES}",
            before=_IOMMU,
            program=program,
        )


_VIRTIO: Final = "virtio-net-pci,disable-legacy=on,iommu_platform=on"
ADAPTERS: Final = (
    Adapter("e1000", "e1000"),
    Adapter("e1000e", "e1000e"),
    Adapter("igb", "igb"),
    Adapter("vmxnet3", "vmxnet3", fills_otherwise=True),
    Adapter("virtio-net, no offloads", _VIRTIO),
    Adapter(
        "virtio-net, 4 queues, offloads",
        f"{_VIRTIO},mq=on,vectors=10",
        ",vnet_hdr=on",
        queues=4,
        fills_otherwise=True,
    ),
    Adapter("virtio-net, 4 queues, RSS", f"{_VIRTIO},mq=on,rss=on,vectors=10", ",vnet_hdr=on", 4),
)


def qemu(directory: Path | None) -> tuple[str, ...]:
    """The program, installed or unpacked below ``directory``, with what it needs to find its files."""
    if directory is None:
        return ("qemu-system-x86_64",)
    program = directory / "usr/bin/qemu-system-x86_64"
    if not program.exists():
        raise RigError(f"no {program}: --qemu names a folder where Debian's QEMU packages are unpacked")
    os.environ["QEMU_MODULE_DIR"] = str(directory / "usr/lib/x86_64-linux-gnu/qemu")
    share = directory / "usr/share"
    return (str(program), "-L", str(share / "seabios"), "-L", str(share / "qemu"))


def is_emulated(program: tuple[str, ...], model: str) -> bool:
    """Whether this QEMU has the adapter.

    :raises RigError: QEMU does not say it; whatever keeps it from running is no property of the adapter.
    """
    words = [*program, "-nodefaults", "-machine", "none", "-device", f"{model},help"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RigError(f"{program[0]}: {error}") from error
    # Its status is 0 in both cases.
    if f"{model} options:" in done.stdout:
        return True
    if f"Device '{model}' not found" in done.stderr:
        return False
    said = done.stderr.strip()[-600:] or "nothing"
    raise RigError(f"{program[0]} does not say whether it has {model}: status {done.returncode}, {said}")
