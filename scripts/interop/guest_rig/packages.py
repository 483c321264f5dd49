"""Debian packages: those that this machine is to have, and those that are only looked into."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from rig.processes import RigError, command

DOWNLOAD_SECONDS: Final = 600
INSTALL_SECONDS: Final = 900


def _apt(*words: str, seconds: float, directory: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Without a sandbox user apt can write into a directory of root's.
    line = [
        "apt-get",
        "-qq",
        "-o",
        "Acquire::Retries=3",
        "-o",
        "Dpkg::Use-Pty=0",
        "-o",
        "APT::Sandbox::User=root",
    ]
    done = subprocess.run(
        [*line, *words],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        raise RigError(f"apt-get {' '.join(words)}: {done.stderr.strip()[-500:]}")


def install(packages: tuple[str, ...]) -> None:
    """Install what is missing."""
    known = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *packages],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    missing = [package for package in packages if f"{package} installed" not in known.stdout.splitlines()]
    if missing:
        print(f"installing {' '.join(missing)}", flush=True)
        _apt("update", seconds=DOWNLOAD_SECONDS)
        _apt("install", "-y", "--no-install-recommends", *missing, seconds=INSTALL_SECONDS)


def depends(package: str, wanted: str) -> str:
    """The dependency of ``package`` whose name matches ``wanted``."""
    for line in command("apt-cache", "depends", package).splitlines():
        name = line.strip().removeprefix("Depends: ")
        if re.fullmatch(wanted, name):
            return name
    raise RigError(f"apt knows no package {wanted} that {package} depends on: run apt-get update")


def candidate(package: str) -> str:
    """The version that apt would take."""
    found = re.search(r"Candidate: (\S+)", command("apt-cache", "policy", package))
    if not found or found[1] == "(none)":
        raise RigError(f"apt has no package {package}: this rig wants Debian 12 and its package lists")
    return found[1]


def download(packages: list[str], directory: Path) -> list[Path]:
    """The files of ``packages``, each perhaps with ``=VERSION``, fetched into ``directory`` unless they
    are there."""
    directory.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for package in packages:
        name = package.partition("=")[0]
        if not list(directory.glob(f"{name}_*.deb")):
            _apt("download", package, seconds=DOWNLOAD_SECONDS, directory=directory)
        files += directory.glob(f"{name}_*.deb")
    return files


def unpack(files: list[Path], root: Path) -> None:
    """Their contents below ``root``; nothing is installed and no script of theirs is run."""
    root.mkdir(parents=True, exist_ok=True)
    for file in files:
        command("dpkg-deb", "--extract", str(file), str(root), seconds=300)
