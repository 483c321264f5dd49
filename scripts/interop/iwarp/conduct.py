"""How a sender's TCP conducts itself on a path that is to lose nothing, by tshark's analysis of sequence
numbers.

tshark flags what is noteworthy (``tcp.analysis.flags``), not what is wrong. Of its flags on frames of the
sender,

- some are faults whatever happened: octets sent again that the peer had acknowledged, a part of the stream
  never sent, an acknowledgement of octets that never came;
- a retransmission is needless unless something called for it (see :meth:`Sender.judge`). A loaded machine
  does lose a frame in a full ring, and does stall for longer than a timeout, so there may be some on a clean
  path, with a cause;
- the others are benign. A window update, a full or a closed window and the probes of one (tshark takes those
  for keep-alives) are flow control at work; a duplicate acknowledgement answers a segment out of order or a
  probe; and a port may be used again.

Frames of the other end are the kernel's business.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

TIMEOUT_SECONDS: Final = 0.19
"""Least silence that passes for a retransmission timeout: 200 ms in every stack in use, less the steps of
a clock."""

PROBE_SECONDS: Final = 0.004
"""Least silence that passes for the timeout of a probe once some octets were acknowledged: it begins anew
with each acknowledgement (RFC 8985 §7.2), and poll loops are no faster."""

UNREAD_SECONDS: Final = 0.004
"""An acknowledgement captured so lately may not have been read when octets left: it waits in a ring while
its core waits for a CPU."""

WRONG: Final = {
    "spurious_retransmission": "octets sent again that had been acknowledged",
    "lost_segment": "octets of the stream left out",
    "ack_lost_segment": "octets acknowledged that never came",
}
AGAIN: Final = ("retransmission", "fast_retransmission", "out_of_order")
"""What tshark calls octets sent again that were not acknowledged; it guesses which by the time between."""
BENIGN: Final = (
    *("window_update", "window_full", "zero_window", "zero_window_probe", "zero_window_probe_ack"),
    *("keep_alive", "keep_alive_ack", "duplicate_ack", "reused_ports"),
)
FLAGS: Final = (*WRONG, *AGAIN, *BENIGN)
FIELDS: Final = (
    *("frame.time_relative", "ip.src", "ipv6.src", "tcp.stream", "tcp.seq", "tcp.len", "tcp.ack"),
    *("tcp.options.sack_le", "tcp.options.sack.dsack_le"),
    *(f"tcp.analysis.{flag}" for flag in FLAGS),
)


class Frame(NamedTuple):
    """A TCP segment, as tshark prints :data:`FIELDS`; sequence numbers count from the start of the
    connection."""

    number: int
    seconds: float
    source: str
    stream: int
    seq: int
    octets: int
    ack: int
    sacks: bool
    """Reports octets beyond a gap; a D-SACK alone does not."""
    flags: frozenset[str]

    @classmethod
    def parse(cls, number: int, values: list[str]) -> Frame:
        """From the values of :data:`FIELDS` in a frame that carries TCP."""
        seconds, ipv4, ipv6, stream, seq, octets, ack, sack, dsack, *flags = values
        blocks = len(sack.split(",")) if sack else 0
        raised = frozenset(name for name, value in zip(FLAGS, flags, strict=True) if value)
        return cls(
            number,
            float(seconds),
            ipv4 or ipv6,
            int(stream),
            int(seq),
            int(octets),
            int(ack or 0),
            blocks > bool(dsack),
            raised,
        )


@dataclass
class Sender:
    """One direction of a connection."""

    sent_at: dict[int, float] = field(default_factory=dict)
    """When the segment that begins there was last sent."""
    highest: int = 0
    """End of what has been sent."""
    acknowledged: int = 0
    acknowledged_at: float = 0.0
    loss_reported: bool = False
    """The peer has repeated an acknowledgement, or reported octets beyond a gap, since it last moved on."""
    recovery_end: int = 0
    """What had been sent when something called for a retransmission; more may follow until it is
    acknowledged."""
    heard: deque[tuple[float, int, float, bool]] = field(
        default_factory=lambda: deque([(-UNREAD_SECONDS, 0, 0.0, False)])
    )
    """What was known after each of the latest acknowledgements, and when it was captured: those that may not
    have been read, and the one before."""

    def hear(self, frame: Frame) -> None:
        """Take an acknowledgement of the peer."""
        if frame.ack > self.acknowledged:
            self.acknowledged, self.acknowledged_at, self.loss_reported = frame.ack, frame.seconds, False
        self.loss_reported |= frame.sacks or "duplicate_ack" in frame.flags
        self.heard.append((frame.seconds, self.acknowledged, self.acknowledged_at, self.loss_reported))
        while self.heard[1][0] <= frame.seconds - UNREAD_SECONDS:
            self.heard.popleft()

    def note(self, frame: Frame) -> None:
        """Remember what was sent."""
        if frame.octets:
            self.sent_at[frame.seq] = frame.seconds
            self.highest = max(self.highest, frame.seq + frame.octets)

    def judge_unread(self, frame: Frame) -> bool:
        """Whether the segment had not been acknowledged, and something called for sending it again, before
        the acknowledgements that may not have been read."""
        read = [heard for heard in self.heard if heard[0] <= frame.seconds - UNREAD_SECONDS]
        _, acknowledged, acknowledged_at, loss_reported = read[-1] if read else self.heard[0]
        before = replace(
            self, acknowledged=acknowledged, acknowledged_at=acknowledged_at, loss_reported=loss_reported
        )
        return frame.seq >= acknowledged and before.judge(frame)

    def judge(self, frame: Frame) -> bool:
        """Whether something called for sending the segment again: the peer's report of loss; silence for
        as long as a timeout (RFC 6298); silence since the last segment was sent, or for a while since an
        acknowledgement, of which this is a probe (RFC 8985 §7); or an earlier cause whose recovery is not
        over."""
        if self.acknowledged < self.recovery_end:
            return True
        sent_at = self.sent_at.get(frame.seq, 0.0)
        silent_since = max(sent_at, self.acknowledged_at)
        silence = frame.seconds - silent_since
        timed_out = silence >= TIMEOUT_SECONDS
        silent = self.acknowledged_at <= sent_at or silence >= PROBE_SECONDS
        probe = frame.seq + frame.octets == self.highest and silent
        if self.loss_reported or timed_out:
            self.recovery_end = self.highest
        return self.loss_reported or timed_out or probe


class Conduct:
    """What one host's TCP does in a capture, frame by frame."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.faults: list[str] = []
        self.flags: Counter[str] = Counter()
        """How often each flag stood on a frame of this host."""
        self._senders: dict[int, Sender] = {}

    def see(self, frame: Frame) -> None:
        """The next frame of the capture."""
        sender = self._senders.setdefault(frame.stream, Sender())
        if frame.source != self.host:
            sender.hear(frame)
            return
        self.flags.update(frame.flags)
        for flag in sorted(frame.flags & WRONG.keys()):
            if flag != "spurious_retransmission" or not sender.judge_unread(frame):
                self.faults.append(f"frame {frame.number}: {WRONG[flag]}")
        if not frame.flags.isdisjoint(AGAIN) and frame.flags.isdisjoint(WRONG) and not sender.judge(frame):
            self.faults.append(f"frame {frame.number}: sent again without a cause")
        sender.note(frame)

    @property
    def retransmissions(self) -> int:
        """Segments sent again, with a cause or without."""
        return sum(self.flags[flag] for flag in AGAIN)
