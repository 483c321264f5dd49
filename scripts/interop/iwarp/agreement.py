"""What both ends agree on by their startup frames, in every revision, and what is wrong with a Reply.

Rev 0 is that of the RDMA Consortium (RFC 5044 appendix C), Rev 1 that of RFC 5044 §7.1, Rev 2 that of RFC
6581.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from . import mpa
from .errors import LAYER_MPA, ConnectionFailed, SenderRule, StartupError, TerminateControl
from .mpa import EnhancedData, Rtr, StartupFrame


@dataclass(frozen=True)
class Options:
    """What this end asks for."""

    markers: bool = False
    """Our M bit: whether the peer is to send us Markers (MPA-7.1.1-05)."""
    crc: bool = True
    """Our C bit (MPA-7.1.1-08)."""
    private_data: bytes = b""
    align: bool = False
    """Start segments with an FPDU as well as the kernel lets us (MPA-5.1-03)."""
    ulpdu_octets: int = mpa.MAX_ULPDU
    """Upper limit on ULPDUs below MULPDU."""
    emss: int = 0
    """EMSS to assume; 0 asks the socket (MPA-5.1-01)."""
    revision: int = mpa.REVISION
    """The revision we ask for as Initiator, and the highest we know as Responder; 0 is an RDMA Consortium
    peer."""
    permissive: bool = False
    """Take Rev 0 as well (RDMAC-C.2.3-03)."""
    ird: int = 0
    ord: int = 0
    rtr: Rtr = Rtr.NONE
    """The kinds of ready-to-receive indication we can do; any asks for the peer-to-peer model
    (MPAv2-9.2-01)."""
    enhanced: bool = True
    """Whether Rev 2 comes with S."""
    reject: bool = False
    """As Responder, reject (MPA-7.1.2-05)."""
    streaming: int | None = None
    """Octets each way in streaming mode before a delayed startup; ``None`` starts at once (RFC 5044
    §7.1.3)."""
    culley: int | None = None
    """No startup frames, but Markers, CRCs and this version of DDP and RDMAP (draft-culley-iwarp-mpa-00)."""

    @property
    def rdmac(self) -> bool:
        """We play an RDMA Consortium peer."""
        return self.revision == mpa.REVISION_RDMAC


@dataclass(frozen=True)
class Agreement:
    """How the connection runs."""

    markers_sent: bool
    markers_received: bool
    crc: bool
    version: int
    """Of DDP and RDMAP."""
    revision: int | None
    """``None`` without startup frames."""
    rtr: Rtr = Rtr.NONE
    """The Initiator: the one to send; the Responder: those that may come."""
    ird: int | None = None
    ord: int | None = None


class Unmatched(ConnectionFailed):
    """Enhanced setup that comes to nothing: 6 is insufficient IRD, 7 is no matching RTR (RFC 6581 §8)."""

    INSUFFICIENT_IRD, NO_RTR = 6, 7

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.code = f"mpa:{number}"
        self.terminate = TerminateControl(LAYER_MPA, 0, number)


_PREFERENCE: Final = (Rtr.WRITE, Rtr.SEND, Rtr.READ)
"""Which kind we send when several are agreed."""


def request(options: Options) -> StartupFrame:
    """The Initiator's frame."""
    if options.rdmac:  # RDMAC-C.2.3-02: an RDMA Consortium peer knows no choice
        return StartupFrame(mpa.REQUEST_KEY, True, True, revision=0, private_data=options.private_data)
    enhanced = None
    if options.revision == mpa.REVISION_ENHANCED and options.enhanced:
        enhanced = EnhancedData(options.ird, options.ord, bool(options.rtr), options.rtr)
    return StartupFrame(
        mpa.REQUEST_KEY,
        options.markers,
        options.crc,
        revision=options.revision,
        private_data=options.private_data,
        enhanced=enhanced,
    )


def reply(options: Options, asked: StartupFrame) -> StartupFrame:
    """The Responder's answer to a Request that :func:`judge_request` takes."""
    if asked.revision == mpa.REVISION_RDMAC:
        return StartupFrame(mpa.REPLY_KEY, True, True, options.reject, 0, options.private_data)
    enhanced = None
    if asked.enhanced:  # MPAv2-10-01
        theirs = asked.enhanced
        # MPAv2-9.1-02, -11 and -09.
        outbound = mpa.NOT_NEGOTIATED if theirs.ird == mpa.NOT_NEGOTIATED else min(options.ord, theirs.ird)
        inbound = mpa.NOT_NEGOTIATED if theirs.ord == mpa.NOT_NEGOTIATED else options.ird
        # MPAv2-9.2-03, -04, -05: what both can do, or at least what we can.
        kinds = (options.rtr & theirs.rtr or options.rtr) if theirs.peer_to_peer else Rtr.NONE
        enhanced = EnhancedData(inbound, outbound, theirs.peer_to_peer, kinds)
    return StartupFrame(
        mpa.REPLY_KEY,
        options.markers,
        options.crc,
        options.reject,
        asked.revision,
        options.private_data,
        enhanced,
    )  # MPA-7.1.1-12: the Reply has the Rev of the Request


