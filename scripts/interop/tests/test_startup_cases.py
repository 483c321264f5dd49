"""The combinations of MPA startup: the sample misses no pair, and two ends of ours do what is predicted."""

from __future__ import annotations

import unittest
from typing import ClassVar

from iwarp.errors import ConnectionFailed
from rig import startup

from .test_agreement import ends


class Cases(unittest.TestCase):
    """rig.startup."""

    cases: ClassVar[list[startup.Startup]]
    sample: ClassVar[list[startup.Startup]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.cases = startup.every_case()
        cls.sample = startup.sample(cls.cases)

    def test_the_sample_has_every_pair(self) -> None:
        def pairs(cases: list[startup.Startup]) -> set[object]:
            return {pair for case in cases for pair in startup._pairs(case)}

        self.assertEqual(pairs(self.cases), pairs(self.sample))
        self.assertLess(len(self.sample), 70)
        self.assertGreater(len(self.cases), 2000)

    def test_every_end_is_predicted(self) -> None:
        predicted = [startup.predict(case) for case in self.sample]
        failures = {outcome for outcome in predicted if isinstance(outcome, str)}
        self.assertEqual(failures, {"startup:rejected", "startup:revision", "mpa:7"})
        self.assertGreater(sum(not isinstance(outcome, str) for outcome in predicted), 10)

    def test_two_ends_do_as_predicted(self) -> None:
        for case in self.sample:
            with self.subTest(str(case)):
                expected = startup.predict(case)
                both = (case.kernel, case.ours) if case.we_respond else (case.ours, case.kernel)
                initiator, responder = ends(*both, 500)
                if isinstance(expected, str):
                    self.assertIsInstance(initiator, ConnectionFailed)
                    # An old Responder closes without a word.
                    codes = (expected, "startup:closed") if expected == "startup:revision" else (expected,)
                    self.assertIn(initiator.code, codes)
                    continue
                kernel = initiator if case.we_respond else responder
                self.assertEqual((kernel.version, kernel.crc), (expected[1].version, expected[1].crc))
                self.assertEqual(kernel.markers_sent, expected[1].markers_sent)
                self.assertEqual(bool(kernel.indication), bool(expected[1].rtr))


if __name__ == "__main__":
    unittest.main()
