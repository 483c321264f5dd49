"""What a guest boots: Debian's kernel, and programs with all that they need in one initial RAM disk.

All of it lies in a cache directory of the user's; nothing of it is installed on this machine.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rig.processes import RigError, command

from .packages import candidate, depends

TOOLS: Final = ("qemu-system-x86", "cpio", "kmod", "xz-utils")
"""What this machine needs to pack the disk and to run the guest."""
MODULES: Final = ("virtio_pci", "virtio_console")
"""What every guest loads."""
_NEEDLESS: Final = ("usr/share", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/audit")
_INIT: Final = Path(__file__).resolve().parent / "guest" / "init"


def cache_directory(rig: str) -> Path:
    """Where a rig keeps what it has made."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "warpline" / rig


@dataclass(frozen=True)
class Image:
    """What QEMU boots."""

    kernel: Path
    initrd: Path
    release: str


@dataclass(frozen=True)
class Kernel:
    """The kernel that apt would install."""

    package: str
    release: str
    version: str


def kernel_of_debian() -> Kernel:
    """That kernel."""
    if platform.machine() != "x86_64":
        raise RigError("the guest is an x86_64 machine with Debian's kernel: build it on one")
    package = depends("linux-image-amd64", r"linux-image-\d.*")
    return Kernel(package, package.removeprefix("linux-image-"), candidate(package))


def digest(*files: Path) -> str:
    """What tells one state of files from another."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def state_of_init() -> str:
    """What tells one state of the part that all guests share from another."""
    return digest(Path(__file__), _INIT)


def is_stale(directory: Path, state: str) -> bool:
    """Whether a directory was not made whole, or from something else."""
    stamp = directory / "made-of"
    return not stamp.exists() or stamp.read_text() != state


def is_made(directory: Path, state: str) -> None:
    """Note that it was made whole."""
    (directory / "made-of").write_text(state)


def copy_modules(kernel: Path, release: str, root: Path, modules: tuple[str, ...]) -> None:
    """Those that the guest loads, with those that they need."""
    base = str(kernel)
    command("depmod", "-b", base, release)
    for module in (*MODULES, *modules):
        words = ("modprobe", "--set-version", release, "--dirname", base, "--show-depends", module)
        for line in command(*words).splitlines():
            if line.startswith("insmod "):
                file = Path(line.split()[1])
                target = root / file.relative_to(kernel)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    tree = f"lib/modules/{release}"
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(kernel / tree / name, root / tree / name)
    command("depmod", "-b", str(root), release)


def pack(root: Path, kernel: Path, image: Image, programs: tuple[Path, ...]) -> None:
    """The disk, from the files below ``root`` and the rig's own ``programs``, with ``setup`` among them; and
    the kernel beside it."""
    for name in _NEEDLESS:
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "bin/sh").symlink_to("busybox")
    # What the kernel calls when it wants a module.
    (root / "sbin").mkdir(exist_ok=True)
    (root / "sbin/modprobe").symlink_to("/bin/busybox")
    shutil.copy(_INIT, root / "init")
    for program in programs:
        shutil.copy(program, root / "sbin" / program.name)
    image.initrd.parent.mkdir()
    command("nice", "bash", "-o", "pipefail", "-c", packing_line(root, image.initrd), seconds=300)
    shutil.copy(kernel / f"boot/vmlinuz-{image.release}", image.kernel)


def packing_line(root: Path, initrd: Path) -> str:
    """The shell's line that packs the files below ``root``, whatever is in the names of directories."""
    packs = "find . | cpio --create --format=newc --quiet --owner=0:0"
    return f"cd {shlex.quote(str(root))} && {packs} | gzip -1 >{shlex.quote(str(initrd))}"
