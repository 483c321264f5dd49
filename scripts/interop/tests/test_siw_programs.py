"""What the cases against siw take for the end of an unmodified program."""

from __future__ import annotations

import unittest
from typing import cast
from unittest import mock

from rig.processes import RigError
from siw_rig.cases import Rig
from siw_rig.programs import (
    ALL,
    ATTEMPTS,
    PINGS,
    SMALL,
    TooSoon,
    attempted,
    ping_text,
    program_cases,
    require_measured,
    require_pings,
    result,
)

BANDWIDTH = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 64         100              0.15               0.14   \t\t   0.002531
"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 64      100          20.40          63.10        21.06    \t       22.00        \t5.01
"""


class Rpings(unittest.TestCase):
    def test_text_of_a_ping(self) -> None:
        """The letters go from A to z and begin again; each ping begins with the next. One byte is the NUL."""
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr"
        self.assertEqual(ping_text(0, 64), f"rdma-ping-0: {letters}")
        self.assertEqual(ping_text(57, 17), "rdma-ping-57: zA")
        self.assertEqual(ping_text(58, 17), "rdma-ping-58: AB")

    def test_each_ping_is_compared(self) -> None:
        lines = [f"server ping data: {ping_text(number, 64)}" for number in range(PINGS)]
        require_pings("\n".join(lines), "server ", 64)
        for wrong in (lines[:-1], [*lines[1:], lines[0]], [line[:-1] for line in lines]):
            with self.assertRaises(RigError):
                require_pings("\n".join(wrong), "server ", 64)


class Perftest(unittest.TestCase):
    def test_result(self) -> None:
        self.assertEqual(result(BANDWIDTH, SMALL), "average 0.14 MB/s")
        self.assertEqual(result(LATENCY, SMALL), "typical 21.06 us")
        for said, load in ((BANDWIDTH.replace(" 100 ", " 99 "), SMALL), (BANDWIDTH, ALL), ("", SMALL)):
            with self.assertRaisesRegex(RigError, "no result of"):
                result(said, load)

    def test_client_that_was_too_early(self) -> None:
        require_measured(0, BANDWIDTH, "ib_write_bw")
        with self.assertRaises(TooSoon):
            require_measured(139, "ERRNO: Connection refused.\nSegmentation fault", "ib_write_bw")
        with self.assertRaisesRegex(RigError, "status 17: Completion with error") as raised:
            require_measured(17, "Completion with error\n", "ib_write_bw")
        self.assertNotIsInstance(raised.exception, TooSoon)

    def test_attempts(self) -> None:
        """Another attempt has new programs. What failed otherwise is not attempted again."""
        for early, found in (
            (0, "done"),
            (2, "done; attempt 3"),
            (ATTEMPTS - 1, f"done; attempt {ATTEMPTS}"),
        ):
            rig, play = mock.Mock(), mock.Mock(side_effect=[*[TooSoon()] * early, "done"])
            self.assertEqual(attempted(play)(cast(Rig, rig)), found)
            self.assertEqual(rig.remote.stop.call_count, early)
            self.assertEqual(rig.ours.stop.call_count, early)
        for errors in ([TooSoon()] * ATTEMPTS, [RigError()]):
            play = mock.Mock(side_effect=errors)
            with self.assertRaises(RigError):
                attempted(play)(cast(Rig, mock.Mock()))
            self.assertEqual(play.call_count, len(errors))

    def test_cases_come_one_driver_after_the_other(self) -> None:
        drivers = [case.driver for case in program_cases()]
        self.assertEqual(
            len({*drivers}), sum(a != b for a, b in zip(drivers, [None, *drivers], strict=False))
        )


if __name__ == "__main__":
    unittest.main()
