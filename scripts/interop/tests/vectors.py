"""Reads the golden vectors of the dataplane's tests."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(__file__).resolve().parents[3] / "dataplane" / "tests" / "vectors"


class Record(NamedTuple):
    """One record of a vector file."""

    label: str
    octets: bytes


def records(name: str) -> list[Record]:
    """All records of ``name``.hex; each must have the length its label announces."""
    found: list[Record] = []
    lengths: list[int] = []
    for line in (DIRECTORY / f"{name}.hex").read_text().splitlines():
        if line.startswith("@"):
            label, _, length = line[1:].strip().rpartition("len=")
            found.append(Record(label.strip(), b""))
            lengths.append(int(length))
        elif line and not line.startswith("#"):
            found[-1] = Record(found[-1].label, found[-1].octets + bytes.fromhex(line))
    for record, announced in zip(found, lengths, strict=True):
        if len(record.octets) != announced:
            raise ValueError(f"{name}: {record.label}: {len(record.octets)} octets, not {announced}")
    return found


def octets(name: str, number: int = 1) -> bytes:
    """Octets of one record, counted from 1."""
    return records(name)[number - 1].octets
