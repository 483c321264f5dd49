"""siw's guest: the driver built from the source of the kernel's version, rping, and perftest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from guest_rig import image as common
from guest_rig.image import Image, Kernel, cache_directory, copy_modules, digest, is_made, is_stale, pack
from guest_rig.packages import depends, download, install, unpack
from rig.processes import RigError, command

from . import siw_driver

TOOLS: Final = (*common.TOOLS, "gcc-12", "make", "libc6-dev", "libelf1", "libssl3", "binutils")
"""What this machine needs to build a kernel's module and to run the guest."""

USER_SPACE: Final = (
    *("busybox-static", "rdmacm-utils", "perftest", "ibverbs-providers", "iproute2"),
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
    *("libibumad3", "libpci3", "libudev1"),
)
"""What is in the guest.  Its packages are unpacked, not installed."""

MODULES: Final = (
    *("virtio_net", "ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "iw_cm"),
    *("libcrc32c", "crc32c_generic"),
)
BUILD_SECONDS: Final = 1200
_GUEST: Final = Path(__file__).resolve().parent / "guest"


def prepare() -> Image:
    """The image, built unless there is one for the kernel that apt would install."""
    install(TOOLS)
    debian = common.kernel_of_debian()
    cache = cache_directory("siw")
    kernel = cache / "kernel"
    state = f"{debian.version} {digest(Path(siw_driver.__file__))}"
    if is_stale(kernel, state):
        print(f"building siw for Linux {debian.version} in {cache}; this takes a minute or more", flush=True)
        shutil.rmtree(kernel, ignore_errors=True)
        _unpack_kernel(cache, debian)
        _build_drivers(kernel, debian.release)
        is_made(kernel, state)
    root = cache / "root"
    files = (Path(__file__), Path(siw_driver.__file__), *sorted(_GUEST.iterdir()))
    state = f"{debian.version} {digest(*files)} {common.state_of_init()}"
    image = Image(root / "boot/vmlinuz", root / "boot/initrd", debian.release)
    if is_stale(root, state):
        shutil.rmtree(root, ignore_errors=True)
        _assemble(cache, kernel, image)
        is_made(root, state)
    return image


def _unpack_kernel(cache: Path, debian: Kernel) -> None:
    """Kernel, headers and siw's source, all of one version. The programs that build modules are those of the
    series: the archive may have them of a later version already."""
    release, version = debian.release, debian.version
    series = ".".join(release.split(".")[:2])
    headers = f"linux-headers-{release}"
    common, kbuild = depends(headers, r"linux-headers-.*-common"), depends(headers, r"linux-kbuild-.*")
    of_version = [f"{name}={version}" for name in (f"linux-image-{release}", headers, common)]
    debs, kernel = cache / f"packages-{version}", cache / "kernel"
    unpack(download([*of_version, kbuild], debs), kernel)
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


def _assemble(cache: Path, kernel: Path, image: Image) -> None:
    """The initial RAM disk, and the kernel beside it."""
    root = image.initrd.parent.parent / "files"
    unpack(download(list(USER_SPACE), cache / "packages-user"), root)
    copy_modules(kernel, image.release, root, MODULES)
    (root / "lib/siw").mkdir()
    for name in (siw_driver.STOCK, siw_driver.PATCHED):
        shutil.copy(kernel / "siw" / name / "siw.ko", root / "lib/siw" / f"{name}.ko")
    pack(root, kernel, image, tuple(sorted(_GUEST.iterdir())))