def judge_request(options: Options, asked: StartupFrame) -> None:
    """Fails when we do not know how to answer ``asked``."""
    if asked.revision == 0 and not (options.permissive or options.rdmac):
        raise StartupError(StartupError.REVISION, "Rev 0, and we are not permissive", 0)
    if asked.revision > options.revision:
        # MPA-7.1.1-14, MPAv2-10-04: what an old Responder does; RFC 5044 figure 16: what an RDMA Consortium
        # peer does.
        raise StartupError(StartupError.REVISION, f"we know no Rev {asked.revision}", asked.revision)
    if asked.enhanced and asked.enhanced.peer_to_peer and not options.rtr:
        raise StartupError(
            StartupError.REVISION, "we are no peer-to-peer Responder (MPAv2-9.2-02)", asked.revision
        )


def judge_reply(ours: StartupFrame, theirs: StartupFrame) -> None:
    """Every rule on a Reply to the Request ``ours``."""
    if theirs.revision != ours.revision:  # MPA-7.1.1-12, -13, -14; RDMAC-C.2.2-01
        text = f"a Reply with Rev {theirs.revision} to a Request with Rev {ours.revision}"
        raise StartupError(StartupError.REVISION, text, theirs.revision)
    if (ours.enhanced is None) != (theirs.enhanced is None) and not theirs.rejected:
        rule = "MPAv2-10-02" if ours.enhanced is None else "MPAv2-10-01"
        raise SenderRule(
            rule, f"S is {theirs.enhanced is not None:d} in the Reply and was not in the Request"
        )
    if ours.enhanced is None or theirs.enhanced is None:
        return
    asked, answered = ours.enhanced, theirs.enhanced
    if answered.peer_to_peer != asked.peer_to_peer:
        rule = "MPAv2-9.2-03" if asked.peer_to_peer else "MPAv2-9.2-09"
        raise SenderRule(
            rule, f"A={answered.peer_to_peer:d} in the Reply, {asked.peer_to_peer:d} in the Request"
        )
    if theirs.rejected:
        return
    if asked.peer_to_peer and not answered.rtr:
        raise SenderRule("MPAv2-9.2-05", "no kind of ready-to-receive indication in the Reply")
    if asked.ird == mpa.NOT_NEGOTIATED:
        if answered.ord != mpa.NOT_NEGOTIATED:
            raise SenderRule("MPAv2-9.1-11", f"IRD 0x3fff is answered by ORD {answered.ord}")
    elif answered.ord > asked.ird:
        # MPAv2-9.1-02, which the Initiator answers as MPAv2-9.1-07 says.
        text = f"ORD {answered.ord} in the Reply exceeds IRD {asked.ird} in the Request"
        raise Unmatched(Unmatched.INSUFFICIENT_IRD, text)
    if asked.ord == mpa.NOT_NEGOTIATED and answered.ird != mpa.NOT_NEGOTIATED:
        raise SenderRule("MPAv2-9.1-09", f"ORD 0x3fff is answered by IRD {answered.ird}")


def agree(options: Options, ours: StartupFrame, theirs: StartupFrame, initiator: bool) -> Agreement:
    """What the two frames come to; an Initiator that can send no agreed indication fails (MPAv2-9.2-08)."""
    if theirs.revision == mpa.REVISION_RDMAC:  # RDMAC-C.1-01, A-22
        return Agreement(True, True, True, 0, 0)
    agreement = Agreement(
        markers_sent=theirs.markers,  # MPA-7.1.1-05, -06
        markers_received=ours.markers,
        crc=ours.crc or theirs.crc,  # MPA-7.1.1-07, -08
        version=1,
        revision=theirs.revision,
    )
    if ours.enhanced is None or theirs.enhanced is None:
        return agreement
    depths = {"ird": ours.enhanced.ird, "ord": min(options.ord, theirs.enhanced.ird)}
    rtr = Rtr.NONE
    if ours.enhanced.peer_to_peer:
        agreed = options.rtr & theirs.enhanced.rtr
        if initiator:
            rtr = next((kind for kind in _PREFERENCE if kind & agreed), Rtr.NONE)
            if not rtr:
                raise Unmatched(
                    Unmatched.NO_RTR, f"we can send {options.rtr}, the Reply wants {theirs.enhanced.rtr}"
                )
        else:
            rtr = ours.enhanced.rtr
    return Agreement(**{**vars(agreement), **depths, "rtr": rtr})
