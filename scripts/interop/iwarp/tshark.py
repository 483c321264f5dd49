"""tshark as a judge of captures.

tshark 4.0 does not survive every lawful stream. Where FPDUs do not begin segments it loses the stream at a
retransmission. With Markers it needs each segment to hold exactly one FPDU, counts one Marker too many in an
FPDU that ends where a Marker is due, and takes Markers in one direction for Markers in both. So it is asked
thrice. Frames, with their checksums, it judges in the capture as it is. Startup frames it is shown in a
capture of their own, and FPDUs *recut*: the octets of each FPDU unchanged, in a TCP segment of its own. An
FPDU that ends where a Marker is due is left out, and counted. A connection with Markers in one direction is
shown twice, each time with the FPDUs of one direction and the M bits of the startup frames to suit.
"""

from __future__ import annotations

import ipaddress
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from . import ddp, mpa
from .capture import Address, CaptureError, Connection, Direction, Stream
from .conduct import FIELDS, Conduct, Frame

SECONDS: Final = 300
"""Time allowed to one run."""

_FIND_MPA: Final = (
    # A port number must not hand the stream to some other dissector, nor an RDMA Write's payload to one
    # above.
    *("-o", "tcp.try_heuristic_first:TRUE"),
    *("--disable-protocol", "rpcordma"),
    *("--disable-protocol", "smb_direct"),
    *("-O", "iwarp_mpa,iwarp_ddp_rdmap"),
)


def _lines(path: Path, *options: str) -> Iterator[str]:
    """Output of tshark on a capture, line by line."""
    command = ["timeout", str(SECONDS), "tshark", "-r", str(path), "-n", *options]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        yield from process.stdout
        if process.wait() != 0:
            errors.seek(0)
            raise CaptureError(
                f"tshark failed with status {process.returncode}: {errors.read().strip()[-300:]}"
            )


_MINUS_ZERO: Final = "TCP Checksum 0xffff instead of 0x0000"


@dataclass
class FrameReport:
    """What tshark says of a capture frame by frame, below MPA."""

    frames: int = 0
    tcp_segments: int = 0
    bad_ip_checksums: list[int] = field(default_factory=list)
    bad_tcp_checksums: list[int] = field(default_factory=list)
    minus_zero_tcp_checksums: int = 0
    """TCP checksums 0xffff where 0x0000 is due. Linux sends them; both are zero in one's complement (RFC
    1624 §3), so a receiver accepts them, and they are no fault."""
    malformed: list[int] = field(default_factory=list)


def check_frames(path: Path, conduct: Conduct | None = None) -> FrameReport:
    """Checksums of every frame, and frames it calls malformed; ``conduct`` is shown every TCP segment."""
    fields = (
        "frame.number",
        "ip.checksum.status",
        "tcp.checksum.status",
        "_ws.malformed",
        "_ws.expert.message",
    )
    more = FIELDS if conduct else ()
    report = FrameReport()
    for line in _lines(
        path,
        *("-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"),
        *("-d", "tcp.port==1-65535,data"),  # payload is not judged here, so nothing may guess what it is
        *("-T", "fields"),
        *(option for name in (*fields, *more) for option in ("-e", name)),
    ):
        number, ip, tcp, malformed, remarks, *rest = line.rstrip("\n").split("\t")
        report.frames += 1
        # Status 1 is "good"; a frame without the protocol has none.
        if ip not in ("", "1"):
            report.bad_ip_checksums.append(int(number))
        if tcp:
            report.tcp_segments += 1
            if conduct:
                conduct.see(Frame.parse(int(number), rest))
            if _MINUS_ZERO in remarks:
                report.minus_zero_tcp_checksums += 1
            elif tcp != "1":
                report.bad_tcp_checksums.append(int(number))
        if malformed:
            report.malformed.append(int(number))
    return report


class Decoded(NamedTuple):
    """What there is to say about one FPDU; two independent decoders have to agree on it."""

    ulpdu_length: int
    good_crc: bool | None
    """``None`` when CRCs are not in use."""
    header: ddp.Header
    rdmap_version: int
    opcode: int


def decode(direction: Direction) -> list[Decoded]:
    """Our own decoding of a direction's FPDUs."""
    decoded = []
    for fpdu in direction.fpdus:
        header, _ = ddp.parse(fpdu.ulpdu)
        octet = header.rsvdulp if isinstance(header, ddp.Tagged) else header.rsvdulp >> 32
        decoded.append(
            Decoded(len(fpdu.ulpdu), True if direction.crc else None, header, octet >> 6, octet & 0xF)
        )
    return decoded


