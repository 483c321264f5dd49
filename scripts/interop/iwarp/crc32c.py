"""CRC32c (Castagnoli) in the Python standard library alone, RFC 5044 §4.4 and RFC 3720 §12.1.

Two independent methods live here. :func:`crc32c_bytewise` is the textbook table walk, one octet at a time.
:func:`crc32c` is the one in use: it treats the message as one big polynomial over GF(2) and *folds* it with
the big-integer shifts and exclusive-ors that Python runs at machine speed.

The fold. Write a message of N bits as ``A·x^n + B``, where B is its last n bits. Modulo the CRC polynomial P
this equals ``A·(x^n mod P) + B``, and the product is one shifted copy of A for each term of ``x^n mod P``. A
message of less than 2n bits thus becomes one of n bits. :data:`LADDER` lists the lengths n at which to fold;
each was chosen among its neighbours because ``x^n mod P`` has few terms there.

CRC32c is reflected: the least significant bit of an octet is the highest power. ``int.from_bytes(...,
"little")`` puts the bits in exactly that order, so bit 0 of the integer is the highest power of the message.
"""

from __future__ import annotations

from typing import Final

POLYNOMIAL: Final = 0x82F63B78
"""0x1EDC6F41 reflected: bit 31 is the coefficient of x^0, bit 0 that of x^31 (MPA-4.4-11)."""

ALL_ONES: Final = 0xFFFF_FFFF
"""Initial value and final exclusive-or (MPA-4.4-11)."""

TAIL_OCTETS: Final = 16
"""Below this many octets the table walk takes over from folding."""

LONGEST_FOLD_BITS: Final = 8 * 70_000
"""The ladder covers the longest FPDU, 64768 octets of ULPDU and its Markers; longer input is cut into
pieces."""

CANDIDATES: Final = 1024
"""How many neighbouring lengths are tried when a rung of the ladder is chosen."""


def _times_x(residue: int) -> int:
    """Multiply a residue (reflected, 32 bits) by x modulo P."""
    return (residue >> 1) ^ (POLYNOMIAL if residue & 1 else 0)


def _make_table() -> tuple[int, ...]:
    table = []
    for octet in range(256):
        residue = octet
        for _ in range(8):
            residue = _times_x(residue)
        table.append(residue)
    return tuple(table)


_TABLE: Final = _make_table()


def _multiply(left: int, right: int) -> int:
    """Product of two residues modulo P."""
    product = 0
    for power in range(32):
        if left >> (31 - power) & 1:
            product ^= right
        right = _times_x(right)
    return product


def power_of_x(exponent: int) -> int:
    """``x^exponent mod P``, reflected: the coefficient of x^e is bit ``31 - e``."""
    result, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            result = _multiply(result, square)
        square = _multiply(square, square)
        exponent >>= 1
    return result


def _make_ladder() -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Rungs ``(n, exponents of x^n mod P)``, longest first, so that each rung is below twice the next one
    less 31."""
    rungs: list[tuple[int, tuple[int, ...]]] = []
    longest = 8 * TAIL_OCTETS
    while True:
        first = max(longest - CANDIDATES, longest * 7 // 8)
        residue, best, best_residue = power_of_x(first), first, ALL_ONES
        for length in range(first, longest + 1):
            if residue.bit_count() <= best_residue.bit_count():
                best, best_residue = length, residue
            residue = _times_x(residue)
        exponents = tuple(e for e in range(32) if best_residue >> (31 - e) & 1)
        rungs.append((best, exponents))
        if best >= LONGEST_FOLD_BITS:
            return tuple(reversed(rungs))
        longest = 2 * best - 31


LADDER: Final = _make_ladder()
_LONGEST_FOLD_OCTETS: Final = LADDER[0][0] // 8


def crc32c_bytewise(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """The table walk; slow, and the oracle for :func:`crc32c`."""
    residue = crc ^ ALL_ONES
    for octet in data:
        residue = _TABLE[(residue ^ octet) & 0xFF] ^ (residue >> 8)
    return residue ^ ALL_ONES


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """CRC32c of ``data``, continuing from ``crc`` (the value returned for the octets before it)."""
    octets = len(data)
    if octets <= TAIL_OCTETS:
        return crc32c_bytewise(data, crc)
    if octets > _LONGEST_FOLD_OCTETS:
        for start in range(0, octets, _LONGEST_FOLD_OCTETS):
            crc = crc32c(data[start : start + _LONGEST_FOLD_OCTETS], crc)
        return crc

    message = int.from_bytes(data, "little") ^ crc ^ ALL_ONES
    bits = 8 * octets
    for length, exponents in LADDER:
        if bits <= length:
            continue
        head_bits = bits - length
        head = message & ((1 << head_bits) - 1)
        message >>= head_bits
        # The head's bit i stands for x^(head_bits - 1 - i); times x^e it belongs at bit (length - head_bits -
        # e) + i.
        origin = length - head_bits
        for exponent in exponents:
            message ^= head << (origin - exponent)
        bits = length

    residue = 0
    # Zero bits in front of a message change nothing: fill up to whole octets.
    tail = (message << (8 * TAIL_OCTETS - bits)).to_bytes(TAIL_OCTETS, "little")
    for octet in tail:
        residue = _TABLE[(residue ^ octet) & 0xFF] ^ (residue >> 8)
    return residue ^ ALL_ONES


def crc_field(data: bytes | bytearray | memoryview) -> bytes:
    """The four octets of the CRC field for ``data``: least significant octet first (MPA-4.4-11)."""
    return crc32c(data).to_bytes(4, "little")
