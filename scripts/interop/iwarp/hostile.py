"""Hostile scenarios: what a bad peer does, and what the documents say the other end then does.

:data:`SCENARIOS` is the table: per scenario the octets sent, the reaction expected on the wire, the code
under which the other end reports the failure to its own user, and the requirements behind both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from . import attacks, mpa, rdmap
from .agreement import Options
from .attacks import Attack, Then
from .errors import ConnectionFailed, TcpError, TerminateControl
from .exchange import FileExchange
from .peer import Endpoint, Stream, receive_startup, start


@dataclass(frozen=True)
class Expected:
    """A documented reaction."""

    name: str
    terminates: frozenset[TerminateControl] = frozenset()
    """The Terminates that are right; empty when none may come."""
    terminate_required: bool = True
    silent: bool = False
    """Not one octet comes before the end of the connection."""
    rejecting_reply: bool = False
    """A Reply with Rev 1 and R=1 comes before the end (A-12)."""
    observed: bool = True
    """Whether the reaction can be seen from our side at all."""


CLOSE: Final = Expected("FIN or RST without a Terminate")
CLOSE_SILENTLY: Final = Expected("FIN or RST and not one octet", silent=True)
REJECT_AND_CLOSE: Final = Expected("a rejecting Reply, then FIN", rejecting_reply=True)
CLOSE_MAYBE_TERMINATE: Final = Expected(
    "FIN or RST, after a Terminate 2:0:1 or without",
    frozenset({TerminateControl(2, 0, 1)}),
    terminate_required=False,
)
NOTHING_TO_SEE: Final = Expected("the connection is gone", observed=False)


def terminate(*controls: tuple[int, int, int]) -> Expected:
    """A Terminate with one of ``controls``, then FIN or RST."""
    wanted = frozenset(TerminateControl(*control) for control in controls)
    return Expected("Terminate " + " or ".join(sorted(map(str, wanted))) + ", then FIN or RST", wanted)


ENHANCED: Final = Options(revision=2, ird=4, ord=4, rtr=mpa.Rtr.WRITE)
"""An Initiator of revision 2 in the peer-to-peer model, which can send one kind of ready-to-receive
indication."""


@dataclass(frozen=True)
class Scenario:
    """One bad part to play."""

    name: str
    expected: Expected
    error_codes: tuple[str, ...]
    """What the other end may report; see :mod:`iwarp.errors`."""
    requirements: tuple[str, ...]
    octets: bytes = b""
    """Sent in place of our startup frame; with ``act`` left out."""
    pace_seconds: float = 0
    """Pause between the single octets of ``octets``; 0 sends them together."""
    act: Callable[[attacks.Stage], Attack] | None = None
    """What to do in Full Operation."""
    first: bool = False
    """Attack with the very first FPDU instead of after the advertisements."""
    initiator: bool = True
    """Our role."""
    markers: bool = False
    """The other end must ask for Markers."""
    enhanced: bool = False
    """The other end must ask as :data:`ENHANCED` does."""

    def as_json(self) -> dict[str, Any]:
        """What a rig needs to know."""
        return {
            "scenario": self.name,
            "role": "initiator" if self.initiator else "responder",
            "markers": self.markers,
            "expected": self.expected.name,
            "error_codes": self.error_codes,
            "requirements": self.requirements,
        }


def _scenarios() -> dict[str, Scenario]:
    """The table."""
    request = mpa.StartupFrame(mpa.REQUEST_KEY, markers=False, crc=True).encode()
    reply = mpa.StartupFrame(mpa.REPLY_KEY, markers=False, crc=True).encode()
    # fmt: off
    table = [
        # Startup, as Initiator (RFC 5044 §7.1).  After a malformed Request TCP is closed at once (MPA-8-07).
        Scenario("request-wrong-key", CLOSE_SILENTLY, ("startup:key",),
                 ("MPA-7.1.1-02", "MPA-7.1.2-04", "MPA-7.1.2-16", "MPA-8-07", "D08-7.1.1-01"),
                 b"MPA ID Req frame" + request[16:]),
        Scenario("request-reply-key", CLOSE_SILENTLY, ("startup:key",), ("MPA-7.1.1-02", "MPA-8-06"), reply),
        Scenario("request-garbage", CLOSE_SILENTLY, ("startup:key",), ("MPA-7.1.3-01", "MPA-8-06"),
                 b"GET / HTTP/1.1\r\nHost: 198.18.0.2\r\n\r\n"),
        Scenario("request-pd-length-513", CLOSE_SILENTLY, ("startup:private-data-length",),
                 ("MPA-7.1.1-17", "MPA-7.1.2-22", "MPA-8-07"),
                 request[:18] + (513).to_bytes(2, "big") + bytes(513)),
        Scenario("request-pd-length-65535", CLOSE_SILENTLY, ("startup:private-data-length",),
                 ("MPA-7.1.1-17", "MPA-7.1.2-23"), request[:18] + b"\xff\xff"),
        Scenario("request-extra-octets", CLOSE_SILENTLY, ("startup:private-data-extra",),
                 ("MPA-7.1.1-17", "MPA-7.1.2-24", "A-03"), request[:18] + (4).to_bytes(2, "big") + bytes(8)),
        Scenario("request-rev-3", CLOSE_SILENTLY, ("startup:revision",),
                 ("MPA-7.1.1-13", "MPA-7.1.1-14", "A-11"),
                 request[:17] + b"\x03" + request[18:]),
        Scenario("request-rev-0", REJECT_AND_CLOSE, ("startup:revision",), ("RDMAC-C.2.1-01", "A-12"),
                 request[:16] + b"\xc0\x00" + request[18:]),
        Scenario("request-enhanced-short", CLOSE_SILENTLY, ("startup:private-data-length",),
                 ("MPAv2-6-05", "A-19"),
                 request[:16] + b"\x50\x02\x00\x02" + bytes(2)),
        Scenario("request-enhanced-extra", CLOSE_SILENTLY, ("startup:private-data-extra",),
                 ("MPAv2-6-05", "A-03"),
                 request[:16] + b"\x50\x02\x00\x04" + bytes(5), enhanced=True),
        Scenario("request-truncated", CLOSE_SILENTLY, ("startup:timeout",), ("MPA-7.1.2-25", "A-03"),
                 request[:10]),
        Scenario("request-silence", CLOSE_SILENTLY, ("startup:timeout",), ("MPA-7.1.2-21", "MPA-7.1.2-25")),
        Scenario("request-dribbled", CLOSE_SILENTLY, ("startup:timeout",), ("MPA-7.1.2-25",), request,
                 pace_seconds=0.5),
        # Startup, as Responder.
        Scenario("reply-wrong-key", CLOSE_SILENTLY, ("startup:key",), ("MPA-7.1.1-04", "MPA-7.1.2-12"),
                 b"MPA ID Rep frame" + reply[16:], initiator=False),
        Scenario("reply-request-key", CLOSE_SILENTLY, ("startup:key",), ("MPA-7.1.2-20",), request,
                 initiator=False),
        Scenario("reply-pd-length-513", CLOSE_SILENTLY, ("startup:private-data-length",),
                 ("MPA-7.1.1-17", "MPA-7.1.2-12"), reply[:18] + (513).to_bytes(2, "big") + bytes(513),
                 initiator=False),
        Scenario("reply-rev-0", CLOSE_SILENTLY, ("startup:revision",), ("RDMAC-C.2.2-01",),
                 reply[:17] + b"\x00" + reply[18:], initiator=False),
        Scenario("reply-rejected", CLOSE_SILENTLY, ("startup:rejected",), ("MPA-7.1.2-13", "A-01"),
                 mpa.StartupFrame(mpa.REPLY_KEY, False, True, rejected=True, private_data=b"no").encode(),
                 initiator=False),
        Scenario("reply-unenhanced", CLOSE_SILENTLY, ("startup:not-enhanced", "sender:MPAv2-10-01"),
                 ("MPAv2-10-01",),
                 reply[:17] + b"\x02" + reply[18:], initiator=False, enhanced=True),
        Scenario("reply-ord-too-large", terminate((2, 0, 6)), ("mpa:6",), ("MPAv2-9.1-07", "MPAv2-8-01"),
                 mpa.StartupFrame(mpa.REPLY_KEY, False, True, revision=2,
                                  enhanced=mpa.EnhancedData(4, 5, True, mpa.Rtr.WRITE)).encode(),
                 initiator=False, enhanced=True),
        Scenario("reply-no-rtr", terminate((2, 0, 7)), ("mpa:7",), ("MPAv2-9.2-08", "MPAv2-8-01"),
                 mpa.StartupFrame(mpa.REPLY_KEY, False, True, revision=2,
                                  enhanced=mpa.EnhancedData(4, 4, True, mpa.Rtr.SEND)).encode(),
                 initiator=False, enhanced=True),
        Scenario("reply-silence", CLOSE_SILENTLY, ("startup:timeout",), ("MPA-7.1.2-25",), initiator=False),
        # MPA in Full Operation (RFC 5044 §8).
        Scenario("crc", terminate((2, 0, 2)), ("mpa:2",),
                 ("MPA-4.4-16", "MPA-8-02", "MPA-8-08", "RDMAP-6.2.1-01"),
                 act=attacks.bad_crc),
        Scenario("crc-first-fpdu", CLOSE_SILENTLY, ("mpa:2",), ("MPA-7.1.2-15", "MPA-8-02", "A-07", "A-08"),
                 act=attacks.bad_crc, first=True),
        Scenario("marker", terminate((2, 0, 3)), ("mpa:3",), ("MPA-8-03", "MPA-4.3-07"),
                 act=attacks.bad_marker, markers=True),
        Scenario("ulpdu-length-65535", terminate((2, 0, 3)), ("mpa:3",), ("MPA-3-05", "A-05"),
                 act=attacks.ulpdu_of(65535)),
        Scenario("ulpdu-length-64769", terminate((2, 0, 3)), ("mpa:3",), ("MPA-3-05", "A-05"),
                 act=attacks.ulpdu_of(64769)),
        Scenario("half-fpdu-fin", CLOSE_MAYBE_TERMINATE, ("mpa:1",), ("MPA-8-01", "A-09"),
                 act=attacks.half_fpdu(Then.FIN)),
        Scenario("half-fpdu-reset", NOTHING_TO_SEE, ("mpa:1", "tcp:reset"), ("MPA-8-01",),
                 act=attacks.half_fpdu(Then.RESET)),
        Scenario("early-fin", CLOSE, ("tcp:closed",), ("MPA-7.2-02", "DDP-6.2.1-05", "A-09"),
                 act=attacks.early_fin),
        # DDP (RFC 5041 §7).
        Scenario("ulpdu-length-0", terminate((1, 0, 0)), ("ddp:0:0",), ("A-05", "A-06"),
                 act=attacks.ulpdu_of(0)),
        Scenario("ulpdu-length-13", terminate((1, 0, 0)), ("ddp:0:0",), ("DDP-4.4-01", "A-06"),
                 act=attacks.ulpdu_of(13)),
        Scenario("unknown-stag", terminate((1, 1, 0)), ("ddp:1:0",),
                 ("DDP-7.1-10", "DDP-7.1-15", "DDP-8.3-05"),
                 act=attacks.write(stag=lambda at: at.stag ^ 0x5A5A_5A00)),
        Scenario("wrong-stag-key", terminate((1, 1, 0)), ("ddp:1:0",), ("DDP-7.1-10", "DDP-4.2-05"),
                 act=attacks.write(stag=lambda at: at.stag ^ 0x01)),
        Scenario("one-octet-past", terminate((1, 1, 1)), ("ddp:1:1",), ("DDP-7.1-13", "DDP-8.1-01"),
                 act=attacks.write(to=lambda at: at.to + at.length - attacks.WRITE_OCTETS + 1)),
        Scenario("one-octet-before", terminate((1, 1, 1)), ("ddp:1:1",), ("DDP-7.1-12", "DDP-8.1-01"),
                 act=attacks.write(to=lambda at: at.to - 1)),
        Scenario("to-wrap", terminate((1, 1, 3)), ("ddp:1:3",), ("DDP-7.1-14", "A-30"),
                 act=attacks.write(to=lambda _: 2**64 - attacks.WRITE_OCTETS // 2)),
        Scenario("to-wrap-exactly", terminate((1, 1, 3)), ("ddp:1:3",), ("DDP-7.1-14", "A-14"),
                 act=attacks.write(to=lambda _: 2**64 - attacks.WRITE_OCTETS)),
        Scenario("tagged-version-0", terminate((1, 1, 4)), ("ddp:1:4",), ("DDP-4.1-09", "A-13", "A-30"),
                 act=attacks.write(version=0)),
        Scenario("untagged-version-0", terminate((1, 2, 6)), ("ddp:2:6",), ("DDP-4.1-10", "A-13"),
                 act=attacks.send(version=0)),
        Scenario("qn-4", terminate((1, 2, 1)), ("ddp:2:1",), ("DDP-7.1-01",), act=attacks.send(qn=4, msn=1)),
        Scenario("third-send", terminate((1, 2, 2)), ("ddp:2:2",), ("DDP-7.1-02", "A-15"),
                 act=attacks.third_send),
        Scenario("msn-skipped", terminate((1, 2, 2), (1, 2, 3)), ("ddp:2:2", "ddp:2:3"),
                 ("DDP-7.1-05", "A-15"),
                 act=attacks.send(msn=3)),
        Scenario("msn-far", terminate((1, 2, 3)), ("ddp:2:3",), ("DDP-7.1-05", "A-15"),
                 act=attacks.send(msn=100_000)),
        Scenario("msn-repeated", terminate((1, 2, 3)), ("ddp:2:3",), ("DDP-7.1-05", "DDP-5.3-06", "A-15"),
                 act=attacks.send(msn=1)),
        Scenario("mo-past-buffer", terminate((1, 2, 4)), ("ddp:2:4",), ("DDP-7.1-03", "A-30"),
                 act=attacks.send(mo=17, octets=1)),
        Scenario("send-too-long", terminate((1, 2, 5)), ("ddp:2:5",), ("DDP-7.1-04", "RDMAP-5.3-02"),
                 act=attacks.send(octets=17)),
        # RDMAP (RFC 5040 §7).
        Scenario("rdmap-version-0", terminate((0, 2, 5)), ("rdmap:2:5",), ("RDMAP-4.1-07", "RDMAP-7.2-03"),
                 act=attacks.send(control=rdmap.control(rdmap.Opcode.SEND, version=0))),
        Scenario("opcode-12", terminate((0, 2, 6)), ("rdmap:2:6",),
                 ("RDMAP-4.1-05", "RDMAP-7.2-02", "RDMAPX-8-01"),
                 act=attacks.send(control=rdmap.control(12))),
        Scenario("opcode-15", terminate((0, 2, 6)), ("rdmap:2:6",), ("RDMAP-4.1-05", "RDMAP-7.2-02"),
                 act=attacks.send(control=rdmap.control(15))),
        Scenario("untagged-write", terminate((0, 2, 6)), ("rdmap:2:6",), ("RDMAP-4.1-04", "RDMAP-7.2-02"),
                 act=attacks.send(control=rdmap.control(rdmap.Opcode.WRITE))),
        Scenario("tagged-send", terminate((0, 2, 6)), ("rdmap:2:6",), ("RDMAP-4.1-04", "RDMAP-7.2-02"),
                 act=attacks.write(control=rdmap.control(rdmap.Opcode.SEND))),
        Scenario("terminate", CLOSE, ("terminated:1:1:1",), ("RDMAP-5.4-03", "RDMAP-6.2.1-02"),
                 act=attacks.send_terminate),
    ]
    # fmt: on
    return {scenario.name: scenario for scenario in table}


SCENARIOS: Final = _scenarios()


@dataclass
class Reaction:
    """What the other end was seen to do."""

    ending: str = "nothing"
    """``fin``, ``rst`` or ``nothing``."""
    octets: int = 0
    """Received after the attack began (startup scenarios: in all, our peer's Request not counted)."""
    terminate: rdmap.Terminate | None = None
    reply: mpa.StartupFrame | None = None
    fault: str = ""
    """A rule broken by the reaction itself."""

    def __str__(self) -> str:
        parts = [f"Terminate {self.terminate.control}"] if self.terminate else []
        parts += [f"Reply Rev {self.reply.revision} R={self.reply.rejected:d}"] if self.reply else []
        parts += [f"{self.octets} octets", self.ending, self.fault]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Verdict:
    """A scenario's outcome."""

    scenario: Scenario
    reaction: Reaction
    as_documented: bool

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **self.scenario.as_json(),
            "reaction": str(self.reaction),
            "as_documented": self.as_documented,
        }


