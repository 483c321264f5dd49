"""MPA startup in combination: who opens TCP, M, C, revisions, depths of Reads, indications, Private Data,
rejection.

What has to come of a case is predicted from the rules in :mod:`iwarp.agreement`, then both ends are asked
what came.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final

from iwarp import agreement, mpa
from iwarp.agreement import Agreement, Options
from iwarp.errors import ConnectionFailed
from iwarp.mpa import Rtr
from iwarp.peer import numbered

from .cases import CAPTURE, _judge_capture, _start_both, sha256
from .networks import Network
from .processes import RigError, require_equal

SECONDS: Final = 120
FILE_OCTETS: Final = 20_000
SEED: Final = 5044
"""Of the sample."""
DEPTHS: Final = ((3, 9), (7, 4))
"""IRD and ORD of our end and of the kernel's."""


@dataclass(frozen=True)
class Startup:
    """One combination."""

    we_respond: bool
    """Our end is the Responder."""
    swapped: bool
    """The Responder opens TCP, not the Initiator."""
    streaming: int | None
    """Octets each way in streaming mode before a delayed startup; ``None`` starts at once."""
    revision: int
    """The Initiator's."""
    responder_revision: int
    """The highest the Responder knows, where that is the kernel's end: ours knows all."""
    our_markers: bool
    kernel_markers: bool
    our_crc: bool
    kernel_crc: bool
    our_private_data: int
    private_data: int
    """Octets of the kernel's."""
    our_rtr: Rtr
    kernel_rtr: Rtr
    reject: bool
    """The Responder rejects."""

    @property
    def we_listen(self) -> bool:
        """The kernel opens TCP."""
        return self.we_respond != self.swapped

    def __str__(self) -> str:
        opening = "kernel connects" if self.we_listen else "we connect"
        if self.swapped:
            opening += " as Responder"
        if self.streaming is not None:
            opening += f", {self.streaming} octets in streaming mode"
        known = "" if self.we_respond else f" to Rev {self.responder_revision}"
        bits = f"M {self.our_markers:d}{self.kernel_markers:d}, C {self.our_crc:d}{self.kernel_crc:d}"
        rtr = f", RTR {_names(self.our_rtr)}/{_names(self.kernel_rtr)}" if self.revision == 2 else ""
        return (
            f"{opening}, Rev {self.revision}{known}, {bits}, {self.our_private_data} and {self.private_data} "
            f"octets of Private Data{rtr}"
            f"{', rejected' if self.reject else ''}"
        )

    @property
    def ours(self) -> Options:
        """Our end's options, as the rules see them."""
        ird, ord_ = DEPTHS[0]
        return Options(
            self.our_markers,
            self.our_crc,
            numbered(self.our_private_data),
            revision=2 if self.we_respond else self.revision,
            permissive=True,
            ird=ird,
            ord=ord_,
            rtr=self.our_rtr,
            reject=self.reject and self.we_respond,
            streaming=self.streaming,
        )

    @property
    def kernel(self) -> Options:
        """The kernel's."""
        ird, ord_ = DEPTHS[1]
        return Options(
            self.kernel_markers,
            self.kernel_crc,
            numbered(self.private_data),
            revision=self.revision if self.we_respond else self.responder_revision,
            ird=ird,
            ord=ord_,
            rtr=self.kernel_rtr,
            reject=self.reject and not self.we_respond,
            streaming=self.streaming,
        )

    @property
    def enhanced(self) -> bool:
        """Both ends know revision 2."""
        return self.revision == 2 and (self.we_respond or self.responder_revision == 2)

    def possible(self) -> bool:
        """Whether the combination says anything that another does not."""
        if not self.enhanced and self.our_rtr | self.kernel_rtr:
            return False
        room = mpa.MAX_PRIVATE_DATA - (mpa.EnhancedData.OCTETS if self.revision == 2 else 0)
        if max(self.private_data, self.our_private_data) > room:
            return False
        if self.revision == 0 and not (
            self.our_markers and self.kernel_markers and self.our_crc and self.kernel_crc
        ):
            return False
        if self.reject and (self.our_rtr | self.kernel_rtr or self.our_markers or self.kernel_markers):
            return False
        if self.we_respond:
            # Our Responder knows every revision.
            if self.responder_revision != 2:
                return False
            initiator, responder = self.kernel_rtr, self.our_rtr
        else:
            if self.responder_revision == 0 and self.reject:
                return False
            initiator, responder = self.our_rtr, self.kernel_rtr
        # A Responder that takes no indication is none (MPAv2-9.2-02).
        return bool(responder) or not initiator