_SOURCE: Final = re.compile(r"Internet Protocol Version [46], Src: ([\da-f.:]+),")
_PORT: Final = re.compile(r"Transmission Control Protocol, Src Port: (\d+),")
_FIELD: Final = re.compile(
    r"\s+(?:[01. ]+ = )?(ULPDU length|CRC check|CRC|Tagged flag|Last flag|DDP protocol version"
    r"|\(Data Sink\) Steering Tag|\(Data Sink\) Tagged offset|Queue number|Message sequence number"
    r"|Message offset|Reserved for use by the ULP|Version|OpCode): (.*)"
)


def _number(text: str) -> int:
    """``(0x3)`` at the end, a leading hexadecimal or a leading decimal number."""
    inner = re.search(r"\((0x[0-9a-f]+)\)$", text)
    return int(inner[1] if inner else text.split()[0], 0)


def _assemble(fields: dict[str, str]) -> Decoded:
    """A :class:`Decoded` from the fields tshark printed for one FPDU."""
    check = fields.get("CRC check")
    version, opcode = _number(fields["Version"]), _number(fields["OpCode"])
    last, dv = fields["Last flag"] == "True", _number(fields["DDP protocol version"])
    header: ddp.Header
    if fields["Tagged flag"] == "True":
        stag, to = _number(fields["(Data Sink) Steering Tag"]), _number(fields["(Data Sink) Tagged offset"])
        header = ddp.Tagged(last, version << 6 | opcode, stag, to, dv)
    else:
        rsvdulp = int(fields["Reserved for use by the ULP"], 16)
        qn, msn = _number(fields["Queue number"]), _number(fields["Message sequence number"])
        header = ddp.Untagged(last, rsvdulp, qn, msn, _number(fields["Message offset"]), dv)
    good = None if check is None else check.endswith("(Good CRC32)")
    return Decoded(_number(fields["ULPDU length"]), good, header, version, opcode)


@dataclass
class MpaReport:
    """What tshark says of the FPDUs in a capture."""

    fpdus: dict[Address, list[Decoded]] = field(default_factory=dict)
    """By sender, in order of capture."""
    complaints: list[str] = field(default_factory=list)
    """Frames called malformed, FPDUs without a DDP header."""


def check_fpdus(path: Path) -> MpaReport:
    """Every FPDU that tshark finds in a recut capture, with all of its headers."""
    report = MpaReport()
    frame, host, sender = "", "", Address("", 0)
    fields: dict[str, str] = {}

    def finish() -> None:
        if not fields:
            return
        try:
            report.fpdus.setdefault(sender, []).append(_assemble(fields))
        except (KeyError, ValueError) as error:
            report.complaints.append(f"{frame}: FPDU without {error}")
        fields.clear()

    for line in _lines(path, *_FIND_MPA):
        if line.startswith("Frame "):
            finish()
            frame = line.partition(":")[0]
        elif source := _SOURCE.match(line):
            host = source[1]
        elif port := _PORT.match(line):
            sender = Address(host, int(port[1]))
        elif line.startswith("    FPDU"):
            finish()
        elif "Malformed" in line or "[Expert Info (Error" in line:
            report.complaints.append(f"{frame}: {line.strip()}")
        elif found := _FIELD.match(line):
            # The first: a Terminate quotes headers, and an Atomic Request has an operation code of its own.
            fields.setdefault(found[1], found[2])
    finish()
    return report


_STARTUP_FIELDS: Final = (
    *(
        "ip.src",
        "ipv6.src",
        "tcp.srcport",
        "iwarp_mpa.marker_flag",
        "iwarp_mpa.crc_flag",
        "iwarp_mpa.rej_flag",
    ),
    *("iwarp_mpa.rev", "iwarp_mpa.privatedata"),
)


class Startup(NamedTuple):
    """What there is to say about a startup frame."""

    markers: bool
    crc: bool
    rejected: bool
    revision: int
    private_data: bytes
    """With the enhanced data, which tshark does not know."""


def startup_of(direction: Direction) -> Startup:
    """Our own decoding of the startup frame that opens a direction."""
    frame = direction.startup
    data = (frame.enhanced.encode() if frame.enhanced else b"") + frame.private_data
    return Startup(frame.markers, frame.crc, frame.rejected, frame.revision, data)


