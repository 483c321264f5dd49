"""Looks at the machine code of x86-64 programs: which instructions lock the memory bus."""

import pathlib
import struct

# Prefixes of operands, addresses, segments and repetitions; LOCK; and REX, which is the last.
LOCK = 0xF0
PREFIXES = frozenset((0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF2, 0xF3, LOCK))
REX = range(0x40, 0x50)
# XCHG of a register with another, or with memory, which locks without a prefix.
EXCHANGES = frozenset((0x86, 0x87))
INSTRUCTION_BYTES_MAX = 15
LOADED = 1


def is_locked(code: bytes) -> bool:
    """Whether the instruction that begins here is a locked operation."""
    at = 0
    while at < len(code) and code[at] in PREFIXES:
        if code[at] == LOCK:
            return True
        at += 1
    at += at < len(code) and code[at] in REX
    return at + 1 < len(code) and code[at] in EXCHANGES and code[at + 1] < 0xC0


class Program:
    """A program or library, an ELF file of 64 bits."""

    def __init__(self, path: pathlib.Path) -> None:
        self.content = path.read_bytes()
        if self.content[:5] != b"\x7fELF\x02":
            raise ValueError(f"{path} is no ELF file of 64 bits")
        (headers,) = struct.unpack_from("<Q", self.content, 32)
        size, count = struct.unpack_from("<HH", self.content, 54)
        self.segments: list[tuple[int, int, int]] = []
        for number in range(count):
            kind, _, offset, address, _, octets = struct.unpack_from(
                "<IIQQQQ", self.content, headers + number * size
            )
            if kind == LOADED:
                self.segments.append((address, octets, offset))
        self.known: dict[int, bool] = {}

    def locks(self, address: int) -> bool:
        """Whether the instruction at an address, as the file has it, is a locked operation."""
        if address not in self.known:
            self.known[address] = is_locked(self.code(address))
        return self.known[address]

    def code(self, address: int) -> bytes:
        """The bytes from an address on, as many as an instruction may have; none if the file has none."""
        for first, octets, offset in self.segments:
            if first <= address < first + octets:
                begin = offset + address - first
                return self.content[begin : min(begin + INSTRUCTION_BYTES_MAX, offset + octets)]
        return b""


class Programs:
    """Programs by their paths, read when they are first asked for."""

    def __init__(self) -> None:
        self.programs: dict[str, Program | None] = {}

    def locks(self, path: str, address: int) -> bool:
        """Whether the instruction at an address of a program is a locked operation."""
        if path not in self.programs:
            # Code that is in no file, as the system's own page, has none that counts.
            found = pathlib.Path(path)
            self.programs[path] = Program(found) if found.is_file() else None
        program = self.programs[path]
        return program is not None and program.locks(address)