def judge(expected: Expected, reaction: Reaction, ulpdu: bytes) -> bool:
    """Whether the reaction is the documented one.  ``ulpdu`` is the segment that a Terminate has to quote."""
    if not expected.observed:
        return True
    if reaction.ending not in ("fin", "rst") or reaction.fault:
        return False
    if expected.silent and reaction.octets:
        return False
    if expected.rejecting_reply:
        return reaction.reply is not None and reaction.reply.rejected
    if reaction.terminate is None:
        return not expected.terminates or not expected.terminate_required
    wanted = rdmap.Terminate.about(_Told(reaction.terminate.control), ulpdu)
    # RDMAP-4.8-04, RDMAP-7.1-02: flags and quoted headers as RFC 5040 §7.1 has them, not only the numbers.
    return reaction.terminate.control in expected.terminates and reaction.terminate == wanted


class _Told(ConnectionFailed):
    """A failure known only by the Terminate about it."""

    def __init__(self, control: TerminateControl) -> None:
        super().__init__(str(control))
        self.terminate = control


def play(scenario: Scenario, stream: Stream, options: Options, receive_octets: int) -> Verdict:
    """Play ``scenario`` and watch the reaction until the connection ends or the time is over."""
    if scenario.act is None:
        reaction = _play_startup(scenario, stream)
        return Verdict(scenario, reaction, judge(scenario.expected, reaction, b""))
    endpoint = start(stream, scenario.initiator, options)
    if scenario.markers and not endpoint.writer.markers:
        raise ValueError(f"{scenario.name} needs an other end that asks for Markers")
    exchange = FileExchange(endpoint, b"", receive_octets)
    stage = attacks.Stage(endpoint, exchange.region)
    if not scenario.first:
        exchange.advertise()
        while stage.target is None:
            for event in endpoint.step():
                stage.handle(event)
    attack = scenario.act(stage)
    reaction = _watch(stage, attack)
    return Verdict(scenario, reaction, judge(scenario.expected, reaction, attack.ulpdu))


