"""The guest of the adapters: our programs, with the drivers of DPDK that this machine has, and VFIO."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from guest_rig import image as common
from guest_rig.image import (
    Image,
    cache_directory,
    copy_modules,
    digest,
    is_made,
    is_stale,
    kernel_of_debian,
    pack,
)
from guest_rig.packages import download, install, unpack
from rig.built import BENCHMARK, RIGS
from rig.processes import RigError, command

DRIVERS: Final = (
    *("librte-bus-pci23", "librte-bus-vdev23", "librte-mempool-ring23"),
    *("librte-net-e1000-23", "librte-net-virtio23", "librte-net-vmxnet3-23"),
)
"""Packages with plug-ins of DPDK; this machine needs them, for the guest gets its files."""
PLUGINS: Final = ("bus_pci", "bus_vdev", "mempool_ring", "net_e1000", "net_virtio", "net_vmxnet3")
TOOLS: Final = (*common.TOOLS, "binutils")
USER_SPACE: Final = ("busybox-static", "libc6", "libgcc-s1")
"""What else is in the guest.  Its packages are unpacked, not installed."""
MODULES: Final = ("vfio", "vfio_iommu_type1", "vfio-pci")
LIBRARIES: Final = Path("/usr/lib/x86_64-linux-gnu")
_GUEST: Final = Path(__file__).resolve().parent / "guest"


def prepare() -> Image:
    """The image, built unless there is one for that kernel and these programs."""
    install((*TOOLS, *DRIVERS))
    debian = kernel_of_debian()
    cache = cache_directory("adapters")
    kernel = cache / "kernel"
    if is_stale(kernel, debian.version):
        print(f"unpacking Linux {debian.version} in {cache}", flush=True)
        shutil.rmtree(kernel, ignore_errors=True)
        unpack(download([f"{debian.package}={debian.version}"], cache / f"packages-{debian.version}"), kernel)
        is_made(kernel, debian.version)
    root = cache / "root"
    state = f"{debian.version} {digest(BENCHMARK, RIGS, Path(__file__), *_own())} {common.state_of_init()}"
    image = Image(root / "boot/vmlinuz", root / "boot/initrd", debian.release)
    if is_stale(root, state):
        shutil.rmtree(root, ignore_errors=True)
        _assemble(cache, kernel, image)
        is_made(root, state)
    return image


def _own() -> tuple[Path, ...]:
    return tuple(sorted(_GUEST.iterdir()))


def plugins(directory: Path) -> list[Path]:
    """The plug-ins of DPDK in its directory of them."""
    return [path for name in PLUGINS for path in directory.glob(f"librte_{name}.so.*")]


def needed_libraries(listing: str) -> set[Path]:
    """The files that ldd has found.  One that is missing is an error: the program would not start."""
    found = set()
    for line in listing.splitlines():
        name, arrow, target = line.partition(" => ")
        if arrow and target.strip() == "not found":
            raise RigError(f"there is no {name.strip()} here, which a program of the guest needs")
        if arrow:
            found.add(Path(target.split()[0]))
    return found


def _assemble(cache: Path, kernel: Path, image: Image) -> None:
    """The initial RAM disk, and the kernel beside it."""
    root = image.initrd.parent.parent / "files"
    unpack(download(list(USER_SPACE), cache / "packages-user"), root)
    copy_modules(kernel, image.release, root, MODULES)
    [directory] = LIBRARIES.glob("dpdk/pmds-*")
    drivers = plugins(directory)
    target = root / directory.relative_to("/")
    target.mkdir(parents=True)
    for driver in drivers:
        # A second copy under the name of a link would be loaded as a second bus.
        shutil.copy(driver, target / driver.name, follow_symlinks=False)
    for library in needed_libraries(command("ldd", *map(str, (BENCHMARK, RIGS, *drivers)))):
        place = root / LIBRARIES.relative_to("/") / library.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if library.resolve() in drivers:
            place.symlink_to(library.resolve())
        else:
            shutil.copy(library, place)
    for program in (BENCHMARK, RIGS):
        command("strip", "--strip-debug", "-o", str(root / "bin" / program.name), str(program))
    pack(root, kernel, image, _own())
