"""The guest: Debian's kernel, siw built from the same version's source, rping and what it needs, in one
initial RAM disk.

All of it lies in a cache directory of the user's; nothing of it is installed on this machine.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rig.processes import RigError, command

from . import siw_driver
from .packages import candidate, depends, download, install, unpack

TOOLS: Final = (
    "qemu-system-x86",
    "gcc-12",
    "make",
    "libc6-dev",
    "libelf1",
    "libssl3",
    "cpio",
    "kmod",
    "binutils",
    "xz-utils",
)
"""What this machine needs to build a kernel's module and to run the guest."""

USER_SPACE: Final = (
    *("busybox-static", "rdmacm-utils", "ibverbs-providers", "iproute2"),
    # The libraries of those.
    *(
        "libc6",
        "libibverbs1",
        "librdmacm1",
        "libnl-3-200",
        "libnl-route-3-200",
        "libmnl0",
        "libbsd0",
        "libmd0",
    ),
    *("libcap2", "libbpf1", "libelf1", "zlib1g", "libgcc-s1"),
)
"""What is in the guest.  Its packages are unpacked, not installed."""

MODULES: Final = (
    *("virtio_pci", "virtio_net", "virtio_console"),
    *("ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "iw_cm", "libcrc32c", "crc32c_generic"),
)
BUILD_SECONDS: Final = 1200
_NEEDLESS: Final = ("usr/share", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/audit")
_GUEST: Final = Path(__file__).resolve().parent / "guest"


def cache_directory() -> Path:
    """Where everything is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "warpline" / "siw"


@dataclass(frozen=True)
class Image:
    """What QEMU boots."""

    kernel: Path
    initrd: Path
    release: str


def prepare() -> Image:
    """The image, built unless there is one for the kernel that apt would install."""
    if platform.machine() != "x86_64":
        raise RigError("the guest is an x86_64 machine with Debian's kernel: build it on one")
    install(TOOLS)
    package = depends("linux-image-amd64", r"linux-image-\d.*")
    version, release = candidate(package), package.removeprefix("linux-image-")
    cache = cache_directory()
    kernel = cache / "kernel"
    if _is_stale(kernel, f"{version} {_digest(Path(siw_driver.__file__))}"):
        print(f"building siw for Linux {version} in {cache}; this takes a minute or more", flush=True)
        shutil.rmtree(kernel, ignore_errors=True)
        _unpack_kernel(cache, release, version)
        _build_drivers(kernel, release)
        _is_made(kernel, f"{version} {_digest(Path(siw_driver.__file__))}")
    root = cache / "root"
    state = f"{version} {_digest(Path(__file__), Path(siw_driver.__file__), *sorted(_GUEST.iterdir()))}"
    image = Image(root / "boot/vmlinuz", root / "boot/initrd", release)
    if _is_stale(root, state):
        shutil.rmtree(root, ignore_errors=True)
        _assemble(cache, kernel, image)
        _is_made(root, state)
    return image


def _digest(*files: Path) -> str:
    """What tells one state of files from another."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _is_stale(directory: Path, state: str) -> bool:
    """Whether a directory was not made whole, or from something else."""
    stamp = directory / "made-of"
    return not stamp.exists() or stamp.read_text() != state


def _is_made(directory: Path, state: str) -> None:
    (directory / "made-of").write_text(state)


def _unpack_kernel(cache: Path, release: str, version: str) -> None:
    """Kernel, headers and siw's source, all of one version."""
    series = ".".join(release.split(".")[:2])
    headers = f"linux-headers-{release}"
    common, kbuild = depends(headers, r"linux-headers-.*-common"), depends(headers, r"linux-kbuild-.*")
    of_version = [f"{name}={version}" for name in (f"linux-image-{release}", headers, common, kbuild)]
    debs, kernel = cache / f"packages-{version}", cache / "kernel"
    unpack(download(of_version, debs), kernel)
    [source] = download([f"linux-source-{series}={version}"], debs)
    stock = kernel / "siw" / siw_driver.STOCK
    stock.mkdir(parents=True)
    unpack_source = (
        f"dpkg-deb --fsys-tarfile {source} | tar -xO ./usr/src/linux-source-{series}.tar.xz | "
        f"tar -xJ -C {stock} --strip-components=5 --wildcards "
        f"'linux-source-{series}/drivers/infiniband/sw/siw/*'"
    )
    command("nice", "bash", "-o", "pipefail", "-c", unpack_source, seconds=BUILD_SECONDS)
    # The headers name the directory that they would have been installed in.
    tree = kernel / "usr/src" / headers
    (tree / "Makefile").write_text(f"include {kernel / 'usr/src' / common}/Makefile\n")


def _build_drivers(kernel: Path, release: str) -> None:
    """Both drivers."""
    headers = kernel / f"usr/src/linux-headers-{release}"
    siw_driver.patch(kernel / "siw" / siw_driver.STOCK, kernel / "siw" / siw_driver.PATCHED)
    for name in (siw_driver.STOCK, siw_driver.PATCHED):
        source = kernel / "siw" / name
        words = [
            "nice",
            "make",
            "-s",
            "-C",
            str(headers),
            f"M={source}",
            "CONFIG_RDMA_SIW=m",
            "CONFIG_DEBUG_INFO_BTF_MODULES=",
            "modules",
        ]
        done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        if done.returncode != 0:
            raise RigError(f"siw ({name}) does not build: {done.stderr.strip()[-800:]}")
        command("strip", "--strip-debug", str(source / "siw.ko"))


def _copy_modules(kernel: Path, release: str, root: Path) -> None:
    """The modules that the guest loads, with those that they need."""
    base = str(kernel)
    command("depmod", "-b", base, release)
    for module in MODULES:
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


def _assemble(cache: Path, kernel: Path, image: Image) -> None:
    """The initial RAM disk, and the kernel beside it."""
    root = image.initrd.parent.parent / "files"
    unpack(download(list(USER_SPACE), cache / "packages-user"), root)
    for name in _NEEDLESS:
        shutil.rmtree(root / name, ignore_errors=True)
    _copy_modules(kernel, image.release, root)
    (root / "lib/siw").mkdir()
    for name in (siw_driver.STOCK, siw_driver.PATCHED):
        shutil.copy(kernel / "siw" / name / "siw.ko", root / "lib/siw" / f"{name}.ko")
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "bin/sh").symlink_to("busybox")
    # What the kernel calls when it wants a module.
    (root / "sbin/modprobe").symlink_to("/bin/busybox")
    shutil.copy(_GUEST / "init", root / "init")
    for name in ("siw-load", "until-stuck", "look"):
        shutil.copy(_GUEST / name, root / "sbin" / name)
    image.initrd.parent.mkdir()
    pack = f"cd {root} && find . | cpio --create --format=newc --quiet --owner=0:0 | gzip -1 >{image.initrd}"
    command("nice", "bash", "-o", "pipefail", "-c", pack, seconds=300)
    shutil.copy(kernel / f"boot/vmlinuz-{image.release}", image.kernel)