def _play_startup(scenario: Scenario, stream: Stream) -> Reaction:
    reaction = Reaction()
    received = b""
    own_frame = 0
    try:
        if not scenario.initiator:  # as Responder we are sent a Request first
            asked, received = receive_startup(stream, mpa.REQUEST_KEY)
            own_frame = len(asked.encode())
            received = asked.encode() + received
        pieces = [scenario.octets[i : i + 1] for i in range(len(scenario.octets))]
        for piece in pieces if scenario.pace_seconds else [scenario.octets]:
            stream.send_all(piece)
            time.sleep(scenario.pace_seconds)
        while (octets := stream.receive()) != b"":
            received += octets or b""
            stream.wait(read=True, write=False)
        reaction.ending = "fin"
    except TcpError as error:
        reaction.ending = "rst" if error.code == "tcp:reset" else "nothing"
    reaction.octets = len(received) - own_frame
    if reaction.octets and scenario.initiator:
        parsed = mpa.parse_startup(received, mpa.REPLY_KEY)
        reaction.reply = parsed[0] if parsed else None
    elif reaction.octets:
        _read_terminate(received[own_frame:], reaction)
    return reaction


def _read_terminate(octets: bytes, reaction: Reaction) -> None:
    """All that may follow our accepting Reply is one Terminate in an FPDU with a CRC (MPAv2-9.1-07,
    MPAv2-9.2-08)."""
    reader = mpa.FpduReader(markers=False, crc=True)
    reader.feed(octets)
    try:
        fpdu = reader.read()
        event = rdmap.Receiver().receive(fpdu.ulpdu) if fpdu else None
    except ConnectionFailed as failure:
        reaction.fault = f"{failure.code}: {failure}"
        return
    if not isinstance(event, rdmap.Terminate) or reader.incomplete_octets:
        reaction.fault = f"{octets.hex(' ')} after our Reply"
        return
    reaction.terminate = event