_DIMENSIONS: Final[dict[str, tuple[Any, ...]]] = {
    "we_respond": (True, False),
    "swapped": (False, True),
    "streaming": (None, 0, 1, 5000),
    "revision": (0, 1, 2),
    "responder_revision": (0, 1, 2),
    "our_markers": (False, True),
    "kernel_markers": (False, True),
    "our_crc": (True, False),
    "kernel_crc": (True, False),
    "our_private_data": (0, 1, 508, 512),
    "private_data": (0, 1, 508, 512),
    "our_rtr": (Rtr.NONE, Rtr.WRITE, Rtr.SEND, Rtr.READ, Rtr.WRITE | Rtr.SEND | Rtr.READ),
    "kernel_rtr": (Rtr.NONE, Rtr.WRITE, Rtr.SEND, Rtr.READ, Rtr.WRITE | Rtr.SEND | Rtr.READ),
    "reject": (False, True),
}


def every_case() -> list[Startup]:
    """All combinations that can be."""
    *most, our_rtrs, kernel_rtrs, rejects = _DIMENSIONS.values()
    every_indication = list(product(our_rtrs, kernel_rtrs))
    no_indication = every_indication[:1]
    cases = []
    for values in product(*most):
        # Indications and a rejection make no combination possible that is not possible without them.
        plain = Startup(*(*values, *no_indication[0], False))
        if plain.possible():
            indications = every_indication if plain.enhanced else no_indication
            every_end = (Startup(*(*values, *both, end)) for both, end in product(indications, rejects))
            cases += [case for case in every_end if case.possible()]
    return cases


def _pairs(case: Startup) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    """Every two of its values together."""
    named = [(field.name, getattr(case, field.name)) for field in fields(case)]
    return combinations(named, 2)


def sample(cases: list[Startup]) -> list[Startup]:
    """A few of them, in which every two values that can be together are together once."""
    source = random.Random(SEED)
    missing = {pair for case in cases for pair in _pairs(case)}
    chosen = []
    while missing:
        candidates = source.sample(cases, min(400, len(cases)))
        best = max(candidates, key=lambda case: sum(pair in missing for pair in _pairs(case)))
        found = missing.intersection(_pairs(best))
        if found:
            missing -= found
            chosen.append(best)
    return chosen


def _names(kinds: Rtr) -> str:
    return ",".join(kind.name.lower() for kind in Rtr if kind & kinds and kind.name) or "none"


def predict(case: Startup) -> tuple[Agreement, Agreement] | str:
    """What our end and the kernel's agree on, or the code under which the Initiator fails."""
    initiator, responder = (case.kernel, case.ours) if case.we_respond else (case.ours, case.kernel)
    asked = agreement.request(initiator)
    try:
        agreement.judge_request(responder, asked)
        answered = agreement.reply(responder, asked)
        agreement.judge_reply(asked, answered)
        if answered.rejected:
            return "startup:rejected"
        both = (
            agreement.agree(initiator, asked, answered, True),
            agreement.agree(responder, answered, asked, False),
        )
    except ConnectionFailed as failure:
        return failure.code
    return (both[1], both[0]) if case.we_respond else both


def _words(case: Startup) -> tuple[list[str], list[str]]:
    """Options of our end and of the kernel's."""
    ours, kernel = case.ours, case.kernel

    def common(options: Options, revision: int) -> list[str]:
        words = ["--markers", "on" if options.markers else "off", "--crc", "on" if options.crc else "off"]
        words += ["--revision", str(revision), "--ird", str(options.ird), "--ord", str(options.ord)]
        words += ["--streaming", str(options.streaming)] if options.streaming is not None else []
        words += ["--reject"] if options.reject else []
        return [*words, "--timeout", str(SECONDS - 10)]

    roles = ("responder", "initiator") if case.we_respond else ("initiator", "responder")
    our_words = [*common(ours, ours.revision), "--permissive", "--rtr", _names(ours.rtr), "--role", roles[0]]
    our_words += ["--private-data", str(len(ours.private_data))]
    kernel_words = [
        *common(kernel, kernel.revision),
        "--private-data",
        kernel.private_data.hex(),
        "--role",
        roles[1],
    ]
    kernel_words += ["--rtr", _names(kernel.rtr)] if kernel.rtr else []
    return our_words, kernel_words


