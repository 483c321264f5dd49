"""The cases: rping and our ping against each other, both ways, in all settings that matter."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from guest_rig.remote import Remote
from rig import outcomes
from rig.networks import CHECK_CAPTURE
from rig.processes import Process, RigError

from .ours import PORT, Ours
from .remote import GuestRemote
from .siw_driver import PATCHED, STOCK

SECONDS: Final = 240
"""How long a program of ours lives at most."""
RPING_SECONDS: Final = 120
"""For rping's pings: emulation is slow, and slower where there is other work."""
SHORT_SECONDS: Final = 120
JUDGE_SECONDS: Final = 240
PINGS: Final = 1000
SIZES: Final = (64, 4096, 65535)
"""rping takes no more than 65535 octets."""
CAPTURED_OCTETS: Final = 1 << 21
"""Of pings, at most, in a capture: tshark and our reassembly take their time."""
CAPTURE: Final = "ping.pcapng"
MANY: Final = 4
ENDLESS: Final = 1_000_000
CONNECTIONS: Final = 200
"""That begin one after the other with a first message as early as can be."""

LISTENS: Final = f"grep -q ':{PORT:04X} 00000000:0000 0A' /proc/net/tcp"
"""The shell's question whether a socket of the kernel's listens at our port."""


@dataclass
class Rig:
    """Both ends."""

    remote: Remote
    ours: Ours
    directory: Path

    def client_line(self, size: int, pings: int) -> str:
        """rping as client, every octet compared."""
        return f"rping -c -a {self.ours.place.address} -p {PORT} -S {size} -C {pings} -V"

    def client(self, size: int, pings: int, seconds: float = RPING_SECONDS) -> tuple[int, str]:
        """rping as client, to its end."""
        return self.remote.run(self.client_line(size, pings), seconds)

    def client_left(self, size: int) -> bool:
        """rping as client of a server that closes; whether it waits for its own thread thereafter, and is
        ended."""
        line = self.client_line(size, PINGS)
        if isinstance(self.remote, GuestRemote):
            line = f"until-stuck {PORT} {line}"
        _, output = self.remote.run(line, RPING_SECONDS)
        return require_left(output)

    def start_server(self, size: int) -> None:
        """rping as server, for one client after the other."""
        self.remote.start(f"rping -s -P -a {self.remote.address} -p {PORT} -S {size}")
        if isinstance(self.remote, GuestRemote):
            # siw listens by a socket of the kernel's, which is seen there; elsewhere the second that start()
            # waits has to do.
            self.await_listener("rping")

    def await_listener(self, server: str) -> None:
        """Wait until a server in the guest listens."""
        status, _ = self.remote.run(f"until {LISTENS}; do sleep 0.2; done", SHORT_SECONDS)
        require(status == 0, f"{server}'s server does not listen")

    def connect(self, words: list[str], seconds: float = SECONDS, capture: Path | None = None) -> Process:
        """Our client."""
        return self.ours.connect([f"{self.remote.address}:{PORT}", *words], seconds, capture)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    who: str
    what: str
    play: Callable[[Rig], str]
    driver: tuple[str, ...] = (STOCK,)
    """What siw-load takes."""
    anywhere: bool = False
    """Whether it is as well for an adapter on a host of the user's: it asks nothing of siw's own, and
    nothing of the moment at which a command is typed."""


def require(holds: bool, what: str) -> None:
    """What has to be so."""
    if not holds:
        raise RigError(what)


CLOSED_TOO_SOON: Final = ["client DISCONNECT EVENT...", "rdma_get_cm_event: Bad file descriptor"]
"""What rping says when it is done and closes its event channel before the thread that reads it has ended."""


def require_done(status: int, output: str, who: str = "rping") -> None:
    """rping has made all its pings. That its own threads end in the wrong order, after the last, is its
    own affair."""
    done = status == 0 or output.strip().splitlines() == CLOSED_TOO_SOON
    require(done, f"{who} ended with status {status}: {output.strip()}")