def _watch(stage: attacks.Stage, attack: Attack) -> Reaction:
    """Carry out the attack; then receive, still judging, until the connection ends."""
    reaction = Reaction()
    endpoint, before = stage.endpoint, stage.endpoint.reader.position
    try:
        for event in endpoint.finish_sending():
            stage.handle(event)
        endpoint.post_octets(attack.octets)
        for event in endpoint.finish_sending():
            stage.handle(event)
        if attack.then is Then.RESET:
            endpoint.stream.reset()
            return reaction
        if attack.then is Then.FIN:
            endpoint.stream.shut_down_sending()
        while not endpoint.peer_closed:
            for event in endpoint.step():
                stage.handle(event)
        reaction.ending = "fin"
    except rdmap.RemoteTerminate as told:
        reaction.terminate = told.received
        _watch_ending(endpoint, reaction)
    except TcpError as error:
        reaction.ending = "rst" if error.code == "tcp:reset" else "nothing"
    except ConnectionFailed as failure:
        reaction.fault = f"{failure.code}: {failure}"
    reaction.octets = endpoint.reader.position + endpoint.reader.incomplete_octets - before
    endpoint.stream.socket.close()
    return reaction


def _watch_ending(endpoint: Endpoint, reaction: Reaction) -> None:
    """See the connection end after a Terminate, with nothing in between (RDMAP-5.4-04)."""
    if endpoint.reader.incomplete_octets:
        reaction.fault = "RDMAP-5.4-04: octets after the Terminate"
    try:
        while (octets := endpoint.stream.receive()) != b"":
            if octets:
                reaction.fault = "RDMAP-5.4-04: octets after the Terminate"
            endpoint.stream.wait(read=True, write=False)
        reaction.ending = "fin"
    except TcpError as error:
        reaction.ending = "rst" if error.code == "tcp:reset" else "nothing"
