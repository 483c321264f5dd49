"""A VLAN at the kernel's end: the kernel puts IEEE 802.1Q tags on what it sends and takes them off what it
receives.

By two classifiers of the traffic control, as they need no VLAN driver, which not every kernel has. A frame
without our tag is dropped.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .processes import NotHere, RigError, command

_SYSCALL: Final = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _OBJ_PIN, _SCHED_CLS = 5, 6, 3
_LOAD_WORD, _SET, _AND, _IF_EQUAL, _IF_OTHER, _CALL, _EXIT = 0x61, 0xB7, 0x57, 0x15, 0x55, 0x85, 0x95
_VLAN_PUSH, _VLAN_POP = 18, 19
_DROP: Final = 2
_VLAN_PRESENT, _VLAN_TCI = 20, 24
"""Where these stand in ``struct __sk_buff``."""
_TAG_TYPE: Final = 0x8100


def _instruction(
    code: int, register: int = 0, immediate: int = 0, *, source: int = 0, offset: int = 0
) -> bytes:
    return struct.pack("=BBhi", code, register | source << 4, offset, immediate)


def _tag(vlan: int) -> list[bytes]:
    """Out: the tag is pushed."""
    return [
        _instruction(_SET, 2, int.from_bytes(_TAG_TYPE.to_bytes(2, "big"), "little")),
        _instruction(_SET, 3, vlan),
        _instruction(_CALL, immediate=_VLAN_PUSH),
        _instruction(_IF_EQUAL, 0, 0, offset=1),
        _instruction(_SET, 0, _DROP),
        _instruction(_EXIT),
    ]


def _untag(vlan: int) -> list[bytes]:
    """In: a frame of our VLAN loses its tag, any other is dropped."""
    return [
        _instruction(_LOAD_WORD, 2, source=1, offset=_VLAN_PRESENT),
        _instruction(_IF_EQUAL, 2, 0, offset=5),
        _instruction(_LOAD_WORD, 2, source=1, offset=_VLAN_TCI),
        _instruction(_AND, 2, 0xFFF),
        _instruction(_IF_OTHER, 2, vlan, offset=2),
        _instruction(_CALL, immediate=_VLAN_POP),
        _instruction(_IF_EQUAL, 0, 0, offset=1),
        _instruction(_SET, 0, _DROP),
        _instruction(_EXIT),
    ]


def _bpf(step: int, attributes: bytes) -> int:
    """The system call; ``attributes`` are little-endian, as both machines are."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise RigError(f"bpf(2) has no known number on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = libc.syscall(number, step, buffer, len(attributes))
    if result < 0:
        raise RigError(f"bpf(2), step {step}: {os.strerror(ctypes.get_errno())}")
    return result


def _pin(program: list[bytes], path: Path) -> None:
    """Give a program to the kernel, and the kernel's a name."""
    code, licence = ctypes.create_string_buffer(b"".join(program)), ctypes.create_string_buffer(b"MIT")
    loaded = struct.pack(
        "<IIQQIIQII",
        _SCHED_CLS,
        len(program),
        ctypes.addressof(code),
        ctypes.addressof(licence),
        0,
        0,
        0,
        0,
        0,
    )
    descriptor = _bpf(_PROG_LOAD, loaded)
    try:
        name = ctypes.create_string_buffer(str(path).encode())
        _bpf(_OBJ_PIN, struct.pack("<QII", ctypes.addressof(name), descriptor, 0))
    finally:
        os.close(descriptor)


@contextmanager
def _names(directory: Path) -> Iterator[Path]:
    """A place for the names of programs, as long as they are needed."""
    place = directory / "programs"
    place.mkdir(exist_ok=True)
    command("mount", "-t", "bpf", "bpf", str(place))
    try:
        yield place
    finally:
        command("umount", str(place))


def put_into_vlan(namespace: str, interface: str, vlan: int, directory: Path) -> None:
    """From now on all frames of the interface are in the VLAN; the programs go with the interface."""
    within = f"ip netns exec {namespace} tc"
    try:
        command(*f"{within} qdisc add dev {interface} clsact".split())
        with _names(directory) as place:
            for way, program in (("egress", _tag(vlan)), ("ingress", _untag(vlan))):
                _pin(program, place / way)
                attach = (
                    f"{within} filter add dev {interface} {way} bpf direct-action object-pinned {place / way}"
                )
                command(*attach.split())
    except RigError as error:
        raise NotHere(f"the kernel cannot tag frames: {error}") from error