STUCK: Final = "stuck: rping waits for its own thread"
"""What the guest's until-stuck says."""
SAID_WHEN_LEFT: Final = (
    r"client DISCONNECT EVENT\.\.\.",
    r"wait for RDMA_(WRITE_ADV|WRITE_COMPLETE) state \d+",
    *(r"post send error -?\d+", r"rping client failed: -?\d+"),
    re.escape(CLOSED_TOO_SOON[1]),
)
"""What rping says when its server closes, as its threads happen to overtake each other: nothing of data
that came wrong or of requests that failed."""


def require_left(output: str) -> bool:
    """rping has seen its server close, and nothing worse before; whether it was stuck then."""
    lines = output.strip().splitlines()
    said = [line for line in lines if line != STUCK]
    require(CLOSED_TOO_SOON[0] in said, f"rping has seen no end: {output.strip()}")
    others = [line for line in said if not any(re.fullmatch(known, line) for known in SAID_WHEN_LEFT)]
    require(not others, f"rping: {' '.join(others)}")
    return STUCK in lines


ALL_OPCODES: Final = frozenset({0, 1, 2, 3})
"""Write, Read Request, Read Response and Send: all four in every ping."""


def judge(
    rig: Rig,
    capture: Path,
    connections: int,
    crc: bool | None,
    opcodes: frozenset[int] = ALL_OPCODES,
    closed: bool = True,
) -> str:
    """What tshark and our own reassembly find in a capture of connections. ``opcodes``: those of RDMAP that
    have to be there. ``closed``: both ends have to have closed them, ours without RST."""
    words = [
        str(CHECK_CAPTURE),
        str(capture),
        "--connections",
        str(connections),
        "--aligned",
        rig.ours.place.address,
    ]
    done = subprocess.run(
        ["nice", "-n", "10", sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=JUDGE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RigError(f"capture: {done.stderr.strip()[-500:]}")
    directions = json.loads(done.stdout)["directions"]
    fpdus = sum(direction["fpdus"] for direction in directions)
    require(
        fpdus == sum(direction["fpdus_by_tshark"] for direction in directions),
        "tshark has not decoded every FPDU",
    )
    if closed:
        require_closed(directions, rig.ours.place.address)
    seen = {direction["crc"] for direction in directions}
    if crc is not None:
        require(seen == {crc}, f"CRC {seen}, not {crc}")
    found = {int(opcode) for direction in directions for opcode in direction["opcodes"]}
    require(opcodes <= found, f"opcodes {sorted(found)}")
    capture.unlink()
    return f"tshark: {fpdus} FPDUs"


def require_closed(directions: list[dict[str, Any]], ours: str) -> None:
    """Both ends of each connection have closed it, and ours has reset none."""
    unfinished = [direction["source"] for direction in directions if not direction["finished"]]
    require(not unfinished, f"no FIN from {unfinished}")
    reset = any(direction["reset"] for direction in directions if direction["host"] == ours)
    require(not reset, "RST from our end")


def captured(rig: Rig, size: int, pings: int) -> Path | None:
    """Where the frames go, if they are few enough."""
    return rig.directory / CAPTURE if size * pings <= CAPTURED_OCTETS else None


def check_served(served: dict[str, Any], pings: int, revision: int = 2) -> None:
    """What our server says of a client that was through."""
    require(served["ended"] == "closed", f"the client ended: {served['ended']}")
    require(served["pings"] == pings, f"{served['pings']} pings, not {pings}")
    require(served["revision"] == revision, f"revision {served['revision']}")
    if revision == 2:
        # rping asks for one each.
        require(served["asked"] == {"ird": 1, "ord": 1}, f"its depths {served['asked']}")
        require(served["agreed"] == {"ird": 1, "ord": 1}, f"ours {served['agreed']}")


def we_serve(
    size: int, words: tuple[str, ...] = (), crc: bool | None = True, revision: int = 2
) -> Callable[[Rig], str]:
    """rping pings us."""

    def play(rig: Rig) -> str:
        capture = captured(rig, size, PINGS)
        server = rig.ours.serve(["--clients", "1", *words], SECONDS + SHORT_SECONDS, capture)
        started = time.monotonic()
        status, output = rig.client(size, PINGS)
        seconds = time.monotonic() - started
        require_done(status, output)
        [served] = rig.ours.results(server)
        check_served(served, PINGS, revision)
        line = (
            f"{PINGS} pings in {seconds:.1f} s, IRD/ORD {served['agreed']['ird']}/{served['agreed']['ord']}"
        )
        return f"{line}; {judge(rig, capture, 1, crc)}" if capture else line

    return play


def we_ping(
    size: int,
    words: tuple[str, ...] = (),
    crc: bool | None = True,
    depths: tuple[int, int] | None = None,
    revision: int = 2,
) -> Callable[[Rig], str]:
    """We ping rping."""

    def play(rig: Rig) -> str:
        capture = captured(rig, size, PINGS)
        rig.start_server(size)
        client = rig.connect(["--size", str(size), "--count", str(PINGS), *words], SECONDS, capture)
        [report] = rig.ours.results(client)
        require(report["pings"] == PINGS and report["corrupt_bytes"] == 0, f"{report}")
        require(report["revision"] == revision, f"revision {report['revision']}")
        if depths:
            require((report["ird"], report["ord"]) == depths, f"IRD/ORD {report['ird']}/{report['ord']}")
        line = f"{PINGS} pings, median {report['p50_us']:.0f} us, IRD/ORD {report['ird']}/{report['ord']}"
        return f"{line}; {judge(rig, capture, 1, crc)}" if capture else line

    return play


def short_capture(size: int, we_listen: bool) -> Callable[[Rig], str]:
    """A few large pings, captured."""

    def play(rig: Rig) -> str:
        pings = CAPTURED_OCTETS // size
        capture = captured(rig, size, pings)
        assert capture
        if we_listen:
            server = rig.ours.serve(["--clients", "1"], SECONDS, capture)
            status, output = rig.client(size, pings)
            require_done(status, output)
            [served] = rig.ours.results(server)
            check_served(served, pings)
        else:
            rig.start_server(size)
            client = rig.connect(["--size", str(size), "--count", str(pings)], SECONDS, capture)
            [report] = rig.ours.results(client)
            require(report["pings"] == pings and report["corrupt_bytes"] == 0, f"{report}")
        return f"{pings} pings; {judge(rig, capture, 1, True)}"

    return play


def many_clients(rig: Rig) -> str:
    """Several clients at the same time."""
    server = rig.ours.serve(["--clients", str(MANY)], SECONDS + SHORT_SECONDS)
    line = rig.client_line(1000, PINGS)
    at_once = "; ".join([f"{line} & p{n}=$!" for n in range(MANY)]).replace("; p", " p")
    waits = " && ".join(f"wait $p{n}" for n in range(MANY))
    status, output = rig.remote.run(f"{at_once}\n{waits}".replace("; ", "\n"), RPING_SECONDS)
    require(status == 0, f"rping ended with status {status}: {output.strip()}")
    served = rig.ours.results(server)
    require(len(served) == MANY, f"{len(served)} clients")
    for each in served:
        check_served(each, PINGS)
    return f"{MANY} clients, {PINGS} pings of 1000 octets each"


def we_disconnect(rig: Rig) -> str:
    """Our server closes right behind a message, then serves another."""
    capture = rig.directory / CAPTURE
    server = rig.ours.serve(["--clients", "2", "--count", "50"], SECONDS, capture)
    stuck = [rig.client_left(64) for _ in range(2)].count(True)
    served = rig.ours.results(server)
    require(len(served) == 2, f"{served}")
    for each in served:
        check_served(each, 50)
    line = f"rping sees it after 50 pings, twice; {judge(rig, capture, 2, True)}"
    # Its own race with siw, which the guest's until-stuck tells from everything else.
    return f"{line}; {stuck} of 2 then waited for its own thread" if stuck else line


def they_vanish(rig: Rig) -> str:
    """rping is killed in the middle; the next one is served."""
    server = rig.ours.serve(["--clients", "2"], SECONDS)
    rig.remote.start(rig.client_line(4096, ENDLESS))
    server.await_text(": connected")
    time.sleep(1)
    rig.remote.stop("KILL")
    status, output = rig.client(64, 100)
    require_done(status, output, "the next rping")
    served = rig.ours.results(server)
    require(len(served) == 2, f"{served}")
    killed, after = served
    check_served(after, 100)
    return f"it ends after {killed['pings']} pings ({killed['ended']}); the next is served"


def we_vanish(how: signal.Signals) -> Callable[[Rig], str]:
    """Our client ends in the middle; rping serves the next."""

    def play(rig: Rig) -> str:
        rig.start_server(4096)
        client = rig.connect(["--size", "4096", "--count", str(ENDLESS)], SECONDS)
        client.await_text("connected to", SHORT_SECONDS)
        time.sleep(1)
        client.signal(how)
        if how is signal.SIGKILL:
            client.wait()
            before = "vanished without a word"
        else:
            [report] = rig.ours.results(client)
            require(report["corrupt_bytes"] == 0, f"{report}")
            before = f"closed after {report['pings']} pings"
        after = rig.connect(["--size", "64", "--count", "100"])
        [report] = rig.ours.results(after)
        require(report["pings"] == 100 and report["corrupt_bytes"] == 0, f"{report}")
        return f"{before}; the next is served"

    return play


def their_server_dies(rig: Rig) -> str:
    """rping's server is killed in the middle."""
    rig.start_server(4096)
    client = rig.connect(["--size", "4096", "--count", str(ENDLESS)], SECONDS)
    client.await_text("connected to", SHORT_SECONDS)
    time.sleep(1)
    rig.remote.stop("KILL")
    started = time.monotonic()
    status = client.wait()
    seconds = time.monotonic() - started
    [report] = rig.ours.written(client)
    require(status == 1 and report["corrupt_bytes"] == 0, f"status {status}, {report}")
    return f"after {report['pings']} pings, in {seconds:.1f} s: {client.errors.splitlines()[-1]}"


def we_reject(rig: Rig) -> str:
    """Our server rejects."""
    server = rig.ours.serve(["--clients", "1", "--reject", "--private-data", "20"], SHORT_SECONDS)
    status, output = rig.client(64, 1, SHORT_SECONDS)
    require(status != 0 and "RDMA_CM_EVENT_REJECTED" in output, f"status {status}: {output.strip()}")
    [served] = rig.ours.results(server)
    require(served["ended"] == "rejected", f"{served}")
    return f"rping: {output.strip().splitlines()[0]}"


def they_refuse(what: str, words: tuple[str, ...], serving: bool) -> Callable[[Rig], str]:
    """The other end does not want us."""

    def play(rig: Rig) -> str:
        if serving:
            rig.start_server(64)
        client = rig.connect(["--count", "1", *words], SHORT_SECONDS)
        status = client.wait()
        require(status == 1 and what in client.errors, f"status {status}: {client.errors}")
        return client.errors.splitlines()[-1]

    return play


def first_messages(rig: Rig) -> str:
    """Connections whose first message comes right behind the Reply."""
    rig.start_server(64)
    words = ["--count", "2", "--connections", str(CONNECTIONS)]
    [report] = rig.ours.results(rig.connect(words))
    require(report["pings"] == 2 * CONNECTIONS and report["corrupt_bytes"] == 0, f"{report}")
    nudged = f"{report['nudges']} nudges" if report["nudges"] else "no nudge"
    return f"{CONNECTIONS} connections, {nudged}, slowest ping {report['max_us'] / 1e3:.1f} ms"


def no_reads(rig: Rig) -> str:
    """Revision 1: siw does not read from us (its ORD is 0); we must notice, not hang."""
    rig.start_server(64)
    client = rig.connect(["--count", "1", "--revision", "1"], SHORT_SECONDS)
    status = client.wait()
    require(status == 1, f"status {status}: {client.errors}")
    return f"connects; rping cannot read: {client.errors.splitlines()[-1]}"


def all_cases() -> list[Case]:
    """In the order of the table."""
    them, us = "rping pings us", "we ping rping"
    crc_off = ("--crc", "off")
    required, refused, both, one = (
        (PATCHED, setting)
        for setting in ("mpa_crc_required=1", "mpa_crc_strict=1", "peer_to_peer=1", "mpa_version=1")
    )
    cases = []
    for size in SIZES:
        cases.append(Case(them, f"{size} octets, CRC", we_serve(size), anywhere=True))
        cases.append(Case(us, f"{size} octets, CRC", we_ping(size), anywhere=True))
    for size in (SIZES[0], SIZES[-1]):
        cases.append(Case(them, f"{size} octets, no CRC", we_serve(size, crc_off, crc=False)))
        cases.append(Case(us, f"{size} octets, no CRC", we_ping(size, crc_off, crc=False)))
    deep = ("--ird", "128", "--ord", "128")
    return [
        *cases,
        Case(them, f"{SIZES[-1]} octets, captured", short_capture(SIZES[-1], we_listen=True), anywhere=True),
        Case(us, f"{SIZES[-1]} octets, captured", short_capture(SIZES[-1], we_listen=False), anywhere=True),
        Case(us, "IRD/ORD 1/1", we_ping(64, ("--ird", "1", "--ord", "1")), anywhere=True),
        Case(us, "IRD/ORD 128/128", we_ping(64, deep, depths=(128, 128))),
        Case(us, "revision 2 without falling back", we_ping(64, ("--revision", "2")), anywhere=True),
        Case(us, "revision 1", no_reads),
        Case(them, "four clients at once", many_clients, anywhere=True),
        Case(them, "we disconnect", we_disconnect, anywhere=True),
        Case(them, "rping is killed", they_vanish),
        Case(us, "we are interrupted", we_vanish(signal.SIGTERM)),
        Case(us, "we are killed", we_vanish(signal.SIGKILL)),
        Case(us, "rping is killed", their_server_dies),
        Case(them, "we reject", we_reject, anywhere=True),
        Case(us, "Markers wanted: rejected", they_refuse("rejected", ("--markers", "on"), serving=True)),
        Case(us, "nobody listens", they_refuse("refused", (), serving=False)),
        Case(us, "first messages at once", first_messages),
        Case(us, "first messages at once", first_messages, (PATCHED,)),
        Case(them, "siw wants CRC", we_serve(64), required),
        Case(us, "siw wants no CRC: rejected", they_refuse("rejected", (), serving=True), refused),
        Case(us, "siw wants no CRC, nor do we", we_ping(64, crc_off, crc=False), refused),
        Case(them, "peer-to-peer, ready by Write", we_serve(64), both),
        Case(us, "ready by Write", we_ping(64, ("--rtr", "write")), both),
        Case(us, "ready by Read", we_ping(64, ("--rtr", "read")), both),
        Case(them, "siw knows revision 1 only", we_serve(64, revision=1), one),
    ]


def keep(directory: Path) -> Path:
    """Put everything by that was written, and begin a new capture; where."""
    kept = outcomes.keep(directory, "siw")
    (directory / CAPTURE).unlink(missing_ok=True)
    return kept


@dataclass
class Table:
    """What passed."""

    rows: list[tuple[str, str, str, bool, str]] = field(default_factory=list)

    def play(self, rig: Rig, case: Case) -> None:
        """One case."""
        driver = " ".join(case.driver) if isinstance(rig.remote, GuestRemote) else rig.remote.address
        try:
            detail, passed = case.play(rig), True
        except (RigError, OSError, subprocess.TimeoutExpired) as error:
            detail, passed = str(error).strip(), False
            (rig.directory / "other-end").write_text(rig.remote.clear())
        rig.remote.stop("KILL")
        # A capture is whole when the program has ended.
        rig.ours.stop()
        if not passed:
            detail += f"; all there is of it: {keep(rig.directory)}"
        print(f"{'ok  ' if passed else 'FAIL'}  {driver}: {case.who}: {case.what}: {detail}", flush=True)
        self.rows.append((driver, case.who, case.what, passed, detail))

    def print(self) -> None:
        """All of them, in columns."""
        rows = [("driver", "who", "what", "", "")]
        rows += [
            (driver, who, what, "ok" if passed else "FAILED", detail)
            for driver, who, what, passed, detail in self.rows
        ]
        outcomes.print_columns(rows)

    @property
    def failed(self) -> int:
        """How many."""
        return sum(not row[3] for row in self.rows)


def load(remote: GuestRemote, driver: tuple[str, ...]) -> None:
    """Load a driver in the guest."""
    status, output = remote.run(f"siw-load {' '.join(driver)}", SHORT_SECONDS)
    require(status == 0, f"siw-load {' '.join(driver)}: {output.strip()}")
