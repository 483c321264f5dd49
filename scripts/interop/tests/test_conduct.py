"""The judgement of a sender's conduct: what is wrong, what is needless, what something called for."""

from __future__ import annotations

import unittest

from iwarp.conduct import AGAIN, BENIGN, FIELDS, FLAGS, WRONG, Conduct, Frame

US, PEER = "198.18.0.2", "198.18.0.1"
OCTETS = 1000


class Script:
    """Frames of one connection, in thousands of octets."""

    def __init__(self) -> None:
        self.conduct = Conduct(US)
        self._number = 0

    def _see(
        self, at: float, source: str, seq: int, octets: int, ack: int, sacks: bool, flags: tuple[str, ...]
    ) -> None:
        self._number += 1
        self.conduct.see(Frame(self._number, at, source, 0, seq, octets, ack, sacks, frozenset(flags)))

    def send(self, at: float, *places: int, flags: tuple[str, ...] = ()) -> Script:
        for place in places:
            self._see(at, US, place * OCTETS, OCTETS, 1, False, flags)
        return self

    def again(self, at: float, place: int, flag: str = "retransmission") -> Script:
        return self.send(at, place, flags=(flag,))

    def hear(self, at: float, ack: int, sacks: bool = False, flags: tuple[str, ...] = ()) -> Script:
        self._see(at, PEER, 1, 0, ack * OCTETS, sacks, flags)
        return self

    @property
    def faults(self) -> list[str]:
        return self.conduct.faults


class ConductTest(unittest.TestCase):
    """Each cause, and each lack of one."""

    def test_a_transfer_without_incident(self) -> None:
        script = Script().send(0, 0, 1, 2).hear(0.01, 2).send(0.01, 3, 4).hear(0.02, 5)
        self.assertEqual((script.faults, script.conduct.retransmissions), ([], 0))

    def test_wrong_whatever_happened(self) -> None:
        for flag, text in WRONG.items():
            script = (
                Script().send(0, 0, 1).hear(0.01, 1, sacks=True).send(1.0, 0, flags=(flag, "retransmission"))
            )
            self.assertEqual(script.faults, [f"frame 4: {text}"])

    def test_benign(self) -> None:
        script = Script()
        for flag in BENIGN:
            script.send(0, 0, flags=(flag,))
        self.assertEqual((script.faults, script.conduct.flags.total()), ([], len(BENIGN)))

    def test_sent_again_without_a_cause(self) -> None:
        for flag in AGAIN:
            script = Script().send(0, 0, 1, 2).hear(0.01, 0).again(0.02, 0, flag)
            self.assertEqual(script.faults, ["frame 5: sent again without a cause"])
            self.assertEqual(script.conduct.retransmissions, 1)

    def test_reported_loss_is_a_cause_until_the_peer_moves_on(self) -> None:
        script = Script().send(0, 0, 1, 2, 3).hear(0.01, 0, sacks=True).again(0.01, 0)
        self.assertEqual(script.faults, [])
        # The rest of that recovery has the same cause; what is sent after it has not.
        script.hear(0.02, 1).again(0.02, 1).hear(0.03, 4).send(0.03, 4, 5, 6)
        self.assertEqual(script.faults, [])
        script.again(0.04, 5)
        self.assertEqual(len(script.faults), 1)
        self.assertEqual(
            Script().send(0, 0, 1).hear(0.01, 0, flags=("duplicate_ack",)).again(0.01, 0).faults, []
        )

    def test_silence_for_a_timeout_is_a_cause(self) -> None:
        script = Script().send(0, 0, 1, 2).again(0.21, 0)
        self.assertEqual(script.faults, [])
        # The timer begins anew when octets are acknowledged (RFC 6298 §5.3).
        script = Script().send(0, 0, 1, 2).hear(0.15, 1).again(0.21, 1)
        self.assertEqual(len(script.faults), 1)

    def test_a_probe_of_the_tail(self) -> None:
        self.assertEqual(Script().send(0, 0, 1).again(0.005, 1).faults, [])
        self.assertEqual(len(Script().send(0, 0, 1).again(0.005, 0).faults), 1, "not the tail")
        self.assertEqual(len(Script().send(0, 0, 1).hear(0.004, 1).again(0.005, 1).faults), 1, "no silence")
        self.assertEqual(Script().send(0, 0, 1).hear(0.004, 1).again(0.0085, 1).faults, [])
        self.assertEqual(
            len(Script().send(0, 0, 1).hear(0.004, 0).again(0.0085, 0).faults), 1, "not the tail"
        )

    def test_an_acknowledgement_that_was_not_read(self) -> None:
        flags = ("spurious_retransmission", "retransmission")
        probed = Script().send(0, 0, 1).hear(0.0080, 2).send(0.0081, 1, flags=flags)
        self.assertEqual(probed.faults, [])
        for text, script in {
            "it was read by then": Script().send(0, 0, 1).hear(0.008, 2).send(0.0125, 1, flags=flags),
            "it was acknowledged before": Script()
            .send(0, 0, 1)
            .hear(0.001, 1)
            .hear(0.0080, 2)
            .send(0.0081, 0, flags=flags),
            "nothing called for it": Script()
            .send(0, 0, 1)
            .hear(0.007, 1)
            .hear(0.0115, 2)
            .send(0.0116, 0, flags=flags),
        }.items():
            self.assertEqual(len(script.faults), 1, text)

    def test_the_peers_conduct_is_not_judged(self) -> None:
        script = Script().hear(0, 0, flags=("spurious_retransmission",)).hear(0, 0, flags=("retransmission",))
        self.assertEqual((script.faults, script.conduct.flags.total()), ([], 0))

    def test_fields_of_tshark(self) -> None:
        flags = ["1" if flag == "keep_alive" else "" for flag in FLAGS]
        values = ["1.5", "", "fd00::1", "0", "7", "100", "", "1,5,9", "1", *flags]
        frame = Frame.parse(3, values)
        self.assertEqual(len(values), len(FIELDS))
        self.assertEqual((frame.source, frame.seconds, frame.ack, frame.sacks), ("fd00::1", 1.5, 0, True))
        self.assertEqual(frame.flags, {"keep_alive"})
        self.assertFalse(
            Frame.parse(3, [*values[:7], "1", "1", *values[9:]]).sacks, "a D-SACK alone reports no loss"
        )


if __name__ == "__main__":
    unittest.main()