def play_startup(network: Network, case: Startup, file: Path, captured: bool = False) -> str:
    """One case; a line about what came of it. With ``captured``, tshark judges a connection that comes
    about."""
    expected = predict(case)
    fails = isinstance(expected, str)
    capture = network.directory / CAPTURE if captured and not fails else None
    if capture:
        capture.unlink(missing_ok=True)
    received = (network.directory / "received-by-us", network.directory / "received-by-kernel")
    words = [
        [*more, "--send", str(file), "--receive", str(path), "--receive-octets", str(FILE_OCTETS)]
        + (["--expect-error"] if fails else [])
        for more, path in zip(_words(case), received, strict=True)
    ]
    try:
        our_process, kernel_process = _start_both(
            network, case.we_listen, words[0], words[1], capture, SECONDS, ping=False
        )
        kernel_report, our_report = kernel_process.report(), our_process.report()
    finally:
        network.stop_all()
    if isinstance(expected, str):
        return _judge_failure(case, expected, our_report, kernel_report)
    ours, kernel = expected
    for path in received:
        require_equal("the file", sha256(file), sha256(path))
    require_equal("Markers to the kernel", kernel.markers_received, kernel_report["markers_received"])
    require_equal("Markers to us", kernel.markers_sent, kernel_report["markers_sent"])
    require_equal("CRC", kernel.crc, kernel_report["crc"])
    require_equal(
        "our Private Data", numbered(case.our_private_data).hex(), kernel_report["peer_private_data"]
    )
    require_equal("version", kernel.version, kernel_report["version"], our_report["version"])
    require_equal("the peer's revision", kernel.revision, our_report["peer_revision"])
    wanted = None if ours.ird is None else DEPTHS[1][0]
    if wanted is not None:
        require_equal("the kernel's IRD", wanted, our_report["peer_ird"])
        require_equal("indication", bool(kernel.rtr), bool(kernel_report["indication"]))
    indication = kernel_report["indication"]
    line = f"version {kernel.version}{', indication by ' + indication if indication else ''}"
    if capture:
        line += f"; {_judge_capture(network, capture, kernel_report)}"
        capture.unlink()
    return line


@dataclass(frozen=True)
class Unnegotiated:
    """Full Operation without startup frames, as draft-culley-iwarp-mpa-00 has it."""

    we_listen: bool
    version: int
    streaming: int | None

    def __str__(self) -> str:
        opening = "kernel connects" if self.we_listen else "we connect"
        first = "" if self.streaming is None else f", {self.streaming} octets in streaming mode"
        return f"{opening}{first}, no startup frames, version {self.version}"


UNNEGOTIATED: Final = [
    Unnegotiated(we_listen, version, streaming)
    for we_listen, version, streaming in ((True, 0, None), (False, 0, None), (True, 1, 300), (False, 1, 0))
]


def play_unnegotiated(network: Network, case: Unnegotiated, file: Path) -> str:
    """One of them (C00-8.1-03, C00-8.1-04)."""
    more = ["--culley", str(case.version)]
    more += ["--streaming", str(case.streaming)] if case.streaming is not None else []
    kernel_report, our_report = _exchange(network, case.we_listen, file, more, more)
    require_equal("version", case.version, our_report["version"], kernel_report["version"])
    for way in ("markers_sent", "markers_received", "crc"):
        require_equal(way, True, kernel_report[way])
    return f"{kernel_report['fpdus_received']} FPDUs of ours with Markers and CRCs"


def _exchange(
    network: Network, we_listen: bool, file: Path, ours: list[str], kernel: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same file both ways; the reports of the kernel's end and of ours."""
    received = (network.directory / "received-by-us", network.directory / "received-by-kernel")
    words = [
        [
            *more,
            "--send",
            str(file),
            "--receive",
            str(path),
            "--receive-octets",
            str(FILE_OCTETS),
            "--timeout",
            str(SECONDS - 10),
        ]
        for more, path in zip((ours, kernel), received, strict=True)
    ]
    try:
        our_process, kernel_process = _start_both(
            network, we_listen, words[0], words[1], None, SECONDS, ping=False
        )
        kernel_report, our_report = kernel_process.report(), our_process.report()
    finally:
        network.stop_all()
    for path in received:
        require_equal("the file", sha256(file), sha256(path))
    return kernel_report, our_report


def play_falling_back(network: Network, file: Path) -> str:
    """Our end asks by revision 2 and, when the kernel's old end closes on that, by revision 1
    (MPAv2-10-05)."""
    kernel_report, our_report = _exchange(network, False, file, ["--revision", "auto"], ["--attempts", "2"])
    require_equal("revision", 1, our_report["peer_revision"], kernel_report["revision"])
    require_equal("attempts", 2, kernel_report["attempts"])
    return "connected by revision 1 on the second connection"


def _judge_failure(case: Startup, expected: str, ours: dict[str, Any], kernel: dict[str, Any]) -> str:
    """The Initiator fails as predicted."""
    initiator, responder = (kernel, ours) if case.we_respond else (ours, kernel)
    codes = {expected}
    if expected == "startup:revision" and not case.we_respond:
        codes |= {"startup:closed", "tcp:reset"}  # all that an old peer says
    if initiator["error_code"] not in codes:
        raise RigError(f"the Initiator reports {initiator['error_code']}, not {' or '.join(sorted(codes))}")
    if expected == "mpa:7":
        require_equal("the Responder reports", "terminated:2:0:7", responder["error_code"])
    if expected == "startup:rejected":
        require_equal("the Responder reports", expected, responder["error_code"])
    return f"reported as {initiator['error_code']}"