def startup_faults(seen: dict[Address, list[Startup]], connections: list[Connection]) -> list[str]:
    """What tshark has read (:func:`check_startups`) in the startup frames of these connections otherwise than
    we do."""
    faults = []
    for direction in (direction for connection in connections for direction in connection.directions):
        ours, theirs = startup_of(direction), seen.get(direction.stream.source, [])
        if ours not in theirs:
            faults.append(f"startup frame of {direction.stream.source}: {ours}, by tshark {theirs}")
    return faults


def check_startups(connections: list[Connection]) -> dict[Address, list[Startup]]:
    """The startup frames of these connections as tshark reads them, by sender."""
    found: dict[Address, list[Startup]] = {}
    fields = (option for name in _STARTUP_FIELDS for option in ("-e", name))
    wanted = ("-Y", "iwarp_mpa.req or iwarp_mpa.rep")
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        write_startups(connections, Path(file.name))
        for line in _lines(Path(file.name), *_FIND_MPA[:6], *wanted, "-T", "fields", *fields):
            ipv4, ipv6, port, markers, crc, rejected, revision, data = line.rstrip("\n").split("\t")
            m, c, r = (text in ("1", "True") for text in (markers, crc, rejected))
            startup = Startup(m, c, r, int(revision), bytes.fromhex(data.replace(":", "")))
            found.setdefault(Address(ipv4 or ipv6, int(port)), []).append(startup)
    return found


def tshark_can_take(direction: Direction, fpdu: mpa.Fpdu) -> bool:
    """False for an FPDU after which tshark sees one Marker too many."""
    return not direction.markers or (fpdu.start + fpdu.octets) % mpa.MARKER_INTERVAL != 0


def _ip_header(stream: Stream, octets: int) -> bytes:
    """The Ethernet type and IP header, without a checksum, before ``octets`` octets of a stream's TCP."""
    source, destination = (ipaddress.ip_address(end.host) for end in (stream.source, stream.destination))
    if source.version == 6:
        fixed = b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, octets, 6, 64)
    else:
        fixed = b"\x08\x00" + struct.pack(">BBHHHBBH", 0x45, 0, 20 + octets, 0, 0x4000, 64, 6, 0)
    return fixed + source.packed + destination.packed


class Segment(NamedTuple):
    """A segment of a capture that is made for tshark."""

    stream: Stream
    sequence: int
    payload: bytes


def _write_segments(segments: Iterable[Segment], path: Path) -> None:
    """A capture of these segments."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1))
        for number, (stream, sequence, payload) in enumerate(segments):
            # Sequence numbers fit: the first gigabytes of a stream are all that is ever captured.
            tcp = struct.pack(
                ">HHIIBBHHH",
                stream.source.port,
                stream.destination.port,
                sequence,
                1,
                5 << 4,
                0x10,
                0xFFFF,
                0,
                0,
            )
            packet = bytes(12) + _ip_header(stream, len(tcp) + len(payload)) + tcp + payload
            file.write(
                struct.pack("<IIII", number // 1_000_000, number % 1_000_000, len(packet), len(packet))
            )
            file.write(packet)


def write_startups(connections: list[Connection], path: Path) -> None:
    """The startup frames as a capture, each connection's Request before its Reply: a capture may have them
    the other way round, where the peer on another CPU hears the Request before the capture does, and tshark
    finds neither then."""
    directions = (direction for connection in connections for direction in connection.directions)
    _write_segments(
        (Segment(at.stream, 1, bytes(at.stream.octets[: at.startup_octets])) for at in directions), path
    )


def write_recut(connection: Connection, markers: bool, path: Path) -> None:
    """The directions with Markers, or those without, as a capture with one FPDU in each TCP segment.

    Sequence numbers count from 1.  The startup frames of both directions are there, M as ``markers`` says.
    """
    cut: list[tuple[int, Segment]] = []
    for direction in connection.directions:
        startup = direction.stream.octets[: direction.startup_octets]
        startup[mpa.FLAGS_OFFSET] = startup[mpa.FLAGS_OFFSET] & ~mpa.FLAG_MARKERS | mpa.FLAG_MARKERS * markers
        cut.append((0, Segment(direction.stream, 1, bytes(startup))))
        if direction.markers != markers:
            continue
        for fpdu, frame in zip(direction.fpdus, direction.completion_frames(), strict=True):
            if tshark_can_take(direction, fpdu):
                sequence = 1 + direction.startup_octets + fpdu.start
                cut.append((frame, Segment(direction.stream, sequence, direction.octets_of(fpdu))))
    cut.sort(key=lambda piece: piece[0])
    _write_segments((segment for _, segment in cut), path)
